//! The index says where files are, if the file system (or the server's user) cannot open files by handle.
//!
//! A file is known by inode number and birth time; the index remembers the directories and names where it was seen. It
//! owns a journal in the state directory. Before the server returns a handle that depends on a new place, it appends
//! the place to the journal, so that handles survive the server's end; opening the index reads the journal and writes
//! it anew without obsolete entries. Users of the index always compare the file that they find with the id. Files and
//! bytes of memory are limited: the oldest files go first, and a directory in which the index remembers something goes
//! only if all that may go before it makes too little room.
//!
//! ```text
//! a record: length of the rest (2 bytes), 1 to add or 2 to remove, then length and bytes of the file's id, of the
//! directory's id, and the name up to the end
//! ```

use crate::FileId;
use bytes::Bytes;
use std::{
    collections::{HashMap, VecDeque},
    fs::{self, File, OpenOptions},
    io::{self, BufReader, BufWriter, Read, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

/// The most files that the index remembers.
pub(super) const MAX_FILES: usize = 1 << 20;
/// The most memory for them, in bytes: enough for about that many files with one name of usual length. Clients choose
/// how long names are and how many a file has.
pub(super) const MAX_BYTES: usize = 384 << 20;
/// The bytes that a file takes in the tables: entries with their free neighbours, and its turn in the order.
const FILE_BYTES: usize = 240;
/// The bytes that a name takes beside its own: the place, and what the allocator adds to it and to the name.
const PLACE_BYTES: usize = size_of::<Place>() + 48;
/// The most names of one file that the index remembers.
const MAX_PLACES: usize = 8;
/// The index writes the journal anew when it has twice as many records as needed, and this many more.
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
    /// How many places the index remembers in each directory.
    within: HashMap<FileId, usize>,
    order: VecDeque<FileId>,
    limits: Limits,
    /// The memory in use, as [`FILE_BYTES`] and [`PLACE_BYTES`] count it.
    bytes: usize,
    journal: File,
    path: PathBuf,
    records: usize,
    /// The last record may be incomplete: records behind it could not be read.
    is_torn: bool,
}

/// How much the index may remember.
#[derive(Clone, Copy)]
struct Limits {
    files: usize,
    bytes: usize,
}

/// How much an index remembers, and the most memory that it takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexUse {
    /// Files that the index remembers.
    pub files: usize,
    /// Memory in use, in bytes.
    pub bytes: usize,
    /// The most memory that it takes, in bytes.
    pub max_bytes: usize,
}

fn place_bytes(place: &Place) -> usize {
    PLACE_BYTES + place.name.len()
}

impl Index {
    /// Reads the journals at `sources`, the latest last, each up to the first damage, and writes their contents to the
    /// journal at `path`.
    pub(super) fn open(path: &Path, sources: &[PathBuf]) -> io::Result<Self> {
        Self::with_limits(path, sources, Limits { files: MAX_FILES, bytes: MAX_BYTES })
    }

    fn with_limits(path: &Path, sources: &[PathBuf], limits: Limits) -> io::Result<Self> {
        let mut index = Self {
            files: HashMap::new(),
            within: HashMap::new(),
            order: VecDeque::new(),
            limits,
            bytes: 0,
            journal: open_journal(path)?,
            path: path.to_owned(),
            records: 0,
            is_torn: false,
        };
        for source in sources {
            index.read(source)?;
        }
        index.rewrite()?;
        Ok(index)
    }

    fn read(&mut self, source: &Path) -> io::Result<()> {
        let mut journal = BufReader::new(File::open(source)?);
        while let Some((add, file, place)) = read_record(&mut journal)? {
            if add {
                self.remember(file, place);
            } else {
                self.drop_place(file, &place);
            }
        }
        Ok(())
    }

    /// How much the index remembers.
    pub(super) fn usage(&self) -> IndexUse {
        IndexUse { files: self.files.len(), bytes: self.bytes, max_bytes: self.limits.bytes }
    }

