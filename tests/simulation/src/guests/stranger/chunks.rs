//! The chunks of a stranger's call: the memory that it lends, and what the reply says of it.

use super::talk::Reply;
use crate::{
    guests::lists::ITEM_POSITION,
    work::{ITEMS, PAIR, PROGRAM, RUNS, Work},
    work::{answer_to, pattern, second_octets, second_of},
};
use bytes::Bytes;
use rpcrdma_env::{Buffer, Random, SeededRandom};
use rpcrdma_fabric::{Completion, Connected, Lent, RemoteSegment, Token};
use rpcrdma_wire::chunk::{Lists, ReadList, ReadSegment, Segment, WriteChunk};
use std::collections::BTreeMap;

/// The most segments of a chunk.
const MAX_SEGMENTS: u64 = 6;
/// Results of up to so many bytes get no Reply chunk.
const SHORT_OCTETS: usize = 500;
/// Bytes of an RPC reply before its results.
const REPLY_HEAD: usize = 24;

/// The memory that is lent for a call, by handle.
#[derive(Default)]
pub(super) struct Loans {
    out: BTreeMap<u32, ()>,
    /// Memory that was lent for results and has come back.
    sinks: BTreeMap<u32, Buffer>,
}

impl Loans {
    /// Takes a completion, which may bring memory back. `None` if something failed.
    pub(super) fn took(&mut self, completion: Completion) -> Option<()> {
        match completion {
            Completion::Fenced { handle, memory, .. } => {
                self.out.remove(&handle);
                if let Lent::Sink(buffer) = memory {
                    self.sinks.insert(handle, buffer);
                }
                Some(())
            }
            Completion::Failed { .. } => None,
            _ => Some(()),
        }
    }

    pub(super) fn handles(&self) -> impl Iterator<Item = u32> + use<> {
        self.out.keys().copied().collect::<Vec<_>>().into_iter()
    }

    pub(super) fn all_back(&self) -> bool {
        self.out.is_empty()
    }

    /// The bytes that are in a chunk, according to a reply.
    fn gather(&mut self, chunk: &WriteChunk, offered: &WriteChunk) -> Result<Vec<u8>, String> {
        if chunk.0.len() != offered.0.len() {
            return Err("a chunk has other segments than were offered".to_owned());
        }
        let mut octets = Vec::new();
        let mut full = true;
        for (segment, offer) in chunk.0.iter().zip(&offered.0) {
            if (segment.handle, segment.offset) != (offer.handle, offer.offset) || segment.length > offer.length {
                return Err("a segment is not the one that was offered".to_owned());
            }
            if segment.length > 0 && !full {
                return Err("a segment was filled behind one that is not full".to_owned());
            }
            full = segment.length == offer.length;
            let buffer = self.sinks.get_mut(&segment.handle).ok_or("a segment did not come back")?;
            octets.extend_from_slice(&buffer.bytes_mut()[..segment.length as usize]);
        }
        Ok(octets)
    }

    /// Checks that a reply is right.
    pub(super) fn check(&mut self, work: &Work, number: u64, offered: &Lists, reply: &Reply) -> Result<(), String> {
        let Reply { lists, long, stream } = reply;
        if lists.writes.0.len() != offered.writes.0.len() || !lists.reads.is_empty() {
            return Err("the answer has other chunks than the call".to_owned());
        }
        let stream = match (long, &lists.reply, &offered.reply) {
            (false, ..) => stream.clone(),
            (true, Some(chunk), Some(offer)) => self.gather(chunk, offer)?,
            _ => return Err("a long answer without a Reply chunk".to_owned()),
        };
        let mut rest = stream.get(REPLY_HEAD..).ok_or("a short answer")?;
        let mut take = |octets: &[u8]| match rest.strip_prefix(octets) {
            Some(behind) => {
                rest = behind;
                Ok(())
            }
            None => Err(format!("{} bytes of the answer are not what they should be", octets.len())),
        };
        take(&number.to_be_bytes())?;
        let mut items = vec![(work.wanted, answer_to(number))];
        if work.procedure == PAIR {
            items.push((second_octets(work.wanted), second_of(answer_to(number))));
        }
        for (index, (len, number)) in items.into_iter().enumerate() {
            if index > 0 {
                take(&work.procedure.to_be_bytes())?;
            }
            take(&(len as u32).to_be_bytes())?;
            let right = pattern(len, number);
            let placed = match (lists.writes.0.get(index), offered.writes.0.get(index)) {
                (Some(chunk), Some(offer)) => self.gather(chunk, offer)?,
                _ => Vec::new(),
            };
            if placed.is_empty() {
                let mut padded = right;
                padded.resize(len.next_multiple_of(4), 0);
                take(&padded)?;
            } else if placed != right {
                return Err(format!("{len} bytes that were placed are not what they should be"));
            }
        }
        if rest.is_empty() { Ok(()) } else { Err(format!("{} bytes too many", rest.len())) }
    }
}

