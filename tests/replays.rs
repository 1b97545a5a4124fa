//! Calls that must not be executed twice, and whose connection ends between execution and reply: each procedure of NFS
//! version 3, SETACL of NFSACL, and a test's own program, over the simulated fabric, software iWARP and TCP, and from
//! one of them to another. The client sends the call again from another port and often in another form; the server
//! recognizes it by the client's address, the XID and the contents (ULB section 3.4.2).

mod nfs;

use bytes::Bytes;
use nfs::{ADDRESS, CLIENT, SERVER};
use rpcrdma_env::{BoxFuture, Env, Heap, tokio_env};
use rpcrdma_fabric::Fabric;
use rpcrdma_iwarp::{Config, Iwarp};
use rpcrdma_nfs::{
    Call,
    attr::PosixAcl,
    nfsacl::{List, Lists, SetAcl, mask},
    v3::{self, CreateHow, Handle, Name, NewAttributes, NodeKind, Path, Procedure, Stability, Status},
};
use rpcrdma_nfs_client::Nfs3;
use rpcrdma_nfsd::MemoryFs;
use rpcrdma_oncrpc::{
    AUTH_SYS, Answer, CallContext, CallHeader, CallId, Client, ClientTransport, Handler, OpaqueAuth, Outcome,
    ReplyHeader, ReplyShape, Request, Router, Service, SysAuth, SysCredential,
    tcp::{self, Connector, Io},
};
use rpcrdma_sim::World;
use rpcrdma_transport::{ClientOptions, Quiet, Server, ServerMemory, ServerOptions, Versions, connect};
use rpcrdma_xdr::{Decoder, Encode, Encoder, Payload, Stream};
use std::{
    future::poll_fn,
    io,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU16, AtomicU32, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};
use tokio::{
    io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf},
    task::{AbortHandle, JoinSet},
};

/// The address of a client whose connection is never cut.
const OTHER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 3));

/// Stands between a server's transports and its programs: runs a test's action after the next call is executed and
/// before its reply is sent.
struct Between {
    inner: Arc<dyn Handler>,
    then: Mutex<Option<BoxFuture<'static, ()>>>,
}

impl Between {
    fn new(inner: Arc<dyn Handler>) -> Arc<Self> {
        Arc::new(Self { inner, then: Mutex::default() })
    }

    fn then(&self, then: BoxFuture<'static, ()>) {
        *self.then.lock().unwrap() = Some(then);
    }
}

impl Handler for Between {
    fn handle(&self, context: CallContext, message: Stream) -> BoxFuture<'static, Outcome> {
        let call = self.inner.handle(context, message);
        let Some(then) = self.then.lock().unwrap().take() else { return call };
        Box::pin(async move {
            let outcome = call.await;
            then.await;
            outcome
        })
    }
}

/// A call without its XID.
#[derive(Clone)]
struct Deed {
    name: &'static str,
    program: (u32, u32),
    procedure: u32,
    args: Payload,
    max_reply: usize,
}

fn deed<C: Call>(call: &C) -> Deed {
    named(Procedure::from_number(C::PROCEDURE).unwrap().name(), call)
}

fn named<C: Call>(name: &'static str, call: &C) -> Deed {
    let mut args = Encoder::new();
    call.encode(&mut args);
    let max_reply = call.reply_shape().max_len;
    Deed { name, program: (C::PROGRAM, C::VERSION), procedure: C::PROCEDURE, args: args.finish(), max_reply }
}

impl Deed {
    /// The call with this XID.
    fn request(&self, xid: u32) -> Request {
        let mut body = Encoder::new();
        SysCredential::default().encode(&mut body);
        let credential = OpaqueAuth { flavour: AUTH_SYS, body: body.finish().to_bytes() };
        let (program, version) = self.program;
        let id = CallId { xid, program, version, procedure: self.procedure };
        let mut message = Encoder::new();
        CallHeader { id, credential, verifier: OpaqueAuth::none() }.encode(&mut message);
        message.payload(self.args.clone());
        let reply = ReplyShape::inline(self.max_reply + 64);
        Request { xid, message: message.finish(), reply, repeatable: false, anew: None }
    }
}

/// The bytes of a reply's results.
fn results(stream: Stream) -> Vec<u8> {
    let mut decoder = Decoder::new(stream);
    ReplyHeader::decode(&mut decoder).unwrap().status.unwrap();
    let mut octets = Vec::new();
    while let Ok(word) = decoder.u32() {
        octets.extend(word.to_be_bytes());
    }
    octets
}

