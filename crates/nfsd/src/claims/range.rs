//! A range of a file's bytes, and how it is locked.

use std::fmt;

/// How bytes are locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Shared with other readers.
    Read,
    /// Alone.
    Write,
}

impl Kind {
    /// Whether these kinds exclude each other on the same byte.
    pub fn excludes(self, other: Self) -> bool {
        self == Self::Write || other == Self::Write
    }
}

/// At least one byte of a file, whether the file has it or not. Both ends belong to the range. A range that ends at
/// `u64::MAX` is to the end of the file, however long the file becomes.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Range {
    first: u64,
    last: u64,
}

/// An offset and a length that name no range. Version 4 answers both with NFS4ERR_INVAL.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadRange {
    /// The length is 0.
    #[error("an empty range")]
    Empty,
    /// It ends beyond 2^64 - 1.
    #[error("a range too long")]
    Overflow,
}

impl Range {
    /// The whole file.
    pub const ALL: Range = Range { first: 0, last: u64::MAX };

    /// The range of an offset and a length in bytes, as versions 3 (NLM) and 4 send them; a length of `u64::MAX` is to
    /// the end.
    ///
    /// # Errors
    /// As [`BadRange`] says (RFC 8881 section 18.10.3).
    pub fn new(offset: u64, length: u64) -> Result<Self, BadRange> {
        let last = match length {
            0 => return Err(BadRange::Empty),
            u64::MAX => u64::MAX,
            _ => offset.checked_add(length).ok_or(BadRange::Overflow)? - 1,
        };
        Ok(Self { first: offset, last })
    }

    /// From one byte to another; `None` if the second is before the first.
    pub fn between(first: u64, last: u64) -> Option<Self> {
        (first <= last).then_some(Self { first, last })
    }

    /// The first byte.
    pub fn first(&self) -> u64 {
        self.first
    }

    /// The last byte.
    pub fn last(&self) -> u64 {
        self.last
    }

    /// The length in bytes, `u64::MAX` if it is to the end: [`new`](Self::new) makes the same range from it.
    pub fn length(&self) -> u64 {
        if self.last == u64::MAX { u64::MAX } else { self.last - self.first + 1 }
    }

    /// Whether they have a byte in common.
    pub fn overlaps(&self, other: Range) -> bool {
        self.first <= other.last && other.first <= self.last
    }

    /// The bytes that both have.
    pub fn common(&self, other: Range) -> Option<Range> {
        Range::between(self.first.max(other.first), self.last.min(other.last))
    }
}

impl fmt::Debug for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.last {
            u64::MAX => write!(f, "{}..", self.first),
            last => write!(f, "{}..={last}", self.first),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// proves: NFS4-8881-18.10.3-a, NFS4-8881-18.10.3-b
    #[test]
    fn a_range_has_an_octet_and_ends_in_64_bits() {
        const END: u64 = u64::MAX;
        for offset in [0, 1, END - 1, END] {
            assert_eq!(Range::new(offset, 0), Err(BadRange::Empty));
            let to_the_end = Range::new(offset, END).unwrap();
            assert_eq!((to_the_end.first(), to_the_end.last(), to_the_end.length()), (offset, END, END));
        }
        // The sum may be 2^64 - 1, not more.
        assert_eq!(Range::new(1, END - 1).unwrap().last(), END - 1);
        assert_eq!(Range::new(2, END - 1), Err(BadRange::Overflow));
        assert_eq!(Range::new(END - 1, 1).unwrap().last(), END - 1);
        assert_eq!(Range::new(END, 1), Err(BadRange::Overflow));
        for (offset, length) in [(0, 1), (7, 5), (1, END - 1), (0, END - 1)] {
            let range = Range::new(offset, length).unwrap();
            assert_eq!((range.first(), range.length()), (offset, length));
        }
    }

    #[test]
    fn ranges_overlap_in_an_octet_not_in_a_border() {
        let range = |first, last| Range::between(first, last).unwrap();
        assert!(range(0, 5).overlaps(range(5, 9)) && range(5, 9).overlaps(range(0, 5)));
        assert!(!range(0, 4).overlaps(range(5, 9)) && !range(5, 9).overlaps(range(0, 4)));
        assert_eq!(range(0, 5).common(range(3, 9)), Range::between(3, 5));
        assert_eq!(range(0, 4).common(range(5, 9)), None);
        assert_eq!(Range::between(5, 4), None);
    }
}
