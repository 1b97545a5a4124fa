//! Write chunks: memory for results (RFC 8166 sections 3.4.6, 4.3.2 and 4.3.3).
//!
//! A Write chunk is a counted array of plain segments. The Write list is a linked list of them; the Reply chunk
//! is a single one, present or not. Owns the decoded segments. A count beyond what is left of the message is an
//! error of the header, found before any room is reserved.

use super::segment::{Segment, total};
use crate::cursor::Cursor;
use bytes::BufMut;
use rpcrdma_xdr::DecodeError;
use smallvec::SmallVec;

/// A Write chunk or the Reply chunk.
// V1-3.4.6-a, V2-4.3.6-a
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WriteChunk(pub SmallVec<[Segment; 1]>);

impl WriteChunk {
    /// The segments, in the order in which they are filled.
    pub fn segments(&self) -> &[Segment] {
        &self.0
    }

    /// The octets of all segments.
    pub fn len(&self) -> u64 {
        total(&self.0)
    }

    /// Whether the segments have no octets: an empty chunk if there are none, an unused one otherwise.
    // V1-3.4.6-e, V2-4.3.6-g
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The chunk as a Reply repeats it after the responder has written `written` octets: the same segments, filled in
    /// order, each with the length written there. `None` if the octets do not fit.
    // V1-3.4.6-c, V1-3.4.6-d, V2-4.3.6-d, V2-4.3.6-e, V1-4.3.2.2-c, V2-4.3.6-h, V1-4.3.3-d
    pub fn filled(&self, written: u64) -> Option<Self> {
        let mut left = written;
        let mut filled = self.clone();
        for segment in &mut filled.0 {
            segment.length = u32::try_from(left).unwrap_or(u32::MAX).min(segment.length);
            left -= u64::from(segment.length);
        }
        (left == 0).then_some(filled)
    }

    /// Octets of the encoded chunk: the count and the segments.
    pub fn encoded_len(&self) -> usize {
        4 + self.0.len() * Segment::OCTETS
    }

    pub(crate) fn decode(cursor: &mut Cursor<'_>) -> Result<Self, DecodeError> {
        // V1-4.5.2-a, V2-7.2.1-a
        let count = cursor.count(Segment::OCTETS)?;
        let mut segments = SmallVec::new();
        for _ in 0..count {
            segments.push(Segment::decode(cursor)?);
        }
        Ok(Self(segments))
    }

    pub(crate) fn encode(&self, out: &mut impl BufMut) {
        // A message bounds the header, to far less than 2^32 segments.
        out.put_u32(u32::try_from(self.0.len()).unwrap_or(u32::MAX));
        for segment in &self.0 {
            segment.encode(out);
        }
    }

    /// The Reply chunk: a presence word, then the chunk.
    // V1-4.7-d
    pub(crate) fn decode_optional(cursor: &mut Cursor<'_>) -> Result<Option<Self>, DecodeError> {
        if cursor.present("presence word of the Reply chunk")? { Self::decode(cursor).map(Some) } else { Ok(None) }
    }

    pub(crate) fn encode_optional(chunk: Option<&Self>, out: &mut impl BufMut) {
        out.put_u32(chunk.is_some().into());
        if let Some(chunk) = chunk {
            chunk.encode(out);
        }
    }
}

/// The Write list of a header.
// V1-4.7-c, V1-4.1.2-b, V2-8.3-c
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WriteList(pub SmallVec<[WriteChunk; 1]>);

impl WriteList {
    /// The chunks, in list order.
    pub fn chunks(&self) -> &[WriteChunk] {
        &self.0
    }

    /// Whether it has no chunk.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Octets of the encoded list.
    pub fn encoded_len(&self) -> usize {
        self.0.iter().map(|chunk| 4 + chunk.encoded_len()).sum::<usize>() + 4
    }

    pub(crate) fn decode(cursor: &mut Cursor<'_>) -> Result<Self, DecodeError> {
        let mut chunks = SmallVec::new();
        while cursor.present("presence word of a Write chunk")? {
            chunks.push(WriteChunk::decode(cursor)?);
        }
        Ok(Self(chunks))
    }

    pub(crate) fn encode(&self, out: &mut impl BufMut) {
        for chunk in &self.0 {
            out.put_u32(1);
            chunk.encode(out);
        }
        out.put_u32(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunk(lengths: &[u32]) -> WriteChunk {
        WriteChunk(lengths.iter().map(|&length| Segment { handle: 9, length, offset: 0 }).collect())
    }

    fn lengths(chunk: &WriteChunk) -> Vec<u32> {
        chunk.0.iter().map(|segment| segment.length).collect()
    }

    /// proves: V1-3.4.6-c, V1-3.4.6-d, V1-3.4.6-e, V1-4.3.2.2-c, V1-4.3.3-d, V2-4.3.6-c, V2-4.3.6-d, V2-4.3.6-e
    /// proves: V2-4.3.6-h, V2-4.3.4-b
    #[test]
    fn a_chunk_is_filled_in_order_and_repeated_whole() {
        let offered = chunk(&[10, 0, 20, 5]);
        assert_eq!(lengths(&offered.filled(0).unwrap()), [0, 0, 0, 0]);
        assert_eq!(lengths(&offered.filled(10).unwrap()), [10, 0, 0, 0]);
        assert_eq!(lengths(&offered.filled(11).unwrap()), [10, 0, 1, 0]);
        assert_eq!(offered.filled(35).unwrap(), offered);
        assert_eq!(offered.filled(36), None, "one byte past the end");
        assert_eq!(chunk(&[]).filled(0), Some(chunk(&[])));
    }

    /// proves: V1-4.7-c, V1-4.7-d
    #[test]
    fn lists_and_chunks_have_the_forms_of_the_examples() {
        let words =
            |out: &[u8]| out.chunks_exact(4).map(|w| u32::from_be_bytes([w[0], w[1], w[2], w[3]])).collect::<Vec<_>>();
        let mut out = Vec::new();
        let list = WriteList(vec![chunk(&[1, 2]), chunk(&[3])].into());
        list.encode(&mut out);
        assert_eq!(words(&out), [1, 2, 9, 1, 0, 0, 9, 2, 0, 0, 1, 1, 9, 3, 0, 0, 0]);
        assert_eq!(out.len(), list.encoded_len());
        out.clear();
        WriteChunk::encode_optional(Some(&chunk(&[1])), &mut out);
        WriteChunk::encode_optional(None, &mut out);
        assert_eq!(words(&out), [1, 1, 9, 1, 0, 0, 0]);
    }

    #[test]
    fn a_count_beyond_the_message_is_found_before_its_segments_are_read() {
        let decode = |count: u8, octets: usize| {
            let message = [&[0, 0, 0, count][..], &vec![0; octets]].concat();
            WriteChunk::decode(&mut Cursor::new(&message)).map(|chunk| chunk.0.len())
        };
        assert_eq!(decode(2, 32), Ok(2), "at the limit");
        assert_eq!(decode(2, 31), Err(DecodeError::TooLong { position: 0, len: 2, max: 1 }), "a byte is missing");
        assert_eq!(decode(3, 32), Err(DecodeError::TooLong { position: 0, len: 3, max: 2 }), "one segment past it");
    }
}
