//! Copies of a client that go on after COPY's reply (RFC 7862 sections 4.8, 15.2, 15.8, 15.9): how far each has come,
//! and how it has ended.
//!
//! A stateid of the client names a copy; it cannot replace the stateid of an open. The server knows a copy until the
//! client has acknowledged its end, has cancelled it or is gone, or until [`KEPT`] after its end. Before each piece the
//! copying code asks whether to go on; it holds [`Running`] as long as it writes, and the code that cancels waits for
//! that. A client has only a few copies at a time, including those that have ended and are still known. Nothing here
//! sleeps.

use super::{
    clients::{Client, Principal},
    stateids::check_sequence,
};
use crate::claims::FileKey;
use rpcrdma_env::Timestamp;
use rpcrdma_nfs::v4::{StateId, StateIdOther, Status, ops::WriteResponse};
use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU8, AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio::sync::watch;

/// The most copies of a client that go on, or have ended and are still known. Each reads and writes as fast as the
/// client's share of the threads allows; another copy would not make that faster. Linux's client has one for each
/// program that copies.
pub(crate) const MAX_COPIES: usize = 4;

/// How long the server remembers the end of a copy that it could not report to the client. Linux's client asks after
/// some seconds.
pub(crate) const KEPT: Duration = Duration::from_secs(10 * 60);

/// The sequence number of a copy's stateid: it never changes.
const SEQUENCE: u32 = 1;

/// The client has cancelled the copy.
const CANCELLED: u8 = 1;
/// No task works on the copy any more.
const DONE: u8 = 2;

/// How a copy has ended: with the results that COPY would have had, or with the status of the error.
pub(crate) type Ended = Result<WriteResponse, Status>;

/// The copies of one client.
#[derive(Debug, Default)]
pub(crate) struct Copies {
    copies: Mutex<Vec<Arc<Copying>>>,
}

/// A copy.
#[derive(Debug)]
pub(crate) struct Copying {
    /// The copy's stateid.
    pub(crate) id: StateId,
    file: FileKey,
    principal: Principal,
    copied: AtomicU64,
    /// [`CANCELLED`] and [`DONE`] in one place: if two tasks set a bit at once, the later one sees the other's.
    flags: AtomicU8,
    ended: Mutex<Option<(Timestamp, Ended)>>,
    /// The writing task has the other end.
    stopped: watch::Receiver<()>,
}

/// The copying code holds this. The copy has stopped when it is dropped.
pub(crate) struct Running {
    /// The copy.
    pub(crate) copying: Arc<Copying>,
    _writes: watch::Sender<()>,
}

impl Copying {
    fn ended(&self) -> MutexGuard<'_, Option<(Timestamp, Ended)>> {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The task has copied this many more bytes.
    pub(crate) fn add(&self, octets: u64) {
        self.copied.fetch_add(octets, Ordering::Relaxed);
    }

    /// How many bytes were copied.
    pub(crate) fn copied(&self) -> u64 {
        self.copied.load(Ordering::Relaxed)
    }

    /// Whether the client has cancelled it.
    pub(crate) fn is_cancelled(&self) -> bool {
        self.flags.load(Ordering::Acquire) & CANCELLED != 0
    }

    /// The client cancels it. Returns whether no task works on it any more.
    fn cancel(&self) -> bool {
        self.flags.fetch_or(CANCELLED, Ordering::AcqRel) & DONE != 0
    }

    /// How it has ended, if it has ended.
    pub(crate) fn outcome(&self) -> Option<Ended> {
        self.ended().as_ref().map(|(_, ended)| *ended)
    }

    /// It has ended.
    pub(crate) fn end(&self, now: Timestamp, ended: Ended) {
        *self.ended() = Some((now, ended));
    }

    /// No task works on it any more: the client knows the end, or the server has given up. Returns whether the client
    /// has cancelled it: then it must be forgotten.
    #[must_use]
    pub(crate) fn done(&self) -> bool {
        self.flags.fetch_or(DONE, Ordering::AcqRel) & CANCELLED != 0
    }

