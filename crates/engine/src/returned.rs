//! Compares the chunks in a reply with the offered ones (RFC 8166 sections 3.4.6 and 4.3.2).
//!
//! Owns nothing. The chunks must have the same segments, with lengths filled in order; anything else is a fault of the
//! peer.

use crate::{PeerFault, PlacedItem, ReplyBase, ReplyParts};
use bytes::Bytes;
use rpcrdma_env::few;
use rpcrdma_wire::chunk::{Lists, WriteChunk, WriteList};
use smallvec::SmallVec;

/// What we offered for the reply of one call.
#[derive(Debug, Default)]
pub(crate) struct Offered {
    /// The Write chunks; none if results have to come inline.
    pub(crate) writes: WriteList,
    /// The Reply chunk.
    pub(crate) reply: Option<WriteChunk>,
    /// How many eligible results the caller has room for.
    pub(crate) items: usize,
}

impl Offered {
    /// Keeps what a call offers when it is sent.
    pub(crate) fn keep(&mut self, lists: Lists) {
        (self.writes, self.reply) = (lists.writes, lists.reply);
    }

    /// The reply, if it is in a short message.
    // V1-4.3.3-e
    pub(crate) fn short(&self, lists: &Lists, stream: Bytes) -> Result<ReplyParts, PeerFault> {
        match (&lists.reply, &self.reply) {
            (None, _) => {}
            (Some(got), Some(offered)) => {
                if written(offered, got)? > 0 {
                    return Err(PeerFault::ReplyChunkBesideMessage);
                }
            }
            // The peer cannot have written to a chunk that we never offered.
            (Some(got), None) if got.is_empty() => {}
            (Some(_), None) => return Err(PeerFault::NoReplyChunk),
        }
        Ok(ReplyParts { base: ReplyBase::Inline(stream), items: self.placed(&lists.writes)? })
    }

    /// The reply, if it is in the Reply chunk.
    pub(crate) fn long(&self, lists: &Lists) -> Result<ReplyParts, PeerFault> {
        let (Some(got), Some(offered)) = (&lists.reply, &self.reply) else { return Err(PeerFault::NoReplyChunk) };
        let octets = usize::try_from(written(offered, got)?).map_err(|_| PeerFault::ChunksChanged)?;
        Ok(ReplyParts { base: ReplyBase::Chunk { octets }, items: self.placed(&lists.writes)? })
    }

    // V1-4.3.2.1-d, V1-3.4.6.1-a, V2-4.3.6.1-a, V1-4.3.2.2-e
    fn placed(&self, got: &WriteList) -> Result<SmallVec<[PlacedItem; 1]>, PeerFault> {
        let offered = self.writes.chunks();
        if got.is_empty() || offered.is_empty() {
            // Without a list the peer wrote nothing that counts: the offered chunks are unused, and we take nothing
            // from their memory, whatever the peer has written there (V1-4.3.2.2-d).
            return match got.chunks().iter().all(WriteChunk::is_empty) {
                true => {
                    Ok(few((0..self.items)
                        .map(|k| PlacedItem { offered: offered.get(k).map_or(0, chunk_bytes), returned: 0 })))
                }
                false => Err(PeerFault::ChunksChanged),
            };
        }
        if got.chunks().len() != offered.len() {
            return Err(PeerFault::ChunksChanged);
        }
        let mut items = SmallVec::new();
        for (offered, got) in offered.iter().zip(got.chunks()) {
            let returned = usize::try_from(written(offered, got)?).map_err(|_| PeerFault::ChunksChanged)?;
            items.push(PlacedItem { offered: chunk_bytes(offered), returned });
        }
        Ok(items)
    }
}

fn chunk_bytes(chunk: &WriteChunk) -> usize {
    usize::try_from(chunk.len()).unwrap_or(usize::MAX)
}

