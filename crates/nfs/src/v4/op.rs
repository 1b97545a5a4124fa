//! The operations of COMPOUND (RFC 8881 section 17, RFC 7862 section 13, RFC 8276, RFC 7530 section 16).

use super::{BITMAP_BYTES, MAX_LINK_BYTES, MAX_OPAQUE_BYTES, SESSION_ID_BYTES, Status, ops, shape};
use bytes::Bytes;
use rpcrdma_xdr::padded;

/// The number under which a server answers an operation that does not exist (`OP_ILLEGAL`, `OP_CB_ILLEGAL`).
pub const ILLEGAL: u32 = 10_044;

/// The highest minor version.
pub const MAX_MINOR: u32 = 2;

/// In which minor versions an operation exists. A later one may forbid what an earlier one brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Minors {
    /// The first minor version that has it.
    pub first: u32,
    /// The last minor version that has it.
    pub last: u32,
}

impl Minors {
    /// All minor versions.
    pub const ALL: Minors = Minors { first: 0, last: MAX_MINOR };
    /// Minor version 0 alone: sessions replace the operation.
    pub const ZERO: Minors = Minors { first: 0, last: 0 };
    /// Minor version 1 alone.
    pub const ONE: Minors = Minors { first: 1, last: 1 };
    /// Minor versions from 1 on.
    pub const FROM_ONE: Minors = Minors { first: 1, last: MAX_MINOR };
    /// Minor versions from 2 on.
    pub const FROM_TWO: Minors = Minors { first: 2, last: MAX_MINOR };

    /// Whether a minor version has it.
    pub fn have(self, minor: u32) -> bool {
        (self.first..=self.last).contains(&minor)
    }

    /// Whether a minor version knows the operation's number: has the operation, or forbids it after an earlier one had
    /// it.
    pub fn know(self, minor: u32) -> bool {
        minor >= self.first
    }
}

