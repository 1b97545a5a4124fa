//! What a call is about, and the status of its reply, for all procedures alike.

use rpcrdma_nfs::v3::{self, Answer, Handle, Name, Status};

/// The arguments of a procedure.
pub(crate) trait About {
    /// The file, or the directory if there is a name.
    fn file(&self) -> Option<&Handle>;

    /// The name in the directory.
    fn name(&self) -> Option<&Name>;
}

macro_rules! about {
    ($($args:ident: $file:ident $(/ $name:ident)?;)*) => {
        $(impl About for v3::$args {
            fn file(&self) -> Option<&Handle> {
                Some(&self.$file)
            }

            fn name(&self) -> Option<&Name> {
                None$(.or(Some(&self.$name)))?
            }
        })*
    };
}

about! {
    GetAttributes: file;
    SetAttributes: file;
    Lookup: directory / name;
    Access: file;
    ReadLink: link;
    Read: file;
    Write: file;
    Create: directory / name;
    MakeDirectory: directory / name;
    SymbolicLink: directory / name;
    MakeNode: directory / name;
    Remove: directory / name;
    RemoveDirectory: directory / name;
    Rename: from_directory / from;
    Link: directory / name;
    ReadDirectory: directory;
    ReadDirectoryPlus: directory;
    FileSystemStatus: root;
    FileSystemInfo: root;
    PathConfiguration: file;
    Commit: file;
}

impl About for v3::Null {
    fn file(&self) -> Option<&Handle> {
        None
    }

    fn name(&self) -> Option<&Name> {
        None
    }
}

/// The results of a procedure.
pub(crate) trait HasStatus {
    /// The status with which they begin.
    fn status(&self) -> Status;
}

impl<T, F> HasStatus for Answer<T, F> {
    fn status(&self) -> Status {
        Answer::status(self)
    }
}

/// NULL has no status.
impl HasStatus for () {
    fn status(&self) -> Status {
        Status::OK
    }
}
