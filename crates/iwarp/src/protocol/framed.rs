//! Octets that are framed and not yet written, as the pieces of which they consist.
//!
//! Framing and short payloads are copied behind one another, so that many small FPDUs are one slice for the system
//! call, and one run for the CRC. Long payloads stay where they are. Owns all of them until they are written.

use bytes::{Buf, Bytes};
use smallvec::SmallVec;
use std::{collections::VecDeque, io::IoSlice};

/// Slices to write: a few for a small message; for a MiB in segments of 64 KiB as many as fit without an allocation.
pub type WriteSlices<'a> = SmallVec<[IoSlice<'a>; 40]>;

/// Octets framed ahead at most. One write takes them all if the socket accepts them: the data of a READ of 1 MiB, and
/// the reply behind them. Each further write would wake the other end once more (docs/performance.md).
const MAX_FRAMED_OCTETS: u64 = (1 << 20) + (64 << 10);
/// Pieces framed ahead at most, and so slices per write: well below the system's limit of 1,024, and with 1,448-octet
/// segments six writes per MiB.
const MAX_PIECES: usize = 256;
/// Copies framed ahead at most: no budget counts their memory, and a peer with short TCP segments makes each payload
/// short.
const MAX_COPIES_OCTETS: usize = 32 << 10;
/// A payload of at most so many octets is copied: that costs less than a slice of its own.
pub(super) const COPIED_OCTETS: usize = 512;
/// Memory for copies that is kept while nothing waits to be written.
const KEPT_OCTETS: usize = 16 << 10;
/// If copies that are written take so much memory, those behind them move to their place.
const MAX_WRITTEN_OCTETS: usize = 32 << 10;
/// Slices handed to one system call at most: the call fails with more. A single segment may have more.
const MAX_SLICES: usize = 1024;

/// A run of octets to be written.
enum Piece {
    /// So many of the next copied octets.
    Copied(usize),
    /// Payload.
    Shared(Bytes),
}

impl Piece {
    fn len(&self) -> usize {
        match self {
            Piece::Copied(len) => *len,
            Piece::Shared(octets) => octets.len(),
        }
    }
}

/// The octets, in their order.
#[derive(Default)]
pub(super) struct Framed {
    pieces: VecDeque<Piece>,
    /// Copied octets, of which those before `begin` are written.
    copied: Vec<u8>,
    begin: usize,
    /// All octets, and those written, since the connection began.
    framed: u64,
    written: u64,
}

impl Framed {
    pub(super) fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// Whether more may be framed ahead.
    pub(super) fn has_room(&self) -> bool {
        let copies = self.copied.len() - self.begin;
        self.waiting() < MAX_FRAMED_OCTETS && self.pieces.len() < MAX_PIECES && copies < MAX_COPIES_OCTETS
    }

    /// The position in the stream behind all octets.
    pub(super) fn end(&self) -> u64 {
        self.framed
    }

    /// The position in the stream behind the octets that are written.
    pub(super) fn written(&self) -> u64 {
        self.written
    }

    /// Octets that wait to be written.
    fn waiting(&self) -> u64 {
        self.framed - self.written
    }

    /// Where the next copied octets will lie.
    pub(super) fn mark(&self) -> usize {
        self.copied.len()
    }

    /// The octets copied since a [`mark`](Self::mark), if nothing was written meanwhile.
    pub(super) fn copied_since(&self, mark: usize) -> &[u8] {
        self.copied.get(mark..).unwrap_or_default()
    }

    /// Appends a copy of these octets.
    pub(super) fn copy(&mut self, octets: &[u8]) {
        self.append(|out| out.extend_from_slice(octets));
    }

    /// Appends what `write` adds behind the copied octets.
    pub(super) fn append(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        let before = self.copied.len();
        write(&mut self.copied);
        let added = self.copied.len().saturating_sub(before);
        if added == 0 {
            return;
        }
        self.framed += added as u64;
        match self.pieces.back_mut() {
            Some(Piece::Copied(len)) => *len += added,
            _ => self.pieces.push_back(Piece::Copied(added)),
        }
    }

    /// Whether these octets should be copied, and not [shared](Self::share).
    pub(super) fn is_short(octets: &[u8]) -> bool {
        octets.len() <= COPIED_OCTETS
    }

    /// Appends these octets without a copy.
    pub(super) fn share(&mut self, octets: Bytes) {
        self.framed += octets.len() as u64;
        self.pieces.push_back(Piece::Shared(octets));
    }

