//! Runs with the NFS version 4 clients of `rpcrdma-nfs-client`, in minor versions 0 to 2, over either version of the
//! transport, with their drivers and callbacks. There may also be a lean client, with delegations of files that ours
//! want.
//!
//! Each client has callers that share it, so that one caller's calls are in the way of another's. Callers stop in the
//! middle of operations. Connections are cut, the server is killed and comes back; clients are killed, and are away for
//! longer than their lease: the server must tell them what they have lost, and they must not be able to use it.
//!
//! Each client ends in order, and afterwards the server must hold nothing for it.

mod caller;
mod host;
mod hurt;

pub(super) use caller::client_of;

use super::{MAX_MISHAPS, PATIENCE, SERVER, Scene, client_ip, server::Server, work::Worker};
use host::Host;
use hurt::Mishap;
use rpcrdma_env::{Random, SeededRandom};
use std::{sync::Arc, time::Duration};

/// The most clients of ours.
const MAX_OURS: u64 = 3;
/// How many operations a lean client does beside them.
const LEAN_ROUNDS: u64 = 6;
/// The number of the client that judges at the end.
const JUDGE: usize = MAX_OURS as usize + 1;
/// How long drivers may take to give back what no caller uses any more.
const GIVING_BACK: Duration = Duration::from_secs(240);

pub(super) async fn play(scene: &Scene, random: &Arc<SeededRandom>) {
    let Scene { world, checks, tally, .. } = scene;
    tally.count("ours: a run");
    let mut server = Server::new(scene);
    world.sleep(Duration::from_millis(1)).await;
    let lean = (random.below(2) == 0).then(|| {
        let own = SeededRandom::new(random.next_u64());
        world.spawn(Worker::run(scene.clone(), 0, own, LEAN_ROUNDS))
    });
    let count = 1 + random.below(MAX_OURS) as usize;
    let mut hosts: Vec<_> = (1..=count).map(|number| Host::new(scene, number, random.next_u64())).collect();
    for _ in 0..random.below(MAX_MISHAPS + 1) {
        world.sleep(Duration::from_millis(1 << random.below(15))).await;
        let host = random.below(count as u64) as usize;
        match Mishap::draw(&**random) {
            Mishap::Cut => world.cut(client_ip(host + 1), SERVER),
            Mishap::Away(lasting) => hosts[host].is_away(lasting).await,
            Mishap::Restart(away) => {
                checks.restarts();
                server.restart(away).await;
            }
            Mishap::Killed(away) => hosts[host].restart(away).await,
        }
    }
    let until = world.now() + PATIENCE;
    let is_busy =
        |hosts: &[Host]| hosts.iter().any(Host::is_busy) || lean.as_ref().is_some_and(|worker| !worker.is_finished());
    while is_busy(&hosts) && world.now() < until {
        world.sleep(Duration::from_millis(50)).await;
    }
    if is_busy(&hosts) {
        checks.found("a client of ours waits for ever");
    }
    for host in &hosts {
        host.judge_contents().await;
    }
    world.sleep(GIVING_BACK).await;
    for host in &mut hosts {
        host.end().await;
    }
    if !checks.is_wrong() {
        Worker::judge(scene.clone(), JUDGE).await;
    }
    server.stop();
}
