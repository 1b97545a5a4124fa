//! Version 3: implements the operations of [`Files`](super::Files) and [`File`] by the procedures of [`Nfs3`].

use super::{
    Access, CreateHow, Created, CreatedFile, Entry, File, Found, Handle, Name, Node, NodeKind, Page, Place, ReadOk,
    Space, Verifier, WriteOk,
};
use crate::{Error, Nfs3};
use bytes::Bytes;
use rpcrdma_env::Buffer;
use rpcrdma_nfs::{
    attr::{Attributes, NewAttributes, Stability, Time},
    v3::{self, Status},
};
use rpcrdma_xdr::ItemData;

/// The procedures that list a directory: with attributes and handles, and without.
pub(super) const READDIRPLUS: &str = "READDIRPLUS";

/// The error that a server would return.
pub(super) fn refused(procedure: &'static str, status: Status) -> Error {
    Error::Status { procedure, status: status.into(), denied: None }
}

/// A handle for this version. If it is too long, it comes from a server of another version.
pub(super) fn handle(procedure: &'static str, handle: &Handle) -> Result<v3::Handle, Error> {
    v3::Handle::try_from(handle.bytes()).map_err(|_| refused(procedure, Status::BADHANDLE))
}

fn name(name: &Name) -> v3::Name {
    v3::Name(name.0.clone())
}

/// The attributes of a new file: this version has no umask.
fn fresh(attributes: NewAttributes) -> v3::NewAttributes {
    let mode = attributes.mode.map(|mode| mode & !attributes.umask);
    NewAttributes { mode, ..attributes }.into()
}

pub(super) async fn setattr(
    nfs: &Nfs3,
    file: &v3::Handle,
    attributes: NewAttributes,
    guard: Option<Time>,
) -> Result<Option<Attributes>, Error> {
    Ok(nfs.setattr(file, attributes.into(), guard.map(Into::into)).await?.after.map(Into::into))
}

pub(super) async fn lookup(nfs: &Nfs3, directory: &Handle, called: &Name) -> Result<Found, Error> {
    let found = nfs.lookup(&handle("LOOKUP", directory)?, &name(called)).await?;
    let attributes = match found.attributes {
        Some(attributes) => attributes,
        None => nfs.getattr(&found.file).await?,
    };
    let place = Place { directory: directory.clone(), name: called.clone() };
    Ok(Found { file: found.file.into(), attributes: attributes.into(), place: Some(place) })
}

/// The handle of a new file: not every server returns it in the reply.
async fn made(
    nfs: &Nfs3,
    directory: &v3::Handle,
    name: &v3::Name,
    created: v3::Created,
) -> Result<(v3::Handle, Option<Attributes>), Error> {
    let file = match created.file {
        Some(file) => file,
        None => nfs.lookup(directory, name).await.map_err(|error| Error::AfterCreation(Box::new(error)))?.file,
    };
    Ok((file, created.attributes.map(Into::into)))
}

pub(super) async fn create(
    nfs: &Nfs3,
    directory: &Handle,
    called: &Name,
    how: CreateHow,
) -> Result<CreatedFile, Error> {
    let (directory, called) = (handle("CREATE", directory)?, name(called));
    let how = match how {
        CreateHow::Unchecked(attributes) => v3::CreateHow::Unchecked(fresh(attributes)),
        CreateHow::Guarded(attributes) => v3::CreateHow::Guarded(fresh(attributes)),
        CreateHow::Exclusive(verifier) => v3::CreateHow::Exclusive(v3::Verifier(verifier.0)),
    };
    let created = nfs.create(&directory, &called, how).await?;
    let (file, attributes) = made(nfs, &directory, &called, created).await?;
    Ok(CreatedFile { file: File::of_3(nfs.clone(), file), attributes })
}

pub(super) async fn mkdir(
    nfs: &Nfs3,
    directory: &Handle,
    called: &Name,
    attributes: NewAttributes,
) -> Result<Created, Error> {
    let (directory, called) = (handle("MKDIR", directory)?, name(called));
    let created = nfs.mkdir(&directory, &called, fresh(attributes)).await?;
    let (file, attributes) = made(nfs, &directory, &called, created).await?;
    Ok(Created { file: file.into(), attributes })
}

pub(super) async fn symlink(
    nfs: &Nfs3,
    directory: &Handle,
    called: &Name,
    attributes: NewAttributes,
    target: Bytes,
) -> Result<Created, Error> {
    let (directory, called) = (handle("SYMLINK", directory)?, name(called));
    let created = nfs.symlink(&directory, &called, fresh(attributes), &v3::Path(target)).await?;
    let (file, attributes) = made(nfs, &directory, &called, created).await?;
    Ok(Created { file: file.into(), attributes })
}

