//! Hosts: a server and clients, each with a clock, a provider that is watched, and a process that can be killed and started again.

use crate::{
    clock::HostClock,
    ledger::Process,
    lock,
    memory::{Registry, Watched},
    plan::{ClientPlan, Faults, HostPlan, ServerPlan},
    program::{Caller, Judges, PROGRAM, Program, Work},
    watch::{Watch, WatchedFabric},
};
use rpcrdma::{
    ClientOptions, ConnectionHandle, Event, MessageKind, Observer, Reverse, Server, ServerMemory, ServerOptions,
    connect,
};
use rpcrdma_env::{Allocator, Env, SeededRandom};
use rpcrdma_fabric::{Fabric, faults::FaultFabric};
use rpcrdma_oncrpc::{AcceptNone, Client, NoAuth, Router};
use rpcrdma_sim::{Task, World};
use std::{
    future::poll_fn,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

const SERVER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
const ADDRESS: SocketAddr = SocketAddr::new(SERVER, 20049);
/// Between attempts to connect for the first time, which the transport leaves to its user.
const CONNECT_PAUSE: Duration = Duration::from_millis(50);
/// Between calls at most, in microseconds.
const MAX_PAUSE_MICROS: u64 = 3_000;
/// How long a caller waits before it takes a call back, in microseconds.
const MAX_PATIENCE_MICROS: u64 = 5_000;
/// One call in so many is taken back, where any are.
const CANCEL_ONE_IN: u64 = 4;

/// The address of client `index`, counted from zero.
pub(crate) fn client_ip(index: usize) -> IpAddr {
    // Three clients at most.
    IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2 + index as u8))
}

pub(crate) fn server_ip() -> IpAddr {
    SERVER
}

/// What all hosts of a run have.
#[derive(Clone)]
pub(crate) struct Common {
    pub(crate) world: Arc<World>,
    pub(crate) watch: Arc<Watch>,
    pub(crate) judges: Arc<Judges>,
}

/// A host, whether or not its process runs.
struct Host {
    common: Common,
    ip: IpAddr,
    clock: HostClock,
    env: Env,
    faults: Arc<Faults>,
    fabric: Arc<dyn Fabric>,
    pool: Arc<dyn Allocator>,
    process: Process,
    tasks: Arc<Mutex<Vec<Task<()>>>>,
}

impl Host {
    fn new(common: &Common, ip: IpAddr, plan: &HostPlan, number: u64) -> Self {
        let world = &common.world;
        let clock = HostClock::new(world.env().clock);
        let seed = world.seed().wrapping_mul(31).wrapping_add(number);
        let env = Env { clock: Arc::new(clock.clone()), random: Arc::new(SeededRandom::new(!seed)) };
        let faults = Arc::new(Faults::new(plan, seed));
        let sim = world.fabric_with(ip, plan.config.clone());
        let watched = |name, inner: Arc<dyn Allocator>| watched(common, &faults, name, inner);
        let pool = watched("a provider's pool", sim.pool());
        let inner = Arc::new(FaultFabric::new(Arc::new(sim), faults.clone(), world.env()));
        let fabric = Arc::new(WatchedFabric { inner, watch: common.watch.clone(), pool: pool.clone() });
        let process = Process { host: number, starts: 0 };
        Self { common: common.clone(), ip, clock, env, faults, fabric, pool, process, tasks: Arc::default() }
    }

    /// Ends the process where it stands, and the host with it.
    fn kill(&mut self) {
        self.common.judges.record.note(format!("{:?} is killed", self.process));
        for task in std::mem::take(&mut *lock(&self.tasks)) {
            task.abort();
        }
        self.common.world.crash(self.ip);
        self.common.judges.ledger.gone(self.process);
    }

    fn restart(&mut self) {
        self.common.world.restart(self.ip);
        self.process.starts += 1;
        self.common.judges.record.note(format!("{:?} starts", self.process));
    }

    fn spawn(&self, future: impl Future<Output = ()> + Send + 'static) {
        let task = self.common.world.spawn(future);
        lock(&self.tasks).push(task);
    }

    fn router(&self) -> Arc<Router> {
        let program = Program { judges: self.common.judges.clone(), process: self.process, env: self.env.clone() };
        Arc::new(Router::new(&self.env).with_service(Arc::new(program)).with_flavour(Arc::new(AcceptNone)))
    }

