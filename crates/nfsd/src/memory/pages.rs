//! The contents of a file in memory: pages where data was written, holes elsewhere. Cloned files share pages until one
//! of them is written to; each file counts the pages as its own.

use crate::Content;
use std::{collections::BTreeMap, ops::Range, sync::Arc};

/// Bytes in a page.
pub(super) const PAGE_BYTES: usize = 4096;
const PAGE: u64 = PAGE_BYTES as u64;

/// Contents. Owns its pages.
#[derive(Default)]
pub(super) struct Pages {
    pages: BTreeMap<u64, Arc<[u8; PAGE_BYTES]>>,
    size: u64,
}

/// The part of the page `index` that the bytes from `offset` to `end` cover.
fn part(index: u64, offset: u64, end: u64) -> (usize, usize) {
    let begin = index * PAGE;
    ((offset.max(begin) - begin) as usize, (end.min(begin + PAGE) - begin) as usize)
}

impl Pages {
    pub(super) fn size(&self) -> u64 {
        self.size
    }

    /// How many pages the file has.
    pub(super) fn count(&self) -> u64 {
        self.pages.len() as u64
    }

    /// How many pages a write would add.
    pub(super) fn missing(&self, offset: u64, len: u64) -> u64 {
        if len == 0 {
            return 0;
        }
        let (first, last) = (offset / PAGE, (offset + len - 1) / PAGE);
        last - first + 1 - self.pages.range(first..=last).count() as u64
    }

    /// Fills `out` from `offset`; returns how many bytes there were.
    pub(super) fn read(&self, offset: u64, out: &mut [u8]) -> usize {
        let len = self.size.saturating_sub(offset).min(out.len() as u64) as usize;
        let (out, end) = (&mut out[..len], offset + len as u64);
        out.fill(0);
        if len > 0 {
            for (index, page) in self.pages.range(offset / PAGE..=(end - 1) / PAGE) {
                let (from, to) = part(*index, offset, end);
                let at = (index * PAGE + from as u64 - offset) as usize;
                out[at..at + to - from].copy_from_slice(&page[from..to]);
            }
        }
        len
    }

    pub(super) fn write(&mut self, offset: u64, data: &[u8]) {
        let end = offset + data.len() as u64;
        let mut at = offset;
        while at < end {
            let index = at / PAGE;
            let (from, to) = part(index, at, end);
            let page = self.pages.entry(index).or_insert_with(empty);
            let source = (at - offset) as usize;
            Arc::make_mut(page)[from..to].copy_from_slice(&data[source..source + to - from]);
            at += (to - from) as u64;
        }
        if !data.is_empty() {
            self.size = self.size.max(end);
        }
    }

    pub(super) fn set_size(&mut self, size: u64) {
        if size < self.size {
            let _ = self.pages.split_off(&size.div_ceil(PAGE));
            if let Some(page) = self.pages.get_mut(&(size / PAGE)) {
                Arc::make_mut(page)[(size % PAGE) as usize..].fill(0);
            }
        }
        self.size = size;
    }

    /// What the file has at an offset before its end, and up to where, at most `end`.
    pub(super) fn extent(&self, at: u64, end: u64) -> (Content, u64) {
        let first = at / PAGE;
        let until = |index: u64| (index * PAGE).min(end);
        let mut there = self.pages.range(first..end.div_ceil(PAGE)).map(|(index, _)| *index);
        match there.next() {
            None => (Content::Hole, end),
            Some(next) if next > first => (Content::Hole, until(next)),
            Some(_) => {
                let run = there.zip(first + 1..).take_while(|(index, next)| index == next).count() as u64;
                (Content::Data, until(first + 1 + run))
            }
        }
    }

    /// Gives each page of a range its own memory. If the file is shorter, it grows to the end of the range.
    pub(super) fn allocate(&mut self, offset: u64, len: u64) {
        for index in page_range(offset, len) {
            self.pages.entry(index).or_insert_with(empty);
        }
        self.size = self.size.max(offset + len);
    }

    /// Makes a range read as zeroes. If `frees`, pages wholly in the range are freed.
    pub(super) fn clear(&mut self, offset: u64, len: u64, frees: bool) {
        let (range, end) = (page_range(offset, len), offset + len);
        let there: Vec<_> = self.pages.range(range).map(|(index, _)| *index).collect();
        for index in there {
            let (from, to) = part(index, offset, end);
            if frees && to - from == PAGE_BYTES {
                self.pages.remove(&index);
            } else if let Some(page) = self.pages.get_mut(&index) {
                Arc::make_mut(page)[from..to].fill(0);
            }
        }
    }

    /// The pages of a range that begins at a page, for sharing.
    pub(super) fn share(&self, offset: u64, len: u64) -> Shared {
        let first = offset / PAGE;
        let pages = self.pages.range(page_range(offset, len));
        Shared { pages: pages.map(|(index, page)| (index - first, page.clone())).collect(), len }
    }

