//! A client's context: its sequence numbers and its end.
//!
//! Each transmission of a call has a number of its own. A server silently drops numbers below its window. So no new
//! call gets a number that is a window's length or more above the number of an unanswered call, which may still be on
//! its way. New calls wait until that call is answered.

use super::super::{
    MAX_SEQUENCE, Peer, Protection,
    credential::{GssCredential, Procedure, sign},
};
use crate::{
    CallId, ClientTransport, ContextError, MISMATCH_BYTES, OpaqueAuth, PendingCall, REPLY_HEADER_BYTES, ReplyShape,
    Request, gss::GssService,
};
use bytes::Bytes;
use rpcrdma_env::Timestamp;
use rpcrdma_xdr::Encoder;
use std::{
    collections::BTreeSet,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};
use tokio::sync::Notify;

/// How long before the end of a context the client makes a new one. If a context lasts less than four times as long,
/// the client makes a new one when a quarter of its time is left.
const REFRESH: Duration = Duration::from_secs(60);
/// From this number on the client makes a new context: the remaining numbers are for calls that are sent again.
const ENOUGH_SEQUENCES: u32 = MAX_SEQUENCE - (1 << 20);

/// What a context is made of.
pub(super) struct Made {
    pub(super) handle: Bytes,
    pub(super) window: u32,
    /// The initiator, which is this end.
    pub(super) peer: Peer,
    pub(super) protection: Box<dyn Protection>,
    /// The transport over which it was made, for the message that destroys it.
    pub(super) transport: Weak<dyn ClientTransport>,
    pub(super) program: (u32, u32),
}

/// A context that the server has, too.
pub(in crate::gss) struct Context {
    handle: Bytes,
    window: u32,
    principal: Arc<str>,
    acceptor: Arc<str>,
    until: Option<Timestamp>,
    transport: Weak<dyn ClientTransport>,
    program: (u32, u32),
    live: Mutex<Live>,
    /// Notifies waiting calls that a number has become free.
    room: Notify,
}

/// A context, as its client knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AboutContext {
    /// The principal that calls, `user@REALM`.
    pub principal: Arc<str>,
    /// The service that the server has proven to be, `nfs/host@REALM`.
    pub acceptor: Arc<str>,
    /// For how long it is still good; `None` if for ever.
    pub left: Option<Duration>,
    /// How many calls may be under way in it at a time.
    pub window: u32,
}

/// The state that calls change.
pub(in crate::gss) struct Live {
    pub(in crate::gss) protection: Box<dyn Protection>,
    next: u32,
    /// The last number of each call that is not answered.
    pending: BTreeSet<u32>,
    /// How many calls wait for a number.
    waiting: usize,
    refresh: Option<Timestamp>,
    /// The server has lost it.
    is_lost: bool,
}

/// A number that a call has, until it is dropped.
pub(super) struct Place {
    pub(super) context: Arc<Context>,
    number: u32,
}

impl Context {
    pub(super) fn new(made: Made, now: Timestamp) -> Self {
        let Made { handle, window, peer, protection, transport, program } = made;
        let Peer { principal, acceptor, lifetime, .. } = peer;
        let refresh = lifetime.map(|lifetime| now + lifetime.saturating_sub(REFRESH.min(lifetime / 4)));
        let live = Live { protection, next: 1, pending: BTreeSet::new(), waiting: 0, refresh, is_lost: false };
        let (until, live) = (lifetime.map(|lifetime| now + lifetime), Mutex::new(live));
        Self { handle, window, principal, acceptor, until, transport, program, live, room: Notify::new() }
    }

    pub(super) fn principal(&self) -> &Arc<str> {
        &self.principal
    }

    /// The service that it was made with.
    pub(in crate::gss) fn acceptor(&self) -> &Arc<str> {
        &self.acceptor
    }

    /// The server's handle of it.
    pub(in crate::gss) fn handle(&self) -> &Bytes {
        &self.handle
    }

    pub(in crate::gss) fn window(&self) -> u32 {
        self.window
    }

    pub(in crate::gss) fn is_over(&self, now: Timestamp) -> bool {
        self.until.is_some_and(|until| now >= until)
    }

    /// What it is, for people who ask.
    pub(super) fn about(&self, now: Timestamp) -> AboutContext {
        let (principal, acceptor) = (self.principal.clone(), self.acceptor.clone());
        let left = self.until.map(|until| until.since(now));
        AboutContext { principal, acceptor, left, window: self.window }
    }

    pub(in crate::gss) fn live(&self) -> MutexGuard<'_, Live> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether it can sign another call, and the client need not make a new one yet.
    pub(super) fn is_fresh(&self, now: Timestamp) -> bool {
        let live = self.live();
        !live.is_lost && live.next < ENOUGH_SEQUENCES && live.refresh.is_none_or(|refresh| now < refresh)
    }

