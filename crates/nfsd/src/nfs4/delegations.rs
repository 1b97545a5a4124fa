//! The protocol's knowledge of delegations: their stateids, their recalls, and what their holders have said of the
//! files (RFC 8881 sections 10.4.3 to 10.4.6).
//!
//! The table of claims decides which uses conflict; this module knows which client to call. A client has at most one
//! delegation of a file, and [`RECALLS_OF_CLIENT`] limits how many recalls of a client are under way: further recalls
//! wait here, in memory that their delegations have anyway. Nothing sleeps, and nothing is dropped under the lock.

use super::{
    service::{Pin, Shared},
    state::{
        Loss,
        clients::Client,
        limits::{ASKINGS_OF_CLIENT, RECALLS_OF_CLIENT, UNRELIABLE_TIME},
        release::Why,
        session::Session,
    },
};
use crate::{
    HostLease,
    claims::{self, FileKey, Kind},
};
use rpcrdma_env::Timestamp;
use rpcrdma_nfs::v4::{
    ClientId, Handle, List, StateId,
    callback::{CbRecall, ReferringCall, ReferringCalls},
};
use std::{
    collections::{HashMap, HashSet, VecDeque, hash_map::Entry as Slot},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicU64, Ordering},
    },
};
use tokio::sync::watch;

/// A delegation's key: its client and its file.
pub(super) type Key = (ClientId, FileKey);

/// The call whose reply brought a delegation.
pub(super) struct Origin {
    pub(super) session: Weak<Session<Pin>>,
    pub(super) slot: u32,
    pub(super) sequence: u32,
}

impl Origin {
    /// The call, if the client may not have seen its reply yet.
    // NFS4-8881-2.10.6.3-a
    fn unanswered(&self) -> Option<ReferringCalls> {
        let session = self.session.upgrade().filter(|session| session.is_last(self.slot, self.sequence))?;
        let call = ReferringCall { sequence: self.sequence, slot: self.slot };
        Some(ReferringCalls { session: session.id(), calls: List(vec![call]) })
    }
}

/// What the holder of a write delegation says of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Said {
    pub(super) size: u64,
    pub(super) change: u64,
}

/// The result of asking it: `None` if it has not answered.
pub(super) type Saying = Option<Said>;

/// What other clients see of a file that its holder may have changed.
#[derive(Clone, Copy)]
pub(super) struct Told {
    /// The change number when the delegation was granted.
    pub(super) granted: u64,
    /// Whether the holder has changed it.
    pub(super) is_modified: bool,
    /// The change number that others last saw.
    pub(super) change: u64,
}

/// A delegation that was granted.
pub(super) struct Delegated {
    pub(super) id: StateId,
    pub(super) kind: Kind,
    pub(super) client: Arc<Client<Pin>>,
    pub(super) handle: Handle,
    pub(super) origin: Option<Origin>,
    pub(super) guard: claims::Delegation,
    /// Held for as long as the delegation is.
    pub(super) _lease: HostLease,
    pub(super) told: Told,
}

struct Entry {
    delegated: Delegated,
    recalled: Option<Timestamp>,
    /// The holder was not reached, or has not accepted the recall: the server calls it again.
    is_unheard: bool,
    /// The server is asking the holder.
    asked: Option<watch::Receiver<Option<Saying>>>,
}

/// The recalls of one client.
#[derive(Default)]
struct Queue {
    waiting: VecDeque<FileKey>,
    running: usize,
}

#[derive(Default)]
struct Inner {
    all: HashMap<Key, Entry>,
    recalled: HashSet<Key>,
    queues: HashMap<ClientId, Queue>,
    /// For each client, how many calls are asking it about files.
    askings: HashMap<ClientId, usize>,
    /// Clients that did not return a delegation, and when the server took it away.
    unreliable: HashMap<ClientId, Timestamp>,
}

/// All delegations of a server.
#[derive(Default)]
pub(crate) struct Delegations {
    inner: Mutex<Inner>,
    /// How many delegations the server has recalled and taken away since it started.
    recalls: AtomicU64,
    revocations: AtomicU64,
}

/// A recall that the server has to make.
pub(super) struct Recall {
    pub(super) key: Key,
    pub(super) client: Arc<Client<Pin>>,
    // NFS4-8881-20.2-a
    pub(super) args: CbRecall,
    pub(super) referring: Vec<ReferringCalls>,
}

