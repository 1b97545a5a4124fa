//! The work of a client's driver: finishing calls, closing files, freeing stateids, returning delegations, and acting
//! on the flags of SEQUENCE.

use super::held::Held;
use rpcrdma_env::{BoxFuture, Timestamp};
use rpcrdma_nfs::v4::{Handle, StateId, ops::sequence_status};
use std::{
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    },
};
use tokio::sync::Notify;

/// Flags of SEQUENCE that say that the server has taken something away.
pub(super) const REVOKED: u32 = sequence_status::EXPIRED_ALL_STATE_REVOKED
    | sequence_status::EXPIRED_SOME_STATE_REVOKED
    | sequence_status::ADMIN_STATE_REVOKED
    | sequence_status::RECALLABLE_STATE_REVOKED;
/// Flags that say that the server cannot call the client.
pub(super) const PATH_DOWN: u32 = sequence_status::CB_PATH_DOWN | sequence_status::CB_PATH_DOWN_SESSION;
/// Flags that say that the contexts for the server's calls end soon, or have ended.
pub(super) const CONTEXTS: u32 = sequence_status::CB_GSS_CONTEXTS_EXPIRING | sequence_status::CB_GSS_CONTEXTS_EXPIRED;
/// Flags that the client acts on.
const KNOWN: u32 = REVOKED | PATH_DOWN | CONTEXTS | sequence_status::BACKCHANNEL_FAULT | sequence_status::LEASE_MOVED;
/// The most stateids that wait to be freed; the server frees any others when the client ends.
const MAX_FREES: usize = 4_096;
/// The most calls without a caller. What further calls bring stays with the server until the lease ends.
const MAX_UNFINISHED: usize = 1_024;
/// The most delegations that wait to be returned. Each came with an open, without a request for it.
const MAX_RETURNS: usize = 4_096;

/// The work that is left to do.
#[derive(Default)]
pub(super) struct Left {
    pub(super) unfinished: Vec<BoxFuture<'static, ()>>,
    pub(super) closes: Vec<Arc<Held>>,
    pub(super) frees: Vec<StateId>,
    pub(super) returns: Vec<(Handle, StateId)>,
    drivers: u32,
}

impl fmt::Debug for Left {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { unfinished, closes, frees, returns, .. } = self;
        let counts = (unfinished.len(), closes.len(), frees.len(), returns.len());
        write!(f, "Left({counts:?} calls, files, stateids and delegations)")
    }
}

/// Collects the work that is left to do.
#[derive(Debug, Default)]
pub(super) struct Duties {
    left: Mutex<Left>,
    flags: AtomicU32,
    /// When the server's last reply came, in nanoseconds of the clock.
    heard: AtomicU64,
    has_ended: AtomicBool,
    is_ending: AtomicBool,
    wake: Notify,
    /// How many duties the driver has begun and not ended; callers can wait for zero.
    at_work: AtomicU32,
    done: Notify,
}

/// While this exists, a driver runs.
pub(super) struct Driven(Arc<Duties>);

impl Drop for Driven {
    fn drop(&mut self) {
        let mut left = self.0.left();
        left.drivers = left.drivers.saturating_sub(1);
        let unfinished = if left.drivers == 0 { std::mem::take(&mut left.unfinished) } else { Vec::new() };
        drop(left);
        // Dropping them may leave new work here.
        drop(unfinished);
        self.0.done.notify_waiters();
    }
}

/// While this exists, a piece of the driver's work goes on.
pub(super) struct AtWork(Arc<Duties>);

impl Drop for AtWork {
    fn drop(&mut self) {
        let _ = self.0.at_work.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |count| count.checked_sub(1));
        self.0.done.notify_waiters();
    }
}

impl Duties {
    fn left(&self) -> MutexGuard<'_, Left> {
        self.left.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on a driver does the work.
    pub(super) fn driven(self: &Arc<Self>) -> Driven {
        self.left().drivers += 1;
        Driven(self.clone())
    }

