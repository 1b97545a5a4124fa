//! What the server announces by its calls: locks that may be free, copies that have ended, recalled delegations.
//!
//! The client keeps only announcements for which it waits; any other call changes nothing.

use rpcrdma_nfs::v4::{Handle, OwnerName, StateId, StateIdOther, callback::OffloadOutcome};
use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use tokio::sync::Notify;

/// The most ends of copies that the client keeps before the reply to COPY itself has come.
const MAX_EARLY: usize = 16;

/// The most delegations that the client keeps: a server may grant one with each open, and the client remembers them.
const MAX_DELEGATIONS: usize = 4_096;

/// A delegation.
#[derive(Debug)]
struct Delegated {
    file: Handle,
    state: StateId,
    /// Whether its return is under way.
    is_on_its_way: bool,
}

#[derive(Debug, Default)]
struct Inner {
    locks: HashMap<(Handle, OwnerName), Arc<Notify>>,
    delegations: HashMap<StateIdOther, Delegated>,
    /// How many OPENs of minor version 0 have no reply yet.
    opening: usize,
    copies: HashMap<StateIdOther, Arc<Copying>>,
    early: VecDeque<(StateIdOther, OffloadOutcome)>,
    /// How many COPYs have no reply yet.
    asking: usize,
}

/// A copy that goes on after COPY's reply.
#[derive(Debug, Default)]
pub(super) struct Copying {
    outcome: Mutex<Option<OffloadOutcome>>,
    ended: Notify,
}

/// The announcements for which callers wait.
#[derive(Debug, Default)]
pub(super) struct Awaited(Mutex<Inner>);

impl Copying {
    fn end(&self, outcome: OffloadOutcome) {
        self.outcome.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(outcome);
        self.ended.notify_one();
    }

    /// Waits for the copy's end.
    pub(super) async fn ended(&self) -> OffloadOutcome {
        loop {
            let ended = self.ended.notified();
            if let Some(outcome) = *self.outcome.lock().unwrap_or_else(PoisonError::into_inner) {
                return outcome;
            }
            ended.await;
        }
    }
}

impl Awaited {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A caller waits for a lock on a file, for this owner.
    pub(super) fn lock(&self, file: &Handle, owner: &OwnerName) -> WaitsForLock<'_> {
        let key = (file.clone(), owner.clone());
        let notify = self.inner().locks.entry(key.clone()).or_default().clone();
        WaitsForLock { awaited: self, key, notify }
    }

    /// The server says that a lock may be free now.
    pub(super) fn can_lock(&self, file: Handle, owner: OwnerName) {
        if let Some(waits) = self.inner().locks.get(&(file, owner)) {
            waits.notify_one();
        }
    }

    /// The server has delegated a file. The client returns it at once unless it keeps delegations.
    pub(super) fn delegated(&self, file: &Handle, state: StateId) {
        let delegated = Delegated { file: file.clone(), state, is_on_its_way: false };
        self.inner().delegations.insert(state.other, delegated);
    }

    /// The delegation has been returned.
    pub(super) fn returned(&self, state: StateId) {
        self.inner().delegations.remove(&state.other);
    }

    /// Whether the client has so many delegations that it returns a new one at once.
    pub(super) fn has_too_many_delegations(&self) -> bool {
        self.inner().delegations.len() > MAX_DELEGATIONS
    }

    /// All delegations that the client has not returned.
    pub(super) fn delegations(&self) -> Vec<(Handle, StateId)> {
        self.inner().delegations.values().map(|given| (given.file.clone(), given.state)).collect()
    }

    /// The server recalls a delegation. `None` if the client has none with this stateid.
    pub(super) fn recalled(&self, state: StateId) -> Option<Recalled> {
        let mut inner = self.inner();
        let given = inner.delegations.get_mut(&state.other)?;
        match std::mem::replace(&mut given.is_on_its_way, true) {
            true => Some(Recalled::OnItsWay),
            false => Some(Recalled::Of(given.file.clone())),
        }
    }

    /// The client sends an OPEN of minor version 0. The server may recall the delegation that comes with the OPEN
    /// before the reply arrives.
    pub(super) fn opens(self: &Arc<Self>) -> Opens {
        self.inner().opening += 1;
        Opens(self.clone())
    }

    /// Whether an OPEN of minor version 0 has no reply yet.
    pub(super) fn is_opening(&self) -> bool {
        self.inner().opening > 0
    }

    /// The client sends a COPY. The server may announce its end before the reply arrives.
    pub(super) fn asks_to_copy(&self) -> AsksToCopy<'_> {
        self.inner().asking += 1;
        AsksToCopy(self)
    }

    /// A copy with this stateid goes on.
    pub(super) fn copy(&self, state: StateId) -> WaitsForCopy<'_> {
        let mut inner = self.inner();
        let copying = Arc::new(Copying::default());
        if let Some(at) = inner.early.iter().position(|(other, _)| *other == state.other)
            && let Some((_, outcome)) = inner.early.remove(at)
        {
            copying.end(outcome);
        }
        inner.copies.insert(state.other, copying.clone());
        WaitsForCopy { awaited: self, other: state.other, copying }
    }

    /// The server has finished a copy. False if the client has none with this stateid.
    pub(super) fn copied(&self, state: StateId, outcome: OffloadOutcome) -> bool {
        let mut inner = self.inner();
        if let Some(copying) = inner.copies.get(&state.other) {
            copying.end(outcome);
            return true;
        }
        if inner.asking == 0 {
            return false;
        }
        if inner.early.len() >= MAX_EARLY {
            inner.early.pop_front();
        }
        inner.early.push_back((state.other, outcome));
        true
    }
}

/// What a recall is about.
#[derive(Debug)]
pub(super) enum Recalled {
    /// A delegation of this file.
    Of(Handle),
    /// A delegation whose return is already under way.
    OnItsWay,
}

/// While this exists, a call waits for the reply to OPEN.
pub(super) struct Opens(Arc<Awaited>);

impl Drop for Opens {
    fn drop(&mut self) {
        self.0.inner().opening -= 1;
    }
}

/// While this exists, a call waits for a lock.
pub(super) struct WaitsForLock<'a> {
    awaited: &'a Awaited,
    key: (Handle, OwnerName),
    notify: Arc<Notify>,
}

impl WaitsForLock<'_> {
    pub(super) async fn notified(&self) {
        self.notify.notified().await;
    }
}

impl Drop for WaitsForLock<'_> {
    fn drop(&mut self) {
        self.awaited.inner().locks.remove(&self.key);
    }
}

/// While this exists, a call waits for the reply to COPY.
pub(super) struct AsksToCopy<'a>(&'a Awaited);

impl Drop for AsksToCopy<'_> {
    fn drop(&mut self) {
        let mut inner = self.0.inner();
        inner.asking -= 1;
        if inner.asking == 0 {
            inner.early.clear();
        }
    }
}

/// While this exists, a call waits for the end of a copy.
pub(super) struct WaitsForCopy<'a> {
    awaited: &'a Awaited,
    other: StateIdOther,
    pub(super) copying: Arc<Copying>,
}

impl Drop for WaitsForCopy<'_> {
    fn drop(&mut self) {
        self.awaited.inner().copies.remove(&self.other);
    }
}
