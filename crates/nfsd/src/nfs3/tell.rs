//! Version 3's results from those of a file system, with the one table of faults and statuses.

use crate::{Failure, Fault, Linked, Renamed};
use rpcrdma_nfs::{
    attr,
    v3::{self, Answer, Status},
};

/// The status for a fault.
pub(crate) fn status(fault: Fault) -> Status {
    match fault {
        Fault::NotOwner => Status::PERM,
        Fault::NotFound => Status::NOENT,
        Fault::Io => Status::IO,
        Fault::NoDevice => Status::NXIO,
        Fault::NoDriver => Status::NODEV,
        Fault::Denied => Status::ACCES,
        Fault::Exists => Status::EXIST,
        Fault::OtherFileSystem => Status::XDEV,
        Fault::NotDirectory => Status::NOTDIR,
        Fault::IsDirectory => Status::ISDIR,
        Fault::IsSymlink | Fault::IsSpecial | Fault::Invalid => Status::INVAL,
        Fault::TooLarge => Status::FBIG,
        Fault::NoSpace => Status::NOSPC,
        Fault::ReadOnly => Status::ROFS,
        Fault::TooManyLinks => Status::MLINK,
        Fault::NameTooLong => Status::NAMETOOLONG,
        Fault::NotEmpty => Status::NOTEMPTY,
        Fault::Quota => Status::DQUOT,
        Fault::Stale => Status::STALE,
        Fault::BadId => Status::BADHANDLE,
        Fault::Changed => Status::NOT_SYNC,
        Fault::BadCookie => Status::BAD_COOKIE,
        // No operation of version 3 causes these.
        Fault::Unsupported | Fault::NoXattr | Fault::XattrTooLarge => Status::NOTSUPP,
        Fault::BadType => Status::BADTYPE,
        Fault::Later => Status::JUKEBOX,
        Fault::Internal => Status::SERVERFAULT,
    }
}

/// A failure that returns only its status.
pub(crate) fn refused<F: Default>(status: Status) -> v3::Failure<F> {
    v3::Failure { status, info: F::default() }
}

/// A failure that returns only its status, from its fault.
pub(super) fn faulty<F: Default>(fault: Fault) -> v3::Failure<F> {
    refused(status(fault))
}

/// A failure of the file system.
pub(crate) fn failure<F, G: Tell<F>>(failure: Failure<F>) -> v3::Failure<G> {
    v3::Failure { status: status(failure.fault), info: G::tell(failure.info) }
}

/// The answer of a procedure.
pub(crate) fn answer<T, F>(result: Result<T, v3::Failure<F>>) -> Answer<T, F> {
    match result {
        Ok(ok) => Answer::Ok(ok),
        Err(failure) => Answer::Failed(failure),
    }
}

/// Converts a file system's result to this version's.
pub(crate) trait Tell<T> {
    fn tell(told: T) -> Self;
}

impl Tell<Option<attr::Attributes>> for Option<v3::Attributes> {
    fn tell(told: Option<attr::Attributes>) -> Self {
        told.map(Into::into)
    }
}

/// NFSACL returns only attributes.
impl Tell<attr::Change> for Option<v3::Attributes> {
    fn tell(told: attr::Change) -> Self {
        told.after.map(Into::into)
    }
}

impl Tell<attr::Change> for v3::WeakCache {
    fn tell(told: attr::Change) -> Self {
        told.into()
    }
}

impl Tell<Renamed> for v3::RenameInfo {
    fn tell(told: Renamed) -> Self {
        Self { from_directory: told.from_directory.into(), to_directory: told.to_directory.into() }
    }
}

impl Tell<Linked> for v3::LinkInfo {
    fn tell(told: Linked) -> Self {
        Self { attributes: told.attributes.map(Into::into), directory: told.directory.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    /// Only faults of special files and of extended attributes share their status with another fault.
    #[test]
    fn every_cause_has_a_status_of_its_own_that_is_no_success() {
        let all = Fault::ALL.map(status);
        assert!(!all.contains(&Status::OK));
        let distinct: HashSet<_> = all.into_iter().collect();
        assert_eq!(distinct.len() + 4, Fault::ALL.len());
    }
}
