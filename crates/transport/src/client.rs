//! A client's transport to one server, which replaces lost connections.
//!
//! The driver owns the connection and the table of calls. It replaces a lost connection when a call needs it, by the
//! rules of [`rpcrdma_oncrpc::outage`], and sends unanswered calls again in their order, with their XIDs. If it finds
//! no connection for too long, the calls fail, and the next call tries again.

use crate::{
    ClientOptions, ConnectionError, Event, ExtensionChannel, NoVersion2, Observer, Reverse, STALL_LIMIT,
    calls::{Caller, Calls, Command},
    extension::{Port, Unclaimed, claim},
    options::INITIAL_RECEIVES,
    service::{Service, ServiceParts},
    session::{Heard, Parts, Session},
};
use bytes::Bytes;
use rpcrdma_engine::{Config, PROBE_TIMEOUT, SILENCE_LIMIT, Versions};
use rpcrdma_env::{Allocator, BoxFuture, Env};
use rpcrdma_fabric::{Capabilities, ConnectError, Connected, ConnectionParams, Fabric, Receives};
use rpcrdma_oncrpc::{
    CallContext, ClientTransport, Connection, GoneSignal, Limits, Listener, PendingCall, RemoteError, Request, Silence,
    TransportError, TransportKind, XidSource,
    outage::{Ended, Failure, Met, Next, Outage, Sought, Standing, not_spoken},
};
use std::{
    future::Future,
    io,
    net::SocketAddr,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};
use tokio::sync::mpsc;

/// RPC-over-RDMA to one server.
#[derive(Debug)]
pub struct RdmaTransport {
    caller: Caller,
    extension: Unclaimed,
    /// The silence of the server, for a client's own connection.
    silence: Option<Arc<Silence>>,
}

impl RdmaTransport {
    pub(crate) fn new(caller: Caller) -> Self {
        Self { caller, extension: Unclaimed::default(), silence: None }
    }

    /// The channel of the extension of version 2 in the options. It stays the same across reconnections. Only the first
    /// caller gets it.
    pub fn take_extension(&self) -> Option<ExtensionChannel> {
        claim(&self.extension)
    }
}

impl ClientTransport for RdmaTransport {
    fn next_xid(&self) -> u32 {
        self.caller.xids.next_xid()
    }

    fn call(&self, request: Request) -> PendingCall {
        self.caller.call(request)
    }

    fn kind(&self) -> TransportKind {
        TransportKind::Rdma
    }

    fn limits(&self) -> Limits {
        self.caller.limits()
    }

    fn server(&self) -> SocketAddr {
        self.caller.server
    }

    fn silence(&self) -> Option<Arc<Silence>> {
        self.silence.clone()
    }

    fn give_up(&self, why: &'static str) {
        self.caller.giving_up.say(why);
    }
}

/// Connects to a server and returns the transport and its driver, which does all the work when it is polled. The driver
/// completes when the transport and all its calls have been dropped.
///
/// # Errors
/// If the first connection cannot be made.
pub async fn connect(
    fabric: Arc<dyn Fabric>,
    server: SocketAddr,
    env: &Env,
    options: ClientOptions,
    observer: Arc<dyn Observer>,
) -> Result<(Arc<RdmaTransport>, ClientDriver), TransportError> {
    let xids = options.xids.clone().unwrap_or_else(|| Arc::new(XidSource::new(&*env.random)));
    let (caller, commands) = Caller::new(xids.clone(), server, options.max_message);
    let pool = fabric.pool();
    let versions = options.first_versions();
    let sought = Sought { server, service: options.service, over: TransportKind::Rdma };
    let outage = Outage::new(sought, options.outage_limits(), env.clock.now());
    let (extension, port) = options.extension.is_some().then(|| Port::new(0)).unzip();
    let mut driver = ClientDriver {
        calls: Calls::new(pool.clone(), server, xids),
        pool,
        fabric,
        server,
        env: env.clone(),
        options,
        observer,
        commands,
        finished: false,
        phase: Phase::Idle,
        lingering: Vec::new(),
        outage,
        listener: Listener::new(env.clock.now()),
        connections: 0,
        versions,
        port,
    };
    let connected = driver.first_connection(sought).await?;
    driver.connected(connected);
    let silence = Some(driver.listener.silence());
    Ok((Arc::new(RdmaTransport { caller, extension: Unclaimed::new(extension), silence }), driver))
}

/// What an attempt to connect has met.
fn met(error: &ConnectError) -> Met {
    match error {
        ConnectError::Silent { .. } => Met::Silence,
        error if error.is_foreign() => Met::Ended,
        _ => Met::Nobody,
    }
}

