//! The server's side of a session's back channel: the credential for calls, the slots, and whether the client answers
//! (RFC 8881 sections 2.10.6, 18.33, 20.9).
//!
//! A slot's number advances only when the server knows that the client has executed the call. If the outcome is
//! unknown, the server does not use the slot again over the connection that carried the call: once that has ended, a
//! CB_SEQUENCE with the same number finds out. No network here: the caller takes a slot, and settles it. Locks are held
//! only for a moment.

use super::callers::Callers;
use rpcrdma_oncrpc::ClientFlavour;
use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use tokio::sync::Notify;

/// The most calls that are under way to a client in one session. Linux's client has this many slots, and its server
/// uses two of them: many recalls at once go in rounds.
pub(crate) const MAX_CALLBACK_SLOTS: u32 = 16;

/// Whether the client answers calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// The server has not called it yet.
    Unproven,
    /// It has answered the last call.
    Proven,
    /// It has not answered, or has answered that no call is possible.
    Down,
}

/// The state of a slot, with the number of the last call that the client has executed on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Slot {
    Free {
        last: u32,
    },
    Taken {
        last: u32,
    },
    /// A call went over this connection, and the server does not know whether it was executed.
    Doubtful {
        last: u32,
        connection: u64,
    },
    /// Client and server disagree on the slot's number.
    Broken,
}

/// A slot that was taken for one call. It must be settled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TakenSlot {
    /// Its index.
    pub(crate) slot: u32,
    /// The number of the call.
    pub(crate) sequence: u32,
    /// The highest slot in use.
    pub(crate) highest: u32,
    /// The client may have executed a call with this number: before any other call, a CB_SEQUENCE alone has to find
    /// out.
    pub(crate) is_doubtful: bool,
}

/// How a call has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Settled {
    /// The client has executed it.
    Executed,
    /// The client has not executed it, and will not.
    NotExecuted,
    /// The outcome is unknown; the call went over this connection.
    Unknown {
        /// The connection.
        connection: u64,
    },
    /// The client counts otherwise than the server: the slot is not used any more.
    Broken,
}

struct Inner {
    program: u32,
    callers: Callers,
    slots: Vec<Slot>,
    /// How many slots the client lets the server use.
    allowed: u32,
    standing: Standing,
    /// Whether a probe is under way, and whether another has to follow it.
    probes: (bool, bool),
    is_ended: bool,
}

/// The back channel of a session.
pub(crate) struct BackChannel {
    inner: Mutex<Inner>,
    /// Notified when a waiting call may be able to go on.
    changed: Notify,
    /// The client's minor version.
    minor: u32,
    /// Whether the client has named contexts: if not, SEQUENCE need not look at them.
    has_contexts: AtomicBool,
}

impl std::fmt::Debug for BackChannel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BackChannel").field("standing", &self.standing()).finish_non_exhaustive()
    }
}