/// The first word of results: a status.
fn status(results: &[u8]) -> Status {
    Status(u32::from_be_bytes(results[..4].try_into().unwrap()))
}

/// Makes a call, and returns its results and whether the client has sent it more than once.
async fn send(transport: &Arc<dyn ClientTransport>, request: Request) -> (Vec<u8>, bool) {
    let reply = transport.call(request).await.unwrap();
    (results(reply.stream), reply.retransmitted)
}

async fn call(transport: &Arc<dyn ClientTransport>, deed: &Deed) -> (Vec<u8>, bool) {
    send(transport, deed.request(transport.next_xid())).await
}

type Making<T> = Box<dyn Fn() -> BoxFuture<'static, T> + Send + Sync>;

/// Cuts connections between execution and reply.
struct Stage {
    between: Arc<Between>,
    /// Makes a transport of the client whose connections are cut.
    client: Making<Arc<dyn ClientTransport>>,
    /// Ends its connections.
    cut: Arc<dyn Fn() -> BoxFuture<'static, ()> + Send + Sync>,
}

impl Stage {
    /// Makes a call whose connection ends after it is executed and `meanwhile` has happened. Its results must arrive
    /// all the same.
    async fn cut_off(&self, deed: &Deed, meanwhile: impl Future<Output = ()> + Send + 'static) -> Vec<u8> {
        let transport = (self.client)().await;
        let cut = self.cut.clone();
        self.between.then(Box::pin(async move {
            meanwhile.await;
            cut().await;
        }));
        let (results, again) = call(&transport, deed).await;
        assert!(again, "{}: it was sent twice", deed.name);
        results
    }
}

fn name(name: &str) -> Name {
    Name::from(name)
}

fn mode(mode: u32) -> NewAttributes {
    NewAttributes { mode: Some(mode), ..NewAttributes::default() }
}

async fn file(other: &Nfs3, root: &Handle, file: &str) -> Handle {
    other.create(root, &name(file), CreateHow::Guarded(mode(0o644))).await.unwrap().file.unwrap()
}

/// Calls, each with the status that a second execution would return.
async fn deeds(other: &Nfs3, root: &Handle) -> Vec<(Deed, Status)> {
    let attributed = file(other, root, "attributed").await;
    let linked = file(other, root, "linked").await;
    for made in ["removed", "renamed"] {
        file(other, root, made).await;
    }
    other.mkdir(root, &name("emptied"), mode(0o755)).await.unwrap();
    let guard = Some(other.getattr(&attributed).await.unwrap().changed);
    let directory = root.clone();
    let at = |made: &str| (directory.clone(), name(made));
    let ((a, created), (b, directory_made), (c, symlink), (d, node)) =
        (at("create"), at("mkdir"), at("symlink"), at("node"));
    vec![
        (deed(&v3::SetAttributes { file: attributed, attributes: mode(0o600), guard }), Status::NOT_SYNC),
        (deed(&v3::Create { directory: a, name: created, how: CreateHow::Guarded(mode(0o644)) }), Status::EXIST),
        (deed(&v3::MakeDirectory { directory: b, name: directory_made, attributes: mode(0o755) }), Status::EXIST),
        (
            deed(&v3::SymbolicLink {
                directory: c,
                name: symlink,
                attributes: NewAttributes::default(),
                path: Path::from("over/there"),
            }),
            Status::EXIST,
        ),
        (deed(&v3::MakeNode { directory: d, name: node, kind: NodeKind::Fifo(mode(0o644)) }), Status::EXIST),
        (deed(&v3::Link { file: linked.clone(), directory: root.clone(), name: name("link") }), Status::EXIST),
        (
            deed(&v3::Rename {
                from_directory: root.clone(),
                from: name("renamed"),
                to_directory: root.clone(),
                to: name("moved"),
            }),
            Status::NOENT,
        ),
        (deed(&v3::Remove { directory: root.clone(), name: name("removed") }), Status::NOENT),
        (deed(&v3::RemoveDirectory { directory: root.clone(), name: name("emptied") }), Status::NOENT),
        // The server may execute this call again, and does.
        (deed(&v3::Commit { file: linked, offset: 0, count: 0 }), Status::OK),
    ]
}

