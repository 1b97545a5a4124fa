//! Memory that is given up: the device did not end a registration, so a peer that knows its key may still reach the
//! memory.
//!
//! If such memory were handed back, a peer could read and write it while other code uses it. So this module leaks it,
//! and it is never used again. Each time it logs the total, because the process no longer has this memory.

use rpcrdma_fabric::Lent;
use std::{
    io,
    sync::atomic::{AtomicU64, Ordering},
};

/// How much memory the process has given up because of a device.
#[derive(Debug, Default)]
pub(crate) struct Abandoned {
    pieces: AtomicU64,
    bytes: AtomicU64,
}

impl Abandoned {
    /// Returns lent memory if its registration was `ended`; else gives it up.
    pub(crate) fn unless_ended(&self, ended: io::Result<()>, memory: Lent) -> Option<Lent> {
        let Err(error) = ended else { return Some(memory) };
        let bytes = match &memory {
            Lent::Source(source) => source.len(),
            Lent::Sink(sink) => sink.capacity(),
        };
        // The registration names this memory, and the peer may know the registration's key.
        // FABRIC-FENCE-a
        std::mem::forget(memory);
        self.count(bytes, &error);
        None
    }

    /// Gives up the memory that `owner` keeps alive, for the same reason.
    pub(crate) fn forget<T>(&self, owner: T, bytes: usize, error: &io::Error) {
        std::mem::forget(owner);
        self.count(bytes, error);
    }

    fn count(&self, bytes: usize, error: &io::Error) {
        let pieces = self.pieces.fetch_add(1, Ordering::Relaxed) + 1;
        let in_all = self.bytes.fetch_add(bytes as u64, Ordering::Relaxed) + bytes as u64;
        tracing::error!(
            %error, bytes, pieces, in_all,
            "memory could not be deregistered: a peer may still reach it, so it is never used again"
        );
    }

    #[cfg(test)]
    fn numbers(&self) -> (u64, u64) {
        (self.pieces.load(Ordering::Relaxed), self.bytes.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rpcrdma_env::{Buffer, Memory};
    use std::sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    };

    /// Memory that reports when it is freed.
    struct Watched(Vec<u8>, Arc<AtomicUsize>);

    impl Memory for Watched {
        fn octets(&self) -> &[u8] {
            &self.0
        }
        fn bytes_mut(&mut self) -> &mut [u8] {
            &mut self.0
        }
    }

    impl Drop for Watched {
        fn drop(&mut self) {
            self.1.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn both(freed: &Arc<AtomicUsize>) -> [Lent; 2] {
        let buffer = || Buffer::new(Box::new(Watched(vec![0; 100], freed.clone())));
        let mut filled = buffer();
        filled.set_len(60);
        [Lent::Sink(buffer()), Lent::Source(filled.freeze())]
    }

    /// proves: FABRIC-FENCE-a
    #[test]
    fn memory_whose_registration_did_not_end_is_never_free_again() {
        let (freed, abandoned) = (Arc::new(AtomicUsize::new(0)), Abandoned::default());
        for memory in both(&freed) {
            let busy = io::Error::from(io::ErrorKind::ResourceBusy);
            assert!(abandoned.unless_ended(Err(busy), memory).is_none());
        }
        assert_eq!(freed.load(Ordering::SeqCst), 0, "a pool would hand it out again");
        assert_eq!(abandoned.numbers(), (2, 160));
        for memory in both(&freed) {
            assert!(abandoned.unless_ended(Ok(()), memory).is_some());
        }
        assert_eq!(freed.load(Ordering::SeqCst), 2);
        assert_eq!(abandoned.numbers(), (2, 160));
    }
}
