//! Reading directories (RFC 1094 section 2.2.17).

use super::{Answer, Handle, Name, procedure, sizes};
use crate::Call;
use rpcrdma_oncrpc::ReplyShape;
use rpcrdma_xdr::{Decode, DecodeError, Decoder, Encode, Encoder};

xdr_struct! {
    /// READDIR: asks for names in a directory.
    pub struct ReadDirectory {
        /// The directory to read.
        pub directory: Handle,
        /// Where to go on: 0, or the cookie of the last entry seen. Four octets that only the server understands.
        pub cookie: u32,
        /// The most octets of results.
        pub count: u32,
    }

    /// A name in a directory (`entry`).
    pub struct Entry {
        /// The file's number in the file system.
        pub file_id: u32,
        /// The name.
        pub name: Name,
        /// Where to go on after this entry.
        pub cookie: u32,
    }
}

/// What READDIR returns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadDirectoryOk {
    /// The entries.
    pub entries: Vec<Entry>,
    /// Whether the last of them is the directory's last.
    pub end: bool,
}

impl Encode for ReadDirectoryOk {
    fn encode(&self, encoder: &mut Encoder) {
        for entry in &self.entries {
            encoder.bool(true);
            entry.encode(encoder);
        }
        encoder.bool(false);
        encoder.bool(self.end);
    }
}

impl Decode for ReadDirectoryOk {
    /// The list ends at the latest with the message.
    fn decode(decoder: &mut Decoder) -> Result<Self, DecodeError> {
        let mut entries = Vec::new();
        while decoder.bool()? {
            entries.push(Entry::decode(decoder)?);
        }
        Ok(Self { entries, end: decoder.bool()? })
    }
}

impl Call for ReadDirectory {
    const PROGRAM: u32 = super::PROGRAM;
    const VERSION: u32 = super::VERSION;
    const PROCEDURE: u32 = 16;
    type Reply = Answer<ReadDirectoryOk>;

    fn is_repeatable(&self) -> bool {
        procedure::is_repeatable(Self::PROCEDURE)
    }

    fn reply_shape(&self) -> ReplyShape {
        ReplyShape::inline(sizes::largest_directory_reply(self.count))
    }
}
