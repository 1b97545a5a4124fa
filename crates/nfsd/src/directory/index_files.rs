//! The files of indexes in the state directory: which index belongs to a directory, and which belong to none any more.
//!
//! A directory's index is `index-ID`. The id stands for a directory of a file system, however its path is spelled. Up
//! to 0.1.0 a hash of the path stood before the id, so a directory could have several indexes: the server takes them
//! all over, together. Beside each index is a lock, which the server that uses the index holds. An index that no server
//! has used for [`KEPT`] is removed; so is its lock, by the server that holds it.

use super::{Index, OpenError};
use rustix::{
    fs::{self, FlockOperation},
    io::Errno,
};
use std::{
    fs::{File, OpenOptions},
    io,
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

/// How long an index is kept while no server serves its directory. Each start writes the index anew, and so does its
/// use now and then. To a server that comes back later its clients' handles are stale.
const KEPT: Duration = Duration::from_secs(366 * 24 * 60 * 60);
/// The digits of a hash in a name.
const DIGITS: usize = 16;

/// Opens the index of a directory in the state directory, and the lock that goes with it.
pub(super) fn open(state: &Path, id: u64) -> Result<(Index, File), OpenError> {
    let id = format!("{id:016x}");
    let path = state.join(format!("index-{id}"));
    let error = |source: io::Error| OpenError::Index { path: path.clone(), source };
    let in_use = || OpenError::InUse { path: state.to_owned() };
    let held = lock(&path).map_err(error)?.ok_or_else(in_use)?;
    let all = list(state).map_err(error)?;
    let mut former = Vec::new();
    for found in all.iter().filter(|found| found.is_former_of(&id)) {
        // A server of an earlier version may be using it.
        former.push((found, lock(&found.path).map_err(error)?.ok_or_else(in_use)?));
    }
    // NFS3-FH-b
    let mut sources: Vec<_> = all.iter().filter(|found| found.path == path || found.is_former_of(&id)).collect();
    sources.sort_by_key(|found| found.used);
    let sources: Vec<_> = sources.into_iter().map(|found| found.path.clone()).collect();
    let index = Index::open(&path, &sources).map_err(error)?;
    for (found, held) in former {
        found.remove(&held);
    }
    // By the file system's own clock: the time of the index that was just written.
    let now = std::fs::metadata(&path).and_then(|metadata| metadata.modified()).map_err(error)?;
    for found in all.iter().filter(|found| found.path != path && !found.is_former_of(&id)) {
        found.remove_if_old(now);
    }
    Ok((index, held))
}

/// An index in the state directory.
struct Found {
    path: PathBuf,
    name: String,
    used: SystemTime,
}

impl Found {
    /// Whether it is an index of the directory `id` under its former name.
    fn is_former_of(&self, id: &str) -> bool {
        self.name.len() == DIGITS + 1 + DIGITS && self.name.strip_suffix(id).is_some_and(|rest| rest.ends_with('-'))
    }

    fn remove_if_old(&self, now: SystemTime) {
        if now.duration_since(self.used).is_ok_and(|unused| unused > KEPT) {
            match lock(&self.path) {
                Ok(Some(held)) => {
                    tracing::info!(path = %self.path.display(), "removing an index that no server has used for a year");
                    self.remove(&held);
                }
                Ok(None) => {}
                Err(error) => tracing::warn!(path = %self.path.display(), %error, "an old index cannot be locked"),
            }
        }
    }

    /// Removes it; `_held` is its lock.
    fn remove(&self, _held: &File) {
        for path in [self.path.clone(), self.path.with_extension("new"), self.path.with_extension("lock")] {
            match std::fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    tracing::warn!(path = %path.display(), %error, "an old index cannot be removed");
                }
                _ => {}
            }
        }
    }
}