/// How a caller learns what the holder knows.
pub(super) enum Asking {
    /// The caller makes this call; all other callers share its result.
    Begin(Arc<Client<Pin>>, Handle, watch::Sender<Option<Saying>>, watch::Receiver<Option<Saying>>),
    /// A call is under way.
    Wait(watch::Receiver<Option<Saying>>),
}

impl Delegations {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many recalls and revocations there were.
    pub(crate) fn totals(&self) -> (u64, u64) {
        (self.recalls.load(Ordering::Relaxed), self.revocations.load(Ordering::Relaxed))
    }

    /// A client has lost delegations, because it did not return them. Returns its other delegations.
    pub(super) fn has_lost(&self, client: ClientId, count: usize, now: Timestamp) -> Vec<(Key, StateId)> {
        self.revocations.fetch_add(count as u64, Ordering::Relaxed);
        let mut inner = self.lock();
        inner.unreliable.retain(|_, since| now.since(*since) < UNRELIABLE_TIME);
        inner.unreliable.insert(client, now);
        let of_client = inner.all.iter().filter(|((holder, _), _)| *holder == client);
        of_client.map(|(key, entry)| (*key, entry.delegated.id)).collect()
    }

    /// Whether a client did not return a delegation a short while ago.
    pub(super) fn is_unreliable(&self, client: ClientId, now: Timestamp) -> bool {
        self.lock().unreliable.get(&client).is_some_and(|since| now.since(*since) < UNRELIABLE_TIME)
    }

    /// The server has granted a delegation.
    pub(super) fn add(&self, key: Key, delegated: Delegated) {
        let entry = Entry { delegated, recalled: None, is_unheard: false, asked: None };
        // A client has at most one delegation of a file in the table of claims; an earlier one has ended there.
        let before = self.lock().all.insert(key, entry);
        drop(before);
    }

    /// The delegation with this stateid has ended.
    pub(super) fn end(&self, key: Key, id: StateId) {
        let mut inner = self.lock();
        let is_it = inner.all.get(&key).is_some_and(|entry| entry.delegated.id.other == id.other);
        let ended = if is_it { inner.all.remove(&key) } else { None };
        if ended.is_some() {
            inner.recalled.remove(&key);
        }
        drop(inner);
        drop(ended);
    }

    /// Another user wants a delegated file. Returns whether the caller must make [the recalls](Self::next): not if the
    /// file was already wanted, or if enough recalls of the client are under way, whose tasks take this one along.
    /// Without `call` the holder already knows.
    pub(super) fn recall(&self, key: Key, now: Timestamp, call: bool) -> bool {
        let mut inner = self.lock();
        let Some(entry) = inner.all.get_mut(&key) else { return false };
        if entry.recalled.is_some() {
            return false;
        }
        entry.recalled = Some(now);
        inner.recalled.insert(key);
        self.recalls.fetch_add(1, Ordering::Relaxed);
        call && inner.queue(key)
    }

    /// Whether another user wanted the file before the delegation was [added](Self::add) here.
    pub(super) fn is_wanted(&self, key: Key) -> bool {
        self.lock().all.get(&key).is_some_and(|entry| entry.delegated.guard.is_recalled())
    }

    /// Whether a client decides on a file's locks alone: it has a write delegation, and the server has not recalled it.
    pub(super) fn locks_alone(&self, key: Key) -> bool {
        let inner = self.lock();
        inner.all.get(&key).is_some_and(|entry| entry.delegated.kind == Kind::Write && entry.recalled.is_none())
    }

    /// The holder of a delegation, and its stateid.
    pub(super) fn holder(&self, key: Key) -> Option<(Arc<Client<Pin>>, StateId)> {
        self.lock().all.get(&key).map(|entry| (entry.delegated.client.clone(), entry.delegated.id))
    }

    /// The next recall of a client, if there is one. With `None`, the work that [`recall`](Self::recall) gave to the
    /// caller is done.
    pub(super) fn next(&self, client: ClientId) -> Option<Recall> {
        let mut inner = self.lock();
        loop {
            let queue = inner.queues.get_mut(&client)?;
            let Some(file) = queue.waiting.pop_front() else {
                queue.running = queue.running.saturating_sub(1);
                if queue.running == 0 {
                    inner.queues.remove(&client);
                }
                return None;
            };
            let key = (client, file);
            // A delegation that was returned meanwhile needs no recall.
            let Some(Delegated { id, client, handle, origin, .. }) = inner.all.get(&key).map(|entry| &entry.delegated)
            else {
                continue;
            };
            let referring = origin.as_ref().and_then(Origin::unanswered).into_iter().collect();
            let args = CbRecall { state: *id, truncate: false, file: handle.clone() };
            return Some(Recall { key, client: client.clone(), args, referring });
        }
    }

