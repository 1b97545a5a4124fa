//! A model of a directory: the files that must be in it.

use bytes::Bytes;
use rpcrdma_env::{Random as _, SeededRandom};
use std::collections::BTreeMap;

/// The most files in a directory.
const MAX_FILES: u64 = 16;
/// The most bytes of a file.
pub(super) const MAX_OCTETS: u64 = 400 << 10;
/// The most bytes of a write in most cases.
const USUAL_OCTETS: u64 = 20 << 10;

/// A directory's files by their names.
#[derive(Default)]
pub(super) struct Files(pub(super) BTreeMap<String, Vec<u8>>);

impl Files {
    /// Writes bytes into a file of the model, at an offset.
    pub(super) fn put(&mut self, name: &str, offset: usize, data: &[u8]) {
        let file = self.0.entry(name.to_owned()).or_default();
        if file.len() < offset + data.len() {
            file.resize(offset + data.len(), 0);
        }
        file[offset..offset + data.len()].copy_from_slice(data);
    }

    /// The bytes of a range, up to the end of the file.
    pub(super) fn range(&self, name: &str, offset: u64, count: u32) -> &[u8] {
        let file = self.0.get(name).map_or(&[][..], Vec::as_slice);
        let begin = (offset as usize).min(file.len());
        &file[begin..file.len().min(begin + count as usize)]
    }

    /// A random name of an existing file.
    pub(super) fn some(&self, random: &SeededRandom) -> Option<String> {
        self.0.keys().nth(random.below(self.0.len() as u64) as usize).cloned()
    }

    /// A random name; the file may exist or not.
    pub(super) fn any(random: &SeededRandom) -> String {
        format!("file-{}", random.below(MAX_FILES))
    }
}

/// How many bytes to write or read: mostly few, now and then many.
pub(super) fn octets(random: &SeededRandom) -> u64 {
    1 + random.below(if random.below(6) == 0 { MAX_OCTETS / 2 } else { USUAL_OCTETS })
}

/// Bytes that look random.
pub(super) fn data(random: &SeededRandom, octets: u64) -> Bytes {
    let mut data = vec![0; octets as usize];
    random.fill(&mut data);
    data.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_put_is_there_with_zeros_before_it() {
        let mut files = Files::default();
        files.put("a", 3, b"xyz");
        files.put("a", 4, b"Y");
        assert_eq!(files.range("a", 0, 100), b"\0\0\0xYz");
        assert_eq!(
            (files.range("a", 5, 1), files.range("a", 6, 1), files.range("b", 0, 1)),
            (&b"z"[..], &[][..], &[][..])
        );
        assert_eq!(files.some(&SeededRandom::new(1)).as_deref(), Some("a"));
        assert_eq!(Files::default().some(&SeededRandom::new(1)), None);
    }
}
