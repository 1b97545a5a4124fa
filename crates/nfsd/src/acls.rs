//! Access control lists of three kinds, from and to each other: POSIX ones, which mean the same everywhere here; those
//! of NFS version 4; and Linux's `system.posix_acl_access` and `system.posix_acl_default`.
//!
//! The server uses them, and so can programs that copy files with their lists.

pub use crate::{
    directory::{posix_acl_of_xattr, xattr_of_posix_acl},
    nfs4::{acl_of_posix, posix_of_acl},
};
