//! Warnings that clients can cause as often as they like: only one in a while is logged, with the number of those that
//! were left out.

use std::{
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

/// The least time between two warnings in the log.
const BETWEEN_WARNINGS: Duration = Duration::from_secs(60);

/// What all serving threads share, of one kind of warning.
#[derive(Debug, Default)]
pub struct Seldom(Mutex<Told>);

#[derive(Debug, Default)]
struct Told {
    /// When the last one was logged.
    last: Option<Instant>,
    /// How many were left out since then.
    untold: u64,
}

impl Seldom {
    /// Whether a warning at this time is logged. If it is, returns how many before it were left out.
    pub fn tell(&self, now: Instant) -> Option<u64> {
        let mut told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if told.last.is_some_and(|last| now.saturating_duration_since(last) < BETWEEN_WARNINGS) {
            told.untold += 1;
            return None;
        }
        told.last = Some(now);
        Some(std::mem::take(&mut told.untold))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_in_a_while_is_told_with_the_number_of_the_others() {
        let seldom = Seldom::default();
        let now = Instant::now();
        assert_eq!(seldom.tell(now), Some(0), "the first at once");
        let just_before = now + (BETWEEN_WARNINGS - Duration::from_nanos(1));
        assert_eq!([seldom.tell(now), seldom.tell(just_before)], [None; 2]);
        assert_eq!(seldom.tell(now + BETWEEN_WARNINGS), Some(2));
        assert_eq!(seldom.tell(now + 2 * BETWEEN_WARNINGS), Some(0));
    }
}
