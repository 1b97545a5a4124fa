//! The peer's calls on one connection, from their arrival until the service has them: a table of calls with chunks,
//! with a stage for each, and a queue.
//!
//! | stage | the call waits for |
//! |---|---|
//! | `Waits` | its turn to be pulled |
//! | `Pulling` | memory for its chunks, then the chunks |
//! | `Pulled` | its delivery: the engine has put the call together |
//!
//! Delivered calls wait for the service in a queue of their own, in the order of execution; a call without Read chunks
//! goes there at once. Owns pulled bytes, and shares of received messages.
//!
//! The server limits what it pulls from a peer's memory at a time. A peer that answers its RDMA Reads one by one, each
//! just before it would count as stalled, makes the server hold memory for arguments all that time. So a connection
//! gets memory for only a few calls at a time, and all chunks of a call have to come within a limit.

use crate::refused::Fingerprint;
use bytes::Bytes;
use rpcrdma_engine::{Pieces, RequestId};
use rpcrdma_env::Timestamp;
use rpcrdma_fabric::RemoteSegment;
use std::{collections::VecDeque, time::Duration};

/// Calls whose chunks are pulled at a time on one connection. As many as the default number of RDMA Reads: more could
/// not be under way.
pub const MAX_PULLS: usize = 16;

/// Bytes that are pulled at a time on one connection: [`MAX_PULLS`] calls of 1 MiB. A larger call is pulled alone.
pub const MAX_PULL_BYTES: usize = 16 << 20;

/// A peer must deliver all chunks of a call within this many times the time-out for a peer that makes no progress. With
/// the defaults of both limits that is 280 kB/s.
pub const PULL_STALLS: u32 = 2;

/// The bytes to pull for a call.
pub(crate) struct Wanted {
    /// What identifies the call.
    pub(crate) call: Fingerprint,
    pub(crate) octets: usize,
    pub(crate) sources: Vec<RemoteSegment>,
}

/// A call that can be executed.
pub(crate) struct Delivered {
    pub(crate) request: RequestId,
    pub(crate) xid: u32,
    pub(crate) pieces: Pieces,
    /// The bytes pulled for it. Ranges of pieces lie in these bytes.
    pub(crate) pulled: Bytes,
}

struct Request {
    id: RequestId,
    xid: u32,
    stage: Stage,
}

enum Stage {
    Waits(Wanted),
    Pulling {
        call: Fingerprint,
        octets: usize,
        /// The time by which its chunks must have come; `None` until the peer is asked.
        due: Option<Timestamp>,
    },
    Pulled(Bytes),
}

/// The table.
pub(crate) struct Requests {
    /// Calls with chunks that are not delivered, in the order of their names, which is the order of arrival.
    requests: VecDeque<Request>,
    /// Delivered calls, in the order of execution.
    delivered: VecDeque<Delivered>,
    /// How long a call's chunks may take.
    limit: Duration,
    /// Calls that have their turn to be pulled.
    pulling: usize,
    /// Bytes of these calls.
    octets: usize,
}

impl Requests {
    /// An empty table; `stall` is the time-out for a peer that makes no progress.
    pub(crate) fn new(stall: Duration) -> Self {
        let (requests, delivered) = (VecDeque::new(), VecDeque::new());
        Self { requests, delivered, limit: stall * PULL_STALLS, pulling: 0, octets: 0 }
    }

    /// Whether a call has its turn to be pulled.
    pub(crate) fn is_pulling(&self) -> bool {
        self.pulling > 0
    }

    /// How long a call's chunks may take.
    pub(crate) fn limit(&self) -> Duration {
        self.limit
    }

    /// The index of a call, or the index at which to insert it.
    fn place(&self, id: RequestId) -> Result<usize, usize> {
        self.requests.binary_search_by_key(&id, |request| request.id)
    }

    fn add(&mut self, request: Request) {
        match self.place(request.id) {
            Ok(at) => self.requests[at] = request,
            Err(at) => self.requests.insert(at, request),
        }
    }

    /// Adds a call whose chunks must be pulled. [`next_pull`](Self::next_pull) gives it its turn.
    pub(crate) fn pull(&mut self, id: RequestId, xid: u32, wanted: Wanted) {
        self.add(Request { id, xid, stage: Stage::Waits(wanted) });
    }

