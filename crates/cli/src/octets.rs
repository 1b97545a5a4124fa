//! Reading files of a server, those included whose size nobody knows.

use crate::{
    copy::{DEPTH, block_size},
    session::Session,
};
use rpcrdma_nfs_client::{Block, Error, File, Reader};

/// In which blocks a file is read whose size is not known.
const UNSIZED_BLOCK_OCTETS: u32 = 64 << 10;

/// The octets of a file, from an offset on.
pub(crate) enum Octets {
    /// Of a file that tells its size.
    Sized(Box<Reader>),
    /// Of one that says it is empty: that may be one of /proc, whose size nobody knows, and of which a server thinks at
    /// each answer that it ends there. Read on until nothing comes.
    Unsized { file: File, offset: u64, end: u64, block: u32 },
}

impl Octets {
    /// The octets of `file`, which is open, whose attributes say `size`, from `offset` up to `end` or the end of the
    /// file.
    pub(crate) fn new(session: &Session, file: File, size: u64, offset: u64, end: u64) -> Self {
        let largest = session.transfer.read;
        if size == 0 {
            return Octets::Unsized { file, offset, end, block: UNSIZED_BLOCK_OCTETS.min(largest) };
        }
        let (block, depth) = block_size(end.min(size).saturating_sub(offset), largest, DEPTH);
        Octets::Sized(Box::new(Reader::new(file, offset, end, block, depth).expecting(size)))
    }

    /// The next octets, in order, or `None` at the end.
    pub(crate) async fn next(&mut self) -> Result<Option<Block>, Error> {
        match self {
            Octets::Sized(reader) => reader.next().await,
            Octets::Unsized { file, offset, end, block } => {
                let wanted = u32::try_from(end.saturating_sub(*offset)).unwrap_or(u32::MAX).min(*block);
                if wanted == 0 {
                    return Ok(None);
                }
                let read = file.read(*offset, wanted).await?;
                if read.data.is_empty() && !read.end {
                    let what = "returned nothing before the end of the file";
                    return Err(Error::Nonsense { procedure: "READ", what });
                }
                let found = Block { offset: *offset, data: read.data };
                *offset = offset.saturating_add(found.data.len() as u64);
                Ok((!found.data.is_empty()).then_some(found))
            }
        }
    }
}
