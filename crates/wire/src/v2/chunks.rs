//! The chunk lists of version 2 (draft sections 6.2.3 and 8.3).
//!
//! The lists stand behind one word that version 1 does not have: the handle that the responder may invalidate with its
//! reply. Owns the decoded lists; a list that is wrong is an error of the header.

use crate::{
    chunk::{Lists, Segment},
    cursor::Cursor,
};
use bytes::BufMut;
use rpcrdma_xdr::DecodeError;

/// The memory that an `RDMA2_MSG` or `RDMA2_NOMSG` header describes.
// V2-6.2.3-b, V2-6.2.3-c, V2-6.3-b
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Chunks {
    /// The handle that the responder may invalidate with its reply's Send; zero for none.
    pub inv_handle: u32,
    /// The lists, as in version 1.
    pub lists: Lists,
}

impl Chunks {
    /// Whether there is no chunk at all.
    pub fn is_empty(&self) -> bool {
        self.lists.is_empty()
    }

    /// The handle that the responder may invalidate, if one of the chunks names it. The receiver cannot rely on any
    /// other handle.
    // V2-6.2.4-a, V2-6.2.4-e
    pub fn invalidatable(&self) -> Option<u32> {
        let Lists { reads, writes, reply } = &self.lists;
        let read = reads.segments().iter().map(|read| &read.segment);
        let written = writes.chunks().iter().chain(reply).flat_map(|chunk| chunk.segments());
        let mut handles = read.chain(written).map(|segment: &Segment| segment.handle);
        (self.inv_handle != 0 && handles.any(|handle| handle == self.inv_handle)).then_some(self.inv_handle)
    }

    /// Octets of the encoded chunks.
    pub fn encoded_len(&self) -> usize {
        4 + self.lists.encoded_len()
    }

    pub(crate) fn decode(cursor: &mut Cursor<'_>) -> Result<Self, DecodeError> {
        Ok(Self { inv_handle: cursor.u32()?, lists: Lists::decode(cursor)? })
    }

    pub(crate) fn encode(&self, out: &mut impl BufMut) {
        out.put_u32(self.inv_handle);
        self.lists.encode(out);
    }
}

impl From<Lists> for Chunks {
    /// Chunks whose handles the responder may not invalidate.
    fn from(lists: Lists) -> Self {
        Self { inv_handle: 0, lists }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chunk::{ReadList, ReadSegment, WriteChunk, WriteList};

    /// proves: V2-6.2.3-a, V2-6.2.3-b, V2-6.2.3-c, V2-6.3-b, V2-8.3-a, V2-8.3-b, V2-8.3-c, V2-8.3-d, V2-C.1-c
    /// proves: V2-3.1.4-a, V2-4.3.3-a, V2-4.3.6-a
    #[test]
    fn the_handle_stands_before_three_lists() {
        let segment = |handle| Segment { handle, length: 0x20, offset: 0x1_0000_0002 };
        let chunks = Chunks {
            inv_handle: 7,
            lists: Lists {
                reads: ReadList(vec![ReadSegment { position: 40, segment: segment(5) }].into()),
                writes: WriteList(vec![WriteChunk(vec![segment(6), segment(7)].into()), WriteChunk::default()].into()),
                reply: Some(WriteChunk(vec![segment(8)].into())),
            },
        };
        let mut out = Vec::new();
        chunks.encode(&mut out);
        let words: Vec<u32> = out.chunks_exact(4).map(|w| u32::from_be_bytes([w[0], w[1], w[2], w[3]])).collect();
        let reads = [1, 40, 5, 0x20, 1, 2, 0];
        let writes = [1, 2, 6, 0x20, 1, 2, 7, 0x20, 1, 2, 1, 0, 0];
        let reply = [1, 1, 8, 0x20, 1, 2];
        assert_eq!(words, [&[7][..], &reads, &writes, &reply].concat());
        assert_eq!(out.len(), chunks.encoded_len());
        assert_eq!(Chunks::default().encoded_len(), 16);
    }

    /// proves: V2-6.2.4-a, V2-6.2.4-b
    #[test]
    fn only_a_handle_of_the_same_header_may_be_invalidated() {
        let segment = Segment { handle: 9, length: 1, offset: 0 };
        let mut chunks = Chunks {
            inv_handle: 9,
            lists: Lists { reply: Some(WriteChunk(vec![segment].into())), ..Lists::default() },
        };
        assert_eq!(chunks.invalidatable(), Some(9));
        chunks.inv_handle = 8;
        assert_eq!(chunks.invalidatable(), None);
        chunks.inv_handle = 0;
        chunks.lists.reply = Some(WriteChunk(vec![Segment { handle: 0, ..segment }].into()));
        assert_eq!(chunks.invalidatable(), None, "zero is no handle");
    }
}
