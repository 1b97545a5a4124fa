//! An open file, through which programs read and write.
//!
//! Versions 2 and 3 have no opens: a file is its handle, and opening and closing cost no call. Version 4 gives a
//! stateid to a client that opens a file; the client names it in each READ and WRITE and gives it back at the end.

use super::{Handle, ReadOk, Verifier, WriteOk, v2, v3, v4};
use crate::{Error, Nfs2, Nfs3};
use bytes::Bytes;
use rpcrdma_env::Buffer;
use rpcrdma_nfs::{
    attr::{Attributes, NewAttributes, Stability},
    v2::Handle as Handle2,
    v3::Handle as Handle3,
};
use rpcrdma_xdr::ItemData;

/// What a file is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// To read it.
    Read,
    /// To write it.
    Write,
    /// For both.
    Both,
}

/// An open file. Clones are the same open file: [`close`](File::close) one of them when no other is used any more.
#[derive(Clone, Debug)]
pub struct File(Opened);

#[derive(Clone, Debug)]
enum Opened {
    V2 { nfs: Nfs2, file: Handle2 },
    V3 { nfs: Nfs3, file: Handle3 },
    V4(v4::Open),
}

impl File {
    pub(super) fn of_2(nfs: Nfs2, file: Handle2) -> Self {
        Self(Opened::V2 { nfs, file })
    }

    pub(super) fn of_3(nfs: Nfs3, file: Handle3) -> Self {
        Self(Opened::V3 { nfs, file })
    }

    pub(super) fn of_4(open: v4::Open) -> Self {
        Self(Opened::V4(open))
    }

    /// The open of version 4; with another version, the error that says so.
    pub(super) fn version_4(&self, procedure: &'static str, what: &'static str) -> Result<&v4::Open, Error> {
        match &self.0 {
            Opened::V2 { .. } => Err(Error::NotInVersion { procedure, what: super::NOT_IN_2 }),
            Opened::V3 { .. } => Err(Error::NotInVersion { procedure, what }),
            Opened::V4(open) => Ok(open),
        }
    }

    /// The file's handle.
    pub fn handle(&self) -> Handle {
        match &self.0 {
            Opened::V2 { file, .. } => (*file).into(),
            Opened::V3 { file, .. } => file.clone().into(),
            Opened::V4(open) => open.handle(),
        }
    }

    /// Reads up to `count` bytes.
    ///
    /// # Errors
    /// See [`Error`], here and below.
    pub async fn read(&self, offset: u64, count: u32) -> Result<ReadOk, Error> {
        match &self.0 {
            Opened::V2 { nfs, file } => v2::read(nfs, *file, offset, count).await,
            Opened::V3 { nfs, file } => v3::read(nfs, file, offset, count).await,
            Opened::V4(open) => open.read(offset, count).await,
        }
    }

    /// Reads into the caller's buffer, as many bytes as it holds. If the transport places data directly, the bytes
    /// arrive in this very buffer, and it comes back as [`ItemData::Placed`], unless version 4 had to call more than
    /// once. If the server answers "try again later" ([`Error::is_later`]), the caller has to try again.
    pub async fn read_into(&self, offset: u64, buffer: Buffer) -> Result<ReadOk<ItemData>, Error> {
        match &self.0 {
            Opened::V2 { nfs, file } => v2::read_into(nfs, *file, offset, buffer).await,
            Opened::V3 { nfs, file } => v3::read_into(nfs, file, offset, buffer).await,
            Opened::V4(open) => open.read_into(offset, buffer).await,
        }
    }

    /// Puts bytes into the file. The server may take fewer.
    pub async fn write(&self, offset: u64, stability: Stability, data: Bytes) -> Result<WriteOk, Error> {
        match &self.0 {
            Opened::V2 { nfs, file } => v2::write(nfs, *file, offset, data).await,
            Opened::V3 { nfs, file } => v3::write(nfs, file, offset, stability, data).await,
            Opened::V4(open) => open.write(offset, stability, data).await,
        }
    }

    /// Makes unstable writes durable: `count` bytes from `offset` on, or all bytes after it if `count` is 0. If the
    /// verifier differs from the verifier of the writes, the server has lost them.
    pub async fn commit(&self, offset: u64, count: u32) -> Result<Verifier, Error> {
        match &self.0 {
            // In version 2 all written data is already durable.
            Opened::V2 { .. } => Ok(Verifier::default()),
            Opened::V3 { nfs, file } => Ok(Verifier(nfs.commit(file, offset, count).await?.verifier.0)),
            Opened::V4(open) => open.commit(offset, count).await,
        }
    }

    /// The file's attributes.
    pub async fn getattr(&self) -> Result<Attributes, Error> {
        match &self.0 {
            Opened::V2 { nfs, file } => v2::getattr(nfs, *file).await,
            Opened::V3 { nfs, file } => Ok(nfs.getattr(file).await?.into()),
            Opened::V4(open) => open.getattr().await,
        }
    }

    /// Sets attributes of the file, also its size if it is open for writing. Returns the attributes that it then has,
    /// if the server returns them.
    pub async fn setattr(&self, attributes: NewAttributes) -> Result<Option<Attributes>, Error> {
        match &self.0 {
            Opened::V2 { nfs, file } => v2::setattr(nfs, *file, attributes, None).await,
            Opened::V3 { nfs, file } => v3::setattr(nfs, file, attributes, None).await,
            Opened::V4(open) => open.setattr(attributes).await,
        }
    }

    /// Tells the server that this file and its clones are no longer used.
    pub async fn close(self) -> Result<(), Error> {
        match self.0 {
            Opened::V2 { .. } | Opened::V3 { .. } => Ok(()),
            Opened::V4(open) => open.close().await,
        }
    }
}
