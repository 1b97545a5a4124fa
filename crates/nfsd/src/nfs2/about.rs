//! The file and the name that a call is about, for all procedures alike.

use rpcrdma_nfs::v2::{self, Handle, Name};

/// The arguments of a procedure.
pub(super) trait About {
    /// The file, or the directory if there is a name.
    fn file(&self) -> Option<&Handle>;

    /// The name in the directory.
    fn name(&self) -> Option<&Name>;
}

macro_rules! about {
    ($($args:ident: $($file:ident $(/ $name:ident)?)?;)*) => {
        $(impl About for v2::$args {
            fn file(&self) -> Option<&Handle> {
                None$(.or(Some(&self.$file)))?
            }

            fn name(&self) -> Option<&Name> {
                None$($(.or(Some(&self.$name)))?)?
            }
        })*
    };
}

about! {
    Null: ;
    GetAttributes: file;
    SetAttributes: file;
    Root: ;
    Lookup: directory / name;
    ReadLink: link;
    Read: file;
    WriteCache: ;
    Write: file;
    Create: directory / name;
    Remove: directory / name;
    Rename: from_directory / from;
    Link: directory / name;
    SymbolicLink: directory / name;
    MakeDirectory: directory / name;
    RemoveDirectory: directory / name;
    ReadDirectory: directory;
    FileSystemStatus: root;
}
