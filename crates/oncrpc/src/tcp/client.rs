//! A client's transport over record-marked TCP.
//!
//! The driver owns the connection, the calls outstanding (their octets shared with the caller) and a sender for each
//! reply. Result buffers that a caller lends stay with its pending call: over TCP the results are slices of the
//! received record. When the connection is lost it is made again with back-off and jitter, and outstanding calls are
//! sent again in first-sent order with the same XIDs. On a live connection nothing is sent twice: after a time of
//! silence a NULL call decides whether it is alive.

use super::{
    Connector, Io, MAX_RECORD_OCTETS, RecordError,
    record::{RecordReader, RecordWriter},
};
use crate::{
    CallHeader, CallId, CallInFlight, Cancelled, ClientTransport, Limits, Misuse, OpaqueAuth, PendingCall, Reply,
    Request, TransportError, TransportKind, XidSource,
};
use futures_util::future::{Either, select};
use rpcrdma_env::{Allocator, BoxFuture, Buffer, Env, Timestamp};
use rpcrdma_xdr::{Decoder, Encoder, Payload, Stream, StreamPart};
use std::{
    collections::{BTreeMap, HashMap},
    error::Error,
    future::{Future, poll_fn},
    io,
    net::SocketAddr,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};
use tokio::sync::{mpsc, oneshot};

/// Times and limits of a client's transport.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct ClientOptions {
    /// The largest record sent or accepted, in octets.
    pub max_record: usize,
    /// How long one attempt to connect may take.
    pub connect: Duration,
    /// How long a lost connection is tried to be made again before its calls fail.
    pub outage: Duration,
    /// How long nothing may be heard while calls are outstanding before a NULL is sent.
    pub silence: Duration,
    /// How long that NULL may take.
    pub probe: Duration,
    /// The pause before the second attempt to connect; it doubles up to `max_pause`.
    pub min_pause: Duration,
    /// The longest pause between attempts. Each has up to its half added at random.
    pub max_pause: Duration,
}

impl Default for ClientOptions {
    /// 1 MiB of data; 10 s to connect, 120 s of outage, 60 s of silence, 10 s for the NULL; pauses of 0.1 to 5 s.
    fn default() -> Self {
        Self {
            max_record: MAX_RECORD_OCTETS,
            connect: Duration::from_secs(10),
            outage: Duration::from_secs(120),
            silence: Duration::from_secs(60),
            probe: Duration::from_secs(10),
            min_pause: Duration::from_millis(100),
            max_pause: Duration::from_secs(5),
        }
    }
}

/// Connects to a server and returns the transport and its driver, which must be polled for anything to happen. The
/// driver completes when every handle is dropped and no call is outstanding.
///
/// # Errors
/// If the first connection cannot be made.
pub async fn connect(
    connector: Arc<dyn Connector>,
    allocator: Arc<dyn Allocator>,
    env: &Env,
    options: ClientOptions,
) -> Result<(Arc<TcpTransport>, impl Future<Output = ()> + Send + 'static), TransportError> {
    let server = connector.server();
    let (sender, commands) = mpsc::unbounded_channel();
    let xids = Arc::new(XidSource::new(&*env.random));
    let driver = Driver {
        connector,
        allocator,
        env: env.clone(),
        options,
        commands,
        xids: xids.clone(),
        calls: BTreeMap::new(),
        by_xid: HashMap::new(),
        next_call: 0,
    };
    let io =
        driver.attempt().await.map_err(|source| TransportError::Unreachable { server, source: Arc::new(source) })?;
    let transport = TcpTransport { commands: sender, xids, server, max_record: options.max_record };
    Ok((Arc::new(transport), driver.run(io)))
}

/// Record-marked TCP to one server.
#[derive(Debug)]
pub struct TcpTransport {
    /// Unbounded: each entry is a call whose memory its caller provides and waits for.
    commands: mpsc::UnboundedSender<Command>,
    xids: Arc<XidSource>,
    server: SocketAddr,
    max_record: usize,
}

