//! The slots of a back channel: each call of the server is executed once, and its repetition gets the same answer (RFC
//! 8881 section 2.10.6.1).

use crate::v4::session::{BACK_CACHED_OCTETS, BACK_SLOTS};
use rpcrdma_nfs::v4::{
    Status,
    callback::{CbSequence, CbSequenceOk},
};
use rpcrdma_xdr::Payload;

#[derive(Debug, Default)]
pub(super) struct BackSlot {
    /// The number of the last call, 0 before the first.
    last: u32,
    /// Whether there was one.
    is_used: bool,
    /// What it was answered, unless that was too long.
    reply: Option<Payload>,
}

/// The slots of a session's back channel.
#[derive(Debug)]
pub(super) struct BackSlots(Vec<BackSlot>);

impl Default for BackSlots {
    fn default() -> Self {
        Self((0..BACK_SLOTS).map(|_| BackSlot::default()).collect())
    }
}

/// What a call is to its slot.
pub(super) enum Turn<'a> {
    /// A new one, with what CB_SEQUENCE answers.
    New(CbSequenceOk, &'a mut BackSlot),
    /// A repetition, with the answer to the first.
    Again(Payload),
    /// Neither.
    Refused(Status),
}

impl BackSlots {
    pub(super) fn begin(&mut self, call: &CbSequence) -> Turn<'_> {
        let CbSequence { session, sequence, slot: number, highest_slot, .. } = *call;
        if highest_slot >= BACK_SLOTS {
            return Turn::Refused(Status::BAD_HIGH_SLOT);
        }
        let Some(slot) = self.0.get_mut(number as usize) else { return Turn::Refused(Status::BADSLOT) };
        if slot.is_used && sequence == slot.last {
            return match &slot.reply {
                Some(reply) => Turn::Again(reply.clone()),
                None => Turn::Refused(Status::RETRY_UNCACHED_REP),
            };
        }
        if sequence != slot.last.wrapping_add(1) {
            return Turn::Refused(Status::SEQ_MISORDERED);
        }
        (slot.last, slot.is_used, slot.reply) = (sequence, true, None);
        let (highest_slot, target_highest_slot) = (BACK_SLOTS - 1, BACK_SLOTS - 1);
        Turn::New(CbSequenceOk { session, sequence, slot: number, highest_slot, target_highest_slot }, slot)
    }
}

impl BackSlot {
    /// Keeps an answer for a repetition, unless it is longer than the session says.
    pub(super) fn keep(&mut self, reply: &Payload) {
        if reply.len() <= BACK_CACHED_OCTETS as usize {
            self.reply = Some(reply.clone());
        }
    }
}
