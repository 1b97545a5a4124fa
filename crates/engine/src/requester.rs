//! The requester half: calls of ours, from the queue to the fenced reply.
//!
//! Owns shares of the messages that wait or are under way, and the names of what was exposed for them. A call ends in
//! exactly one of four actions (Complete, Fail, Cancelled, Released), and never before all its exposures have ended.
//! What the peer does wrong fails the call that it concerns.
//!
//! | state | means | leaves it when |
//! |---|---|---|
//! | `Queued` | no credit yet | a credit is free, or it is taken back |
//! | `Sent` | the peer may answer | a reply or an error comes |
//! | `Ending` | answered, or never sent | the last exposure has ended |

use crate::{
    Action, CallError, CallId, CallRefused, Config, ExposeError, ExposureId, Host, Link, MessageKind, ReplyParts, Sent,
    Sink, SinkPlace,
    config::{FORGOTTEN_CALL_DEADLINE, MAX_CREDITS},
    ledger::Ledger,
    plan::{CallPlan, join, plan},
    returned::Offered,
    silence::{Means, null_call, program},
};
use bytes::Bytes;
use rpcrdma_env::Timestamp;
use rpcrdma_wire::v1::{Body, ErrorBody, Header, Lists, ReadList, ReadSegment, Segment, WriteChunk, WriteList};
use rpcrdma_xdr::Payload;
use std::collections::{BTreeMap, HashMap, VecDeque};

/// Who wants to know how a call ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    /// The caller waits for the reply.
    Caller,
    /// The caller has gone away and left the memory behind.
    Nobody,
    /// The caller had gone away for so long that the memory is taken back.
    Expired,
    /// The caller wants its memory back and nothing else.
    Canceller,
    /// The memory was given back; only the XID and the credit are still in use.
    Ghost,
    /// It is a probe of our own.
    Probe,
}

#[derive(Debug)]
enum State {
    Queued,
    Sent,
    Ending(Result<ReplyParts, CallError>),
}

#[derive(Debug)]
struct Exposure {
    id: ExposureId,
    handle: u32,
    state: Exposed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Exposed {
    Open,
    Closing,
    Closed,
}

#[derive(Debug)]
struct Call {
    id: CallId,
    order: u64,
    owner: Owner,
    state: State,
    message: Payload,
    plan: CallPlan,
    exposures: Vec<Exposure>,
    offered: Offered,
}

impl Call {
    fn fenced(&self) -> bool {
        self.exposures.iter().all(|exposure| exposure.state == Exposed::Closed)
    }
}

#[derive(Debug, Default)]
pub(crate) struct Requester {
    /// Calls by XID, the peer's name for them.
    calls: HashMap<u32, Call>,
    /// XIDs by our name for a call.
    xids: HashMap<CallId, u32>,
    /// Whose an exposure is.
    exposures: HashMap<ExposureId, u32>,
    /// Calls without a credit, by order and XID.
    queue: BTreeMap<u64, u32>,
    /// When forgotten calls lose their memory, in that order.
    forgotten: VecDeque<(Timestamp, CallId)>,
    /// Credits that the peer has granted; `None` before its first reply.
    granted: Option<u32>,
    next_order: u64,
    next_exposure: u64,
    /// Program and version of the latest call, for probes.
    program: Option<(u32, u32)>,
}

/// What the halves share while a message is handled.
pub(crate) struct Shared<'a> {
    pub(crate) config: &'a Config,
    pub(crate) link: &'a Link,
    pub(crate) ledger: &'a mut Ledger,
    pub(crate) actions: &'a mut VecDeque<Action>,
}

impl Requester {
    /// Takes a call. It is sent as soon as there is a credit.
    pub(crate) fn call(
        &mut self,
        id: CallId,
        xid: u32,
        message: Payload,
        reply_max: usize,
        items: &[usize],
        shared: &Shared<'_>,
    ) -> Result<(), CallRefused> {
        if shared.config.credits_wanted == 0 {
            return Err(CallRefused::NotEnabled);
        }
        if self.calls.contains_key(&xid) {
            return Err(CallRefused::XidInUse { xid });
        }
        let plan = plan(shared.config, shared.link, &message, reply_max, items)?;
        let offered = Offered { items: items.len(), ..Offered::default() };
        self.program = program(&message).or(self.program);
        self.insert(xid, id, Owner::Caller, message, plan, offered);
        Ok(())
    }

