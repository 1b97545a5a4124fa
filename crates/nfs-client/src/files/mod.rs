//! Files of a server, in any version of NFS.
//!
//! [`Files`] offers what programs do with files, in types that do not depend on the version ([`rpcrdma_nfs::attr`] and
//! the types here). For each version, a module here implements that by the version's procedures.
//! [`Reader`](crate::Reader), [`Writer`](crate::Writer), [`Listing`] and [`Files::walk`] use this interface and are the
//! same for all versions.
//!
//! If a version cannot do something, the call fails with an error whose [`Error::is_not_supported`] is true. This
//! concerns extended attributes ([`Files::xattrs`]), access control lists ([`Files::acl`], [`Files::posix_acls`]),
//! holes ([`File::seek`]), copies that the server makes ([`File::copy`], [`File::clone_range`]) and locks
//! ([`File::lock`]).
//!
//! Before a program reads or writes data, it opens the file ([`Files::open`], [`Files::create`]); at the end it closes
//! it.

mod acls;
mod copies;
mod file;
mod holes;
mod locks;
mod names;
mod small;
mod told;
mod v2;
mod v3;
mod v4;
mod xattrs;

pub use copies::Copied;
pub use file::{Access, File};
pub use holes::Sought;
pub use locks::{LockKind, TO_THE_END};
pub use names::{Handle, MAX_HANDLE_BYTES, Name, Node, Place};
pub use small::NewFile;
pub(crate) use told::Page;
pub use told::{CreateHow, Created, CreatedFile, Entry, Found, NodeKind, ReadOk, Space, Verifier, WriteOk};
pub use xattrs::SetXattr;

use crate::{Error, Listing, Nfs2, Nfs3, Transfer, v4::Nfs4};
use bytes::Bytes;
use rpcrdma_nfs::attr::{Attributes, NewAttributes, Time};

/// A client of one server. Cloning shares the connection.
///
/// All methods fail with [`Error`], whose methods mean the same for all versions.
#[derive(Clone, Debug)]
pub struct Files(Version);

#[derive(Clone, Debug)]
enum Version {
    V2(Nfs2),
    V3(Nfs3),
    V4(Nfs4),
}

impl From<Nfs2> for Files {
    fn from(nfs: Nfs2) -> Self {
        Self(Version::V2(nfs))
    }
}

impl From<Nfs3> for Files {
    fn from(nfs: Nfs3) -> Self {
        Self(Version::V3(nfs))
    }
}

/// The caller also has to poll its driver ([`Nfs4::driver`]).
impl From<Nfs4> for Files {
    fn from(nfs: Nfs4) -> Self {
        Self(Version::V4(nfs))
    }
}

/// Why version 2 does not have what the caller asked for.
const NOT_IN_2: &str = "version 2 of NFS does not have this; version 4 has it";

impl Files {
    /// The procedures of version 3, if the client uses it: to measure or test them on their own.
    pub fn version_3(&self) -> Option<&Nfs3> {
        match &self.0 {
            Version::V3(nfs) => Some(nfs),
            Version::V2(_) | Version::V4(_) => None,
        }
    }

    /// The operations of version 4, if the client uses it.
    pub fn version_4(&self) -> Option<&Nfs4> {
        match &self.0 {
            Version::V2(_) | Version::V3(_) => None,
            Version::V4(nfs) => Some(nfs),
        }
    }

    /// The operations of version 4; with another version, the error that says so.
    fn in_version_4(&self, procedure: &'static str, what: &'static str) -> Result<&Nfs4, Error> {
        let what = if matches!(self.0, Version::V2(_)) { NOT_IN_2 } else { what };
        self.version_4().ok_or(Error::NotInVersion { procedure, what })
    }

    /// Whether the server answers.
    ///
    /// # Errors
    /// See [`Error`], here and below.
    pub async fn null(&self) -> Result<(), Error> {
        match &self.0 {
            Version::V2(nfs) => nfs.null().await,
            Version::V3(nfs) => nfs.null().await,
            Version::V4(nfs) => Ok(nfs.null().await?),
        }
    }

    /// A file's attributes.
    pub async fn getattr(&self, file: &Handle) -> Result<Attributes, Error> {
        match &self.0 {
            Version::V2(nfs) => v2::getattr(nfs, v2::handle("GETATTR", file)?).await,
            Version::V3(nfs) => Ok(nfs.getattr(&v3::handle("GETATTR", file)?).await?.into()),
            Version::V4(nfs) => Ok(nfs.getattr(&v4::handle(file)?).await?),
        }
    }

