//! The judge of holders: knows the claims of each holder, as the server has granted them, and what was written into
//! each file.
//!
//! A holder reports a claim after the server has granted it, and reports the end of a claim before it tells the server.
//! So every claim in the ledger is real. If two claims exclude each other, the server has granted both, unless it had
//! the right to take one away: if it recalled the claim and the holder did nothing for a lease, or if it heard nothing
//! from the holder for a lease ([`Ledger::may_be_lost`]). The ledger asks only for half a lease, because it knows the
//! times only as clients see them.

use rpcrdma_nfs::v4::Handle;
use std::{
    collections::{BTreeMap, HashMap},
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

/// A client's claim on a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Claim {
    /// The client has the file open for reading, or for writing as well.
    Reads,
    Writes,
    ReadLock,
    WriteLock,
    ReadDelegation,
    WriteDelegation,
}

impl Claim {
    /// Whether two clients may not have both.
    fn excludes(self, other: Self) -> bool {
        let one_way = |a: Self, b: Self| match a {
            Self::WriteDelegation => true,
            Self::ReadDelegation => matches!(b, Self::Writes | Self::WriteLock),
            Self::WriteLock => matches!(b, Self::ReadLock | Self::WriteLock),
            Self::Reads | Self::Writes | Self::ReadLock => false,
        };
        one_way(self, other) || one_way(other, self)
    }

    pub(super) fn is_delegation(self) -> bool {
        matches!(self, Self::ReadDelegation | Self::WriteDelegation)
    }
}

/// The owner of a claim: the client's number, and the number of the server that has granted it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Who {
    pub(super) client: usize,
    pub(super) server: u64,
}

#[derive(Clone, Debug)]
struct Holding {
    who: Who,
    claim: Claim,
    /// When the server recalled the claim, or could not reach its holder.
    doubtful: Option<Instant>,
}

#[derive(Default)]
struct OfFile {
    holdings: Vec<Holding>,
    value: u64,
    /// Values that may have been written as well, by calls whose result is unknown.
    perhaps: Vec<u64>,
}

#[derive(Default)]
struct Inner {
    files: HashMap<Handle, OfFile>,
    /// When the server last heard from each client.
    heard: BTreeMap<usize, Instant>,
}

/// The ledger of a soak.
pub(super) struct Ledger {
    inner: Mutex<Inner>,
    lease: Duration,
}

