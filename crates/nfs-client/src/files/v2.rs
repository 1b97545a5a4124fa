//! Version 2: implements the operations of [`Files`](super::Files) and [`File`] by the procedures of [`Nfs2`].
//!
//! If version 2 has no procedure for something, this module uses others. If a file must not exist, it looks the name up
//! before it creates the file: if another client creates that name in between, that file is used. It compares a guard
//! with the attributes before it sets them. A file whose size is 2^32 - 1 may be larger; the client does not read it,
//! because it could take a part for the whole file.

use super::{
    Access, CreateHow, Created, CreatedFile, Entry, File, Found, Handle, Name, Node, NodeKind, Page, Place, ReadOk,
    Space, Verifier, WriteOk,
};
use crate::{Error, Nfs2};
use bytes::Bytes;
use rpcrdma_env::Buffer;
use rpcrdma_nfs::{
    attr::{Attributes, Device, FileType, NewAttributes, Stability, Time},
    v2::{self, HANDLE_BYTES, MAX_PATH_BYTES, MAX_TRANSFER_BYTES, Status},
    v3,
};
use rpcrdma_xdr::ItemData;

/// The procedure that lists a directory.
pub(super) const READDIR: &str = "READDIR";

/// The error that a server would return.
pub(super) fn refused(procedure: &'static str, status: Status) -> Error {
    Error::Status { procedure, status: status.into(), denied: None }
}

/// A handle for this version. If its length is wrong, it comes from a server of another version.
pub(super) fn handle(procedure: &'static str, handle: &Handle) -> Result<v2::Handle, Error> {
    let octets: Result<[u8; HANDLE_BYTES], _> = handle.as_slice().try_into();
    octets.map(v2::Handle).map_err(|_| refused(procedure, Status::STALE))
}

fn name(name: &Name) -> v2::Name {
    v2::Name(name.0.clone())
}

fn told(procedure: &'static str, attributes: &v2::Attributes) -> Result<Attributes, Error> {
    let what = "gave attributes with an unknown type of file";
    attributes.neutral().ok_or(Error::Nonsense { procedure, what })
}

fn settable(procedure: &'static str, attributes: NewAttributes) -> Result<v2::NewAttributes, Error> {
    attributes.try_into().map_err(|v2::SizeTooLarge| refused(procedure, Status::FBIG))
}

/// The attributes of a new file: this version has no umask.
fn fresh(procedure: &'static str, attributes: NewAttributes) -> Result<v2::NewAttributes, Error> {
    let mode = attributes.mode.map(|mode| mode & !attributes.umask);
    settable(procedure, NewAttributes { mode, ..attributes })
}

pub(super) async fn getattr(nfs: &Nfs2, file: v2::Handle) -> Result<Attributes, Error> {
    told("GETATTR", &nfs.getattr(file).await?)
}

pub(super) async fn setattr(
    nfs: &Nfs2,
    file: v2::Handle,
    attributes: NewAttributes,
    guard: Option<Time>,
) -> Result<Option<Attributes>, Error> {
    let attributes = settable("SETATTR", attributes)?;
    if let Some(guard) = guard
        && v2::Time::from(guard) != nfs.getattr(file).await?.changed
    {
        let status = v3::Status::NOT_SYNC.into();
        return Err(Error::Status { procedure: "SETATTR", status, denied: None });
    }
    told("SETATTR", &nfs.setattr(file, attributes).await?).map(Some)
}

pub(super) async fn lookup(nfs: &Nfs2, directory: &Handle, called: &Name) -> Result<Found, Error> {
    let found = nfs.lookup(handle("LOOKUP", directory)?, &name(called)).await?;
    let attributes = told("LOOKUP", &found.attributes)?;
    let place = Place { directory: directory.clone(), name: called.clone() };
    Ok(Found { file: found.file.into(), attributes, place: Some(place) })
}

/// Fails if a name exists.
async fn is_free(nfs: &Nfs2, directory: v2::Handle, called: &v2::Name) -> Result<(), Error> {
    match nfs.exists(directory, called).await? {
        Some(_) => Err(refused("CREATE", Status::EXIST)),
        None => Ok(()),
    }
}