    /// How many pages [`put`](Self::put) would add: negative if it would free some.
    pub(super) fn added_by(&self, offset: u64, shared: &Shared) -> i64 {
        shared.pages.len() as i64 - self.pages.range(page_range(offset, shared.len)).count() as i64
    }

    /// Replaces the pages of a range that begins at a page. Bytes behind the range in its last page then read as
    /// zeroes.
    pub(super) fn put(&mut self, offset: u64, shared: Shared) {
        let replaced: Vec<_> = self.pages.range(page_range(offset, shared.len)).map(|(index, _)| *index).collect();
        for index in replaced {
            self.pages.remove(&index);
        }
        let first = offset / PAGE;
        for (index, page) in shared.pages {
            self.pages.insert(first + index, page);
        }
        let end = offset + shared.len;
        self.clear(end, end.next_multiple_of(PAGE) - end, false);
        self.size = self.size.max(end);
    }
}

/// Pages of a file, by their place behind the first.
pub(super) struct Shared {
    pages: Vec<(u64, Arc<[u8; PAGE_BYTES]>)>,
    len: u64,
}

fn empty() -> Arc<[u8; PAGE_BYTES]> {
    Arc::new([0; PAGE_BYTES])
}

/// The pages that a range touches.
fn page_range(offset: u64, len: u64) -> Range<u64> {
    offset / PAGE..if len == 0 { offset / PAGE } else { (offset + len).div_ceil(PAGE) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn holes_cost_nothing() {
        let mut pages = Pages::default();
        pages.write(5 << 30, b"end");
        assert_eq!((pages.size(), pages.count()), ((5 << 30) + 3, 1));
        let mut out = [1; 6];
        assert_eq!(pages.read((5 << 30) - 3, &mut out), 6);
        assert_eq!(&out, b"\0\0\0end");
        pages.set_size(10);
        pages.set_size(6 << 30);
        assert_eq!(pages.count(), 0);
    }

    #[test]
    fn data_and_holes_are_found_page_by_page() {
        let mut pages = Pages::default();
        pages.write(2 * PAGE + 7, b"data");
        pages.write(4 * PAGE - 1, b"more");
        let end = pages.size();
        assert_eq!(pages.extent(5, end), (Content::Hole, 2 * PAGE));
        assert_eq!(pages.extent(2 * PAGE, end), (Content::Data, end));
        assert_eq!(pages.extent(2 * PAGE, 2 * PAGE + 1), (Content::Data, 2 * PAGE + 1));
        pages.clear(3 * PAGE, 2 * PAGE, true);
        assert_eq!((pages.extent(2 * PAGE, end), pages.count()), ((Content::Data, 3 * PAGE), 1));
        assert_eq!(pages.extent(3 * PAGE, end), (Content::Hole, end));
    }

    #[test]
    fn a_clone_shares_pages_until_one_of_them_is_written_to() {
        let (mut one, mut other) = (Pages::default(), Pages::default());
        one.write(0, &[1; 3 * PAGE_BYTES]);
        other.write(0, &[2; 5 * PAGE_BYTES]);
        let shared = one.share(PAGE, PAGE + 10);
        assert_eq!(other.added_by(2 * PAGE, &shared), 0);
        other.put(2 * PAGE, shared);
        one.write(PAGE, &[3]);
        let mut out = vec![9; 5 * PAGE_BYTES];
        assert_eq!(other.read(0, &mut out), out.len());
        let page = PAGE_BYTES;
        assert!(out[..2 * page].iter().all(|octet| *octet == 2) && out[4 * page..].iter().all(|octet| *octet == 2));
        assert!(out[2 * page..3 * page + 10].iter().all(|octet| *octet == 1), "as it was when it was cloned");
        assert!(out[3 * page + 10..4 * page].iter().all(|octet| *octet == 0), "the rest of the last page");
    }

    proptest! {
        #[test]
        fn it_behaves_as_a_vector(
            steps in prop::collection::vec((0u64..20_000, 0usize..9_000, any::<u8>(), any::<bool>()), 0..20),
        ) {
            let (mut pages, mut model) = (Pages::default(), Vec::new());
            for (offset, len, octet, cut) in steps {
                if cut {
                    pages.set_size(offset);
                    model.resize(offset as usize, 0);
                } else if len > 0 {
                    let end = offset as usize + len;
                    let before = pages.count();
                    let missing = pages.missing(offset, len as u64);
                    pages.write(offset, &vec![octet; len]);
                    prop_assert_eq!(pages.count(), before + missing);
                    model.resize(model.len().max(end), 0);
                    model[offset as usize..end].fill(octet);
                }
                let mut out = vec![9; 30_000];
                let len = pages.read(0, &mut out);
                prop_assert_eq!(&out[..len], &model[..]);
                let len = pages.read(offset, &mut out[..100]);
                let expected = &model[model.len().min(offset as usize)..];
                prop_assert_eq!(&out[..len], &expected[..expected.len().min(100)]);
            }
        }
    }
}
