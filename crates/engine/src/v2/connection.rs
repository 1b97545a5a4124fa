//! The state machine of one connection of version 2: both halves, the exchange of properties, and the order in which
//! messages are sent.
//!
//! Call its methods like those of [`Endpoint`](crate::Endpoint). It owns what its parts own. No input is an error: a
//! mistake of the peer leads to an action, and the connection ignores names that are no longer valid.
//!
//! When a credit is free, messages go in this order: the rest of a message under way, properties, errors, replies,
//! calls. A grant is sent alone only if the peer may have run out of credits and no other message can carry it.

use super::{
    ErrorBody, ExtensionRefused, MAX_WAITING_MESSAGES, OtherBody,
    credits::Credits,
    exchange::Exchange,
    outbox::{Control, MAX_WAITING_ERRORS, Outbox, Outgoing, bare, control},
    requester::{Begun, Requester, Sending},
    responder::{Responder, Serving},
    sequence::Reassembly,
};
use crate::{
    Action, Answer, Call, CallId, CallRefused, CloseCause, Config, ExposureId, Host, Link, MessageKind, Negotiated,
    PeerFault, RequestId, Stats, host_auth,
    silence::{Means, Silence, Verdict},
};
use bytes::Bytes;
use rpcrdma_env::{Scratch, Timestamp};
use rpcrdma_wire::v2::{Header, PREFIX_OCTETS, Prefix, VERSION};
use std::{
    collections::{BTreeSet, VecDeque},
    time::Duration,
};

/// How long we wait if the peer grants no credits for answers, which hold memory, or for calls while none is under way.
/// Then we close the connection.
pub const CREDIT_TIMEOUT: Duration = Duration::from_secs(30);

/// How long the parts of one message may take before we close the connection. They hold memory, and the longest message
/// that we join comes in this time at 140 kB/s. Other peers may wait for that memory, and meanwhile their calls get no
/// answer: the memory must be free before they take the server for dead.
pub const SEQUENCE_TIMEOUT: Duration = Duration::from_secs(30);
const _: () = assert!(SEQUENCE_TIMEOUT.as_secs() < crate::SILENCE_LIMIT.as_secs() + crate::PROBE_TIMEOUT.as_secs());

/// Whether messages wait for credits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Starving {
    No,
    /// From now on: the next wake sets the time.
    Begins,
    Since(Timestamp),
}

/// The smallest Sends and Receives of this version, in bytes: what a peer may assume until we announce other sizes
/// (draft section 4.2.2).
// V2-4.2.2-c, V2-5.2.2-d
pub const MIN_BYTES: u32 = 4096;

/// One connection of version 2.
#[derive(Debug)]
pub struct Connection {
    config: Config,
    credits: Credits,
    exchange: Exchange,
    parts: Reassembly,
    outbox: Outbox,
    requester: Requester,
    // V2-3.1.3.3-a
    responder: Responder,
    silence: Silence,
    /// Messages of an extension that the peer may answer with an error: XID and header type.
    extension_sent: VecDeque<(u32, u32)>,
    unsupported: BTreeSet<u32>,
    /// Whether the peer may be waiting for credits.
    owes_grant: bool,
    /// Whether the present message is a grant and nothing else.
    only_grants: bool,
    negotiated: bool,
    /// Whether a refused call can be sent again.
    again: bool,
    starving: Starving,
    /// The time since when a message in parts is under way.
    sequence_since: Option<Timestamp>,
    /// Whether that time starts again, because until now the peer had no credit to continue.
    resumes: bool,
    /// Receives of parts that we promise again when calls that came in parts have been answered.
    deferred: usize,
    /// Memory for headers.
    scratch: Scratch,
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
            at_once: false,
            scratch: &mut $self.scratch,
            actions: &mut $self.actions,
        }
    };
}

macro_rules! sending {
    ($self:ident) => {
        Sending {
            config: &$self.config,
            theirs: $self.exchange.theirs(),
            credits: &mut $self.credits,
            link: $self.exchange.link(&$self.config),
            scratch: &mut $self.scratch,
            actions: &mut $self.actions,
        }
    };
}