/// Lends the memory that a call needs.
pub(super) struct Lending<'a> {
    pub(super) qp: &'a mut Connected,
    pub(super) random: &'a SeededRandom,
    pub(super) loans: &'a mut Loans,
}

impl Lending<'_> {
    /// The chunks of a call, its inline part, and whether all of it is in chunks. `None` if the memory cannot be lent.
    pub(super) fn lend(mut self, work: &Work, number: u64, xid: u32) -> Option<(Lists, Vec<u8>, bool)> {
        let head = [xid, 0, 2, PROGRAM, 1, work.procedure, 0, 0, 0, 0, (number >> 32) as u32, number as u32];
        let args = [work.sleep.as_micros() as u32, work.wanted as u32, work.octets as u32];
        let mut inline: Vec<u8> = head.into_iter().chain(args).flat_map(u32::to_be_bytes).collect();
        let first: Bytes = pattern(work.octets, number).into();
        let mut lists = Lists::default();
        if work.procedure == RUNS {
            inline.extend_from_slice(&first);
            inline.resize(inline.len().next_multiple_of(4), 0);
            if work.wanted > SHORT_OCTETS {
                lists.reply = Some(self.room(REPLY_HEAD + 12 + work.wanted.next_multiple_of(4))?);
            }
            if inline.len() > SHORT_OCTETS {
                lists.reads.0 = self.reads(0, &inline.into())?.into();
                return Some((lists, Vec::new(), true));
            }
            return Some((lists, inline, false));
        }
        let mut reads = self.reads(ITEM_POSITION, &first)?;
        lists.writes.0.push(self.room(work.wanted)?);
        if work.procedure == PAIR {
            let second: Bytes = pattern(second_octets(work.octets), second_of(number)).into();
            inline.extend([work.procedure, second.len() as u32].into_iter().flat_map(u32::to_be_bytes));
            let position = ITEM_POSITION + (work.octets.next_multiple_of(4) + 8) as u32;
            reads.extend(self.reads(position, &second)?);
            lists.writes.0.push(self.room(second_octets(work.wanted))?);
        }
        debug_assert!(matches!(work.procedure, ITEMS | PAIR));
        Some((Lists { reads: ReadList(reads.into()), ..lists }, inline, false))
    }

    /// The lengths of a chunk's segments, together `octets`.
    fn lengths(&self, octets: usize) -> Vec<usize> {
        let mut left = octets;
        let mut lengths = Vec::new();
        for _ in 0..self.random.below(MAX_SEGMENTS) {
            let length = (self.random.below(left as u64 / 2 + 1) as usize).min(left);
            if length > 0 {
                lengths.push(length);
                left -= length;
            }
        }
        if left > 0 {
            lengths.push(left);
        }
        lengths
    }

    fn expose(&mut self, memory: Lent) -> Option<Segment> {
        let RemoteSegment { handle, length, offset } = self.qp.expose(Token(1), memory).ok()?;
        self.loans.out.insert(handle, ());
        Some(Segment { handle, length, offset })
    }

    fn reads(&mut self, position: u32, octets: &Bytes) -> Option<Vec<ReadSegment>> {
        let mut at = 0;
        let mut reads = Vec::new();
        for length in self.lengths(octets.len()) {
            let segment = self.expose(Lent::Source(octets.slice(at..at + length)))?;
            reads.push(ReadSegment { position, segment });
            at += length;
        }
        Some(reads)
    }

    /// A Write chunk with room for at least so many bytes.
    fn room(&mut self, octets: usize) -> Option<WriteChunk> {
        let more = if self.random.below(2) == 0 { self.random.below(500) as usize } else { 0 };
        let lengths = self.lengths(octets + more);
        let segments = lengths.into_iter().map(|len| self.expose(Lent::Sink(Buffer::from_vec(vec![0; len]))));
        segments.collect::<Option<Vec<_>>>().map(|segments| WriteChunk(segments.into()))
    }
}
