//! What a client holds on a file: an open and its locks, with the stateids that name them now.

use super::{
    Lost,
    owner::{Counter, OpenOwner},
    ranges::{Range, Ranges},
    reply::Reply,
    standing::Ground,
};
use rpcrdma_nfs::v4::{
    Handle, Op, Owner, OwnerName, StateId, Status,
    ops::{KnownLocker, Locker, NewLocker},
};
use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

/// An open file and its locks.
#[derive(Debug)]
pub(super) struct Held {
    number: u64,
    pub(super) file: Handle,
    /// What it was opened for, and what others may not do.
    pub(super) access: u32,
    pub(super) deny: u32,
    pub(super) owner: Arc<OpenOwner>,
    /// The name of the owner of its locks.
    pub(super) locker: OwnerName,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    open: StateId,
    /// Changes with the stateids.
    version: u64,
    lost: Option<(Lost, Status)>,
    is_closed: bool,
    /// Whether the server wants the open to be confirmed before it is used. Minor version 0.
    owes_confirmation: bool,
    /// In which epoch it was opened or reclaimed.
    epoch: u64,
    /// The locks, once there were some.
    lock: Option<StateId>,
    ranges: Ranges,
    counter: Counter,
    was_doubtful: bool,
}

impl Held {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes when a stateid does.
    pub(super) fn version(&self) -> u64 {
        self.state().version
    }

    /// What is lost, if something is.
    pub(super) fn lost(&self) -> Option<(Lost, Status)> {
        self.state().lost
    }

    /// Whether there is nothing to be reclaimed.
    pub(super) fn is_gone(&self) -> bool {
        let state = self.state();
        state.lost.is_some() || state.is_closed
    }

    pub(super) fn is_closed(&self) -> bool {
        self.state().is_closed
    }

    pub(super) fn closed(&self) {
        self.state().is_closed = true;
    }

    /// Something is lost: the locks, if it is the locks' stateid that the server does not know, else all. False if that
    /// was known.
    pub(super) fn lose(&self, what: Lost, status: Status) -> bool {
        let mut state = self.state();
        let is_new = match state.lost {
            None => true,
            Some((known, _)) => known == Lost::Locks && what == Lost::Open,
        };
        if is_new {
            state.version += 1;
            state.lost = Some((what, status));
        }
        is_new
    }

    /// What READ and WRITE go by, and so what is lost when the server does not know it any more.
    pub(super) fn used(&self) -> Lost {
        let state = self.state();
        if state.lock.is_some() && !state.ranges.all().is_empty() { Lost::Locks } else { Lost::Open }
    }

    /// The stateid of the open.
    pub(super) fn open_state(&self, ground: &Ground) -> StateId {
        current(self.state().open, ground)
    }

    /// The stateid for reading and writing: that of the locks if there are some, so that a client which has lost its
    /// locks cannot write.
    pub(super) fn io_state(&self, ground: &Ground) -> StateId {
        let state = self.state();
        let lock = state.lock.filter(|_| !state.ranges.all().is_empty());
        current(lock.unwrap_or(state.open), ground)
    }

    /// The stateids that name what is held.
    pub(super) fn stateids(&self) -> Vec<(StateId, Lost)> {
        let state = self.state();
        let lock = state.lock.map(|lock| (lock, Lost::Locks));
        lock.into_iter().chain([(state.open, Lost::Open)]).collect()
    }

    /// Whether it still has the name of this stateid, whatever its number is by now.
    pub(super) fn has_name(&self, state: StateId, what: Lost) -> bool {
        self.stateids().iter().any(|(now, of)| now.other == state.other && *of == what)
    }

    /// OPEN_CONFIRM or CLOSE has changed the open's stateid.
    pub(super) fn confirmed(&self, open: StateId) {
        let mut state = self.state();
        state.open = open;
        state.owes_confirmation = false;
        state.version += 1;
    }

    /// The server wants the open to be confirmed.
    pub(super) fn owe_confirmation(&self) {
        self.state().owes_confirmation = true;
    }

    /// Whether that is still to be done: an open that was reclaimed meanwhile needs it no more.
    pub(super) fn owes_confirmation(&self) -> bool {
        self.state().owes_confirmation
    }

    /// Whether it was opened or reclaimed in this epoch.
    pub(super) fn is_reclaimed_in(&self, epoch: u64) -> bool {
        self.state().epoch == epoch
    }