    fn insert(&mut self, xid: u32, id: CallId, owner: Owner, message: Payload, plan: CallPlan, offered: Offered) {
        let order = self.next_order;
        self.next_order += 1;
        self.queue.insert(order, xid);
        self.xids.insert(id, xid);
        let call = Call { id, order, owner, state: State::Queued, message, plan, exposures: Vec::new(), offered };
        self.calls.insert(xid, call);
    }

    /// The most calls that may be unanswered: no more than asked for, granted, or believed.
    fn limit(&self, config: &Config) -> usize {
        self.granted.unwrap_or(1).clamp(1, config.credits_wanted.clamp(1, MAX_CREDITS)) as usize
    }

    /// Credits for calls of the program: all but one, which is kept for a probe.
    fn usable(&self, config: &Config) -> usize {
        match self.limit(config) {
            1 => 1,
            limit => limit - 1,
        }
    }

    /// Sends what credits allow. Returns whether anything was sent.
    pub(crate) fn send_ready(&mut self, host: &mut dyn Host, shared: &mut Shared<'_>) -> bool {
        let mut sent = false;
        while shared.ledger.unanswered() < self.usable(shared.config) {
            let Some((_, xid)) = self.queue.pop_first() else { break };
            sent |= self.send(xid, host, shared);
        }
        sent
    }

    /// Exposes what the plan says, then sends the header with what the plan keeps inline.
    fn send(&mut self, xid: u32, host: &mut dyn Host, shared: &mut Shared<'_>) -> bool {
        let Some(call) = self.calls.get_mut(&xid) else { return false };
        let plan = std::mem::take(&mut call.plan);
        let mut exposing =
            Exposing { call, owners: &mut self.exposures, next: &mut self.next_exposure, host, xid, octets: 0 };
        let lists = match exposing.expose(&plan) {
            Ok(lists) => lists,
            Err(ExposeError::Closed) => {
                // Nothing is sent, and the call is among those that the connection's end leaves unanswered.
                call.state = State::Sent;
                return false;
            }
            Err(error) => {
                call.state = State::Ending(Err(error.into()));
                self.fence(xid, shared);
                return false;
            }
        };
        let placed_octets = exposing.octets;
        call.offered.writes = lists.writes.clone();
        call.offered.reply = lists.reply.clone();
        call.state = State::Sent;
        let about = Sent {
            kind: if call.owner == Owner::Probe { MessageKind::Probe } else { MessageKind::Call },
            xid,
            credit: shared.config.credits_wanted.min(MAX_CREDITS),
            inline_octets: 0,
            placed_octets,
            read_chunks: plan.reads.len() + usize::from(plan.zero.is_some()),
            write_chunks: lists.writes.chunks().len(),
            reply_chunk: lists.reply.is_some(),
            invalidates: None,
        };
        let body = if plan.zero.is_some() { Body::Nomsg(lists) } else { Body::Msg(lists) };
        let header = Header::new(xid, about.credit, body).to_bytes();
        // The octets are the exposures' and the Send's from here on.
        call.message = Payload::new();
        let octets = gathered(header, plan.inline, shared.config.max_gather);
        let about = Sent { inline_octets: octets.iter().map(Bytes::len).sum(), ..about };
        shared.ledger.sending(shared.actions);
        shared.actions.push_back(Action::Send { octets, invalidate: None, signaled: false, about });
        true
    }

    /// Sends a NULL call on the credit that was kept back.
    pub(crate) fn probe(&mut self, host: &mut dyn Host, shared: &mut Shared<'_>) {
        let xid = host.next_xid();
        if self.calls.contains_key(&xid) {
            return;
        }
        let message = Payload::from(null_call(xid, self.program));
        let plan = CallPlan { inline: message.slices().collect(), ..CallPlan::default() };
        // A probe has no name: nobody asks about it, and it is found by its XID.
        let id = CallId(u64::MAX);
        self.insert(xid, id, Owner::Probe, message, plan, Offered::default());
        self.xids.remove(&id);
        self.queue.retain(|_, queued| *queued != xid);
        self.send(xid, host, shared);
    }

    /// What there is to find out about a silent peer.
    pub(crate) fn means(&self, shared: &Shared<'_>) -> Means {
        match self.granted {
            None => Means::NeverHeard,
            Some(_) if self.limit(shared.config) > shared.ledger.unanswered() => Means::Reserve,
            Some(_) => Means::None,
        }
    }

