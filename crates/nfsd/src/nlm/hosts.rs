//! Hosts that lock. The server knows each by its address and by the name that it gives itself, and gives it a number
//! for the table of claims.
//!
//! The table of hosts is locked only for a look-up. What a host holds has its own lock, for which only workers wait,
//! because calls of the server's file system are made under it. So no host delays another. A host that has held nothing
//! for a while is forgotten. Nothing fails: if there is no room for a host, it is not entered.

use super::{
    limits::{IDLE_TIME, NlmLimits},
    room::Place,
    waiting::{Standing, Waiter},
};
use crate::{
    OpenFile, Origin,
    claims::{Client, FileKey, Holder, Kind, Range, Share, Using},
};
use rpcrdma_env::Timestamp;
use rpcrdma_nfs::nlm::OwnerHandle;
use rpcrdma_oncrpc::ClientNetwork;
use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, TryLockError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

/// The number before that of the first host. No client id of version 4 is as high, so a client never takes a host's
/// lock for its own.
const FIRST_NUMBER: u64 = 1 << 63;
/// The number for a host that the server does not know because it holds nothing.
pub(super) const UNKNOWN: Client = Client::Nlm(FIRST_NUMBER);

/// A host.
pub(super) struct Host {
    number: u64,
    address: IpAddr,
    name: Box<[u8]>,
    /// Whether it is on the list of hosts to notify of a restart.
    is_watched: AtomicBool,
    /// When it last called, in nanoseconds.
    used: AtomicU64,
    held: Mutex<Held>,
}

/// What a host holds and waits for.
#[derive(Default)]
pub(super) struct Held {
    /// For each owner, what keeps files with locks open.
    pub(super) files: HashMap<(FileKey, Holder), Kept>,
    /// The share reservations of its owners.
    pub(super) shares: HashMap<(FileKey, Holder), Reserved>,
    /// The locks that it waits for, in the order in which it began to wait.
    pub(super) waiting: Vec<Waiting>,
    /// It has started again, and counts as another host now: its earlier calls get nothing any more.
    pub(super) is_over: bool,
}

/// What an owner's locks on a file need.
pub(super) struct Kept {
    /// Opens for reading and for writing, as far as there are locks of that kind.
    opens: [Option<Arc<dyn OpenFile>>; 2],
    /// Keeps the file from being delegated to others.
    using: [Option<Using>; 2],
    _place: Place,
}

impl Kept {
    pub(super) fn new(place: Place) -> Self {
        Self { opens: [None, None], using: [None, None], _place: place }
    }

    /// The owner has locked in this kind, through this open.
    pub(super) fn keep(&mut self, kind: Kind, open: Arc<dyn OpenFile>, using: Option<Using>) {
        let at = usize::from(kind == Kind::Write);
        self.opens[at] = Some(open);
        // The new one first, then the old one goes: at no moment is there none.
        let before = std::mem::replace(&mut self.using[at], using);
        drop(before);
    }
}

/// A share reservation, and what keeps its file open.
pub(super) struct Reserved {
    pub(super) share: Share,
    pub(super) _open: Option<Arc<dyn OpenFile>>,
    pub(super) _place: Place,
}

/// A lock that a host waits for.
pub(super) struct Waiting {
    pub(super) waiter: Arc<Waiter>,
    pub(super) standing: Standing,
}

impl Held {
    /// How many owners hold something, counted once for each file.
    pub(super) fn owners(&self) -> usize {
        self.files.len() + self.shares.len()
    }

    fn is_empty(&self) -> bool {
        self.owners() == 0 && self.waiting.is_empty()
    }

    /// Where in the list an owner waits for a range.
    pub(super) fn waits_at(&self, file: FileKey, holder: &Holder, range: Range) -> Option<usize> {
        self.waiting.iter().position(|waiting| waiting.waiter.is(file, holder, range))
    }

    /// Where in the list this waits.
    pub(super) fn place_of(&self, waiter: &Arc<Waiter>) -> Option<usize> {
        self.waiting.iter().position(|waiting| Arc::ptr_eq(&waiting.waiter, waiter))
    }

    /// Takes a waiting lock off the list: code that is about to grant it, or to call the host, sees that.
    pub(super) fn end_waiting(&mut self, at: usize) -> Waiting {
        let ended = self.waiting.remove(at);
        ended.waiter.end();
        ended
    }
}

/// An owner of locks: the process and its name. The owner's bytes contain both.
pub(super) fn lock_owner(client: Client, process: i32, owner: &OwnerHandle) -> Holder {
    // NLM-6.1.4-g
    Holder::new(client, &[&process.to_be_bytes(), owner.as_slice()].concat())
}

/// The process and the name of an owner of locks.
pub(super) fn owner_of(holder: &Holder) -> (i32, OwnerHandle) {
    match holder.owner().split_first_chunk::<4>() {
        Some((process, name)) => (i32::from_be_bytes(*process), OwnerHandle::from(name)),
        None => (0, OwnerHandle::default()),
    }
}

