//! A directory of the host as a file system.
//!
//! Every file is reached from the directory's own descriptor or by a handle of the kernel's, never by a path that a
//! client sends: names are resolved one at a time beneath the directory, without following links and without crossing
//! mounts; a mount point below shows as an empty directory. A directory that was moved out is stale. (A *file* that the
//! host's owner moves out of the served directory can still be read by a client that holds its handle, as by a process
//! that has it open.)
//!
//! Jobs run on the program's threads in the order that the [`Queue`] says, as the caller where the server is
//! the superuser. Attributes and cached data of files that are open already are told at once on the caller's thread.
//! Descriptors belong to the [`Cache`], and those of files with uncommitted data to [`Uncommitted`]; errors are the
//! statuses of the kernel's error numbers.
//!
//! [`Cache`]: object::Cache

mod access;
mod attributes;
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
mod kept;
mod leases;
mod listing;
mod locks;
mod losses;
mod make;
mod object;
mod opens;
mod posix_acl;
mod resolve;
mod seldom;
mod stable;
mod sys;
mod uncommitted;
mod upkeep;
mod xattr;

use crate::{
    Access, Broken, Caller, Changed, Content, Copied, Failure, Fault, Features, FileId, FileSystem, Found, HostLease,
    Linked, Listing, ListingBudget, Made, New, OpenFile, PieceBudget, Queue, ReadData, Renamed, Rights, SetXattr,
    Sought, Span, SparseData, StateDirectory, Told, Usage, Via, Written, XattrNames,
    claims::{FileKey, HostLocks, Kind},
    failed,
    queue::{After, Job, Lane},
};
use access::Owner;
use bytes::Bytes;
use data::Write;
use hidden::Hidden;
use identity::Identity;
use ids::Ids;
use index::Index;
pub use index::IndexUse;
use kept::Kept;
use leases::Leases;
pub use locks::OfdLocks;
use losses::Losses;
use object::{Cache, Object};
use opens::Room;
pub use posix_acl::{parse as posix_acl_of_xattr, written as xattr_of_posix_acl};
use resolve::Cover;
use rpcrdma_env::{BoxFuture, Buffer, Clock, Env};
use rpcrdma_nfs::attr::{Acls, Attributes, Change, NewAttributes, Stability, Time};
use rustix::{
    fd::OwnedFd,
    fs::{self, Mode, OFlags, fstatfs, fstatvfs},
    io::Errno,
    process::{Resource, getrlimit},
};
use siphasher::sip::SipHasher24;
use stable::Answers;
use std::{
    fs::File,
    hash::Hasher,
    io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};
use tokio::sync::oneshot;
use uncommitted::Uncommitted;

/// The most files that are kept, if the process may open enough; see [`object_limit`].
const MAX_OBJECTS: u64 = 4096;
/// The most files that clients may have open; see [`open_limit`].
const MAX_OPEN_FILES: usize = 65_536;
/// The part of the files that are kept of which data may be uncommitted: one of so many.
const UNCOMMITTED_PART: usize = 4;
/// The most hard links to a file that Linux's usual file systems have: ext4's.
const MAX_LINKS: u32 = 65_000;

/// File systems whose directory positions stay valid: those of ext4, XFS, Btrfs, F2FS and ZFS, by magic number.
const STABLE_COOKIES: [u64; 5] = [0xEF53, 0x5846_5342, 0x9123_683E, 0xF2F5_2010, 0x2FC1_2FC1];
/// File systems that answer from memory what is in memory: those, tmpfs and overlayfs.
const LOCAL: [u64; 7] = [0xEF53, 0x5846_5342, 0x9123_683E, 0xF2F5_2010, 0x2FC1_2FC1, 0x0102_1994, 0x794C_7630];

/// Why a directory cannot be served.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// It is not there, no directory, or cannot be read.
    #[error("cannot serve {}", path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The kernel cannot resolve paths beneath a directory: it is older than Linux 5.6, or a sandbox forbids it.
    #[error("the system has no openat2, without which a directory cannot be served safely")]
    NoOpenat2,
    /// The index in the state directory cannot be used.
    #[error("cannot use {}", path.display())]
    Index {
        /// The index.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The directory is the state directory itself.
    #[error("{} is the state directory: nobody may be served the secret in it", path.display())]
    ServesState {
        /// The directory.
        path: PathBuf,
    },
    /// Another server serves the same directory with the same state.
    #[error("another server is serving this directory with the state in {}", path.display())]
    InUse {
        /// The state directory.
        path: PathBuf,
    },
}

