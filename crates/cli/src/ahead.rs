//! A walk ahead of a copy, which finds out how much there is, for the progress line. It is bounded: it keeps at most
//! [`WALK_DIRECTORIES`] directories in mind, has one call at a time under way, and gives up where it cannot go on; then
//! the progress has no total. Nothing of what it finds is used for the copy.

use crate::{depth::MAX_DEPTH, session::Session};
use rpcrdma_nfs::attr::{Attributes, FileType};
use rpcrdma_nfs_client::Handle;
use std::{
    collections::HashSet,
    fs::{self, Metadata},
    os::unix::fs::MetadataExt,
    path::PathBuf,
    sync::{Arc, OnceLock},
};

/// Directories that are still to be looked into, and files with several names that were met, each: some megabytes.
const WALK_DIRECTORIES: usize = 1 << 14;
/// Bytes of a block, the unit in which `stat` counts storage.
const STAT_BLOCK: u64 = 512;

/// How much there is to copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Total {
    pub(crate) files: u64,
    /// Without holes, as far as is known.
    pub(crate) octets: u64,
}

/// What a walk has found, once it is through.
#[derive(Debug, Default)]
pub(crate) struct Ahead(OnceLock<Total>);

impl Ahead {
    pub(crate) fn total(&self) -> Option<Total> {
        self.0.get().copied()
    }

    /// Walks local trees, on a thread of its own, which ends with the program.
    pub(crate) fn walk_local(self: &Arc<Self>, roots: Vec<PathBuf>) {
        let ahead = self.clone();
        // Without the thread there is no total.
        let _ = std::thread::Builder::new().name("walk".into()).spawn(move || {
            if let Some(total) = local_total(roots, WALK_DIRECTORIES) {
                let _ = ahead.0.set(total);
            }
        });
    }

    /// Walks a tree on a server, one call at a time.
    pub(crate) async fn walk_remote(&self, session: &Session, root: &Handle, attributes: &Attributes) {
        if let Some(total) = remote_total(session, root, attributes).await {
            let _ = self.0.set(total);
        }
    }
}

/// `None` if there is more to keep in mind than `limit`.
fn local_total(roots: Vec<PathBuf>, limit: usize) -> Option<Total> {
    let (mut total, mut met) = (Total::default(), HashSet::new());
    let mut directories: Vec<(PathBuf, usize)> = Vec::new();
    for root in roots {
        match fs::metadata(&root) {
            Ok(metadata) if metadata.is_dir() => directories.push((root, 1)),
            Ok(metadata) => add(&mut total, &mut met, &metadata),
            // The copy reports it.
            Err(_) => {}
        }
    }
    while let Some((directory, depth)) = directories.pop() {
        let Ok(entries) = fs::read_dir(&directory) else { continue };
        for entry in entries.flatten() {
            let Ok(metadata) = entry.metadata() else { continue };
            if metadata.is_dir() {
                if depth < MAX_DEPTH {
                    directories.push((entry.path(), depth + 1));
                }
            } else {
                add(&mut total, &mut met, &metadata);
            }
        }
        if directories.len().max(met.len()) > limit {
            return None;
        }
    }
    Some(total)
}

fn add(total: &mut Total, met: &mut HashSet<(u64, u64)>, metadata: &Metadata) {
    let is_first = metadata.nlink() < 2 || met.insert((metadata.dev(), metadata.ino()));
    if metadata.is_file() && is_first {
        total.files += 1;
        total.octets = total.octets.saturating_add(metadata.len().min(metadata.blocks() * STAT_BLOCK));
    }
}

async fn remote_total(session: &Session, root: &Handle, attributes: &Attributes) -> Option<Total> {
    let (mut total, mut met) = (Total::default(), HashSet::new());
    let mut directories: Vec<(Handle, usize)> = Vec::new();
    let mut add = |found: &Attributes| {
        let is_first = found.links < 2 || met.insert((found.file_system, found.file_id));
        if found.file_type == FileType::Regular && is_first {
            total.files += 1;
            total.octets = total.octets.saturating_add(found.size);
        }
        met.len() <= WALK_DIRECTORIES
    };
    match attributes.file_type {
        FileType::Directory => directories.push((root.clone(), 1)),
        _ => {
            add(attributes);
        }
    }
    while let Some((directory, depth)) = directories.pop() {
        let mut listing = session.files.list(&directory, session.transfer);
        // If the directory cannot be listed, the copy reports it.
        while let Some(entry) = listing.next().await.ok()? {
            let (file, found) = entry.file.zip(entry.attributes)?;
            if found.file_type == FileType::Directory {
                directories.push((file, depth + 1));
            } else if !add(&found) {
                return None;
            }
            if depth >= MAX_DEPTH || directories.len() > WALK_DIRECTORIES {
                return None;
            }
        }
    }
    Some(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_is_counted_within_its_limit() {
        let scratch = tempfile::tempdir().unwrap();
        let root = scratch.path().to_owned();
        for name in ["a", "b", "c"] {
            fs::create_dir(root.join(name)).unwrap();
            fs::write(root.join(name).join("file"), [7; 1000]).unwrap();
        }
        fs::hard_link(root.join("a/file"), root.join("b/again")).unwrap();
        std::os::unix::fs::symlink("a/file", root.join("link")).unwrap();
        fs::File::create(root.join("hole")).unwrap().set_len(1 << 30).unwrap();
        let walk = |limit| local_total(vec![root.clone(), root.join("none")], limit);
        let total = walk(3).unwrap();
        assert_eq!((total.files, total.octets), (4, 3000));
        assert_eq!(walk(2), None, "three directories are to be kept in mind");
        assert_eq!(local_total(vec![root.join("a/file")], 0).unwrap().files, 1);
    }
}
