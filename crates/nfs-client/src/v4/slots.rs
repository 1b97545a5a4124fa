//! The slots of a session: which call uses which slot, with which number (RFC 8881 section 2.10.6).
//!
//! A slot's number advances only when the client knows that the server has seen the call. If a call ends otherwise, by
//! an error of the transport or because its caller has gone away, its slot is doubtful: the next user of the slot
//! probes it first (ULB-5.5-b, -c).

use rpcrdma_nfs::v4::ops::SequenceOk;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// The most slots that the client uses, whatever a server grants.
pub(super) const MAX_SLOTS: u32 = 64;

#[derive(Clone, Copy, Debug)]
struct Slot {
    /// The number of its next call.
    next: u32,
    busy: bool,
    /// Whether the call with number `next` was sent, and its outcome is unknown.
    doubtful: bool,
}

const FRESH: Slot = Slot { next: 1, busy: false, doubtful: false };
/// A slot that the server has given up, according to the server. If it comes back, its numbers start again on the
/// server too. The client tests that before it uses the slot: if the server has kept the slot after all, it could take
/// a call with number 1 for a repetition, and answer with the reply to another call.
const GIVEN_UP: Slot = Slot { next: 1, busy: false, doubtful: true };

#[derive(Debug)]
struct Table {
    slots: Vec<Slot>,
    /// How many of them the client may use now, at least one.
    usable: usize,
}

/// The slots of a session.
#[derive(Debug)]
pub(super) struct Slots {
    table: Mutex<Table>,
    freed: Notify,
}

/// A slot in use. Dropping it gives it back: as doubtful, if a call was sent and not settled.
#[derive(Debug)]
pub(super) struct Taken<'a> {
    slots: &'a Slots,
    index: usize,
    /// The number for the next call.
    pub(super) number: u32,
    /// Whether a call with this number was sent before, and its outcome is unknown.
    pub(super) is_doubtful: bool,
    /// Whether a call is on its way.
    is_sent: bool,
}

impl Slots {
    /// As many slots as a server grants, at least one.
    pub(super) fn new(granted: u32) -> Self {
        let count = granted.clamp(1, MAX_SLOTS) as usize;
        Self { table: Mutex::new(Table { slots: vec![FRESH; count], usable: count }), freed: Notify::new() }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the lowest free slot, as soon as there is one.
    pub(super) async fn take(&self) -> Taken<'_> {
        loop {
            let freed = self.freed.notified();
            if let Some(taken) = self.try_take() {
                return taken;
            }
            freed.await;
        }
    }

    fn try_take(&self) -> Option<Taken<'_>> {
        let mut table = self.table();
        let usable = table.usable;
        let index = table.slots.iter().take(usable).position(|slot| !slot.busy)?;
        let slot = table.slots.get_mut(index)?;
        slot.busy = true;
        Some(Taken { slots: self, index, number: slot.next, is_doubtful: slot.doubtful, is_sent: false })
    }

    /// The highest slot that is in use.
    pub(super) fn highest(&self) -> u32 {
        self.table().slots.iter().rposition(|slot| slot.busy).unwrap_or(0) as u32
    }

    /// Whether the call with this number is under way in this slot.
    pub(super) fn is_under_way(&self, slot: u32, number: u32) -> bool {
        self.table().slots.get(slot as usize).is_some_and(|slot| slot.busy && slot.next == number)
    }

    /// Adapts to what SEQUENCE says about slots. If a slot comes back that the server had given up, its numbers start
    /// again.
    pub(super) fn follow(&self, told: &SequenceOk) {
        let mut table = self.table();
        let kept = (told.highest_slot as usize).saturating_add(1);
        table.slots.iter_mut().skip(kept).filter(|slot| !slot.busy).for_each(|slot| *slot = GIVEN_UP);
        let wanted = (told.target_highest_slot as usize).saturating_add(1).min(kept);
        let was = table.usable;
        table.usable = wanted.clamp(1, table.slots.len());
        let has_grown = table.usable > was;
        drop(table);
        if has_grown {
            self.freed.notify_waiters();
        }
    }

    /// The server wants the client to use no slot above this one.
    pub(super) fn shrink(&self, highest: u32) {
        let mut table = self.table();
        table.usable = table.usable.min((highest as usize).saturating_add(1)).max(1);
    }
}

