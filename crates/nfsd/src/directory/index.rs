//! Where files are, for file systems (or servers) without handles of the kernel's.
//!
//! A file is known by inode number and birth time; the index remembers in which directory, by which names it was seen.
//! It owns a journal in the state directory, to which each new place is appended before a handle that depends on it is
//! told, so that handles survive the server's end; opening reads it back and writes it anew without what is obsolete.
//! What the index says is always verified against the file found. It is bounded: the oldest files go first, and
//! directories only when nothing in them is remembered.
//!
//! ```text
//! a record: length of the rest (2 octets), 1 to add or 2 to remove, then length and octets of the file's id, of the
//! directory's id, and the name up to the end
//! ```

use crate::FileId;
use bytes::Bytes;
use std::{
    collections::{HashMap, VecDeque},
    fs::{self, File, OpenOptions},
    io::{self, Read, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

/// The most files that are remembered. An entry takes some 200 octets.
pub(super) const MAX_FILES: usize = 1 << 20;
/// The most names that are remembered of one file.
const MAX_PLACES: usize = 8;
/// The journal is written anew when it has this many records more than the index needs, and twice as many.
const MAX_OBSOLETE: usize = 100_000;

const ADD: u8 = 1;
const REMOVE: u8 = 2;

/// A name in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) directory: FileId,
    pub(super) name: Bytes,
}

/// The index of one served directory.
pub(super) struct Index {
    files: HashMap<FileId, Vec<Place>>,
    /// How many places are remembered in each directory.
    within: HashMap<FileId, usize>,
    order: VecDeque<FileId>,
    max_files: usize,
    journal: File,
    path: PathBuf,
    records: usize,
    /// A record may be half written, so that what is written behind it could not be read.
    is_torn: bool,
}

impl Index {
    /// Reads the journal at `path`, as far as it is whole, and locks it.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        Self::with_limit(path, MAX_FILES)
    }

    fn with_limit(path: &Path, max_files: usize) -> io::Result<Self> {
        let mut octets = Vec::new();
        open_journal(path)?.read_to_end(&mut octets)?;
        let mut index = Self {
            files: HashMap::new(),
            within: HashMap::new(),
            order: VecDeque::new(),
            max_files,
            journal: open_journal(path)?,
            path: path.to_owned(),
            records: 0,
            is_torn: false,
        };
        let mut rest = &octets[..];
        while let Some((add, file, place)) = read_record(&mut rest) {
            if add {
                index.remember(file, place);
            } else {
                index.drop_place(file, &place);
            }
        }
        index.rewrite()?;
        Ok(index)
    }

    /// Where a file was seen, the latest place last.
    pub(super) fn places(&self, file: FileId) -> &[Place] {
        self.files.get(&file).map_or(&[], |places| places)
    }

    /// A file was seen at a place.
    pub(super) fn add(&mut self, file: FileId, place: Place) -> io::Result<()> {
        if self.places(file).last() == Some(&place) {
            return Ok(());
        }
        self.append(ADD, file, &place)?;
        self.remember(file, place);
        Ok(())
    }

    /// A file is no longer at a place.
    pub(super) fn remove(&mut self, file: FileId, place: &Place) -> io::Result<()> {
        if !self.places(file).contains(place) {
            return Ok(());
        }
        self.append(REMOVE, file, place)?;
        self.drop_place(file, place);
        Ok(())
    }

    fn remember(&mut self, file: FileId, place: Place) {
        if !self.files.contains_key(&file) {
            self.make_room();
            self.order.push_back(file);
        }
        let places = self.files.entry(file).or_default();
        let known = places.iter().position(|known| *known == place);
        let gone = known.or((places.len() == MAX_PLACES).then_some(0)).map(|at| places.remove(at));
        *self.within.entry(place.directory).or_default() += 1;
        places.push(place);
        if let Some(gone) = gone {
            self.count_out(gone.directory);
        }
    }

    fn make_room(&mut self) {
        // Each entry has at most one turn: if all are directories that are needed, the limit gives way to them.
        for _ in 0..self.order.len() {
            if self.files.len() < self.max_files {
                return;
            }
            let Some(oldest) = self.order.pop_front() else { return };
            if self.within.contains_key(&oldest) {
                self.order.push_back(oldest);
            } else {
                self.forget(oldest);
            }
        }
    }

    fn forget(&mut self, file: FileId) {
        for place in self.files.remove(&file).unwrap_or_default() {
            self.count_out(place.directory);
        }
    }

    fn count_out(&mut self, directory: FileId) {
        if let Some(count) = self.within.get_mut(&directory) {
            *count -= 1;
            if *count == 0 {
                self.within.remove(&directory);
            }
        }
    }

    fn drop_place(&mut self, file: FileId, place: &Place) {
        let Some(places) = self.files.get_mut(&file) else { return };
        let Some(at) = places.iter().position(|known| known == place) else { return };
        places.remove(at);
        if places.is_empty() {
            self.files.remove(&file);
            // Its turn in the order is skipped when it comes; a new entry of the file has one of its own.
            if self.order.len() > 2 * self.files.len() + 16 {
                let files = &self.files;
                self.order.retain(|file| files.contains_key(file));
            }
        }
        self.count_out(place.directory);
    }

    fn append(&mut self, what: u8, file: FileId, place: &Place) -> io::Result<()> {
        if self.is_torn || self.records > 2 * self.files.len() + MAX_OBSOLETE {
            self.rewrite()?;
        }
        let mut record = Vec::new();
        write_record(&mut record, what, file, place);
        // A full disk, for one. The next record waits for a journal that is whole again.
        self.is_torn = true;
        self.journal.write_all(&record)?;
        self.is_torn = false;
        self.records += 1;
        Ok(())
    }

    /// Writes the index anew beside the journal and puts it in its place.
    fn rewrite(&mut self) -> io::Result<()> {
        let draft = self.path.with_extension("new");
        let mut octets = Vec::new();
        let mut records = 0;
        let mut seen = std::collections::HashSet::new();
        for file in self.order.iter().filter(|file| seen.insert(**file)) {
            for place in self.files.get(file).into_iter().flatten() {
                write_record(&mut octets, ADD, *file, place);
                records += 1;
            }
        }
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&draft)?;
        file.write_all(&octets)?;
        file.sync_all()?;
        fs::rename(&draft, &self.path)?;
        (self.journal, self.records) = (open_journal(&self.path)?, records);
        self.is_torn = false;
        Ok(())
    }
}

