//! A directory of the host as a file system.
//!
//! The server reaches every file from the directory's own descriptor or by a handle of the kernel, never by a path that
//! a client sends. It resolves names one at a time beneath the directory, follows no links and crosses no mounts; a
//! mount point below shows as an empty directory. A directory that was moved out is stale. (If the host's owner moves a
//! *file* out of the served directory, a client that holds its handle can still read it, like a process that has it
//! open.)
//!
//! Jobs run on the program's threads in the order of the [`Queue`]; if the server runs as root, they run as the caller.
//! The caller's thread returns attributes and cached data of open files at once. Descriptors belong to the [`Cache`],
//! and those of files with uncommitted data to [`Uncommitted`]; errors are the statuses of the kernel's error numbers.
//!
//! [`Cache`]: object::Cache

mod access;
mod attributes;
mod beside;
mod change;
mod change_number;
mod copy;
mod data;
mod extents;
mod hidden;
mod identity;
mod ids;
mod index;
mod index_files;
mod jobs;
mod kept;
mod leases;
mod listing;
mod locks;
mod losses;
mod make;
mod object;
mod opens;
mod posix_acl;
mod recent;
mod resolve;
mod seldom;
mod stable;
mod start;
mod sys;
mod uncommitted;
mod upkeep;
mod xattr;

use crate::{
    Access, Broken, Caller, Changed, Content, Copied, Failure, Fault, Features, FileId, FileSystem, Found, HostLease,
    Linked, Listing, ListingBudget, Made, New, OpenFile, PieceBudget, Queue, ReadData, Reading, Renamed, Rights,
    SetXattr, Sought, Span, SparseData, Told, Usage, Via, Written, XattrNames,
    claims::{HostLocks, Kind},
    queue::Lane,
};
use access::Owner;
use beside::Beside;
use bytes::Bytes;
use data::Write;
use hidden::Hidden;
use identity::Identity;
use ids::Ids;
use index::Index;
pub use index::IndexUse;
use jobs::Step;
use kept::Kept;
use leases::Leases;
pub use locks::OfdLocks;
use losses::Losses;
use object::{Cache, Object};
use opens::Room;
pub use posix_acl::{parse as posix_acl_of_xattr, written as xattr_of_posix_acl};
use resolve::Cover;
use rpcrdma_env::{BoxFuture, Buffer, Clock};
use rpcrdma_nfs::attr::{Acls, Attributes, Change, NewAttributes, Stability, Time};
use rpcrdma_oncrpc::Arrival;
use rustix::{fd::OwnedFd, fs::fstatvfs};
use stable::Answers;
pub use start::OpenError;
use start::hash;
use std::{
    fs::File,
    path::PathBuf,
    sync::{Arc, Mutex},
};
use uncommitted::Uncommitted;

/// The most hard links to a file that Linux's usual file systems have: ext4's.
const MAX_LINKS: u32 = 65_000;

/// A directory of the host.
#[derive(Clone)]
pub struct DirectoryFs {
    inner: Arc<Inner>,
    queue: Arc<Queue>,
    answers: Answers,
}

struct Inner {
    /// The path as the program gave it, for messages.
    path: PathBuf,
    clock: Arc<dyn Clock>,
    /// Opened for reading: `open_by_handle_at` does not take an `O_PATH` descriptor.
    root_fd: OwnedFd,
    root: Arc<Object>,
    root_device: (u32, u32),
    root_inode: u64,
    id: u64,
    identity: Identity,
    /// The state directory, which no client reaches.
    hidden: Hidden,
    ids: Ids,
    stable_cookies: bool,
    local: bool,
    /// Whether the file system never waits for a disk.
    in_memory: bool,
    max_name_bytes: u32,
    /// The unit of clones, if the file system can clone.
    clone_bytes: Option<u32>,
    /// Whether files may have access control lists.
    acls: bool,
    /// Whether files may have extended attributes of users.
    xattrs: bool,
    cache: Cache,
    beside: Beside,
    uncommitted: Uncommitted,
    /// Limits the files that clients have open.
    open_files: Arc<Room>,
    /// The leases, which keep programs of the host from delegated files.
    leases: Leases,
    losses: Losses,
    /// Failures of waiting for the disk, which clients can cause by filling it.
    sync_failures: seldom::Seldom,
    index: Mutex<Index>,
    kept: Kept,
    /// Failures to write the index, which clients can cause by filling its disk.
    index_failures: seldom::Seldom,
    /// The files for which the server has waited, in order.
    #[cfg(test)]
    synchronised: Mutex<Vec<FileId>>,
    /// Unreadable access control lists on the disk. Without this count, each look at one would cause a warning.
    acl_failures: seldom::Seldom,
    /// Held because of its lock.
    _lock: File,
}

