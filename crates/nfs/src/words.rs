//! Structures that consist of a fixed number of words, which are written together, and read together where they lie
//! together.
//!
//! A word read or written alone costs several times as much: the decoder has to look where each begins, and the encoder
//! whether it has room.

/// A value that is made of `WORDS` words, whatever it is.
pub(crate) trait InWords: Sized {
    const WORDS: usize;

    /// The value of the next words; `None` if they are none of its values.
    fn from_words(words: &mut impl Iterator<Item = u32>) -> Option<Self>;

    /// Puts its words, one after the other.
    fn to_words(&self, put: &mut impl FnMut(u32));
}

impl InWords for u32 {
    const WORDS: usize = 1;

    #[inline]
    fn from_words(words: &mut impl Iterator<Item = u32>) -> Option<Self> {
        words.next()
    }

    #[inline]
    fn to_words(&self, put: &mut impl FnMut(u32)) {
        put(*self);
    }
}

impl InWords for u64 {
    const WORDS: usize = 2;

    #[inline]
    fn from_words(words: &mut impl Iterator<Item = u32>) -> Option<Self> {
        let (high, low) = (words.next()?, words.next()?);
        Some(u64::from(high) << u32::BITS | u64::from(low))
    }

    #[inline]
    fn to_words(&self, put: &mut impl FnMut(u32)) {
        put((*self >> u32::BITS) as u32);
        put(*self as u32);
    }
}

impl InWords for bool {
    const WORDS: usize = 1;

    #[inline]
    fn from_words(words: &mut impl Iterator<Item = u32>) -> Option<Self> {
        match words.next()? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }

    #[inline]
    fn to_words(&self, put: &mut impl FnMut(u32)) {
        put((*self).into());
    }
}

#[cfg(test)]
mod tests {
    use super::InWords;
    use crate::{
        sample::{Draw, Sample},
        v3::{Attributes, FileType},
        v4::ops::{Read, Sequence, SequenceOk},
    };
    use bytes::Bytes;
    use rpcrdma_xdr::{Decode, DecodeError, Decoder, Encode, Encoder, Stream};

    fn encoded(value: &impl Encode) -> Vec<u8> {
        let mut encoder = Encoder::new();
        value.encode(&mut encoder);
        encoder.finish().to_bytes().to_vec()
    }

    fn words() -> (Attributes, Vec<u8>) {
        let attributes = Attributes { file_type: FileType::Fifo, ..Attributes::sample(&mut Draw::new(1)) };
        let octets = encoded(&attributes);
        (attributes, octets)
    }

    fn has_the_same_value_however_it_is_cut<T: InWords + Decode + Encode + PartialEq + std::fmt::Debug>(value: &T) {
        let octets = encoded(value);
        assert_eq!(octets.len(), T::WORDS * rpcrdma_xdr::UNIT, "or all are read one by one");
        for cut in 0..=octets.len() {
            let mut stream = Stream::new();
            stream.push_run(Bytes::copy_from_slice(&octets[..cut]));
            stream.push_run(Bytes::copy_from_slice(&octets[cut..]));
            let mut decoder = Decoder::new(stream);
            assert_eq!(T::decode(&mut decoder).unwrap(), *value, "cut at {cut}");
            decoder.finish().unwrap();
        }
    }

    #[test]
    fn words_that_lie_together_and_words_that_do_not_have_the_same_value() {
        let draw = &mut Draw::new(2);
        has_the_same_value_however_it_is_cut(&words().0);
        for cache in [false, true] {
            has_the_same_value_however_it_is_cut(&Sequence { cache, ..Sequence::sample(draw) });
        }
        has_the_same_value_however_it_is_cut(&SequenceOk::sample(draw));
        has_the_same_value_however_it_is_cut(&Read::sample(draw));
    }

    #[test]
    fn a_boolean_that_is_neither_is_named_with_its_place() {
        let mut octets = encoded(&Sequence::sample(&mut Draw::new(3)));
        *octets.last_mut().unwrap() = 2;
        let wrong = Sequence::decode(&mut Decoder::new(Stream::from(Bytes::from(octets)))).unwrap_err();
        assert_eq!(wrong, DecodeError::BadValue { position: 28, value: 2, what: "boolean" });
    }

    #[test]
    fn a_word_that_is_no_value_is_named_with_its_place() {
        let (_, mut octets) = words();
        octets[3] = 8;
        let wrong = Attributes::decode(&mut Decoder::new(Stream::from(Bytes::from(octets.clone()))));
        assert_eq!(wrong.unwrap_err(), DecodeError::BadValue { position: 0, value: 8, what: "file type" });
        octets[3] = 7;
        let short = Attributes::decode(&mut Decoder::new(Stream::from(Bytes::from(octets[..80].to_vec()))));
        assert!(matches!(short, Err(DecodeError::Truncated { position: 80, .. })), "{short:?}");
    }
}
