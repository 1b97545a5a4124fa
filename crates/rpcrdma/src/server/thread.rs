//! The serving threads: each a single-threaded runtime with an accept loop on every port.

use super::{
    Result, datagrams,
    ends::{Ended, Ends, Why},
    gate::{Entry, Gate},
    handed::Handed,
    memory::Memory,
    metrics,
    ports::{Ports, Spoken},
    seldom::Seldom,
    serving::Serving,
    setups::FailedSetups,
    shares::{self, Share},
    stranger,
    tally::{Called, Counted, Tally, Watched},
};

use crate::error::Context as _;
use futures_util::future::OptionFuture;
use rpcrdma_env::{BusyPoll, Env};
use rpcrdma_fabric::{Fabric, Listener, Pending};
use rpcrdma_iwarp::{Config, Iwarp, Tap, keepalive};
use rpcrdma_nfsd::Nfsd;
use rpcrdma_oncrpc::{ConnectionIds, Handler, tcp};
use rpcrdma_transport::{Observer, RefusedCalls, Server, ServerOptions, Versions};
use rustix::net::sockopt;
use std::{
    future::{Future, poll_fn},
    net::{SocketAddr, TcpListener, UdpSocket},
    sync::Arc,
    task::{Context, Poll, ready},
    time::{Duration, Instant},
};
use tokio::{
    net::TcpStream,
    sync::{oneshot, watch},
    task::JoinSet,
};

/// How long a loop waits before it accepts again after a failure, such as a lack of descriptors.
pub const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The most calls under way to one client over one connection: Linux's client has as many receives and slots. Over RDMA
/// each call takes a receive of its own.
pub(super) const CALLBACK_CREDITS: u32 = 16;

/// Calls to one client in version 1 of RPC-over-RDMA that are sent before one of its calls is answered, at most, in
/// number. Linux's client posts some 32 receives for them, and replaces them only when a reply to a call of its own
/// comes: one message more than that, and iWARP ends the connection.
pub(super) const CALLBACKS_BETWEEN_ANSWERS: u32 = 16;

/// The largest call to the portmapper over TCP, in bytes: an RPC header whose credential and verifier have 400 bytes
/// each, and what GETADDR asks with three texts of 128, take 1,244.
const PORTMAPPER_RECORD_BYTES: usize = 2048;
/// The largest call to lockd and statd over TCP, in bytes: the same header, and names, a cookie and an owner of 1,024
/// bytes each.
const LOCKS_RECORD_BYTES: usize = 8192;

/// What all threads share.
#[derive(Clone)]
pub(super) struct Shared {
    pub(super) env: Env,
    pub(super) nfs: Arc<dyn Handler>,
    /// The handlers of calls over TCP and UDP, by protocol.
    pub(super) programs: Arc<[(Spoken, Arc<dyn Handler>)]>,
    /// The handler that answers clients that are not allowed.
    pub(super) stranger: Arc<dyn Handler>,
    /// The NFS service, which is informed when a connection has ended.
    pub(super) nfsd: Option<Arc<Nfsd>>,
    /// Whether version 4 is served, whose clients the server calls.
    pub(super) has_callbacks: bool,
    /// Numbers of connections, for all threads and transports.
    pub(super) connection_ids: ConnectionIds,
    pub(super) gate: Arc<Gate>,
    pub(super) setups: Arc<FailedSetups>,
    /// Connections that could not be accepted.
    pub(super) not_accepted: Arc<Seldom>,
    pub(super) ends: Arc<Ends>,
    /// Shared by all threads, as a client may reconnect to another one.
    pub(super) refused: RefusedCalls,
    pub(super) memory: Memory,
    pub(super) observer: Arc<dyn Observer>,
    pub(super) crc: bool,
    /// How long a peer may make no progress.
    pub(super) stall: Duration,
    pub(super) versions: Versions,
    /// When a thread looks for the next message before it sleeps.
    pub(super) busy_poll: BusyPoll,
    pub(super) tap: Option<Arc<dyn Tap>>,
    pub(super) stopping: watch::Receiver<bool>,
}

impl Shared {
    fn program(&self, spoken: Spoken) -> Option<Arc<dyn Handler>> {
        self.programs.iter().find(|(program, _)| *program == spoken).map(|(_, handler)| handler.clone())
    }
}

/// A device, and for each thread its share of the requests.
pub(super) type Dealt = (Arc<dyn Fabric>, Vec<Handed>);

