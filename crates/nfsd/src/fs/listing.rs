//! Listings of directories, and how large an answer may become: the protocol says how many bytes an entry takes, and
//! the file system need not know why.

use crate::FileId;
use bytes::Bytes;
use rpcrdma_nfs::attr::Attributes;
use rpcrdma_xdr::padded;

/// Counts how many entries of a directory fit into an answer.
///
/// The protocol defines how many bytes an entry takes in addition to its name; the name takes its bytes rounded up to
/// words:
///
/// ```
/// use rpcrdma_nfsd::ListingBudget;
/// let mut budget = ListingBudget::new(100, 24);
/// assert!(budget.take(8), "32 bytes");
/// assert!(budget.take(41), "68 bytes, rounded up");
/// assert!(!budget.take(1), "none are left");
/// ```
#[derive(Clone, Copy, Debug)]
pub struct ListingBudget {
    /// Bytes left for entries.
    octets: usize,
    /// What an entry takes in addition to its name.
    entry: usize,
    /// Bytes left for names and the bytes counted with them; some protocols have this second limit.
    names: usize,
    /// The bytes that each name counts there in addition.
    name: usize,
    /// Whether the caller wants entries with their files and attributes.
    attributes: bool,
}

impl ListingBudget {
    /// Room for `octets` bytes in total; each entry takes `entry` bytes in addition to its name.
    pub fn new(octets: usize, entry: usize) -> Self {
        Self { octets, entry, names: usize::MAX, name: 0, attributes: false }
    }

    /// The same, but the names, with `name` additional bytes for each, take at most `names` bytes.
    #[must_use]
    pub fn with_names(self, names: usize, name: usize) -> Self {
        Self { names, name, ..self }
    }

    /// The same, but each entry comes with its file and attributes.
    #[must_use]
    pub fn with_attributes(self) -> Self {
        Self { attributes: true, ..self }
    }

    /// Whether entries come with their file and attributes.
    pub fn wants_attributes(&self) -> bool {
        self.attributes
    }

    /// The most entries for which there may be room: if all have the shortest names.
    pub fn most_entries(&self) -> usize {
        let shortest = padded(1);
        (self.octets / (self.entry + shortest)).min(self.names / (self.name + shortest))
    }

    /// Takes room for an entry with a name of `name_bytes` bytes; false if there is not enough.
    pub fn take(&mut self, name_bytes: usize) -> bool {
        let name = padded(name_bytes);
        match (self.octets.checked_sub(self.entry + name), self.names.checked_sub(self.name + name)) {
            (Some(octets), Some(names)) => {
                (self.octets, self.names) = (octets, names);
                true
            }
            _ => false,
        }
    }
}

/// An entry of a directory.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ListingEntry {
    /// The file's number.
    pub file_id: u64,
    /// The name.
    pub name: Bytes,
    /// Where to go on after this entry: never 0.
    pub cookie: u64,
    /// The file and its attributes, if the caller asked for them and they are known.
    pub file: Option<(FileId, Attributes)>,
}

impl ListingEntry {
    /// An entry without its file.
    pub fn new(file_id: u64, name: Bytes, cookie: u64) -> Self {
        Self { file_id, name, cookie, file: None }
    }

    /// The same with its file, if that is known.
    #[must_use]
    pub fn with_file(self, file: Option<(FileId, Attributes)>) -> Self {
        Self { file, ..self }
    }
}

/// A part of a directory.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Listing {
    /// The directory's attributes.
    pub attributes: Option<Attributes>,
    /// The verifier that makes the cookies valid.
    pub verifier: [u8; 8],
    /// The entries.
    pub entries: Vec<ListingEntry>,
    /// Whether the last of them is the directory's last.
    pub end: bool,
}

impl Listing {
    /// Entries, and whether the last of them is the directory's last. The cookies stay valid for ever; the directory's
    /// attributes are not included.
    pub fn new(entries: Vec<ListingEntry>, end: bool) -> Self {
        Self { attributes: None, verifier: [0; 8], entries, end }
    }

    /// For directories that do not change: of all entries, those that come after `cookie` and for which there is room.
    /// Their cookies become their places, counted from 1.
    // NFS3-1813-3.3.16-a
    pub fn of(all: impl IntoIterator<Item = ListingEntry>, cookie: u64, mut budget: ListingBudget) -> Self {
        let mut entries = Vec::new();
        for (place, entry) in (1..).zip(all).filter(|(place, _)| *place > cookie) {
            if !budget.take(entry.name.len()) {
                return Self::new(entries, false);
            }
            entries.push(ListingEntry { cookie: place, ..entry });
        }
        Self::new(entries, true)
    }

    /// The same with the directory's attributes, if they are known.
    #[must_use]
    pub fn with_attributes(self, attributes: Option<Attributes>) -> Self {
        Self { attributes, ..self }
    }

    /// The same with the verifier that makes the cookies valid.
    #[must_use]
    pub fn with_verifier(self, verifier: [u8; 8]) -> Self {
        Self { verifier, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rpcrdma_nfs::v3::{entry_bytes, entry_plus_bytes};

    #[test]
    fn a_budget_ends_where_the_encoding_would_exceed_it() {
        let names_only = |octets| ListingBudget::new(octets, entry_bytes(0));
        let mut budget = names_only(2 * entry_bytes(5));
        assert!(budget.take(5) && budget.take(5) && !budget.take(0));
        assert_eq!((names_only(7 * entry_bytes(1)).most_entries(), names_only(0).most_entries()), (7, 0));
        let mut budget = names_only(2 * entry_bytes(5) - 1);
        assert!(budget.take(5) && !budget.take(5));
        let plus = |octets, names| {
            ListingBudget::new(octets, entry_plus_bytes(0, 64)).with_names(names, entry_bytes(0)).with_attributes()
        };
        let mut budget = plus(1 << 20, entry_bytes(1));
        assert!(budget.take(1) && !budget.take(1), "names have a budget of their own");
        let mut budget = plus(entry_plus_bytes(1, 64), 1 << 20);
        assert!(budget.wants_attributes() && budget.take(1) && !budget.take(1));
    }
}