impl TcpTransport {
    fn check(&self, request: &Request) -> Result<(), Misuse> {
        let max = self.max_record;
        if request.message.len() > max {
            return Err(Misuse::CallTooLarge { len: request.message.len(), max });
        }
        if request.reply.max_len > max {
            return Err(Misuse::ReplyTooLarge { len: request.reply.max_len, max });
        }
        for room in &request.reply.items {
            if let Some(buffer) = &room.buffer
                && buffer.capacity() < room.max_len
            {
                return Err(Misuse::BufferTooSmall { capacity: buffer.capacity(), max_len: room.max_len });
            }
        }
        Ok(())
    }
}

impl ClientTransport for TcpTransport {
    fn next_xid(&self) -> u32 {
        self.xids.next_xid()
    }

    fn call(&self, request: Request) -> PendingCall {
        let lent = match self.check(&request) {
            Ok(()) => request.reply.items.into_iter().filter_map(|room| room.buffer).collect(),
            Err(misuse) => return PendingCall::failed(misuse.into()),
        };
        let (sender, reply) = oneshot::channel();
        let max_reply = request.reply.max_len;
        let command = Command { xid: request.xid, message: request.message, max_reply, sender };
        // A driver that is gone drops the sender, and the call finds that out.
        let _ = self.commands.send(command);
        PendingCall::new(InFlight { reply, lent })
    }

    fn kind(&self) -> TransportKind {
        TransportKind::Tcp
    }

    fn limits(&self) -> Limits {
        Limits::new(self.max_record, self.max_record)
    }

    fn server(&self) -> SocketAddr {
        self.server
    }
}

#[derive(Debug)]
struct Command {
    xid: u32,
    message: Payload,
    max_reply: usize,
    sender: oneshot::Sender<Result<Reply, TransportError>>,
}

struct InFlight {
    reply: oneshot::Receiver<Result<Reply, TransportError>>,
    lent: Vec<Buffer>,
}

impl Future for InFlight {
    type Output = Result<Reply, TransportError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.reply).poll(cx).map(|reply| reply.unwrap_or(Err(TransportError::Closed)))
    }
}

impl CallInFlight for InFlight {
    fn cancel(self: Pin<Box<Self>>) -> BoxFuture<'static, Cancelled> {
        let buffers = Pin::into_inner(self).lent;
        Box::pin(std::future::ready(Cancelled { buffers }))
    }
}

struct Outstanding {
    command: Command,
    /// On how many connections it was sent.
    sent: u32,
}

/// How a connection ended.
enum End {
    /// All handles are gone and nothing is outstanding.
    Finished,
    /// It was lost.
    Lost,
    /// The server broke the rules of record marking.
    Violation(&'static str),
}

struct Driver {
    connector: Arc<dyn Connector>,
    allocator: Arc<dyn Allocator>,
    env: Env,
    options: ClientOptions,
    commands: mpsc::UnboundedReceiver<Command>,
    xids: Arc<XidSource>,
    /// In first-sent order.
    calls: BTreeMap<u64, Outstanding>,
    by_xid: HashMap<u32, u64>,
    next_call: u64,
}

impl Driver {
    async fn run(mut self, io: Box<dyn Io>) {
        let mut io = Some(io);
        loop {
            if let Some(io) = io.take() {
                match Link::new(&mut self, io).run().await {
                    End::Finished => return,
                    End::Lost => {}
                    End::Violation(rule) => {
                        self.fail(&TransportError::Violation { server: self.connector.server(), rule })
                    }
                }
            }
            self.forget_dropped();
            if self.calls.is_empty() {
                // A connection is made again only once it is needed.
                match self.commands.recv().await {
                    Some(command) => {
                        self.add(command);
                    }
                    None => return,
                }
            }
            match self.reconnect().await {
                Ok(connected) => io = Some(connected),
                Err(error) => {
                    while let Ok(command) = self.commands.try_recv() {
                        self.add(command);
                    }
                    self.fail(&error);
                }
            }
        }
    }