impl Taken<'_> {
    /// Which slot.
    pub(super) fn slot(&self) -> u32 {
        self.index as u32
    }

    /// The call with this number goes out now.
    pub(super) fn sending(&mut self) {
        self.is_sent = true;
    }

    /// The server has seen the call: the next call has the next number.
    pub(super) fn advance(&mut self) {
        self.number = self.number.wrapping_add(1);
        (self.is_doubtful, self.is_sent) = (false, false);
    }

    /// The server has refused the call, and the slot is unchanged.
    pub(super) fn keep(&mut self) {
        self.is_sent = false;
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        let mut table = self.slots.table();
        if let Some(slot) = table.slots.get_mut(self.index) {
            // ULB-5.5-c
            *slot = Slot { next: self.number, busy: false, doubtful: self.is_doubtful || self.is_sent };
        }
        drop(table);
        self.slots.freed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rpcrdma_nfs::v4::SessionId;
    use std::task::{Context, Waker};

    fn told(highest_slot: u32, target_highest_slot: u32) -> SequenceOk {
        SequenceOk { session: SessionId([0; 16]), sequence: 1, slot: 0, highest_slot, target_highest_slot, status: 0 }
    }

    #[tokio::test]
    async fn a_number_advances_when_its_call_is_known_to_be_seen() {
        let slots = Slots::new(1);
        let mut taken = slots.take().await;
        assert_eq!((taken.number, taken.is_doubtful), (1, false));
        taken.sending();
        taken.advance();
        drop(taken);
        let mut taken = slots.take().await;
        assert_eq!((taken.number, taken.is_doubtful), (2, false));
        taken.sending();
        drop(taken);
        let mut taken = slots.take().await;
        assert_eq!((taken.number, taken.is_doubtful), (2, true), "nobody knows what became of the call");
        taken.sending();
        taken.keep();
        drop(taken);
        let mut taken = slots.take().await;
        assert_eq!((taken.number, taken.is_doubtful), (2, true), "a refused probe tells nothing");
        taken.advance();
        drop(taken);
        assert_eq!(slots.take().await.number, 3);
    }

    #[tokio::test]
    async fn slots_follow_the_server_down_and_up() {
        let slots = Slots::new(4);
        let first = slots.take().await;
        slots.follow(&told(3, 0));
        assert!(slots.try_take().is_none(), "one slot alone is wanted");
        slots.follow(&told(3, 2));
        let mut second = slots.try_take().unwrap();
        assert_eq!((second.slot(), slots.highest()), (1, 1));
        second.advance();
        assert!(slots.is_under_way(1, 1));
        drop(second);
        slots.follow(&told(3, u32::MAX));
        assert_eq!(slots.try_take().unwrap().number, 2, "it was kept");
        slots.follow(&told(0, 0));
        slots.follow(&told(3, 3));
        let given_up = slots.try_take().unwrap();
        assert_eq!(
            (given_up.number, given_up.is_doubtful),
            (1, true),
            "it was given up and begins anew, if that is so"
        );
        drop(given_up);
        slots.shrink(0);
        assert!(slots.try_take().is_none());
        drop(first);
        assert!(slots.try_take().is_some());
    }

    #[tokio::test]
    async fn who_waits_for_a_slot_gets_it() {
        let slots = Slots::new(0);
        let taken = slots.take().await;
        let (mut waiting, mut also) = (Box::pin(slots.take()), Box::pin(slots.take()));
        let cx = &mut Context::from_waker(Waker::noop());
        assert!(waiting.as_mut().poll(cx).is_pending() && also.as_mut().poll(cx).is_pending());
        drop(taken);
        drop(waiting.await);
        assert_eq!(also.await.slot(), 0);
    }
}
