//! One seed's run: faults on, faults off, nothing left.

mod healer;

use crate::{
    capture::Recorder,
    files,
    guests::Guests,
    hosts::{ClientHost, Common, ServerHost, client_ip, server_ip},
    judge::{self, TakenBack},
    ledger::Ledger,
    memory::Registry,
    nfs4,
    plan::{ClientPlan, Edition, Mishap, Plan},
    program::Judges,
    record::{EventLog, Record},
    tally::{Counts, Tally},
    watch::Watch,
};
use healer::Healer;
use rpcrdma_sim::World;
use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    time::Duration,
};

/// Calls of each caller once faults are off.
const CALM_CALLS: u64 = 4;
/// How long calls may take to end once faults are off: the transport gives up a lost connection after 120 s, and
/// earlier calls may first have to wait for its longest pauses.
const PATIENCE: Duration = Duration::from_secs(600);
/// How long an orderly end may take: connections that do not close are dropped after 5 s, partitioned ones after 30.
const END: Duration = Duration::from_secs(60);
/// How often the run looks whether something has ended.
const LOOK: Duration = Duration::from_millis(5);

/// The outcome of a run.
pub struct Outcome {
    /// Its seed.
    pub seed: u64,
    /// The findings in words; empty if all is well.
    pub findings: Vec<String>,
    /// Everything that happened.
    pub log: EventLog,
    /// Calls that were made.
    pub calls: usize,
    /// How often each thing has happened.
    pub counts: Counts,
    /// The messages between the hosts, if they were to be kept and this is not a run of NFS.
    pub recorder: Option<Arc<Recorder>>,
}

/// Runs a seed in this edition. `keep` says whether to keep the messages between the hosts, for a capture.
pub fn run(seed: u64, edition: Edition, keep: bool) -> Outcome {
    if let Some(cast) = nfs4::Cast::of(seed, edition) {
        return nfs4::run(seed, cast);
    }
    if files::is_run(seed, edition) {
        return files::run(seed);
    }
    let world = World::new(seed);
    let clock = world.env().clock;
    let record = Record::new(clock.clone());
    let recorder = keep.then(|| Recorder::new(clock));
    let registry = Registry::new(record.clone());
    let (ledger, tally) = (Ledger::new(record.clone()), Arc::new(Tally::default()));
    let watch = Watch::new(record.clone(), registry.clone(), ledger.clone(), tally.clone(), recorder.clone());
    let judges = Arc::new(Judges { ledger, registry, record: record.clone(), tally });
    let plan = Plan::of(seed, edition);
    record.note(format!("{plan:?}"));

    let common = Common { world: Arc::new(world.clone()), watch, judges };
    let ran = catch_unwind(AssertUnwindSafe(|| world.try_block_on(scene(&common, &plan))));
    match ran {
        Ok(Ok(())) => judge_rest(&common, &plan),
        Ok(Err(deadlock)) => record.found(deadlock.to_string()),
        Err(panic) => record.found(format!("panic: {}", words(&*panic))),
    }
    let log = EventLog { network: world.log(), notes: record.notes() };
    let Judges { ledger, tally, .. } = &*common.judges;
    Outcome { seed, findings: record.findings(), log, calls: ledger.len(), counts: tally.counts(), recorder }
}

pub(crate) fn words(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "without words".to_owned())
}

