//! Exports, and the server that serves them.
//!
//! ```no_run
//! # use rpcrdma_nfsd::{DirectoryFs, Export, Nfsd, Queue, StateDirectory};
//! # use std::{path::Path, sync::Arc};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let env: rpcrdma_env::Env = todo_env();
//! let state = StateDirectory::open("/var/lib/rpcrdma", &*env.random)?;
//! let directory = DirectoryFs::open(Path::new("/srv"), &state, Queue::in_place(), &env)?;
//! let export = Export::new("/", Arc::new(directory)).with_allow(vec!["192.0.2.0/24".parse()?]);
//! let server = Nfsd::new(vec![export], state.secret(), &env)?;
//! let (nfs, mount, upkeep) = (server.nfs(), server.mount(), server.upkeep());
//! # Ok(()) }
//! # fn todo_env() -> rpcrdma_env::Env { unreachable!() }
//! ```

use crate::{
    Cidr, FileSystem, Identities, MonitorCounts, MonitorError, Origin, Outside, Queue, SECRET_BYTES, Securities,
    StateDirectory,
    borders::Borders,
    claims::Claims,
    groups::{Managed, ManagedGroups},
    handle::Seal,
    mount::{Mount, MountTable},
    nfs2::{Nfs2, Version2, Version2Error},
    nfs3::Nfs3,
    nfs4::{Counts, Nfs4, PseudoFs, Shared, Version4, Version4Error},
    nfsacl::NfsAcl,
    nlm::{self, Lockd, NlmCounts, NlmLimits},
    nsm::{Monitor, NsmService, Setup},
    opened::PSEUDO,
    owners::OwnerNames,
    stranger::Stranger,
    trouble::Troubles,
};
use bytes::Bytes;
use rpcrdma_env::{BoxFuture, Clock, Env};
use rpcrdma_oncrpc::{Handler, Router, ServerFlavour, Service, gss::AcceptGss};
use siphasher::sip::SipHasher24;
use std::{
    hash::Hasher,
    net::IpAddr,
    sync::{Arc, OnceLock, Weak},
    task::Poll,
    time::Duration,
};

/// A file system, and how clients may use it.
#[derive(Clone)]
pub struct Export {
    pub(crate) path: Bytes,
    pub(crate) file_system: Arc<dyn FileSystem>,
    pub(crate) read_only: bool,
    pub(crate) identities: Identities,
    pub(crate) allow: Vec<Cidr>,
    pub(crate) securities: Securities,
    pub(crate) id: u32,
}

impl Export {
    /// Exports a file system under the path that clients mount. All clients may read and write; the superuser is
    /// squashed.
    pub fn new(path: impl AsRef<[u8]>, file_system: Arc<dyn FileSystem>) -> Self {
        let path = Bytes::copy_from_slice(path.as_ref());
        // A fixed key: the number only has to be the same after a restart and to differ between exports.
        let mut hasher = SipHasher24::new_with_key(&[0; 16]);
        hasher.write(&path);
        let id = hasher.finish() as u32;
        Self {
            path,
            file_system,
            read_only: false,
            identities: Identities::default(),
            allow: Vec::new(),
            securities: Securities::default(),
            id,
        }
    }

    /// Whether clients may change nothing through the export.
    pub fn with_read_only(mut self, read_only: bool) -> Self {
        self.read_only = read_only;
        self
    }

    /// Which users callers act as.
    pub fn with_identities(mut self, identities: Identities) -> Self {
        self.identities = identities;
        self
    }

    /// Only clients in these ranges may use it; without any, all may.
    pub fn with_allow(mut self, allow: Vec<Cidr>) -> Self {
        self.allow = allow;
        self
    }

    /// Which flavours of credentials it takes, best first; AUTH_SYS by default. A server understands Kerberos if it
    /// [has it](Nfsd::with_flavour).
    pub fn with_securities(mut self, securities: Securities) -> Self {
        self.securities = securities;
        self
    }

    pub(crate) fn allows(&self, client: IpAddr) -> bool {
        self.allow.is_empty() || self.allow.iter().any(|range| range.contains(client))
    }
}

/// Why a list of exports is not valid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// A path is not absolute.
    #[error("the export path \"{}\" does not begin with a slash", .path.escape_ascii())]
    NotAbsolute {
        /// The path.
        path: Bytes,
    },
    /// Two exports have the same path, or paths that are too alike.
    #[error("the export paths \"{}\" and \"{}\" cannot be told apart", .first.escape_ascii(), .second.escape_ascii())]
    Ambiguous {
        /// One path.
        first: Bytes,
        /// The other.
        second: Bytes,
    },
}

