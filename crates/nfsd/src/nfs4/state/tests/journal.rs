//! The journal on a disk that is cut off, changed or full.

use super::*;
use proptest::prelude::*;
use std::sync::{Arc, Mutex};

/// A disk in memory that can fail, and that shows what was set aside.
#[derive(Clone, Default)]
pub(crate) struct Platter(Arc<Mutex<Inner>>);

#[derive(Clone, Default)]
struct Inner {
    octets: Vec<u8>,
    aside: Option<Vec<u8>>,
    /// The next writes fail after this many bytes.
    failing: Option<usize>,
    writes: usize,
}

impl Platter {
    fn with<T>(&self, f: impl FnOnce(&mut Inner) -> T) -> T {
        f(&mut self.0.lock().unwrap())
    }

    fn of(octets: &[u8]) -> Self {
        let platter = Self::default();
        platter.with(|inner| inner.octets = octets.to_vec());
        platter
    }

    pub(crate) fn octets(&self) -> Vec<u8> {
        self.with(|inner| inner.octets.clone())
    }

    /// Writes fail after `partial` bytes, until this is called with `None`.
    pub(crate) fn fail(&self, partial: Option<usize>) {
        self.with(|inner| inner.failing = partial);
    }

    /// How many writes have succeeded.
    pub(crate) fn writes(&self) -> usize {
        self.with(|inner| inner.writes)
    }

    /// A copy of its present contents, on a disk that works.
    pub(crate) fn crashed(&self) -> Self {
        Self::of(&self.octets())
    }

    fn damage(&self, at: usize, with: u8) {
        self.with(|inner| inner.octets[at] ^= with);
    }
}

impl Journal {
    /// From now on the disk refuses to write.
    pub(in crate::nfs4::state) fn refuse(&mut self) {
        let platter = Platter::default();
        platter.fail(Some(0));
        self.store = Box::new(platter);
    }
}

impl Store for Platter {
    fn read(&mut self) -> io::Result<Vec<u8>> {
        Ok(self.octets())
    }

    fn append(&mut self, octets: &[u8]) -> io::Result<()> {
        self.with(|inner| {
            if let Some(partial) = inner.failing {
                inner.octets.extend_from_slice(&octets[..partial.min(octets.len())]);
                return Err(io::ErrorKind::StorageFull.into());
            }
            inner.octets.extend_from_slice(octets);
            inner.writes += 1;
            Ok(())
        })
    }

    fn replace(&mut self, octets: &[u8]) -> io::Result<()> {
        self.with(|inner| {
            if inner.failing.is_some() {
                return Err(io::ErrorKind::StorageFull.into());
            }
            inner.octets = octets.to_vec();
            inner.writes += 1;
            Ok(())
        })
    }

    fn set_aside(&mut self) -> io::Result<()> {
        self.with(|inner| inner.aside = Some(std::mem::take(&mut inner.octets)));
        Ok(())
    }
}

const LEASE: Duration = Duration::from_secs(90);
const START: u64 = 1_000;

fn open(platter: &Platter) -> (Journal, u32, Past) {
    Journal::open(Box::new(platter.clone()), START, LEASE, 8).unwrap()
}

fn owner(number: u8) -> Bytes {
    Bytes::copy_from_slice(&[b'a' + number; 5])
}

fn known(user: u64, revoked: bool) -> Known {
    Known { principal: Principal::unix(user), revoked }
}

fn records() -> Vec<Record> {
    vec![
        Record::Owner(owner(0), known(1, false)),
        Record::Owner(owner(1), known(2, false)),
        Record::Owner(owner(0), known(1, true)),
        Record::Gone(owner(1)),
        Record::Owner(owner(2), known(u64::MAX, false)),
        Record::Owner(Bytes::new(), known(0, false)),
    ]
}

