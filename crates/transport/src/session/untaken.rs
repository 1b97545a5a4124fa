//! Counts replies that the peer has not taken yet.

use std::collections::VecDeque;

/// Bytes of answers that were posted and whose Sends are not done.
#[derive(Default)]
pub(super) struct Untaken {
    pub(super) octets: usize,
    /// The bytes before each signaled Send, in their order.
    before_sends: VecDeque<usize>,
    /// The bytes since the last signaled Send.
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
