//! XDR (RFC 4506) for messages whose large items stay where they are.
//!
//! * [`Encoder`] appends to a [`Payload`]: runs of inline octets, and data items that are shared with
//!   their owner and never copied. An item that a direct-placement transport may move on its own is
//!   *marked* by encoding it with [`Encoder::item`]; nothing above the transport learns whether it was.
//! * [`Stream`] is what a transport received: inline octets, and the items that travelled apart from
//!   them. [`Decoder`] reads it and hands items out as shared slices, or, where a caller had lent a
//!   buffer for the item, hands that very buffer back.
//!
//! Nothing is allocated on a peer's word: each length is checked against what is left of the message and
//! against the caller's limit before it is believed.
//!
//! ```
//! use rpcrdma_xdr::{Decoder, Encoder, Stream};
//! let mut encoder = Encoder::new();
//! encoder.u32(7);
//! encoder.item(bytes::Bytes::from_static(b"file data"));
//! let payload = encoder.finish();
//! assert_eq!(payload.len(), 4 + 4 + 12);
//!
//! // Over TCP the marks mean nothing: the whole stream is sent as it is.
//! let mut decoder = Decoder::new(Stream::from(payload.to_bytes()));
//! assert_eq!(decoder.u32()?, 7);
//! assert_eq!(&decoder.item(100)?.into_bytes()[..], b"file data");
//! decoder.finish()?;
//! # Ok::<(), rpcrdma_xdr::DecodeError>(())
//! ```

mod decoder;
mod encoder;
mod error;
mod impls;
mod payload;
mod stream;

pub use decoder::{Decoder, ItemData};
pub use encoder::{Encoder, SharedScratch};
pub use error::DecodeError;
pub use payload::{Part, Payload};
pub use rpcrdma_env::{Allocator, Buffer, Heap, Memory};
pub use stream::{Placed, Stream, StreamPart};

/// A type with an XDR encoding.
pub trait Encode {
    /// Appends the value to `encoder`.
    fn encode(&self, encoder: &mut Encoder);
}

/// A type that can be read from an XDR stream.
pub trait Decode: Sized {
    /// Reads a value at the decoder's position.
    ///
    /// # Errors
    /// If the octets there are no encoding of the type.
    fn decode(decoder: &mut Decoder) -> Result<Self, DecodeError>;
}

/// Octets per XDR unit: the size of everything is a multiple of it.
pub const UNIT: usize = 4;

/// `len` and its roundup padding: the next multiple of four. Saturates.
pub const fn padded(len: usize) -> usize {
    match len.checked_next_multiple_of(UNIT) {
        Some(padded) => padded,
        None => usize::MAX,
    }
}

/// How many octets of roundup padding follow `len` octets: 0 to 3.
pub const fn padding(len: usize) -> usize {
    len.wrapping_neg() % UNIT
}
