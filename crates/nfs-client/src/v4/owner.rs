//! Owners of opens. Each has at most one file open at a time, so that no two opens share an owner. An owner that has
//! closed its file is used again, because in minor version 0 a new one costs a call (OPEN_CONFIRM).
//!
//! In minor version 0 an owner numbers its operations (RFC 7530 section 9.1.7). If the outcome of an operation is
//! unknown, its number may be used or not: the next operation tries this number first, and then the next one if the
//! server says so.

use super::reply::Reply;
use rpcrdma_nfs::v4::{Op, OwnerName, Status};
use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError,
    atomic::{AtomicU64, Ordering},
};

/// The most owners without an open file that are kept.
const MAX_IDLE: usize = 256;

/// Numbers the operations of an owner in minor version 0.
#[derive(Debug, Default)]
pub(super) struct Counter {
    next: u32,
    /// Whether an operation of that number is on its way, or its outcome is unknown.
    is_doubtful: bool,
}

impl Counter {
    /// The number for an operation that goes out now.
    pub(super) fn begin(&mut self) -> u32 {
        self.is_doubtful = true;
        self.next
    }

    /// Evaluates the reply to an operation. Returns true if it should be tried with the next number.
    pub(super) fn seen(&mut self, reply: &Reply, op: Op, was_doubtful: bool) -> bool {
        let status = match reply.failed {
            Some(failed) if failed.op == op => failed.status,
            Some(_) if !reply.has_done(op) => {
                self.is_doubtful = was_doubtful;
                return false;
            }
            _ => Status::OK,
        };
        self.is_doubtful = false;
        let try_next = status == Status::BAD_SEQID && was_doubtful;
        if status.is_counted() || try_next {
            self.next = self.next.wrapping_add(1);
        }
        try_next
    }

    /// Whether it is unknown if the next number was used.
    pub(super) fn is_doubtful(&self) -> bool {
        self.is_doubtful
    }
}

/// An owner of opens.
#[derive(Debug)]
pub(super) struct OpenOwner {
    pub(super) name: OwnerName,
    /// Held by the caller whose operation uses the number.
    pub(super) turn: tokio::sync::Mutex<()>,
    counter: Mutex<(Counter, bool)>,
}

impl OpenOwner {
    fn counter(&self) -> MutexGuard<'_, (Counter, bool)> {
        self.counter.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number for an operation that goes out now.
    pub(super) fn begin(&self) -> u32 {
        let mut counter = self.counter();
        counter.1 = counter.0.is_doubtful();
        counter.0.begin()
    }

    /// Evaluates the reply to an operation. Returns true if it should be tried with the next number.
    pub(super) fn seen(&self, reply: &Reply, op: Op) -> bool {
        let mut counter = self.counter();
        let was_doubtful = counter.1;
        counter.0.seen(reply, op, was_doubtful)
    }
}

/// The owners of a client.
#[derive(Debug, Default)]
pub(super) struct Owners {
    made: AtomicU64,
    idle: Mutex<Vec<Arc<OpenOwner>>>,
}

impl Owners {
    fn idle(&self) -> MutexGuard<'_, Vec<Arc<OpenOwner>>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An owner that has nothing open.
    pub(super) fn take(&self) -> Arc<OpenOwner> {
        if let Some(owner) = self.idle().pop() {
            return owner;
        }
        let name = OwnerName::from(format!("open {}", self.made.fetch_add(1, Ordering::Relaxed)).as_str());
        Arc::new(OpenOwner { name, turn: tokio::sync::Mutex::new(()), counter: Mutex::default() })
    }

    /// An owner has nothing open any more. If its number is doubtful, it is forgotten.
    pub(super) fn put(&self, owner: Arc<OpenOwner>) {
        let is_doubtful = owner.counter().0.is_doubtful();
        let mut idle = self.idle();
        if !is_doubtful && idle.len() < MAX_IDLE {
            idle.push(owner);
        }
    }
}
