//! Version 2's results from those of version 3.
//!
//! Version 2 has fewer statuses. If it lacks a status, the client gets the one to which programs react in the most
//! similar way: `mv` copies if it may not rename, and after an input or output error an administrator looks for a
//! broken disk.

use rpcrdma_nfs::{v2, v3};

/// Version 2's status for a status of version 3.
// NFS2-STATUS-a
pub(crate) fn status(status: v3::Status) -> v2::Status {
    match status {
        // A file of another export, and a file that is delegated to another client.
        v3::Status::XDEV | v3::Status::JUKEBOX => v2::Status::ACCES,
        // As link(2), symlink(2) and mknod(2) report it if a file system cannot do it.
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
