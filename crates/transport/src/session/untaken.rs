//! Replies that the peer has not taken yet.

use std::collections::VecDeque;

/// Bytes of answers that were posted and are not sent.
#[derive(Default)]
pub(super) struct Untaken {
    pub(super) octets: usize,
    /// Those before each signaled Send, in their order.
    before_sends: VecDeque<usize>,
    /// Those since the last.
    since: usize,
}

impl Untaken {
    pub(super) fn write(&mut self, octets: usize) {
        self.octets += octets;
        self.since += octets;
    }

    pub(super) fn signaled_send(&mut self) {
        self.before_sends.push_back(std::mem::take(&mut self.since));
    }

    pub(super) fn sent(&mut self) {
        self.octets = self.octets.saturating_sub(self.before_sends.pop_front().unwrap_or(0));
    }
}
