//! Checks whether an idle peer is alive.
//!
//! A reliable connection notices that its peer is gone only when it sends something. A connection that only waits would
//! wait for ever, and keep its resources. So from time to time it sends an RDMA Write without data, which names no
//! memory, takes no receive, and is acknowledged by the peer's device. Without an acknowledgement the device reports an
//! error after its retries, and the connection ends.

use super::{VerbsQueuePair, work::Work};
use std::task::Context;

impl VerbsQueuePair {
    /// Checks the time-out of an open connection. Returns whether it has passed.
    pub(super) fn keep_alive(&mut self, cx: &mut Context<'_>) -> bool {
        let every = self.shared.config.keepalive;
        if every.is_zero() || self.shared.limits.iwarp {
            return false;
        }
        let clock = &self.shared.env.clock;
        let sleep = self.alive.get_or_insert_with(|| clock.sleep_until(clock.now() + every));
        if sleep.as_mut().poll(cx).is_pending() {
            return false;
        }
        self.alive = None;
        let idle = self.posted.is_empty() && self.waiting.is_empty() && self.reads_waiting.is_empty();
        if !std::mem::take(&mut self.heard) && idle {
            self.waiting.push_back(Work::Probe);
        }
        true
    }
}
