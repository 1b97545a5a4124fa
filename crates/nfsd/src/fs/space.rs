//! Holes, space and copies: arguments and results of operations on ranges of files.

use crate::ReadData;
use rpcrdma_env::Buffer;
use rpcrdma_nfs::attr::{Change, Stability};

/// The content of a range of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// Bytes that were written, or for which space is in use.
    Data,
    /// No bytes: a hole reads as zeroes. Each file has a hole behind its last byte.
    Hole,
}

/// Where the next data or hole of a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sought {
    /// Where it begins.
    pub offset: u64,
    /// The file has no such content from there to its end; [`offset`](Self::offset) is the end.
    pub end: bool,
}

/// A range of one file that is copied to another. Neither end is above 2^64.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Where it begins in the source.
    pub from: u64,
    /// Where it begins in the destination.
    pub to: u64,
    /// How many bytes.
    pub length: u64,
}

impl Span {
    /// Whether the two ranges have bytes in common, if source and destination are the same file.
    pub fn overlaps(&self) -> bool {
        self.from.abs_diff(self.to) < self.length
    }
}

/// The result of a copy.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Copied {
    /// How many bytes, holes included. 0 where the source has no more.
    pub count: u64,
    /// How durable they are.
    pub committed: Stability,
    /// The destination before and after.
    pub file: Change,
}

impl Copied {
    /// Which bytes were copied: how many, and how durably.
    pub fn new(count: u64, committed: Stability, file: Change) -> Self {
        Self { count, committed, file }
    }
}

/// A piece of a file, as read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Where it begins.
    pub offset: u64,
    /// How many bytes.
    pub length: u64,
    /// Data or hole. The bytes of data are in the buffer, behind those of earlier pieces.
    pub content: Content,
}

/// A read of a file with holes.
#[derive(Debug)]
#[non_exhaustive]
pub struct SparseData {
    /// The buffer of the call; its length is the number of bytes of all data.
    pub buffer: Buffer,
    /// Data and holes; each begins where the one before it ends.
    pub pieces: Vec<Piece>,
    /// Whether the last piece ends at the end of the file.
    pub end: bool,
}

impl SparseData {
    /// The data of all pieces, the pieces, and whether the last one ends at the end of the file.
    pub fn new(buffer: Buffer, pieces: Vec<Piece>, end: bool) -> Self {
        Self { buffer, pieces, end }
    }

    /// An ordinary read from `offset`, as one piece of data.
    pub fn of(read: ReadData, offset: u64) -> Self {
        let ReadData { buffer, end, .. } = read;
        let length = buffer.len() as u64;
        let pieces = if length > 0 { vec![Piece { offset, length, content: Content::Data }] } else { Vec::new() };
        Self { buffer, pieces, end }
    }
}

/// How much of a file an answer may hold, in pieces. Each piece takes some bytes in addition to its data, and data is
/// padded to a multiple of four.
#[derive(Clone, Copy, Debug)]
pub struct PieceBudget {
    count: u64,
    octets: usize,
    head: usize,
    most: usize,
}

impl PieceBudget {
    /// At most `most` pieces of at most `count` bytes of the file. Each piece takes `head` bytes in addition to its
    /// data, and all of them together take at most `octets` bytes.
    pub fn new(count: u64, octets: usize, head: usize, most: usize) -> Self {
        Self { count, octets, head, most }
    }

    /// How many bytes of the file the answer still wants.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// How many bytes of data have room, if no hole comes first.
    pub fn data(&self) -> usize {
        match self.most {
            0 => 0,
            _ => {
                let wanted = usize::try_from(self.count).unwrap_or(usize::MAX);
                (self.octets.saturating_sub(self.head) & !3).min(wanted)
            }
        }
    }

    /// Takes a hole of this length. Returns whether there is room for it.
    pub fn take_hole(&mut self, length: u64) -> bool {
        if self.most == 0 || self.octets < self.head {
            return false;
        }
        self.take(length, 0);
        true
    }

    /// Takes data of at most this length, and returns for how many bytes there is room.
    pub fn take_data(&mut self, length: u64) -> usize {
        let taken = usize::try_from(length).unwrap_or(usize::MAX).min(self.data());
        if taken > 0 {
            self.take(taken as u64, rpcrdma_xdr::padded(taken));
        }
        taken
    }

    fn take(&mut self, of_file: u64, octets: usize) {
        self.count = self.count.saturating_sub(of_file);
        self.octets = self.octets.saturating_sub(self.head + octets);
        self.most -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_is_for_so_many_octets_and_no_more() {
        let whole = PieceBudget::new(100, 120, 20, 9);
        assert_eq!((whole.data(), whole.count()), (100, 100));
        assert_eq!(PieceBudget::new(100, 119, 20, 9).data(), 96, "one less, and a word less of data");
        assert_eq!(PieceBudget::new(99, 120, 20, 9).data(), 99, "what follows it has room, too");
        assert_eq!(PieceBudget::new(100, 120, 20, 0).data(), 0);
        let mut budget = whole;
        assert!(budget.take_hole(60));
        assert_eq!(budget.take_data(500), 40, "what is wanted");
        assert_eq!((budget.count(), budget.take_data(1)), (0, 0));
    }

    #[test]
    fn pieces_are_counted() {
        let mut budget = PieceBudget::new(u64::MAX, 10_000, 20, 2);
        assert!(budget.take_hole(1) && budget.take_hole(1), "at the limit");
        assert!(!budget.take_hole(1) && budget.take_data(1) == 0, "one past it");
        let mut budget = PieceBudget::new(u64::MAX, 39, 20, 9);
        assert!(budget.take_hole(1) && !budget.take_hole(1), "no room for a second");
    }

    #[test]
    fn ranges_of_a_file_overlap_where_they_have_an_octet_in_common() {
        let overlaps = |from, to, length| Span { from, to, length }.overlaps();
        assert!(overlaps(0, 9, 10) && overlaps(9, 0, 10) && overlaps(5, 5, 1));
        assert!(!overlaps(0, 10, 10) && !overlaps(10, 0, 10) && !overlaps(5, 5, 0));
    }
}