/// Starts the threads.
pub(super) fn start(threads: usize, ports: &Ports, dealt: Option<Dealt>, shared: Shared) -> Result<Serving> {
    let mut ended = Vec::new();
    let (device, mut handed) = dealt.unzip();
    for (number, share) in shares::among(threads).enumerate() {
        let sockets = ports.0.iter().filter_map(|port| Some((port.spoken, port.address, port.listener.as_ref()?)));
        let listeners = sockets.map(|(spoken, address, listener)| Ok((spoken, address, listener.try_clone()?)));
        let listeners = listeners.collect::<std::io::Result<Vec<_>>>().context("cannot share a port")?;
        // The calls of a source in a second are counted by socket: one thread has all sockets of UDP.
        let sockets = ports.0.iter().filter(|_| number == 0);
        let sockets = sockets.filter_map(|port| Some((port.spoken, port.datagrams.as_ref()?)));
        let datagrams = sockets.map(|(spoken, socket)| Ok((spoken, socket.try_clone()?)));
        let datagrams = datagrams.collect::<std::io::Result<Vec<_>>>().context("cannot share a port")?;
        let sockets = Sockets { listeners, datagrams };
        let device = device.clone().zip(handed.as_mut().and_then(Vec::pop));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (sender, receiver) = oneshot::channel();
        let shared = shared.clone();
        std::thread::Builder::new()
            .name(format!("rpcrdma-{number}"))
            .spawn(move || {
                runtime.block_on(serve(sockets, device, share, shared));
                // Drops its tasks, and waits for no work of a service on threads for blocking work.
                runtime.shutdown_background();
                let _ = sender.send(());
            })
            .context("cannot start a thread")?;
        ended.push(receiver);
    }
    Ok(Serving::new(ended))
}

/// The sockets on which a thread listens. A device's listener is apart.
struct Sockets {
    listeners: Vec<(Spoken, SocketAddr, TcpListener)>,
    datagrams: Vec<(Spoken, UdpSocket)>,
}

async fn serve(sockets: Sockets, device: Option<(Arc<dyn Fabric>, Handed)>, share: Share, shared: Shared) {
    let mut config = Config::default();
    config.crc = shared.crc;
    config.tap = shared.tap.clone();
    config.stall_timeout = shared.stall;
    config.busy_poll = shared.busy_poll;
    let iwarp = Iwarp::new(shared.env.clone(), config);
    let mut options = ServerOptions::default();
    options.stall = shared.stall;
    options.versions = shared.versions;
    options.refused = shared.refused.clone();
    options.connection_ids = shared.connection_ids.clone();
    options.reverse_credits = if shared.has_callbacks { CALLBACK_CREDITS } else { 0 };
    options.reverse_calls_between_answers = CALLBACKS_BETWEEN_ANSWERS;
    let fabric: &dyn Fabric = match &device {
        Some((device, _)) => &**device,
        None => &iwarp,
    };
    let server = Server::new(
        fabric,
        shared.nfs.clone(),
        shared.memory.rdma(),
        shared.env.clone(),
        options,
        shared.observer.clone(),
    );
    let mut loops = JoinSet::new();
    if let Some((_, handed)) = device {
        // These requests are dealt out already.
        loops.spawn(accept_rdma(Box::new(handed), server.clone(), None, shared.clone()));
    }
    for (spoken, address, listener) in sockets.listeners {
        let (shared, share) = (shared.clone(), share.clone());
        if spoken == Spoken::Rdma {
            match iwarp.listen_on(listener) {
                Ok(listener) => _ = loops.spawn(accept_rdma(listener, server.clone(), Some(share.clone()), shared)),
                Err(error) => {
                    share.leave();
                    tracing::error!(%address, %error, "cannot listen");
                }
            }
            continue;
        }
        let program = shared.program(spoken);
        match (program, tokio::net::TcpListener::from_std(listener)) {
            (Some(program), Ok(listener)) => _ = loops.spawn(accept_tcp(listener, (spoken, program), share, shared)),
            (None, _) => tracing::error!(%address, "cannot serve: {} has no program", spoken.name()),
            (_, Err(error)) => {
                share.leave();
                tracing::error!(%address, %error, "cannot listen");
            }
        }
    }
    for (spoken, socket) in sockets.datagrams {
        match shared.program(spoken) {
            Some(program) => _ = loops.spawn(datagrams::serve(socket, spoken, program, shared.clone())),
            None => tracing::error!("cannot serve over UDP: {} has no program", spoken.name()),
        }
    }
    all_ended(loops, shared.stopping).await;
}