// What is large and seldom is boxed, so that the lists of the small calls are short: see the test of sizes.
operations! {
    "operation of NFS version 4" <D = Bytes>;

    /// ACCESS: asks which rights the caller has.
    Access(access: ops::Access) -> (ops::AccessOk, Status) = 3, "ACCESS", ALL, 2 * shape::WORD;
    /// CLOSE: ends an open.
    Close(close: ops::Close) -> (ops::CloseOk, Status) = 4, "CLOSE", ALL, shape::STATE_ID;
    /// COMMIT: makes writes durable.
    Commit(commit: ops::Commit) -> (ops::CommitOk, Status) = 5, "COMMIT", ALL, shape::VERIFIER;
    /// CREATE: makes a file that is not a regular one.
    Create(create: Box<ops::Create>) -> (ops::CreateOk, Status) = 6, "CREATE", ALL,
        shape::CHANGE + BITMAP_BYTES, argument "linkdata";
    /// DELEGPURGE: gives up delegations from before a restart.
    DelegPurge(purge: ops::DelegPurge) -> ((), Status) = 7, "DELEGPURGE", ALL, 0;
    /// DELEGRETURN: gives back a delegation.
    DelegReturn(returned: ops::DelegReturn) -> ((), Status) = 8, "DELEGRETURN", ALL, 0;
    /// GETATTR: asks for attributes.
    GetAttr(get: ops::GetAttr) -> (ops::GetAttrOk, Status) = 9, "GETATTR", ALL, shape::attributes(&get.asked);
    /// GETFH: asks for the current file's handle.
    GetFh -> (ops::GetFhOk, Status) = 10, "GETFH", ALL, shape::HANDLE;
    /// LINK: makes a hard link.
    Link(link: ops::Link) -> (ops::LinkOk, Status) = 11, "LINK", ALL, shape::CHANGE;
    /// LOCK: locks a range.
    Lock(lock: Box<ops::Lock>) -> (ops::LockOk, ops::LockFailure) = 12, "LOCK", ALL, shape::LOCK_DENIED;
    /// LOCKT: asks whether a range could be locked.
    LockT(lock: ops::LockT) -> ((), ops::LockFailure) = 13, "LOCKT", ALL, shape::LOCK_DENIED;
    /// LOCKU: unlocks a range.
    LockU(lock: ops::LockU) -> (ops::LockUOk, Status) = 14, "LOCKU", ALL, shape::STATE_ID;
    /// LOOKUP: goes to the file of a name.
    Lookup(lookup: ops::Lookup) -> ((), Status) = 15, "LOOKUP", ALL, 0;
    /// LOOKUPP: goes to the directory above.
    LookupP -> ((), Status) = 16, "LOOKUPP", ALL, 0;
    /// NVERIFY: goes on if attributes differ.
    NVerify(verify: ops::Verify) -> ((), Status) = 17, "NVERIFY", ALL, 0;
    /// OPEN: opens a regular file.
    Open(open: Box<ops::Open>) -> (Box<ops::OpenOk>, Status) = 18, "OPEN", ALL, shape::OPEN;
    /// OPENATTR: goes to the directory of named attributes.
    OpenAttr(open: ops::OpenAttr) -> ((), Status) = 19, "OPENATTR", ALL, 0;
    /// OPEN_CONFIRM: says that an owner is known.
    OpenConfirm(confirm: ops::OpenConfirm) -> (ops::OpenConfirmOk, Status) = 20, "OPEN_CONFIRM", ZERO, shape::STATE_ID;
    /// OPEN_DOWNGRADE: gives up some of what an open may do.
    OpenDowngrade(open: ops::OpenDowngrade) -> (ops::OpenDowngradeOk, Status) = 21, "OPEN_DOWNGRADE", ALL,
        shape::STATE_ID;
    /// PUTFH: goes to a file by its handle.
    PutFh(put: ops::PutFh) -> ((), Status) = 22, "PUTFH", ALL, 0;
    /// PUTPUBFH: goes to the public file.
    PutPubFh -> ((), Status) = 23, "PUTPUBFH", ALL, 0;
    /// PUTROOTFH: goes to the root.
    PutRootFh -> ((), Status) = 24, "PUTROOTFH", ALL, 0;
    /// READ: reads a file.
    Read(read: ops::Read) -> (ops::ReadOk<D>, Status) = 25, "READ", ALL,
        2 * shape::WORD + padded(shape::transfer(read.count)), result "data";
    /// READDIR: reads a directory.
    ReadDir(read: ops::ReadDir) -> (ops::ReadDirOk, Status) = 26, "READDIR", ALL, shape::listing(read.max_count);
    /// READLINK: asks what a symbolic link points to.
    ReadLink -> (ops::ReadLinkOk, Status) = 27, "READLINK", ALL, shape::WORD + padded(MAX_LINK_BYTES), result "link";
    /// REMOVE: takes a name away.
    Remove(remove: ops::Remove) -> (ops::RemoveOk, Status) = 28, "REMOVE", ALL, shape::CHANGE;
    /// RENAME: moves a name.
    Rename(rename: ops::Rename) -> (ops::RenameOk, Status) = 29, "RENAME", ALL, 2 * shape::CHANGE;
    /// RENEW: a client is still there.
    Renew(renew: ops::Renew) -> ((), Status) = 30, "RENEW", ZERO, 0;
    /// RESTOREFH: goes to the saved file.
    RestoreFh -> ((), Status) = 31, "RESTOREFH", ALL, 0;
    /// SAVEFH: saves the current file.
    SaveFh -> ((), Status) = 32, "SAVEFH", ALL, 0;
    /// SECINFO: asks for a name's flavours of security.
    SecInfo(info: ops::SecInfo) -> (ops::SecInfoOk, Status) = 33, "SECINFO", ALL, shape::FLAVOURS;
    /// SETATTR: sets attributes.
    SetAttr(set: ops::SetAttr) -> (ops::SetAttrOk, ops::SetAttrFailure) = 34, "SETATTR", ALL, BITMAP_BYTES;
    /// SETCLIENTID: makes a client known.
    SetClientId(client: Box<ops::SetClientId>) -> (ops::SetClientIdOk, ops::SetClientIdFailure) = 35, "SETCLIENTID",
        ZERO, shape::NET_ADDRESS;
    /// SETCLIENTID_CONFIRM: the client knows its id.
    SetClientIdConfirm(confirm: ops::SetClientIdConfirm) -> ((), Status) = 36, "SETCLIENTID_CONFIRM", ZERO, 0;
    /// VERIFY: goes on if attributes are the same.
    Verify(verify: ops::Verify) -> ((), Status) = 37, "VERIFY", ALL, 0;
    /// WRITE: writes a file.
    Write(write: ops::Write) -> (ops::WriteOk, Status) = 38, "WRITE", ALL, 2 * shape::WORD + shape::VERIFIER,
        argument "data";
    /// RELEASE_LOCKOWNER: an owner will lock nothing more.
    ReleaseLockOwner(release: ops::ReleaseLockOwner) -> ((), Status) = 39, "RELEASE_LOCKOWNER", ZERO, 0;
    /// BACKCHANNEL_CTL: changes how the server calls.
    BackchannelCtl(control: ops::BackchannelCtl) -> ((), Status) = 40, "BACKCHANNEL_CTL", FROM_ONE, 0;
    /// BIND_CONN_TO_SESSION: uses a connection for a session.
    BindConnToSession(bind: ops::BindConnToSession) -> (ops::BindConnToSessionOk, Status) = 41, "BIND_CONN_TO_SESSION",
        FROM_ONE, SESSION_ID_BYTES + 2 * shape::WORD;
    /// EXCHANGE_ID: makes a client known.
    ExchangeId(exchange: Box<ops::ExchangeId>) -> (Box<ops::ExchangeIdOk>, Status) = 42, "EXCHANGE_ID", FROM_ONE,
        shape::exchange_id(&exchange.protection);
    /// CREATE_SESSION: makes a session.
    CreateSession(create: Box<ops::CreateSession>) -> (Box<ops::CreateSessionOk>, Status) = 43, "CREATE_SESSION",
        FROM_ONE, SESSION_ID_BYTES + 2 * shape::WORD + 2 * shape::CHANNEL;
    /// DESTROY_SESSION: ends a session.
    DestroySession(destroy: ops::DestroySession) -> ((), Status) = 44, "DESTROY_SESSION", FROM_ONE, 0;
    /// FREE_STATEID: a stateid is of no more use.
    FreeStateId(free: ops::FreeStateId) -> ((), Status) = 45, "FREE_STATEID", FROM_ONE, 0;
    /// GET_DIR_DELEGATION: asks for notices of changes of a directory.
    GetDirDelegation(get: Box<ops::GetDirDelegation>) -> (ops::GetDirDelegationOk, Status) = 46, "GET_DIR_DELEGATION",
        FROM_ONE, shape::WORD + shape::VERIFIER + shape::STATE_ID + 3 * BITMAP_BYTES;
    /// GETDEVICEINFO: asks where a device is.
    GetDeviceInfo(get: ops::GetDeviceInfo) -> (ops::GetDeviceInfoOk, ops::GetDeviceInfoFailure) = 47, "GETDEVICEINFO",
        FROM_ONE, shape::layouts(get.max_count);
    /// GETDEVICELIST: asks for devices.
    GetDeviceList(get: ops::GetDeviceList) -> (ops::GetDeviceListOk, Status) = 48, "GETDEVICELIST", ONE,
        8 + shape::VERIFIER + 2 * shape::WORD + ops::MAX_LAYOUTS * ops::DEVICE_ID_BYTES;
    /// LAYOUTCOMMIT: makes what was written through a layout visible to others.
    LayoutCommit(commit: Box<ops::LayoutCommit>) -> (ops::LayoutCommitOk, Status) = 49, "LAYOUTCOMMIT", FROM_ONE,
        shape::WORD + 8;
    /// LAYOUTGET: asks for layouts.
    LayoutGet(get: ops::LayoutGet) -> (ops::LayoutGetOk, ops::LayoutGetFailure) = 50, "LAYOUTGET", FROM_ONE,
        shape::layouts(get.max_count);
    /// LAYOUTRETURN: gives layouts back.
    LayoutReturn(returned: Box<ops::LayoutReturn>) -> (ops::LayoutReturnOk, Status) = 51, "LAYOUTRETURN", FROM_ONE,
        shape::WORD + shape::STATE_ID;
    /// SECINFO_NO_NAME: asks for the current file's flavours of security.
    SecInfoNoName(info: ops::SecInfoNoName) -> (ops::SecInfoOk, Status) = 52, "SECINFO_NO_NAME", FROM_ONE, shape::FLAVOURS;
    /// SEQUENCE: says by which slot a call comes.
    Sequence(sequence: ops::Sequence) -> (ops::SequenceOk, Status) = 53, "SEQUENCE", FROM_ONE,
        SESSION_ID_BYTES + 5 * shape::WORD;
    /// SET_SSV: changes a secret.
    SetSsv(set: ops::SetSsv) -> (ops::SetSsvOk, Status) = 54, "SET_SSV", FROM_ONE, shape::WORD + MAX_OPAQUE_BYTES;
    /// TEST_STATEID: asks which stateids are good.
    TestStateId(test: ops::TestStateId) -> (ops::TestStateIdOk, Status) = 55, "TEST_STATEID", FROM_ONE,
        shape::WORD + shape::WORD * test.states.len();
    /// WANT_DELEGATION: asks for a delegation.
    WantDelegation(want: ops::WantDelegation) -> (Box<ops::WantDelegationOk>, Status) = 56, "WANT_DELEGATION", FROM_ONE,
        shape::DELEGATION;
    /// DESTROY_CLIENTID: a client will not be back.
    DestroyClientId(destroy: ops::DestroyClientId) -> ((), Status) = 57, "DESTROY_CLIENTID", FROM_ONE, 0;
    /// RECLAIM_COMPLETE: a client has reclaimed what it held.
    ReclaimComplete(complete: ops::ReclaimComplete) -> ((), Status) = 58, "RECLAIM_COMPLETE", FROM_ONE, 0;
    /// ALLOCATE: reserves space.
    Allocate(allocate: ops::Allocate) -> ((), Status) = 59, "ALLOCATE", FROM_TWO, 0;
    /// COPY: copies a range.
    Copy(copy: Box<ops::CopyRange>) -> (ops::CopyOk, ops::CopyFailure) = 60, "COPY", FROM_TWO,
        shape::WRITE_RESPONSE + 2 * shape::WORD;
    /// COPY_NOTIFY: announces a copy to another server.
    CopyNotify(copy: Box<ops::CopyNotify>) -> (ops::CopyNotifyOk, Status) = 61, "COPY_NOTIFY", FROM_TWO,
        shape::TIME + shape::STATE_ID + shape::WORD + ops::MAX_SERVERS * shape::SERVER_LOCATION;
    /// DEALLOCATE: makes a hole.
    Deallocate(deallocate: ops::Deallocate) -> ((), Status) = 62, "DEALLOCATE", FROM_TWO, 0;
    /// IO_ADVISE: says how a file will be used.
    IoAdvise(advise: ops::IoAdvise) -> (ops::IoAdviseOk, Status) = 63, "IO_ADVISE", FROM_TWO, BITMAP_BYTES;
    /// LAYOUTERROR: a device has failed.
    LayoutError(error: ops::LayoutError) -> ((), Status) = 64, "LAYOUTERROR", FROM_TWO, 0;
    /// LAYOUTSTATS: how much a device has done.
    LayoutStats(stats: Box<ops::LayoutStats>) -> ((), Status) = 65, "LAYOUTSTATS", FROM_TWO, 0;
    /// OFFLOAD_CANCEL: ends a copy.
    OffloadCancel(cancel: ops::OffloadCancel) -> ((), Status) = 66, "OFFLOAD_CANCEL", FROM_TWO, 0;
    /// OFFLOAD_STATUS: asks how far a copy has come.
    OffloadStatus(status: ops::OffloadStatus) -> (ops::OffloadStatusOk, Status) = 67, "OFFLOAD_STATUS", FROM_TWO,
        8 + 2 * shape::WORD;
    /// READ_PLUS: reads a file and its holes.
    ReadPlus(read: ops::ReadPlus) -> (ops::ReadPlusOk, Status) = 68, "READ_PLUS", FROM_TWO, shape::read_plus(read.count);
    /// SEEK: finds data or a hole.
    Seek(seek: ops::Seek) -> (ops::SeekOk, Status) = 69, "SEEK", FROM_TWO, shape::WORD + 8;
    /// WRITE_SAME: writes a pattern again and again.
    WriteSame(write: Box<ops::WriteSame>) -> (ops::WriteSameOk, Status) = 70, "WRITE_SAME", FROM_TWO,
        shape::WRITE_RESPONSE;
    /// CLONE: makes ranges of two files share what they hold.
    Clone(clone: ops::CloneRange) -> ((), Status) = 71, "CLONE", FROM_TWO, 0;
    /// GETXATTR: asks for an extended attribute.
    GetXattr(get: ops::GetXattr) -> (ops::GetXattrOk, Status) = 72, "GETXATTR", FROM_TWO,
        shape::WORD + padded(ops::MAX_XATTR_BYTES);
    /// SETXATTR: sets an extended attribute.
    SetXattr(set: Box<ops::SetXattr>) -> (ops::SetXattrOk, Status) = 73, "SETXATTR", FROM_TWO, shape::CHANGE;
    /// LISTXATTRS: asks for the names of extended attributes.
    ListXattrs(list: ops::ListXattrs) -> (ops::ListXattrsOk, Status) = 74, "LISTXATTRS", FROM_TWO,
        shape::listing(list.max_count);
    /// REMOVEXATTR: removes an extended attribute.
    RemoveXattr(remove: ops::RemoveXattr) -> (ops::RemoveXattrOk, Status) = 75, "REMOVEXATTR", FROM_TWO, shape::CHANGE;
}

