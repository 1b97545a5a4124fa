//! Sets of small numbers (`bitmap4`): attributes, operations, kinds of notifications.
//!
//! A peer may send as many words as it likes. We keep [`BITMAP_WORDS`], which hold every number that any minor version
//! defines; of numbers beyond we keep only that there were some.

use rpcrdma_xdr::{Decode, DecodeError, Decoder, Encode, Encoder};

/// Words of a [`Bitmap`]: the highest attribute is 86.
pub const BITMAP_WORDS: usize = 3;

/// The most words that are read, 4,096 numbers: far above what any minor version defines, so that a server understands
/// later clients, and low enough that reading them costs little.
pub const MAX_BITMAP_WORDS: usize = 128;

/// The largest encoding in octets.
pub const BITMAP_BYTES: usize = 4 + 4 * BITMAP_WORDS;

/// A set of numbers below 96 (`bitmap4`).
///
/// ```
/// use rpcrdma_nfs::v4::{Attribute, Bitmap};
/// let mut asked = Bitmap::of(&[Attribute::Type, Attribute::Size]);
/// asked.insert(Attribute::Mode);
/// assert!(asked.contains(Attribute::Mode) && !asked.contains(Attribute::Acl));
/// assert_eq!(asked.iter().collect::<Vec<_>>(), [1, 4, 33]);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Bitmap {
    words: [u32; BITMAP_WORDS],
    beyond: bool,
}

impl Bitmap {
    /// No number.
    pub const EMPTY: Bitmap = Bitmap { words: [0; BITMAP_WORDS], beyond: false };

    /// These attributes.
    pub const fn of(attributes: &[super::Attribute]) -> Self {
        let mut set = Self::EMPTY;
        let mut at = 0;
        while at < attributes.len() {
            set = set.with(attributes[at] as u32);
            at += 1;
        }
        set
    }

    /// These numbers.
    pub fn of_numbers(numbers: impl IntoIterator<Item = u32>) -> Self {
        numbers.into_iter().fold(Self::EMPTY, Self::with)
    }

    /// This set and a number. One of 96 or more only makes [`has_more`](Self::has_more) true.
    pub const fn with(mut self, number: u32) -> Self {
        let word = (number / 32) as usize;
        if word < BITMAP_WORDS {
            self.words[word] |= 1 << (number % 32);
        } else {
            self.beyond = true;
        }
        self
    }

    /// Adds a number.
    pub fn insert(&mut self, number: impl Into<u32>) {
        *self = self.with(number.into());
    }

    /// Takes a number away.
    pub fn remove(&mut self, number: impl Into<u32>) {
        let number = number.into();
        if let Some(word) = self.words.get_mut((number / 32) as usize) {
            *word &= !(1 << (number % 32));
        }
    }

    /// Whether a number is in the set.
    pub fn contains(&self, number: impl Into<u32>) -> bool {
        let number = number.into();
        self.words.get((number / 32) as usize).is_some_and(|word| word & (1 << (number % 32)) != 0)
    }

    /// Whether the peer's set had numbers of 96 or more, which this crate does not know.
    pub fn has_more(&self) -> bool {
        self.beyond
    }

    /// Whether the set has no number, not even one that this crate does not know.
    pub fn is_empty(&self) -> bool {
        *self == Self::EMPTY
    }

