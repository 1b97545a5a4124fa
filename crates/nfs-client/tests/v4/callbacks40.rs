//! Minor version 0: for its calls, the server makes its own connection to the address on which the client listens.

use crate::{
    every::{contents, mode, name},
    house::SECRET,
};
use bytes::Bytes;
use rpcrdma_env::{BoxFuture, Env, Heap, tokio_env};
use rpcrdma_nfs::v4::{
    Handle, Op, PROGRAM, StateId, StateIdOther, Status, VERSION,
    callback::{self, CbRecall},
    ops::{Stability, TRANSIENT_PROGRAM},
};
use rpcrdma_nfs_client::v4::{Access, Callbacks, How, Nfs4, Opened, Options};
use rpcrdma_nfsd::{Dial, Export, Identities, MemoryFs, Nfsd, Queue, Squash, StateDirectory, Version4};
use rpcrdma_oncrpc::{
    Answer, CallContext, Client, Limits, Router, Service, SysAuth, SysCredential,
    tcp::{self, Endpoint, Io, TcpConnector},
};
use rpcrdma_xdr::{Decode, Decoder, Encode, Encoder, Stream};
use std::{
    io,
    net::{IpAddr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio::net::{TcpListener, TcpStream};

/// Connects to clients.
struct Dialler;

impl Dial for Dialler {
    fn dial(&self, _: IpAddr, to: SocketAddr) -> BoxFuture<'static, io::Result<Box<dyn Io>>> {
        Box::pin(async move { Ok(Box::new(TcpStream::connect(to).await?) as Box<dyn Io>) })
    }
}

/// Counts returned delegations.
#[derive(Default)]
struct Returned(AtomicU64);

impl rpcrdma_nfsd::Observer for Returned {
    fn operation(&self, op: Option<Op>, status: Status, _: Option<Duration>) {
        if (op, status) == (Some(Op::DelegReturn), Status::OK) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
}

fn serve_on(listener: TcpListener, router: Arc<dyn rpcrdma_oncrpc::Handler>, env: &Env) {
    let (clock, local) = (env.clock.clone(), listener.local_addr().unwrap());
    tokio::spawn(async move {
        for id in 1.. {
            let Ok((io, peer)) = listener.accept().await else { continue };
            let endpoint = Endpoint { peer, local, id, allocator: Arc::new(Heap) };
            let (_, driver) = tcp::serve(io, endpoint, router.clone(), clock.clone(), tcp::ServerOptions::default());
            tokio::spawn(async move {
                let _ = driver.await;
            });
        }
    });
}

async fn serve(env: &Env, scratch: &tempfile::TempDir, returned: Arc<Returned>) -> SocketAddr {
    let state = StateDirectory::open(scratch.path().join("state"), &*env.random).unwrap();
    let identities = Identities { squash: Squash::None, ..Identities::default() };
    let export = Export::new("/", Arc::new(MemoryFs::new(64 << 20, env))).with_identities(identities);
    let version_4 = Version4::new(&state, Queue::in_place()).with_dialler(Arc::new(Dialler)).with_observer(returned);
    let nfsd = Nfsd::new(vec![export], SECRET, env).unwrap().with_version_4(version_4, true, env).unwrap();
    tokio::spawn(nfsd.upkeep());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    serve_on(listener, nfsd.nfs(), env);
    address
}

/// A client and its service.
async fn client(env: &Env, server: SocketAddr, listens: bool) -> (Nfs4, Arc<dyn Service>) {
    let callbacks = Callbacks::new();
    let service = callbacks.service();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    serve_on(listener, Arc::new(Router::new(env).with_service(service.clone())), env);
    let connector = Arc::new(TcpConnector::new(server));
    let (transport, driver) =
        tcp::connect(connector, Arc::new(Heap), env, tcp::ClientOptions::default()).await.unwrap();
    tokio::spawn(driver);
    let identity = Arc::new(SysAuth::new(SysCredential::default()));
    let rpc = Client::new(transport, identity, PROGRAM, VERSION);
    let mut options = Options::new("test").with_minors(0..=0).with_callbacks(callbacks);
    if listens {
        options = options.with_callback_address(address);
    }
    let nfs = Nfs4::connect(rpc, env, options).await.unwrap();
    tokio::spawn(nfs.driver());
    (nfs, service)
}

async fn open(nfs: &Nfs4) -> Opened {
    let root = nfs.root().await.unwrap().file;
    nfs.open(&root, &name("file"), Access::Both, How::Unchecked(mode(0o644))).await.unwrap().0
}

async fn answer(service: &Arc<dyn Service>, call: &callback::Arguments) -> callback::Results {
    let mut encoder = Encoder::new();
    call.encode(&mut encoder);
    let (_signal, gone) = rpcrdma_oncrpc::GoneSignal::new();
    let address = SocketAddr::from(([127, 0, 0, 1], 1));
    let (limits, kind) = (Limits::new(4_096, 4_096), rpcrdma_oncrpc::TransportKind::Tcp);
    let connection = rpcrdma_oncrpc::Connection::new(address, address, 0, kind, limits, Arc::new(Heap), gone);
    let args = Decoder::new(Stream::from(encoder.finish().to_bytes()));
    match service.call(CallContext::new(Arc::new(connection)), 1, args).await {
        Answer::Results(results) => {
            callback::Results::decode(&mut Decoder::new(Stream::from(results.to_bytes()))).unwrap()
        }
        other => panic!("{other:?}"),
    }
}

/// The server calls, delegates, and gets back what it has delegated: no other client waits for a delegation of ours.
#[tokio::test]
async fn what_a_server_of_minor_version_0_delegates_is_given_back() {
    let env = tokio_env().unwrap();
    let scratch = tempfile::tempdir().unwrap();
    let returned = Arc::<Returned>::default();
    let server = serve(&env, &scratch, returned.clone()).await;
    let ((nfs, _), (other, _)) = (client(&env, server, true).await, client(&env, server, false).await);
    let root = nfs.root().await.unwrap().file;
    // The server needs a moment to find out that it can call.
    for round in 0..200u64 {
        let opened = open(&nfs).await;
        nfs.write(&opened, round, Stability::FileSync, Bytes::from_static(b"x")).await.unwrap();
        nfs.close(opened).await.unwrap();
        let (reading, _) = nfs.open(&root, &name("file"), Access::Read, How::Existing).await.unwrap();
        nfs.close(reading).await.unwrap();
        if returned.0.load(Ordering::Relaxed) > 3 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let theirs = tokio::time::timeout(Duration::from_secs(20), open(&other)).await.expect("nobody has it delegated");
    other.write(&theirs, 0, Stability::FileSync, contents(100)).await.unwrap();
    other.close(theirs).await.unwrap();
    assert!(returned.0.load(Ordering::Relaxed) > 0, "the server has found that it can call, and has delegated");
}

/// A stranger's calls, calls that name nothing, and operations that minor version 0 does not have.
#[tokio::test]
async fn calls_of_minor_version_0_are_answered_in_its_own_words() {
    let env = tokio_env().unwrap();
    let scratch = tempfile::tempdir().unwrap();
    let server = serve(&env, &scratch, Arc::default()).await;
    let (nfs, service) = client(&env, server, true).await;
    assert_eq!((service.program(), service.version()), (TRANSIENT_PROGRAM, 1));
    let file = Handle::new(b"file").unwrap();
    let state = StateId { sequence: 1, other: StateIdOther([7; 12]) };
    let recall = callback::Args::Recall(CbRecall { state, truncate: false, file: file.clone() });
    let get = callback::Args::GetAttr(callback::CbGetAttr { file, asked: Default::default() });
    let any = callback::Args::RecallAny(callback::CbRecallAny { keep: 0, kinds: Default::default() });
    let ident = nfs.callback_ident().unwrap();
    let of = |ident, ops| callback::Arguments::new(0, ident, ops);
    for (call, status, results) in [
        (of(ident, vec![]), Status::OK, 0),
        (of(ident, vec![recall.clone()]), Status::BAD_STATEID, 1),
        (of(ident, vec![get.clone(), recall.clone()]), Status::BADHANDLE, 1),
        (of(ident, vec![any]), Status::OP_ILLEGAL, 1),
        (of(ident, vec![get; 17]), Status::RESOURCE, 1),
        (of(ident.wrapping_add(1), vec![recall.clone()]), Status::BADHANDLE, 0),
        (callback::Arguments::new(1, ident, vec![recall.clone()]), Status::OP_NOT_IN_SESSION, 1),
    ] {
        let answered = answer(&service, &call).await;
        assert_eq!((answered.status, answered.results.len()), (status, results), "{call:?}");
    }
    drop(nfs);
}