/// How many bytes the peer has written to `offered`, according to `got`.
// V1-3.4.6-d, V2-4.3.6-d, V2-4.3.6-e
fn written(offered: &WriteChunk, got: &WriteChunk) -> Result<u64, PeerFault> {
    let total = got.len();
    // The total alone decides how segments are filled, so the reply's lengths must follow from the total.
    match offered.filled(total) {
        Some(expected) if expected == *got => Ok(total),
        _ => Err(PeerFault::ChunksChanged),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rpcrdma_wire::chunk::Segment;

    fn chunk(lengths: &[u32]) -> WriteChunk {
        WriteChunk(lengths.iter().map(|&length| Segment { handle: 9, length, offset: 64 }).collect())
    }

    fn lists(writes: &[&[u32]], reply: Option<&[u32]>) -> Lists {
        Lists {
            writes: WriteList(writes.iter().map(|lengths| chunk(lengths)).collect()),
            reply: reply.map(chunk),
            ..Lists::default()
        }
    }

    fn offered(writes: &[&[u32]], reply: Option<&[u32]>) -> Offered {
        let lists = lists(writes, reply);
        Offered { items: writes.len(), writes: lists.writes, reply: lists.reply }
    }

    fn short(offered: &Offered, got: &Lists) -> Result<Vec<(usize, usize)>, PeerFault> {
        let parts = offered.short(got, Bytes::new())?;
        Ok(parts.items.iter().map(|item| (item.offered, item.returned)).collect())
    }

    /// proves: V1-3.4.6-d, V1-3.4.6.1-a, V1-4.3.2.1-d, V1-4.3.2.3-c
    #[test]
    fn returned_chunks_say_what_was_written() {
        let call = offered(&[&[10, 10], &[], &[5]], None);
        assert_eq!(short(&call, &lists(&[&[10, 3], &[], &[0]], None)), Ok(vec![(20, 13), (0, 0), (5, 0)]));
        assert_eq!(short(&call, &lists(&[], None)), Ok(vec![(20, 0), (0, 0), (5, 0)]), "no list: nothing used");
    }

    /// proves: V1-3.4.6-c
    #[test]
    fn chunks_that_were_never_offered_are_a_fault() {
        let call = offered(&[&[10, 10]], None);
        for changed in [&[10, 11][..], &[11, 0], &[9, 1], &[10], &[10, 0, 0]] {
            assert_eq!(short(&call, &lists(&[changed], None)), Err(PeerFault::ChunksChanged), "{changed:?}");
        }
        assert_eq!(short(&call, &lists(&[&[0, 0], &[0]], None)), Err(PeerFault::ChunksChanged));
        let mut moved = lists(&[&[10, 0]], None);
        moved.writes.0[0].0[0].offset = 65;
        assert_eq!(short(&call, &moved), Err(PeerFault::ChunksChanged));
        assert_eq!(short(&offered(&[], None), &lists(&[&[1]], None)), Err(PeerFault::ChunksChanged));
    }

    /// proves: V1-4.3.3-b, V1-4.3.3-c, V1-4.3.3-e
    #[test]
    fn the_reply_chunk_is_used_by_long_replies_only() {
        let call = offered(&[], Some(&[100]));
        assert_eq!(short(&call, &lists(&[], None)), Ok(vec![]));
        assert_eq!(short(&call, &lists(&[], Some(&[0]))), Ok(vec![]));
        assert_eq!(short(&call, &lists(&[], Some(&[1]))), Err(PeerFault::ReplyChunkBesideMessage));
        assert_eq!(call.long(&lists(&[], Some(&[100]))).unwrap().base, ReplyBase::Chunk { octets: 100 });
        assert_eq!(call.long(&lists(&[], Some(&[101]))), Err(PeerFault::ChunksChanged));
        assert_eq!(call.long(&lists(&[], None)), Err(PeerFault::NoReplyChunk));
        assert_eq!(offered(&[], None).long(&lists(&[], Some(&[1]))), Err(PeerFault::NoReplyChunk));
    }
}
