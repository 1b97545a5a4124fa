//! Reading directories (RFC 1813 sections 3.3.16 and 3.3.17).

use super::{Answer, Attributes, Handle, Name, Verifier, procedure, sizes};
use crate::Call;
use rpcrdma_oncrpc::ReplyShape;
use rpcrdma_xdr::{Decode, DecodeError, Decoder, Encode, Encoder};

xdr_struct! {
    /// READDIR: asks for names in a directory.
    pub struct ReadDirectory {
        /// The directory to read.
        pub directory: Handle,
        /// Where to go on: 0, or the cookie of the last entry seen.
        pub cookie: u64,
        /// The verifier that came with that cookie.
        pub verifier: Verifier,
        /// The most octets of results.
        pub count: u32,
    }

    /// READDIRPLUS: asks for names, attributes and handles.
    pub struct ReadDirectoryPlus {
        /// The directory to read.
        pub directory: Handle,
        /// Where to go on: 0, or the cookie of the last entry seen.
        pub cookie: u64,
        /// The verifier that came with that cookie.
        pub verifier: Verifier,
        /// The most octets of names, file ids and cookies.
        pub directory_count: u32,
        /// The most octets of results.
        pub max_count: u32,
    }

    /// A name in a directory (`entry3`).
    pub struct Entry {
        /// The file's number in the file system.
        pub file_id: u64,
        /// The name.
        pub name: Name,
        /// Where to go on after this entry.
        pub cookie: u64,
    }

    /// A name in a directory, with its file (`entryplus3`).
    pub struct EntryPlus {
        /// The file's number in the file system.
        pub file_id: u64,
        /// The name.
        pub name: Name,
        /// Where to go on after this entry.
        pub cookie: u64,
        /// The file's attributes, if known.
        pub attributes: Option<Attributes>,
        /// The file's handle, if known.
        pub file: Option<Handle>,
    }
}

/// Entries, encoded as a linked list: each after a word that says that an entry follows.
fn encode_list<T: Encode>(entries: &[T], end: bool, encoder: &mut Encoder) {
    for entry in entries {
        encoder.bool(true);
        entry.encode(encoder);
    }
    encoder.bool(false);
    encoder.bool(end);
}

/// The list and the end-of-directory flag. The list ends at the latest with the message.
fn decode_list<T: Decode>(decoder: &mut Decoder) -> Result<(Vec<T>, bool), DecodeError> {
    let mut entries = Vec::new();
    while decoder.bool()? {
        entries.push(T::decode(decoder)?);
    }
    Ok((entries, decoder.bool()?))
}

macro_rules! listing {
    ($($(#[$meta:meta])* $name:ident of $entry:ident;)*) => {$(
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct $name {
            /// The directory's attributes, if known.
            pub attributes: Option<Attributes>,
            /// The verifier of the cookies.
            pub verifier: Verifier,
            /// The entries.
            pub entries: Vec<$entry>,
            /// Whether the last of them is the directory's last.
            pub end: bool,
        }

        impl Encode for $name {
            fn encode(&self, encoder: &mut Encoder) {
                self.attributes.encode(encoder);
                self.verifier.encode(encoder);
                encode_list(&self.entries, self.end, encoder);
            }
        }

        impl Decode for $name {
            fn decode(decoder: &mut Decoder) -> Result<Self, DecodeError> {
                let attributes = Decode::decode(decoder)?;
                let verifier = Decode::decode(decoder)?;
                let (entries, end) = decode_list(decoder)?;
                Ok(Self { attributes, verifier, entries, end })
            }
        }
    )*};
}

listing! {
    /// What READDIR returns.
    ReadDirectoryOk of Entry;
    /// What READDIRPLUS returns.
    ReadDirectoryPlusOk of EntryPlus;
}

impl Call for ReadDirectory {
    const PROGRAM: u32 = super::PROGRAM;
    const VERSION: u32 = super::VERSION;
    const PROCEDURE: u32 = 16;
    type Reply = Answer<ReadDirectoryOk, Option<Attributes>>;

    fn is_repeatable(&self) -> bool {
        procedure::is_repeatable(Self::PROCEDURE)
    }

    fn reply_shape(&self) -> ReplyShape {
        ReplyShape::inline(sizes::largest_directory_reply(self.count))
    }
}

impl Call for ReadDirectoryPlus {
    const PROGRAM: u32 = super::PROGRAM;
    const VERSION: u32 = super::VERSION;
    const PROCEDURE: u32 = 17;
    type Reply = Answer<ReadDirectoryPlusOk, Option<Attributes>>;

    fn is_repeatable(&self) -> bool {
        procedure::is_repeatable(Self::PROCEDURE)
    }

    fn reply_shape(&self) -> ReplyShape {
        ReplyShape::inline(sizes::largest_directory_reply(self.max_count))
    }
}
