//! Which operations this server does not have.

use rpcrdma_nfs::v4::Op;

/// Operations that are optional in RFC 8881 section 17 and RFC 7862 section 13, and that this server does not have. The
/// server answers NOTSUPP, however large their results could be: so the client learns once and for all that the
/// operation is missing.
pub(super) fn is_missing(op: Op) -> bool {
    matches!(
        op,
        Op::CopyNotify
            | Op::DelegPurge
            | Op::GetDeviceInfo
            | Op::GetDeviceList
            | Op::GetDirDelegation
            | Op::LayoutCommit
            | Op::LayoutError
            | Op::LayoutGet
            | Op::LayoutReturn
            | Op::LayoutStats
            | Op::OpenAttr
            | Op::SetSsv
            | Op::WantDelegation
            | Op::WriteSame
    )
}
