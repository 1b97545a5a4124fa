//! A client's transport over record-marked TCP.
//!
//! The driver owns the connection, the calls outstanding (their octets shared with the caller) and a sender for each
//! reply. Result buffers that a caller lends stay with its pending call: over TCP the results are slices of the
//! received record. When the connection is lost it is made again by the rules of [`outage`](crate::outage), and
//! outstanding calls are sent again in first-sent order with the same XIDs. On a live connection nothing is sent twice:
//! after a time of silence a NULL call decides whether it is alive. A server that has never answered has less time.

use super::{
    Connector, Io, MAX_RECORD_OCTETS, RecordError,
    record::{RecordReader, RecordWriter},
};
use crate::{
    CallHeader, CallId, CallInFlight, Cancelled, ClientTransport, Limits, Listener, Misuse, OpaqueAuth, PendingCall,
    Reply, Request, Silence, TransportError, TransportKind, XidSource,
    outage::{
        DEFAULT_FIRST_ANSWER, DEFAULT_FIRST_SIGN, Ended, Failure, Met, Next, Outage, OutageLimits, Sought, Standing,
        not_spoken,
    },
};
use futures_util::future::{Either, select};
use rpcrdma_env::{Allocator, BoxFuture, Buffer, Env, Timestamp};
use rpcrdma_xdr::{Decoder, Encoder, Payload, Stream, StreamPart};
use std::{
    collections::{BTreeMap, HashMap},
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
    /// The same where the server ends the connections that it accepts, and has never answered.
    pub first_answer: Duration,
    /// The same where it accepts connections and says nothing. On a connection to a server that has never answered
    /// `silence` and `probe` are a quarter of this at most.
    pub first_sign: Duration,
    /// How long nothing may be heard while calls are outstanding before a NULL is sent.
    pub silence: Duration,
    /// How long that NULL may take.
    pub probe: Duration,
    /// The pause before the second attempt to connect; it doubles up to `max_pause`.
    pub min_pause: Duration,
    /// The longest pause between attempts. Each has up to its half added at random.
    pub max_pause: Duration,
    /// What the server should speak, as users call it, for errors.
    pub service: &'static str,
}

impl ClientOptions {
    fn outage_limits(&self) -> OutageLimits {
        let Self { outage, first_answer, first_sign, min_pause, max_pause, .. } = *self;
        OutageLimits { outage, first_answer, first_sign, min_pause, max_pause }
    }
}

