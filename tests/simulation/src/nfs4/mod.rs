//! Runs of NFS version 4: lean clients of minor versions 1 and 2 over the transport, with the real server and its file
//! system in memory. Connections are cut, the server is killed and comes back with its journal and no session; calls
//! are sent again over the same and over other connections, by the same slot and number.
//!
//! The server can call clients: it delegates files and recalls them, whatever happens to connections and server
//! meanwhile.
//!
//! In runs of the fourth edition `rpcrdma-nfs-client` provides the clients ([`ours`]).
//!
//! [`checks`] judges from outside: it compares executed operations with acknowledged ones, and knows the holders of
//! locks, shares and delegations, and stable writes. No client waits for ever: a run that does not end within a virtual
//! time is a finding.

mod callback;
mod checks;
mod client;
mod delegations;
mod ours;
mod server;
mod work;

use crate::{
    plan::Edition,
    record::{EventLog, Record},
    run::{Outcome, words},
    tally::Tally,
};
use checks::Checks;
use rpcrdma_env::{Random, SeededRandom};
use rpcrdma_sim::{Link, SimConfig, World};
use server::Server;
use std::{
    net::{IpAddr, Ipv4Addr},
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    time::Duration,
};
use work::Worker;

/// One seed in so many is a run of this kind.
const ONE_IN: u64 = 4;
/// One in as many is a run with clients of ours: the seeds with this remainder.
const OURS: u64 = 2;
/// The most clients.
const MAX_CLIENTS: u64 = 3;
/// How many operations each of them does: the least and the range.
const ROUNDS: (u64, u64) = (4, 14);
/// The most cuts, partitions and restarts.
const MAX_MISHAPS: u64 = 10;
/// A lease, and a grace period: far longer than anything here is away.
pub(crate) const LEASE: Duration = Duration::from_secs(60);
/// The longest that a connection or the server is away.
const LONGEST_AWAY: Duration = Duration::from_secs(3);
/// How long a run may take: some leases for each round of each client.
const PATIENCE: Duration = Duration::from_secs(4 * 60 * 60);

pub(crate) const SERVER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));

fn client_ip(client: usize) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(10, 0, 1, client as u8 + 1))
}

/// What all participants of a run share.
#[derive(Clone)]
pub(crate) struct Scene {
    pub(crate) world: World,
    pub(crate) config: SimConfig,
    pub(crate) checks: Arc<Checks>,
    pub(crate) tally: Arc<Tally>,
}

/// The clients of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cast {
    /// Lean clients.
    Lean,
    /// Clients of `rpcrdma-nfs-client`.
    Ours,
}

impl Cast {
    /// The clients of a seed's run, if it is a run of NFS version 4.
    pub(crate) fn of(seed: u64, edition: Edition) -> Option<Self> {
        match (edition, seed % ONE_IN) {
            (Edition::Third | Edition::Fourth | Edition::Fifth, 0) => Some(Self::Lean),
            (Edition::Fourth | Edition::Fifth, OURS) => Some(Self::Ours),
            _ => None,
        }
    }
}

/// Runs a seed.
pub(crate) fn run(seed: u64, cast: Cast) -> Outcome {
    let world = World::new(seed);
    let record = Record::new(world.env().clock);
    let tally = Arc::new(Tally::default());
    // Its own stream: what the world draws does not change what is done in it.
    let random = Arc::new(SeededRandom::new(seed ^ 0x4E46_5376_3400_0000));
    let slowest = [50, 500, 1_000, 5_000][random.below(4) as usize];
    let link = Link::new(Duration::from_micros(slowest / 10), Duration::from_micros(slowest));
    let config = match random.below(3) {
        0 => SimConfig::without_invalidation(),
        _ => SimConfig::default(),
    };
    let checks = Arc::new(Checks::new(record.clone(), world.env().clock));
    let scene = Scene { world: world.clone(), config: config.with_link(link), checks, tally: tally.clone() };
    let play = async {
        match cast {
            Cast::Lean => play(&scene, &random).await,
            Cast::Ours => ours::play(&scene, &random).await,
        }
    };
    let ran = catch_unwind(AssertUnwindSafe(|| world.try_block_on(play)));
    match ran {
        Ok(Ok(())) => {}
        Ok(Err(deadlock)) => record.found(deadlock.to_string()),
        Err(panic) => record.found(format!("panic: {}", words(&*panic))),
    }
    tally.count("nfs4: a run");
    let log = EventLog { network: world.log(), notes: record.notes() };
    let calls = scene.checks.calls();
    Outcome { seed, findings: record.findings(), log, calls, counts: tally.counts(), recorder: None }
}

async fn play(scene: &Scene, random: &Arc<SeededRandom>) {
    let Scene { world, checks, tally, .. } = scene;
    let mut server = Server::new(scene);
    world.sleep(Duration::from_millis(1)).await;
    let count = 1 + random.below(MAX_CLIENTS) as usize;
    let workers: Vec<_> = (0..count)
        .map(|client| {
            let rounds = ROUNDS.0 + random.below(ROUNDS.1 - ROUNDS.0);
            let own = SeededRandom::new(random.next_u64());
            world.spawn(Worker::run(scene.clone(), client, own, rounds))
        })
        .collect();
    for _ in 0..random.below(MAX_MISHAPS + 1) {
        world.sleep(Duration::from_millis(1 << random.below(15))).await;
        let away = LONGEST_AWAY.mul_f64((1 + random.below(100)) as f64 / 100.0);
        let client = client_ip(random.below(count as u64) as usize);
        match random.below(5) {
            0 | 1 => {
                tally.count("nfs4: a cut");
                world.cut(client, SERVER);
            }
            2 => {
                tally.count("nfs4: a partition");
                world.partition(client, SERVER);
                world.sleep(away).await;
                world.heal(client, SERVER);
            }
            _ => {
                tally.count("nfs4: a restart of the server");
                checks.note("the server restarts");
                server.restart(away).await;
            }
        }
    }
    let until = world.now() + PATIENCE;
    while workers.iter().any(|worker| !worker.is_finished()) && world.now() < until {
        world.sleep(Duration::from_millis(50)).await;
    }
    for (client, worker) in workers.iter().enumerate() {
        if !worker.is_finished() {
            checks.found(format!("client {client} waits for ever"));
            worker.abort();
        }
    }
    if !checks.is_wrong() {
        Worker::judge(scene.clone(), count).await;
    }
    server.stop();
}
