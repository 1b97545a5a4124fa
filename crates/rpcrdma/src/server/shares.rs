//! Which serving thread takes the next connection: one of those that have the fewest.
//!
//! All threads listen on the same sockets, and all of them are woken when a connection comes. If the fastest took it,
//! one thread would mostly have all connections of a client that makes several, and the others nothing to do. So a
//! thread accepts only while no other has fewer connections, on whichever ports.

use std::sync::Arc;
use tokio::sync::watch;

/// How many connections each thread has.
type Counts = Vec<usize>;

/// The part of the connections that one thread has.
#[derive(Clone)]
pub(super) struct Share {
    counts: Arc<watch::Sender<Counts>>,
    seen: watch::Receiver<Counts>,
    thread: usize,
}

/// A share for each of `threads` threads.
pub(super) fn among(threads: usize) -> impl Iterator<Item = Share> {
    let (counts, seen) = watch::channel(vec![0; threads]);
    let counts = Arc::new(counts);
    (0..threads).map(move |thread| Share { counts: counts.clone(), seen: seen.clone(), thread })
}

impl Share {
    /// Whether no other thread has fewer connections. [`changed`](Self::changed) completes when this may have changed.
    pub(super) fn is_least(&mut self) -> bool {
        let counts = self.seen.borrow_and_update();
        counts.iter().min() == counts.get(self.thread)
    }

    /// Completes when the counts have changed since the last look.
    pub(super) async fn changed(&mut self) {
        // It cannot fail: this share has the sender, too.
        let _ = self.seen.changed().await;
    }

    /// This thread accepts nothing on some port: the others do not wait for it.
    pub(super) fn leave(&self) {
        self.counts.send_modify(|counts| counts[self.thread] = usize::MAX / 2);
    }

    /// Counts a connection, until what this returns is dropped.
    pub(super) fn take(&self) -> Counted {
        self.counts.send_modify(|counts| counts[self.thread] += 1);
        Counted { counts: self.counts.clone(), thread: self.thread }
    }
}

/// A connection of a thread.
pub(super) struct Counted {
    counts: Arc<watch::Sender<Counts>>,
    thread: usize,
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.counts.send_modify(|counts| counts[self.thread] -= 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt as _;

    fn least(shares: &mut [Share]) -> Vec<bool> {
        shares.iter_mut().map(Share::is_least).collect()
    }

    #[test]
    fn the_next_connection_is_for_a_thread_with_the_fewest() {
        let mut shares: Vec<_> = among(3).collect();
        assert_eq!(least(&mut shares), [true, true, true]);
        let first = shares[1].take();
        assert_eq!(least(&mut shares), [true, false, true]);
        let _others = [shares[0].take(), shares[2].take()];
        assert_eq!(least(&mut shares), [true, true, true]);
        drop(first);
        assert_eq!(least(&mut shares), [false, true, false]);
    }

    #[test]
    fn a_thread_is_told_when_it_has_to_look_again() {
        let mut shares: Vec<_> = among(2).collect();
        assert_eq!(least(&mut shares), [true, true]);
        assert!(shares[1].changed().now_or_never().is_none());
        let taken = shares[0].take();
        assert!(shares[1].changed().now_or_never().is_some());
        assert!(shares[1].changed().now_or_never().is_none(), "once");
        drop(taken);
        assert!(shares[1].changed().now_or_never().is_some());
    }

    #[test]
    fn nobody_waits_for_a_thread_that_cannot_listen() {
        let mut shares: Vec<_> = among(2).collect();
        shares[0].leave();
        let _taken = [shares[1].take(), shares[1].take()];
        assert_eq!(least(&mut shares), [false, true]);
    }

    #[test]
    fn a_single_thread_takes_all() {
        let mut share = among(1).next().unwrap();
        let _taken = [share.take(), share.take()];
        assert!(share.is_least());
    }
}