/// Wherever a crash cuts the journal, records that were acknowledged before the cut are there, and the epoch is new.
#[test]
fn what_was_acknowledged_survives_a_cut_at_every_octet() {
    let platter = Platter::default();
    let (mut journal, epoch, _) = open(&platter);
    let mut expected = vec![(platter.octets().len(), HashMap::new())];
    for record in records() {
        journal.write(&[record]).unwrap();
        expected.push((platter.octets().len(), journal.owners.clone()));
    }
    let whole = platter.octets();
    let mut ends = [0; 2];
    for cut in 0..=whole.len() {
        let (_, next, past) = open(&Platter::of(&whole[..cut]));
        let (len, owners) = expected.iter().rfind(|(len, _)| *len <= cut).cloned().unwrap_or_default();
        assert_eq!(past.owners, owners, "cut at {cut}");
        assert_eq!(past.end, if len == cut { End::Whole } else { End::Torn }, "cut at {cut}");
        ends[usize::from(len == cut)] += 1;
        if len > 0 {
            assert_eq!((next, past.lease), (epoch + 1, LEASE), "cut at {cut}");
        } else {
            assert_eq!(u64::from(next), START, "no boot is known");
        }
        // Some file systems leave zeroes: they make room before they have the bytes.
        let mut unwritten = whole[..cut].to_vec();
        unwritten.resize(cut + 100, 0);
        if len == cut {
            let past = open(&Platter::of(&unwritten)).2;
            assert_eq!((past.owners, past.end), (owners, End::Torn), "zeroes from {cut}");
        }
    }
    assert_eq!(ends, [whole.len() + 1 - 8, 8], "the boot, six records, and nothing");
}

/// proves: NFS4-8881-8.4.3-c
#[test]
fn nobody_is_known_from_a_journal_that_is_damaged_at_any_octet() {
    let platter = Platter::default();
    let (mut journal, epoch, _) = open(&platter);
    journal.write(&records()).unwrap();
    let whole = platter.octets();
    let boot = 2 + 2 + 9 + 8;
    for at in 0..whole.len() {
        for with in [0x01, 0x80, 0xFF] {
            let platter = Platter::of(&whole);
            platter.damage(at, with);
            let damaged = platter.octets();
            let (mut journal, next, past) = open(&platter);
            assert_eq!((past.end, past.owners.len()), (End::Damaged, 0), "byte {at}");
            assert_eq!(platter.with(|inner| inner.aside.clone()), Some(damaged), "kept for people");
            assert!(at < boot || next == epoch + 1, "byte {at}");
            // The disk works again.
            journal.write(&[Record::Owner(owner(7), known(1, false))]).unwrap();
            assert_eq!(open(&platter).2.owners.len(), 1);
        }
    }
}

/// Each write fails once, after none, some or all of its bytes; then the server goes on or crashes.
#[test]
fn a_write_that_fails_changes_nothing_and_the_next_one_mends_the_journal() {
    for at in 0..records().len() {
        for partial in [0, 1, 5, 20, 1_000] {
            let platter = Platter::default();
            let (mut journal, ..) = open(&platter);
            for record in &records()[..at] {
                journal.write(std::slice::from_ref(record)).unwrap();
            }
            let before = journal.owners.clone();
            platter.fail(Some(partial));
            for _ in 0..2 {
                assert!(journal.write(&records()[at..=at]).is_err());
                assert_eq!(journal.owners, before);
            }
            // After a crash in between, all owners are there that the failed record is not about.
            let crashed = open(&platter.crashed()).2;
            let about = match &records()[at] {
                Record::Owner(name, _) | Record::Gone(name) => name.clone(),
                Record::Boot { .. } => Bytes::new(),
            };
            let others = |owners: &HashMap<Bytes, Known>| -> HashMap<Bytes, Known> {
                owners.iter().filter(|(name, _)| **name != about).map(|(name, known)| (name.clone(), *known)).collect()
            };
            assert_eq!(others(&crashed.owners), others(&before), "write {at}, {partial}");
            assert_ne!(crashed.end, End::Damaged, "write {at}, {partial}");
            platter.fail(None);
            journal.write(&records()[at..=at]).unwrap();
            let (now, read) = (journal.owners.clone(), open(&platter).2);
            assert_eq!((read.owners, read.end), (now, End::Whole), "write {at}, {partial}");
        }
    }
}