/// Calls that succeed if they are executed again, but undo the other client's work done meanwhile: a second execution
/// would replace the bytes that the other client has written.
async fn overwriting(other: &Nfs3, root: &Handle) -> Vec<(Deed, Handle)> {
    let (written, cut) = (file(other, root, "written").await, file(other, root, "truncated").await);
    let attributed = file(other, root, "sized").await;
    let (stability, data) = (Stability::FileSync, Bytes::from(vec![1; 20_000]));
    let size = NewAttributes { size: Some(0), ..NewAttributes::default() };
    let how = CreateHow::Unchecked(size);
    vec![
        (deed(&v3::Write { file: written.clone(), offset: 0, stability, data }), written),
        (deed(&v3::SetAttributes { file: attributed.clone(), attributes: size, guard: None }), attributed),
        (deed(&v3::Create { directory: root.clone(), name: name("truncated"), how }), cut),
    ]
}

/// The bytes that the other client writes.
fn theirs() -> Bytes {
    Bytes::from(vec![2; 100])
}

async fn has_theirs(other: &Nfs3, file: &Handle) -> bool {
    other.read(file, 0, 100).await.unwrap().data == theirs()
}

/// Makes a call of each procedure that is not idempotent, and cuts its connection before the reply.
async fn each_is_executed_once(stage: &Stage, other: &Nfs3, root: &Handle) {
    for (deed, second) in deeds(other, root).await {
        let results = stage.cut_off(&deed, std::future::ready(())).await;
        assert_eq!(status(&results), Status::OK, "{}: the answer of the only execution", deed.name);
        let (anew, _) = call(&(stage.client)().await, &deed).await;
        assert_eq!(status(&anew), second, "{}: by another XID it is another call", deed.name);
    }
    for (deed, file) in overwriting(other, root).await {
        let (writer, to) = (other.clone(), file.clone());
        let meanwhile = async move {
            writer.write(&to, 0, Stability::FileSync, theirs()).await.unwrap();
        };
        let results = stage.cut_off(&deed, meanwhile).await;
        assert_eq!(status(&results), Status::OK, "{}", deed.name);
        assert!(has_theirs(other, &file).await, "{}: what another did meanwhile is undone", deed.name);
        let (anew, _) = call(&(stage.client)().await, &deed).await;
        assert_eq!(status(&anew), Status::OK);
        assert!(!has_theirs(other, &file).await, "{}: that would have been the second execution", deed.name);
    }
    set_acl_is_executed_once(stage, other, root).await;
}

/// SETACL travels on the connections of NFS (ULB-4.2-a). It succeeds if it is executed again, and undoes what another
/// client has set meanwhile.
async fn set_acl_is_executed_once(stage: &Stage, other: &Nfs3, root: &Handle) {
    const OURS: u32 = 0o600;
    const THEIRS: u32 = 0o644;
    let listed = file(other, root, "listed").await;
    let list = List::of(&PosixAcl::of_mode(OURS), (0, 0)).unwrap();
    let lists = Lists::new(mask::ACCESS, list, List::default());
    let deed = named("SETACL", &SetAcl { file: listed.clone(), lists });
    let has = async || other.getattr(&listed).await.unwrap().mode;
    let (setter, to) = (other.clone(), listed.clone());
    let results = stage
        .cut_off(&deed, async move {
            assert_eq!(setter.getattr(&to).await.unwrap().mode, OURS, "it was executed");
            setter.setattr(&to, mode(THEIRS), None).await.unwrap();
        })
        .await;
    assert_eq!(status(&results), Status::OK, "SETACL: the answer of the only execution");
    assert_eq!(has().await, THEIRS, "SETACL: what another did meanwhile is undone");
    let (anew, _) = call(&(stage.client)().await, &deed).await;
    assert_eq!(status(&anew), Status::OK, "SETACL: by another XID it is another call");
    assert_eq!(has().await, OURS, "SETACL: that would have been the second execution");
}

fn other_client(transport: Arc<dyn ClientTransport>, env: &Env) -> Nfs3 {
    let identity = Arc::new(SysAuth::new(SysCredential::default()));
    Nfs3::new(Client::new(transport, identity, v3::PROGRAM, v3::VERSION), env.clock.clone())
}

