//! Memory for many short runs of bytes, such as the headers of a connection's messages.
//!
//! The runs share one piece of memory, which is used again after all of them are dropped, so that a run costs no
//! allocation. While one run lives, the whole piece lives: copy long-lived bytes into memory of their own.

use bytes::{Bytes, BytesMut};

/// The size in bytes of a piece of memory.
const PIECE_BYTES: usize = 2048;

/// Memory for short runs of bytes. It allocates when the first run is made.
#[derive(Debug, Default)]
pub struct Scratch {
    /// The unused rest of the present piece.
    rest: BytesMut,
}

impl Scratch {
    /// The bytes that `fill` appends. These should be at most `octets`.
    pub fn write(&mut self, octets: usize, fill: impl FnOnce(&mut BytesMut)) -> Bytes {
        if octets > PIECE_BYTES / 2 {
            let mut run = BytesMut::with_capacity(octets);
            fill(&mut run);
            return run.freeze();
        }
        self.make_room(octets);
        fill(&mut self.rest);
        self.rest.split().freeze()
    }

    /// Memory for `octets` bytes, not yet written. A long run gets memory of its own.
    pub fn lend(&mut self, octets: usize) -> BytesMut {
        if octets > PIECE_BYTES / 2 {
            return BytesMut::with_capacity(octets);
        }
        self.make_room(octets);
        std::mem::take(&mut self.rest)
    }

    fn make_room(&mut self, octets: usize) {
        if self.rest.capacity() < octets {
            // Uses the same piece again from its beginning if no run of it is left.
            self.rest.reserve(PIECE_BYTES);
        }
    }

    /// Takes back the unused rest of lent memory.
    pub fn give_back(&mut self, mut rest: BytesMut) {
        rest.clear();
        if rest.capacity() > self.rest.capacity() && rest.capacity() <= PIECE_BYTES {
            self.rest = rest;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(scratch: &mut Scratch, octet: u8, octets: usize) -> Bytes {
        scratch.write(octets, |out| out.resize(octets, octet))
    }

    #[test]
    fn runs_lie_one_behind_the_other_and_keep_what_was_written() {
        let mut scratch = Scratch::default();
        let runs: Vec<Bytes> = (0..100).map(|n| run(&mut scratch, n, 60)).collect();
        assert_eq!(runs[0].as_ptr().wrapping_add(60), runs[1].as_ptr());
        assert!(runs.iter().zip(0..).all(|(run, n)| run.len() == 60 && run.iter().all(|octet| *octet == n)));
    }

    #[test]
    fn memory_is_used_again_when_all_runs_of_it_are_gone() {
        let mut scratch = Scratch::default();
        let first = run(&mut scratch, 0, 60).as_ptr();
        let again = (0..100).map(|n| run(&mut scratch, n, 60)).filter(|run| run.as_ptr() == first).count();
        assert!(again >= 2, "{again} times in a hundred runs");
        let kept = run(&mut scratch, 7, 60);
        (0..100).for_each(|n| drop(run(&mut scratch, n, 60)));
        assert_eq!(kept, [7; 60][..]);
    }

    #[test]
    fn a_long_run_has_memory_of_its_own() {
        let mut scratch = Scratch::default();
        let short = run(&mut scratch, 1, PIECE_BYTES / 2);
        let long = run(&mut scratch, 2, PIECE_BYTES / 2 + 1);
        assert_eq!((short.len(), long.len()), (PIECE_BYTES / 2, PIECE_BYTES / 2 + 1));
        assert_eq!(run(&mut scratch, 3, 8).as_ptr(), short.as_ptr().wrapping_add(short.len()));
    }
}
