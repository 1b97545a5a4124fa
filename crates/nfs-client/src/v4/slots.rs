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
    /// Whether the call with number `next` was sent, and its outcome is unknown.
    doubtful: bool,
}

const FRESH: Slot = Slot { next: 1, doubtful: false };
/// A slot that the server has given up, according to the server. If it comes back, its numbers start again on the
/// server too. The client tests that before it uses the slot: if the server has kept the slot after all, it could take
/// a call with number 1 for a repetition, and answer with the reply to another call.
const GIVEN_UP: Slot = Slot { next: 1, doubtful: true };

#[derive(Debug)]
struct Table {
    slots: Vec<Slot>,
    /// A bit for each of them that is in use, the lowest for slot 0.
    busy: u64,
    /// How many of them the client may use now, at least one.
    usable: usize,
}

const _: () = assert!(MAX_SLOTS <= u64::BITS);

impl Table {
    fn is_busy(&self, index: usize) -> bool {
        index < self.slots.len() && self.busy >> index & 1 == 1
    }

    /// The highest slot that is in use.
    fn highest(&self) -> u32 {
        self.busy.checked_ilog2().unwrap_or(0)
    }

    /// Adapts to what SEQUENCE says about slots. If a slot comes back that the server had given up, its numbers start
    /// again. Returns whether the client may use more slots than before.
    fn follow(&mut self, told: ToldSlots) -> bool {
        let kept = (told.highest as usize).saturating_add(1);
        let given_up = self.slots.iter_mut().enumerate().skip(kept).filter(|(index, _)| self.busy >> index & 1 == 0);
        given_up.for_each(|(_, slot)| *slot = GIVEN_UP);
        let wanted = (told.target as usize).saturating_add(1).min(kept);
        let was = self.usable;
        self.usable = wanted.clamp(1, self.slots.len());
        self.usable > was
    }
}