/// A directory of the host.
#[derive(Clone)]
pub struct DirectoryFs {
    inner: Arc<Inner>,
    queue: Arc<Queue>,
    answers: Answers,
}

/// What became of the first part of a job.
enum Step<T, F> {
    /// All of it is done.
    Done(Result<T, Failure<F>>),
    /// The rest runs beside the file's next change.
    Then(Rest<T, F>),
}

type Rest<T, F> = Box<dyn FnOnce(&Inner) -> Result<T, Failure<F>> + Send>;

struct Inner {
    /// As it was given, for messages.
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
    max_name_octets: u32,
    /// The unit of clones, where there are any.
    clone_octets: Option<u32>,
    /// Whether there are access control lists beside modes.
    acls: bool,
    /// Whether there are extended attributes of users.
    xattrs: bool,
    cache: Cache,
    uncommitted: Uncommitted,
    /// How many files clients may have open.
    open_files: Arc<Room>,
    /// What is kept from programs of the host.
    leases: Leases,
    losses: Losses,
    /// Failures of waiting for the disk, which clients can bring about by filling it.
    sync_failures: seldom::Seldom,
    index: Mutex<Index>,
    kept: Kept,
    /// Failures to write the index, which clients can bring about by filling its disk.
    index_failures: seldom::Seldom,
    /// What was waited for, in order.
    #[cfg(test)]
    synchronised: Mutex<Vec<FileId>>,
    /// Access control lists on the disk that are none, which each look at them brings about.
    acl_failures: seldom::Seldom,
    /// Held for its lock.
    _lock: File,
}

impl DirectoryFs {
    /// Serves the directory at `path`. Acts as the callers if the calling thread is the superuser's, else as itself.
    ///
    /// # Errors
    /// If the directory or the index of its files in `state` cannot be used.
    pub fn open(path: &Path, state: &StateDirectory, queue: Arc<Queue>, env: &Env) -> Result<Self, OpenError> {
        Self::open_one_of(1, path, state, queue, env)
    }

