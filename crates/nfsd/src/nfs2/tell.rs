//! From the answers of version 3 to those of version 2.
//!
//! Version 2 has fewer statuses. A status that it lacks becomes the nearest one, chosen by what a program does with it:
//! `mv` copies if it may not rename, and after an input or output error an administrator looks for a disk.

use rpcrdma_nfs::{v2, v3};

/// The status of one of version 3.
// NFS2-STATUS-a
pub(crate) fn status(status: v3::Status) -> v2::Status {
    match status {
        // A file of another export, and one that another client has for itself.
        v3::Status::XDEV | v3::Status::JUKEBOX => v2::Status::ACCES,
        // As link(2), symlink(2) and mknod(2) say where a file system cannot do it.
        v3::Status::MLINK | v3::Status::NOTSUPP | v3::Status::BADTYPE => v2::Status::PERM,
        v3::Status::BADHANDLE => v2::Status::STALE,
        v3::Status(number) if v2::Status::ALL.contains(&v2::Status(number)) => v2::Status(number),
        // INVAL, NOT_SYNC, BAD_COOKIE, TOOSMALL, SERVERFAULT.
        _ => v2::Status::IO,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// proves: NFS2-STATUS-a
    #[test]
    fn every_status_has_one_of_version_2() {
        for three in v3::Status::ALL {
            let two = status(*three);
            assert!(v2::Status::ALL.contains(&two), "{three:?}");
            assert_eq!(two == v2::Status::OK, *three == v3::Status::OK);
        }
        assert_eq!(status(v3::Status::ROFS), v2::Status::ROFS);
        assert_eq!(status(v3::Status::INVAL), v2::Status::IO);
        assert_eq!(status(v3::Status::XDEV), v2::Status::ACCES);
    }
}