async fn root(storage: &Arc<MemoryFs>, env: &Env) -> Handle {
    Handle::new(nfs::root(storage, env).await.as_slice()).unwrap()
}

// Tests in a simulated world.

/// A server's end of a stream, until it is cut.
struct Cuttable {
    inner: DuplexStream,
    is_cut: Arc<AtomicBool>,
}

impl Io for Cuttable {}

impl Cuttable {
    fn stands(&self) -> io::Result<()> {
        match self.is_cut.load(Ordering::Relaxed) {
            true => Err(io::ErrorKind::ConnectionReset.into()),
            false => Ok(()),
        }
    }
}

impl AsyncRead for Cuttable {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.stands()?;
        Pin::new(&mut self.inner).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Cuttable {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, octets: &[u8]) -> Poll<io::Result<usize>> {
        self.stands()?;
        Pin::new(&mut self.inner).poll_write(cx, octets)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

/// One server in a world, over both transports.
#[derive(Clone)]
struct Simulated {
    world: Arc<World>,
    handler: Arc<Between>,
    /// The last connection over TCP.
    tcp: Arc<Mutex<Arc<AtomicBool>>>,
    ports: Arc<AtomicU16>,
}

/// Streams of one client to the server.
struct Streams {
    from: IpAddr,
    server: Simulated,
}

impl Connector for Streams {
    fn connect(&self) -> BoxFuture<'_, io::Result<Box<dyn Io>>> {
        let (near, far) = tokio::io::duplex(64 << 10);
        let is_cut = Arc::<AtomicBool>::default();
        *self.server.tcp.lock().unwrap() = is_cut.clone();
        let port = self.server.ports.fetch_add(1, Ordering::Relaxed);
        let (peer, allocator) = (SocketAddr::new(self.from, port), Arc::new(Heap));
        let endpoint = tcp::Endpoint { peer, local: ADDRESS, id: 1_000_000 + u64::from(port), allocator };
        let (io, options) = (Cuttable { inner: far, is_cut }, tcp::ServerOptions::default());
        let clock = self.server.world.env().clock;
        let (_, driver) = tcp::serve(io, endpoint, self.server.handler.clone(), clock, options);
        self.server.world.spawn(async move { drop(driver.await) });
        Box::pin(std::future::ready(Ok(Box::new(near) as Box<dyn Io>)))
    }

    fn server(&self) -> SocketAddr {
        ADDRESS
    }
}

/// The transport of a client.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Wire {
    Rdma(Versions),
    Tcp,
}

const WIRES: [Wire; 3] = [Wire::Rdma(Versions::One), Wire::Rdma(Versions::Two), Wire::Tcp];

impl Simulated {
    async fn new(world: &World, inner: Arc<dyn Handler>) -> Self {
        let handler = Between::new(inner);
        let fabric = world.fabric(SERVER);
        let mut options = ServerOptions::default();
        options.versions = Versions::Auto;
        let memory = ServerMemory::budget(16 << 20);
        let server = Server::new(&fabric, handler.clone(), memory, world.env(), options, Arc::new(Quiet));
        let spawner = world.clone();
        world.spawn(async move {
            let mut listener = fabric.listen(ADDRESS).await.unwrap();
            loop {
                let Ok(pending) = poll_fn(|cx| listener.poll_accept(cx)).await else { continue };
                let server = server.clone();
                spawner.spawn(async move {
                    if let Ok((_, driver)) = server.accept(pending).await {
                        let _ = driver.await;
                    }
                });
            }
        });
        world.sleep(Duration::from_millis(1)).await;
        let (tcp, ports) = (Arc::default(), Arc::new(AtomicU16::new(700)));
        Self { world: Arc::new(world.clone()), handler, tcp, ports }
    }

    async fn transport(&self, wire: Wire, from: IpAddr) -> Arc<dyn ClientTransport> {
        let env = self.world.env();
        match wire {
            Wire::Rdma(versions) => {
                let mut options = ClientOptions::default();
                options.versions = versions;
                let fabric = Arc::new(self.world.fabric(from));
                let (transport, driver) = connect(fabric, ADDRESS, &env, options, Arc::new(Quiet)).await.unwrap();
                self.world.spawn(driver);
                transport
            }
            Wire::Tcp => {
                let streams = Arc::new(Streams { from, server: self.clone() });
                let options = tcp::ClientOptions::default();
                let (transport, driver) = tcp::connect(streams, Arc::new(Heap), &env, options).await.unwrap();
                self.world.spawn(driver);
                transport
            }
        }
    }

