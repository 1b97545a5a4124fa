//! Access control lists of three kinds, from and to each other: POSIX ones, which say the same everywhere here; those
//! of NFS version 4; and what Linux keeps as `system.posix_acl_access` and `system.posix_acl_default`.
//!
//! The server goes by them, and whoever copies files with their lists may, too.

pub use crate::{
    directory::{posix_acl_of_xattr, xattr_of_posix_acl},
    nfs4::{acl_of_posix, posix_of_acl},
};
