//! The status of a server's reply, in every version.
//!
//! The versions share most causes and their numbers, give them names with their own prefixes, and differ in a few. Code
//! that decides by a status uses its [`Cause`]; messages for people have the protocol's name.

use rpcrdma_nfs::{v2, v3, v4};
use std::fmt;

/// A status of one version of NFS.
///
/// ```
/// use rpcrdma_nfs::{v3, v4};
/// use rpcrdma_nfs_client::{Cause, Status};
/// let (three, four) = (Status::from(v3::Status::ACCES), Status::from(v4::Status::ACCESS));
/// assert_eq!((three.cause(), four.cause()), (Cause::Denied, Cause::Denied));
/// assert_eq!((three.name(), four.name()), ("NFS3ERR_ACCES", "NFS4ERR_ACCESS"));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Status(Wire);

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Wire {
    V2(v2::Status),
    V3(v3::Status),
    V4(v4::Status),
}

/// The meaning of a status, as far as clients depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Cause {
    /// There is no such name.
    Absent,
    /// Only the owner may do this.
    NotOwner,
    /// The caller does not have the right.
    Denied,
    /// The name is taken.
    Exists,
    /// The two lie on different file systems.
    OtherFileSystem,
    /// A file that is not a directory is used as one.
    NotDirectory,
    /// It is a directory.
    IsDirectory,
    /// An argument is not valid.
    Invalid,
    /// The file would be too large.
    TooLarge,
    /// The file system is full.
    NoSpace,
    /// The quota is used up.
    Quota,
    /// The file system cannot be written to.
    ReadOnly,
    /// The file has as many names as it can have.
    TooManyNames,
    /// The name is too long.
    NameTooLong,
    /// The directory is not empty.
    NotEmpty,
    /// The file no longer exists.
    Stale,
    /// The handle does not come from this server.
    BadHandle,
    /// The guard of a change does not hold.
    Changed,
    /// The server no longer knows the place in a directory.
    BadCookie,
    /// The server cannot do this.
    NotSupported,
    /// The client should try again later.
    Later,
    /// Anything else.
    Other,
}

impl Status {
    /// The meaning of this status.
    pub fn cause(self) -> Cause {
        match self.0 {
            Wire::V2(status) => cause2(status),
            Wire::V3(status) => cause3(status),
            Wire::V4(status) => cause4(status),
        }
    }

    /// The name that the protocol gives it: `NFS3ERR_NOENT`.
    pub fn name(self) -> &'static str {
        match self.0 {
            Wire::V2(status) => status.name(),
            Wire::V3(status) => status.name(),
            Wire::V4(status) => status.name(),
        }
    }
}

/// Version 2 shares its numbers with version 3, and some servers also send other numbers of version 3.
fn cause2(status: v2::Status) -> Cause {
    cause3(v3::Status(status.0))
}

fn cause3(status: v3::Status) -> Cause {
    match status {
        v3::Status::NOENT => Cause::Absent,
        v3::Status::PERM => Cause::NotOwner,
        v3::Status::ACCES => Cause::Denied,
        v3::Status::EXIST => Cause::Exists,
        v3::Status::XDEV => Cause::OtherFileSystem,
        v3::Status::NOTDIR => Cause::NotDirectory,
        v3::Status::ISDIR => Cause::IsDirectory,
        v3::Status::INVAL => Cause::Invalid,
        v3::Status::FBIG => Cause::TooLarge,
        v3::Status::NOSPC => Cause::NoSpace,
        v3::Status::DQUOT => Cause::Quota,
        v3::Status::ROFS => Cause::ReadOnly,
        v3::Status::MLINK => Cause::TooManyNames,
        v3::Status::NAMETOOLONG => Cause::NameTooLong,
        v3::Status::NOTEMPTY => Cause::NotEmpty,
        v3::Status::STALE => Cause::Stale,
        v3::Status::BADHANDLE => Cause::BadHandle,
        v3::Status::NOT_SYNC => Cause::Changed,
        v3::Status::BAD_COOKIE => Cause::BadCookie,
        v3::Status::NOTSUPP => Cause::NotSupported,
        v3::Status::JUKEBOX => Cause::Later,
        _ => Cause::Other,
    }
}

