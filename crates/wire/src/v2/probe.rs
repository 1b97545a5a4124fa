//! The answer to a client's first message, before the client knows a version (draft sections 4.2.3.1 and 4.2.3.2).
//!
//! An `ERR_VERS` has 28 octets in version 1's layout and 32 in version 2's, which has a flags word before the code. Its
//! version word can be any number, because the answering end repeats the client's. So the length distinguishes the two
//! layouts. Owns nothing.

use super::{Body, ErrorBody, Header, PREFIX_OCTETS, VERSION};
use crate::{FIXED_OCTETS, FixedWords, cursor::word_at, v1, version};
use bytes::Bytes;

/// Octets of an `ERR_VERS` in version 1's layout, which servers of every version send before both ends know the
/// version.
// V2-4.2.3.2-g
const V1_LAYOUT_OCTETS: usize = 28;
/// Octets of an `ERR_VERS` in version 2's layout.
const V2_LAYOUT_OCTETS: usize = 32;
/// The code of `ERR_VERS`, in both versions.
const ERR_VERS: u32 = 1;

/// What the answer to the first message says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Answer {
    /// The server speaks version 2; judge the message as one of version 2.
    Version2,
    /// The server speaks the versions from `low` to `high`, both included.
    Versions {
        /// The XID that the answer repeats.
        xid: u32,
        /// The lowest.
        low: u32,
        /// The highest.
        high: u32,
    },
    /// Another error, as a server sends that does not know the header type: the server does not speak version 2.
    OtherError {
        /// The XID that the answer repeats.
        xid: u32,
    },
    /// The message cannot be an answer.
    Unreadable,
}

/// Reads the answer.
// V2-4.2.3.2-g, V2-4.2.3.2-h
pub fn answer(message: &Bytes) -> Answer {
    let Some(words) = FixedWords::decode(message) else { return Answer::Unreadable };
    let xid = words.xid;
    if !words.is_error() {
        return match words.version == VERSION && message.len() >= PREFIX_OCTETS {
            true => Answer::Version2,
            false => Answer::Unreadable,
        };
    }
    let v1_range = || match v1::Header::decode(message).ok()?.0.body {
        v1::Body::Error(v1::ErrorBody::Version { low, high }) => Some((low, high)),
        _ => None,
    };
    let v2_range = || match Header::decode(message).ok()?.0.body {
        Body::Error(ErrorBody::Version { low, high }) => Some((low, high)),
        _ => None,
    };
    let range = match message.len() {
        V1_LAYOUT_OCTETS => v1_range(),
        V2_LAYOUT_OCTETS => v2_range(),
        _ => None,
    };
    range.map_or(Answer::OtherError { xid }, |(low, high)| Answer::Versions { xid, low, high })
}

/// Whether to read a message of `octets` octets, which begins with `head`, as one of version 2. An error about the
/// version repeats the version of the message that it answers, and uses its sender's layout: its length shows which.
// V2-4.2.3-e, V2-4.2.3.2-g
pub fn is_version_2(head: &[u8], octets: u64) -> bool {
    let is_range = |code_at| word_at(head, code_at) == Some(ERR_VERS);
    if FixedWords::decode(head).is_some_and(|words| words.is_error()) {
        if octets == V1_LAYOUT_OCTETS as u64 && is_range(FIXED_OCTETS) {
            return false;
        }
        if octets == V2_LAYOUT_OCTETS as u64 && is_range(PREFIX_OCTETS) {
            return true;
        }
    }
    version(head) == Some(VERSION)
}

/// The answer to a first message whose version the server does not speak, in version 1's layout. `credit` is the whole
/// credit word.
// V2-4.2.3.2-a, V2-4.2.3.2-b, V2-4.2.3.2-g
pub fn refusal(xid: u32, version: u32, credit: u32, low: u32, high: u32) -> Bytes {
    v1::Header { xid, version, credit, body: v1::Body::Error(v1::ErrorBody::Version { low, high }) }.to_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::v2::{Credits, PropertySet};

    fn words(words: &[u32]) -> Bytes {
        words.iter().flat_map(|word| word.to_be_bytes()).collect()
    }

    /// proves: V2-4.2.3.2-a, V2-4.2.3.2-b, V2-4.2.3.2-g, V2-4.2.3-e
    #[test]
    fn ranges_of_versions_are_told_apart_by_length() {
        let range = Answer::Versions { xid: 7, low: 1, high: 3 };
        for version in [0, 1, 2, 3, u32::MAX] {
            let refusal = refusal(7, version, 32, 1, 3);
            assert_eq!(refusal, words(&[7, version, 32, 4, 1, 1, 3]));
            assert_eq!(answer(&refusal), range);
            let v2 = Header::error(7, version, Credits::new(1, 2), ErrorBody::Version { low: 1, high: 3 });
            assert_eq!(v2.encoded_len(), 32);
            assert_eq!(answer(&v2.to_bytes()), range);
        }
        // A version 1 server that knows version 1 only, and repeats the probe's version. Read as version 2, its answer
        // would be a "RDMA2_ERR_VERS, low 1" that is cut off.
        assert_eq!(answer(&words(&[7, 2, 32, 4, 1, 1, 1])), Answer::Versions { xid: 7, low: 1, high: 1 });
    }

    /// proves: V2-4.2.3.2-h
    #[test]
    fn any_other_error_means_no_version_2() {
        assert_eq!(answer(&words(&[7, 1, 32, 4, 2])), Answer::OtherError { xid: 7 }, "ERR_CHUNK");
        assert_eq!(answer(&words(&[7, 2, 32, 4, 2])), Answer::OtherError { xid: 7 }, "with the probe's version");
        assert_eq!(answer(&words(&[7, 2, 32, 4, 1, 3])), Answer::OtherError { xid: 7 });
        assert_eq!(answer(&words(&[7, 2, 32, 4, 9, 9, 9])), Answer::OtherError { xid: 7 });
        assert_eq!(answer(&words(&[7, 2, 32, 4, 1, 1, 1]).slice(..27)), Answer::OtherError { xid: 7 });
        let connprop = Header::connprop(7, Credits::new(1, 1), false, PropertySet::default());
        assert_eq!(answer(&connprop.to_bytes()), Answer::Version2);
        assert_eq!(answer(&Header::grant(Credits::new(1, 1)).to_bytes()), Answer::Version2);
        assert_eq!(answer(&words(&[7, 1, 32, 0, 0, 0, 0])), Answer::Unreadable);
        assert_eq!(answer(&words(&[7, 2, 32, 0])), Answer::Unreadable);
        assert_eq!(answer(&Bytes::new()), Answer::Unreadable);
    }

    /// proves: V2-4.2.3-e, V2-4.2.3.2-g
    #[test]
    fn an_error_about_the_version_has_the_layout_of_its_length() {
        let read = |message: &Bytes| is_version_2(message, message.len() as u64);
        for version in [1, 2, 9] {
            assert!(!read(&words(&[7, version, 32, 4, 1, 1, 3])), "{version}");
            assert!(read(&words(&[7, version, 32, 4, 1, 1, 1, 3])), "{version}");
        }
        assert!(!read(&words(&[7, 1, 32, 4, 2])), "another error says its version");
        assert!(read(&words(&[7, 2, 32, 4, 1, 2])));
        assert!(read(&words(&[7, 2, 32, 0, 0, 0, 0, 0, 0])));
        assert!(is_version_2(&words(&[7, 2]), 100), "as much as there is of a message");
        assert!(!read(&words(&[7])));
    }
}