    /// Sets attributes; if `guard` is given, only if the file's `changed` equals it. Returns the attributes that the
    /// file then has, if the server returns them. To set the size, open the file and use [`File::setattr`].
    pub async fn setattr(
        &self,
        file: &Handle,
        attributes: NewAttributes,
        guard: Option<Time>,
    ) -> Result<Option<Attributes>, Error> {
        match &self.0 {
            Version::V2(nfs) => v2::setattr(nfs, v2::handle("SETATTR", file)?, attributes, guard).await,
            Version::V3(nfs) => v3::setattr(nfs, &v3::handle("SETATTR", file)?, attributes, guard).await,
            Version::V4(nfs) => v4::setattr(nfs, file, attributes, guard).await,
        }
    }

    /// The file of a name.
    pub async fn lookup(&self, directory: &Handle, name: &Name) -> Result<Found, Error> {
        match &self.0 {
            Version::V2(nfs) => v2::lookup(nfs, directory, name).await,
            Version::V3(nfs) => v3::lookup(nfs, directory, name).await,
            Version::V4(nfs) => v4::lookup(nfs, directory, name).await,
        }
    }

    /// The file of an entry of `directory`. Asks the server for anything that the listing did not contain.
    pub async fn found(&self, directory: &Handle, entry: Entry) -> Result<Found, Error> {
        match entry {
            Entry { name, attributes: Some(attributes), file: Some(file), .. } => {
                Ok(Found { file, attributes, place: Some(Place { directory: directory.clone(), name }) })
            }
            Entry { name, .. } => self.lookup(directory, &name).await,
        }
    }

    /// Which of `rights` the caller has: the bits of [`rpcrdma_nfs::v3::access`], which have the same numbers in all
    /// versions.
    pub async fn access(&self, file: &Handle, rights: u32) -> Result<u32, Error> {
        match &self.0 {
            Version::V2(_) => Err(Error::NotInVersion { procedure: "ACCESS", what: NOT_IN_2 }),
            Version::V3(nfs) => nfs.access(&v3::handle("ACCESS", file)?, rights).await,
            Version::V4(nfs) => Ok(nfs.access(&v4::handle(file)?, rights).await?),
        }
    }

    /// What a symbolic link points to.
    pub async fn readlink(&self, link: &Handle) -> Result<Bytes, Error> {
        match &self.0 {
            Version::V2(nfs) => Ok(nfs.readlink(v2::handle("READLINK", link)?).await?.0),
            Version::V3(nfs) => Ok(nfs.readlink(&v3::handle("READLINK", link)?).await?.0),
            Version::V4(nfs) => Ok(nfs.readlink(&v4::handle(link)?).await?.0),
        }
    }

    /// Makes a regular file, or uses one that exists, as `how` says, and opens it for reading and writing.
    ///
    /// # Errors
    /// [`Error::AfterCreation`] if the file was made and cannot be used.
    pub async fn create(&self, directory: &Handle, name: &Name, how: CreateHow) -> Result<CreatedFile, Error> {
        match &self.0 {
            Version::V2(nfs) => v2::create(nfs, directory, name, how).await,
            Version::V3(nfs) => v3::create(nfs, directory, name, how).await,
            Version::V4(nfs) => v4::create(nfs, directory, name, how).await,
        }
    }

    /// Makes a directory.
    ///
    /// # Errors
    /// As [`create`](Self::create), here and for links and special files.
    pub async fn mkdir(&self, directory: &Handle, name: &Name, attributes: NewAttributes) -> Result<Created, Error> {
        match &self.0 {
            Version::V2(nfs) => v2::mkdir(nfs, directory, name, attributes).await,
            Version::V3(nfs) => v3::mkdir(nfs, directory, name, attributes).await,
            Version::V4(nfs) => v4::mkdir(nfs, directory, name, attributes).await,
        }
    }

    /// Makes a symbolic link that points to `target`.
    pub async fn symlink(
        &self,
        directory: &Handle,
        name: &Name,
        attributes: NewAttributes,
        target: Bytes,
    ) -> Result<Created, Error> {
        match &self.0 {
            Version::V2(nfs) => v2::symlink(nfs, directory, name, attributes, target).await,
            Version::V3(nfs) => v3::symlink(nfs, directory, name, attributes, target).await,
            Version::V4(nfs) => v4::symlink(nfs, directory, name, attributes, target).await,
        }
    }

    /// Makes a special file.
    pub async fn mknod(
        &self,
        directory: &Handle,
        name: &Name,
        kind: NodeKind,
        attributes: NewAttributes,
    ) -> Result<Created, Error> {
        match &self.0 {
            Version::V2(nfs) => v2::mknod(nfs, directory, name, kind, attributes).await,
            Version::V3(nfs) => v3::mknod(nfs, directory, name, kind, attributes).await,
            Version::V4(nfs) => v4::mknod(nfs, directory, name, kind, attributes).await,
        }
    }

    /// Removes a name of a file that is not a directory. Version 4 does not distinguish them, and also removes an empty
    /// directory.
    pub async fn remove(&self, directory: &Handle, name: &Name) -> Result<(), Error> {
        match &self.0 {
            Version::V2(nfs) => v2::remove(nfs, directory, name).await,
            Version::V3(nfs) => v3::remove(nfs, directory, name).await,
            Version::V4(nfs) => v4::remove(nfs, directory, name).await,
        }
    }