    /// The same as one of so many directories that the program serves: they share the files that it may open evenly.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_one_of(
        directories: usize,
        path: &Path,
        state: &StateDirectory,
        queue: Arc<Queue>,
        env: &Env,
    ) -> Result<Self, OpenError> {
        let part = u64::try_from(directories).unwrap_or(u64::MAX).max(1);
        Self::open_with(path, state, queue, env, Ways { part, ..Ways::default() })
    }

    /// The user whose callers own the files here, where the server is not the superuser: they may go on with what they
    /// have open whatever mode they give it. Everybody else has the rights of the server's user, as its modes say.
    pub fn owner(&self) -> Option<u32> {
        self.inner.identity.owner()
    }

    /// Whether a removed file can be told from one that has taken its place. If not, handles of the one open the other.
    pub fn tells_files_apart(&self) -> bool {
        self.inner.ids != Ids::Number
    }

    /// The same directory, where changes of attributes and names are answered as soon as the kernel has them, and not when
    /// they are on the disk as RFC 1813 (section 4.8) asks: faster, but a crash of this host may undo the last seconds of
    /// what clients were told. What WRITE and COMMIT promise is kept either way.
    #[must_use]
    pub fn with_early_answers(mut self) -> Self {
        self.answers = Answers::Early;
        self
    }

    /// How much the index of names remembers, and what memory that takes.
    pub fn index_use(&self) -> IndexUse {
        self.inner.index().usage()
    }

    /// The same as [`open`](Self::open), where some of what the kernel offers may be left unused.
    fn open_with(
        path: &Path,
        state: &StateDirectory,
        queue: Arc<Queue>,
        env: &Env,
        ways: Ways,
    ) -> Result<Self, OpenError> {
        let directory = |source: Errno| OpenError::Directory { path: path.to_owned(), source: source.into() };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root_fd = fs::open(path, flags, Mode::empty()).map_err(directory)?;
        match resolve::open_beneath(&root_fd, c".", OFlags::PATH | OFlags::DIRECTORY) {
            Err(Errno::NOSYS | Errno::PERM) => return Err(OpenError::NoOpenat2),
            other => other.map_err(directory)?,
        };
        let root_path_fd = resolve::reopen(&root_fd, OFlags::PATH | OFlags::DIRECTORY).map_err(directory)?;
        let stat = attributes::stat(&root_fd).map_err(directory)?;
        let space = fstatvfs(&root_fd).map_err(directory)?;
        let kind = fstatfs(&root_fd).map_err(directory)?.f_type as u64;
        let device = (stat.stx_dev_major, stat.stx_dev_minor);
        let file_system = match space.f_fsid {
            0 => u64::from(device.0) << 32 | u64::from(device.1),
            id => id,
        };
        // Not the file system's alone: handles of one directory must not work in another.
        let id = hash(&[file_system, stat.stx_ino, stat.stx_btime.tv_sec as u64, stat.stx_btime.tv_nsec.into()]);
        let hidden = Hidden::open(state.path())
            .map_err(|errno| OpenError::Index { path: state.path().to_owned(), source: errno.into() })?;
        if hidden.is(&stat) {
            return Err(OpenError::ServesState { path: path.to_owned() });
        }
        let (index, lock) = index_files::open(state.path(), id)?;
        let identity = Identity::current().map_err(directory)?;
        let by_handle = ways.kernel_handles && identity.is_privileged() && resolve::has_kernel_handles(&root_fd);
        let ids = match by_handle {
            true => Ids::Kernel,
            false if ways.proofs => Ids::without_opening(&root_fd, &stat),
            false => Ids::Born,
        };
        let (acls, xattrs) = match ways.lists_and_xattrs {
            true => (posix_acl::has_acls(&root_fd), xattr::has_xattrs(&root_fd)),
            false => (false, false),
        };
        let root_id = ids.of(&root_path_fd, &stat);
        let clone_octets = copy::clone_unit(&root_fd, space.f_bsize);
        let descriptors = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX) / ways.part;
        let limit = object_limit(descriptors);
        let inner = Inner {
            path: path.to_owned(),
            clock: env.clock.clone(),
            root: Arc::new(Object::new(root_id, root_path_fd, attributes::file_type(&stat))),
            root_fd,
            root_device: device,
            root_inode: stat.stx_ino,
            id,
            identity,
            hidden,
            ids,
            stable_cookies: ways.positions && STABLE_COOKIES.contains(&kind),
            local: LOCAL.contains(&kind),
            max_name_octets: u32::try_from(space.f_namemax).unwrap_or(u32::MAX),
            clone_octets,
            acls,
            xattrs,
            cache: Cache::new(limit, env.clock.clone()),
            uncommitted: Uncommitted::new((limit / UNCOMMITTED_PART).max(1)),
            open_files: Room::new(open_limit(descriptors)),
            leases: Leases::default(),
            losses: Losses::default(),
            sync_failures: seldom::Seldom::default(),
            index: Mutex::new(index),
            kept: Kept::default(),
            index_failures: seldom::Seldom::default(),
            #[cfg(test)]
            synchronised: Mutex::default(),
            acl_failures: seldom::Seldom::default(),
            _lock: lock,
        };
        Ok(Self { inner: Arc::new(inner), queue, answers: Answers::Stable })
    }

    /// Runs a job on the program's threads. One that is dropped there fails its call.
    fn run<T: Send + 'static, F: Default + Send + 'static>(
        &self,
        caller: &Caller,
        lane: Lane,
        job: impl FnOnce(&Inner) -> Result<T, Failure<F>> + Send + 'static,
    ) -> BoxFuture<'static, Result<T, Failure<F>>> {
        self.queued(caller, lane, None, |inner| Step::Done(job(inner)))
    }

    /// Runs a job that changes something after all that change the same file and were given before.
    fn run_in_turn<T: Send + 'static, F: Default + Send + 'static>(
        &self,
        caller: &Caller,
        file: FileId,
        job: impl FnOnce(&Inner) -> Step<T, F> + Send + 'static,
    ) -> BoxFuture<'static, Result<T, Failure<F>>> {
        self.queued(caller, Lane::Data, Some(file), job)
    }

    /// The same for a change of attributes or names, which is answered when the disk has it.
    fn change<T: Send + 'static, F: Default + Send + 'static>(
        &self,
        caller: &Caller,
        file: FileId,
        change: impl FnOnce(&Inner) -> Result<T, Failure<F>> + Send + 'static,
        wait: impl FnOnce(&Inner, Answers, T) -> Result<T, Failure<F>> + Send + 'static,
    ) -> BoxFuture<'static, Result<T, Failure<F>>> {
        let answers = self.answers;
        self.run_in_turn(caller, file, move |inner| match change(inner) {
            Ok(done) if answers == Answers::Stable => Step::Then(Box::new(move |inner| wait(inner, answers, done))),
            done => Step::Done(done),
        })
    }

    fn queued<T: Send + 'static, F: Default + Send + 'static>(
        &self,
        caller: &Caller,
        lane: Lane,
        turn: Option<FileId>,
        job: impl FnOnce(&Inner) -> Step<T, F> + Send + 'static,
    ) -> BoxFuture<'static, Result<T, Failure<F>>> {
        let (sender, receiver) = oneshot::channel();
        let inner = self.inner.clone();
        let turn = turn.map(|file| FileKey { file_system: inner.id, file });
        let work = Box::new(move || match job(&inner) {
            Step::Done(result) => {
                let _ = sender.send(result);
                None
            }
            Step::Then(then) => {
                let after: After = Box::new(move || {
                    let _ = sender.send(then(&inner));
                });
                Some(after)
            }
        });
        self.queue.run(caller.origin, Job { lane, turn, work });
        Box::pin(async move { receiver.await.unwrap_or_else(|_| Err(failed(Fault::Internal))) })
    }
}