impl DirectoryFs {
    /// The user whose callers own the files here, if the server is not the superuser: they may go on with files that
    /// they have open, whatever mode they set. All other callers have the rights that modes give to the server's user.
    pub fn owner(&self) -> Option<u32> {
        self.inner.identity.owner()
    }

    /// Whether the server can distinguish a removed file from another that has taken its place. If not, a handle of the
    /// removed file opens the other.
    pub fn tells_files_apart(&self) -> bool {
        self.inner.ids != Ids::Number
    }

    /// The same directory, but the server answers changes of attributes and names as soon as the kernel has them, and
    /// not only when they are on the disk, as RFC 1813 (section 4.8) requires. This is faster, but a crash of this host
    /// may undo changes of the last seconds that clients take for done. WRITE and COMMIT keep their promises either
    /// way.
    #[must_use]
    pub fn with_early_answers(mut self) -> Self {
        self.answers = Answers::Early;
        self
    }

    /// How much the index of names remembers, and how much memory that takes.
    pub fn index_use(&self) -> IndexUse {
        self.inner.index().usage()
    }
}

impl FileSystem for DirectoryFs {
    fn root(&self) -> FileId {
        self.inner.root.id
    }

    fn path(&self, file: FileId) -> Option<PathBuf> {
        if file == self.inner.root.id {
            return Some(std::path::absolute(&self.inner.path).unwrap_or_else(|_| self.inner.path.clone()));
        }
        // The kernel returns it from memory, without a search.
        let object = self.inner.cache.get(file)?;
        std::fs::read_link(resolve::own_path(&object.fd)).ok()
    }

    fn id(&self) -> u64 {
        self.inner.id
    }

    fn features(&self) -> Features {
        let Inner { max_name_bytes, clone_bytes, acls, xattrs, .. } = *self.inner;
        Features { max_links: MAX_LINKS, max_name_bytes, clone_bytes, acls, xattrs, ..Features::default() }
    }

    fn attributes_at_once(&self, file: FileId, arrival: Option<Arrival>) -> Option<Result<Attributes, Fault>> {
        self.inner.attributes_now(file, arrival)
    }

    fn read_at_once(&self, via: &Via, offset: u64, count: usize, buffer: Buffer) -> Result<ReadData, Buffer> {
        self.inner.read_now(via, offset, count, buffer)
    }

