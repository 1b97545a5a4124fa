//! The same in real time: over software iWARP on the loopback interface, and over TCP.

use crate::{
    house::{EVERY, Version, client, nfsd},
    play::play,
};
use rpcrdma_env::{BoxFuture, Env, Heap, OsRandom, Random, SeededRandom, tokio_env};
use rpcrdma_fabric::Fabric;
use rpcrdma_iwarp::{Config, Iwarp};
use rpcrdma_nfsd::{MemoryFs, Nfsd};
use rpcrdma_oncrpc::{
    ClientTransport,
    tcp::{self, Endpoint, TcpConnector},
};
use rpcrdma_transport::{ClientOptions, Quiet, Server, ServerMemory, ServerOptions, connect};
use std::{
    future::poll_fn,
    net::{Ipv4Addr, SocketAddr},
    path::Path,
    sync::{Arc, Mutex},
    time::Duration,
};
use tokio::{net::TcpListener, task::JoinHandle};

/// Short, because new opens wait for the end of the grace period; but long enough that the client can keep it even if
/// the machine is busy with other tests.
const LEASE: Duration = Duration::from_secs(4);
/// How many steps a run has; one step in this many is a cut, and these steps are restarts.
const STEPS: usize = 80;
const CUT_ONE_IN: u64 = 10;
const RESTARTS: [usize; 2] = [25, 55];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Iwarp,
    Tcp,
}

/// The server's process.
struct Process {
    nfsd: Arc<Nfsd>,
    address: SocketAddr,
    listening: JoinHandle<()>,
    upkeep: JoinHandle<()>,
    connections: Arc<Mutex<Vec<JoinHandle<()>>>>,
}

impl Process {
    async fn start(way: Way, at: SocketAddr, storage: &Arc<MemoryFs>, scratch: &Path, env: &Env) -> Self {
        let nfsd = Arc::new(nfsd(storage, scratch, env, LEASE));
        let upkeep = tokio::spawn(nfsd.upkeep());
        let connections = Arc::new(Mutex::new(Vec::new()));
        let (kept, served, env) = (connections.clone(), nfsd.clone(), env.clone());
        let (address, listening) = match way {
            Way::Tcp => {
                let listener = TcpListener::bind(at).await.unwrap();
                let address = listener.local_addr().unwrap();
                let listening = tokio::spawn(async move {
                    for id in 1.. {
                        let Ok((io, peer)) = listener.accept().await else { continue };
                        let endpoint = Endpoint { peer, local: address, id, allocator: Arc::new(Heap) };
                        let options = tcp::ServerOptions::default();
                        let (_, driver) = tcp::serve(io, endpoint, served.nfs(), env.clock.clone(), options);
                        kept.lock().unwrap().push(tokio::spawn(async move {
                            let _ = driver.await;
                        }));
                    }
                });
                (address, listening)
            }
            Way::Iwarp => {
                let fabric = Iwarp::new(env.clone(), Config::default());
                let memory = ServerMemory::budget(16 << 20);
                let options = ServerOptions::default();
                let server = Server::new(&fabric, served.nfs(), memory, env, options, Arc::new(Quiet));
                let mut listener = fabric.listen(at).await.unwrap();
                let address = listener.local_addr();
                let listening = tokio::spawn(async move {
                    let _fabric = fabric;
                    loop {
                        let Ok(pending) = poll_fn(|cx| listener.poll_accept(cx)).await else { continue };
                        let server = server.clone();
                        kept.lock().unwrap().push(tokio::spawn(async move {
                            if let Ok((_, driver)) = server.accept(pending).await {
                                let _ = driver.await;
                            }
                        }));
                    }
                });
                (address, listening)
            }
        };
        Self { nfsd, address, listening, upkeep, connections }
    }

    /// Ends all connections, whatever they are doing.
    async fn cut(connections: Vec<JoinHandle<()>>) {
        for connection in connections {
            connection.abort();
            let _ = connection.await;
        }
    }

    async fn kill(self) {
        self.listening.abort();
        let _ = self.listening.await;
        let connections = std::mem::take(&mut *self.connections.lock().unwrap());
        Self::cut(connections).await;
        self.upkeep.abort();
        let _ = self.upkeep.await;
    }
}

async fn transport(way: Way, address: SocketAddr, env: &Env) -> Arc<dyn ClientTransport> {
    match way {
        Way::Tcp => {
            let connector = Arc::new(TcpConnector::new(address));
            let options = tcp::ClientOptions::default();
            let (transport, driver) = tcp::connect(connector, Arc::new(Heap), env, options).await.unwrap();
            tokio::spawn(driver);
            transport
        }
        Way::Iwarp => {
            let fabric = Arc::new(Iwarp::new(env.clone(), Config::default()));
            let options = ClientOptions::default();
            let (transport, driver) = connect(fabric, address, env, options, Arc::new(Quiet)).await.unwrap();
            tokio::spawn(async move {
                let _ = driver.await;
            });
            transport
        }
    }
}

async fn run(way: Way, version: Version) {
    let env = tokio_env().unwrap();
    let seed = OsRandom::open().unwrap().next_u64();
    println!("seed {seed}, {version:?} over {way:?}");
    let random = SeededRandom::new(seed);
    let storage = Arc::new(MemoryFs::new(64 << 20, &env));
    let scratch = tempfile::tempdir().unwrap();
    let anywhere = (Ipv4Addr::LOCALHOST, 0).into();
    let process = Process::start(way, anywhere, &storage, scratch.path(), &env).await;
    let address = process.address;
    let (files, nfs4, root) = client(version, transport(way, address, &env).await, &env, &process.nfsd).await;
    let driver = nfs4.map(|nfs| tokio::spawn(nfs.driver()));
    let process = tokio::sync::Mutex::new(Some(process));
    let mut step = 0;
    let mut trouble = || -> BoxFuture<'_, ()> {
        step += 1;
        let (restarts, cuts) = (RESTARTS.contains(&step), random.below(CUT_ONE_IN) == 0);
        let (process, storage, scratch, env) = (&process, &storage, scratch.path(), &env);
        Box::pin(async move {
            let mut process = process.lock().await;
            if restarts {
                process.take().unwrap().kill().await;
                *process = Some(Process::start(way, address, storage, scratch, env).await);
            } else if cuts {
                let connections = std::mem::take(&mut *process.as_ref().unwrap().connections.lock().unwrap());
                // While the next call is under way.
                tokio::spawn(Process::cut(connections));
            }
        })
    };
    play(&files, &root, &random, STEPS, Some(&mut trouble)).await;
    if let Some(driver) = driver {
        driver.abort();
    }
    process.into_inner().unwrap().kill().await;
}

#[tokio::test]
async fn files_are_what_a_model_says_over_iwarp() {
    for version in EVERY {
        run(Way::Iwarp, version).await;
    }
}

#[tokio::test]
async fn files_are_what_a_model_says_over_tcp() {
    for version in EVERY {
        run(Way::Tcp, version).await;
    }
}
