//! Version 4: implements the operations of [`Files`](super::Files) and [`File`] by the operations of [`Nfs4`].
//!
//! A file that was found is opened by its handle: so it is the same file even if its name now belongs to another one.
//! Minor version 0 opens by name alone: if the name now belongs to another file, the client reads and writes the file
//! that it found without an open, as in version 3.

use super::{
    Access, CreateHow, Created, CreatedFile, Entry, File, Found, Handle, Name, NewFile, Node, NodeKind, Page, Place,
    ReadOk, Space, Verifier, WriteOk,
};
use crate::{
    Cause, Error,
    v4::{self as client, By, How, Nfs4},
};
use bytes::Bytes;
use rpcrdma_env::Buffer;
use rpcrdma_nfs::{
    attr::{Attributes, Device, NewAttributes, Stability, Time},
    v4::{self, LinkText, Op, Status, ops},
};
use rpcrdma_xdr::ItemData;
use std::sync::Arc;

/// The operation that lists a directory.
pub(super) const READDIR: &str = "READDIR";

/// A handle of this version, which allows longer handles than all other versions.
pub(super) fn handle(handle: &Handle) -> Result<v4::Handle, Error> {
    v4::Handle::new(handle.as_slice()).ok_or_else(|| refused(Op::PutFh, Status::BADHANDLE))
}

/// The error that a server would return.
pub(super) fn refused(operation: Op, status: Status) -> Error {
    Error::Status { procedure: operation.name(), status: status.into(), denied: None }
}

pub(super) fn name(name: &Name) -> v4::Name {
    v4::Name(name.0.clone())
}

/// The error with which a server answers a LOOKUP in a file that is not a directory.
pub(super) fn no_directory() -> Error {
    refused(Op::Lookup, Status::NOTDIR)
}

pub(super) async fn setattr(
    nfs: &Nfs4,
    file: &Handle,
    attributes: NewAttributes,
    guard: Option<Time>,
) -> Result<Option<Attributes>, Error> {
    Ok(Some(nfs.setattr_if(&handle(file)?, &attributes, None, guard).await?))
}

pub(super) async fn lookup(nfs: &Nfs4, directory: &Handle, called: &Name) -> Result<Found, Error> {
    let client::Found { file, attributes } = nfs.lookup(&handle(directory)?, &name(called)).await?;
    let place = Place { directory: directory.clone(), name: called.clone() };
    Ok(Found { file: (&file).into(), attributes, place: Some(place) })
}

pub(super) async fn create(
    nfs: &Nfs4,
    directory: &Handle,
    called: &Name,
    how: CreateHow,
) -> Result<CreatedFile, Error> {
    let how = match how {
        CreateHow::Unchecked(attributes) => How::Unchecked(attributes),
        CreateHow::Guarded(attributes) => How::Guarded(attributes),
        CreateHow::Exclusive(verifier) => How::ExclusiveBy(NewAttributes::default(), v4::Verifier(verifier.0)),
    };
    let (opened, attributes) = nfs.open(&handle(directory)?, &name(called), client::Access::Both, how).await?;
    Ok(CreatedFile { file: File::of_4(Open::new(nfs, opened)), attributes: Some(attributes) })
}

fn created(found: client::Found) -> Created {
    Created { file: (&found.file).into(), attributes: Some(found.attributes) }
}

pub(super) async fn mkdir(
    nfs: &Nfs4,
    directory: &Handle,
    called: &Name,
    attributes: NewAttributes,
) -> Result<Created, Error> {
    Ok(created(nfs.mkdir(&handle(directory)?, &name(called), &attributes).await?))
}

pub(super) async fn symlink(
    nfs: &Nfs4,
    directory: &Handle,
    called: &Name,
    attributes: NewAttributes,
    target: Bytes,
) -> Result<Created, Error> {
    Ok(created(nfs.symlink(&handle(directory)?, &name(called), &LinkText(target), &attributes).await?))
}

pub(super) async fn mknod(
    nfs: &Nfs4,
    directory: &Handle,
    called: &Name,
    kind: NodeKind,
    attributes: NewAttributes,
) -> Result<Created, Error> {
    let device = |Device { major, minor }| v4::Device { major, minor };
    let kind = match kind {
        NodeKind::Block(number) => ops::CreateKind::Block(device(number)),
        NodeKind::Character(number) => ops::CreateKind::Character(device(number)),
        NodeKind::Socket => ops::CreateKind::Socket,
        NodeKind::Fifo => ops::CreateKind::Fifo,
    };
    Ok(created(nfs.mknod(&handle(directory)?, &name(called), kind, &attributes).await?))
}