pub(super) async fn mknod(
    nfs: &Nfs3,
    directory: &Handle,
    called: &Name,
    kind: NodeKind,
    attributes: NewAttributes,
) -> Result<Created, Error> {
    let (directory, called, attributes) = (handle("MKNOD", directory)?, name(called), fresh(attributes));
    let kind = match kind {
        NodeKind::Block(device) => v3::NodeKind::Block(attributes, device.into()),
        NodeKind::Character(device) => v3::NodeKind::Character(attributes, device.into()),
        NodeKind::Socket => v3::NodeKind::Socket(attributes),
        NodeKind::Fifo => v3::NodeKind::Fifo(attributes),
    };
    let created = nfs.mknod(&directory, &called, kind).await?;
    let (file, attributes) = made(nfs, &directory, &called, created).await?;
    Ok(Created { file: file.into(), attributes })
}

pub(super) async fn remove(nfs: &Nfs3, directory: &Handle, called: &Name) -> Result<(), Error> {
    nfs.remove(&handle("REMOVE", directory)?, &name(called)).await.map(drop)
}

pub(super) async fn rmdir(nfs: &Nfs3, directory: &Handle, called: &Name) -> Result<(), Error> {
    nfs.rmdir(&handle("RMDIR", directory)?, &name(called)).await.map(drop)
}

pub(super) async fn rename(nfs: &Nfs3, from: (&Handle, &Name), to: (&Handle, &Name)) -> Result<(), Error> {
    let (from_directory, to_directory) = (handle("RENAME", from.0)?, handle("RENAME", to.0)?);
    nfs.rename(&from_directory, &name(from.1), &to_directory, &name(to.1)).await.map(drop)
}

pub(super) async fn link(nfs: &Nfs3, file: &Handle, directory: &Handle, called: &Name) -> Result<(), Error> {
    nfs.link(&handle("LINK", file)?, &handle("LINK", directory)?, &name(called)).await.map(drop)
}

pub(super) async fn statfs(nfs: &Nfs3, file: &Handle) -> Result<Space, Error> {
    let told = nfs.fsstat(&handle("FSSTAT", file)?).await?;
    Ok(Space {
        total_bytes: told.total_bytes,
        free_bytes: told.free_bytes,
        available_bytes: told.available_bytes,
        total_files: told.total_files,
        free_files: told.free_files,
        available_files: told.available_files,
    })
}

/// Needs no call: a server of version 3 does not know opens, and checks each READ and WRITE.
pub(super) fn open(nfs: &Nfs3, node: &Node, access: Access) -> Result<File, Error> {
    let procedure = if access == Access::Read { "READ" } else { "WRITE" };
    Ok(File::of_3(nfs.clone(), handle(procedure, &node.file)?))
}

pub(super) async fn open_at(nfs: &Nfs3, directory: &Handle, called: &Name) -> Result<File, Error> {
    let found = nfs.lookup(&handle("LOOKUP", directory)?, &name(called)).await?;
    Ok(File::of_3(nfs.clone(), found.file))
}

pub(super) async fn read(nfs: &Nfs3, file: &v3::Handle, offset: u64, count: u32) -> Result<ReadOk, Error> {
    let ok = nfs.read(file, offset, count).await?;
    Ok(ReadOk { data: ok.data, end: ok.end })
}

pub(super) async fn read_into(
    nfs: &Nfs3,
    file: &v3::Handle,
    offset: u64,
    buffer: Buffer,
) -> Result<ReadOk<ItemData>, Error> {
    let ok = nfs.read_into(file, offset, buffer).await?;
    Ok(ReadOk { data: ok.data, end: ok.end })
}

pub(super) async fn write(
    nfs: &Nfs3,
    file: &v3::Handle,
    offset: u64,
    stability: Stability,
    data: Bytes,
) -> Result<WriteOk, Error> {
    let ok = nfs.write(file, offset, stability.into(), data).await?;
    Ok(WriteOk { count: ok.count, committed: ok.committed.into(), verifier: Verifier(ok.verifier.0) })
}

/// Entries after `cookie`, with attributes and handles if the server has READDIRPLUS. If it has not, `plus` becomes
/// false.
pub(super) async fn entries(
    nfs: &Nfs3,
    directory: &Handle,
    (cookie, verifier): (u64, Verifier),
    octets: u32,
    plus: &mut bool,
) -> Result<Page, Error> {
    let (directory, verifier) = (handle(READDIRPLUS, directory)?, v3::Verifier(verifier.0));
    if *plus {
        match nfs.readdirplus(&directory, cookie, verifier, octets).await {
            Ok(ok) => {
                let entries = ok.entries.into_iter().map(|entry| Entry {
                    file_id: entry.file_id,
                    name: Name(entry.name.0),
                    attributes: entry.attributes.map(Into::into),
                    file: entry.file.map(Into::into),
                    cookie: entry.cookie,
                });
                return Ok(Page { entries: entries.collect(), verifier: Verifier(ok.verifier.0), end: ok.end });
            }
            Err(error) if error.is_not_supported() => *plus = false,
            Err(error) => return Err(error),
        }
    }
    let ok = nfs.readdir(&directory, cookie, verifier, octets).await?;
    let entries = ok.entries.into_iter().map(|entry| Entry {
        file_id: entry.file_id,
        name: Name(entry.name.0),
        attributes: None,
        file: None,
        cookie: entry.cookie,
    });
    Ok(Page { entries: entries.collect(), verifier: Verifier(ok.verifier.0), end: ok.end })
}
