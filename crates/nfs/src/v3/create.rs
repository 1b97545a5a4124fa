//! Making, removing and renaming (RFC 1813 sections 3.3.8 to 3.3.15).

use super::{
    Answer, Attributes, Handle, Name, NewAttributes, Path, Specification, Verifier, WeakCache, procedure, sizes,
};
use rpcrdma_oncrpc::ReplyShape;
use rpcrdma_xdr::{Decode, DecodeError, Decoder, Encode, Encoder};

/// How CREATE treats a file that exists (`createhow3`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CreateHow {
    /// It is used as it is, with these attributes set on it.
    Unchecked(NewAttributes),
    /// It is an error.
    Guarded(NewAttributes),
    /// It is an error, unless it was made by a call with this verifier: a retransmission.
    Exclusive(Verifier),
}

impl Encode for CreateHow {
    fn encode(&self, encoder: &mut Encoder) {
        match self {
            CreateHow::Unchecked(attributes) => {
                encoder.u32(0);
                attributes.encode(encoder);
            }
            CreateHow::Guarded(attributes) => {
                encoder.u32(1);
                attributes.encode(encoder);
            }
            CreateHow::Exclusive(verifier) => {
                encoder.u32(2);
                verifier.encode(encoder);
            }
        }
    }
}

impl Decode for CreateHow {
    fn decode(decoder: &mut Decoder) -> Result<Self, DecodeError> {
        match decoder.u32()? {
            0 => Decode::decode(decoder).map(CreateHow::Unchecked),
            1 => Decode::decode(decoder).map(CreateHow::Guarded),
            2 => Decode::decode(decoder).map(CreateHow::Exclusive),
            value => Err(decoder.bad_value(value, "way to create")),
        }
    }
}

/// What MKNOD makes (`mknoddata3`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeKind {
    /// A block device.
    Block(NewAttributes, Specification),
    /// A character device.
    Character(NewAttributes, Specification),
    /// A socket.
    Socket(NewAttributes),
    /// A named pipe.
    Fifo(NewAttributes),
    /// A type that MKNOD does not make: regular file, directory, symbolic link (the `ftype3` word).
    Other(u32),
}

impl Encode for NodeKind {
    fn encode(&self, encoder: &mut Encoder) {
        match self {
            NodeKind::Block(attributes, device) => {
                encoder.u32(3);
                (*attributes, *device).encode(encoder);
            }
            NodeKind::Character(attributes, device) => {
                encoder.u32(4);
                (*attributes, *device).encode(encoder);
            }
            NodeKind::Socket(attributes) => {
                encoder.u32(6);
                attributes.encode(encoder);
            }
            NodeKind::Fifo(attributes) => {
                encoder.u32(7);
                attributes.encode(encoder);
            }
            NodeKind::Other(file_type) => encoder.u32(*file_type),
        }
    }
}

impl Decode for NodeKind {
    fn decode(decoder: &mut Decoder) -> Result<Self, DecodeError> {
        match decoder.u32()? {
            3 => Ok(NodeKind::Block(Decode::decode(decoder)?, Decode::decode(decoder)?)),
            4 => Ok(NodeKind::Character(Decode::decode(decoder)?, Decode::decode(decoder)?)),
            6 => Decode::decode(decoder).map(NodeKind::Socket),
            7 => Decode::decode(decoder).map(NodeKind::Fifo),
            other => Ok(NodeKind::Other(other)),
        }
    }
}

xdr_struct! {
    /// CREATE: makes a regular file.
    pub struct Create {
        /// The directory of the new file.
        pub directory: Handle,
        /// The name of the new file.
        pub name: Name,
        /// What to do if the file exists, and its attributes.
        pub how: CreateHow,
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

    /// SYMLINK: makes a symbolic link.
    pub struct SymbolicLink {
        /// The directory of the new link.
        pub directory: Handle,
        /// The name of the new link.
        pub name: Name,
        /// The attributes of the new link.
        pub attributes: NewAttributes,
        /// What it points to: an item that may be placed directly.
        pub path: Path,
    }

    /// MKNOD: makes a special file.
    pub struct MakeNode {
        /// The directory of the new file.
        pub directory: Handle,
        /// The name of the new file.
        pub name: Name,
        /// The kind and the attributes of the new file.
        pub kind: NodeKind,
    }

    /// What CREATE, MKDIR, SYMLINK and MKNOD return.
    pub struct Created {
        /// The new file, if its handle is known.
        pub file: Option<Handle>,
        /// Its attributes, if known.
        pub attributes: Option<Attributes>,
        /// The directory's attributes before and after.
        pub directory: WeakCache,
    }

    /// REMOVE: removes a name of a file that is not a directory.
    pub struct Remove {
        /// The directory that has the name.
        pub directory: Handle,
        /// The name to remove.
        pub name: Name,
    }

    /// RMDIR: removes an empty directory.
    pub struct RemoveDirectory {
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

    /// What RENAME returns, on failure too.
    #[derive(Default)]
    pub struct RenameInfo {
        /// The first directory's attributes before and after.
        pub from_directory: WeakCache,
        /// The second directory's attributes before and after.
        pub to_directory: WeakCache,
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

    /// What LINK returns, on failure too.
    #[derive(Default)]
    pub struct LinkInfo {
        /// The file's attributes.
        pub attributes: Option<Attributes>,
        /// The directory's attributes before and after.
        pub directory: WeakCache,
    }
}

const CREATED: usize = sizes::OPTIONAL_HANDLE + sizes::OPTIONAL_ATTRIBUTES + sizes::WEAK_CACHE;

/// Results on success: a status and `more` octets.
const fn inline(more: usize) -> ReplyShape {
    ReplyShape::inline(sizes::STATUS + more)
}

calls! {
    super::PROGRAM, super::VERSION, procedure::is_repeatable;
    Create, 8, Answer<Created, WeakCache>, inline(CREATED);
    MakeDirectory, 9, Answer<Created, WeakCache>, inline(CREATED);
    SymbolicLink, 10, Answer<Created, WeakCache>, inline(CREATED);
    MakeNode, 11, Answer<Created, WeakCache>, inline(CREATED);
    Remove, 12, Answer<WeakCache, WeakCache>, inline(sizes::WEAK_CACHE);
    RemoveDirectory, 13, Answer<WeakCache, WeakCache>, inline(sizes::WEAK_CACHE);
    Rename, 14, Answer<RenameInfo, RenameInfo>, inline(2 * sizes::WEAK_CACHE);
    Link, 15, Answer<LinkInfo, LinkInfo>, inline(sizes::OPTIONAL_ATTRIBUTES + sizes::WEAK_CACHE);
}
