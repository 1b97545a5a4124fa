//! Procedures that change something.

use super::{Execution, look::told, three};
use rpcrdma_nfs::{
    attr::{self, FileType},
    v2,
    v3::{self, Status},
};

/// Attributes to set; without the file type, which the mode may contain.
fn new(attributes: v2::NewAttributes) -> v3::NewAttributes {
    attr::NewAttributes::from(attributes).into()
}

impl Execution {
    pub(super) async fn set_attributes(self, args: v2::SetAttributes) -> Result<v2::Attributes, Status> {
        let file = three(&args.file);
        let asked = v3::SetAttributes { file: file.clone(), attributes: new(args.attributes), guard: None };
        let changed = self.patiently(|it| it.set_attributes(asked.clone())).await?;
        self.attributes(&file, changed.after).await.map(told)
    }

    /// The data is durable when the reply goes out: version 2 has no other writes.
    // NFS2-SIZE-c
    pub(super) async fn write(self, args: v2::Write) -> Result<v2::Attributes, Status> {
        let end = u64::from(args.offset) + args.data.len() as u64;
        if end > u32::MAX.into() {
            return Err(Status::FBIG);
        }
        let file = three(&args.file);
        // NFS2-WRITE-a
        let (mut offset, mut data, stability) = (args.offset.into(), args.data, v3::Stability::FileSync);
        loop {
            let asked = v3::Write { file: file.clone(), offset, stability, data: data.clone() };
            let written = self.patiently(|it| it.write(asked.clone())).await?;
            // A file system may write fewer bytes at a time, which version 2 cannot report.
            let count = usize::try_from(written.count).unwrap_or(usize::MAX).min(data.len());
            if count == data.len() {
                return self.attributes(&file, written.file.after).await.map(told);
            }
            if count == 0 {
                return Err(Status::IO);
            }
            offset += count as u64;
            data = data.slice(count..);
        }
    }

    // NFS2-CREATE-a
    pub(super) async fn create(self, args: v2::Create) -> Result<v2::LookupOk, Status> {
        let what = match args.attributes.names_type() {
            true => args.attributes.file_type().ok_or(Status::BADTYPE)?,
            false => FileType::Regular,
        };
        let (directory, name) = (three(&args.directory), args.name);
        let device = v2::word_device(args.attributes.size.unwrap_or(0)).into();
        let plain = new(v2::NewAttributes { size: None, ..args.attributes });
        let kind = match what {
            FileType::Regular => {
                let how = v3::CreateHow::Unchecked(new(args.attributes));
                let asked = v3::Create { directory, name, how };
                return self.made(self.patiently(|it| it.create(asked.clone())).await?).await;
            }
            FileType::Block => v3::NodeKind::Block(plain, device),
            FileType::Character => v3::NodeKind::Character(plain, device),
            FileType::Fifo => v3::NodeKind::Fifo(plain),
            FileType::Socket => v3::NodeKind::Socket(plain),
            FileType::Directory | FileType::Symlink => return Err(Status::BADTYPE),
        };
        let asked = v3::MakeNode { directory, name, kind };
        self.made(self.patiently(|it| it.make_node(asked.clone())).await?).await
    }

    async fn made(&self, created: v3::Created) -> Result<v2::LookupOk, Status> {
        self.found(&created.file.ok_or(Status::SERVERFAULT)?, created.attributes).await
    }

    pub(super) async fn make_directory(self, args: v2::MakeDirectory) -> Result<v2::LookupOk, Status> {
        // A size here would be the size of the directory on the client.
        let attributes = new(v2::NewAttributes { size: None, ..args.attributes });
        let asked = v3::MakeDirectory { directory: three(&args.directory), name: args.name, attributes };
        self.made(self.patiently(|it| it.make_directory(asked.clone())).await?).await
    }

    pub(super) async fn symbolic_link(self, args: v2::SymbolicLink) -> Result<(), Status> {
        let attributes = new(v2::NewAttributes { size: None, ..args.attributes });
        let (directory, path) = (three(&args.directory), v3::Path(args.path.0));
        let asked = v3::SymbolicLink { directory, name: args.name, attributes, path };
        self.patiently(|it| it.symbolic_link(asked.clone())).await.map(drop)
    }

    pub(super) async fn remove(self, args: v2::Remove) -> Result<(), Status> {
        let asked = v3::Remove { directory: three(&args.directory), name: args.name };
        self.patiently(|it| it.remove(asked.clone())).await.map(drop)
    }

    pub(super) async fn remove_directory(self, args: v2::RemoveDirectory) -> Result<(), Status> {
        let asked = v3::RemoveDirectory { directory: three(&args.directory), name: args.name };
        self.patiently(|it| it.remove_directory(asked.clone())).await.map(drop)
    }

    pub(super) async fn rename(self, args: v2::Rename) -> Result<(), Status> {
        let (from_directory, to_directory) = (three(&args.from_directory), three(&args.to_directory));
        let asked = v3::Rename { from_directory, from: args.from, to_directory, to: args.to };
        self.patiently(|it| it.rename(asked.clone())).await.map(drop)
    }

    pub(super) async fn link(self, args: v2::Link) -> Result<(), Status> {
        let asked = v3::Link { file: three(&args.file), directory: three(&args.directory), name: args.name };
        self.patiently(|it| it.link(asked.clone())).await.map(drop)
    }
}
