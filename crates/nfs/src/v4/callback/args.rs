//! Arguments and results of each callback operation.

use crate::v4::{
    Bitmap, FileAttributes, FileSystemId, Handle, List, Opaque, Owner, SessionId, StateId, Status,
    ops::{Delegation, WriteResponse},
};
use rpcrdma_xdr::{Decode, DecodeError, Decoder, Encode, Encoder};

/// The most sessions that a CB_SEQUENCE refers to, and calls of each: as many as a client has slots (Linux: 1,024) are
/// never under way for one file.
pub const MAX_REFERRING_CALLS: usize = 64;

/// The most notifications of one CB_NOTIFY or CB_NOTIFY_DEVICEID.
pub const MAX_NOTIFICATIONS: usize = 256;

/// The most octets of one notification.
const MAX_NOTIFICATION_OCTETS: usize = 16 << 10;

xdr_struct! {
    /// CB_GETATTR: asks for what only the holder of a delegation for writing knows: size and change.
    pub struct CbGetAttr {
        /// Of which file.
        pub file: Handle,
        /// Which attributes.
        pub asked: Bitmap,
    }

    /// What CB_GETATTR returns.
    pub struct CbGetAttrOk {
        /// The attributes.
        pub attributes: FileAttributes,
    }

    /// CB_RECALL: wants a delegation back.
    pub struct CbRecall {
        /// Which one.
        pub state: StateId,
        /// Whether the file will be cut to nothing, so that nothing need be written back.
        pub truncate: bool,
        /// Of which file.
        pub file: Handle,
    }

    /// CB_LAYOUTRECALL: wants layouts back.
    pub struct CbLayoutRecall {
        /// Of which layout type.
        pub layout_type: u32,
        /// 1: for reading; 2: for reading and writing; 3: any.
        pub io_mode: u32,
        /// Whether data has moved.
        pub changed: bool,
        /// Which ones.
        pub recalled: LayoutsRecalled,
    }

    /// A range of a file whose layouts are recalled (`layoutrecall_file4`).
    pub struct LayoutRecallFile {
        /// Which file.
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
        /// Numbers of what follows.
        pub kinds: Bitmap,
        /// The notifications, one after the other.
        pub octets: Opaque<MAX_NOTIFICATION_OCTETS>,
    }

    /// CB_NOTIFY: tells of changes of a directory.
    pub struct CbNotify {
        /// By which delegation.
        pub state: StateId,
        /// Of which directory.
        pub directory: Handle,
        /// The changes.
        pub changes: List<Notification, MAX_NOTIFICATIONS>,
    }

    /// CB_PUSH_DELEG: brings a delegation that was wanted.
    pub struct CbPushDeleg {
        /// Of which file.
        pub file: Handle,
        /// The delegation.
        pub delegation: Delegation,
    }

    /// CB_RECALL_ANY, CB_RECALLABLE_OBJ_AVAIL: delegations and layouts in general.
    #[derive(Copy)]
    pub struct CbRecallAny {
        /// How many to keep.
        pub keep: u32,
        /// Numbers of kinds: 0 and 1 delegations for reading and writing, 2 of directories, from 3 on layouts.
        pub kinds: Bitmap,
    }

    /// CB_RECALL_SLOT: wants slots back.
    #[derive(Copy)]
    pub struct CbRecallSlot {
        /// The highest to keep.
        pub target_highest_slot: u32,
    }

    /// A call of the client that may be under way still (`referring_call4`).
    #[derive(Copy)]
    pub struct ReferringCall {
        /// The slot's number then.
        pub sequence: u32,
        /// The slot.
        pub slot: u32,
    }

    /// Calls of a session (`referring_call_list4`).
    pub struct ReferringCalls {
        /// Which session.
        pub session: SessionId,
        /// Which calls.
        pub calls: List<ReferringCall, MAX_REFERRING_CALLS>,
    }

    /// CB_SEQUENCE: says by which slot of which session's back channel a call comes.
    pub struct CbSequence {
        /// Which session.
        pub session: SessionId,
        /// The slot's last number and one.
        pub sequence: u32,
        /// The slot.
        pub slot: u32,
        /// The highest slot that the server uses now.
        pub highest_slot: u32,
        /// Whether the answer is to be remembered.
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
        /// What others use.
        pub contended: bool,
        /// What the server has too little for.
        pub resourced: bool,
    }

    /// CB_NOTIFY_LOCK: a lock can perhaps be had now.
    pub struct CbNotifyLock {
        /// Of which file.
        pub file: Handle,
        /// Whose.
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
        /// Which copy.
        pub state: StateId,
        /// How it ended.
        pub outcome: OffloadOutcome,
    }
}

xdr_union! {
    /// Which layouts (`layoutrecall4`).
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
        /// Why, never [`Status::OK`].
        status: Status,
        /// After so many octets.
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