/// An NFS server with its MOUNT service.
pub struct Nfsd {
    nfs: Arc<dyn Handler>,
    mount: Arc<dyn Handler>,
    /// The programs for locks of version 3, if the server has such locks.
    locks: Option<LockPrograms>,
    file_systems: Vec<Arc<dyn FileSystem>>,
    server: Arc<Server>,
    clock: Arc<dyn Clock>,
    /// A flavour in addition to AUTH_NONE and AUTH_SYS.
    flavour: Option<Arc<dyn ServerFlavour>>,
    /// The groups of callers by AUTH_SYS, if not the ones that they name.
    groups: Option<Arc<ManagedGroups>>,
}

/// The lock manager and the status monitor, each with the handler of its calls.
struct LockPrograms {
    nlm: Arc<dyn Handler>,
    nsm: Arc<dyn Handler>,
    lockd: Arc<Lockd>,
    monitor: Arc<Monitor>,
}

/// How locks of version 3 are served: [`Nfsd::with_locks`].
pub struct Locks<'a> {
    /// Where the list of hosts with locks is kept.
    pub state: &'a StateDirectory,
    /// The number of this server among those that share the state directory, as in
    /// [`Version4::with_server_id`](crate::Version4::with_server_id).
    pub server: u64,
    /// The name of this host, which is sent to hosts with locks after a restart.
    pub name: Bytes,
    /// Where jobs that wait for the disk take their turn.
    pub queue: Arc<Queue>,
    /// Makes the server's calls to its clients.
    pub outside: Arc<dyn Outside>,
    /// How long after a restart hosts may reclaim locks, while new locks wait.
    pub grace: Duration,
    /// Whether locks of clients exclude programs of the host, as in
    /// [`Version4::with_host_locks`](crate::Version4::with_host_locks).
    pub host_locks: bool,
}

/// How often version 4 looks for leases that are over and for the end of the grace period.
const SWEEP_INTERVAL: Duration = Duration::from_secs(2);

impl Nfsd {
    /// Serves `exports`, with handles under `secret`. The write verifier is a new one each time.
    ///
    /// # Errors
    /// If a path is not absolute, or two exports have the same id.
    pub fn new(exports: Vec<Export>, secret: [u8; SECRET_BYTES], env: &Env) -> Result<Self, ConfigError> {
        for (at, export) in exports.iter().enumerate() {
            if export.path.first() != Some(&b'/') {
                return Err(ConfigError::NotAbsolute { path: export.path.clone() });
            }
            if export.id == PSEUDO {
                return Err(ConfigError::Ambiguous { first: export.path.clone(), second: Bytes::from_static(b"/") });
            }
            if let Some(other) = exports[..at].iter().find(|other| other.id == export.id) {
                return Err(ConfigError::Ambiguous { first: other.path.clone(), second: export.path.clone() });
            }
        }
        let file_systems = exports.iter().map(|export| export.file_system.clone()).collect();
        let pseudo = Arc::new(PseudoFs::new(&exports));
        let server = Arc::new(Server {
            borders: Borders::new(&exports),
            is_choosy: exports.iter().any(|export| !export.securities.is_usual()),
            exports,
            claims: Claims::new(env.clock.clone()),
            version_2: OnceLock::new(),
            version_4: OnceLock::new(),
            lockd: OnceLock::new(),
            names: OnceLock::new(),
            contexts: OnceLock::new(),
            pseudo,
            seal: Seal::new(secret),
            boot: env.random.next_u64(),
            mounts: MountTable::default(),
            troubles: Troubles::new(env.clock.clone()),
        });
        let nfs = server.version_3(Router::new(env), None);
        let mount = server.mount(Router::new(env), None);
        let (nfs, mount, clock) = (Arc::new(nfs), Arc::new(mount), env.clock.clone());
        Ok(Self { nfs, mount, locks: None, file_systems, server, clock, flavour: None, groups: None })
    }

    /// Accepts a flavour of credentials in addition to AUTH_NONE and AUTH_SYS, for NFS and MOUNT: RPCSEC_GSS. [Each
    /// export](Export::with_securities) says whether it accepts the flavour. Call this before the methods that add
    /// programs.
    pub fn with_flavour(mut self, flavour: Arc<dyn ServerFlavour>, env: &Env) -> Self {
        self.flavour = Some(flavour);
        self.renew(true, env);
        self
    }

