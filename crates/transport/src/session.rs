//! Joins one engine to one queue pair.
//!
//! Owns the queue pair, and with it everything that is exposed or posted. Carries out the engine's actions in their
//! order, and reports the queue pair's completions to it. Ends when the queue pair has closed; a queue pair that does
//! not close in time is dropped. By then, lent memory is back in the table of calls, or lost with the queue pair.

mod act;
mod extension;
mod inbox;
mod lender;
mod timer;
mod untaken;

use crate::{
    CLOSE_TIMEOUT, ConnectionError, Event, Observer, Stall,
    calls::{Calls, xid_of},
    extension::Port,
    parts::{PartsMemory, Reserved},
    service::{Ready, Service},
};
use bytes::Bytes;
use foldhash::HashMap;
use inbox::Inbox;
use lender::Lender;
use rpcrdma_engine::{Answer, CallId, Config, Endpoint, ExposureId, Negotiated, PrivateData, RequestId, Sink};
use rpcrdma_env::{Allocator, BoxFuture, Env, Timestamp};
use rpcrdma_fabric::{CloseReason, Completion, FenceCause, Lent, QueuePair, ReadWork, Token, WorkError, WorkKind};
use rpcrdma_oncrpc::overlap::Portion;
use std::{
    collections::VecDeque,
    net::SocketAddr,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};
use timer::Timer;
use untaken::Untaken;

/// If so many bytes of answers wait until the peer takes them, no further call is executed. Its answer would wait
/// behind these anyway, and with this limit the memory of results stays within a processor's cache. Larger answers go
/// one at a time.
const UNTAKEN_BYTES: usize = 1 << 20;

/// The most completions whose work is done together: each step for all of them takes less time than all steps for each.
const GATHERED_COMPLETIONS: usize = 16;

/// Completions that one poll handles before it lets other connections run.
const COMPLETIONS_PER_POLL: usize = 256;

pub(crate) struct Session {
    qp: Box<dyn QueuePair>,
    engine: Endpoint,
    exposures: HashMap<ExposureId, Option<Sink>>,
    receives: Arc<dyn Allocator>,
    receive_bytes: usize,
    env: Env,
    /// The time that counts until the end of the poll that is under way or comes next, once something has asked for it.
    moment: Option<Timestamp>,
    observer: Arc<dyn Observer>,
    peer: SocketAddr,
    timer: Option<(Timestamp, BoxFuture<'static, ()>)>,
    /// Work whose completion depends on the peer, and the time since when none of it has completed.
    owed: usize,
    owed_since: Timestamp,
    stall: Duration,
    untaken: Untaken,
    /// Callers that have got their reply, and have not run since.
    told: Portion,
    /// The time at which the queue pair is dropped if it has not closed.
    closing: Option<Timestamp>,
    /// Set if the queue pair refuses memory because the connection is closed: the time at which it is dropped if the
    /// end does not follow.
    refused: Option<Timestamp>,
    error: Option<ConnectionError>,
    inbox: Inbox,
    /// Messages that the engine has not seen yet.
    arrived: VecDeque<Bytes>,
    parts: PartsMemory,
    /// Executes the peer's calls, if this end serves any.
    service: Option<Service>,
    /// Leads to the embedder that knows the extension of version 2.
    port: Option<Port>,
    /// Whether the engine has accepted a message of the peer.
    pub(crate) understood: bool,
    /// Whether the peer has answered a call of ours.
    pub(crate) replied: bool,
    /// What has come since the owner last took this.
    pub(crate) heard: Heard,
    discarded: u64,
    /// When the connection was established.
    pub(crate) started: Timestamp,
    /// What both ends have agreed on.
    pub(crate) negotiated: Option<Negotiated>,
    /// The session uses version 1 only because the client assumes that the server has no other. If the server denies
    /// version 1, the session ends, and its calls go to the next one.
    pub(crate) believes: bool,
}

/// How many messages have come from the peer.
#[derive(Debug, Default)]
pub(crate) struct Heard {
    /// All messages.
    pub(crate) messages: usize,
    /// Those that answered a probe.
    pub(crate) alive: usize,
}

/// The parts from which a session is made.
pub(crate) struct Parts {
    pub(crate) qp: Box<dyn QueuePair>,
    pub(crate) config: Config,
    pub(crate) receives: Arc<dyn Allocator>,
    /// The budget for calls' arguments, if there is one.
    pub(crate) arguments: Option<Arc<dyn Allocator>>,
    pub(crate) env: Env,
    pub(crate) observer: Arc<dyn Observer>,
    pub(crate) stall: Duration,
    /// Executes the peer's calls, if this end serves any.
    pub(crate) service: Option<Service>,
    /// Leads to the embedder that knows the extension of version 2.
    pub(crate) port: Option<Port>,
}

/// How many completions are gathered while so many calls of ours are under way: no more than half of their replies
/// ([`Portion`]).
fn most_gathered(calls: usize) -> usize {
    if calls == 0 { GATHERED_COMPLETIONS } else { (calls / 2).clamp(1, GATHERED_COMPLETIONS) }
}

impl Session {
    pub(crate) fn new(parts: Parts) -> Self {
        let Parts { qp, mut config, receives, arguments, env, observer, stall, service, port } = parts;
        let parts = PartsMemory::new(arguments, &config);
        let info = qp.info().clone();
        if info.ord == 0 {
            // We cannot read this peer's memory, so we announce that we accept no Read chunks (V2-7.3.1-b).
            config.limits.read_chunks = 0;
        }
        let started = env.clock.now();
        let receive_bytes = config.receive_bytes as usize;
        // The peer's announcement counts only if the peer also got ours: otherwise it assumes that we announced
        // nothing, and uses the smallest sizes, while we would expect larger ones.
        let heard = config.private_data().to_octets().len() <= qp.capabilities().max_private_data;
        let peer = PrivateData::find(&info.private_data).filter(|_| heard);
        let engine = Endpoint::new(config, peer.as_ref());
        let link = engine.link();
        observer.event(
            info.peer,
            &Event::Connected {
                send_inline: link.send_inline,
                receive_inline: link.receive_inline,
                send_invalidates: link.send_invalidates,
                ord: info.ord,
                ird: info.ird,
            },
        );
        Self {
            qp,
            engine,
            exposures: HashMap::default(),
            receives,
            receive_bytes,
            owed_since: started,
            env,
            moment: None,
            observer,
            peer: info.peer,
            timer: None,
            owed: 0,
            stall,
            untaken: Untaken::default(),
            told: Portion::default(),
            closing: None,
            refused: None,
            error: None,
            inbox: Inbox::default(),
            arrived: VecDeque::new(),
            parts,
            service,
            port,
            understood: false,
            replied: false,
            heard: Heard::default(),
            discarded: 0,
            started,
            negotiated: None,
            believes: false,
        }
    }

