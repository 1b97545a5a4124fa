//! One direction of a TCP connection: segments in any order become bytes in order.
//!
//! Owns the bytes that wait for earlier ones. Bytes that the capture lacks become a gap as soon as that is certain: the
//! other end has acknowledged later bytes, or too many bytes wait.

use std::collections::BTreeMap;

/// Bytes that wait in one direction: the largest receive window of Linux's defaults.
pub(super) const MAX_DIRECTION_BYTES: usize = 6 << 20;
/// Segments that wait in one direction.
pub(super) const MAX_DIRECTION_SEGMENTS: usize = 16_384;

/// The output of the reassembly.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Piece<'a> {
    /// The next bytes.
    Octets(&'a [u8]),
    /// The capture lacks this many bytes.
    Gap(u64),
}

#[derive(Debug, Default)]
pub(super) struct Reassembly {
    /// The next sequence number, once one was seen.
    next: Option<u32>,
    /// How many bytes came out or are missing: the position of `next`.
    position: u64,
    waiting: BTreeMap<u64, Vec<u8>>,
    waiting_bytes: usize,
}

impl Reassembly {
    /// The stream begins: a SYN with this sequence number.
    pub(super) fn begin(&mut self, sequence: u32) {
        if self.next.is_none() {
            self.next = Some(sequence.wrapping_add(1));
        }
    }

    /// Whether a SYN with this sequence number begins another stream than this.
    pub(super) fn is_other(&self, sequence: u32) -> bool {
        // Positions wrap as sequence numbers do.
        self.next.is_some_and(|next| next.wrapping_sub(self.position as u32) != sequence.wrapping_add(1))
    }

    pub(super) fn is_begun(&self) -> bool {
        self.next.is_some()
    }

    #[cfg(test)]
    pub(super) fn waiting_bytes(&self) -> usize {
        self.waiting_bytes
    }

    /// Where `sequence` lies from `next`.
    fn distance(&self, sequence: u32) -> i32 {
        let next = self.next.unwrap_or(sequence);
        // The distance modulo 2^32, read as signed: RFC 9293 section 3.4.
        sequence.wrapping_sub(next) as i32
    }