    /// The slices to write next.
    pub(super) fn slices(&self) -> WriteSlices<'_> {
        let mut slices = WriteSlices::with_capacity(self.pieces.len().min(MAX_SLICES));
        let mut copied = self.copied.get(self.begin..).unwrap_or_default();
        for piece in self.pieces.iter().take(MAX_SLICES) {
            let octets = match piece {
                Piece::Copied(len) => {
                    let (now, later) = copied.split_at_checked(*len).unwrap_or_default();
                    copied = later;
                    now
                }
                Piece::Shared(octets) => octets,
            };
            slices.push(IoSlice::new(octets));
        }
        slices
    }

    /// The first `octets` octets of the [slices](Self::slices) are written.
    pub(super) fn wrote(&mut self, octets: usize) {
        self.written += octets as u64;
        let mut left = octets;
        while left > 0
            && let Some(piece) = self.pieces.front_mut()
        {
            let whole = piece.len();
            let now = whole.min(left);
            match piece {
                Piece::Copied(len) => {
                    *len -= now;
                    self.begin += now;
                }
                Piece::Shared(octets) => octets.advance(now),
            }
            if now == whole {
                self.pieces.pop_front();
            }
            left -= now;
        }
        self.tidy();
    }

    /// Drops what is not written.
    pub(super) fn clear(&mut self) {
        self.pieces.clear();
        self.tidy();
    }

    /// Uses the memory of written copies again.
    fn tidy(&mut self) {
        if self.pieces.is_empty() {
            self.copied.clear();
            self.copied.shrink_to(KEPT_OCTETS);
            self.begin = 0;
        } else if self.begin > MAX_WRITTEN_OCTETS {
            self.copied.drain(..self.begin);
            self.begin = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(framed: &Framed) -> Vec<u8> {
        framed.slices().iter().flat_map(|slice| slice.to_vec()).collect()
    }

    #[test]
    fn copies_join_and_shared_octets_stay_where_they_are() {
        let mut framed = Framed::default();
        framed.copy(b"ab");
        framed.copy(b"");
        framed.copy(b"c");
        let payload = Bytes::from_static(b"defg");
        framed.share(payload.clone());
        framed.copy(b"h");
        let slices = framed.slices();
        assert_eq!(slices.iter().map(|slice| &slice[..]).collect::<Vec<_>>(), [&b"abc"[..], b"defg", b"h"]);
        assert_eq!(slices[1].as_ptr(), payload.as_ptr());
        assert_eq!((framed.end(), framed.waiting()), (8, 8));
    }

    /// Whatever a system call takes, the next one gets what is behind it.
    #[test]
    fn what_was_written_in_part_goes_on_where_it_ended() {
        for step in 1..=9 {
            let mut framed = Framed::default();
            framed.copy(b"abc");
            framed.share(Bytes::from_static(b"defg"));
            framed.copy(b"hi");
            let mut seen = Vec::new();
            while !framed.is_empty() {
                let all = text(&framed);
                let now = &all[..step.min(all.len())];
                seen.extend_from_slice(now);
                framed.wrote(now.len());
                framed.copy(if seen.len() == step { b"j" } else { b"" });
            }
            assert_eq!(seen, b"abcdefghij", "{step} at a time");
            assert_eq!(framed.written(), framed.end());
        }
    }

    #[test]
    fn so_much_is_framed_ahead_and_no_more() {
        let framed_ahead = |add: &dyn Fn(&mut Framed)| {
            let mut framed = Framed::default();
            while framed.has_room() {
                add(&mut framed);
            }
            (framed.waiting(), framed.pieces.len())
        };
        let payload = |octets: usize| Bytes::from(vec![7; octets]);
        assert_eq!(framed_ahead(&|framed| framed.share(payload(64 << 10))), ((1 << 20) + (64 << 10), 17));
        assert_eq!(framed_ahead(&|framed| framed.share(payload(600))), (256 * 600, 256));
        assert_eq!(framed_ahead(&|framed| framed.copy(&[7; 512])), (32 << 10, 1));
    }

    #[test]
    fn copies_take_no_more_memory_than_what_waits_and_a_limit() {
        let mut framed = Framed::default();
        let copy = |number: usize| [number as u8; 500];
        framed.copy(&copy(0));
        for number in 1..10_000 {
            framed.copy(&copy(number));
            assert_eq!(text(&framed), [copy(number - 1), copy(number)].concat());
            framed.wrote(500);
            assert!(framed.copied.len() <= MAX_WRITTEN_OCTETS + 3 * 500);
        }
        (0..100).for_each(|number| framed.copy(&copy(number)));
        framed.wrote(framed.waiting() as usize);
        assert!(framed.is_empty() && framed.copied.capacity() <= KEPT_OCTETS);
        framed.copy(b"new");
        framed.clear();
        assert!(text(&framed).is_empty());
        framed.copy(b"next");
        assert_eq!(text(&framed), b"next");
    }
}
