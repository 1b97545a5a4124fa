//! Opens files of a server of NFS version 4 for reading, keeps the delegations that it gets, and waits until the server
//! has recalled all of them.
//!
//! `delegated rdma|tcp SERVER MINOR CAPTURE PATH...`: what goes over RDMA is written to the pcapng file CAPTURE. Prints
//! `delegated N` when the files are open and it has N delegations, and `returned` when it has returned all of them.
//!
//! In minor version 0 the server makes a connection of its own to call: `delegated --listen IP rdma|tcp SERVER 0 ...`
//! listens at a free port of this address, and tells the server.

use rpcrdma_capture::{CaptureWriter, capture};
use rpcrdma_env::{Env, Heap, TokioClock, tokio_env};
use rpcrdma_iwarp::{Config, Iwarp};
use rpcrdma_nfs::v4::{Handle, Name, PROGRAM, VERSION};
use rpcrdma_nfs_client::v4::{Access, CALLBACK_SLOTS, Callbacks, How, Nfs4, Opened, Options};
use rpcrdma_oncrpc::{
    Client, ClientTransport, Handler, Router, SysAuth, SysCredential,
    tcp::{self, Endpoint, TcpConnector},
};
use rpcrdma_transport::{ClientOptions, Quiet, Reverse, connect};
use std::{
    error::Error,
    fs::File,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};
use tokio::net::TcpListener;

/// How often it counts the delegations that are left.
const LOOK: Duration = Duration::from_millis(20);

/// How often, and with which pause, a file is opened until it is delegated: a server that has just started delegates
/// nothing before its time of grace is over.
const TRIES: u32 = 150;
const PAUSE: Duration = Duration::from_millis(200);

type Result<T> = std::result::Result<T, Box<dyn Error>>;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (listen, arguments): (Option<IpAddr>, _) = match &arguments[..] {
        [option, address, others @ ..] if option == "--listen" => (Some(address.parse()?), others),
        others => (None, others),
    };
    let [transport, server, minor, file, paths @ ..] = arguments else {
        return Err("delegated [--listen IP] rdma|tcp SERVER MINOR CAPTURE PATH...".into());
    };
    let (server, minor): (SocketAddr, u32) = (server.parse()?, minor.parse()?);
    let env = tokio_env()?;
    let callbacks = Callbacks::new();
    let handler: Arc<dyn Handler> = Arc::new(Router::new(&env).with_service(callbacks.service()));
    let listens_at = match listen {
        Some(address) => Some(listen_at(address, handler.clone(), &env).await?),
        None => None,
    };
    let (tap, writer) = capture(Arc::new(TokioClock::new()), Default::default());
    let file = File::create(file)?;
    let writing = std::thread::spawn(move || CaptureWriter::run(writer, file));
    let transport: Arc<dyn ClientTransport> = if transport == "tcp" {
        let mut options = tcp::ClientOptions::default();
        options.reverse = Some(tcp::Reverse { handler, calls: CALLBACK_SLOTS as usize });
        let connector = Arc::new(TcpConnector::new(server));
        let (transport, driver) = tcp::connect(connector, Arc::new(Heap), &env, options).await?;
        tokio::spawn(driver);
        transport
    } else {
        let mut config = Config::default();
        config.tap = Some(tap.clone());
        let mut options = ClientOptions::default();
        options.reverse = Some(Reverse { handler, credits: CALLBACK_SLOTS });
        let fabric = Arc::new(Iwarp::new(env.clone(), config));
        let (transport, driver) = connect(fabric, server, &env, options, Arc::new(Quiet)).await?;
        tokio::spawn(driver);
        transport
    };
    let identity = Arc::new(SysAuth::new(SysCredential::default()));
    let rpc = Client::new(transport, identity, PROGRAM, VERSION);
    let mut options = Options::new("delegated").with_minors(minor..=minor).with_callbacks(callbacks).with_delegations();
    if let Some(address) = listens_at {
        options = options.with_callback_address(address);
    }
    let nfs = Nfs4::connect(rpc, &env, options).await?;
    tokio::spawn(nfs.driver());

    let mut open = Vec::new();
    for path in paths {
        open.push(delegated(&nfs, path).await?);
    }
    println!("delegated {}", nfs.delegations());
    while nfs.delegations() > 0 {
        tokio::time::sleep(LOOK).await;
    }
    println!("returned");
    for opened in open {
        nfs.close(opened).await?;
    }
    nfs.end().await?;
    drop(nfs);
    tap.finish();
    writing.join().map_err(|_| "the capture's thread has panicked")??;
    Ok(())
}

/// Answers calls over connections that the server makes, and returns the address for them.
async fn listen_at(address: IpAddr, handler: Arc<dyn Handler>, env: &Env) -> Result<SocketAddr> {
    let listener = TcpListener::bind((address, 0)).await?;
    let (local, clock) = (listener.local_addr()?, env.clock.clone());
    tokio::spawn(async move {
        for id in 1.. {
            let Ok((io, peer)) = listener.accept().await else { continue };
            let endpoint = Endpoint { peer, local, id, allocator: Arc::new(Heap) };
            let (_, driver) = tcp::serve(io, endpoint, handler.clone(), clock.clone(), tcp::ServerOptions::default());
            tokio::spawn(async move {
                let _ = driver.await;
            });
        }
    });
    Ok(local)
}

/// Opens a file until it is delegated.
async fn delegated(nfs: &Nfs4, path: &str) -> Result<Opened> {
    let mut folder: Handle = nfs.root().await?.file;
    let mut names: Vec<&str> = path.split('/').filter(|name| !name.is_empty()).collect();
    let last = Name::from(names.pop().ok_or("no path of a file")?);
    for name in names {
        folder = nfs.lookup(&folder, &Name::from(name)).await?.file;
    }
    let before = nfs.delegations();
    for _ in 0..TRIES {
        let (opened, _) = nfs.open(&folder, &last, Access::Read, How::Existing).await?;
        if nfs.delegations() > before {
            return Ok(opened);
        }
        nfs.close(opened).await?;
        tokio::time::sleep(PAUSE).await;
    }
    Err(format!("the server does not delegate {path}").into())
}
