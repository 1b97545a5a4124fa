//! Over RPC-over-RDMA on the simulated fabric, in both versions of it: many seeds in virtual time.

use crate::{
    house::{EVERY, Version, client, nfsd},
    play::play,
};
use rpcrdma::{ClientOptions, Quiet, Server, ServerMemory, ServerOptions, Versions, connect};
use rpcrdma_env::{Random, SeededRandom};
use rpcrdma_fabric::Fabric;
use rpcrdma_nfsd::{MemoryFs, Nfsd};
use rpcrdma_sim::{Link, SimConfig, Task, World};
use std::{
    future::poll_fn,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::Path,
    sync::{Arc, Mutex},
    time::Duration,
};

const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
const SERVER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));
const ADDRESS: SocketAddr = SocketAddr::new(SERVER, 20049);
const LEASE: Duration = Duration::from_secs(60);
/// Steps of a run, and seeds for each version.
const STEPS: usize = 120;
const SEEDS: u64 = 3;

fn config() -> SimConfig {
    SimConfig::default().with_link(Link::new(Duration::from_micros(50), Duration::from_micros(500)))
}

/// The server's process: its tasks end with it.
struct Process {
    nfsd: Arc<Nfsd>,
    tasks: Arc<Mutex<Vec<Task<()>>>>,
}

impl Process {
    fn start(world: &World, storage: &Arc<MemoryFs>, scratch: &Path, versions: Versions) -> Self {
        let nfsd = Arc::new(nfsd(storage, scratch, &world.env(), LEASE));
        let tasks = Arc::new(Mutex::new(vec![world.spawn(nfsd.upkeep())]));
        let (kept, served, world_) = (tasks.clone(), nfsd.clone(), world.clone());
        let listening = world.spawn(async move {
            let (env, fabric) = (world_.env(), world_.fabric_with(SERVER, config()));
            let mut options = ServerOptions::default();
            options.versions = versions;
            let memory = ServerMemory::budget(16 << 20);
            let server = Server::new(&fabric, served.nfs(), memory, env, options, Arc::new(Quiet));
            let mut listener = fabric.listen(ADDRESS).await.unwrap();
            loop {
                let Ok(pending) = poll_fn(|cx| listener.poll_accept(cx)).await else { continue };
                let server = server.clone();
                let connection = world_.spawn(async move {
                    if let Ok((_, driver)) = server.accept(pending).await {
                        let _ = driver.await;
                    }
                });
                kept.lock().unwrap().push(connection);
            }
        });
        tasks.lock().unwrap().push(listening);
        Self { nfsd, tasks }
    }

    fn kill(self) {
        self.tasks.lock().unwrap().drain(..).for_each(|task| task.abort());
    }
}

/// A run: what goes wrong in it, one step in so many.
fn run(seed: u64, version: Version, versions: Versions, trouble_one_in: Option<u64>) {
    println!("seed {seed}, {version:?}, RPC-over-RDMA {versions:?}, trouble {trouble_one_in:?}");
    let world = World::new(seed);
    let storage = Arc::new(MemoryFs::new(64 << 20, &world.env()));
    let scratch = tempfile::tempdir().unwrap();
    let process = Mutex::new(Some(Process::start(&world, &storage, scratch.path(), versions)));
    let random = SeededRandom::new(seed ^ 0x4D6F_6465_6C00_0000);
    world.block_on(async {
        world.sleep(Duration::from_millis(1)).await;
        let env = world.env();
        let mut options = ClientOptions::default();
        options.versions = versions;
        let fabric = Arc::new(world.fabric_with(CLIENT, config()));
        let (transport, driver) = connect(fabric, ADDRESS, &env, options, Arc::new(Quiet)).await.unwrap();
        world.spawn(async move {
            let _ = driver.await;
        });
        let served = process.lock().unwrap().as_ref().unwrap().nfsd.clone();
        let (files, nfs4, root) = client(version, transport, &env, &served).await;
        drop(served);
        let driver = nfs4.map(|nfs| world.spawn(nfs.driver()));
        let mut trouble = || -> rpcrdma_env::BoxFuture<'_, ()> {
            let Some(one_in) = trouble_one_in else { return Box::pin(std::future::ready(())) };
            match random.below(one_in) {
                0 => {
                    let mut process = process.lock().unwrap();
                    process.take().unwrap().kill();
                    world.cut(CLIENT, SERVER);
                    *process = Some(Process::start(&world, &storage, scratch.path(), versions));
                }
                1..=4 => {
                    let (cutter, after) = (world.clone(), Duration::from_micros(random.below(4_000)));
                    world.spawn(async move {
                        cutter.sleep(after).await;
                        cutter.cut(CLIENT, SERVER);
                    });
                }
                _ => {}
            }
            Box::pin(std::future::ready(()))
        };
        let trouble: Option<&mut crate::play::Trouble<'_>> = match trouble_one_in {
            Some(_) => Some(&mut trouble),
            None => None,
        };
        play(&files, &root, &random, STEPS, trouble).await;
        drop(driver);
    });
}

fn runs(trouble_one_in: Option<u64>) {
    for version in EVERY {
        for seed in 0..SEEDS {
            run(seed, version, if seed % 2 == 0 { Versions::Two } else { Versions::One }, trouble_one_in);
        }
    }
}

#[test]
fn files_are_what_a_model_says() {
    runs(None);
}

/// proves: ULB-3.1-d
#[test]
fn they_are_after_cuts_and_restarts_as_well() {
    runs(Some(16));
}
