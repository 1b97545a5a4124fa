//! The procedures by number.

xdr_enum! {
    /// A procedure of NFS version 2.
    #[derive(PartialOrd, Ord)]
    pub enum Procedure: "procedure of NFS version 2" {
        /// Does nothing.
        Null = 0,
        /// Asks for attributes.
        GetAttributes = 1,
        /// Sets attributes.
        SetAttributes = 2,
        /// Obsolete: MOUNT tells the root.
        Root = 3,
        /// Asks for the file of a name.
        Lookup = 4,
        /// Asks what a symbolic link points to.
        ReadLink = 5,
        /// Reads a file.
        Read = 6,
        /// Was never used.
        WriteCache = 7,
        /// Writes a file.
        Write = 8,
        /// Makes a file.
        Create = 9,
        /// Removes a file.
        Remove = 10,
        /// Renames.
        Rename = 11,
        /// Makes a hard link.
        Link = 12,
        /// Makes a symbolic link.
        SymbolicLink = 13,
        /// Makes a directory.
        MakeDirectory = 14,
        /// Removes a directory.
        RemoveDirectory = 15,
        /// Reads a directory.
        ReadDirectory = 16,
        /// Asks how full the file system is.
        FileSystemStatus = 17,
    }
}

impl Procedure {
    /// All of them, by number.
    pub const ALL: [Procedure; 18] = [
        Procedure::Null,
        Procedure::GetAttributes,
        Procedure::SetAttributes,
        Procedure::Root,
        Procedure::Lookup,
        Procedure::ReadLink,
        Procedure::Read,
        Procedure::WriteCache,
        Procedure::Write,
        Procedure::Create,
        Procedure::Remove,
        Procedure::Rename,
        Procedure::Link,
        Procedure::SymbolicLink,
        Procedure::MakeDirectory,
        Procedure::RemoveDirectory,
        Procedure::ReadDirectory,
        Procedure::FileSystemStatus,
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
            Self::Root => "ROOT",
            Self::Lookup => "LOOKUP",
            Self::ReadLink => "READLINK",
            Self::Read => "READ",
            Self::WriteCache => "WRITECACHE",
            Self::Write => "WRITE",
            Self::Create => "CREATE",
            Self::Remove => "REMOVE",
            Self::Rename => "RENAME",
            Self::Link => "LINK",
            Self::SymbolicLink => "SYMLINK",
            Self::MakeDirectory => "MKDIR",
            Self::RemoveDirectory => "RMDIR",
            Self::ReadDirectory => "READDIR",
            Self::FileSystemStatus => "STATFS",
        }
    }

    /// Whether its results begin with a status.
    pub const fn has_status(self) -> bool {
        !matches!(self, Self::Null | Self::Root | Self::WriteCache)
    }

    /// Whether executing a call twice does the same as once; see
    /// [version 3](crate::v3::Procedure::is_idempotent), which draws the line in the same place.
    pub const fn is_idempotent(self) -> bool {
        !matches!(
            self,
            Self::SetAttributes
                | Self::Write
                | Self::Create
                | Self::Remove
                | Self::Rename
                | Self::Link
                | Self::SymbolicLink
                | Self::MakeDirectory
                | Self::RemoveDirectory
        )
    }
}

/// Whether a call of the procedure with this number may be executed twice.
pub(super) const fn is_repeatable(number: u32) -> bool {
    let index = number as usize;
    index < Procedure::ALL.len() && Procedure::ALL[index].is_idempotent()
}