    fn attributes(&self, caller: Caller, file: FileId) -> BoxFuture<'_, Result<Attributes, Fault>> {
        match self.inner.attributes_now(file, None) {
            Some(attributes) => Box::pin(std::future::ready(attributes)),
            None => self.look(&caller, move |inner| inner.attributes(file)),
        }
    }

    fn open(&self, caller: Caller, file: FileId, access: Access) -> BoxFuture<'_, Told<Arc<dyn OpenFile>>> {
        self.run(&caller.clone(), Lane::Look, move |inner| inner.open_file(&caller, file, access, Owner::AsModeSays))
    }

    fn open_as_owner(&self, caller: Caller, file: FileId, access: Access) -> BoxFuture<'_, Told<Arc<dyn OpenFile>>> {
        self.run(&caller.clone(), Lane::Look, move |inner| inner.open_file(&caller, file, access, Owner::Always))
    }

    fn host_locks(&self, open: &Arc<dyn OpenFile>) -> Option<Arc<dyn HostLocks>> {
        opens::host_locks(open)
    }

    fn host_lease(&self, open: &Arc<dyn OpenFile>, kind: Kind, broken: Broken) -> Result<HostLease, Fault> {
        self.inner.lease(open, kind, broken)
    }

    fn losses(&self) -> u64 {
        self.inner.losses.count(self.inner.clock.now())
    }

    fn upkeep(&self) -> BoxFuture<'static, ()> {
        self.tend()
    }

    fn set_attributes(&self, via: Via, new: NewAttributes, guard: Option<Time>) -> BoxFuture<'_, Changed<Change>> {
        let file = via.file();
        self.change_one(&via.caller.clone(), file, move |inner| inner.set_attributes(&via, &new, guard))
    }

    fn acl(&self, caller: Caller, file: FileId) -> BoxFuture<'_, Result<Acls, Fault>> {
        self.look(&caller, move |inner| inner.acl(file))
    }

    fn set_acl(&self, caller: Caller, file: FileId, acls: Acls) -> BoxFuture<'_, Changed<Change>> {
        self.change_one(&caller.clone(), file, move |inner| inner.set_acl(&caller, file, &acls))
    }

    fn xattr(&self, caller: Caller, file: FileId, name: Bytes) -> BoxFuture<'_, Result<Bytes, Fault>> {
        self.look(&caller.clone(), move |inner| inner.xattr(&caller, file, &name))
    }

    fn list_xattrs(
        &self,
        caller: Caller,
        file: FileId,
        cookie: u64,
        budget: ListingBudget,
    ) -> BoxFuture<'_, Result<XattrNames, Fault>> {
        self.look(&caller.clone(), move |inner| inner.list_xattrs(&caller, file, cookie, budget))
    }

    fn set_xattr(
        &self,
        caller: Caller,
        file: FileId,
        name: Bytes,
        value: Bytes,
        how: SetXattr,
    ) -> BoxFuture<'_, Changed<Change>> {
        self.change_one(&caller.clone(), file, move |inner| inner.set_xattr(&caller, file, &name, &value, how))
    }

    fn remove_xattr(&self, caller: Caller, file: FileId, name: Bytes) -> BoxFuture<'_, Changed<Change>> {
        self.change_one(&caller.clone(), file, move |inner| inner.remove_xattr(&caller, file, &name))
    }

    fn lookup(&self, caller: Caller, directory: FileId, name: Bytes) -> BoxFuture<'_, Told<Found>> {
        self.run(&caller.clone(), Lane::Look, move |inner| inner.lookup(&caller, directory, &name))
    }

    fn access(
        &self,
        caller: Caller,
        file: FileId,
        rights: Rights,
    ) -> BoxFuture<'_, Told<(Rights, Option<Attributes>)>> {
        self.run(&caller.clone(), Lane::Look, move |inner| inner.access(&caller, file, rights))
    }

    fn read_link(&self, caller: Caller, link: FileId) -> BoxFuture<'_, Told<(Bytes, Option<Attributes>)>> {
        self.run(&caller.clone(), Lane::Look, move |inner| inner.read_link(&caller, link))
    }

    fn read(&self, via: Via, offset: u64, count: usize, buffer: Buffer) -> BoxFuture<'_, Told<ReadData>> {
        // The connection sends meanwhile (`beside.rs`).
        if via.is_followed()
            && count >= beside::LONG_BYTES
            && self.inner.beside.pays()
            && let Some(thread) = self.queue.thread_for(via.caller.origin, Lane::Data)
        {
            let asked = self.inner.clock.now();
            return self.run_on(thread, move |inner| {
                inner.beside.has_begun_after(inner.clock.now().since(asked));
                inner.read(&via, offset, count, buffer)
            });
        }
        match self.inner.read_now(&via, offset, count, buffer) {
            Ok(data) => Box::pin(std::future::ready(Ok(data))),
            Err(buffer) => {
                self.run(&via.caller.clone(), Lane::Data, move |inner| inner.read(&via, offset, count, buffer))
            }
        }
    }

    /// Reads at once the bytes that are in memory, and all others in one job.
    fn read_each(&self, reads: Vec<Reading>) -> BoxFuture<'_, Vec<Told<ReadData>>> {
        let mut done = Vec::with_capacity(reads.len());
        let mut left = Vec::new();
        for (at, Reading { via, offset, count, buffer }) in reads.into_iter().enumerate() {
            match self.inner.read_now(&via, offset, count, buffer) {
                Ok(data) => done.push(Some(Ok(data))),
                Err(buffer) => {
                    done.push(None);
                    left.push((at, Reading { via, offset, count, buffer }));
                }
            }
        }
        let Some((_, first)) = left.first() else {
            return Box::pin(std::future::ready(done.into_iter().flatten().collect()));
        };
        let caller = first.via.caller.clone();
        let job = self.run(&caller, Lane::Data, move |inner| -> Told<Vec<(usize, Told<ReadData>)>> {
            let read = left
                .into_iter()
                .map(|(at, Reading { via, offset, count, buffer })| (at, inner.read(&via, offset, count, buffer)));
            Ok(read.collect())
        });
        Box::pin(async move {
            for (at, read) in job.await.into_iter().flatten() {
                if let Some(place) = done.get_mut(at) {
                    *place = Some(read);
                }
            }
            done.into_iter().map_while(|read| read).collect()
        })
    }

    fn write(&self, via: Via, offset: u64, data: Bytes, stability: Stability) -> BoxFuture<'_, Changed<Written>> {
        let write = Write { offset, data, stability };
        self.run_in_turn(&via.caller.clone(), via.file(), move |inner| match inner.write(&via, &write) {
            // Memory needs no wait: this costs less than to begin the next change meanwhile.
            Ok((written, target)) if written.committed != Stability::Unstable && inner.in_memory => {
                Step::Done(inner.write_through(written, &target))
            }
            Ok((written, target)) if written.committed != Stability::Unstable => {
                Step::Then(Box::new(move |inner| inner.write_through(written, &target)))
            }
            done => Step::Done(done.map(|(written, _)| written)),
        })
    }

    fn commit(&self, via: Via, _: u64, _: u32) -> BoxFuture<'_, Changed<Change>> {
        self.run(&via.caller.clone(), Lane::Data, move |inner| inner.commit(&via))
    }

    fn make(&self, caller: Caller, directory: FileId, name: Bytes, new: New) -> BoxFuture<'_, Changed<Made>> {
        self.change(
            &caller.clone(),
            directory,
            move |inner| inner.make(&caller, directory, &name, new),
            move |inner, answers, made| answers.after(inner, &[made.file, directory], made, |made| made.directory),
        )
    }

    fn remove(
        &self,
        caller: Caller,
        directory: FileId,
        name: Bytes,
        is_directory: bool,
    ) -> BoxFuture<'_, Changed<Change>> {
        self.change_one(&caller.clone(), directory, move |inner| inner.remove(&caller, directory, &name, is_directory))
    }

    fn rename(
        &self,
        caller: Caller,
        from: (FileId, Bytes),
        to: (FileId, Bytes),
    ) -> BoxFuture<'_, Result<Renamed, Failure<Renamed>>> {
        // The new name first: a crash between the two may leave both, but not neither.
        let directories = [to.0, from.0];
        self.change(
            &caller.clone(),
            to.0,
            move |inner| inner.rename(&caller, (from.0, &from.1), (to.0, &to.1)),
            move |inner, answers, info| {
                let directories = if directories[0] == directories[1] { &directories[..1] } else { &directories };
                answers.after(inner, directories, info, |info| info)
            },
        )
    }

    fn link(
        &self,
        caller: Caller,
        file: FileId,
        directory: FileId,
        name: Bytes,
    ) -> BoxFuture<'_, Result<Linked, Failure<Linked>>> {
        self.change(
            &caller.clone(),
            directory,
            move |inner| inner.link(&caller, file, directory, &name),
            move |inner, answers, info| answers.after(inner, &[directory], info, |info| info),
        )
    }

    fn list(
        &self,
        caller: Caller,
        directory: FileId,
        cookie: u64,
        verifier: [u8; 8],
        budget: ListingBudget,
    ) -> BoxFuture<'_, Told<Listing>> {
        self.run(&caller.clone(), Lane::Look, move |inner| inner.list(&caller, directory, cookie, verifier, budget))
    }

    fn seek(&self, via: Via, offset: u64, what: Content) -> BoxFuture<'_, Told<Sought>> {
        self.run(&via.caller.clone(), Lane::Data, move |inner| inner.seek(&via, offset, what))
    }

    fn read_sparse(
        &self,
        via: Via,
        offset: u64,
        budget: PieceBudget,
        buffer: Buffer,
    ) -> BoxFuture<'_, Told<SparseData>> {
        let buffer = match self.inner.read_now(&via, offset, budget.data(), buffer) {
            Ok(read) if extents::is_dense(&read) => {
                return Box::pin(std::future::ready(Ok(SparseData::of(read, offset))));
            }
            Ok(read) => read.buffer,
            Err(buffer) => buffer,
        };
        self.run(&via.caller.clone(), Lane::Data, move |inner| inner.read_sparse(&via, offset, budget, buffer))
    }

    fn will_need(&self, via: Via, offset: u64, length: u64) -> BoxFuture<'_, Told<bool>> {
        self.run(&via.caller.clone(), Lane::Data, move |inner| inner.will_need(&via, offset, length))
    }

    fn allocate(&self, via: Via, offset: u64, length: u64) -> BoxFuture<'_, Changed<Change>> {
        let file = via.file();
        self.change_one(&via.caller.clone(), file, move |inner| inner.allocate(&via, offset, length))
    }

    fn deallocate(&self, via: Via, offset: u64, length: u64) -> BoxFuture<'_, Changed<Change>> {
        let file = via.file();
        self.change_one(&via.caller.clone(), file, move |inner| inner.deallocate(&via, offset, length))
    }

    fn clone_range(&self, from: Via, to: Via, span: Span) -> BoxFuture<'_, Changed<Change>> {
        let file = to.file();
        self.run_in_turn(&to.caller.clone(), file, move |inner| match inner.clone_range(&from, &to, &span) {
            // The server always waits for the disk here: clients cannot commit a clone, and its reply has no verifier
            // that would show a loss.
            Ok(changed) => {
                Step::Then(Box::new(move |inner| Answers::Stable.after(inner, &[file], changed, |changed| changed)))
            }
            failed => Step::Done(failed),
        })
    }

    fn copy(&self, from: Via, to: Via, span: Span) -> BoxFuture<'_, Changed<Copied>> {
        self.run_in_turn(&to.caller.clone(), to.file(), move |inner| match inner.copy(&from, &to, &span) {
            Ok((copied, target)) if copied.committed != Stability::Unstable => {
                Step::Then(Box::new(move |inner| inner.copy_through(copied, &target)))
            }
            done => Step::Done(done.map(|(copied, _)| copied)),
        })
    }

    fn usage(&self, caller: Caller) -> BoxFuture<'_, Result<Usage, Fault>> {
        self.look(&caller, |inner| {
            let space = fstatvfs(&inner.root_fd).map_err(attributes::fault)?;
            let octets = |blocks: u64| blocks.saturating_mul(space.f_frsize);
            let available_bytes = octets(space.f_bavail);
            let usage = Usage::new((octets(space.f_blocks), octets(space.f_bfree)), (space.f_files, space.f_ffree));
            Ok(Usage { available_bytes, ..usage })
        })
    }
}

#[cfg(test)]
mod tests;
