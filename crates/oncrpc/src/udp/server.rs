//! A server's socket.
//!
//! The driver owns the socket and the calls in flight. A datagram is read into the driver's own memory and looked at
//! there; only a call that passes every limit is copied, and handed on. Calls run concurrently and are answered in the
//! order in which they finish. An answer goes to the source of its call, from the address that the call was sent to.
//! Datagrams without an answer are counted by reason: senders of datagrams expect that some get lost, and send again.

use super::{
    CALLS_BY_SOURCE_PER_SECOND, DATAGRAMS_A_TURN, Datagrams, Local, MAX_AMPLIFICATION, MAX_CALLS, MAX_CALLS_BY_SOURCE,
    MAX_DATAGRAM_BYTES, Received, sources::Sources,
};
use crate::{
    CALL_HEADER_BYTES, CallContext, ClientNetwork, Connection, Gone, GoneSignal, Handler, Limits, Outcome,
    TransportKind, message::Word,
};
use bytes::Bytes;
use futures_util::stream::{FuturesUnordered, StreamExt};
use rpcrdma_env::{Allocator, BoxFuture, Clock, Env};
use rpcrdma_xdr::{Payload, Stream};
use std::{
    future::{Future, poll_fn},
    io,
    net::SocketAddr,
    num::NonZeroU32,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};
use tokio::sync::watch;

/// How long the driver waits before it reads again after reading has failed.
const READ_PAUSE: Duration = Duration::from_millis(100);

/// Limits of a socket.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct ServerOptions {
    /// The largest datagram accepted and sent, in bytes.
    pub max_datagram: usize,
    /// How many calls are executed at a time.
    pub max_calls: usize,
    /// How many of them may be of one source.
    pub max_calls_by_source: usize,
    /// How many calls of one source are taken in a second.
    pub calls_by_source_per_second: NonZeroU32,
    /// How many times as large as its question an answer may be.
    pub max_amplification: usize,
}

impl Default for ServerOptions {
    fn default() -> Self {
        Self {
            max_datagram: MAX_DATAGRAM_BYTES,
            max_calls: MAX_CALLS,
            max_calls_by_source: MAX_CALLS_BY_SOURCE,
            calls_by_source_per_second: NonZeroU32::new(CALLS_BY_SOURCE_PER_SECOND).unwrap_or(NonZeroU32::MIN),
            max_amplification: MAX_AMPLIFICATION,
        }
    }
}

/// What the calls of a socket know about it.
#[derive(Clone)]
pub struct Endpoint {
    /// The address that the socket is bound to.
    pub local: SocketAddr,
    /// Identifies the socket among all connections of the same server.
    pub id: u64,
    /// Where results are kept.
    pub allocator: Arc<dyn Allocator>,
}

/// How many datagrams were dropped, by reason, since the socket is served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Dropped {
    /// They are not calls: too short, or replies, or from an address to which nothing can be sent.
    pub malformed: u64,
    /// They are larger than the socket accepts.
    pub too_large: u64,
    /// They were sent to many receivers.
    pub to_many: u64,
    /// Their source has sent too many in the last second.
    pub too_often: u64,
    /// Too many calls were executed, of their source or in all.
    pub busy: u64,
    /// Their answers would have been too large for their questions.
    pub amplified: u64,
    /// Their answers could not be sent.
    pub unsent: u64,
    /// Reading failed.
    pub unread: u64,
}

impl Dropped {
    /// All reasons by name, with their counts.
    pub fn by_reason(&self) -> [(&'static str, u64); 8] {
        [
            ("malformed", self.malformed),
            ("too_large", self.too_large),
            ("to_many", self.to_many),
            ("too_often", self.too_often),
            ("busy", self.busy),
            ("amplified", self.amplified),
            ("unsent", self.unsent),
            ("unread", self.unread),
        ]
    }
}

/// The counts as driver and handle share them: in the order of [`Dropped::by_reason`], then what was answered.
#[derive(Debug, Default)]
struct Counts([AtomicU64; 9]);

#[derive(Clone, Copy)]
enum Count {
    Malformed,
    TooLarge,
    ToMany,
    TooOften,
    Busy,
    Amplified,
    Unsent,
    Unread,
    Answered,
}

impl Counts {
    fn add(&self, count: Count) {
        self.0[count as usize].fetch_add(1, Ordering::Relaxed);
    }