    /// Understands RPCSEC_GSS, and calls version 4 clients back in those of their contexts that they name. Otherwise as
    /// [`with_flavour`](Self::with_flavour).
    pub fn with_contexts(self, contexts: Arc<AcceptGss>, env: &Env) -> Self {
        let _ = self.server.contexts.set(contexts.clone());
        self.with_flavour(contexts, env)
    }

    /// Gives callers with AUTH_SYS the groups that this host knows, not those that they name. Call this before the
    /// methods that add programs.
    pub fn with_groups(mut self, groups: Arc<ManagedGroups>, env: &Env) -> Self {
        self.groups = Some(groups);
        self.renew(true, env);
        self
    }

    /// Version 4 sends owners and groups as names to Kerberos principals, and takes names from all clients. Without
    /// this method, it sends numbers.
    pub fn with_names(self, names: Arc<OwnerNames>) -> Self {
        let _ = self.server.names.set(names);
        self
    }

    /// A router for the flavours that this server accepts.
    fn router(&self, env: &Env) -> Router {
        match &self.flavour {
            Some(flavour) => Router::new(env).with_flavour(flavour.clone()),
            None => Router::new(env),
        }
    }

    /// Serves version 2, too, with versions 1 and 2 of MOUNT; version 3 only if `version_3`. Opens the table of handles
    /// that do not fit into 32 bytes, and waits for the disk. `server` is the number of this server among those that
    /// share the state directory, as in [`Version4::with_server_id`](crate::Version4::with_server_id). Call this before
    /// the method that adds version 4.
    ///
    /// # Errors
    /// If the table cannot be used.
    pub fn with_version_2(
        mut self,
        (state, server, queue): (&StateDirectory, u64, Arc<Queue>),
        version_3: bool,
        env: &Env,
    ) -> Result<Self, Version2Error> {
        let version_2 = Version2::open(state, server, (state.secret(), queue, self.clock.clone()))?;
        let _ = self.server.version_2.set(Arc::new(version_2));
        self.renew(version_3, env);
        Ok(self)
    }

    /// Makes the services of the versions before 4, and of MOUNT, anew from the present settings.
    fn renew(&mut self, version_3: bool, env: &Env) {
        self.nfs = Arc::new(self.legacy(version_3, env));
        self.mount = Arc::new(self.server.mount(self.router(env), self.groups.as_ref()));
    }

    /// A router with the versions before 4.
    fn legacy(&self, version_3: bool, env: &Env) -> Router {
        let mut nfs = self.router(env);
        if version_3 {
            nfs = self.server.version_3(nfs, self.groups.as_ref());
        }
        match self.server.version_2.get() {
            Some(version_2) => {
                let (server, version_2) = (self.server.clone(), version_2.clone());
                nfs.with_service(grouped(Nfs2 { server, version_2 }, self.groups.as_ref()))
            }
            None => nfs,
        }
    }

    /// Serves version 4, too; version 3 only if `version_3`. Opens the journal of clients, and waits for the disk.
    ///
    /// # Errors
    /// If the journal cannot be used.
    pub fn with_version_4(mut self, version_4: Version4, version_3: bool, env: &Env) -> Result<Self, Version4Error> {
        let shared = version_4.start(env, self.server.claims.clone())?;
        let nfs = self.legacy(version_3, env);
        let nfs = nfs
            .with_service(grouped(Nfs4 { server: self.server.clone(), shared: shared.clone() }, self.groups.as_ref()));
        self.nfs = Arc::new(nfs);
        let _ = self.server.version_4.set(shared);
        self.join_graces();
        Ok(self)
    }

    /// Serves locks for version 3: NLM and NSM. Opens the list of hosts with locks, and waits for the disk.
    /// [`upkeep`](Self::upkeep) notifies the hosts with locks of the restart.
    ///
    /// # Errors
    /// If the list cannot be used.
    pub fn with_locks(self, locks: Locks<'_>, env: &Env) -> Result<Self, MonitorError> {
        self.with_limited_locks(locks, NlmLimits::default(), env)
    }

