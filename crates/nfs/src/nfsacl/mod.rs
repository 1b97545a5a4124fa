//! NFSACL versions 2 and 3: POSIX access control lists beside NFS versions 2 and 3, on the same connection and port.
//!
//! The program has no public definition. The types here follow what Linux and Solaris send: two lists with their
//! numbers of entries, each list present only if the mask asks for it.
//!
//! ```text
//! entry:   type (4)  user or group (4)  rights (4)
//! list:    entries in the file's list (4)  entries that follow (4)  the entries
//! lists:   mask (4)  access list  default list
//! ```
//!
//! Nothing of it may be placed directly (NFS's upper-layer bindings for version 2, section 4.2).

mod list;
pub mod v2;
mod v3;

pub use list::{Entry, List, Lists, MAX_ENTRIES, entry, mask};
pub use v3::{GetAcl, GetAclOk, SetAcl, procedure};

/// The program number of NFSACL.
// ULB-4-a, ULB-4.2-b
pub const PROGRAM: u32 = 100_227;
/// The version that goes with NFS version 3.
pub const VERSION_3: u32 = 3;
/// The version that goes with NFS version 2.
pub const VERSION_2: u32 = 2;
