//! Each client's claims: for limits, and so that the end of a client takes time only for its own claims.

use super::{
    files::{FileKey, Sharded},
    holder::{Client, Holder},
};
use std::{
    collections::{HashMap, HashSet},
    sync::atomic::{AtomicUsize, Ordering},
};

/// Limits of what clients may claim. A range takes up to 1,800 bytes of memory, a share 1,300, if each is on another
/// file; many on one file take far less. So with the defaults one client can take 200 MiB of the server's memory, and
/// all clients together 800 MiB; a server with less memory sets lower limits.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Shares that a client may have.
    pub shares_of_client: usize,
    /// Shares of all clients.
    pub shares: usize,
    /// Byte ranges that a client may have.
    pub ranges_of_client: usize,
    /// Byte ranges of all clients.
    pub ranges: usize,
    /// Byte ranges of a file whose locks the host knows too. To find a range, the host goes through all ranges of the
    /// file.
    pub ranges_of_mirrored_file: usize,
    /// Locks that a client may wait for.
    pub waiting_of_client: usize,
    /// Waiting locks on one file.
    pub waiting_of_file: usize,
}

/// [`Limits::shares_of_client`], as Linux's clients have at most some thousands of files open.
pub const MAX_SHARES_OF_CLIENT: usize = 65_536;
/// [`Limits::shares`]: as many as four clients may have.
pub const MAX_SHARES: usize = 4 * MAX_SHARES_OF_CLIENT;
/// [`Limits::ranges_of_client`]: to unlock all of them at once takes 30 ms.
pub const MAX_RANGES_OF_CLIENT: usize = 65_536;
/// [`Limits::ranges`]: as many as four clients may have.
pub const MAX_RANGES: usize = 4 * MAX_RANGES_OF_CLIENT;
/// [`Limits::ranges_of_mirrored_file`]. One client may have three quarters of them. To unlock a range over this many
/// ranges of other owners takes up to 40 ms: one call of the host for each gap.
pub const MAX_RANGES_OF_MIRRORED_FILE: usize = 4_096;
/// [`Limits::waiting_of_client`].
pub const MAX_WAITING_LOCKS: usize = 64;
/// [`Limits::waiting_of_file`]: each unlock looks through all of them.
pub const MAX_WAITING_LOCKS_OF_FILE: usize = 1_024;

impl Default for Limits {
    fn default() -> Self {
        Self {
            shares_of_client: MAX_SHARES_OF_CLIENT,
            shares: MAX_SHARES,
            ranges_of_client: MAX_RANGES_OF_CLIENT,
            ranges: MAX_RANGES,
            ranges_of_mirrored_file: MAX_RANGES_OF_MIRRORED_FILE,
            waiting_of_client: MAX_WAITING_LOCKS,
            waiting_of_file: MAX_WAITING_LOCKS_OF_FILE,
        }
    }
}

impl Limits {
    /// The part of a limit of all clients that one client may use.
    pub(super) fn part_of_one(limit: usize) -> usize {
        limit - limit / 4
    }
}

/// The table is full for this client: it must release something first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("too many claims")]
pub struct TooMany;

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sort {
    Share,
    Range,
}

/// What one client holds.
#[derive(Default)]
pub(super) struct Held {
    shares: usize,
    ranges: usize,
    waiting: usize,
    /// The files on which it has shares.
    shared: HashMap<FileKey, HashSet<Holder>>,
    /// The files on which it has ranges.
    locked: HashMap<FileKey, HashSet<Holder>>,
    /// The files on which it waits, and for how many locks.
    waits: HashMap<FileKey, usize>,
    /// The files that are delegated to it.
    delegated: HashSet<FileKey>,
}

impl Held {
    fn count(&mut self, sort: Sort) -> &mut usize {
        match sort {
            Sort::Share => &mut self.shares,
            Sort::Range => &mut self.ranges,
        }
    }

    fn places(&mut self, sort: Sort) -> &mut HashMap<FileKey, HashSet<Holder>> {
        match sort {
            Sort::Share => &mut self.shared,
            Sort::Range => &mut self.locked,
        }
    }

    fn is_empty(&self) -> bool {
        self.shares + self.ranges + self.waiting == 0
            && self.shared.is_empty()
            && self.locked.is_empty()
            && self.waits.is_empty()
            && self.delegated.is_empty()
    }
}

pub(super) struct Clients {
    pub(super) limits: Limits,
    held: Sharded<Client, Held>,
    shares: AtomicUsize,
    ranges: AtomicUsize,
}

impl Clients {
    pub(super) fn new(limits: Limits) -> Self {
        Self { limits, held: Sharded::default(), shares: AtomicUsize::new(0), ranges: AtomicUsize::new(0) }
    }