/// What an end brings to a new connection. `None` if there is no memory for its first receives: without them the peer's
/// first message would end the connection.
pub(crate) fn params(
    config: &Config,
    capabilities: &Capabilities,
    reads: u16,
    receives: &dyn Allocator,
) -> Option<ConnectionParams> {
    let block = config.private_data().to_octets();
    let fits = block.len() <= capabilities.max_private_data;
    let buffers = (0..INITIAL_RECEIVES).map(|_| receives.try_allocate(config.receive_bytes as usize));
    let buffers = buffers.collect::<Option<Vec<_>>>()?;
    Some(ConnectionParams {
        private_data: if fits { Bytes::copy_from_slice(&block) } else { Bytes::new() },
        ird: reads.min(capabilities.max_ird),
        ord: reads.min(capabilities.max_ord),
        receives: Receives::Own(buffers),
    })
}

/// The number of version 2 in servers' answers about versions.
pub(crate) const VERSION_2: u32 = 2;

enum Phase {
    /// There is no connection, and no call needs one.
    Idle,
    /// A connection is being set up.
    Connecting(BoxFuture<'static, Result<Connected, ConnectError>>),
    /// A pause before the next attempt.
    Pausing(BoxFuture<'static, ()>),
    /// A connection is established.
    Up(Box<Session>),
}

/// Does the work of a client's transport. Dropping it ends the connection and fails all calls.
#[must_use = "nothing happens unless the driver is polled"]
pub struct ClientDriver {
    fabric: Arc<dyn Fabric>,
    server: SocketAddr,
    env: Env,
    options: ClientOptions,
    observer: Arc<dyn Observer>,
    pool: Arc<dyn Allocator>,
    commands: mpsc::UnboundedReceiver<Command>,
    /// Whether no caller is left.
    finished: bool,
    calls: Calls,
    phase: Phase,
    /// Calls of the server that outlive their connection.
    lingering: Vec<Service>,
    outage: Outage,
    listener: Listener,
    connections: u64,
    /// The versions for the next connection: fewer than in the options if the client knows that the server has no
    /// version 2.
    versions: Versions,
    /// Leads to the embedder that knows the extension of version 2. While there is a session, the session has it.
    port: Option<Port>,
}

impl ClientDriver {
    fn config(&self, capabilities: &Capabilities) -> Config {
        Config { versions: self.versions, ..self.options.config(capabilities) }
    }

    // V1-2.2.3-a, V2-3.1.3-a, V2-3.1.3.2-a, V2-4.5.5-b
    fn attempt(&self) -> BoxFuture<'static, Result<Connected, ConnectError>> {
        let fabric = self.fabric.clone();
        let server = self.server;
        let config = self.config(fabric.capabilities());
        let params = params(&config, fabric.capabilities(), self.options.ird.max(1), &*self.pool);
        Box::pin(async move {
            let no_memory = || ConnectError::Io { peer: server, error: io::ErrorKind::OutOfMemory.into() };
            fabric.connect(server, params.ok_or_else(no_memory)?).await
        })
    }

    /// Makes the transport's first connection. Only a server that accepts connections and stays silent is tried more
    /// than once.
    async fn first_connection(&mut self, sought: Sought) -> Result<Connected, TransportError> {
        loop {
            let error = match self.attempt().await {
                Ok(connected) => return Ok(connected),
                Err(error) => error,
            };
            let (server, met) = (self.server, met(&error));
            let source = Arc::new(error);
            match met {
                Met::Nobody => return Err(TransportError::Unreachable { server, source }),
                Met::Ended => return Err(not_spoken(sought, source)),
                Met::Silence => {}
            }
            let failure = Failure { met, source: Some(source) };
            match self.outage.failed(failure, self.env.clock.now(), &*self.env.random) {
                Next::Now => {}
                Next::After(pause) => {
                    self.observer.event(server, &Event::Reconnecting { pause });
                    self.env.clock.sleep_until(self.env.clock.now() + pause).await;
                }
                Next::Fail(error) => return Err(error),
            }
        }
    }

    /// A connection is established: sends the unanswered calls, in their order.
    // V1-4.5.5-a, V2-7.5-a, V2-4.5.5-a, ULB-3.4.2-b
    fn connected(&mut self, qp: Connected) {
        let config = self.config(qp.capabilities());
        let service = self.options.reverse.as_ref().map(|reverse| self.reverse(reverse, &*qp));
        self.connections += 1;
        if let Some(port) = &mut self.port {
            port.connection = self.connections;
        }
        let mut session = Session::new(Parts {
            qp,
            config,
            receives: self.pool.clone(),
            arguments: None,
            env: self.env.clone(),
            observer: self.observer.clone(),
            stall: STALL_LIMIT,
            service,
            port: self.port.take(),
        });
        session.believes = self.believes();
        session.start(&mut self.calls);
        // RPC-TCP-b
        for call in self.calls.ids() {
            if let Some(failed) = self.calls.renew(call) {
                self.observer.event(self.server, &failed);
            }
            session.call(call, &mut self.calls);
        }
        self.phase = Phase::Up(Box::new(session));
    }

    /// Whether the session uses version 1 only because the client assumes that the server has no other.
    fn believes(&self) -> bool {
        (self.options.versions, self.versions) == (Versions::Auto, Versions::One)
    }

    // ULB-6.2-a, IE-5.1-a
    fn reverse(&self, reverse: &Reverse, qp: &dyn rpcrdma_fabric::QueuePair) -> Service {
        let (signal, gone) = GoneSignal::new();
        let limits = Limits::new(self.options.inline_bytes as usize, self.options.inline_bytes as usize);
        let info = qp.info();
        let pool = self.pool.clone();
        let kind = TransportKind::Rdma;
        let connection = Connection::new(info.peer, info.local, self.connections, kind, limits, pool.clone(), gone);
        let context = CallContext::new(Arc::new(connection));
        Service::new(ServiceParts {
            handler: reverse.handler.clone(),
            context,
            arguments: pool,
            stall: STALL_LIMIT,
            clock: self.env.clock.clone(),
            signal,
            refusals: None,
        })
    }

    fn command(&mut self, command: Command) {
        if self.calls.is_empty() {
            self.outage.asked(self.env.clock.now());
            self.listener.asked(self.env.clock.now());
        }
        match (command, &mut self.phase) {
            (Command::Call(call), phase) => {
                let id = call.id;
                if self.calls.add(call)
                    && let Phase::Up(session) = phase
                {
                    session.call(id, &mut self.calls);
                }
            }
            (Command::Cancel(id, canceller), phase) => {
                self.calls.cancelling(id, canceller);
                match phase {
                    Phase::Up(session) => session.cancel(id),
                    _ => self.calls.released(id),
                }
            }
            (Command::Forget(id), Phase::Up(session)) => session.forget(id),
            (Command::Forget(id), _) => self.calls.released(id),
        }
    }

    /// The connection is over.
    fn lost(&mut self, mut session: Box<Session>, error: Option<&ConnectionError>) {
        session.unanswered(&mut self.calls);
        let (service, port) = session.give_back();
        self.lingering.extend(service);
        self.port = port;
        match error {
            // Our assumption about this server is wrong, or no longer right. We pause, because the server may give the
            // same answer again and again.
            Some(&ConnectionError::Version { low, high }) if self.believes() && (low..=high).contains(&VERSION_2) => {
                self.versions = Versions::Auto;
                return self.failed(Failure::default());
            }
            Some(&ConnectionError::Version { low, high }) => return self.no_version(low, high),
            // Another attempt would reach the same peer, and another version would not authenticate it.
            Some(ConnectionError::Unauthenticated) => return self.distrusted(),
            _ => {}
        }
        if session.is_probing() && !self.finished {
            match (self.versions, error) {
                (Versions::Auto, Some(ConnectionError::NoAnswer)) => {
                    return self.without_version_2(NoVersion2::NoAnswer);
                }
                (Versions::Auto, _) => return self.without_version_2(NoVersion2::Dropped),
                _ => {}
            }
        }
        // A message with which the server broke a rule is not an answer.
        let broke = matches!(error, Some(ConnectionError::Peer(_)));
        let ended = Ended {
            started: session.started,
            answered: session.replied || (session.understood && !broke),
            waited_for: !self.calls.is_empty(),
        };
        let failure = Failure {
            met: match error {
                // A server that is only silent has set up an RDMA connection with us, so it may be slow.
                Some(ConnectionError::Silent) => Met::Nobody,
                // The same, or it ignores what is not version 1. We may speak version 2 only, so it gets more time.
                Some(ConnectionError::NoAnswer) => Met::Silence,
                _ => Met::Ended,
            },
            source: error.map(|error| Arc::new(error.clone()) as _),
        };
        let next = self.outage.ended(ended, failure, self.env.clock.now(), &*self.env.random);
        self.go_on(next);
    }

    /// As far as we can know, the server has no version 2: we use version 1 from now on, at once on a new connection.
    // V2-4.2.3.2-d, V2-4.2.3.2-h
    fn without_version_2(&mut self, why: NoVersion2) {
        self.versions = Versions::One;
        self.observer.event(self.server, &Event::NoVersion2(why));
        self.phase = Phase::Idle;
    }

    /// The server speaks nothing that we may speak: calls fail, and the next tries again.
    fn no_version(&mut self, low: u32, high: u32) {
        let source = RemoteError::Version { low, high };
        self.calls.fail_all(&TransportError::Remote { server: self.server, source });
        self.phase = Phase::Idle;
    }

    /// The server did not prove who it is: calls fail, and the next tries again.
    fn distrusted(&mut self) {
        let rule = "a server must prove who it is if the client asks for that";
        self.calls.fail_all(&TransportError::Violation { server: self.server, rule });
        self.phase = Phase::Idle;
    }

    /// Publishes whether calls wait, and until when at most.
    fn tell_silence(&mut self) {
        let standing = match &mut self.phase {
            Phase::Up(session) => {
                let Heard { messages, alive } = std::mem::take(&mut session.heard);
                self.listener.came(messages as u64, alive as u64, self.env.clock.now());
                let since = session.started.max(self.listener.last());
                let judged = session.gives_up_at();
                let patience = judged.map_or(SILENCE_LIMIT + PROBE_TIMEOUT, |when| when.since(since));
                Some(Standing { since, patience, is_proof: false })
            }
            _ => None,
        };
        let until = self.outage.until(self.listener.since(), standing);
        self.listener.tell((!self.calls.is_empty()).then_some(until));
    }

    /// Remembers that a server has refused version 2, so that the client does not ask it again.
    fn heed_refusal(&mut self) {
        let Phase::Up(session) = &self.phase else { return };
        if self.versions == Versions::Auto && session.negotiated.as_ref().is_some_and(|made| made.refused.is_some()) {
            // V2-7.1.1-d
            self.versions = Versions::One;
            self.observer.event(self.server, &Event::NoVersion2(NoVersion2::Refused));
        }
    }

    /// An attempt has failed, or must not be made at once.
    fn failed(&mut self, failure: Failure) {
        let next = self.outage.failed(failure, self.env.clock.now(), &*self.env.random);
        self.go_on(next);
    }

    fn go_on(&mut self, next: Next) {
        self.phase = match next {
            Next::Now => Phase::Idle,
            Next::After(pause) => {
                if !self.finished {
                    self.observer.event(self.server, &Event::Reconnecting { pause });
                }
                Phase::Pausing(self.env.clock.sleep_until(self.env.clock.now() + pause))
            }
            Next::Fail(error) => {
                self.calls.fail_all(&error);
                Phase::Idle
            }
        };
    }
}

impl Future for ClientDriver {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let polled = self.step(cx);
        self.tell_silence();
        polled
    }
}

