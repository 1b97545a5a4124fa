//! What is left for a client's driver to do: files to close, stateids to free, delegations to return, and what SEQUENCE
//! has told.

use super::held::Held;
use rpcrdma_env::Timestamp;
use rpcrdma_nfs::v4::{Handle, StateId, ops::sequence_status};
use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError,
    atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
};
use tokio::sync::Notify;

/// Flags of SEQUENCE that say that something was taken away.
pub(super) const REVOKED: u32 = sequence_status::EXPIRED_ALL_STATE_REVOKED
    | sequence_status::EXPIRED_SOME_STATE_REVOKED
    | sequence_status::ADMIN_STATE_REVOKED
    | sequence_status::RECALLABLE_STATE_REVOKED;
/// Flags that say that the server cannot call.
pub(super) const PATH_DOWN: u32 = sequence_status::CB_PATH_DOWN | sequence_status::CB_PATH_DOWN_SESSION;
/// Flags that something is done about.
const KNOWN: u32 = REVOKED | PATH_DOWN | sequence_status::BACKCHANNEL_FAULT | sequence_status::LEASE_MOVED;
/// The most stateids that wait for being freed; the server frees the others with the client.
const MAX_FREES: usize = 4_096;

/// What is left to do.
#[derive(Debug, Default)]
pub(super) struct Left {
    pub(super) closes: Vec<Arc<Held>>,
    pub(super) frees: Vec<StateId>,
    pub(super) returns: Vec<(Handle, StateId)>,
}

/// Where it is left.
#[derive(Debug, Default)]
pub(super) struct Duties {
    left: Mutex<Left>,
    flags: AtomicU32,
    /// When the server was heard of last, in nanoseconds of the clock.
    heard: AtomicU64,
    has_ended: AtomicBool,
    wake: Notify,
}

impl Duties {
    fn left(&self) -> MutexGuard<'_, Left> {
        self.left.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A file that nobody uses any more is to be closed.
    pub(super) fn close(&self, held: Arc<Held>) {
        self.left().closes.push(held);
        self.wake.notify_one();
    }

    /// A stateid that the server has revoked is to be freed.
    pub(super) fn free(&self, state: StateId) {
        let mut left = self.left();
        if left.frees.len() < MAX_FREES {
            left.frees.push(state);
        }
        drop(left);
        self.wake.notify_one();
    }

    /// A delegation is to be returned.
    pub(super) fn give_back(&self, file: Handle, state: StateId) {
        self.left().returns.push((file, state));
        self.wake.notify_one();
    }

    /// What SEQUENCE has told.
    pub(super) fn told(&self, status: u32) {
        let known = status & KNOWN;
        if known != 0 && self.flags.fetch_or(known, Ordering::Relaxed) & known != known {
            self.wake.notify_one();
        }
    }

    /// The server has answered.
    pub(super) fn heard(&self, now: Timestamp) {
        self.heard.fetch_max(now.as_nanos(), Ordering::Relaxed);
    }

    /// When it has answered last.
    pub(super) fn last_heard(&self) -> Timestamp {
        Timestamp::from_nanos(self.heard.load(Ordering::Relaxed))
    }

    pub(super) fn take(&self) -> Left {
        std::mem::take(&mut *self.left())
    }

    /// The files that are to be closed, which the driver then does not find.
    pub(super) fn take_closes(&self) -> Vec<Arc<Held>> {
        std::mem::take(&mut self.left().closes)
    }

    pub(super) fn has_flags(&self) -> bool {
        self.flags.load(Ordering::Relaxed) != 0
    }

    pub(super) fn take_flags(&self) -> u32 {
        self.flags.swap(0, Ordering::Relaxed)
    }

    /// The client is gone.
    pub(super) fn end(&self) {
        self.has_ended.store(true, Ordering::Relaxed);
        self.wake.notify_one();
    }

    pub(super) fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::Relaxed)
    }

    /// Something was left to do, or the client is gone.
    pub(super) async fn woken(&self) {
        self.wake.notified().await;
    }
}
