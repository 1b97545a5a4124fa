//! Reading and writing (RFC 1094 sections 2.2.7 and 2.2.9).

use super::{Answer, Attributes, Handle, MAX_TRANSFER_BYTES, procedure, sizes};
use crate::Call;
use bytes::Bytes;
use rpcrdma_oncrpc::{ItemRoom, ReplyShape};
use rpcrdma_xdr::{Decode, DecodeError, Decoder, Encode, Encoder, ItemData, padded};

/// READ: asks for octets of a file. A third word, the total count, means nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Read {
    /// The file to read.
    pub file: Handle,
    /// Where to begin.
    pub offset: u32,
    /// How many octets at most.
    pub count: u32,
}

impl Encode for Read {
    fn encode(&self, encoder: &mut Encoder) {
        self.file.encode(encoder);
        encoder.u32(self.offset);
        encoder.u32(self.count);
        encoder.u32(self.count);
    }
}

// NFS2-1094-2.3-a
impl Decode for Read {
    fn decode(decoder: &mut Decoder) -> Result<Self, DecodeError> {
        let (file, offset, count) = (Decode::decode(decoder)?, decoder.u32()?, decoder.u32()?);
        decoder.u32()?;
        Ok(Self { file, offset, count })
    }
}

/// What READ returns. `D` is how the data is held: [`Bytes`] where it is encoded, [`ItemData`] where it is decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadOk<D = Bytes> {
    /// The file's attributes after the read.
    pub attributes: Attributes,
    /// The octets: an item that may be placed directly.
    pub data: D,
}

impl Encode for ReadOk {
    fn encode(&self, encoder: &mut Encoder) {
        self.attributes.encode(encoder);
        encoder.item(self.data.clone());
    }
}

impl Decode for ReadOk<ItemData> {
    fn decode(decoder: &mut Decoder) -> Result<Self, DecodeError> {
        Ok(Self { attributes: Decode::decode(decoder)?, data: decoder.item(MAX_TRANSFER_BYTES)? })
    }
}

impl Call for Read {
    const PROGRAM: u32 = super::PROGRAM;
    const VERSION: u32 = super::VERSION;
    const PROCEDURE: u32 = 6;
    type Reply = Answer<ReadOk<ItemData>>;

    fn is_repeatable(&self) -> bool {
        procedure::is_repeatable(Self::PROCEDURE)
    }

    fn reply_shape(&self) -> ReplyShape {
        let data = usize::try_from(self.count).unwrap_or(usize::MAX).min(MAX_TRANSFER_BYTES);
        let rest = sizes::STATUS + sizes::ATTRIBUTES + sizes::WORD;
        ReplyShape { max_len: rest + padded(data), items: vec![ItemRoom::new(data)].into() }
    }
}

/// WRITE: puts octets into a file, which are durable when the answer comes. The words before and behind the offset mean
/// nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    /// The file to write to.
    pub file: Handle,
    /// Where to begin.
    pub offset: u32,
    /// The octets: an item that may be placed directly.
    pub data: Bytes,
}

impl Encode for Write {
    fn encode(&self, encoder: &mut Encoder) {
        self.file.encode(encoder);
        encoder.u32(self.offset);
        encoder.u32(self.offset);
        encoder.u32(u32::try_from(self.data.len()).unwrap_or(u32::MAX));
        encoder.item(self.data.clone());
    }
}

// NFS2-1094-2.3-a
impl Decode for Write {
    fn decode(decoder: &mut Decoder) -> Result<Self, DecodeError> {
        let file = Decode::decode(decoder)?;
        decoder.u32()?;
        let offset = decoder.u32()?;
        decoder.u32()?;
        Ok(Self { file, offset, data: decoder.item(MAX_TRANSFER_BYTES)?.into_bytes() })
    }
}

calls! {
    super::PROGRAM, super::VERSION, procedure::is_repeatable;
    Write, 8, Answer<Attributes>, ReplyShape::inline(sizes::STATUS + sizes::ATTRIBUTES);
}

#[cfg(test)]
impl crate::sample::Sample for Read {
    fn sample(draw: &mut crate::sample::Draw) -> Self {
        Self { file: Handle::sample(draw), offset: u32::sample(draw), count: u32::sample(draw) }
    }
}

#[cfg(test)]
impl crate::sample::Sample for Write {
    fn sample(draw: &mut crate::sample::Draw) -> Self {
        Self { file: Handle::sample(draw), offset: u32::sample(draw), data: draw.octets(255) }
    }
}
