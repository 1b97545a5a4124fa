//! Finding the root of an export.

use bytes::Bytes;
use rpcrdma_nfs::{
    Call,
    mount::{self, DirectoryPath, Export, MountReply, MountReply1},
    v2, v3,
};
use rpcrdma_oncrpc::{CallError, Client};
use rpcrdma_xdr::Encoder;

/// Why an export cannot be mounted.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MountError {
    /// The server refuses.
    #[error("MNT {}: {status}", path.escape_ascii())]
    Refused {
        /// The path.
        path: Bytes,
        /// The server's status.
        status: mount::Status,
    },
    /// The call has no results.
    #[error(transparent)]
    Call(#[from] CallError),
}

impl MountError {
    /// The procedure that the server refused, if it was one.
    pub fn procedure(&self) -> Option<&'static str> {
        matches!(self, MountError::Refused { .. }).then_some("MNT")
    }

    /// The server's status by its name, if it executed the call.
    pub fn status_name(&self) -> Option<&'static str> {
        match self {
            MountError::Refused { status, .. } => Some(name(*status)),
            MountError::Call(_) => None,
        }
    }
}

/// The protocol's name of a status (RFC 1813 section 5.1.5).
fn name(status: mount::Status) -> &'static str {
    match status {
        mount::Status::OK => "MNT3_OK",
        mount::Status::PERM => "MNT3ERR_PERM",
        mount::Status::NOENT => "MNT3ERR_NOENT",
        mount::Status::IO => "MNT3ERR_IO",
        mount::Status::ACCES => "MNT3ERR_ACCES",
        mount::Status::NOTDIR => "MNT3ERR_NOTDIR",
        mount::Status::INVAL => "MNT3ERR_INVAL",
        mount::Status::NAMETOOLONG => "MNT3ERR_NAMETOOLONG",
        mount::Status::NOTSUPP => "MNT3ERR_NOTSUPP",
        mount::Status::SERVERFAULT => "MNT3ERR_SERVERFAULT",
        _ => "MNT3ERR_?",
    }
}

/// What MNT returns for an export.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Mounted {
    /// The handle of its root.
    pub root: v3::Handle,
    /// The flavours of credentials that the export accepts, the server's first choice first: AUTH_SYS is 1, Kerberos
    /// 390003, with integrity 390004, with privacy 390005 (RFC 2623 section 4.4). Some servers return none.
    pub flavours: Vec<u32>,
}

/// A client of MOUNT, version 3 or 1.
#[derive(Clone, Debug)]
pub struct Mount {
    client: Client,
}

impl Mount {
    /// A client over `client`, which calls [`mount::PROGRAM`], [`mount::VERSION_3`], or [`mount::VERSION_1`] for NFS
    /// version 2.
    pub fn new(client: Client) -> Self {
        Self { client }
    }

    async fn call<C: Call>(&self, call: &C) -> Result<C::Reply, CallError> {
        let mut encoder = Encoder::new();
        call.encode(&mut encoder);
        let (args, shape) = (encoder.finish(), call.reply_shape());
        match call.is_repeatable() {
            true => self.client.call_repeatable(C::PROCEDURE, args, shape).await?.decode(),
            false => self.client.call(C::PROCEDURE, args, shape).await?.decode(),
        }
    }

    /// MNT: the handle of an exported directory, and the flavours that the export takes.
    ///
    /// # Errors
    /// If the server refuses, or the call has no results.
    pub async fn mount(&self, path: Bytes) -> Result<Mounted, MountError> {
        match self.call(&mount::Mount { path: DirectoryPath(path.clone()) }).await? {
            MountReply::Ok { root, flavors: flavours } => Ok(Mounted { root, flavours }),
            MountReply::Failed(status) => Err(MountError::Refused { path, status }),
        }
    }

    /// MNT of version 1: the handle of an exported directory for NFS version 2. Its statuses are Unix's error numbers,
    /// on which the statuses of version 3 are based.
    ///
    /// # Errors
    /// As [`mount`](Self::mount).
    pub async fn mount_1(&self, path: Bytes) -> Result<v2::Handle, MountError> {
        match self.call(&mount::Mount1 { path: DirectoryPath(path.clone()) }).await? {
            MountReply1::Ok(root) => Ok(v2::Handle(root)),
            MountReply1::Failed(number) => Err(MountError::Refused { path, status: mount::Status(number) }),
        }
    }

    /// UMNT: tells the server that an export is no longer in use.
    ///
    /// # Errors
    /// If the call fails.
    pub async fn unmount(&self, path: Bytes) -> Result<(), MountError> {
        Ok(self.call(&mount::Unmount { path: DirectoryPath(path) }).await?)
    }

    /// EXPORT: the server's exports.
    ///
    /// # Errors
    /// If the call has no results.
    pub async fn exports(&self) -> Result<Vec<Export>, MountError> {
        Ok(self.call(&mount::ListExports).await?.0)
    }
}

/// Splits a path into its export, the longest if several fit, and the path below the export.
///
/// ```
/// use rpcrdma_nfs::mount::{DirectoryPath, Export};
/// let export = |path: &'static str| Export { path: DirectoryPath(path.into()), groups: vec![] };
/// let exports = [export("/"), export("/srv"), export("/srv/data")];
/// let split = rpcrdma_nfs_client::split_export(&exports, b"/srv/data/a/b");
/// assert_eq!(split, Some((&b"/srv/data"[..], &b"a/b"[..])));
/// assert_eq!(rpcrdma_nfs_client::split_export(&exports[1..], b"/srvx"), None);
/// ```
pub fn split_export<'a>(exports: &'a [Export], path: &'a [u8]) -> Option<(&'a [u8], &'a [u8])> {
    exports
        .iter()
        .filter_map(|export| {
            let whole = &export.path.0[..];
            let mut stem = whole;
            while let Some(shorter) = stem.strip_suffix(b"/") {
                stem = shorter;
            }
            match path.strip_prefix(stem)? {
                [] => Some((whole, &path[path.len()..])),
                [b'/', below @ ..] => Some((whole, below)),
                _ => None,
            }
        })
        .max_by_key(|(export, _)| export.len())
}