    /// Sends a client's first message, if it must send one before any call.
    pub(crate) fn start(&mut self, calls: &mut Calls) {
        let now = self.env.clock.now();
        let (engine, mut host) = self.host(calls);
        engine.start(now, &mut host);
    }

    /// The time. A poll looks at the clock once, though it handles many messages: looks for each of them were a
    /// thirtieth of a small call.
    fn now(&mut self) -> Timestamp {
        *self.moment.get_or_insert_with(|| self.env.clock.now())
    }

    /// Whether the server's version is not known yet.
    pub(crate) fn is_probing(&self) -> bool {
        self.engine.is_probing()
    }

    /// The time at which we close the connection if the peer sends nothing, if it is already known.
    pub(crate) fn gives_up_at(&self) -> Option<Timestamp> {
        self.engine.gives_up_at()
    }

    /// Makes a call that is in the table.
    pub(crate) fn call(&mut self, id: CallId, calls: &mut Calls) {
        let Some(wanted) = calls.wanted(id) else { return };
        let now = self.now();
        let (engine, mut host) = self.host(calls);
        let made = engine.call(wanted, now, &mut host);
        if let Err(refused) = made {
            self.tell(calls.fail(id, refused.into()));
        } else if self.engine.stats().queued > 0 {
            self.observer.event(self.peer, &Event::Stalled(Stall::Credits));
        }
    }

    /// Cancels a call: takes its memory back.
    pub(crate) fn cancel(&mut self, id: CallId) {
        self.engine.cancel(id, xid_of(id));
    }

    /// Forgets a call, and leaves its memory lent.
    pub(crate) fn forget(&mut self, id: CallId) {
        self.engine.forget(id, xid_of(id), self.env.clock.now());
    }

    /// Executes no further call of the peer.
    pub(crate) fn drain(&mut self) {
        if let Some(service) = &mut self.service {
            service.drain();
        }
    }

    /// What outlives the session, after its end: the service, which may still execute calls, and the port.
    pub(crate) fn give_back(&mut self) -> (Option<Service>, Option<Port>) {
        (self.service.take(), self.port.take())
    }

    /// Whether all calls of the peer are answered, and the peer has taken all answers.
    pub(crate) fn is_quiet(&self) -> bool {
        self.engine.stats().executing == 0 && self.owed == 0
    }

    /// Whether the end has begun.
    pub(crate) fn is_closing(&self) -> bool {
        self.closing.is_some()
    }

