//! Transport headers of both versions, which the message itself distinguishes.
//!
//! Owns the decoded header; opaque bytes share the captured message's.

use bytes::Bytes;
use rpcrdma_wire::{
    chunk::Lists,
    v1::{self, HeaderError as V1Error},
    v2::{self, HeaderError as V2Error},
};

/// A header of either version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TransportHeader {
    /// Of version 1.
    V1(v1::Header),
    /// Of version 2.
    V2(v2::Header),
}

/// Why a header cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    /// As version 1, or as an unknown version.
    #[error(transparent)]
    V1(#[from] V1Error),
    /// As version 2.
    #[error(transparent)]
    V2(#[from] V2Error),
}

/// What a message means to the call that its XID names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Meaning<'a> {
    /// It is the Call or the Reply: version 1 does not say, the RPC header does.
    CallOrReply(&'a Lists),
    /// It is the Call, or the part of it that has its chunks.
    Call(&'a Lists),
    /// It is the Reply's last or only part, or an error.
    Reply,
    /// It is a part of the Reply that others follow.
    ReplyPart,
    /// It has nothing to do with a call.
    Nothing,
}

impl TransportHeader {
    /// Reads the header of a message of `octets` bytes, of which the capture has `head`. Returns it with the offset of
    /// what follows. `continues`: it may be a later part of a sequence.
    pub(crate) fn decode(head: &Bytes, octets: u64, continues: bool) -> Result<(Self, usize), Unreadable> {
        if !v2::probe::is_version_2(head, octets) {
            let (header, end) = v1::Header::decode(head)?;
            return Ok((TransportHeader::V1(header), end));
        }
        let decoded = if continues { v2::Header::decode_piece(head) } else { v2::Header::decode(head) };
        let (header, end) = decoded?;
        Ok((TransportHeader::V2(header), end))
    }

    /// Whether it answers with an error of the transport.
    pub(crate) fn is_error(&self) -> bool {
        match self {
            TransportHeader::V1(header) => matches!(header.body, v1::Body::Error(_)),
            TransportHeader::V2(header) => matches!(header.body, v2::Body::Error(_)),
        }
    }

    /// Its XID.
    pub fn xid(&self) -> u32 {
        match self {
            TransportHeader::V1(header) => header.xid,
            TransportHeader::V2(header) => header.xid,
        }
    }

    /// Its type's name.
    pub fn type_name(&self) -> &'static str {
        match self {
            TransportHeader::V1(header) => header.body.procedure().name(),
            TransportHeader::V2(header) => header.prefix().type_name().unwrap_or("unknown header type"),
        }
    }

    /// Its chunks, where it can have any.
    pub fn lists(&self) -> Option<&Lists> {
        match self {
            TransportHeader::V1(header) => header.body.lists(),
            TransportHeader::V2(header) => header.body.chunks().map(|chunks| &chunks.lists),
        }
    }

    /// Whether bytes of an RPC message follow.
    pub fn has_payload(&self) -> bool {
        match self {
            TransportHeader::V1(header) => header.body.has_payload(),
            TransportHeader::V2(header) => header.body.has_payload(),
        }
    }

    /// The flags, which version 1 does not have.
    pub fn flags(&self) -> v2::Flags {
        match self {
            TransportHeader::V1(_) => v2::Flags::default(),
            TransportHeader::V2(header) => header.flags,
        }
    }

    pub(crate) fn meaning(&self) -> Meaning<'_> {
        match self {
            TransportHeader::V1(header) => match &header.body {
                // Only a long Call has Read chunks here.
                v1::Body::Nomsg(lists) if !lists.reads.is_empty() => Meaning::Call(lists),
                v1::Body::Nomsg(_) | v1::Body::Error(_) => Meaning::Reply,
                v1::Body::Msg(lists) | v1::Body::Msgp { lists, .. } => Meaning::CallOrReply(lists),
                _ => Meaning::Nothing,
            },
            TransportHeader::V2(header) => match &header.body {
                v2::Body::Error(_) => Meaning::Reply,
                v2::Body::Msg(_) | v2::Body::Nomsg(_) if header.flags.response && header.flags.more => {
                    Meaning::ReplyPart
                }
                _ if header.is_grant() => Meaning::Nothing,
                v2::Body::Msg(_) | v2::Body::Nomsg(_) if header.flags.response => Meaning::Reply,
                v2::Body::Msg(chunks) | v2::Body::Nomsg(chunks) => Meaning::Call(&chunks.lists),
                _ => Meaning::Nothing,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(words: &[u32]) -> Bytes {
        words.iter().flat_map(|word| word.to_be_bytes()).collect()
    }

    fn version(octets: &Bytes) -> Option<u8> {
        match TransportHeader::decode(octets, octets.len() as u64, false) {
            Ok((TransportHeader::V1(_), _)) => Some(1),
            Ok((TransportHeader::V2(_), _)) => Some(2),
            Err(_) => None,
        }
    }

    /// proves: V2-4.2.3-e, V2-4.2.3.2-g, V2-C.1-a
    #[test]
    fn the_second_word_is_the_version_but_in_errors_about_it() {
        assert_eq!(version(&words(&[7, 1, 32, 0, 0, 0, 0])), Some(1));
        assert_eq!(version(&words(&[7, 2, 32, 0, 0, 0, 0, 0, 0])), Some(2));
        assert_eq!(version(&words(&[7, 3, 32, 0, 0, 0, 0, 0, 0])), None);
        for repeated in [1, 2, 9] {
            assert_eq!(version(&words(&[7, repeated, 32, 4, 1, 1, 1])), Some(1), "{repeated}");
            assert_eq!(version(&words(&[7, repeated, 32, 4, 1, 1, 2, 2])), Some(2), "{repeated}");
        }
        assert_eq!(version(&words(&[7, 1, 32, 4, 2])), Some(1));
        assert_eq!(version(&words(&[7, 2, 32, 4, 1, 2])), Some(2));
        assert_eq!(version(&words(&[7])), None);
    }
}