#[test]
fn a_server_does_not_start_without_its_epoch_on_the_disk() {
    let platter = Platter::default();
    platter.fail(Some(0));
    assert!(Journal::open(Box::new(platter.clone()), START, LEASE, 8).is_err());
    platter.fail(None);
    let epochs: Vec<_> = (0..3).map(|_| open(&platter).1).collect();
    assert_eq!(epochs, [1_000, 1_001, 1_002]);
    let later = Journal::open(Box::new(platter), 5_000, LEASE, 8).unwrap().1;
    assert_eq!(later, 5_000, "not before the time of day, should the journal be lost");
}

#[test]
fn owners_are_bounded_at_the_limit_and_one_past_it() {
    let platter = Platter::default();
    let (mut journal, ..) = open(&platter);
    let add = |number: u8| Record::Owner(owner(number), known(1, false));
    for number in 0..8 {
        journal.write(&[add(number)]).unwrap();
    }
    assert_eq!(journal.write(&[add(8)]).unwrap_err().kind(), io::ErrorKind::StorageFull);
    journal.write(&[add(3)]).unwrap();
    journal.write(&[Record::Gone(owner(3))]).unwrap();
    journal.write(&[add(8)]).unwrap();
    assert_eq!(open(&platter).2.owners.len(), 8);
}

#[test]
fn the_journal_stays_as_large_as_what_it_says() {
    let platter = Platter::default();
    let (mut journal, ..) = open(&platter);
    let mut largest = 0;
    for round in 0..5_000u64 {
        journal.write(&[Record::Owner(owner(round as u8 % 8), known(round, false))]).unwrap();
        largest = largest.max(platter.octets().len());
    }
    let record = 2 + 2 + 13 + 5 + 8;
    assert!(largest <= (2 * 8 + MAX_OBSOLETE_RECORDS + 2) * record, "{largest}");
    for round in 0..10_000 {
        journal.write_later(Record::Owner(owner(round as u8 % 8), known(round, true)));
    }
    assert!(journal.waiting.len() <= MAX_OBSOLETE_RECORDS && journal.has_waiting());
    journal.write(&[]).unwrap();
    assert!(!journal.has_waiting());
    assert_eq!(open(&platter).2.owners, journal.owners);
}

#[test]
fn a_journal_is_a_file_that_nobody_else_reads() {
    use std::os::unix::fs::PermissionsExt;
    let scratch = tempfile::tempdir().unwrap();
    let disk = || Box::new(Disk::take(scratch.path(), None).unwrap().unwrap());
    let (mut journal, epoch, past) = Journal::open(disk(), START, LEASE, 8).unwrap();
    assert_eq!((past.owners.len(), past.end), (0, End::Whole));
    journal.write(&records()).unwrap();
    let path = scratch.path().join(NAME);
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(Disk::take(scratch.path(), None).unwrap().is_none(), "the server runs");
    let owners = journal.owners.clone();
    drop(journal);
    let (_, next, past) = Journal::open(disk(), START, LEASE, 8).unwrap();
    assert_eq!((next, past.owners), (epoch + 1, owners));
    let mut octets = fs::read(&path).unwrap();
    octets[3] ^= 1;
    fs::write(&path, &octets).unwrap();
    assert_eq!(Journal::open(disk(), START, LEASE, 8).unwrap().2.end, End::Damaged);
    assert_eq!(fs::read(path.with_extension("damaged")).unwrap(), octets);
    assert!(Disk::take(Path::new("/proc/nowhere"), None).is_err());
}

proptest! {
    /// The file may contain any bytes.
    #[test]
    fn octets_of_chance_are_read_to_an_end(octets in prop::collection::vec(any::<u8>(), 0..300)) {
        let (records, end) = parse(&octets);
        prop_assert!(records.is_empty() || end != End::Damaged || !octets.is_empty());
        let platter = Platter::of(&octets);
        let (_, epoch, past) = open(&platter);
        prop_assert!(u64::from(epoch) >= START && (past.end != End::Damaged || past.owners.is_empty()));
        prop_assert_eq!(open(&platter).2.end, End::Whole);
    }
}