    fn of(&self, count: Count) -> u64 {
        self.0[count as usize].load(Ordering::Relaxed)
    }
}

/// Controls a socket's driver. Dropping it changes nothing.
#[derive(Clone, Debug)]
pub struct ServerHandle {
    drain: Arc<watch::Sender<bool>>,
    counts: Arc<Counts>,
}

impl ServerHandle {
    /// Reads no further call; calls that were read are executed and answered, then the driver ends.
    pub fn drain(&self) {
        self.drain.send_replace(true);
    }

    /// How many calls were answered.
    pub fn answered(&self) -> u64 {
        self.counts.of(Count::Answered)
    }

    /// How many datagrams were not answered, by reason.
    pub fn dropped(&self) -> Dropped {
        let of = |count| self.counts.of(count);
        Dropped {
            malformed: of(Count::Malformed),
            too_large: of(Count::TooLarge),
            to_many: of(Count::ToMany),
            too_often: of(Count::TooOften),
            busy: of(Count::Busy),
            amplified: of(Count::Amplified),
            unsent: of(Count::Unsent),
            unread: of(Count::Unread),
        }
    }
}

/// Serves a socket: the future completes after a request to drain, when every call has run to its end. Dropping the
/// future closes the socket and drops its calls.
pub fn serve<T: Datagrams>(
    socket: T,
    endpoint: Endpoint,
    handler: Arc<dyn Handler>,
    env: &Env,
    options: ServerOptions,
) -> (ServerHandle, impl Future<Output = ()> + Send + use<T>) {
    let (drain, mut draining) = watch::channel(false);
    let (signal, gone) = GoneSignal::new();
    let counts = Arc::<Counts>::default();
    let sources = Sources::new(options.calls_by_source_per_second, &*env.random);
    let mut driver = Driver {
        socket,
        // One byte more than is accepted shows that a datagram is too large.
        room: vec![0; options.max_datagram.saturating_add(1)],
        sources,
        calls: FuturesUnordered::new(),
        under_way: Vec::with_capacity(options.max_calls),
        pause: None,
        draining: false,
        drain: Box::pin(async move {
            if draining.wait_for(|draining| *draining).await.is_err() {
                // No handle is left that could ask for it.
                std::future::pending::<()>().await;
            }
        }),
        endpoint,
        gone,
        _signal: signal,
        handler,
        clock: env.clock.clone(),
        counts: counts.clone(),
        options,
    };
    (ServerHandle { drain: Arc::new(drain), counts }, poll_fn(move |cx| driver.poll(cx)))
}

/// Where a call came from, and what its answer may be.
#[derive(Clone, Copy)]
struct Question {
    len: usize,
    peer: SocketAddr,
    local: Option<Local>,
    source: ClientNetwork,
}

struct Driver<T> {
    socket: T,
    room: Vec<u8>,
    sources: Sources,
    calls: FuturesUnordered<BoxFuture<'static, (Question, Outcome)>>,
    /// The sources of the calls that are executed.
    under_way: Vec<ClientNetwork>,
    /// Until when the driver waits before it reads again.
    pause: Option<BoxFuture<'static, ()>>,
    draining: bool,
    drain: BoxFuture<'static, ()>,
    endpoint: Endpoint,
    gone: Gone,
    _signal: GoneSignal,
    handler: Arc<dyn Handler>,
    clock: Arc<dyn Clock>,
    counts: Arc<Counts>,
    options: ServerOptions,
}

impl<T: Datagrams> Driver<T> {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if !self.draining && self.drain.as_mut().poll(cx).is_ready() {
            self.draining = true;
        }
        self.poll_calls(cx);
        self.poll_socket(cx);
        // Polls the calls that were just dispatched, so that they wake the driver.
        self.poll_calls(cx);
        if self.draining && self.calls.is_empty() { Poll::Ready(()) } else { Poll::Pending }
    }

    fn poll_calls(&mut self, cx: &mut Context<'_>) {
        while let Poll::Ready(Some((question, outcome))) = self.calls.poll_next_unpin(cx) {
            if let Some(at) = self.under_way.iter().position(|source| *source == question.source) {
                self.under_way.swap_remove(at);
            }
            self.answer(question, outcome);
        }
    }

