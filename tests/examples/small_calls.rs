//! Makes small calls between a server and a client that share this process and its only thread, so that a tool such as
//! callgrind counts the instructions of both ends. Files are in memory: no call waits for another thread.
//!
//! `small_calls 1|2|tcp 3|4.2 null|getattr|read COUNT DEPTH`: over RPC-over-RDMA version 1 or 2 on software iWARP, or
//! over TCP, COUNT calls of this version of NFS, DEPTH of them at a time. `cargo xtask figures --only instructions`
//! runs it twice and compares.

#[path = "../nfs/mod.rs"]
mod nfs;

use rpcrdma_env::{Env, tokio_env};
use rpcrdma_fabric::{Fabric, pool::Pool};
use rpcrdma_iwarp::{Config, Iwarp};
use rpcrdma_nfs::{
    v3::{self, CreateHow, Name, Stability},
    v4,
};
use rpcrdma_nfs_client::{
    Nfs3,
    v4::{Access, How, Nfs4, Opened, Options},
};
use rpcrdma_nfsd::{Nfsd, Queue, StateDirectory, Version4};
use rpcrdma_oncrpc::{
    Client, ClientTransport, SysAuth, SysCredential,
    tcp::{self, Endpoint, TcpConnector},
};
use rpcrdma_transport::{ClientOptions, Quiet, Server, ServerMemory, ServerOptions, Versions, connect};
use std::{error::Error, future::poll_fn, net::Ipv4Addr, sync::Arc};
use tokio::{net::TcpListener, task::JoinSet};

/// Bytes for the server's calls.
const MEMORY: usize = 64 << 20;
const BLOCK: u32 = 4096;
const USAGE: &str = "small_calls 1|2|tcp 3|4.2 null|getattr|read COUNT DEPTH";

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

#[derive(Clone, Copy)]
enum Operation {
    Null,
    GetAttr,
    Read,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let [carrier, version, operation, count, depth] = arguments[..] else {
        return Err(USAGE.into());
    };
    let operation = match operation {
        "null" => Operation::Null,
        "getattr" => Operation::GetAttr,
        "read" => Operation::Read,
        other => return Err(format!("no such operation: {other}").into()),
    };
    let (count, depth): (u64, u64) = (count.parse()?, depth.parse()?);
    let env = tokio_env()?;
    let state = tempfile::tempdir()?;
    let state = StateDirectory::open(state.path(), &*env.random)?;
    let version_4 = Version4::new(&state, Queue::in_place());
    let nfsd = nfs::nfsd(&nfs::storage(&env), &env).with_version_4(version_4, true, &env)?;
    let transport = match carrier {
        "1" => over_rdma(&nfsd, Versions::One, &env).await?,
        "2" => over_rdma(&nfsd, Versions::Two, &env).await?,
        "tcp" => over_tcp(&nfsd, &env).await?,
        other => return Err(format!("no such transport: {other}").into()),
    };
    let file = Arc::new(match version {
        "3" => File::of_version_3(transport, nfs::root_of(&nfsd).await, &env).await?,
        "4.2" => File::of_version_4(transport, &env).await?,
        other => return Err(format!("no such version: {other}").into()),
    });
    let mut callers = JoinSet::new();
    for index in 0..depth {
        let share = count / depth + u64::from(index < count % depth);
        callers.spawn(calls(file.clone(), operation, share));
    }
    while let Some(ended) = callers.join_next().await {
        ended??;
    }
    Ok(())
}

/// A file of one block at the server.
enum File {
    Version3(Nfs3, v3::Handle),
    Version4(Nfs4, Opened),
}

