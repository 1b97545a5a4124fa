//! The sums over all calls of a capture: a table by procedure, credits by connection.
//!
//! Holds a histogram for each procedure and what is under way, all of it within the limits named here.

mod calls;
mod credits;
mod operations;
mod print;

use crate::{
    event::{End, Event, EventKind, Message, Outcome, ProcedureName, Rpc},
    read::{Sink, Summary},
};
use calls::Calls;
use credits::Credits;
use operations::Operations;
use std::{
    collections::BTreeMap,
    io::{self, Write},
    time::Duration,
};

/// Procedures that are shown one by one; an invented capture could name any number. The rest are shown together.
pub const MAX_PROCEDURES: usize = 128;
/// Statuses of one procedure that are shown one by one: more than NFS version 3 has.
pub const MAX_STATUSES: usize = 64;
/// The longest latency that is distinguished: an hour. Longer ones count as this.
const LONGEST_NS: u64 = 3_600_000_000_000;
/// Significant digits of latencies.
const DIGITS: u8 = 2;

/// What was seen of one procedure.
struct Procedure {
    calls: u64,
    answered: u64,
    retransmissions: u64,
    statuses: BTreeMap<String, u64>,
    times_ns: hdrhistogram::Histogram<u64>,
    requester_bytes: u64,
    responder_bytes: u64,
}

impl Procedure {
    fn new() -> Self {
        let times_ns = hdrhistogram::Histogram::new_with_max(LONGEST_NS, DIGITS);
        Procedure {
            calls: 0,
            answered: 0,
            retransmissions: 0,
            statuses: BTreeMap::new(),
            times_ns: times_ns.expect("the bounds are constants in range"),
            requester_bytes: 0,
            responder_bytes: 0,
        }
    }

    fn answered(&mut self, status: String, took: Duration) {
        self.answered += 1;
        let is_known = self.statuses.contains_key(&status) || self.statuses.len() < MAX_STATUSES;
        *self.statuses.entry(if is_known { status } else { "others".into() }).or_default() += 1;
        self.times_ns.saturating_record(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
    }
}

/// Prints at the end the sums of all calls: as a table, or as JSON.
pub struct Statistics<W> {
    out: W,
    json: bool,
    calls: Calls,
    credits: Credits,
    procedures: BTreeMap<Option<ProcedureName>, Procedure>,
    operations: Operations,
}

impl<W: Write> Statistics<W> {
    /// Writes a table to `out`.
    pub fn text(out: W) -> Self {
        Statistics {
            out,
            json: false,
            calls: Calls::default(),
            credits: Credits::default(),
            procedures: BTreeMap::new(),
            operations: Operations::default(),
        }
    }

    /// Writes one JSON object to `out`.
    pub fn json(out: W) -> Self {
        Statistics { json: true, ..Self::text(out) }
    }

    fn procedure(&mut self, name: Option<ProcedureName>) -> &mut Procedure {
        // Calls without a name, and calls of procedures beyond the limit.
        let is_told = self.procedures.contains_key(&name) || self.procedures.len() < MAX_PROCEDURES;
        self.procedures.entry(name.filter(|_| is_told)).or_insert_with(Procedure::new)
    }

    fn end(&mut self, call: calls::Ended) {
        let procedure = self.procedure(call.name);
        procedure.calls += 1;
        procedure.retransmissions += u64::from(call.is_repeated);
        procedure.requester_bytes = procedure.requester_bytes.saturating_add(call.octets[0]);
        procedure.responder_bytes = procedure.responder_bytes.saturating_add(call.octets[1]);
        if let Some((status, took)) = call.answer {
            procedure.answered(status, took);
        }
    }
}

/// How an answered call ended, and when.
fn answer(event: &Event) -> Option<(Option<String>, Duration)> {
    let (rpc, took) = match &event.kind {
        EventKind::Send { message: Message::Transport { header, rpc, .. }, since_call, .. } => {
            let took = (*since_call)?;
            if rpc.is_none() && header.is_error() {
                return Some((Some("transport error".into()), took));
            }
            (*rpc, took)
        }
        EventKind::Record { rpc, since_call, .. } => (*rpc, (*since_call)?),
        _ => return None,
    };
    Some((rpc.and_then(status), took))
}

fn status(rpc: Rpc) -> Option<String> {
    match rpc {
        Rpc::Call(_) => None,
        Rpc::Reply { outcome: Outcome::Executed(None), .. } => Some("executed".into()),
        Rpc::Reply { outcome: Outcome::Executed(Some(status)), .. } => Some(status.to_string()),
        Rpc::Reply { outcome: Outcome::Rejected(rejection), .. } => Some(format!("rejected: {rejection}")),
    }
}

/// The bytes that a message brings, and the status in a message that is not the last part of an answer.
fn brought(event: &Event) -> (u64, Option<String>) {
    match &event.kind {
        EventKind::Send { octets, message, .. } => match message {
            Message::Transport { rpc, .. } => (*octets, rpc.and_then(status)),
            _ => (*octets, None),
        },
        EventKind::Record { octets, .. } => (*octets, None),
        EventKind::Write(tagged) | EventKind::ReadResponse(tagged) => (tagged.octets, tagged.rpc.and_then(status)),
        _ => (0, None),
    }
}

impl<W: Write> Sink for Statistics<W> {
    fn event(&mut self, event: &Event) -> io::Result<()> {
        self.credits.event(event);
        if matches!(event.kind, EventKind::Closed { .. }) {
            return Ok(());
        }
        let Some(tag) = event.call else { return Ok(()) };
        if let Some(content) = &event.content {
            self.operations.add(content, event.from == tag.requester);
        }
        let (octets, status) = brought(event);
        let by_requester = event.from == tag.requester;
        let connection = &event.connection;
        let ends = match tag.requester {
            End::Initiator => [connection.initiator, connection.responder],
            End::Responder => [connection.responder, connection.initiator],
        };
        if let Some(dropped) = self.calls.add((connection.number, tag), ends, octets, by_requester) {
            self.end(dropped);
        }
        if let Some(status) = status {
            self.calls.status((connection.number, tag.number), status);
        }
        if let Some((status, took)) = answer(event)
            && let Some(ended) = self.calls.answered((connection.number, tag.number), status, took)
        {
            self.credits.answered(connection.number, tag.requester);
            self.end(ended);
        }
        Ok(())
    }

    fn finish(&mut self, summary: &Summary) -> io::Result<()> {
        for call in self.calls.rest() {
            self.end(call);
        }
        if self.json { self.print_json(summary) } else { self.print_text(summary) }
    }
}
