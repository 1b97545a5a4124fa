//! The procedures by number.

procedures! {
    /// A procedure of NFS version 2.
    #[derive(PartialOrd, Ord)]
    pub enum Procedure: "procedure of NFS version 2" {
        /// Does nothing.
        Null = 0, "NULL";
        /// Asks for attributes.
        GetAttributes = 1, "GETATTR";
        /// Sets attributes.
        SetAttributes = 2, "SETATTR";
        /// Obsolete: MOUNT returns the root.
        Root = 3, "ROOT";
        /// Asks for the file of a name.
        Lookup = 4, "LOOKUP";
        /// Asks what a symbolic link points to.
        ReadLink = 5, "READLINK";
        /// Reads a file.
        Read = 6, "READ";
        /// Was never used.
        WriteCache = 7, "WRITECACHE";
        /// Writes a file.
        Write = 8, "WRITE";
        /// Makes a file.
        Create = 9, "CREATE";
        /// Removes a file.
        Remove = 10, "REMOVE";
        /// Renames.
        Rename = 11, "RENAME";
        /// Makes a hard link.
        Link = 12, "LINK";
        /// Makes a symbolic link.
        SymbolicLink = 13, "SYMLINK";
        /// Makes a directory.
        MakeDirectory = 14, "MKDIR";
        /// Removes a directory.
        RemoveDirectory = 15, "RMDIR";
        /// Reads a directory.
        ReadDirectory = 16, "READDIR";
        /// Asks how full the file system is.
        FileSystemStatus = 17, "STATFS";
    }
}

impl Procedure {
    /// Whether its results begin with a status.
    // NFS2-1094-2.2-a, NFS2-1094-2.2.4-a
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
