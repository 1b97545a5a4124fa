//! Finding files and what may be done with them: ACCESS, GETFH, LOOKUP, PUTFH, READLINK (RFC 8881 sections 18.1, 18.8,
//! 18.13, 18.19, 18.24). LOOKUPP, PUTPUBFH, PUTROOTFH, RESTOREFH and SAVEFH have no arguments and no results.

use crate::v4::{Handle, LinkText, Name};

xdr_struct! {
    /// ACCESS: asks which of these rights the caller has on the current file.
    #[derive(Copy)]
    pub struct Access {
        /// Rights of [`access`].
        pub rights: u32,
    }

    /// What ACCESS returns.
    #[derive(Copy)]
    pub struct AccessOk {
        /// The rights about which the server can answer.
        pub supported: u32,
        /// The rights that the caller has, of those that the server supports.
        pub rights: u32,
    }

    /// What GETFH returns.
    pub struct GetFhOk {
        /// The current file's handle.
        pub file: Handle,
    }

    /// LOOKUP: goes to the file of a name in the current directory.
    pub struct Lookup {
        /// The name to find.
        pub name: Name,
    }

    /// PUTFH: makes a file the current one.
    pub struct PutFh {
        /// The file.
        pub file: Handle,
    }

    /// What READLINK returns.
    pub struct ReadLinkOk {
        /// What the current symbolic link points to: an item that may be placed directly.
        pub text: LinkText,
    }
}

/// Rights for ACCESS.
pub mod access {
    /// To read a file, to list a directory.
    pub const READ: u32 = 0x01;
    /// To look up in a directory.
    pub const LOOKUP: u32 = 0x02;
    /// To change data, or entries of a directory.
    pub const MODIFY: u32 = 0x04;
    /// To add data, or entries of a directory.
    pub const EXTEND: u32 = 0x08;
    /// To remove entries of a directory.
    pub const DELETE: u32 = 0x10;
    /// To execute a file.
    pub const EXECUTE: u32 = 0x20;
    /// To read extended attributes (RFC 8276).
    pub const XATTR_READ: u32 = 0x40;
    /// To write extended attributes.
    pub const XATTR_WRITE: u32 = 0x80;
    /// To list extended attributes.
    pub const XATTR_LIST: u32 = 0x100;
}
