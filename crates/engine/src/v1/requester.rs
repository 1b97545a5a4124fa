//! The requester half of version 1: calls of ours, which it sends as credits allow.
//!
//! Owns the table of calls. A mistake of the peer fails the call that it concerns.

use super::{
    ledger::Ledger,
    plan::{goes_inline, plan},
};
use crate::{
    Action, Call, CallError, CallId, CallRefused, Config, ExposeError, ExposureId, Host, Link, MessageKind, Sent,
    config::MAX_CREDITS,
    plan::{CallPlan, chunk_count, gathered, whole},
    silence::Means,
    table::{Owner, State, Table},
};
use bytes::Bytes;
use rpcrdma_env::{Scratch, Slices, Timestamp};
use rpcrdma_wire::{
    rpc::null_call,
    v1::{Body, ErrorBody, Header, Lists, NO_CHUNKS_OCTETS, Plain},
};
use rpcrdma_xdr::Payload;
use std::collections::VecDeque;

#[derive(Debug, Default)]
pub(crate) struct Requester {
    /// With how a call travels, while it waits: most are sent at once.
    table: Table<Option<Box<CallPlan>>>,
    /// Credits that the peer has granted; `None` before its first reply.
    granted: Option<u32>,
}

/// The data that the halves share while they handle a message.
pub(crate) struct Shared<'a> {
    pub(crate) config: &'a Config,
    pub(crate) link: &'a Link,
    pub(crate) ledger: &'a mut Ledger,
    /// Memory for headers.
    pub(crate) scratch: &'a mut Scratch,
    pub(crate) actions: &'a mut VecDeque<Action>,
}

impl Shared<'_> {
    /// The bytes of a header without chunks.
    pub(crate) fn header(&mut self, plain: Plain) -> Bytes {
        self.scratch.write(NO_CHUNKS_OCTETS, |out| out.extend_from_slice(&plain.octets()))
    }
}

impl Requester {
    /// Takes a call, and sends it as soon as a credit is free. Returns whether it was sent now, which it may only be
    /// `at_once`.
    pub(crate) fn call(
        &mut self,
        call: Call,
        at_once: bool,
        host: &mut dyn Host,
        shared: &mut Shared<'_>,
    ) -> Result<bool, CallRefused> {
        if shared.config.credits_wanted == 0 {
            return Err(CallRefused::NotEnabled);
        }
        // V2-3.1.3.4-a, RPC-5531-9-a
        if self.table.contains(call.xid) {
            return Err(CallRefused::XidInUse { xid: call.xid });
        }
        let at_once = at_once && self.table.queued() == 0 && self.may_start(shared);
        if at_once && goes_inline(shared.link, &call) {
            // What would follow below as well, in fewer steps: most calls are like this.
            let (xid, credit) = (call.xid, wanted(shared.config));
            let inline = whole(self.table.insert_sent(call, None));
            let head = shared.header(Plain { xid, credit });
            post(head, inline, Sent { xid, credit, ..Sent::of(MessageKind::Call) }, shared);
            return Ok(true);
        }
        let plan = plan(shared.config, shared.link, &call)?;
        if !at_once {
            self.table.insert(call, Some(plan.into()));
            return Ok(false);
        }
        let xid = call.xid;
        self.table.insert_next(call, None);
        Ok(self.send(xid, plan, host, shared))
    }

    /// The most calls that may be unanswered: the lowest of what we asked for, what the peer granted, and our own
    /// limit.
    // V1-3.3.1-c, V1-3.3.1-e, V1-3.3.3-c, V1-3.3.3-d, V1-8.1.4-b
    fn limit(&self, config: &Config) -> usize {
        self.granted.unwrap_or(1).clamp(1, config.credits_wanted.clamp(1, MAX_CREDITS)) as usize
    }

    /// Credits for calls of the program: all but one, which is kept for a probe. If there is only one, it is for calls.
    // ULB-3.4.1-a, ULB-5.4.2-a
    fn usable(&self, config: &Config) -> usize {
        match self.limit(config) {
            1 => 1,
            limit => limit - 1,
        }
    }

