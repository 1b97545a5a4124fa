//! The tree above the exports: directories that nobody can change, as deep as the exports' paths (RFC 8881 section 7.3).
//!
//! It is a file system like others, whose directories lead into the exports. Where the one export is `/`, its root is the root
//! and this tree has no part.

use crate::{
    Caller, Fault, FileId, FileSystem, Found, Listing, ListingBudget, ListingEntry, ReadData, Told, Via, failed,
    server::Export,
};
use bytes::Bytes;
use rpcrdma_env::{BoxFuture, Buffer};
use rpcrdma_nfs::attr::{Attributes, FileType};
use std::{collections::BTreeMap, future::ready};

/// The number of this file system.
const ID: u64 = u64::from_be_bytes(*b"rpcrdma4");

/// The tree.
#[derive(Debug)]
pub(crate) struct PseudoFs {
    nodes: Vec<Node>,
}

#[derive(Debug, Default)]
struct Node {
    parent: usize,
    children: BTreeMap<Bytes, usize>,
    /// The place of the export that begins here.
    export: Option<usize>,
}

fn id(number: usize) -> FileId {
    FileId::new(&(number as u64).to_be_bytes()).expect("eight octets fit an id")
}

/// What clients take for an inode number.
fn file_id(number: usize) -> u64 {
    number as u64 + 1
}

impl PseudoFs {
    /// The tree above these exports.
    pub(crate) fn new(exports: &[Export]) -> Self {
        let mut tree = Self { nodes: vec![Node::default()] };
        for (place, export) in exports.iter().enumerate() {
            let names = export.path.split(|octet| *octet == b'/').filter(|name| !name.is_empty());
            let end = names.fold(0, |above, name| tree.child(above, Bytes::copy_from_slice(name)));
            tree.nodes[end].export = Some(place);
        }
        tree
    }

    fn child(&mut self, above: usize, name: Bytes) -> usize {
        if let Some(child) = self.nodes[above].children.get(&name) {
            return *child;
        }
        let number = self.nodes.len();
        self.nodes.push(Node { parent: above, ..Node::default() });
        self.nodes[above].children.insert(name, number);
        number
    }

    fn number(&self, file: FileId) -> Result<usize, Fault> {
        let octets = file.as_slice().try_into().map_err(|_| Fault::BadId)?;
        let number = usize::try_from(u64::from_be_bytes(octets)).map_err(|_| Fault::Stale)?;
        self.nodes.get(number).map(|_| number).ok_or(Fault::Stale)
    }

    /// The export that begins at a directory here.
    pub(crate) fn export_at(&self, file: FileId) -> Option<usize> {
        self.nodes[self.number(file).ok()?].export
    }

    /// The export that the whole tree is, if one is exported as `/`.
    pub(crate) fn root_export(&self) -> Option<usize> {
        self.nodes[0].export
    }

    /// The directory of a name in a directory here.
    pub(crate) fn find(&self, directory: FileId, name: &[u8]) -> Result<FileId, Fault> {
        let number = self.number(directory)?;
        match name {
            b"." => Ok(directory),
            b".." => Ok(id(self.nodes[number].parent)),
            name => self.nodes[number].children.get(name).map(|child| id(*child)).ok_or(Fault::NotFound),
        }
    }

    /// The directory above the place where an export begins.
    pub(crate) fn above(&self, export: usize) -> Option<FileId> {
        let node = self.nodes.iter().find(|node| node.export == Some(export))?;
        Some(id(node.parent))
    }

    /// The number of the directory here that an export covers.
    pub(crate) fn covered(&self, export: usize) -> Option<u64> {
        let number = self.nodes.iter().position(|node| node.export == Some(export))?;
        Some(file_id(number))
    }

    fn about(&self, number: usize) -> Attributes {
        let mut told = Attributes::new(FileType::Directory, ID, file_id(number));
        let directories = u32::try_from(self.nodes[number].children.len()).unwrap_or(u32::MAX);
        (told.mode, told.links) = (0o555, directories.saturating_add(2));
        told
    }
}

impl FileSystem for PseudoFs {
    fn root(&self) -> FileId {
        id(0)
    }

    fn id(&self) -> u64 {
        ID
    }

    fn attributes(&self, _: Caller, file: FileId) -> BoxFuture<'_, Result<Attributes, Fault>> {
        Box::pin(ready(self.number(file).map(|number| self.about(number))))
    }

    fn lookup(&self, _: Caller, directory: FileId, name: Bytes) -> BoxFuture<'_, Told<Found>> {
        let found = self.find(directory, &name).map(|found| Found::new(found, None, None));
        Box::pin(ready(found.map_err(failed)))
    }

    fn read(&self, _: Via, _: u64, _: usize, _: Buffer) -> BoxFuture<'_, Told<ReadData>> {
        Box::pin(ready(Err(failed(Fault::IsDirectory))))
    }

    fn list(
        &self,
        _: Caller,
        directory: FileId,
        cookie: u64,
        _: [u8; 8],
        budget: ListingBudget,
    ) -> BoxFuture<'_, Told<Listing>> {
        let number = match self.number(directory) {
            Ok(number) => number,
            Err(fault) => return Box::pin(ready(Err(failed(fault)))),
        };
        let node = &self.nodes[number];
        let dots = [(Bytes::from_static(b"."), number), (Bytes::from_static(b".."), node.parent)];
        let children = node.children.iter().map(|(name, child)| (name.clone(), *child));
        let all = dots.into_iter().chain(children).map(|(name, child)| {
            ListingEntry::new(file_id(child), name, 0).with_file(Some((id(child), self.about(child))))
        });
        Box::pin(ready(Ok(Listing::of(all, cookie, budget).with_attributes(Some(self.about(number))))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryFs;
    use crate::testing::env;
    use std::sync::Arc;

    fn tree(paths: &[&str]) -> PseudoFs {
        let export = |path: &&str| Export::new(path, Arc::new(MemoryFs::new(1, &env())));
        PseudoFs::new(&paths.iter().map(export).collect::<Vec<_>>())
    }

    #[test]
    fn the_tree_is_as_deep_as_the_paths() {
        let tree = tree(&["/srv/a", "/srv/b/c", "/home"]);
        let srv = tree.find(tree.root(), b"srv").unwrap();
        let b = tree.find(srv, b"b").unwrap();
        let c = tree.find(b, b"c").unwrap();
        assert_eq!((tree.export_at(srv), tree.export_at(c), tree.root_export()), (None, Some(1), None));
        assert_eq!((tree.above(1), tree.above(0)), (Some(b), Some(srv)));
        assert_eq!(tree.find(b, b".."), Ok(srv));
        assert_eq!(tree.find(tree.root(), b".."), Ok(tree.root()));
        assert_eq!(tree.find(b, b"x"), Err(Fault::NotFound));
        assert_eq!(tree.number(id(99)), Err(Fault::Stale));
    }

    #[test]
    fn the_one_export_of_the_root_is_the_root() {
        assert_eq!(tree(&["/"]).root_export(), Some(0));
    }
}
