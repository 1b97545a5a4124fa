//! Runs of NFS versions 2 and 3: the real server with both, and clients of `rpcrdma-nfs-client` in both, over either
//! version of the transport. Connections are cut, the network between hosts is partitioned, the server is killed and
//! comes back without data that were not durable; providers fail, and deliver completions late. Clients send calls
//! again.
//!
//! [`checks`] and the [disk] judge from outside: no server executes a call twice, and a read of a register never
//! returns a value older than an acknowledged one. [Callers](caller) compare what they see in their directories with
//! what they did there, and at the end clients of either version compare everything once more. No caller waits for
//! ever.

mod caller;
mod checks;
mod client;
mod directory;
mod disk;
mod server;

use crate::{
    plan::{Edition, Faults, HostPlan, one_of, spread},
    record::{EventLog, Record},
    run::{Outcome, words},
    tally::Tally,
};
use caller::Caller;
use checks::Checks;
use client::Client;
use directory::Directory;
use disk::Disk;
use rpcrdma_env::{Random, SeededRandom};
use rpcrdma_fabric::{
    Fabric,
    faults::{Fault, FaultFabric, Point},
};
use rpcrdma_sim::{Link, SimConfig, Task, World};
use server::Server;
use std::{
    net::{IpAddr, Ipv4Addr},
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    time::Duration,
};

/// One seed in so many is a run of this kind: the seeds with this remainder.
const ONE_IN: u64 = 8;
const REMAINDER: u64 = 1;
/// The most clients, and the most callers of each.
const MAX_CLIENTS: u64 = 3;
const MAX_CALLERS: u64 = 2;
/// How many operations each caller does: the least and the range.
const ROUNDS: (u64, u64) = (8, 30);
/// The most cuts, partitions and restarts, and the longest time for which a host is away.
const MAX_MISHAPS: u64 = 16;
const LONGEST_AWAY: Duration = Duration::from_secs(3);
/// The most kinds of faults of a host, and how rarely a step fails: one in so many.
const MAX_FAULTS: u64 = 3;
const FAULT_ONE_IN: (u64, u64) = (32, 1024);
/// The latest delay of completions, in microseconds: drawn between these.
const LATE_MICROS: (u64, u64) = (10, 200_000);
/// How long a run may take.
const PATIENCE: Duration = Duration::from_secs(60 * 60);
/// Bytes of the disk.
const DISK_OCTETS: u64 = 64 << 20;

const SERVER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));

fn client_ip(client: u64) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(10, 0, 2, client as u8 + 1))
}

/// What all participants of a run share.
#[derive(Clone)]
struct Scene {
    world: World,
    config: SimConfig,
    checks: Arc<Checks>,
    tally: Arc<Tally>,
}

/// Whether a seed's run is one of these.
pub(crate) fn is_run(seed: u64, edition: Edition) -> bool {
    edition == Edition::Fifth && seed % ONE_IN == REMAINDER
}

/// Runs a seed.
pub(crate) fn run(seed: u64) -> Outcome {
    let world = World::new(seed);
    let record = Record::new(world.env().clock);
    let tally = Arc::new(Tally::default());
    // Its own stream: what the world draws does not change what is done in it.
    let random = SeededRandom::new(seed ^ 0x4E46_5332_2B33_0000);
    let slowest = *one_of(&random, &[50, 500, 1_000, 5_000]);
    let link = Link::new(Duration::from_micros(slowest / 10), Duration::from_micros(slowest));
    let config = match random.below(3) {
        0 => SimConfig::without_invalidation(),
        _ => SimConfig::default(),
    };
    let checks = Arc::new(Checks::new(record.clone(), tally.clone()));
    let scene = Scene { world: world.clone(), config: config.with_link(link), checks, tally: tally.clone() };
    let ran = catch_unwind(AssertUnwindSafe(|| world.try_block_on(play(&scene, &random))));
    match ran {
        Ok(Ok(())) => {}
        Ok(Err(deadlock)) => record.found(deadlock.to_string()),
        Err(panic) => record.found(format!("panic: {}", words(&*panic))),
    }
    tally.count("files: a run");
    let log = EventLog { network: world.log(), notes: record.notes() };
    let calls = scene.checks.calls();
    Outcome { seed, findings: record.findings(), log, calls, counts: tally.counts(), recorder: None }
}

