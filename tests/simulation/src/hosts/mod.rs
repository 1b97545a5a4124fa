//! Hosts: a server and clients, each with a clock, a watched provider, and a process that can be killed and started
//! again.

mod client;
mod notes;
mod server;

pub(crate) use client::ClientHost;
pub(crate) use server::ServerHost;

use crate::{
    clock::HostClock,
    ledger::Process,
    lock,
    memory::{Allowance, Registry, Watched},
    plan::{Faults, HostPlan},
    program::{Judges, Program},
    watch::{Watch, WatchedFabric},
};
use notes::Notes;
use rpcrdma_env::{Allocator, Env, SeededRandom};
use rpcrdma_fabric::{Fabric, faults::FaultFabric};
use rpcrdma_oncrpc::{AcceptNone, Router};
use rpcrdma_sim::{Task, World};
use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::{Arc, Mutex},
    time::Duration,
};

const SERVER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
pub(crate) const ADDRESS: SocketAddr = SocketAddr::new(SERVER, 20049);
/// The pause between attempts at the first connection, which the transport leaves to its user.
const CONNECT_PAUSE: Duration = Duration::from_millis(50);

/// The address of client `index`, counted from zero.
pub(crate) fn client_ip(index: usize) -> IpAddr {
    // A plan has at most three clients.
    IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2 + index as u8))
}

pub(crate) fn server_ip() -> IpAddr {
    SERVER
}

/// What all hosts of a run share.
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
        let faults = Arc::new(Faults::new(plan, seed, common.judges.tally.clone()));
        let sim = world.fabric_with(ip, plan.config.clone());
        let pool = watched(common, &faults, "a provider's pool", sim.pool(), None);
        let inner = Arc::new(FaultFabric::new(Arc::new(sim), faults.clone(), world.env()));
        let fabric =
            Arc::new(WatchedFabric { inner, watch: common.watch.clone(), faults: faults.clone(), pool: pool.clone() });
        let process = Process { host: number, starts: 0 };
        Self { common: common.clone(), ip, clock, env, faults, fabric, pool, process, tasks: Arc::default() }
    }

    /// Kills the process, and ends the host.
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
        Arc::new(Notes::new(self.common.judges.clone(), self.process))
    }

    /// Waits until all tasks except the first `spared` have ended, then aborts the rest. Returns false if any had not
    /// ended.
    async fn wind_up(&self, spared: usize, within: Duration) -> bool {
        let world = &self.common.world;
        let until = world.now() + within;
        let busy = || lock(&self.tasks).iter().skip(spared).any(|task| !task.is_finished());
        while busy() && world.now() < until {
            world.sleep(CONNECT_PAUSE).await;
        }
        let ended = !busy();
        std::mem::take(&mut *lock(&self.tasks)).iter().for_each(Task::abort);
        ended
    }

    fn jump(&self, by: Duration) {
        self.common.judges.record.note(format!("the clock of {:?} jumps by {by:?}", self.process));
        self.clock.jump(by);
    }
}

fn watched(
    common: &Common,
    faults: &Arc<Faults>,
    name: &'static str,
    inner: Arc<dyn Allocator>,
    allowance: Option<usize>,
) -> Arc<dyn Allocator> {
    let registry: Arc<Registry> = common.watch.registry.clone();
    let (clock, allowance) = (common.world.env().clock, allowance.map(Allowance::new));
    Arc::new(Watched { inner, name, registry, faults: faults.clone(), clock, allowance })
}