    fn poll_socket(&mut self, cx: &mut Context<'_>) {
        for _ in 0..DATAGRAMS_A_TURN {
            if self.draining {
                return;
            }
            if let Some(pause) = &mut self.pause {
                if pause.as_mut().poll(cx).is_pending() {
                    return;
                }
                self.pause = None;
            }
            match self.socket.poll_receive(cx, &mut self.room) {
                Poll::Ready(Ok(received)) => self.received(received, cx),
                Poll::Ready(Err(error)) => self.cannot_read(&error),
                Poll::Pending => return,
            }
        }
        // More may have come: the driver goes on after other tasks.
        cx.waker().wake_by_ref();
    }

    fn cannot_read(&mut self, error: &io::Error) {
        // An error about an earlier answer says nothing about the socket.
        let is_of_an_answer = matches!(error.kind(), io::ErrorKind::ConnectionRefused | io::ErrorKind::HostUnreachable);
        self.counts.add(Count::Unread);
        tracing::debug!(%error, local = %self.endpoint.local, "reading a datagram failed");
        if !is_of_an_answer {
            self.pause = Some(self.clock.sleep_until(self.clock.now() + READ_PAUSE));
        }
    }

    /// A datagram has come: it is executed, or dropped and counted. It costs no memory before it passes all limits.
    fn received(&mut self, received: Received, cx: &mut Context<'_>) {
        let question = match self.admit(received) {
            Ok(question) => question,
            Err(reason) => return self.counts.add(reason),
        };
        let message = Bytes::copy_from_slice(self.room.get(..question.len).unwrap_or_default());
        let local = match question.local {
            Some(local) => SocketAddr::new(local.address, self.endpoint.local.port()),
            None => self.endpoint.local,
        };
        let limits = Limits::new(self.options.max_datagram, self.options.max_datagram);
        let Endpoint { id, allocator, .. } = self.endpoint.clone();
        let gone = self.gone.clone();
        let connection = Connection::new(question.peer, local, id, TransportKind::Udp, limits, allocator, gone);
        let mut call = self.handler.handle(CallContext::new(Arc::new(connection)), Stream::from(message));
        // Most calls are answered at once.
        match call.as_mut().poll(cx) {
            Poll::Ready(outcome) => self.answer(question, outcome),
            Poll::Pending => {
                self.under_way.push(question.source);
                self.calls.push(Box::pin(async move { (question, call.await) }));
            }
        }
    }

    /// Whether a datagram is a call that is to be executed, or why it is not.
    fn admit(&mut self, received: Received) -> Result<Question, Count> {
        let Received { len, peer, local } = received;
        if len > self.options.max_datagram {
            return Err(Count::TooLarge);
        }
        let is_call = self.room.get(4..8) == Some(&Word::CALL.to_be_bytes()[..]);
        if len < CALL_HEADER_BYTES || !is_call || peer.port() == 0 || peer.ip().is_unspecified() {
            return Err(Count::Malformed);
        }
        if local.is_some_and(|local| local.to_many) {
            return Err(Count::ToMany);
        }
        let source = ClientNetwork::of(peer.ip());
        if !self.sources.take(source, self.clock.now()) {
            return Err(Count::TooOften);
        }
        let of_source = self.under_way.iter().filter(|other| **other == source).count();
        if self.under_way.len() >= self.options.max_calls || of_source >= self.options.max_calls_by_source {
            return Err(Count::Busy);
        }
        Ok(Question { len, peer, local, source })
    }

    fn answer(&mut self, question: Question, outcome: Outcome) {
        let Some(reply) = outcome.into_reply() else { return };
        // RPC-UDP-b
        let most = question.len.saturating_mul(self.options.max_amplification).min(self.options.max_datagram);
        if reply.len() > most {
            tracing::debug!(peer = %question.peer, octets = reply.len(), most, "an answer is too large");
            return self.counts.add(Count::Amplified);
        }
        let count = match self.send(&reply, question) {
            Ok(()) => Count::Answered,
            Err(error) => {
                tracing::debug!(peer = %question.peer, %error, "an answer cannot be sent");
                Count::Unsent
            }
        };
        self.counts.add(count);
    }

    fn send(&mut self, reply: &Payload, question: Question) -> io::Result<()> {
        // RPC-UDP-a
        self.socket.send(&reply.to_bytes(), question.peer, question.local)
    }
}
