//! Extended attributes: GETXATTR, SETXATTR, LISTXATTRS, REMOVEXATTR (RFC 8276 section 8.4). Nothing of them may be
//! placed directly.

use crate::v4::{ChangeInfo, List, Name, Opaque};

/// The largest value in octets: Linux's `XATTR_SIZE_MAX`.
pub const MAX_XATTR_BYTES: usize = 64 << 10;

/// The largest value that is read from a call, so that a value longer than [`MAX_XATTR_BYTES`] gets its own status and
/// not the status of a call that cannot be decoded. The size of a call limits it.
pub const MAX_XATTR_ARGUMENT_BYTES: usize = 1 << 20;

/// The most names in one list: what the 64 KiB of Linux's `XATTR_LIST_MAX` can hold of names of 6 octets and their
/// ends.
pub const MAX_XATTR_NAMES: usize = 8192;

xdr_enum! {
    /// How SETXATTR treats an attribute that exists (`setxattr_option4`).
    pub enum SetXattrOption: "way to set an extended attribute" {
        /// Sets it in either case.
        Either = 0,
        /// It is an error if it exists.
        Create = 1,
        /// It is an error unless it exists.
        Replace = 2,
    }
}

xdr_struct! {
    /// GETXATTR: asks for an extended attribute of the current file.
    pub struct GetXattr {
        /// Its name, without a namespace.
        pub name: Name,
    }

    /// What GETXATTR returns.
    pub struct GetXattrOk {
        /// Its value.
        pub value: Opaque<MAX_XATTR_BYTES>,
    }

    /// SETXATTR: sets an extended attribute of the current file.
    pub struct SetXattr {
        /// What to do if the attribute exists.
        pub option: SetXattrOption,
        /// Its name, without a namespace.
        pub name: Name,
        /// Its value.
        pub value: Opaque<MAX_XATTR_ARGUMENT_BYTES>,
    }

    /// What SETXATTR returns.
    #[derive(Copy)]
    pub struct SetXattrOk {
        /// The file before and after.
        pub change: ChangeInfo,
    }

    /// LISTXATTRS: asks for the names of the current file's extended attributes.
    #[derive(Copy)]
    pub struct ListXattrs {
        /// Where to continue: 0, or the cookie of the last reply.
        pub cookie: u64,
        /// The most octets of [`ListXattrsOk`].
        pub max_count: u32,
    }

    /// What LISTXATTRS returns.
    pub struct ListXattrsOk {
        /// Where to go on.
        pub cookie: u64,
        /// The names.
        pub names: List<Name, MAX_XATTR_NAMES>,
        /// Whether these were the last.
        pub end: bool,
    }

    /// REMOVEXATTR: removes an extended attribute of the current file.
    pub struct RemoveXattr {
        /// Its name, without a namespace.
        pub name: Name,
    }

    /// What REMOVEXATTR returns.
    #[derive(Copy)]
    pub struct RemoveXattrOk {
        /// The file before and after.
        pub change: ChangeInfo,
    }
}
