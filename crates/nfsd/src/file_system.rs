//! What can be served: the file system trait.
//!
//! Objects are named by [`FileId`]s, which the file system makes and which stay valid across a restart for as long as
//! the object exists. Results carry attributes where they cost nothing extra. A read is given its buffer and gives it
//! back; written data is shared. A file system checks the caller's rights itself. An error is a status of NFS version 3,
//! with what the protocol tells in spite of it.

use crate::Caller;
use bytes::Bytes;
use rpcrdma_env::{BoxFuture, Buffer};
use rpcrdma_nfs::v3::{
    Attributes, CreateHow, Failure, LinkInfo, NewAttributes, NodeKind, RenameInfo, Stability, Status, Time, Verifier,
    WeakCache, entry_octets, entry_plus_octets, read_directory_octets,
};
use std::{fmt, path::PathBuf};

/// The most octets in a [`FileId`]: what a handle of 64 octets leaves beside its own 30.
pub const MAX_FILE_ID_OCTETS: usize = 34;

/// Names an object of one file system, by octets that mean something to that file system alone.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileId {
    len: u8,
    octets: [u8; MAX_FILE_ID_OCTETS],
}

impl FileId {
    /// The id of these octets, or `None` if there are more than [`MAX_FILE_ID_OCTETS`].
    pub fn new(octets: &[u8]) -> Option<Self> {
        let mut id = Self { len: u8::try_from(octets.len()).ok()?, octets: [0; MAX_FILE_ID_OCTETS] };
        id.octets.get_mut(..octets.len())?.copy_from_slice(octets);
        Some(id)
    }

    /// The octets.
    pub fn as_slice(&self) -> &[u8] {
        &self.octets[..usize::from(self.len)]
    }
}

impl fmt::Debug for FileId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FileId(")?;
        self.as_slice().iter().try_for_each(|octet| write!(f, "{octet:02x}"))?;
        f.write_str(")")
    }
}

/// A failure of which nothing more is told.
pub fn failed<F: Default>(status: Status) -> Failure<F> {
    Failure { status, info: F::default() }
}

/// A file that was looked up.
#[derive(Clone, Debug)]
pub struct Found {
    /// The file.
    pub file: FileId,
    /// Its attributes.
    pub attributes: Option<Attributes>,
    /// The directory's attributes.
    pub directory: Option<Attributes>,
}

/// What was read.
#[derive(Debug)]
pub struct ReadData {
    /// The buffer that was given, its length set to the octets read.
    pub buffer: Buffer,
    /// Whether the last octet is the last of the file.
    pub end: bool,
    /// The file's attributes after the read.
    pub attributes: Option<Attributes>,
}

/// What was written.
#[derive(Clone, Debug)]
pub struct Written {
    /// How many octets.
    pub count: usize,
    /// How durable they are.
    pub committed: Stability,
    /// The file's attributes before and after.
    pub file: WeakCache,
}

/// What is to be made.
#[derive(Clone, Debug)]
pub enum New {
    /// A regular file.
    File(CreateHow),
    /// A directory.
    Directory(NewAttributes),
    /// A symbolic link to a path of any octets.
    Symlink(NewAttributes, Bytes),
    /// A special file.
    Node(NodeKind),
}

/// What was made.
#[derive(Clone, Debug)]
pub struct Made {
    /// The new file.
    pub file: FileId,
    /// Its attributes.
    pub attributes: Option<Attributes>,
    /// The directory's attributes before and after.
    pub directory: WeakCache,
}

/// How many entries of a directory an answer holds.
#[derive(Clone, Copy, Debug)]
pub struct ListingBudget {
    /// Octets left of the whole answer, in its encoding.
    total: usize,
    /// Octets left for names, file ids and cookies, as READDIRPLUS counts them.
    names: usize,
    /// Octets of a handle, if handles and attributes are told.
    plus: Option<usize>,
}

impl ListingBudget {
    /// READDIR: an answer of at most `total` octets.
    pub fn names_only(total: usize) -> Self {
        Self { total: total.saturating_sub(read_directory_octets()), names: usize::MAX, plus: None }
    }

    /// READDIRPLUS: an answer of at most `total` octets, of which `names` for names, ids and cookies; handles have up
    /// to `handle_octets`.
    pub fn plus(names: usize, total: usize, handle_octets: usize) -> Self {
        Self { total: total.saturating_sub(read_directory_octets()), names, plus: Some(handle_octets) }
    }

    /// Whether entries come with their file and attributes.
    pub fn is_plus(&self) -> bool {
        self.plus.is_some()
    }