mod incoming;

impl Connection {
    /// A connection on which no message of version 2 has been sent or received, with `posted` receives of at least
    /// [`MIN_BYTES`]. The client then calls [`start`](Self::start).
    pub fn new(config: Config, posted: usize) -> Self {
        let (send_bytes, receive_bytes) = (config.send_bytes.max(MIN_BYTES), config.receive_bytes.max(MIN_BYTES));
        let config = Config { send_bytes, receive_bytes, ..config };
        let max_bytes = usize::try_from(config.limits.call_bytes).unwrap_or(usize::MAX);
        Self {
            credits: Credits::new(&config, posted),
            exchange: Exchange::new(&config),
            parts: Reassembly::new(max_bytes, usize::try_from(config.receive_bytes).unwrap_or(usize::MAX)),
            outbox: Outbox::default(),
            requester: Requester::default(),
            responder: Responder::default(),
            silence: Silence::default(),
            extension_sent: VecDeque::new(),
            unsupported: BTreeSet::new(),
            owes_grant: false,
            only_grants: false,
            negotiated: false,
            again: false,
            starving: Starving::No,
            sequence_since: None,
            resumes: false,
            deferred: 0,
            scratch: Scratch::default(),
            actions: VecDeque::new(),
            closing: false,
            discarded: 0,
            config,
        }
    }

    /// Sends the client's first message.
    // V2-4.2.3-a, V2-4.2.3-b
    pub fn start(&mut self, now: Timestamp, host: &mut dyn Host) {
        if !self.exchange.has_xid() {
            self.exchange.set_xid(host.next_xid());
            self.pump(now, host);
        }
    }

    /// The XID of our property messages, the first of which is the probe.
    pub fn exchange_xid(&self) -> u32 {
        self.exchange.xid()
    }

    /// The present limits of this connection.
    pub fn link(&self) -> Link {
        self.exchange.link(&self.config)
    }

    /// Present numbers of the connection.
    #[inline]
    pub fn stats(&self) -> Stats {
        Stats {
            receives: self.credits.receives.posted(),
            granted: u32::try_from(self.credits.own()).unwrap_or(u32::MAX),
            unanswered: self.requester.unanswered(),
            queued: self.requester.table.queued(),
            exposed: self.requester.table.exposed(),
            executing: self.responder.requests.len() + self.outbox.answers(),
            discarded: self.discarded,
        }
    }

    /// The next action. Receives come first: all that are missing with one action.
    // V2-3.2.2.3-a
    pub fn poll(&mut self) -> Option<Action> {
        match self.credits.receives.take_asked() {
            Some(count) => Some(Action::PostReceives { count }),
            None => self.actions.pop_front(),
        }
    }

    /// Whether there is a next action.
    pub fn has_action(&self) -> bool {
        self.credits.receives.asks() || !self.actions.is_empty()
    }

    /// Starts a call of ours. It is sent as soon as the exchange is over and a credit is free.
    ///
    /// # Errors
    /// If the XID is in use, or this end makes no calls. If no message can carry the call, [`Action::Fail`] reports
    /// that later.
    pub fn call(&mut self, call: Call, now: Timestamp, host: &mut dyn Host) -> Result<(), CallRefused> {
        self.requester.call(call, &self.config)?;
        self.pump(now, host);
        Ok(())
    }

    /// As [`Endpoint::cancel`](crate::Endpoint::cancel).
    pub fn cancel(&mut self, call: CallId, xid: u32) {
        self.requester.table.cancel(call, xid, &mut self.actions);
    }

    /// As [`Endpoint::forget`](crate::Endpoint::forget).
    pub fn forget(&mut self, call: CallId, xid: u32, now: Timestamp) {
        self.requester.table.forget(call, xid, now, &mut self.actions);
    }