    fn stage(&self, wire: Wire) -> Stage {
        let (here, cuts) = (self.clone(), self.clone());
        Stage {
            between: self.handler.clone(),
            client: Box::new(move || {
                let here = here.clone();
                Box::pin(async move { here.transport(wire, CLIENT).await }) as BoxFuture<'static, _>
            }),
            cut: Arc::new(move || {
                match wire {
                    Wire::Rdma(_) => cuts.world.cut(CLIENT, SERVER),
                    Wire::Tcp => cuts.tcp.lock().unwrap().store(true, Ordering::Relaxed),
                }
                Box::pin(std::future::ready(())) as BoxFuture<'static, ()>
            }),
        }
    }
}

/// proves: ULB-3.4.2-a, ULB-3.4.2-b
#[test]
fn each_procedure_of_version_3_is_executed_once() {
    for (seed, wire) in WIRES.into_iter().enumerate() {
        let world = World::new(seed as u64);
        let env = world.env();
        let storage = nfs::storage(&env);
        world.block_on(async {
            let server = Simulated::new(&world, nfs::nfsd(&storage, &env).nfs()).await;
            let other = other_client(server.transport(Wire::Rdma(Versions::One), OTHER).await, &env);
            each_is_executed_once(&server.stage(wire), &other, &root(&storage, &env).await).await;
        });
    }
}

/// A call that was executed over one transport comes again over another, with the same XID. From the same client it is
/// the same call, in whatever form it comes; from another client, or with other contents, it is not.
///
/// proves: ULB-3.4.2-a
#[test]
fn a_replay_over_another_transport_is_known() {
    for (seed, (first, second)) in WIRES.into_iter().flat_map(|one| WIRES.map(|two| (one, two))).enumerate() {
        let world = World::new(100 + seed as u64);
        let env = world.env();
        let storage = nfs::storage(&env);
        world.block_on(async {
            let what = format!("{first:?}, then {second:?}");
            let server = Simulated::new(&world, nfs::nfsd(&storage, &env).nfs()).await;
            let root = root(&storage, &env).await;
            let foreign = server.transport(second, OTHER).await;
            let other = other_client(foreign.clone(), &env);
            let transports = [server.transport(first, CLIENT).await, server.transport(second, CLIENT).await];
            for (xid, (deed, anew)) in (0x4000..).zip(deeds(&other, &root).await) {
                // The guard of SETATTR is a time, so time must pass.
                world.sleep(Duration::from_millis(1)).await;
                let (results, _) = send(&transports[0], deed.request(xid)).await;
                assert_eq!(status(&results), Status::OK, "{what}: {}", deed.name);
                let (replay, _) = send(&transports[1], deed.request(xid)).await;
                assert_eq!(replay, results, "{what}: {}, to the byte", deed.name);
                let (strange, _) = send(&foreign, deed.request(xid)).await;
                assert_eq!(status(&strange), anew, "{what}: {} of another client is another call", deed.name);
            }
            for (xid, (deed, file)) in (0x5000..).zip(overwriting(&other, &root).await) {
                let (results, _) = send(&transports[0], deed.request(xid)).await;
                other.write(&file, 0, Stability::FileSync, theirs()).await.unwrap();
                assert_eq!(send(&transports[1], deed.request(xid)).await.0, results, "{what}: {}", deed.name);
                assert!(has_theirs(&other, &file).await, "{what}: {}", deed.name);
            }
            // The same XID, and one byte that differs.
            let make = |made: &str, mode_of: u32| {
                let how = CreateHow::Guarded(mode(mode_of));
                deed(&v3::Create { directory: root.clone(), name: name(made), how })
            };
            for (made, mode) in [("same-xid-a", 0o644), ("same-xid-b", 0o644)] {
                let (results, _) = send(&transports[1], make(made, mode).request(0x6000)).await;
                assert_eq!(status(&results), Status::OK, "{what}: {made} is made");
                let (results, _) = send(&transports[0], make(made, mode ^ 1).request(0x6000)).await;
                assert_eq!(status(&results), Status::EXIST, "{what}: {made} by another call");
            }
        });
    }
}

/// A program whose procedure 1 counts. The program says that this procedure must not be executed twice.
#[derive(Default)]
struct Counter(AtomicU32);