impl Default for ClientOptions {
    /// 1 MiB of data; 10 s to connect, 120 s of outage, 10 s for the first answer and 30 s for the first sign, 60 s of
    /// silence, 10 s for the NULL; pauses of 0.1 to 5 s.
    fn default() -> Self {
        Self {
            max_record: MAX_RECORD_OCTETS,
            connect: Duration::from_secs(10),
            outage: Duration::from_secs(120),
            first_answer: DEFAULT_FIRST_ANSWER,
            first_sign: DEFAULT_FIRST_SIGN,
            silence: Duration::from_secs(60),
            probe: Duration::from_secs(10),
            min_pause: Duration::from_millis(100),
            max_pause: Duration::from_secs(5),
            service: "RPC",
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
    let sought = Sought { server, service: options.service, over: TransportKind::Tcp };
    let listener = Listener::new(env.clock.now());
    let silence = listener.silence();
    let driver = Driver {
        listener,
        outage: Outage::new(sought, options.outage_limits(), env.clock.now()),
        sought,
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
    let transport = TcpTransport { commands: sender, xids, server, max_record: options.max_record, silence };
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
    silence: Arc<Silence>,
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

    fn silence(&self) -> Option<Arc<Silence>> {
        Some(self.silence.clone())
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
    Lost(Lost),
    /// The server broke the rules of record marking.
    Violation(&'static str),
}

/// Why a connection is lost.
#[derive(Clone, Debug, thiserror::Error)]
enum Lost {
    #[error("the server closed the last of them")]
    Closed,
    #[error("the last of them broke: {0}")]
    Broken(Arc<io::Error>),
    #[error("the server fell silent on the last of them")]
    Silent,
    #[error("the server said nothing on the last of them")]
    Mute,
}

/// A rule of record marking that the server broke before it had ever answered.
#[derive(Debug, thiserror::Error)]
#[error("what it sent is no record of RPC: {0}")]
struct NoRecord(&'static str);

struct Driver {
    connector: Arc<dyn Connector>,
    allocator: Arc<dyn Allocator>,
    env: Env,
    options: ClientOptions,
    sought: Sought,
    outage: Outage,
    listener: Listener,
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
            let next = match io.take() {
                Some(io) => match self.connection(io).await {
                    Some(next) => next,
                    None => return,
                },
                None => match self.attempt().await {
                    Ok(connected) => {
                        io = Some(connected);
                        continue;
                    }
                    Err(error) => {
                        let failure = Failure { met: Met::Nobody, source: Some(Arc::new(error)) };
                        self.outage.failed(failure, self.env.clock.now(), &*self.env.random)
                    }
                },
            };
            match next {
                Next::Now => {}
                Next::After(pause) => {
                    let server = self.sought.server;
                    tracing::debug!(%server, pause_ms = pause.as_millis(), "connecting again after a pause");
                    self.tell_silence(None);
                    self.env.clock.sleep_until(self.env.clock.now() + pause).await;
                }
                Next::Fail(error) => {
                    self.take_commands();
                    self.fail(&error);
                }
            }
            self.tell_silence(None);
            if !self.is_wanted().await {
                return;
            }
            self.tell_silence(None);
        }
    }

    /// One connection, to its end. Returns what to do next; nothing if nobody can call any more.
    async fn connection(&mut self, io: Box<dyn Io>) -> Option<Next> {
        let server = self.sought.server;
        let started = self.env.clock.now();
        let (end, answered) = Link::new(self, io).run().await;
        let failure = match end {
            End::Finished => return None,
            End::Lost(lost) => {
                tracing::debug!(%server, error = %lost, answered, "connection lost");
                let met = if matches!(lost, Lost::Mute) { Met::Silence } else { Met::Ended };
                Failure { met, source: Some(Arc::new(lost)) }
            }
            End::Violation(rule) => {
                tracing::debug!(%server, rule, answered, "the server broke a rule");
                self.take_commands();
                match answered || self.outage.has_answered() {
                    true => self.fail(&TransportError::Violation { server, rule }),
                    // It need not be tried again to be known for what it is.
                    false => self.fail(&not_spoken(self.sought, Arc::new(NoRecord(rule)))),
                }
                Failure { met: Met::Ended, source: Some(Arc::new(NoRecord(rule))) }
            }
        };
        self.take_commands();
        self.forget_dropped();
        let ended = Ended { started, answered, waited_for: !self.calls.is_empty() };
        Some(self.outage.ended(ended, failure, self.env.clock.now(), &*self.env.random))
    }

    /// Completes when a call waits: a connection is made again only once it is needed. False if none can come.
    async fn is_wanted(&mut self) -> bool {
        self.take_commands();
        self.forget_dropped();
        if self.calls.is_empty() {
            match self.commands.recv().await {
                Some(command) => {
                    self.add(command);
                }
                None => return false,
            }
        }
        true
    }

    /// Tells whoever looks whether calls wait, and until when at most.
    fn tell_silence(&mut self, standing: Option<Standing>) {
        let until = self.outage.until(self.listener.since(), standing);
        let is_waited_for = self.calls.values().any(|call| !call.command.sender.is_closed());
        self.listener.tell(is_waited_for.then_some(until));
    }

    /// Calls that have been made in the meantime.
    fn take_commands(&mut self) {
        while let Ok(command) = self.commands.try_recv() {
            self.add(command);
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

    fn add(&mut self, command: Command) -> Option<u64> {
        if self.by_xid.contains_key(&command.xid) {
            let _ = command.sender.send(Err(Misuse::XidInUse { xid: command.xid }.into()));
            return None;
        }
        if self.calls.is_empty() {
            self.outage.asked(self.env.clock.now());
            self.listener.asked(self.env.clock.now());
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
    /// The server has answered on this connection.
    answered: bool,
    started: Timestamp,
    /// Octets that have been heard of.
    heard: u64,
}

impl<'a> Link<'a> {
    fn new(driver: &'a mut Driver, io: Box<dyn Io>) -> Self {
        let reader = RecordReader::new(driver.allocator.clone(), driver.options.max_record);
        let writer = RecordWriter::default();
        let started = driver.env.clock.now();
        let mut link =
            Self { driver, io, reader, writer, timer: None, commands_open: true, answered: false, started, heard: 0 };
        link.driver.forget_dropped();
        for call in link.driver.calls.values_mut() {
            link.writer.push(&call.command.message);
            call.sent = call.sent.saturating_add(1);
        }
        link
    }

    /// To its end. Also says whether anything was answered.
    async fn run(mut self) -> (End, bool) {
        let end = poll_fn(|cx| {
            let end = self.poll(cx);
            self.tell_silence();
            end
        })
        .await;
        (end, self.answered)
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<End> {
        while self.commands_open {
            match self.driver.commands.poll_recv(cx) {
                Poll::Ready(Some(command)) => self.send(command),
                Poll::Ready(None) => self.commands_open = false,
                Poll::Pending => break,
            }
        }
        // What a server has sent before it closed is read even where nothing can be sent to it any more.
        let flushed = self.writer.poll_flush(Pin::new(&mut *self.io), cx);
        loop {
            match self.reader.poll_record(Pin::new(&mut *self.io), cx) {
                Poll::Ready(Ok(Some(record))) => {
                    if let Err(rule) = self.receive(record) {
                        return Poll::Ready(End::Violation(rule));
                    }
                }
                Poll::Ready(Ok(None) | Err(RecordError::Truncated)) => return Poll::Ready(End::Lost(Lost::Closed)),
                Poll::Ready(Err(RecordError::Io(error))) => return Poll::Ready(broken(error)),
                Poll::Ready(Err(RecordError::TooLong { .. })) => {
                    return Poll::Ready(End::Violation("a record is no longer than the largest reply"));
                }
                Poll::Ready(Err(RecordError::TooManyFragments)) => {
                    return Poll::Ready(End::Violation("a record has few fragments"));
                }
                Poll::Pending => break,
            }
        }
        if let Poll::Ready(Err(error)) = flushed {
            return Poll::Ready(broken(Arc::new(error)));
        }
        if !self.commands_open && self.driver.calls.is_empty() {
            return Poll::Ready(End::Finished);
        }
        self.poll_silence(cx).map(End::Lost)
    }

    fn tell_silence(&mut self) {
        let received = self.reader.received();
        if std::mem::replace(&mut self.heard, received) != received {
            self.driver.listener.heard(self.driver.env.clock.now());
        }
        let standing = Standing {
            since: self.started.max(self.driver.listener.since()),
            patience: self.patience(Watch::Silence) + self.patience(Watch::Probe),
            is_proof: true,
        };
        self.driver.tell_silence(Some(standing));
    }

    fn send(&mut self, command: Command) {
        if let Some(call) = self.driver.add(command).and_then(|call| self.driver.calls.get_mut(&call)) {
            self.writer.push(&call.command.message);
            call.sent = 1;
        }
    }

    /// Hands a reply to its caller. Replies to calls that nobody waits for are dropped.
    fn receive(&mut self, record: Stream) -> Result<(), &'static str> {
        let (xid, kind) = {
            let mut words = words(&record);
            (words.next().ok_or("a reply begins with an XID")?, words.next())
        };
        if kind == Some(REPLY) {
            self.answered = true;
            self.driver.outage.answered();
        }
        if let Some(Outstanding { command, sent }) = self.driver.take(xid) {
            let len = record.len();
            let _ = command.sender.send(match len > command.max_reply {
                true => Err(TransportError::ReplyTooLarge { len, max: command.max_reply }),
                false => Ok(Reply { stream: record, retransmitted: sent > 1 }),
            });
        }
        Ok(())
    }

    /// For how long nothing may be heard while the timer waits for this.
    fn patience(&self, watch: Watch) -> Duration {
        let ClientOptions { silence, probe, first_sign, .. } = self.driver.options;
        let usual = match watch {
            Watch::Silence => silence,
            Watch::Probe => probe,
        };
        match self.driver.outage.has_answered() {
            true => usual,
            false => usual.min(first_sign / 4),
        }
    }

    /// Ready when the server has been silent for too long.
    fn poll_silence(&mut self, cx: &mut Context<'_>) -> Poll<Lost> {
        loop {
            let received = self.reader.received();
            let Some((watch, before, timer)) = &mut self.timer else {
                if self.driver.calls.is_empty() {
                    return Poll::Pending;
                }
                self.set_timer(Watch::Silence);
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
                Watch::Probe if received == 0 => return Poll::Ready(Lost::Mute),
                Watch::Probe => return Poll::Ready(Lost::Silent),
                Watch::Silence => {
                    let Some(null) = self.driver.null_call() else { continue };
                    self.writer.push(&null);
                    self.set_timer(Watch::Probe);
                    if let Poll::Ready(Err(error)) = self.writer.poll_flush(Pin::new(&mut *self.io), cx) {
                        return Poll::Ready(Lost::Broken(Arc::new(error)));
                    }
                }
            }
        }
    }

    fn set_timer(&mut self, watch: Watch) {
        let clock = &self.driver.env.clock;
        let when: Timestamp = clock.now() + self.patience(watch);
        self.timer = Some((watch, self.reader.received(), clock.sleep_until(when)));
    }
}

fn broken(error: Arc<io::Error>) -> End {
    End::Lost(Lost::Broken(error))
}

/// `msg_type` of a reply (RFC 5531 section 9).
const REPLY: u32 = 1;

/// The words that a record begins with.
fn words(record: &Stream) -> impl Iterator<Item = u32> + '_ {
    let mut octets = record.parts().flat_map(|part| match part {
        StreamPart::Run(octets) | StreamPart::Chunk(octets) => octets.iter().copied(),
    });
    std::iter::from_fn(move || {
        let mut word = [0; 4];
        for octet in &mut word {
            *octet = octets.next()?;
        }
        Some(u32::from_be_bytes(word))
    })
}