    /// Whether another call may be sent now.
    fn may_start(&self, shared: &Shared<'_>) -> bool {
        shared.ledger.unanswered() < self.usable(shared.config) && may_send(shared)
    }

    /// Sends calls that have waited, as credits allow. Returns whether it sent any.
    pub(crate) fn send_ready(&mut self, host: &mut dyn Host, shared: &mut Shared<'_>) -> bool {
        let mut sent = false;
        while self.table.queued() > 0 && self.may_start(shared) {
            let Some(xid) = self.table.pop_queued() else { break };
            if let Some(plan) = self.table.get(xid).and_then(|entry| entry.extra.take()) {
                sent |= self.send(xid, *plan, host, shared);
            }
        }
        sent
    }

    /// Exposes the memory of the plan, then sends the header and the plan's inline bytes.
    fn send(&mut self, xid: u32, plan: CallPlan, host: &mut dyn Host, shared: &mut Shared<'_>) -> bool {
        let exposed = self.table.expose(xid, &plan, u32::MAX, host);
        let Some(entry) = self.table.get(xid) else { return false };
        let (lists, placed_bytes) = match exposed {
            Ok(exposed) => exposed,
            Err(ExposeError::Closed) => {
                // Nothing is sent, and the call stays among the unanswered calls at the connection's end.
                entry.state = State::Sent;
                return false;
            }
            Err(error) => {
                entry.state = State::Ending(Err(error.into()));
                self.table.fence(xid, shared.actions);
                return false;
            }
        };
        entry.state = State::Sent;
        let about = Sent {
            xid,
            credit: wanted(shared.config),
            placed_bytes,
            read_chunks: chunk_count(plan.reads.len() + usize::from(plan.zero.is_some())),
            write_chunks: chunk_count(lists.writes.chunks().len()),
            reply_chunk: lists.reply.is_some(),
            ..Sent::of(if entry.owner == Owner::Probe { MessageKind::Probe } else { MessageKind::Call })
        };
        // V1-3.5.3-b, V1-4.2.4-c, IE-3.6.1-b
        let body = if plan.zero.is_some() { Body::Nomsg(lists) } else { Body::Msg(lists) };
        let header = Header::new(xid, about.credit, body);
        let head = shared.scratch.write(header.encoded_len(), |out| header.encode(out));
        if let Body::Msg(lists) | Body::Nomsg(lists) = header.body {
            entry.offered.keep(lists);
        }
        // From here on, the exposures and the Send own the bytes.
        entry.call.message = Payload::new();
        post(head, plan.inline, about, shared);
        true
    }

    /// Sends a NULL call on the credit that was kept for it.
    // ULB-3.4.1-b, ULB-5.4.2-a
    pub(crate) fn probe(&mut self, host: &mut dyn Host, shared: &mut Shared<'_>) {
        let xid = host.next_xid();
        if self.table.contains(xid) {
            return;
        }
        let message = Payload::from(null_call(xid, self.table.program));
        let plan = CallPlan { inline: message.slices().collect(), ..CallPlan::default() };
        self.table.insert_probe(xid, message, None);
        self.send(xid, plan, host, shared);
    }

    /// The means to find out whether a silent peer is alive.
    pub(crate) fn means(&self, shared: &Shared<'_>) -> Means {
        match self.granted {
            None => Means::NeverHeard,
            Some(_) if !may_send(shared) => Means::None,
            Some(_) if self.limit(shared.config) > shared.ledger.unanswered() => Means::Reserve,
            Some(_) => Means::without_credit(shared.config.side),
        }
    }

