//! The transport header of version 1 (RFC 8166 section 4.1.2).
//!
//! Four fixed words (XID, version, credits, procedure), then the fields of the procedure. Owns the decoded chunk lists.
//! Decoding stops at the first word that cannot be part of such a header; the error keeps the fixed words, which an
//! answer needs.

use super::{ErrorBody, VERSION};
use crate::{
    chunk::Lists,
    cursor::Cursor,
    fixed::{FIXED_OCTETS, FixedWords, put_words},
};
use bytes::{BufMut, Bytes, BytesMut};
use rpcrdma_xdr::DecodeError;

/// Octets of a header with none of the three kinds of chunk.
// V1-4.1.2-c
pub const NO_CHUNKS_OCTETS: usize = 28;

/// A receiver discards shorter messages unparsed, except `RDMA_ERROR` and `RDMA_DONE`, which can be shorter (RFC 8166
/// section 4.5).
// V1-4.5-a, V1-4.5-i
pub const MIN_MESSAGE_OCTETS: usize = 28;

/// The values of `rdma_proc`.
// V1-4.2.4-a, V1-4.1.2-e
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Procedure {
    /// `RDMA_MSG` (0): chunk lists, then the Payload stream.
    Msg,
    /// `RDMA_NOMSG` (1): chunk lists only; the Payload stream is in a chunk.
    Nomsg,
    /// `RDMA_MSGP` (2): no longer sent.
    Msgp,
    /// `RDMA_DONE` (3): no longer sent.
    Done,
    /// `RDMA_ERROR` (4).
    Error,
}

impl Procedure {
    /// The word on the wire.
    pub fn code(self) -> u32 {
        match self {
            Procedure::Msg => 0,
            Procedure::Nomsg => 1,
            // V1-4.6.1-a
            Procedure::Msgp => 2,
            // V1-4.6.2-a
            Procedure::Done => 3,
            Procedure::Error => 4,
        }
    }

    /// The procedure with this number, if one exists.
    pub fn from_code(code: u32) -> Option<Self> {
        [Procedure::Msg, Procedure::Nomsg, Procedure::Msgp, Procedure::Done, Procedure::Error]
            .into_iter()
            .find(|procedure| procedure.code() == code)
    }

    /// The name in RFC 8166.
    pub fn name(self) -> &'static str {
        match self {
            Procedure::Msg => "RDMA_MSG",
            Procedure::Nomsg => "RDMA_NOMSG",
            Procedure::Msgp => "RDMA_MSGP",
            Procedure::Done => "RDMA_DONE",
            Procedure::Error => "RDMA_ERROR",
        }
    }
}

/// What follows the fixed words.
// V1-4.2.4-b, V1-4.1.2-c
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Body {
    /// `RDMA_MSG`.
    Msg(Lists),
    /// `RDMA_NOMSG`.
    Nomsg(Lists),
    /// `RDMA_MSGP`, which we decode and never send.
    Msgp {
        /// Alignment that the sender suggested.
        align: u32,
        /// Threshold that the sender suggested.
        thresh: u32,
        /// The chunks.
        lists: Lists,
    },
    /// `RDMA_DONE`, which we decode and never send.
    Done,
    /// `RDMA_ERROR`.
    Error(ErrorBody),
}

impl Body {
    /// The procedure that the body belongs to.
    pub fn procedure(&self) -> Procedure {
        match self {
            Body::Msg(_) => Procedure::Msg,
            Body::Nomsg(_) => Procedure::Nomsg,
            Body::Msgp { .. } => Procedure::Msgp,
            Body::Done => Procedure::Done,
            Body::Error(_) => Procedure::Error,
        }
    }

    /// The chunks, where the procedure has any.
    pub fn lists(&self) -> Option<&Lists> {
        match self {
            Body::Msg(lists) | Body::Nomsg(lists) | Body::Msgp { lists, .. } => Some(lists),
            Body::Done | Body::Error(_) => None,
        }
    }

    /// Whether a Payload stream follows the header in the same message.
    pub fn has_payload(&self) -> bool {
        matches!(self, Body::Msg(_) | Body::Msgp { .. })
    }
}

/// A transport header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// The XID of the RPC message.
    pub xid: u32,
    /// `rdma_vers`: 1, except in an `ERR_VERS`, which repeats the version of the request.
    pub version: u32,
    /// Credits: in a Call those that the requester asks for, in a Reply those that the responder grants.
    // V1-3.3.1-b, V1-4.2.3-a
    pub credit: u32,
    /// What follows the fixed words.
    pub body: Body,
}

