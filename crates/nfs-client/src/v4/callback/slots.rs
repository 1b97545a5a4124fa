//! The slots of a back channel: the client executes each call of the server once, and a repetition gets the same reply
//! (RFC 8881 section 2.10.6.1).

use crate::v4::session::{BACK_CACHED_BYTES, BACK_SLOTS};
use rpcrdma_nfs::v4::{
    Status,
    callback::{CbSequence, CbSequenceOk},
};
use rpcrdma_xdr::Payload;

#[derive(Debug, Default)]
pub(super) struct BackSlot {
    /// The number of the last call, 0 before the first.
    last: u32,
    /// Whether there was a call.
    is_used: bool,
    /// The reply to it, unless it was too long.
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

/// What a call means to its slot.
pub(super) enum Turn<'a> {
    /// A new call, with the results of CB_SEQUENCE.
    New(CbSequenceOk, &'a mut BackSlot),
    /// A repetition, with the reply to the first call.
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
    /// Keeps a reply for a repetition, unless it is longer than the session allows.
    pub(super) fn keep(&mut self, reply: &Payload) {
        if reply.len() <= BACK_CACHED_BYTES as usize {
            self.reply = Some(reply.clone());
        }
    }
}