impl BackChannel {
    /// A back channel over which no call was made yet. The client offers `slots`; without callers there is never a
    /// call.
    pub(crate) fn new(minor: u32, program: u32, callers: Callers, slots: u32) -> Self {
        let slots = slots.clamp(1, MAX_CALLBACK_SLOTS);
        let has_contexts = AtomicBool::new(callers.has_contexts());
        let inner = Inner {
            program,
            callers,
            slots: vec![Slot::Free { last: 0 }; slots as usize],
            allowed: slots,
            standing: Standing::Unproven,
            probes: (false, false),
            is_ended: false,
        };
        Self { inner: Mutex::new(inner), changed: Notify::new(), minor, has_contexts }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The minor version of its calls.
    pub(crate) fn minor(&self) -> u32 {
        self.minor
    }

    /// The program to call and the credential to use, if a call is possible now.
    pub(crate) fn program(&self) -> (u32, Option<Arc<dyn ClientFlavour>>) {
        let inner = self.inner();
        (inner.program, inner.callers.usable())
    }

    /// The same, if the server calls the client in a context.
    pub(crate) fn signed(&self) -> (u32, Option<Arc<dyn ClientFlavour>>) {
        let inner = self.inner();
        (inner.program, inner.callers.context())
    }

    /// Whether the client has named credentials for calls to it.
    pub(crate) fn has_callers(&self) -> bool {
        !self.inner().callers.is_empty()
    }

    /// BACKCHANNEL_CTL. Returns whether the program has changed: then it is unknown whether it answers.
    pub(crate) fn control(&self, program: u32, callers: Callers) -> bool {
        let mut inner = self.inner();
        inner.callers.add(callers);
        self.has_contexts.store(inner.callers.has_contexts(), Ordering::Relaxed);
        std::mem::replace(&mut inner.program, program) != program
    }

    /// The flags of SEQUENCE about the contexts that the client has named.
    pub(super) fn context_flags(&self, lease: Duration) -> u32 {
        if self.has_contexts.load(Ordering::Relaxed) { self.inner().callers.flags(lease) } else { 0 }
    }

    /// Whether the client answers calls, as far as the server knows.
    pub(crate) fn standing(&self) -> Standing {
        self.inner().standing
    }

    /// Sets whether the client answers calls. Returns whether that is a change.
    pub(super) fn set_standing(&self, standing: Standing) -> bool {
        let before = std::mem::replace(&mut self.inner().standing, standing);
        self.changed.notify_waiters();
        before != standing
    }

    /// Whether to begin a probe now. If one is under way, another follows it.
    pub(crate) fn begin_probe(&self) -> bool {
        let mut inner = self.inner();
        inner.probes = (true, inner.probes.0);
        !inner.probes.1
    }

    /// A probe has ended. Returns whether another has to follow.
    pub(crate) fn end_probe(&self) -> bool {
        let mut inner = self.inner();
        inner.probes = (inner.probes.1, false);
        inner.probes.0
    }

    /// The session has ended: wakes the waiting callers, which see that.
    pub(super) fn end(&self) {
        self.inner().is_ended = true;
        self.changed.notify_waiters();
    }

    /// Whether the session has ended.
    pub(crate) fn is_ended(&self) -> bool {
        self.inner().is_ended
    }

    /// Completes when something has changed since this call: a slot is free, a connection came or went, or the session
    /// has ended.
    pub(crate) fn changed(&self) -> tokio::sync::futures::Notified<'_> {
        self.changed.notified()
    }

    /// A connection has come or gone.
    pub(crate) fn notice(&self) {
        self.changed.notify_waiters();
    }

    /// Completes when the session has ended.
    pub(crate) async fn until_ended(&self) {
        loop {
            let changed = self.changed.notified();
            let mut changed = std::pin::pin!(changed);
            changed.as_mut().enable();
            if self.is_ended() {
                return;
            }
            changed.await;
        }
    }

    /// Takes the lowest slot that is free, or that is doubtful and whose connection has ended.
    // NFS4-8881-20.9-b
    pub(crate) fn take(&self, is_gone: impl Fn(u64) -> bool) -> Option<TakenSlot> {
        let mut inner = self.inner();
        let allowed = inner.allowed as usize;
        let usable = |slot: &Slot| match slot {
            Slot::Free { .. } => true,
            // NFS4-8881-2.10.6.2-c
            Slot::Doubtful { connection, .. } => is_gone(*connection),
            Slot::Taken { .. } | Slot::Broken => false,
        };
        let at = inner.slots.iter().take(allowed).position(usable)?;
        let slot = inner.slots.get_mut(at)?;
        let (last, is_doubtful) = match *slot {
            Slot::Free { last } => (last, false),
            Slot::Doubtful { last, .. } => (last, true),
            Slot::Taken { .. } | Slot::Broken => return None,
        };
        *slot = Slot::Taken { last };
        let in_use = |slot: &Slot| matches!(slot, Slot::Taken { .. } | Slot::Doubtful { .. });
        let highest = inner.slots.iter().rposition(in_use).unwrap_or(at).max(at);
        let number = |at: usize| u32::try_from(at).unwrap_or(u32::MAX);
        Some(TakenSlot { slot: number(at), sequence: last.wrapping_add(1), highest: number(highest), is_doubtful })
    }

    /// A call on a slot has ended.
    // NFS4-8881-2.10.6.2-b
    pub(crate) fn settle(&self, taken: TakenSlot, settled: Settled) {
        let mut inner = self.inner();
        if let Some(slot) = inner.slots.get_mut(taken.slot as usize) {
            let last = taken.sequence.wrapping_sub(1);
            *slot = match settled {
                Settled::Executed => Slot::Free { last: taken.sequence },
                // NFS4-8881-20.9-a
                Settled::NotExecuted => Slot::Free { last },
                Settled::Unknown { connection } => Slot::Doubtful { last, connection },
                Settled::Broken => Slot::Broken,
            };
        }
        drop(inner);
        self.changed.notify_waiters();
    }