/// All indexes.
fn list(state: &Path) -> io::Result<Vec<Found>> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(state)? {
        let entry = entry?;
        let name = entry.file_name().into_string().unwrap_or_default();
        let is_hash = |text: &str| text.len() == DIGITS && text.bytes().all(|octet| octet.is_ascii_hexdigit());
        let Some(name) = name.strip_prefix("index-").filter(|name| name.split('-').all(is_hash)) else { continue };
        match entry.metadata().and_then(|metadata| metadata.modified()) {
            Ok(used) => all.push(Found { path: entry.path(), name: name.to_owned(), used }),
            // Another server has just removed it.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(all)
}

/// Takes the lock of an index, or `None` if another server has it.
fn lock(index: &Path) -> io::Result<Option<File>> {
    let path = index.with_extension("lock");
    loop {
        let lock = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&path)?;
        match fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) => return Ok(None),
            other => other?,
        }
        // A server removes a lock only while it holds it: so the lock that we opened may be gone by now.
        match std::fs::metadata(&path) {
            Ok(now) if now.ino() == lock.metadata()?.ino() => return Ok(Some(lock)),
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FileId;
    use bytes::Bytes;

    const ID: u64 = 0xABCD;

    fn place(number: u64, name: &'static str) -> (FileId, super::super::index::Place) {
        let id = |number: u64| FileId::new(&number.to_be_bytes()).unwrap();
        (id(number), super::super::index::Place { directory: id(1), name: Bytes::from_static(name.as_bytes()) })
    }

    /// Writes an index under its former name.
    fn former(state: &Path, hash: u64, number: u64, name: &'static str) -> PathBuf {
        let path = state.join(format!("index-{hash:016x}-{ID:016x}"));
        let (id, place) = place(number, name);
        Index::open(&path, &[]).unwrap().add(id, place).unwrap();
        std::fs::write(path.with_extension("lock"), "").unwrap();
        path
    }

    fn age(path: &Path, of: Duration) {
        let file = OpenOptions::new().write(true).open(path).unwrap();
        file.set_modified(SystemTime::now() - of).unwrap();
    }

    fn names(state: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(state).unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn indexes_of_one_directory_by_different_spellings_become_one() {
        let scratch = tempfile::tempdir().unwrap();
        let older = former(scratch.path(), 1, 2, "a");
        age(&older, Duration::from_secs(60));
        former(scratch.path(), 2, 3, "b");
        let (index, lock) = open(scratch.path(), ID).unwrap();
        for (number, name) in [(2, "a"), (3, "b")] {
            let (id, place) = place(number, name);
            assert_eq!(index.places(id), [place]);
        }
        let name = format!("index-{ID:016x}");
        assert_eq!(names(scratch.path()), [name.clone(), format!("{name}.lock")], "the former ones are gone");
        drop((index, lock));
        // The earlier version has run once more.
        former(scratch.path(), 1, 4, "c");
        let (index, _lock) = open(scratch.path(), ID).unwrap();
        assert_eq!([2, 3, 4].map(|number| index.places(place(number, "").0).len()), [1, 1, 1]);
    }

    #[test]
    fn one_server_at_a_time_uses_an_index_also_one_of_the_former_version() {
        let scratch = tempfile::tempdir().unwrap();
        let path = former(scratch.path(), 1, 2, "a");
        let held = lock(&path).unwrap().unwrap();
        assert!(matches!(open(scratch.path(), ID), Err(OpenError::InUse { .. })));
        drop(held);
        let opened = open(scratch.path(), ID).unwrap();
        assert!(matches!(open(scratch.path(), ID), Err(OpenError::InUse { .. })));
        assert!(open(scratch.path(), ID + 1).is_ok(), "another directory");
        drop(opened);
        assert!(open(scratch.path(), ID).is_ok());
    }

    #[test]
    fn an_index_that_nobody_uses_for_a_year_goes_unless_its_server_runs() {
        let scratch = tempfile::tempdir().unwrap();
        let index = |id: u64| scratch.path().join(format!("index-{id:016x}"));
        for id in 1..=3 {
            drop(open(scratch.path(), id).unwrap());
        }
        std::fs::write(scratch.path().join("index-notes"), "not ours").unwrap();
        age(&index(1), KEPT - Duration::from_secs(3600));
        age(&index(2), KEPT + Duration::from_secs(3600));
        age(&index(3), KEPT + Duration::from_secs(3600));
        age(&scratch.path().join("index-notes"), 2 * KEPT);
        let running = lock(&index(3)).unwrap().unwrap();
        drop(open(scratch.path(), ID).unwrap());
        let there = |id: u64| (index(id).exists(), index(id).with_extension("lock").exists());
        assert_eq!([1, 2, 3].map(there), [(true, true), (false, false), (true, true)]);
        assert!(scratch.path().join("index-notes").exists());
        drop(running);
        drop(open(scratch.path(), ID).unwrap());
        assert_eq!(there(3), (false, false));
    }
}
