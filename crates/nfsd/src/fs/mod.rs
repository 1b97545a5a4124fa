//! The file system trait, which everything that can be served implements.
//!
//! [`FileId`]s identify objects. The file system makes them, and they stay valid across a restart for as long as the
//! object exists. Results carry attributes if they cost nothing extra. A read gets its buffer and gives it back;
//! written data is shared. A file system checks the caller's rights itself. It knows no protocol: an error is a
//! [`Fault`], with the information that it can still return, and each protocol has a status for each fault.

mod fault;
mod id;
mod lease;
mod listing;
mod open;
mod rights;
mod space;
mod told;
mod workers;
mod xattr;

pub use fault::{Changed, Failure, Fault, Told, failed};
pub use id::{FileId, MAX_FILE_ID_BYTES};
pub use lease::{Broken, HostLease};
pub use listing::{Listing, ListingBudget, ListingEntry};
pub use open::{Access, OpenFile, Via};
pub use rights::Rights;
pub use space::{Content, Copied, Piece, PieceBudget, Sought, Span, SparseData};
pub use told::{CreateHow, Features, Found, Linked, Made, New, NodeKind, ReadData, Reading, Renamed, Usage, Written};
pub(crate) use workers::InPlace;
pub use workers::Workers;
pub use xattr::{MAX_XATTR_BYTES, SetXattr, XattrNames};

use crate::{
    Caller,
    claims::{HostLocks, Kind},
};
use bytes::Bytes;
use open::Plain;
use rpcrdma_env::{BoxFuture, Buffer};
use rpcrdma_nfs::attr::{Acls, Attributes, Change, FileType, NewAttributes, Stability, Time};
use rpcrdma_oncrpc::Arrival;
use std::{future::ready, path::PathBuf, sync::Arc};

/// The bits of a mode that an access control list has, too.
const PERMISSIONS: u32 = 0o777;

/// A file system that can be served.
///
/// A read-only file system needs [`root`](Self::root), [`id`](Self::id), [`attributes`](Self::attributes),
/// [`lookup`](Self::lookup), [`read`](Self::read) and [`list`](Self::list); the methods that change something fail with
/// [`Fault::ReadOnly`] unless they are implemented. The example `serve_map` of the crate `rpcrdma` serves a map from
/// names to texts in this way.
pub trait FileSystem: Send + Sync {
    /// Its root directory.
    fn root(&self) -> FileId;

    /// Identifies the file system; the same after a restart.
    fn id(&self) -> u64;

    /// The attributes of a file. Every caller may see them: the caller decides only in whose turn the work is done.
    fn attributes(&self, caller: Caller, file: FileId) -> BoxFuture<'_, Result<Attributes, Fault>>;

    /// The file of a name, which may also be `.` or `..`; the root is its own parent. The file system checks that the
    /// caller may search the directory.
    fn lookup(&self, caller: Caller, directory: FileId, name: Bytes) -> BoxFuture<'_, Told<Found>>;

    /// Reads at most `count` bytes from `offset` into `buffer`, which has room for them.
    ///
    /// Nobody else checks the caller's rights: unless `via` has an [open file](Via::opened), the file system does, for
    /// instance by [`access`](Self::access) with [`Rights::READ`]. A file system in which everybody may read
    /// everything needs no check.
    fn read(&self, via: Via, offset: u64, count: usize, buffer: Buffer) -> BoxFuture<'_, Told<ReadData>>;

