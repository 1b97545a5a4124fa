//! The table of claims, which holds what clients of every protocol have on files; every version of NFS asks it.
//!
//! * [`Claims::share`] reserves a file for an open (`shares.rs`, `sharing.rs`); [`Claims::may`] says whether an open
//!   denies reading or writing.
//! * [`Claims::lock`], [`test`](Claims::test) and [`unlock`](Claims::unlock) are for byte ranges (`ranges.rs`,
//!   `locking.rs`), which the host keeps too (`host.rs`), and for which clients wait in a queue (`waiting.rs`).
//! * [`Claims::release_client`] ends all that a client holds (`clients.rs`).
//! * [`Claims::delegate`] lets a client use a file on its own; [`Claims::recall`] recalls that when another user is
//!   about to use the file (`delegations.rs`).
//!
//! The table knows owners, not stateids: the protocol keeps sequence numbers, leases and stable storage. All threads
//! share the table. No call waits for another client: a lock is held for a look-up, and the lock of a file's ranges for
//! one operation. A call fails only as its errors say.
//!
//! ```
//! use rpcrdma_env::{Clock, SeededRandom};
//! use rpcrdma_nfsd::{FileId, claims::*};
//! # struct At; impl Clock for At {
//! #     fn now(&self) -> rpcrdma_env::Timestamp { rpcrdma_env::Timestamp::ZERO }
//! #     fn sleep_until(&self, _: rpcrdma_env::Timestamp) -> rpcrdma_env::BoxFuture<'static, ()> { Box::pin(async {}) }
//! #     fn unix_time(&self) -> std::time::Duration { std::time::Duration::ZERO }
//! # }
//! # let clock = std::sync::Arc::new(At);
//! let claims = Claims::new(clock);
//! let file = FileKey { file_system: 1, file: FileId::new(b"7").unwrap() };
//! let owner = Holder::new(Client::V4(1), b"a process");
//! let share = claims.share(file, &owner, Access::READ, Deny::WRITE).unwrap();
//! assert!(claims.may(file, Access::WRITE, Asker::Anonymous).is_err());
//! drop(share);
//! assert!(claims.may(file, Access::WRITE, Asker::Anonymous).is_ok());
//! ```

mod clients;
mod delegations;
mod files;
mod holder;
mod host;
mod locking;
mod modes;
mod range;
mod ranges;
mod shares;
mod sharing;
mod tree;
mod waiting;

pub use clients::{
    Limits, MAX_RANGES, MAX_RANGES_OF_CLIENT, MAX_RANGES_OF_MIRRORED_FILE, MAX_SHARES, MAX_SHARES_OF_CLIENT,
    MAX_WAITING_LOCKS, MAX_WAITING_LOCKS_OF_FILE, TooMany,
};
pub use delegations::{Delegation, MAX_REMEMBERED_CONFLICTS, NotDelegated, Recalling, Recalls, Using};
pub use files::FileKey;
pub use holder::{Asker, Client, Holder};
pub use host::{HostDenied, HostLock, HostLocks};
pub use locking::{Denied, LockRefused, LockRequest, LockedBy};
pub use modes::{Access, Deny};
pub use range::{BadRange, Kind, Range};
pub use sharing::{Conflict, NoDowngrade, Share, ShareRefused};
pub use waiting::{WAITING_TIME, WOKEN_TIME, Wake};

use clients::{Clients, Sort};
use delegations::Delegations;
use files::Sharded;
use locking::FileLocks;
use rpcrdma_env::Clock;
use shares::Shares;
use std::{
    collections::HashSet,
    fmt,
    sync::{
        Arc, Mutex, OnceLock, Weak,
        atomic::{AtomicU64, AtomicUsize},
    },
};

/// The claims that a client has lost, because its lease is over and another client wanted them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expired {
    /// None: its lease still runs, or it is not yet known whether it may lose anything.
    Nothing,
    /// Those on the file in question.
    File,
    /// All.
    All,
}

