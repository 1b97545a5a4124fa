//! The state machine of one connection of version 1: both halves, and what they share.
//!
//! See the [crate's documentation](crate) for the order in which to call its methods. It owns what its halves own. No
//! input is an error: a mistake of the peer leads to an action, and the connection ignores names that are no longer
//! valid.

use super::{
    ledger::Ledger,
    requester::{Requester, Shared},
    responder::Responder,
};
use crate::{
    Action, Answer, Call, CallId, CallRefused, CloseCause, Config, ExposureId, Host, Link, RequestId, Side, Stats,
    config::MAX_CREDITS,
    silence::{Silence, Verdict},
};
use bytes::{Buf as _, Bytes};
use rpcrdma_env::{Scratch, Timestamp};
use rpcrdma_wire::{
    PrivateData,
    rpc::{Direction, direction},
    v1::{Body, Header, Judgement, NO_CHUNKS_OCTETS, Plain, Role, judge_by},
};
use std::collections::VecDeque;

/// One connection of version 1.
#[derive(Debug)]
pub struct Connection {
    config: Config,
    link: Link,
    ledger: Ledger,
    requester: Requester,
    responder: Responder,
    silence: Silence,
    scratch: Scratch,
    actions: VecDeque<Action>,
    closing: bool,
    discarded: u64,
}

/// Borrows the data that the halves share.
macro_rules! shared {
    ($self:ident) => {
        Shared {
            config: &$self.config,
            link: &$self.link,
            ledger: &mut $self.ledger,
            scratch: &mut $self.scratch,
            actions: &mut $self.actions,
        }
    };
}

impl Connection {
    /// A connection that has just been established. `peer` is the private data of the other end.
    pub fn new(config: Config, peer: Option<&PrivateData>) -> Self {
        // V1-3.3.2-b
        let link = Link::new(&config, peer);
        // A server's first credit is implicit. A client's credits are for the reverse direction, whose peer waits until
        // the upper layer has announced them; receives cover them from the start.
        let granted = match config.side {
            // V1-3.3.3-a, V1-3.3.3-b
            Side::Server => config.credits_granted.min(1),
            // BIDI-8167-4.1-a
            Side::Client => config.credits_granted.min(MAX_CREDITS),
        };
        let mut ledger = Ledger::new(config.initial_receives, granted);
        ledger.settle();
        Self {
            config,
            link,
            ledger,
            requester: Requester::default(),
            responder: Responder::default(),
            silence: Silence::default(),
            scratch: Scratch::default(),
            actions: VecDeque::new(),
            closing: false,
            discarded: 0,
        }
    }

    /// The limits of this connection.
    pub fn link(&self) -> &Link {
        &self.link
    }

    /// Present numbers of the connection.
    #[inline]
    pub fn stats(&self) -> Stats {
        Stats {
            receives: self.ledger.receives.posted(),
            granted: self.ledger.granted(),
            unanswered: self.ledger.unanswered(),
            queued: self.requester.queued(),
            exposed: self.requester.exposed(),
            executing: self.responder.executing(),
            discarded: self.discarded,
        }
    }

    /// The next action. Receives come first: all that are missing with one action.
    // V1-3.3.1-i
    pub fn poll(&mut self) -> Option<Action> {
        match self.ledger.receives.take_asked() {
            Some(count) => Some(Action::PostReceives { count }),
            None => self.actions.pop_front(),
        }
    }

    /// Whether there is a next action.
    pub fn has_action(&self) -> bool {
        self.ledger.receives.asks() || !self.actions.is_empty()
    }

    /// Starts a call of ours. It is sent as soon as a credit is free.
    ///
    /// # Errors
    /// If no message can carry it, or the XID is in use. In that case nothing has changed.
    #[inline]
    pub fn call(&mut self, call: Call, now: Timestamp, host: &mut dyn Host) -> Result<(), CallRefused> {
        let at_once = !self.closing;
        match self.requester.call(call, at_once, host, &mut shared!(self))? {
            true => self.silence.sent(now),
            false => self.send_ready(now, host),
        }
        Ok(())
    }

    /// As [`Endpoint::cancel`](crate::Endpoint::cancel).
    pub fn cancel(&mut self, call: CallId, xid: u32) {
        self.requester.cancel(call, xid, &mut shared!(self));
    }

    /// As [`Endpoint::forget`](crate::Endpoint::forget).
    pub fn forget(&mut self, call: CallId, xid: u32, now: Timestamp) {
        self.requester.forget(call, xid, now, &mut shared!(self));
    }

