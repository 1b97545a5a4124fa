//! Memory for blocks. It begins where the command's own memory begins, because a copy depends on it
//! ([`rpcrdma_fabric::pool`]).

use rpcrdma_env::{Allocator, Buffer};
use rpcrdma_fabric::pool::Pool;
use std::ops::{Deref, DerefMut};

/// Bytes that were written once, so that each page is there.
pub(super) struct Room {
    buffer: Buffer,
    len: usize,
}

impl Room {
    pub(super) fn new(len: usize) -> Self {
        let mut buffer = Pool::new().try_allocate(len).unwrap_or_else(|| Buffer::from_vec(vec![0; len]));
        buffer.bytes_mut().fill(7);
        buffer.set_len(len);
        Self { buffer, len }
    }
}

impl Deref for Room {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.buffer.filled()
    }
}

impl DerefMut for Room {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.buffer.bytes_mut()[..self.len]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_room_is_as_long_as_asked_and_begins_at_a_page() {
        for len in [1, 4096, 261_888, 8 << 20] {
            let mut room = Room::new(len);
            assert!(room.len() == len && room.iter().all(|octet| *octet == 7));
            room[len - 1] = 1;
            assert_eq!((room[len - 1], room.len()), (1, len));
            assert!(len < 1 << 17 || room.as_ptr().addr().is_multiple_of(4096), "{len}");
        }
    }
}
