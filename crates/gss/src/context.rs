//! A context: what both ends share once they know each other.

use crate::{
    Error, Gss, Name, Octets,
    sys::{DEFAULT_PROTECTION, INDEFINITE, RawBuffer, RawContext},
};
use std::{fmt, ptr::null_mut, time::Duration};

/// A context of the library, or none yet.
pub(crate) struct Owned {
    pub(crate) raw: *mut RawContext,
    pub(crate) gss: Gss,
}

// SAFETY: a context belongs to no thread, and only the thread that has it uses it.
unsafe impl Send for Owned {}

impl Owned {
    pub(crate) fn none(gss: Gss) -> Self {
        Self { raw: null_mut(), gss }
    }
}

impl fmt::Debug for Owned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Owned")
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        let mut minor = 0;
        if !self.raw.is_null() {
            // SAFETY: the context is ours, and nothing refers to it any more. We ask for no token, because no peer of
            // the library expects one.
            unsafe { (self.gss.0.gss_delete_sec_context)(&mut minor, &mut self.raw, null_mut()) };
        }
    }
}

/// A message that was opened.
#[derive(Debug)]
pub struct Opened {
    /// The message.
    pub octets: Octets,
    /// Whether it was sealed, so that nobody could read it on its way; otherwise it was only signed.
    pub is_confidential: bool,
}

/// A context. Its messages may come in any order, and twice.
#[derive(Debug)]
pub struct Context(Owned);

impl Context {
    /// A context that both ends have.
    pub(crate) fn new(raw: Owned) -> Self {
        Self(raw)
    }

    /// The checksum that proves that this end has written `message`.
    ///
    /// # Errors
    /// If the context has expired.
    pub fn sign(&mut self, message: &[u8]) -> Result<Octets, Error> {
        let gss = self.0.gss;
        let (mut minor, mut checksum) = (0, Octets::empty(gss));
        let message = RawBuffer::lend(message);
        // SAFETY: the context is made; the library reads the message; the checksum is ours to release.
        let major =
            unsafe { (gss.0.gss_get_mic)(&mut minor, self.0.raw, DEFAULT_PROTECTION, &message, checksum.as_mut_ptr()) };
        gss.check("cannot sign a message", major, minor)?;
        Ok(checksum)
    }

    /// Checks that `checksum` is the peer's for `message`.
    ///
    /// # Errors
    /// If it is not, or the context has expired.
    pub fn verify(&mut self, message: &[u8], checksum: &[u8]) -> Result<(), Error> {
        let gss = self.0.gss;
        let mut minor = 0;
        let (message, checksum) = (RawBuffer::lend(message), RawBuffer::lend(checksum));
        // SAFETY: the context is made; the library reads both.
        let major = unsafe { (gss.0.gss_verify_mic)(&mut minor, self.0.raw, &message, &checksum, null_mut()) };
        gss.check("cannot verify a checksum", major, minor).map(drop)
    }

    /// Seals a message, so that only the peer can read it.
    ///
    /// # Errors
    /// If the context has expired, or cannot seal.
    pub fn seal(&mut self, message: &[u8]) -> Result<Octets, Error> {
        const WHAT: &str = "cannot seal a message";
        let gss = self.0.gss;
        let (mut minor, mut is_confidential, mut sealed) = (0, 0, Octets::empty(gss));
        let message = RawBuffer::lend(message);
        // SAFETY: the context is made; the library reads the message; what it makes is ours to release.
        let major = unsafe {
            (gss.0.gss_wrap)(
                &mut minor,
                self.0.raw,
                1,
                DEFAULT_PROTECTION,
                &message,
                &mut is_confidential,
                sealed.as_mut_ptr(),
            )
        };
        gss.check(WHAT, major, minor)?;
        if is_confidential == 0 {
            return Err(Error::unfit(WHAT, "the context has no cipher"));
        }
        Ok(sealed)
    }

    /// Opens a message of the peer.
    ///
    /// # Errors
    /// If it is malformed or not from the peer, or the context has expired.
    pub fn open(&mut self, sealed: &[u8]) -> Result<Opened, Error> {
        let gss = self.0.gss;
        let (mut minor, mut is_confidential, mut octets) = (0, 0, Octets::empty(gss));
        let sealed = RawBuffer::lend(sealed);
        // SAFETY: the context is made; the library reads the message; what it makes is ours to release.
        let major = unsafe {
            (gss.0.gss_unwrap)(&mut minor, self.0.raw, &sealed, octets.as_mut_ptr(), &mut is_confidential, null_mut())
        };
        gss.check("cannot open a message", major, minor)?;
        Ok(Opened { octets, is_confidential: is_confidential != 0 })
    }

    /// For how long it is still good; `None` if for ever.
    ///
    /// # Errors
    /// If it has expired.
    pub fn lifetime(&self) -> Result<Option<Duration>, Error> {
        let gss = self.0.gss;
        let (mut minor, mut seconds) = (0, 0);
        // SAFETY: the context is made.
        let major = unsafe { (gss.0.gss_context_time)(&mut minor, self.0.raw, &mut seconds) };
        gss.check("the context cannot be used any more", major, minor)?;
        Ok((seconds != INDEFINITE).then(|| Duration::from_secs(seconds.into())))
    }

    /// The principal that has begun it.
    ///
    /// # Errors
    /// If the library fails.
    pub fn initiator(&self) -> Result<Name, Error> {
        self.names().map(|(initiator, _)| initiator)
    }

    /// The service that it was begun with.
    ///
    /// # Errors
    /// If the library fails.
    pub fn acceptor(&self) -> Result<Name, Error> {
        self.names().map(|(_, acceptor)| acceptor)
    }

    fn names(&self) -> Result<(Name, Name), Error> {
        const WHAT: &str = "cannot find the principals of a context";
        let gss = self.0.gss;
        let (mut minor, mut initiator, mut acceptor) = (0, null_mut(), null_mut());
        // SAFETY: the context is made; the names are ours to release.
        let major = unsafe {
            (gss.0.gss_inquire_context)(
                &mut minor,
                self.0.raw,
                &mut initiator,
                &mut acceptor,
                null_mut(),
                null_mut(),
                null_mut(),
                null_mut(),
                null_mut(),
            )
        };
        let names = (Name::owned(gss, initiator), Name::owned(gss, acceptor));
        gss.check(WHAT, major, minor)?;
        match names {
            (Some(initiator), Some(acceptor)) => Ok((initiator, acceptor)),
            _ => Err(Error::unfit(WHAT, "the context is not complete yet")),
        }
    }
}