    pub(super) fn reclaimed_in(&self, epoch: u64) {
        self.state().epoch = epoch;
    }

    /// The open was reclaimed; the locks were not.
    pub(super) fn opened_again(&self, open: StateId) {
        let mut state = self.state();
        (state.open, state.lock, state.owes_confirmation) = (open, None, false);
        state.version += 1;
    }

    pub(super) fn ranges(&self) -> Ranges {
        self.state().ranges.clone()
    }

    /// What must be locked again.
    pub(super) fn locked(&self) -> Vec<Range> {
        self.state().ranges.all().to_vec()
    }

    /// Who locks, and whether by the open: the first time.
    pub(super) fn locker(&self, ground: &Ground) -> (Locker, bool) {
        let mut state = self.state();
        state.was_doubtful = state.counter.is_doubtful();
        let sequence = state.counter.begin();
        match state.lock {
            Some(lock) => {
                let known = KnownLocker { state: current(lock, ground), sequence };
                (Locker::Known(known), false)
            }
            None => {
                let new = NewLocker {
                    open_sequence: self.owner.begin(),
                    open_state: current(state.open, ground),
                    lock_sequence: sequence,
                    owner: Owner { client: ground.client, name: self.locker.clone() },
                };
                (Locker::New(new), true)
            }
        }
    }

    /// The stateid of the locks and the number for LOCKU; `None` if nothing was locked yet.
    pub(super) fn unlocker(&self, ground: &Ground) -> Option<(StateId, u32)> {
        let mut state = self.state();
        let lock = state.lock?;
        state.was_doubtful = state.counter.is_doubtful();
        let sequence = state.counter.begin();
        Some((current(lock, ground), sequence))
    }

    /// What came of LOCK or LOCKU. True if the same should be tried with the next number.
    pub(super) fn counted(&self, reply: &Reply, op: Op, by_open: bool) -> bool {
        let by_open = by_open && self.owner.seen(reply, op);
        let mut state = self.state();
        let was_doubtful = state.was_doubtful;
        state.counter.seen(reply, op, was_doubtful) || by_open
    }

    /// The server has changed the locks.
    pub(super) fn locked_again(&self, lock: StateId) {
        let mut state = self.state();
        state.lock = Some(lock);
        state.version += 1;
    }

    pub(super) fn add(&self, range: Range) {
        self.state().ranges.set(range);
    }

    pub(super) fn remove(&self, range: Range) {
        self.state().ranges.clear(range);
    }
}

/// Minor version 0 wants to know each change of a stateid; in later ones 0 means whichever is current, so that calls
/// may overtake each other (RFC 8881 section 8.2.2).
fn current(state: StateId, ground: &Ground) -> StateId {
    StateId { sequence: if ground.session.is_some() { 0 } else { state.sequence }, ..state }
}

/// All that a client holds.
#[derive(Debug)]
pub(super) struct Opens {
    /// The host, which other clients see as the holder of the lock.
    host: String,
    made: AtomicU64,
    all: Mutex<BTreeMap<u64, Arc<Held>>>,
}

impl Opens {
    /// Nothing yet, of a client on this host.
    pub(super) fn of(host: String) -> Self {
        Self { host, made: AtomicU64::default(), all: Mutex::default() }
    }

    fn map(&self) -> MutexGuard<'_, BTreeMap<u64, Arc<Held>>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A file was opened.
    pub(super) fn add(&self, file: Handle, access: u32, owner: Arc<OpenOwner>, open: StateId, epoch: u64) -> Arc<Held> {
        let number = self.made.fetch_add(1, Ordering::Relaxed);
        let state = State {
            open,
            version: 0,
            lost: None,
            is_closed: false,
            owes_confirmation: false,
            epoch,
            lock: None,
            ranges: Ranges::default(),
            counter: Counter::default(),
            was_doubtful: false,
        };
        let locker = OwnerName::from(format!("lock {number} of {}", self.host).as_str());
        let held = Held { number, file, access, deny: 0, owner, locker, state: Mutex::new(state) };
        let held = Arc::new(held);
        self.map().insert(number, held.clone());
        held
    }

    pub(super) fn remove(&self, held: &Held) {
        self.map().remove(&held.number);
    }

    pub(super) fn all(&self) -> Vec<Arc<Held>> {
        self.map().values().cloned().collect()
    }
}