    fn observer(&self) -> Arc<Notes> {
        Arc::new(Notes { judges: self.common.judges.clone(), process: self.process })
    }

    fn jump(&self, by: Duration) {
        self.common.judges.record.note(format!("the clock of {:?} jumps by {by:?}", self.process));
        self.clock.jump(by);
    }
}

fn watched(common: &Common, faults: &Arc<Faults>, name: &'static str, inner: Arc<dyn Allocator>) -> Arc<dyn Allocator> {
    let registry: Arc<Registry> = common.watch.registry.clone();
    Arc::new(Watched { inner, name, registry, faults: faults.clone(), clock: common.world.env().clock })
}

/// Puts what the transport says of itself beside what is seen of it.
struct Notes {
    judges: Arc<Judges>,
    process: Process,
}

impl Observer for Notes {
    fn event(&self, peer: SocketAddr, event: &Event) {
        match event {
            // What goes over the network is in its log.
            Event::Received { .. } | Event::ReceivesPosted { .. } | Event::Invalidated { .. } => {}
            Event::Sent(sent) if sent.kind == MessageKind::Call => {
                self.judges.record.note(format!("{:?} calls {peer}: {sent:?}", self.process));
            }
            Event::Sent(_) => {}
            _ => self.judges.record.note(format!("{:?} with {peer}: {event:?}", self.process)),
        }
    }
}

/// The server.
pub(crate) struct ServerHost {
    host: Host,
    plan: ServerPlan,
    /// Connections that were accepted, whether or not they are still there.
    connections: Arc<Mutex<Vec<ConnectionHandle>>>,
}

impl ServerHost {
    pub(crate) fn new(common: &Common, plan: &ServerPlan) -> Self {
        let server =
            Self { host: Host::new(common, SERVER, &plan.host, 0), plan: plan.clone(), connections: Arc::default() };
        server.start();
        server
    }

    fn start(&self) {
        let Self { host, plan, connections } = self;
        let connections = connections.clone();
        let mut options = ServerOptions::default();
        options.versions = plan.versions;
        options.credits = plan.credits;
        options.inline_octets = plan.inline_octets;
        options.reverse_credits = plan.reverse;
        let budget = ServerMemory::budget(plan.memory);
        let watched = |name, inner| watched(&host.common, &host.faults, name, inner);
        let memory = ServerMemory {
            arguments: watched("memory for arguments", budget.arguments),
            results: watched("memory for results", budget.results),
            receives: watched("memory for receives", budget.receives),
        };
        let server = Server::new(&*host.fabric, host.router(), memory, host.env.clone(), options, host.observer());
        let (fabric, world, tasks) = (host.fabric.clone(), host.common.world.clone(), host.tasks.clone());
        let record = host.common.judges.record.clone();
        host.spawn(async move {
            let mut listener = match fabric.listen(ADDRESS).await {
                Ok(listener) => listener,
                Err(error) => return record.found(format!("the server cannot listen: {error}")),
            };
            loop {
                let Ok(pending) = poll_fn(|cx| listener.poll_accept(cx)).await else { continue };
                let (server, connections) = (server.clone(), connections.clone());
                let serving = world.spawn(async move {
                    if let Ok((handle, driver)) = server.accept(pending).await {
                        lock(&connections).push(handle);
                        // How it ended is among the notes.
                        drop(driver.await);
                    }
                });
                lock(&tasks).push(serving);
            }
        });
    }

    pub(crate) async fn restart(&mut self, after: Duration) {
        self.host.kill();
        self.host.common.world.sleep(after).await;
        self.host.restart();
        self.start();
    }

    pub(crate) fn jump(&self, by: Duration) {
        self.host.jump(by);
    }

    pub(crate) fn turn_faults(&self, on: bool) {
        self.host.faults.turn(on);
    }