/// REMOVE, which also removes directories.
pub(super) async fn remove(nfs: &Nfs4, directory: &Handle, called: &Name) -> Result<(), Error> {
    Ok(nfs.remove(&handle(directory)?, &name(called)).await.map(drop)?)
}

pub(super) async fn rename(nfs: &Nfs4, from: (&Handle, &Name), to: (&Handle, &Name)) -> Result<(), Error> {
    let (from_directory, to_directory) = (handle(from.0)?, handle(to.0)?);
    Ok(nfs.rename(&from_directory, &name(from.1), &to_directory, &name(to.1)).await.map(drop)?)
}

pub(super) async fn link(nfs: &Nfs4, file: &Handle, directory: &Handle, called: &Name) -> Result<(), Error> {
    Ok(nfs.link(&handle(file)?, &handle(directory)?, &name(called)).await.map(drop)?)
}

pub(super) async fn statfs(nfs: &Nfs4, file: &Handle) -> Result<Space, Error> {
    let told = nfs.statfs(&handle(file)?).await?;
    Ok(Space {
        total_bytes: told.total_bytes,
        free_bytes: told.free_bytes,
        available_bytes: told.available_bytes,
        total_files: told.total_files,
        free_files: told.free_files,
        available_files: told.available_files,
    })
}

/// Entries after `cookie`, with attributes and handles.
pub(super) async fn entries(
    nfs: &Nfs4,
    directory: &Handle,
    (cookie, verifier): (u64, Verifier),
    octets: u32,
) -> Result<Page, Error> {
    let page = nfs.readdir(&handle(directory)?, cookie, v4::Verifier(verifier.0), octets).await?;
    let entries = page.entries.into_iter().map(|entry| Entry {
        // The number comes only with the attributes.
        file_id: entry.attributes.as_ref().map_or(0, |attributes| attributes.file_id),
        name: Name(entry.name.0),
        attributes: entry.attributes,
        file: entry.file.as_ref().map(Into::into),
        cookie: entry.cookie,
    });
    Ok(Page { entries: entries.collect(), verifier: Verifier(page.verifier.0), end: page.end })
}

/// The durability, in the form of all versions.
pub(super) fn stability_of(stability: ops::Stability) -> Stability {
    match stability {
        ops::Stability::Unstable => Stability::Unstable,
        ops::Stability::DataSync => Stability::DataSync,
        ops::Stability::FileSync => Stability::FileSync,
    }
}

/// Opens a file that was found.
pub(super) async fn open(nfs: &Nfs4, node: Node, access: Access) -> Result<File, Error> {
    let file = handle(&node.file)?;
    if nfs.minor() > 0 {
        let (opened, _) = nfs.open_file(&file, access.into()).await?;
        return Ok(File::of_4(Open::new(nfs, opened)));
    }
    if let Some(Place { directory, name: called }) = &node.place {
        match nfs.open(&handle(directory)?, &name(called), access.into(), How::Existing).await {
            Ok((opened, _)) if *opened.file() == file => return Ok(File::of_4(Open::new(nfs, opened))),
            Ok((another, _)) => nfs.close(another).await?,
            Err(error) => match Error::from(error) {
                error if error.cause() == Some(Cause::Absent) => {}
                error => return Err(error),
            },
        }
        tracing::debug!("a file has lost the name by which it was found, and is used without an open");
    }
    Ok(File::of_4(Open { nfs: nfs.clone(), by: Means::Handle(file) }))
}

/// Reads the first bytes of a file without an open.
pub(super) async fn read_small(nfs: &Nfs4, file: &Handle, count: u32) -> Result<ReadOk, Error> {
    let ops::ReadOk { data, end } = nfs.read(&handle(file)?, 0, count).await?;
    Ok(ReadOk { data, end })
}

/// Makes a small file in one call.
pub(super) async fn place(nfs: &Nfs4, new: NewFile<'_>) -> Result<(Handle, Attributes), Error> {
    let (directory, temporary, called) = (handle(new.directory)?, name(new.temporary), name(new.name));
    let new = client::NewFile {
        directory: &directory,
        temporary: &temporary,
        name: &called,
        mode: new.mode,
        attributes: &new.attributes,
        data: new.data,
    };
    let (file, attributes) = nfs.place(&new).await?;
    Ok(((&file).into(), attributes))
}

