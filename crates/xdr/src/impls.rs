//! Encodings of Rust's own types.

use crate::{Decode, DecodeError, Decoder, Encode, Encoder};

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

/// No octets: the arguments of a null procedure.
impl Encode for () {
    fn encode(&self, _: &mut Encoder) {}
}

impl Decode for () {
    fn decode(_: &mut Decoder) -> Result<Self, DecodeError> {
        Ok(())
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
