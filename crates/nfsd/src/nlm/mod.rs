//! The lock manager (NLM versions 1, 3 and 4): locks and share reservations for clients of NFS version 3.
//!
//! This module knows hosts and their owners ([`hosts`]). The table of claims, which version 4 uses too, has what they
//! hold, and passes it on to the server's own host. A host that waits for a lock ([`waiting`]) gets it by a call to the
//! address from which it has asked ([`grants`]). No host renews a lock: the status monitor ([`nsm`](crate::nsm))
//! reports which hosts have started again, and notifies hosts when this server has.
//!
//! A host is its address and the name that it gives itself. The server knows nothing else of a caller: any caller from
//! a host's address can act for the host, as with NFS version 3. Everything that a host can make the server keep or do
//! has a limit ([`limits`]).

mod grace;
mod grants;
mod hosts;
mod limits;
mod locks;
mod room;
mod service;
mod shares;
mod waiting;

pub use limits::{
    MAX_NLM_CALLS, MAX_NLM_CALLS_TO_CLIENT, MAX_NLM_HOSTS, MAX_NLM_HOSTS_OF_CLIENT, MAX_NLM_LOCKS_OF_HOST,
    MAX_NLM_OWNERS, MAX_NLM_OWNERS_OF_HOST, MAX_NLM_WAITING, MAX_NLM_WAITING_OF_HOST, NlmLimits,
};