    /// Removes an empty directory.
    pub async fn rmdir(&self, directory: &Handle, name: &Name) -> Result<(), Error> {
        match &self.0 {
            Version::V2(nfs) => v2::rmdir(nfs, directory, name).await,
            Version::V3(nfs) => v3::rmdir(nfs, directory, name).await,
            Version::V4(nfs) => v4::remove(nfs, directory, name).await,
        }
    }

    /// Gives a file another name; an existing file of that name is replaced.
    pub async fn rename(
        &self,
        from_directory: &Handle,
        from: &Name,
        to_directory: &Handle,
        to: &Name,
    ) -> Result<(), Error> {
        match &self.0 {
            Version::V2(nfs) => v2::rename(nfs, (from_directory, from), (to_directory, to)).await,
            Version::V3(nfs) => v3::rename(nfs, (from_directory, from), (to_directory, to)).await,
            Version::V4(nfs) => v4::rename(nfs, (from_directory, from), (to_directory, to)).await,
        }
    }

    /// Gives a file a further name.
    pub async fn link(&self, file: &Handle, directory: &Handle, name: &Name) -> Result<(), Error> {
        match &self.0 {
            Version::V2(nfs) => v2::link(nfs, file, directory, name).await,
            Version::V3(nfs) => v3::link(nfs, file, directory, name).await,
            Version::V4(nfs) => v4::link(nfs, file, directory, name).await,
        }
    }

    /// How full the file system of a file is.
    pub async fn statfs(&self, file: &Handle) -> Result<Space, Error> {
        match &self.0 {
            Version::V2(nfs) => v2::statfs(nfs, file).await,
            Version::V3(nfs) => v3::statfs(nfs, file).await,
            Version::V4(nfs) => v4::statfs(nfs, file).await,
        }
    }

    /// The sizes in which to move data to and from the file system of `root`.
    pub async fn transfer(&self, root: &Handle) -> Result<Transfer, Error> {
        match &self.0 {
            Version::V2(nfs) => nfs.transfer(v2::handle("STATFS", root)?).await,
            Version::V3(nfs) => nfs.transfer(&v3::handle("FSINFO", root)?).await,
            Version::V4(nfs) => Ok(nfs.transfer()),
        }
    }

    /// Opens a file that was found.
    pub async fn open(&self, file: impl Into<Node>, access: Access) -> Result<File, Error> {
        match &self.0 {
            Version::V2(nfs) => v2::open(nfs, &file.into(), access),
            Version::V3(nfs) => v3::open(nfs, &file.into(), access),
            Version::V4(nfs) => v4::open(nfs, file.into(), access).await,
        }
    }

    /// Opens the file of a name.
    pub async fn open_at(&self, directory: &Handle, name: &Name, access: Access) -> Result<File, Error> {
        match &self.0 {
            Version::V2(nfs) => v2::open_at(nfs, directory, name).await,
            Version::V3(nfs) => v3::open_at(nfs, directory, name).await,
            Version::V4(nfs) => v4::open_at(nfs, directory, name, access).await,
        }
    }

    /// Lists a directory.
    pub fn list(&self, directory: &Handle, transfer: Transfer) -> Listing {
        Listing::new(self.clone(), directory.clone(), transfer)
    }

    /// Entries of a directory after a place in it. `plus` says whether to ask for attributes and handles, and becomes
    /// false if the server cannot return them.
    pub(crate) async fn entries(
        &self,
        directory: &Handle,
        after: (u64, Verifier),
        octets: u32,
        plus: &mut bool,
    ) -> Result<Page, Error> {
        match &self.0 {
            Version::V2(nfs) => v2::entries(nfs, directory, after.0, octets).await,
            Version::V3(nfs) => v3::entries(nfs, directory, after, octets, plus).await,
            Version::V4(nfs) => v4::entries(nfs, directory, after, octets).await,
        }
    }

    /// The procedure that lists directories, for errors.
    pub(crate) fn lists(&self) -> &'static str {
        match &self.0 {
            Version::V2(_) => v2::READDIR,
            Version::V3(_) => v3::READDIRPLUS,
            Version::V4(_) => v4::READDIR,
        }
    }

    /// The error with which a server answers a LOOKUP in a file that is not a directory, for code that knows without a
    /// call that it is not one.
    pub fn no_directory(&self) -> Error {
        match &self.0 {
            Version::V2(_) => v2::refused("LOOKUP", rpcrdma_nfs::v2::Status::NOTDIR),
            Version::V3(_) => v3::refused("LOOKUP", rpcrdma_nfs::v3::Status::NOTDIR),
            Version::V4(_) => v4::no_directory(),
        }
    }
}
