//! Exports that lie inside other exports by their paths: a client of version 4 crosses from the outer export into the
//! inner one by name, as with Linux's server and `crossmnt` (RFC 8881 section 7.7).
//!
//! The root of the inner export covers the directory of that name in the outer export, as a mount does: LOOKUP and
//! READDIR show the inner root, LOOKUPP comes back, and the covered directory is neither removed nor renamed. A client
//! that may not use the inner export finds nothing there. Version 3 enters each export by MOUNT and sees the covered
//! directory.
//!
//! The code asks the outer file system for the covered directory each time a name fits, and keeps no id: a directory
//! can be removed and made again, and then its id is another one.

use crate::{Caller, Export, Fault, FileId, Origin, mount::components, opened::Opened, server::Server};
use bytes::Bytes;
use rpcrdma_oncrpc::CallContext;

/// A place where an export lies inside another export.
#[derive(Debug, PartialEq, Eq)]
struct Border {
    /// The place of the outer export, and its number.
    outer: usize,
    outer_id: u32,
    /// The place of the inner export.
    inner: usize,
    /// The names from the outer root to the directory with the covered one.
    above: Vec<Bytes>,
    /// The covered directory's name.
    name: Bytes,
}

/// All such places.
#[derive(Debug)]
pub(crate) struct Borders(Vec<Border>);

impl Borders {
    pub(crate) fn new(exports: &[Export]) -> Self {
        let paths: Vec<Vec<&[u8]>> = exports.iter().map(|export| components(&export.path).collect()).collect();
        let border = |inner: usize| {
            let (name, above) = paths[inner].split_last()?;
            let outer = (0..paths.len()).filter(|outer| above.starts_with(&paths[*outer]));
            let outer = outer.max_by_key(|outer| paths[*outer].len())?;
            let above = above[paths[outer].len()..].iter().map(|name| Bytes::copy_from_slice(name)).collect();
            Some(Border { outer, outer_id: exports[outer].id, inner, above, name: Bytes::copy_from_slice(name) })
        };
        Self((0..exports.len()).filter_map(border).collect())
    }
}

impl Server {
    /// The directory of the outer export that holds the border's name, if it exists. The look-up takes a turn of the
    /// caller's client.
    async fn above(&self, border: &Border, origin: Origin) -> Option<FileId> {
        let outer = &self.exports[border.outer].file_system;
        let mut directory = outer.root();
        for name in &border.above {
            // As the superuser: where an export lies does not depend on the caller.
            let caller = Caller::root().from_origin(origin);
            directory = outer.lookup(caller, directory, name.clone()).await.ok()?.file;
        }
        Some(directory)
    }

    /// The exports that begin in a directory of another export, with their names.
    pub(crate) async fn borders_in(&self, directory: &Opened) -> Vec<(Bytes, usize)> {
        let mut found = Vec::new();
        for border in self.borders.0.iter().filter(|border| border.outer_id == directory.export) {
            if self.above(border, directory.caller.origin).await == Some(directory.file) {
                found.push((border.name.clone(), border.inner));
            }
        }
        found
    }

    /// The export that begins at a name in a directory of another export.
    pub(crate) async fn border_at(&self, directory: &Opened, name: &[u8]) -> Option<usize> {
        let is_here = |border: &&Border| border.outer_id == directory.export && border.name == name;
        for border in self.borders.0.iter().filter(is_here) {
            // NFS4-BORDER-a, NFS4-BORDER-c
            if self.above(border, directory.caller.origin).await == Some(directory.file) {
                return Some(border.inner);
            }
        }
        None
    }

    /// The root of an export, for a client that comes from the outer export.
    ///
    /// # Errors
    /// NotFound if the client may not use it.
    pub(crate) fn cross(&self, context: &CallContext, inner: usize) -> Result<Opened, Fault> {
        let export = self.exports.get(inner).ok_or(Fault::NotFound)?;
        self.open_in(context, export, export.file_system.root()).map_err(|_| Fault::NotFound)
    }

    /// The directory in the outer export that is above an export's root; `None` if no export surrounds it, or if the
    /// client may not use the outer export.
    pub(crate) async fn cross_back(&self, context: &CallContext, inner: usize) -> Option<Opened> {
        let border = self.borders.0.iter().find(|border| border.inner == inner)?;
        let directory = self.above(border, Origin::of(context)).await?;
        self.open_in(context, &self.exports[border.outer], directory).ok()
    }
}

#[cfg(test)]
mod tests;
