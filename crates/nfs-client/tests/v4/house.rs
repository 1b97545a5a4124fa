//! Our server in the same process, and a wire to it on which a test can watch and interfere: it can lose calls before
//! or after they are executed, and change results on their way. Time is tokio's, which stands still unless all tasks
//! wait.

use bytes::Bytes;
use rpcrdma_env::{BoxFuture, Env, Heap, SeededRandom, TokioClock};
use rpcrdma_nfs::v4::{Arguments, Handle, Op, PROGRAM, Results, VERSION};
use rpcrdma_nfs_client::v4::{Callbacks, Nfs4, Options};
use rpcrdma_nfsd::{
    DirectoryFs, Export, FileSystem, Identities, MemoryFs, Nfsd, Queue, Squash, StateDirectory, Version4,
};
use rpcrdma_oncrpc::{
    CallContext, CallHeader, CallInFlight, Cancelled, Client, ClientTransport, Connection, GoneSignal, Handler, Limits,
    Outcome, PendingCall, RemoteError, Reply, Request, Router, SysAuth, SysCredential, TransportError, TransportKind,
    XidSource,
};
use rpcrdma_xdr::{Decode, Decoder, Encode, Encoder, Stream};
use std::{
    future::Future,
    net::SocketAddr,
    path::Path,
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};
use tokio::{sync::oneshot, task::JoinHandle};

pub(crate) const SECRET: [u8; rpcrdma_nfsd::SECRET_BYTES] = [7; rpcrdma_nfsd::SECRET_BYTES];
const ADDRESS: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 2049);
/// The lease and the grace period of the server.
pub(crate) const LEASE: Duration = Duration::from_secs(30);
const GRACE: Duration = Duration::from_secs(20);
/// Bytes of a reply's head without a verifier.
const HEAD: usize = 24;

/// What happens to a call on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It arrives.
    Arrives,
    /// The transport reports an error instead.
    Fails,
    /// It is sent twice, because the reply to the first is lost.
    ComesTwice,
    /// It never gets a reply.
    Hangs,
}

type Before = Box<dyn FnMut(&Arguments) -> Fate + Send>;
type Change = Box<dyn FnMut(&mut Arguments) + Send>;
type After = Box<dyn FnMut(&Arguments, &mut Results) -> Fate + Send>;
type Mangle = Box<dyn FnMut(&Arguments, Vec<u8>) -> Vec<u8> + Send>;

/// Carries calls to the server.
pub(crate) struct Wire {
    xids: XidSource,
    handler: Mutex<Arc<dyn Handler>>,
    connection: Mutex<Arc<Connection>>,
    before: Mutex<Option<Before>>,
    change: Mutex<Option<Change>>,
    after: Mutex<Option<After>>,
    mangle: Mutex<Option<Mangle>>,
    /// The calls, and for each how many of its results had separate room.
    seen: Mutex<Vec<(Arguments, usize)>>,
    limits: Mutex<Limits>,
}

struct Coming(oneshot::Receiver<Result<Reply, TransportError>>);

impl Future for Coming {
    type Output = Result<Reply, TransportError>;
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(cx).map(|reply| reply.unwrap_or(Err(TransportError::Closed)))
    }
}

impl CallInFlight for Coming {
    fn cancel(self: Pin<Box<Self>>) -> BoxFuture<'static, Cancelled> {
        Box::pin(std::future::ready(Cancelled::default()))
    }
}

fn refused() -> TransportError {
    TransportError::Remote { server: ADDRESS, source: RemoteError::Chunk }
}

impl Wire {
    /// Interferes with calls before they are executed.
    pub(crate) fn before(&self, script: impl FnMut(&Arguments) -> Fate + Send + 'static) {
        *self.before.lock().unwrap() = Some(Box::new(script));
    }

    /// Changes calls on their way.
    pub(crate) fn change(&self, script: impl FnMut(&mut Arguments) + Send + 'static) {
        *self.change.lock().unwrap() = Some(Box::new(script));
    }