use crate::{
    OpenFile, Origin, Outside, Queue,
    claims::{Access, Claims, FileKey, HostLocks},
    groups::ManagedGroups,
    nfs4::Tasks,
    nsm::{Holders, Monitor},
    opened::Opened,
    server::Server,
    server::grouped,
};
use grace::Grace;
use hosts::{Host, Hosts};
use limits::SWEEP_INTERVAL;
use room::{Calls, Room};
use rpcrdma_env::{BoxFuture, Clock, Env, Random};
use rpcrdma_nfs::nlm::{CallerName, Form, Procedure, Status, VERSIONS};
use rpcrdma_oncrpc::{CallContext, Handler, Router};
use std::{
    net::IpAddr,
    sync::{
        Arc, Weak,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

/// How much the lock manager keeps now, and what it has done since the server started, as numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct NlmCounts {
    /// Hosts that have locked something lately.
    pub hosts: usize,
    /// Byte ranges that hosts have locked.
    pub locks: usize,
    /// Share reservations of hosts.
    pub shares: usize,
    /// Owners of locks and reservations, each counted once for each file.
    pub owners: usize,
    /// Locks that hosts wait for.
    pub waiting: usize,
    /// Calls to hosts that are under way.
    pub calls: usize,
    /// Locks that hosts have waited for and then taken.
    pub granted: u64,
    /// Locks that became free, but the host did not want them any more.
    pub refused: u64,
    /// Locks that the server gave back, because the host did not answer.
    pub unanswered: u64,
}

/// The parts of a lock manager.
pub(crate) struct Setup {
    pub(crate) server: Arc<Server>,
    pub(crate) monitor: Arc<Monitor>,
    pub(crate) outside: Arc<dyn Outside>,
    pub(crate) queue: Arc<Queue>,
    /// For how long hosts may reclaim their locks, if any host had some.
    pub(crate) grace: Option<Duration>,
    /// Whether hosts' locks exclude programs of the server's host.
    pub(crate) host_locks: bool,
    pub(crate) limits: NlmLimits,
}

/// The lock manager of a server.
pub(crate) struct Lockd {
    server: Arc<Server>,
    monitor: Arc<Monitor>,
    outside: Arc<dyn Outside>,
    queue: Arc<Queue>,
    clock: Arc<dyn Clock>,
    random: Arc<dyn Random>,
    limits: NlmLimits,
    host_locks: bool,
    pub(crate) grace: Grace,
    hosts: Hosts,
    owners: Arc<Room>,
    waiting: Arc<Room>,
    calls: Arc<Calls>,
    answers: grants::Answers,
    tasks: Tasks,
    totals: grants::Totals,
    sweeps: AtomicU64,
}

/// A call, and the form of the answer that it wants.
pub(crate) struct Call {
    context: CallContext,
    version: u32,
    form: Form,
    procedure: Procedure,
}

impl Call {
    /// The address from which it comes.
    fn client(&self) -> IpAddr {
        self.context.connection.peer.ip().to_canonical()
    }

    /// The address to which it has come.
    fn local(&self) -> IpAddr {
        self.context.connection.local.ip().to_canonical()
    }

    fn origin(&self) -> Origin {
        Origin::of(&self.context)
    }
}

impl Lockd {
    pub(crate) fn new(setup: Setup, env: &Env) -> Arc<Self> {
        let Setup { server, monitor, outside, queue, grace, host_locks, limits } = setup;
        let lockd = Arc::new(Self {
            hosts: Hosts::new(&limits),
            owners: Room::new(limits.owners),
            waiting: Room::new(limits.waiting),
            calls: Calls::new(limits.calls, limits.calls_to_client),
            grace: Grace::new(env.clock.clone(), grace),
            server,
            monitor,
            outside,
            queue,
            clock: env.clock.clone(),
            random: env.random.clone(),
            limits,
            host_locks,
            answers: grants::Answers::default(),
            tasks: Tasks::default(),
            totals: grants::Totals::default(),
            sweeps: AtomicU64::new(0),
        });
        let holders: Weak<dyn Holders> = Arc::<Self>::downgrade(&lockd);
        lockd.monitor.connect(holders);
        lockd
    }

    /// The handler of calls to all versions.
    pub(crate) fn handler(self: &Arc<Self>, groups: Option<&Arc<ManagedGroups>>, env: &Env) -> Arc<dyn Handler> {
        let add = |router: Router, version| {
            router.with_service(grouped(service::NlmService::new(self.clone(), version), groups))
        };
        Arc::new(VERSIONS.into_iter().fold(Router::new(env), add))
    }

    fn claims(&self) -> &Claims {
        &self.server.claims
    }

    /// The host of a call; enters it if it is new.
    fn enter(&self, call: &Call, name: &CallerName) -> Option<Arc<Host>> {
        let (host, forgotten) = self.hosts.enter(call.client(), name.as_slice(), self.clock.now());
        self.forget(forgotten);
        host
    }

    fn forget(&self, hosts: Vec<Arc<Host>>) {
        for host in hosts.into_iter().filter(|host| host.is_watched()) {
            self.monitor.forget(host.address(), host.name());
        }
    }

    /// Makes sure that the server notifies a host when it starts again.
    ///
    /// # Errors
    /// If the host cannot be put on the list: it would lose its locks without notice.
    async fn watched(&self, host: &Host, call: &Call) -> Result<(), Status> {
        // Even if the host is already on the list: each address by which it knows this server has its own entry,
        // because a notice from another address means nothing to it.
        let watched = self.monitor.monitor(host.address(), call.local(), host.name()).await;
        watched.map(|()| host.set_watched()).map_err(|error| {
            tracing::debug!(client = %host.address(), %error, "a host gets no locks");
            Status::DeniedNoLocks
        })
    }

    /// The locks of the server's own host on a file. May sleep.
    fn host_locks(&self, file: &Opened, open: &Arc<dyn OpenFile>) -> Option<Arc<dyn HostLocks>> {
        self.host_locks.then(|| file.file_system.host_locks(open)).flatten()
    }

    /// Does work that may wait on one of the program's workers, in a client's turn.
    ///
    /// # Errors
    /// If the program drops the work, because it ends.
    async fn on_worker<T: Send + 'static>(
        self: &Arc<Self>,
        origin: Origin,
        job: impl FnOnce(&Arc<Self>) -> T + Send + 'static,
    ) -> Result<T, Status> {
        let lockd = self.clone();
        self.queue.ask(origin, move || job(&lockd)).await.map_err(|_| Status::DeniedNoLocks)
    }

    /// Frees all that the host of this name at this address holds and waits for.
    async fn free_all(self: &Arc<Self>, address: IpAddr, name: &[u8]) {
        if let Some(host) = self.hosts.take(address, name) {
            self.forget(vec![host.clone()]);
            let _ = self
                .on_worker(Origin::at((address, 0).into()), move |lockd| locks::release(lockd.claims(), &host))
                .await;
        }
    }

    /// Whether only hosts at the caller's address hold the shares that conflict with a use of a file by version 3.
    pub(crate) fn are_own_shares(&self, origin: Origin, file: FileKey, access: Access) -> bool {
        let in_the_way = self.claims().in_the_way_of_use(file, access);
        !in_the_way.is_empty() && self.hosts.are_at(&in_the_way, origin)
    }

    /// The present numbers.
    pub(crate) fn counts(&self) -> NlmCounts {
        let all = self.hosts.all();
        let held = |sum: (usize, usize), host: &Arc<Host>| {
            let (shares, ranges) = self.claims().held_by(host.client());
            (sum.0 + shares, sum.1 + ranges)
        };
        let (shares, locks) = all.iter().fold((0, 0), held);
        let total = |total: &AtomicU64| total.load(Ordering::Relaxed);
        NlmCounts {
            hosts: all.len(),
            locks,
            shares,
            owners: self.owners.used(),
            waiting: self.waiting.used(),
            calls: self.calls.count(),
            granted: total(&self.totals.granted),
            refused: total(&self.totals.refused),
            unanswered: total(&self.totals.unanswered),
        }
    }

    /// Work that goes on after the replies to calls, and periodic work. Only the first caller gets it.
    pub(crate) fn drive(self: &Arc<Self>) -> Option<[BoxFuture<'static, ()>; 2]> {
        let tasks = self.tasks.driver()?;
        let (lockd, clock) = (Arc::downgrade(self), self.clock.clone());
        let sweeps = async move {
            loop {
                clock.sleep_until(clock.now() + SWEEP_INTERVAL).await;
                let Some(lockd) = lockd.upgrade() else { return };
                let _ = lockd.on_worker(Origin::LOCAL, Self::sweep).await;
            }
        };
        Some([Box::pin(tasks), Box::pin(sweeps)])
    }

    /// Asks again for locks that hosts wait for, and forgets hosts that hold nothing.
    pub(crate) fn sweep(self: &Arc<Self>) {
        self.claims().sweep();
        self.ask_again(self.sweeps.fetch_add(1, Ordering::Relaxed));
        self.forget(self.hosts.forget_idle(self.clock.now()));
    }
}

impl Holders for Lockd {
    fn rebooted(&self, address: IpAddr, name: &[u8]) {
        let Some(host) = self.hosts.take(address, name) else { return };
        self.forget(vec![host.clone()]);
        // A worker frees what the host held, because that closes files. Meanwhile the host may lock anew, as another
        // host.
        let (claims, origin) = (self.claims().clone(), Origin::at((address, 0).into()));
        drop(self.queue.ask(origin, move || locks::release(&claims, &host)));
    }

    fn holds(&self, address: IpAddr, name: &[u8]) -> bool {
        self.hosts.find(address, name).is_some_and(|host| host.holds())
    }
}

#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
