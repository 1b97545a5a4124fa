//! A server's connection.
//!
//! The driver owns the stream, the calls in flight and the replies not yet written. Calls run concurrently and are
//! answered in the order in which they finish. Calls of the server's own go out over the same stream, and their replies
//! come in between the client's calls. When the connection ends, calls that were dispatched run to their end before the
//! driver does; their replies go nowhere but the duplicate request cache. A peer's mistakes end its own connection and
//! nothing else.

use super::{
    Io, MAX_RECORD_BYTES, RecordError,
    record::{RecordReader, RecordWriter},
    reverse::Reverse,
};
use crate::{
    Begun, CallContext, Connection, GoneSignal, Handler, Limits, Outcome, TransportKind,
    overlap::Portion,
    peek::{Direction, peek_direction},
};
use futures_util::stream::{FuturesUnordered, StreamExt};
use rpcrdma_env::{Allocator, BoxFuture, BusyPoll, Clock};
use rpcrdma_xdr::Stream;
use std::{
    collections::VecDeque,
    future::{Future, poll_fn},
    io,
    net::SocketAddr,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};
use tokio::sync::watch;

/// While fewer calls than this are under way elsewhere, more may begin [elsewhere](CallContext::is_followed): one works
/// while the result of another waits to be sent.
const MOST_ELSEWHERE: usize = 2;

/// Limits of a connection.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct ServerOptions {
    /// The largest record accepted, in bytes.
    pub max_record: usize,
    /// The most calls that are executed at a time; meanwhile no more are read. While the server waits for a reply of
    /// the client, it reads and holds as many again, so that it finds the reply behind them.
    pub max_calls: usize,
    /// The most calls of the server to the client that are under way over its connection. With zero it makes none.
    pub reverse_calls: usize,
    /// How long the client may take for the answer to one of them. The connection stays: the call fails, and its reply
    /// is dropped if it comes.
    pub reverse_deadline: Duration,
    /// How long the peer may take for a whole record, and how long it may leave replies unread without enough progress,
    /// before the server drops it. The server notices within twice this time.
    pub stall: Duration,
    /// When the server looks for the next call again and again before its thread sleeps.
    pub busy_poll: BusyPoll,
}

impl Default for ServerOptions {
    /// Records of 1 MiB of data, 64 calls (as many as Linux clients send by default), none in the reverse direction, 60
    /// s.
    fn default() -> Self {
        Self {
            max_record: MAX_RECORD_BYTES,
            max_calls: 64,
            reverse_calls: 0,
            reverse_deadline: Duration::from_secs(60),
            stall: Duration::from_secs(60),
            busy_poll: BusyPoll::default(),
        }
    }
}

/// What the calls of a connection know about it.
#[derive(Clone)]
pub struct Endpoint {
    /// The client's address.
    pub peer: SocketAddr,
    /// The address that the client connected to.
    pub local: SocketAddr,
    /// Identifies the connection among all of the same server.
    pub id: u64,
    /// Where received messages and results are kept.
    pub allocator: Arc<dyn Allocator>,
}