fn cause4(status: v4::Status) -> Cause {
    match status {
        v4::Status::NOENT => Cause::Absent,
        v4::Status::PERM => Cause::NotOwner,
        v4::Status::ACCESS => Cause::Denied,
        v4::Status::EXIST => Cause::Exists,
        v4::Status::XDEV => Cause::OtherFileSystem,
        v4::Status::NOTDIR => Cause::NotDirectory,
        v4::Status::ISDIR => Cause::IsDirectory,
        v4::Status::INVAL => Cause::Invalid,
        v4::Status::FBIG => Cause::TooLarge,
        v4::Status::NOSPC => Cause::NoSpace,
        v4::Status::DQUOT => Cause::Quota,
        v4::Status::ROFS => Cause::ReadOnly,
        v4::Status::MLINK => Cause::TooManyNames,
        v4::Status::NAMETOOLONG => Cause::NameTooLong,
        v4::Status::NOTEMPTY => Cause::NotEmpty,
        // If a handle has expired, as if it is stale, a look-up by name may find the file again.
        v4::Status::STALE | v4::Status::FHEXPIRED => Cause::Stale,
        v4::Status::BADHANDLE => Cause::BadHandle,
        // A VERIFY before the change is its guard.
        v4::Status::NOT_SAME => Cause::Changed,
        v4::Status::BAD_COOKIE => Cause::BadCookie,
        v4::Status::NOTSUPP | v4::Status::ATTRNOTSUPP => Cause::NotSupported,
        v4::Status::DELAY | v4::Status::GRACE => Cause::Later,
        _ => Cause::Other,
    }
}

impl From<v2::Status> for Status {
    fn from(status: v2::Status) -> Self {
        Self(Wire::V2(status))
    }
}

impl From<v3::Status> for Status {
    fn from(status: v3::Status) -> Self {
        Self(Wire::V3(status))
    }
}

impl From<v4::Status> for Status {
    fn from(status: v4::Status) -> Self {
        Self(Wire::V4(status))
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Wire::V2(status) => status.fmt(f),
            Wire::V3(status) => status.fmt(f),
            Wire::V4(status) => status.fmt(f),
        }
    }
}

impl fmt::Debug for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Wire::V2(status) => status.fmt(f),
            Wire::V3(status) => status.fmt(f),
            Wire::V4(status) => status.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The versions share most numbers, and a shared number means the same.
    #[test]
    fn a_number_means_the_same_in_all_versions() {
        let mut shared = 0;
        for status in v3::Status::ALL {
            let four = v4::Status(status.0);
            if v4::Status::ALL.contains(&four) {
                assert_eq!(Status::from(*status).cause(), Status::from(four).cause(), "{status:?}");
                shared += 1;
            }
        }
        assert!(shared > 20, "{shared}");
    }

    #[test]
    fn a_status_is_told_as_its_version_names_it() {
        let (three, four) = (Status::from(v3::Status::JUKEBOX), Status::from(v4::Status::DELAY));
        assert_eq!((three.name(), three.cause()), ("NFS3ERR_JUKEBOX", Cause::Later));
        assert_eq!((four.name(), four.cause()), ("NFS4ERR_DELAY", Cause::Later));
        assert_eq!(Status::from(v3::Status::ROFS).to_string(), "the file system is read-only (NFS3ERR_ROFS)");
        assert_eq!(format!("{four:?}"), "NFS4ERR_DELAY(10008)");
        assert_eq!(Status::from(v3::Status(4711)).cause(), Cause::Other);
        assert_ne!(three, four);
    }
}
