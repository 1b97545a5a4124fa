//! One session, and a call on one of its slots (RFC 8881 sections 2.10.2, 18.46).
//!
//! A [`SlotGuard`] owns the slot while its COMPOUND runs, and keeps the lease from ending; when it is dropped, in
//! whatever way, it gives both back.

use super::{
    backchannel::{BackChannel, Standing},
    channel::{Channel, Reservation},
    clients::Client,
    connections::Connections,
    flags,
    slots::Slots,
};
use rpcrdma_env::Timestamp;
use rpcrdma_nfs::v4::SessionId;
use rpcrdma_xdr::Payload;
use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

/// The results of SEQUENCE that do not come from its arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Told {
    /// `sr_highest_slotid`.
    pub(crate) highest: u32,
    /// `sr_target_highest_slotid`.
    pub(crate) target: u32,
    /// `sr_status_flags`.
    pub(crate) flags: u32,
}

/// How to handle a COMPOUND with SEQUENCE.
#[derive(Debug)]
pub(crate) enum Begin<P> {
    /// A new call: execute it, and [`finish`](SlotGuard::finish).
    New(SlotGuard<P>),
    /// A repetition: this is the whole reply.
    Replay(Payload),
    /// A repetition whose reply was not kept: answer SEQUENCE with this, and the next operation, if there is one, with
    /// RETRY_UNCACHED_REP.
    Uncached(Told),
}

/// A slot in use. If it is dropped without [`finish`](Self::finish), the call counts as executed, with a reply that was
/// not kept.
#[derive(Debug)]
pub(crate) struct SlotGuard<P> {
    pub(super) session: Arc<Session<P>>,
    pub(super) slot: u32,
    pub(super) told: Told,
    pub(super) is_finished: bool,
}

impl<P> SlotGuard<P> {
    /// The results of SEQUENCE.
    pub(crate) fn told(&self) -> Told {
        self.told
    }

    /// The session.
    pub(crate) fn session(&self) -> &Arc<Session<P>> {
        &self.session
    }

    /// The COMPOUND is done, with this reply. Returns whether the slot keeps the reply: the caller has made sure that a
    /// reply to be cached is not larger than `ca_maxresponsesize_cached`.
    pub(crate) fn finish(self, reply: &Payload, now: Timestamp) -> bool {
        self.end(Some(reply), now)
    }

    /// The same for a reply that the slot does not have to keep.
    pub(crate) fn finish_unkept(self, now: Timestamp) {
        self.end(None, now);
    }

    fn end(mut self, reply: Option<&Payload>, now: Timestamp) -> bool {
        self.is_finished = true;
        let is_kept = self.session.slots.finish(self.slot, reply);
        self.session.client.lease.leave(Some(now));
        is_kept
    }
}

impl<P> Drop for SlotGuard<P> {
    fn drop(&mut self) {
        if !self.is_finished {
            self.session.slots.finish(self.slot, None);
            self.session.client.lease.leave(None);
        }
    }
}

/// A session.
pub(crate) struct Session<P> {
    pub(super) id: SessionId,
    pub(super) client: Arc<Client<P>>,
    /// The fore channel.
    pub(crate) fore: Channel,
    /// The back channel.
    pub(crate) back: Channel,
    /// Calls over the back channel.
    pub(crate) calls: BackChannel,
    pub(super) slots: Slots,
    pub(super) memory: Reservation,
    pub(super) connections: Mutex<Connections>,
    pub(super) has_back: AtomicBool,
    pub(super) had_back: AtomicBool,
    pub(super) is_ended: AtomicBool,
}

impl<P> std::fmt::Debug for Session<P> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session").field("id", &self.id).field("client", &self.client).finish_non_exhaustive()
    }
}

impl<P> Session<P> {
    /// Its id.
    pub(crate) fn id(&self) -> SessionId {
        self.id
    }

    /// Its client.
    pub(crate) fn client(&self) -> &Arc<Client<P>> {
        &self.client
    }

    /// Asks the client to give up slots above `target` (`sr_target_highest_slotid`). Their memory is free once the
    /// client agrees. Only tests use this so far: the server takes no memory back from sessions.
    #[cfg(test)]
    pub(crate) fn aim(&self, target: u32) {
        self.slots.aim(target);
    }

    /// Whether a call is the last one of its slot: the client may not have its reply yet.
    pub(crate) fn is_last(&self, slot: u32, sequence: u32) -> bool {
        self.slots.is_last(slot, sequence)
    }

    /// The connections that the server may call over.
    pub(crate) fn back_connections(&self) -> Vec<u64> {
        self.connections().back().collect()
    }

    /// Sets a slot as if it had had this many calls.
    #[cfg(test)]
    pub(super) fn set_sequence(&self, slot: u32, sequence: u32) {
        self.slots.set_sequence(slot, sequence);
    }

    /// Whether it has ended. Under the lock of its connections, the answer stays true.
    pub(super) fn is_ended(&self) -> bool {
        self.is_ended.load(Ordering::Acquire)
    }

    pub(super) fn connections(&self) -> MutexGuard<'_, Connections> {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the connections, and what the session knows of the back channel with them.
    pub(super) fn with_connections<T>(&self, f: impl FnOnce(&mut Connections) -> T) -> T {
        let mut connections = self.connections();
        let result = f(&mut connections);
        let has_back = connections.back().next().is_some() && self.calls.standing() != Standing::Down;
        // Only under this lock does it change.
        if self.has_back.load(Ordering::Relaxed) != has_back {
            self.has_back.store(has_back, Ordering::Relaxed);
            if has_back {
                self.had_back.store(true, Ordering::Relaxed);
                self.client.had_back.store(true, Ordering::Relaxed);
                self.client.backs.fetch_add(1, Ordering::Relaxed);
            } else {
                self.client.backs.fetch_sub(1, Ordering::Relaxed);
            }
        }
        result
    }

    /// Sets whether the client answers calls, which SEQUENCE reports.
    pub(crate) fn set_standing(&self, standing: Standing) {
        if self.calls.set_standing(standing) {
            self.with_connections(|_| ());
        }
    }

    /// The results of SEQUENCE now. SEQUENCE reports a missing back channel only if there was one: otherwise Linux
    /// would go on binding connections to a server that never calls. It never reports RESTART_RECLAIM_NEEDED: a session
    /// is never older than the server. NFS4-8881-18.46-h.
    // NFS4-8881-18.46-f
    pub(super) fn told(&self, lease: Duration) -> Told {
        let (highest, target) = self.slots.highest();
        let has = |flag: &AtomicBool| flag.load(Ordering::Relaxed);
        let mut told = Told { highest, target, flags: self.client.held.flags() | self.calls.context_flags(lease) };
        if has(&self.had_back) && !has(&self.has_back) {
            told.flags |= flags::CB_PATH_DOWN_SESSION;
        }
        if has(&self.had_back) && self.calls.is_broken() {
            told.flags |= flags::BACKCHANNEL_FAULT;
        }
        if has(&self.client.had_back) && self.client.backs.load(Ordering::Relaxed) == 0 {
            told.flags |= flags::CB_PATH_DOWN;
        }
        told
    }
}