    /// How many entries there may be room for: as many as have the shortest names.
    pub fn most_entries(&self) -> usize {
        let name = entry_octets(1);
        let whole = self.plus.map_or(name, |handle| entry_plus_octets(1, handle));
        (self.total / whole).min(self.names / name)
    }

    /// Takes room for an entry with a name of `name_octets`; false if there is none.
    pub fn take(&mut self, name_octets: usize) -> bool {
        let name = entry_octets(name_octets);
        let whole = self.plus.map_or(name, |handle| entry_plus_octets(name_octets, handle));
        match (self.total.checked_sub(whole), self.names.checked_sub(name)) {
            (Some(total), Some(names)) => {
                (self.total, self.names) = (total, names);
                true
            }
            _ => false,
        }
    }
}

/// An entry of a directory.
#[derive(Clone, Debug)]
pub struct ListingEntry {
    /// The file's number.
    pub file_id: u64,
    /// The name.
    pub name: Bytes,
    /// Where to go on after this entry.
    pub cookie: u64,
    /// The file and its attributes, where they were asked for and are known.
    pub file: Option<(FileId, Attributes)>,
}

/// A part of a directory.
#[derive(Clone, Debug)]
pub struct Listing {
    /// The directory's attributes.
    pub attributes: Option<Attributes>,
    /// What makes the cookies valid.
    pub verifier: Verifier,
    /// The entries.
    pub entries: Vec<ListingEntry>,
    /// Whether the last of them is the directory's last.
    pub end: bool,
}

/// How full a file system is. Octets and numbers of files.
#[derive(Clone, Copy, Debug, Default)]
pub struct Usage {
    /// Octets in all.
    pub total_octets: u64,
    /// Octets free.
    pub free_octets: u64,
    /// Octets free for ordinary users.
    pub available_octets: u64,
    /// Files in all.
    pub total_files: u64,
    /// Files that can still be made.
    pub free_files: u64,
}

/// What a file system can do.
#[derive(Clone, Copy, Debug)]
pub struct Features {
    /// The largest file, in octets.
    pub max_file_octets: u64,
    /// How exactly times are kept.
    pub time_precision: Time,
    /// The most hard links to a file.
    pub max_links: u32,
    /// The longest name, in octets.
    pub max_name_octets: u32,
}

/// The result of an operation that tells the attributes of one object on failure.
pub type Told<T> = Result<T, Failure<Option<Attributes>>>;
/// The result of an operation that changes one object.
pub type Changed<T> = Result<T, Failure<WeakCache>>;

/// A file system that can be served.
pub trait FileSystem: Send + Sync {
    /// Its root directory.
    fn root(&self) -> FileId;

    /// Identifies the file system; the same after a restart.
    fn id(&self) -> u64;

    /// What it can do.
    fn features(&self) -> Features;

    /// Where a file is on this machine, for the log alone, if that can be told without waiting. The root's path is that of
    /// what is served.
    fn path(&self, file: FileId) -> Option<PathBuf> {
        let _ = file;
        None
    }

    /// The size of a file, if it can be told at once. Spares a read the memory for octets that are not there.
    fn size_hint(&self, file: FileId) -> Option<u64>;

    /// Attributes. Everybody who may call may see them: the caller decides only who waits for whom.
    fn attributes(&self, caller: Caller, file: FileId) -> BoxFuture<'_, Result<Attributes, Status>>;

    /// How often data that was written and not committed may have been lost since the file system was opened. The write
    /// verifier of all its files changes with it; so it has to change before a call that has seen a loss is answered.
    fn losses(&self) -> u64 {
        0
    }

