//! The queue between the taps and the writer: bounded in bytes. A tap never waits for it.
//!
//! Owns the copies of the bytes. Bytes that do not fit are counted, for their stream and in all.

use rpcrdma_iwarp::Direction;
use std::{
    collections::{BTreeMap, VecDeque},
    net::SocketAddr,
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

/// The bytes that an event counts for besides its own, so that many small ones are bounded too.
const EVENT_BYTES: usize = 128;
/// Slices of one direction are joined up to this size: a system call's worth.
const JOINED_BYTES: usize = 128 << 10;
/// Events that the writer takes at a time, so that what it has taken is soon given back to the limit.
const BATCH_EVENTS: usize = 32;

/// Something a tap saw.
#[derive(Debug)]
pub(super) enum Event {
    Open { id: u64, time: Duration, local: SocketAddr, peer: SocketAddr, initiator: bool },
    Octets { id: u64, time: Duration, direction: Direction, octets: Vec<u8>, lost_before: u64 },
    Close { id: u64, time: Duration },
}

impl Event {
    fn weight(&self) -> usize {
        match self {
            Event::Octets { octets, .. } => EVENT_BYTES + octets.len(),
            _ => EVENT_BYTES,
        }
    }
}

/// What the writer is to do.
pub(super) enum Taken {
    Events(Vec<Event>),
    Idle,
    Finished { dropped_bytes: u64, dropped_connections: u64 },
}

#[derive(Default)]
struct State {
    events: VecDeque<Event>,
    /// The weight of the events here and with the writer.
    weight: usize,
    /// Bytes left out since the last that were kept, by connection and direction.
    lost: BTreeMap<(u64, bool), u64>,
    dropped_bytes: u64,
    dropped_connections: u64,
    finished: bool,
    /// The writer has nothing to do and has not yet got the request to flush.
    flushed: bool,
}

pub(super) struct Queue {
    state: Mutex<State>,
    came: Condvar,
    limit_bytes: usize,
}

impl Queue {
    pub(super) fn new(limit_bytes: usize) -> Self {
        Queue { state: Mutex::default(), came: Condvar::new(), limit_bytes }
    }

    pub(super) fn limit_bytes(&self) -> usize {
        self.limit_bytes
    }

    /// Nothing that runs under the lock panics half-way, so a poisoned state is still whole.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, state: &mut State, event: Event) {
        state.weight += event.weight();
        state.flushed = false;
        if state.events.is_empty() {
            self.came.notify_one();
        }
        state.events.push_back(event);
    }

    /// Says whether there was room.
    pub(super) fn open(&self, event: Event) -> bool {
        let mut state = self.lock();
        if state.finished || state.weight + EVENT_BYTES > self.limit_bytes {
            state.dropped_connections += u64::from(!state.finished);
            return false;
        }
        self.push(&mut state, event);
        true
    }

    pub(super) fn octets(&self, id: u64, direction: Direction, time: Duration, octets: &[u8]) {
        let mut state = self.lock();
        if state.finished {
            return;
        }
        let key = (id, direction == Direction::Sent);
        if state.weight.saturating_add(octets.len() + EVENT_BYTES) > self.limit_bytes {
            *state.lost.entry(key).or_default() += octets.len() as u64;
            state.dropped_bytes += octets.len() as u64;
            return;
        }
        let lost_before = state.lost.remove(&key).unwrap_or(0);
        if lost_before == 0
            && let Some(Event::Octets { id: last, direction: way, octets: joined, .. }) = state.events.back_mut()
            && (*last, *way) == (id, direction)
            && joined.len() + octets.len() <= JOINED_BYTES
        {
            joined.extend_from_slice(octets);
            state.weight += octets.len();
            return;
        }
        self.push(&mut state, Event::Octets { id, time, direction, octets: octets.to_vec(), lost_before });
    }

    /// Always has room: each connection that was opened is closed once.
    pub(super) fn close(&self, id: u64, time: Duration) {
        let mut state = self.lock();
        state.lost.remove(&(id, true));
        state.lost.remove(&(id, false));
        if !state.finished {
            self.push(&mut state, Event::Close { id, time });
        }
    }

    /// Nothing more is taken in.
    pub(super) fn finish(&self) {
        self.lock().finished = true;
        self.came.notify_one();
    }

    /// The writer has ended.
    pub(super) fn abandon(&self) {
        let mut state = self.lock();
        *state = State { finished: true, ..State::default() };
    }

    /// Waits for something to do.
    pub(super) fn take(&self) -> Taken {
        let mut state = self.lock();
        loop {
            if !state.events.is_empty() {
                let count = state.events.len().min(BATCH_EVENTS);
                return Taken::Events(state.events.drain(..count).collect());
            }
            if state.finished {
                let (dropped_bytes, dropped_connections) = (state.dropped_bytes, state.dropped_connections);
                return Taken::Finished { dropped_bytes, dropped_connections };
            }
            if !state.flushed {
                state.flushed = true;
                return Taken::Idle;
            }
            state = self.came.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// The writer is done with these.
    pub(super) fn done(&self, events: &[Event]) {
        let weight: usize = events.iter().map(Event::weight).sum();
        let mut state = self.lock();
        state.weight = state.weight.saturating_sub(weight);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::from_secs(1);

    fn open(queue: &Queue) -> bool {
        let (local, peer) = ("127.0.0.1:1".parse().unwrap(), "127.0.0.1:2".parse().unwrap());
        queue.open(Event::Open { id: 0, time: NOW, local, peer, initiator: true })
    }

    #[test]
    fn the_limit_holds_to_the_octet_and_losses_are_told() {
        let room = 1000;
        let queue = Queue::new(2 * EVENT_BYTES + room);
        assert!(open(&queue));
        queue.octets(0, Direction::Sent, NOW, &vec![1; room]);
        queue.octets(0, Direction::Sent, NOW, &[2]);
        queue.octets(0, Direction::Received, NOW, &[2; 3]);
        assert!(!open(&queue), "no room for a connection");
        let Taken::Events(events) = queue.take() else { panic!("events wait") };
        assert_eq!(events.len(), 2);
        queue.octets(0, Direction::Sent, NOW, &[3]);
        queue.done(&events);
        queue.octets(0, Direction::Sent, NOW, &[4; 10]);
        queue.octets(0, Direction::Sent, NOW, &[5; 10]);
        let Taken::Events(events) = queue.take() else { panic!("events wait") };
        let [Event::Octets { octets, lost_before: 2, .. }] = &events[..] else { panic!("{events:?}") };
        assert_eq!(octets.len(), 20, "slices of one direction are joined");
        queue.finish();
        queue.octets(0, Direction::Sent, NOW, &[6]);
        let Taken::Finished { dropped_bytes: 5, dropped_connections: 1 } = queue.take() else { panic!() };
    }

    #[test]
    fn an_abandoned_queue_keeps_nothing() {
        let queue = Queue::new(1 << 20);
        assert!(open(&queue));
        queue.abandon();
        queue.octets(0, Direction::Sent, NOW, &[1; 100]);
        queue.close(0, NOW);
        assert!(!open(&queue));
        assert!(matches!(queue.take(), Taken::Finished { .. }));
    }
}
