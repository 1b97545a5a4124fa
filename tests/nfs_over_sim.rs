//! NFS version 3 over the simulated fabric: a client and a server in memory, with all layers between them, in virtual
//! time and from a seed, in both versions of RPC-over-RDMA. Connections are cut and the server restarts while files are
//! written; then the files must be equal to a model.

mod nfs;

use nfs::{ADDRESS, CLIENT, EVERY, SERVER, Settled, Spoken, contents, every_procedure, read_file, work, write_file};
use rpcrdma_env::Env;
use rpcrdma_fabric::Fabric;
use rpcrdma_nfs_client::{Files, Name};
use rpcrdma_nfsd::MemoryFs;
use rpcrdma_oncrpc::Handler;
use rpcrdma_sim::{Event, Link, Side, SimConfig, Task, World};
use rpcrdma_transport::{Quiet, Server, ServerMemory, Versions};
use std::{cell::RefCell, future::poll_fn, sync::Arc, time::Duration};

/// The server's process: its tasks end with it.
struct Process {
    tasks: Arc<std::sync::Mutex<Vec<Task<()>>>>,
}

impl Process {
    /// Serves `storage`, which outlives the process as a disk does.
    fn start(world: &World, storage: &Arc<MemoryFs>, config: &SimConfig, spoken: Spoken) -> Self {
        let env = world.env();
        let nfsd = nfs::nfsd(storage, &env);
        let tasks = Arc::new(std::sync::Mutex::new(Vec::new()));
        let listening = world.spawn(listen(world.clone(), config.clone(), nfsd.nfs(), env, spoken, tasks.clone()));
        tasks.lock().unwrap().push(listening);
        Self { tasks }
    }

    fn kill(self) {
        for task in self.tasks.lock().unwrap().drain(..) {
            task.abort();
        }
    }
}

async fn listen(
    world: World,
    config: SimConfig,
    handler: Arc<dyn Handler>,
    env: Env,
    spoken: Spoken,
    tasks: Arc<std::sync::Mutex<Vec<Task<()>>>>,
) {
    let fabric = world.fabric_with(SERVER, config);
    let memory = ServerMemory::budget(8 << 20);
    let server = Server::new(&fabric, handler, memory, env, spoken.server(), Arc::new(Quiet));
    let mut listener = fabric.listen(ADDRESS).await.unwrap();
    loop {
        let Ok(pending) = poll_fn(|cx| listener.poll_accept(cx)).await else { continue };
        let server = server.clone();
        let connection = world.spawn(async move {
            if let Ok((_, driver)) = server.accept(pending).await {
                let _ = driver.await;
            }
        });
        tasks.lock().unwrap().push(connection);
    }
}

async fn client(world: &World, config: SimConfig, spoken: Spoken) -> (Files, Arc<Settled>) {
    let fabric = Arc::new(world.fabric_with(CLIENT, config));
    let (nfs, driver, settled) = nfs::client(fabric, ADDRESS, &world.env(), spoken).await;
    world.spawn(driver);
    (nfs, settled)
}

/// How often a connection was made.
fn connections(world: &World) -> usize {
    let connected =
        |logged: &&rpcrdma_sim::Logged| matches!(logged.event, Event::Connected { side: Side::Initiator, .. });
    world.log().iter().filter(connected).count()
}

fn configs() -> [SimConfig; 2] {
    [SimConfig::default(), SimConfig::without_invalidation()]
}

/// A network as slow as a wide-area network, so that many messages are under way at any moment.
fn slow(config: SimConfig) -> SimConfig {
    config.with_link(Link::new(Duration::from_micros(200), Duration::from_millis(1)))
}

/// The versions and their seeds: each version alone with all seeds, clients and servers of both versions with a few.
fn tried(seeds: std::ops::Range<u64>) -> impl Iterator<Item = (Spoken, u64)> {
    EVERY.into_iter().flat_map(move |spoken| {
        let few = if spoken.client == Versions::Auto { 2 } else { u64::MAX };
        seeds.clone().take_while(move |seed| seed - seeds.start < few).map(move |seed| (spoken, seed))
    })
}

