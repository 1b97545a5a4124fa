//! The files of a file system in memory: nodes by number, names in directories.
//!
//! Node numbers are never used again, so an id never names another file. Nothing here waits.

use super::{
    acls,
    pages::{PAGE_BYTES, Pages},
    xattrs,
};
use crate::{Caller, Fault, FileId};
use bytes::Bytes;
use rpcrdma_nfs::attr::{Acls, Attributes, Before, Change, Device, FileType, NewAttributes, SetTime, Time};
use std::collections::BTreeMap;

pub(super) const READ: u32 = 4;
pub(super) const WRITE: u32 = 2;
pub(super) const EXECUTE: u32 = 1;
/// The number of the root.
pub(super) const ROOT: u64 = 1;
const STICKY: u32 = 0o1000;
const MODE_BITS: u32 = 0o7777;
/// The most hard links to a file.
pub(super) const MAX_LINKS: u32 = 65_000;

/// An entry of a directory.
#[derive(Clone, Copy)]
pub(super) struct Place {
    pub(super) node: u64,
    pub(super) cookie: u64,
}

/// The names of a directory. Cookies are never used again, and a name keeps its cookie.
#[derive(Default)]
pub(super) struct Names {
    pub(super) by_name: BTreeMap<Bytes, Place>,
    pub(super) by_cookie: BTreeMap<u64, Bytes>,
    next_cookie: u64,
    pub(super) parent: u64,
}

/// The cookies of `.` and `..`.
pub(super) const DOT_COOKIES: [u64; 2] = [1, 2];

impl Names {
    fn below(parent: u64) -> Self {
        Self { next_cookie: DOT_COOKIES[1] + 1, parent, ..Self::default() }
    }

    fn insert(&mut self, name: Bytes, node: u64) {
        self.remove(&name);
        let cookie = self.next_cookie;
        self.next_cookie += 1;
        self.by_cookie.insert(cookie, name.clone());
        self.by_name.insert(name, Place { node, cookie });
    }

    fn remove(&mut self, name: &[u8]) {
        if let Some(place) = self.by_name.remove(name) {
            self.by_cookie.remove(&place.cookie);
        }
    }
}

pub(super) enum Body {
    File(Pages, Option<[u8; 8]>),
    Directory(Names),
    Symlink(Bytes),
    Special(FileType, Device),
}

pub(super) struct Node {
    number: u64,
    pub(super) body: Body,
    pub(super) mode: u32,
    links: u32,
    uid: u32,
    gid: u32,
    accessed: Time,
    modified: Time,
    changed: Time,
    created: Time,
    /// The number of its changes, plus one: never 0.
    changes: u64,
    /// How many opens keep it, even without a name.
    opens: usize,
    /// Extended attributes by name.
    pub(super) xattrs: BTreeMap<Bytes, Bytes>,
    /// Access control lists, if they say more than the mode.
    pub(super) acls: Option<Box<Acls>>,
}

impl Node {
    pub(super) fn file_type(&self) -> FileType {
        match &self.body {
            Body::File(..) => FileType::Regular,
            Body::Directory(_) => FileType::Directory,
            Body::Symlink(_) => FileType::Symlink,
            Body::Special(file_type, _) => *file_type,
        }
    }

    pub(super) fn allows(&self, caller: &Caller, rights: u32) -> bool {
        if caller.uid == 0 {
            return true;
        }
        if let Some(allows) = self.list_allows(caller, (self.uid, self.gid), rights) {
            return allows;
        }
        let shift = if caller.uid == self.uid {
            6
        } else if caller.is_in_group(self.gid) {
            3
        } else {
            0
        };
        (self.mode >> shift) & rights == rights
    }

    pub(super) fn is_owner(&self, caller: &Caller) -> bool {
        caller.uid == 0 || caller.uid == self.uid
    }

    pub(super) fn attributes(&self, file_system: u64) -> Attributes {
        let (size, used, device) = match &self.body {
            Body::File(pages, _) => (pages.size(), pages.count() * PAGE_BYTES as u64, Device::default()),
            Body::Directory(names) => (names.by_name.len() as u64 * 32, 0, Device::default()),
            Body::Symlink(path) => (path.len() as u64, 0, Device::default()),
            Body::Special(_, device) => (0, 0, *device),
        };
        let mut told = Attributes::new(self.file_type(), file_system, self.number);
        (told.mode, told.links, told.uid, told.gid) = (self.mode, self.links, self.uid, self.gid);
        (told.size, told.used, told.device) = (size, used, device);
        (told.accessed, told.modified, told.changed) = (self.accessed, self.modified, self.changed);
        (told.created, told.change) = (Some(self.created), self.changes);
        told
    }

    /// The attributes have changed.
    pub(super) fn change(&mut self, now: Time) {
        self.changed = now;
        self.changes += 1;
    }

    /// The contents have changed.
    pub(super) fn touch(&mut self, now: Time) {
        self.modified = now;
        self.change(now);
    }
}