    /// Does what has to be done from time to time, until the file system is gone. A program that serves it drives this.
    fn upkeep(&self) -> BoxFuture<'static, ()> {
        Box::pin(std::future::ready(()))
    }

    /// Sets attributes, only if the file's `changed` is `guard`, where it is given.
    fn set_attributes(
        &self,
        caller: Caller,
        file: FileId,
        new: NewAttributes,
        guard: Option<Time>,
    ) -> BoxFuture<'_, Changed<WeakCache>>;

    /// The file of a name: also `.` and `..`; the root is its own parent.
    fn lookup(&self, caller: Caller, directory: FileId, name: Bytes) -> BoxFuture<'_, Told<Found>>;

    /// Which of the rights (see [`rpcrdma_nfs::v3::access`]) the caller has.
    fn access(&self, caller: Caller, file: FileId, rights: u32) -> BoxFuture<'_, Told<(u32, Option<Attributes>)>>;

    /// What a symbolic link points to.
    fn read_link(&self, caller: Caller, link: FileId) -> BoxFuture<'_, Told<(Bytes, Option<Attributes>)>>;

    /// Reads at most `count` octets from `offset` into `buffer`, which holds as many.
    fn read(
        &self,
        caller: Caller,
        file: FileId,
        offset: u64,
        count: usize,
        buffer: Buffer,
    ) -> BoxFuture<'_, Told<ReadData>>;

    /// Writes, at least as durably as `stability` says.
    fn write(
        &self,
        caller: Caller,
        file: FileId,
        offset: u64,
        data: Bytes,
        stability: Stability,
    ) -> BoxFuture<'_, Changed<Written>>;

    /// Makes what was written durable; a `count` of 0 means up to the end.
    fn commit(&self, caller: Caller, file: FileId, offset: u64, count: u32) -> BoxFuture<'_, Changed<WeakCache>>;

    /// Makes a file.
    fn make(&self, caller: Caller, directory: FileId, name: Bytes, new: New) -> BoxFuture<'_, Changed<Made>>;

    /// Removes a name: that of an empty directory if `is_directory`, else any other.
    fn remove(
        &self,
        caller: Caller,
        directory: FileId,
        name: Bytes,
        is_directory: bool,
    ) -> BoxFuture<'_, Changed<WeakCache>>;

    /// Renames, in place of what has the new name.
    fn rename(
        &self,
        caller: Caller,
        from: (FileId, Bytes),
        to: (FileId, Bytes),
    ) -> BoxFuture<'_, Result<RenameInfo, Failure<RenameInfo>>>;

    /// Gives a file a further name.
    fn link(
        &self,
        caller: Caller,
        file: FileId,
        directory: FileId,
        name: Bytes,
    ) -> BoxFuture<'_, Result<LinkInfo, Failure<LinkInfo>>>;

    /// Entries after `cookie` (0: from the beginning), `.` and `..` among them, as many as `budget` has room for.
    fn list(
        &self,
        caller: Caller,
        directory: FileId,
        cookie: u64,
        verifier: Verifier,
        budget: ListingBudget,
    ) -> BoxFuture<'_, Told<Listing>>;

    /// How full it is.
    fn usage(&self, caller: Caller) -> BoxFuture<'_, Result<Usage, Status>>;
}

/// Where work that may sleep in the kernel is done: threads of the program's. The library starts none.
pub trait Workers: Send + Sync {
    /// Runs `job` on some thread, at once if fewer than [`threads`](Self::threads) are under way. One that is dropped
    /// instead fails its call and those that wait for their turn.
    fn run(&self, job: Box<dyn FnOnce() + Send>);

    /// How many jobs can run at a time. A file system gives no more than that, and decides whose are next.
    fn threads(&self) -> usize {
        usize::MAX
    }
}

/// Does the work at once, on the thread that asks: for tests, and for programs with a thread for each connection.
#[derive(Clone, Copy, Debug, Default)]
pub struct InPlace;

impl Workers for InPlace {
    fn run(&self, job: Box<dyn FnOnce() + Send>) {
        job();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_holds_up_to_its_limit() {
        let octets = [7; MAX_FILE_ID_OCTETS + 1];
        assert_eq!(FileId::new(&octets[1..]).unwrap().as_slice(), &octets[1..]);
        assert!(FileId::new(&octets).is_none());
        assert!(FileId::new(&[0; 300]).is_none());
        assert_ne!(FileId::new(b"a"), FileId::new(b"a\0"));
    }

    #[test]
    fn a_budget_ends_where_the_encoding_would_exceed_it() {
        let room = read_directory_octets() + 2 * entry_octets(5);
        let mut budget = ListingBudget::names_only(room);
        assert!(budget.take(5) && budget.take(5) && !budget.take(0));
        let exact = ListingBudget::names_only(read_directory_octets() + 7 * entry_octets(1));
        assert_eq!((exact.most_entries(), ListingBudget::names_only(0).most_entries()), (7, 0));
        let mut budget = ListingBudget::names_only(room - 1);
        assert!(budget.take(5) && !budget.take(5));
        let mut budget = ListingBudget::plus(entry_octets(1), 1 << 20, 64);
        assert!(budget.take(1) && !budget.take(1), "names have a budget of their own");
        let mut budget = ListingBudget::plus(1 << 20, read_directory_octets() + entry_plus_octets(1, 64), 64);
        assert!(budget.take(1) && !budget.take(1));
    }
}
