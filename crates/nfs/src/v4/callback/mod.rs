//! Calls of the server to the client: CB_COMPOUND and its operations (RFC 8881 sections 19 and 20, RFC 7862 section
//! 16). Nothing of them may be placed directly (ULB-5.1-c, ULB-6.2-c).
//!
//! In minor versions from 1 on, these calls come over a connection that the client has opened; in minor version 0, over
//! one that the server opens.

mod args;
mod compound;

pub use args::{
    CbGetAttr, CbGetAttrOk, CbLayoutRecall, CbNotify, CbNotifyDeviceId, CbNotifyLock, CbOffload, CbPushDeleg, CbRecall,
    CbRecallAny, CbRecallSlot, CbSequence, CbSequenceOk, CbWantsCancelled, LayoutRecallFile, LayoutsRecalled,
    MAX_NOTIFICATIONS, MAX_REFERRING_CALLS, Notification, OffloadOutcome, ReferringCall, ReferringCalls,
};
pub use compound::{Arguments, Results};

use super::{SESSION_ID_BYTES, Status, op, shape};

/// The version of the callback program. The client chooses its number.
pub const VERSION: u32 = 1;

operations! {
    "callback operation of NFS version 4";

    /// CB_GETATTR: asks for attributes that only the holder of a delegation knows.
    GetAttr(get: CbGetAttr) -> (CbGetAttrOk, Status) = 3, "CB_GETATTR", ALL, shape::attributes(&get.asked);
    /// CB_RECALL: asks for a delegation back.
    Recall(recall: CbRecall) -> ((), Status) = 4, "CB_RECALL", ALL, 0;
    /// CB_LAYOUTRECALL: asks for layouts back.
    LayoutRecall(recall: CbLayoutRecall) -> ((), Status) = 5, "CB_LAYOUTRECALL", FROM_ONE, 0;
    /// CB_NOTIFY: reports changes of a directory.
    Notify(notify: CbNotify) -> ((), Status) = 6, "CB_NOTIFY", FROM_ONE, 0;
    /// CB_PUSH_DELEG: brings a delegation that the client wanted.
    PushDeleg(push: Box<CbPushDeleg>) -> ((), Status) = 7, "CB_PUSH_DELEG", FROM_ONE, 0;
    /// CB_RECALL_ANY: asks for some delegations or layouts back.
    RecallAny(recall: CbRecallAny) -> ((), Status) = 8, "CB_RECALL_ANY", FROM_ONE, 0;
    /// CB_RECALLABLE_OBJ_AVAIL: the client can get something now that it wanted.
    RecallableObjAvail(available: CbRecallAny) -> ((), Status) = 9, "CB_RECALLABLE_OBJ_AVAIL", FROM_ONE, 0;
    /// CB_RECALL_SLOT: asks for slots back.
    RecallSlot(recall: CbRecallSlot) -> ((), Status) = 10, "CB_RECALL_SLOT", FROM_ONE, 0;
    /// CB_SEQUENCE: says by which slot a call comes.
    Sequence(sequence: CbSequence) -> (CbSequenceOk, Status) = 11, "CB_SEQUENCE", FROM_ONE,
        SESSION_ID_BYTES + 4 * shape::WORD;
    /// CB_WANTS_CANCELLED: what the client wanted will not come.
    WantsCancelled(cancelled: CbWantsCancelled) -> ((), Status) = 12, "CB_WANTS_CANCELLED", FROM_ONE, 0;
    /// CB_NOTIFY_LOCK: the client can perhaps get a lock now.
    NotifyLock(notify: CbNotifyLock) -> ((), Status) = 13, "CB_NOTIFY_LOCK", FROM_ONE, 0;
    /// CB_NOTIFY_DEVICEID: a device has changed.
    NotifyDeviceId(notify: CbNotifyDeviceId) -> ((), Status) = 14, "CB_NOTIFY_DEVICEID", FROM_ONE, 0;
    /// CB_OFFLOAD: a copy has ended.
    Offload(offload: CbOffload) -> ((), Status) = 15, "CB_OFFLOAD", FROM_TWO, 0;
}

impl Op {
    /// The status with which a client refuses this operation in a minor version that does not have it; `None` if it
    /// exists.
    pub fn refused_in(self, minor: u32) -> Option<Status> {
        op::refused(self.minors(), minor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_minor_version_has_its_callbacks() {
        for (number, op) in (3..).zip(Op::ALL) {
            assert_eq!((*op as u32, Op::from_number(number)), (number, Some(*op)));
            assert_eq!((op.eligible_argument(), op.eligible_result()), (None, None));
            assert!(op.name().starts_with("CB_") && op.to_string() == op.name());
        }
        let known = |minor| Op::ALL.iter().filter(|op| op.exists_in(minor)).count();
        assert_eq!([known(0), known(1), known(2), known(3)], [2, 12, 13, 0]);
        assert_eq!(Op::Offload.refused_in(1), Some(Status::OP_ILLEGAL));
    }
}