    /// The message, after the change.
    fn changed(&self, call: Option<&Arguments>, message: Bytes) -> Bytes {
        let (Some(call), Some(change)) = (call, &mut *self.change.lock().unwrap()) else { return message };
        let encoded = |call: &Arguments| {
            let mut encoder = Encoder::new();
            call.encode(&mut encoder);
            encoder.finish().to_bytes()
        };
        let head = message.len() - encoded(call).len();
        let mut other = call.clone();
        change(&mut other);
        // `new` sets the number of operations to that of the list.
        let other = Arguments { tag: other.tag.clone(), ..Arguments::new(other.minor, other.ops) };
        Bytes::from([&message[..head], &encoded(&other)].concat())
    }

    /// Interferes with results.
    pub(crate) fn after(&self, script: impl FnMut(&Arguments, &mut Results) -> Fate + Send + 'static) {
        *self.after.lock().unwrap() = Some(Box::new(script));
    }

    /// Changes the bytes of results, after [`after`](Self::after): to bytes that no results would encode to.
    pub(crate) fn mangle(&self, script: impl FnMut(&Arguments, Vec<u8>) -> Vec<u8> + Send + 'static) {
        *self.mangle.lock().unwrap() = Some(Box::new(script));
    }

    /// The wire's own connection has ended: from now on its calls use another wire's connection.
    pub(crate) fn takes_connection_of(&self, other: &Self) {
        *self.connection.lock().unwrap() = other.connection.lock().unwrap().clone();
    }

    pub(crate) fn honest(&self) {
        *self.mangle.lock().unwrap() = None;
        *self.before.lock().unwrap() = None;
        *self.change.lock().unwrap() = None;
        *self.after.lock().unwrap() = None;
    }

    /// The calls since this was last asked.
    pub(crate) fn calls(&self) -> Vec<Arguments> {
        self.seen.lock().unwrap().drain(..).map(|(call, _)| call).collect()
    }

    /// The same; for each call with the number of results that had separate room.
    pub(crate) fn calls_and_rooms(&self) -> Vec<(Arguments, usize)> {
        std::mem::take(&mut *self.seen.lock().unwrap())
    }

    /// Sets the largest size of messages.
    pub(crate) fn limit(&self, octets: usize) {
        *self.limits.lock().unwrap() = Limits::new(octets, octets);
    }

    fn execute(&self, message: &Bytes) -> BoxFuture<'static, Outcome> {
        let context = CallContext::new(self.connection.lock().unwrap().clone());
        self.handler.lock().unwrap().handle(context, Stream::from(message.clone()))
    }
}

/// The wire as a transport.
#[derive(Clone)]
pub(crate) struct Shared(pub(crate) Arc<Wire>);

impl ClientTransport for Shared {
    fn next_xid(&self) -> u32 {
        self.0.xids.next_xid()
    }

