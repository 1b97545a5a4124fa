//! The bytes of a block, and where in a page of memory they begin.

use std::ops::{Deref, DerefMut};

/// The bytes of a page of memory. Where pages are larger, a block begins at a multiple of this all the same.
const PAGE_BYTES: usize = 4096;

/// Blocks of at least this many bytes begin at a page. The C library takes them from the system one by one, so the room
/// that this needs costs a page of addresses for each.
const LARGE_BYTES: usize = 128 << 10;

/// Bytes from the heap. Many of them begin at a page, like the pages of a file.
///
/// Otherwise they would begin 16 bytes behind the beginning of a page, where the C library puts large blocks. There an
/// AMD processor (an EPYC, the only one that was measured) copies a file's page at two thirds of its speed. The reason
/// is probably that it compares only the last twelve bits of the addresses from which it reads and to which it writes.
#[derive(Debug, Default)]
pub(super) struct Octets {
    memory: Vec<u8>,
    from: usize,
    len: usize,
}

impl Octets {
    pub(super) fn new(len: usize) -> Self {
        if len < LARGE_BYTES {
            return Self { memory: vec![0; len], from: 0, len };
        }
        let memory = vec![0; len + PAGE_BYTES];
        let from = memory.as_ptr().addr().wrapping_neg() % PAGE_BYTES;
        Self { memory, from, len }
    }
}

impl Deref for Octets {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.memory[self.from..][..self.len]
    }
}

impl DerefMut for Octets {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.from..][..self.len]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_bytes_begin_at_a_page() {
        for len in [LARGE_BYTES, LARGE_BYTES + 1, 1 << 20, 5 << 20] {
            let some: Vec<_> = (0..4).map(|_| Octets::new(len)).collect();
            assert!(some.iter().all(|octets| octets.as_ptr().addr().is_multiple_of(PAGE_BYTES)), "{len}");
            assert!(some.iter().all(|octets| octets.len() == len && octets.iter().all(|octet| *octet == 0)));
        }
    }

    #[test]
    fn few_bytes_take_no_more_room_than_they_have() {
        for len in [0, 1, 4096, LARGE_BYTES - 1] {
            let octets = Octets::new(len);
            assert_eq!((octets.len(), octets.memory.capacity()), (len, len));
        }
        assert!(Octets::default().is_empty());
    }

    /// Whoever has the bytes may move them.
    #[test]
    fn bytes_stay_where_they_are() {
        let mut octets = Octets::new(1 << 20);
        octets[0] = 7;
        octets[(1 << 20) - 1] = 8;
        let (at, moved) = (octets.as_ptr(), Box::new(octets));
        assert_eq!((moved.as_ptr(), moved[0], moved[(1 << 20) - 1]), (at, 7, 8));
    }
}