    /// The client wants the server to use no slot above this one (`csr_target_highest_slotid`), or does not have higher
    /// ones.
    // NFS4-8881-20.9-c
    pub(crate) fn aim(&self, highest: u32) {
        let mut inner = self.inner();
        let all = u32::try_from(inner.slots.len()).unwrap_or(u32::MAX);
        inner.allowed = highest.saturating_add(1).min(all);
        drop(inner);
        self.changed.notify_waiters();
    }

    /// Whether no slot of this session can ever be used again.
    pub(crate) fn is_broken(&self) -> bool {
        let inner = self.inner();
        inner.slots.iter().take(inner.allowed as usize).all(|slot| *slot == Slot::Broken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn channel(slots: u32) -> BackChannel {
        BackChannel::new(2, 7, Callers::default(), slots)
    }

    fn none(_: u64) -> bool {
        false
    }

    /// proves: NFS4-8881-20.9-b
    #[test]
    fn slots_are_as_many_as_offered_and_no_more_than_the_limit() {
        for (offered, used) in [(0, 1), (1, 1), (2, 2), (MAX_CALLBACK_SLOTS, 16), (MAX_CALLBACK_SLOTS + 1, 16)] {
            let channel = channel(offered);
            let taken: Vec<_> = std::iter::from_fn(|| channel.take(none)).collect();
            assert_eq!(taken.len(), used, "{offered} offered");
            assert!((0..).zip(&taken).all(|(number, taken)| (taken.slot, taken.sequence) == (number, 1)));
        }
    }

    /// proves: NFS4-8881-20.9-a
    #[test]
    fn a_number_advances_only_when_the_call_was_executed() {
        let channel = channel(1);
        let first = channel.take(none).unwrap();
        assert_eq!(channel.take(none), None, "one call at a time");
        channel.settle(first, Settled::NotExecuted);
        let again = channel.take(none).unwrap();
        assert_eq!(again.sequence, 1);
        channel.settle(again, Settled::Executed);
        assert_eq!(channel.take(none).unwrap().sequence, 2);
    }

    /// proves: NFS4-8881-2.10.6.2-c
    #[test]
    fn a_slot_in_doubt_waits_for_the_end_of_its_connection_and_asks_by_the_same_number() {
        let channel = channel(1);
        let first = channel.take(none).unwrap();
        channel.settle(first, Settled::Unknown { connection: 5 });
        assert_eq!(channel.take(|connection| connection != 5), None);
        let doubtful = channel.take(|connection| connection == 5).unwrap();
        assert_eq!((doubtful.sequence, doubtful.is_doubtful), (1, true));
        channel.settle(doubtful, Settled::Executed);
        let next = channel.take(none).unwrap();
        assert_eq!((next.sequence, next.is_doubtful), (2, false));
    }

    #[test]
    fn a_slot_on_which_both_do_not_agree_is_left_alone() {
        let channel = channel(2);
        let first = channel.take(none).unwrap();
        channel.settle(first, Settled::Broken);
        assert!(!channel.is_broken());
        let second = channel.take(none).unwrap();
        assert_eq!(second.slot, 1);
        channel.settle(second, Settled::Broken);
        assert!(channel.is_broken() && channel.take(none).is_none());
    }

    /// proves: NFS4-8881-20.9-c
    #[test]
    fn the_client_takes_slots_back_and_gives_them_again() {
        let channel = channel(4);
        channel.aim(1);
        let taken: Vec<_> = std::iter::from_fn(|| channel.take(none)).collect();
        assert_eq!(taken.len(), 2);
        assert_eq!(taken.iter().map(|taken| taken.highest).collect::<Vec<_>>(), [0, 1]);
        channel.aim(u32::MAX);
        assert_eq!(std::iter::from_fn(|| channel.take(none)).count(), 2, "never more than there are");
        channel.settle(taken[0], Settled::Executed);
        assert_eq!(channel.take(none).unwrap().highest, 3, "the others are in use");
    }

    #[test]
    fn numbers_wrap() {
        let channel = channel(1);
        channel.inner().slots[0] = Slot::Free { last: u32::MAX };
        let taken = channel.take(none).unwrap();
        assert_eq!(taken.sequence, 0);
        channel.settle(taken, Settled::NotExecuted);
        assert_eq!(channel.take(none).unwrap().sequence, 0);
    }
}