const COUNTER: (u32, u32) = (0x2000_0009, 3);

impl Service for Counter {
    fn program(&self) -> u32 {
        COUNTER.0
    }
    fn version(&self) -> u32 {
        COUNTER.1
    }
    fn is_idempotent(&self, procedure: u32) -> bool {
        procedure != 1
    }
    fn call(&self, _: CallContext, _: u32, _: Decoder) -> BoxFuture<'static, Answer> {
        let mut results = Encoder::new();
        results.u32(self.0.fetch_add(1, Ordering::Relaxed));
        Box::pin(std::future::ready(Answer::Results(results.finish())))
    }
}

/// A router obeys what any program says of its procedures.
///
/// proves: ULB-3.4.2-a
#[test]
fn a_program_of_its_own_says_what_is_executed_once() {
    for (seed, wire) in WIRES.into_iter().enumerate() {
        let world = World::new(200 + seed as u64);
        world.block_on(async {
            let router = Router::new(&world.env()).with_service(Arc::new(Counter::default()));
            let server = Simulated::new(&world, Arc::new(router)).await;
            let stage = server.stage(wire);
            let deed =
                |procedure| Deed { name: "count", program: COUNTER, procedure, args: Payload::new(), max_reply: 4 };
            for (procedure, counted) in [(1, 0), (1, 1), (2, 3), (2, 5), (1, 6)] {
                let results = stage.cut_off(&deed(procedure), std::future::ready(())).await;
                assert_eq!(results, u32::to_be_bytes(counted), "{wire:?}: procedure {procedure}");
            }
        });
    }
}

// Tests over sockets.

/// proves: ULB-3.4.2-a, ULB-3.4.2-b
#[tokio::test]
async fn each_procedure_of_version_3_is_executed_once_over_iwarp() {
    for versions in [Versions::One, Versions::Two] {
        let env = tokio_env().unwrap();
        let storage = nfs::storage(&env);
        let between = Between::new(nfs::nfsd(&storage, &env).nfs());
        let fabric = Arc::new(Iwarp::new(env.clone(), Config::default()));
        let mut options = ServerOptions::default();
        options.versions = Versions::Auto;
        let memory = ServerMemory::budget(16 << 20);
        let server = Server::new(&*fabric, between.clone(), memory, env.clone(), options, Arc::new(Quiet));
        let mut listener = fabric.listen("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let address = listener.local_addr();
        let connections = Arc::<Mutex<Vec<AbortHandle>>>::default();
        let kept = connections.clone();
        let _listening = tokio::spawn(async move {
            let mut drivers = JoinSet::new();
            loop {
                let Ok(pending) = poll_fn(|cx| listener.poll_accept(cx)).await else { continue };
                let server = server.clone();
                let connection = drivers.spawn(async move {
                    if let Ok((_, driver)) = server.accept(pending).await {
                        let _ = driver.await;
                    }
                });
                kept.lock().unwrap().push(connection);
            }
        });
        let connecting = {
            let (fabric, env) = (fabric.clone(), env.clone());
            move || {
                let (fabric, env) = (fabric.clone(), env.clone());
                Box::pin(async move {
                    let mut options = ClientOptions::default();
                    options.versions = versions;
                    let (transport, driver) = connect(fabric, address, &env, options, Arc::new(Quiet)).await.unwrap();
                    tokio::spawn(driver);
                    let transport: Arc<dyn ClientTransport> = transport;
                    // After this the server has accepted the connection.
                    Client::new(
                        transport.clone(),
                        Arc::new(SysAuth::new(SysCredential::default())),
                        v3::PROGRAM,
                        v3::VERSION,
                    )
                    .null()
                    .await
                    .unwrap();
                    transport
                }) as BoxFuture<'static, Arc<dyn ClientTransport>>
            }
        };
        let other = other_client(connecting().await, &env);
        // The first connection is the other client's, and stays.
        let cut = Arc::new(move || {
            for connection in connections.lock().unwrap().drain(1..) {
                connection.abort();
            }
            // Waits for ever: the task of the call's connection was aborted, and ends at this wait.
            Box::pin(std::future::pending()) as BoxFuture<'static, ()>
        });
        let stage = Stage { between, client: Box::new(connecting), cut };
        each_is_executed_once(&stage, &other, &root(&storage, &env).await).await;
    }
}
