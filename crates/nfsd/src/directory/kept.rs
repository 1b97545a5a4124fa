//! Keeps parts of directories that were read, for listings that go on.
//!
//! If cookies are hashes, each reply of a listing has to read the whole directory. So the server keeps what it has read
//! for one reply for the next one: the entries behind a cookie in their order, up to a limit. It uses them while the
//! directory does not change, and never for a new listing. Nothing here can fail; entries that are not kept are read
//! again.

use super::listing::RawEntry;
use crate::FileId;
use rustix::fs::Statx;
use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// How many entries of a listing are kept: about 1.5 MiB with names of usual length, 5 MiB with the longest.
pub(super) const KEPT_ENTRIES: usize = 16_384;
/// How many listings are kept: enough for that many clients that list at the same time.
const KEPT_LISTINGS: usize = 8;

/// When a directory was changed, by the kernel: modified and changed, in seconds and nanoseconds.
type Changed = [(i64, u32); 2];

fn changed(stat: &Statx) -> Changed {
    [stat.stx_mtime, stat.stx_ctime].map(|time| (time.tv_sec, time.tv_nsec))
}

/// Entries in the order of their cookies.
#[derive(Clone)]
pub(super) struct Part {
    /// The cookie before the first of them.
    after: u64,
    entries: Arc<[RawEntry]>,
    /// No entry comes after the last of them.
    is_last: bool,
}

impl Part {
    /// Entries read from a directory: the first ones after a cookie, of which the reader asked for at most `most`.
    pub(super) fn new(after: u64, entries: Vec<RawEntry>, most: usize) -> Self {
        let is_last = entries.len() < most;
        Self { after, entries: entries.into(), is_last }
    }

    /// The entries after `cookie`, if the part has `most` of them or all that exist.
    pub(super) fn behind(&self, cookie: u64, most: usize) -> Option<&[RawEntry]> {
        if cookie < self.after {
            return None;
        }
        let rest = self.entries.get(self.entries.partition_point(|entry| entry.cookie <= cookie)..)?;
        (self.is_last || rest.len() >= most).then_some(rest)
    }
}

/// The kept parts, the latest first.
#[derive(Default)]
pub(super) struct Kept(Mutex<VecDeque<(FileId, Changed, Part)>>);

impl Kept {
    fn lock(&self) -> MutexGuard<'_, VecDeque<(FileId, Changed, Part)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A kept part of the directory in its present state, with the entries after `cookie`.
    pub(super) fn find(&self, directory: FileId, stat: &Statx, cookie: u64, most: usize) -> Option<Part> {
        let now = changed(stat);
        let kept = self.lock();
        let mut parts = kept.iter().filter(|(of, when, _)| *of == directory && *when == now);
        parts.find(|(_, _, part)| part.behind(cookie, most).is_some()).map(|(_, _, part)| part.clone())
    }

    /// Keeps a part; `stat` is from before it was read. Each directory has at most one kept part.
    pub(super) fn keep(&self, directory: FileId, stat: &Statx, part: Part) {
        let mut kept = self.lock();
        kept.retain(|(of, _, _)| *of != directory);
        kept.truncate(KEPT_LISTINGS - 1);
        kept.push_front((directory, changed(stat), part));
    }
}

#[cfg(test)]
mod tests {
    use super::super::attributes::stat;
    use super::*;

    fn part(after: u64, cookies: std::ops::Range<u64>, most: usize) -> Part {
        let entry = |cookie| RawEntry { cookie, name: "x".into(), inode: cookie };
        Part::new(after, cookies.map(entry).collect(), most)
    }

    #[test]
    fn a_part_holds_what_comes_after_a_cookie_or_says_that_it_does_not() {
        let first = part(5, 10..20, 10);
        assert!(first.behind(4, 1).is_none(), "begins later");
        assert_eq!(first.behind(5, 10).unwrap().len(), 10);
        assert_eq!(first.behind(14, 5).unwrap()[0].cookie, 15);
        assert!(first.behind(14, 6).is_none(), "there may be more");
        let last = part(5, 10..20, 11);
        assert_eq!(last.behind(14, 6).unwrap().len(), 5);
        assert_eq!(last.behind(19, 6).unwrap().len(), 0);
    }

    #[test]
    fn parts_are_kept_to_the_limit_and_while_the_directory_is_the_same() {
        let kept = Kept::default();
        let mut stat = stat(std::fs::File::open("/").unwrap()).unwrap();
        let id = |number: usize| FileId::new(&number.to_be_bytes()).unwrap();
        for number in 0..KEPT_LISTINGS {
            kept.keep(id(number), &stat, part(0, 1..5, 9));
            kept.keep(id(number), &stat, part(0, 1..5, 9));
        }
        assert!(kept.find(id(0), &stat, 1, 9).is_some(), "at the limit");
        kept.keep(id(99), &stat, part(0, 1..5, 9));
        assert!(kept.find(id(0), &stat, 1, 9).is_none() && kept.find(id(1), &stat, 1, 9).is_some(), "one past it");
        stat.stx_mtime.tv_nsec ^= 1;
        assert!(kept.find(id(1), &stat, 1, 9).is_none(), "changed");
    }
}
