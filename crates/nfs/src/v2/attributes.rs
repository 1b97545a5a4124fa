//! Handles and attributes (RFC 1094 sections 2.3.2 to 2.3.5, 2.2.2).

use super::{Answer, HANDLE_BYTES, procedure, sizes};
use rpcrdma_oncrpc::ReplyShape;

/// The type of a file (`ftype`), as the first word of its attributes says it. The mode says it, too; for sockets and
/// named pipes, which this list does not have, only the mode says it.
pub mod file_type {
    /// No file: a socket.
    pub const NONE: u32 = 0;
    /// A regular file.
    pub const REGULAR: u32 = 1;
    /// A directory.
    pub const DIRECTORY: u32 = 2;
    /// A block device.
    pub const BLOCK: u32 = 3;
    /// A character device, or a named pipe.
    pub const CHARACTER: u32 = 4;
    /// A symbolic link.
    pub const SYMLINK: u32 = 5;
}

xdr_fixed! {
    /// A file handle (`fhandle`).
    pub struct Handle: HANDLE_BYTES;
}

xdr_struct! {
    /// A time since 1970-01-01 00:00 UTC (`timeval`).
    #[derive(Copy, Default, PartialOrd, Ord, Hash)]
    pub struct Time {
        /// Seconds.
        pub seconds: u32,
        /// Microseconds.
        pub microseconds: u32,
    }

    /// The attributes of a file (`fattr`): 68 octets.
    pub struct Attributes {
        /// The type of the file: see [`file_type`].
        pub file_type: u32,
        /// Permission bits, together with the bits of the type.
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
        pub block_bytes: u32,
        /// The device, if the file is one.
        pub device: u32,
        /// Blocks in use, of 512 octets whatever the size of a block is.
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

    /// GETATTR: asks for attributes.
    pub struct GetAttributes {
        /// The file whose attributes are asked for.
        pub file: Handle,
    }
}

calls! {
    super::PROGRAM, super::VERSION, procedure::is_repeatable;
    GetAttributes, 1, Answer<Attributes>, ReplyShape::inline(sizes::STATUS + sizes::ATTRIBUTES);
}