    /// Takes a segment; gives what is in order to `out`. `all_waiting`: bytes that wait on all connections.
    pub(super) fn segment<E>(
        &mut self,
        sequence: u32,
        payload: &[u8],
        all_waiting: &mut usize,
        out: &mut dyn FnMut(Piece<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        if payload.is_empty() {
            return Ok(());
        }
        self.next.get_or_insert(sequence);
        let distance = self.distance(sequence);
        if distance <= 0 {
            let old = usize::try_from(distance.unsigned_abs()).unwrap_or(usize::MAX);
            if let Some(new) = payload.get(old..).filter(|new| !new.is_empty()) {
                self.advance(new.len() as u64);
                out(Piece::Octets(new))?;
                self.drain(all_waiting, out)?;
            }
            return Ok(());
        }
        let at = self.position + u64::from(distance.unsigned_abs());
        let longer = self.waiting.get(&at).is_none_or(|held| held.len() < payload.len());
        if longer {
            let held = self.waiting.insert(at, payload.to_vec()).map_or(0, |held| held.len());
            self.waiting_bytes = self.waiting_bytes + payload.len() - held;
            *all_waiting = *all_waiting + payload.len() - held;
        }
        while self.waiting_bytes > MAX_DIRECTION_BYTES
            || self.waiting.len() > MAX_DIRECTION_SEGMENTS
            || (*all_waiting > super::MAX_WAITING_BYTES && !self.waiting.is_empty())
        {
            self.skip(all_waiting, out)?;
        }
        Ok(())
    }

    /// The other end has received everything before `sequence`: what the capture lacks of it will not come.
    pub(super) fn acknowledged<E>(
        &mut self,
        sequence: u32,
        all_waiting: &mut usize,
        out: &mut dyn FnMut(Piece<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        while let Some((&at, _)) = self.waiting.first_key_value() {
            let distance = self.distance(sequence);
            if distance <= 0 || self.position + u64::from(distance.unsigned_abs()) <= at {
                break;
            }
            self.skip(all_waiting, out)?;
        }
        Ok(())
    }

    /// Gives everything that waits. `end`: the sequence number behind the last byte, if it is known.
    pub(super) fn finish<E>(
        &mut self,
        end: Option<u32>,
        all_waiting: &mut usize,
        out: &mut dyn FnMut(Piece<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        while !self.waiting.is_empty() {
            self.skip(all_waiting, out)?;
        }
        let missing = end.filter(|_| self.is_begun()).map_or(0, |end| self.distance(end));
        match u64::try_from(missing) {
            Ok(missing @ 1..) => {
                self.advance(missing);
                out(Piece::Gap(missing))
            }
            _ => Ok(()),
        }
    }

    fn advance(&mut self, octets: u64) {
        self.position += octets;
        // Wraps, as sequence numbers do.
        self.next = self.next.map(|next| next.wrapping_add(octets as u32));
    }

    /// Goes on behind the next gap.
    fn skip<E>(&mut self, all_waiting: &mut usize, out: &mut dyn FnMut(Piece<'_>) -> Result<(), E>) -> Result<(), E> {
        if let Some((&at, _)) = self.waiting.first_key_value() {
            let missing = at.saturating_sub(self.position);
            if missing > 0 {
                self.advance(missing);
                out(Piece::Gap(missing))?;
            }
        }
        self.drain(all_waiting, out)
    }

    /// Gives what waits and is in order now.
    fn drain<E>(&mut self, all_waiting: &mut usize, out: &mut dyn FnMut(Piece<'_>) -> Result<(), E>) -> Result<(), E> {
        while let Some(entry) = self.waiting.first_entry().filter(|entry| *entry.key() <= self.position) {
            let (at, held) = entry.remove_entry();
            self.waiting_bytes -= held.len();
            *all_waiting = all_waiting.saturating_sub(held.len());
            let old = usize::try_from(self.position - at).unwrap_or(usize::MAX);
            if let Some(new) = held.get(old..).filter(|new| !new.is_empty()) {
                self.advance(new.len() as u64);
                out(Piece::Octets(new))?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    struct Run {
        stream: Reassembly,
        waiting: usize,
        octets: Vec<u8>,
        gaps: Vec<u64>,
    }

    impl Run {
        fn new(first: u32) -> Run {
            let mut stream = Reassembly::default();
            stream.begin(first.wrapping_sub(1));
            Run { stream, waiting: 0, octets: Vec::new(), gaps: Vec::new() }
        }

        fn with(&mut self, act: impl FnOnce(&mut Reassembly, &mut usize, &mut dyn FnMut(Piece<'_>) -> Result<(), ()>)) {
            let Run { stream, waiting, octets, gaps } = self;
            act(stream, waiting, &mut |piece| {
                match piece {
                    Piece::Octets(new) => octets.extend_from_slice(new),
                    Piece::Gap(missing) => gaps.push(missing),
                }
                Ok(())
            });
        }

        fn segment(&mut self, sequence: u32, payload: &[u8]) {
            self.with(|stream, waiting, out| stream.segment(sequence, payload, waiting, out).unwrap());
        }
    }

    #[test]
    fn an_acknowledged_hole_is_a_gap_at_once() {
        let mut run = Run::new(100);
        run.segment(100, b"ab");
        run.segment(105, b"fg");
        run.with(|stream, waiting, out| stream.acknowledged(105, waiting, out).unwrap());
        assert_eq!((&run.octets[..], run.gaps.len()), (&b"ab"[..], 0), "it may still come");
        run.with(|stream, waiting, out| stream.acknowledged(107, waiting, out).unwrap());
        assert_eq!((&run.octets[..], &run.gaps[..], run.waiting), (&b"abfg"[..], &[3][..], 0));
    }

    #[test]
    fn waiting_octets_end_at_the_limit() {
        let mut run = Run::new(0);
        let piece = vec![7; 1 << 16];
        let most = MAX_DIRECTION_BYTES / piece.len();
        for number in 0..most {
            run.segment(8 + (number * piece.len()) as u32, &piece);
        }
        assert_eq!((run.stream.waiting_bytes(), run.waiting), (MAX_DIRECTION_BYTES, MAX_DIRECTION_BYTES));
        assert!(run.gaps.is_empty());
        run.segment(8 + (most * piece.len()) as u32, &[1]);
        assert_eq!((run.stream.waiting_bytes(), run.waiting, &run.gaps[..]), (0, 0, &[8][..]));
        assert_eq!(run.octets.len(), MAX_DIRECTION_BYTES + 1);
    }

    proptest! {
        /// Cut, repeated, overlapping and shuffled segments give the stream, wherever its numbers begin.
        #[test]
        fn any_order_gives_the_stream(
            first in any::<u32>(),
            cuts in proptest::collection::vec((0usize..400, 1usize..80), 1..60),
        ) {
            let stream: Vec<u8> = (0..500).map(|i| (i * 7 % 251) as u8).collect();
            let mut run = Run::new(first);
            let rest = (0..500).step_by(50).map(|at| (at, 50));
            for (at, len) in cuts.into_iter().chain(rest) {
                run.segment(first.wrapping_add(at as u32), &stream[at..(at + len).min(500)]);
            }
            prop_assert_eq!(&run.octets, &stream);
            prop_assert_eq!((run.waiting, run.gaps.len()), (0, 0));
        }
    }
}