    /// The next call whose turn it is to be pulled, in the order of arrival, with the number of its bytes and their
    /// segments.
    pub(crate) fn next_pull(&mut self) -> Option<(RequestId, usize, Vec<RemoteSegment>)> {
        let waits = |request: &&mut Request| matches!(request.stage, Stage::Waits(_));
        let request = self.requests.iter_mut().find(waits)?;
        let Stage::Waits(Wanted { call, octets, sources }) = &mut request.stage else { return None };
        let sum = self.octets.saturating_add(*octets);
        if self.pulling > 0 && (self.pulling >= MAX_PULLS || sum > MAX_PULL_BYTES) {
            return None;
        }
        let (call, octets, sources) = (*call, *octets, std::mem::take(sources));
        request.stage = Stage::Pulling { call, octets, due: None };
        self.pulling += 1;
        self.octets = sum;
        Some((request.id, octets, sources))
    }

    /// The peer is now asked for a call's chunks.
    pub(crate) fn asked(&mut self, id: RequestId, now: Timestamp) {
        let Ok(at) = self.place(id) else { return };
        if let Stage::Pulling { due, .. } = &mut self.requests[at].stage {
            *due = Some(now + self.limit);
        }
    }

    /// A call's chunks have come. `octets` is `None` if the engine has found that they are no call.
    pub(crate) fn pulled(&mut self, id: RequestId, octets: Option<Bytes>) {
        match (self.end_pull(id), octets) {
            (Some(at), Some(octets)) => self.requests[at].stage = Stage::Pulled(octets),
            (Some(at), None) => drop(self.requests.remove(at)),
            // We had given the call up, but the engine still delivers it: it must not be executed without its bytes.
            (None, Some(octets)) => self.add(Request { id, xid: 0, stage: Stage::Pulled(octets) }),
            (None, None) => {}
        }
    }

    /// A call's chunks will not come. Returns what identifies the call, if it was being pulled.
    pub(crate) fn not_pulled(&mut self, id: RequestId) -> Option<(u32, Fingerprint)> {
        let at = self.end_pull(id)?;
        match self.requests.remove(at)? {
            Request { xid, stage: Stage::Pulling { call, .. }, .. } => Some((xid, call)),
            _ => None,
        }
    }

    /// Ends the turn of a call that is being pulled. Returns its index.
    fn end_pull(&mut self, id: RequestId) -> Option<usize> {
        let at = self.place(id).ok()?;
        let Stage::Pulling { octets, .. } = self.requests[at].stage else { return None };
        self.pulling = self.pulling.saturating_sub(1);
        self.octets = self.octets.saturating_sub(octets);
        Some(at)
    }

    /// The earliest time at which a call's chunks are due.
    pub(crate) fn due(&self) -> Option<Timestamp> {
        let due = |request: &Request| if let Stage::Pulling { due, .. } = request.stage { Some(due) } else { None };
        // The search ends at the last call that is being pulled.
        self.requests.iter().filter_map(due).take(self.pulling).flatten().min()
    }

    /// The engine has put a call together.
    pub(crate) fn deliver(&mut self, id: RequestId, xid: u32, pieces: Pieces) {
        let pulled = match self.place(id).ok().and_then(|at| self.requests.remove(at)) {
            Some(Request { stage: Stage::Pulled(octets), .. }) => octets,
            _ => Bytes::new(),
        };
        self.delivered.push_back(Delivered { request: id, xid, pieces, pulled });
    }

    /// Whether a call can be executed.
    pub(crate) fn has_delivered(&self) -> bool {
        !self.delivered.is_empty()
    }

    /// Removes the next call that can be executed.
    pub(crate) fn take_delivered(&mut self) -> Option<Delivered> {
        self.delivered.pop_front()
    }

    /// Gives up all calls that wait to be pulled, or are being pulled.
    pub(crate) fn stop_pulling(&mut self) {
        self.requests.retain(|request| !matches!(request.stage, Stage::Waits(_) | Stage::Pulling { .. }));
        self.pulling = 0;
        self.octets = 0;
    }

