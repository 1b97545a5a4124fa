//! The Read list: argument data that the responder pulls (RFC 8166 sections 3.4.5 and 4.3.1).
//!
//! A linked list of read segments: a presence word (1), Position (4 octets), a plain segment; at the end a zero
//! word. Segments of equal Position make one chunk, in list order. Owns the decoded segments. A list that is cut
//! off or has a presence word other than 0 and 1 is an error of the header.

use super::segment::{Segment, total};
use crate::cursor::Cursor;
use bytes::BufMut;
use rpcrdma_xdr::DecodeError;
use smallvec::SmallVec;

/// One entry of the Read list.
// V1-4.1.2-a, V2-8.3-b
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadSegment {
    /// The offset in the unreduced Payload stream at which the data belongs, in octets.
    pub position: u32,
    /// Where the data is.
    pub segment: Segment,
}

impl ReadSegment {
    /// Octets of an encoded entry, presence word included.
    pub const OCTETS: usize = 4 + 4 + Segment::OCTETS;
}

/// The segments of equal Position.
// V1-3.4.5-a, V1-3.4.5-d, V2-4.3.5-a, V2-4.3.5-d
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadChunk {
    /// Their Position.
    pub position: u32,
    /// Their memory, in list order.
    pub segments: SmallVec<[Segment; 1]>,
}

impl ReadChunk {
    /// The chunk's octets.
    pub fn len(&self) -> u64 {
        total(&self.segments)
    }

    /// Whether it has no octets.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The Read list of a header.
// V1-4.3.1-a, V1-4.1.2-b, V2-8.3-c
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReadList(pub SmallVec<[ReadSegment; 1]>);

impl ReadList {
    /// The entries, in list order.
    pub fn segments(&self) -> &[ReadSegment] {
        &self.0
    }

    /// Whether it has no entry.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The chunks in the order of their Positions, whatever the order of the list.
    // V1-3.4.5-e, V2-4.3.5-f, V2-4.3.5-h
    pub fn chunks(&self) -> SmallVec<[ReadChunk; 1]> {
        if self.is_empty() {
            return SmallVec::new();
        }
        let mut sorted: SmallVec<[&ReadSegment; 4]> = self.0.iter().collect();
        // Stable: segments of one chunk stay in list order.
        sorted.sort_by_key(|entry| entry.position);
        sorted
            .chunk_by(|a, b| a.position == b.position)
            .filter_map(|entries| {
                let position = entries.first()?.position;
                Some(ReadChunk { position, segments: entries.iter().map(|entry| entry.segment).collect() })
            })
            .collect()
    }

    /// Octets of the encoded list.
    pub fn encoded_len(&self) -> usize {
        self.0.len() * ReadSegment::OCTETS + 4
    }

    // V1-4.7-a, V1-4.7-b
    pub(crate) fn decode(cursor: &mut Cursor<'_>) -> Result<Self, DecodeError> {
        let mut entries = SmallVec::new();
        while cursor.present("presence word of a read segment")? {
            entries.push(ReadSegment { position: cursor.u32()?, segment: Segment::decode(cursor)? });
        }
        Ok(Self(entries))
    }

    pub(crate) fn encode(&self, out: &mut impl BufMut) {
        for entry in &self.0 {
            out.put_u32(1);
            out.put_u32(entry.position);
            entry.segment.encode(out);
        }
        out.put_u32(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// proves: V1-3.4.5-a, V1-3.4.5-d, V1-3.4.5-e, V2-4.3.5-a, V2-4.3.5-f, V2-4.3.5-h, V2-4.3.4-b
    #[test]
    fn segments_of_equal_position_make_a_chunk_in_list_order() {
        let entry = |position, length| ReadSegment { position, segment: Segment { handle: 1, length, offset: 0 } };
        let list = ReadList(vec![entry(40, 5), entry(8, 1), entry(40, 2), entry(8, 3)].into());
        let chunks = list.chunks();
        let summary: Vec<_> = chunks
            .iter()
            .map(|chunk| (chunk.position, chunk.segments.iter().map(|s| s.length).collect::<Vec<_>>(), chunk.len()))
            .collect();
        assert_eq!(summary, [(8, vec![1, 3], 4), (40, vec![5, 2], 7)]);
        assert!(chunks.iter().all(|chunk| !chunk.is_empty()));
        assert!(ReadList(vec![entry(8, 0), entry(8, 0)].into()).chunks().iter().all(ReadChunk::is_empty));
    }

    /// proves: V1-4.1.2-a, V1-4.7-a, V1-4.7-b
    #[test]
    fn an_entry_is_a_word_a_position_and_a_segment() {
        let segment = Segment { handle: 0x0102_0304, length: 5, offset: 0x1122_3344_5566_7788 };
        let list = ReadList(vec![ReadSegment { position: 60, segment }].into());
        let mut out = Vec::new();
        list.encode(&mut out);
        let expected =
            [&[0, 0, 0, 1, 0, 0, 0, 60, 1, 2, 3, 4, 0, 0, 0, 5][..], &0x1122_3344_5566_7788_u64.to_be_bytes(), &[0; 4]]
                .concat();
        assert_eq!(out, expected);
        assert_eq!(out.len(), list.encoded_len());
        let mut empty = Vec::new();
        ReadList::default().encode(&mut empty);
        assert_eq!(empty, [0; 4]);
    }
}
