//! Arguments and results of each callback operation.

use crate::v4::{
    Bitmap, FileAttributes, FileSystemId, Handle, List, Opaque, Owner, SessionId, StateId, Status,
    ops::{Delegation, WriteResponse},
};
use rpcrdma_xdr::{Decode, DecodeError, Decoder, Encode, Encoder};

/// The most sessions that a CB_SEQUENCE refers to, and the most calls of each. A client may have more slots (Linux:
/// 1,024), but never so many calls under way for one file.
pub const MAX_REFERRING_CALLS: usize = 64;

/// The most notifications of one CB_NOTIFY or CB_NOTIFY_DEVICEID.
pub const MAX_NOTIFICATIONS: usize = 256;

/// The most octets of one notification.
const MAX_NOTIFICATION_BYTES: usize = 16 << 10;

xdr_struct! {
    /// CB_GETATTR: asks for what only the holder of a delegation for writing knows: size and change.
    pub struct CbGetAttr {
        /// The file whose attributes are asked for.
        pub file: Handle,
        /// The attributes that are asked for.
        pub asked: Bitmap,
    }

    /// What CB_GETATTR returns.
    pub struct CbGetAttrOk {
        /// The attributes.
        pub attributes: FileAttributes,
    }

    /// CB_RECALL: asks for a delegation back.
    pub struct CbRecall {
        /// The delegation to give back.
        pub state: StateId,
        /// Whether the file will be cut to nothing, so that nothing need be written back.
        pub truncate: bool,
        /// The file of the delegation.
        pub file: Handle,
    }

    /// CB_LAYOUTRECALL: asks for layouts back.
    pub struct CbLayoutRecall {
        /// The layout type.
        pub layout_type: u32,
        /// 1: for reading; 2: for reading and writing; 3: any.
        pub io_mode: u32,
        /// Whether data has moved.
        pub changed: bool,
        /// The layouts to give back.
        pub recalled: LayoutsRecalled,
    }

    /// A range of a file whose layouts are recalled (`layoutrecall_file4`).
    pub struct LayoutRecallFile {
        /// The file.
        pub file: Handle,
        /// Where the range begins.
        pub offset: u64,
        /// Its length.
        pub length: u64,
        /// The layout.
        pub state: StateId,
    }

    /// Something that has happened (`notify4`).
    pub struct Notification {
        /// The numbers of the notifications that follow.
        pub kinds: Bitmap,
        /// The notifications, one after the other.
        pub octets: Opaque<MAX_NOTIFICATION_BYTES>,
    }

    /// CB_NOTIFY: reports changes of a directory.
    pub struct CbNotify {
        /// The delegation of the directory.
        pub state: StateId,
        /// The directory.
        pub directory: Handle,
        /// The changes.
        pub changes: List<Notification, MAX_NOTIFICATIONS>,
    }

    /// CB_PUSH_DELEG: brings a delegation that the client wanted.
    pub struct CbPushDeleg {
        /// The file of the delegation.
        pub file: Handle,
        /// The delegation.
        pub delegation: Delegation,
    }

    /// CB_RECALL_ANY, CB_RECALLABLE_OBJ_AVAIL: delegations and layouts in general.
    #[derive(Copy)]
    pub struct CbRecallAny {
        /// How many the client may keep.
        pub keep: u32,
        /// Numbers of kinds: 0 and 1 delegations for reading and writing, 2 of directories, from 3 on layouts.
        pub kinds: Bitmap,
    }

    /// CB_RECALL_SLOT: asks for slots back.
    #[derive(Copy)]
    pub struct CbRecallSlot {
        /// The highest slot to keep.
        pub target_highest_slot: u32,
    }

    /// A call of the client that may be under way still (`referring_call4`).
    #[derive(Copy)]
    pub struct ReferringCall {
        /// The number that the slot had then.
        pub sequence: u32,
        /// The slot.
        pub slot: u32,
    }

    /// Calls of a session (`referring_call_list4`).
    pub struct ReferringCalls {
        /// The session.
        pub session: SessionId,
        /// The calls.
        pub calls: List<ReferringCall, MAX_REFERRING_CALLS>,
    }

    /// CB_SEQUENCE: says by which slot of which session's back channel a call comes.
    pub struct CbSequence {
        /// The session.
        pub session: SessionId,
        /// One more than the slot's last number.
        pub sequence: u32,
        /// The slot.
        pub slot: u32,
        /// The highest slot that the server uses now.
        pub highest_slot: u32,
        /// Whether the client must remember the reply.
        pub cache: bool,
        /// Calls of the client that this one refers to: their answers may be under way still.
        pub referring: List<ReferringCalls, MAX_REFERRING_CALLS>,
    }

    /// What CB_SEQUENCE returns.
    #[derive(Copy)]
    pub struct CbSequenceOk {
        /// As in the arguments.
        pub session: SessionId,
        /// As in the arguments.
        pub sequence: u32,
        /// As in the arguments.
        pub slot: u32,
        /// The highest slot that the client takes.
        pub highest_slot: u32,
        /// The highest slot that the server should use.
        pub target_highest_slot: u32,
    }

    /// CB_WANTS_CANCELLED: what the client wanted will not come.
    #[derive(Copy)]
    pub struct CbWantsCancelled {
        /// Whether this is so for files that others use.
        pub contended: bool,
        /// Whether this is so where the server has too few resources.
        pub resourced: bool,
    }

    /// CB_NOTIFY_LOCK: the client can perhaps get a lock now.
    pub struct CbNotifyLock {
        /// The file to lock.
        pub file: Handle,
        /// The owner that asked for the lock.
        pub owner: Owner,
    }

    /// CB_NOTIFY_DEVICEID: devices have changed.
    pub struct CbNotifyDeviceId {
        /// The changes.
        pub changes: List<Notification, MAX_NOTIFICATIONS>,
    }

    /// CB_OFFLOAD: a copy has ended.
    pub struct CbOffload {
        /// The file that was copied to.
        pub file: Handle,
        /// The copy.
        pub state: StateId,
        /// How it ended.
        pub outcome: OffloadOutcome,
    }
}

