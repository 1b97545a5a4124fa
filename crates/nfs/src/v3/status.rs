//! What a procedure says about its outcome (`nfsstat3`, RFC 1813 section 2.6).

use rpcrdma_xdr::{Decode, DecodeError, Decoder, Encode, Encoder};
use std::fmt;

/// An outcome: one word. Values that this version does not define are kept as they came.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Status(pub u32);

macro_rules! statuses {
    ($($name:ident = $value:literal, $text:literal;)*) => {
        impl Status {
            $(#[doc = concat!("`NFS3ERR_", stringify!($name), "`: ", $text, ".")]
            pub const $name: Status = Status($value);)*

            /// Success.
            pub const OK: Status = Status(0);

            /// All that this version defines, by number.
            pub const ALL: &'static [Status] = &[Status::OK, $(Status::$name),*];

            fn name_and_text(self) -> Option<(&'static str, &'static str)> {
                match self.0 {
                    0 => Some(("NFS3_OK", "done")),
                    $($value => Some((concat!("NFS3ERR_", stringify!($name)), $text)),)*
                    _ => None,
                }
            }
        }
    };
}

statuses! {
    PERM = 1, "not the owner";
    NOENT = 2, "no such file or directory";
    IO = 5, "input or output error";
    NXIO = 6, "no such device";
    ACCES = 13, "permission denied";
    EXIST = 17, "it exists already";
    XDEV = 18, "on another file system";
    NODEV = 19, "no such device";
    NOTDIR = 20, "not a directory";
    ISDIR = 21, "is a directory";
    INVAL = 22, "invalid argument";
    FBIG = 27, "the file would be too large";
    NOSPC = 28, "no space left";
    ROFS = 30, "the file system is read-only";
    MLINK = 31, "too many links";
    NAMETOOLONG = 63, "the name is too long";
    NOTEMPTY = 66, "the directory is not empty";
    DQUOT = 69, "the quota is used up";
    STALE = 70, "the file is gone, its handle is stale";
    REMOTE = 71, "too many levels of remote";
    BADHANDLE = 10001, "not a file handle of this server";
    NOT_SYNC = 10002, "the file has changed since";
    BAD_COOKIE = 10003, "the directory position is no longer valid";
    NOTSUPP = 10004, "not supported";
    TOOSMALL = 10005, "the buffer is too small";
    SERVERFAULT = 10006, "the server failed";
    BADTYPE = 10007, "not a type of file here";
    JUKEBOX = 10008, "not available yet, try again later";
}

impl Status {
    /// The name that the protocol gives it.
    pub fn name(self) -> &'static str {
        self.name_and_text().map_or("NFS3ERR_?", |(name, _)| name)
    }

    /// The name without the version's prefix: `OK`, `NOENT`. MOUNT's statuses have the same names and numbers. `None` for a
    /// value that this version does not define.
    pub fn word(self) -> Option<&'static str> {
        self.name_and_text().map(|(name, _)| name.strip_prefix("NFS3ERR_").unwrap_or("OK"))
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name_and_text() {
            Some((name, text)) => write!(f, "{text} ({name})"),
            None => write!(f, "unknown status {}", self.0),
        }
    }
}

impl fmt::Debug for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}({})", self.name(), self.0)
    }
}

impl std::error::Error for Status {}

impl Encode for Status {
    fn encode(&self, encoder: &mut Encoder) {
        encoder.u32(self.0);
    }
}

impl Decode for Status {
    fn decode(decoder: &mut Decoder) -> Result<Self, DecodeError> {
        decoder.u32().map(Status)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_status_has_a_word_of_its_own() {
        assert!(Status::ALL.is_sorted_by(|a, b| a.0 < b.0), "by number, each once");
        let words: Vec<_> = Status::ALL.iter().map(|status| status.word().unwrap()).collect();
        assert_eq!(words[..3], ["OK", "PERM", "NOENT"]);
        assert!(words.iter().all(|word| word.bytes().all(|b| b.is_ascii_uppercase() || b == b'_')), "{words:?}");
        assert_eq!((Status(4711).word(), Status(4711).name()), (None, "NFS3ERR_?"));
    }
}