impl Header {
    /// A header of version 1.
    // V1-4.2.2-a
    pub fn new(xid: u32, credit: u32, body: Body) -> Self {
        Self { xid, version: VERSION, credit, body }
    }

    /// Decodes the header at the beginning of a message. Returns it with the offset of the first octet behind it.
    ///
    /// # Errors
    /// If the message is too short for the fixed words, of another version, of an unknown procedure, or malformed.
    pub fn decode(message: &[u8]) -> Result<(Self, usize), HeaderError> {
        let mut cursor = Cursor::new(message);
        let Ok(FixedWords { xid, version, credit, kind: procedure }) = FixedWords::decode_from(&mut cursor) else {
            return Err(HeaderError::Short { len: message.len() });
        };
        let Some(known) =
            Procedure::from_code(procedure).filter(|_| version == VERSION || procedure == Procedure::Error.code())
        else {
            return Err(if version == VERSION {
                HeaderError::Procedure { xid, procedure }
            } else {
                HeaderError::Version { xid, version, procedure }
            });
        };
        let body = match known {
            Procedure::Msg => Lists::decode(&mut cursor).map(Body::Msg),
            Procedure::Nomsg => Lists::decode(&mut cursor).map(Body::Nomsg),
            Procedure::Msgp => decode_msgp(&mut cursor),
            Procedure::Done => Ok(Body::Done),
            Procedure::Error => ErrorBody::decode(&mut cursor).map(Body::Error),
        };
        match body {
            // Older responders put their own version in the place of the request's (RFC 8166 section 4.5).
            // V1-4.5-j
            Ok(body) if version == VERSION || matches!(body, Body::Error(ErrorBody::Version { .. })) => {
                Ok((Self { xid, version, credit, body }, cursor.position()))
            }
            Err(cause) if version == VERSION => Err(HeaderError::Malformed { xid, procedure: known, cause }),
            _ => Err(HeaderError::Version { xid, version, procedure }),
        }
    }

    /// Octets of the encoded header.
    pub fn encoded_len(&self) -> usize {
        FIXED_OCTETS
            + match &self.body {
                Body::Msg(lists) | Body::Nomsg(lists) => lists.encoded_len(),
                Body::Msgp { lists, .. } => 8 + lists.encoded_len(),
                Body::Done => 0,
                Body::Error(error) => error.encoded_len(),
            }
    }

    /// Appends the encoded header.
    pub fn encode(&self, out: &mut impl BufMut) {
        let fixed = [self.xid, self.version, self.credit, self.body.procedure().code()];
        put_words::<_, FIXED_OCTETS>(fixed, out);
        match &self.body {
            Body::Msg(lists) | Body::Nomsg(lists) => lists.encode(out),
            Body::Msgp { align, thresh, lists } => {
                out.put_u32(*align);
                out.put_u32(*thresh);
                lists.encode(out);
            }
            Body::Done => {}
            Body::Error(error) => error.encode(out),
        }
    }

    /// The encoded header.
    pub fn to_bytes(&self) -> Bytes {
        let mut out = BytesMut::with_capacity(self.encoded_len());
        self.encode(&mut out);
        out.freeze()
    }
}

fn decode_msgp(cursor: &mut Cursor<'_>) -> Result<Body, DecodeError> {
    Ok(Body::Msgp { align: cursor.u32()?, thresh: cursor.u32()?, lists: Lists::decode(cursor)? })
}

/// Why a message has no header of version 1.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HeaderError {
    /// The message is too short for the fixed words.
    #[error("a message of {len} bytes is too short for a transport header")]
    Short {
        /// Octets of the message.
        len: usize,
    },
    /// It is of another version.
    #[error("version {version} of RPC-over-RDMA is not spoken on this connection")]
    Version {
        /// Its XID.
        xid: u32,
        /// Its version.
        version: u32,
        /// Its procedure, which may have another meaning in that version.
        procedure: u32,
    },
    /// Its procedure does not exist.
    #[error("{procedure} is not a procedure of RPC-over-RDMA version 1")]
    Procedure {
        /// Its XID.
        xid: u32,
        /// The word.
        procedure: u32,
    },
    /// What follows the fixed words is wrong.
    #[error("malformed {} header", procedure.name())]
    Malformed {
        /// Its XID.
        xid: u32,
        /// Its procedure.
        procedure: Procedure,
        /// What is wrong, and where.
        #[source]
        cause: DecodeError,
    },
}
