//! The state of a world: time, timers, hosts, and the ends of connections.
//!
//! One lock protects all of it. Due actions run under that lock and only there, so that a run depends only on the seed.

use crate::{
    connect::{Connecting, ListenerState},
    endpoint::Endpoint,
    executor::Executor,
    log::{Event, Logged},
};
use rpcrdma_env::{SeededRandom, Timestamp};
use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::{Arc, Mutex},
    task::Waker,
};

/// Something that the network does at a certain time.
pub(crate) type Action = Box<dyn FnOnce(&mut State) + Send>;

/// What a timer does.
pub(crate) enum Due {
    Wake(Waker),
    Act(Action),
}

/// The time, and a number that orders timers of the same instant.
pub(crate) type TimerKey = (u64, u64);

/// Everything that the parts of a world share.
pub(crate) struct Shared {
    pub(crate) seed: u64,
    pub(crate) state: Mutex<State>,
    pub(crate) executor: Arc<Executor>,
}

/// A simulated host.
#[derive(Default)]
pub(crate) struct Host {
    pub(crate) down: bool,
    pub(crate) listeners: BTreeMap<u16, ListenerState>,
    pub(crate) last_port: u16,
}

/// A message that a partition holds up.
pub(crate) struct Held {
    pub(crate) route: Route,
    pub(crate) action: Action,
}

/// The way of a message.
#[derive(Clone, Copy)]
pub(crate) struct Route {
    pub(crate) from: IpAddr,
    pub(crate) to: IpAddr,
    /// The end that sent it, if it belongs to a connection that exists.
    pub(crate) sender: Option<u64>,
}

/// The whole state.
pub(crate) struct State {
    pub(crate) seed: u64,
    pub(crate) now: u64,
    timers: BTreeMap<TimerKey, Due>,
    next_timer: u64,
    pub(crate) random: SeededRandom,
    pub(crate) log: Vec<Logged>,
    pub(crate) recording: bool,
    pub(crate) hosts: BTreeMap<IpAddr, Host>,
    /// Pairs of hosts between which nothing passes, the lower address first.
    pub(crate) partitions: BTreeSet<(IpAddr, IpAddr)>,
    pub(crate) held: Vec<Held>,
    /// Connection c has the ends 2c, which connected, and 2c + 1, which accepted. Ends stay here after they have
    /// closed.
    pub(crate) endpoints: BTreeMap<u64, Endpoint>,
    pub(crate) connecting: BTreeMap<u64, Connecting>,
    pub(crate) next_connection: u64,
}

impl State {
    pub(crate) fn new(seed: u64, random: SeededRandom) -> Self {
        Self {
            seed,
            now: 0,
            timers: BTreeMap::new(),
            next_timer: 0,
            random,
            log: Vec::new(),
            recording: true,
            hosts: BTreeMap::new(),
            partitions: BTreeSet::new(),
            held: Vec::new(),
            endpoints: BTreeMap::new(),
            connecting: BTreeMap::new(),
            next_connection: 1,
        }
    }

    pub(crate) fn schedule(&mut self, at: u64, due: Due) -> TimerKey {
        let key = (at, self.next_timer);
        self.next_timer += 1;
        self.timers.insert(key, due);
        key
    }

    /// Schedules `action` to run `delay` nanoseconds from now.
    pub(crate) fn after(&mut self, delay: u64, action: impl FnOnce(&mut State) + Send + 'static) {
        let at = self.now.saturating_add(delay);
        self.schedule(at, Due::Act(Box::new(action)));
    }

    pub(crate) fn cancel(&mut self, key: TimerKey) -> Option<Due> {
        self.timers.remove(&key)
    }

    /// Moves the time to the next timer and runs it. Returns false if there is no timer.
    pub(crate) fn advance(&mut self) -> bool {
        let Some((key, due)) = self.timers.pop_first() else { return false };
        self.now = self.now.max(key.0);
        match due {
            Due::Wake(waker) => waker.wake(),
            Due::Act(action) => action(self),
        }
        true
    }

    /// Takes out all timers, so that they can be dropped without the lock.
    pub(crate) fn take_timers(&mut self) -> BTreeMap<TimerKey, Due> {
        std::mem::take(&mut self.timers)
    }

    pub(crate) fn record(&mut self, event: Event) {
        if self.recording {
            self.log.push(Logged { at: Timestamp::from_nanos(self.now), event });
        }
    }

    pub(crate) fn host(&mut self, ip: IpAddr) -> &mut Host {
        self.hosts.entry(ip).or_default()
    }

    pub(crate) fn is_down(&self, ip: IpAddr) -> bool {
        self.hosts.get(&ip).is_some_and(|host| host.down)
    }

    pub(crate) fn is_partitioned(&self, a: IpAddr, b: IpAddr) -> bool {
        self.partitions.contains(&pair(a, b))
    }
}

/// Two hosts, the lower address first.
pub(crate) fn pair(a: IpAddr, b: IpAddr) -> (IpAddr, IpAddr) {
    (a.min(b), a.max(b))
}