/// The attributes of a file that was made; if they are not valid, the error says that the file exists.
fn created(procedure: &'static str, made: &v2::LookupOk) -> Result<Attributes, Error> {
    told(procedure, &made.attributes).map_err(|error| Error::AfterCreation(Box::new(error)))
}

pub(super) async fn create(
    nfs: &Nfs2,
    directory: &Handle,
    called: &Name,
    how: CreateHow,
) -> Result<CreatedFile, Error> {
    let (directory, called) = (handle("CREATE", directory)?, name(called));
    let (new, must_be_new) = match how {
        CreateHow::Unchecked(attributes) => (fresh("CREATE", attributes)?, false),
        CreateHow::Guarded(attributes) => (fresh("CREATE", attributes)?, true),
        CreateHow::Exclusive(_) => (v2::NewAttributes { mode: Some(0o600), ..Default::default() }, true),
    };
    if must_be_new {
        is_free(nfs, directory, &called).await?;
    }
    let made = nfs.create(directory, &called, new).await?;
    let attributes = created("CREATE", &made)?;
    Ok(CreatedFile { file: File::of_2(nfs.clone(), made.file), attributes: Some(attributes) })
}

pub(super) async fn mkdir(
    nfs: &Nfs2,
    directory: &Handle,
    called: &Name,
    attributes: NewAttributes,
) -> Result<Created, Error> {
    let made = nfs.mkdir(handle("MKDIR", directory)?, &name(called), fresh("MKDIR", attributes)?).await?;
    let attributes = created("MKDIR", &made)?;
    Ok(Created { file: made.file.into(), attributes: Some(attributes) })
}

pub(super) async fn symlink(
    nfs: &Nfs2,
    directory: &Handle,
    called: &Name,
    attributes: NewAttributes,
    target: Bytes,
) -> Result<Created, Error> {
    if target.len() > MAX_PATH_BYTES {
        return Err(refused("SYMLINK", Status::NAMETOOLONG));
    }
    let (directory, called) = (handle("SYMLINK", directory)?, name(called));
    nfs.symlink(directory, &called, fresh("SYMLINK", attributes)?, &v2::Path(target)).await?;
    let found = nfs.lookup(directory, &called).await.map_err(|error| Error::AfterCreation(Box::new(error)))?;
    let attributes = created("SYMLINK", &found)?;
    Ok(Created { file: found.file.into(), attributes: Some(attributes) })
}

pub(super) async fn mknod(
    nfs: &Nfs2,
    directory: &Handle,
    called: &Name,
    kind: NodeKind,
    attributes: NewAttributes,
) -> Result<Created, Error> {
    let (directory, called) = (handle("CREATE", directory)?, name(called));
    let (what, device) = match kind {
        NodeKind::Block(device) => (FileType::Block, device),
        NodeKind::Character(device) => (FileType::Character, device),
        NodeKind::Socket => (FileType::Socket, Device::default()),
        NodeKind::Fifo => (FileType::Fifo, Device::default()),
    };
    let new = fresh("CREATE", NewAttributes { size: None, ..attributes })?.with_type(what, device);
    is_free(nfs, directory, &called).await?;
    let made = nfs.create(directory, &called, new).await?;
    let attributes = created("CREATE", &made)?;
    Ok(Created { file: made.file.into(), attributes: Some(attributes) })
}

pub(super) async fn remove(nfs: &Nfs2, directory: &Handle, called: &Name) -> Result<(), Error> {
    nfs.remove(handle("REMOVE", directory)?, &name(called)).await
}

pub(super) async fn rmdir(nfs: &Nfs2, directory: &Handle, called: &Name) -> Result<(), Error> {
    nfs.rmdir(handle("RMDIR", directory)?, &name(called)).await
}

pub(super) async fn rename(nfs: &Nfs2, from: (&Handle, &Name), to: (&Handle, &Name)) -> Result<(), Error> {
    let (from_directory, to_directory) = (handle("RENAME", from.0)?, handle("RENAME", to.0)?);
    nfs.rename((from_directory, &name(from.1)), (to_directory, &name(to.1))).await
}