    fn call(&self, request: Request) -> PendingCall {
        let (sender, receiver) = oneshot::channel();
        let (wire, message) = (self.0.clone(), request.message.to_bytes());
        let mut decoder = Decoder::new(Stream::from(message.clone()));
        CallHeader::decode(&mut decoder).unwrap();
        let call = Arguments::decode(&mut decoder).ok();
        let max_reply = request.reply.max_len;
        if let Some(call) = &call {
            wire.seen.lock().unwrap().push((call.clone(), request.reply.items.len()));
        }
        tokio::spawn(async move {
            let fate = match (&call, &mut *wire.before.lock().unwrap()) {
                (Some(call), Some(before)) => before(call),
                _ => Fate::Arrives,
            };
            let message = wire.changed(call.as_ref(), message);
            match fate {
                Fate::Arrives => {}
                Fate::Fails => return drop(sender.send(Err(refused()))),
                Fate::ComesTwice => drop(wire.execute(&message).await),
                Fate::Hangs => {
                    std::future::pending::<()>().await;
                }
            }
            let Outcome::Reply(reply) = wire.execute(&message).await else { return };
            let mut reply = reply.to_bytes();
            let mut again = false;
            let after = wire.after.lock().unwrap().take();
            if let (Some(call), Some(mut after)) = (&call, after) {
                let mut decoder = Decoder::new(Stream::from(reply.slice(HEAD..)));
                if let Ok(mut results) = Results::<Bytes>::decode(&mut decoder) {
                    let fate = after(call, &mut results);
                    match fate {
                        Fate::Arrives => {}
                        Fate::ComesTwice => again = true,
                        Fate::Fails | Fate::Hangs => {}
                    }
                    let mut encoder = Encoder::new();
                    results.encode(&mut encoder);
                    reply = Bytes::from([&reply[..HEAD], &encoder.finish().to_bytes()].concat());
                    wire.after.lock().unwrap().get_or_insert(after);
                    match fate {
                        Fate::Fails => return drop(sender.send(Err(refused()))),
                        Fate::Hangs => std::future::pending::<()>().await,
                        Fate::Arrives | Fate::ComesTwice => {}
                    }
                }
            }
            if let (Some(call), Some(mangle)) = (&call, &mut *wire.mangle.lock().unwrap()) {
                let results = mangle(call, reply[HEAD..].to_vec());
                reply = Bytes::from([&reply[..HEAD], &results].concat());
            }
            let reply = match reply.len() > max_reply {
                true => Err(TransportError::ReplyTooLarge { len: reply.len(), max: max_reply }),
                false => Ok(Reply { stream: Stream::from(reply), retransmitted: again || fate == Fate::ComesTwice }),
            };
            drop(sender.send(reply));
        });
        PendingCall::new(Coming(receiver))
    }

    fn kind(&self) -> TransportKind {
        TransportKind::Tcp
    }

    fn limits(&self) -> Limits {
        *self.0.limits.lock().unwrap()
    }

    fn server(&self) -> SocketAddr {
        ADDRESS
    }
}

/// Calls of the server, to the client's callbacks.
struct Back {
    xids: XidSource,
    router: Router,
    connection: Arc<Connection>,
    seen: Arc<AtomicU64>,
}

impl ClientTransport for Back {
    fn next_xid(&self) -> u32 {
        self.xids.next_xid()
    }

    fn call(&self, request: Request) -> PendingCall {
        self.seen.fetch_add(1, Ordering::Relaxed);
        let (sender, receiver) = oneshot::channel();
        let message = Stream::from(request.message.to_bytes());
        let answer = self.router.handle(CallContext::new(self.connection.clone()), message);
        tokio::spawn(async move {
            if let Outcome::Reply(reply) = answer.await {
                let stream = Stream::from(reply.to_bytes());
                drop(sender.send(Ok(Reply { stream, retransmitted: false })));
            }
        });
        PendingCall::new(Coming(receiver))
    }

    fn kind(&self) -> TransportKind {
        TransportKind::Tcp
    }

    fn limits(&self) -> Limits {
        Limits::new(1 << 16, 1 << 16)
    }

    fn server(&self) -> SocketAddr {
        ADDRESS
    }
}

fn connection(id: u64) -> (GoneSignal, Connection) {
    let (signal, gone) = GoneSignal::new();
    let limits = Limits::new(2 << 20, 2 << 20);
    (signal, Connection::new(ADDRESS, ADDRESS, id, TransportKind::Tcp, limits, Arc::new(Heap), gone))
}

/// Our server, which a test can restart.
pub(crate) struct House {
    pub(crate) env: Env,
    storage: Arc<dyn FileSystem>,
    scratch: tempfile::TempDir,
    running: Mutex<Option<Running>>,
    version_4: fn(Version4) -> Version4,
    connections: AtomicU64,
}

