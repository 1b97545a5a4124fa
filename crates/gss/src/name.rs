//! Names of principals.

use crate::{
    Error, Gss, Octets,
    sys::{HOST_SERVICE, KERBEROS, PRINCIPAL, RawBuffer, RawName},
};
use std::{fmt, ptr::null_mut};

/// The form of a text that names a principal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameKind {
    /// `service@host`, whose realm follows from the host.
    Service,
    /// A whole principal: `user@REALM`, `nfs/host@REALM`.
    Principal,
}

/// The name of a principal.
pub struct Name {
    pub(crate) raw: *mut RawName,
    gss: Gss,
}

// SAFETY: a name does not change once it is made, and belongs to no thread.
unsafe impl Send for Name {}
// SAFETY: the library's functions only read names.
unsafe impl Sync for Name {}

impl Gss {
    /// Reads a name.
    ///
    /// # Errors
    /// If the text is no such name.
    pub fn name(self, text: &str, kind: NameKind) -> Result<Name, Error> {
        let kind = match kind {
            NameKind::Service => &HOST_SERVICE,
            NameKind::Principal => &PRINCIPAL,
        };
        let (mut minor, mut raw) = (0, null_mut());
        let text = RawBuffer::lend(text.as_bytes());
        // SAFETY: the library reads the text and makes a name that is ours to release.
        let major = unsafe { (self.0.gss_import_name)(&mut minor, &text, kind.as_ptr(), &mut raw) };
        self.check("cannot read the name of a principal", major, minor)?;
        Ok(Name { raw, gss: self })
    }
}

impl Name {
    /// A name that the library has made, for us to release; `None` if it has made none.
    pub(crate) fn owned(gss: Gss, raw: *mut RawName) -> Option<Self> {
        (!raw.is_null()).then_some(Self { raw, gss })
    }

    /// As text, with its realm: `user@REALM`.
    ///
    /// # Errors
    /// If the library fails.
    pub fn display(&self) -> Result<String, Error> {
        let (mut minor, mut text) = (0, Octets::empty(self.gss));
        // SAFETY: the name is one; the text is ours to release.
        let major = unsafe { (self.gss.0.gss_display_name)(&mut minor, self.raw, text.as_mut_ptr(), null_mut()) };
        self.gss.check("cannot find the name of a principal", major, minor)?;
        Ok(text.to_text())
    }

    /// The name of the local user that stands for it, by the rules of this machine (`auth_to_local` of krb5.conf). Such
    /// a user need not exist.
    ///
    /// # Errors
    /// If no rule makes it a local user.
    pub fn local(&self) -> Result<String, Error> {
        let (mut minor, mut text) = (0, Octets::empty(self.gss));
        // SAFETY: the name is one, and of this mechanism; the text is ours to release.
        let major = unsafe { (self.gss.0.gss_localname)(&mut minor, self.raw, KERBEROS.as_ptr(), text.as_mut_ptr()) };
        self.gss.check("no rule makes the principal a local user", major, minor)?;
        Ok(text.to_text())
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Name({})", self.display().unwrap_or_default())
    }
}

impl Drop for Name {
    fn drop(&mut self) {
        let mut minor = 0;
        // SAFETY: the name is ours, and nothing refers to it any more.
        unsafe { (self.gss.0.gss_release_name)(&mut minor, &mut self.raw) };
    }
}