impl Op {
    /// The status with which a server refuses this operation in a minor version that does not have it; `None` if it
    /// exists.
    pub fn refused_in(self, minor: u32) -> Option<Status> {
        refused(self.minors(), minor)
    }
}

impl<D> Outcome<D> {
    /// The outcome for a minor version that does not have this outcome's [status](Status::in_minor).
    #[must_use]
    pub fn in_minor(mut self, minor: u32) -> Self {
        self.put_into_minor(minor);
        self
    }

    /// Becomes the outcome [for this minor version](Self::in_minor).
    pub fn put_into_minor(&mut self, minor: u32) {
        let Some(op) = self.op().filter(|_| minor == 0) else { return };
        let (status, told) = (self.status(), self.status().in_minor(minor, op));
        if status != told {
            *self = Self::failed(op, told);
        }
    }
}

/// An operation that a minor version does not know is illegal there; a minor version knows the operations that it
/// forbids (RFC 8178 section 8, RFC 8881 section 15.1.1.5).
pub(super) fn refused(minors: Minors, minor: u32) -> Option<Status> {
    match minors {
        minors if minors.have(minor) => None,
        // NFS4-8178-8-a
        minors if minors.know(minor) => Some(Status::NOTSUPP),
        _ => Some(Status::OP_ILLEGAL),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A READ's list of operations is moved and kept more often than all others.
    #[test]
    fn arguments_and_outcomes_are_small() {
        let sizes = [size_of::<Args>(), size_of::<Outcome>()];
        assert!(sizes.into_iter().all(|size| size <= 72), "{sizes:?}");
    }

    /// proves: NFS4-8178-8-a
    #[test]
    fn each_minor_version_has_its_operations() {
        assert_eq!(Op::ALL.len(), 73);
        for (number, op) in (3..).zip(Op::ALL) {
            assert_eq!((*op as u32, Op::from_number(number)), (number, Some(*op)));
        }
        assert_eq!([0, 1, 2, 76, ILLEGAL, u32::MAX].map(Op::from_number), [None; 6]);
        let of = |minor| Op::ALL.iter().map(|op| op.refused_in(minor)).collect::<Vec<_>>();
        let numbers = |minor, status| {
            let refused = of(minor).into_iter().zip(3..).filter(|(said, _)| *said == status);
            refused.map(|(_, number)| number).collect::<Vec<u32>>()
        };
        assert_eq!(numbers(0, None), (3..=39).collect::<Vec<_>>());
        assert_eq!(numbers(0, Some(Status::OP_ILLEGAL)), (40..=75).collect::<Vec<_>>());
        let once = [20, 30, 35, 36, 39];
        assert_eq!(numbers(1, Some(Status::NOTSUPP)), once);
        assert_eq!(numbers(1, Some(Status::OP_ILLEGAL)), (59..=75).collect::<Vec<_>>());
        assert_eq!(numbers(2, Some(Status::NOTSUPP)), [20, 30, 35, 36, 39, 48]);
        assert_eq!(numbers(2, Some(Status::OP_ILLEGAL)), []);
        assert_eq!(numbers(2, None).len(), 73 - 6);
    }
}