    /// One attempt to connect, within its time.
    async fn attempt(&self) -> io::Result<Box<dyn Io>> {
        let deadline = self.env.clock.sleep_until(self.env.clock.now() + self.options.connect);
        match select(self.connector.connect(), deadline).await {
            Either::Left((connected, _)) => connected,
            Either::Right(_) => Err(io::ErrorKind::TimedOut.into()),
        }
    }

    async fn reconnect(&self) -> Result<Box<dyn Io>, TransportError> {
        let lost = self.env.clock.now();
        let mut pause = self.options.min_pause;
        loop {
            let error = match self.attempt().await {
                Ok(io) => return Ok(io),
                Err(error) => error,
            };
            let now = self.env.clock.now();
            if now.since(lost) >= self.options.outage {
                let source: Arc<dyn Error + Send + Sync> = Arc::new(error);
                let server = self.connector.server();
                return Err(TransportError::Lost { server, after: now.since(lost), source: Some(source) });
            }
            let half_millis = u64::try_from(pause.as_millis() / 2).unwrap_or(u64::MAX);
            let jitter = Duration::from_millis(self.env.random.below(half_millis.saturating_add(1)));
            self.env.clock.sleep_until(now + pause + jitter).await;
            pause = (pause * 2).min(self.options.max_pause);
        }
    }

    fn add(&mut self, command: Command) -> Option<u64> {
        if self.by_xid.contains_key(&command.xid) {
            let _ = command.sender.send(Err(Misuse::XidInUse { xid: command.xid }.into()));
            return None;
        }
        let call = self.next_call;
        self.next_call += 1;
        self.by_xid.insert(command.xid, call);
        self.calls.insert(call, Outstanding { command, sent: 0 });
        Some(call)
    }

    fn take(&mut self, xid: u32) -> Option<Outstanding> {
        let call = self.by_xid.remove(&xid)?;
        self.calls.remove(&call)
    }

    fn fail(&mut self, error: &TransportError) {
        self.by_xid.clear();
        for (_, call) in std::mem::take(&mut self.calls) {
            let _ = call.command.sender.send(Err(error.clone()));
        }
    }

    /// Forgets calls whose caller does not wait any more.
    fn forget_dropped(&mut self) {
        let by_xid = &mut self.by_xid;
        self.calls.retain(|_, call| {
            let waits = !call.command.sender.is_closed();
            if !waits {
                by_xid.remove(&call.command.xid);
            }
            waits
        });
    }

    /// A NULL call to the program of the oldest call.
    fn null_call(&self) -> Option<Payload> {
        let (_, oldest) = self.calls.first_key_value()?;
        let stream = Stream::from(oldest.command.message.slices().next()?);
        let oldest = CallHeader::decode(&mut Decoder::new(stream)).ok()?.id;
        let id = CallId { xid: self.xids.next_xid(), procedure: 0, ..oldest };
        let mut encoder = Encoder::new();
        CallHeader { id, credential: OpaqueAuth::none(), verifier: OpaqueAuth::none() }.encode(&mut encoder);
        Some(encoder.finish())
    }
}

/// What the silence timer waits for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Watch {
    Silence,
    Probe,
}

/// One connection of a driver.
struct Link<'a> {
    driver: &'a mut Driver,
    io: Box<dyn Io>,
    reader: RecordReader,
    writer: RecordWriter,
    /// What is waited for, octets received when the timer was set, and the timer.
    timer: Option<(Watch, u64, BoxFuture<'static, ()>)>,
    commands_open: bool,
}

impl<'a> Link<'a> {
    fn new(driver: &'a mut Driver, io: Box<dyn Io>) -> Self {
        let reader = RecordReader::new(driver.allocator.clone(), driver.options.max_record);
        let mut link = Self { driver, io, reader, writer: RecordWriter::default(), timer: None, commands_open: true };
        link.driver.forget_dropped();
        for call in link.driver.calls.values_mut() {
            link.writer.push(&call.command.message);
            call.sent = call.sent.saturating_add(1);
        }
        link
    }