fn open_journal(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).append(true).create(true).mode(0o600).open(path)
}

fn write_record(out: &mut Vec<u8>, what: u8, file: FileId, place: &Place) {
    let (file, directory) = (file.as_slice(), place.directory.as_slice());
    let len = 3 + file.len() + directory.len() + place.name.len();
    let Ok(len) = u16::try_from(len) else { return };
    out.extend_from_slice(&len.to_be_bytes());
    out.extend_from_slice(&[what, file.len() as u8]);
    out.extend_from_slice(file);
    out.push(directory.len() as u8);
    out.extend_from_slice(directory);
    out.extend_from_slice(&place.name);
}

/// The next record, or `None` at the end or where the journal is damaged.
fn read_record(rest: &mut &[u8]) -> Option<(bool, FileId, Place)> {
    let (len, behind) = rest.split_first_chunk::<2>()?;
    let (mut record, behind) = behind.split_at_checked(u16::from_be_bytes(*len).into())?;
    let mut take = |len: usize| {
        let (taken, others) = record.split_at_checked(len)?;
        record = others;
        Some(taken)
    };
    let add = match take(1)? {
        [ADD] => true,
        [REMOVE] => false,
        _ => return None,
    };
    let mut id = || {
        let len = *take(1)?.first()?;
        FileId::new(take(len.into())?)
    };
    let (file, directory) = (id()?, id()?);
    *rest = behind;
    Some((add, file, Place { directory, name: Bytes::copy_from_slice(record) }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn id(number: u64) -> FileId {
        FileId::new(&number.to_be_bytes()).unwrap()
    }

    fn place(directory: u64, name: &'static str) -> Place {
        Place { directory: id(directory), name: name.into() }
    }

    #[test]
    fn places_survive_and_a_torn_record_harms_nothing_before_it() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("index");
        let mut index = Index::open(&path).unwrap();
        index.add(id(2), place(1, "a")).unwrap();
        index.add(id(2), place(1, "b")).unwrap();
        index.add(id(3), place(1, "c")).unwrap();
        index.remove(id(3), &place(1, "c")).unwrap();
        index.add(id(4), place(1, "d")).unwrap();
        drop(index);
        let mut octets = fs::read(&path).unwrap();
        octets.truncate(octets.len() - 1);
        fs::write(&path, &octets).unwrap();
        let mut index = Index::open(&path).unwrap();
        assert_eq!(index.places(id(2)), [place(1, "a"), place(1, "b")]);
        assert_eq!(index.places(id(3)), []);
        assert_eq!(index.places(id(4)), [], "torn");
        index.add(id(4), place(1, "d")).unwrap();
        assert_eq!(Index::open(&path).unwrap().places(id(4)), [place(1, "d")]);
    }

    /// Octets in the middle that are not what was written: a length that leads behind the end, an unknown kind of record, an
    /// identifier longer than its record.
    #[test]
    fn what_stands_before_the_damage_counts() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("index");
        let mut index = Index::open(&path).unwrap();
        for (number, name) in [(2, "a"), (3, "b"), (4, "c")] {
            index.add(id(number), place(1, name)).unwrap();
        }
        drop(index);
        let whole = fs::read(&path).unwrap();
        let second = 2 + usize::from(u16::from_be_bytes([whole[0], whole[1]]));
        for at in [second, second + 2, second + 3] {
            let mut octets = whole.clone();
            octets[at] = 0xEE;
            fs::write(&path, &octets).unwrap();
            let mut index = Index::open(&path).unwrap();
            assert_eq!(index.places(id(2)), [place(1, "a")], "octet {at}");
            assert_eq!((index.places(id(3)), index.places(id(4))), (&[][..], &[][..]), "octet {at}");
            index.add(id(5), place(1, "e")).unwrap();
            let index = Index::open(&path).unwrap();
            assert_eq!(
                (index.places(id(2)).len(), index.places(id(5)).len()),
                (1, 1),
                "octet {at}: the journal is whole again"
            );
        }
    }

    #[test]
    fn the_limits_hold_at_the_limit_and_one_past_it() {
        let scratch = tempfile::tempdir().unwrap();
        let mut index = Index::with_limit(&scratch.path().join("index"), 3).unwrap();
        for number in 1..=3 {
            index.add(id(number), place(9, "x")).unwrap();
        }
        assert_eq!(index.places(id(1)).len(), 1);
        index.add(id(4), place(9, "x")).unwrap();
        assert_eq!((index.places(id(1)).len(), index.places(id(4)).len()), (0, 1));
        let names: Vec<_> = ('a'..='i').map(|c| Place { directory: id(9), name: c.to_string().into() }).collect();
        for place in &names[..MAX_PLACES] {
            index.add(id(5), place.clone()).unwrap();
        }
        assert_eq!(index.places(id(5)), &names[..MAX_PLACES]);
        index.add(id(5), names[MAX_PLACES].clone()).unwrap();
        assert_eq!(index.places(id(5)), &names[1..]);
    }

    #[test]
    fn a_directory_stays_while_something_in_it_is_remembered() {
        let scratch = tempfile::tempdir().unwrap();
        let mut index = Index::with_limit(&scratch.path().join("index"), 3).unwrap();
        index.add(id(1), place(9, "directory")).unwrap();
        for number in 2..20 {
            index.add(id(number), place(1, "x")).unwrap();
            assert!(index.files.len() <= 3);
        }
        assert_eq!(index.places(id(1)).len(), 1);
        assert_eq!(index.within.get(&id(1)), Some(&2));
    }

    #[test]
    fn after_a_record_that_could_not_be_written_the_journal_is_written_anew() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("index");
        let mut index = Index::open(&path).unwrap();
        index.add(id(2), place(1, "a")).unwrap();
        // Half a record, as a full disk leaves it.
        index.journal.write_all(&[0, 200, ADD]).unwrap();
        let journal = OpenOptions::new().write(true).open("/dev/full").unwrap();
        let whole = std::mem::replace(&mut index.journal, journal);
        assert!(index.add(id(3), place(1, "b")).is_err());
        assert_eq!(index.places(id(3)), [], "what cannot be kept is not told");
        index.journal = whole;
        index.add(id(4), place(1, "c")).unwrap();
        drop(index);
        let index = Index::open(&path).unwrap();
        assert_eq!((index.places(id(2)), index.places(id(4))), (&[place(1, "a")][..], &[place(1, "c")][..]));
    }

    #[test]
    fn a_journal_full_of_obsolete_records_is_written_anew() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("index");
        let mut index = Index::open(&path).unwrap();
        index.records = MAX_OBSOLETE;
        index.add(id(2), place(1, "a")).unwrap();
        index.add(id(2), place(1, "b")).unwrap();
        index.add(id(2), place(1, "c")).unwrap();
        index.add(id(2), place(1, "d")).unwrap();
        assert!(index.records < 10);
        drop(index);
        assert_eq!(Index::open(&path).unwrap().places(id(2)).len(), 4);
    }

    proptest! {
        #[test]
        fn arbitrary_journals_are_survived(octets in prop::collection::vec(any::<u8>(), 0..300)) {
            let mut rest = &octets[..];
            while read_record(&mut rest).is_some() {}
        }

        #[test]
        fn every_record_is_read_back(
            file in prop::collection::vec(any::<u8>(), 0..=34),
            directory in prop::collection::vec(any::<u8>(), 0..=34),
            name in prop::collection::vec(any::<u8>(), 0..=255),
        ) {
            let (file, directory) = (FileId::new(&file).unwrap(), FileId::new(&directory).unwrap());
            let place = Place { directory, name: name.into() };
            let mut octets = Vec::new();
            write_record(&mut octets, ADD, file, &place);
            let mut rest = &octets[..];
            prop_assert_eq!(read_record(&mut rest), Some((true, file, place)));
            prop_assert!(rest.is_empty());
        }
    }
}