/// All nodes.
pub(super) struct Tree {
    pub(super) id: u64,
    nodes: BTreeMap<u64, Node>,
    next: u64,
    pub(super) pages: u64,
    pub(super) max_pages: u64,
    /// Whether lists may say more than modes.
    pub(super) has_acls: bool,
}

impl Tree {
    pub(super) fn new(id: u64, max_bytes: u64, now: Time) -> Self {
        let max_pages = max_bytes / PAGE_BYTES as u64;
        let mut tree = Self { id, nodes: BTreeMap::new(), next: ROOT, pages: 0, max_pages, has_acls: true };
        tree.add(Body::Directory(Names::below(ROOT)), 0o755, 2, &Caller::root(), now);
        tree
    }

    pub(super) fn count(&self) -> u64 {
        self.nodes.len() as u64
    }

    pub(super) fn add(&mut self, body: Body, mode: u32, links: u32, caller: &Caller, now: Time) -> u64 {
        let number = self.next;
        self.next += 1;
        let (uid, gid) = (caller.uid, caller.gid);
        let (accessed, modified, changed, created) = (now, now, now, now);
        let (opens, xattrs, acls) = (0, BTreeMap::new(), None);
        let node = Node {
            number,
            body,
            mode,
            links,
            uid,
            gid,
            accessed,
            modified,
            changed,
            created,
            changes: 1,
            opens,
            xattrs,
            acls,
        };
        self.nodes.insert(number, node);
        number
    }

    pub(super) fn new_directory(&mut self, parent: u64, mode: u32, caller: &Caller, now: Time) -> u64 {
        self.add(Body::Directory(Names::below(parent)), mode, 2, caller, now)
    }

    pub(super) fn node(&self, number: u64) -> Result<&Node, Fault> {
        self.nodes.get(&number).ok_or(Fault::Stale)
    }

    pub(super) fn node_mut(&mut self, number: u64) -> Result<&mut Node, Fault> {
        self.nodes.get_mut(&number).ok_or(Fault::Stale)
    }

    pub(super) fn number(&self, file: FileId) -> Result<u64, Fault> {
        let octets = file.as_slice().try_into().map_err(|_| Fault::BadId)?;
        let number = u64::from_be_bytes(octets);
        self.node(number).map(|_| number)
    }

    pub(super) fn names(&self, number: u64) -> Result<&Names, Fault> {
        match &self.node(number)?.body {
            Body::Directory(names) => Ok(names),
            _ => Err(Fault::NotDirectory),
        }
    }

    fn names_mut(&mut self, number: u64) -> Result<&mut Names, Fault> {
        match &mut self.node_mut(number)?.body {
            Body::Directory(names) => Ok(names),
            _ => Err(Fault::NotDirectory),
        }
    }

    pub(super) fn check(&self, caller: &Caller, number: u64, rights: u32) -> Result<(), Fault> {
        if self.node(number)?.allows(caller, rights) { Ok(()) } else { Err(Fault::Denied) }
    }

    pub(super) fn attributes(&self, number: u64) -> Option<Attributes> {
        self.nodes.get(&number).map(|node| node.attributes(self.id))
    }

    pub(super) fn weak(&self, number: u64) -> Option<Before> {
        self.attributes(number).map(|attributes| attributes.before())
    }

    /// Attributes from before and those of now.
    pub(super) fn since(&self, before: Option<Before>, number: u64) -> Change {
        Change { before, after: self.attributes(number) }
    }

    /// The node of a name.
    pub(super) fn find(&self, directory: u64, name: &[u8]) -> Result<u64, Fault> {
        let names = self.names(directory)?;
        match name {
            b"." => Ok(directory),
            b".." => Ok(names.parent),
            name => names.by_name.get(name).map(|place| place.node).ok_or(Fault::NotFound),
        }
    }

    /// Whether the caller may remove a name from a directory.
    pub(super) fn may_unlink(&self, caller: &Caller, directory: u64, victim: u64) -> Result<(), Fault> {
        self.check(caller, directory, WRITE | EXECUTE)?;
        let (directory, victim) = (self.node(directory)?, self.node(victim)?);
        let sticky = directory.mode & STICKY != 0;
        if sticky && !directory.is_owner(caller) && !victim.is_owner(caller) { Err(Fault::Denied) } else { Ok(()) }
    }

    /// Gives a node a name in a directory. Other code counts the link.
    pub(super) fn enter(&mut self, directory: u64, name: Bytes, node: u64, now: Time) -> Result<(), Fault> {
        self.names_mut(directory)?.insert(name, node);
        if let Body::Directory(names) = &mut self.node_mut(node)?.body {
            names.parent = directory;
            self.node_mut(directory)?.links += 1;
        }
        self.node_mut(directory)?.touch(now);
        Ok(())
    }

