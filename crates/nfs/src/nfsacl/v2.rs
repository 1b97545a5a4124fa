//! The procedures of version 2, with the types of NFS version 2 (RFC 1094 section 2.3) that they need: handles of 32
//! octets, and attributes that are always there.
//!
//! Version 2 of NFS is not served, and nothing makes such calls; what captures have of them is read.

use super::{Lists, PROGRAM, VERSION_2, mask, procedure};
use crate::{Call, v3::Answer};
use rpcrdma_oncrpc::ReplyShape;

/// The octets of a handle, which are always as many.
pub const HANDLE_OCTETS: usize = 32;
/// Octets of a status.
const STATUS: usize = 4;
/// Octets of the attributes: 17 words.
const ATTRIBUTES: usize = 68;

xdr_fixed! {
    /// A file handle (`fhandle`).
    pub struct Handle: HANDLE_OCTETS;
}

xdr_struct! {
    /// A time since 1970-01-01 00:00 UTC (`timeval`).
    #[derive(Copy, Default)]
    pub struct Time {
        /// Seconds.
        pub seconds: u32,
        /// Microseconds.
        pub microseconds: u32,
    }

    /// The attributes of a file (`fattr`): 68 octets.
    pub struct Attributes {
        /// What it is (`ftype`): 1 a regular file, 2 a directory, 3 and 4 devices, 5 a symbolic link.
        pub file_type: u32,
        /// Permission bits, with those of the type.
        pub mode: u32,
        /// Number of hard links.
        pub links: u32,
        /// Owner.
        pub uid: u32,
        /// Group.
        pub gid: u32,
        /// Size in octets.
        pub size: u32,
        /// Octets of a block.
        pub block_octets: u32,
        /// Which device it is, if it is one.
        pub device: u32,
        /// Blocks in use.
        pub blocks: u32,
        /// Identifies the file system.
        pub file_system: u32,
        /// Identifies the file in it.
        pub file_id: u32,
        /// Last access.
        pub accessed: Time,
        /// Last change of the contents.
        pub modified: Time,
        /// Last change of the attributes.
        pub changed: Time,
    }

    /// GETACL: asks for the lists of a file.
    pub struct GetAcl {
        /// Of which file.
        pub file: Handle,
        /// What of them: bits of [`mask`].
        pub mask: u32,
    }

    /// What GETACL returns.
    pub struct GetAclOk {
        /// The file's attributes.
        pub attributes: Attributes,
        /// The lists.
        pub lists: Lists,
    }

    /// SETACL: sets the lists of a file.
    pub struct SetAcl {
        /// Of which file.
        pub file: Handle,
        /// The lists that are set are those whose entries are there.
        pub lists: Lists,
    }

    /// GETATTR: asks for attributes.
    pub struct GetAttributes {
        /// Of which file.
        pub file: Handle,
    }

    /// ACCESS: asks what the caller may do.
    pub struct Access {
        /// With which file.
        pub file: Handle,
        /// The rights asked about, numbered as in version 3 of NFS.
        pub rights: u32,
    }

    /// What ACCESS returns.
    pub struct AccessOk {
        /// The file's attributes.
        pub attributes: Attributes,
        /// Those of the rights that the caller has.
        pub rights: u32,
    }
}

impl Call for GetAcl {
    const PROGRAM: u32 = PROGRAM;
    const VERSION: u32 = VERSION_2;
    const PROCEDURE: u32 = procedure::GETACL;
    type Reply = Answer<GetAclOk, ()>;

    fn is_repeatable(&self) -> bool {
        procedure::is_repeatable(Self::PROCEDURE)
    }

    fn reply_shape(&self) -> ReplyShape {
        ReplyShape::inline(STATUS + ATTRIBUTES + Lists::most_octets(self.mask & mask::ALL))
    }
}

calls! {
    PROGRAM, VERSION_2, procedure::is_repeatable;
    SetAcl, procedure::SETACL, Answer<Attributes, ()>, ReplyShape::inline(STATUS + ATTRIBUTES);
    GetAttributes, procedure::GETATTR, Answer<Attributes, ()>, ReplyShape::inline(STATUS + ATTRIBUTES);
    Access, procedure::ACCESS, Answer<AccessOk, ()>, ReplyShape::inline(STATUS + ATTRIBUTES + 4);
}
