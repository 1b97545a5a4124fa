//! Names: finding, making, removing and renaming (RFC 1094 sections 2.2.5, 2.2.6, 2.2.10 to 2.2.16).

use super::{Answer, Attributes, HANDLE_BYTES, Handle, MAX_PATH_BYTES, Name, NewAttributes, procedure, sizes};
use crate::Call;
use bytes::Bytes;
use rpcrdma_oncrpc::{ItemRoom, ReplyShape};
use rpcrdma_xdr::{Decode, DecodeError, Decoder, Encode, Encoder, padded};
use std::fmt;

/// What a symbolic link points to (`path`): an item that may be placed directly. Any octets, not only UTF-8.
#[derive(Clone, PartialEq, Eq, Hash, Default)]
pub struct Path(pub Bytes);

impl fmt::Debug for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.0.escape_ascii())
    }
}

impl Encode for Path {
    fn encode(&self, encoder: &mut Encoder) {
        encoder.item(self.0.clone());
    }
}

impl Decode for Path {
    fn decode(decoder: &mut Decoder) -> Result<Self, DecodeError> {
        decoder.item(MAX_PATH_BYTES).map(|item| Self(item.into_bytes()))
    }
}

#[cfg(test)]
impl crate::sample::Sample for Path {
    fn sample(draw: &mut crate::sample::Draw) -> Self {
        Self(draw.octets(255))
    }
}

xdr_struct! {
    /// LOOKUP: asks for the file of a name.
    pub struct Lookup {
        /// The directory to search.
        pub directory: Handle,
        /// The name to find.
        pub name: Name,
    }

    /// What LOOKUP, CREATE and MKDIR return (`diropres`).
    pub struct LookupOk {
        /// The file.
        pub file: Handle,
        /// Its attributes.
        pub attributes: Attributes,
    }

    /// READLINK: asks what a symbolic link points to.
    pub struct ReadLink {
        /// The link to read.
        pub link: Handle,
    }

    /// What READLINK returns.
    pub struct ReadLinkOk {
        /// What the link points to: an item that may be placed directly.
        pub path: Path,
    }

    /// CREATE: makes a regular file, or uses one that exists. If the mode has bits for a type, it makes a special file:
    /// the size is then the number of the device.
    pub struct Create {
        /// The directory of the new file.
        pub directory: Handle,
        /// The name of the new file.
        pub name: Name,
        /// The attributes of the new file.
        pub attributes: NewAttributes,
    }

    /// REMOVE: removes a name of a file that is not a directory.
    pub struct Remove {
        /// The directory that has the name.
        pub directory: Handle,
        /// The name to remove.
        pub name: Name,
    }

    /// RENAME: gives a file another name, in place of the file that had it.
    pub struct Rename {
        /// The directory that has the old name.
        pub from_directory: Handle,
        /// The old name.
        pub from: Name,
        /// The directory that gets the new name.
        pub to_directory: Handle,
        /// The new name.
        pub to: Name,
    }

    /// LINK: gives a file a further name.
    pub struct Link {
        /// The file that gets the name.
        pub file: Handle,
        /// The directory that gets the name.
        pub directory: Handle,
        /// The new name.
        pub name: Name,
    }

    /// SYMLINK: makes a symbolic link. The server does not return its handle.
    pub struct SymbolicLink {
        /// The directory of the new link.
        pub directory: Handle,
        /// The name of the new link.
        pub name: Name,
        /// What it points to: an item that may be placed directly.
        pub path: Path,
        /// The attributes of the new link.
        pub attributes: NewAttributes,
    }

    /// MKDIR: makes a directory.
    pub struct MakeDirectory {
        /// The parent of the new directory.
        pub directory: Handle,
        /// The name of the new directory.
        pub name: Name,
        /// The attributes of the new directory.
        pub attributes: NewAttributes,
    }

    /// RMDIR: removes an empty directory.
    pub struct RemoveDirectory {
        /// The directory that has the name.
        pub directory: Handle,
        /// The name to remove.
        pub name: Name,
    }
}

const FOUND: ReplyShape = ReplyShape::inline(sizes::STATUS + HANDLE_BYTES + sizes::ATTRIBUTES);
const STATUS: ReplyShape = ReplyShape::inline(sizes::STATUS);

calls! {
    super::PROGRAM, super::VERSION, procedure::is_repeatable;
    Lookup, 4, Answer<LookupOk>, FOUND;
    Create, 9, Answer<LookupOk>, FOUND;
    Remove, 10, Answer<()>, STATUS;
    Rename, 11, Answer<()>, STATUS;
    Link, 12, Answer<()>, STATUS;
    SymbolicLink, 13, Answer<()>, STATUS;
    MakeDirectory, 14, Answer<LookupOk>, FOUND;
    RemoveDirectory, 15, Answer<()>, STATUS;
}

impl Call for ReadLink {
    const PROGRAM: u32 = super::PROGRAM;
    const VERSION: u32 = super::VERSION;
    const PROCEDURE: u32 = 5;
    type Reply = Answer<ReadLinkOk>;

    fn is_repeatable(&self) -> bool {
        procedure::is_repeatable(Self::PROCEDURE)
    }

    fn reply_shape(&self) -> ReplyShape {
        let rest = sizes::STATUS + sizes::WORD;
        ReplyShape { max_len: rest + padded(MAX_PATH_BYTES), items: vec![ItemRoom::new(MAX_PATH_BYTES)].into() }
    }
}
