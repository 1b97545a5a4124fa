//! Ids of files that outlive the server process.

use std::fmt;

/// The most bytes in a [`FileId`]: a handle has 64 bytes, and 30 of them are the server's own.
pub const MAX_FILE_ID_BYTES: usize = 34;

/// Identifies an object of one file system, by bytes that only this file system understands.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileId {
    len: u8,
    octets: [u8; MAX_FILE_ID_BYTES],
}

impl FileId {
    /// The id of these bytes, or `None` if there are more than [`MAX_FILE_ID_BYTES`].
    pub fn new(octets: &[u8]) -> Option<Self> {
        let mut id = Self { len: u8::try_from(octets.len()).ok()?, octets: [0; MAX_FILE_ID_BYTES] };
        id.octets.get_mut(..octets.len())?.copy_from_slice(octets);
        Some(id)
    }

    /// The bytes.
    pub fn as_slice(&self) -> &[u8] {
        &self.octets[..usize::from(self.len)]
    }
}

impl FileId {
    /// The number from which an id was made, if it was made from one.
    pub fn number(&self) -> Option<u64> {
        self.as_slice().try_into().ok().map(u64::from_be_bytes)
    }
}

/// For a file system that numbers its files.
impl From<u64> for FileId {
    fn from(number: u64) -> Self {
        let mut id = Self { len: 8, octets: [0; MAX_FILE_ID_BYTES] };
        id.octets[..8].copy_from_slice(&number.to_be_bytes());
        id
    }
}

impl fmt::Debug for FileId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FileId(")?;
        self.as_slice().iter().try_for_each(|octet| write!(f, "{octet:02x}"))?;
        f.write_str(")")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_holds_up_to_its_limit() {
        let octets = [7; MAX_FILE_ID_BYTES + 1];
        assert_eq!(FileId::new(&octets[1..]).unwrap().as_slice(), &octets[1..]);
        assert!(FileId::new(&octets).is_none());
        assert_eq!(FileId::from(7).number(), Some(7));
        assert_eq!(FileId::new(&octets[1..]).unwrap().number(), None, "of no number");
        assert!(FileId::new(&[0; 300]).is_none());
        assert_ne!(FileId::new(b"a"), FileId::new(b"a\0"));
    }
}
