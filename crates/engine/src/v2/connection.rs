//! The state machine of one connection of version 2: both halves, the exchange, and what is sent when.
//!
//! Its methods are called as those of version 1's [`Connection`](crate::Connection). It owns what its parts own. No input
//! is an error: what a peer does wrong shows as an action, and names that mean nothing any more are ignored.
//!
//! What is sent first when a credit is there: the rest of a message that is under way, properties, errors, replies, calls.
//! A grant goes out alone only when the peer may have run out of credits and nothing else is there to carry it.

use super::{
    ErrorBody, ExtensionRefused, OtherBody, Received,
    credits::Credits,
    exchange::{Exchange, knows, reverse_of},
    host_auth,
    outbox::{Control, MAX_WAITING_ERRORS, Outbox, bare, control},
    requester::{Requester, Sending},
    responder::{Responder, Serving},
    sequence::{Reassembly, Step},
};
use crate::{
    Action, Answer, CallId, CallRefused, CloseCause, Config, ExposureId, Host, Link, MessageKind, Negotiated,
    PeerFault, RequestId, Side, Stats,
    silence::{Means, Silence, Verdict},
};
use bytes::Bytes;
use rpcrdma_env::Timestamp;
use rpcrdma_wire::v2::{
    Body, Discard, Extensions, Header, HeaderType, Judgement, NO_CHUNKS_OCTETS, NoExtensions, PREFIX_OCTETS, Place,
    Prefix, PropertySet, Receiver, ReverseSupport, Role, VERSION, judge,
};
use rpcrdma_xdr::Payload;
use std::{
    collections::{BTreeSet, VecDeque},
    time::Duration,
};

/// How long answers may wait for credits that the peer does not grant, before it is given up. They hold memory.
pub const CREDIT_TIMEOUT: Duration = Duration::from_secs(30);

/// Whether something waits for credits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Starving {
    No,
    /// Since a moment that the next wake tells.
    Begins,
    Since(Timestamp),
}

/// The most header types of an extension that are remembered as unknown to the peer.
const MAX_UNSUPPORTED: usize = 64;

/// The least that Sends and Receives of this version have to hold, in octets: what a peer may rely on until it is told
/// otherwise (draft section 4.2.2).
pub const MIN_OCTETS: u32 = 4096;

/// One connection of version 2.
#[derive(Debug)]
pub struct Connection {
    config: Config,
    credits: Credits,
    exchange: Exchange,
    parts: Reassembly,
    outbox: Outbox,
    requester: Requester,
    responder: Responder,
    silence: Silence,
    /// Messages of an extension that may be answered with an error: XID and header type.
    extension_sent: VecDeque<(u32, u32)>,
    unsupported: BTreeSet<u32>,
    /// Whether the peer may be waiting for credits.
    owes_grant: bool,
    negotiated: bool,
    /// Whether a call that was refused can be sent again.
    again: bool,
    starving: Starving,
    actions: VecDeque<Action>,
    closing: bool,
    discarded: u64,
}

macro_rules! serving {
    ($self:ident) => {
        Serving {
            config: &$self.config,
            link: $self.exchange.link(&$self.config),
            credits: &mut $self.credits,
            outbox: &mut $self.outbox,
            actions: &mut $self.actions,
        }
    };
}

macro_rules! sending {
    ($self:ident) => {
        Sending {
            config: &$self.config,
            theirs: $self.exchange.theirs(),
            credits: &$self.credits,
            link: $self.exchange.link(&$self.config),
            actions: &mut $self.actions,
        }
    };
}