#[test]
fn files_are_what_a_model_says() {
    for (spoken, seed) in tried(0..4) {
        for config in configs() {
            let world = World::new(seed);
            let env = world.env();
            let storage = nfs::storage(&env);
            let _process = Process::start(&world, &storage, &config, spoken);
            world.block_on(async {
                world.sleep(Duration::from_millis(1)).await;
                let (nfs, settled) = client(&world, config.clone(), spoken).await;
                let root = nfs::root(&storage, &env).await;
                work(&nfs, &root, &env, 40, true).await;
                every_procedure(&nfs, &root).await;
                settled.check(spoken);
                assert_eq!(connections(&world), 1, "{spoken:?}");
            });
        }
    }
}

/// proves: V1-4.5.5-a, ULB-3.1-d
#[test]
fn cut_connections_lose_nothing() {
    for (spoken, seed) in tried(100..116) {
        for config in configs().map(slow) {
            let world = World::new(seed);
            let env = world.env();
            let storage = nfs::storage(&env);
            let _process = Process::start(&world, &storage, &config, spoken);
            world.block_on(async {
                world.sleep(Duration::from_millis(1)).await;
                let (nfs, settled) = client(&world, config.clone(), spoken).await;
                let root = nfs::root(&storage, &env).await;
                let cutter = world.spawn({
                    let world = world.clone();
                    async move {
                        let random = world.env().random;
                        loop {
                            world.sleep(Duration::from_micros(2_000 + random.below(20_000))).await;
                            world.cut(CLIENT, SERVER);
                        }
                    }
                });
                work(&nfs, &root, &env, 25, false).await;
                cutter.abort();
                // If a connection ends before an answer, a client of both versions assumes a server without version 2.
                if spoken.client != Versions::Auto {
                    settled.check(spoken);
                }
            });
            println!("{spoken:?}, seed {seed}: {} connections in {:?}", connections(&world), world.now());
            assert!(connections(&world) > 5, "{spoken:?}, seed {seed}: hardly anything was cut");
        }
    }
}

/// A restart loses unstable writes, the duplicate request cache and all connections, but no file.
///
/// proves: V1-4.5.5-a, ULB-3.1-d
#[test]
fn restarts_of_the_server_lose_nothing() {
    for (spoken, seed) in tried(200..216) {
        let world = World::new(seed);
        let env = world.env();
        let storage = nfs::storage(&env);
        let config = slow(SimConfig::default());
        let process = RefCell::new(Some(Process::start(&world, &storage, &config, spoken)));
        world.block_on(async {
            world.sleep(Duration::from_millis(1)).await;
            let (nfs, _) = client(&world, config.clone(), spoken).await;
            let root = nfs::root(&storage, &env).await;
            let name = Name::from("file");
            let mut interrupted = 0;
            for round in 0..6 {
                let data = contents(400_000, seed + round);
                let writing = world.spawn({
                    let (nfs, root, name, data) = (nfs.clone(), root.clone(), name.clone(), data.clone());
                    async move { write_file(&nfs, &root, &name, &data).await }
                });
                world.sleep(Duration::from_micros(200 + world.env().random.below(12_000))).await;
                interrupted += usize::from(!writing.is_finished());
                process.borrow_mut().take().unwrap().kill();
                world.crash(SERVER);
                world.sleep(Duration::from_millis(20)).await;
                world.restart(SERVER);
                process.replace(Some(Process::start(&world, &storage, &config, spoken)));
                writing.await;
                assert!(read_file(&nfs, &root, &name).await == data[..], "{spoken:?}, seed {seed}, round {round}");
            }
            assert!(interrupted > 2, "{spoken:?}, seed {seed}: the files were written before the server was killed");
        });
    }
}
