//! Small files: many read in one call, or each made by one, where the version has such calls.
//!
//! These are short cuts. Whatever they could not do is done by [`Files::open`], [`Files::create`] and so on, which also
//! tell what is wrong.

use super::{Files, Handle, Name, ReadOk, Version, v3, v4};
use crate::Error;
use bytes::Bytes;
use rpcrdma_nfs::attr::{Attributes, NewAttributes};

/// How much one [`Files::gather`] reads at best.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Batch {
    /// Files: one at least.
    pub files: usize,
    /// Octets of all of them: one at least.
    pub octets: u32,
}

/// A small file that is to be made and put in its place.
#[derive(Clone, Debug)]
pub struct NewFile<'a> {
    /// Where.
    pub directory: &'a Handle,
    /// Under which name at first, which nobody else uses.
    pub temporary: &'a Name,
    /// And what it is called when it is whole: what has this name goes.
    pub name: &'a Name,
    /// The mode until then.
    pub mode: u32,
    /// What it gets then, but for the size.
    pub attributes: NewAttributes,
    /// All of it.
    pub data: Bytes,
}

impl Files {
    /// How much to read in one [`gather`](Self::gather).
    pub fn batch(&self) -> Batch {
        match &self.0 {
            // A call reads one file.
            Version::V3(_) => Batch { files: 1, octets: u32::MAX },
            // In version 4 it could read many. Of several READs in one COMPOUND Linux's nfsd answers some with other
            // octets than the file's (seen with 6.12, over RDMA and TCP), and nothing tells which.
            Version::V4(nfs) => Batch { files: 1, octets: nfs.gathers().1 },
        }
    }

    /// Reads the first octets of files that were found, of each as many as stand beside it. `None` stands for one that
    /// could not be read in this way.
    ///
    /// # Errors
    /// If the server cannot be reached.
    pub async fn gather(&self, files: &[(Handle, u32)]) -> Result<Vec<Option<ReadOk>>, Error> {
        match &self.0 {
            Version::V3(nfs) => v3::gather(nfs, files).await,
            Version::V4(nfs) => v4::gather(nfs, files).await,
        }
    }

    /// Whether [`place`](Self::place) can be used: from version 4.1 on, if the session allows it.
    pub fn can_place(&self) -> bool {
        match &self.0 {
            Version::V3(_) => false,
            Version::V4(nfs) => nfs.can_place(),
        }
    }

    /// Makes a small file and gives it its name, in one call. Gives its handle and the attributes that it has.
    ///
    /// # Errors
    /// [`Error::AfterCreation`] if the file may be there under its temporary name, where the caller removes it.
    pub async fn place(&self, new: NewFile<'_>) -> Result<(Handle, Attributes), Error> {
        match &self.0 {
            Version::V3(_) => Err(v3::refused("CREATE", rpcrdma_nfs::v3::Status::NOTSUPP)),
            Version::V4(nfs) => v4::place(nfs, new).await,
        }
    }
}
