//! The files whose ids are too long for a handle of version 2, by the digests in their handles.
//!
//! The table is bounded. When it is full, an entry goes that no client has used since the clock's hand last passed it
//! (as in the memory of an operating system): a client that uses its files keeps them, however many other files are
//! looked up once. The handle of an entry that is gone is stale until a client looks its name up again.
//!
//! The table is a file of slots, written in place, and the server does not wait for the disk: it survives the program,
//! but after a crash of the machine the newest handles may be stale. A damaged slot counts as empty.
//!
//! ```text
//! byte 0       1: the slot is in use
//! bytes 1-4    the export
//! bytes 5-12   the file system
//! byte 13      n, the length of the id
//! bytes 14-47  the id, then zeroes
//! bytes 48-63  the digest, under the server's secret
//! ```

use super::handles::Seal2;
use crate::{FileId, MAX_FILE_ID_BYTES, handle::Target};
use std::{
    collections::HashMap,
    fs::{File, OpenOptions},
    io,
    os::unix::fs::{FileExt, OpenOptionsExt},
    path::Path,
    sync::{Mutex, MutexGuard, PoisonError},
};

/// The most files in the table: 8 MiB on the disk, and about twice that in memory.
const MAX_FILES: usize = 1 << 17;
const SLOT_BYTES: usize = 64;
const ID_AT: usize = 14;
const DIGEST_AT: usize = ID_AT + MAX_FILE_ID_BYTES;
const USED: u8 = 1;

/// A file's key in the table.
pub(super) type Digest = [u8; 16];

const _: () = assert!(DIGEST_AT + size_of::<Digest>() == SLOT_BYTES);

/// The table.
pub(super) struct Table {
    state: Mutex<State>,
    /// Held while an entry is added, also during the write to the disk. Look-ups do not take it.
    file: Mutex<Option<File>>,
    most: usize,
}

#[derive(Default)]
struct State {
    slots: Vec<Option<Slot>>,
    places: HashMap<Digest, usize>,
    /// The slot to look at next when an entry has to go.
    hand: usize,
}

struct Slot {
    digest: Digest,
    target: Target,
    /// It was used since the hand last passed.
    is_used: bool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Table {
    /// Reads the table, or makes an empty one. Sleeps.
    pub(super) fn open(path: &Path, seal: &Seal2) -> io::Result<Self> {
        Self::with_most(path, seal, MAX_FILES)
    }

    fn with_most(path: &Path, seal: &Seal2, most: usize) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create(true).truncate(false).mode(0o600).open(path)?;
        let octets = usize::try_from(file.metadata()?.len()).unwrap_or(usize::MAX).min(most * SLOT_BYTES);
        let mut whole = vec![0; octets - octets % SLOT_BYTES];
        file.read_exact_at(&mut whole, 0)?;
        file.set_len(whole.len() as u64)?;
        let mut state = State::default();
        for slot in whole.chunks_exact(SLOT_BYTES) {
            let read = parse(slot).filter(|(digest, target)| seal.digest(target) == *digest);
            if let Some((digest, _)) = read {
                // NFS2-FH-b
                state.places.insert(digest, state.slots.len());
            }
            state.slots.push(read.map(|(digest, target)| Slot { digest, target, is_used: false }));
        }
        Ok(Self { state: Mutex::new(state), file: Mutex::new(Some(file)), most })
    }

    #[cfg(test)]
    pub(super) fn in_memory(most: usize) -> Self {
        Self { state: Mutex::default(), file: Mutex::new(None), most }
    }

    /// The file of a digest, if the table has it.
    pub(super) fn find(&self, digest: &Digest) -> Option<Target> {
        let state = &mut *lock(&self.state);
        let slot = state.slots.get_mut(*state.places.get(digest)?)?.as_mut()?;
        slot.is_used = true;
        Some(slot.target)
    }

    /// Adds a file, if the table does not have it. Sleeps.
    ///
    /// # Errors
    /// If the table cannot be written: then it does not have the file.
    pub(super) fn add(&self, digest: Digest, target: Target) -> io::Result<()> {
        let file = lock(&self.file);
        let place = {
            let mut state = lock(&self.state);
            if state.places.contains_key(&digest) {
                return Ok(());
            }
            state.free(self.most)
        };
        if let Some(file) = &*file {
            file.write_all_at(&written(&digest, &target), (place * SLOT_BYTES) as u64)?;
        }
        let mut state = lock(&self.state);
        if let Some(slot) = state.slots.get_mut(place) {
            *slot = Some(Slot { digest, target, is_used: false });
            state.places.insert(digest, place);
        }
        Ok(())
    }
}

impl State {
    /// A free slot; if there is none, an entry has to go.
    // NFS2-FH-c
    fn free(&mut self, most: usize) -> usize {
        if self.slots.len() < most {
            self.slots.push(None);
            return self.slots.len() - 1;
        }
        loop {
            let place = self.hand;
            self.hand = (place + 1) % self.slots.len();
            match &mut self.slots[place] {
                Some(slot) if slot.is_used => slot.is_used = false,
                gone => {
                    if let Some(slot) = gone.take() {
                        self.places.remove(&slot.digest);
                    }
                    return place;
                }
            }
        }
    }
}