    async fn run(mut self) -> End {
        poll_fn(|cx| self.poll(cx)).await
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<End> {
        while self.commands_open {
            match self.driver.commands.poll_recv(cx) {
                Poll::Ready(Some(command)) => self.send(command),
                Poll::Ready(None) => self.commands_open = false,
                Poll::Pending => break,
            }
        }
        if let Poll::Ready(Err(_)) = self.writer.poll_flush(Pin::new(&mut *self.io), cx) {
            return Poll::Ready(End::Lost);
        }
        loop {
            match self.reader.poll_record(Pin::new(&mut *self.io), cx) {
                Poll::Ready(Ok(Some(record))) => {
                    if let Err(rule) = self.receive(record) {
                        return Poll::Ready(End::Violation(rule));
                    }
                }
                Poll::Ready(Ok(None) | Err(RecordError::Truncated | RecordError::Io(_))) => {
                    return Poll::Ready(End::Lost);
                }
                Poll::Ready(Err(RecordError::TooLong { .. })) => {
                    return Poll::Ready(End::Violation("a record is no longer than the largest reply"));
                }
                Poll::Ready(Err(RecordError::TooManyFragments)) => {
                    return Poll::Ready(End::Violation("a record has few fragments"));
                }
                Poll::Pending => break,
            }
        }
        if !self.commands_open && self.driver.calls.is_empty() {
            return Poll::Ready(End::Finished);
        }
        if self.poll_silence(cx).is_ready() {
            return Poll::Ready(End::Lost);
        }
        Poll::Pending
    }

    fn send(&mut self, command: Command) {
        if let Some(call) = self.driver.add(command).and_then(|call| self.driver.calls.get_mut(&call)) {
            self.writer.push(&call.command.message);
            call.sent = 1;
        }
    }

    /// Hands a reply to its caller. Replies to calls that nobody waits for are dropped.
    fn receive(&mut self, record: Stream) -> Result<(), &'static str> {
        let xid = first_word(&record).ok_or("a reply begins with an XID")?;
        if let Some(Outstanding { command, sent }) = self.driver.take(xid) {
            let len = record.len();
            let _ = command.sender.send(match len > command.max_reply {
                true => Err(TransportError::ReplyTooLarge { len, max: command.max_reply }),
                false => Ok(Reply { stream: record, retransmitted: sent > 1 }),
            });
        }
        Ok(())
    }

    /// Ready when the server has been silent for too long.
    fn poll_silence(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            let received = self.reader.received();
            let Some((watch, before, timer)) = &mut self.timer else {
                if self.driver.calls.is_empty() {
                    return Poll::Pending;
                }
                self.set_timer(Watch::Silence, self.driver.options.silence);
                continue;
            };
            if timer.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            let (watch, silent) = (*watch, *before == received);
            self.timer = None;
            self.driver.forget_dropped();
            match watch {
                _ if !silent || self.driver.calls.is_empty() => {}
                Watch::Probe => return Poll::Ready(()),
                Watch::Silence => {
                    let Some(null) = self.driver.null_call() else { continue };
                    self.writer.push(&null);
                    self.set_timer(Watch::Probe, self.driver.options.probe);
                    if let Poll::Ready(Err(_)) = self.writer.poll_flush(Pin::new(&mut *self.io), cx) {
                        return Poll::Ready(());
                    }
                }
            }
        }
    }

    fn set_timer(&mut self, watch: Watch, after: Duration) {
        let clock = &self.driver.env.clock;
        let when: Timestamp = clock.now() + after;
        self.timer = Some((watch, self.reader.received(), clock.sleep_until(when)));
    }
}

fn first_word(record: &Stream) -> Option<u32> {
    let mut octets = record.parts().flat_map(|part| match part {
        StreamPart::Run(octets) | StreamPart::Chunk(octets) => octets.iter().copied(),
    });
    let mut word = [0; 4];
    for octet in &mut word {
        *octet = octets.next()?;
    }
    Some(u32::from_be_bytes(word))
}