    /// Removes a name from a directory; the node stays.
    pub(super) fn leave(&mut self, directory: u64, name: &[u8], now: Time) -> Result<u64, Fault> {
        let node = self.find(directory, name)?;
        self.names_mut(directory)?.remove(name);
        if self.node(node)?.file_type() == FileType::Directory {
            self.node_mut(directory)?.links -= 1;
        }
        self.node_mut(directory)?.touch(now);
        Ok(node)
    }

    /// Counts one link less, and forgets the node with its last link.
    pub(super) fn unlink(&mut self, number: u64, now: Time) -> Result<(), Fault> {
        let node = self.node_mut(number)?;
        node.change(now);
        node.links = match node.body {
            Body::Directory(_) => 0,
            _ => node.links.saturating_sub(1),
        };
        self.forget_if_unused(number);
        Ok(())
    }

    /// Forgets a node that has neither a name nor an open.
    fn forget_if_unused(&mut self, number: u64) {
        let is_unused = self.nodes.get(&number).is_some_and(|node| node.links == 0 && node.opens == 0);
        if is_unused && let Some(node) = self.nodes.remove(&number) {
            let data = if let Body::File(pages, _) = &node.body { pages.count() } else { 0 };
            self.pages -= data + xattrs::pages(&node.xattrs) + acls::pages(node.acls.as_deref());
        }
    }

    /// Counts an open, which keeps the node.
    pub(super) fn open(&mut self, number: u64) -> Result<(), Fault> {
        self.node_mut(number)?.opens += 1;
        Ok(())
    }

    /// Counts an open less.
    pub(super) fn close(&mut self, number: u64) {
        if let Ok(node) = self.node_mut(number) {
            node.opens = node.opens.saturating_sub(1);
        }
        self.forget_if_unused(number);
    }

    pub(super) fn add_link(&mut self, number: u64, now: Time) -> Result<(), Fault> {
        let node = self.node_mut(number)?;
        if node.links >= MAX_LINKS {
            return Err(Fault::TooManyLinks);
        }
        node.links += 1;
        node.change(now);
        Ok(())
    }

    /// Whether a directory is another directory or lies in it.
    pub(super) fn is_below(&self, mut directory: u64, other: u64) -> Result<bool, Fault> {
        while directory != other {
            if directory == ROOT {
                return Ok(false);
            }
            directory = self.names(directory)?.parent;
        }
        Ok(true)
    }

    /// Sets attributes if the caller may do so; the size also if the caller has the file open for writing.
    pub(super) fn set(
        &mut self,
        caller: &Caller,
        number: u64,
        new: &NewAttributes,
        now: Time,
        by_open: bool,
    ) -> Result<(), Fault> {
        let node = self.node(number)?;
        let owner = node.is_owner(caller);
        let gives_away = new.uid.is_some_and(|uid| uid != node.uid);
        let regroups = new.gid.is_some_and(|gid| gid != node.gid && !(owner && caller.is_in_group(gid)));
        let sets_times = matches!(new.accessed, SetTime::Client(_)) || matches!(new.modified, SetTime::Client(_));
        if caller.uid != 0 && (gives_away || regroups || !owner && (new.mode.is_some() || sets_times)) {
            return Err(Fault::NotOwner);
        }
        let touches = new.accessed == SetTime::Server || new.modified == SetTime::Server;
        if touches && !owner && !node.allows(caller, WRITE) {
            return Err(Fault::Denied);
        }
        if let Some(size) = new.size {
            self.resize(caller, number, size, now, by_open)?;
        }
        let node = self.node_mut(number)?;
        if let Some(mode) = new.mode {
            node.mode = mode & MODE_BITS;
            node.lists_follow_mode();
        }
        node.uid = new.uid.unwrap_or(node.uid);
        node.gid = new.gid.unwrap_or(node.gid);
        let time = |old: Time, how: SetTime| match how {
            SetTime::Keep => old,
            SetTime::Server => now,
            SetTime::Client(time) => time,
        };
        node.accessed = time(node.accessed, new.accessed);
        node.modified = time(node.modified, new.modified);
        node.change(now);
        Ok(())
    }

    fn resize(&mut self, caller: &Caller, number: u64, size: u64, now: Time, by_open: bool) -> Result<(), Fault> {
        let node = self.node_mut(number)?;
        if !by_open && !node.allows(caller, WRITE) && !node.is_owner(caller) {
            return Err(Fault::Denied);
        }
        let Body::File(pages, _) = &mut node.body else {
            return Err(if node.file_type() == FileType::Directory { Fault::IsDirectory } else { Fault::Invalid });
        };
        if size > super::MAX_FILE_BYTES {
            return Err(Fault::TooLarge);
        }
        let before = pages.count();
        pages.set_size(size);
        let freed = before - pages.count();
        node.touch(now);
        self.pages -= freed;
        Ok(())
    }
}

pub(super) fn file_id(number: u64) -> FileId {
    FileId::new(&number.to_be_bytes()).expect("eight bytes fit an id")
}
