//! Reading and writing files in memory, and the rights to do so.

use super::{
    MAX_FILE_BYTES, MemoryFs, Open,
    pages::Pages,
    tree::{Body, EXECUTE, Node, READ, Tree, WRITE},
};
use crate::{Access, Caller, Changed, Fault, ReadData, Told, Via, Written};
use rpcrdma_env::Buffer;
use rpcrdma_nfs::attr::{Attributes, FileType, Stability};

/// A caller that may execute may also read, and owners may always read: a program that opened a file before its mode
/// forbade it goes on.
pub(super) fn may_read(node: &Node, caller: &Caller) -> bool {
    node.allows(caller, READ) || node.allows(caller, EXECUTE) || node.is_owner(caller)
}

pub(super) fn may_write(node: &Node, caller: &Caller) -> bool {
    node.allows(caller, WRITE) || node.is_owner(caller)
}

/// Whether a file is open for this access: then no rights are checked.
pub(super) fn is_open(via: &Via, may: fn(Access) -> bool) -> bool {
    via.opened_as::<Open>().is_some_and(|open| may(open.access))
}

fn not_regular(node: &Node) -> Fault {
    if node.file_type() == FileType::Directory { Fault::IsDirectory } else { Fault::Invalid }
}

/// The contents of a file, if the caller may read it.
pub(super) fn readable<'a>(tree: &'a Tree, via: &Via) -> Result<&'a Pages, Fault> {
    let node = tree.node(tree.number(via.file())?)?;
    let Body::File(pages, _) = &node.body else { return Err(not_regular(node)) };
    if is_open(via, Access::reads) || may_read(node, &via.caller) { Ok(pages) } else { Err(Fault::Denied) }
}

/// The contents of a file, if the caller may write to it.
pub(super) fn writable<'a>(tree: &'a mut Tree, via: &Via) -> Result<&'a mut Pages, Fault> {
    let number = tree.number(via.file())?;
    let node = tree.node_mut(number)?;
    let may = is_open(via, Access::writes) || may_write(node, &via.caller);
    if !matches!(node.body, Body::File(..)) {
        return Err(not_regular(node));
    }
    match &mut node.body {
        Body::File(pages, _) if may => Ok(pages),
        _ => Err(Fault::Denied),
    }
}

/// No file becomes larger than the largest.
pub(super) fn check_end(offset: u64, length: u64) -> Result<(), Fault> {
    let is_possible = offset.checked_add(length).is_some_and(|end| end <= MAX_FILE_BYTES);
    if is_possible { Ok(()) } else { Err(Fault::TooLarge) }
}

impl MemoryFs {
    pub(super) fn read_now(&self, via: &Via, offset: u64, count: usize, mut buffer: Buffer) -> Told<ReadData> {
        let (end, attributes) = self.read_into(via, offset, count, &mut buffer)?;
        Ok(ReadData::new(buffer, end, attributes))
    }

    /// Fills a buffer. Returns whether its last byte is the file's, and the file's attributes.
    pub(super) fn read_into(
        &self,
        via: &Via,
        offset: u64,
        count: usize,
        buffer: &mut Buffer,
    ) -> Told<(bool, Option<Attributes>)> {
        self.look(via.file(), |tree, number| {
            let pages = readable(tree, via)?;
            let count = count.min(buffer.capacity());
            let len = pages.read(offset, &mut buffer.bytes_mut()[..count]);
            buffer.set_len(len);
            let end = offset.saturating_add(len as u64) >= pages.size();
            Ok((end, tree.attributes(number)))
        })
    }

    pub(super) fn write_now(&self, via: &Via, offset: u64, data: &[u8]) -> Changed<Written> {
        let now = self.now();
        let changed = self.change(via.file(), |tree, number| {
            check_end(offset, data.len() as u64)?;
            let room = tree.max_pages - tree.pages;
            let pages = writable(tree, via)?;
            let added = pages.missing(offset, data.len() as u64);
            if added > room {
                return Err(Fault::NoSpace);
            }
            pages.write(offset, data);
            tree.node_mut(number)?.touch(now);
            tree.pages += added;
            Ok(data.len())
        });
        // It will never be more durable than now.
        changed.map(|(count, file)| Written::new(count, Stability::FileSync, file))
    }
}
