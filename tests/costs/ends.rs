//! A server with files in a directory on threads of its own, and a client on the calling thread.

use crate::{counter::as_client, nfs};
use bytes::Bytes;
use futures_util::future::join_all;
use rpcrdma_env::{Env, tokio_env};
use rpcrdma_fabric::{Fabric, Listener, pool::Pool};
use rpcrdma_iwarp::{Config, Iwarp};
use rpcrdma_nfs::v3::{self, Handle, Stability};
use rpcrdma_nfs_client::Nfs3;
use rpcrdma_nfsd::{DirectoryFs, Export, Identities, Nfsd, Queue, Squash, StateDirectory, Workers};
use rpcrdma_oncrpc::{
    self as oncrpc, ClientTransport, Handler, SysAuth, SysCredential,
    tcp::{self, Endpoint, TcpConnector},
};
use rpcrdma_transport::{ClientOptions, Quiet, Server as RdmaServer, ServerMemory, ServerOptions, Versions, connect};
use std::{
    future::poll_fn,
    net::{Ipv4Addr, SocketAddr},
    sync::{Arc, mpsc},
    time::Duration,
};
use tokio::runtime::{Builder, Runtime};

const SECRET: [u8; rpcrdma_nfsd::SECRET_BYTES] = [7; rpcrdma_nfsd::SECRET_BYTES];
/// Threads for work on files.
const FILE_THREADS: usize = 8;
const SMALL: u32 = 4096;
const LARGE: usize = 1 << 20;
/// The name of the file that is read and written.
const FILE: &str = "file";

/// What carries the calls.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Carrier {
    Rdma(Versions),
    Tcp,
}

/// The operation to count.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Operation {
    Null,
    GetAttr,
    Read4K,
    Write1M,
}

/// The addresses of a server, and the file that it serves.
pub(crate) struct Server {
    rdma: SocketAddr,
    tcp: SocketAddr,
    file: Handle,
    _directory: tempfile::TempDir,
}

struct Threads(tokio::runtime::Handle);

impl Workers for Threads {
    fn run(&self, job: Box<dyn FnOnce() + Send>) {
        self.0.spawn_blocking(job);
    }

    fn threads(&self) -> usize {
        FILE_THREADS
    }
}

/// Starts a server. It ends with the process.
pub(crate) fn server() -> Server {
    let directory = tempfile::tempdir().unwrap();
    let served = directory.path().join("served");
    std::fs::create_dir(&served).unwrap();
    std::fs::write(served.join(FILE), vec![7; LARGE]).unwrap();
    let state = directory.path().join("state");
    let (ready, told) = mpsc::channel();
    std::thread::spawn(move || {
        let runtime = Builder::new_current_thread().enable_all().max_blocking_threads(FILE_THREADS).build().unwrap();
        let workers = Threads(runtime.handle().clone());
        runtime.block_on(async {
            let env = tokio_env().unwrap();
            let state = StateDirectory::open(state, &*env.random).unwrap();
            let files = DirectoryFs::open(&served, &state, Queue::new(Arc::new(workers)), &env).unwrap();
            let squash = Identities { squash: Squash::None, ..Identities::default() };
            let export = Export::new("/", Arc::new(files)).with_identities(squash);
            let nfsd = Nfsd::new(vec![export], SECRET, &env).unwrap();
            let fabric = Iwarp::new(env.clone(), Config::default());
            let rdma = fabric.listen((Ipv4Addr::LOCALHOST, 0).into()).await.unwrap();
            let tcp = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
            ready.send((rdma.local_addr(), tcp.local_addr().unwrap(), nfs::root_of(&nfsd).await)).unwrap();
            tokio::join!(serve_rdma(rdma, &fabric, nfsd.nfs(), &env), serve_tcp(tcp, nfsd.nfs(), &env));
        });
    });
    let (rdma, tcp, root) = told.recv().unwrap();
    let env = tokio_env().unwrap();
    let file = local().block_on(async {
        let nfs = Nfs3::new(rpc(over_tcp(tcp, &env).await), env.clock.clone());
        nfs.lookup(&root, &v3::Name::from(FILE)).await.unwrap().file
    });
    Server { rdma, tcp, file, _directory: directory }
}

