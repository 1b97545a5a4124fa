//! Version 4's statuses from a file system's faults: the one table of them.

use crate::{Failure, Fault};
use rpcrdma_nfs::{
    attr::Change,
    v4::{ChangeInfo, Status},
};

/// The status for a fault.
pub(super) fn status(fault: Fault) -> Status {
    match fault {
        Fault::NotOwner => Status::PERM,
        Fault::NotFound => Status::NOENT,
        Fault::Io | Fault::NoDriver => Status::IO,
        Fault::NoDevice => Status::NXIO,
        Fault::Denied => Status::ACCESS,
        Fault::Exists => Status::EXIST,
        Fault::OtherFileSystem => Status::XDEV,
        Fault::NotDirectory => Status::NOTDIR,
        Fault::IsDirectory => Status::ISDIR,
        Fault::IsSymlink => Status::SYMLINK,
        // NFS4-8881-18.16-e
        Fault::IsSpecial => Status::WRONG_TYPE,
        Fault::Invalid => Status::INVAL,
        Fault::TooLarge => Status::FBIG,
        Fault::NoSpace => Status::NOSPC,
        Fault::ReadOnly => Status::ROFS,
        Fault::TooManyLinks => Status::MLINK,
        Fault::NameTooLong => Status::NAMETOOLONG,
        Fault::NotEmpty => Status::NOTEMPTY,
        Fault::Quota => Status::DQUOT,
        Fault::Stale => Status::STALE,
        Fault::BadId => Status::BADHANDLE,
        Fault::Changed => Status::NOT_SAME,
        Fault::BadCookie => Status::BAD_COOKIE,
        Fault::Unsupported => Status::NOTSUPP,
        Fault::NoXattr => Status::NOXATTR,
        Fault::XattrTooLarge => Status::XATTR2BIG,
        Fault::BadType => Status::BADTYPE,
        Fault::Later => Status::DELAY,
        Fault::Internal => Status::SERVERFAULT,
    }
}

/// The status of a failure, without its other information.
pub(super) fn failure<F>(failure: Failure<F>) -> Status {
    status(failure.fault)
}

/// The change numbers of a directory before and after. If the file system does not return them, the reply says that
/// others may have changed the directory, too.
// NFS4-8881-3.3.4-a
pub(super) fn change_info(change: &Change) -> ChangeInfo {
    let before = change.before.map(|before| before.change);
    let after = change.after.as_ref().map(|after| after.change);
    match (before, after) {
        (Some(before), Some(after)) => ChangeInfo { atomic: true, before, after },
        (before, after) => ChangeInfo { atomic: false, before: before.unwrap_or(0), after: after.unwrap_or(0) },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_cause_is_a_success() {
        assert!(Fault::ALL.iter().all(|fault| status(*fault) != Status::OK));
    }
}
