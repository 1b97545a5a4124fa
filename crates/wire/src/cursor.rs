//! Words from a slice of received octets.
//!
//! Borrows the octets. If a word is cut off, the error says where.

use rpcrdma_xdr::{DecodeError, UNIT};
use std::ops::Range;

/// The word at this octet, if there is a whole one.
pub(crate) fn word_at(octets: &[u8], at: usize) -> Option<u32> {
    octets.get(at..)?.first_chunk().copied().map(u32::from_be_bytes)
}

pub(crate) struct Cursor<'a> {
    octets: &'a [u8],
    position: usize,
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(octets: &'a [u8]) -> Self {
        Self { octets, position: 0 }
    }

    /// Octets consumed so far.
    pub(crate) fn position(&self) -> usize {
        self.position
    }

    /// Octets left.
    pub(crate) fn remaining(&self) -> usize {
        self.octets.len()
    }

    // V1-4-a, V2-3.1.4-a
    pub(crate) fn u32(&mut self) -> Result<u32, DecodeError> {
        self.array().map(u32::from_be_bytes)
    }

    /// Words, none of which is consumed if one is cut off.
    pub(crate) fn words<const N: usize>(&mut self) -> Result<[u32; N], DecodeError> {
        let needed = N * UNIT;
        let (head, tail) = self.octets.split_at_checked(needed).ok_or(DecodeError::Truncated {
            position: self.position,
            needed,
            left: self.octets.len(),
        })?;
        let mut words = [0; N];
        for (word, octets) in words.iter_mut().zip(head.chunks_exact(UNIT)) {
            *word = octets.first_chunk().copied().map_or(0, u32::from_be_bytes);
        }
        self.octets = tail;
        self.position += needed;
        Ok(words)
    }

    pub(crate) fn u64(&mut self) -> Result<u64, DecodeError> {
        self.array().map(u64::from_be_bytes)
    }

    /// The discriminator of optional data or of a list's next entry: 0 or 1.
    // V2-7.2.1-a, V1-4.5.2-a
    pub(crate) fn present(&mut self, what: &'static str) -> Result<bool, DecodeError> {
        let position = self.position;
        match self.u32()? {
            0 => Ok(false),
            1 => Ok(true),
            value => Err(DecodeError::BadValue { position, value, what }),
        }
    }

    /// The count of an array whose elements take `element` octets each. A count that the rest of the message cannot
    /// hold is an error.
    pub(crate) fn count(&mut self, element: usize) -> Result<usize, DecodeError> {
        let position = self.position;
        let len = usize::try_from(self.u32()?).unwrap_or(usize::MAX);
        let max = self.remaining() / element.max(UNIT);
        if len > max { Err(DecodeError::TooLong { position, len, max }) } else { Ok(len) }
    }

    /// Passes over these octets if they come next.
    pub(crate) fn passes<const N: usize>(&mut self, next: &[u8; N]) -> bool {
        match self.octets.split_first_chunk() {
            Some((head, tail)) if head == next => {
                self.octets = tail;
                self.position += N;
                true
            }
            _ => false,
        }
    }

    /// Passes over octets. `None` if there are not so many.
    pub(crate) fn skip(&mut self, len: usize) -> Option<Range<usize>> {
        let (_, tail) = self.octets.split_at_checked(len)?;
        let start = self.position;
        self.octets = tail;
        self.position += len;
        Some(start..self.position)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        match self.octets.split_first_chunk() {
            Some((head, tail)) => {
                self.octets = tail;
                self.position += N;
                Ok(*head)
            }
            None => Err(DecodeError::Truncated { position: self.position, needed: N, left: self.octets.len() }),
        }
    }
}