async fn serve_rdma(mut listener: Box<dyn Listener>, fabric: &dyn Fabric, handler: Arc<dyn Handler>, env: &Env) {
    let memory = ServerMemory::budget(64 << 20);
    let mut options = ServerOptions::default();
    options.versions = Versions::Auto;
    let server = RdmaServer::new(fabric, handler, memory, env.clone(), options, Arc::new(Quiet));
    loop {
        let pending = poll_fn(|cx| listener.poll_accept(cx)).await.unwrap();
        let (_, driver) = server.clone().accept(pending).await.unwrap();
        tokio::spawn(driver);
    }
}

async fn serve_tcp(listener: tokio::net::TcpListener, handler: Arc<dyn Handler>, env: &Env) {
    for id in 0.. {
        let (stream, peer) = listener.accept().await.unwrap();
        stream.set_nodelay(true).unwrap();
        let allocator = Arc::new(Pool::new().budget(64 << 20));
        let endpoint = Endpoint { peer, local: stream.local_addr().unwrap(), id, allocator };
        let options = tcp::ServerOptions::default();
        let (_, driver) = tcp::serve(stream, endpoint, handler.clone(), env.clock.clone(), options);
        tokio::spawn(driver);
    }
}

fn local() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

async fn over_tcp(server: SocketAddr, env: &Env) -> Arc<dyn ClientTransport> {
    let connector = Arc::new(TcpConnector::new(server));
    let allocator = Arc::new(Pool::new());
    let (transport, driver) = tcp::connect(connector, allocator, env, tcp::ClientOptions::default()).await.unwrap();
    tokio::spawn(driver);
    transport
}

async fn over_rdma(server: SocketAddr, versions: Versions, env: &Env) -> Arc<dyn ClientTransport> {
    let mut options = ClientOptions::default();
    options.versions = versions;
    let fabric = Arc::new(Iwarp::new(env.clone(), Config::default()));
    let (transport, driver) = connect(fabric, server, env, options, Arc::new(Quiet)).await.unwrap();
    tokio::spawn(driver);
    transport
}

fn rpc(transport: Arc<dyn ClientTransport>) -> oncrpc::Client {
    let identity = Arc::new(SysAuth::new(SysCredential::default()));
    oncrpc::Client::new(transport, identity, v3::PROGRAM, v3::VERSION)
}

/// A client on the calling thread.
pub(crate) struct Client {
    runtime: Runtime,
    nfs: Nfs3,
    file: Handle,
    data: Bytes,
}

impl Client {
    pub(crate) fn connect(server: &Server, carrier: Carrier) -> Self {
        let runtime = local();
        let env = tokio_env().unwrap();
        let transport = runtime.block_on(async {
            match carrier {
                Carrier::Rdma(versions) => over_rdma(server.rdma, versions, &env).await,
                Carrier::Tcp => over_tcp(server.tcp, &env).await,
            }
        });
        let nfs = Nfs3::new(rpc(transport), env.clock.clone());
        Self { runtime, nfs, file: server.file.clone(), data: vec![5; LARGE].into() }
    }

    /// Makes `count` calls, as many of them at a time as `depth` says.
    pub(crate) fn run(&self, operation: Operation, depth: u64, count: u64) {
        as_client(|| {
            self.runtime.block_on(async {
                // If the count is no multiple of the depth, the first tasks make the remaining calls.
                let share = |index| count / depth + u64::from(index < count % depth);
                join_all((0..depth).map(|index| self.calls(operation, share(index)))).await;
            });
        });
        // The server's work after its reply belongs to the operation, too.
        std::thread::sleep(Duration::from_millis(20));
    }

    async fn calls(&self, operation: Operation, count: u64) {
        for _ in 0..count {
            self.call(operation).await;
        }
    }

    async fn call(&self, operation: Operation) {
        match operation {
            Operation::Null => self.nfs.null().await.unwrap(),
            Operation::GetAttr => assert_eq!(self.nfs.getattr(&self.file).await.unwrap().size, LARGE as u64),
            Operation::Read4K => {
                assert_eq!(self.nfs.read(&self.file, 0, SMALL).await.unwrap().data.len(), SMALL as usize);
            }
            Operation::Write1M => {
                let written = self.nfs.write(&self.file, 0, Stability::Unstable, self.data.clone()).await.unwrap();
                assert_eq!(written.count as usize, LARGE);
            }
        }
    }
}
