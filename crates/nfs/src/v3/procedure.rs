//! The procedures by number.

xdr_enum! {
    /// A procedure of NFS version 3.
    #[derive(PartialOrd, Ord)]
    pub enum Procedure: "procedure of NFS version 3" {
        /// Does nothing.
        Null = 0,
        /// Asks for attributes.
        GetAttributes = 1,
        /// Sets attributes.
        SetAttributes = 2,
        /// Asks for the file of a name.
        Lookup = 3,
        /// Asks what the caller may do.
        Access = 4,
        /// Asks what a symbolic link points to.
        ReadLink = 5,
        /// Reads a file.
        Read = 6,
        /// Writes a file.
        Write = 7,
        /// Makes a file.
        Create = 8,
        /// Makes a directory.
        MakeDirectory = 9,
        /// Makes a symbolic link.
        SymbolicLink = 10,
        /// Makes a special file.
        MakeNode = 11,
        /// Removes a file.
        Remove = 12,
        /// Removes a directory.
        RemoveDirectory = 13,
        /// Renames.
        Rename = 14,
        /// Makes a hard link.
        Link = 15,
        /// Reads a directory.
        ReadDirectory = 16,
        /// Reads a directory with attributes and handles.
        ReadDirectoryPlus = 17,
        /// Asks how full the file system is.
        FileSystemStatus = 18,
        /// Asks what the file system can do.
        FileSystemInfo = 19,
        /// Asks for limits of names and links.
        PathConfiguration = 20,
        /// Makes writes durable.
        Commit = 21,
    }
}

impl Procedure {
    /// All of them, by number.
    pub const ALL: [Procedure; 22] = [
        Procedure::Null,
        Procedure::GetAttributes,
        Procedure::SetAttributes,
        Procedure::Lookup,
        Procedure::Access,
        Procedure::ReadLink,
        Procedure::Read,
        Procedure::Write,
        Procedure::Create,
        Procedure::MakeDirectory,
        Procedure::SymbolicLink,
        Procedure::MakeNode,
        Procedure::Remove,
        Procedure::RemoveDirectory,
        Procedure::Rename,
        Procedure::Link,
        Procedure::ReadDirectory,
        Procedure::ReadDirectoryPlus,
        Procedure::FileSystemStatus,
        Procedure::FileSystemInfo,
        Procedure::PathConfiguration,
        Procedure::Commit,
    ];

    /// The procedure of a number, if there is one.
    pub fn from_number(number: u32) -> Option<Self> {
        usize::try_from(number).ok().and_then(|index| Self::ALL.get(index)).copied()
    }

    /// The name that the protocol gives it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Null => "NULL",
            Self::GetAttributes => "GETATTR",
            Self::SetAttributes => "SETATTR",
            Self::Lookup => "LOOKUP",
            Self::Access => "ACCESS",
            Self::ReadLink => "READLINK",
            Self::Read => "READ",
            Self::Write => "WRITE",
            Self::Create => "CREATE",
            Self::MakeDirectory => "MKDIR",
            Self::SymbolicLink => "SYMLINK",
            Self::MakeNode => "MKNOD",
            Self::Remove => "REMOVE",
            Self::RemoveDirectory => "RMDIR",
            Self::Rename => "RENAME",
            Self::Link => "LINK",
            Self::ReadDirectory => "READDIR",
            Self::ReadDirectoryPlus => "READDIRPLUS",
            Self::FileSystemStatus => "FSSTAT",
            Self::FileSystemInfo => "FSINFO",
            Self::PathConfiguration => "PATHCONF",
            Self::Commit => "COMMIT",
        }
    }

    /// Whether executing a call twice does the same as once. Where not, a server remembers its answers for
    /// retransmissions, and a client does not repeat it for more room.
    ///
    /// Those that look change nothing (READ may change the access time, as a second READ would), and COMMIT makes
    /// durable what is there. SETATTR and WRITE would undo what others did between two executions; the rest would fail
    /// the second time, or change what another has put in the place.
    pub const fn is_idempotent(self) -> bool {
        !matches!(
            self,
            Self::SetAttributes
                | Self::Write
                | Self::Create
                | Self::MakeDirectory
                | Self::SymbolicLink
                | Self::MakeNode
                | Self::Remove
                | Self::RemoveDirectory
                | Self::Rename
                | Self::Link
        )
    }
}

/// Whether a call of the procedure with this number may be executed twice.
pub(super) const fn is_repeatable(number: u32) -> bool {
    let index = number as usize;
    index < Procedure::ALL.len() && Procedure::ALL[index].is_idempotent()
}
