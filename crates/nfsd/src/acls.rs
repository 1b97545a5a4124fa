//! Converts access control lists between three kinds: POSIX lists, NFS version 4's lists, and Linux's
//! `system.posix_acl_access` and `system.posix_acl_default`. The meaning of a POSIX list is the same everywhere here.
//!
//! The server uses them, and so can programs that copy files with their lists.

pub use crate::{
    directory::{posix_acl_of_xattr, xattr_of_posix_acl},
    nfs4::{acl_of_posix, posix_of_acl},
};