/// What SEQUENCE says about slots: the highest that the server keeps, and the highest that the client should use.
#[derive(Clone, Copy, Debug)]
struct ToldSlots {
    highest: u32,
    target: u32,
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
    /// The highest slot that was in use when this one was looked up.
    highest: u32,
    /// What SEQUENCE has said about slots.
    told: Option<ToldSlots>,
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
        Self { table: Mutex::new(Table { slots: vec![FRESH; count], busy: 0, usable: count }), freed: Notify::new() }
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
        let index = table.busy.trailing_ones() as usize;
        if index >= table.usable {
            return None;
        }
        let slot = *table.slots.get(index)?;
        table.busy |= 1 << index;
        let highest = table.highest();
        let Slot { next: number, doubtful: is_doubtful } = slot;
        Some(Taken { slots: self, index, highest, told: None, number, is_doubtful, is_sent: false })
    }

    /// Whether the call with this number is under way in this slot.
    pub(super) fn is_under_way(&self, slot: u32, number: u32) -> bool {
        let (table, slot) = (self.table(), slot as usize);
        table.is_busy(slot) && table.slots.get(slot).is_some_and(|slot| slot.next == number)
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

    /// The highest slot that the client uses (`sa_highest_slotid`).
    pub(super) fn highest(&self) -> u32 {
        self.highest
    }

    /// A probe has ended, and a call follows in this slot: follows what SEQUENCE has said, notes the number of the
    /// call, and looks again which slots are in use.
    pub(super) fn probed(&mut self) {
        let mut table = self.slots.table();
        let has_grown = self.told.take().is_some_and(|told| table.follow(told));
        if let Some(slot) = table.slots.get_mut(self.index) {
            slot.next = self.number;
        }
        self.highest = table.highest();
        drop(table);
        if has_grown {
            self.slots.freed.notify_waiters();
        }
    }

    /// SEQUENCE has said this about slots: the client follows as soon as it gives this slot back, or has
    /// [probed](Self::probed) it.
    pub(super) fn follow(&mut self, told: &SequenceOk) {
        self.told = Some(ToldSlots { highest: told.highest_slot, target: told.target_highest_slot });
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
        let has_grown = self.told.is_some_and(|told| table.follow(told));
        if let Some(slot) = table.slots.get_mut(self.index) {
            // ULB-5.5-c
            *slot = Slot { next: self.number, doubtful: self.is_doubtful || self.is_sent };
        }
        table.busy &= !(1 << self.index);
        drop(table);
        if has_grown {
            self.slots.freed.notify_waiters();
        }
        self.slots.freed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rpcrdma_nfs::v4::SessionId;
    use std::task::{Context, Poll, Waker};

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

    /// A call has ended, and SEQUENCE has said this.
    fn end(mut taken: Taken<'_>, told: &SequenceOk) {
        taken.advance();
        taken.follow(told);
    }

    #[tokio::test]
    async fn slots_follow_the_server_down_and_up() {
        let slots = Slots::new(4);
        let (first, second) = (slots.take().await, slots.take().await);
        assert_eq!((first.highest(), second.highest()), (0, 1));
        end(second, &told(3, 0));
        assert!(slots.try_take().is_none(), "one slot alone is wanted");
        end(first, &told(3, 2));
        let (first, second) = (slots.try_take().unwrap(), slots.try_take().unwrap());
        assert_eq!((second.slot(), second.highest(), second.number), (1, 1, 2));
        assert!(slots.is_under_way(1, 2) && !slots.is_under_way(1, 1) && !slots.is_under_way(2, 1));
        end(second, &told(3, u32::MAX));
        let second = slots.try_take().unwrap();
        assert_eq!(second.number, 3, "it was kept");
        drop(second);
        end(first, &told(0, 0));
        let first = slots.try_take().unwrap();
        assert!(slots.try_take().is_none());
        end(first, &told(3, 3));
        let (first, given_up) = (slots.try_take().unwrap(), slots.try_take().unwrap());
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
    async fn all_who_wait_for_a_slot_get_one_when_the_server_wants_more() {
        let slots = Slots::new(3);
        let (first, second) = (slots.take().await, slots.take().await);
        end(second, &told(2, 0));
        let (mut waiting, mut also) = (Box::pin(slots.take()), Box::pin(slots.take()));
        let cx = &mut Context::from_waker(Waker::noop());
        assert!(waiting.as_mut().poll(cx).is_pending() && also.as_mut().poll(cx).is_pending());
        end(first, &told(2, 2));
        let Poll::Ready(one) = waiting.as_mut().poll(cx) else { panic!("a slot is free") };
        let Poll::Ready(other) = also.as_mut().poll(cx) else { panic!("two slots are free") };
        assert_eq!((one.slot(), other.slot()), (0, 1));
    }

    /// The call behind a probe may take long: what the probe was told is followed before, and not again after it.
    #[tokio::test]
    async fn what_a_probe_is_told_is_followed_before_the_call() {
        let slots = Slots::new(4);
        let (mut probing, second) = (slots.take().await, slots.take().await);
        let mut waiting = Box::pin(slots.take());
        probing.advance();
        probing.follow(&told(3, 0));
        probing.probed();
        assert_eq!((probing.number, probing.highest()), (2, 1));
        assert!(slots.is_under_way(0, 2) && slots.try_take().is_none(), "one slot alone is wanted");
        let cx = &mut Context::from_waker(Waker::noop());
        assert!(waiting.as_mut().poll(cx).is_pending());
        probing.follow(&told(3, 3));
        probing.probed();
        let Poll::Ready(third) = waiting.as_mut().poll(cx) else { panic!("two slots are free") };
        drop(third);
        end(second, &told(3, 2));
        let numbers = [(); 2].map(|()| slots.try_take().unwrap()).map(|taken| (taken.slot(), taken.number));
        assert_eq!(numbers, [(1, 2), (2, 1)]);
        drop(probing);
        assert_eq!(slots.try_take().unwrap().slot(), 0);
    }

    #[tokio::test]
    async fn the_most_slots_are_all_used_and_no_more() {
        let slots = Slots::new(u32::MAX);
        let all: Vec<_> = std::iter::from_fn(|| slots.try_take()).collect();
        assert_eq!((all.len(), all[63].highest()), (64, 63));
        assert!(slots.is_under_way(63, 1) && !slots.is_under_way(64, 1));
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
