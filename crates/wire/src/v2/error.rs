//! The contents of an `RDMA2_ERROR` message (draft sections 6.3.3 and 7).
//!
//! A code, and the fields that belong to it. Owns nothing. An unknown code has no fields, and the receiver drops its
//! message; it is not an error of the header.

use crate::cursor::Cursor;
use bytes::BufMut;
use rpcrdma_xdr::DecodeError;

/// The union behind the prefix of an `RDMA2_ERROR`.
// V2-6.3.3-a, V2-8.4-a, ULB-5.5-e
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorBody {
    /// `RDMA2_ERR_VERS` (1): the version is not supported.
    Version {
        /// The lowest version that the sender supports.
        low: u32,
        /// The highest version that the sender supports.
        high: u32,
    },
    /// `RDMA2_ERR_BAD_XDR` (2): the header cannot be parsed.
    BadXdr,
    /// `RDMA2_ERR_BAD_PROPVAL` (3): a property's data is not a value of its type.
    BadPropertyValue,
    /// `RDMA2_ERR_INVAL_HTYPE` (4): the header type is not supported, or not in this place.
    InvalidHeaderType,
    /// `RDMA2_ERR_INVAL_CONT` (5): a sequence of continued messages is broken.
    InvalidContinuation,
    /// `RDMA2_ERR_READ_CHUNKS` (6): more Read chunks than the responder accepts.
    ReadChunks {
        /// The most that it accepts.
        max_chunks: u32,
    },
    /// `RDMA2_ERR_WRITE_CHUNKS` (7): more Write chunks than the responder accepts.
    WriteChunks {
        /// The most that it accepts.
        max_chunks: u32,
    },
    /// `RDMA2_ERR_SEGMENTS` (8): more segments than the responder accepts.
    Segments {
        /// The most that it accepts.
        max_segments: u32,
    },
    /// `RDMA2_ERR_WRITE_RESOURCE` (9): a Write chunk is too small for its result.
    WriteResource {
        /// The chunk, counted from 1; 0 if the responder does not know it.
        chunk_index: u32,
        /// Octets that the result needs.
        length_needed: u32,
    },
    /// `RDMA2_ERR_REPLY_RESOURCE` (10): the reply fits nowhere.
    ReplyResource {
        /// Octets of Reply chunk that the reply needs; 0 if the responder does not know it.
        length_needed: u32,
    },
    /// `RDMA2_ERR_SYSTEM` (100): anything else.
    System,
    /// A code that the draft does not define.
    Unknown(UnknownError),
}

/// An error code that the draft does not define.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownError(u32);

impl UnknownError {
    /// The code on the wire.
    pub fn code(self) -> u32 {
        self.0
    }
}

impl ErrorBody {
    /// An error of an extension, which has no fields. `None` if the draft defines the code.
    pub fn of_extension(code: u32) -> Option<Self> {
        (!matches!(code, 1..=10 | 100)).then_some(ErrorBody::Unknown(UnknownError(code)))
    }

    /// The error's code on the wire.
    pub fn code(&self) -> u32 {
        match self {
            ErrorBody::Version { .. } => 1,
            ErrorBody::BadXdr => 2,
            ErrorBody::BadPropertyValue => 3,
            ErrorBody::InvalidHeaderType => 4,
            ErrorBody::InvalidContinuation => 5,
            ErrorBody::ReadChunks { .. } => 6,
            ErrorBody::WriteChunks { .. } => 7,
            ErrorBody::Segments { .. } => 8,
            ErrorBody::WriteResource { .. } => 9,
            ErrorBody::ReplyResource { .. } => 10,
            ErrorBody::System => 100,
            ErrorBody::Unknown(code) => code.0,
        }
    }

