//! A file system in memory: for tests, for trying things out, and as proof that the trait needs no disk.
//!
//! One lock over all files, never held across an await. Contents are gone when it is dropped; handles of an earlier one
//! are stale, because its id is random.

mod pages;
mod tree;

use crate::{
    Caller, Changed, Features, FileId, FileSystem, Found, Listing, ListingBudget, ListingEntry, Made, New, ReadData,
    Told, Usage, Written, failed,
};
use bytes::Bytes;
use pages::{PAGE_OCTETS, Pages};
use rpcrdma_env::{BoxFuture, Buffer, Clock, Env};
use rpcrdma_nfs::v3::{
    Attributes, CreateHow, Failure, FileType, LinkInfo, NewAttributes, NodeKind, RenameInfo, Specification, Stability,
    Status, Time, Verifier, WeakCache, access,
};
use std::{
    future::ready,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use tree::{Body, DOT_COOKIES, EXECUTE, READ, ROOT, Tree, WRITE, file_id};

/// The largest file, in octets.
const MAX_FILE_OCTETS: u64 = i64::MAX as u64;
/// The longest name, in octets.
const MAX_NAME_OCTETS: u32 = 255;
/// The most files.
const MAX_FILES: u64 = 1 << 20;

/// A file system in memory.
pub struct MemoryFs {
    tree: Mutex<Tree>,
    clock: Arc<dyn Clock>,
    id: u64,
}

impl MemoryFs {
    /// An empty one whose files may use up to `max_octets`. Its root belongs to the superuser, with mode 755.
    pub fn new(max_octets: u64, env: &Env) -> Self {
        let id = env.random.next_u64();
        let tree = Tree::new(id, max_octets, env.clock.unix_time().into());
        Self { tree: Mutex::new(tree), clock: env.clock.clone(), id }
    }

    fn lock(&self) -> MutexGuard<'_, Tree> {
        self.tree.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Time {
        self.clock.unix_time().into()
    }

    /// Does something to one object and tells its attributes from before and after.
    fn change<T>(
        &self,
        file: FileId,
        change: impl FnOnce(&mut Tree, u64) -> Result<T, Status>,
    ) -> Result<(T, WeakCache), Failure<WeakCache>> {
        let mut tree = self.lock();
        let number = tree.number(file).map_err(failed)?;
        let before = tree.weak(number);
        match change(&mut tree, number) {
            Ok(value) => Ok((value, tree.since(before, number))),
            Err(status) => Err(Failure { status, info: tree.since(before, number) }),
        }
    }

    /// Looks at one object and tells its attributes on failure.
    fn look<T>(&self, file: FileId, look: impl FnOnce(&mut Tree, u64) -> Result<T, Status>) -> Told<T> {
        let mut tree = self.lock();
        let number = tree.number(file).map_err(failed)?;
        look(&mut tree, number).map_err(|status| Failure { status, info: tree.attributes(number) })
    }

    fn create(&self, tree: &mut Tree, caller: &Caller, directory: u64, name: Bytes, new: New) -> Result<u64, Status> {
        let now = self.now();
        match (tree.find(directory, &name), &new) {
            (Err(Status::NOENT), _) => {}
            (Err(status), _) => return Err(status),
            (Ok(old), New::File(how)) => return existing(tree, caller, old, how, now),
            (Ok(_), _) => return Err(Status::EXIST),
        }
        tree.check(caller, directory, WRITE | EXECUTE)?;
        if tree.count() >= MAX_FILES {
            return Err(Status::NOSPC);
        }
        let none = NewAttributes::default();
        let (attributes, default_mode, body) = match new {
            New::File(CreateHow::Unchecked(new) | CreateHow::Guarded(new)) => {
                (new, 0o644, Body::File(Pages::default(), None))
            }
            New::File(CreateHow::Exclusive(verifier)) => (none, 0o600, Body::File(Pages::default(), Some(verifier))),
            New::Directory(new) => {
                let number = tree.new_directory(directory, 0o755, caller, now);
                return finish(tree, caller, directory, name, number, new, now);
            }
            New::Symlink(new, path) => (NewAttributes { mode: None, ..new }, 0o777, Body::Symlink(path)),
            New::Node(kind) => {
                let none = Specification::default();
                let (file_type, new, device) = match kind {
                    NodeKind::Block(new, device) => (FileType::Block, new, device),
                    NodeKind::Character(new, device) => (FileType::Character, new, device),
                    NodeKind::Socket(new) => (FileType::Socket, new, none),
                    NodeKind::Fifo(new) => (FileType::Fifo, new, none),
                    NodeKind::Other(_) => return Err(Status::BADTYPE),
                };
                if device != none && caller.uid != 0 {
                    return Err(Status::PERM);
                }
                (new, 0o644, Body::Special(file_type, device))
            }
        };
        let number = tree.add(body, default_mode, 1, caller, now);
        finish(tree, caller, directory, name, number, attributes, now)
    }
}

/// Enters a new node by its name, or forgets it if its attributes cannot be set.
fn finish(
    tree: &mut Tree,
    caller: &Caller,
    directory: u64,
    name: Bytes,
    number: u64,
    mut new: NewAttributes,
    now: Time,
) -> Result<u64, Status> {
    if caller.uid != 0 {
        // As Linux's server does: only the superuser makes files for others.
        (new.uid, new.gid) = (None, None);
    }
    if let Err(status) = tree.set(caller, number, &new, now) {
        tree.unlink(number, now)?;
        return Err(status);
    }
    tree.enter(directory, name, number, now)?;
    Ok(number)
}

/// CREATE of a name that is there.
fn existing(tree: &mut Tree, caller: &Caller, old: u64, how: &CreateHow, now: Time) -> Result<u64, Status> {
    match (how, &tree.node(old)?.body) {
        (CreateHow::Unchecked(new), Body::File(..)) => {
            let size_alone = NewAttributes { size: new.size, ..NewAttributes::default() };
            if new.size.is_some() {
                tree.set(caller, old, &size_alone, now)?;
            }
            Ok(old)
        }
        (CreateHow::Exclusive(verifier), Body::File(_, Some(made_with))) if made_with == verifier => Ok(old),
        _ => Err(Status::EXIST),
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
            max_file_octets: MAX_FILE_OCTETS,
            time_precision: Time { seconds: 0, nanoseconds: 1 },
            max_links: tree::MAX_LINKS,
            max_name_octets: MAX_NAME_OCTETS,
        }
    }

    fn size_hint(&self, file: FileId) -> Option<u64> {
        let tree = self.lock();
        let number = tree.number(file).ok()?;
        tree.attributes(number).map(|attributes| attributes.size)
    }

    fn attributes(&self, _: Caller, file: FileId) -> BoxFuture<'_, Result<Attributes, Status>> {
        let tree = self.lock();
        let attributes = tree.number(file).and_then(|number| tree.attributes(number).ok_or(Status::STALE));
        Box::pin(ready(attributes))
    }

    fn set_attributes(
        &self,
        caller: Caller,
        file: FileId,
        new: NewAttributes,
        guard: Option<Time>,
    ) -> BoxFuture<'_, Changed<WeakCache>> {
        let now = self.now();
        let changed = self.change(file, |tree, number| {
            if guard.is_some_and(|guard| tree.weak(number).is_none_or(|weak| weak.changed != guard)) {
                return Err(Status::NOT_SYNC);
            }
            tree.set(&caller, number, &new, now)
        });
        Box::pin(ready(changed.map(|((), file)| file)))
    }

    fn lookup(&self, caller: Caller, directory: FileId, name: Bytes) -> BoxFuture<'_, Told<Found>> {
        Box::pin(ready(self.look(directory, |tree, directory| {
            tree.names(directory)?;
            tree.check(&caller, directory, EXECUTE)?;
            let number = tree.find(directory, &name)?;
            let attributes = tree.attributes(number);
            Ok(Found { file: file_id(number), attributes, directory: tree.attributes(directory) })
        })))
    }

    fn access(&self, caller: Caller, file: FileId, rights: u32) -> BoxFuture<'_, Told<(u32, Option<Attributes>)>> {
        Box::pin(ready(self.look(file, |tree, number| {
            let node = tree.node(number)?;
            let directory = node.file_type() == FileType::Directory;
            let mut granted = 0;
            for (right, bit) in [
                (access::READ, READ),
                (access::LOOKUP, EXECUTE),
                (access::MODIFY, WRITE),
                (access::EXTEND, WRITE),
                (access::DELETE, WRITE),
                (access::EXECUTE, EXECUTE),
            ] {
                let applies = match right {
                    access::LOOKUP | access::DELETE => directory,
                    access::EXECUTE => !directory,
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
            _ => Err(Status::INVAL),
        })))
    }

    fn read(
        &self,
        caller: Caller,
        file: FileId,
        offset: u64,
        count: usize,
        mut buffer: Buffer,
    ) -> BoxFuture<'_, Told<ReadData>> {
        Box::pin(ready(self.look(file, |tree, number| {
            let node = tree.node(number)?;
            let pages = match &node.body {
                Body::File(pages, _) => pages,
                Body::Directory(_) => return Err(Status::ISDIR),
                _ => return Err(Status::INVAL),
            };
            if !node.allows(&caller, READ) && !node.allows(&caller, EXECUTE) && !node.is_owner(&caller) {
                return Err(Status::ACCES);
            }
            let count = count.min(buffer.capacity());
            let len = pages.read(offset, &mut buffer.octets_mut()[..count]);
            buffer.set_len(len);
            let end = offset.saturating_add(len as u64) >= pages.size();
            Ok(ReadData { buffer, end, attributes: tree.attributes(number) })
        })))
    }

    fn write(
        &self,
        caller: Caller,
        file: FileId,
        offset: u64,
        data: Bytes,
        _: Stability,
    ) -> BoxFuture<'_, Changed<Written>> {
        let now = self.now();
        let changed = self.change(file, |tree, number| {
            if offset.checked_add(data.len() as u64).is_none_or(|end| end > MAX_FILE_OCTETS) {
                return Err(Status::FBIG);
            }
            let room = tree.max_pages - tree.pages;
            let node = tree.node_mut(number)?;
            if !node.allows(&caller, WRITE) && !node.is_owner(&caller) {
                return Err(Status::ACCES);
            }
            let file_type = node.file_type();
            let Body::File(pages, _) = &mut node.body else {
                return Err(if file_type == FileType::Directory { Status::ISDIR } else { Status::INVAL });
            };
            let added = pages.missing(offset, data.len());
            if added > room {
                return Err(Status::NOSPC);
            }
            pages.write(offset, &data);
            node.touch(now);
            tree.pages += added;
            Ok(data.len())
        });
        // As durable as it will ever be.
        let written = |(count, file)| Written { count, committed: Stability::FileSync, file };
        Box::pin(ready(changed.map(written)))
    }

    fn commit(&self, _: Caller, file: FileId, _: u64, _: u32) -> BoxFuture<'_, Changed<WeakCache>> {
        let changed = self.change(file, |tree, number| match tree.node(number)?.body {
            Body::File(..) => Ok(()),
            _ => Err(Status::INVAL),
        });
        Box::pin(ready(changed.map(|((), file)| file)))
    }

    fn make(&self, caller: Caller, directory: FileId, name: Bytes, new: New) -> BoxFuture<'_, Changed<Made>> {
        let changed = self.change(directory, |tree, directory| {
            tree.names(directory)?;
            tree.check(&caller, directory, EXECUTE)?;
            let number = self.create(tree, &caller, directory, name, new)?;
            Ok((file_id(number), tree.attributes(number)))
        });
        Box::pin(ready(changed.map(|((file, attributes), directory)| Made { file, attributes, directory })))
    }

    fn remove(
        &self,
        caller: Caller,
        directory: FileId,
        name: Bytes,
        is_directory: bool,
    ) -> BoxFuture<'_, Changed<WeakCache>> {
        let now = self.now();
        let changed = self.change(directory, |tree, directory| {
            tree.names(directory)?;
            tree.check(&caller, directory, EXECUTE)?;
            let victim = tree.find(directory, &name)?;
            tree.may_unlink(&caller, directory, victim)?;
            match (&tree.node(victim)?.body, is_directory) {
                (Body::Directory(names), true) if !names.by_name.is_empty() => return Err(Status::NOTEMPTY),
                (Body::Directory(_), false) => return Err(Status::ISDIR),
                (Body::Directory(_), true) => {}
                (_, true) => return Err(Status::NOTDIR),
                (_, false) => {}
            }
            tree.leave(directory, &name, now)?;
            tree.unlink(victim, now)
        });
        Box::pin(ready(changed.map(|((), directory)| directory)))
    }

    fn rename(
        &self,
        caller: Caller,
        from: (FileId, Bytes),
        to: (FileId, Bytes),
    ) -> BoxFuture<'_, Result<RenameInfo, Failure<RenameInfo>>> {
        let now = self.now();
        let mut tree = self.lock();
        let numbers = tree.number(from.0).and_then(|first| Ok((first, tree.number(to.0)?)));
        let (first, second) = match numbers {
            Ok(numbers) => numbers,
            Err(status) => return Box::pin(ready(Err(failed(status)))),
        };
        let (before_first, before_second) = (tree.weak(first), tree.weak(second));
        let renamed = rename(&mut tree, &caller, (first, &from.1), (second, to.1), now);
        let info = RenameInfo {
            from_directory: tree.since(before_first, first),
            to_directory: tree.since(before_second, second),
        };
        Box::pin(ready(match renamed {
            Ok(()) => Ok(info),
            Err(status) => Err(Failure { status, info }),
        }))
    }

    fn link(
        &self,
        caller: Caller,
        file: FileId,
        directory: FileId,
        name: Bytes,
    ) -> BoxFuture<'_, Result<LinkInfo, Failure<LinkInfo>>> {
        let now = self.now();
        let file = match self.lock().number(file) {
            Ok(number) => number,
            Err(status) => return Box::pin(ready(Err(failed(status)))),
        };
        let changed = self.change(directory, |tree, directory| {
            tree.names(directory)?;
            tree.check(&caller, directory, WRITE | EXECUTE)?;
            if tree.find(directory, &name).is_ok() {
                return Err(Status::EXIST);
            }
            if tree.node(file)?.file_type() == FileType::Directory {
                return Err(Status::PERM);
            }
            tree.add_link(file, now)?;
            tree.enter(directory, name, file, now)
        });
        let attributes = self.lock().attributes(file);
        Box::pin(ready(match changed {
            Ok(((), directory)) => Ok(LinkInfo { attributes, directory }),
            Err(Failure { status, info: directory }) => {
                Err(Failure { status, info: LinkInfo { attributes, directory } })
            }
        }))
    }

    fn list(
        &self,
        caller: Caller,
        directory: FileId,
        cookie: u64,
        _: Verifier,
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
                let attributes = if budget.is_plus() { tree.attributes(node) } else { None };
                let file = attributes.map(|attributes| (file_id(node), attributes));
                entries.push(ListingEntry { file_id: node, name, cookie, file });
            }
            Ok(Listing { attributes: tree.attributes(directory), verifier: Verifier::default(), entries, end })
        })))
    }

    fn usage(&self, _: Caller) -> BoxFuture<'_, Result<Usage, Status>> {
        let tree = self.lock();
        let free = (tree.max_pages - tree.pages) * PAGE_OCTETS as u64;
        Box::pin(ready(Ok(Usage {
            total_octets: tree.max_pages * PAGE_OCTETS as u64,
            free_octets: free,
            available_octets: free,
            total_files: MAX_FILES,
            free_files: MAX_FILES.saturating_sub(tree.count()),
        })))
    }
}

