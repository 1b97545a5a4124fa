//! Decides how often to report something that clients can cause again and again.
//!
//! Reports the first time, the second, the fourth and so on: the log shows a full disk at once, and a client that goes
//! on provoking it does not fill the log. Owns only a count; nothing fails.

use std::sync::atomic::{AtomicU64, Ordering};

#[derive(Debug, Default)]
pub(super) struct Seldom(AtomicU64);

impl Seldom {
    /// Counts an occurrence, and returns the count if it should be reported.
    pub(super) fn count(&self) -> Option<u64> {
        let count = self.0.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        count.is_power_of_two().then_some(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_million_occurrences_are_told_twenty_times() {
        let seldom = Seldom::default();
        let told: Vec<u64> = (0..1_000_000).filter_map(|_| seldom.count()).collect();
        assert_eq!(told[..4], [1, 2, 4, 8]);
        assert_eq!(told.len(), 20);
    }
}