    /// A holder has not accepted a recall.
    pub(super) fn unheard(&self, key: Key) {
        if let Some(entry) = self.lock().all.get_mut(&key) {
            entry.is_unheard = true;
        }
    }

    /// The clients to call again; the caller makes the recalls of each once for every time it is in the list.
    pub(super) fn again(&self) -> Vec<ClientId> {
        let mut inner = self.lock();
        let recalled: Vec<_> = inner.recalled.iter().copied().collect();
        let mut callers = Vec::new();
        for key in recalled {
            let is_unheard =
                inner.all.get_mut(&key).is_some_and(|entry| std::mem::replace(&mut entry.is_unheard, false));
            // NFS4-8881-10.4.5-b
            if is_unheard && inner.queue(key) {
                callers.push(key.0);
            }
        }
        callers
    }

    /// The clients that hold delegations.
    pub(super) fn holders(&self) -> Vec<Arc<Client<Pin>>> {
        let inner = self.lock();
        let clients = inner.all.values().map(|entry| &entry.delegated.client);
        let clients: HashMap<_, _> = clients.map(|client| (client.id(), client)).collect();
        clients.into_values().cloned().collect()
    }

    /// The delegations that were recalled at least `limit` ago, by client.
    pub(super) fn due(&self, now: Timestamp, limit: std::time::Duration) -> Vec<Loss<Pin>> {
        let inner = self.lock();
        let mut due: HashMap<ClientId, Loss<Pin>> = HashMap::new();
        for entry in inner.recalled.iter().filter_map(|key| inner.all.get(key)) {
            if entry.recalled.is_some_and(|recalled| now.since(recalled) >= limit) {
                let Delegated { client, id, .. } = &entry.delegated;
                let loss = || Loss { client: client.clone(), states: Vec::new(), why: Why::NotReturned };
                due.entry(client.id()).or_insert_with(loss).states.push(id.other);
            }
        }
        due.into_values().collect()
    }

    /// How to ask the holder of a write delegation.
    pub(super) fn ask(&self, key: Key) -> Option<Asking> {
        let mut inner = self.lock();
        let entry = inner.all.get_mut(&key).filter(|entry| entry.delegated.kind == Kind::Write)?;
        if let Some(asked) = entry.asked.as_ref().filter(|asked| asked.borrow().is_none()) {
            return Some(Asking::Wait(asked.clone()));
        }
        let (sender, receiver) = watch::channel(None);
        let Delegated { client, handle, .. } = &entry.delegated;
        let (client, handle) = (client.clone(), handle.clone());
        let asked = inner.askings.entry(client.id()).or_default();
        // If a client does not answer, its delegations are recalled instead, a few at a time.
        if *asked >= ASKINGS_OF_CLIENT {
            return None;
        }
        *asked += 1;
        if let Some(entry) = inner.all.get_mut(&key) {
            entry.asked = Some(receiver.clone());
        }
        Some(Asking::Begin(client, handle, sender, receiver))
    }

    /// A call that asked a client has ended.
    pub(super) fn has_asked(&self, client: ClientId) {
        if let Slot::Occupied(mut askings) = self.lock().askings.entry(client) {
            *askings.get_mut() = askings.get().saturating_sub(1);
            if *askings.get() == 0 {
                askings.remove();
            }
        }
    }

    /// Changes what other clients see of a file.
    pub(super) fn tell<T>(&self, key: Key, tell: impl FnOnce(&mut Told) -> T) -> Option<T> {
        self.lock().all.get_mut(&key).map(|entry| tell(&mut entry.delegated.told))
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        let inner = self.lock();
        inner.all.is_empty() && inner.recalled.is_empty()
    }
}

impl Inner {
    /// Puts a recall in its client's queue. Returns whether another task may make recalls of this client.
    fn queue(&mut self, (client, file): Key) -> bool {
        let queue = self.queues.entry(client).or_default();
        queue.waiting.push_back(file);
        // NFS4-8881-10.4.4-b
        let may = queue.running < RECALLS_OF_CLIENT;
        if may {
            queue.running += 1;
        }
        may
    }
}

impl Shared {
    /// The key of a client's delegation of a file.
    pub(super) fn delegation_of(client: claims::Client, file: FileKey) -> Option<Key> {
        match client {
            claims::Client::V4(client) => Some((ClientId(client), file)),
            claims::Client::Nlm(_) => None,
        }
    }
}