    /// A message for this half. Returns whether it answered a call.
    pub(crate) fn received(&mut self, header: &Header, stream: Bytes, shared: &mut Shared<'_>) -> bool {
        let xid = header.xid;
        let Some(call) = self.calls.get_mut(&xid).filter(|call| matches!(call.state, State::Sent)) else {
            return false;
        };
        let end = match &header.body {
            Body::Msg(lists) => call.offered.short(lists, stream).map_err(CallError::from),
            Body::Nomsg(lists) => call.offered.long(lists).map_err(CallError::from),
            Body::Error(error) => Err(CallError::Remote(*error)),
            _ => return false,
        };
        // An ERR_VERS comes from a peer whose credits mean nothing in this version.
        if !matches!(end, Err(CallError::Remote(ErrorBody::Version { .. }))) {
            self.granted = Some(header.credit.clamp(1, MAX_CREDITS));
        }
        call.state = State::Ending(end);
        shared.ledger.answered();
        self.fence(xid, shared);
        true
    }

    /// Ends what is still exposed for a call, and the call itself if nothing is.
    fn fence(&mut self, xid: u32, shared: &mut Shared<'_>) {
        let Some(call) = self.calls.get_mut(&xid) else { return };
        for exposure in call.exposures.iter_mut().filter(|exposure| exposure.state == Exposed::Open) {
            exposure.state = Exposed::Closing;
            shared.actions.push_back(Action::Invalidate { exposure: exposure.id, handle: exposure.handle });
        }
        self.settle(xid, shared);
    }

    /// An exposure has ended. Returns whether it was one of ours.
    pub(crate) fn fenced(&mut self, id: ExposureId, shared: &mut Shared<'_>) -> bool {
        let Some(xid) = self.exposures.remove(&id) else { return false };
        let Some(call) = self.calls.get_mut(&xid) else { return false };
        for exposure in call.exposures.iter_mut().filter(|exposure| exposure.id == id) {
            exposure.state = Exposed::Closed;
        }
        self.settle(xid, shared);
        true
    }

    /// Says how a call ended, once nothing of it is exposed.
    fn settle(&mut self, xid: u32, shared: &mut Shared<'_>) {
        let Some(call) = self.calls.get_mut(&xid).filter(|call| call.fenced()) else { return };
        let id = call.id;
        let ended = matches!(call.state, State::Ending(_));
        match (call.owner, ended) {
            (Owner::Canceller, _) => {
                shared.actions.push_back(Action::Cancelled { call: id });
                self.xids.remove(&id);
                call.owner = Owner::Ghost;
            }
            (Owner::Expired, _) | (Owner::Nobody, true) => {
                shared.actions.push_back(Action::Released { call: id });
                self.xids.remove(&id);
                call.owner = Owner::Ghost;
            }
            _ => {}
        }
        if !ended {
            return;
        }
        let Some(call) = self.calls.remove(&xid) else { return };
        let State::Ending(end) = call.state else { return };
        if call.owner == Owner::Caller {
            self.xids.remove(&id);
            shared.actions.push_back(match end {
                Ok(reply) => Action::Complete { call: id, reply },
                Err(error) => Action::Fail { call: id, error },
            });
        }
    }

    /// Takes the memory of a call back at once.
    pub(crate) fn cancel(&mut self, id: CallId, shared: &mut Shared<'_>) {
        self.disown(id, Owner::Canceller, shared);
        let Some(&xid) = self.xids.get(&id) else { return };
        self.fence(xid, shared);
    }

    /// Leaves a call to itself: its memory stays lent until its reply or a deadline.
    pub(crate) fn forget(&mut self, id: CallId, now: Timestamp, shared: &mut Shared<'_>) {
        self.disown(id, Owner::Nobody, shared);
        if self.xids.contains_key(&id) {
            self.forgotten.push_back((now + FORGOTTEN_CALL_DEADLINE, id));
        }
    }

    fn disown(&mut self, id: CallId, owner: Owner, shared: &mut Shared<'_>) {
        let Some(&xid) = self.xids.get(&id) else { return };
        let Some(call) = self.calls.get_mut(&xid) else { return };
        call.owner = owner;
        if matches!(call.state, State::Queued) {
            self.queue.remove(&call.order);
            self.calls.remove(&xid);
            self.xids.remove(&id);
            shared.actions.push_back(match owner {
                Owner::Canceller => Action::Cancelled { call: id },
                _ => Action::Released { call: id },
            });
        }
    }

    /// When the next forgotten call loses its memory.
    pub(crate) fn next_deadline(&self) -> Option<Timestamp> {
        self.forgotten.front().map(|(when, _)| *when)
    }

