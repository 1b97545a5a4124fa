//! What is pulled from a peer's memory at a time, on one connection, and until when.
//!
//! A peer that answers its RDMA Reads one by one, each just before it would count as stalled, holds memory for
//! arguments all that time. So a connection gets memory for only a few calls at a time, and all chunks of a call have
//! to come within a limit. Owns the calls that wait for their turn; the code that pulls owns the memory.

use crate::refused::Fingerprint;
use rpcrdma_engine::RequestId;
use rpcrdma_env::Timestamp;
use rpcrdma_fabric::RemoteSegment;
use std::{collections::VecDeque, time::Duration};

/// Calls whose chunks are pulled at a time on one connection. As many as RDMA Reads by default: more would not be under
/// way.
pub const MAX_PULLS: usize = 16;

/// Bytes that are pulled at a time on one connection: [`MAX_PULLS`] calls of 1 MiB. A larger call is pulled alone.
pub const MAX_PULL_OCTETS: usize = 16 << 20;

/// A peer must deliver all chunks of a call within this many times the limit for a peer that makes no progress. With
/// the defaults of both limits that is 280 kB/s.
pub const PULL_STALLS: u32 = 2;

/// A call whose chunks are to be pulled.
pub(crate) struct Wanted {
    pub(crate) request: RequestId,
    pub(crate) xid: u32,
    /// What identifies the call.
    pub(crate) call: Fingerprint,
    pub(crate) octets: usize,
    pub(crate) sources: Vec<RemoteSegment>,
}

/// A call that has its turn.
struct Running {
    request: RequestId,
    xid: u32,
    call: Fingerprint,
    octets: usize,
    /// By when its chunks must have come, once the peer was asked.
    due: Option<Timestamp>,
}

pub(crate) struct Pulls {
    limit: Duration,
    running: Vec<Running>,
    octets: usize,
    queued: VecDeque<Wanted>,
}

impl Pulls {
    /// With the limit for a peer that makes no progress.
    pub(crate) fn new(stall: Duration) -> Self {
        Self { limit: stall * PULL_STALLS, running: Vec::new(), octets: 0, queued: VecDeque::new() }
    }

    /// How long a call's chunks may take.
    pub(crate) fn limit(&self) -> Duration {
        self.limit
    }

    /// Adds a call. It has its turn when [`next`](Self::next) says so.
    pub(crate) fn add(&mut self, wanted: Wanted) {
        self.queued.push_back(wanted);
    }

    /// The next call that has its turn, in the order in which they came.
    pub(crate) fn next(&mut self) -> Option<Wanted> {
        let octets = self.octets.saturating_add(self.queued.front()?.octets);
        if !self.running.is_empty() && (self.running.len() >= MAX_PULLS || octets > MAX_PULL_OCTETS) {
            return None;
        }
        let wanted = self.queued.pop_front()?;
        self.octets = octets;
        let Wanted { request, xid, call, octets, .. } = wanted;
        self.running.push(Running { request, xid, call, octets, due: None });
        Some(wanted)
    }

    /// The peer is being asked for a call's chunks.
    pub(crate) fn asked(&mut self, request: RequestId, now: Timestamp) {
        if let Some(running) = self.running.iter_mut().find(|running| running.request == request) {
            running.due = Some(now + self.limit);
        }
    }

    /// A call's chunks have come, or never will. Returns what identifies the call if it had its turn.
    pub(crate) fn ended(&mut self, request: RequestId) -> Option<(u32, Fingerprint)> {
        let at = self.running.iter().position(|running| running.request == request)?;
        let Running { octets, xid, call, .. } = self.running.swap_remove(at);
        self.octets = self.octets.saturating_sub(octets);
        Some((xid, call))
    }

    /// When the first is due.
    pub(crate) fn due(&self) -> Option<Timestamp> {
        self.running.iter().filter_map(|running| running.due).min()
    }

    /// Forgets all of them.
    pub(crate) fn clear(&mut self) {
        self.running.clear();
        self.queued.clear();
        self.octets = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pulls(calls: impl IntoIterator<Item = usize>) -> Pulls {
        let mut pulls = Pulls::new(Duration::from_secs(30));
        for (request, octets) in (0..).zip(calls) {
            pulls.add(Wanted {
                request: RequestId(request),
                xid: 7,
                call: Fingerprint::new(b"", octets),
                octets,
                sources: Vec::new(),
            });
        }
        pulls
    }

    fn take(pulls: &mut Pulls) -> Vec<u64> {
        std::iter::from_fn(|| pulls.next()).map(|wanted| wanted.request.0).collect()
    }

    #[test]
    fn so_many_calls_at_a_time_and_no_more() {
        let mut pulls = pulls([100; MAX_PULLS + 2]);
        assert_eq!(take(&mut pulls), (0..MAX_PULLS as u64).collect::<Vec<_>>());
        pulls.ended(RequestId(3));
        assert_eq!(take(&mut pulls), [MAX_PULLS as u64]);
        pulls.ended(RequestId(99));
        assert_eq!(take(&mut pulls), [0; 0], "none has ended");
        pulls.clear();
        assert!(pulls.next().is_none());
    }

    #[test]
    fn so_many_octets_at_a_time_and_no_more() {
        let mut at = pulls([MAX_PULL_OCTETS - 1, 1, 0]);
        assert_eq!(take(&mut at), [0, 1, 2]);
        let mut past = pulls([MAX_PULL_OCTETS - 1, 2, 1]);
        assert_eq!(take(&mut past), [0], "in their order: a small one does not overtake");
        past.ended(RequestId(0));
        assert_eq!(take(&mut past), [1, 2]);
        let mut large = pulls([1, MAX_PULL_OCTETS + 1, 1]);
        assert_eq!(take(&mut large), [0]);
        large.ended(RequestId(0));
        assert_eq!(take(&mut large), [1], "alone, but it is pulled");
        large.ended(RequestId(1));
        assert_eq!(take(&mut large), [2]);
    }

    #[test]
    fn the_first_to_be_asked_for_is_due_first() {
        let mut pulls = pulls([1; 3]);
        take(&mut pulls);
        assert_eq!(pulls.due(), None, "a call that waits for memory is not the peer's fault");
        let now = Timestamp::ZERO;
        pulls.asked(RequestId(2), now);
        pulls.asked(RequestId(0), now + Duration::from_secs(1));
        assert_eq!(pulls.due(), Some(now + Duration::from_secs(60)));
        pulls.ended(RequestId(2));
        assert_eq!(pulls.due(), Some(now + Duration::from_secs(61)));
    }
}
