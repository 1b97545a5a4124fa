//! Looking up, asking for rights, and what a file system is like (RFC 1813 sections 3.3.0, 3.3.3 to 3.3.5, 3.3.18 to
//! 3.3.20).

use super::{Answer, Attributes, Handle, MAX_PATH_BYTES, Name, Path, Time, procedure, sizes};
use rpcrdma_oncrpc::{ItemRoom, ReplyShape};
use rpcrdma_xdr::padded;

/// Rights that ACCESS asks for.
pub mod access {
    /// Read a file or list a directory.
    pub const READ: u32 = 0x01;
    /// Look up a name in a directory.
    pub const LOOKUP: u32 = 0x02;
    /// Rewrite a file's data or change a directory's entries.
    pub const MODIFY: u32 = 0x04;
    /// Write beyond a file's end or add an entry.
    pub const EXTEND: u32 = 0x08;
    /// Delete an entry.
    pub const DELETE: u32 = 0x10;
    /// Execute a file.
    pub const EXECUTE: u32 = 0x20;
}

/// Properties that FSINFO returns.
pub mod properties {
    /// There are hard links.
    pub const LINK: u32 = 0x01;
    /// There are symbolic links.
    pub const SYMLINK: u32 = 0x02;
    /// PATHCONF returns the same for every file.
    pub const HOMOGENEOUS: u32 = 0x08;
    /// Times can be set.
    pub const CAN_SET_TIME: u32 = 0x10;
}

xdr_struct! {
    /// NULL: asks whether the server answers.
    #[derive(Copy, Default)]
    pub struct Null {}

    /// LOOKUP: asks for the file of a name.
    pub struct Lookup {
        /// The directory to search.
        pub directory: Handle,
        /// The name to find.
        pub name: Name,
    }

    /// What LOOKUP returns.
    pub struct LookupOk {
        /// The file.
        pub file: Handle,
        /// Its attributes, if known.
        pub attributes: Option<Attributes>,
        /// The directory's attributes, if known.
        pub directory: Option<Attributes>,
    }

    /// ACCESS: asks what the caller may do.
    pub struct Access {
        /// The file that the caller wants to use.
        pub file: Handle,
        /// The rights that the caller asks about, of those in [`access`].
        pub rights: u32,
    }

    /// What ACCESS returns.
    pub struct AccessOk {
        /// The file's attributes, if known.
        pub attributes: Option<Attributes>,
        /// The rights that the caller has, of those that it asked for.
        pub rights: u32,
    }

    /// READLINK: asks what a symbolic link points to.
    pub struct ReadLink {
        /// The link to read.
        pub link: Handle,
    }

    /// What READLINK returns.
    pub struct ReadLinkOk {
        /// The link's attributes, if known.
        pub attributes: Option<Attributes>,
        /// What it points to: an item that may be placed directly.
        pub path: Path,
    }

    /// FSSTAT: asks how full a file system is.
    pub struct FileSystemStatus {
        /// The root of the file system.
        pub root: Handle,
    }

    /// What FSSTAT returns.
    pub struct FileSystemStatusOk {
        /// The root's attributes, if known.
        pub attributes: Option<Attributes>,
        /// Octets in all.
        pub total_bytes: u64,
        /// Octets free.
        pub free_bytes: u64,
        /// Octets that the caller may use.
        pub available_bytes: u64,
        /// Files in all.
        pub total_files: u64,
        /// Files that can still be made.
        pub free_files: u64,
        /// Files that the caller can still make.
        pub available_files: u64,
        /// For how many seconds nothing of this is expected to change.
        pub invariant_seconds: u32,
    }

    /// FSINFO: asks what a file system can do.
    pub struct FileSystemInfo {
        /// The root of the file system.
        pub root: Handle,
    }

    /// What FSINFO returns. Sizes are in octets.
    pub struct FileSystemInfoOk {
        /// The root's attributes, if known.
        pub attributes: Option<Attributes>,
        /// The largest READ.
        pub read_max: u32,
        /// The best READ.
        pub read_preferred: u32,
        /// READ sizes should be multiples of it.
        pub read_multiple: u32,
        /// The largest WRITE.
        pub write_max: u32,
        /// The best WRITE.
        pub write_preferred: u32,
        /// WRITE sizes should be multiples of it.
        pub write_multiple: u32,
        /// The best READDIR.
        pub directory_preferred: u32,
        /// The largest file.
        pub max_file_bytes: u64,
        /// How exactly times are kept.
        pub time_precision: Time,
        /// Properties of the file system, of those in [`properties`].
        pub properties: u32,
    }

    /// PATHCONF: asks for limits of names and links.
    pub struct PathConfiguration {
        /// The file whose limits are asked for.
        pub file: Handle,
    }

    /// What PATHCONF returns.
    pub struct PathConfigurationOk {
        /// The file's attributes, if known.
        pub attributes: Option<Attributes>,
        /// The most hard links to a file.
        pub max_links: u32,
        /// The longest name, in octets.
        pub max_name_bytes: u32,
        /// Whether longer names are an error, not cut.
        pub no_truncation: bool,
        /// Whether only a privileged user may give files away.
        pub chown_restricted: bool,
        /// Whether names that differ in case alone are the same.
        pub case_insensitive: bool,
        /// Whether the case of names is kept.
        pub case_preserving: bool,
    }
}

/// Results on success: a status, the file's attributes, and `more` octets.
const fn with_attributes(more: usize) -> ReplyShape {
    ReplyShape::inline(sizes::STATUS + sizes::OPTIONAL_ATTRIBUTES + more)
}

calls! {
    super::PROGRAM, super::VERSION, procedure::is_repeatable;
    Null, 0, (), ReplyShape::inline(0);
    Lookup, 3, Answer<LookupOk, Option<Attributes>>, with_attributes(sizes::HANDLE + sizes::OPTIONAL_ATTRIBUTES);
    Access, 4, Answer<AccessOk, Option<Attributes>>, with_attributes(sizes::WORD);
    ReadLink, 5, Answer<ReadLinkOk, Option<Attributes>>, ReplyShape {
        max_len: sizes::STATUS + sizes::OPTIONAL_ATTRIBUTES + sizes::WORD + padded(MAX_PATH_BYTES),
        items: vec![ItemRoom::new(MAX_PATH_BYTES)].into(),
    };
    FileSystemStatus, 18, Answer<FileSystemStatusOk, Option<Attributes>>, with_attributes(6 * 8 + sizes::WORD);
    FileSystemInfo, 19, Answer<FileSystemInfoOk, Option<Attributes>>, with_attributes(7 * sizes::WORD + 8 + 8 + sizes::WORD);
    PathConfiguration, 20, Answer<PathConfigurationOk, Option<Attributes>>, with_attributes(6 * sizes::WORD);
}
