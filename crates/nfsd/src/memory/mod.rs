//! A file system in memory: for tests, for trials, and as proof that the trait needs no disk.
//!
//! One lock covers all files, and is never held across an await. The contents are gone when the file system is dropped;
//! handles of an earlier one are stale, because its id is random.

mod acls;
mod data;
mod make;
mod names;
mod pages;
mod space;
mod tree;
mod xattrs;

use crate::{
    Access, Broken, Caller, Changed, Content, Copied, Failure, Fault, Features, FileId, FileSystem, Found, HostLease,
    Linked, Listing, ListingBudget, ListingEntry, Made, New, OpenFile, PieceBudget, ReadData, Renamed, Rights,
    SetXattr, Sought, Span, SparseData, Told, Usage, Via, Written, XattrNames, claims::Kind, failed,
};
use bytes::Bytes;
use data::{is_open, may_read, may_write};
use pages::PAGE_BYTES;
use rpcrdma_env::{BoxFuture, Buffer, Clock, Env};
use rpcrdma_nfs::attr::{Acls, Attributes, Change, FileType, NewAttributes, Stability, Time};
use rpcrdma_oncrpc::Arrival;
use std::{
    future::ready,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use tree::{Body, DOT_COOKIES, EXECUTE, Node, READ, ROOT, Tree, WRITE, file_id};

/// The largest file, in bytes.
const MAX_FILE_BYTES: u64 = i64::MAX as u64;
/// The longest name, in bytes.
const MAX_NAME_BYTES: u32 = 255;
/// The most files.
const MAX_FILES: u64 = 1 << 20;

/// A file system in memory.
pub struct MemoryFs {
    tree: Arc<Mutex<Tree>>,
    clock: Arc<dyn Clock>,
    id: u64,
}

impl MemoryFs {
    /// An empty file system whose files may use up to `max_bytes`. Its root belongs to the superuser, with mode 755.
    pub fn new(max_bytes: u64, env: &Env) -> Self {
        let id = env.random.next_u64();
        let tree = Tree::new(id, max_bytes, env.clock.unix_time().into());
        Self { tree: Arc::new(Mutex::new(tree)), clock: env.clock.clone(), id }
    }

    /// The same with modes alone, as on a file system without access control lists.
    #[must_use]
    pub fn without_acls(self) -> Self {
        self.lock().has_acls = false;
        self
    }

    /// The same with these permissions on its root: with 777 every caller may make files there.
    #[must_use]
    pub fn with_root_mode(self, mode: u32) -> Self {
        if let Ok(root) = self.lock().node_mut(ROOT) {
            root.mode = mode;
        }
        self
    }

    fn lock(&self) -> MutexGuard<'_, Tree> {
        lock(&self.tree)
    }

    fn now(&self) -> Time {
        self.clock.unix_time().into()
    }

    /// Does something to one object and returns its attributes from before and after.
    fn change<T>(
        &self,
        file: FileId,
        change: impl FnOnce(&mut Tree, u64) -> Result<T, Fault>,
    ) -> Result<(T, Change), Failure<Change>> {
        let mut tree = self.lock();
        let number = tree.number(file).map_err(failed)?;
        let before = tree.weak(number);
        match change(&mut tree, number) {
            Ok(value) => Ok((value, tree.since(before, number))),
            Err(fault) => Err(Failure { fault, info: tree.since(before, number) }),
        }
    }

    /// Looks at one object and returns its attributes on failure.
    fn look<T>(&self, file: FileId, look: impl FnOnce(&mut Tree, u64) -> Result<T, Fault>) -> Told<T> {
        let mut tree = self.lock();
        let number = tree.number(file).map_err(failed)?;
        look(&mut tree, number).map_err(|fault| Failure { fault, info: tree.attributes(number) })
    }

    fn open_if(&self, file: FileId, access: Access, may: impl FnOnce(&Node) -> bool) -> Told<Arc<dyn OpenFile>> {
        self.look(file, |tree, number| {
            let node = tree.node(number)?;
            match &node.body {
                Body::File(..) => {}
                Body::Directory(_) => return Err(Fault::IsDirectory),
                Body::Symlink(_) => return Err(Fault::IsSymlink),
                Body::Special(..) => return Err(Fault::IsSpecial),
            }
            if !may(node) {
                return Err(Fault::Denied);
            }
            tree.open(number)?;
            let open: Arc<dyn OpenFile> = Arc::new(Open { tree: self.tree.clone(), number, access });
            Ok(open)
        })
    }
}

