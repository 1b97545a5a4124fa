//! Names in directories: octets as they came, and the faults of names that no file can have.
//!
//! The protocol wants UTF-8 (RFC 8881 section 14); file systems on Linux hold any octets. As Linux's server does, we
//! accept names that are not UTF-8 as they are, so that clients can reach every file.

use super::{List, Status};

/// The longest name that is read from a message, in octets. File systems have lower limits (255 on Linux), which a
/// server answers with `NFS4ERR_NAMETOOLONG`, so somewhat longer names must be readable.
pub const MAX_NAME_BYTES: usize = 4096;

/// The longest text of a symbolic link, in octets: Linux's `PATH_MAX`.
pub const MAX_LINK_BYTES: usize = 4096;

/// The most names in one path (`pathname4`), which only locations of file systems hold.
pub const MAX_PATH_NAMES: usize = 128;

xdr_bytes! {
    /// A name in a directory (`component4`).
    pub struct Name: MAX_NAME_BYTES;
}

/// A path as a list of names (`pathname4`).
pub type Path = List<Name, MAX_PATH_NAMES>;

impl Name {
    /// Whether a file can have this name where names have at most `max_bytes`.
    ///
    /// # Errors
    /// The status that the protocol has for it (RFC 8881 section 15.1.2, RFC 7530 section 13.1.2): `INVAL` for an empty
    /// name, `NAMETOOLONG`, `BADCHAR` for octets that no name can hold (`/` and NUL), `BADNAME` for `.` and `..`, which
    /// are not names here.
    pub fn check(&self, max_bytes: usize) -> Result<(), Status> {
        let octets = self.as_slice();
        match octets {
            [] => Err(Status::INVAL),
            // NFS4-8881-14-a
            _ if octets.len() > max_bytes => Err(Status::NAMETOOLONG),
            b"." | b".." => Err(Status::BADNAME),
            _ if octets.contains(&b'/') || octets.contains(&0) => Err(Status::BADCHAR),
            _ => Ok(()),
        }
    }
}

/// The text of a symbolic link (`linktext4`): an item that may be placed directly.
#[derive(Clone, PartialEq, Eq, Hash, Default)]
pub struct LinkText(pub bytes::Bytes);

impl LinkText {
    /// The octets.
    pub fn as_slice(&self) -> &[u8] {
        &self.0
    }

    /// Whether a symbolic link can have this text.
    ///
    /// # Errors
    /// The status for it: `INVAL` for none, `BADCHAR` for one with NUL.
    pub fn check(&self) -> Result<(), Status> {
        match self.as_slice() {
            [] => Err(Status::INVAL),
            octets if octets.contains(&0) => Err(Status::BADCHAR),
            _ => Ok(()),
        }
    }
}

impl From<&str> for LinkText {
    fn from(text: &str) -> Self {
        Self(bytes::Bytes::copy_from_slice(text.as_bytes()))
    }
}

impl std::fmt::Debug for LinkText {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "\"{}\"", self.0.escape_ascii())
    }
}

// ULB-5.1-a, ULB-5.1-b, ULB-5.1-d: eligible in CREATE and in READLINK.
impl rpcrdma_xdr::Encode for LinkText {
    fn encode(&self, encoder: &mut rpcrdma_xdr::Encoder) {
        // ULB-5.1.2.3-a
        encoder.item(self.0.clone());
    }
}

impl rpcrdma_xdr::Decode for LinkText {
    fn decode(decoder: &mut rpcrdma_xdr::Decoder) -> Result<Self, rpcrdma_xdr::DecodeError> {
        decoder.item(MAX_LINK_BYTES).map(|item| Self(item.into_bytes()))
    }
}

#[cfg(test)]
impl crate::sample::Sample for LinkText {
    fn sample(draw: &mut crate::sample::Draw) -> Self {
        Self(draw.octets(MAX_LINK_BYTES))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// proves: NFS4-8881-14-a
    #[test]
    fn each_bad_name_has_its_status() {
        let check = |name: &[u8]| Name::from(name).check(255);
        assert_eq!(check(b""), Err(Status::INVAL));
        assert_eq!(check(&[b'a'; 255]), Ok(()));
        assert_eq!(check(&[b'a'; 256]), Err(Status::NAMETOOLONG));
        assert_eq!((check(b"."), check(b"..")), (Err(Status::BADNAME), Err(Status::BADNAME)));
        assert_eq!(check(b"..."), Ok(()));
        assert_eq!((check(b"a/b"), check(b"a\0b")), (Err(Status::BADCHAR), Err(Status::BADCHAR)));
        assert_eq!(check(b"gr\xfcn"), Ok(()), "no UTF-8, but a file may have the name");
        assert_eq!(LinkText::from("").check(), Err(Status::INVAL));
        assert_eq!(LinkText::from("../a").check(), Ok(()));
        assert_eq!(LinkText::from("a\0").check(), Err(Status::BADCHAR));
    }
}
