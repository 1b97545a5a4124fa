//! Reading directories: READDIR with attributes and handles.
//!
//! A server decides how far a directory goes. A walk ends with an error if a cookie repeats, or after [`MAX_ENTRIES`].

use super::{
    Error, Nfs4, attributes,
    compound::{ATTRIBUTES, Plan, put},
    reply::done,
};
use rpcrdma_nfs::{
    attr::Attributes,
    v4::{self, Args, Attribute, Bitmap, FileAttributes, Handle, Name, Op, Value, Verifier, ops},
};
use std::collections::{HashSet, VecDeque};

/// The most entries that a walk takes from a server.
pub const MAX_ENTRIES: u64 = 100_000_000;
/// The most cookies that are kept in mind, one for each answer.
const REMEMBERED_COOKIES: usize = 1 << 16;

const ASKED: Bitmap = ATTRIBUTES.with(Attribute::Handle as u32).with(Attribute::ReadAttributesError as u32);

/// A name in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The name.
    pub name: Name,
    /// Where to go on after it.
    pub cookie: u64,
    /// The file's attributes, if the server has told them.
    pub attributes: Option<Attributes>,
    /// The file's handle, if the server has told it.
    pub file: Option<Handle>,
}

/// Some names of a directory.
#[derive(Clone, Debug)]
pub struct Page {
    /// The names.
    pub entries: Vec<Entry>,
    /// What makes their cookies valid.
    pub verifier: Verifier,
    /// Whether the last is the directory's last.
    pub end: bool,
}

impl Nfs4 {
    /// READDIR: names from `cookie` on, 0 at first, in about `octets` octets.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn readdir(
        &self,
        directory: &Handle,
        cookie: u64,
        verifier: Verifier,
        octets: u32,
    ) -> Result<Page, Error> {
        let octets = octets.min(self.transfer().directory);
        let read = ops::ReadDir { cookie, verifier, directory_count: octets, max_count: octets, asked: ASKED };
        let ops = [put(directory), Args::ReadDir(read)];
        let mut reply = self.inner.perform(Plan::looks(Op::ReadDir), None, &mut |_| Ok(ops.to_vec())).await?;
        let read = done!(reply, ReadDir)?;
        if read.entries.is_empty() && !read.end {
            return Err(Error::nonsense(Op::ReadDir, "returned no entry before the end"));
        }
        let entries = read.entries.into_iter().map(entry).collect::<Result<_, _>>()?;
        Ok(Page { entries, verifier: read.verifier, end: read.end })
    }
}

fn entry(entry: ops::Entry) -> Result<Entry, Error> {
    let ops::Entry { cookie, name, attributes } = entry;
    let octets = name.as_slice();
    if octets.is_empty() || octets.contains(&b'/') || octets.contains(&0) {
        return Err(Error::nonsense(Op::ReadDir, "returned a name that no file can have"));
    }
    // A name that is kept does not keep the whole answer.
    let name = Name::from(octets);
    let (attributes, file) = told(&attributes)?;
    Ok(Entry { name, cookie, attributes, file })
}

/// What an entry tells of its file: nothing, if the server has a reason for that.
fn told(told: &FileAttributes) -> Result<(Option<Attributes>, Option<Handle>), Error> {
    let values = attributes::values(told, ASKED)?;
    let failed = values.iter().any(|value| matches!(value, Value::ReadAttributesError(status) if status.0 != 0));
    let file = values.iter().find_map(|value| match value {
        Value::Handle(file) => Some(file.clone()),
        _ => None,
    });
    let attributes = if failed { None } else { v4::attributes_of(&values, attributes::NOBODY) };
    Ok((attributes, file))
}

/// A walk through a directory.
#[derive(Debug)]
pub struct Listing {
    nfs: Nfs4,
    directory: Handle,
    octets: u32,
    max_entries: u64,
    entries: u64,
    cookie: u64,
    /// The cookies that have been gone on from.
    met: HashSet<u64>,
    verifier: Verifier,
    ready: VecDeque<Entry>,
    has_ended: bool,
    has_failed: bool,
}

impl Listing {
    /// A walk through `directory` from its first entry, in answers of the size that is best.
    pub fn new(nfs: Nfs4, directory: Handle) -> Self {
        let octets = nfs.transfer().directory;
        Self {
            nfs,
            directory,
            octets,
            max_entries: MAX_ENTRIES,
            entries: 0,
            cookie: 0,
            met: HashSet::new(),
            verifier: Verifier::default(),
            ready: VecDeque::new(),
            has_ended: false,
            has_failed: false,
        }
    }

    /// Takes at most so many entries instead of [`MAX_ENTRIES`].
    #[must_use]
    pub fn with_max_entries(mut self, max: u64) -> Self {
        self.max_entries = max;
        self
    }

    /// The same in answers of about so many octets.
    #[must_use]
    pub fn with_octets(mut self, octets: u32) -> Self {
        self.octets = octets;
        self
    }

    /// The next entry, or `None` at the end.
    ///
    /// # Errors
    /// As [`Nfs4::readdir`]. If the server leads round in a circle, or the directory has too many entries.
    pub async fn next(&mut self) -> Result<Option<Entry>, Error> {
        loop {
            while let Some(entry) = self.ready.pop_front() {
                if !matches!(entry.name.as_slice(), b"." | b"..") {
                    return Ok(Some(entry));
                }
            }
            if self.has_ended {
                return Ok(None);
            }
            if let Err(error) = self.fetch().await {
                (self.has_failed, self.has_ended) = (true, true);
                return Err(error);
            }
        }
    }

    /// Whether the walk has ended with an error.
    pub fn has_failed(&self) -> bool {
        self.has_failed
    }

    async fn fetch(&mut self) -> Result<(), Error> {
        let Page { entries, verifier, end } =
            self.nfs.readdir(&self.directory, self.cookie, self.verifier, self.octets).await?;
        self.entries = self.entries.saturating_add(entries.len() as u64);
        if self.entries > self.max_entries {
            return Err(Error::TooManyEntries { max: self.max_entries });
        }
        let nonsense = |what| Err(Error::nonsense(Op::ReadDir, what));
        if let Some(last) = entries.last() {
            if last.cookie == self.cookie && !end {
                return nonsense("does not advance in the directory");
            }
            self.cookie = last.cookie;
        }
        if !end {
            if self.met.len() >= REMEMBERED_COOKIES {
                self.met.clear();
            }
            if !self.met.insert(self.cookie) {
                return nonsense("leads round in a circle in the directory");
            }
        }
        (self.verifier, self.has_ended, self.ready) = (verifier, end, entries.into());
        Ok(())
    }
}