    /// A Send of the peer has arrived.
    pub fn received(&mut self, mut message: Bytes, now: Timestamp, host: &mut dyn Host) {
        self.ledger.receives.consumed();
        if self.closing {
            return;
        }
        let side = self.config.side;
        let before = self.actions.len();
        if let Some(plain) = Plain::of(&message) {
            // What would follow below as well, in fewer steps: most messages have no chunks.
            message.advance(NO_CHUNKS_OCTETS);
            if role_in(side, &message) == Role::Responder {
                self.responder.received_plain(plain.xid, message, &mut shared!(self));
            } else if !self.requester.received_plain(plain, message, &mut shared!(self)) {
                self.discarded += 1;
            }
            return self.heard(before, now, host);
        }
        match judge_by(|message| role(side, message), &message) {
            Judgement::Accept { header, payload_offset } => {
                message.advance(payload_offset.min(message.len()));
                let stream = message;
                if role(side, Some((&header, &stream))) == Role::Requester {
                    if !self.requester.received(&header, stream, &mut shared!(self)) {
                        self.discarded += 1;
                    }
                } else {
                    self.responder.received(header, stream, &mut shared!(self));
                }
            }
            Judgement::Discard(_) => self.discarded += 1,
            Judgement::Reply { xid, version, error } => self.responder.error(xid, version, error, &mut shared!(self)),
        }
        self.heard(before, now, host);
    }

    /// Goes on after a message of the peer, since which there are the actions behind the first `before`.
    fn heard(&mut self, before: usize, now: Timestamp, host: &mut dyn Host) {
        self.silence.heard(now, self.ledger.unanswered() > 0);
        self.send_ready(now, host);
        self.ledger.settle();
        self.closing = self.closes_since(before);
    }

    /// Whether one of the actions behind the first `before` closes the connection.
    fn closes_since(&self, before: usize) -> bool {
        self.actions.range(before..).any(|action| matches!(action, Action::Close(_)))
    }

    /// As [`Endpoint::fenced`](crate::Endpoint::fenced).
    pub fn fenced(&mut self, exposure: ExposureId) {
        self.requester.fenced(exposure, &mut shared!(self));
    }

    /// As [`Endpoint::pulled`](crate::Endpoint::pulled).
    pub fn pulled(&mut self, request: RequestId, head: &[u8]) -> bool {
        self.responder.pulled(request, head, &mut shared!(self))
    }

    /// As [`Endpoint::drained`](crate::Endpoint::drained).
    pub fn drained(&mut self) {
        self.responder.drained(&mut shared!(self));
    }

    /// Sends calls of ours that waited for our next answer to the peer. Call it after [`answer`](Self::answer).
    pub fn resume(&mut self, now: Timestamp, host: &mut dyn Host) {
        if self.requester.queued() > 0 {
            self.send_ready(now, host);
        }
    }

    /// As [`Endpoint::answer`](crate::Endpoint::answer).
    pub fn answer(&mut self, request: RequestId, answer: Answer) {
        let before = self.actions.len();
        self.responder.answer(request, answer, &mut shared!(self));
        self.closing |= self.closes_since(before);
    }

    /// The latest time at which to call [`wake`](Self::wake).
    pub fn next_wake(&self) -> Option<Timestamp> {
        if self.closing {
            return None;
        }
        [self.silence.next_wake(), self.requester.next_deadline()].into_iter().flatten().min()
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
        self.requester.expire(now, &mut shared!(self));
        let shared = &mut shared!(self);
        match self.silence.wake(now, self.requester.means(shared)) {
            Verdict::Wait => {}
            Verdict::Probe => self.requester.probe(host, shared),
            Verdict::Dead => {
                self.actions.push_back(Action::Close(CloseCause::Silent));
                self.closing = true;
            }
        }
    }

    /// As [`Endpoint::closed`](crate::Endpoint::closed).
    pub fn closed(&mut self) -> Vec<CallId> {
        self.closing = true;
        self.responder.closed();
        self.requester.unanswered(&mut shared!(self))
    }

    fn send_ready(&mut self, now: Timestamp, host: &mut dyn Host) {
        if !self.closing && self.requester.send_ready(host, &mut shared!(self)) {
            self.silence.sent(now);
        }
    }
}

/// The half for which a message is (RFC 8167 section 4.1). A message that does not show it is for the half that this
/// end has in the forward direction.
// BIDI-8167-2.4.1-a, V1-2.2.2-a
fn role(side: Side, message: Option<(&Header, &[u8])>) -> Role {
    let Some((header, stream)) = message else { return forward(side) };
    match &header.body {
        Body::Msg(_) => role_in(side, stream),
        // A Reply chunk alone does not show the direction. We are a server, and servers offer none in the reverse
        // direction, so this is a long call without its Position Zero chunk, and gets an ERR_CHUNK.
        Body::Nomsg(lists) if !lists.reads.is_empty() => Role::Responder,
        Body::Error(_) => Role::Requester,
        _ => forward(side),
    }
}

/// The half for which a message with this stream is.
// BIDI-8167-2.4.1-a
fn role_in(side: Side, stream: &[u8]) -> Role {
    match direction(stream) {
        Some(Direction::Call) => Role::Responder,
        Some(Direction::Reply) => Role::Requester,
        None => forward(side),
    }
}

/// The half that this end has in the forward direction.
fn forward(side: Side) -> Role {
    match side {
        Side::Client => Role::Requester,
        Side::Server => Role::Responder,
    }
}