/// What is used of what the kernel offers.
#[derive(Clone, Copy, Debug)]
struct Ways {
    /// Handles that it opens files by.
    kernel_handles: bool,
    /// Handles as proof of which file it is.
    proofs: bool,
    /// Positions in directories.
    positions: bool,
    /// Access control lists and extended attributes.
    lists_and_xattrs: bool,
    /// Of the files that the process may open: one of so many.
    part: u64,
}

impl Default for Ways {
    fn default() -> Self {
        Self { kernel_handles: true, proofs: true, positions: true, lists_and_xattrs: true, part: 1 }
    }
}

/// How many files are kept if the directory may have `descriptors` files open: their descriptors, with all that callers have
/// opened, take at most half; the rest is for connections.
fn object_limit(descriptors: u64) -> usize {
    (descriptors / 2 / (1 + object::MAX_OPENED as u64)).min(MAX_OBJECTS) as usize
}

/// How many files clients may have open at a time, each for one access, if the directory may have `descriptors` files open:
/// each takes at most two, and all of them a quarter.
fn open_limit(descriptors: u64) -> usize {
    usize::try_from(descriptors / 4 / 2).unwrap_or(usize::MAX).clamp(1, MAX_OPEN_FILES)
}

fn hash(words: &[u64]) -> u64 {
    let mut hasher = SipHasher24::new_with_key(&[1; 16]);
    for word in words {
        hasher.write(&word.to_be_bytes());
    }
    hasher.finish()
}

impl FileSystem for DirectoryFs {
    fn root(&self) -> FileId {
        self.inner.root.id
    }

    fn path(&self, file: FileId) -> Option<PathBuf> {
        if file == self.inner.root.id {
            return Some(std::path::absolute(&self.inner.path).unwrap_or_else(|_| self.inner.path.clone()));
        }
        // The kernel tells it from memory; it is not looked for.
        let object = self.inner.cache.get(file)?;
        std::fs::read_link(resolve::own_path(&object.fd)).ok()
    }

    fn id(&self) -> u64 {
        self.inner.id
    }

    fn features(&self) -> Features {
        let Inner { max_name_octets, clone_octets, acls, xattrs, .. } = *self.inner;
        Features { max_links: MAX_LINKS, max_name_octets, clone_octets, acls, xattrs, ..Features::default() }
    }

    fn size_hint(&self, file: FileId) -> Option<u64> {
        self.inner.attributes_now(file).and_then(Result::ok).map(|attributes| attributes.size)
    }

    fn attributes(&self, caller: Caller, file: FileId) -> BoxFuture<'_, Result<Attributes, Fault>> {
        match self.inner.attributes_now(file) {
            Some(attributes) => Box::pin(std::future::ready(attributes)),
            None => {
                let job = self.run(&caller, Lane::Look, move |inner| inner.attributes(file).map_err(failed::<()>));
                Box::pin(async { job.await.map_err(|failure| failure.fault) })
            }
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
        self.change(
            &via.caller.clone(),
            file,
            move |inner| inner.set_attributes(&via, &new, guard),
            move |inner, answers, changed| answers.after(inner, &[file], changed, |changed| changed),
        )
    }