    /// Forgets all calls.
    pub(crate) fn clear(&mut self) {
        self.requests.clear();
        self.delivered.clear();
        self.pulling = 0;
        self.octets = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pulls(calls: impl IntoIterator<Item = usize>) -> Requests {
        let mut pulls = Requests::new(Duration::from_secs(30));
        for (request, octets) in (0..).zip(calls) {
            let call = Fingerprint::new(b"", octets);
            pulls.pull(RequestId(request), 7, Wanted { call, octets, sources: Vec::new() });
        }
        pulls
    }

    fn take(pulls: &mut Requests) -> Vec<u64> {
        std::iter::from_fn(|| pulls.next_pull()).map(|(request, ..)| request.0).collect()
    }

    #[test]
    fn so_many_calls_at_a_time_and_no_more() {
        let mut pulls = pulls([100; MAX_PULLS + 2]);
        assert_eq!(take(&mut pulls), (0..MAX_PULLS as u64).collect::<Vec<_>>());
        pulls.not_pulled(RequestId(3));
        assert_eq!(take(&mut pulls), [MAX_PULLS as u64]);
        pulls.not_pulled(RequestId(99));
        assert_eq!(take(&mut pulls), [0; 0], "none has ended");
        pulls.stop_pulling();
        assert!(pulls.next_pull().is_none());
    }

    #[test]
    fn so_many_octets_at_a_time_and_no_more() {
        let mut at = pulls([MAX_PULL_BYTES - 1, 1, 0]);
        assert_eq!(take(&mut at), [0, 1, 2]);
        let mut past = pulls([MAX_PULL_BYTES - 1, 2, 1]);
        assert_eq!(take(&mut past), [0], "in their order: a small one does not overtake");
        past.not_pulled(RequestId(0));
        assert_eq!(take(&mut past), [1, 2]);
        let mut large = pulls([1, MAX_PULL_BYTES + 1, 1]);
        assert_eq!(take(&mut large), [0]);
        large.not_pulled(RequestId(0));
        assert_eq!(take(&mut large), [1], "alone, but it is pulled");
        large.not_pulled(RequestId(1));
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
        pulls.not_pulled(RequestId(2));
        assert_eq!(pulls.due(), Some(now + Duration::from_secs(61)));
    }

    fn delivered(requests: &mut Requests) -> Vec<(u64, Bytes)> {
        std::iter::from_fn(|| requests.take_delivered()).map(|call| (call.request.0, call.pulled)).collect()
    }

    #[test]
    fn calls_are_executed_as_they_are_delivered_with_what_was_pulled_for_them() {
        let mut requests = pulls([5, 6]);
        take(&mut requests);
        requests.deliver(RequestId(2), 9, Pieces::new());
        assert!(requests.has_delivered());
        let octets = Bytes::from_static(b"second");
        requests.pulled(RequestId(1), Some(octets.clone()));
        requests.deliver(RequestId(1), 7, Pieces::new());
        assert_eq!(delivered(&mut requests), [(2, Bytes::new()), (1, octets)]);
        requests.pulled(RequestId(0), Some(Bytes::from_static(b"first")));
        assert!(!requests.has_delivered(), "the engine has not put it together yet");
        requests.clear();
        requests.deliver(RequestId(0), 7, Pieces::new());
        assert_eq!(delivered(&mut requests), [(0, Bytes::new())]);
        assert!(requests.requests.is_empty());
    }

    #[test]
    fn what_is_no_call_or_does_not_come_leaves_nothing() {
        let mut requests = pulls([5, 6, 7]);
        take(&mut requests);
        requests.pulled(RequestId(0), None);
        assert_eq!(requests.not_pulled(RequestId(1)), Some((7, Fingerprint::new(b"", 6))));
        assert_eq!(requests.not_pulled(RequestId(1)), None, "once");
        assert_eq!((requests.pulling, requests.octets, requests.requests.len()), (1, 7, 1));
        requests.deliver(RequestId(3), 9, Pieces::new());
        requests.stop_pulling();
        assert_eq!((requests.pulling, requests.octets, requests.requests.len()), (0, 0, 0));
        assert_eq!(requests.due(), None);
        assert_eq!(delivered(&mut requests), [(3, Bytes::new())], "it was delivered before");
    }

    #[test]
    fn a_call_that_comes_when_it_was_given_up_has_its_bytes() {
        let mut requests = pulls([5]);
        take(&mut requests);
        requests.stop_pulling();
        let octets = Bytes::from_static(b"late!");
        requests.pulled(RequestId(0), Some(octets.clone()));
        requests.deliver(RequestId(0), 7, Pieces::new());
        let call = requests.take_delivered().unwrap();
        assert_eq!((call.xid, call.pulled, requests.pulling), (7, octets, 0));
        requests.pulled(RequestId(1), None);
        assert!(requests.requests.is_empty());
    }
}
