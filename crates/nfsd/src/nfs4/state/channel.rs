//! The attributes of a session's channels, which the client offers and the server lowers (RFC 8881 section 18.36), and
//! the memory of reply caches.

use super::limits::{CACHE_SHARE, Limits};
use rpcrdma_nfs::v4::Status;
use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

/// The smallest possible call, in bytes: RPC's head without credentials (40), an empty tag, minor version and count
/// (12), SEQUENCE (36).
pub(crate) const MIN_REQUEST_BYTES: u32 = 88;
/// The smallest possible reply, in bytes: RPC's head (24), status, empty tag and count (12), SEQUENCE (44).
pub(crate) const MIN_RESPONSE_BYTES: u32 = 80;

/// The attributes of a channel (`channel_attrs4`), without the depth of RDMA Read queues, which the transport decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Channel {
    /// `ca_headerpadsize`, bytes.
    pub(crate) padding: u32,
    /// `ca_maxrequestsize`, bytes of an RPC message.
    pub(crate) request: u32,
    /// `ca_maxresponsesize`, bytes of an RPC message.
    pub(crate) response: u32,
    /// `ca_maxresponsesize_cached`, bytes of an RPC message.
    pub(crate) cached: u32,
    /// `ca_maxoperations`.
    pub(crate) operations: u32,
    /// `ca_maxrequests`: the number of slots.
    pub(crate) slots: u32,
}

impl Channel {
    fn check(self) -> Result<(), Status> {
        let fits = self.request >= MIN_REQUEST_BYTES && self.response >= MIN_RESPONSE_BYTES;
        if fits { Ok(()) } else { Err(Status::TOOSMALL) }
    }

    /// The attributes of the session's fore channel, from the client's offer, with the memory for its replies.
    ///
    /// # Errors
    /// TOOSMALL if no call would fit, NOSPC if there is no room for even one slot.
    // NFS4-8881-18.36-h
    pub(super) fn fore(self, limits: &Limits, budget: &Arc<Budget>) -> Result<(Self, Reservation), Status> {
        self.check()?;
        let cached = self.cached.min(limits.slot_cache).min(self.response);
        let wanted = self.slots.clamp(1, limits.slots);
        let memory = budget.reserve(wanted, cached as usize).ok_or(Status::NOSPC)?;
        let channel = Self {
            padding: 0,
            request: self.request.min(limits.message),
            response: self.response.min(limits.message),
            cached,
            // As many as the client asks for, up to the limit: Linux needs all of its 8.
            operations: self.operations.clamp(1, limits.operations),
            slots: memory.slots,
        };
        Ok((channel, memory))
    }

    /// The attributes of the back channel: the client's offer, unchanged. Linux refuses larger values, and some lower
    /// ones.
    ///
    /// # Errors
    /// TOOSMALL if no call would fit.
    // NFS4-8881-18.36-i
    pub(super) fn back(self) -> Result<Self, Status> {
        self.check()?;
        Ok(Self { padding: 0, ..self })
    }
}

/// The memory that all reply caches may take.
#[derive(Debug)]
pub(super) struct Budget {
    limit: usize,
    used: AtomicUsize,
}

/// A part of the [`Budget`], given back when it is dropped.
#[derive(Debug)]
pub(super) struct Reservation {
    budget: Arc<Budget>,
    slots: u32,
    /// Bytes for each slot.
    each: usize,
    given_back: AtomicUsize,
}

impl Budget {
    /// A budget of `limit` bytes.
    pub(super) fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self { limit, used: AtomicUsize::new(0) })
    }

    /// Reserves up to `wanted` slots of `each` bytes: at most a share of the remaining memory, and rather fewer slots
    /// than smaller ones. `None` if there is no memory for even one.
    fn reserve(self: &Arc<Self>, wanted: u32, each: usize) -> Option<Reservation> {
        let mut slots = 0;
        let grow = |used: usize| {
            let left = self.limit.checked_sub(used)?;
            let share = (left / CACHE_SHARE).checked_div(each).unwrap_or(usize::MAX);
            slots = u32::try_from(share).unwrap_or(u32::MAX).clamp(1, wanted);
            let octets = each.checked_mul(slots as usize)?;
            // NFS4-8881-18.36-k
            (octets <= left).then(|| used + octets)
        };
        self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, grow).ok()?;
        Some(Reservation { budget: self.clone(), slots, each, given_back: AtomicUsize::new(0) })
    }

    /// Bytes in use.
    #[cfg(test)]
    pub(super) fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }
}

