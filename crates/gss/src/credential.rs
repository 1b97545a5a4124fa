//! Credentials: keys of a service, or tickets of a user.

use crate::{
    Error, Gss, Name,
    sys::{ACCEPT, INDEFINITE, INITIATE, KERBEROS, OidSet, RawCredential, Store, StoreElement},
};
use std::{
    ffi::{CStr, CString, c_int},
    fmt,
    os::unix::ffi::OsStrExt,
    path::Path,
    ptr::{null, null_mut},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

/// A credential. Cloning shares it.
#[derive(Clone)]
pub struct Credential {
    raw: Arc<Mutex<Owned>>,
    gss: Gss,
}

struct Owned {
    raw: *mut RawCredential,
    gss: Gss,
}

// SAFETY: a credential belongs to no thread; the mutex around it gives it to one at a time.
unsafe impl Send for Owned {}

impl Gss {
    /// The keys of all services in a keytab, to accept contexts with. Without a path it is the machine's own keytab.
    ///
    /// # Errors
    /// If the keytab cannot be read, or has no key.
    pub fn accept_with(self, keytab: Option<&Path>) -> Result<Credential, Error> {
        let what = "cannot use the keytab";
        let stores = keytab.map(|path| (c"keytab", path));
        self.acquire(what, None, ACCEPT, stores.as_slice())
    }

    /// The same with the keys of one service alone.
    ///
    /// # Errors
    /// If the keytab cannot be read, or has no key of that service.
    pub fn accept_as(self, service: &Name, keytab: Option<&Path>) -> Result<Credential, Error> {
        let stores = keytab.map(|path| (c"keytab", path));
        self.acquire("cannot use the keytab", Some(service), ACCEPT, stores.as_slice())
    }

    /// The tickets of the user's own cache, as `kinit` has left them, to make contexts with.
    ///
    /// # Errors
    /// If there is none, or all have expired.
    pub fn initiate_with_cache(self) -> Result<Credential, Error> {
        self.acquire("cannot use the cache of tickets", None, INITIATE, &[])
    }

    /// A ticket for `principal`, got with its key in `keytab`, to make contexts with. It is kept in `cache`.
    ///
    /// # Errors
    /// If the keytab has no such key, or the KDC does not answer or refuses.
    pub fn initiate_with_keytab(self, principal: &Name, keytab: &Path, cache: &Path) -> Result<Credential, Error> {
        let stores = [(c"client_keytab", keytab), (c"ccache", cache)];
        self.acquire("cannot get a ticket with the keytab", Some(principal), INITIATE, &stores)
    }

    fn acquire(
        self,
        what: &'static str,
        principal: Option<&Name>,
        usage: c_int,
        stores: &[(&CStr, &Path)],
    ) -> Result<Credential, Error> {
        let zero = |_| Error::unfit(what, "a path contains a zero byte");
        let file = |path: &Path| CString::new([b"FILE:", path.as_os_str().as_bytes()].concat());
        let values: Vec<CString> = stores.iter().map(|(_, path)| file(path)).collect::<Result<_, _>>().map_err(zero)?;
        let elements: Vec<_> = stores
            .iter()
            .zip(&values)
            .map(|((key, _), value)| StoreElement { key: key.as_ptr(), value: value.as_ptr() })
            .collect();
        let store = Store { count: elements.len() as u32, elements: elements.as_ptr() };
        let store = if elements.is_empty() { null() } else { &raw const store };
        let mut mechanisms = OidSet { count: 1, elements: KERBEROS.as_ptr() };
        let principal = principal.map_or(null_mut(), |name| name.raw);
        let (mut minor, mut raw) = (0, null_mut());
        // SAFETY: all that is pointed to lives until the call ends; the credential is ours to release.
        let major = unsafe {
            (self.0.gss_acquire_cred_from)(
                &mut minor,
                principal,
                INDEFINITE,
                &mut mechanisms,
                usage,
                store,
                &mut raw,
                null_mut(),
                null_mut(),
            )
        };
        self.check(what, major, minor)?;
        Ok(Credential { raw: Arc::new(Mutex::new(Owned { raw, gss: self })), gss: self })
    }
}

impl Credential {
    /// How many share it.
    pub(crate) fn uses(&self) -> usize {
        Arc::strong_count(&self.raw)
    }

    /// Lends it to a call of the library. One at a time.
    pub(crate) fn with<T>(&self, call: impl FnOnce(*mut RawCredential) -> T) -> T {
        call(self.raw.lock().unwrap_or_else(PoisonError::into_inner).raw)
    }

    /// Its principal, and for how long it is valid; `None` for one that does not expire. The keys of a whole keytab
    /// belong to no single principal: then there is no name.
    ///
    /// # Errors
    /// If it has expired, or the library fails.
    pub fn about(&self) -> Result<(Option<Name>, Option<Duration>), Error> {
        let (mut minor, mut name, mut seconds) = (0, null_mut(), 0);
        // SAFETY: the credential is one; the name is ours to release.
        let major = self.with(|raw| unsafe {
            (self.gss.0.gss_inquire_cred)(&mut minor, raw, &mut name, &mut seconds, null_mut(), null_mut())
        });
        let name = Name::owned(self.gss, name);
        self.gss.check("cannot look at the credential", major, minor)?;
        Ok((name, (seconds != INDEFINITE).then(|| Duration::from_secs(seconds.into()))))
    }
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credential")
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        let mut minor = 0;
        // SAFETY: the credential is ours, and nothing refers to it any more.
        unsafe { (self.gss.0.gss_release_cred)(&mut minor, &mut self.raw) };
    }
}
