//! Reading files of a server, including those of unknown size.

use crate::{
    copy::{DEPTH, block_size},
    holes::Segments,
    session::Session,
};
use rpcrdma_nfs::attr::Attributes;
use rpcrdma_nfs_client::{Block, Error, File, Reader};

/// The block size with which a file of unknown size is read.
const UNSIZED_BLOCK_BYTES: u32 = 64 << 10;

/// Below this size a file's holes are not worth the calls that find them.
const SPARSE_FROM_BYTES: u64 = 256 << 10;

/// The bytes of a file, from an offset on.
pub(crate) enum Octets {
    /// A file with a size.
    Sized(Box<Reader>),
    /// A file that says it is empty: it may be one of /proc, whose size is unknown, and a server says with each answer
    /// that it ends there. It is read until nothing comes.
    Unsized { file: Box<File>, offset: u64, end: u64, block: u32 },
    /// A file with holes, of which only the data between them is read.
    Sparse(Box<Sparse>),
}

/// A file with holes that is being read.
pub(crate) struct Sparse {
    file: File,
    size: u64,
    largest: u32,
    segments: Segments,
    /// What is being read, and up to where it was read.
    reader: Option<Reader>,
    is_beyond: bool,
}

impl Octets {
    /// The data of `file`, which is open, whose attributes say `size`, from `offset` up to `end` or the end of the
    /// file.
    pub(crate) fn new(session: &Session, file: File, size: u64, offset: u64, end: u64) -> Self {
        let largest = session.transfer.read;
        if size == 0 {
            let block = UNSIZED_BLOCK_BYTES.min(largest);
            return Octets::Unsized { file: Box::new(file), offset, end, block };
        }
        let (block, depth) = block_size(end.min(size).saturating_sub(offset), largest, DEPTH);
        Octets::Sized(Box::new(Reader::new(file, offset, end, block, depth).expecting(size)))
    }

    /// The data of `file`, which is open and has these attributes, from `offset` on. If the server knows the holes,
    /// they are left out, and what follows comes with its offset.
    pub(crate) fn of(session: &Session, file: File, attributes: &Attributes, offset: u64) -> Self {
        // A file that uses less storage than it has bytes has holes.
        let has_holes = attributes.used < attributes.size && attributes.size >= SPARSE_FROM_BYTES;
        let can_tell = session.files.version_4().is_some_and(|nfs| nfs.minor() >= 2);
        if !has_holes || !can_tell {
            return Self::new(session, file, attributes.size, offset, u64::MAX);
        }
        let size = attributes.size;
        let segments = Segments::new(file.clone(), offset, size, true);
        let largest = session.transfer.read;
        Octets::Sparse(Box::new(Sparse { file, size, largest, segments, reader: None, is_beyond: false }))
    }

    /// The length of the file, if bytes came up to `end`: behind them there may be a hole.
    pub(crate) async fn len(&self, end: u64) -> Result<u64, Error> {
        match self {
            Octets::Sparse(sparse) => Ok(sparse.file.getattr().await?.size.min(end.max(sparse.size))),
            _ => Ok(end),
        }
    }

    /// The next bytes, in order, or `None` at the end.
    pub(crate) async fn next(&mut self) -> Result<Option<Block>, Error> {
        match self {
            Octets::Sized(reader) => reader.next().await,
            Octets::Sparse(sparse) => sparse.next().await,
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

impl Sparse {
    async fn next(&mut self) -> Result<Option<Block>, Error> {
        loop {
            if let Some(reader) = &mut self.reader {
                match reader.next().await? {
                    Some(block) => return Ok(Some(block)),
                    None if self.is_beyond => return Ok(None),
                    None => self.reader = None,
                }
            }
            let file = self.file.clone();
            self.reader = Some(match self.segments.next().await? {
                Some(data) => {
                    let (block, depth) = block_size(data.end - data.start, self.largest, DEPTH);
                    Reader::new(file, data.start, data.end, block, depth)
                }
                // Then the bytes that were appended meanwhile.
                None => {
                    self.is_beyond = true;
                    Reader::new(file, self.size, u64::MAX, UNSIZED_BLOCK_BYTES.min(self.largest), 1)
                }
            });
        }
    }
}