pub(super) async fn link(nfs: &Nfs2, file: &Handle, directory: &Handle, called: &Name) -> Result<(), Error> {
    nfs.link(handle("LINK", file)?, handle("LINK", directory)?, &name(called)).await
}

/// Version 2 does not say how many files there are and can be.
pub(super) async fn statfs(nfs: &Nfs2, file: &Handle) -> Result<Space, Error> {
    let told = nfs.statfs(handle("STATFS", file)?).await?;
    let octets = |blocks: u32| u64::from(blocks).saturating_mul(told.block_bytes.into());
    Ok(Space {
        total_bytes: octets(told.blocks),
        free_bytes: octets(told.free),
        available_bytes: octets(told.available),
        ..Space::default()
    })
}

/// Opens a file without a call, as in version 3.
pub(super) fn open(nfs: &Nfs2, node: &Node, access: Access) -> Result<File, Error> {
    let procedure = if access == Access::Read { "READ" } else { "WRITE" };
    Ok(File::of_2(nfs.clone(), handle(procedure, &node.file)?))
}

pub(super) async fn open_at(nfs: &Nfs2, directory: &Handle, called: &Name) -> Result<File, Error> {
    let found = nfs.lookup(handle("LOOKUP", directory)?, &name(called)).await?;
    Ok(File::of_2(nfs.clone(), found.file))
}

/// Whether this many bytes from `offset` on reach the end of the file. Fails if this version cannot express the file's
/// size.
fn is_end(attributes: &v2::Attributes, offset: u32, octets: usize) -> Result<bool, Error> {
    if attributes.size == u32::MAX {
        return Err(refused("READ", Status::FBIG));
    }
    Ok(u64::from(offset) + octets as u64 >= attributes.size.into())
}

pub(super) async fn read(nfs: &Nfs2, file: v2::Handle, offset: u64, count: u32) -> Result<ReadOk, Error> {
    // No readable file reaches this offset.
    let Ok(offset) = u32::try_from(offset) else { return Ok(ReadOk { data: Bytes::new(), end: true }) };
    let ok = nfs.read(file, offset, count).await?;
    let end = is_end(&ok.attributes, offset, ok.data.len())?;
    Ok(ReadOk { data: ok.data, end })
}

pub(super) async fn read_into(
    nfs: &Nfs2,
    file: v2::Handle,
    offset: u64,
    mut buffer: Buffer,
) -> Result<ReadOk<ItemData>, Error> {
    let Ok(offset) = u32::try_from(offset) else {
        buffer.set_len(0);
        return Ok(ReadOk { data: ItemData::Placed(buffer), end: true });
    };
    let ok = nfs.read_into(file, offset, buffer).await?;
    let end = is_end(&ok.attributes, offset, ok.data.as_slice().len())?;
    Ok(ReadOk { data: ok.data, end })
}

/// Writes as many bytes as one call takes. They are durable at once.
pub(super) async fn write(nfs: &Nfs2, file: v2::Handle, offset: u64, mut data: Bytes) -> Result<WriteOk, Error> {
    data.truncate(MAX_TRANSFER_BYTES);
    let (count, end) = (data.len(), offset.saturating_add(data.len() as u64));
    let offset = u32::try_from(offset).ok().filter(|_| end <= u32::MAX.into());
    let offset = offset.ok_or_else(|| refused("WRITE", Status::FBIG))?;
    nfs.write(file, offset, data).await?;
    let count = u32::try_from(count).unwrap_or(u32::MAX);
    Ok(WriteOk { count, committed: Stability::FileSync, verifier: Verifier::default() })
}

pub(super) async fn entries(nfs: &Nfs2, directory: &Handle, cookie: u64, octets: u32) -> Result<Page, Error> {
    // A cookie that this client returns has come from this version.
    let cookie = u32::try_from(cookie).unwrap_or(u32::MAX);
    let ok = nfs.readdir(handle(READDIR, directory)?, cookie, octets).await?;
    let entries = ok.entries.into_iter().map(|entry| Entry {
        file_id: entry.file_id.into(),
        name: Name(entry.name.0),
        attributes: None,
        file: None,
        cookie: entry.cookie.into(),
    });
    Ok(Page { entries: entries.collect(), verifier: Verifier::default(), end: ok.end })
}