/// Completes when all accept loops have ended, or when nobody waits for them any more: dropping them cuts their
/// connections.
async fn all_ended(mut loops: JoinSet<()>, mut stopping: watch::Receiver<bool>) {
    let ended = async {
        while let Some(ended) = loops.join_next().await {
            if let Err(error) = ended {
                tracing::error!(%error, "a port is not served any more");
            }
        }
    };
    tokio::select! {
        () = ended => {}
        () = async { while stopping.changed().await.is_ok() {} } => {}
    }
}

/// A connection from which calls come. When it has ended, it belongs to no session of version 4 any more.
struct Numbered {
    nfsd: Option<Arc<Nfsd>>,
    id: u64,
}

impl Drop for Numbered {
    fn drop(&mut self) {
        if let Some(nfsd) = &self.nfsd {
            nfsd.connection_ended(self.id);
        }
    }
}

/// Completes when the server is to stop.
pub(super) async fn stopped(stopping: &mut watch::Receiver<bool>) {
    // An error means that the sender is gone.
    let _ = stopping.wait_for(|&stop| stop).await;
}

/// Accepts until the server is to stop, then waits for the connections. With a share, it accepts only while it is this
/// thread's turn.
async fn accept_all<T>(
    mut accept: impl FnMut(&mut Context<'_>) -> Poll<Result<(SocketAddr, T), String>>,
    mut share: Option<Share>,
    shared: Shared,
    connect: impl Fn(T, Entry, SocketAddr, watch::Receiver<bool>) -> rpcrdma_env::BoxFuture<'static, ()>,
) {
    let mut stopping = shared.stopping.clone();
    let mut connections = JoinSet::new();
    loop {
        let may_accept = share.as_mut().is_none_or(Share::is_least);
        let accepted = tokio::select! {
            biased;
            () = stopped(&mut stopping) => break,
            Some(_) = connections.join_next() => continue,
            Some(()) = OptionFuture::from(share.as_mut().map(Share::changed)) => continue,
            accepted = poll_fn(&mut accept), if may_accept => accepted,
        };
        match accepted {
            Ok((peer, connection)) => match shared.gate.enter(peer.ip()) {
                Ok(entry) => {
                    let counted = share.as_ref().map(Share::take);
                    let connection = connect(connection, entry, peer, shared.stopping.clone());
                    connections.spawn(async move {
                        connection.await;
                        drop(counted);
                    });
                }
                Err(refusal) => {
                    metrics::refused(refusal);
                    tracing::debug!(%peer, %refusal, "not served");
                }
            },
            Err(error) => {
                if let Some(untold) = shared.not_accepted.tell(Instant::now()) {
                    tracing::warn!(%error, untold, "cannot accept a connection");
                }
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    while connections.join_next().await.is_some() {}
}

async fn accept_rdma(mut listener: Box<dyn Listener>, server: Arc<Server>, share: Option<Share>, shared: Shared) {
    let accept = move |cx: &mut Context<'_>| {
        let accepted = ready!(listener.poll_accept(cx));
        Poll::Ready(accepted.map(|pending| (pending.peer(), pending)).map_err(|error| describe(&error)))
    };
    let connect = |pending: Box<dyn Pending>, entry: Entry, peer: SocketAddr, stopping| {
        let (server, shared) = (server.clone(), shared.clone());
        Box::pin(async move {
            let setup = match entry {
                Entry::Guest(setup) => setup,
                Entry::Stranger(place) => return stranger::reject(pending, place, peer).await,
            };
            let memory = shared.memory.of(peer.ip());
            let tally = Arc::<Tally>::default();
            let observer = Arc::new(Watched { inner: shared.observer.clone(), tally: tally.clone() });
            match server.accept_observed(pending, memory.rdma(), observer).await {
                Ok((handle, driver)) => {
                    let admitted = setup.finish();
                    let numbered = Numbered { nfsd: shared.nfsd.clone(), id: handle.id() };
                    let begin = Instant::now();
                    let (ended, why) = drive(driver, move || handle.drain(), stopping).await;
                    drop((ended, numbered));
                    let lasted = begin.elapsed();
                    shared.ends.tell(&Ended { client: peer, spoken: Spoken::Rdma, lasted, tally: &tally, why });
                    drop(admitted);
                }
                Err(error) => shared.setups.failed(peer, &error),
            }
        }) as rpcrdma_env::BoxFuture<'static, ()>
    };
    accept_all(accept, share, shared.clone(), connect).await;
}

async fn accept_tcp(
    listener: tokio::net::TcpListener,
    (spoken, program): (Spoken, Arc<dyn Handler>),
    share: Share,
    shared: Shared,
) {
    let accept = move |cx: &mut Context<'_>| {
        let accepted = ready!(listener.poll_accept(cx));
        Poll::Ready(accepted.map(|(stream, peer)| (peer, stream)).map_err(|error| error.to_string()))
    };
    let inside = shared.clone();
    let connect = move |stream: TcpStream, entry: Entry, peer: SocketAddr, stopping| {
        let (shared, inner) = (inside.clone(), program.clone());
        Box::pin(async move {
            prepare(&stream, shared.stall);
            let setup = match entry {
                Entry::Guest(setup) => setup,
                Entry::Stranger(place) => return stranger::answer(stream, peer, place, &shared).await,
            };
            let Ok(local) = stream.local_addr() else { return };
            let (begin, tally) = (Instant::now(), Arc::<Tally>::default());
            let counted = metrics::TcpConnection::new();
            let stream = Counted { stream, tally: tally.clone(), numbers: counted.bytes() };
            let handler = Arc::new(Called { inner, tally: tally.clone() });
            let id = shared.connection_ids.next_id();
            let numbered = Numbered { nfsd: shared.nfsd.clone(), id };
            let memory = shared.memory.of(peer.ip());
            let endpoint = tcp::Endpoint { peer, local, id, allocator: Arc::new(memory.tcp()) };
            let mut options = tcp::ServerOptions::default();
            options.stall = shared.stall;
            options.busy_poll = shared.busy_poll;
            match spoken {
                Spoken::Portmapper => options.max_record = PORTMAPPER_RECORD_BYTES,
                Spoken::Lockd | Spoken::Statd => options.max_record = LOCKS_RECORD_BYTES,
                Spoken::Rdma | Spoken::Nfs | Spoken::Mount => {}
            }
            if spoken == Spoken::Nfs && shared.has_callbacks {
                options.reverse_calls = CALLBACK_CREDITS as usize;
            }
            let (handle, driver) = tcp::serve(stream, endpoint, handler, shared.env.clock.clone(), options);
            let admitted = setup.finish();
            let draining = handle.clone();
            let (ended, why) = drive(driver, move || draining.drain(), stopping).await;
            shared.ends.tell(&Ended { client: peer, spoken, lasted: begin.elapsed(), tally: &tally, why });
            drop(numbered);
            counted.ended(&ended, handle.stray_replies());
            drop(admitted);
        }) as rpcrdma_env::BoxFuture<'static, ()>
    };
    accept_all(accept, Some(share), shared, connect).await;
}

/// Sets up an accepted stream. It sends without delay: replies are written whole, so that waiting for more data would
/// only add latency. It detects a peer that has vanished, whether data are unacknowledged or the connection is idle.
fn prepare(stream: &TcpStream, stall: Duration) {
    let set = || {
        stream.set_nodelay(true)?;
        sockopt::set_socket_keepalive(stream, true)?;
        let (idle, interval) = keepalive(stall);
        sockopt::set_tcp_keepidle(stream, idle)?;
        sockopt::set_tcp_keepintvl(stream, interval)?;
        sockopt::set_tcp_user_timeout(stream, u32::try_from(stall.as_millis()).unwrap_or(u32::MAX))?;
        std::io::Result::Ok(())
    };
    if let Err(error) = set() {
        tracing::debug!(%error, "a socket option cannot be set");
    }
}

/// Drives a connection to its end, and asks it to come to one when the server is to stop. Says how it ended, and why.
async fn drive<E: std::error::Error>(
    driver: impl Future<Output = Result<(), E>>,
    drain: impl FnOnce(),
    mut stopping: watch::Receiver<bool>,
) -> (Result<(), E>, Why) {
    let mut driver = std::pin::pin!(driver);
    let (ended, orderly) = tokio::select! {
        biased;
        ended = &mut driver => (ended, Why::Client),
        () = stopped(&mut stopping) => {
            drain();
            (driver.await, Why::Stopping)
        }
    };
    let why = ended.as_ref().err().map_or(orderly, |error| Why::Failed(describe(error)));
    (ended, why)
}

/// An error with its causes, on one line.
pub(super) fn describe(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text += &format!(": {error}");
        cause = error.source();
    }
    text
}
