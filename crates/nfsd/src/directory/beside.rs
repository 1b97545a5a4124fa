//! Whether a long read of bytes that are in memory pays on another thread.
//!
//! A connection's thread that reads for itself sends nothing meanwhile. So if the next call waits already, another
//! thread reads, and both have something to do. Where the program has one processor, that only costs. The same goes if
//! all processors are busy: then such reads begin late.

use std::{
    num::NonZero,
    sync::atomic::{AtomicU32, Ordering},
    thread,
    time::Duration,
};

/// A shorter read takes hardly longer than to wake a thread.
pub(super) const LONG_BYTES: usize = 256 << 10;
/// A read that begins later than this has waited for a processor.
const LATE: Duration = Duration::from_micros(200);
/// After so many late reads in a row it does not pay.
const MOST_LATE: u32 = 32;
/// Then so many reads are made by the connections' threads, before another thread tries again.
const REST: u32 = 1024;

/// What is known of a file system's long reads.
#[derive(Debug)]
pub(super) struct Beside {
    has_processors: bool,
    late: AtomicU32,
    rest: AtomicU32,
}

impl Beside {
    /// Nothing is known but the number of processors.
    pub(super) fn new() -> Self {
        Self::on(thread::available_parallelism().map_or(1, NonZero::get))
    }

    pub(super) fn on(processors: usize) -> Self {
        Self { has_processors: processors > 1, late: AtomicU32::new(0), rest: AtomicU32::new(0) }
    }

    /// Whether another thread is to make the next long read of a connection that has something else to do.
    pub(super) fn pays(&self) -> bool {
        self.has_processors
            && self.rest.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |rest| rest.checked_sub(1)).is_err()
    }

    /// A read begins, so long after another thread was asked for it.
    pub(super) fn has_begun_after(&self, wait: Duration) {
        if wait <= LATE {
            self.late.store(0, Ordering::Relaxed);
        } else if self.late.fetch_add(1, Ordering::Relaxed) + 1 >= MOST_LATE {
            self.late.store(0, Ordering::Relaxed);
            self.rest.store(REST, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOO_LATE: Duration = Duration::from_micros(201);

    #[test]
    fn late_reads_are_soon_made_by_the_thread_that_asks() {
        let beside = Beside::on(2);
        for _ in 0..3 {
            for _ in 0..MOST_LATE {
                assert!(beside.pays());
                beside.has_begun_after(TOO_LATE);
            }
            assert!((0..REST).all(|_| !beside.pays()));
            // Then it looks again.
        }
    }

    #[test]
    fn a_read_in_time_makes_up_for_late_ones() {
        let beside = Beside::on(2);
        for _ in 0..100 {
            (1..MOST_LATE).for_each(|_| beside.has_begun_after(TOO_LATE));
            beside.has_begun_after(LATE);
            assert!(beside.pays());
        }
    }

    #[test]
    fn with_one_processor_no_other_thread_reads() {
        assert!(!Beside::on(1).pays());
    }
}