fn written(digest: &Digest, target: &Target) -> [u8; SLOT_BYTES] {
    let id = target.file.as_slice();
    let mut octets = [0; SLOT_BYTES];
    octets[0] = USED;
    octets[1..5].copy_from_slice(&target.export.to_be_bytes());
    octets[5..13].copy_from_slice(&target.file_system.to_be_bytes());
    octets[13] = id.len() as u8;
    octets[ID_AT..ID_AT + id.len()].copy_from_slice(id);
    octets[DIGEST_AT..].copy_from_slice(digest);
    octets
}

fn parse(slot: &[u8]) -> Option<(Digest, Target)> {
    let octets: &[u8; SLOT_BYTES] = slot.try_into().ok()?;
    let [USED, e0, e1, e2, e3, file_system @ .., len] = *octets.first_chunk::<ID_AT>()? else { return None };
    let file = FileId::new(octets[ID_AT..DIGEST_AT].get(..len.into())?)?;
    let export = u32::from_be_bytes([e0, e1, e2, e3]);
    Some((*octets.last_chunk()?, Target { export, file_system: u64::from_be_bytes(file_system), file }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(number: u8) -> Target {
        Target { export: 7, file_system: 9, file: FileId::new(&[number; MAX_FILE_ID_BYTES]).unwrap() }
    }

    fn seal() -> Seal2 {
        Seal2::new([3; crate::SECRET_BYTES])
    }

    fn digest(number: u8) -> Digest {
        seal().digest(&target(number))
    }

    fn add(table: &Table, number: u8) {
        table.add(digest(number), target(number)).unwrap();
    }

    fn known(table: &Table, numbers: std::ops::Range<u8>) -> Vec<u8> {
        let state = lock(&table.state);
        numbers.filter(|number| state.places.contains_key(&digest(*number))).collect()
    }

    /// proves: NFS2-FH-b
    #[test]
    fn what_is_in_the_table_survives_the_program_and_damage_harms_nothing_else() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("table");
        let table = Table::with_most(&path, &seal(), 8).unwrap();
        (0..3).for_each(|number| add(&table, number));
        (0..3).for_each(|number| add(&table, number));
        assert_eq!(std::fs::metadata(&path).unwrap().len(), 3 * SLOT_BYTES as u64, "each once");
        drop(table);
        let table = Table::with_most(&path, &seal(), 8).unwrap();
        assert_eq!((table.find(&digest(1)), table.find(&digest(3))), (Some(target(1)), None));
        let mut octets = std::fs::read(&path).unwrap();
        octets[SLOT_BYTES + ID_AT] ^= 1;
        octets.extend([USED; 10]);
        std::fs::write(&path, octets).unwrap();
        let table = Table::with_most(&path, &seal(), 8).unwrap();
        assert_eq!(known(&table, 0..8), [0, 2], "neither what was changed nor what was torn");
        add(&table, 5);
        let again = Table::with_most(&path, &seal(), 8).unwrap();
        assert_eq!(known(&again, 0..8), [0, 2, 5]);
        let other = Table::with_most(&path, &Seal2::new([4; crate::SECRET_BYTES]), 8).unwrap();
        assert!(known(&other, 0..8).is_empty(), "another secret");
    }

    /// proves: NFS2-FH-c
    #[test]
    fn a_full_table_loses_what_nobody_uses() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("table");
        let table = Table::with_most(&path, &seal(), 4).unwrap();
        (0..4).for_each(|number| add(&table, number));
        assert_eq!(known(&table, 0..4), [0, 1, 2, 3], "at the limit");
        add(&table, 4);
        assert_eq!(known(&table, 0..8).len(), 4, "one past it");
        for number in 10..200 {
            table.find(&digest(4)).unwrap();
            add(&table, number);
        }
        assert_eq!(table.find(&digest(4)), Some(target(4)), "it was in use all the time");
        assert_eq!(lock(&table.state).slots.len(), 4);
        assert_eq!(std::fs::metadata(&path).unwrap().len(), 4 * SLOT_BYTES as u64);
        let fewer = Table::with_most(&path, &seal(), 2).unwrap();
        assert_eq!(lock(&fewer.state).slots.len(), 2);
    }

    #[test]
    fn what_cannot_be_written_is_not_there() {
        let table = Table::in_memory(4);
        *lock(&table.file) = Some(File::open("/proc/self/exe").unwrap());
        assert!(table.add(digest(1), target(1)).is_err());
        assert_eq!(table.find(&digest(1)), None);
        *lock(&table.file) = None;
        add(&table, 1);
        assert_eq!(table.find(&digest(1)), Some(target(1)));
    }
}
