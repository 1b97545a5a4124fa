//! What went wrong, in words that say what to do.

use crate::{
    Gss, Octets,
    sys::{ERRORS, KERBEROS, OF_GSS, OF_MECHANISM, Word},
};
use std::ffi::c_int;

/// The library could not be loaded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("MIT's Kerberos library cannot be loaded ({reason}); install it (Debian: libgssapi-krb5-2)")]
pub struct LoadError {
    /// The reason that the system gives.
    pub reason: String,
}

/// The kind of an error, for code that answers a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kind {
    /// There is no credential, or it cannot be used: no ticket, no key.
    NoCredential,
    /// The credential or the context has expired.
    Expired,
    /// The peer's token or message is malformed.
    BadToken,
    /// The checksum does not match the message.
    BadChecksum,
    /// Anything else.
    Other,
}

/// A call of the library failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}: {text}")]
pub struct Error {
    /// The action that failed.
    pub what: &'static str,
    /// The texts of the library, and of Kerberos.
    pub text: String,
    /// The major status (RFC 2744 section 3.9.1), as RPCSEC_GSS tells it to the peer.
    pub major: u32,
    /// The minor status, Kerberos' own.
    pub minor: u32,
}

impl Error {
    /// Whether the caller can act on it.
    pub fn kind(&self) -> Kind {
        // The routine's error (RFC 2744 section 3.9.1).
        match self.major >> 16 & 0xff {
            7 | 10 => Kind::NoCredential,
            11 | 12 => Kind::Expired,
            9 => Kind::BadToken,
            6 => Kind::BadChecksum,
            _ => Kind::Other,
        }
    }

    /// The error if the library has done something other than what it was asked for.
    pub(crate) fn unfit(what: &'static str, text: &str) -> Self {
        /// GSS_S_FAILURE.
        const FAILURE: Word = 13 << 16;
        Self { what, text: text.to_owned(), major: FAILURE, minor: 0 }
    }
}

/// The error for a message that was only signed.
pub(crate) const UNSEALED: &str = "it is signed, but not encrypted";

/// The most texts of one status: a status has few bits.
const MAX_TEXTS: usize = 8;

impl Gss {
    /// The major status without errors, or the error, explained. Call it on the thread of the failed call, which alone
    /// knows what Kerberos reported.
    pub(crate) fn check(self, what: &'static str, major: Word, minor: Word) -> Result<Word, Error> {
        if major & ERRORS == 0 {
            return Ok(major);
        }
        Err(Error { what, text: self.explain(major, minor), major, minor })
    }

    /// The texts of statuses, also of those that a peer has sent.
    pub(crate) fn explain(self, major: Word, minor: Word) -> String {
        let mut texts = self.texts(major, OF_GSS);
        if minor != 0 {
            texts.extend(self.texts(minor, OF_MECHANISM));
        }
        texts.join("; ")
    }

    fn texts(self, status: Word, whose: c_int) -> Vec<String> {
        let (mut texts, mut more) = (Vec::new(), 0);
        while texts.len() < MAX_TEXTS {
            let (mut minor, mut text) = (0, Octets::empty(self));
            // SAFETY: any status may be asked for; the text is ours to release.
            let major = unsafe {
                (self.0.gss_display_status)(&mut minor, status, whose, KERBEROS.as_ptr(), &mut more, text.as_mut_ptr())
            };
            if major & ERRORS != 0 {
                break;
            }
            texts.push(text.to_text().trim_end().to_owned());
            if more == 0 {
                break;
            }
        }
        texts
    }
}