    /// The places where a file was seen, the latest last.
    pub(super) fn places(&self, file: FileId) -> &[Place] {
        self.files.get(&file).map_or(&[], |places| places)
    }

    /// A file was seen at this place.
    pub(super) fn add(&mut self, file: FileId, place: Place) -> io::Result<()> {
        if self.places(file).last() == Some(&place) {
            return Ok(());
        }
        self.append(ADD, file, &place)?;
        self.remember(file, place);
        Ok(())
    }

    /// A file is no longer at this place.
    pub(super) fn remove(&mut self, file: FileId, place: &Place) -> io::Result<()> {
        if !self.places(file).contains(place) {
            return Ok(());
        }
        self.append(REMOVE, file, place)?;
        self.drop_place(file, place);
        Ok(())
    }

    fn remember(&mut self, file: FileId, place: Place) {
        // Before room is made: from now on the directory is needed.
        *self.within.entry(place.directory).or_default() += 1;
        let gone = self.files.get_mut(&file).and_then(|places| {
            let known = places.iter().position(|known| *known == place);
            known.or((places.len() == MAX_PLACES).then_some(0)).map(|at| places.remove(at))
        });
        if let Some(gone) = gone {
            self.count_out(&gone);
        }
        self.make_room(file, place_bytes(&place));
        if !self.files.contains_key(&file) {
            self.order.push_back(file);
            self.bytes += FILE_BYTES;
        }
        self.bytes += place_bytes(&place);
        let places = self.files.entry(file).or_default();
        places.reserve_exact(1);
        places.push(place);
    }

    fn has_room(&self, file: FileId, bytes: usize) -> bool {
        let is_known = self.files.contains_key(&file);
        let bytes = bytes + if is_known { 0 } else { FILE_BYTES };
        (is_known || self.files.len() < self.limits.files) && self.bytes + bytes <= self.limits.bytes
    }

    fn make_room(&mut self, file: FileId, bytes: usize) {
        // Each entry has one turn. A needed directory stays in its first turn, and goes in the next: so the limit
        // holds.
        let turns = self.order.len();
        for turn in 0..2 * turns {
            if self.has_room(file, bytes) {
                return;
            }
            let Some(oldest) = self.order.pop_front() else { return };
            if turn < turns && self.within.contains_key(&oldest) {
                self.order.push_back(oldest);
            } else {
                self.forget(oldest);
            }
        }
    }

    fn forget(&mut self, file: FileId) {
        let Some(places) = self.files.remove(&file) else { return };
        self.bytes -= FILE_BYTES;
        for place in places {
            self.count_out(&place);
        }
    }

    /// The index no longer remembers this place.
    fn count_out(&mut self, place: &Place) {
        self.bytes -= place_bytes(place);
        if let Some(count) = self.within.get_mut(&place.directory) {
            *count -= 1;
            if *count == 0 {
                self.within.remove(&place.directory);
            }
        }
    }

    fn drop_place(&mut self, file: FileId, place: &Place) {
        let Some(places) = self.files.get_mut(&file) else { return };
        let Some(at) = places.iter().position(|known| known == place) else { return };
        places.remove(at);
        if places.is_empty() {
            self.files.remove(&file);
            self.bytes -= FILE_BYTES;
            // The old turn is skipped when it comes; a new entry of the file has its own turn.
            if self.order.len() > 2 * self.files.len() + 16 {
                let files = &self.files;
                self.order.retain(|file| files.contains_key(file));
            }
        }
        self.count_out(place);
    }

    fn append(&mut self, what: u8, file: FileId, place: &Place) -> io::Result<()> {
        if self.is_torn || self.records > 2 * self.files.len() + MAX_OBSOLETE {
            self.rewrite()?;
        }
        let mut record = Vec::new();
        write_record(&mut record, what, file, place);
        // For example, the disk is full. Before the next record the journal must be written anew.
        self.is_torn = true;
        self.journal.write_all(&record)?;
        self.is_torn = false;
        self.records += 1;
        Ok(())
    }

