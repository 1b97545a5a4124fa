//! A plain segment: coordinates of memory that an end has exposed (RFC 8166 section 3.4.3).
//!
//! Sixteen octets: handle (4), length (4), offset (8). It owns nothing; the handle tells which registered memory is
//! meant.

use crate::cursor::Cursor;
use bytes::BufMut;
use rpcrdma_xdr::DecodeError;

/// A range of the requester's memory.
// V1-3.4.3-a, V1-4.1.2-a, V2-4.3.3-a, V2-8.3-a, V1-2.3.2-a, V2-3.2.2.1-a
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Segment {
    /// Names the registered memory (a steering tag).
    pub handle: u32,
    /// Octets; in a Reply, the octets that the responder has written.
    pub length: u32,
    /// The first octet, in the address space that the handle has.
    // V1-4.4.3-a
    pub offset: u64,
}

impl Segment {
    /// Octets of an encoded segment.
    pub const OCTETS: usize = 16;

    pub(crate) fn decode(cursor: &mut Cursor<'_>) -> Result<Self, DecodeError> {
        Ok(Self { handle: cursor.u32()?, length: cursor.u32()?, offset: cursor.u64()? })
    }

    pub(crate) fn encode(&self, out: &mut impl BufMut) {
        out.put_u32(self.handle);
        out.put_u32(self.length);
        out.put_u64(self.offset);
    }
}

/// The octets of several segments together. An overflow would need 2^32 segments.
// V1-3.4.4-b, V2-4.3.4-b, V2-4.3.4-c
pub(crate) fn total<'a>(segments: impl IntoIterator<Item = &'a Segment>) -> u64 {
    segments.into_iter().map(|segment| u64::from(segment.length)).fold(0, u64::saturating_add)
}