fn rename(
    tree: &mut Tree,
    caller: &Caller,
    (first, from): (u64, &[u8]),
    (second, to): (u64, Bytes),
    now: Time,
) -> Result<(), Status> {
    tree.names(first)?;
    tree.names(second)?;
    let moved = tree.find(first, from)?;
    tree.may_unlink(caller, first, moved)?;
    tree.check(caller, second, WRITE | EXECUTE)?;
    let is_directory = tree.node(moved)?.file_type() == FileType::Directory;
    if is_directory && tree.is_below(second, moved)? {
        return Err(Status::INVAL);
    }
    if let Ok(replaced) = tree.find(second, &to) {
        if replaced == moved {
            return Ok(());
        }
        tree.may_unlink(caller, second, replaced)?;
        match (&tree.node(replaced)?.body, is_directory) {
            (Body::Directory(names), true) if !names.by_name.is_empty() => return Err(Status::NOTEMPTY),
            (Body::Directory(_), false) => return Err(Status::ISDIR),
            (Body::Directory(_), true) => {}
            (_, true) => return Err(Status::NOTDIR),
            (_, false) => {}
        }
        tree.leave(second, &to, now)?;
        tree.unlink(replaced, now)?;
    }
    tree.leave(first, from, now)?;
    tree.enter(second, to, moved, now)
}
