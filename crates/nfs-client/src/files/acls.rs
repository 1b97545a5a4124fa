//! Access control lists of files: version 4 (RFC 8881 section 6).

use super::{Files, Handle, v4};
use crate::Error;
use rpcrdma_nfs::v4::Acl;

/// Why there are none.
const NONE: &str = "version 3 of NFS has no access control lists; version 4 has";

/// Access control lists, as version 4 has them.
///
/// ```
/// # use rpcrdma_nfs_client::{Error, Files, Handle};
/// use rpcrdma_nfs::v4::ace;
/// # async fn example(files: &Files, file: &Handle) -> Result<(), Error> {
/// let mut acl = files.acl(file).await?;
/// // Nobody who is not named gets anything any more.
/// acl.0.retain(|entry| entry.who.as_slice() != ace::EVERYONE.as_bytes());
/// files.set_acl(file, &acl).await?;
/// # Ok(())
/// # }
/// ```
impl Files {
    /// The access control list of a file.
    ///
    /// # Errors
    /// One that answers [`Error::is_not_supported`] where there is none; see [`Error`], here and below.
    pub async fn acl(&self, file: &Handle) -> Result<Acl, Error> {
        Ok(self.in_version_4("GETATTR", NONE)?.acl(&v4::handle(file)?).await?)
    }

    /// Sets the access control list of a file, and so the permissions of its mode.
    pub async fn set_acl(&self, file: &Handle, acl: &Acl) -> Result<(), Error> {
        Ok(self.in_version_4("SETATTR", NONE)?.set_acl(&v4::handle(file)?, acl).await?)
    }
}
