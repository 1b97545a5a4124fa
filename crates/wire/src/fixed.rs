//! The four words with which every header begins, whatever its version (RFC 8166 section 7, version 2 draft section
//! 4.2.3).
//!
//! A receiver can read only these words before it knows the version. Owns nothing.

use crate::cursor::Cursor;
use bytes::BufMut;
use rpcrdma_xdr::{DecodeError, UNIT};

/// Octets of the four words.
// V1-4.2-a, V1-7-a
pub const FIXED_OCTETS: usize = 16;

/// The fourth word of an error, in both versions.
const ERROR: u32 = 4;

/// The four words.
///
/// ```
/// use rpcrdma_wire::FixedWords;
/// let message = [0, 0, 0, 7, 0, 0, 0, 2, 0, 0, 0, 32, 0, 0, 0, 4];
/// let words = FixedWords::decode(&message).unwrap();
/// assert_eq!((words.xid, words.version, words.credit), (7, 2, 32));
/// assert!(words.is_error());
/// assert_eq!(FixedWords::decode(&message[..15]), None);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FixedWords {
    /// `rdma_xid`.
    pub xid: u32,
    /// `rdma_vers`.
    pub version: u32,
    /// `rdma_credit`: what it means depends on the version.
    pub credit: u32,
    /// `rdma_proc` in version 1, `rdma_htype` in version 2.
    pub kind: u32,
}

impl FixedWords {
    /// The words of a message; `None` if it is shorter.
    pub fn decode(message: &[u8]) -> Option<Self> {
        Self::decode_from(&mut Cursor::new(message)).ok()
    }

    pub(crate) fn decode_from(cursor: &mut Cursor<'_>) -> Result<Self, DecodeError> {
        let [xid, version, credit, kind] = cursor.words()?;
        Ok(Self { xid, version, credit, kind })
    }

    /// Whether the message is an error: `RDMA_ERROR` and `RDMA2_ERROR` have the same number.
    // V2-4.2.3-e
    pub fn is_error(&self) -> bool {
        self.kind == ERROR
    }
}

/// Appends words in one piece: each `put` has to look for room.
pub(crate) fn put_words<const WORDS: usize, const OCTETS: usize>(words: [u32; WORDS], out: &mut impl BufMut) {
    const { assert!(OCTETS == WORDS * UNIT) };
    let mut octets = [0; OCTETS];
    for (to, word) in octets.chunks_exact_mut(UNIT).zip(words) {
        to.copy_from_slice(&word.to_be_bytes());
    }
    out.put_slice(&octets);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{v1, v2};

    /// proves: V1-7-a, V2-4.2.3-e
    #[test]
    fn errors_of_both_versions_are_known_by_the_fourth_word() {
        assert_eq!((v1::Procedure::Error.code(), v2::HeaderType::Error.code()), (ERROR, ERROR));
        let one = v1::Header::new(7, 32, v1::Body::Error(v1::ErrorBody::Chunk)).to_bytes();
        let two = v2::Header::error(7, 2, v2::Credits::new(32, 0), v2::ErrorBody::BadXdr).to_bytes();
        let (one, two) = (FixedWords::decode(&one).unwrap(), FixedWords::decode(&two).unwrap());
        assert_eq!((one, one.is_error()), (FixedWords { version: 1, ..two }, true));
        let grant = v2::Header::grant(v2::Credits::new(1, 1)).to_bytes();
        assert!(!FixedWords::decode(&grant).unwrap().is_error());
    }

    #[test]
    fn a_message_that_is_too_short_has_none() {
        let message = [1; FIXED_OCTETS];
        assert!(FixedWords::decode(&message).is_some());
        assert_eq!(FixedWords::decode(&message[1..]), None);
    }
}