    /// Ends the connection, in an orderly manner if the peer lets it.
    pub(crate) fn close(&mut self, error: Option<ConnectionError>) {
        if self.closing.is_none() {
            self.closing = Some(self.env.clock.now() + CLOSE_TIMEOUT);
            self.error = error;
            self.qp.disconnect();
        }
    }

    /// Unanswered calls of ours whose callers still wait, in the order in which to send them again. Call it after the
    /// session's end.
    pub(crate) fn unanswered(&mut self, calls: &mut Calls) -> Vec<CallId> {
        // A queue pair that was dropped has fenced everything. Memory lent for results is lost with it: if a call has
        // its reply and waits only for that memory, there is nothing to give to its caller, so it is sent again like
        // calls without a reply.
        let read = self.exposures.drain().filter(|(_, sink)| sink.is_none()).map(|(exposure, _)| exposure);
        let mut left: Vec<ExposureId> = read.collect();
        left.sort();
        for exposure in left {
            self.engine.fenced(exposure);
        }
        let unanswered = self.engine.closed();
        while let Some(action) = self.engine.poll() {
            self.report(action, calls);
        }
        unanswered
    }

    /// Works until nothing is left to do. Ready when the connection is over.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>, calls: &mut Calls) -> Poll<Result<(), ConnectionError>> {
        let polled = self.run(cx, calls);
        self.moment = None;
        polled
    }