    fn acl(&self, caller: Caller, file: FileId) -> BoxFuture<'_, Result<Acls, Fault>> {
        let job = self.run(&caller, Lane::Look, move |inner| inner.acl(file).map_err(failed::<()>));
        Box::pin(async { job.await.map_err(|failure| failure.fault) })
    }

    fn set_acl(&self, caller: Caller, file: FileId, acls: Acls) -> BoxFuture<'_, Changed<Change>> {
        self.change(
            &caller.clone(),
            file,
            move |inner| inner.set_acl(&caller, file, &acls),
            move |inner, answers, changed| answers.after(inner, &[file], changed, |changed| changed),
        )
    }

    fn xattr(&self, caller: Caller, file: FileId, name: Bytes) -> BoxFuture<'_, Result<Bytes, Fault>> {
        let job =
            self.run(&caller.clone(), Lane::Look, move |inner| inner.xattr(&caller, file, &name).map_err(failed::<()>));
        Box::pin(async { job.await.map_err(|failure| failure.fault) })
    }

    fn list_xattrs(
        &self,
        caller: Caller,
        file: FileId,
        cookie: u64,
        budget: ListingBudget,
    ) -> BoxFuture<'_, Result<XattrNames, Fault>> {
        let job = self.run(&caller.clone(), Lane::Look, move |inner| {
            inner.list_xattrs(&caller, file, cookie, budget).map_err(failed::<()>)
        });
        Box::pin(async { job.await.map_err(|failure| failure.fault) })
    }

    fn set_xattr(
        &self,
        caller: Caller,
        file: FileId,
        name: Bytes,
        value: Bytes,
        how: SetXattr,
    ) -> BoxFuture<'_, Changed<Change>> {
        self.change(
            &caller.clone(),
            file,
            move |inner| inner.set_xattr(&caller, file, &name, &value, how),
            move |inner, answers, changed| answers.after(inner, &[file], changed, |changed| changed),
        )
    }

    fn remove_xattr(&self, caller: Caller, file: FileId, name: Bytes) -> BoxFuture<'_, Changed<Change>> {
        self.change(
            &caller.clone(),
            file,
            move |inner| inner.remove_xattr(&caller, file, &name),
            move |inner, answers, changed| answers.after(inner, &[file], changed, |changed| changed),
        )
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
        match self.inner.read_now(&via, offset, count, buffer) {
            Ok(data) => Box::pin(std::future::ready(Ok(data))),
            Err(buffer) => {
                self.run(&via.caller.clone(), Lane::Data, move |inner| inner.read(&via, offset, count, buffer))
            }
        }
    }

    fn write(&self, via: Via, offset: u64, data: Bytes, stability: Stability) -> BoxFuture<'_, Changed<Written>> {
        let write = Write { offset, data, stability };
        self.run_in_turn(&via.caller.clone(), via.file(), move |inner| match inner.write(&via, &write) {
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
        self.change(
            &caller.clone(),
            directory,
            move |inner| inner.remove(&caller, directory, &name, is_directory),
            move |inner, answers, changed| answers.after(inner, &[directory], changed, |changed| changed),
        )
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
        self.change(
            &via.caller.clone(),
            file,
            move |inner| inner.allocate(&via, offset, length),
            move |inner, answers, changed| answers.after(inner, &[file], changed, |changed| changed),
        )
    }

    fn deallocate(&self, via: Via, offset: u64, length: u64) -> BoxFuture<'_, Changed<Change>> {
        let file = via.file();
        self.change(
            &via.caller.clone(),
            file,
            move |inner| inner.deallocate(&via, offset, length),
            move |inner, answers, changed| answers.after(inner, &[file], changed, |changed| changed),
        )
    }

    fn clone_range(&self, from: Via, to: Via, span: Span) -> BoxFuture<'_, Changed<Change>> {
        let file = to.file();
        self.run_in_turn(&to.caller.clone(), file, move |inner| match inner.clone_range(&from, &to, &span) {
            // The disk is always waited for: nobody can commit it, and its answer has no verifier that would tell of a
            // loss.
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
        let job = self.run(&caller, Lane::Look, |inner| {
            let space = fstatvfs(&inner.root_fd).map_err(|error| failed::<()>(attributes::fault(error)))?;
            let octets = |blocks: u64| blocks.saturating_mul(space.f_frsize);
            let available_octets = octets(space.f_bavail);
            let usage = Usage::new((octets(space.f_blocks), octets(space.f_bfree)), (space.f_files, space.f_ffree));
            Ok(Usage { available_octets, ..usage })
        });
        Box::pin(async { job.await.map_err(|failure| failure.fault) })
    }
}

#[cfg(test)]
mod tests;