    /// Writes the index anew beside the journal and puts it in its place.
    fn rewrite(&mut self) -> io::Result<()> {
        let draft = self.path.with_extension("new");
        let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&draft)?;
        let mut writer = BufWriter::new(file);
        let (mut record, mut records) = (Vec::new(), 0);
        let mut seen = std::collections::HashSet::new();
        for file in self.order.iter().filter(|file| seen.insert(**file)) {
            for place in self.files.get(file).into_iter().flatten() {
                record.clear();
                write_record(&mut record, ADD, *file, place);
                writer.write_all(&record)?;
                records += 1;
            }
        }
        writer.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()?;
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
fn read_record(journal: &mut impl Read) -> io::Result<Option<(bool, FileId, Place)>> {
    let mut len = [0; 2];
    let mut octets = Vec::new();
    let whole = journal.read_exact(&mut len).and_then(|()| {
        octets.resize(u16::from_be_bytes(len).into(), 0);
        journal.read_exact(&mut octets)
    });
    match whole {
        Ok(()) => Ok(parse_record(&octets)),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
        Err(error) => Err(error),
    }
}

/// A record behind its length.
fn parse_record(mut record: &[u8]) -> Option<(bool, FileId, Place)> {
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

    /// Reads the journal at `path`, if there is one, and goes on with it.
    fn open(path: &Path) -> io::Result<Index> {
        with_limits(path, MAX_FILES, MAX_BYTES)
    }

    fn with_limits(path: &Path, files: usize, bytes: usize) -> io::Result<Index> {
        let sources: Vec<_> = path.exists().then(|| path.to_owned()).into_iter().collect();
        Index::with_limits(path, &sources, Limits { files, bytes })
    }

    #[test]
    fn places_survive_and_a_torn_record_harms_nothing_before_it() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("index");
        let mut index = open(&path).unwrap();
        index.add(id(2), place(1, "a")).unwrap();
        index.add(id(2), place(1, "b")).unwrap();
        index.add(id(3), place(1, "c")).unwrap();
        index.remove(id(3), &place(1, "c")).unwrap();
        index.add(id(4), place(1, "d")).unwrap();
        drop(index);
        let mut octets = fs::read(&path).unwrap();
        octets.truncate(octets.len() - 1);
        fs::write(&path, &octets).unwrap();
        let mut index = open(&path).unwrap();
        assert_eq!(index.places(id(2)), [place(1, "a"), place(1, "b")]);
        assert_eq!(index.places(id(3)), []);
        assert_eq!(index.places(id(4)), [], "torn");
        index.add(id(4), place(1, "d")).unwrap();
        assert_eq!(open(&path).unwrap().places(id(4)), [place(1, "d")]);
    }

