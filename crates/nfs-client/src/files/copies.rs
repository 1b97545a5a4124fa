//! Copies that the server makes, between open files of one server: version 4.2.

use super::{File, Verifier, v4};
use crate::{Error, v4::Span};
use rpcrdma_nfs::{
    attr::Stability,
    v4::{Op, Status},
};

/// The reason for version 3.
const NONE: &str = "a server of version 3 of NFS makes no copies; one of version 4.2 may";

/// How much a server has copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copied {
    /// The number of bytes. The server may copy fewer than the client asked for, and copies none at the end of the
    /// source.
    pub count: u64,
    /// How durable they are.
    pub committed: Stability,
    /// To compare like the verifier of a write; `None` if the server has not returned one.
    pub verifier: Option<Verifier>,
}

/// Copies.
///
/// ```
/// # use rpcrdma_nfs_client::{Error, File, Span};
/// # async fn example(source: &File, target: &File) -> Result<(), Error> {
/// let whole = Span { source_offset: 0, offset: 0, count: 0 };
/// match source.clone_range(target, whole).await {
///     Err(error) if error.is_not_supported() => println!("{:?}", source.copy(target, whole).await?),
///     cloned => cloned?,
/// }
/// # Ok(())
/// # }
/// ```
impl File {
    /// Copies a range of this file to `target`, which the same client has open; the bytes do not travel to the client.
    /// Waits until the server has done it.
    ///
    /// # Errors
    /// If the version or the server cannot do it, [`Error::is_not_supported`] is true. For other errors here and below
    /// see [`Error`].
    pub async fn copy(&self, target: &File, span: Span) -> Result<Copied, Error> {
        let (source, target) = (self.version_4("COPY", NONE)?, target.version_4("COPY", NONE)?);
        let (nfs, source, target) = source.with(target, Op::Copy)?;
        let copied = nfs.copy(source, target, span).await?;
        let verifier = copied.verifier.map(|verifier| Verifier(verifier.0));
        Ok(Copied { count: copied.count, committed: v4::stability_of(copied.committed), verifier })
    }

    /// Makes a range of `target` share the blocks of a range of this file: completely or not at all, whatever its size.
    pub async fn clone_range(&self, target: &File, span: Span) -> Result<(), Error> {
        let (source, target) = (self.version_4("CLONE", NONE)?, target.version_4("CLONE", NONE)?);
        let (nfs, source, target) = source.with(target, Op::Clone)?;
        Ok(nfs.clone_range(source, target, span).await?)
    }
}

impl v4::Open {
    /// Both opens, if they belong to one client.
    ///
    /// # Errors
    /// XDEV if they belong to two clients: their servers may be different.
    fn with<'a>(
        &'a self,
        target: &'a Self,
        operation: Op,
    ) -> Result<(&'a crate::v4::Nfs4, &'a crate::v4::Opened, &'a crate::v4::Opened), Error> {
        let (nfs, source) = self.opened(operation)?;
        let (other, target) = target.opened(operation)?;
        match nfs.is(other) {
            true => Ok((nfs, source, target)),
            false => Err(v4::refused(operation, Status::XDEV)),
        }
    }
}
