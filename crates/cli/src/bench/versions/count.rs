//! Counting what queue pairs do, and how often a message has to wait for the other end.
//!
//! A call and its reply are one round trip. Each wait adds one: an RDMA Read brings its data after a trip of its own,
//! and an end without a credit for the next part of a message, or for a reply, goes on when the other end has granted
//! some. RDMA Writes add none: the Send that follows does not wait for them. Reads that are posted together are one
//! trip.

use rpcrdma_fabric::{
    Completion, FenceCause,
    trace::{Event, EventKind, Tracer},
};
use rpcrdma_transport::{Event as TransportEvent, Observer, Stall};
use rpcrdma_wire::v2::{HeaderType, NO_CHUNKS_OCTETS, Prefix, VERSION};
use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{Mutex, MutexGuard, PoisonError},
};

/// What one end has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    /// Sends that were posted.
    pub(super) sends: u64,
    /// RDMA Reads: one for each segment.
    pub(super) reads: u64,
    /// RDMA Writes.
    pub(super) writes: u64,
    /// Memory that was lent to the other end, each time.
    pub(super) registrations: u64,
    /// How many of these were ended here, rather than by the other end's Send with Invalidate.
    pub(super) invalidations: u64,
    /// Times that something waited for the other end.
    pub(super) waits: u64,
    /// Receives that were posted.
    pub(super) receives: u64,
}

impl Counts {
    pub(super) const NUMBERS: usize = 7;

    /// All of them, in the order in which they are declared.
    pub(super) fn numbers(&self) -> [u64; Self::NUMBERS] {
        let Self { sends, reads, writes, registrations, invalidations, waits, receives } = *self;
        [sends, reads, writes, registrations, invalidations, waits, receives]
    }

    pub(super) fn from_numbers(numbers: [u64; Self::NUMBERS]) -> Self {
        let [sends, reads, writes, registrations, invalidations, waits, receives] = numbers;
        Self { sends, reads, writes, registrations, invalidations, waits, receives }
    }

    /// What has come since `before`.
    pub(super) fn since(&self, before: &Self) -> Self {
        let (now, before) = (self.numbers(), before.numbers());
        Self::from_numbers(std::array::from_fn(|at| now[at].saturating_sub(before[at])))
    }
}

/// The message that a connection sends before it receives anything else, unless it lacks credits.
#[derive(Clone, Copy, Debug, Default)]
struct Due {
    /// The XID of a message whose next part, or of a call whose reply, comes next.
    xid: Option<u32>,
    /// Whether something has come since it was due.
    heard: bool,
}

#[derive(Debug, Default)]
struct State {
    counts: Counts,
    /// By connection. Part or reply: a connection of this measurement has one call at a time.
    due: BTreeMap<u64, Due>,
}

/// Counts what happens on the connections of one end.
#[derive(Debug, Default)]
pub(super) struct Counter(Mutex<State>);

impl Counter {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn counts(&self) -> Counts {
        self.lock().counts
    }
}

/// The prefix of a version 2 message that carries some of an RPC message, and not credits alone.
fn rpc(message: &[u8]) -> Option<Prefix> {
    let prefix = Prefix::decode(message).ok().filter(|prefix| prefix.version == VERSION)?;
    match HeaderType::from_code(prefix.header_type)? {
        HeaderType::Msg => Some(prefix),
        HeaderType::Nomsg if message.len() > NO_CHUNKS_OCTETS => Some(prefix),
        _ => None,
    }
}

impl State {
    fn sent(&mut self, connection: u64, header: &[u8]) {
        self.counts.sends += 1;
        let Some(prefix) = rpc(header) else { return };
        let due = self.due.entry(connection).or_default();
        self.counts.waits += u64::from(due.xid == Some(prefix.xid) && due.heard);
        *due = Due { xid: Some(prefix.xid).filter(|_| prefix.flags.more), heard: false };
    }

    fn received(&mut self, connection: u64, message: &[u8]) {
        let due = self.due.entry(connection).or_default();
        due.heard |= due.xid.is_some();
        if let Some(prefix) = rpc(message).filter(|prefix| !prefix.flags.response && !prefix.flags.more) {
            *due = Due { xid: Some(prefix.xid), heard: false };
        }
    }
}

impl Tracer for Counter {
    fn event(&self, event: &Event<'_>) {
        let mut state = self.lock();
        let counts = &mut state.counts;
        match event.kind {
            EventKind::PostSend(send) => {
                let header = send.octets.first().map(|octets| octets.to_vec()).unwrap_or_default();
                state.sent(event.connection, &header);
            }
            EventKind::PostRead(read) => {
                counts.reads += read.sources.len() as u64;
                counts.waits += 1;
            }
            EventKind::PostWrite(_) => counts.writes += 1,
            EventKind::PostReceive { .. } => counts.receives += 1,
            EventKind::Exposed { .. } => counts.registrations += 1,
            EventKind::Completed(Completion::Received { buffer, .. }) => {
                state.received(event.connection, buffer.filled());
            }
            EventKind::Completed(Completion::Fenced { cause, .. }) => {
                counts.invalidations += u64::from(*cause != FenceCause::Remote);
            }
            _ => {}
        }
    }
}

impl Observer for Counter {
    fn event(&self, _: SocketAddr, event: &TransportEvent) {
        if matches!(event, TransportEvent::Stalled(Stall::Credits)) {
            self.lock().counts.waits += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rpcrdma_wire::v2::{Chunks, Credits, Header};

    fn message(xid: u32, response: bool, more: bool) -> Vec<u8> {
        Header::msg(xid, Credits::default(), response, more, Chunks::default()).to_bytes().to_vec()
    }

    #[test]
    fn parts_that_leave_together_wait_for_nothing() {
        let mut state = State::default();
        for more in [true, true, false] {
            state.sent(1, &message(7, false, more));
        }
        state.received(1, &message(7, true, true));
        state.received(1, &message(7, true, false));
        state.sent(1, &message(8, false, false));
        assert_eq!((state.counts.sends, state.counts.waits), (4, 0));
    }

    #[test]
    fn a_part_or_a_reply_that_waits_for_credits_is_counted_once() {
        let grant = Header::grant(Credits::default()).to_bytes();
        let mut state = State::default();
        state.sent(1, &message(7, false, true));
        state.received(2, &grant);
        state.sent(1, &message(7, false, true));
        assert_eq!(state.counts.waits, 0, "another connection's");
        state.received(1, &grant);
        state.received(1, &grant);
        state.sent(1, &grant);
        state.sent(1, &message(7, false, true));
        state.sent(1, &message(7, false, false));
        assert_eq!(state.counts.waits, 1);
        state.received(3, &message(9, false, true));
        state.received(3, &message(9, false, false));
        state.received(3, &grant);
        state.sent(3, &message(9, true, false));
        assert_eq!(state.counts.waits, 2, "the reply has waited");
    }

    #[test]
    fn numbers_are_told_in_their_order() {
        let counts = Counts::from_numbers([1, 2, 3, 4, 5, 6, 7]);
        assert_eq!((counts.sends, counts.waits, counts.receives), (1, 6, 7));
        assert_eq!(counts.since(&Counts { sends: 1, reads: 1, ..Counts::default() }).numbers(), [0, 1, 3, 4, 5, 6, 7]);
    }
}