    /// Delays the making of a new context to half of the time that is left. False if this one cannot be used any more.
    pub(super) fn postpone(&self, now: Timestamp) -> bool {
        let mut live = self.live();
        let left = self.until.map(|until| until.since(now));
        live.refresh = left.map(|left| now + left / 2);
        !live.is_lost && live.next < ENOUGH_SEQUENCES && left.is_none_or(|left| left > Duration::from_secs(1))
    }

    /// Notes that the server does not have it any more.
    pub(super) fn lost(&self) {
        self.live().is_lost = true;
    }

    /// A number for a call, if it need not wait for one.
    // GSS-2203-5.3.3.1-g
    pub(super) fn try_place(self: &Arc<Self>) -> Option<Place> {
        let mut live = self.live();
        let number = if live.waiting == 0 { live.take(self.window) } else { None };
        drop(live);
        number.map(|number| Place { context: self.clone(), number })
    }

    /// Waits for a number for a call.
    pub(super) async fn place(self: &Arc<Self>) -> Place {
        let _waiting = Waiting::begin(self);
        loop {
            let number = self.live().take(self.window);
            if let Some(number) = number {
                // There may be room for the next waiting call, too.
                self.room.notify_one();
                return Place { context: self.clone(), number };
            }
            self.room.notified().await;
        }
    }

    /// The credential of a message in it.
    pub(super) fn credential(&self, procedure: Procedure, sequence: u32, service: GssService) -> OpaqueAuth {
        let handle = self.handle.clone();
        GssCredential { procedure, sequence, service: Some(service), handle }.write()
    }

    /// Sends the message that destroys the context at the server, if the transport exists and the server still has the
    /// context. The body is empty, and only the verifier signs the message, because servers disagree about more.
    /// GSS-2203-5.4-a.
    pub(super) fn destroy(&self) -> Option<PendingCall> {
        let transport = self.transport.upgrade()?;
        let mut live = self.live();
        if std::mem::replace(&mut live.is_lost, true) {
            return None;
        }
        let (program, version) = self.program;
        let id = CallId { xid: transport.next_xid(), program, version, procedure: 0 };
        let number = live.number()?;
        let credential = self.credential(Procedure::Destroy, number, GssService::Authentication);
        let header = sign(&mut *live.protection, id, credential).ok()?;
        drop(live);
        let mut encoder = Encoder::new();
        header.encode(&mut encoder);
        let reply = ReplyShape::inline(REPLY_HEADER_BYTES + crate::MAX_AUTH_BODY_BYTES + MISMATCH_BYTES);
        let (message, repeatable, anew) = (encoder.finish(), false, None);
        Some(transport.call(Request { xid: id.xid, message, reply, repeatable, anew }))
    }
}

impl Live {
    /// The next number, if the window lets a new call have it.
    fn take(&mut self, window: u32) -> Option<u32> {
        let oldest = self.pending.first().copied().unwrap_or(self.next);
        if self.next.saturating_sub(oldest) >= window {
            return None;
        }
        let number = self.number()?;
        self.pending.insert(number);
        Some(number)
    }

    /// The next number, or `None` if all are used.
    fn number(&mut self) -> Option<u32> {
        let number = Some(self.next).filter(|next| *next < MAX_SEQUENCE)?;
        self.next += 1;
        Some(number)
    }
}

impl Place {
    /// The number of the present transmission.
    pub(super) fn number(&self) -> u32 {
        self.number
    }

    /// A number for another transmission. It does not wait: repeated calls have the highest numbers, in their order,
    /// and are not more than the window had room for.
    ///
    /// # Errors
    /// If the context has no number left.
    pub(super) fn renew(&mut self, live: &mut Live) -> Result<u32, ContextError> {
        let number = live.number().ok_or_else(|| ContextError::new("the context has used all its sequence numbers"))?;
        live.pending.remove(&self.number);
        live.pending.insert(number);
        self.number = number;
        Ok(number)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.context.live().pending.remove(&self.number);
        self.context.room.notify_one();
    }
}

impl Drop for Context {
    /// Tells the server that it need not keep the context until it expires. Nothing waits for the reply.
    fn drop(&mut self) {
        drop(self.destroy());
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Context({})", self.principal)
    }
}

/// Counts a call that waits for a number.
struct Waiting<'a>(&'a Context);

impl<'a> Waiting<'a> {
    fn begin(context: &'a Context) -> Self {
        context.live().waiting += 1;
        Self(context)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.live().waiting -= 1;
    }
}
