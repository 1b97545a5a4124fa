//! A subset of a property set, `rpcrdma2_propsubset` (draft section 5.1).
//!
//! A counted array of words; bit N mod 32 of word N div 32 stands for the property at position N. No message of the
//! draft has a subset; extensions may. Owns its words. A count beyond the octets is an error.

use crate::cursor::Cursor;
use bytes::BufMut;
use rpcrdma_xdr::{DecodeError, UNIT};

const WORD_BITS: usize = 32;

/// Positions in a property set.
// V2-5.1-i, V2-5.1-j
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PropertySubset(Vec<u32>);

impl PropertySubset {
    /// The subset of these positions.
    pub fn new(positions: impl IntoIterator<Item = usize>) -> Self {
        let mut words = Vec::new();
        for position in positions {
            let at = position / WORD_BITS;
            if words.len() <= at {
                words.resize(at + 1, 0);
            }
            if let Some(word) = words.get_mut(at) {
                *word |= 1 << (position % WORD_BITS);
            }
        }
        Self(words)
    }

    /// Whether the subset contains the property at this position.
    pub fn contains(&self, position: usize) -> bool {
        self.0.get(position / WORD_BITS).is_some_and(|word| word & 1 << (position % WORD_BITS) != 0)
    }

    /// Decodes a subset at the beginning of `octets`. Returns it with its length in octets.
    ///
    /// # Errors
    /// If the octets end before the counted words.
    pub fn decode(octets: &[u8]) -> Result<(Self, usize), DecodeError> {
        let mut cursor = Cursor::new(octets);
        let count = cursor.count(UNIT)?;
        let words = (0..count).map(|_| cursor.u32()).collect::<Result<_, _>>()?;
        Ok((Self(words), cursor.position()))
    }

    /// Appends the encoded subset.
    pub fn encode(&self, out: &mut impl BufMut) {
        out.put_u32(u32::try_from(self.0.len()).unwrap_or(u32::MAX));
        self.0.iter().for_each(|word| out.put_u32(*word));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// proves: V2-5.1-i, V2-5.1-j
    #[test]
    fn bits_count_from_the_least_significant() {
        let subset = PropertySubset::new([0, 33, 5]);
        let mut out = Vec::new();
        subset.encode(&mut out);
        assert_eq!(out, [0, 0, 0, 2, 0, 0, 0, 0b10_0001, 0, 0, 0, 0b10]);
        assert_eq!(PropertySubset::decode(&out).unwrap(), (subset.clone(), 12));
        let members: Vec<_> = (0..200).filter(|&position| subset.contains(position)).collect();
        assert_eq!(members, [0, 5, 33], "words that were not sent are zero");
        assert!(!subset.contains(usize::MAX));
        for len in 0..out.len() {
            assert!(PropertySubset::decode(&out[..len]).is_err());
        }
        assert!(PropertySubset::decode(&[0xff; 8]).is_err());
    }
}
