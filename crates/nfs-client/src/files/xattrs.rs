//! Extended attributes of files: version 4.2 (RFC 8276).

use super::{Files, Handle, Name, v4};
use crate::Error;
use bytes::Bytes;
use rpcrdma_nfs::v4::ops::SetXattrOption;

/// The reason for versions 2 and 3.
const NONE: &str = "version 3 of NFS has no extended attributes; version 4.2 has";

/// Whether an extended attribute must exist before it is set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SetXattr {
    /// Set it in either case.
    #[default]
    Either,
    /// Fail if it exists.
    Create,
    /// Fail if it does not exist.
    Replace,
}

impl From<SetXattr> for SetXattrOption {
    fn from(how: SetXattr) -> Self {
        match how {
            SetXattr::Either => Self::Either,
            SetXattr::Create => Self::Create,
            SetXattr::Replace => Self::Replace,
        }
    }
}

/// Extended attributes. Their names have no namespace: Linux's `user.colour` is `colour` here.
///
/// ```
/// # use rpcrdma_nfs_client::{Error, Files, Handle, Name, SetXattr};
/// # async fn example(files: &Files, file: &Handle) -> Result<(), Error> {
/// let colour = Name::from("colour");
/// files.set_xattr(file, &colour, "green".into(), SetXattr::Either).await?;
/// for name in files.xattrs(file).await? {
///     println!("{name:?} is {:?}", files.xattr(file, &name).await?);
/// }
/// files.remove_xattr(file, &colour).await?;
/// # Ok(())
/// # }
/// ```
impl Files {
    /// The value of an extended attribute.
    ///
    /// # Errors
    /// If there are no extended attributes here, [`Error::is_not_supported`] is true. For other errors here and below
    /// see [`Error`].
    pub async fn xattr(&self, file: &Handle, name: &Name) -> Result<Bytes, Error> {
        let nfs = self.in_version_4("GETXATTR", NONE)?;
        Ok(nfs.xattr(&v4::handle(file)?, &v4::name(name)).await?)
    }

    /// Sets an extended attribute.
    pub async fn set_xattr(&self, file: &Handle, name: &Name, value: Bytes, how: SetXattr) -> Result<(), Error> {
        let nfs = self.in_version_4("SETXATTR", NONE)?;
        Ok(nfs.set_xattr(&v4::handle(file)?, &v4::name(name), value, how.into()).await?)
    }

    /// The names of all extended attributes. A name may contain any bytes.
    pub async fn xattrs(&self, file: &Handle) -> Result<Vec<Name>, Error> {
        let nfs = self.in_version_4("LISTXATTRS", NONE)?;
        let names = nfs.xattrs(&v4::handle(file)?).await?;
        Ok(names.into_iter().map(|name| Name(name.0)).collect())
    }

    /// Removes an extended attribute.
    pub async fn remove_xattr(&self, file: &Handle, name: &Name) -> Result<(), Error> {
        let nfs = self.in_version_4("REMOVEXATTR", NONE)?;
        Ok(nfs.remove_xattr(&v4::handle(file)?, &v4::name(name)).await?)
    }
}
