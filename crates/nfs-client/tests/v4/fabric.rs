//! Over RPC-over-RDMA on the simulated fabric, in both versions: every operation, cut connections, and a restart of the
//! server, after which the client reclaims what it held. Time is the simulation's.

use crate::{
    every::{contents, every_operation, mode, more_of_minor_2, name},
    house::SECRET,
    simulated::{CLIENT, Process, SERVER, transport},
};
use rpcrdma_env::Buffer;
use rpcrdma_nfs::v4::{
    PROGRAM, VERSION,
    ops::{LockKind, Stability},
};
use rpcrdma_nfs_client::v4::{Access, CALLBACK_SLOTS, Callbacks, How, Nfs4, Options};
use rpcrdma_nfsd::{Export, Identities, MemoryFs, Nfsd, Queue, Squash, StateDirectory, Version4};
use rpcrdma_oncrpc::{Client, Router, SysAuth, SysCredential};
use rpcrdma_sim::{SimConfig, World};
use rpcrdma_transport::{ClientOptions, Reverse, ServerOptions, Versions};
use rpcrdma_xdr::ItemData;
use std::{
    path::Path,
    sync::{Arc, Mutex},
    time::Duration,
};

/// The server's process. Its disk outlives it.
fn start(world: &World, storage: &Arc<MemoryFs>, scratch: &Path, versions: Versions) -> Process {
    let env = world.env();
    let state = StateDirectory::open(scratch.join("state"), &*env.random).unwrap();
    let identities = Identities { squash: Squash::None, ..Identities::default() };
    let export = Export::new("/", storage.clone()).with_identities(identities);
    let nfsd = Nfsd::new(vec![export], SECRET, &env).unwrap();
    let nfsd = nfsd.with_version_4(Version4::new(&state, Queue::in_place()), true, &env).unwrap();
    let mut options = ServerOptions::default();
    (options.versions, options.reverse_credits) = (versions, 16);
    Process::start(world, Arc::new(nfsd), SimConfig::default(), options)
}

async fn client(world: &World, minor: u32, versions: Versions) -> Nfs4 {
    client_with(world, versions, Options::new("test").with_minors(minor..=minor)).await
}

async fn client_with(world: &World, versions: Versions, options_of_nfs: Options) -> Nfs4 {
    let env = world.env();
    let callbacks = Callbacks::new();
    let handler = Arc::new(Router::new(&env).with_service(callbacks.service()));
    let mut options = ClientOptions::default();
    (options.versions, options.reverse) = (versions, Some(Reverse { handler, credits: CALLBACK_SLOTS }));
    let transport = transport(world, SimConfig::default(), options).await;
    let identity = Arc::new(SysAuth::new(SysCredential::default()));
    let rpc = Client::new(transport, identity, PROGRAM, VERSION);
    let nfs = Nfs4::connect(rpc, &env, options_of_nfs.with_callbacks(callbacks)).await.unwrap();
    world.spawn(nfs.driver());
    nfs
}

/// In each version of RPC-over-RDMA and each minor version.
fn everywhere(seed: u64, test: impl AsyncFn(&World, &Nfs4, &dyn Fn())) {
    for versions in [Versions::One, Versions::Two] {
        for minor in 0..=2 {
            println!("RPC-over-RDMA {versions:?}, minor version {minor}");
            let world = World::new(seed);
            let storage = Arc::new(MemoryFs::new(64 << 20, &world.env()));
            let scratch = tempfile::tempdir().unwrap();
            let process = Mutex::new(Some(start(&world, &storage, scratch.path(), versions)));
            world.block_on(async {
                world.sleep(Duration::from_millis(1)).await;
                let nfs = client(&world, minor, versions).await;
                let restart = || {
                    let mut process = process.lock().unwrap();
                    process.take().unwrap().kill();
                    *process = Some(start(&world, &storage, scratch.path(), versions));
                };
                test(&world, &nfs, &restart).await;
            });
        }
    }
}

#[test]
fn every_operation_over_the_simulated_fabric() {
    everywhere(1, async |_, nfs, _| {
        let root = nfs.root().await.unwrap().file;
        every_operation(nfs, &root).await;
        if nfs.minor() == 2 {
            more_of_minor_2(nfs, &root).await;
        }
        let (opened, _) = nfs.open(&root, &name("f"), Access::Both, How::Unchecked(mode(0o644))).await.unwrap();
        let data = contents(500_000);
        nfs.write(&opened, 0, Stability::FileSync, data.clone()).await.unwrap();
        let read = nfs.read_into(&opened, 0, Buffer::from_vec(vec![0; 500_000])).await.unwrap();
        assert!(matches!(read.data, ItemData::Placed(_)), "directly into the caller's buffer");
        assert!(read.data.as_slice() == &data[..]);
        nfs.close(opened).await.unwrap();
    });
}