fn lock(tree: &Mutex<Tree>) -> MutexGuard<'_, Tree> {
    tree.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A file that is open.
struct Open {
    tree: Arc<Mutex<Tree>>,
    number: u64,
    access: Access,
}

impl OpenFile for Open {
    fn file(&self) -> FileId {
        file_id(self.number)
    }

    fn access(&self) -> Access {
        self.access
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        lock(&self.tree).close(self.number);
    }
}

impl FileSystem for MemoryFs {
    fn root(&self) -> FileId {
        file_id(ROOT)
    }

    fn id(&self) -> u64 {
        self.id
    }

    fn features(&self) -> Features {
        Features {
            max_file_bytes: MAX_FILE_BYTES,
            max_links: tree::MAX_LINKS,
            max_name_bytes: MAX_NAME_BYTES,
            clone_bytes: Some(PAGE_BYTES as u32),
            acls: self.lock().has_acls,
            xattrs: true,
            ..Features::default()
        }
    }

    fn attributes_at_once(&self, file: FileId, _: Option<Arrival>) -> Option<Result<Attributes, Fault>> {
        let tree = self.lock();
        Some(tree.number(file).and_then(|number| tree.attributes(number).ok_or(Fault::Stale)))
    }

    fn attributes(&self, _: Caller, file: FileId) -> BoxFuture<'_, Result<Attributes, Fault>> {
        Box::pin(ready(self.attributes_at_once(file, None).unwrap_or(Err(Fault::Stale))))
    }

    fn host_lease(&self, _: &Arc<dyn OpenFile>, _: Kind, _: Broken) -> Result<HostLease, Fault> {
        Ok(HostLease::needless())
    }

    fn set_attributes(&self, via: Via, new: NewAttributes, guard: Option<Time>) -> BoxFuture<'_, Changed<Change>> {
        let now = self.now();
        let changed = self.change(via.file(), |tree, number| {
            if guard.is_some_and(|guard| tree.weak(number).is_none_or(|weak| weak.changed != guard)) {
                return Err(Fault::Changed);
            }
            tree.set(&via.caller, number, &new, now, is_open(&via, Access::writes))
        });
        Box::pin(ready(changed.map(|((), file)| file)))
    }

    fn acl(&self, _: Caller, file: FileId) -> BoxFuture<'_, Result<Acls, Fault>> {
        let acls = self.look(file, |tree, number| tree.acl(number));
        Box::pin(ready(acls.map_err(|failed| failed.fault)))
    }

    fn set_acl(&self, caller: Caller, file: FileId, acls: Acls) -> BoxFuture<'_, Changed<Change>> {
        let now = self.now();
        let changed = self.change(file, |tree, number| tree.set_acl(&caller, number, acls, now));
        Box::pin(ready(changed.map(|((), file)| file)))
    }

    fn xattr(&self, caller: Caller, file: FileId, name: Bytes) -> BoxFuture<'_, Result<Bytes, Fault>> {
        let value = self.look(file, |tree, number| tree.xattr(&caller, number, &name));
        Box::pin(ready(value.map_err(|failed| failed.fault)))
    }

    fn list_xattrs(
        &self,
        caller: Caller,
        file: FileId,
        cookie: u64,
        budget: ListingBudget,
    ) -> BoxFuture<'_, Result<XattrNames, Fault>> {
        let names = self.look(file, |tree, number| tree.list_xattrs(&caller, number, cookie, budget));
        Box::pin(ready(names.map_err(|failed| failed.fault)))
    }

    fn set_xattr(
        &self,
        caller: Caller,
        file: FileId,
        name: Bytes,
        value: Bytes,
        how: SetXattr,
    ) -> BoxFuture<'_, Changed<Change>> {
        let now = self.now();
        let changed = self.change(file, |tree, number| tree.set_xattr(&caller, number, (name, value), how, now));
        Box::pin(ready(changed.map(|((), file)| file)))
    }

    fn remove_xattr(&self, caller: Caller, file: FileId, name: Bytes) -> BoxFuture<'_, Changed<Change>> {
        let now = self.now();
        let changed = self.change(file, |tree, number| tree.remove_xattr(&caller, number, &name, now));
        Box::pin(ready(changed.map(|((), file)| file)))
    }

    fn lookup(&self, caller: Caller, directory: FileId, name: Bytes) -> BoxFuture<'_, Told<Found>> {
        Box::pin(ready(self.look(directory, |tree, directory| {
            tree.names(directory)?;
            tree.check(&caller, directory, EXECUTE)?;
            let number = tree.find(directory, &name)?;
            let attributes = tree.attributes(number);
            Ok(Found::new(file_id(number), attributes, tree.attributes(directory)))
        })))
    }

    fn access(
        &self,
        caller: Caller,
        file: FileId,
        rights: Rights,
    ) -> BoxFuture<'_, Told<(Rights, Option<Attributes>)>> {
        Box::pin(ready(self.look(file, |tree, number| {
            let node = tree.node(number)?;
            let directory = node.file_type() == FileType::Directory;
            let mut granted = Rights::NONE;
            for (right, bit) in [
                (Rights::READ, READ),
                (Rights::LOOKUP, EXECUTE),
                (Rights::MODIFY, WRITE),
                (Rights::EXTEND, WRITE),
                (Rights::DELETE, WRITE),
                (Rights::EXECUTE, EXECUTE),
            ] {
                let applies = match right {
                    Rights::LOOKUP | Rights::DELETE => directory,
                    Rights::EXECUTE => !directory,
                    _ => true,
                };
                if applies && node.allows(&caller, bit) {
                    granted |= right;
                }
            }
            Ok((granted & rights, tree.attributes(number)))
        })))
    }

    fn read_link(&self, _: Caller, link: FileId) -> BoxFuture<'_, Told<(Bytes, Option<Attributes>)>> {
        Box::pin(ready(self.look(link, |tree, number| match &tree.node(number)?.body {
            Body::Symlink(path) => Ok((path.clone(), tree.attributes(number))),
            _ => Err(Fault::Invalid),
        })))
    }

    fn open(&self, caller: Caller, file: FileId, access: Access) -> BoxFuture<'_, Told<Arc<dyn OpenFile>>> {
        let may = |node: &Node| {
            let reads = node.allows(&caller, READ) || node.allows(&caller, EXECUTE);
            (!access.reads() || reads) && (!access.writes() || node.allows(&caller, WRITE))
        };
        Box::pin(ready(self.open_if(file, access, may)))
    }

    fn open_as_owner(&self, caller: Caller, file: FileId, access: Access) -> BoxFuture<'_, Told<Arc<dyn OpenFile>>> {
        let may = |node: &Node| {
            (!access.reads() || may_read(node, &caller)) && (!access.writes() || may_write(node, &caller))
        };
        Box::pin(ready(self.open_if(file, access, may)))
    }

    fn read_at_once(&self, via: &Via, offset: u64, count: usize, mut buffer: Buffer) -> Result<ReadData, Buffer> {
        match self.read_into(via, offset, count, &mut buffer) {
            Ok((end, attributes)) => Ok(ReadData::new(buffer, end, attributes)),
            Err(_) => Err(buffer),
        }
    }

    fn read(&self, via: Via, offset: u64, count: usize, buffer: Buffer) -> BoxFuture<'_, Told<ReadData>> {
        Box::pin(ready(self.read_now(&via, offset, count, buffer)))
    }

    fn write(&self, via: Via, offset: u64, data: Bytes, _: Stability) -> BoxFuture<'_, Changed<Written>> {
        Box::pin(ready(self.write_now(&via, offset, &data)))
    }

    fn commit(&self, via: Via, _: u64, _: u32) -> BoxFuture<'_, Changed<Change>> {
        let changed = self.change(via.file(), |tree, number| match tree.node(number)?.body {
            Body::File(..) => Ok(()),
            _ => Err(Fault::Invalid),
        });
        Box::pin(ready(changed.map(|((), file)| file)))
    }

    fn make(&self, caller: Caller, directory: FileId, name: Bytes, new: New) -> BoxFuture<'_, Changed<Made>> {
        Box::pin(ready(self.make_now(&caller, directory, name, new)))
    }

    fn remove(
        &self,
        caller: Caller,
        directory: FileId,
        name: Bytes,
        is_directory: bool,
    ) -> BoxFuture<'_, Changed<Change>> {
        Box::pin(ready(self.remove_now(&caller, directory, &name, is_directory)))
    }

    fn rename(
        &self,
        caller: Caller,
        from: (FileId, Bytes),
        to: (FileId, Bytes),
    ) -> BoxFuture<'_, Result<Renamed, Failure<Renamed>>> {
        Box::pin(ready(self.rename_now(&caller, from, to)))
    }

    fn link(
        &self,
        caller: Caller,
        file: FileId,
        directory: FileId,
        name: Bytes,
    ) -> BoxFuture<'_, Result<Linked, Failure<Linked>>> {
        Box::pin(ready(self.link_now(&caller, file, directory, name)))
    }

    fn list(
        &self,
        caller: Caller,
        directory: FileId,
        cookie: u64,
        _: [u8; 8],
        mut budget: ListingBudget,
    ) -> BoxFuture<'_, Told<Listing>> {
        Box::pin(ready(self.look(directory, |tree, directory| {
            let names = tree.names(directory)?;
            tree.check(&caller, directory, READ)?;
            let [dot, dot_dot] = DOT_COOKIES;
            let dots = [(dot, &b"."[..], directory), (dot_dot, b"..", names.parent)]
                .map(|(cookie, name, node)| (cookie, Bytes::from_static(name), node));
            let others = names
                .by_cookie
                .range(cookie.max(dot_dot).saturating_add(1)..)
                .filter_map(|(cookie, name)| names.by_name.get(name).map(|place| (*cookie, name.clone(), place.node)));
            let mut entries = Vec::new();
            let mut end = true;
            for (cookie, name, node) in dots.into_iter().filter(|dot| dot.0 > cookie).chain(others) {
                if !budget.take(name.len()) {
                    end = false;
                    break;
                }
                let attributes = if budget.wants_attributes() { tree.attributes(node) } else { None };
                let file = attributes.map(|attributes| (file_id(node), attributes));
                entries.push(ListingEntry::new(node, name, cookie).with_file(file));
            }
            Ok(Listing::new(entries, end).with_attributes(tree.attributes(directory)))
        })))
    }

    fn seek(&self, via: Via, offset: u64, what: Content) -> BoxFuture<'_, Told<Sought>> {
        Box::pin(ready(self.seek_now(&via, offset, what)))
    }

    fn read_sparse(
        &self,
        via: Via,
        offset: u64,
        budget: PieceBudget,
        buffer: Buffer,
    ) -> BoxFuture<'_, Told<SparseData>> {
        Box::pin(ready(self.read_sparse_now(&via, offset, budget, buffer)))
    }

    fn allocate(&self, via: Via, offset: u64, length: u64) -> BoxFuture<'_, Changed<Change>> {
        Box::pin(ready(self.allocate_now(&via, offset, length)))
    }

    fn deallocate(&self, via: Via, offset: u64, length: u64) -> BoxFuture<'_, Changed<Change>> {
        Box::pin(ready(self.deallocate_now(&via, offset, length)))
    }

    fn clone_range(&self, from: Via, to: Via, span: Span) -> BoxFuture<'_, Changed<Change>> {
        Box::pin(ready(self.clone_now(&from, &to, &span)))
    }

    fn copy(&self, from: Via, to: Via, span: Span) -> BoxFuture<'_, Changed<Copied>> {
        Box::pin(ready(self.copy_now(&from, &to, &span)))
    }

    fn usage(&self, _: Caller) -> BoxFuture<'_, Result<Usage, Fault>> {
        let tree = self.lock();
        let free = (tree.max_pages - tree.pages) * PAGE_BYTES as u64;
        let octets = (tree.max_pages * PAGE_BYTES as u64, free);
        Box::pin(ready(Ok(Usage::new(octets, (MAX_FILES, MAX_FILES.saturating_sub(tree.count()))))))
    }
}
