//! The tree above the exports: directories that no client can change, as deep as the exports' paths (RFC 8881 section
//! 7.3).
//!
//! It is a file system like others, but its directories lead into the exports. If the only export is `/`, the export's
//! root is the root of the whole tree, and this file system is not used.

use crate::{
    Caller, Fault, FileId, FileSystem, Found, Listing, ListingBudget, ListingEntry, ReadData, Told, Via, failed,
    server::Export,
};
use bytes::Bytes;
use rpcrdma_env::{BoxFuture, Buffer};
use rpcrdma_nfs::attr::{Attributes, FileType};
use siphasher::sip::SipHasher24;
use std::{collections::BTreeMap, future::ready, hash::Hasher};

/// The number of this file system.
const ID: u64 = u64::from_be_bytes(*b"rpcrdma4");

/// The tree.
#[derive(Debug)]
pub(crate) struct PseudoFs {
    nodes: Vec<Node>,
}

#[derive(Debug)]
struct Node {
    /// Made from its path alone: handles stay valid after a restart with other exports.
    id: u64,
    parent: usize,
    children: BTreeMap<Bytes, usize>,
    /// The index of the export that begins here.
    export: Option<usize>,
}

impl Node {
    fn new(parent: usize, above: u64, name: &[u8]) -> Self {
        // A fixed key: the number only has to be the same after a restart and to differ between paths.
        let mut hasher = SipHasher24::new_with_key(&[0; 16]);
        hasher.write(&above.to_be_bytes());
        hasher.write(name);
        Self { id: hasher.finish(), parent, children: BTreeMap::new(), export: None }
    }
}

impl PseudoFs {
    /// The tree above these exports.
    pub(crate) fn new(exports: &[Export]) -> Self {
        let mut tree = Self { nodes: vec![Node::new(0, ID, b"/")] };
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
        self.nodes.push(Node::new(above, self.nodes[above].id, &name));
        self.nodes[above].children.insert(name, number);
        number
    }

    fn number(&self, file: FileId) -> Result<usize, Fault> {
        let octets = file.as_slice().try_into().map_err(|_| Fault::BadId)?;
        let id = u64::from_be_bytes(octets);
        self.nodes.iter().position(|node| node.id == id).ok_or(Fault::Stale)
    }

    fn id_of(&self, number: usize) -> FileId {
        FileId::new(&self.nodes[number].id.to_be_bytes()).expect("eight bytes fit an id")
    }

    /// The export that begins at a directory here.
    pub(crate) fn export_at(&self, file: FileId) -> Option<usize> {
        self.nodes[self.number(file).ok()?].export
    }

    /// The exports that begin at a directory here or below it.
    pub(crate) fn exports_below(&self, file: FileId) -> Vec<usize> {
        let mut exports = Vec::new();
        let mut left: Vec<usize> = self.number(file).into_iter().collect();
        while let Some(number) = left.pop() {
            exports.extend(self.nodes[number].export);
            left.extend(self.nodes[number].children.values());
        }
        exports
    }

    /// The export that is exported as `/`, if there is one.
    pub(crate) fn root_export(&self) -> Option<usize> {
        self.nodes[0].export
    }

    /// The directory of a name in a directory here.
    pub(crate) fn find(&self, directory: FileId, name: &[u8]) -> Result<FileId, Fault> {
        let number = self.number(directory)?;
        match name {
            b"." => Ok(directory),
            b".." => Ok(self.id_of(self.nodes[number].parent)),
            name => self.nodes[number].children.get(name).map(|child| self.id_of(*child)).ok_or(Fault::NotFound),
        }
    }

    /// The directory above the place where an export begins.
    pub(crate) fn above(&self, export: usize) -> Option<FileId> {
        let node = self.nodes.iter().find(|node| node.export == Some(export))?;
        Some(self.id_of(node.parent))
    }

    /// The number of the directory here that an export covers.
    pub(crate) fn covered(&self, export: usize) -> Option<u64> {
        self.nodes.iter().find(|node| node.export == Some(export)).map(|node| node.id)
    }

    fn about(&self, number: usize) -> Attributes {
        let mut told = Attributes::new(FileType::Directory, ID, self.nodes[number].id);
        let directories = u32::try_from(self.nodes[number].children.len()).unwrap_or(u32::MAX);
        (told.mode, told.links) = (0o555, directories.saturating_add(2));
        told
    }
}

impl FileSystem for PseudoFs {
    fn root(&self) -> FileId {
        self.id_of(0)
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
            ListingEntry::new(self.nodes[child].id, name, 0).with_file(Some((self.id_of(child), self.about(child))))
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
        assert_eq!(tree.number(FileId::new(&[9; 8]).unwrap()), Err(Fault::Stale));
        assert_eq!(tree.number(FileId::new(&[9; 7]).unwrap()), Err(Fault::BadId));
    }

    #[test]
    fn directories_are_the_same_whatever_else_is_exported() {
        let (one, other) = (tree(&["/srv/a", "/home"]), tree(&["/home", "/opt/x", "/srv/b"]));
        let (of_one, of_other) = (one.find(one.root(), b"srv"), other.find(other.root(), b"srv"));
        assert_eq!((one.root(), of_one), (other.root(), of_other));
        assert!(one.find(one.root(), b"home") != of_one && Ok(one.root()) != of_one);
        assert_eq!((other.exports_below(of_other.unwrap()), other.exports_below(other.root()).len()), (vec![2], 3));
    }

    #[test]
    fn the_one_export_of_the_root_is_the_root() {
        assert_eq!(tree(&["/"]).root_export(), Some(0));
    }
}
