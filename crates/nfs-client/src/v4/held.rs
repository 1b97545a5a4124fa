//! What a client holds on a file: an open and its locks, with their present stateids.

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
    /// The access of the open, and what it denies others.
    pub(super) access: u32,
    pub(super) deny: u32,
    pub(super) owner: Arc<OpenOwner>,
    /// The name of the lock-owner.
    pub(super) locker: OwnerName,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    open: StateId,
    /// Changes when a stateid changes.
    version: u64,
    lost: Option<(Lost, Status)>,
    is_closed: bool,
    /// Whether the open must be confirmed before it is used. Minor version 0.
    owes_confirmation: bool,
    /// The epoch in which it was opened or reclaimed.
    epoch: u64,
    /// The stateid of the locks, once there were some.
    lock: Option<StateId>,
    ranges: Ranges,
    counter: Counter,
    was_doubtful: bool,
}

impl Held {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes when a stateid changes.
    pub(super) fn version(&self) -> u64 {
        self.state().version
    }

    /// What was lost, if anything.
    pub(super) fn lost(&self) -> Option<(Lost, Status)> {
        self.state().lost
    }

    /// Whether nothing of it can be reclaimed.
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

    /// Records a loss: of the locks, if the server does not know the locks' stateid; otherwise of everything. Returns
    /// false if it was already known.
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

    /// What READ and WRITE use: it is lost if the server no longer knows the stateid.
    pub(super) fn used(&self) -> Lost {
        let state = self.state();
        if state.lock.is_some() && !state.ranges.all().is_empty() { Lost::Locks } else { Lost::Open }
    }

    /// The stateid of the open.
    pub(super) fn open_state(&self, ground: &Ground) -> StateId {
        current(self.state().open, ground)
    }

    /// The stateid for reading and writing: the locks' stateid if there are locks, so that a client that has lost its
    /// locks cannot write.
    pub(super) fn io_state(&self, ground: &Ground) -> StateId {
        let state = self.state();
        let lock = state.lock.filter(|_| !state.ranges.all().is_empty());
        current(lock.unwrap_or(state.open), ground)
    }

    /// The stateids of what is held.
    pub(super) fn stateids(&self) -> Vec<(StateId, Lost)> {
        let state = self.state();
        let lock = state.lock.map(|lock| (lock, Lost::Locks));
        lock.into_iter().chain([(state.open, Lost::Open)]).collect()
    }

    /// Whether it still has this stateid, with any sequence number.
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

    /// The server requires that the open is confirmed.
    pub(super) fn owe_confirmation(&self) {
        self.state().owes_confirmation = true;
    }

    /// Whether the open still has to be confirmed: if it was reclaimed meanwhile, it need not.
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

    /// The ranges that must be locked again.
    pub(super) fn locked(&self) -> Vec<Range> {
        self.state().ranges.all().to_vec()
    }

    /// The locker for LOCK, and whether it is the first lock, which goes by the open.
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

    /// Evaluates the reply to LOCK or LOCKU. Returns true if the call should be tried with the next number.
    pub(super) fn counted(&self, reply: &Reply, op: Op, by_open: bool) -> bool {
        let by_open = by_open && self.owner.seen(reply, op);
        let mut state = self.state();
        let was_doubtful = state.was_doubtful;
        state.counter.seen(reply, op, was_doubtful) || by_open
    }

    /// The server has returned a new stateid of the locks.
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

/// Minor version 0 requires each new sequence number of a stateid. In later versions 0 means the present one, so that
/// calls may overtake each other (RFC 8881 section 8.2.2).
fn current(state: StateId, ground: &Ground) -> StateId {
    StateId { sequence: if ground.session.is_some() { 0 } else { state.sequence }, ..state }
}

/// All that a client holds.
#[derive(Debug)]
pub(super) struct Opens {
    /// The host's name, which other clients see as the holder of a lock.
    host: String,
    made: AtomicU64,
    all: Mutex<BTreeMap<u64, Arc<Held>>>,
}

impl Opens {
    /// Holds nothing yet, for a client on this host.
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
