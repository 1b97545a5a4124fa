//! NFS version 3 over the simulated fabric: a client and a server of memory, joined by every room between them, with
//! virtual time and a seed. Connections are cut and the server is restarted while files are written; what a model says
//! must be there is there.

use bytes::Bytes;
use rpcrdma::{ClientOptions, Quiet, Server, ServerMemory, ServerOptions, connect};
use rpcrdma_env::Env;
use rpcrdma_fabric::Fabric;
use rpcrdma_nfs::v3::{self, CreateHow, Handle, Name, NewAttributes, Status};
use rpcrdma_nfs_client::{Listing, Nfs3, Reader, Writer};
use rpcrdma_nfsd::{Export, Identities, MemoryFs, Nfsd, Squash};
use rpcrdma_oncrpc::{Client, Handler, SysAuth, SysCredential};
use rpcrdma_sim::{Event, Link, Side, SimConfig, Task, World};
use std::{
    cell::RefCell,
    collections::BTreeMap,
    future::poll_fn,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
const SERVER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));
const ADDRESS: SocketAddr = SocketAddr::new(SERVER, 20049);
const SECRET: [u8; rpcrdma_nfsd::SECRET_OCTETS] = [7; rpcrdma_nfsd::SECRET_OCTETS];
/// Octets of the server's file system.
const STORAGE: u64 = 64 << 20;

/// The server's process: its tasks end with it.
struct Process {
    tasks: Arc<std::sync::Mutex<Vec<Task<()>>>>,
}

