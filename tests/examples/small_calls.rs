//! Makes small calls between a server and a client that share this process and its only thread, so that a tool such as
//! callgrind counts the instructions of both ends. Files are in memory: no call waits for another thread.
//!
//! `small_calls 1|2|tcp null|getattr|read COUNT DEPTH`: over RPC-over-RDMA version 1 or 2 on software iWARP, or over
//! TCP, COUNT calls, DEPTH of them at a time. `cargo xtask figures --only instructions` runs it twice and compares.

#[path = "../nfs/mod.rs"]
mod nfs;

use rpcrdma_env::{Env, tokio_env};
use rpcrdma_fabric::{Fabric, pool::Pool};
use rpcrdma_iwarp::{Config, Iwarp};
use rpcrdma_nfs::v3::{self, CreateHow, Handle, Name, Stability};
use rpcrdma_nfs_client::Nfs3;
use rpcrdma_nfsd::Nfsd;
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
    let [carrier, operation, count, depth] = arguments[..] else {
        return Err("small_calls 1|2|tcp null|getattr|read COUNT DEPTH".into());
    };
    let operation = match operation {
        "null" => Operation::Null,
        "getattr" => Operation::GetAttr,
        "read" => Operation::Read,
        other => return Err(format!("no such operation: {other}").into()),
    };
    let (count, depth): (u64, u64) = (count.parse()?, depth.parse()?);
    let env = tokio_env()?;
    let nfsd = nfs::nfsd(&nfs::storage(&env), &env);
    let root = nfs::root_of(&nfsd).await;
    let transport = match carrier {
        "1" => over_rdma(&nfsd, Versions::One, &env).await?,
        "2" => over_rdma(&nfsd, Versions::Two, &env).await?,
        "tcp" => over_tcp(&nfsd, &env).await?,
        other => return Err(format!("no such transport: {other}").into()),
    };
    let identity = Arc::new(SysAuth::new(SysCredential::default()));
    let nfs = Arc::new(Nfs3::new(Client::new(transport, identity, v3::PROGRAM, v3::VERSION), env.clock.clone()));
    let file = nfs.create(&root, &Name::from("file"), CreateHow::Guarded(Default::default())).await?.file;
    let file = file.ok_or("the server has named no file")?;
    nfs.write(&file, 0, Stability::Unstable, vec![7; BLOCK as usize].into()).await?;
    let mut callers = JoinSet::new();
    for index in 0..depth {
        let share = count / depth + u64::from(index < count % depth);
        callers.spawn(calls(nfs.clone(), file.clone(), operation, share));
    }
    while let Some(ended) = callers.join_next().await {
        ended??;
    }
    Ok(())
}

async fn calls(nfs: Arc<Nfs3>, file: Handle, operation: Operation, count: u64) -> Result<()> {
    for _ in 0..count {
        match operation {
            Operation::Null => nfs.null().await?,
            Operation::GetAttr => _ = nfs.getattr(&file).await?,
            Operation::Read => _ = nfs.read(&file, 0, BLOCK).await?,
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