    fn with<R>(&self, client: Client, change: impl FnOnce(&mut Held) -> R) -> R {
        self.held.with(&client, |held| {
            let of_client = held.entry(client).or_default();
            let result = change(of_client);
            if of_client.is_empty() {
                held.remove(&client);
            }
            result
        })
    }

    fn total(&self, sort: Sort) -> (&AtomicUsize, usize) {
        match sort {
            Sort::Share => (&self.shares, self.limits.shares),
            Sort::Range => (&self.ranges, self.limits.ranges),
        }
    }

    /// Counts `more` for a client, if the limits allow that.
    pub(super) fn take(&self, client: Client, sort: Sort, more: usize) -> Result<(), TooMany> {
        if more == 0 {
            return Ok(());
        }
        let of_client = match sort {
            Sort::Share => self.limits.shares_of_client,
            Sort::Range => self.limits.ranges_of_client,
        };
        let (total, limit) = self.total(sort);
        self.with(client, |held| {
            let count = held.count(sort);
            if count.saturating_add(more) > of_client {
                return Err(TooMany);
            }
            let within = |all: usize| all.checked_add(more).filter(|all| *all <= limit);
            total.fetch_update(Ordering::Relaxed, Ordering::Relaxed, within).map_err(|_| TooMany)?;
            *count += more;
            Ok(())
        })
    }

    /// Counts `more` for a client, whatever the limits are.
    pub(super) fn count(&self, client: Client, sort: Sort, more: usize) {
        if more > 0 {
            self.with(client, |held| *held.count(sort) += more);
            self.total(sort).0.fetch_add(more, Ordering::Relaxed);
        }
    }

    /// Counts `fewer` for a client.
    pub(super) fn give(&self, client: Client, sort: Sort, fewer: usize) {
        if fewer > 0 {
            self.with(client, |held| *held.count(sort) -= fewer.min(*held.count(sort)));
            self.total(sort).0.fetch_sub(fewer, Ordering::Relaxed);
        }
    }

    /// Records whether an owner has claims of this sort on a file.
    pub(super) fn note(&self, sort: Sort, file: FileKey, holder: &Holder, has: bool) {
        self.with(holder.client(), |held| {
            let places = held.places(sort);
            if has {
                places.entry(file).or_default().insert(holder.clone());
            } else if let Some(holders) = places.get_mut(&file) {
                holders.remove(holder);
                if holders.is_empty() {
                    places.remove(&file);
                }
            }
        });
    }

    /// Records whether a file is delegated to a client. The protocol, which numbers delegations, limits how many there
    /// are.
    pub(super) fn note_delegated(&self, client: Client, file: FileKey, has: bool) {
        self.with(client, |held| if has { held.delegated.insert(file) } else { held.delegated.remove(&file) });
    }

    /// Counts a lock that a client waits for, if it may wait for one more.
    pub(super) fn wait(&self, client: Client, file: FileKey) -> bool {
        self.with(client, |held| {
            if held.waiting >= self.limits.waiting_of_client {
                return false;
            }
            held.waiting += 1;
            *held.waits.entry(file).or_default() += 1;
            true
        })
    }

    /// Counts one waiting lock of a client less.
    pub(super) fn wait_no_more(&self, client: Client, file: FileKey) {
        self.with(client, |held| {
            held.waiting = held.waiting.saturating_sub(1);
            if let Some(count) = held.waits.get_mut(&file) {
                *count = count.saturating_sub(1);
                if *count == 0 {
                    held.waits.remove(&file);
                }
            }
        });
    }

    /// The files on which a client has claims or waits.
    pub(super) fn files(&self, client: Client) -> HashSet<FileKey> {
        self.with(client, |held| {
            let of_shares = held.shared.keys().chain(held.locked.keys());
            of_shares.chain(held.waits.keys()).chain(&held.delegated).copied().collect()
        })
    }

    /// A client's owners that have claims of this sort on a file.
    pub(super) fn holders(&self, client: Client, sort: Sort, file: FileKey) -> Vec<Holder> {
        self.with(client, |held| held.places(sort).get(&file).into_iter().flatten().cloned().collect())
    }

    /// Whether a client waits for a lock on a file.
    pub(super) fn waits(&self, client: Client, file: FileKey) -> bool {
        self.with(client, |held| held.waits.contains_key(&file))
    }

    /// How many shares and ranges a client has.
    pub(super) fn counts(&self, client: Client) -> (usize, usize) {
        self.with(client, |held| (held.shares, held.ranges))
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.held.len() == 0 && self.shares.load(Ordering::Relaxed) + self.ranges.load(Ordering::Relaxed) == 0
    }
}
