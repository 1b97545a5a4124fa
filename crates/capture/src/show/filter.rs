//! Passes on the events of calls of interest, with their replies, and leaves out the rest.
//!
//! Holds events about which it cannot decide yet, at most [`MAX_HELD_BYTES`]: only the RDMA Read Response names a long
//! call's procedure, and only the reply shows whether a call is slow. Undecided events that must make room are shown.

use crate::{
    event::{CallTag, Event, EventKind, operation_names},
    read::{Sink, Summary},
};
use std::{collections::BTreeMap, io, time::Duration};

/// Bytes of events that are held, by what each may take: some seconds of a busy server.
pub const MAX_HELD_BYTES: usize = 64 << 20;
/// The least that an event counts for, in bytes.
const EVENT_BYTES: usize = 1 << 10;
/// How many bytes of memory each byte of a message's header and chunk lists takes.
const HEADER_FACTOR: u64 = 4;
/// The longest header that is kept.
const MAX_HEADER_OCTETS: u64 = 64 << 10;

/// Which calls are shown: those that meet all conditions.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// Calls with one of these XIDs; empty: with any.
    pub xids: Vec<u32>,
    /// Calls of one of these procedures, in any case of letters, and COMPOUNDs with one of these operations; empty:
    /// calls of any.
    pub procedures: Vec<String>,
    /// Calls whose reply took longer, and calls that waited longer for a reply that the capture does not have.
    pub slower_than: Option<Duration>,
}

impl Wanted {
    /// Whether every event is wanted.
    pub fn is_everything(&self) -> bool {
        self.xids.is_empty() && self.procedures.is_empty() && self.slower_than.is_none()
    }

    /// Whether a message shows that its call is wanted; `None`: its procedure or its operations are not known yet.
    fn call(&self, tag: &CallTag, event: &Event) -> Option<bool> {
        if !self.xids.is_empty() && !self.xids.contains(&tag.xid) {
            return Some(false);
        }
        if self.procedures.is_empty() {
            return Some(true);
        }
        let is_wanted = |name: &str| self.procedures.iter().any(|wanted| wanted.eq_ignore_ascii_case(name));
        let name = tag.name?;
        if name.procedure_name().is_some_and(is_wanted) {
            return Some(true);
        }
        if !name.is_compound() || !operation_names().any(is_wanted) {
            return Some(false);
        }
        let content = event.content.as_ref()?;
        match content.operations.iter().any(|operation| is_wanted(operation.name)) {
            true => Some(true),
            // The reply may show operations that could not be read in the call.
            false => (content.problem.is_none() && event.from == tag.requester).then_some(false),
        }
    }

    fn is_slow(&self, took: Duration) -> bool {
        self.slower_than.is_none_or(|limit| took > limit)
    }
}

/// A call under way.
enum Call {
    /// Not decided.
    Held(Held),
    Shown,
    LeftOut,
}

/// The events that are held of a call.
struct Held {
    events: Vec<Event>,
    began: Duration,
    /// Whether the call's procedure is wanted, once it is known.
    named: Option<bool>,
    /// The bytes that all events count for.
    octets: usize,
}

/// Passes the events of [`Wanted`] calls on to another sink. If the filter asks for slow calls, a call's events are
/// passed on together, when it is answered.
pub struct Filtered<S> {
    wanted: Wanted,
    sink: S,
    calls: BTreeMap<(u64, u64), Call>,
    held_bytes: usize,
    last_time: Duration,
}

/// The bytes that an event counts for.
fn weight(event: &Event) -> usize {
    let octets = match &event.kind {
        EventKind::Send { octets, .. } => octets.min(&MAX_HEADER_OCTETS) * HEADER_FACTOR,
        _ => 0,
    };
    EVENT_BYTES + octets as usize
}

fn answered_after(event: &Event) -> Option<Duration> {
    match &event.kind {
        EventKind::Send { since_call, .. } | EventKind::Record { since_call, .. } => *since_call,
        _ => None,
    }
}

impl<S: Sink> Filtered<S> {
    /// Filters what goes to `sink`.
    pub fn new(wanted: Wanted, sink: S) -> Self {
        Filtered { wanted, sink, calls: BTreeMap::new(), held_bytes: 0, last_time: Duration::ZERO }
    }

    fn show(&mut self, events: &[Event]) -> io::Result<()> {
        events.iter().try_for_each(|event| self.sink.event(event))
    }

    /// Takes a call out; gives what is held of it.
    fn take(&mut self, key: (u64, u64)) -> Option<Call> {
        let call = self.calls.remove(&key)?;
        self.held_bytes -= Self::octets(&call);
        Some(call)
    }

    /// Even a call of which nothing is held is remembered, and takes its room.
    fn octets(call: &Call) -> usize {
        match call {
            Call::Held(held) => held.octets,
            Call::Shown | Call::LeftOut => EVENT_BYTES,
        }
    }

    fn put(&mut self, key: (u64, u64), call: Call) -> io::Result<()> {
        self.held_bytes += Self::octets(&call);
        self.calls.insert(key, call);
        while self.held_bytes > MAX_HELD_BYTES
            && let Some(oldest) = self.calls.first_key_value().map(|(key, _)| *key)
        {
            if let Some(Call::Held(held)) = self.take(oldest) {
                self.show(&held.events)?;
            }
        }
        Ok(())
    }
}

impl<S: Sink> Sink for Filtered<S> {
    fn event(&mut self, event: &Event) -> io::Result<()> {
        self.last_time = event.time;
        let Some(tag) = event.call else { return Ok(()) };
        let key = (event.connection.number, tag.number);
        let took = answered_after(event);
        let mut held = match self.take(key) {
            None => Held { events: Vec::new(), began: event.time, named: None, octets: EVENT_BYTES },
            Some(Call::Held(held)) => held,
            Some(Call::Shown) => {
                self.sink.event(event)?;
                return if took.is_none() { self.put(key, Call::Shown) } else { Ok(()) };
            }
            Some(Call::LeftOut) => return if took.is_none() { self.put(key, Call::LeftOut) } else { Ok(()) },
        };
        held.octets += weight(event);
        held.events.push(event.clone());
        held.named = held.named.or_else(|| self.wanted.call(&tag, event));
        let decided = match (held.named, took) {
            (Some(false), _) => Some(false),
            (Some(true), Some(took)) => Some(self.wanted.is_slow(took)),
            (Some(true), None) if self.wanted.slower_than.is_none() => Some(true),
            (Some(true), None) => None,
            // It is answered, and the capture does not have the call.
            (None, Some(_)) => Some(false),
            (None, None) => None,
        };
        match decided {
            Some(true) => {
                self.show(&held.events)?;
                if took.is_none() { self.put(key, Call::Shown) } else { Ok(()) }
            }
            Some(false) if took.is_none() => self.put(key, Call::LeftOut),
            Some(false) => Ok(()),
            None => self.put(key, Call::Held(held)),
        }
    }

    /// Shows unanswered calls that waited long enough, then passes on the whole capture's summary.
    fn finish(&mut self, summary: &Summary) -> io::Result<()> {
        for (_, call) in std::mem::take(&mut self.calls) {
            let Call::Held(held) = call else { continue };
            if held.named == Some(true) && self.wanted.is_slow(self.last_time.saturating_sub(held.began)) {
                self.show(&held.events)?;
            }
        }
        self.held_bytes = 0;
        self.sink.finish(summary)
    }
}
