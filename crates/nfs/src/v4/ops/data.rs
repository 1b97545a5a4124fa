//! Data of files: READ, WRITE, COMMIT (RFC 8881 sections 18.3, 18.22, 18.32).

use crate::v4::{MAX_TRANSFER_BYTES, StateId, Verifier};
use bytes::Bytes;
use rpcrdma_xdr::{Decode, DecodeError, Decoder, Encode, Encoder, ItemData};

xdr_enum! {
    /// How durable a write is, or must be (`stable_how4`).
    pub enum Stability: "stability" {
        /// In memory: a COMMIT makes it durable.
        Unstable = 0,
        /// The data and what is needed to read it are durable.
        DataSync = 1,
        /// Data and all attributes are durable.
        FileSync = 2,
    }
}

xdr_words! {
    /// READ: asks for octets of the current file.
    #[derive(Copy)]
    pub struct Read {
        /// The open, lock or delegation that permits it.
        pub state: StateId,
        /// Where to begin.
        pub offset: u64,
        /// How many octets at most.
        pub count: u32,
    }
}

xdr_struct! {
    /// What WRITE returns.
    #[derive(Copy)]
    pub struct WriteOk {
        /// How many octets were written.
        pub count: u32,
        /// How durable they are, at least as asked.
        pub committed: Stability,
        /// Changes when the server has restarted and may have lost what was written unstably.
        pub verifier: Verifier,
    }

    /// COMMIT: makes what was written unstably to the current file durable.
    #[derive(Copy)]
    pub struct Commit {
        /// Where to begin.
        pub offset: u64,
        /// How many octets; 0 means up to the end.
        pub count: u32,
    }

    /// What COMMIT returns.
    #[derive(Copy)]
    pub struct CommitOk {
        /// As in [`WriteOk`].
        pub verifier: Verifier,
    }
}

/// What READ returns. `D` is how the data is held: [`Bytes`] where it is encoded, [`ItemData`] where memory was lent
/// for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadOk<D = Bytes> {
    /// Whether the last octet is the last of the file.
    pub end: bool,
    /// The octets: an item that may be placed directly.
    pub data: D,
}

// ULB-5.1-b.
impl Encode for ReadOk {
    fn encode(&self, encoder: &mut Encoder) {
        encoder.bool(self.end);
        encoder.item(self.data.clone());
    }
}

impl<D: From<ItemData>> Decode for ReadOk<D> {
    fn decode(decoder: &mut Decoder) -> Result<Self, DecodeError> {
        let end = decoder.bool()?;
        Ok(Self { end, data: decoder.item(MAX_TRANSFER_BYTES)?.into() })
    }
}

/// WRITE: puts octets into the current file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    /// The open, lock or delegation that permits it.
    pub state: StateId,
    /// Where to begin.
    pub offset: u64,
    /// How durable it must be when the reply comes.
    pub stability: Stability,
    /// The octets: an item that may be placed directly.
    pub data: Bytes,
}

// ULB-5.1-a.
impl Encode for Write {
    fn encode(&self, encoder: &mut Encoder) {
        self.state.encode(encoder);
        encoder.u64(self.offset);
        self.stability.encode(encoder);
        encoder.item(self.data.clone());
    }
}

impl Decode for Write {
    fn decode(decoder: &mut Decoder) -> Result<Self, DecodeError> {
        Ok(Self {
            state: Decode::decode(decoder)?,
            offset: decoder.u64()?,
            stability: Decode::decode(decoder)?,
            data: decoder.item(MAX_TRANSFER_BYTES)?.into_bytes(),
        })
    }
}

#[cfg(test)]
mod samples {
    use super::*;
    use crate::sample::{Draw, Sample};

    impl Sample for ReadOk {
        fn sample(draw: &mut Draw) -> Self {
            Self { end: bool::sample(draw), data: draw.octets(MAX_TRANSFER_BYTES) }
        }
    }

    impl Sample for Write {
        fn sample(draw: &mut Draw) -> Self {
            Self {
                state: StateId::sample(draw),
                offset: u64::sample(draw),
                stability: Stability::sample(draw),
                data: draw.octets(MAX_TRANSFER_BYTES),
            }
        }
    }
}