    fn run(&mut self, cx: &mut Context<'_>, calls: &mut Calls) -> Poll<Result<(), ConnectionError>> {
        let mut handled = 0;
        // Completions since `work`, whose work waits until it can be done together.
        let mut gathered = 0;
        let mut idle = false;
        loop {
            let waits = 0 < gathered && gathered < most_gathered(calls.len()) && self.qp.has_completion();
            if !std::mem::take(&mut idle) && !waits {
                self.work(cx, calls);
                gathered = 0;
            }
            if self.told.is_complete(self.told.messages() + calls.len()) {
                // Meanwhile the callers that got replies call again, and the peer can begin with these calls.
                self.told = Portion::default();
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            if let Poll::Ready(completion) = self.qp.poll(cx) {
                let is_sent = matches!(completion, Completion::Done { kind: WorkKind::Send, .. });
                let is_message = matches!(completion, Completion::Received { .. });
                if gathered > 0 && !is_sent && !is_message {
                    // What has come before the end of the connection, or of an exposure, is handled before it.
                    self.work(cx, calls);
                    gathered = 0;
                }
                if let Completion::Closed { reason } = completion {
                    return Poll::Ready(self.over(reason));
                }
                self.completed(completion, calls);
                handled += 1;
                gathered += 1;
                if handled == COMPLETIONS_PER_POLL {
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
                idle = is_sent && self.is_idle();
                continue;
            }
            match self.poll_timer(cx, calls) {
                Timer::Set => return Poll::Pending,
                Timer::Fired => {}
                Timer::Abandon => {
                    return Poll::Ready(self.over(CloseReason::Local));
                }
            }
        }
    }

    /// Does the work that does not need the queue pair. Calls that are answered at once have their answers posted
    /// together, before the queue pair sends them.
    fn work(&mut self, cx: &mut Context<'_>, calls: &mut Calls) {
        loop {
            self.hear(cx, calls);
            while let Some(service) = self.service.as_mut().filter(|service| service.may_be_ready())
                && let Some(ready) = service.poll(cx)
            {
                self.ready(ready);
            }
            self.act(calls);
            self.execute(cx);
            let extended = self.extend(cx, calls);
            if self.arrived.is_empty() && !self.engine.holds_parts() {
                self.parts.release();
            }
            if !extended && !self.service.as_ref().is_some_and(Service::has_ready) && !self.may_execute() {
                return;
            }
        }
    }

    /// Whether an answer that the peer has taken leaves nothing to do: half of a server's completions are of this kind.
    ///
    /// Such an answer gives the engine actions, or lets a call run, and nothing else. Whatever else there was to do is
    /// done: each poll begins with [`work`](Self::work), and every other completion is followed by it.
    fn is_idle(&self) -> bool {
        !self.engine.has_action() && !self.may_execute() && self.arrived.is_empty() && self.port.is_none()
    }

    fn over(&mut self, reason: CloseReason) -> Result<(), ConnectionError> {
        self.parts.release();
        if let Some(service) = &mut self.service {
            service.gone();
        }
        let error = self.error.take().or(match reason {
            CloseReason::Local | CloseReason::Remote => None,
            reason => Some(ConnectionError::Fabric(reason)),
        });
        self.observer.event(self.peer, &Event::Closed { error: error.clone() });
        error.map_or(Ok(()), Err)
    }

    /// Handles what the service has ready.
    fn ready(&mut self, ready: Ready) {
        match ready {
            Ready::Answer(request, answer) => self.engine.answer(request, answer),
            Ready::Buffer { request, sink, sources } => {
                match self.qp.post_read(ReadWork { token: Token(request.0), sink, sources }) {
                    Ok(()) => self.owe(),
                    // The peer allows no RDMA Reads, or the connection has just ended.
                    Err(_) => self.not_pulled(request, false),
                }
            }
            // Such a peer would not take part in an orderly end.
            Ready::Overdue(after) => {
                self.error = Some(ConnectionError::Stalled { after });
                self.closing = Some(self.env.clock.now());
            }
        }
    }

    /// Refuses a call whose chunks cannot be fetched; `denied` means that the peer has not let us read its memory.
    fn not_pulled(&mut self, request: RequestId, denied: bool) {
        if let Some(service) = &mut self.service {
            service.not_pulled(request, denied);
        }
        self.engine.answer(request, Answer::Unreadable);
    }

    fn owe(&mut self) {
        if self.owed == 0 {
            self.owed_since = self.now();
        }
        self.owed += 1;
    }

    fn paid(&mut self) {
        self.owed = self.owed.saturating_sub(1);
        self.owed_since = self.now();
    }

    fn completed(&mut self, completion: Completion, calls: &mut Calls) {
        match completion {
            Completion::Received { buffer, .. } => {
                let message = self.inbox.take(buffer);
                self.observer.event(self.peer, &Event::Received { octets: message.len() });
                self.arrived.push_back(message);
            }
            Completion::Done { kind: WorkKind::Send, .. } => {
                self.paid();
                self.untaken.sent();
                self.engine.drained();
                if self.engine.stats().queued > 0 {
                    let now = self.now();
                    let (engine, mut host) = self.host(calls);
                    engine.resume(now, &mut host);
                }
            }
            Completion::Read { token, sink } => {
                self.paid();
                let octets = sink.freeze();
                let request = RequestId(token.0);
                let is_call = self.engine.pulled(request, &octets);
                if let Some(service) = &mut self.service {
                    service.pulled(request, octets, is_call);
                }
            }
            Completion::Fenced { token, handle, memory, cause } => {
                let exposure = ExposureId(token.0);
                if let (Some(Some(sink)), Lent::Sink(buffer)) = (self.exposures.remove(&exposure), memory) {
                    calls.restore(sink.call, sink.place, buffer);
                }
                self.observer.event(self.peer, &Event::Invalidated { handle, by_peer: cause == FenceCause::Remote });
                self.engine.fenced(exposure);
            }
            Completion::Failed { token, kind, error, .. } => match kind {
                WorkKind::Write if error == WorkError::RemoteAccess => {
                    if let (Ok(xid), Some(service)) = (u32::try_from(token.0), &mut self.service) {
                        service.not_writable(xid);
                    }
                }
                WorkKind::Read if error != WorkError::Flushed => {
                    self.paid();
                    self.not_pulled(RequestId(token.0), error == WorkError::RemoteAccess);
                }
                // The connection's end follows.
                _ => {}
            },
            _ => {}
        }
    }

    /// Passes arrived messages to the engine, in order. A message in parts waits for memory before it begins, and
    /// everything behind it waits as well: their receives are not replaced, so that no more can come than was granted.
    fn hear(&mut self, cx: &mut Context<'_>, calls: &mut Calls) {
        while let Some(message) = self.arrived.front() {
            if self.closing.is_none() && self.engine.begins_parts(message) {
                match self.parts.poll(cx) {
                    Reserved::Yes => {}
                    Reserved::Begins => return self.observer.event(self.peer, &Event::Stalled(Stall::Memory)),
                    Reserved::Waits => return,
                }
            }
            let Some(message) = self.arrived.pop_front() else { return };
            self.heard.messages += 1;
            let now = self.now();
            let (engine, mut host) = self.host(calls);
            engine.received(message, now, &mut host);
            let discarded = self.engine.stats().discarded;
            if discarded > self.discarded {
                self.discarded = discarded;
                self.observer.event(self.peer, &Event::Discarded { total: discarded });
            } else {
                self.understood = true;
            }
        }
    }

    fn host<'a>(&'a mut self, calls: &'a mut Calls) -> (&'a mut Endpoint, Lender<'a>) {
        (
            &mut self.engine,
            Lender {
                qp: &mut *self.qp,
                exposures: &mut self.exposures,
                calls,
                clock: &*self.env.clock,
                refused: &mut self.refused,
            },
        )
    }
}