impl ClientDriver {
    fn step(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let this = self;
        this.lingering.retain_mut(|service| service.poll_rest(cx).is_pending());
        loop {
            if let Some(port) = &mut this.port {
                port.refuse_all(cx);
            }
            while !this.finished
                && let Poll::Ready(command) = this.commands.poll_recv(cx)
            {
                match command {
                    Some(command) => this.command(command),
                    None => this.finished = true,
                }
            }
            match &mut this.phase {
                Phase::Up(session) => {
                    if this.finished {
                        session.close(None);
                    }
                    let ended = session.poll(cx, &mut this.calls);
                    this.heed_refusal();
                    let error = ready!(ended).err();
                    if let Some(error) = &error {
                        tracing::debug!(server = %this.server, %error, "connection lost");
                    }
                    if let Phase::Up(session) = std::mem::replace(&mut this.phase, Phase::Idle) {
                        this.lost(session, error.as_ref());
                    }
                }
                _ if this.finished => {
                    this.port = None;
                    // The last connection's calls have only now been added.
                    this.lingering.retain_mut(|service| service.poll_rest(cx).is_pending());
                    return if this.lingering.is_empty() { Poll::Ready(()) } else { Poll::Pending };
                }
                Phase::Idle if this.calls.is_empty() => return Poll::Pending,
                Phase::Idle => this.phase = Phase::Connecting(this.attempt()),
                Phase::Pausing(pause) => {
                    ready!(pause.as_mut().poll(cx));
                    this.phase = Phase::Connecting(this.attempt());
                }
                Phase::Connecting(attempt) => match ready!(attempt.as_mut().poll(cx)) {
                    Ok(connected) => this.connected(connected),
                    Err(error) => {
                        let met = met(&error);
                        this.failed(Failure { met, source: Some(Arc::new(error)) });
                    }
                },
            }
        }
    }
}

impl std::fmt::Debug for ClientDriver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ClientDriver({})", self.server)
    }
}
