//! The grace period: after a start, hosts reclaim the locks that they had.
//!
//! It begins if the list of hosts with locks names any, and has a fixed end: no host says that it is done. Version 4
//! has its own grace period. While either lasts, no host or client gets a new lock, by either protocol, and hosts may
//! reclaim locks by NLM. Nothing fails.

use super::Lockd;
use rpcrdma_env::{Clock, Timestamp};
use rpcrdma_nfs::nlm::Status;
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

/// The grace period of NLM.
pub(crate) struct Grace {
    clock: Arc<dyn Clock>,
    until: Timestamp,
    /// Saves most calls a look at the clock.
    is_over: AtomicBool,
}

impl Grace {
    /// A grace period that begins now and lasts this long, if at all.
    pub(super) fn new(clock: Arc<dyn Clock>, lasts: Option<Duration>) -> Self {
        let until = clock.now() + lasts.unwrap_or_default();
        Self { clock, until, is_over: AtomicBool::new(lasts.is_none()) }
    }

    /// Whether it lasts.
    pub(crate) fn is_now(&self) -> bool {
        if self.is_over.load(Ordering::Acquire) {
            return false;
        }
        let is_over = self.clock.now() >= self.until;
        if is_over {
            self.is_over.store(true, Ordering::Release);
        }
        !is_over
    }
}

impl Lockd {
    /// Whether the lock manager may grant a call's lock now: a reclaimed lock, or a new one.
    ///
    /// # Errors
    /// If it has come too early, or too late.
    pub(super) fn admit(&self, reclaim: bool) -> Result<(), Status> {
        let is_grace_of_4 = || self.server.version_4.get().is_some_and(|shared| shared.state.recovery.is_own_grace());
        match (reclaim, self.grace.is_now() || is_grace_of_4()) {
            (true, true) | (false, false) => Ok(()),
            // NLM-GRACE-a
            (false, true) => Err(Status::DeniedGracePeriod),
            // NLM-GRACE-b: another host may have had the lock since.
            (true, false) => Err(Status::Denied),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nfs4::testing::TestClock;

    #[test]
    fn it_lasts_for_as_long_as_it_was_told() {
        let clock = Arc::new(TestClock::default());
        assert!(!Grace::new(clock.clone(), None).is_now());
        let grace = Grace::new(clock.clone(), Some(Duration::from_secs(90)));
        assert!(grace.is_now());
        clock.pass(Duration::from_secs(90) - Duration::from_nanos(1));
        assert!(grace.is_now());
        clock.pass(Duration::from_nanos(1));
        assert!(!grace.is_now());
    }
}