/// Why a connection ended.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectionError {
    /// What the peer sent cannot be read further.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// Writing failed.
    #[error("writing failed")]
    Write(#[source] Arc<io::Error>),
    /// The peer left a record half sent or replies unread for too long.
    #[error("the peer made no progress for {} seconds", after.as_secs())]
    Stalled {
        /// The time without progress.
        after: Duration,
    },
    /// A caller has given up the peer, for this reason.
    #[error("{0}")]
    GivenUp(&'static str),
}

impl ConnectionError {
    /// Whether TCP has given up the peer.
    fn is_time_out(&self) -> bool {
        match self {
            ConnectionError::Record(RecordError::Io(error)) | ConnectionError::Write(error) => {
                error.kind() == io::ErrorKind::TimedOut
            }
            _ => false,
        }
    }
}

/// Controls a connection's driver. Dropping it changes nothing.
#[derive(Clone, Debug)]
pub struct ConnectionHandle {
    drain: Arc<watch::Sender<bool>>,
    stray: Arc<AtomicU64>,
}

impl ConnectionHandle {
    /// Reads no further call; calls that were read are executed and answered, then the connection is closed.
    pub fn drain(&self) {
        self.drain.send_replace(true);
    }

    /// How many replies have come that answered no call of the server: late ones, and unsolicited ones.
    pub fn stray_replies(&self) -> u64 {
        self.stray.load(Ordering::Relaxed)
    }
}

/// Serves a connection: the future completes when the connection has ended and every call that was dispatched has
/// run to its end. Dropping the future closes the connection and drops its calls.
pub fn serve<T: Io>(
    io: T,
    endpoint: Endpoint,
    handler: Arc<dyn Handler>,
    clock: Arc<dyn Clock>,
    options: ServerOptions,
) -> (ConnectionHandle, impl Future<Output = Result<(), ConnectionError>> + Send) {
    let (drain, mut draining) = watch::channel(false);
    let (signal, gone) = GoneSignal::new();
    let Endpoint { peer, local, id, allocator } = endpoint;
    let limits = Limits::new(options.max_record, options.max_record);
    let reader = RecordReader::new(allocator.clone(), options.max_record, options.busy_poll, clock.clone());
    let mut connection = Connection::new(peer, local, id, TransportKind::Tcp, limits, allocator, gone);
    let stray = Arc::<AtomicU64>::default();
    let reverse = (options.reverse_calls > 0).then(|| {
        let bounds = (options.reverse_calls, options.reverse_deadline);
        let (reverse, transport) = Reverse::new((peer, id), options.max_record, bounds, &*clock, stray.clone());
        connection.reverse = Some(transport);
        reverse
    });
    let mut driver = Driver {
        io,
        reader,
        writer: RecordWriter::default(),
        unsent: Portion::default(),
        calls: FuturesUnordered::new(),
        held: VecDeque::new(),
        reverse,
        stray: stray.clone(),
        reading: true,
        draining: false,
        ended: None,
        drain: Box::pin(async move {
            if draining.wait_for(|draining| *draining).await.is_err() {
                // No handle is left that could ask for it.
                std::future::pending::<()>().await;
            }
        }),
        context: CallContext::new(Arc::new(connection)),
        signal: Some(signal),
        handler,
        sending: Watch::default(),
        taking: Watch::default(),
        clock,
        options,
    };
    (ConnectionHandle { drain: Arc::new(drain), stray }, poll_fn(move |cx| driver.poll(cx)))
}

struct Driver<T> {
    io: T,
    reader: RecordReader,
    writer: RecordWriter,
    /// Replies that have not been handed to the stream.
    unsent: Portion,
    calls: FuturesUnordered<BoxFuture<'static, Outcome>>,
    /// Calls that were read in search of a reply. They are executed when others have ended.
    held: VecDeque<Stream>,
    /// Our calls to the peer, while they can be made.
    reverse: Option<Reverse>,
    /// Replies that answered no call.
    stray: Arc<AtomicU64>,
    /// Whether more may come.
    reading: bool,
    /// Whether calls that come are dropped.
    draining: bool,
    /// Why nothing can be written any more.
    ended: Option<ConnectionError>,
    drain: BoxFuture<'static, ()>,
    context: CallContext,
    signal: Option<GoneSignal>,
    handler: Arc<dyn Handler>,
    /// Watch whether the rest of a record comes, and whether the peer takes replies.
    sending: Watch,
    taking: Watch,
    clock: Arc<dyn Clock>,
    options: ServerOptions,
}

impl<T: Io> Driver<T> {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ConnectionError>> {
        if !self.draining && self.drain.as_mut().poll(cx).is_ready() {
            self.draining = true;
        }
        loop {
            while let Poll::Ready(Some(outcome)) = self.calls.poll_next_unpin(cx) {
                self.answer(outcome);
            }
            while self.may_execute()
                && let Some(call) = self.held.pop_front()
            {
                self.dispatch(call, cx);
            }
            if let Some(reverse) = &mut self.reverse {
                reverse.poll(cx, &*self.clock, &mut self.writer);
            }
            let mut read_all = false;
            if self.may_read() {
                match self.reader.poll_record(&mut self.io, cx, self.writer.queued()) {
                    Poll::Ready(Ok(Some(message))) => {
                        self.received(message, cx);
                        if !self.unsent.is_complete(self.reader.together()) {
                            continue;
                        }
                    }
                    Poll::Ready(Ok(None)) => self.read_to_the_end(),
                    Poll::Ready(Err(error)) => self.end(error.into()),
                    Poll::Pending => read_all = true,
                }
            }
            // Replies that are ready together leave together, or in parts: the client begins with the first part
            // meanwhile.
            self.unsent = Portion::default();
            if self.ended.is_none()
                && let Poll::Ready(Err(error)) = self.writer.poll_flush(Pin::new(&mut self.io), cx)
            {
                self.end(ConnectionError::Write(Arc::new(error)));
            }
            if read_all || !self.may_read() {
                break;
            }
        }
        self.poll_stall(cx);
        if let Some(Poll::Ready(why)) = self.reverse.as_ref().map(|reverse| reverse.given_up(cx)) {
            self.end(ConnectionError::GivenUp(why));
        }
        let is_over = self.draining || !self.reading;
        let is_idle = self.calls.is_empty() && self.held.is_empty();
        if is_over && is_idle && (self.ended.is_some() || self.writer.queued() == 0) {
            self.signal = None;
            self.reverse = None;
            return Poll::Ready(self.ended.take().map_or(Ok(()), Err));
        }
        Poll::Pending
    }

    /// A peer that does not read its replies gets no further calls executed.
    fn may_execute(&self) -> bool {
        // RPC-TCP-a
        self.calls.len() < self.options.max_calls && self.writer.queued() <= self.options.max_record
    }

    /// The server reads only what it executes, and in addition the calls that may precede an awaited reply. A peer that
    /// puts more calls before its reply waits for its own calls, and delays no other peer. Once the connection drains,
    /// replies are read as long as calls are executed, which may wait for them.
    fn may_read(&self) -> bool {
        let awaits_reply = self.reverse.as_ref().is_some_and(Reverse::awaits_reply);
        self.reading
            && match self.draining {
                true => awaits_reply && !self.calls.is_empty(),
                false if self.held.is_empty() && self.may_execute() => true,
                // To know whether the next message is the reply, it has to be read.
                false => awaits_reply && self.held.len() <= self.options.max_calls,
            }
    }

    /// A message has come: a call of the peer, or a reply to one of ours.
    fn received(&mut self, message: Stream, cx: &mut Context<'_>) {
        if let Some((xid, Some(Direction::Reply))) = peek_direction(&message) {
            match &mut self.reverse {
                Some(reverse) => reverse.answered(xid, message),
                None => _ = self.stray.fetch_add(1, Ordering::Relaxed),
            }
        } else if !self.draining {
            match self.held.is_empty() && self.may_execute() {
                true => self.dispatch(message, cx),
                false => self.held.push_back(message),
            }
        }
    }

    /// The peer sends nothing more: no reply to our calls can come. Most likely it has left: calls in execution are
    /// answered, and no further call is begun.
    fn read_to_the_end(&mut self) {
        self.reading = false;
        self.signal = None;
        self.reverse = None;
    }

    fn dispatch(&mut self, message: Stream, cx: &mut Context<'_>) {
        let is_followed = self.reader.is_followed() && self.calls.len() < MOST_ELSEWHERE;
        let context = self.context.clone().arrived(self.reader.arrival()).followed(is_followed);
        match self.handler.begin(context, message, cx) {
            Begun::Done(outcome) => self.answer(outcome),
            Begun::Waits(call) => self.calls.push(call),
        }
    }

    fn answer(&mut self, outcome: Outcome) {
        if let Some(reply) = outcome.into_reply()
            && self.ended.is_none()
        {
            self.unsent.add(reply.len());
            self.writer.push(&reply);
        }
    }

    fn end(&mut self, error: ConnectionError) {
        // TCP may be told to give up a peer that acknowledges nothing, and what was sent may be in the socket and not
        // here: either of two clocks can be the first to see the same stall.
        self.ended =
            Some(if error.is_time_out() { ConnectionError::Stalled { after: self.options.stall } } else { error });
        self.reading = false;
        self.signal = None;
        self.reverse = None;
        self.held.clear();
    }

    /// Ends the connection if the peer owes something and has not made progress in time, separately for each direction.
    fn poll_stall(&mut self, cx: &mut Context<'_>) {
        if self.ended.is_some() {
            return;
        }
        let (clock, limit) = (&*self.clock, self.options.stall);
        let inside = self.reading && !self.draining && self.reader.is_inside_record();
        let sending = self.sending.poll(cx, clock, limit, inside.then(|| self.reader.records()));
        let unread = self.writer.queued() > 0;
        let taking = self.taking.poll(cx, clock, limit, unread.then(|| self.writer.progress()));
        if sending.is_ready() || taking.is_ready() {
            self.end(ConnectionError::Stalled { after: limit });
        }
    }
}

/// Finds out whether the peer makes progress with what it owes.
#[derive(Default)]
struct Watch {
    /// The progress when the timer was set, and the timer.
    timer: Option<(u64, BoxFuture<'static, ()>)>,
}

impl Watch {
    /// Ready if the peer has owed something since the timer was set, and its `progress` is the same. `None`: it owes
    /// nothing.
    fn poll(&mut self, cx: &mut Context<'_>, clock: &dyn Clock, limit: Duration, progress: Option<u64>) -> Poll<()> {
        loop {
            match (&mut self.timer, progress) {
                (None, None) => return Poll::Pending,
                (None, Some(progress)) => {
                    self.timer = Some((progress, clock.sleep_until(clock.now() + limit)));
                }
                (Some((before, timer)), progress) => {
                    std::task::ready!(timer.as_mut().poll(cx));
                    if progress == Some(*before) {
                        return Poll::Ready(());
                    }
                    self.timer = None;
                }
            }
        }
    }
}