    /// A call has lost its caller: the driver finishes the call, if there is a driver.
    pub(super) fn finish(&self, call: BoxFuture<'static, ()>) {
        let mut left = self.left();
        let refused = match left.drivers > 0 && left.unfinished.len() < MAX_UNFINISHED {
            true => {
                left.unfinished.push(call);
                None
            }
            false => Some(call),
        };
        drop(left);
        match refused {
            None => self.wake.notify_one(),
            Some(_) => tracing::debug!("a call whose caller has gone is not completed"),
        }
    }

    /// A file is no longer used and must be closed.
    pub(super) fn close(&self, held: Arc<Held>) {
        self.left().closes.push(held);
        self.wake.notify_one();
    }

    /// The client must free a stateid that the server has revoked.
    pub(super) fn free(&self, state: StateId) {
        let mut left = self.left();
        if left.frees.len() < MAX_FREES {
            left.frees.push(state);
        }
        drop(left);
        self.wake.notify_one();
    }

    /// The client must return a delegation. Returns false if too many wait for that.
    pub(super) fn give_back(&self, file: Handle, state: StateId) -> bool {
        let mut left = self.left();
        let has_room = left.returns.len() < MAX_RETURNS;
        if has_room {
            left.returns.push((file, state));
        }
        drop(left);
        self.wake.notify_one();
        has_room
    }

    /// Records the flags of a SEQUENCE.
    pub(super) fn told(&self, status: u32) {
        let known = status & KNOWN;
        if known != 0 && self.flags.fetch_or(known, Ordering::Relaxed) & known != known {
            self.wake.notify_one();
        }
    }

    /// The server has replied.
    pub(super) fn heard(&self, now: Timestamp) {
        let now = now.as_nanos();
        // Of the calls of one tick, one has to write.
        if self.heard.load(Ordering::Relaxed) < now {
            self.heard.fetch_max(now, Ordering::Relaxed);
        }
    }

    /// When the server last replied.
    pub(super) fn last_heard(&self) -> Timestamp {
        Timestamp::from_nanos(self.heard.load(Ordering::Relaxed))
    }

    /// All the work that is left to do; from now on the driver has it.
    pub(super) fn take(&self) -> Left {
        let mut left = self.left();
        let drivers = left.drivers;
        std::mem::replace(&mut *left, Left { drivers, ..Left::default() })
    }

    /// The files to close; the driver does not get these any more.
    pub(super) fn take_closes(&self) -> Vec<Arc<Held>> {
        std::mem::take(&mut self.left().closes)
    }

    /// The driver begins a piece of work.
    pub(super) fn begin(self: &Arc<Self>) -> AtWork {
        self.at_work.fetch_add(1, Ordering::Relaxed);
        AtWork(self.clone())
    }

    /// Waits until the driver has done all work that was left, if there is a driver.
    pub(super) async fn settled(&self) {
        loop {
            let done = self.done.notified();
            let is_left = {
                let left = self.left();
                left.drivers > 0 && !(left.unfinished.is_empty() && left.closes.is_empty() && left.returns.is_empty())
            };
            if !is_left && self.at_work.load(Ordering::Relaxed) == 0 {
                return;
            }
            done.await;
        }
    }

    pub(super) fn has_flags(&self) -> bool {
        self.flags.load(Ordering::Relaxed) != 0
    }

    pub(super) fn take_flags(&self) -> u32 {
        self.flags.swap(0, Ordering::Relaxed)
    }

    /// The client has gone.
    pub(super) fn end(&self) {
        self.has_ended.store(true, Ordering::Relaxed);
        self.wake.notify_one();
    }

    pub(super) fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::Relaxed)
    }

    /// The client is ending, until it registers again: work that fails now is not tried again.
    pub(super) fn ending(&self, is_ending: bool) {
        self.is_ending.store(is_ending, Ordering::Relaxed);
    }

    pub(super) fn is_ending(&self) -> bool {
        self.is_ending.load(Ordering::Relaxed)
    }

    /// Waits until there is new work, or the client has gone.
    pub(super) async fn woken(&self) {
        self.wake.notified().await;
    }
}