    /// Takes back the memory of calls that were forgotten long ago.
    pub(crate) fn expire(&mut self, now: Timestamp, shared: &mut Shared<'_>) {
        while let Some((_, id)) = self.forgotten.pop_front_if(|(when, _)| *when <= now) {
            let Some(&xid) = self.xids.get(&id) else { continue };
            let Some(call) = self.calls.get_mut(&xid) else { continue };
            if call.owner != Owner::Nobody {
                continue;
            }
            call.owner = Owner::Expired;
            self.fence(xid, shared);
        }
    }

    /// The connection is over and every exposure has ended: the calls that are not answered, those sent first before
    /// those that waited, each in its order. Forgotten ones are released instead.
    pub(crate) fn unanswered(&mut self, shared: &mut Shared<'_>) -> Vec<CallId> {
        let mut left: Vec<Call> = self.calls.drain().map(|(_, call)| call).collect();
        left.sort_by_key(|call| call.order);
        self.xids.clear();
        self.queue.clear();
        self.forgotten.clear();
        self.exposures.clear();
        left.into_iter()
            .filter_map(|call| match call.owner {
                Owner::Caller => Some(call.id),
                Owner::Nobody | Owner::Expired => {
                    shared.actions.push_back(Action::Released { call: call.id });
                    None
                }
                Owner::Canceller => {
                    shared.actions.push_back(Action::Cancelled { call: call.id });
                    None
                }
                Owner::Ghost | Owner::Probe => None,
            })
            .collect()
    }

    /// Calls that wait for a credit.
    pub(crate) fn queued(&self) -> usize {
        self.queue.len()
    }

    /// Exposures that have not ended.
    pub(crate) fn exposed(&self) -> usize {
        self.exposures.len()
    }
}

/// Header and slices as one Send of at most `max` slices.
pub(crate) fn gathered(header: Bytes, inline: Vec<Bytes>, max: usize) -> Vec<Bytes> {
    let mut octets = Vec::with_capacity(1 + inline.len());
    octets.push(header);
    if inline.len() < max {
        octets.extend(inline)
    } else {
        octets.push(join(&inline))
    }
    octets
}

/// Exposing the memory of one call.
struct Exposing<'a> {
    call: &'a mut Call,
    owners: &'a mut HashMap<ExposureId, u32>,
    next: &'a mut u64,
    host: &'a mut dyn Host,
    xid: u32,
    octets: u64,
}

impl Exposing<'_> {
    fn expose(&mut self, plan: &CallPlan) -> Result<Lists, ExposeError> {
        let mut reads = Vec::with_capacity(plan.reads.len() + 1);
        if let Some(zero) = &plan.zero {
            reads.push(ReadSegment { position: 0, segment: self.source(zero)? });
        }
        for reduced in &plan.reads {
            reads.push(ReadSegment { position: reduced.position, segment: self.source(&reduced.data)? });
        }
        let mut writes = Vec::with_capacity(plan.writes.len());
        for (index, &octets) in plan.writes.iter().enumerate() {
            writes.push(match octets {
                0 => WriteChunk::default(),
                _ => WriteChunk(vec![self.sink(SinkPlace::Item(index), octets)?]),
            });
        }
        let reply = plan.reply.map(|octets| self.sink(SinkPlace::Reply, octets)).transpose()?;
        Ok(Lists {
            reads: ReadList(reads),
            writes: WriteList(writes),
            reply: reply.map(|segment| WriteChunk(vec![segment])),
        })
    }

    fn source(&mut self, octets: &Bytes) -> Result<Segment, ExposeError> {
        let id = self.name();
        let segment = self.host.expose_source(id, octets)?;
        self.octets += octets.len() as u64;
        self.keep(id, segment.handle);
        Ok(segment)
    }

    fn sink(&mut self, place: SinkPlace, octets: usize) -> Result<Segment, ExposeError> {
        let id = self.name();
        let segment = self.host.expose_sink(id, Sink { call: self.call.id, place, octets })?;
        self.keep(id, segment.handle);
        // The memory may be larger than what is offered.
        let length = u32::try_from(octets).map_err(|_| ExposeError::Refused)?.min(segment.length);
        Ok(Segment { length, ..segment })
    }

    fn name(&mut self) -> ExposureId {
        let id = ExposureId(*self.next);
        *self.next += 1;
        id
    }

    fn keep(&mut self, id: ExposureId, handle: u32) {
        self.owners.insert(id, self.xid);
        self.call.exposures.push(Exposure { id, handle, state: Exposed::Open });
    }
}
