//! Time: a monotonic clock that can also wake a task.

use crate::BoxFuture;
use std::{ops::Add, time::Duration};

/// A point on a [`Clock`], in nanoseconds since an origin that only the clock knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(u64);

impl Timestamp {
    /// The clock's origin.
    pub const ZERO: Timestamp = Timestamp(0);

    /// The point `nanos` nanoseconds after the clock's origin.
    pub const fn from_nanos(nanos: u64) -> Self {
        Timestamp(nanos)
    }

    /// Nanoseconds since the clock's origin.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// The time that has passed since `earlier`; zero if `earlier` is later than this point.
    pub fn since(self, earlier: Timestamp) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Timestamp {
    type Output = Timestamp;

    /// Saturates at the last point that a `Timestamp` can hold, about 584 years after the origin.
    fn add(self, later: Duration) -> Timestamp {
        // As `later.as_nanos()`, in words of the machine.
        let nanos = later.as_secs().saturating_mul(1_000_000_000).saturating_add(u64::from(later.subsec_nanos()));
        Timestamp(self.0.saturating_add(nanos))
    }
}

/// The source of time.
pub trait Clock: Send + Sync {
    /// The present time. It never goes backwards.
    fn now(&self) -> Timestamp;

    /// The present time, or up to two ticks of the system later, which are 1 to 10 ms apart. If a tick comes late, for
    /// example in a virtual machine that has to wait for a processor, it is earlier by as much. To look takes a quarter
    /// of the time that [`now`](Clock::now) takes. Meant for what lasts seconds, like a lease. The default is the
    /// present time.
    fn tick(&self) -> Timestamp {
        self.now()
    }

    /// A future that completes once [`now`](Clock::now) has reached `when`.
    fn sleep_until(&self, when: Timestamp) -> BoxFuture<'static, ()>;

    /// The time of day, as the duration since 1970-01-01 00:00 UTC. For file times, never for
    /// time-outs.
    fn unix_time(&self) -> Duration;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_saturates_at_both_ends() {
        let t = Timestamp::from_nanos(5);
        assert_eq!(t.since(Timestamp::from_nanos(9)), Duration::ZERO);
        assert_eq!(Timestamp::from_nanos(u64::MAX) + Duration::from_secs(1), Timestamp::from_nanos(u64::MAX));
        assert_eq!((t + Duration::from_nanos(3)).since(t), Duration::from_nanos(3));
    }
}
