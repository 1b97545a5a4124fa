//! The world: its seed, its clock, its tasks and its hosts.

use crate::{
    clock::SimClock,
    config::{SimConfig, nanos},
    executor::{Executor, MAIN, Task, lock},
    fabric::SimFabric,
    log::Logged,
    state::{Shared, State},
};
use rpcrdma_env::{Env, SeededRandom, Timestamp};
use std::{
    future::Future,
    net::IpAddr,
    panic::Location,
    pin::pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

/// After so many polls without progress of time a world counts as stuck: far more than thousands of tasks need in one
/// instant, and reached within seconds.
const MAX_POLLS_PER_INSTANT: u64 = 2_000_000;

// The number that each stream of random numbers adds to the seed. Streams are separate, so that one more draw in a
// program does not change the network.
const ORDER_STREAM: u64 = 0x6F72_6465_7200_0001;
const NETWORK_STREAM: u64 = 0x6E65_7477_6F72_6B02;
const PROGRAM_STREAM: u64 = 0x7072_6F67_7261_6D03;

/// A simulated world. Clones are the same world; dropping the value that [`World::new`] returned ends its tasks.
pub struct World {
    shared: Arc<Shared>,
    env: Env,
    owner: bool,
}

/// No task can run, and nothing is due that could change that.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("seed {seed}: at {} ns nothing can run and nothing is due. Waiting: {}", at.as_nanos(), waiting.join("; "))]
pub struct Deadlock {
    /// The world's seed.
    pub seed: u64,
    /// When this was found.
    pub at: Timestamp,
    /// The tasks and open connections that wait, in words.
    pub waiting: Vec<String>,
}

impl World {
    /// The world of `seed`, at time zero.
    pub fn new(seed: u64) -> Self {
        let stream = |salt: u64| SeededRandom::new(seed.wrapping_mul(0x2545_F491_4F6C_DD1D) ^ salt);
        let shared = Arc::new(Shared {
            seed,
            state: State::new(seed, stream(NETWORK_STREAM)).into(),
            executor: Arc::new(Executor::new(stream(ORDER_STREAM))),
        });
        let clock = Arc::new(SimClock { shared: shared.clone() });
        Self { shared, env: Env { clock, random: Arc::new(stream(PROGRAM_STREAM)) }, owner: true }
    }

    /// The seed.
    pub fn seed(&self) -> u64 {
        self.shared.seed
    }

    /// The virtual clock, and random numbers from the seed.
    pub fn env(&self) -> Env {
        self.env.clone()
    }

    /// The present.
    pub fn now(&self) -> Timestamp {
        self.env.clock.now()
    }

    /// Waits for virtual time to pass.
    pub fn sleep(&self, duration: Duration) -> impl Future<Output = ()> + Send + 'static {
        self.env.clock.sleep_until(self.now() + duration)
    }

    /// A host that can do everything that [`SimConfig::default`] says. The same address always gives the same host.
    pub fn fabric(&self, ip: IpAddr) -> SimFabric {
        self.fabric_with(ip, SimConfig::default())
    }

    /// A host with another configuration.
    pub fn fabric_with(&self, ip: IpAddr, config: SimConfig) -> SimFabric {
        SimFabric::new(self.shared.clone(), ip, config)
    }

    /// Starts a task. It runs while a caller is in [`block_on`](World::block_on).
    #[track_caller]
    pub fn spawn<T: Send + 'static>(&self, future: impl Future<Output = T> + Send + 'static) -> Task<T> {
        self.shared.executor.spawn(Location::caller(), future)
    }

    /// Runs the world until `future` is done.
    ///
    /// Call it outside a tokio runtime, from an ordinary `fn main` or test. Within one, `tokio::select!` and tokio's
    /// channels count what they do, and after some time pretend that they must wait: the world takes that for a
    /// standstill.
    ///
    /// # Panics
    /// If nothing can run any more, or if tasks keep waking each other while time stands still. The seed is printed.
    pub fn block_on<F: Future>(&self, future: F) -> F::Output {
        match self.try_block_on(future) {
            Ok(output) => output,
            Err(deadlock) => panic!("{deadlock}"),
        }
    }

    /// Runs the world until `future` is done or nothing can run.
    ///
    /// # Errors
    /// [`Deadlock`], with what waits.
    ///
    /// # Panics
    /// If tasks keep waking each other while time stands still. The message contains the seed.
    pub fn try_block_on<F: Future>(&self, future: F) -> Result<F::Output, Deadlock> {
        let _report = SeedReport(self.shared.seed);
        let executor = &self.shared.executor;
        let mut future = pin!(future);
        let waker = executor.waker(MAIN);
        executor.make_ready(MAIN);
        let mut last_instant = self.now();
        let mut polls = 0;
        loop {
            while let Some(id) = executor.draw() {
                polls += 1;
                assert!(polls <= MAX_POLLS_PER_INSTANT, "tasks keep waking each other: {:?}", executor.waiting());
                if id != MAIN {
                    executor.poll(id);
                } else if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
                    return Ok(output);
                }
            }
            if !lock(&self.shared.state).advance() {
                return Err(self.deadlock());
            }
            if self.now() > last_instant {
                last_instant = self.now();
                polls = 0;
            }
        }
    }

    /// Runs the world for some virtual time.
    pub fn run_for(&self, duration: Duration) {
        self.block_on(self.sleep(duration));
    }

    /// What has happened so far.
    pub fn log(&self) -> Vec<Logged> {
        lock(&self.shared.state).log.clone()
    }

    /// Turns the log on or off. Long runs that are not compared do not need it.
    pub fn record(&self, on: bool) {
        lock(&self.shared.state).recording = on;
    }

    /// Cuts all connections between two hosts at once. Each end learns of it a little later; messages under way are
    /// lost. New connections can be made.
    pub fn cut(&self, a: IpAddr, b: IpAddr) {
        lock(&self.shared.state).cut(a, b);
    }

    /// Lets no message pass between two hosts, in either direction, until [`heal`](World::heal). An end whose messages
    /// have not passed for 30 s gives up.
    pub fn partition(&self, a: IpAddr, b: IpAddr) {
        lock(&self.shared.state).partition(a, b);
    }

    /// Lets messages pass again, first those that were held up.
    pub fn heal(&self, a: IpAddr, b: IpAddr) {
        lock(&self.shared.state).heal(a, b);
    }

    /// Takes a host down: its connections and listeners end, and its peers get no message about it. The caller must end
    /// its programs ([`Task::abort`]).
    pub fn crash(&self, ip: IpAddr) {
        lock(&self.shared.state).crash(ip);
    }

    /// Brings a host back, without listeners and connections. Peers that have sent to it meanwhile are reset.
    pub fn restart(&self, ip: IpAddr) {
        lock(&self.shared.state).restart(ip);
    }

    /// Open ends of connections in the whole world: zero when everything has been closed or dropped.
    pub fn open_ends(&self) -> usize {
        lock(&self.shared.state).endpoints.values().filter(|end| !end.is_over()).count()
    }

    fn deadlock(&self) -> Deadlock {
        let mut waiting = vec!["the future of block_on".to_owned()];
        waiting.extend(self.shared.executor.waiting());
        let state = lock(&self.shared.state);
        waiting.extend(state.endpoints.iter().filter(|(_, end)| !end.is_over()).map(|(id, end)| end.describe(*id)));
        waiting.extend(state.connecting.iter().map(|(id, c)| format!("connection {id} to {} being set up", c.peer)));
        waiting.extend(state.partitions.iter().map(|(a, b)| format!("partition between {a} and {b}")));
        Deadlock { seed: self.shared.seed, at: Timestamp::from_nanos(state.now), waiting }
    }
}

impl Clone for World {
    fn clone(&self) -> Self {
        Self { shared: self.shared.clone(), env: self.env.clone(), owner: false }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if self.owner {
            // Tasks and timers hold the world: without this, they would never be dropped.
            self.shared.executor.clear();
            let timers = lock(&self.shared.state).take_timers();
            drop(timers);
        }
    }
}

impl std::fmt::Debug for World {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("World").field("seed", &self.seed()).field("now", &self.now()).finish_non_exhaustive()
    }
}

/// Prints the seed if a task panics: the seed is needed to repeat the run.
struct SeedReport(u64);

impl Drop for SeedReport {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the simulated world had seed {}", self.0);
        }
    }
}

/// After this time an end gives up if its messages do not pass.
pub(crate) fn stall_nanos() -> u64 {
    nanos(Duration::from_secs(crate::faults::STALL_SECONDS))
}