impl Host {
    /// Its number in the table of claims.
    pub(super) fn client(&self) -> Client {
        Client::Nlm(self.number)
    }

    pub(super) fn address(&self) -> IpAddr {
        self.address
    }

    pub(super) fn name(&self) -> &[u8] {
        &self.name
    }

    pub(super) fn is_watched(&self) -> bool {
        self.is_watched.load(Ordering::Acquire)
    }

    pub(super) fn set_watched(&self) {
        self.is_watched.store(true, Ordering::Release);
    }

    /// What it holds. Only workers may call this, because they may wait.
    pub(super) fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The same if no other thread uses it at this moment.
    pub(super) fn held_now(&self) -> Option<MutexGuard<'_, Held>> {
        match self.held.try_lock() {
            Ok(held) => Some(held),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Whether it holds or waits for anything.
    pub(super) fn holds(&self) -> bool {
        // If another thread is using it at this moment, it does.
        self.held_now().is_none_or(|held| !held.is_empty())
    }

    fn is(&self, address: IpAddr, name: &[u8]) -> bool {
        self.address == address && *self.name == *name
    }

    fn is_idle(&self, now: Timestamp) -> bool {
        let used = Timestamp::from_nanos(self.used.load(Ordering::Relaxed));
        now.since(used) >= IDLE_TIME && self.held_now().is_some_and(|held| held.is_empty())
    }
}

#[derive(Default)]
struct Table {
    /// The hosts of each client network.
    clients: HashMap<ClientNetwork, Vec<Arc<Host>>>,
    count: usize,
    numbered: u64,
}

/// All hosts.
pub(super) struct Hosts {
    table: Mutex<Table>,
    most: usize,
    of_client: usize,
}

impl Hosts {
    pub(super) fn new(limits: &NlmLimits) -> Self {
        Self { table: Mutex::default(), most: limits.hosts, of_client: limits.hosts_of_client }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The host of this name at this address, if it is known.
    pub(super) fn find(&self, address: IpAddr, name: &[u8]) -> Option<Arc<Host>> {
        let table = self.table();
        let hosts = table.clients.get(&ClientNetwork::of(address))?;
        hosts.iter().find(|host| host.is(address, name)).cloned()
    }

    /// Forgets the host of this name at this address, because it has started again: its new locks count as another
    /// host's, and are not freed with the old ones.
    pub(super) fn take(&self, address: IpAddr, name: &[u8]) -> Option<Arc<Host>> {
        let client = ClientNetwork::of(address);
        let mut table = self.table();
        let hosts = table.clients.get_mut(&client)?;
        let at = hosts.iter().position(|host| host.is(address, name))?;
        let host = hosts.swap_remove(at);
        if hosts.is_empty() {
            table.clients.remove(&client);
        }
        table.count -= 1;
        Some(host)
    }

    /// The host of this name at this address; enters it if it is new and there is room. Hosts that hold nothing may
    /// have to make room: these are forgotten, and returned.
    pub(super) fn enter(&self, address: IpAddr, name: &[u8], now: Timestamp) -> (Option<Arc<Host>>, Vec<Arc<Host>>) {
        let client = ClientNetwork::of(address);
        let mut table = self.table();
        let known = table.clients.get(&client).and_then(|hosts| hosts.iter().find(|host| host.is(address, name)));
        if let Some(host) = known {
            host.used.store(now.as_nanos(), Ordering::Relaxed);
            return (Some(host.clone()), Vec::new());
        }
        let mut forgotten = Vec::new();
        if table.clients.get(&client).is_some_and(|hosts| hosts.len() >= self.of_client) {
            forgotten.extend(table.forget_one(Some(client)));
            if forgotten.is_empty() {
                return (None, forgotten);
            }
        }
        if table.count >= self.most {
            match table.forget_one(None) {
                Some(host) => forgotten.push(host),
                None => return (None, forgotten),
            }
        }
        table.numbered += 1;
        let host = Arc::new(Host {
            number: FIRST_NUMBER + table.numbered,
            address,
            name: name.into(),
            is_watched: AtomicBool::new(false),
            used: AtomicU64::new(now.as_nanos()),
            held: Mutex::default(),
        });
        table.count += 1;
        table.clients.entry(client).or_default().push(host.clone());
        (Some(host), forgotten)
    }

    /// Whether all of these are hosts at the address that a call comes from.
    pub(super) fn are_at(&self, clients: &[Client], origin: Origin) -> bool {
        let address = origin.connection.ip().to_canonical();
        let table = self.table();
        let Some(hosts) = table.clients.get(&ClientNetwork::of(address)) else { return false };
        let is_here = |client: &Client| hosts.iter().any(|host| host.address == address && host.client() == *client);
        clients.iter().all(is_here)
    }

    /// Forgets the hosts that have held nothing for a while.
    pub(super) fn forget_idle(&self, now: Timestamp) -> Vec<Arc<Host>> {
        self.table().forget(|host| host.is_idle(now), usize::MAX, None)
    }

    /// All hosts.
    pub(super) fn all(&self) -> Vec<Arc<Host>> {
        self.table().clients.values().flatten().cloned().collect()
    }

    /// How many there are.
    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        self.table().count
    }
}

impl Table {
    /// Forgets a host that holds nothing at this moment.
    fn forget_one(&mut self, of: Option<ClientNetwork>) -> Option<Arc<Host>> {
        self.forget(|host| host.held_now().is_some_and(|held| held.is_empty()), 1, of).pop()
    }