/// Opens the file of a name.
pub(super) async fn open_at(nfs: &Nfs4, directory: &Handle, called: &Name, access: Access) -> Result<File, Error> {
    let (opened, _) = nfs.open(&handle(directory)?, &name(called), access.into(), How::Existing).await?;
    Ok(File::of_4(Open::new(nfs, opened)))
}

/// An open file.
#[derive(Clone, Debug)]
pub(super) struct Open {
    nfs: Nfs4,
    by: Means,
}

/// How to read and write a file.
#[derive(Clone, Debug)]
enum Means {
    /// Clones share the open.
    Open(Arc<client::Opened>),
    /// Without an open: the server checks each call.
    Handle(v4::Handle),
}

impl Open {
    fn new(nfs: &Nfs4, opened: client::Opened) -> Self {
        Self { nfs: nfs.clone(), by: Means::Open(Arc::new(opened)) }
    }

    fn by(&self) -> By<'_> {
        match &self.by {
            Means::Open(opened) => By::Open(opened),
            Means::Handle(file) => By::File(file),
        }
    }

    fn file(&self) -> &v4::Handle {
        match &self.by {
            Means::Open(opened) => opened.file(),
            Means::Handle(file) => file,
        }
    }

    pub(super) fn handle(&self) -> Handle {
        self.file().into()
    }

    /// The client and its open.
    ///
    /// # Errors
    /// If there is no open: in minor version 0, if the file has lost the name by which it was found.
    pub(super) fn opened(&self, operation: Op) -> Result<(&Nfs4, &client::Opened), Error> {
        match &self.by {
            Means::Open(opened) => Ok((&self.nfs, opened)),
            Means::Handle(_) => Err(refused(operation, Status::NOENT)),
        }
    }

    /// The client, and how it reads the file.
    pub(super) fn readable(&self) -> (&Nfs4, By<'_>) {
        (&self.nfs, self.by())
    }

    pub(super) async fn read(&self, offset: u64, count: u32) -> Result<ReadOk, Error> {
        let ops::ReadOk { data, end } = self.nfs.read(self.by(), offset, count).await?;
        Ok(ReadOk { data, end })
    }

    pub(super) async fn read_into(&self, offset: u64, buffer: Buffer) -> Result<ReadOk<ItemData>, Error> {
        let ops::ReadOk { data, end } = self.nfs.read_into(self.by(), offset, buffer).await?;
        Ok(ReadOk { data, end })
    }

    pub(super) async fn write(&self, offset: u64, stability: Stability, data: Bytes) -> Result<WriteOk, Error> {
        let stability = match stability {
            Stability::Unstable => ops::Stability::Unstable,
            Stability::DataSync => ops::Stability::DataSync,
            Stability::FileSync => ops::Stability::FileSync,
        };
        let ok = self.nfs.write(self.by(), offset, stability, data).await?;
        let committed = stability_of(ok.committed);
        Ok(WriteOk { count: ok.count, committed, verifier: Verifier(ok.verifier.0) })
    }

    pub(super) async fn commit(&self, offset: u64, count: u32) -> Result<Verifier, Error> {
        Ok(Verifier(self.nfs.commit(self.file(), offset, count).await?.0))
    }

    pub(super) async fn getattr(&self) -> Result<Attributes, Error> {
        Ok(self.nfs.getattr(self.file()).await?)
    }

    pub(super) async fn setattr(&self, attributes: NewAttributes) -> Result<Option<Attributes>, Error> {
        // Only setting the size needs an open; other attributes do not.
        let opened = match &self.by {
            Means::Open(opened) if attributes.size.is_some() => Some(&**opened),
            _ => None,
        };
        Ok(Some(self.nfs.setattr(self.file(), &attributes, opened).await?))
    }

    pub(super) async fn close(self) -> Result<(), Error> {
        match &self.by {
            Means::Open(opened) => Ok(self.nfs.close_shared(opened).await?),
            Means::Handle(_) => Ok(()),
        }
    }
}

impl From<Access> for client::Access {
    fn from(access: Access) -> Self {
        match access {
            Access::Read => Self::Read,
            Access::Write => Self::Write,
            Access::Both => Self::Both,
        }
    }
}
