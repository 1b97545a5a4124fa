//! A client's host, and the calls that it makes.

use super::{ADDRESS, CONNECT_PAUSE, Common, Host, client_ip};
use crate::{
    caller::{Caller, Then},
    lock,
    plan::{ClientPlan, Edition, Faults, ServerPlan},
    work::{PROGRAM, Work},
};
use rpcrdma_oncrpc::{Client, NoAuth};
use rpcrdma_transport::{ClientOptions, Reverse, connect};
use std::{
    net::{IpAddr, SocketAddr},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

/// The longest pause between calls, in microseconds.
const MAX_PAUSE_MICROS: u64 = 3_000;
/// The longest time before a caller takes a call back, in microseconds.
const MAX_PATIENCE_MICROS: u64 = 5_000;
/// The same with a hostile server.
const MAX_VICTIM_MICROS: u64 = 2_000_000;
/// One call in so many is taken back, if the plan takes calls back.
const CANCEL_ONE_IN: u64 = 4;

/// A client.
pub(crate) struct ClientHost {
    host: Host,
    plan: ClientPlan,
    server: SocketAddr,
    can_call_back: bool,
    edition: Edition,
    transport: Arc<Mutex<Option<Client>>>,
    /// Callers that have not made all their calls.
    busy: Arc<AtomicU64>,
    /// Whether callers have to stop.
    over: Arc<AtomicBool>,
}

impl ClientHost {
    pub(crate) fn new(common: &Common, index: usize, plan: &ClientPlan, server: &ServerPlan, edition: Edition) -> Self {
        let host = Host::new(common, client_ip(index), &plan.host, index as u64 + 1);
        let can_call_back = plan.reverse > 0 && server.reverse > 0;
        Self::with(host, plan, ADDRESS, can_call_back, edition)
    }

    /// A client of a hostile server.
    pub(crate) fn victim(common: &Common, ip: IpAddr, number: u64, plan: &ClientPlan, server: SocketAddr) -> Self {
        Self::with(Host::new(common, ip, &plan.host, number), plan, server, false, Edition::Second)
    }

    fn with(host: Host, plan: &ClientPlan, server: SocketAddr, can_call_back: bool, edition: Edition) -> Self {
        let (transport, busy, over) = Default::default();
        let client = Self { host, plan: plan.clone(), server, can_call_back, edition, transport, busy, over };
        client.start();
        client
    }

    /// Connects, and lets the callers do their work.
    fn start(&self) {
        let Self { host, plan, .. } = self;
        let mut options = ClientOptions::default();
        options.versions = plan.versions;
        options.credits = plan.credits;
        options.inline_bytes = plan.inline_bytes;
        options.reverse = (plan.reverse > 0).then(|| Reverse { handler: host.router(), credits: plan.reverse });
        let (fabric, env, observer) = (host.fabric.clone(), host.env.clone(), host.observer());
        let (world, tasks, transport) = (host.common.world.clone(), host.tasks.clone(), self.transport.clone());
        let (server, over) = (self.server, self.over.clone());
        host.spawn(async move {
            while !over.load(Ordering::Relaxed) {
                let connecting = connect(fabric.clone(), server, &env, options.clone(), observer.clone());
                match connecting.await {
                    Ok((connected, driver)) => {
                        *lock(&transport) = Some(Client::new(connected, Arc::new(NoAuth), PROGRAM, 1));
                        let driver = world.spawn(driver);
                        return lock(&tasks).push(driver);
                    }
                    Err(_) => world.sleep(CONNECT_PAUSE).await,
                }
            }
        });
        let takes_back = match (plan.cancels, plan.drops) {
            (true, true) => vec![Then::Cancel, Then::Drop],
            (true, false) => vec![Then::Cancel],
            (false, true) => vec![Then::Drop],
            (false, false) => Vec::new(),
        };
        self.work(plan.calls, &takes_back);
    }

    /// Lets each caller make so many calls.
    pub(crate) fn work(&self, calls: u64, takes_back: &[Then]) {
        let Self { host, plan, can_call_back, edition, .. } = self;
        let (doubted, edition) = (host.common.judges.ledger.trust.is_hostile(self.server.ip()), *edition);
        for _ in 0..plan.callers {
            let (common, env, pool) = (host.common.clone(), host.env.clone(), host.pool.clone());
            let (process, ip, can_call_back) = (host.process, host.ip, *can_call_back);
            let (transport, busy, over) = (self.transport.clone(), self.busy.clone(), self.over.clone());
            let takes_back = takes_back.to_vec();
            busy.fetch_add(1, Ordering::Relaxed);
            host.spawn(async move {
                let world = &common.world;
                let client = loop {
                    let connected = lock(&transport).clone();
                    match connected {
                        Some(client) => break client,
                        None if over.load(Ordering::Relaxed) => return,
                        None => world.sleep(CONNECT_PAUSE).await,
                    }
                };
                for _ in 0..calls {
                    world.sleep(Duration::from_micros(env.random.below(MAX_PAUSE_MICROS))).await;
                    if over.load(Ordering::Relaxed) {
                        break;
                    }
                    let work = Work::draw(&*env.random, can_call_back, edition);
                    let lend = (env.random.below(2) == 0).then_some(&*pool);
                    let judges = &common.judges;
                    let caller = Caller { judges, process, client: &client, env: &env, lend, over: ip, doubted };
                    // With a hostile server no caller waits for ever.
                    let takes_one_back = !takes_back.is_empty() && (doubted || env.random.below(CANCEL_ONE_IN) == 0);
                    if takes_one_back {
                        let patience = if doubted { MAX_VICTIM_MICROS } else { MAX_PATIENCE_MICROS };
                        let patience = Duration::from_micros(env.random.below(patience));
                        let then = match *takes_back {
                            [then] => then,
                            _ => takes_back[env.random.below(takes_back.len() as u64) as usize],
                        };
                        caller.try_for(&work, patience, then).await;
                    } else {
                        caller.call(&work).await;
                    }
                }
                busy.fetch_sub(1, Ordering::Relaxed);
            });
        }
    }

    /// Whether callers still have calls to make.
    pub(crate) fn is_busy(&self) -> bool {
        self.busy.load(Ordering::Relaxed) > 0
    }

    pub(crate) async fn restart(&mut self, after: Duration) {
        self.host.kill();
        *lock(&self.transport) = None;
        self.busy.store(0, Ordering::Relaxed);
        self.host.common.world.sleep(after).await;
        self.host.restart();
        self.start();
    }

    pub(crate) fn jump(&self, by: Duration) {
        self.host.jump(by);
    }

    pub(crate) fn faults(&self) -> &Arc<Faults> {
        &self.host.faults
    }

    /// Drops the transport, and waits for the driver to end. Returns false if it did not.
    pub(crate) async fn stop(self, within: Duration) -> bool {
        self.over.store(true, Ordering::Relaxed);
        *lock(&self.transport) = None;
        self.host.wind_up(0, within).await
    }
}