struct Running {
    nfsd: Nfsd,
    upkeep: JoinHandle<()>,
    signals: Vec<GoneSignal>,
    starts: u64,
}

/// A server that does not answer.
struct Dead;

impl Handler for Dead {
    fn handle(&self, _: CallContext, _: Stream) -> BoxFuture<'static, Outcome> {
        Box::pin(std::future::ready(Outcome::Nothing))
    }
}

impl House {
    pub(crate) fn new() -> Self {
        Self::with(|version_4| version_4)
    }

    pub(crate) fn with(version_4: fn(Version4) -> Version4) -> Self {
        let env = Env { clock: Arc::new(TokioClock::new()), random: Arc::new(SeededRandom::new(1)) };
        let storage = Arc::new(MemoryFs::new(64 << 20, &env));
        Self::of(env, storage, version_4)
    }

    /// A server of a directory of this machine, whose contents a test can look at.
    pub(crate) fn on_disk(directory: &Path) -> Self {
        let env = Env { clock: Arc::new(TokioClock::new()), random: Arc::new(SeededRandom::new(1)) };
        let [served, state] = ["served", "state of it"].map(|name| directory.join(name));
        std::fs::create_dir(&served).unwrap();
        let state = StateDirectory::open(state, &*env.random).unwrap();
        let storage = DirectoryFs::open(&served, &state, Queue::in_place(), &env).unwrap();
        Self::of(env, Arc::new(storage), |version_4| version_4)
    }

    fn of(env: Env, storage: Arc<dyn FileSystem>, version_4: fn(Version4) -> Version4) -> Self {
        let scratch = tempfile::tempdir().unwrap();
        let running = Mutex::new(Some(start(&env, &storage, &scratch, version_4, 1)));
        Self { env, storage, scratch, running, version_4, connections: AtomicU64::new(1) }
    }

    /// Kills the server and starts it again; it still has what it wrote down.
    pub(crate) async fn restart(&self, wires: &[&Arc<Wire>]) {
        let starts = {
            let Running { nfsd, upkeep, signals, starts } = self.running.lock().unwrap().take().unwrap();
            wires.iter().for_each(|wire| *wire.handler.lock().unwrap() = Arc::new(Dead));
            drop((nfsd, signals));
            upkeep.abort();
            let _ = upkeep.await;
            starts + 1
        };
        let mut running = self.running.lock().unwrap();
        let running = running.insert(start(&self.env, &self.storage, &self.scratch, self.version_4, starts));
        for wire in wires {
            *wire.handler.lock().unwrap() = running.nfsd.nfs();
            let (signal, made) = connection(self.connections.fetch_add(1, Ordering::Relaxed));
            let reverse = wire.connection.lock().unwrap().reverse.clone();
            *wire.connection.lock().unwrap() = Arc::new(match reverse {
                Some(reverse) => made.with_reverse(reverse),
                None => made,
            });
            running.signals.push(signal);
        }
    }

    /// A wire without callbacks.
    pub(crate) fn wire(&self) -> Arc<Wire> {
        self.wire_with(None).0
    }

    fn wire_with(&self, callbacks: Option<&Callbacks>) -> (Arc<Wire>, Arc<AtomicU64>) {
        let mut running = self.running.lock().unwrap();
        let running = running.as_mut().unwrap();
        let (signal, made) = connection(self.connections.fetch_add(1, Ordering::Relaxed));
        running.signals.push(signal);
        let called = Arc::<AtomicU64>::default();
        let made = match callbacks {
            Some(callbacks) => {
                let (signal, of_client) = connection(0);
                running.signals.push(signal);
                let router = Router::new(&self.env).with_service(callbacks.service());
                made.with_reverse(Arc::new(Back {
                    xids: XidSource::new(&*self.env.random),
                    router,
                    connection: Arc::new(of_client),
                    seen: called.clone(),
                }))
            }
            None => made,
        };
        let wire = Wire {
            xids: XidSource::new(&*self.env.random),
            handler: Mutex::new(running.nfsd.nfs()),
            connection: Mutex::new(Arc::new(made)),
            before: Mutex::default(),
            change: Mutex::default(),
            after: Mutex::default(),
            mangle: Mutex::default(),
            seen: Mutex::default(),
            limits: Mutex::new(Limits::new((1 << 20) + 8_192, (1 << 20) + 8_192)),
        };
        (Arc::new(wire), called)
    }

