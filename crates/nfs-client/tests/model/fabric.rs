//! Over RPC-over-RDMA on the simulated fabric, in both versions of it: many seeds in virtual time.

use crate::{
    house::{EVERY, Version, client, nfsd},
    play::play,
    simulated::{CLIENT, Process, SERVER, transport},
};
use rpcrdma_env::{Random, SeededRandom};
use rpcrdma_nfsd::MemoryFs;
use rpcrdma_sim::{Link, SimConfig, World};
use rpcrdma_transport::{ClientOptions, ServerOptions, Versions};
use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

const LEASE: Duration = Duration::from_secs(60);
/// Steps of a run, and seeds for each version.
const STEPS: usize = 120;
const SEEDS: u64 = 3;

fn config() -> SimConfig {
    SimConfig::default().with_link(Link::new(Duration::from_micros(50), Duration::from_micros(500)))
}

/// A run. With `trouble_one_in`, something goes wrong before one step in this many.
fn run(seed: u64, version: Version, versions: Versions, trouble_one_in: Option<u64>) {
    println!("seed {seed}, {version:?}, RPC-over-RDMA {versions:?}, trouble {trouble_one_in:?}");
    let world = World::new(seed);
    let storage = Arc::new(MemoryFs::new(64 << 20, &world.env()));
    let scratch = tempfile::tempdir().unwrap();
    let start = || {
        let nfsd = Arc::new(nfsd(&storage, scratch.path(), &world.env(), LEASE));
        let mut options = ServerOptions::default();
        options.versions = versions;
        (Process::start(&world, nfsd.clone(), config(), options), nfsd)
    };
    let (process, served) = start();
    let process = Mutex::new(Some(process));
    let random = SeededRandom::new(seed ^ 0x4D6F_6465_6C00_0000);
    world.block_on(async {
        world.sleep(Duration::from_millis(1)).await;
        let env = world.env();
        let mut options = ClientOptions::default();
        options.versions = versions;
        let transport = transport(&world, config(), options).await;
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
                    *process = Some(start().0);
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