    /// Handles a message for this half. Returns whether it answered a call.
    pub(crate) fn received(&mut self, header: &Header, stream: Bytes, shared: &mut Shared<'_>) -> bool {
        // V1-4.2.1-b, V1-2.2.2-a
        let answered = self.table.answered(header.xid, shared.actions, |entry| match &header.body {
            Body::Msg(lists) => Some(entry.offered.short(lists, stream).map_err(CallError::from)),
            Body::Nomsg(lists) => Some(entry.offered.long(lists).map_err(CallError::from)),
            // V1-4.5-g
            Body::Error(error) => Some(Err(CallError::Remote(*error))),
            _ => None,
        });
        // A peer that sends an ERR_VERS speaks another version, in which credits have another meaning.
        let grants = !matches!(header.body, Body::Error(ErrorBody::Version { .. }));
        self.heard(answered, Some(header.credit).filter(|_| grants), shared)
    }

    /// The same for a message without chunks.
    pub(crate) fn received_plain(&mut self, plain: Plain, stream: Bytes, shared: &mut Shared<'_>) -> bool {
        let answered = self.table.answered(plain.xid, shared.actions, |entry| {
            Some(entry.offered.short(&Lists::default(), stream).map_err(CallError::from))
        });
        self.heard(answered, Some(plain.credit), shared)
    }

    /// Keeps what the peer grants with the answer to a call.
    fn heard(&mut self, answered: bool, credit: Option<u32>, shared: &mut Shared<'_>) -> bool {
        if answered {
            // V1-3.3.1-b, V1-3.3.1-g
            self.granted = credit.map(|credit| credit.clamp(1, MAX_CREDITS)).or(self.granted);
            shared.ledger.answered();
        }
        answered
    }

    /// An exposure has ended.
    pub(crate) fn fenced(&mut self, id: ExposureId, shared: &mut Shared<'_>) {
        self.table.fenced(id, shared.actions);
    }

    /// Cancels a call: takes its memory back at once.
    pub(crate) fn cancel(&mut self, id: CallId, xid: u32, shared: &mut Shared<'_>) {
        self.table.cancel(id, xid, shared.actions);
    }

    /// Forgets a call, and leaves its memory lent.
    pub(crate) fn forget(&mut self, id: CallId, xid: u32, now: Timestamp, shared: &mut Shared<'_>) {
        self.table.forget(id, xid, now, shared.actions);
    }

    /// The time at which the next forgotten call loses its memory.
    pub(crate) fn next_deadline(&self) -> Option<Timestamp> {
        self.table.next_deadline()
    }

    /// Takes back the memory of calls whose deadline is over.
    pub(crate) fn expire(&mut self, now: Timestamp, shared: &mut Shared<'_>) {
        self.table.expire(now, shared.actions);
    }

    /// The connection is over and every exposure has ended. Returns the unanswered calls, in their order.
    pub(crate) fn unanswered(&mut self, shared: &mut Shared<'_>) -> Vec<CallId> {
        self.table.unanswered(shared.actions)
    }

    /// Calls that wait for a credit.
    pub(crate) fn queued(&self) -> usize {
        self.table.queued()
    }

    /// Exposures that have not ended.
    pub(crate) fn exposed(&self) -> usize {
        self.table.exposed()
    }
}

/// The credits that each call asks for.
// V1-3.3.1-b, V1-3.3.1-f, V1-4.2.3-a
fn wanted(config: &Config) -> u32 {
    config.credits_wanted.min(MAX_CREDITS)
}

/// Sends a call.
fn post(head: Bytes, inline: Slices, about: Sent, shared: &mut Shared<'_>) {
    let octets = gathered(head, inline, shared.config.max_gather, shared.scratch);
    let about = Sent { inline_bytes: octets.iter().map(Bytes::len).sum(), ..about };
    // V1-3.3.1-i
    shared.ledger.sending();
    shared.actions.push_back(Action::Send { octets, signaled: false, about });
}

/// Whether the peer has a receive for another call of ours, if it posts them only when it gets an answer.
fn may_send(shared: &Shared<'_>) -> bool {
    shared.ledger.since_answer() < shared.config.calls_between_answers
}
