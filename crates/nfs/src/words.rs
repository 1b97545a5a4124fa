//! Structures that consist of a fixed number of words, which are read together where they lie together.
//!
//! A word read alone costs several times as much: the decoder has to look where each begins.

/// A value that is made of `WORDS` words, whatever it is.
pub(crate) trait FromWords: Sized {
    const WORDS: usize;

    /// The value of the next words; `None` if they are none of its values.
    fn from_words(words: &mut impl Iterator<Item = u32>) -> Option<Self>;
}

impl FromWords for u32 {
    const WORDS: usize = 1;

    fn from_words(words: &mut impl Iterator<Item = u32>) -> Option<Self> {
        words.next()
    }
}

impl FromWords for u64 {
    const WORDS: usize = 2;

    fn from_words(words: &mut impl Iterator<Item = u32>) -> Option<Self> {
        let (high, low) = (words.next()?, words.next()?);
        Some(u64::from(high) << u32::BITS | u64::from(low))
    }
}

#[cfg(test)]
mod tests {
    use super::FromWords;
    use crate::{
        sample::{Draw, Sample},
        v3::{Attributes, FileType},
    };
    use bytes::Bytes;
    use rpcrdma_xdr::{Decode, DecodeError, Decoder, Encode, Encoder, Stream};

    fn words() -> (Attributes, Vec<u8>) {
        let attributes = Attributes { file_type: FileType::Fifo, ..Attributes::sample(&mut Draw::new(1)) };
        let mut encoder = Encoder::new();
        attributes.encode(&mut encoder);
        (attributes, encoder.finish().to_bytes().to_vec())
    }

    #[test]
    fn words_that_lie_together_and_words_that_do_not_have_the_same_value() {
        let (attributes, octets) = words();
        assert_eq!(octets.len(), Attributes::WORDS * rpcrdma_xdr::UNIT, "or all are read one by one");
        for cut in 0..=octets.len() {
            let mut stream = Stream::new();
            stream.push_run(Bytes::copy_from_slice(&octets[..cut]));
            stream.push_run(Bytes::copy_from_slice(&octets[cut..]));
            let mut decoder = Decoder::new(stream);
            assert_eq!(Attributes::decode(&mut decoder).unwrap(), attributes, "cut at {cut}");
            decoder.finish().unwrap();
        }
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
