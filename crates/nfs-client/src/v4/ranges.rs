//! The locked ranges of a file, so that they can be reclaimed.

use rpcrdma_nfs::v4::ops::LockKind;

/// A locked range: from the first byte to the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Range {
    first: u64,
    last: u64,
    pub(super) kind: LockKind,
}

impl Range {
    /// From the protocol's form; `None` if it has no byte or goes beyond the last possible byte.
    pub(super) fn new(kind: LockKind, offset: u64, length: u64) -> Option<Self> {
        let last = match length {
            0 => return None,
            u64::MAX => u64::MAX,
            _ => offset.checked_add(length - 1)?,
        };
        Some(Self { first: offset, last, kind })
    }

    pub(super) fn offset(&self) -> u64 {
        self.first
    }

    /// The length; all ones for a range without end.
    pub(super) fn length(&self) -> u64 {
        if self.last == u64::MAX { u64::MAX } else { self.last - self.first + 1 }
    }
}

/// Locked ranges, which do not overlap.
#[derive(Clone, Debug, Default)]
pub(super) struct Ranges(Vec<Range>);

impl Ranges {
    /// Removes a range.
    pub(super) fn clear(&mut self, gone: Range) {
        let mut left = Vec::with_capacity(self.0.len() + 1);
        for range in self.0.drain(..) {
            if range.last < gone.first || range.first > gone.last {
                left.push(range);
                continue;
            }
            if let Some(last) = gone.first.checked_sub(1).filter(|last| *last >= range.first) {
                left.push(Range { last, ..range });
            }
            if let Some(first) = gone.last.checked_add(1).filter(|first| *first <= range.last) {
                left.push(Range { first, ..range });
            }
        }
        self.0 = left;
    }

    /// Adds a range, which replaces what it covers; joins neighbours.
    pub(super) fn set(&mut self, mut new: Range) {
        self.clear(new);
        self.0.retain(|range| {
            let touches = range.kind == new.kind
                && (range.last.checked_add(1) == Some(new.first) || new.last.checked_add(1) == Some(range.first));
            if touches {
                (new.first, new.last) = (new.first.min(range.first), new.last.max(range.last));
            }
            !touches
        });
        self.0.push(new);
    }

    /// The locked pieces of a range, and the pieces that are not locked.
    pub(super) fn split(&self, range: Range) -> (Vec<Range>, Vec<Range>) {
        let (mut locked, mut rest) = (Vec::new(), Self(vec![range]));
        for known in self.0.iter().filter(|known| known.first <= range.last && known.last >= range.first) {
            let (first, last) = (known.first.max(range.first), known.last.min(range.last));
            locked.push(Range { first, last, ..*known });
            rest.clear(*known);
        }
        (locked, rest.0)
    }

    pub(super) fn all(&self) -> &[Range] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(kind: LockKind, offset: u64, length: u64) -> Range {
        Range::new(kind, offset, length).unwrap()
    }

    fn told(ranges: &Ranges) -> Vec<(LockKind, u64, u64)> {
        let mut told: Vec<_> = ranges.all().iter().map(|range| (range.kind, range.offset(), range.length())).collect();
        told.sort_by_key(|range| range.1);
        told
    }

    #[test]
    fn what_is_locked_is_what_was_locked_and_not_unlocked() {
        use LockKind::{Read, Write};
        let mut ranges = Ranges::default();
        ranges.set(range(Write, 10, 10));
        ranges.set(range(Write, 20, 10));
        assert_eq!(told(&ranges), [(Write, 10, 20)], "neighbours are one");
        ranges.set(range(Read, 15, 5));
        assert_eq!(told(&ranges), [(Write, 10, 5), (Read, 15, 5), (Write, 20, 10)]);
        ranges.clear(range(Write, 12, 15));
        assert_eq!(told(&ranges), [(Write, 10, 2), (Write, 27, 3)]);
        ranges.set(range(Read, 0, u64::MAX));
        assert_eq!(told(&ranges), [(Read, 0, u64::MAX)]);
        ranges.clear(range(Read, 5, 1));
        assert_eq!(told(&ranges), [(Read, 0, 5), (Read, 6, u64::MAX)]);
        ranges.clear(range(Read, 0, u64::MAX));
        assert!(ranges.all().is_empty());
    }

    #[test]
    fn ranges_end_with_the_last_octet() {
        assert_eq!(Range::new(LockKind::Read, 0, 0), None);
        assert_eq!(Range::new(LockKind::Read, u64::MAX, 2), None);
        assert_eq!(range(LockKind::Read, u64::MAX, 1).length(), u64::MAX);
        assert_eq!(range(LockKind::Read, 5, u64::MAX - 5).length(), u64::MAX - 5);
    }
}
