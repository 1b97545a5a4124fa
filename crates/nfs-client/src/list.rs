//! Walking a directory.
//!
//! A directory may change while a client reads it. If the server can no longer find the place of a cookie, the walk
//! ends with the server's error: to begin again could show names twice.
//!
//! A server may lie. If a reply ends at the same cookie as an earlier one, the walk would go in a circle; a directory
//! with more than [`MAX_ENTRIES`] entries counts as endless. Both end the walk with an error.

use crate::{Entry, Error, Files, Handle, Transfer, Verifier, files::Page};
use std::collections::{HashSet, VecDeque};

/// The most entries of one directory. By default ext4 has room for some ten million entries in a directory; no user
/// lists more than this.
pub const MAX_ENTRIES: u64 = 1 << 24;
/// How many last cookies of replies the listing remembers, to notice a circle: one or two megabytes. If there are more,
/// it forgets the older ones, and a longer circle ends at [`MAX_ENTRIES`].
const REMEMBERED_COOKIES: usize = 1 << 16;

/// The entries of a directory with attributes and handles, without `.` and `..`.
pub struct Listing {
    files: Files,
    directory: Handle,
    octets: u32,
    cookie: u64,
    /// The last cookies of replies.
    met: HashSet<u64>,
    entries: u64,
    max_entries: u64,
    verifier: Verifier,
    ready: VecDeque<Entry>,
    end: bool,
    plus: bool,
    failed: bool,
}

impl Listing {
    /// Lists `directory`.
    pub fn new(files: Files, directory: Handle, transfer: Transfer) -> Self {
        Self {
            files,
            directory,
            octets: transfer.directory,
            cookie: 0,
            met: HashSet::from([0]),
            entries: 0,
            max_entries: MAX_ENTRIES,
            verifier: Verifier::default(),
            ready: VecDeque::new(),
            end: false,
            plus: true,
            failed: false,
        }
    }

    /// Fails above this number of entries, including `.` and `..`, instead of [`MAX_ENTRIES`].
    pub fn with_max_entries(mut self, max: u64) -> Self {
        self.max_entries = max;
        self
    }

    /// The next entry, or `None` at the end. Its attributes and handle are absent if the server has not sent them. If a
    /// server of version 3 does not have READDIRPLUS, the listing uses READDIR.
    ///
    /// # Errors
    /// As [`Files::lookup`]; also if the server returns a position for the second time, or the directory has too many
    /// entries.
    pub async fn next(&mut self) -> Result<Option<Entry>, Error> {
        loop {
            while let Some(entry) = self.ready.pop_front() {
                if !matches!(entry.name.as_slice(), b"." | b"..") {
                    return Ok(Some(entry));
                }
            }
            if self.end {
                return Ok(None);
            }
            if let Err(error) = self.fetch().await {
                self.failed = true;
                self.end = true;
                return Err(error);
            }
        }
    }

    /// Whether the walk has ended with an error.
    pub fn has_failed(&self) -> bool {
        self.failed
    }

    async fn fetch(&mut self) -> Result<(), Error> {
        let after = (self.cookie, self.verifier);
        let page = self.files.entries(&self.directory, after, self.octets, &mut self.plus).await?;
        self.take(page)
    }

    fn take(&mut self, Page { entries, verifier, end }: Page) -> Result<(), Error> {
        let procedure = self.files.lists();
        let nonsense = |what| Err(Error::Nonsense { procedure, what });
        self.entries = self.entries.saturating_add(entries.len() as u64);
        if self.entries > self.max_entries {
            return Err(Error::TooManyEntries { procedure, max: self.max_entries });
        }
        match entries.last() {
            Some(last) if last.cookie == self.cookie && !end => return nonsense("does not advance in the directory"),
            Some(last) => self.cookie = last.cookie,
            None if !end => return nonsense("returned no entry before the end"),
            None => {}
        }
        if !end {
            if self.met.len() >= REMEMBERED_COOKIES {
                self.met.clear();
            }
            if !self.met.insert(self.cookie) {
                return nonsense("gave a position in the directory for the second time");
            }
        }
        self.verifier = verifier;
        self.end = end;
        self.ready = entries.into();
        Ok(())
    }
}
