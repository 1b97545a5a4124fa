//! Holes of files on a server: which bytes need to be moved.
//!
//! In version 4.2 the command asks the server (SEEK), so that it does not read holes. Where the server cannot tell, the
//! whole file is data, and zeros are left out where they are written ([`data_runs`](crate::copy::data_runs)).

use anyhow::Result;
use rpcrdma_nfs_client::{Cause, Error, File, Sought};
use std::ops::Range;

/// The ranges of a file up to its size that are not holes, in order.
pub(crate) struct Segments {
    file: File,
    at: u64,
    size: u64,
    can_seek: bool,
}

impl Segments {
    /// The data of `file`, of `size` bytes, from `offset` on. `can_seek` is whether to ask the server, which costs a
    /// call or two for each range.
    pub(crate) fn new(file: File, offset: u64, size: u64, can_seek: bool) -> Self {
        Self { file, at: offset, size, can_seek }
    }

    /// The next range, or `None` if there is nothing but a hole up to the size.
    pub(crate) async fn next(&mut self) -> Result<Option<Range<u64>>, Error> {
        if self.at >= self.size {
            return Ok(None);
        }
        let all = self.at..self.size;
        if !self.can_seek {
            self.at = self.size;
            return Ok(Some(all));
        }
        let begin = match self.file.seek(self.at, Sought::Data).await {
            Ok(Some(begin)) if begin < self.size => begin,
            Ok(_) => {
                self.at = self.size;
                return Ok(None);
            }
            Err(error) if cannot_tell(&error) => {
                (self.can_seek, self.at) = (false, self.size);
                return Ok(Some(all));
            }
            Err(error) => return Err(error),
        };
        let end = match self.file.seek(begin, Sought::Hole).await {
            // If data and a hole begin at one place, another program changes the file, or the server lies: the range is
            // read.
            Ok(Some(end)) if end > begin => end.min(self.size),
            Ok(_) => self.size,
            Err(error) if cannot_tell(&error) => self.size,
            Err(error) => return Err(error),
        };
        self.at = end;
        Ok(Some(begin..end))
    }
}

/// Whether the server, or its file system, does not know where holes are.
fn cannot_tell(error: &Error) -> bool {
    error.is_not_supported() || matches!(error.cause(), Some(Cause::Invalid | Cause::Other))
}
