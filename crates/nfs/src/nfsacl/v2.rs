//! The procedures of version 2, which go with NFS version 2: handles of 32 octets, and attributes that are always
//! present.
//!
//! The server does not serve them, and the client does not call them: they are for readers of captures.

use super::{Lists, PROGRAM, VERSION_2, mask, procedure};
use crate::{Call, v3::Answer};
use rpcrdma_oncrpc::ReplyShape;

pub use crate::v2::{Attributes, HANDLE_BYTES, Handle, Time};

/// Octets of a status.
const STATUS: usize = 4;
/// Octets of the attributes: 17 words.
const ATTRIBUTES: usize = 68;

xdr_struct! {
    /// GETACL: asks for the lists of a file.
    pub struct GetAcl {
        /// The file whose lists are asked for.
        pub file: Handle,
        /// The parts that are asked for: bits of [`mask`].
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
        /// The file that gets the lists.
        pub file: Handle,
        /// The lists to set: those whose entries are present.
        pub lists: Lists,
    }

    /// GETATTR: asks for attributes.
    pub struct GetAttributes {
        /// The file whose attributes are asked for.
        pub file: Handle,
    }

    /// ACCESS: asks what the caller may do.
    pub struct Access {
        /// The file that the caller wants to use.
        pub file: Handle,
        /// The rights asked about, numbered as in version 3 of NFS.
        pub rights: u32,
    }

    /// What ACCESS returns.
    pub struct AccessOk {
        /// The file's attributes.
        pub attributes: Attributes,
        /// The rights that the caller has, of those that it asked for.
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
        ReplyShape::inline(STATUS + ATTRIBUTES + Lists::most_bytes(self.mask & mask::ALL))
    }
}

calls! {
    PROGRAM, VERSION_2, procedure::is_repeatable;
    SetAcl, procedure::SETACL, Answer<Attributes, ()>, ReplyShape::inline(STATUS + ATTRIBUTES);
    GetAttributes, procedure::GETATTR, Answer<Attributes, ()>, ReplyShape::inline(STATUS + ATTRIBUTES);
    Access, procedure::ACCESS, Answer<AccessOk, ()>, ReplyShape::inline(STATUS + ATTRIBUTES + 4);
}