xdr_union! {
    /// The layouts that a CB_LAYOUTRECALL asks for (`layoutrecall4`).
    pub enum LayoutsRecalled: "kind of layouts" {
        /// The layouts of a range of a file.
        File(file: LayoutRecallFile) = 1,
        /// The layouts of a file system.
        FileSystem(id: FileSystemId) = 2,
        /// All.
        All = 3,
    }
}

/// How a copy ended (`offload_info4`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OffloadOutcome {
    /// It is done.
    Done(WriteResponse),
    /// It failed.
    Failed {
        /// The reason, never [`Status::OK`].
        status: Status,
        /// How many octets were copied before.
        copied: u64,
    },
}

impl Encode for OffloadOutcome {
    fn encode(&self, encoder: &mut Encoder) {
        match self {
            Self::Done(response) => {
                Status::OK.encode(encoder);
                response.encode(encoder);
            }
            Self::Failed { status, copied } => {
                status.encode(encoder);
                encoder.u64(*copied);
            }
        }
    }
}

impl Decode for OffloadOutcome {
    fn decode(decoder: &mut Decoder) -> Result<Self, DecodeError> {
        match Status::decode(decoder)? {
            Status::OK => Decode::decode(decoder).map(Self::Done),
            status => Ok(Self::Failed { status, copied: decoder.u64()? }),
        }
    }
}

#[cfg(test)]
impl crate::sample::Sample for OffloadOutcome {
    fn sample(draw: &mut crate::sample::Draw) -> Self {
        match draw.below(2) {
            0 => Self::Done(WriteResponse::sample(draw)),
            _ => Self::Failed { status: Status::NOSPC, copied: u64::sample(draw) },
        }
    }
}