    /// Lets what is under way end. Returns false if it did not.
    pub(crate) async fn stop(self, within: Duration) -> bool {
        let world = &self.host.common.world;
        // Clients that were cut off have left connections behind, of which nobody else would tell the server.
        lock(&self.connections).iter().for_each(ConnectionHandle::drain);
        // The listener, which was spawned first, would listen for ever.
        let until = world.now() + within;
        let rest = |tasks: &Mutex<Vec<Task<()>>>| lock(tasks).iter().skip(1).any(|task| !task.is_finished());
        while rest(&self.host.tasks) && world.now() < until {
            world.sleep(CONNECT_PAUSE).await;
        }
        let ended = !rest(&self.host.tasks);
        for task in std::mem::take(&mut *lock(&self.host.tasks)) {
            task.abort();
        }
        ended
    }
}

/// A client.
pub(crate) struct ClientHost {
    host: Host,
    plan: ClientPlan,
    can_call_back: bool,
    transport: Arc<Mutex<Option<Client>>>,
    /// Callers that have not done all that they are to do.
    busy: Arc<AtomicU64>,
}

impl ClientHost {
    pub(crate) fn new(common: &Common, index: usize, plan: &ClientPlan, server: &ServerPlan) -> Self {
        let host = Host::new(common, client_ip(index), &plan.host, index as u64 + 1);
        let can_call_back = plan.reverse > 0 && server.reverse > 0;
        let client = Self { host, plan: plan.clone(), can_call_back, transport: Arc::default(), busy: Arc::default() };
        client.start();
        client
    }

    /// Connects, and lets the callers do their work.
    fn start(&self) {
        let Self { host, plan, .. } = self;
        let mut options = ClientOptions::default();
        options.versions = plan.versions;
        options.credits = plan.credits;
        options.inline_octets = plan.inline_octets;
        options.reverse = (plan.reverse > 0).then(|| Reverse { handler: host.router(), credits: plan.reverse });
        let (fabric, env, observer) = (host.fabric.clone(), host.env.clone(), host.observer());
        let (world, tasks, transport) = (host.common.world.clone(), host.tasks.clone(), self.transport.clone());
        host.spawn(async move {
            loop {
                let connecting = connect(fabric.clone(), ADDRESS, &env, options.clone(), observer.clone());
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
        self.work(plan.calls, plan.cancels);
    }

    /// Lets each caller make so many calls.
    pub(crate) fn work(&self, calls: u64, cancels: bool) {
        let Self { host, plan, can_call_back, .. } = self;
        for _ in 0..plan.callers {
            let (common, env, pool) = (host.common.clone(), host.env.clone(), host.pool.clone());
            let (process, can_call_back) = (host.process, *can_call_back);
            let (transport, busy) = (self.transport.clone(), self.busy.clone());
            busy.fetch_add(1, Ordering::Relaxed);
            host.spawn(async move {
                let world = &common.world;
                let client = loop {
                    let connected = lock(&transport).clone();
                    match connected {
                        Some(client) => break client,
                        None => world.sleep(CONNECT_PAUSE).await,
                    }
                };
                for _ in 0..calls {
                    world.sleep(Duration::from_micros(env.random.below(MAX_PAUSE_MICROS))).await;
                    let work = Work::draw(&*env.random, can_call_back);
                    let lend = (env.random.below(2) == 0).then_some(&*pool);
                    let caller = Caller { judges: &common.judges, process, client: &client, env: &env, lend };
                    if cancels && env.random.below(CANCEL_ONE_IN) == 0 {
                        let patience = Duration::from_micros(env.random.below(MAX_PATIENCE_MICROS));
                        caller.cancel(&work, patience).await;
                    } else {
                        caller.call(&work).await;
                    }
                }
                busy.fetch_sub(1, Ordering::Relaxed);
            });
        }
    }

    /// Whether callers still have something to do.
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

    pub(crate) fn turn_faults(&self, on: bool) {
        self.host.faults.turn(on);
    }

    /// Lets go of the transport, and waits for the driver to end. Returns false if it did not.
    pub(crate) async fn stop(self, within: Duration) -> bool {
        *lock(&self.transport) = None;
        let world = &self.host.common.world;
        let until = world.now() + within;
        while lock(&self.host.tasks).iter().any(|task| !task.is_finished()) && world.now() < until {
            world.sleep(CONNECT_PAUSE).await;
        }
        let tasks = std::mem::take(&mut *lock(&self.host.tasks));
        let ended = tasks.iter().all(Task::is_finished);
        tasks.iter().for_each(Task::abort);
        ended
    }
}
