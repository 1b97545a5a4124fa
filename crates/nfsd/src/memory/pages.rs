//! The contents of a file in memory: pages where something was written, holes elsewhere.

use std::collections::BTreeMap;

/// Octets in a page.
pub(super) const PAGE_OCTETS: usize = 4096;
const PAGE: u64 = PAGE_OCTETS as u64;

/// Contents. Owns its pages.
#[derive(Default)]
pub(super) struct Pages {
    pages: BTreeMap<u64, Box<[u8; PAGE_OCTETS]>>,
    size: u64,
}

/// The part of the page `index` that the octets from `offset` to `end` cover.
fn part(index: u64, offset: u64, end: u64) -> (usize, usize) {
    let begin = index * PAGE;
    ((offset.max(begin) - begin) as usize, (end.min(begin + PAGE) - begin) as usize)
}

impl Pages {
    pub(super) fn size(&self) -> u64 {
        self.size
    }

    /// How many pages are held.
    pub(super) fn count(&self) -> u64 {
        self.pages.len() as u64
    }

    /// How many pages a write would add.
    pub(super) fn missing(&self, offset: u64, len: usize) -> u64 {
        if len == 0 {
            return 0;
        }
        let (first, last) = (offset / PAGE, (offset + len as u64 - 1) / PAGE);
        last - first + 1 - self.pages.range(first..=last).count() as u64
    }

    /// Fills `out` from `offset`; returns how many octets there were.
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
            let page = self.pages.entry(index).or_insert_with(|| Box::new([0; PAGE_OCTETS]));
            let source = (at - offset) as usize;
            page[from..to].copy_from_slice(&data[source..source + to - from]);
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
                page[(size % PAGE) as usize..].fill(0);
            }
        }
        self.size = size;
    }
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
                    let missing = pages.missing(offset, len);
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