impl File {
    async fn of_version_3(transport: Arc<dyn ClientTransport>, root: v3::Handle, env: &Env) -> Result<Self> {
        let nfs = Nfs3::new(Client::new(transport, identity(), v3::PROGRAM, v3::VERSION), env.clock.clone());
        let file = nfs.create(&root, &Name::from("file"), CreateHow::Guarded(Default::default())).await?.file;
        let file = file.ok_or("the server has named no file")?;
        nfs.write(&file, 0, Stability::Unstable, vec![7; BLOCK as usize].into()).await?;
        Ok(Self::Version3(nfs, file))
    }

    async fn of_version_4(transport: Arc<dyn ClientTransport>, env: &Env) -> Result<Self> {
        let rpc = Client::new(transport, identity(), v4::PROGRAM, v4::VERSION);
        let nfs = Nfs4::connect(rpc, env, Options::new("small calls").with_minors(2..=2)).await?;
        tokio::spawn(nfs.driver());
        let root = nfs.root().await?.file;
        let (opened, _) = nfs.open(&root, &"file".into(), Access::Both, How::Guarded(Default::default())).await?;
        nfs.write(&opened, 0, v4::ops::Stability::Unstable, vec![7; BLOCK as usize].into()).await?;
        Ok(Self::Version4(nfs, opened))
    }
}

fn identity() -> Arc<SysAuth> {
    Arc::new(SysAuth::new(SysCredential::default()))
}

async fn calls(file: Arc<File>, operation: Operation, count: u64) -> Result<()> {
    for _ in 0..count {
        match (&*file, operation) {
            (File::Version3(nfs, _), Operation::Null) => nfs.null().await?,
            (File::Version3(nfs, file), Operation::GetAttr) => _ = nfs.getattr(file).await?,
            (File::Version3(nfs, file), Operation::Read) => _ = nfs.read(file, 0, BLOCK).await?,
            (File::Version4(nfs, _), Operation::Null) => nfs.null().await?,
            (File::Version4(nfs, opened), Operation::GetAttr) => _ = nfs.getattr(opened.file()).await?,
            (File::Version4(nfs, opened), Operation::Read) => _ = nfs.read(opened, 0, BLOCK).await?,
        }
    }
    Ok(())
}

async fn over_rdma(nfsd: &Nfsd, versions: Versions, env: &Env) -> Result<Arc<dyn ClientTransport>> {
    let fabric = Arc::new(Iwarp::new(env.clone(), Config::default()));
    let mut listener = fabric.listen((Ipv4Addr::LOCALHOST, 0).into()).await?;
    let address = listener.local_addr();
    let mut options = ServerOptions::default();
    options.versions = Versions::Auto;
    let memory = ServerMemory::budget(MEMORY);
    let server = Server::new(&*fabric, nfsd.nfs(), memory, env.clone(), options, Arc::new(Quiet));
    tokio::spawn(async move {
        let pending = poll_fn(|cx| listener.poll_accept(cx)).await?;
        let (_, driver) = server.accept(pending).await?;
        tokio::spawn(driver);
        Result::Ok(())
    });
    let mut options = ClientOptions::default();
    options.versions = versions;
    let (transport, driver) = connect(fabric, address, env, options, Arc::new(Quiet)).await?;
    tokio::spawn(driver);
    Ok(transport)
}

async fn over_tcp(nfsd: &Nfsd, env: &Env) -> Result<Arc<dyn ClientTransport>> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let address = listener.local_addr()?;
    let (handler, clock) = (nfsd.nfs(), env.clock.clone());
    tokio::spawn(async move {
        let (stream, peer) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let allocator = Arc::new(Pool::new().budget(MEMORY));
        let endpoint = Endpoint { peer, local: stream.local_addr()?, id: 0, allocator };
        let (_, driver) = tcp::serve(stream, endpoint, handler, clock, tcp::ServerOptions::default());
        tokio::spawn(driver);
        Result::Ok(())
    });
    let connector = Arc::new(TcpConnector::new(address));
    let (transport, driver) =
        tcp::connect(connector, Arc::new(Pool::new()), env, tcp::ClientOptions::default()).await?;
    tokio::spawn(driver);
    Ok(transport)
}