    /// Reads from several files in order, each as [`read`](Self::read) does. If there are fewer results than reads, the
    /// remaining reads were not done.
    fn read_each(&self, reads: Vec<Reading>) -> BoxFuture<'_, Vec<Told<ReadData>>> {
        Box::pin(async move {
            let mut done = Vec::with_capacity(reads.len());
            for Reading { via, offset, count, buffer } in reads {
                done.push(self.read(via, offset, count, buffer).await);
            }
            done
        })
    }

    /// Entries after `cookie` (0: from the beginning), including `.` and `..`, as many as `budget` has room for. The
    /// file system checks that the caller may read the directory.
    fn list(
        &self,
        caller: Caller,
        directory: FileId,
        cookie: u64,
        verifier: [u8; 8],
        budget: ListingBudget,
    ) -> BoxFuture<'_, Told<Listing>>;

    /// What the file system can do.
    fn features(&self) -> Features {
        Features::default()
    }

    /// The path of a file on this machine, for the log alone, if it is known without waiting. The root's path is the
    /// path of the served directory.
    fn path(&self, file: FileId) -> Option<PathBuf> {
        let _ = file;
        None
    }

    /// Attributes, if they are available without waiting: [`attributes`](Self::attributes) without the cost of a
    /// future. With the size, a read needs no memory for bytes beyond the end.
    ///
    /// They may be those that were found for another call with the same `arrival`, unless the file has been changed
    /// through this server since. With `None` they are those of this moment.
    fn attributes_at_once(&self, file: FileId, arrival: Option<Arrival>) -> Option<Result<Attributes, Fault>> {
        let _ = (file, arrival);
        None
    }

    /// [`read`](Self::read) of bytes that are in memory, without the cost of a future. Otherwise the buffer comes
    /// back.
    ///
    /// # Errors
    /// The buffer, if the read may have to wait or may fail: then call `read`.
    fn read_at_once(&self, via: &Via, offset: u64, count: usize, buffer: Buffer) -> Result<ReadData, Buffer> {
        let _ = (via, offset, count);
        Err(buffer)
    }

    /// How often uncommitted data may have been lost since the file system was opened. The write verifier of all its
    /// files changes with this number; so the number has to change before the server answers a call that has seen a
    /// loss.
    fn losses(&self) -> u64 {
        0
    }

    /// Does the periodic work, until the file system is dropped. A program that serves it polls this.
    fn upkeep(&self) -> BoxFuture<'static, ()> {
        Box::pin(ready(()))
    }

    /// How much of its space is used.
    fn usage(&self, caller: Caller) -> BoxFuture<'_, Result<Usage, Fault>> {
        let _ = caller;
        Box::pin(ready(Ok(Usage::default())))
    }

    /// Which of these rights the caller has. The default follows the permission bits.
    fn access(
        &self,
        caller: Caller,
        file: FileId,
        rights: Rights,
    ) -> BoxFuture<'_, Told<(Rights, Option<Attributes>)>> {
        Box::pin(async move {
            let attributes = self.attributes(caller.clone(), file).await.map_err(failed)?;
            Ok((Rights::of_mode(&attributes, &caller) & rights, Some(attributes)))
        })
    }

    /// What a symbolic link points to.
    fn read_link(&self, caller: Caller, link: FileId) -> BoxFuture<'_, Told<(Bytes, Option<Attributes>)>> {
        let _ = (caller, link);
        Box::pin(ready(Err(failed(Fault::Invalid))))
    }

    /// Opens a regular file, if its mode lets the caller do what `access` says. The mode binds the owner too, as a
    /// program expects that opens its own file. A file system without open files of its own checks the rights, and
    /// keeps nothing.
    fn open(&self, caller: Caller, file: FileId, access: Access) -> BoxFuture<'_, Told<Arc<dyn OpenFile>>> {
        Box::pin(async move {
            let mut wanted = Rights::NONE;
            if access.reads() {
                wanted |= Rights::READ;
            }
            if access.writes() {
                wanted |= Rights::MODIFY;
            }
            let (granted, attributes) = self.access(caller, file, wanted).await?;
            let fault = match attributes.as_ref().map_or(FileType::Regular, |attributes| attributes.file_type) {
                FileType::Regular if granted.contains(wanted) => {
                    let open: Arc<dyn OpenFile> = Arc::new(Plain { file, access });
                    return Ok(open);
                }
                FileType::Regular => Fault::Denied,
                FileType::Directory => Fault::IsDirectory,
                FileType::Symlink => Fault::IsSymlink,
                _ => Fault::IsSpecial,
            };
            Err(Failure { fault, info: attributes })
        })
    }

    /// Opens a regular file for a caller that has just made it, or had it open before the server started: an owner may
    /// do so whatever the mode says now. The default is [`open`](Self::open).
    fn open_as_owner(&self, caller: Caller, file: FileId, access: Access) -> BoxFuture<'_, Told<Arc<dyn OpenFile>>> {
        self.open(caller, file, access)
    }

    /// The host's locks on a file that is open here, if programs of the host can lock it too. May sleep.
    fn host_locks(&self, open: &Arc<dyn OpenFile>) -> Option<Arc<dyn HostLocks>> {
        let _ = open;
        None
    }

    /// Keeps programs of the host away from a file that is about to be delegated to a client: for reading
    /// ([`Kind::Read`]) they cannot change it, for writing they cannot open it. If a program tries, the file system
    /// calls `broken`, and the program waits until the lease is dropped. May sleep. A file system that only this server
    /// can reach returns [`HostLease::needless`].
    ///
    /// # Errors
    /// If it cannot keep programs away, or a program uses the file now: then the server does not delegate it.
    fn host_lease(&self, open: &Arc<dyn OpenFile>, kind: Kind, broken: Broken) -> Result<HostLease, Fault> {
        let _ = (open, kind, broken);
        Err(Fault::Unsupported)
    }

    /// Sets attributes; if `guard` is given, only if the file's `changed` is equal to it.
    fn set_attributes(&self, via: Via, new: NewAttributes, guard: Option<Time>) -> BoxFuture<'_, Changed<Change>> {
        let _ = (via, new, guard);
        read_only()
    }

    /// The access control lists. Every caller may see them. The default makes them from the mode.
    fn acl(&self, caller: Caller, file: FileId) -> BoxFuture<'_, Result<Acls, Fault>> {
        Box::pin(async move { self.attributes(caller, file).await.map(|attributes| Acls::of_mode(attributes.mode)) })
    }

    /// Sets the access control lists, and with them the nine permission bits. For a directory it sets both lists:
    /// without a default list in `acls`, the directory loses its own. A file system that does not implement this fails
    /// with [`Fault::Unsupported`] if the lists say more than a mode can.
    fn set_acl(&self, caller: Caller, file: FileId, acls: Acls) -> BoxFuture<'_, Changed<Change>> {
        Box::pin(async move {
            if !acls.is_mode() {
                return Err(failed(Fault::Unsupported));
            }
            let old = self.attributes(caller.clone(), file).await.map_err(failed)?;
            let mode = Some(old.mode & !PERMISSIONS | acls.access.mode());
            self.set_attributes(Via::caller(caller, file), NewAttributes { mode, ..NewAttributes::default() }, None)
                .await
        })
    }

    /// The value of an extended attribute in the user namespace.
    fn xattr(&self, caller: Caller, file: FileId, name: Bytes) -> BoxFuture<'_, Result<Bytes, Fault>> {
        let _ = (caller, file, name);
        Box::pin(ready(Err(Fault::Unsupported)))
    }

    /// The names of a file's extended attributes after `cookie` (0: from the first), as many as `budget` has room for.
    fn list_xattrs(
        &self,
        caller: Caller,
        file: FileId,
        cookie: u64,
        budget: ListingBudget,
    ) -> BoxFuture<'_, Result<XattrNames, Fault>> {
        let _ = (caller, file, cookie, budget);
        Box::pin(ready(Err(Fault::Unsupported)))
    }

    /// Sets an extended attribute.
    fn set_xattr(
        &self,
        caller: Caller,
        file: FileId,
        name: Bytes,
        value: Bytes,
        how: SetXattr,
    ) -> BoxFuture<'_, Changed<Change>> {
        let _ = (caller, file, name, value, how);
        Box::pin(ready(Err(failed(Fault::Unsupported))))
    }

    /// Removes an extended attribute.
    fn remove_xattr(&self, caller: Caller, file: FileId, name: Bytes) -> BoxFuture<'_, Changed<Change>> {
        let _ = (caller, file, name);
        Box::pin(ready(Err(failed(Fault::Unsupported))))
    }

    /// Writes, at least as durably as `stability` says.
    fn write(&self, via: Via, offset: u64, data: Bytes, stability: Stability) -> BoxFuture<'_, Changed<Written>> {
        let _ = (via, offset, data, stability);
        read_only()
    }

    /// Makes what was written durable; a `count` of 0 means up to the end.
    fn commit(&self, via: Via, offset: u64, count: u32) -> BoxFuture<'_, Changed<Change>> {
        let _ = (via, offset, count);
        read_only()
    }

    /// Makes a file.
    fn make(&self, caller: Caller, directory: FileId, name: Bytes, new: New) -> BoxFuture<'_, Changed<Made>> {
        let _ = (caller, directory, name, new);
        read_only()
    }

    /// Removes a name: of an empty directory if `is_directory`, else of any other file.
    fn remove(
        &self,
        caller: Caller,
        directory: FileId,
        name: Bytes,
        is_directory: bool,
    ) -> BoxFuture<'_, Changed<Change>> {
        let _ = (caller, directory, name, is_directory);
        read_only()
    }

    /// Renames; an existing file with the new name is replaced.
    fn rename(
        &self,
        caller: Caller,
        from: (FileId, Bytes),
        to: (FileId, Bytes),
    ) -> BoxFuture<'_, Result<Renamed, Failure<Renamed>>> {
        let _ = (caller, from, to);
        read_only()
    }

    /// Gives a file a further name.
    fn link(
        &self,
        caller: Caller,
        file: FileId,
        directory: FileId,
        name: Bytes,
    ) -> BoxFuture<'_, Result<Linked, Failure<Linked>>> {
        let _ = (caller, file, directory, name);
        read_only()
    }

    /// Where the next data or hole of a regular file is, from `offset` on. [`Fault::NoDevice`] if `offset` is at the
    /// end of the file or beyond.
    fn seek(&self, via: Via, offset: u64, what: Content) -> BoxFuture<'_, Told<Sought>> {
        let _ = (via, offset, what);
        unsupported()
    }

    /// Reads data and holes from `offset`, as much as `budget` has room for; the data goes into `buffer`, one piece
    /// behind the other. The default sees a file as all data.
    fn read_sparse(
        &self,
        via: Via,
        offset: u64,
        budget: PieceBudget,
        buffer: Buffer,
    ) -> BoxFuture<'_, Told<SparseData>> {
        Box::pin(async move {
            let read = self.read(via, offset, budget.data(), buffer).await?;
            Ok(SparseData::of(read, offset))
        })
    }

    /// A client will soon read this many bytes from `offset` (0: up to the end). Returns whether the file system
    /// prepares for that.
    fn will_need(&self, via: Via, offset: u64, length: u64) -> BoxFuture<'_, Told<bool>> {
        let _ = (via, offset, length);
        Box::pin(ready(Ok(false)))
    }

    /// Reserves space for a range, so that later writes to it cannot fail for lack of space. If the file is shorter, it
    /// grows to the end of the range.
    fn allocate(&self, via: Via, offset: u64, length: u64) -> BoxFuture<'_, Changed<Change>> {
        let _ = (via, offset, length);
        unsupported()
    }

    /// Frees the space of a range as far as possible: the range then reads as zeroes. The size stays.
    fn deallocate(&self, via: Via, offset: u64, length: u64) -> BoxFuture<'_, Changed<Change>> {
        let _ = (via, offset, length);
        unsupported()
    }

    /// Makes a range of `to` share the blocks of a range of `from`, in one step and durably. Both begin at a multiple
    /// of [`Features::clone_bytes`]; the length is a multiple of it, too, unless the range goes up to the end of the
    /// source. A length of 0 means up to that end. The source may belong to another file system if it is open;
    /// [`Fault::OtherFileSystem`] if that is not possible.
    fn clone_range(&self, from: Via, to: Via, span: Span) -> BoxFuture<'_, Changed<Change>> {
        let _ = (from, to, span);
        unsupported()
    }

    /// Copies the first bytes of a range from one file to another, not durably. It copies about as much data as one
    /// write may have, and stops after many holes, too, so that other work does not wait long. The source may belong to
    /// another file system if it is open.
    fn copy(&self, from: Via, to: Via, span: Span) -> BoxFuture<'_, Changed<Copied>> {
        let _ = (from, to, span);
        unsupported()
    }
}

/// The answer of a file system that does not support an operation.
fn unsupported<T: Send + 'static, F: Default + Send + 'static>() -> BoxFuture<'static, Result<T, Failure<F>>> {
    Box::pin(ready(Err(failed(Fault::Unsupported))))
}

/// The answer of a file system that cannot be changed.
fn read_only<T: Send + 'static, F: Default + Send + 'static>() -> BoxFuture<'static, Result<T, Failure<F>>> {
    Box::pin(ready(Err(failed(Fault::ReadOnly))))
}
