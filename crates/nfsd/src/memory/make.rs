//! New files, directories, links and special files in memory, and what a creation does if the name exists.

use super::{
    MAX_FILES, MemoryFs,
    pages::Pages,
    tree::{Body, EXECUTE, Tree, WRITE, file_id},
};
use crate::{Caller, Changed, CreateHow, Fault, FileId, Made, New, NodeKind};
use bytes::Bytes;
use rpcrdma_nfs::attr::{Device, FileType, NewAttributes, Time};

impl MemoryFs {
    pub(super) fn make_now(&self, caller: &Caller, directory: FileId, name: Bytes, new: New) -> Changed<Made> {
        let now = self.now();
        let changed = self.change(directory, |tree, directory| {
            tree.names(directory)?;
            tree.check(caller, directory, EXECUTE)?;
            let (number, is_new) = create(tree, caller, directory, name, new, now)?;
            Ok((number, is_new, tree.attributes(number)))
        });
        changed.map(|((number, is_new, attributes), directory)| Made {
            is_new,
            ..Made::new(file_id(number), attributes, directory)
        })
    }
}

/// Also returns whether this call has made the file.
fn create(
    tree: &mut Tree,
    caller: &Caller,
    directory: u64,
    name: Bytes,
    new: New,
    now: Time,
) -> Result<(u64, bool), Fault> {
    match (tree.find(directory, &name), &new) {
        (Err(Fault::NotFound), _) => {}
        (Err(fault), _) => return Err(fault),
        (Ok(old), New::File(how)) => return existing(tree, caller, old, how, now),
        (Ok(_), _) => return Err(Fault::Exists),
    }
    tree.check(caller, directory, WRITE | EXECUTE)?;
    if tree.count() >= MAX_FILES {
        return Err(Fault::NoSpace);
    }
    let (attributes, default_mode, body) = match new {
        New::File(CreateHow::Unchecked(new) | CreateHow::Guarded(new)) => {
            (new, 0o644, Body::File(Pages::default(), None))
        }
        New::File(CreateHow::Exclusive(verifier, new)) => (new, 0o600, Body::File(Pages::default(), Some(verifier))),
        New::Directory(new) => {
            let number = tree.new_directory(directory, 0o755, caller, now);
            return finish(tree, caller, directory, name, number, new, now).map(|number| (number, true));
        }
        New::Symlink(new, path) => (NewAttributes { mode: None, ..new }, 0o777, Body::Symlink(path)),
        New::Node(kind, new) => {
            let none = Device::default();
            let (file_type, device) = match kind {
                NodeKind::Block(device) => (FileType::Block, device),
                NodeKind::Character(device) => (FileType::Character, device),
                NodeKind::Socket => (FileType::Socket, none),
                NodeKind::Fifo => (FileType::Fifo, none),
            };
            if device != none && caller.uid != 0 {
                return Err(Fault::NotOwner);
            }
            (new, 0o644, Body::Special(file_type, device))
        }
    };
    let number = tree.add(body, default_mode, 1, caller, now);
    finish(tree, caller, directory, name, number, attributes, now).map(|number| (number, true))
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
) -> Result<u64, Fault> {
    if caller.uid != 0 {
        // As Linux's server does: only the superuser makes files that belong to others.
        (new.uid, new.gid) = (None, None);
    }
    let is_symlink = tree.node(number)?.file_type() == FileType::Symlink;
    let default = tree.default_of(directory).filter(|_| !is_symlink);
    // RFC 8275 section 5: a default list replaces the mask.
    if default.is_none() {
        new.mode = new.mode.map(|mode| mode & !new.umask);
    }
    let made = tree.set(caller, number, &new, now, true);
    let made = made.and_then(|()| default.map_or(Ok(()), |default| tree.inherit(number, default)));
    if let Err(fault) = made {
        tree.unlink(number, now)?;
        return Err(fault);
    }
    tree.enter(directory, name, number, now)?;
    Ok(number)
}

/// CREATE of an existing name.
fn existing(tree: &mut Tree, caller: &Caller, old: u64, how: &CreateHow, now: Time) -> Result<(u64, bool), Fault> {
    match (how, &tree.node(old)?.body) {
        (CreateHow::Unchecked(new), Body::File(..)) => {
            let size_alone = NewAttributes { size: new.size, ..NewAttributes::default() };
            if new.size.is_some() {
                tree.set(caller, old, &size_alone, now, false)?;
            }
            Ok((old, false))
        }
        (CreateHow::Exclusive(verifier, _), Body::File(_, Some(made_with))) if made_with == verifier => Ok((old, true)),
        _ => Err(Fault::Exists),
    }
}