    /// The same with other limits.
    ///
    /// # Errors
    /// If the list cannot be used.
    pub fn with_limited_locks(mut self, locks: Locks<'_>, limits: NlmLimits, env: &Env) -> Result<Self, MonitorError> {
        let Locks { state, server, name, queue, outside, grace, host_locks } = locks;
        let setup = Setup {
            directory: state.path(),
            server: Some(server),
            name,
            queue: queue.clone(),
            outside: outside.clone(),
        };
        let monitor = Monitor::open(setup, env)?;
        let statd = Router::new(env).with_service(Arc::new(NsmService(monitor.clone())));
        let grace = monitor.had_hosts().then_some(grace);
        let (server, of_lockd) = (self.server.clone(), monitor.clone());
        let setup = nlm::Setup { server, monitor: of_lockd, outside, queue, grace, host_locks, limits };
        let lockd = Lockd::new(setup, env);
        let _ = self.server.lockd.set(Arc::downgrade(&lockd));
        self.locks =
            Some(LockPrograms { nlm: lockd.handler(self.groups.as_ref(), env), nsm: Arc::new(statd), lockd, monitor });
        self.join_graces();
        Ok(self)
    }

    /// Makes version 4 wait while hosts reclaim locks of version 3, if both are served. NLM itself waits for version 4.
    fn join_graces(&self) {
        if let (Some(shared), Some(locks)) = (self.server.version_4.get(), &self.locks) {
            let lockd = Arc::downgrade(&locks.lockd);
            let is_grace = move || lockd.upgrade().is_some_and(|lockd| lockd.grace.is_now());
            shared.state.recovery.wait_beside(Box::new(is_grace));
        }
    }

    /// The sizes and counters of the lock manager, if version 3 has locks.
    pub fn lock_counts(&self) -> Option<NlmCounts> {
        self.locks.as_ref().map(|locks| locks.lockd.counts())
    }

    #[cfg(test)]
    pub(crate) fn lock_manager(&self) -> &Arc<Lockd> {
        &self.locks.as_ref().unwrap().lockd
    }

    /// The handler of calls to NLM, if version 3 has locks.
    pub fn lockd(&self) -> Option<Arc<dyn Handler>> {
        self.locks.as_ref().map(|locks| locks.nlm.clone())
    }

    /// The handler of calls to NSM, if version 3 has locks.
    pub fn statd(&self) -> Option<Arc<dyn Handler>> {
        self.locks.as_ref().map(|locks| locks.nsm.clone())
    }

    /// Counters of the status monitor, if version 3 has locks.
    pub fn monitor_counts(&self) -> Option<MonitorCounts> {
        self.locks.as_ref().map(|locks| locks.monitor.counts())
    }

    /// What clients of all versions hold on files: for protocols of the program's own.
    pub fn claims(&self) -> &Claims {
        &self.server.claims
    }

    /// A connection has ended: it belongs to no session of version 4 any more. `connection` is the number of its
    /// [`Connection`](rpcrdma_oncrpc::Connection), which must be unique in the process.
    pub fn connection_ended(&self, connection: u64) {
        if let Some(shared) = self.server.version_4.get() {
            shared.connection_ended(connection);
        }
    }

    #[cfg(test)]
    pub(crate) fn shared_of_version_4(&self) -> &Arc<Shared> {
        self.server.version_4.get().unwrap()
    }

    /// How much version 4 keeps for clients, if it is served.
    pub fn version_4_counts(&self) -> Option<Counts> {
        self.server.version_4.get().map(|shared| {
            let (recalls, revocations) = shared.delegations.totals();
            let (copies, copied) = shared.copies.now();
            let [expired_opens, expired_locks, expired_delegations] = shared.losses.totals();
            Counts {
                recalls,
                revocations,
                expired_opens,
                expired_locks,
                expired_delegations,
                copies,
                copied,
                ..shared.state.counts()
            }
        })
    }

    /// The handler of calls to NFS, for every transport.
    pub fn nfs(&self) -> Arc<dyn Handler> {
        self.nfs.clone()
    }