    /// Damage in the middle: a length beyond the end, an unknown kind of record, an identifier longer than its record.
    #[test]
    fn what_stands_before_the_damage_counts() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("index");
        let mut index = open(&path).unwrap();
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
            let mut index = open(&path).unwrap();
            assert_eq!(index.places(id(2)), [place(1, "a")], "byte {at}");
            assert_eq!((index.places(id(3)), index.places(id(4))), (&[][..], &[][..]), "byte {at}");
            index.add(id(5), place(1, "e")).unwrap();
            let index = open(&path).unwrap();
            assert_eq!(
                (index.places(id(2)).len(), index.places(id(5)).len()),
                (1, 1),
                "byte {at}: the journal is whole again"
            );
        }
    }

    #[test]
    fn the_limits_hold_at_the_limit_and_one_past_it() {
        let scratch = tempfile::tempdir().unwrap();
        let mut index = with_limits(&scratch.path().join("index"), 3, MAX_BYTES).unwrap();
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

    /// Clients choose how long names are and how many names a file has.
    #[test]
    fn the_memory_is_bounded_to_the_byte_and_comes_back() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("index");
        let long = |n: u64| Place { directory: id(9), name: format!("{n:0>200}").into() };
        let each = FILE_BYTES + PLACE_BYTES + 200;
        let mut index = with_limits(&path, MAX_FILES, 3 * each).unwrap();
        for number in 1..=3 {
            index.add(id(number), long(number)).unwrap();
        }
        assert_eq!(index.usage(), IndexUse { files: 3, bytes: 3 * each, max_bytes: 3 * each }, "at the limit");
        index.add(id(4), long(4)).unwrap();
        assert_eq!((index.usage().files, index.places(id(1)).len()), (3, 0), "one past it: the oldest goes");
        // A further name of a known file takes room, too.
        index.add(id(4), long(5)).unwrap();
        assert_eq!((index.places(id(2)).len(), index.places(id(4)).len()), (0, 2));
        assert_eq!(index.usage().bytes, 2 * each + PLACE_BYTES + 200);
        index.add(id(4), long(4)).unwrap();
        assert_eq!(index.usage().bytes, 2 * each + PLACE_BYTES + 200, "a name that is known takes no more");
        drop(index);
        let mut index = with_limits(&path, MAX_FILES, 3 * each).unwrap();
        assert_eq!(index.usage().bytes, 2 * each + PLACE_BYTES + 200, "after a restart");
        for (file, name) in [(3, 3), (4, 5), (4, 4)] {
            index.remove(id(file), &long(name)).unwrap();
        }
        assert_eq!((index.usage().bytes, index.usage().files, index.within.len()), (0, 0, 0));
    }

    /// A chain of directories, each inside another: the index remembers something in every one of them.
    #[test]
    fn the_limit_holds_where_every_directory_is_needed() {
        let scratch = tempfile::tempdir().unwrap();
        let mut index = with_limits(&scratch.path().join("index"), 3, MAX_BYTES).unwrap();
        for number in 1..20 {
            index.add(id(number), place(number, "loop")).unwrap();
            assert!(index.files.len() <= 3);
        }
        assert_eq!(index.places(id(19)).len(), 1);
    }

    #[test]
    fn a_directory_stays_while_something_in_it_is_remembered() {
        let scratch = tempfile::tempdir().unwrap();
        let mut index = with_limits(&scratch.path().join("index"), 3, MAX_BYTES).unwrap();
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
        let mut index = open(&path).unwrap();
        index.add(id(2), place(1, "a")).unwrap();
        // Half a record, as a full disk can leave it.
        index.journal.write_all(&[0, 200, ADD]).unwrap();
        let journal = OpenOptions::new().write(true).open("/dev/full").unwrap();
        let whole = std::mem::replace(&mut index.journal, journal);
        assert!(index.add(id(3), place(1, "b")).is_err());
        assert_eq!(index.places(id(3)), [], "what cannot be kept is not told");
        index.journal = whole;
        index.add(id(4), place(1, "c")).unwrap();
        drop(index);
        let index = open(&path).unwrap();
        assert_eq!((index.places(id(2)), index.places(id(4))), (&[place(1, "a")][..], &[place(1, "c")][..]));
    }

    #[test]
    fn a_journal_full_of_obsolete_records_is_written_anew() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("index");
        let mut index = open(&path).unwrap();
        index.records = MAX_OBSOLETE;
        index.add(id(2), place(1, "a")).unwrap();
        index.add(id(2), place(1, "b")).unwrap();
        index.add(id(2), place(1, "c")).unwrap();
        index.add(id(2), place(1, "d")).unwrap();
        assert!(index.records < 10);
        drop(index);
        assert_eq!(open(&path).unwrap().places(id(2)).len(), 4);
    }

    proptest! {
        #[test]
        fn arbitrary_journals_are_survived(octets in prop::collection::vec(any::<u8>(), 0..300)) {
            let mut rest = &octets[..];
            while read_record(&mut rest).unwrap().is_some() {}
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
            prop_assert_eq!(read_record(&mut rest).unwrap(), Some((true, file, place)));
            prop_assert!(rest.is_empty());
        }
    }
}
