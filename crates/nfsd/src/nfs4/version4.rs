//! The program's settings for version 4.

use super::{
    callback::{Dial, Dialler, Health, Paths},
    delegations::Delegations,
    losses::Losses,
    observer::Observer,
    reservations::Reservations,
    service::{Pin, Shared},
    state::{
        Identity, State,
        grace::{JournalError, Recovery},
        limits::Limits,
    },
    tasks::Tasks,
};
use crate::{
    Queue, SECRET_BYTES, StateDirectory,
    claims::{Claims, Recalls},
};
use bytes::Bytes;
use rpcrdma_env::Env;
use siphasher::sip128::{Hasher128, SipHasher24};
use std::{
    hash::Hasher,
    ops::RangeInclusive,
    path::PathBuf,
    sync::{Arc, Weak},
    time::Duration,
};

/// Version 4 of a server: [`Nfsd::with_version_4`](crate::Nfsd::with_version_4).
pub struct Version4 {
    directory: PathBuf,
    server: Option<u64>,
    secret: [u8; SECRET_BYTES],
    queue: Arc<Queue>,
    minors: RangeInclusive<u32>,
    limits: Limits,
    host_locks: bool,
    delegations: bool,
    observer: Option<Arc<dyn Observer>>,
    dial: Option<Arc<dyn Dial>>,
}

/// Why version 4 cannot be served.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct Version4Error(#[from] JournalError);

impl Version4 {
    /// Minor versions 0, 1 and 2. The state directory records the clients that hold something; work that waits for its
    /// disk takes its turn in `queue`.
    pub fn new(state: &StateDirectory, queue: Arc<Queue>) -> Self {
        let directory = state.path().to_owned();
        Self {
            directory,
            server: None,
            secret: state.secret(),
            queue,
            minors: 0..=2,
            limits: Limits::default(),
            host_locks: true,
            delegations: true,
            observer: None,
            dial: None,
        }
    }

    /// The number of this server among those that share the state directory: each has its own journal, and clients see
    /// it as a server of its own. The number must be the same after a restart. The number of a
    /// [`DirectoryFs`](crate::DirectoryFs) will do, as no two servers with one state directory serve the same
    /// directory.
    #[must_use]
    pub fn with_server_id(mut self, server: u64) -> Self {
        self.server = Some(server);
        self
    }

    /// Serves only these minor versions.
    #[must_use]
    pub fn with_minors(mut self, minors: RangeInclusive<u32>) -> Self {
        self.minors = minors;
        self
    }

    /// How long a silent client keeps what it holds. Clients ask for this time, and renew their lease within it.
    #[must_use]
    pub fn with_lease(mut self, lease: Duration) -> Self {
        self.limits.lease = lease;
        self
    }

    /// How long after a restart clients may reclaim what they held, while others wait.
    #[must_use]
    pub fn with_grace(mut self, grace: Duration) -> Self {
        self.limits.grace = grace;
        self
    }

    /// Whether the host also gets the locks of clients, so that they exclude its programs that use `fcntl` or `lockf`.
    #[must_use]
    pub fn with_host_locks(mut self, host_locks: bool) -> Self {
        self.host_locks = host_locks;
        self
    }

    /// Whether the server delegates files to clients, which then need not ask for each use of them. By default it does
    /// not, whatever clients wish for.
    #[must_use]
    pub fn with_delegations(mut self, delegations: bool) -> Self {
        self.delegations = delegations;
        self
    }

    /// How long a client that wants a file waits for the return of a delegation.
    #[cfg(test)]
    pub(crate) fn with_recall_wait(mut self, wait: std::time::Duration) -> Self {
        self.limits.recall_wait = wait;
        self
    }

    /// How many of each kind of state one client, and all clients together, may hold.
    #[cfg(test)]
    pub(crate) fn with_held(mut self, of_client: usize, all: usize) -> Self {
        (self.limits.held_by_client, self.limits.held) = (of_client, all);
        self
    }

    /// The most bytes of all remembered replies together.
    #[must_use]
    pub fn with_cache_bytes(mut self, octets: usize) -> Self {
        self.limits.cache = octets;
        self
    }

    /// Sets the observer of each operation.
    #[must_use]
    pub fn with_observer(mut self, observer: Arc<dyn Observer>) -> Self {
        self.observer = Some(observer);
        self
    }

    /// Makes the connections over which the server calls clients of minor version 0. Without this it does not call
    /// them, and they get no delegations.
    #[must_use]
    pub fn with_dialler(mut self, dial: Arc<dyn Dial>) -> Self {
        self.dial = Some(dial);
        self
    }

    /// Opens the journal of clients, which begins a grace period if there is anything to reclaim. Waits for the disk.
    pub(crate) fn start(self, env: &Env, claims: Claims) -> Result<Arc<Shared>, Version4Error> {
        let now = env.clock.now();
        let recovery =
            Recovery::open((&self.directory, self.server), env.clock.unix_time().as_secs(), now, &self.limits)?;
        // Two servers on one host have different ids, and each keeps its id after a restart.
        let mut hasher = SipHasher24::new_with_key(&self.secret);
        hasher.write(b"NFSv4 server owner");
        if let Some(server) = self.server {
            // NFS4-JOURNAL-a
            hasher.write_u64(server);
        }
        let name = Bytes::copy_from_slice(&hasher.finish128().as_bytes());
        let identity = Identity { major: name.clone(), minor: 0, scope: name };
        let quiet = self.limits.lease;
        let state: State<Pin> = State::new(recovery, identity, env.random.clone(), self.limits);
        let shared = Arc::new(Shared {
            state,
            claims,
            reservations: Reservations::default(),
            host_locks: self.host_locks,
            clock: env.clock.clone(),
            queue: self.queue,
            minors: self.minors,
            observer: self.observer,
            dialler: Dialler::new(self.dial),
            tasks: Tasks::default(),
            paths: Paths::default(),
            health: Health::default(),
            delegates: self.delegations,
            delegations: Delegations::default(),
            losses: Losses::default(),
            copies: Arc::default(),
        });
        if shared.delegates {
            let recalls: Weak<dyn Recalls> = Arc::<Shared>::downgrade(&shared);
            shared.claims.connect_recalls(recalls, quiet);
        }
        Ok(shared)
    }
}
