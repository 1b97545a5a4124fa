//! Takes arrived messages out of their receives.
//!
//! A short message is copied to memory that it shares with others, unless the provider has done so, and its receive is
//! posted again: that costs less than keeping a receive for it. A long message stays where it is. Owns receives that
//! wait to be posted.

use bytes::Bytes;
use rpcrdma_env::{Allocator, Buffer, Scratch};

/// Messages of at most this many bytes are copied: small calls and replies, whose copy costs less than an allocation.
const COPIED_BYTES: usize = 512;
/// The most receives that wait to be posted. They hold no memory if the pool can take it back.
const SPARE_RECEIVES: usize = 16;

#[derive(Default)]
pub(super) struct Inbox {
    scratch: Scratch,
    spare: Vec<Buffer>,
}

impl Inbox {
    /// The message in a receive.
    pub(super) fn take(&mut self, mut receive: Buffer) -> Bytes {
        if let Some(message) = receive.take_held() {
            self.keep(receive);
            return message;
        }
        let octets = receive.len();
        if octets > COPIED_BYTES {
            return receive.freeze();
        }
        let message = self.scratch.write(octets, |out| out.extend_from_slice(receive.filled()));
        receive.clear();
        self.keep(receive);
        message
    }

    fn keep(&mut self, receive: Buffer) {
        if self.spare.len() < SPARE_RECEIVES {
            self.spare.push(receive);
        }
    }

    /// A receive of at least `octets`.
    pub(super) fn receive(&mut self, octets: usize, receives: &dyn Allocator) -> Option<Buffer> {
        let spare = self.spare.pop().filter(|spare| spare.capacity() >= octets);
        spare.or_else(|| receives.try_allocate(octets))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rpcrdma_env::Heap;
    use rpcrdma_fabric::pool::Pool;

    fn received(inbox: &mut Inbox, octets: usize) -> (Bytes, *const u8) {
        let mut receive = inbox.receive(4096, &Heap).unwrap();
        receive.bytes_mut()[..octets].fill(octets as u8);
        receive.set_len(octets);
        let at = receive.filled().as_ptr();
        (inbox.take(receive), at)
    }

    #[test]
    fn a_short_message_leaves_its_receive_and_a_long_one_stays() {
        let mut inbox = Inbox::default();
        let (first, place) = received(&mut inbox, COPIED_BYTES);
        assert_ne!(first.as_ptr(), place);
        let (second, again) = received(&mut inbox, 7);
        assert_eq!(again, place, "the same receive");
        assert_eq!((&first[..], &second[..]), (&[0; COPIED_BYTES][..], &[7; 7][..]), "each as it came");
        let (long, place) = received(&mut inbox, COPIED_BYTES + 1);
        assert_eq!((long.as_ptr(), long.len()), (place, COPIED_BYTES + 1));
        let (_, other) = received(&mut inbox, 7);
        assert_ne!(other, place, "its memory is in use");
    }

    #[test]
    fn a_message_that_lies_elsewhere_is_not_copied_again() {
        let mut inbox = Inbox::default();
        let mut receive = inbox.receive(4096, &Pool::new()).unwrap();
        let octets = Bytes::from(vec![3; 2 * COPIED_BYTES]);
        receive.hold(octets.clone());
        assert_eq!(inbox.take(receive).as_ptr(), octets.as_ptr());
        assert_eq!((inbox.spare.len(), inbox.spare[0].len()), (1, 0), "its receive is posted again");
    }

    #[test]
    fn no_more_than_so_many_receives_wait() {
        let mut inbox = Inbox::default();
        for _ in 0..SPARE_RECEIVES + 2 {
            inbox.take(Buffer::from_vec(vec![0; 64]));
        }
        assert_eq!(inbox.spare.len(), SPARE_RECEIVES);
        assert_eq!(inbox.receive(65, &Heap).unwrap().capacity(), 65, "one that is too small is not taken");
    }
}