    /// Sends a message of an extension when a credit is free.
    ///
    /// # Errors
    /// If the peer does not know its header type, it does not fit into a Send, or too many messages wait.
    pub fn send_extension(
        &mut self,
        xid: u32,
        response: bool,
        body: OtherBody,
        now: Timestamp,
        host: &mut dyn Host,
    ) -> Result<(), ExtensionRefused> {
        let header_type = body.header_type();
        // V2-7.1.2-c, V2-7.1.2-e
        if self.unsupported.contains(&header_type) {
            return Err(ExtensionRefused::Unsupported { header_type });
        }
        let (len, max) = (PREFIX_OCTETS + body.octets().len(), self.link().send_inline);
        if len > max {
            return Err(ExtensionRefused::TooLarge { len, max });
        }
        if !self.extension_room() {
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

    /// Whether another message of an extension may wait for credits.
    pub fn extension_room(&self) -> bool {
        let controls = &self.outbox.controls;
        controls.len() < MAX_WAITING_MESSAGES || controls.len() - self.waiting_errors() < MAX_WAITING_MESSAGES
    }

    fn waiting_errors(&self) -> usize {
        self.outbox.controls.iter().filter(|control| matches!(control, Control::Error { .. })).count()
    }

    /// Answers a message of an extension for which this end has no room.
    pub fn refuse_extension(&mut self, xid: u32, now: Timestamp, host: &mut dyn Host) {
        self.outbox.error(xid, VERSION, ErrorBody::System);
        self.pump(now, host);
    }

    /// A Send of the peer has arrived.
    pub fn received(&mut self, message: Bytes, now: Timestamp, host: &mut dyn Host) {
        self.credits.consumed();
        if self.closing {
            return;
        }
        if !self.exchange.has_xid() {
            self.exchange.set_xid(host.next_xid());
        }
        self.exchange.begin(now);
        // A call keeps its credit until it is answered; any other message gives it back.
        if !self.take(message) {
            if self.parts.is_open() && self.is_full() {
                // No separate grant either: each would be a loan.
                self.deferred += 1;
                self.owes_grant = false;
            } else {
                self.credits.released();
                self.owes_grant |= self.only_grants && self.credits.peer_is_stuck();
            }
        }
        self.sequence_since = if self.parts.is_open() { self.sequence_since.or(Some(now)) } else { None };
        // Messages that this end sends on its own initiative are not the peer's fault.
        if self.outbox.controls.len() > MAX_WAITING_ERRORS && self.waiting_errors() > MAX_WAITING_ERRORS {
            self.close(CloseCause::Peer(PeerFault::AnswersNotTaken));
        }
        self.heed_verdict();
        self.silence.heard(now, self.requester.unanswered() > 0);
        self.pump(now, host);
        self.credits.settle();
    }

    /// The time at which a message in parts has taken too long. Time in which we grant nothing for its parts does not
    /// count.
    fn unfinished_at(&self) -> Option<Timestamp> {
        self.sequence_since.filter(|_| self.deferred == 0 && !self.resumes).map(|since| since + SEQUENCE_TIMEOUT)
    }

    /// Whether to stop granting credits for parts: unanswered calls that came in parts hold more than half of
    /// [`Limits::call_bytes`](crate::Limits::call_bytes). With its remaining credits, the peer can send only a little
    /// more.
    fn is_full(&self) -> bool {
        u64::try_from(self.responder.joined_bytes()).unwrap_or(u64::MAX) > self.config.limits.call_bytes / 2
    }

    /// Whether this message would begin a message in parts. Parts are joined in memory that is separate from the
    /// receives: at most one and a half times [`Limits::call_bytes`](crate::Limits::call_bytes), and the parts under
    /// way.
    pub fn begins_parts(&self, message: &[u8]) -> bool {
        !self.parts.is_open() && begins_parts(message)
    }

    /// Whether messages in parts, complete or not, hold memory.
    pub fn holds_parts(&self) -> bool {
        self.parts.is_open() || self.responder.joined_bytes() > 0
    }

    /// As [`Endpoint::fenced`](crate::Endpoint::fenced). A call that is to be sent again waits for
    /// [`wake`](Self::wake), which is then due at once.
    pub fn fenced(&mut self, exposure: ExposureId) {
        let queued = self.requester.table.queued();
        self.requester.fenced(exposure, &mut self.actions);
        self.again |= self.requester.table.queued() > queued;
    }

    /// As [`Endpoint::pulled`](crate::Endpoint::pulled).
    pub fn pulled(&mut self, request: RequestId, head: &[u8]) -> bool {
        let is_delivered = self.responder.pulled(request, head, &mut serving!(self));
        self.pump_answers();
        is_delivered
    }

    /// As [`Endpoint::drained`](crate::Endpoint::drained).
    pub fn drained(&mut self) {
        self.responder.drained(&mut serving!(self));
    }

    /// As [`Endpoint::answer`](crate::Endpoint::answer).
    pub fn answer(&mut self, request: RequestId, answer: Answer) {
        let silent = matches!(answer, Answer::Nothing);
        // Credits that come free below go with the reply, too.
        let at_once = self.credits.may_send() && !self.closing && self.deferred == 0 && self.takes_another();
        // Where a credit is left, all that waited was sent with the input before.
        debug_assert!(!at_once || self.outbox.is_empty() && !self.exchange.has_unsent());
        let is_sent = self.responder.answer(request, answer, &mut Serving { at_once, ..serving!(self) });
        let deferred = if self.is_full() { 0 } else { std::mem::take(&mut self.deferred) };
        // Now the peer can continue: the next wake sets its time.
        self.resumes |= deferred > 0 && self.sequence_since.is_some();
        for _ in 0..deferred {
            self.credits.released();
        }
        // Perhaps no reply will grant the credits that are free again.
        self.owes_grant |= (silent || deferred > 0) && self.credits.peer_is_short();
        if is_sent {
            self.owes_grant = false;
            self.responder.requests.undrained += 1;
        }
        self.pump_answers();
    }

    /// The latest time at which to call [`wake`](Self::wake). At once, if a call is to be sent again.
    pub fn next_wake(&self) -> Option<Timestamp> {
        if self.closing {
            return None;
        }
        let grants = self.owes_grant && self.credits.may_grant();
        if self.again || self.resumes || self.starving == Starving::Begins || grants {
            return Some(Timestamp::from_nanos(0));
        }
        let starved = match self.starving {
            Starving::Since(when) => Some(when + CREDIT_TIMEOUT),
            _ => None,
        };
        let silent = self.silence.next_wake();
        let joining = self.unfinished_at();
        let times = [silent, starved, joining, self.requester.table.next_deadline(), self.exchange.next_wake()];
        times.into_iter().flatten().min()
    }

    /// The time at which we close the connection if nothing comes from the peer, if it is already known.
    pub fn gives_up_at(&self) -> Option<Timestamp> {
        self.silence.gives_up_at()
    }

    /// Does what is due at this time.
    pub fn wake(&mut self, now: Timestamp, host: &mut dyn Host) {
        if self.closing {
            return;
        }
        // The call that waited may have been taken back.
        self.note_starving();
        match self.starving {
            Starving::Begins => self.starving = Starving::Since(now),
            Starving::Since(when) if when + CREDIT_TIMEOUT <= now => {
                self.close(CloseCause::Peer(PeerFault::NoCredits));
            }
            _ => {}
        }
        if std::mem::take(&mut self.resumes) {
            self.sequence_since = self.sequence_since.map(|_| now);
        }
        if self.unfinished_at().is_some_and(|when| when <= now) {
            self.close(CloseCause::Peer(PeerFault::Unfinished));
        }
        self.exchange.wake(now);
        self.heed_verdict();
        self.requester.expire(now, &mut self.actions);
        let means = if self.credits.may_send() { Means::Reserve } else { Means::without_credit(self.config.side) };
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

    /// As [`Endpoint::closed`](crate::Endpoint::closed).
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

    /// Sends all that waits, calls included, as credits allow.
    fn pump(&mut self, now: Timestamp, host: &mut dyn Host) {
        self.again = false;
        loop {
            self.pump_answers();
            match self.start_calls(now, host) {
                Some(call) => self.advance(*call),
                None => break,
            }
        }
        if self.owes_grant && !self.closing && self.credits.may_grant() {
            self.owes_grant = false;
            // V2-4.2.1.2-a, V2-6.2.2.2-k
            let header = Header::grant(self.credits.stamp());
            self.send(bare(&header, MessageKind::Grant));
        }
    }

    /// Starts calls that wait, as many as one Send each takes. Returns the first that goes in parts, or waits.
    // V2-6.2.2.3-e, V2-4.5.3-c
    fn start_calls(&mut self, now: Timestamp, host: &mut dyn Host) -> Option<Box<Outgoing>> {
        while self.requester.table.queued() > 0 && !self.closing && self.exchange.is_over() && self.outbox.is_empty() {
            let call = self.requester.start(host, &mut sending!(self))?;
            self.silence.sent(now);
            match call {
                Begun::Sent => self.owes_grant = false,
                Begun::Waits(call) => return Some(call),
            }
        }
        None
    }

    /// Sends all that waits, except new calls, as credits allow.
    // V2-4.2.1.1-e
    fn pump_answers(&mut self) {
        let idle = self.outbox.is_empty() && self.requester.table.queued() == 0;
        if idle && self.negotiated && !self.exchange.has_unsent() {
            // Nothing is left to send or to report.
            self.starving = Starving::No;
            return;
        }
        while !self.closing && self.credits.may_send() {
            // V2-4.1-e, V2-6.2.2.2-j, V2-4.1-i
            if let Some(current) = self.outbox.take_current() {
                self.advance(current);
            } else if self.exchange.has_unsent() {
                let word = self.credits.stamp();
                if let Some(header) = self.exchange.next(word) {
                    self.send(bare(&header, MessageKind::Properties));
                }
            } else if let Some(error) = self.outbox.controls.pop_front() {
                let word = self.credits.stamp();
                self.send(control(error, word));
            } else if let Some(reply) = self.outbox.replies.pop_front() {
                self.advance(reply);
            } else {
                break;
            }
        }
        self.note_starving();
        self.settled();
    }

    /// Notes whether messages wait for credits. Calls of ours count as waiting only if none is under way: its answer
    /// would grant credits.
    fn note_starving(&mut self) {
        let calls = self.exchange.is_over() && self.requester.table.queued() > 0 && self.requester.unanswered() == 0;
        if (self.outbox.is_empty() && !calls) || self.credits.may_send() {
            self.starving = Starving::No;
        } else if self.starving == Starving::No {
            self.starving = Starving::Begins;
        }
    }

    /// Sends the next part of a message. If more follow, the message is the next that goes.
    fn advance(&mut self, mut message: Outgoing) {
        let word = self.credits.stamp();
        let (action, last) = message.send(word, self.config.max_gather, &mut self.scratch);
        if !last {
            self.outbox.current = Some(message);
        } else if !message.is_reply() {
            self.requester.sent(message.xid(), self.credits.granted());
        }
        self.send(action);
    }

    /// Whether the peer has taken so many answers that another may be sent.
    fn takes_another(&self) -> bool {
        self.responder.requests.undrained < self.credits.own() + self.credits.peer() + MAX_WAITING_ERRORS
    }

    fn send(&mut self, action: Action) {
        self.owes_grant = false;
        if let Action::Send { signaled: true, .. } = action {
            if !self.takes_another() {
                return self.close(CloseCause::Peer(PeerFault::AnswersNotTaken));
            }
            self.responder.requests.undrained += 1;
        }
        self.actions.push_back(action);
    }

    /// Reports once what both ends have agreed on.
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

/// Whether a message announces that more parts follow.
pub(crate) fn begins_parts(message: &[u8]) -> bool {
    Prefix::decode(message).is_ok_and(|prefix| prefix.is_continued())
}
