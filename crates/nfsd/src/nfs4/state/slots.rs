//! The slots of a session: the server executes each call at most once, and its repetition gets the same reply (RFC 8881
//! section 2.10.6).
//!
//! Each slot has its own lock, held only for a moment. A slot owns a copy of its last reply if the client asked to keep
//! it. A refused call changes nothing.
//!
//! If a call ends without a reply (its task was dropped), the slot knows that it began. Parts of it may have been done.
//! So a repetition learns that the reply was not kept, as for a call that did not ask for that, and the next number is
//! a new call.

use super::clients::Principal;
use bytes::Bytes;
use rpcrdma_nfs::v4::Status;
use rpcrdma_xdr::{Part, Payload};
use std::sync::{
    Mutex, MutexGuard, PoisonError,
    atomic::{AtomicU32, Ordering},
};

/// What a SEQUENCE says to a slot.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    /// `sa_slotid`.
    pub(crate) slot: u32,
    /// `sa_sequenceid`.
    pub(crate) sequence: u32,
    /// `sa_highest_slotid`.
    pub(crate) highest: u32,
    /// `sa_cachethis`.
    pub(crate) cache: bool,
    /// SEQUENCE is the only operation: the slot keeps its reply whatever `cache` says.
    pub(crate) alone: bool,
    /// A digest of the arguments.
    pub(crate) digest: u64,
    /// The caller.
    pub(crate) principal: Principal,
}

/// What a slot says to a call.
#[derive(Debug)]
pub(super) enum Found {
    /// A new call; it uses the slot until [`Slots::finish`].
    New {
        /// How many slots the client has agreed by it to give up.
        retired: u32,
    },
    /// A repetition: this is the whole reply.
    Replay(Payload),
    /// A repetition of a call whose reply was not kept.
    Uncached,
}

#[derive(Debug, Default)]
struct Slot {
    /// The number of the last call, 0 before the first.
    sequence: u32,
    /// That call, or `None` before the first.
    last: Option<Last>,
    /// The target in the last reply.
    told: u32,
}

#[derive(Debug)]
struct Last {
    digest: u64,
    principal: Principal,
    keep: bool,
    outcome: Outcome,
}

#[derive(Debug)]
enum Outcome {
    Running,
    Kept(Payload),
    NotKept,
}

/// The slots of a session.
#[derive(Debug)]
pub(super) struct Slots {
    all: Box<[Mutex<Slot>]>,
    /// The most bytes of a reply that a slot keeps.
    cache: usize,
    /// The highest slot that the client may use.
    highest: AtomicU32,
    /// The highest slot that the client should use.
    target: AtomicU32,
}

impl Slots {
    /// `count` slots, at least one, that keep replies of at most `cache` bytes.
    pub(super) fn new(count: u32, cache: u32) -> Self {
        let count = count.max(1);
        Self {
            all: (0..count).map(|_| Mutex::default()).collect(),
            cache: cache as usize,
            highest: AtomicU32::new(count - 1),
            target: AtomicU32::new(count - 1),
        }
    }