    /// The error's name in the draft, if it has one.
    pub fn name(&self) -> Option<&'static str> {
        Some(match self {
            ErrorBody::Version { .. } => "RDMA2_ERR_VERS",
            ErrorBody::BadXdr => "RDMA2_ERR_BAD_XDR",
            ErrorBody::BadPropertyValue => "RDMA2_ERR_BAD_PROPVAL",
            ErrorBody::InvalidHeaderType => "RDMA2_ERR_INVAL_HTYPE",
            ErrorBody::InvalidContinuation => "RDMA2_ERR_INVAL_CONT",
            ErrorBody::ReadChunks { .. } => "RDMA2_ERR_READ_CHUNKS",
            ErrorBody::WriteChunks { .. } => "RDMA2_ERR_WRITE_CHUNKS",
            ErrorBody::Segments { .. } => "RDMA2_ERR_SEGMENTS",
            ErrorBody::WriteResource { .. } => "RDMA2_ERR_WRITE_RESOURCE",
            ErrorBody::ReplyResource { .. } => "RDMA2_ERR_REPLY_RESOURCE",
            ErrorBody::System => "RDMA2_ERR_SYSTEM",
            ErrorBody::Unknown(_) => return None,
        })
    }

    /// The code's fields in their order, with their names in the draft without the common prefix.
    // V2-6.3.3-b
    pub fn fields(&self) -> impl Iterator<Item = (&'static str, u32)> + use<> {
        let (first, second) = match *self {
            ErrorBody::Version { low, high } => (Some(("vers_low", low)), Some(("vers_high", high))),
            ErrorBody::ReadChunks { max_chunks } | ErrorBody::WriteChunks { max_chunks } => {
                (Some(("max_chunks", max_chunks)), None)
            }
            ErrorBody::Segments { max_segments } => (Some(("max_segments", max_segments)), None),
            ErrorBody::WriteResource { chunk_index, length_needed } => {
                (Some(("chunk_index", chunk_index)), Some(("length_needed", length_needed)))
            }
            ErrorBody::ReplyResource { length_needed } => (Some(("length_needed", length_needed)), None),
            _ => (None, None),
        };
        first.into_iter().chain(second)
    }

    /// Octets of the encoded union.
    pub fn encoded_len(&self) -> usize {
        4 + 4 * self.fields().count()
    }

    pub(crate) fn decode(cursor: &mut Cursor<'_>) -> Result<Self, DecodeError> {
        Ok(match cursor.u32()? {
            1 => ErrorBody::Version { low: cursor.u32()?, high: cursor.u32()? },
            2 => ErrorBody::BadXdr,
            3 => ErrorBody::BadPropertyValue,
            4 => ErrorBody::InvalidHeaderType,
            5 => ErrorBody::InvalidContinuation,
            6 => ErrorBody::ReadChunks { max_chunks: cursor.u32()? },
            7 => ErrorBody::WriteChunks { max_chunks: cursor.u32()? },
            8 => ErrorBody::Segments { max_segments: cursor.u32()? },
            9 => ErrorBody::WriteResource { chunk_index: cursor.u32()?, length_needed: cursor.u32()? },
            10 => ErrorBody::ReplyResource { length_needed: cursor.u32()? },
            100 => ErrorBody::System,
            // V2-B.5-a, V2-7-f
            code => ErrorBody::Unknown(UnknownError(code)),
        })
    }

    pub(crate) fn encode(&self, out: &mut impl BufMut) {
        out.put_u32(self.code());
        for (_, value) in self.fields() {
            out.put_u32(value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// proves: V2-8.4-a, V2-6.3.3-b, V2-B.5-a
    #[test]
    fn each_code_has_its_arm() {
        let arms = [
            (1, 2),
            (2, 0),
            (3, 0),
            (4, 0),
            (5, 0),
            (6, 1),
            (7, 1),
            (8, 1),
            (9, 2),
            (10, 1),
            (100, 0),
            (0, 0),
            (11, 0),
            (99, 0),
            (101, 0),
            (u32::MAX, 0),
        ];
        for (code, words) in arms {
            let octets: Vec<u8> = [code, 0xa1, 0xb2].iter().flat_map(|word: &u32| word.to_be_bytes()).collect();
            let mut cursor = Cursor::new(&octets);
            let error = ErrorBody::decode(&mut cursor).unwrap();
            assert_eq!((error.code(), cursor.position()), (code, 4 + 4 * words));
            assert_eq!(error.encoded_len(), cursor.position());
            let mut out = Vec::new();
            error.encode(&mut out);
            assert_eq!(out, octets[..out.len()]);
            assert_eq!(error.name().is_none(), ErrorBody::of_extension(code).is_some());
            for len in 0..cursor.position() {
                assert!(ErrorBody::decode(&mut Cursor::new(&octets[..len])).is_err(), "{code} cut to {len}");
            }
        }
    }
}