impl Reservation {
    /// Gives back the memory of `slots` slots, which are not used any more.
    pub(super) fn retire(&self, slots: u32) {
        let octets = self.each.saturating_mul(slots as usize);
        self.given_back.fetch_add(octets, Ordering::Relaxed);
        self.budget.used.fetch_sub(octets, Ordering::Relaxed);
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let all = self.each.saturating_mul(self.slots as usize);
        self.budget.used.fetch_sub(all.saturating_sub(*self.given_back.get_mut()), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OFFER: Channel =
        Channel { padding: 64, request: 1 << 20, response: 1 << 20, cached: 8_192, operations: 8, slots: 64 };

    /// proves: NFS4-8881-18.36-h, NFS4-8881-18.36-i
    #[test]
    fn the_server_lowers_what_is_offered_and_raises_nothing() {
        let limits = Limits { message: 4_096, slot_cache: 1_000, slots: 16, operations: 8, ..Limits::default() };
        let budget = Budget::new(1 << 20);
        let (fore, _memory) = OFFER.fore(&limits, &budget).unwrap();
        let expected = Channel { padding: 0, request: 4_096, response: 4_096, cached: 1_000, operations: 8, slots: 16 };
        assert_eq!(fore, expected);
        let small = Channel { padding: 0, request: 100, response: 90, cached: 200, operations: 2, slots: 1 };
        assert_eq!(small.fore(&limits, &budget).unwrap().0, Channel { cached: 90, ..small });
        let many = Channel { operations: 9, ..OFFER };
        assert_eq!(many.fore(&limits, &budget).unwrap().0.operations, 8, "one past the limit");
        assert_eq!(OFFER.back().unwrap(), Channel { padding: 0, ..OFFER }, "the back channel is the client's");
    }

    /// proves: NFS4-8881-18.36-j
    #[test]
    fn a_channel_over_which_nothing_can_be_said_is_refused() {
        let budget = Budget::new(1 << 20);
        let offers = [(88, 80, true), (87, 80, false), (88, 79, false)];
        for (request, response, fits) in offers {
            let offer = Channel { request, response, ..OFFER };
            assert_eq!(offer.fore(&Limits::default(), &budget).is_ok(), fits, "{request} {response}");
            assert_eq!(offer.back().err(), (!fits).then_some(Status::TOOSMALL), "{request} {response}");
        }
    }

    /// Session after session: each takes its share of the rest, and one of them gets the last slot.
    /// proves: NFS4-8881-18.36-k
    #[test]
    fn memory_runs_out_by_fewer_slots_and_comes_back() {
        let limits = Limits { slot_cache: 100, slots: 64, ..Limits::default() };
        let budget = Budget::new(10_000);
        let mut held = Vec::new();
        let refused = loop {
            match OFFER.fore(&limits, &budget) {
                Ok((channel, memory)) => held.push((channel, memory)),
                Err(status) => break status,
            }
        };
        let slots: Vec<_> = held.iter().map(|(channel, _)| channel.slots).collect();
        assert_eq!((refused, slots[0], slots.last()), (Status::NOSPC, 12, Some(&1)));
        assert!(slots.is_sorted_by(|a, b| a >= b) && held.iter().all(|(channel, _)| channel.cached == 100));
        assert_eq!((slots.iter().sum::<u32>(), budget.used()), (100, 10_000), "to the last byte");
        held[0].1.retire(11);
        assert_eq!(budget.used(), 8_900);
        assert_eq!(OFFER.fore(&limits, &budget).unwrap().0.slots, 1);
        drop(held);
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn slots_that_keep_nothing_take_no_memory() {
        let budget = Budget::new(0);
        let offer = Channel { cached: 0, ..OFFER };
        assert_eq!(offer.fore(&Limits::default(), &budget).unwrap().0.slots, 64);
        assert_eq!(OFFER.fore(&Limits::default(), &budget).err(), Some(Status::NOSPC));
    }
}
