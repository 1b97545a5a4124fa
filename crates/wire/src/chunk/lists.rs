//! The chunk lists of a header: Read list, Write list, Reply chunk (RFC 8166 section 4.1.2; version 2 draft section
//! 6.2.3).
//!
//! The lists stand in this order, and a zero word ends each; for the Reply chunk it means that there is none. Owns the
//! decoded lists.

use super::{ReadList, WriteChunk, WriteList};
use crate::cursor::Cursor;
use bytes::BufMut;
use rpcrdma_xdr::DecodeError;

/// The three kinds of chunk that a header can carry.
// V2-6.2.3-a, V2-C.1-c, V1-4.3-a
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lists {
    /// The data that the responder reads. Empty in a Reply.
    pub reads: ReadList,
    /// Where the responder writes results.
    pub writes: WriteList,
    /// Where the responder writes the whole Reply.
    pub reply: Option<WriteChunk>,
}

/// The encoded lists if they have no chunk: the three words that end them. Most messages have none.
const NONE: [u8; 12] = [0; 12];

impl Lists {
    /// Octets of the encoded lists.
    pub fn encoded_len(&self) -> usize {
        if self.is_empty() {
            return NONE.len();
        }
        self.reads.encoded_len()
            + self.writes.encoded_len()
            + 4
            + self.reply.as_ref().map_or(0, WriteChunk::encoded_len)
    }

    /// Whether there is no chunk at all.
    pub fn is_empty(&self) -> bool {
        self.reads.is_empty() && self.writes.is_empty() && self.reply.is_none()
    }

    /// How many segments there are in all chunks together.
    pub fn segment_count(&self) -> usize {
        let written = self.writes.0.iter().chain(&self.reply).map(|chunk| chunk.0.len()).sum::<usize>();
        self.reads.0.len() + written
    }

    // V1-4.3-a, V2-6.2.3-c
    pub(crate) fn decode(cursor: &mut Cursor<'_>) -> Result<Self, DecodeError> {
        if cursor.passes(&NONE) {
            return Ok(Self::default());
        }
        Ok(Self {
            reads: ReadList::decode(cursor)?,
            writes: WriteList::decode(cursor)?,
            reply: WriteChunk::decode_optional(cursor)?,
        })
    }

    pub(crate) fn encode(&self, out: &mut impl BufMut) {
        if self.is_empty() {
            return out.put_slice(&NONE);
        }
        self.reads.encode(out);
        self.writes.encode(out);
        WriteChunk::encode_optional(self.reply.as_ref(), out);
    }
}

#[cfg(test)]
mod tests {
    use super::super::{ReadSegment, Segment};
    use super::*;

    /// proves: V2-5.2.4-b
    #[test]
    fn segments_are_counted_in_chunks_of_all_three_kinds() {
        let chunk = |segments| WriteChunk(vec![Segment::default(); segments].into());
        let read = ReadSegment { position: 0, segment: Segment::default() };
        let lists = Lists {
            reads: ReadList(vec![read; 3].into()),
            writes: WriteList(vec![chunk(2), chunk(0), chunk(5)].into()),
            reply: Some(chunk(4)),
        };
        assert_eq!(lists.segment_count(), 3 + 7 + 4);
        assert_eq!(Lists { reply: None, ..lists.clone() }.segment_count(), 3 + 7);
        assert_eq!(Lists { reads: ReadList::default(), ..lists }.segment_count(), 7 + 4);
        assert_eq!(Lists::default().segment_count(), 0);
    }
}