    /// Completes when no task writes for it any more.
    pub(crate) async fn stopped(&self) {
        // Nobody ever sends a value: this completes when the other end is dropped.
        while self.stopped.clone().changed().await.is_ok() {}
    }

    fn is_known(&self, now: Timestamp) -> bool {
        self.flags.load(Ordering::Acquire) & DONE == 0
            // NFS4-7862-15.9.3-a
            || self.ended().as_ref().is_none_or(|(when, _)| now.since(*when) < KEPT)
    }
}

impl Copies {
    fn lock(&self) -> MutexGuard<'_, Vec<Arc<Copying>>> {
        self.copies.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<P> Client<P> {
    fn forget_copies(&self, is_over: impl Fn(&Copying) -> bool) {
        self.copies.lock().retain(|copy| {
            let is_over = is_over(copy);
            if is_over {
                self.held.unname(copy.id.other);
            }
            !is_over
        });
    }

    /// A copy to a file begins. `None` if the client already has as many as it may.
    ///
    /// # Errors
    /// EXPIRED if the client has ended.
    pub(crate) fn begin_copy(
        &self,
        file: FileKey,
        principal: Principal,
        now: Timestamp,
    ) -> Result<Option<Running>, Status> {
        self.forget_copies(|copy| !copy.is_known(now));
        let mut copies = self.copies.lock();
        // NFS4-LIMITS-COPIES-a
        if copies.len() >= MAX_COPIES {
            return Ok(None);
        }
        let id = StateId { sequence: SEQUENCE, other: self.held.name()? };
        let (writes, stopped) = watch::channel(());
        let copying = Arc::new(Copying {
            id,
            file,
            principal,
            copied: AtomicU64::new(0),
            flags: AtomicU8::new(0),
            ended: Mutex::default(),
            stopped,
        });
        copies.push(copying.clone());
        Ok(Some(Running { copying, _writes: writes }))
    }

    /// The copy of a stateid, to this file.
    ///
    /// # Errors
    /// BAD_STATEID, also for the sequence number 0, which means nothing here (RFC 7862 section 4.8); OLD_STATEID.
    // NFS4-7862-4.8-a
    pub(crate) fn copy(&self, id: StateId, file: FileKey, now: Timestamp) -> Result<Arc<Copying>, Status> {
        self.forget_copies(|copy| !copy.is_known(now));
        let copies = self.copies.lock();
        let found = copies.iter().find(|copy| copy.id.other == id.other && copy.file == file && !copy.is_cancelled());
        let found = found.filter(|_| id.sequence != 0).ok_or(Status::BAD_STATEID)?;
        check_sequence(id.sequence, SEQUENCE)?;
        Ok(found.clone())
    }

    /// The client cancels a copy. The copy counts as one of its copies until no task works on it: otherwise copies that
    /// end at once and are cancelled could have any number of calls to their client under way. Only the principal that
    /// asked for the copy may cancel it (RFC 7862 section 4.1.2).
    ///
    /// # Errors
    /// As [`copy`](Self::copy).
    pub(crate) fn cancel_copy(
        &self,
        id: StateId,
        file: FileKey,
        principal: Principal,
        now: Timestamp,
    ) -> Result<Arc<Copying>, Status> {
        let copy = self.copy(id, file, now)?;
        // NFS4-7862-4.1.2-a
        if copy.principal != principal {
            return Err(Status::BAD_STATEID);
        }
        if copy.cancel() {
            self.forget_copy(id.other);
        }
        Ok(copy)
    }

    /// The server forgets a copy.
    pub(crate) fn forget_copy(&self, name: StateIdOther) {
        self.forget_copies(|copy| copy.id.other == name);
    }

    /// All copies that the server knows.
    #[cfg(test)]
    pub(crate) fn known_copies(&self) -> Vec<Arc<Copying>> {
        self.copies.lock().clone()
    }
}