    /// Forgets at most `most` hosts that no code uses.
    fn forget(&mut self, may: impl Fn(&Host) -> bool, most: usize, of: Option<ClientNetwork>) -> Vec<Arc<Host>> {
        let mut forgotten = Vec::new();
        self.clients.retain(|client, hosts| {
            if of.is_none_or(|of| of == *client) {
                hosts.retain(|host| {
                    // Another reference means that a call is about to use the host: references are only given out under
                    // the table's lock.
                    let goes = forgotten.len() < most && Arc::strong_count(host) == 1 && may(host);
                    if goes {
                        forgotten.push(host.clone());
                    }
                    !goes
                });
            }
            !hosts.is_empty()
        });
        self.count -= forgotten.len();
        forgotten
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const NOW: Timestamp = Timestamp::ZERO;

    fn address(last: u8) -> IpAddr {
        [192, 0, 2, last].into()
    }

    fn hosts(hosts: usize, hosts_of_client: usize) -> Hosts {
        Hosts::new(&NlmLimits { hosts, hosts_of_client, ..NlmLimits::default() })
    }

    /// A waiting lock without an owner, which keeps a host.
    fn busy(host: &Host) {
        let key = FileKey { file_system: 1, file: crate::FileId::new(b"f").unwrap() };
        let place = super::super::room::Room::new(1).take().unwrap();
        host.held().files.insert((key, Holder::new(host.client(), b"")), Kept::new(place));
    }

    #[test]
    fn a_host_is_its_address_and_its_name() {
        let hosts = hosts(9, 9);
        let first = hosts.enter(address(1), b"a", NOW).0.unwrap();
        assert!(Arc::ptr_eq(&first, &hosts.enter(address(1), b"a", NOW).0.unwrap()));
        assert!(hosts.find(address(1), b"A").is_none() && hosts.find(address(2), b"a").is_none());
        let others = [hosts.enter(address(1), b"b", NOW).0.unwrap(), hosts.enter(address(2), b"a", NOW).0.unwrap()];
        assert!(others.iter().all(|other| other.client() != first.client() && other.client() != UNKNOWN));
        assert_eq!(hosts.count(), 3);
    }

    #[test]
    fn who_holds_something_is_not_forgotten_for_another() {
        let hosts = hosts(3, 2);
        for name in [b"a", b"b"] {
            busy(&hosts.enter(address(1), name, NOW).0.unwrap());
        }
        assert!(hosts.enter(address(1), b"c", NOW).0.is_none(), "one past the limit of a client");
        let idle = hosts.enter(address(2), b"idle", NOW).0.unwrap();
        assert!(hosts.enter(address(3), b"late", NOW).0.is_none(), "somebody is about to use it");
        drop(idle);
        let (late, forgotten) = hosts.enter(address(3), b"late", NOW);
        assert_eq!(forgotten.iter().map(|host| host.name()).collect::<Vec<_>>(), [b"idle"]);
        busy(&late.unwrap());
        assert!(hosts.enter(address(4), b"more", NOW).0.is_none(), "one past the limit of all");
        assert_eq!(hosts.count(), 3);
    }

    #[test]
    fn who_has_held_nothing_for_a_while_is_forgotten() {
        let hosts = hosts(9, 9);
        busy(&hosts.enter(address(1), b"busy", NOW).0.unwrap());
        drop(hosts.enter(address(1), b"idle", NOW));
        let almost = NOW + (IDLE_TIME - Duration::from_nanos(1));
        assert!(hosts.forget_idle(almost).is_empty());
        assert_eq!(hosts.forget_idle(NOW + IDLE_TIME).len(), 1);
        assert_eq!(hosts.count(), 1);
    }

    /// proves: NLM-6.1.4-g
    #[test]
    fn an_owner_is_the_process_and_the_name() {
        let name = OwnerHandle::from(&[7; 1024][..]);
        let owner = lock_owner(UNKNOWN, -5, &name);
        assert_eq!(owner_of(&owner), (-5, name.clone()));
        assert_ne!(owner, lock_owner(UNKNOWN, -6, &name));
        assert_ne!(owner, lock_owner(UNKNOWN, -5, &OwnerHandle::from(&[7; 1023][..])));
        assert_eq!(owner_of(&Holder::new(UNKNOWN, b"abc")), (0, OwnerHandle::default()));
    }
}