impl Connection {
    /// A connection on which nothing was said in version 2 yet, with `posted` receives of [`MIN_OCTETS`] at least. The
    /// client then calls [`start`](Self::start).
    pub fn new(config: Config, posted: usize) -> Self {
        let (send_octets, receive_octets) = (config.send_octets.max(MIN_OCTETS), config.receive_octets.max(MIN_OCTETS));
        let config = Config { send_octets, receive_octets, ..config };
        let max_octets = usize::try_from(config.limits.call_octets).unwrap_or(usize::MAX);
        Self {
            credits: Credits::new(&config, posted),
            exchange: Exchange::new(&config),
            parts: Reassembly::new(max_octets),
            outbox: Outbox::default(),
            requester: Requester::default(),
            responder: Responder::default(),
            silence: Silence::default(),
            extension_sent: VecDeque::new(),
            unsupported: BTreeSet::new(),
            owes_grant: false,
            negotiated: false,
            again: false,
            starving: Starving::No,
            actions: VecDeque::new(),
            closing: false,
            discarded: 0,
            config,
        }
    }

    /// The client's first message.
    pub fn start(&mut self, now: Timestamp, host: &mut dyn Host) {
        if !self.exchange.has_xid() {
            self.exchange.set_xid(host.next_xid());
            self.pump(now, host);
        }
    }

    /// The XID of the messages with our properties, the first of which is the probe.
    pub fn exchange_xid(&self) -> u32 {
        self.exchange.xid()
    }

    /// What holds now.
    pub fn link(&self) -> Link {
        self.exchange.link(&self.config)
    }

    /// Numbers of the moment.
    pub fn stats(&self) -> Stats {
        Stats {
            receives: self.credits.posted(),
            granted: u32::try_from(self.credits.own()).unwrap_or(u32::MAX),
            unanswered: self.requester.unanswered(),
            queued: self.requester.table.queued(),
            exposed: self.requester.table.exposed(),
            executing: self.responder.requests.len() + self.outbox.answers(),
            discarded: self.discarded,
        }
    }