    /// The periodic work of all exports. The program polls it for as long as it serves.
    pub fn upkeep(&self) -> BoxFuture<'static, ()> {
        let mut parts: Vec<_> = self.file_systems.iter().map(|file_system| file_system.upkeep()).collect();
        if let Some(LockPrograms { lockd, monitor, .. }) = &self.locks {
            parts.extend(monitor.drive());
            parts.extend(Lockd::drive(lockd).into_iter().flatten());
        }
        if let Some(shared) = self.server.version_4.get() {
            if let Some(tasks) = shared.tasks.driver() {
                parts.push(Box::pin(tasks));
            }
            let (shared, clock) = (Arc::downgrade(shared), self.clock.clone());
            parts.push(Box::pin(async move {
                loop {
                    clock.sleep_until(clock.now() + SWEEP_INTERVAL).await;
                    let Some(shared) = shared.upgrade() else { return };
                    let of_sweep = shared.clone();
                    let swept = shared.on_worker(Origin::LOCAL, move |_| {
                        of_sweep.sweep();
                        Ok(())
                    });
                    let _ = swept.await;
                }
            }));
        }
        Box::pin(std::future::poll_fn(move |cx| {
            parts.retain_mut(|part| part.as_mut().poll(cx).is_pending());
            if parts.is_empty() { Poll::Ready(()) } else { Poll::Pending }
        }))
    }

    /// Writes to disk now what [`upkeep`](Self::upkeep) would have written a little later. A program that stops waits
    /// for it after it has answered all calls: otherwise the next start would wait for clients that have left, and
    /// delay all other clients.
    pub fn settle(&self) -> BoxFuture<'static, ()> {
        let Some(shared) = self.server.version_4.get().cloned() else { return Box::pin(std::future::ready(())) };
        Box::pin(async move {
            let settled = shared.on_worker(Origin::LOCAL, |shared| {
                shared.state.settle(shared.now());
                Ok(())
            });
            let _ = settled.await;
        })
    }

    /// The handler of calls to MOUNT.
    pub fn mount(&self) -> Arc<dyn Handler> {
        self.mount.clone()
    }

    /// The handler for a client that may use no export, for NFS and for MOUNT: it executes no call, and only refuses. A
    /// program that knows such clients by their addresses serves them with it; their calls need no memory beyond the
    /// largest call that the program wants to answer.
    pub fn stranger() -> Arc<dyn Handler> {
        Arc::new(Stranger)
    }
}

/// A service whose callers have the groups in their credentials, or the groups that this host knows.
pub(crate) fn grouped(service: impl Service + 'static, groups: Option<&Arc<ManagedGroups>>) -> Arc<dyn Service> {
    match groups {
        Some(groups) => Arc::new(Managed::new(service, groups.clone())),
        None => Arc::new(service),
    }
}

impl Server {
    /// Adds version 3 and NFSACL, on the same connections (ULB-4.2-a): clients do not ask rpcbind for NFSACL.
    fn version_3(self: &Arc<Self>, nfs: Router, groups: Option<&Arc<ManagedGroups>>) -> Router {
        nfs.with_service(grouped(Nfs3 { server: self.clone() }, groups))
            .with_service(grouped(NfsAcl { server: self.clone() }, groups))
    }

    /// Adds MOUNT.
    fn mount(self: &Arc<Self>, mount: Router, groups: Option<&Arc<ManagedGroups>>) -> Router {
        let mount = mount
            .with_service(grouped(Mount::version_3(self.clone()), groups))
            .with_service(grouped(Mount::version_1(self.clone()), groups));
        match self.version_2.get() {
            Some(_) => mount.with_service(grouped(Mount::version_2(self.clone()), groups)),
            None => mount,
        }
    }
}

/// What the services share.
pub(crate) struct Server {
    pub(crate) exports: Vec<Export>,
    /// Whether the flavours of an export differ from AUTH_SYS alone.
    pub(crate) is_choosy: bool,
    /// The places where exports lie inside other exports.
    pub(crate) borders: Borders,
    pub(crate) seal: Seal,
    /// Distinguishes this start of the server from other starts.
    pub(crate) boot: u64,
    pub(crate) mounts: MountTable,
    pub(crate) troubles: Troubles,
    /// What clients of all versions hold on files.
    pub(crate) claims: Claims,
    /// The state of version 2, if the server serves it.
    pub(crate) version_2: OnceLock<Arc<Version2>>,
    /// Version 4, if the server serves it.
    pub(crate) version_4: OnceLock<Arc<Shared>>,
    /// The lock manager for version 3, if there is one.
    pub(crate) lockd: OnceLock<Weak<Lockd>>,
    /// The contexts of clients, in which version 4 may call them back, if the server has any.
    pub(crate) contexts: OnceLock<Arc<AcceptGss>>,
    /// The names of users and groups for version 4, if there are any.
    pub(crate) names: OnceLock<Arc<OwnerNames>>,
    /// The tree above the exports, for version 4.
    pub(crate) pseudo: Arc<PseudoFs>,
}

impl Server {
    /// The lock manager of version 3, if there is one.
    pub(crate) fn lockd(&self) -> Option<Arc<Lockd>> {
        self.lockd.get().and_then(Weak::upgrade)
    }
}
