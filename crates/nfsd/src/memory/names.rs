//! Names of files in memory: removal, renaming and further links.

use super::{
    MemoryFs,
    tree::{Body, EXECUTE, Tree, WRITE},
};
use crate::{Caller, Changed, Failure, Fault, FileId, Linked, Renamed, failed};
use bytes::Bytes;
use rpcrdma_nfs::attr::{Change, FileType, Time};

impl MemoryFs {
    pub(super) fn remove_now(
        &self,
        caller: &Caller,
        directory: FileId,
        name: &[u8],
        is_directory: bool,
    ) -> Changed<Change> {
        let now = self.now();
        let changed = self.change(directory, |tree, directory| {
            tree.names(directory)?;
            tree.check(caller, directory, EXECUTE)?;
            let victim = tree.find(directory, name)?;
            tree.may_unlink(caller, directory, victim)?;
            may_replace(&tree.node(victim)?.body, is_directory)?;
            tree.leave(directory, name, now)?;
            tree.unlink(victim, now)
        });
        changed.map(|((), directory)| directory)
    }

    pub(super) fn rename_now(
        &self,
        caller: &Caller,
        from: (FileId, Bytes),
        to: (FileId, Bytes),
    ) -> Result<Renamed, Failure<Renamed>> {
        let now = self.now();
        let mut tree = self.lock();
        let (first, second) = (tree.number(from.0).map_err(failed)?, tree.number(to.0).map_err(failed)?);
        let (before_first, before_second) = (tree.weak(first), tree.weak(second));
        let renamed = rename(&mut tree, caller, (first, &from.1), (second, to.1), now);
        let info = Renamed {
            from_directory: tree.since(before_first, first),
            to_directory: tree.since(before_second, second),
        };
        match renamed {
            Ok(()) => Ok(info),
            Err(fault) => Err(Failure { fault, info }),
        }
    }

    pub(super) fn link_now(
        &self,
        caller: &Caller,
        file: FileId,
        directory: FileId,
        name: Bytes,
    ) -> Result<Linked, Failure<Linked>> {
        let now = self.now();
        let file = self.lock().number(file).map_err(failed)?;
        let changed = self.change(directory, |tree, directory| {
            tree.names(directory)?;
            tree.check(caller, directory, WRITE | EXECUTE)?;
            if tree.find(directory, &name).is_ok() {
                return Err(Fault::Exists);
            }
            if tree.node(file)?.file_type() == FileType::Directory {
                return Err(Fault::NotOwner);
            }
            tree.add_link(file, now)?;
            tree.enter(directory, name, file, now)
        });
        let attributes = self.lock().attributes(file);
        match changed {
            Ok(((), directory)) => Ok(Linked { attributes, directory }),
            Err(Failure { fault, info: directory }) => Err(Failure { fault, info: Linked { attributes, directory } }),
        }
    }
}

/// Whether an operation on a directory (`is_directory`), or on another kind of file, may remove or replace this name.
fn may_replace(old: &Body, is_directory: bool) -> Result<(), Fault> {
    match (old, is_directory) {
        (Body::Directory(names), true) if !names.by_name.is_empty() => Err(Fault::NotEmpty),
        (Body::Directory(_), false) => Err(Fault::IsDirectory),
        (Body::Directory(_), true) | (_, false) => Ok(()),
        (_, true) => Err(Fault::NotDirectory),
    }
}

fn rename(
    tree: &mut Tree,
    caller: &Caller,
    (first, from): (u64, &[u8]),
    (second, to): (u64, Bytes),
    now: Time,
) -> Result<(), Fault> {
    tree.names(first)?;
    tree.names(second)?;
    let moved = tree.find(first, from)?;
    tree.may_unlink(caller, first, moved)?;
    tree.check(caller, second, WRITE | EXECUTE)?;
    let is_directory = tree.node(moved)?.file_type() == FileType::Directory;
    if is_directory && tree.is_below(second, moved)? {
        return Err(Fault::Invalid);
    }
    if let Ok(replaced) = tree.find(second, &to) {
        if replaced == moved {
            return Ok(());
        }
        tree.may_unlink(caller, second, replaced)?;
        may_replace(&tree.node(replaced)?.body, is_directory)?;
        tree.leave(second, &to, now)?;
        tree.unlink(replaced, now)?;
    }
    tree.leave(first, from, now)?;
    tree.enter(second, to, moved, now)
}