    /// The next thing to do.
    pub fn poll(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// Starts a call of ours. It is sent as soon as the exchange is over and a credit is free. `repeatable` says that it may
    /// be executed twice, and so be sent again when its reply did not fit.
    ///
    /// # Errors
    /// If the XID is in use, or this end does not call. That no message can carry it shows later, as
    /// [`Action::Fail`].
    #[allow(clippy::too_many_arguments, reason = "a call has these parts")]
    pub fn call(
        &mut self,
        call: CallId,
        xid: u32,
        message: Payload,
        reply_max: usize,
        items: &[usize],
        repeatable: bool,
        now: Timestamp,
        host: &mut dyn Host,
    ) -> Result<(), CallRefused> {
        self.requester.call(call, xid, message, reply_max, items, repeatable, &self.config)?;
        self.pump(now, host);
        Ok(())
    }

    /// As [`Connection::cancel`](crate::Connection::cancel).
    pub fn cancel(&mut self, call: CallId) {
        self.requester.table.cancel(call, &mut self.actions);
    }

    /// As [`Connection::forget`](crate::Connection::forget).
    pub fn forget(&mut self, call: CallId, now: Timestamp) {
        self.requester.table.forget(call, now, &mut self.actions);
    }

    /// Sends a message of an extension's, when a credit is there.
    ///
    /// # Errors
    /// If the peer does not know its header type, it fits no message, or too many wait.
    pub fn send_extension(
        &mut self,
        xid: u32,
        response: bool,
        body: OtherBody,
        now: Timestamp,
        host: &mut dyn Host,
    ) -> Result<(), ExtensionRefused> {
        let header_type = body.header_type();
        if self.unsupported.contains(&header_type) {
            return Err(ExtensionRefused::Unsupported { header_type });
        }
        let (len, max) = (PREFIX_OCTETS + body.octets().len(), self.link().send_inline);
        if len > max {
            return Err(ExtensionRefused::TooLarge { len, max });
        }
        if self.outbox.controls.len() >= MAX_WAITING_ERRORS {
            return Err(ExtensionRefused::Busy);
        }
        if !response {
            if self.extension_sent.len() == MAX_WAITING_ERRORS {
                self.extension_sent.pop_front();
            }
            self.extension_sent.push_back((xid, header_type));
        }
        self.outbox.controls.push_back(Control::Other { xid, response, body });
        self.pump(now, host);
        Ok(())
    }

    /// A Send of the peer has arrived.
    pub fn received(&mut self, message: &Bytes, now: Timestamp, host: &mut dyn Host) {
        self.credits.consumed();
        if self.closing {
            return;
        }
        if !self.exchange.has_xid() {
            self.exchange.set_xid(host.next_xid());
        }
        self.exchange.begin(now);
        // A call keeps its credit until it is answered.
        if !self.take(message) {
            self.credits.released();
        }
        if self.outbox.controls.len() > MAX_WAITING_ERRORS {
            self.close(CloseCause::Peer(PeerFault::AnswersNotTaken));
        }
        self.heed_verdict();
        self.silence.heard(now, self.requester.unanswered() > 0);
        self.pump(now, host);
        self.credits.settle(&mut self.actions);
    }

    /// Handles a message. Returns whether it is a call that was taken.
    fn take(&mut self, message: &Bytes) -> bool {
        let Ok(prefix) = Prefix::decode(message) else {
            self.discarded += 1;
            return false;
        };
        let bare_grant = is_bare_grant(&prefix, message);
        if prefix.version == VERSION {
            if !self.credits.heard(prefix.credits, bare_grant) {
                self.close(CloseCause::Peer(PeerFault::CreditsOverrun));
                return false;
            }
            let rpc = matches!(HeaderType::from_code(prefix.header_type), Some(HeaderType::Msg | HeaderType::Nomsg));
            if rpc && !bare_grant && self.config.side == Side::Server && self.exchange.is_unheard() {
                // It does without the exchange, and so do we: its one credit may be for our reply.
                self.exchange.skip();
            }
        }
        let can_continue = HeaderType::from_code(prefix.header_type).is_some_and(HeaderType::can_continue);
        if can_continue && self.parts.passes_over(&prefix) {
            self.discarded += 1;
            self.owes_grant |= self.credits.peer_is_short();
            return false;
        }
        let extension = self.config.extension.clone();
        let none = NoExtensions;
        let extensions: &dyn Extensions = match &extension {
            Some(extension) => &**extension,
            None => &none,
        };
        let role = match self.config.side {
            Side::Client => Role::Requester,
            Side::Server => Role::Responder,
        };
        let taken = match judge(&Receiver { role, extensions, place: self.parts.place(&prefix) }, message) {
            Judgement::Accept { header, payload_offset } => {
                let payload = message.slice(payload_offset.min(message.len())..);
                self.accepted(&prefix, header, payload)
            }
            Judgement::Discard { why, .. } => {
                self.discarded += 1;
                if why != Discard::Version {
                    self.dropped(&prefix);
                }
                false
            }
            Judgement::Reply { xid, version, error, .. } => {
                self.outbox.error(xid, version, error);
                if prefix.version == VERSION {
                    self.dropped(&prefix);
                }
                false
            }
        };
        // A call is answered, and that grants; a grant is not answered with another.
        self.owes_grant |= !taken && !bare_grant && self.credits.peer_is_short();
        taken
    }

    /// A message was dropped for what is wrong with it alone.
    fn dropped(&mut self, prefix: &Prefix) {
        let header_type = HeaderType::from_code(prefix.header_type);
        if header_type.is_some_and(HeaderType::can_continue) {
            let was_part = prefix.flags.more || self.parts.place(prefix) != Place::First;
            self.parts.breaks(prefix);
            if was_part && prefix.flags.response {
                self.requester.spoiled(prefix.xid, PeerFault::BrokenSequence, &mut self.actions);
            }
        }
        // Nothing of it counts, but its end is an end (V2-7.2.2-c).
        if header_type == Some(HeaderType::Connprop) && !prefix.flags.more && self.exchange.may_hear() {
            self.exchange.heard_set(prefix.flags.tpmore);
        }
    }

    fn accepted(&mut self, prefix: &Prefix, header: Header, payload: Bytes) -> bool {
        let xid = header.xid;
        let trusted = !matches!(self.exchange.verdict(), host_auth::Verdict::Pending | host_auth::Verdict::Rejected);
        match header.body {
            Body::Nomsg(chunks) if chunks.is_empty() => false,
            // Nothing of an RPC goes up before it is known who sends it.
            Body::Msg(_) | Body::Nomsg(_) if !trusted => {
                self.discarded += 1;
                if !header.flags.response {
                    self.outbox.error(xid, VERSION, ErrorBody::System);
                }
                false
            }
            Body::Nomsg(_) if self.parts.is_open() => {
                self.parts.breaks(prefix);
                self.broken(prefix);
                false
            }
            Body::Nomsg(chunks) if header.flags.response => {
                let known = self.requester.replied(xid, &chunks.lists, None, &mut self.actions);
                self.discarded += u64::from(!known);
                false
            }
            Body::Nomsg(chunks) => self.responder.received(xid, chunks, None, &mut serving!(self)),
            Body::Msg(chunks) => {
                if header.flags.more && !self.takes_parts(prefix) {
                    return false;
                }
                let Some(stream) = self.part(prefix, payload) else { return false };
                if header.flags.response {
                    let known = self.requester.replied(xid, &chunks.lists, Some(stream), &mut self.actions);
                    self.discarded += u64::from(!known);
                    return false;
                }
                self.responder.received(xid, chunks, Some(stream), &mut serving!(self))
            }
            Body::Connprop(set) => {
                if self.part(prefix, Bytes::new()).is_some() {
                    self.properties(prefix, &set);
                }
                false
            }
            Body::ConnpropPiece(octets) => {
                if let Some(octets) = self.part(prefix, octets) {
                    self.joined_properties(prefix, &octets);
                }
                false
            }
            Body::Error(error) => {
                self.error(xid, error);
                false
            }
            Body::Other(body) => {
                // The body shares the receive buffer.
                let octets = Bytes::copy_from_slice(body.octets());
                if let Some(body) = OtherBody::new(body.header_type(), octets) {
                    let response = header.flags.response;
                    self.actions.push_back(Action::Extension(Received::Message { xid, response, body }));
                }
                false
            }
            _ => false,
        }
    }

    /// Whether the first part of a message may be taken: a client that has announced Simple Format takes none.
    fn takes_parts(&mut self, prefix: &Prefix) -> bool {
        let simple = self.config.side == Side::Client && reverse_of(&self.config) == ReverseSupport::Simple;
        if simple && !prefix.flags.response {
            self.parts.breaks(prefix);
            self.broken(prefix);
        }
        !simple || prefix.flags.response
    }

    /// A message that may be one of several. Returns the payload when it is complete.
    fn part(&mut self, prefix: &Prefix, payload: Bytes) -> Option<Bytes> {
        match self.parts.part(prefix, payload) {
            Step::Whole(octets) => return Some(octets),
            Step::Waits => {}
            Step::Broken => self.broken(prefix),
            Step::TooLong => {
                self.discarded += 1;
                if prefix.flags.response {
                    self.requester.spoiled(prefix.xid, PeerFault::TooLong, &mut self.actions);
                } else {
                    self.outbox.error(prefix.xid, VERSION, ErrorBody::System);
                }
            }
        }
        None
    }

    /// A sequence is broken by this message.
    fn broken(&mut self, prefix: &Prefix) {
        self.discarded += 1;
        if prefix.flags.response {
            self.requester.spoiled(prefix.xid, PeerFault::BrokenSequence, &mut self.actions);
        } else {
            self.outbox.error(prefix.xid, VERSION, ErrorBody::InvalidContinuation);
        }
    }

    /// Properties that came in pieces, which the wire has not judged.
    fn joined_properties(&mut self, prefix: &Prefix, octets: &Bytes) {
        let set = PropertySet::decode(octets).map(|(set, _)| set);
        let fits = |set: &PropertySet| self.config.extension.as_ref().is_none_or(|extension| set.fits(&**extension));
        let error = match set {
            Ok(set) if fits(&set) => return self.properties(prefix, &set),
            Err(error) if !error.is_value() => ErrorBody::BadXdr,
            _ => ErrorBody::BadPropertyValue,
        };
        self.outbox.error(prefix.xid, VERSION, error);
        if self.exchange.may_hear() {
            self.exchange.heard_set(prefix.flags.tpmore);
        }
    }

    fn properties(&mut self, prefix: &Prefix, set: &PropertySet) {
        if !self.exchange.may_hear() {
            self.outbox.error(prefix.xid, VERSION, ErrorBody::InvalidHeaderType);
            return;
        }
        self.exchange.hear(set, prefix.flags.tpmore);
        if prefix.flags.tpmore {
            // Whoever has one credit and more to say waits for this (V2-6.2.2.3-g).
            self.owes_grant = true;
        }
        if let Some(extension) = &self.config.extension {
            for other in set.others().filter(|other| knows(&**extension, other)) {
                let data = Bytes::copy_from_slice(other.data());
                let copy = rpcrdma_wire::v2::OtherProperty::new(other.code(), data);
                self.actions.extend(copy.map(|other| Action::Extension(Received::Property(other))));
            }
        }
    }

    /// What the peer says about a message of ours.
    fn error(&mut self, xid: u32, error: ErrorBody) {
        if self.requester.refused(xid, error, &self.config, &mut self.actions) {
            return;
        }
        if let Some(at) = self.extension_sent.iter().position(|(of, _)| *of == xid) {
            let sent = self.extension_sent.remove(at);
            if let (ErrorBody::InvalidHeaderType, Some((_, header_type))) = (error, sent)
                && self.unsupported.len() < MAX_UNSUPPORTED
            {
                self.unsupported.insert(header_type);
            }
            self.actions.push_back(Action::Extension(Received::Error { xid, error }));
            return;
        }
        // About our properties, or about nothing: there is nothing to be done.
        self.discarded += u64::from(!self.exchange.is_about(xid));
    }

    /// As [`Connection::fenced`](crate::Connection::fenced). A call that is to be sent again waits for
    /// [`wake`](Self::wake), which is due at once then.
    pub fn fenced(&mut self, exposure: ExposureId) {
        let queued = self.requester.table.queued();
        self.requester.fenced(exposure, &mut self.actions);
        self.again |= self.requester.table.queued() > queued;
    }

    /// As [`Connection::pulled`](crate::Connection::pulled).
    pub fn pulled(&mut self, request: RequestId, head: &[u8]) {
        self.responder.pulled(request, head, &mut serving!(self));
        self.pump_answers();
    }

    /// As [`Connection::drained`](crate::Connection::drained).
    pub fn drained(&mut self) {
        self.responder.drained(&mut serving!(self));
    }

    /// As [`Connection::answer`](crate::Connection::answer).
    pub fn answer(&mut self, request: RequestId, answer: Answer) {
        self.responder.answer(request, answer, &mut serving!(self));
        self.pump_answers();
    }

    /// When to call [`wake`](Self::wake) at the latest. At once, if a call is to be sent again.
    pub fn next_wake(&self) -> Option<Timestamp> {
        if self.closing {
            return None;
        }
        if self.again || self.starving == Starving::Begins {
            return Some(Timestamp::from_nanos(0));
        }
        let starved = match self.starving {
            Starving::Since(when) => Some(when + CREDIT_TIMEOUT),
            _ => None,
        };
        let silent = self.silence.next_wake();
        let times = [silent, starved, self.requester.table.next_deadline(), self.exchange.next_wake()];
        times.into_iter().flatten().min()
    }

    /// Time has passed.
    pub fn wake(&mut self, now: Timestamp, host: &mut dyn Host) {
        if self.closing {
            return;
        }
        match self.starving {
            Starving::Begins => self.starving = Starving::Since(now),
            Starving::Since(when) if when + CREDIT_TIMEOUT <= now => {
                self.close(CloseCause::Peer(PeerFault::NoCredits));
            }
            _ => {}
        }
        self.exchange.wake(now);
        self.heed_verdict();
        self.requester.expire(now, &mut self.actions);
        let means = if self.credits.may_send() { Means::Reserve } else { Means::None };
        match self.silence.wake(now, means) {
            Verdict::Wait => {}
            Verdict::Probe => {
                let outgoing = self.requester.probe(host, &mut sending!(self));
                self.outbox.replies.extend(outgoing);
            }
            Verdict::Dead => self.close(CloseCause::Silent),
        }
        self.pump(now, host);
    }

    /// As [`Connection::closed`](crate::Connection::closed).
    pub fn closed(&mut self) -> Vec<CallId> {
        self.closing = true;
        self.responder.requests.closed();
        self.outbox = Outbox::default();
        self.requester.table.unanswered(&mut self.actions)
    }

    fn close(&mut self, cause: CloseCause) {
        if !self.closing {
            self.closing = true;
            self.actions.push_back(Action::Close(cause));
        }
    }

    fn heed_verdict(&mut self) {
        if self.exchange.verdict() == host_auth::Verdict::Rejected {
            self.close(CloseCause::Unauthenticated);
        }
    }

    /// Sends what credits allow, calls included.
    fn pump(&mut self, now: Timestamp, host: &mut dyn Host) {
        self.again = false;
        loop {
            self.pump_answers();
            if self.closing || !self.exchange.is_over() || !self.outbox.is_empty() {
                break;
            }
            let Some(call) = self.requester.start(host, &mut sending!(self)) else { break };
            self.silence.sent(now);
            self.outbox.current = Some(call);
        }
        if self.owes_grant && !self.closing && self.credits.may_grant() {
            self.owes_grant = false;
            let header = Header::grant(self.credits.stamp(&mut self.actions));
            self.send(bare(&header, MessageKind::Grant));
        }
    }

    /// Sends what credits allow and is there already.
    fn pump_answers(&mut self) {
        while !self.closing && self.credits.may_send() {
            let max_gather = self.config.max_gather;
            if let Some(mut current) = self.outbox.current.take() {
                let word = self.credits.stamp(&mut self.actions);
                let (action, last) = current.send(word, max_gather);
                self.outbox.current = (!last).then_some(current);
                self.send(action);
            } else if self.exchange.has_unsent() {
                let word = self.credits.stamp(&mut self.actions);
                if let Some(header) = self.exchange.next(word) {
                    self.send(bare(&header, MessageKind::Properties));
                }
            } else if let Some(error) = self.outbox.controls.pop_front() {
                let word = self.credits.stamp(&mut self.actions);
                self.send(control(error, word));
            } else if let Some(reply) = self.outbox.replies.pop_front() {
                self.outbox.current = Some(reply);
            } else {
                break;
            }
        }
        if self.outbox.is_empty() || self.credits.may_send() {
            self.starving = Starving::No;
        } else if self.starving == Starving::No {
            self.starving = Starving::Begins;
        }
        self.settled();
    }

    fn send(&mut self, action: Action) {
        self.owes_grant = false;
        if let Action::Send { signaled: true, .. } = action {
            self.responder.requests.undrained += 1;
            let most = self.credits.own() + self.credits.peer() + MAX_WAITING_ERRORS;
            if self.responder.requests.undrained > most {
                return self.close(CloseCause::Peer(PeerFault::AnswersNotTaken));
            }
        }
        self.actions.push_back(action);
    }

    /// Says what was agreed, once.
    fn settled(&mut self) {
        if !self.negotiated && self.exchange.is_over() {
            self.negotiated = true;
            let ceiling = |credits: usize| u32::try_from(credits).unwrap_or(u32::MAX);
            self.actions.push_back(Action::Negotiated(Negotiated {
                version: VERSION,
                refused: None,
                link: self.link(),
                credits: ceiling(self.credits.own()),
                peer_credits: ceiling(self.credits.peer()),
                peer: Some(self.exchange.theirs().clone()),
                authenticated: self.exchange.verdict() == host_auth::Verdict::Accepted,
            }));
        }
    }
}

/// Whether a message grants and does nothing else, whatever its XID.
fn is_bare_grant(prefix: &Prefix, message: &[u8]) -> bool {
    prefix.header_type == HeaderType::Nomsg.code()
        && message
            .get(NO_CHUNKS_OCTETS - 12..NO_CHUNKS_OCTETS)
            .is_some_and(|lists| lists.iter().all(|&octet| octet == 0))
}