    /// A client of a minor version, with a task that polls its driver.
    pub(crate) async fn client(&self, minor: u32) -> (Nfs4, Arc<Wire>) {
        let wire = self.wire();
        let nfs = self.client_over(&wire, Options::new("test").with_minors(minor..=minor)).await;
        (nfs, wire)
    }

    /// A client that the server can call, and a counter of these calls.
    pub(crate) async fn client_called(&self, minor: u32) -> (Nfs4, Arc<Wire>, Arc<AtomicU64>) {
        let callbacks = Callbacks::new();
        let (wire, called) = self.wire_with(Some(&callbacks));
        let options = Options::new("test").with_minors(minor..=minor).with_callbacks(callbacks);
        (self.client_over(&wire, options).await, wire, called)
    }

    pub(crate) async fn client_over(&self, wire: &Arc<Wire>, options: Options) -> Nfs4 {
        let nfs = Nfs4::connect(self.rpc(wire), &self.env, options).await.unwrap();
        tokio::spawn(nfs.driver());
        wire.calls();
        nfs
    }

    pub(crate) fn rpc(&self, wire: &Arc<Wire>) -> Client {
        let identity = Arc::new(SysAuth::new(SysCredential::default()));
        Client::new(Arc::new(Shared(wire.clone())), identity, PROGRAM, VERSION)
    }
}

fn start(
    env: &Env,
    storage: &Arc<dyn FileSystem>,
    scratch: &tempfile::TempDir,
    change: fn(Version4) -> Version4,
    starts: u64,
) -> Running {
    let env = Env { clock: env.clock.clone(), random: Arc::new(SeededRandom::new(1_000 + starts)) };
    let state = StateDirectory::open(scratch.path().join("state"), &*env.random).unwrap();
    let identities = Identities { squash: Squash::None, ..Identities::default() };
    let export = Export::new("/", storage.clone()).with_identities(identities);
    let version_4 = Version4::new(&state, Queue::in_place()).with_lease(LEASE).with_grace(GRACE);
    let nfsd = Nfsd::new(vec![export], SECRET, &env).unwrap();
    let nfsd = nfsd.with_version_4(change(version_4), true, &env).unwrap();
    let upkeep = tokio::spawn(nfsd.upkeep());
    Running { nfsd, upkeep, signals: Vec::new(), starts }
}

/// A client of this minor version with its own server, the wire between them, and the root.
pub(crate) async fn at_home(minor: u32) -> (House, Nfs4, Arc<Wire>, Handle) {
    let house = House::new();
    let (nfs, wire) = house.client(minor).await;
    let root = nfs.root().await.unwrap().file;
    (house, nfs, wire, root)
}

/// Whether a call has this operation.
pub(crate) fn has(call: &Arguments, op: Op) -> bool {
    call.ops.iter().any(|args| args.op() == op)
}

/// How many calls have it.
pub(crate) fn count(calls: &[Arguments], op: Op) -> usize {
    calls.iter().filter(|call| has(call, op)).count()
}

/// The operations of calls, without SEQUENCE and the operations that lead to a file.
pub(crate) fn ops(calls: &[Arguments]) -> Vec<Vec<Op>> {
    let of = |call: &Arguments| {
        let ops = call.ops.iter().map(|args| args.op());
        ops.filter(|op| !matches!(op, Op::Sequence | Op::PutFh)).collect()
    };
    calls.iter().map(of).collect()
}