impl Ledger {
    pub(super) fn new(lease: Duration) -> Self {
        Self { inner: Mutex::default(), lease }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The server has answered a call that the client sent at this time.
    pub(super) fn heard(&self, client: usize, at: Instant) {
        self.lock().heard.insert(client, at);
    }

    /// A client has got a claim.
    ///
    /// # Errors
    /// If another client has a claim that excludes it.
    pub(super) fn got(&self, file: &Handle, who: Who, claim: Claim, now: Instant) -> Result<(), String> {
        let mut inner = self.lock();
        let Inner { files, heard } = &mut *inner;
        let of_file = files.entry(file.clone()).or_default();
        let is_in_the_way = |holding: &&Holding| {
            holding.who.client != who.client && holding.who.server == who.server && holding.claim.excludes(claim)
        };
        let mut others = of_file.holdings.iter().filter(is_in_the_way);
        let other = others.find(|holding| !is_overdue(holding, heard, now, self.lease / 2)).cloned();
        of_file.holdings.push(Holding { who, claim, doubtful: None });
        match other {
            Some(Holding { who: Who { client, .. }, claim: had, doubtful }) => Err(format!(
                "client {} was given {claim:?} of {file:?}, of which client {client} has {had:?}; that was wanted back {:?} ago",
                who.client,
                doubtful.map(|since| now.saturating_duration_since(since))
            )),
            None => Ok(()),
        }
    }

    /// A client is about to give up a claim.
    pub(super) fn gives_up(&self, file: &Handle, client: usize, claim: Claim) {
        if let Some(of_file) = self.lock().files.get_mut(file) {
            let is_it = |holding: &Holding| holding.who.client == client && holding.claim == claim;
            if let Some(at) = of_file.holdings.iter().position(is_it) {
                of_file.holdings.swap_remove(at);
            }
        }
    }

    /// A client is about to forget all its claims.
    pub(super) fn forgets(&self, client: usize) {
        for of_file in self.lock().files.values_mut() {
            of_file.holdings.retain(|holding| holding.who.client != client);
        }
    }

    /// The server has recalled a client's delegation of a file.
    pub(super) fn recalled(&self, file: &Handle, client: usize, at: Instant) {
        let mut inner = self.lock();
        let of_file = inner.files.get_mut(file).into_iter().flat_map(|of_file| &mut of_file.holdings);
        for holding in of_file.filter(|holding| holding.who.client == client && holding.claim.is_delegation()) {
            holding.doubtful.get_or_insert(at);
        }
    }

    /// The server could not call a client since this time: it may have tried to recall.
    pub(super) fn unreachable(&self, client: usize, since: Instant) {
        let mut inner = self.lock();
        let all = inner.files.values_mut().flat_map(|of_file| &mut of_file.holdings);
        for holding in all.filter(|holding| holding.who.client == client && holding.claim.is_delegation()) {
            holding.doubtful.get_or_insert(since);
        }
    }

    /// Whether the server may have taken this claim from a client.
    pub(super) fn may_be_lost(&self, file: &Handle, client: usize, claim: Claim, now: Instant) -> bool {
        let inner = self.lock();
        let mut of_file = inner.files.get(file).into_iter().flat_map(|of_file| &of_file.holdings);
        let holding = of_file.find(|holding| holding.who.client == client && holding.claim == claim);
        holding.is_none_or(|holding| is_overdue(holding, &inner.heard, now, self.lease / 2))
    }

    /// A client whose claim excludes writers has read a file.
    ///
    /// # Errors
    /// If the value is not what was written.
    pub(super) fn read(&self, file: &Handle, value: u64) -> Result<(), String> {
        let mut inner = self.lock();
        let of_file = inner.files.entry(file.clone()).or_default();
        let is_right = value == of_file.value || of_file.perhaps.contains(&value);
        let expected = format!("{} or one of {:?}", of_file.value, of_file.perhaps);
        (of_file.value, of_file.perhaps) = (value, Vec::new());
        if is_right { Ok(()) } else { Err(format!("{file:?} has {value} instead of {expected}")) }
    }

    /// A client whose claim excludes all others is about to write.
    pub(super) fn writes(&self, file: &Handle, value: u64) {
        self.lock().files.entry(file.clone()).or_default().perhaps.push(value);
    }

    /// The server has said whether the value is written.
    pub(super) fn wrote(&self, file: &Handle, value: u64, is_written: bool) {
        let mut inner = self.lock();
        let of_file = inner.files.entry(file.clone()).or_default();
        of_file.perhaps.retain(|perhaps| *perhaps != value);
        if is_written {
            (of_file.value, of_file.perhaps) = (value, Vec::new());
        }
    }
}

/// Whether a server may have taken a claim from a client that has neglected its duty for so long.
fn is_overdue(holding: &Holding, heard: &BTreeMap<usize, Instant>, now: Instant, least: Duration) -> bool {
    let is_long_ago = |since: Instant| now.saturating_duration_since(since) >= least;
    holding.doubtful.is_some_and(is_long_ago) || heard.get(&holding.who.client).copied().is_some_and(is_long_ago)
}

#[cfg(test)]
mod tests {
    use super::*;
    use Claim::{ReadDelegation, ReadLock, Reads, WriteDelegation, WriteLock, Writes};

    const LEASE: Duration = Duration::from_secs(6);

    fn file() -> Handle {
        Handle::new(b"f").unwrap()
    }

