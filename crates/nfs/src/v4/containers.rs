//! Lists and strings of octets with a limit that belongs to their type: longer ones cannot be decoded.

use bytes::Bytes;
use rpcrdma_xdr::{Decode, DecodeError, Decoder, Encode, Encoder};
use std::{fmt, ops::Deref};

/// A counted list of at most `MAX` elements. Memory is taken for as many as the message can hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct List<T, const MAX: usize>(pub Vec<T>);

impl<T, const MAX: usize> Default for List<T, MAX> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T, const MAX: usize> From<Vec<T>> for List<T, MAX> {
    fn from(elements: Vec<T>) -> Self {
        Self(elements)
    }
}

impl<T, const MAX: usize> Deref for List<T, MAX> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.0
    }
}

impl<T: Encode, const MAX: usize> Encode for List<T, MAX> {
    fn encode(&self, encoder: &mut Encoder) {
        encoder.array(&self.0);
    }
}

impl<T: Decode, const MAX: usize> Decode for List<T, MAX> {
    fn decode(decoder: &mut Decoder) -> Result<Self, DecodeError> {
        decoder.array(MAX).map(Self)
    }
}

/// Octets that most programs pass on without understanding them: at most `MAX`, never placed directly.
#[derive(Clone, PartialEq, Eq, Hash, Default)]
pub struct Opaque<const MAX: usize>(pub Bytes);

impl<const MAX: usize> Opaque<MAX> {
    /// The octets.
    pub fn as_slice(&self) -> &[u8] {
        &self.0
    }
}

impl<const MAX: usize> From<&[u8]> for Opaque<MAX> {
    fn from(octets: &[u8]) -> Self {
        Self(Bytes::copy_from_slice(octets))
    }
}

impl<const MAX: usize> From<&str> for Opaque<MAX> {
    fn from(text: &str) -> Self {
        Self::from(text.as_bytes())
    }
}

impl<const MAX: usize> fmt::Debug for Opaque<MAX> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.0.escape_ascii())
    }
}

impl<const MAX: usize> Encode for Opaque<MAX> {
    fn encode(&self, encoder: &mut Encoder) {
        encoder.opaque_shared(self.0.clone());
    }
}

impl<const MAX: usize> Decode for Opaque<MAX> {
    fn decode(decoder: &mut Decoder) -> Result<Self, DecodeError> {
        decoder.opaque(MAX).map(Self)
    }
}

#[cfg(test)]
mod samples {
    use super::*;
    use crate::sample::{Draw, Sample};

    impl<T: Sample, const MAX: usize> Sample for List<T, MAX> {
        fn sample(draw: &mut Draw) -> Self {
            Self((0..draw.count(MAX)).map(|_| T::sample(draw)).collect())
        }
    }

    impl<const MAX: usize> Sample for Opaque<MAX> {
        fn sample(draw: &mut Draw) -> Self {
            Self(draw.octets(MAX))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded<T: Decode>(value: &impl Encode) -> Result<T, DecodeError> {
        let mut encoder = Encoder::new();
        value.encode(&mut encoder);
        T::decode(&mut Decoder::new(encoder.finish().to_bytes().into()))
    }

    #[test]
    fn lists_and_octets_end_at_their_limits() {
        let three = List::<u32, 9>(vec![1, 2, 3]);
        assert_eq!(decoded::<List<u32, 3>>(&three).unwrap().0, [1, 2, 3]);
        assert!(matches!(decoded::<List<u32, 2>>(&three), Err(DecodeError::TooLong { len: 3, max: 2, .. })));
        let three = Opaque::<9>::from("abc");
        assert_eq!(decoded::<Opaque<3>>(&three).unwrap().as_slice(), b"abc");
        assert!(matches!(decoded::<Opaque<2>>(&three), Err(DecodeError::TooLong { len: 3, max: 2, .. })));
    }
}
