//! Special files: named pipes, sockets and devices have no contents, and are made by one call.

use super::{Copier, source::Facts};
use anyhow::{Result, bail, ensure};
use rpcrdma_nfs::v3::{Attributes, FileType, Handle, Name, NewAttributes, NodeKind, Specification, Status};
use rustix::fs::FileType as LocalType;

impl Copier<'_> {
    /// Makes a special file. One of the same kind that is there already counts as made.
    pub(super) async fn node(&self, facts: &Facts, directory: &Handle, name: &Name) -> Result<Handle> {
        let nfs = &self.session.nfs;
        let attributes = NewAttributes { mode: Some(facts.mode), ..Default::default() };
        let (kind, file_type) = match facts.kind {
            LocalType::Fifo => (NodeKind::Fifo(attributes), FileType::Fifo),
            LocalType::Socket => (NodeKind::Socket(attributes), FileType::Socket),
            LocalType::CharacterDevice => (NodeKind::Character(attributes, facts.device), FileType::Character),
            LocalType::BlockDevice => (NodeKind::Block(attributes, facts.device), FileType::Block),
            _ => bail!("is of a kind that the protocol does not know"),
        };
        let file = match nfs.mknod(directory, name, kind).await {
            Err(error) if error.status() == Some(Status::EXIST) => {
                let found = nfs.lookup(directory, name).await?;
                let there = match found.attributes {
                    Some(attributes) => attributes,
                    None => nfs.getattr(&found.file).await?,
                };
                ensure!(
                    is_same(&there, file_type, facts.device),
                    "exists on the server and is another {}",
                    crate::names::file_type(there.file_type)
                );
                found.file
            }
            made => self.handle_of(made?.file, directory, name).await?,
        };
        self.tally.borrow_mut().special += 1;
        Ok(file)
    }
}

/// Whether what is there is what was to be made: devices have numbers too.
fn is_same(there: &Attributes, file_type: FileType, device: Specification) -> bool {
    let is_device = matches!(file_type, FileType::Character | FileType::Block);
    there.file_type == file_type && (!is_device || there.device == device)
}