impl Process {
    /// Serves `storage`, which outlives the process as a disk does.
    fn start(world: &World, storage: &Arc<MemoryFs>, config: &SimConfig) -> Self {
        let env = world.env();
        let squash = Identities { squash: Squash::None, ..Identities::default() };
        let export = Export::new("/", storage.clone()).with_identities(squash);
        let nfsd = Nfsd::new(vec![export], SECRET, &env).unwrap();
        let tasks = Arc::new(std::sync::Mutex::new(Vec::new()));
        let listening = world.spawn(listen(world.clone(), config.clone(), nfsd.nfs(), env, tasks.clone()));
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
    tasks: Arc<std::sync::Mutex<Vec<Task<()>>>>,
) {
    let fabric = world.fabric_with(SERVER, config);
    let memory = ServerMemory::budget(8 << 20);
    let server = Server::new(&fabric, handler, memory, env, ServerOptions::default(), Arc::new(Quiet));
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

async fn client(world: &World, config: SimConfig) -> Nfs3 {
    let env = world.env();
    let fabric = Arc::new(world.fabric_with(CLIENT, config));
    let (transport, driver) = connect(fabric, ADDRESS, &env, ClientOptions::default(), Arc::new(Quiet)).await.unwrap();
    world.spawn(driver);
    let identity = Arc::new(SysAuth::new(SysCredential::default()));
    Nfs3::new(Client::new(transport, identity, v3::PROGRAM, v3::VERSION), env.clock.clone())
}

/// The handle of the export's root, as MOUNT would give it.
async fn root(storage: &Arc<MemoryFs>, world: &World) -> Handle {
    use rpcrdma_env::Heap;
    use rpcrdma_nfs::mount;
    use rpcrdma_oncrpc::{CallContext, Connection, GoneSignal, Limits, Outcome, TransportKind};
    use rpcrdma_xdr::{Decode, Decoder, Encode, Encoder, Stream};
    let env = world.env();
    let nfsd = Nfsd::new(vec![Export::new("/", storage.clone())], SECRET, &env).unwrap();
    let (_signal, gone) = GoneSignal::new();
    let limits = Limits::new(1 << 20, 1 << 20);
    let connection = Connection::new(ADDRESS, ADDRESS, 0, TransportKind::Tcp, limits, Arc::new(Heap), gone);
    let mut call = Encoder::new();
    for word in [1, 0, 2, mount::PROGRAM, mount::VERSION_3, mount::procedure::MOUNT, 0, 0, 0, 0] {
        call.u32(word);
    }
    mount::Mount { path: mount::DirectoryPath(Bytes::from_static(b"/")) }.encode(&mut call);
    let stream = Stream::from(call.finish().to_bytes());
    let Outcome::Reply(reply) = nfsd.mount().handle(CallContext::new(Arc::new(connection)), stream).await else {
        panic!("MOUNT is answered")
    };
    let mut reply = Decoder::new(Stream::from(reply.to_bytes()));
    reply.opaque_fixed(24).unwrap();
    match mount::MountReply::decode(&mut reply).unwrap() {
        mount::MountReply::Ok { root, .. } => root,
        failed => panic!("{failed:?}"),
    }
}

fn contents(len: usize, seed: u64) -> Bytes {
    (0..len as u64).map(|at| (at.wrapping_mul(seed | 1) >> 3) as u8).collect::<Vec<_>>().into()
}

async fn write_file(nfs: &Nfs3, root: &Handle, name: &Name, data: &Bytes) {
    let how = CreateHow::Unchecked(NewAttributes { size: Some(0), mode: Some(0o644), ..Default::default() });
    let made = nfs.create(root, name, how).await.unwrap();
    let file = match made.file {
        Some(file) => file,
        None => nfs.lookup(root, name).await.unwrap().file,
    };
    let mut writer = Writer::new(nfs.clone(), file, 32 << 10, 4);
    for at in (0..data.len()).step_by(100_000) {
        writer.write(at as u64, data.slice(at..data.len().min(at + 100_000))).await.unwrap();
    }
    writer.finish().await.unwrap();
}

async fn read_file(nfs: &Nfs3, root: &Handle, name: &Name) -> Vec<u8> {
    let file = nfs.lookup(root, name).await.unwrap().file;
    let mut reader = Reader::new(nfs.clone(), file, 0, u64::MAX, 64 << 10, 4);
    let mut octets = Vec::new();
    while let Some(block) = reader.next().await.unwrap() {
        octets.extend_from_slice(&block.data);
    }
    octets
}

async fn names(nfs: &Nfs3, root: &Handle) -> Vec<Name> {
    let transfer = nfs.transfer(root).await.unwrap();
    let mut listing = Listing::new(nfs.clone(), root.clone(), transfer);
    let mut names = Vec::new();
    while let Some(entry) = listing.next().await.unwrap() {
        names.push(entry.name);
    }
    names.sort();
    names
}

/// Files of many sizes, written, renamed, removed and read back, and a model beside them.
///
/// Where calls are sent again (`steady` is false), "no such file" cannot be told from the answer to a call whose first
/// copy was executed: the client takes it for success when the state is what the call was to bring about.
async fn work(nfs: &Nfs3, root: &Handle, world: &World, rounds: u64, steady: bool) {
    let random = world.env().random;
    let mut model: BTreeMap<Name, Bytes> = BTreeMap::new();
    for round in 0..rounds {
        let name = Name::from(format!("file-{}", random.below(12)).as_str());
        match random.below(6) {
            0 => {
                let removed = nfs.remove(root, &name).await.map(drop).map_err(|error| error.status());
                let expected = if model.remove(&name).is_some() { Ok(()) } else { Err(Some(Status::NOENT)) };
                assert!(removed == expected || !steady && removed.is_ok(), "{name:?}: {removed:?}");
            }
            1 => {
                let to = Name::from(format!("file-{}", random.below(12)).as_str());
                let renamed = nfs.rename(root, &name, root, &to).await.map(drop).map_err(|error| error.status());
                match model.remove(&name) {
                    Some(data) => {
                        assert_eq!(renamed, Ok(()), "{name:?} to {to:?}");
                        model.insert(to, data);
                    }
                    None if !steady && renamed.is_ok() => assert!(model.contains_key(&to), "{name:?} to {to:?}"),
                    None => assert_eq!(renamed, Err(Some(Status::NOENT)), "{name:?} to {to:?}"),
                }
            }
            2 => {
                if let Some(data) = model.get(&name) {
                    assert!(read_file(nfs, root, &name).await == data[..], "{name:?} in round {round}");
                }
            }
            _ => {
                let data = contents(random.below(300_000) as usize, round);
                write_file(nfs, root, &name, &data).await;
                model.insert(name, data);
            }
        }
    }
    assert_eq!(names(nfs, root).await, model.keys().cloned().collect::<Vec<_>>());
    for (name, data) in &model {
        assert!(read_file(nfs, root, name).await == data[..], "{name:?} in the end");
    }
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

/// As slow as a wide-area network, so that much is under way at any moment.
fn slow(config: SimConfig) -> SimConfig {
    config.with_link(Link::new(Duration::from_micros(200), Duration::from_millis(1)))
}

/// proves: V1-3.1-a, V1-4.4.1-a, ULB-3.1-a, ULB-3.1-b
#[test]
fn files_are_what_a_model_says() {
    for seed in 0..4 {
        for config in configs() {
            let world = World::new(seed);
            let storage = Arc::new(MemoryFs::new(STORAGE, &world.env()));
            let _process = Process::start(&world, &storage, &config);
            world.block_on(async {
                world.sleep(Duration::from_millis(1)).await;
                let nfs = client(&world, config.clone()).await;
                let root = root(&storage, &world).await;
                work(&nfs, &root, &world, 40, true).await;
            });
        }
    }
}

/// proves: V1-4.5.5-a, ULB-3.1-d, ULB-3.2-f, ULB-3.4.1-b
#[test]
fn cut_connections_lose_nothing() {
    for seed in 100..116 {
        for config in configs().map(slow) {
            let world = World::new(seed);
            let storage = Arc::new(MemoryFs::new(STORAGE, &world.env()));
            let _process = Process::start(&world, &storage, &config);
            world.block_on(async {
                world.sleep(Duration::from_millis(1)).await;
                let nfs = client(&world, config.clone()).await;
                let root = root(&storage, &world).await;
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
                work(&nfs, &root, &world, 25, false).await;
                cutter.abort();
            });
            println!("seed {seed}: {} connections in {:?}", connections(&world), world.now());
            assert!(connections(&world) > 5, "seed {seed}: hardly anything was cut");
        }
    }
}

/// A restart loses what was written unstably, the duplicate request cache and all connections, and no file.
///
/// proves: V1-4.5.5-a, ULB-3.1-d
#[test]
fn restarts_of_the_server_lose_nothing() {
    for seed in 200..216 {
        let world = World::new(seed);
        let storage = Arc::new(MemoryFs::new(STORAGE, &world.env()));
        let config = slow(SimConfig::default());
        let process = RefCell::new(Some(Process::start(&world, &storage, &config)));
        world.block_on(async {
            world.sleep(Duration::from_millis(1)).await;
            let nfs = client(&world, config.clone()).await;
            let root = root(&storage, &world).await;
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
                process.replace(Some(Process::start(&world, &storage, &config)));
                writing.await;
                assert!(read_file(&nfs, &root, &name).await == data[..], "seed {seed}, round {round}");
            }
            assert!(interrupted > 2, "seed {seed}: the files were written before the server was killed");
        });
    }
}
