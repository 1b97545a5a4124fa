//! XDR (RFC 4506) for messages whose large items are not copied.
//!
//! * [`Encoder`] appends to a [`Payload`]: runs of inline bytes, and data items that are shared with their owner and
//!   never copied. An item that a direct-placement transport may move on its own is *marked* by encoding it with
//!   [`Encoder::item`]; code above the transport does not see whether it was moved.
//! * [`Stream`] is a message that a transport received: inline bytes, and the items that came separately. [`Decoder`]
//!   reads it and returns items as shared slices; if the caller lent a buffer for an item, it returns that very buffer.
//!
//! A peer cannot make the decoder allocate memory: it checks each length against the rest of the message and against
//! the caller's limit before it uses the length.
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
///
/// Numbers (`i32`, `u32`, `i64`, `u64`), `bool`, `()`, `str` and `String`, [`Bytes`](bytes::Bytes), pairs, `Option`,
/// `Box` and references have one; most other types in the list below are those of NFS and its companions. A list is
/// written with [`Encoder::array`].
pub trait Encode {
    /// Appends the value to `encoder`.
    fn encode(&self, encoder: &mut Encoder);
}

/// A type that can be read from an XDR stream: the types that [`Encode`] names, but neither `str` nor references. A
/// list is read with [`Decoder::array`], which takes a limit.
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
