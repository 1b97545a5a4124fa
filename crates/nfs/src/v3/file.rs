//! Reading and writing (RFC 1813 sections 3.3.6, 3.3.7, 3.3.21).

use super::{Answer, Attributes, Handle, MAX_TRANSFER_BYTES, WeakCache, procedure, sizes};
use crate::Call;
use bytes::Bytes;
use rpcrdma_oncrpc::{ItemRoom, ReplyShape};
use rpcrdma_xdr::{Decode, DecodeError, Decoder, Encode, Encoder, ItemData, padded};

/// Changes when the server has restarted and may have lost what was written unstably.
pub type WriteVerifier = [u8; 8];

xdr_enum! {
    /// How durable a write is, or must be (`stable_how`).
    pub enum Stability: "stability" {
        /// In memory: a COMMIT makes it durable.
        Unstable = 0,
        /// The data and what is needed to read it are durable.
        DataSync = 1,
        /// Data and all attributes are durable.
        FileSync = 2,
    }
}

xdr_struct! {
    /// READ: asks for octets of a file.
    pub struct Read {
        /// The file to read.
        pub file: Handle,
        /// Where to begin.
        pub offset: u64,
        /// How many octets at most.
        pub count: u32,
    }

    /// COMMIT: makes what was written unstably durable.
    pub struct Commit {
        /// The file whose writes become durable.
        pub file: Handle,
        /// Where to begin.
        pub offset: u64,
        /// How many octets; 0 means up to the end.
        pub count: u32,
    }
}

/// What READ returns. `D` is how the data is held: [`Bytes`] where it is encoded, [`ItemData`] where it is decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadOk<D = Bytes> {
    /// The file's attributes after the read, if known.
    pub attributes: Option<Attributes>,
    /// Whether the last octet is the last of the file.
    pub end: bool,
    /// The octets: an item that may be placed directly. Its length stands twice in the encoding, once as `count`.
    pub data: D,
}

impl Encode for ReadOk {
    fn encode(&self, encoder: &mut Encoder) {
        self.attributes.encode(encoder);
        encoder.u32(u32::try_from(self.data.len()).unwrap_or(u32::MAX));
        encoder.bool(self.end);
        encoder.item(self.data.clone());
    }
}

impl Decode for ReadOk<ItemData> {
    fn decode(decoder: &mut Decoder) -> Result<Self, DecodeError> {
        let attributes = Decode::decode(decoder)?;
        let count = decoder.u32()?;
        let end = decoder.bool()?;
        let data = decoder.item(MAX_TRANSFER_BYTES)?;
        if u32::try_from(data.as_slice().len()) != Ok(count) {
            return Err(decoder.bad_value(count, "count of the bytes that follow"));
        }
        Ok(Self { attributes, end, data })
    }
}

impl Call for Read {
    const PROGRAM: u32 = super::PROGRAM;
    const VERSION: u32 = super::VERSION;
    const PROCEDURE: u32 = 6;
    type Reply = Answer<ReadOk<ItemData>, Option<Attributes>>;

    fn is_repeatable(&self) -> bool {
        procedure::is_repeatable(Self::PROCEDURE)
    }

    fn reply_shape(&self) -> ReplyShape {
        let data = usize::try_from(self.count).unwrap_or(usize::MAX).min(MAX_TRANSFER_BYTES);
        let rest = sizes::STATUS + sizes::OPTIONAL_ATTRIBUTES + 3 * sizes::WORD;
        ReplyShape { max_len: rest + padded(data), items: [ItemRoom::new(data)].into() }
    }
}

/// WRITE: puts octets into a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    /// The file to write to.
    pub file: Handle,
    /// Where to begin.
    pub offset: u64,
    /// How durable it must be when the reply comes.
    pub stability: Stability,
    /// The octets: an item that may be placed directly. Its length stands twice in the encoding, once as `count`.
    pub data: Bytes,
}

impl Encode for Write {
    fn encode(&self, encoder: &mut Encoder) {
        self.file.encode(encoder);
        encoder.u64(self.offset);
        encoder.u32(u32::try_from(self.data.len()).unwrap_or(u32::MAX));
        self.stability.encode(encoder);
        encoder.item(self.data.clone());
    }
}

impl Decode for Write {
    /// If `count` and the length of the data differ, the lower of the two counts, as RFC 1813 leaves it open.
    fn decode(decoder: &mut Decoder) -> Result<Self, DecodeError> {
        let file = Decode::decode(decoder)?;
        let offset = decoder.u64()?;
        let count = usize::try_from(decoder.u32()?).unwrap_or(usize::MAX);
        let stability = Decode::decode(decoder)?;
        let mut data = decoder.item(MAX_TRANSFER_BYTES)?.into_bytes();
        data.truncate(count);
        Ok(Self { file, offset, stability, data })
    }
}

xdr_struct! {
    /// What WRITE returns.
    pub struct WriteOk {
        /// The file's attributes before and after.
        pub file: WeakCache,
        /// How many octets were written.
        pub count: u32,
        /// How durable they are, at least as asked.
        pub committed: Stability,
        /// See [`WriteVerifier`].
        pub verifier: Verifier,
    }

    /// What COMMIT returns.
    pub struct CommitOk {
        /// The file's attributes before and after.
        pub file: WeakCache,
        /// See [`WriteVerifier`].
        pub verifier: Verifier,
    }
}

/// Eight octets of fixed length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Verifier(pub WriteVerifier);

impl Encode for Verifier {
    fn encode(&self, encoder: &mut Encoder) {
        encoder.opaque_fixed(&self.0);
    }
}

impl Decode for Verifier {
    fn decode(decoder: &mut Decoder) -> Result<Self, DecodeError> {
        decoder.opaque_array().map(Self)
    }
}

impl Call for Write {
    const PROGRAM: u32 = super::PROGRAM;
    const VERSION: u32 = super::VERSION;
    const PROCEDURE: u32 = 7;
    type Reply = Answer<WriteOk, WeakCache>;

    fn is_repeatable(&self) -> bool {
        procedure::is_repeatable(Self::PROCEDURE)
    }

    fn reply_shape(&self) -> ReplyShape {
        ReplyShape::inline(sizes::STATUS + sizes::WEAK_CACHE + 2 * sizes::WORD + sizes::VERIFIER)
    }
}

impl Call for Commit {
    const PROGRAM: u32 = super::PROGRAM;
    const VERSION: u32 = super::VERSION;
    const PROCEDURE: u32 = 21;
    type Reply = Answer<CommitOk, WeakCache>;

    fn is_repeatable(&self) -> bool {
        procedure::is_repeatable(Self::PROCEDURE)
    }

    fn reply_shape(&self) -> ReplyShape {
        ReplyShape::inline(sizes::STATUS + sizes::WEAK_CACHE + sizes::VERIFIER)
    }
}
