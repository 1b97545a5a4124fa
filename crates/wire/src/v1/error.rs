//! What an `RDMA_ERROR` message says (RFC 8166 section 4.5).
//!
//! A code, and for `ERR_VERS` two words: the lowest and the highest version that the responder knows. Owns nothing. Any
//! code but these two is an error of the header.

use crate::cursor::Cursor;
use bytes::BufMut;
use rpcrdma_xdr::DecodeError;

/// The union behind the fixed words of an `RDMA_ERROR`.
// V1-4.1.2-d, V1-7-a
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorBody {
    /// `ERR_VERS`: the responder does not know the version of the request.
    Version {
        /// The lowest version that the responder knows.
        low: u32,
        /// The highest version that the responder knows.
        high: u32,
    },
    /// `ERR_CHUNK`: the header, or what it describes, is wrong.
    Chunk,
}

impl ErrorBody {
    const ERR_VERS: u32 = 1;
    const ERR_CHUNK: u32 = 2;

    /// The error's code on the wire.
    pub fn code(&self) -> u32 {
        match self {
            ErrorBody::Version { .. } => Self::ERR_VERS,
            ErrorBody::Chunk => Self::ERR_CHUNK,
        }
    }

    /// The error's name in RFC 8166.
    pub fn name(&self) -> &'static str {
        match self {
            ErrorBody::Version { .. } => "ERR_VERS",
            ErrorBody::Chunk => "ERR_CHUNK",
        }
    }

    /// Octets of the encoded union.
    pub fn encoded_len(&self) -> usize {
        match self {
            ErrorBody::Version { .. } => 12,
            ErrorBody::Chunk => 4,
        }
    }

    pub(crate) fn decode(cursor: &mut Cursor<'_>) -> Result<Self, DecodeError> {
        let position = cursor.position();
        match cursor.u32()? {
            Self::ERR_VERS => Ok(ErrorBody::Version { low: cursor.u32()?, high: cursor.u32()? }),
            Self::ERR_CHUNK => Ok(ErrorBody::Chunk),
            value => Err(DecodeError::BadValue { position, value, what: "transport error" }),
        }
    }

    pub(crate) fn encode(&self, out: &mut impl BufMut) {
        out.put_u32(self.code());
        if let ErrorBody::Version { low, high } = self {
            out.put_u32(*low);
            out.put_u32(*high);
        }
    }
}