/// Knows the courtesy clients: their leases are over, and they keep their claims because no other client has wanted
/// them.
pub trait Courtesy: Send + Sync {
    /// A claim of a client on a file conflicts with another client's request. Returns what the table may release: the
    /// client's calls do not use it any more, and stable storage has what it must have before another client gets the
    /// file.
    ///
    /// The table calls this without any of its locks, on the thread that has asked the table, also by [`Claims::may`].
    /// If that thread must not wait for a disk, the answer is [`Expired::Nothing`]: [`Conflict`] and [`Denied`] name
    /// the client; a thread that may wait expires it, [releases](Claims::release_on) its claims, and asks the table
    /// again.
    fn expire(&self, client: Client, file: FileKey) -> Expired;
}

/// The table. Cloning shares it.
#[derive(Clone)]
pub struct Claims {
    table: Arc<Table>,
}

struct Table {
    clock: Arc<dyn Clock>,
    courtesy: OnceLock<Weak<dyn Courtesy>>,
    shares: Sharded<FileKey, Shares>,
    /// How many files have an open that denies something.
    denying: AtomicUsize,
    /// The next share's number.
    generations: AtomicU64,
    locks: Sharded<FileKey, Arc<Mutex<FileLocks>>>,
    /// Files on which a client waits for a lock.
    waited: Mutex<HashSet<FileKey>>,
    delegations: Delegations,
    clients: Clients,
}

impl fmt::Debug for Claims {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Claims").field("limits", &self.table.clients.limits).finish_non_exhaustive()
    }
}

impl Claims {
    /// An empty table. The clock measures how long clients have waited.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self::with_limits(clock, Limits::default())
    }

    /// The same with other limits.
    pub fn with_limits(clock: Arc<dyn Clock>, limits: Limits) -> Self {
        let table = Table {
            clock,
            courtesy: OnceLock::new(),
            shares: Sharded::default(),
            denying: AtomicUsize::new(0),
            generations: AtomicU64::new(0),
            locks: Sharded::default(),
            waited: Mutex::default(),
            delegations: Delegations::default(),
            clients: Clients::new(limits),
        };
        Self { table: Arc::new(table) }
    }

    /// Connects the protocol that knows the courtesy clients. Later calls change nothing. Without this call a conflict
    /// ends no claims.
    pub fn connect(&self, courtesy: Weak<dyn Courtesy>) {
        let _ = self.table.courtesy.set(courtesy);
    }

    /// Ends everything that a client holds and waits for, in time proportional to it. Calls of the client that are
    /// still under way may add claims afterwards: code that expires a client first makes sure that there are none.
    pub fn release_client(&self, client: Client) {
        self.table.clients.files(client).into_iter().for_each(|file| self.release_on(file, client));
    }

    /// The same for one file.
    pub fn release_on(&self, file: FileKey, client: Client) {
        let clients = &self.table.clients;
        if clients.waits(client, file) {
            self.wait_no_more(file, client);
        }
        clients.holders(client, Sort::Range, file).iter().for_each(|holder| self.unlock_all(file, holder));
        clients.holders(client, Sort::Share, file).iter().for_each(|holder| self.end_share(file, holder));
        self.end_delegation(file, client, None);
    }

    /// How many shares and byte ranges a client has.
    pub fn held_by(&self, client: Client) -> (usize, usize) {
        self.table.clients.counts(client)
    }

    /// Tries, and tries again as long as all clients in the way lose their claims on the file. The client `own` loses
    /// none: it has just called.
    fn unless_expired<T>(
        &self,
        (file, own): (FileKey, Option<Client>),
        mut attempt: impl FnMut() -> T,
        in_the_way: impl Fn(&T) -> Vec<Client>,
    ) -> T {
        let mut asked = HashSet::new();
        loop {
            let outcome = attempt();
            let clients = in_the_way(&outcome);
            let courtesy = self.table.courtesy.get().and_then(Weak::upgrade);
            let Some(courtesy) = courtesy.filter(|_| !clients.is_empty()) else { return outcome };
            for client in clients {
                if own == Some(client) || !asked.insert(client) {
                    return outcome;
                }
                match courtesy.expire(client, file) {
                    // NFS4-COURTESY-a
                    Expired::Nothing => return outcome,
                    Expired::File => self.release_on(file, client),
                    Expired::All => self.release_client(client),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