    fn who(client: usize) -> Who {
        Who { client, server: 0 }
    }

    /// Whether a second client may get `second` while the first has `first`.
    fn are_together(first: Claim, second: Claim) -> bool {
        let (ledger, now) = (Ledger::new(LEASE), Instant::now());
        ledger.got(&file(), who(0), first, now).unwrap();
        ledger.got(&file(), who(1), second, now).is_ok()
    }

    #[test]
    fn what_excludes_what() {
        let all = [Reads, Writes, ReadLock, WriteLock, ReadDelegation, WriteDelegation];
        let beside = |claim| all.into_iter().filter(|other| are_together(claim, *other)).collect::<Vec<_>>();
        assert_eq!(beside(Reads), [Reads, Writes, ReadLock, WriteLock, ReadDelegation]);
        assert_eq!(beside(Writes), [Reads, Writes, ReadLock, WriteLock]);
        assert_eq!(beside(ReadLock), [Reads, Writes, ReadLock, ReadDelegation]);
        assert_eq!(beside(WriteLock), [Reads, Writes]);
        assert_eq!(beside(ReadDelegation), [Reads, ReadLock, ReadDelegation]);
        assert_eq!(beside(WriteDelegation), []);
    }

    #[test]
    fn what_was_given_up_is_free_and_what_was_not_is_not() {
        let (ledger, now) = (Ledger::new(LEASE), Instant::now());
        ledger.got(&file(), who(0), WriteDelegation, now).unwrap();
        ledger.gives_up(&file(), 0, WriteDelegation);
        ledger.got(&file(), who(1), WriteDelegation, now).unwrap();
        ledger.forgets(1);
        ledger.got(&file(), who(2), WriteDelegation, now).unwrap();
        // A restarted server knows nothing of the first claim.
        ledger.got(&file(), Who { client: 3, server: 1 }, WriteDelegation, now).unwrap();
        ledger.got(&file(), who(4), Reads, now).unwrap_err();
    }

    #[test]
    fn only_a_lease_takes_something_away() {
        let (ledger, begin) = (Ledger::new(LEASE), Instant::now());
        let early = begin + LEASE / 2 - Duration::from_millis(1);
        ledger.got(&file(), who(0), WriteDelegation, begin).unwrap();
        ledger.heard(0, begin + LEASE);
        ledger.got(&file(), who(1), Reads, begin + LEASE).unwrap_err();
        ledger.recalled(&file(), 0, begin);
        ledger.recalled(&file(), 0, begin + LEASE);
        assert!(!ledger.may_be_lost(&file(), 0, WriteDelegation, early));
        ledger.got(&file(), who(2), Reads, early).unwrap_err();
        ledger.got(&file(), who(3), Reads, begin + LEASE / 2).unwrap();
        // Only silence of its holder loses a lock.
        let (ledger, silent) = (Ledger::new(LEASE), begin + LEASE / 2);
        ledger.got(&file(), who(0), WriteLock, begin).unwrap();
        ledger.unreachable(0, begin);
        ledger.heard(0, begin);
        ledger.got(&file(), who(1), WriteLock, early).unwrap_err();
        assert!(ledger.may_be_lost(&file(), 0, WriteLock, silent));
        ledger.heard(0, silent);
        assert!(!ledger.may_be_lost(&file(), 0, WriteLock, silent));
    }

    #[test]
    fn what_is_read_was_written() {
        let ledger = Ledger::new(LEASE);
        ledger.read(&file(), 0).unwrap();
        ledger.writes(&file(), 1);
        ledger.wrote(&file(), 1, true);
        ledger.read(&file(), 1).unwrap();
        ledger.writes(&file(), 2);
        ledger.read(&file(), 2).unwrap();
        ledger.writes(&file(), 3);
        ledger.wrote(&file(), 3, false);
        ledger.read(&file(), 3).unwrap_err();
        ledger.read(&file(), 2).unwrap_err();
    }
}
