//! Access control lists of files: the lists of version 4 (RFC 8881 section 6), and POSIX lists, which servers of
//! version 3 offer by a second program (NFSACL).

use super::{Files, Handle, Version, v3, v4};
use crate::Error;
use rpcrdma_nfs::{attr::Acls, v4::Acl};

/// The reason for version 2.
const NOT_IN_2: &str = "version 2 of NFS has no access control lists; version 3 has";
/// The reason for version 3.
const NONE: &str = "version 3 of NFS has no access control lists of version 4; version 4 has";
/// The reason for version 4.
const NOT_POSIX: &str = "version 4 of NFS has no POSIX access control lists; version 3 has";

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
    /// If the file cannot have a list, [`Error::is_not_supported`] is true. For other errors here and below see
    /// [`Error`].
    pub async fn acl(&self, file: &Handle) -> Result<Acl, Error> {
        Ok(self.in_version_4("GETATTR", NONE)?.acl(&v4::handle(file)?).await?)
    }

    /// Sets the access control list of a file, and so the permissions of its mode.
    pub async fn set_acl(&self, file: &Handle, acl: &Acl) -> Result<(), Error> {
        Ok(self.in_version_4("SETATTR", NONE)?.set_acl(&v4::handle(file)?, acl).await?)
    }
}

/// POSIX access control lists, which servers of version 3 offer by the program NFSACL on the same connection. If a
/// server does not have that program, the client asks it only once.
///
/// ```
/// # use rpcrdma_nfs_client::{Error, Files, Handle};
/// use rpcrdma_nfs::attr::{Acls, PosixAcl};
/// # async fn example(files: &Files, file: &Handle) -> Result<(), Error> {
/// // The owner may read and write, and so may user 1000.
/// if let Some(access) = PosixAcl::new([6, 0, 0], vec![(1000, 6)], vec![], Some(6)) {
///     files.set_posix_acls(file, &Acls { access, default: None }).await?;
/// }
/// # Ok(())
/// # }
/// ```
impl Files {
    /// The lists of a file; if it has none, the lists that its mode means.
    pub async fn posix_acls(&self, file: &Handle) -> Result<Acls, Error> {
        match &self.0 {
            Version::V2(_) => Err(Error::NotInVersion { procedure: "GETACL", what: NOT_IN_2 }),
            Version::V3(nfs) => nfs.acls(&v3::handle("GETACL", file)?).await,
            Version::V4(_) => Err(Error::NotInVersion { procedure: "GETACL", what: NOT_POSIX }),
        }
    }

    /// Sets the lists of a file, and so the permissions of its mode. If `acls` has no default list, a directory loses
    /// its own.
    pub async fn set_posix_acls(&self, file: &Handle, acls: &Acls) -> Result<(), Error> {
        match &self.0 {
            Version::V2(_) => Err(Error::NotInVersion { procedure: "SETACL", what: NOT_IN_2 }),
            Version::V3(nfs) => nfs.set_acls(&v3::handle("SETACL", file)?, acls).await,
            Version::V4(_) => Err(Error::NotInVersion { procedure: "SETACL", what: NOT_POSIX }),
        }
    }
}
