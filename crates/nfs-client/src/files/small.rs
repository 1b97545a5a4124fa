//! Small files: each is read by one call, and made by one if the version has such a call.
//!
//! These are short cuts. If one fails, use [`Files::open`], [`Files::create`] and so on, which report what is wrong.

use super::{Files, Handle, Name, ReadOk, Version, v2, v3, v4};
use crate::Error;
use bytes::Bytes;
use rpcrdma_nfs::attr::{Attributes, NewAttributes};

/// A small file to make and put in its place.
#[derive(Clone, Debug)]
pub struct NewFile<'a> {
    /// The directory.
    pub directory: &'a Handle,
    /// The temporary name, which no other program uses.
    pub temporary: &'a Name,
    /// The final name; an existing file of this name is replaced.
    pub name: &'a Name,
    /// The mode while the file has its temporary name.
    pub mode: u32,
    /// The final attributes, without the size.
    pub attributes: NewAttributes,
    /// All of its contents.
    pub data: Bytes,
}

impl Files {
    /// The most bytes that one [`read_small`](Self::read_small) returns: for a larger file it is useless.
    pub fn most_small(&self) -> u32 {
        match &self.0 {
            // If a server returns fewer bytes, the reply says that there are more.
            Version::V2(_) | Version::V3(_) => u32::MAX,
            Version::V4(nfs) => nfs.transfer().read,
        }
    }

    /// Reads the first `count` bytes of a file that was found, in one call and without an open.
    ///
    /// One READ sees a file as it is at one moment, so an open would add nothing. The server applies the same rules
    /// without it: it respects an open that denies reading, and recalls a delegation that is in the way (RFC 8881
    /// section 9.1.4.3). A call reads one file: if a COMPOUND has several READs, Linux's nfsd answers some with bytes
    /// that are not the file's (seen with 6.12, over RDMA and TCP), and nothing shows which.
    ///
    /// # Errors
    /// See [`Error`]. If this fails, the file may still be readable with an open.
    pub async fn read_small(&self, file: &Handle, count: u32) -> Result<ReadOk, Error> {
        match &self.0 {
            Version::V2(nfs) => v2::read(nfs, v2::handle("READ", file)?, 0, count).await,
            Version::V3(nfs) => v3::read(nfs, &v3::handle("READ", file)?, 0, count).await,
            Version::V4(nfs) => v4::read_small(nfs, file, count).await,
        }
    }

    /// Whether [`place`](Self::place) is possible: from version 4.1 on, if the session allows it.
    pub fn can_place(&self) -> bool {
        match &self.0 {
            Version::V2(_) | Version::V3(_) => false,
            Version::V4(nfs) => nfs.can_place(),
        }
    }

    /// Makes a small file and gives it its name, in one call. Returns its handle and its attributes.
    ///
    /// # Errors
    /// [`Error::AfterCreation`] if the file may exist under its temporary name: then the caller removes it.
    pub async fn place(&self, new: NewFile<'_>) -> Result<(Handle, Attributes), Error> {
        match &self.0 {
            Version::V2(_) | Version::V3(_) => Err(v3::refused("CREATE", rpcrdma_nfs::v3::Status::NOTSUPP)),
            Version::V4(nfs) => v4::place(nfs, new).await,
        }
    }
}
