//! Reading a file as a stream, several calls at a time.
//!
//! Each block belongs to the caller that took it from [`Reader::next`]. After an error the reader is at its end. The
//! caller that opened the file closes it.

use crate::{Error, File};
use bytes::Bytes;
use futures_util::{StreamExt, stream::FuturesOrdered};
use rpcrdma_env::BoxFuture;
use std::collections::VecDeque;

/// Bytes of a file and their offset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// The offset of the first byte.
    pub offset: u64,
    /// The bytes.
    pub data: Bytes,
}

/// Reads a range of a file in order, with a window of calls under way.
pub struct Reader {
    file: File,
    next: u64,
    end: u64,
    /// The expected end of the file: the reader makes calls beyond it one at a time.
    expected: u64,
    block: u32,
    depth: usize,
    under_way: FuturesOrdered<BoxFuture<'static, Result<Part, Error>>>,
    ready: VecDeque<Block>,
}

impl Reader {
    /// Reads `file` from `offset` up to `end`, or the end of the file if that comes first, in calls of `block` bytes,
    /// at most `depth` of them at a time.
    pub fn new(file: File, offset: u64, end: u64, block: u32, depth: usize) -> Self {
        Self {
            file,
            next: offset,
            end,
            expected: end,
            block: block.max(1),
            depth: depth.max(1),
            under_way: FuturesOrdered::new(),
            ready: VecDeque::new(),
        }
    }

    /// Sets where the file probably ends, so that the reader wastes no calls beyond it. If the file is longer, the
    /// reader still reads all of it.
    pub fn expecting(mut self, size: u64) -> Self {
        self.expected = size;
        self
    }

    /// Whether the reader should make another call now.
    fn wants_more(&self) -> bool {
        let wanted = self.next < self.end && (self.next < self.expected || self.under_way.is_empty());
        wanted && self.under_way.len() < self.depth
    }

    /// The next bytes of the file, or `None` at the end.
    ///
    /// # Errors
    /// As [`File::read`]. Nothing follows.
    pub async fn next(&mut self) -> Result<Option<Block>, Error> {
        loop {
            if let Some(block) = self.ready.pop_front() {
                return Ok(Some(block));
            }
            while self.wants_more() {
                let count = u32::try_from(self.end - self.next).unwrap_or(u32::MAX).min(self.block);
                self.under_way.push_back(Box::pin(read_whole(self.file.clone(), self.next, count)));
                self.next += u64::from(count);
            }
            match self.under_way.next().await {
                None => return Ok(None),
                Some(Ok(part)) => {
                    if part.end {
                        self.stop();
                    }
                    self.ready.extend(part.blocks);
                }
                Some(Err(error)) => {
                    self.stop();
                    return Err(error);
                }
            }
        }
    }

    fn stop(&mut self) {
        self.next = self.end;
        self.under_way.clear();
    }
}

/// The result of reading one part of the range.
struct Part {
    blocks: Vec<Block>,
    /// Whether the file ends here: then the reader need not wait for calls beyond it.
    end: bool,
}

/// Reads `count` bytes even if the server returns fewer at a time, unless the file ends earlier.
async fn read_whole(file: File, mut offset: u64, mut count: u32) -> Result<Part, Error> {
    let mut blocks = Vec::with_capacity(1);
    let mut end = false;
    while count > 0 && !end {
        let ok = file.read(offset, count).await?;
        // At most `count`: the call has checked that.
        let octets = ok.data.len() as u32;
        if octets == 0 {
            if !ok.end {
                return Err(Error::Nonsense { procedure: "READ", what: "returned nothing before the end of the file" });
            }
            end = true;
            break;
        }
        blocks.push(Block { offset, data: ok.data });
        offset += u64::from(octets);
        count -= octets;
        end = ok.end;
    }
    Ok(Part { blocks, end })
}