    /// How many numbers below 96 it has.
    pub fn len(&self) -> usize {
        self.words.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// The numbers below 96, ascending.
    pub fn iter(&self) -> impl Iterator<Item = u32> + use<> {
        (0..).zip(self.words).flat_map(|(at, mut word)| {
            // Each step takes the lowest bit that is left: a set of a few numbers costs as many steps.
            std::iter::from_fn(move || {
                let bit = word.trailing_zeros();
                word &= word.wrapping_sub(1);
                (bit < u32::BITS).then_some(32 * at + bit)
            })
        })
    }

    /// The numbers in both sets. Numbers of 96 or more that both sets have are unknown and count as nothing.
    #[must_use]
    pub fn and(mut self, other: &Bitmap) -> Self {
        self.words.iter_mut().zip(other.words).for_each(|(word, other)| *word &= other);
        self.beyond = false;
        self
    }

    /// The numbers in either set.
    #[must_use]
    pub fn or(mut self, other: &Bitmap) -> Self {
        self.words.iter_mut().zip(other.words).for_each(|(word, other)| *word |= other);
        self.beyond |= other.beyond;
        self
    }

    /// The numbers in this set and not in the other.
    #[must_use]
    pub fn without(mut self, other: &Bitmap) -> Self {
        self.words.iter_mut().zip(other.words).for_each(|(word, other)| *word &= !other);
        self
    }

    /// Whether the other set has all numbers of this one, and this one has no number that this crate does not know.
    pub fn is_within(&self, other: &Bitmap) -> bool {
        self.without(other).is_empty()
    }
}

impl Encode for Bitmap {
    /// Encodes as few words as hold the set.
    fn encode(&self, encoder: &mut Encoder) {
        let used = BITMAP_WORDS - self.words.iter().rev().take_while(|word| **word == 0).count();
        encoder.array(&self.words[..used]);
    }
}

impl Decode for Bitmap {
    fn decode(decoder: &mut Decoder) -> Result<Self, DecodeError> {
        let mut set = Self::EMPTY;
        // NFS4-BITMAP-a
        for at in 0..decoder.count(MAX_BITMAP_WORDS)? {
            let word = decoder.u32()?;
            match set.words.get_mut(at) {
                Some(place) => *place = word,
                // NFS4-BITMAP-a
                None => set.beyond |= word != 0,
            }
        }
        Ok(set)
    }
}

#[cfg(test)]
impl crate::sample::Sample for Bitmap {
    fn sample(draw: &mut crate::sample::Draw) -> Self {
        Self::of_numbers((0..draw.below(6)).map(|_| draw.below(32 * BITMAP_WORDS) as u32))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::v4::Attribute;

    fn words(words: &[u32]) -> Decoder {
        Decoder::new(bytes::Bytes::from_iter(words.iter().flat_map(|word| word.to_be_bytes())).into())
    }

    fn decoded(of: &[u32]) -> Result<Bitmap, DecodeError> {
        let mut decoder = words(of);
        let set = Bitmap::decode(&mut decoder)?;
        decoder.finish()?;
        Ok(set)
    }

    #[test]
    fn a_set_has_as_few_words_as_hold_it() {
        let octets = |set: Bitmap| {
            let mut encoder = Encoder::new();
            set.encode(&mut encoder);
            encoder.finish().to_bytes()
        };
        assert_eq!(octets(Bitmap::EMPTY), [0; 4][..]);
        assert_eq!(octets(Bitmap::of(&[Attribute::Type])), [0, 0, 0, 1, 0, 0, 0, 2][..]);
        assert_eq!(octets(Bitmap::of(&[Attribute::Mode])), [0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 2][..]);
        assert_eq!(octets(Bitmap::of(&[Attribute::OpenArguments])).len(), BITMAP_BYTES);
    }

    /// proves: NFS4-BITMAP-a
    #[test]
    fn long_sets_are_read_up_to_a_limit_and_never_kept() {
        let set = decoded(&[5, 0b11, 0, 0, 0, 0]).unwrap();
        assert_eq!((set, set.has_more()), (Bitmap::of_numbers([0, 1]), false), "surplus words of zeroes mean nothing");
        let set = decoded(&[5, 0b11, 0, 0, 0, 8]).unwrap();
        assert!(set.has_more() && !set.is_within(&Bitmap::of_numbers([0, 1])) && !set.and(&set).has_more());
        let of = |count: usize| [vec![count as u32], vec![0; count]].concat();
        assert!(decoded(&of(MAX_BITMAP_WORDS)).unwrap().is_empty());
        assert!(matches!(decoded(&of(MAX_BITMAP_WORDS + 1)), Err(DecodeError::TooLong { .. })));
        assert!(matches!(decoded(&[u32::MAX, 1]), Err(DecodeError::TooLong { .. })), "a set of 2^32 words");
        assert!(matches!(decoded(&[3, 1, 2]), Err(DecodeError::Truncated { .. })));
    }

    #[test]
    fn sets_are_sets() {
        let (a, b) = (Bitmap::of_numbers([1, 33, 64]), Bitmap::of_numbers([33, 95]));
        assert_eq!(a.and(&b), Bitmap::of_numbers([33]));
        assert_eq!(a.or(&b), Bitmap::of_numbers([1, 33, 64, 95]));
        assert_eq!(a.without(&b), Bitmap::of_numbers([1, 64]));
        assert!(a.is_within(&a.or(&b)) && !a.is_within(&b));
        assert_eq!((a.len(), a.iter().collect::<Vec<_>>()), (3, vec![1, 33, 64]));
        let mut c = a;
        c.remove(33u32);
        c.remove(500u32);
        assert_eq!(c, Bitmap::of_numbers([1, 64]));
        c.insert(96u32);
        assert!(c.has_more() && !c.contains(96u32) && !c.is_empty());
    }
}