async fn scene(common: &Common, plan: &Plan) {
    let Common { world, judges, .. } = common;
    let mut server = ServerHost::new(common, &plan.server);
    world.sleep(LOOK).await;
    let clients = plan.clients.iter().enumerate();
    let mut clients: Vec<_> =
        clients.map(|(index, client)| ClientHost::new(common, index, client, &plan.server, plan.edition)).collect();
    let guests = Guests::come(common, plan);
    if plan.gentle {
        judges.ledger.calm();
    }
    let healer = Healer::new(world, &server, &clients);

    server.faults().turn(true);
    clients.iter().for_each(|client| client.faults().turn(true));
    guests.turn_faults(true);
    if plan.edition != Edition::First {
        healer.start();
    }
    for (pause, mishap) in &plan.mishaps {
        world.sleep(*pause).await;
        judges.record.note(format!("{mishap:?}"));
        happen(world, *mishap, &mut server, &mut clients).await;
    }
    // Waits until callers are done, but not for ever.
    wait(world, PATIENCE, || clients.iter().any(ClientHost::is_busy) || guests.are_busy()).await;

    judges.record.note("faults are off".to_owned());
    server.faults().turn(false);
    clients.iter().for_each(|client| client.faults().turn(false));
    guests.turn_faults(false);
    guests.leave();
    healer.stop();
    (0..clients.len()).for_each(|index| world.heal(client_ip(index), server_ip()));
    let busy = || clients.iter().any(ClientHost::is_busy) || !judges.ledger.open().is_empty();
    wait(world, PATIENCE, busy).await;
    for call in judges.ledger.open() {
        judges.record.found(format!("{call} did not end. Memory in use: {:?}", common.watch.registry.live()));
    }

    // The server may still work on cancelled calls, and this may end their connections.
    world.sleep(END).await;
    judges.ledger.calm();
    clients.iter().for_each(|client| client.work(CALM_CALLS, &[]));
    wait(world, PATIENCE, busy).await;
    for call in judges.ledger.open() {
        let memory = common.watch.registry.live();
        judges.record.found(format!("{call} did not end with faults off. Memory in use: {memory:?}"));
    }
    if clients.iter().any(ClientHost::is_busy) {
        judges.record.found("callers did not come to an end with faults off".to_owned());
    }

    judges.record.note("all is done".to_owned());
    for client in clients {
        if !client.stop(END).await {
            judges.record.found("a client's transport did not end".to_owned());
        }
    }
    if !guests.stop(END).await {
        judges.record.found("a client of a hostile server did not end".to_owned());
    }
    if !server.stop(END).await {
        judges.record.found("a connection of the server did not end".to_owned());
    }
    world.sleep(END).await;
}

/// Waits while something is busy, but not for ever.
async fn wait(world: &World, at_most: Duration, busy: impl Fn() -> bool) {
    let until = world.now() + at_most;
    while busy() && world.now() < until {
        world.sleep(LOOK).await;
    }
}

async fn happen(world: &Arc<World>, mishap: Mishap, server: &mut ServerHost, clients: &mut [ClientHost]) {
    match mishap {
        Mishap::Cut(client) => world.cut(client_ip(client), server_ip()),
        Mishap::Partition(client, lasting) => {
            world.partition(client_ip(client), server_ip());
            let healer = world.clone();
            world.spawn(async move {
                healer.sleep(lasting).await;
                healer.heal(client_ip(client), server_ip());
            });
        }
        Mishap::RestartServer(after) => server.restart(after).await,
        Mishap::RestartClient(client, after) => {
            if let Some(client) = clients.get_mut(client) {
                client.restart(after).await;
            }
        }
        Mishap::JumpServer(by) => server.jump(by),
        Mishap::JumpClient(client, by) => {
            if let Some(client) = clients.get(client) {
                client.jump(by);
            }
        }
    }
}

/// Judges what is left, and what the network has seen.
fn judge_rest(common: &Common, plan: &Plan) {
    let Common { world, watch, judges } = common;
    let which = |does: &dyn Fn(&ClientPlan) -> bool| {
        let clients = plan.clients.iter().enumerate();
        clients.filter(|(_, client)| does(client)).map(|(index, _)| client_ip(index)).collect()
    };
    // If a clock jumps, the patience with dropped calls ends at once.
    let jumps = plan.mishaps.iter().any(|(_, mishap)| matches!(mishap, Mishap::JumpClient(..)));
    let taken_back = TakenBack {
        cancel: which(&|client| client.cancels || client.drops && jumps),
        forget: which(&|client| client.drops),
    };
    let counts = |from, to| judges.ledger.trust.counts(from, to);
    judge::violations(&world.log(), &taken_back, counts).into_iter().for_each(|found| judges.record.found(found));
    judge::leftovers(world, watch, &judges.record);
}