/// proves: ULB-5.4.2-d
#[test]
fn cut_connections_and_restarts_cost_time_and_nothing_else() {
    everywhere(2, async |world, nfs, restart| {
        let root = nfs.root().await.unwrap().file;
        let (opened, _) = nfs.open(&root, &name("f"), Access::Both, How::Guarded(mode(0o644))).await.unwrap();
        nfs.lock(&opened, LockKind::Write, 0, 1_000).await.unwrap();
        let data = contents(100_000);
        for round in 0..30u64 {
            let (world, of_cut) = (world.clone(), world.clone());
            let cutter = world.spawn(async move {
                of_cut.sleep(Duration::from_micros(3 * round)).await;
                of_cut.cut(CLIENT, SERVER);
            });
            if round % 10 == 5 {
                restart();
            }
            let directory = name(&format!("directory {round}"));
            nfs.mkdir(&root, &directory, &mode(0o755)).await.unwrap();
            nfs.write(&opened, round * 10, Stability::FileSync, data.clone()).await.unwrap();
            assert!(nfs.read(&opened, round * 10, 100_000).await.unwrap().data == data, "round {round}");
            nfs.rename(&root, &directory, &root, &name("moved")).await.unwrap();
            nfs.remove(&root, &name("moved")).await.unwrap();
            cutter.await;
        }
        nfs.unlock(&opened, 0, u64::MAX).await.unwrap();
        nfs.close(opened).await.unwrap();
    });
}

/// The server can call an idle client for as long as it holds a delegation: over the client's connection, and soon
/// after its loss over a new one, which the client makes without a call of a caller.
///
/// proves: V2-4.5.5-d
#[test]
fn a_connection_is_there_for_as_long_as_a_delegation_is_held() {
    /// Ends a while before the next renewal.
    const IDLE: Duration = Duration::from_secs(6 * 3_600 + 10);
    /// More than the pause between renewals of a lease of 90 s, and less than two of them.
    const FOUND_SOON: Duration = Duration::from_secs(35);
    /// Less than the time up to the renewal after that.
    const RECALLED_WITHIN: Duration = Duration::from_secs(10);
    for versions in [Versions::One, Versions::Two] {
        for minor in [1, 2] {
            for is_cut in [false, true] {
                let world = World::new(3);
                let storage = Arc::new(MemoryFs::new(64 << 20, &world.env()));
                let scratch = tempfile::tempdir().unwrap();
                let process = start(&world, &storage, scratch.path(), versions);
                world.block_on(async {
                    world.sleep(Duration::from_millis(1)).await;
                    let options = || Options::new("test").with_minors(minor..=minor);
                    let holder = client_with(&world, versions, options().with_delegations()).await;
                    let root = holder.root().await.unwrap().file;
                    let mut tries = 0;
                    let opened = loop {
                        let how = How::Unchecked(mode(0o666));
                        let (opened, _) = holder.open(&root, &name("f"), Access::Read, how).await.unwrap();
                        if holder.delegations() > 0 {
                            break opened;
                        }
                        holder.close(opened).await.unwrap();
                        tries += 1;
                        assert!(tries < 100, "the server delegates nothing");
                        world.sleep(Duration::from_secs(1)).await;
                    };
                    assert_eq!(process.accepted(), 1);
                    world.sleep(IDLE).await;
                    assert_eq!((holder.delegations(), process.accepted()), (1, 1));
                    if is_cut {
                        world.cut(CLIENT, SERVER);
                        world.sleep(FOUND_SOON).await;
                        assert_eq!(process.accepted(), 2, "the connection is made again");
                    }
                    let other = client_with(&world, versions, options()).await;
                    let began = world.env().clock.now();
                    let (theirs, _) = other.open(&root, &name("f"), Access::Write, How::Existing).await.unwrap();
                    let took = world.env().clock.now().since(began);
                    assert!(took < RECALLED_WITHIN, "{versions:?}, 4.{minor}, cut: {is_cut}: {took:?}");
                    // The reply to the return may come after the other client's reply.
                    world.sleep(Duration::from_secs(1)).await;
                    assert_eq!((holder.delegations(), other.delegations()), (0, 0));
                    other.write(&theirs, 0, Stability::FileSync, contents(10)).await.unwrap();
                    assert_eq!(holder.read(&opened, 0, 10).await.unwrap().data, contents(10)[..]);
                });
                process.kill();
            }
        }
    }
}