/// A host's fabric, and the faults in it.
fn fabric(scene: &Scene, random: &SeededRandom, ip: IpAddr) -> (Arc<dyn Fabric>, Arc<Faults>) {
    let late = Fault::Delay(Duration::from_micros(spread(random, LATE_MICROS)));
    let possible = [
        (Point::Connect, Fault::Refuse),
        (Point::Accept, Fault::Refuse),
        (Point::PostSend, Fault::Fail),
        (Point::PostSend, Fault::Cut),
        (Point::PostWrite, Fault::Fail),
        (Point::PostRead, Fault::Fail),
        (Point::Received, Fault::Cut),
        (Point::Received, late),
        (Point::Done, Fault::Cut),
        (Point::Done, late),
        (Point::Read, late),
        (Point::Fenced, late),
    ];
    let faults = (0..random.below(MAX_FAULTS + 1)).map(|_| *one_of(random, &possible));
    let faults = faults.map(|(point, fault)| (point, fault, spread(random, FAULT_ONE_IN))).collect();
    let plan = HostPlan { config: scene.config.clone(), faults, scarce: 0, corrupt: 0 };
    let faults = Arc::new(Faults::new(&plan, random.next_u64(), scene.tally.clone()));
    let sim = Arc::new(scene.world.fabric_with(ip, scene.config.clone()));
    let fabric = Arc::new(FaultFabric::new(sim, faults.clone(), scene.world.env()));
    (fabric, faults)
}

async fn play(scene: &Scene, random: &SeededRandom) {
    let world = &scene.world;
    let disk = Arc::new(Disk::new(DISK_OCTETS, &world.env(), scene.checks.clone()));
    disk.prepare(caller::REGISTERS).await;
    let (at_server, server_faults) = fabric(scene, random, SERVER);
    let server = Server::new(scene, at_server, disk);
    world.sleep(Duration::from_millis(1)).await;
    let count = 1 + random.below(MAX_CLIENTS);
    let mut faults = vec![server_faults];
    let (mut callers, mut directories) = (Vec::new(), Vec::new());
    for number in 0..count {
        let (at_client, own) = fabric(scene, random, client_ip(number));
        faults.push(own);
        let client = Arc::new(Client::new(at_client, random));
        scene.tally.count(format!("files: a client of version {}", client.version));
        for _ in 0..1 + random.below(MAX_CALLERS) {
            let directory = Arc::new(Directory::new(directories.len() as u64));
            directories.push(directory.clone());
            let rounds = ROUNDS.0 + random.below(ROUNDS.1 - ROUNDS.0);
            let own = SeededRandom::new(random.next_u64());
            callers.push(world.spawn(Caller::run(scene.clone(), client.clone(), directory, (own, rounds))));
        }
    }
    faults.iter().for_each(|faults| faults.turn(true));
    for _ in 0..random.below(MAX_MISHAPS + 1) {
        world.sleep(Duration::from_micros(spread(random, (500, 1_000_000)))).await;
        mishap(scene, random, &server, client_ip(random.below(count))).await;
    }
    wait(scene, &callers).await;
    faults.iter().for_each(|faults| faults.turn(false));
    for version in [2, 3] {
        let (at_judge, _) = fabric(scene, random, client_ip(MAX_CLIENTS));
        let judging = Caller::judge(scene.clone(), Client::of(at_judge, version), directories.clone());
        wait(scene, &[world.spawn(judging)]).await;
    }
    server.stop();
}

async fn mishap(scene: &Scene, random: &SeededRandom, server: &Server, client: IpAddr) {
    let Scene { world, tally, .. } = scene;
    let away = LONGEST_AWAY.mul_f64((1 + random.below(100)) as f64 / 100.0);
    match random.below(6) {
        0..=2 => {
            tally.count("files: a cut");
            world.cut(client, SERVER);
        }
        3 => {
            tally.count("files: a partition");
            world.partition(client, SERVER);
            world.sleep(away).await;
            world.heal(client, SERVER);
        }
        _ => server.restart(away).await,
    }
}

/// Waits until all tasks have ended, or until it is clear that they will not.
async fn wait(scene: &Scene, tasks: &[Task<()>]) {
    let until = scene.world.now() + PATIENCE;
    while tasks.iter().any(|task| !task.is_finished()) && scene.world.now() < until {
        scene.world.sleep(Duration::from_millis(50)).await;
    }
    for task in tasks.iter().filter(|task| !task.is_finished()) {
        scene.checks.found("somebody waits for ever");
        task.abort();
    }
}
