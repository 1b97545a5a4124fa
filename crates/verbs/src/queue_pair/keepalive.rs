//! Finding out whether an idle peer is alive.
//!
//! A reliable connection finds out that its peer is gone when something is sent. A connection that only waits would
//! wait for ever, and keep its resources. So it sends an RDMA Write of no bytes from time to time, which names no
//! memory, takes no receive, and is acknowledged by the peer's device. Without an acknowledgement the device reports an
//! error after its retries, and the connection ends.

use super::{VerbsQueuePair, work::Work};
use std::task::Context;

impl VerbsQueuePair {
    /// Looks at the clock of an open connection. Says whether a time is up.
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
