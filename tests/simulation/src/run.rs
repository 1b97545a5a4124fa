//! One seed's run: faults on, faults off, nothing left.

use crate::{
    capture::Recorder,
    hosts::{ClientHost, Common, ServerHost, client_ip, server_ip},
    ledger::Ledger,
    memory::Registry,
    plan::{Mishap, Plan},
    program::Judges,
    record::{EventLog, Record},
    watch::Watch,
};
use rpcrdma_fabric::CloseReason;
use rpcrdma_sim::{Event, Happening, Logged, Side, World};
use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    time::Duration,
};

/// Calls of each caller once faults are off.
const CALM_CALLS: u64 = 4;
/// How long calls may take to end once faults are off: a lost connection is given up after 120 s, and what was begun before that
/// may have to wait for the longest pauses first.
const PATIENCE: Duration = Duration::from_secs(600);
/// How long an orderly end may take: connections that do not close are dropped after 5 s, partitioned ones after 30.
const END: Duration = Duration::from_secs(60);
/// How often the run looks whether something has ended.
const LOOK: Duration = Duration::from_millis(5);

/// What came of a run.
pub struct Outcome {
    /// Its seed.
    pub seed: u64,
    /// What must not have happened, in words. Empty: all is well.
    pub findings: Vec<String>,
    /// All that happened.
    pub log: EventLog,
    /// Calls that were made.
    pub calls: usize,
    /// What went between the hosts, if that was wanted.
    pub recorder: Option<Arc<Recorder>>,
}

/// Runs a seed. `keep` says whether to keep what goes between the hosts, for a capture.
pub fn run(seed: u64, keep: bool) -> Outcome {
    let world = World::new(seed);
    let clock = world.env().clock;
    let record = Record::new(clock.clone());
    let recorder = keep.then(|| Recorder::new(clock));
    let registry = Registry::new(record.clone());
    let watch = Watch::new(record.clone(), registry, recorder.clone());
    let judges = Arc::new(Judges { ledger: Ledger::new(record.clone()), record: record.clone() });
    let plan = Plan::of(seed);
    record.note(format!("{plan:?}"));

    let common = Common { world: Arc::new(world.clone()), watch, judges };
    let ran = catch_unwind(AssertUnwindSafe(|| world.try_block_on(scene(&common, &plan))));
    match ran {
        Ok(Ok(())) => judge_rest(&common, &plan),
        Ok(Err(deadlock)) => record.found(deadlock.to_string()),
        Err(panic) => record.found(format!("panic: {}", words(&*panic))),
    }
    let log = EventLog { network: world.log(), notes: record.notes() };
    Outcome { seed, findings: record.findings(), log, calls: common.judges.ledger.len(), recorder }
}

fn words(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "without words".to_owned())
}

async fn scene(common: &Common, plan: &Plan) {
    let Common { world, judges, .. } = common;
    let mut server = ServerHost::new(common, &plan.server);
    world.sleep(LOOK).await;
    let clients = plan.clients.iter().enumerate();
    let mut clients: Vec<_> =
        clients.map(|(index, client)| ClientHost::new(common, index, client, &plan.server)).collect();

    server.turn_faults(true);
    clients.iter().for_each(|client| client.turn_faults(true));
    for (pause, mishap) in &plan.mishaps {
        world.sleep(*pause).await;
        judges.record.note(format!("{mishap:?}"));
        happen(world, *mishap, &mut server, &mut clients).await;
    }
    // Until all is done, or for as long as it would take to do it again.
    wait(world, PATIENCE, || clients.iter().any(ClientHost::is_busy)).await;

    judges.record.note("faults are off".to_owned());
    server.turn_faults(false);
    clients.iter().for_each(|client| client.turn_faults(false));
    (0..clients.len()).for_each(|index| world.heal(client_ip(index), server_ip()));
    let busy = || clients.iter().any(ClientHost::is_busy) || !judges.ledger.open().is_empty();
    wait(world, PATIENCE, busy).await;
    for call in judges.ledger.open() {
        judges.record.found(format!("{call} did not end. Memory in use: {:?}", common.watch.registry.live()));
    }

    // What was cancelled may still be worked at, and end its connection.
    world.sleep(END).await;
    judges.ledger.calm();
    clients.iter().for_each(|client| client.work(CALM_CALLS, false));
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
    if !server.stop(END).await {
        judges.record.found("a connection of the server did not end".to_owned());
    }
    world.sleep(END).await;
}

/// Waits while something is so, but not for ever.
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

/// What is left, and what the network has seen.
fn judge_rest(common: &Common, plan: &Plan) {
    let Common { world, watch, judges } = common;
    let record = &judges.record;
    if world.open_ends() > 0 {
        record.found(format!("{} ends of connections are left", world.open_ends()));
    }
    if watch.exposed() > 0 {
        record.found(format!("{} pieces of memory are still exposed", watch.exposed()));
    }
    for (source, count) in watch.registry.live() {
        record.found(format!("{count} buffers of {source} are left"));
    }
    // Whose calls are cancelled has told the transport to end connections on which they are still worked at.
    let cancels = plan.clients.iter().any(|client| client.cancels);
    for Logged { at, event } in world.log() {
        if let Event::Completed { connection, side, happening: Happening::Closed(CloseReason::Violation(violation)) } =
            event
        {
            let excused = cancels && side == Side::Initiator && !violation.rule.contains("receive");
            if !excused {
                record.found(format!("connection {connection}, {side:?}, at {} ns: {violation}", at.as_nanos()));
            }
        }
    }
}