    // NFS4-8881-18.46-d
    fn slot(&self, number: u32) -> Result<MutexGuard<'_, Slot>, Status> {
        let slot = self.all.get(number as usize).ok_or(Status::BADSLOT)?;
        Ok(slot.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Sets a slot as if it had had this many calls.
    #[cfg(test)]
    pub(super) fn set_sequence(&self, slot: u32, sequence: u32) {
        self.slot(slot).unwrap().sequence = sequence;
    }

    /// Whether the last call of a slot has this number.
    pub(super) fn is_last(&self, slot: u32, sequence: u32) -> bool {
        self.slot(slot).is_ok_and(|slot| slot.sequence == sequence)
    }

    /// The highest slot that the client may use, and the highest that it should use.
    pub(super) fn highest(&self) -> (u32, u32) {
        (self.highest.load(Ordering::Relaxed), self.target.load(Ordering::Relaxed))
    }

    /// Asks the client to give up slots above `target`. The target never rises again: a slot that came back would count
    /// from 1, and an old call could look new.
    #[cfg(test)]
    pub(super) fn aim(&self, target: u32) {
        self.target.fetch_min(target, Ordering::Relaxed);
    }

    /// Says what a call is, and takes the slot if the call is new.
    ///
    /// # Errors
    /// BADSLOT, BAD_HIGH_SLOT, SEQ_MISORDERED, SEQ_FALSE_RETRY, or DELAY for the repetition of a call that still runs.
    /// None of them changes the slot.
    pub(super) fn begin(&self, request: &Request) -> Result<Found, Status> {
        let mut slot = self.slot(request.slot)?;
        let (highest, target) = self.highest();
        if request.sequence == slot.sequence {
            // NFS4-8881-18.36-g: before the first call there is nothing to repeat, whatever the number.
            let last = slot.last.as_ref().ok_or(Status::SEQ_MISORDERED)?;
            return last.repeat(request);
        }
        if request.slot > highest {
            return Err(Status::BADSLOT);
        }
        if request.highest > highest {
            return Err(Status::BAD_HIGH_SLOT);
        }
        // NFS4-8881-2.10.6.2-a
        let is_running = matches!(&slot.last, Some(Last { outcome: Outcome::Running, .. }));
        // NFS4-8881-18.46-a
        if is_running || request.sequence != slot.sequence.wrapping_add(1) {
            return Err(Status::SEQ_MISORDERED);
        }
        // The client has seen the reply before this one, and so the target in it.
        let knows = slot.last.is_some() && slot.told == target;
        slot.sequence = request.sequence;
        slot.told = target;
        slot.last = Some(Last {
            digest: request.digest,
            principal: request.principal,
            keep: request.cache || request.alone,
            outcome: Outcome::Running,
        });
        drop(slot);
        let agrees = knows && target < highest && request.highest <= target;
        Ok(Found::New { retired: if agrees { self.retire(target) } else { 0 } })
    }

    /// Ends the use of slots above `target`. If two calls do this at once, only one of them counts the slots.
    // NFS4-8881-2.10.6.1-a
    fn retire(&self, target: u32) -> u32 {
        let before = self.highest.fetch_min(target, Ordering::Relaxed);
        for number in target.saturating_add(1)..=before {
            if let Ok(mut slot) = self.slot(number)
                && let Some(Last { outcome: outcome @ Outcome::Kept(_), .. }) = &mut slot.last
            {
                *outcome = Outcome::NotKept;
            }
        }
        before.saturating_sub(target)
    }

    /// The call on a slot has ended, with or without a reply. Returns whether the slot keeps the reply.
    pub(super) fn finish(&self, number: u32, reply: Option<&Payload>) -> bool {
        let Ok(mut slot) = self.slot(number) else { return false };
        let Some(last) = &mut slot.last else { return false };
        // NFS4-8881-2.10.6.1.3-a
        let is_kept = |reply: &&Payload| last.keep && reply.len() <= self.cache && number <= self.highest().0;
        let kept = reply.filter(is_kept).map(own);
        let is_kept = kept.is_some();
        last.outcome = kept.map_or(Outcome::NotKept, Outcome::Kept);
        is_kept
    }
}

impl Last {
    // NFS4-8881-2.10.6.1.3-b
    fn repeat(&self, request: &Request) -> Result<Found, Status> {
        // NFS4-8881-2.10.6.1.3.1-a
        if (self.digest, self.principal) != (request.digest, request.principal) {
            return Err(Status::SEQ_FALSE_RETRY);
        }
        match &self.outcome {
            Outcome::Running => Err(Status::DELAY),
            // NFS4-8881-2.10.6.1.3-a
            Outcome::Kept(reply) => Ok(Found::Replay(reply.clone())),
            Outcome::NotKept => Ok(Found::Uncached),
        }
    }
}

/// The same bytes and marks in own memory: a reply shares buffers that other code needs.
fn own(reply: &Payload) -> Payload {
    let mut copy = Payload::new();
    for part in reply.parts() {
        match part {
            Part::Run(run) => copy.push_run(Bytes::copy_from_slice(run)),
            // NFS4-8881-2.10.6.1.3-a, ULB-5.1.2.1-d
            Part::Item(data) => copy.push_item(Bytes::copy_from_slice(data)),
        }
    }
    copy
}
