//! The procedures by number.

procedures! {
    /// A procedure of NFS version 3.
    #[derive(PartialOrd, Ord)]
    pub enum Procedure: "procedure of NFS version 3" {
        /// Does nothing.
        Null = 0, "NULL";
        /// Asks for attributes.
        GetAttributes = 1, "GETATTR";
        /// Sets attributes.
        SetAttributes = 2, "SETATTR";
        /// Asks for the file of a name.
        Lookup = 3, "LOOKUP";
        /// Asks what the caller may do.
        Access = 4, "ACCESS";
        /// Asks what a symbolic link points to.
        ReadLink = 5, "READLINK";
        /// Reads a file.
        Read = 6, "READ";
        /// Writes a file.
        Write = 7, "WRITE";
        /// Makes a file.
        Create = 8, "CREATE";
        /// Makes a directory.
        MakeDirectory = 9, "MKDIR";
        /// Makes a symbolic link.
        SymbolicLink = 10, "SYMLINK";
        /// Makes a special file.
        MakeNode = 11, "MKNOD";
        /// Removes a file.
        Remove = 12, "REMOVE";
        /// Removes a directory.
        RemoveDirectory = 13, "RMDIR";
        /// Renames.
        Rename = 14, "RENAME";
        /// Makes a hard link.
        Link = 15, "LINK";
        /// Reads a directory.
        ReadDirectory = 16, "READDIR";
        /// Reads a directory with attributes and handles.
        ReadDirectoryPlus = 17, "READDIRPLUS";
        /// Asks how full the file system is.
        FileSystemStatus = 18, "FSSTAT";
        /// Asks what the file system can do.
        FileSystemInfo = 19, "FSINFO";
        /// Asks for limits of names and links.
        PathConfiguration = 20, "PATHCONF";
        /// Makes writes durable.
        Commit = 21, "COMMIT";
    }
}

impl Procedure {
    /// Whether executing a call twice does the same as once. If not, a server remembers its reply for retransmissions,
    /// and a client does not repeat it for more room.
    ///
    /// Calls that only read change nothing (READ may change the access time, as a second READ would), and COMMIT makes
    /// existing data durable. SETATTR and WRITE would undo what others did between two executions; the rest would fail
    /// the second time, or change what another client has put in the place.
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
