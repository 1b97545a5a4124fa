//! Encodings of Rust's own types.

use crate::{Decode, DecodeError, Decoder, Encode, Encoder};
use bytes::Bytes;

macro_rules! scalar {
    ($($type:ident),*) => {$(
        impl Encode for $type {
            fn encode(&self, encoder: &mut Encoder) {
                encoder.$type(*self);
            }
        }
        impl Decode for $type {
            fn decode(decoder: &mut Decoder) -> Result<Self, DecodeError> {
                decoder.$type()
            }
        }
    )*};
}
scalar!(u32, i32, u64, i64, bool);

/// No bytes: the arguments of a null procedure.
impl Encode for () {
    fn encode(&self, _: &mut Encoder) {}
}

impl Decode for () {
    fn decode(_: &mut Decoder) -> Result<Self, DecodeError> {
        Ok(())
    }
}

/// A text, as its bytes. If you need a limit below the message's, use [`Decoder::opaque`].
impl Encode for str {
    fn encode(&self, encoder: &mut Encoder) {
        encoder.opaque(self.as_bytes());
    }
}

impl Encode for String {
    fn encode(&self, encoder: &mut Encoder) {
        self.as_str().encode(encoder);
    }
}

/// Bytes of variable length (`opaque<>`). Those that were read share the memory of the message, and keep it as long as
/// they are kept. If you need a limit below the message's, use [`Decoder::opaque`].
impl Encode for Bytes {
    fn encode(&self, encoder: &mut Encoder) {
        encoder.opaque_shared(self.clone());
    }
}

impl Decode for Bytes {
    fn decode(decoder: &mut Decoder) -> Result<Self, DecodeError> {
        decoder.opaque(decoder.remaining())
    }
}

/// A reference has the encoding of the value.
impl<T: Encode + ?Sized> Encode for &T {
    fn encode(&self, encoder: &mut Encoder) {
        (**self).encode(encoder);
    }
}

impl Decode for String {
    fn decode(decoder: &mut Decoder) -> Result<Self, DecodeError> {
        let position = decoder.position();
        let octets = decoder.opaque(decoder.remaining())?;
        String::from_utf8(octets.into()).map_err(|_| DecodeError::NotText { position })
    }
}

/// Optional data: a flag, then the value if there is one.
impl<T: Encode> Encode for Option<T> {
    fn encode(&self, encoder: &mut Encoder) {
        encoder.optional(self.as_ref());
    }
}

impl<T: Decode> Decode for Option<T> {
    fn decode(decoder: &mut Decoder) -> Result<Self, DecodeError> {
        decoder.optional()
    }
}

/// A boxed value has the encoding of the value.
impl<T: Encode> Encode for Box<T> {
    fn encode(&self, encoder: &mut Encoder) {
        self.as_ref().encode(encoder);
    }
}

impl<T: Decode> Decode for Box<T> {
    fn decode(decoder: &mut Decoder) -> Result<Self, DecodeError> {
        T::decode(decoder).map(Box::new)
    }
}

/// A structure: one field after the other.
impl<A: Encode, B: Encode> Encode for (A, B) {
    fn encode(&self, encoder: &mut Encoder) {
        self.0.encode(encoder);
        self.1.encode(encoder);
    }
}

impl<A: Decode, B: Decode> Decode for (A, B) {
    fn decode(decoder: &mut Decoder) -> Result<Self, DecodeError> {
        Ok((A::decode(decoder)?, B::decode(decoder)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Stream;

    fn words(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_be_bytes()).collect()
    }

    /// The value encodes to these words, and they decode to the value.
    fn is_written<T: Encode + Decode + PartialEq + std::fmt::Debug>(value: T, as_words: &[u32]) {
        let mut encoder = Encoder::new();
        value.encode(&mut encoder);
        let octets = encoder.finish().to_bytes();
        assert_eq!(octets, words(as_words), "{value:?}");
        let mut decoder = Decoder::new(Stream::from(octets));
        assert_eq!(T::decode(&mut decoder), Ok(value));
        decoder.finish().unwrap();
    }

    #[test]
    fn types_are_written_as_the_specification_says() {
        is_written((), &[]);
        is_written(-2i32, &[0xffff_fffe]);
        is_written(i32::MIN, &[0x8000_0000]);
        is_written(0x1_0000_0002u64, &[1, 2]);
        is_written(-2i64, &[0xffff_ffff, 0xffff_fffe]);
        is_written(None::<u32>, &[0]);
        is_written(Some(7u32), &[1, 7]);
        is_written(Some(Some(false)), &[1, 1, 0]);
        is_written((5u32, true), &[5, 1]);
        is_written(Box::new(5u32), &[5]);
        is_written(String::from("hello"), &[5, 0x6865_6c6c, 0x6f00_0000]);
    }

    #[test]
    fn a_string_is_text() {
        let mut decoder = Decoder::new(Stream::from(bytes::Bytes::from(words(&[1, 0xff00_0000]))));
        assert_eq!(String::decode(&mut decoder), Err(DecodeError::NotText { position: 0 }));
    }

    #[test]
    fn a_flag_is_zero_or_one() {
        let decoder = || Decoder::new(Stream::from(bytes::Bytes::from(words(&[2, 7]))));
        let error = DecodeError::BadValue { position: 0, value: 2, what: "boolean" };
        assert_eq!(bool::decode(&mut decoder()), Err(error.clone()));
        assert_eq!(Option::<u32>::decode(&mut decoder()), Err(error));
    }

    #[test]
    fn an_array_is_a_count_and_its_elements() {
        let mut encoder = Encoder::new();
        encoder.array(&[8u32, 9]);
        encoder.array::<u64>(&[]);
        let octets = encoder.finish().to_bytes();
        assert_eq!(octets, words(&[2, 8, 9, 0]));
        let mut decoder = Decoder::new(Stream::from(octets));
        assert_eq!(decoder.array(2), Ok(vec![8u32, 9]));
        assert_eq!(decoder.array::<u64>(0), Ok(vec![]));
        let mut decoder = Decoder::new(Stream::from(bytes::Bytes::from(words(&[2, 8, 9]))));
        assert_eq!(decoder.array::<u32>(1), Err(DecodeError::TooLong { position: 0, len: 2, max: 1 }));
    }
}
