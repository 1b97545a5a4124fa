//! Special files: named pipes, sockets and devices have no contents, and are made by one call.

use super::{Copier, source::Facts};
use anyhow::{Result, bail, ensure};
use rpcrdma_nfs::attr::{Attributes, Device, FileType, NewAttributes};
use rpcrdma_nfs_client::{Handle, Name, NodeKind};
use rustix::fs::FileType as LocalType;

impl Copier<'_> {
    /// Makes a special file. An existing one of the same kind counts as made.
    pub(super) async fn node(&self, facts: &Facts, directory: &Handle, name: &Name) -> Result<Handle> {
        let files = &self.session.files;
        let attributes = NewAttributes { mode: Some(facts.mode), ..Default::default() };
        let (kind, file_type) = match facts.kind {
            LocalType::Fifo => (NodeKind::Fifo, FileType::Fifo),
            LocalType::Socket => (NodeKind::Socket, FileType::Socket),
            LocalType::CharacterDevice => (NodeKind::Character(facts.device), FileType::Character),
            LocalType::BlockDevice => (NodeKind::Block(facts.device), FileType::Block),
            _ => bail!("is of a kind that the protocol does not know"),
        };
        let file = match files.mknod(directory, name, kind, attributes).await {
            Err(error) if error.exists() => {
                let found = files.lookup(directory, name).await?;
                let there = found.attributes;
                ensure!(
                    is_same(&there, file_type, facts.device),
                    "exists on the server and is another {}",
                    crate::names::file_type(there.file_type)
                );
                found.file
            }
            made => made?.file,
        };
        self.tally.borrow_mut().special += 1;
        Ok(file)
    }
}

/// Whether an existing file is what should be made: devices have numbers too.
fn is_same(there: &Attributes, file_type: FileType, device: Device) -> bool {
    let is_device = matches!(file_type, FileType::Character | FileType::Block);
    there.file_type == file_type && (!is_device || there.device == device)
}
