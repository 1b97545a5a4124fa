//! Holes of open files, and space for them: version 4.2.

use super::File;
use crate::Error;
use rpcrdma_nfs::v4::{Op, ops::Content};

/// The reason for the other versions.
const NONE: &str = "version 3 of NFS knows nothing of holes; version 4.2 does";

/// What to look for in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sought {
    /// Bytes that take space.
    Data,
    /// No bytes: a hole reads as zeros. The end of the file counts as one.
    Hole,
}

/// Holes and space.
///
/// ```
/// # use rpcrdma_nfs_client::{Error, File, Sought};
/// # async fn example(file: &File) -> Result<(), Error> {
/// let mut at = 0;
/// while let Some(data) = file.seek(at, Sought::Data).await? {
///     at = file.seek(data, Sought::Hole).await?.unwrap_or(u64::MAX);
///     println!("bytes {data} to {at}");
/// }
/// file.deallocate(0, 1 << 20).await?;
/// # Ok(())
/// # }
/// ```
impl File {
    /// Where the next data or the next hole begins, from `offset` on; `None` if there is none before the end of the
    /// file.
    ///
    /// # Errors
    /// If the version or the server does not support this, [`Error::is_not_supported`] is true. For other errors here
    /// and below see [`Error`].
    pub async fn seek(&self, offset: u64, sought: Sought) -> Result<Option<u64>, Error> {
        let (nfs, by) = self.version_4("SEEK", NONE)?.readable();
        let content = match sought {
            Sought::Data => Content::Data,
            Sought::Hole => Content::Hole,
        };
        Ok(nfs.seek(by, offset, content).await?)
    }

    /// Reserves space for a range. If the file is shorter, it grows to the end of the range.
    pub async fn allocate(&self, offset: u64, length: u64) -> Result<(), Error> {
        let (nfs, opened) = self.version_4("ALLOCATE", NONE)?.opened(Op::Allocate)?;
        Ok(nfs.allocate(opened, offset, length).await?)
    }

    /// Makes a range a hole, which reads as zeros and takes no space. The size of the file stays.
    pub async fn deallocate(&self, offset: u64, length: u64) -> Result<(), Error> {
        let (nfs, opened) = self.version_4("DEALLOCATE", NONE)?.opened(Op::Deallocate)?;
        Ok(nfs.deallocate(opened, offset, length).await?)
    }
}
