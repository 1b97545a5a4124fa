//! What the protocol knows of delegations: how each is named, when it was called back, and what its holder has said of
//! the file (RFC 8881 sections 10.4.3 to 10.4.6).
//!
//! The table of claims decides which uses conflict; this module knows which client to call. A client has at most one
//! delegation of a file, and [`RECALLS_OF_CLIENT`] limits the recalls of a client that are under way: the others wait
//! here, each in the memory that its delegation has anyhow. Nothing sleeps, and nothing is dropped under the lock.

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

/// A delegation is known by its client and its file.
pub(super) type Key = (ClientId, FileKey);

/// The call that has brought a delegation.
pub(super) struct Origin {
    pub(super) session: Weak<Session<Pin>>,
    pub(super) slot: u32,
    pub(super) sequence: u32,
}

impl Origin {
    /// The call, if the client may not have seen its answer yet.
    // NFS4-8881-2.10.6.3-a
    fn unanswered(&self) -> Option<ReferringCalls> {
        let session = self.session.upgrade().filter(|session| session.is_last(self.slot, self.sequence))?;
        let call = ReferringCall { sequence: self.sequence, slot: self.slot };
        Some(ReferringCalls { session: session.id(), calls: List(vec![call]) })
    }
}

/// What the holder of a delegation for writing says of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Said {
    pub(super) size: u64,
    pub(super) change: u64,
}

/// What came of asking it: nothing if it did not say.
pub(super) type Saying = Option<Said>;

/// What others see of a file that its holder may have changed.
#[derive(Clone, Copy)]
pub(super) struct Told {
    /// The change number when it was delegated.
    pub(super) granted: u64,
    /// Whether the holder has changed it.
    pub(super) is_modified: bool,
    /// The change number that others saw last.
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
    /// The holder was not reached, or did not take it: it is called again.
    is_unheard: bool,
    /// The holder is being asked for what it knows.
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
    /// By how many calls clients are being asked what they know of files.
    askings: HashMap<ClientId, usize>,
    /// Clients that did not return what they had, and when that was found out.
    unreliable: HashMap<ClientId, Timestamp>,
}

/// All delegations of a server.
#[derive(Default)]
pub(crate) struct Delegations {
    inner: Mutex<Inner>,
    /// How many were called back, and how many taken away, since the server started.
    recalls: AtomicU64,
    revocations: AtomicU64,
}

/// A recall that is to be made.
pub(super) struct Recall {
    pub(super) key: Key,
    pub(super) client: Arc<Client<Pin>>,
    // NFS4-8881-20.2-a
    pub(super) args: CbRecall,
    pub(super) referring: Vec<ReferringCalls>,
}

/// How a holder is asked for what it knows.
pub(super) enum Asking {
    /// By this call, whose outcome all that ask share.
    Begin(Arc<Client<Pin>>, Handle, watch::Sender<Option<Saying>>, watch::Receiver<Option<Saying>>),
    /// It is being asked.
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

    /// A client has lost delegations, since it has not returned them. Gives what else it has.
    pub(super) fn has_lost(&self, client: ClientId, count: usize, now: Timestamp) -> Vec<(Key, StateId)> {
        self.revocations.fetch_add(count as u64, Ordering::Relaxed);
        let mut inner = self.lock();
        inner.unreliable.retain(|_, since| now.since(*since) < UNRELIABLE_TIME);
        inner.unreliable.insert(client, now);
        let of_client = inner.all.iter().filter(|((holder, _), _)| *holder == client);
        of_client.map(|(key, entry)| (*key, entry.delegated.id)).collect()
    }

    /// Whether a client has not returned what it had, a short while ago.
    pub(super) fn is_unreliable(&self, client: ClientId, now: Timestamp) -> bool {
        self.lock().unreliable.get(&client).is_some_and(|since| now.since(*since) < UNRELIABLE_TIME)
    }

    /// A delegation was granted.
    pub(super) fn add(&self, key: Key, delegated: Delegated) {
        let entry = Entry { delegated, recalled: None, is_unheard: false, asked: None };
        // A client has no two of a file in the table of claims; one before this has ended there.
        let before = self.lock().all.insert(key, entry);
        drop(before);
    }

    /// A delegation of this name has ended.
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

    /// Another user wants a delegated file. Returns whether the caller must make [its recall](Self::next): not if it
    /// was wanted before, or others are under way that take it along. Without `call` the holder knows already.
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

    /// Whether another user has wanted a delegated file before the delegation was [here](Self::add).
    pub(super) fn is_wanted(&self, key: Key) -> bool {
        self.lock().all.get(&key).is_some_and(|entry| entry.delegated.guard.is_recalled())
    }

    /// Whether a client decides on a file's locks by itself: it may write to it alone, and has not been asked to return
    /// that.
    pub(super) fn locks_alone(&self, key: Key) -> bool {
        let inner = self.lock();
        inner.all.get(&key).is_some_and(|entry| entry.delegated.kind == Kind::Write && entry.recalled.is_none())
    }

    /// The holder of a delegation, and its name.
    pub(super) fn holder(&self, key: Key) -> Option<(Arc<Client<Pin>>, StateId)> {
        self.lock().all.get(&key).map(|entry| (entry.delegated.client.clone(), entry.delegated.id))
    }

    /// The next recall of a client, if there is one. A caller that gets none has ended what [`recall`](Self::recall)
    /// began.
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
            // What was returned meanwhile is not called back.
            let Some(Delegated { id, client, handle, origin, .. }) = inner.all.get(&key).map(|entry| &entry.delegated)
            else {
                continue;
            };
            let referring = origin.as_ref().and_then(Origin::unanswered).into_iter().collect();
            let args = CbRecall { state: *id, truncate: false, file: handle.clone() };
            return Some(Recall { key, client: client.clone(), args, referring });
        }
    }

    /// A holder has not taken a recall.
    pub(super) fn unheard(&self, key: Key) {
        if let Some(entry) = self.lock().all.get_mut(&key) {
            entry.is_unheard = true;
        }
    }

    /// Which clients to call again, each as often as it is returned here.
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

    /// The clients that hold any.
    pub(super) fn holders(&self) -> Vec<Arc<Client<Pin>>> {
        let inner = self.lock();
        let clients = inner.all.values().map(|entry| &entry.delegated.client);
        let clients: HashMap<_, _> = clients.map(|client| (client.id(), client)).collect();
        clients.into_values().cloned().collect()
    }

    /// What was wanted back at least so long ago, by client.
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

    /// How the holder of a delegation for writing is asked.
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
        // Who answers nothing has its delegations called back, a few at a time.
        if *asked >= ASKINGS_OF_CLIENT {
            return None;
        }
        *asked += 1;
        if let Some(entry) = inner.all.get_mut(&key) {
            entry.asked = Some(receiver.clone());
        }
        Some(Asking::Begin(client, handle, sender, receiver))
    }

    /// A call by which a client was asked has ended.
    pub(super) fn has_asked(&self, client: ClientId) {
        if let Slot::Occupied(mut askings) = self.lock().askings.entry(client) {
            *askings.get_mut() = askings.get().saturating_sub(1);
            if *askings.get() == 0 {
                askings.remove();
            }
        }
    }

    /// Changes what others see of a file, with what the file is.
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
    /// Puts a recall where it waits, and says whether one more of the client's may be under way.
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
    /// How the protocol knows a client's delegation of a file.
    pub(super) fn delegation_of(client: claims::Client, file: FileKey) -> Option<Key> {
        match client {
            claims::Client::V4(client) => Some((ClientId(client), file)),
            claims::Client::Nlm(_) => None,
        }
    }
}
