//! A client's transport over record-marked TCP: its options and its handle. The driver and its connections are beside
//! it.
//!
//! The driver owns the connection, the calls outstanding (their bytes shared with the caller) and a sender for each
//! reply. Result buffers that a caller lends stay with its pending call: over TCP the results are slices of the
//! received record. When the connection is lost it is made again by the rules of [`outage`](crate::outage), and
//! outstanding calls are sent again in first-sent order with the same XIDs. On a live connection nothing is sent twice:
//! after a time of silence a NULL call decides whether it is alive. A server that has never answered has less time.

mod driver;
mod link;
mod serving;

use super::{
    Connector, MAX_RECORD_BYTES,
    calls::{self, Command},
};
use crate::{
    ClientTransport, Handler, Limits, Listener, PendingCall, Request, Silence, TransportError, TransportKind,
    XidSource,
    outage::{Outage, OutageLimits, Sought},
};
use driver::Driver;
use rpcrdma_env::{Allocator, BusyPoll, Env};
use serving::Serving;
use std::{collections::BTreeMap, future::Future, net::SocketAddr, sync::Arc, time::Duration};
use tokio::sync::mpsc;

/// The handler for calls of the server over the client's connection, and how many it executes at a time.
#[derive(Clone)]
pub struct Reverse {
    /// Executes them.
    pub handler: Arc<dyn Handler>,
    /// The most calls that are executed at a time. One more is dropped without a reply: a server may not have more
    /// under way than the client has announced, and if the client stopped reading, it would get no replies either.
    pub calls: usize,
}

impl std::fmt::Debug for Reverse {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reverse").field("calls", &self.calls).finish_non_exhaustive()
    }
}

/// Times and limits of a client's transport.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ClientOptions {
    /// The largest record sent or accepted, in bytes.
    pub max_record: usize,
    /// How long one attempt to connect may take.
    pub connect: Duration,
    /// How long the client tries to connect again before its calls fail.
    pub outage: Duration,
    /// The same where the server ends the connections that it accepts, and has never answered.
    pub first_answer: Duration,
    /// The same where it accepts connections and says nothing. On a connection to a server that has never answered
    /// `silence` and `probe` are a quarter of this at most.
    pub first_sign: Duration,
    /// How long the server may be silent while calls are outstanding before the client sends a NULL.
    pub silence: Duration,
    /// How long that NULL may take.
    pub probe: Duration,
    /// The pause before the second attempt to connect; it doubles up to `max_pause`.
    pub min_pause: Duration,
    /// The longest pause between attempts. Each has up to its half added at random.
    pub max_pause: Duration,
    /// The protocol that the server should speak, as users name it, for errors.
    pub service: &'static str,
    /// When the client looks for the next reply again and again before its thread sleeps.
    pub busy_poll: BusyPoll,
    /// Calls from the server, if it may make any.
    pub reverse: Option<Reverse>,
    /// The source of XIDs, if several transports are used as one ([`Spread`](crate::Spread)).
    pub xids: Option<Arc<XidSource>>,
}

impl ClientOptions {
    fn outage_limits(&self) -> OutageLimits {
        let Self { outage, first_answer, first_sign, min_pause, max_pause, .. } = *self;
        OutageLimits { outage, first_answer, first_sign, min_pause, max_pause }
    }
}

impl Default for ClientOptions {
    /// 1 MiB of data; 10 s to connect, 120 s of outage, 10 s for the first answer and 30 s for the first sign, 20 s of
    /// silence, 25 s for the NULL, as over RDMA; pauses of 0.1 to 5 s.
    fn default() -> Self {
        let OutageLimits { outage, first_answer, first_sign, min_pause, max_pause } = OutageLimits::default();
        Self {
            max_record: MAX_RECORD_BYTES,
            connect: Duration::from_secs(10),
            outage,
            first_answer,
            first_sign,
            silence: Duration::from_secs(20),
            probe: Duration::from_secs(25),
            min_pause,
            max_pause,
            service: "RPC",
            busy_poll: BusyPoll::default(),
            reverse: None,
            xids: None,
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
    let xids = options.xids.clone().unwrap_or_else(|| Arc::new(XidSource::new(&*env.random)));
    let sought = Sought { server, service: options.service, over: TransportKind::Tcp };
    let listener = Listener::new(env.clock.now());
    let silence = listener.silence();
    let max_record = options.max_record;
    let mut driver = Driver {
        serving: Serving::new(options.reverse.clone()),
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
        by_xid: foldhash::HashMap::default(),
        next_call: 0,
    };
    let io =
        driver.attempt().await.map_err(|source| TransportError::Unreachable { server, source: Arc::new(source) })?;
    let transport = TcpTransport { commands: sender, xids, server, max_record, silence };
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

impl ClientTransport for TcpTransport {
    fn next_xid(&self) -> u32 {
        self.xids.next_xid()
    }

    fn call(&self, request: Request) -> PendingCall {
        calls::start(request, self.limits(), &self.commands)
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
