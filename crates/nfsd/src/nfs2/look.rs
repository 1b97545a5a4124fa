//! Procedures that change nothing, except READDIR (`directory.rs`).

use super::{Execution, three};
use crate::nfs3;
use rpcrdma_nfs::{
    attr,
    v2::{self, MAX_PATH_BYTES, MAX_TRANSFER_BYTES},
    v3::{self, Status},
};

/// The block size for the size of a file system, unless the number of blocks would be too large.
const BLOCK_BYTES: u64 = 4096;
/// The most blocks in a reply: old clients take the number for a signed one.
const MAX_BLOCKS: u64 = i32::MAX as u64;

/// Version 2's attributes, from those of version 3.
pub(super) fn told(attributes: v3::Attributes) -> v2::Attributes {
    attr::Attributes::from(attributes).into()
}

/// Whether 32 bits can express the size of a file.
fn is_whole(attributes: &v3::Attributes) -> bool {
    // NFS2-SIZE-b
    attributes.size <= u32::MAX.into()
}

impl Execution {
    /// The attributes of a file; fetched again if the procedure's result did not have them.
    pub(super) async fn attributes(
        &self,
        file: &v3::Handle,
        known: Option<v3::Attributes>,
    ) -> Result<v3::Attributes, Status> {
        match known {
            Some(attributes) => Ok(attributes),
            None => self.patiently(|it| it.get_attributes(v3::GetAttributes { file: file.clone() })).await,
        }
    }

    /// A file that version 3's procedure has found or made.
    pub(super) async fn found(
        &self,
        file: &v3::Handle,
        attributes: Option<v3::Attributes>,
    ) -> Result<v2::LookupOk, Status> {
        let attributes = told(self.attributes(file, attributes).await?);
        Ok(v2::LookupOk { file: self.server.handle_2(&self.context, file).await?, attributes })
    }

    pub(super) async fn get_attributes(self, args: v2::GetAttributes) -> Result<v2::Attributes, Status> {
        self.attributes(&three(&args.file), None).await.map(told)
    }

    pub(super) async fn lookup(self, args: v2::Lookup) -> Result<v2::LookupOk, Status> {
        let asked = v3::Lookup { directory: three(&args.directory), name: args.name };
        let found = self.patiently(|it| it.lookup(asked.clone())).await?;
        self.found(&found.file, found.attributes).await
    }

    pub(super) async fn read_link(self, args: v2::ReadLink) -> Result<v2::ReadLinkOk, Status> {
        let link = three(&args.link);
        let told = self.patiently(|it| it.read_link(v3::ReadLink { link: link.clone() })).await?;
        if told.path.0.len() > MAX_PATH_BYTES {
            return Err(Status::NAMETOOLONG);
        }
        Ok(v2::ReadLinkOk { path: v2::Path(told.path.0) })
    }

    pub(super) async fn read(self, args: v2::Read) -> Result<v2::ReadOk, Status> {
        let (file, count) = (three(&args.file), args.count.min(MAX_TRANSFER_BYTES as u32));
        let asked = v3::Read { file: file.clone(), offset: args.offset.into(), count };
        let read = self.patiently(|it| it.read(asked.clone())).await?;
        let attributes = self.attributes(&file, read.attributes).await?;
        if !is_whole(&attributes) {
            return Err(Status::FBIG);
        }
        Ok(v2::ReadOk { attributes: told(attributes), data: read.data })
    }

    pub(super) async fn file_system_status(self, args: v2::FileSystemStatus) -> Result<v2::FileSystemStatusOk, Status> {
        let opened = self.three().open(&three(&args.root))?;
        // For a file that no longer exists this fails.
        opened.attributes().await.map_err(nfs3::status)?;
        let usage = opened.file_system.usage(opened.caller.clone()).await.map_err(nfs3::status)?;
        let all = [usage.total_bytes, usage.free_bytes, usage.available_bytes];
        let mut block = BLOCK_BYTES;
        while all.iter().any(|octets| octets / block > MAX_BLOCKS) {
            block *= 2;
        }
        let [blocks, free, available] = all.map(|octets| u32::try_from(octets / block).unwrap_or(u32::MAX));
        let transfer_bytes = MAX_TRANSFER_BYTES as u32;
        let block_bytes = u32::try_from(block).unwrap_or(u32::MAX);
        Ok(v2::FileSystemStatusOk { transfer_bytes, block_bytes, blocks, free, available })
    }
}
