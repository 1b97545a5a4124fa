//! Writing a file as a stream, several calls at a time, without losing a byte to a restart of the server.
//!
//! The writer keeps unstable data, shared with its maker, until a COMMIT has made it durable. If the server's write
//! verifier has changed by then, the server has restarted and may have lost the data: the writer sends it again.

use crate::{Error, File, Verifier};
use bytes::Bytes;
use futures_util::{StreamExt, stream::FuturesUnordered};
use rpcrdma_env::BoxFuture;
use rpcrdma_nfs::attr::Stability;

/// How many bytes the writer keeps before it makes a COMMIT, to bound the client's memory.
const UNCOMMITTED_BYTES: usize = 128 << 20;
/// How often the writer sends lost bytes again before it gives up.
const SENT_AGAIN_TIMES: u32 = 16;

/// Bytes that the server may still lose.
#[derive(Clone)]
struct Kept {
    offset: u64,
    data: Bytes,
    verifier: Verifier,
}

/// Writes a file, with a window of calls under way. End with [`Writer::finish`]; the caller that opened the file closes
/// it.
pub struct Writer {
    file: File,
    block: usize,
    depth: usize,
    stability: Stability,
    under_way: FuturesUnordered<BoxFuture<'static, Result<Vec<Kept>, Error>>>,
    kept: Vec<Kept>,
    kept_bytes: usize,
}

impl Writer {
    /// Writes to `file` in calls of at most `block` bytes, at most `depth` of them at a time.
    pub fn new(file: File, block: u32, depth: usize) -> Self {
        Self {
            file,
            block: usize::try_from(block).unwrap_or(usize::MAX).max(1),
            depth: depth.max(1),
            stability: Stability::Unstable,
            under_way: FuturesUnordered::new(),
            kept: Vec::new(),
            kept_bytes: 0,
        }
    }

    /// Each call makes its data durable, but not its attributes: that saves the COMMIT of a file that is written by one
    /// call.
    #[must_use]
    pub fn durably(self) -> Self {
        Self { stability: Stability::DataSync, ..self }
    }

    /// Puts bytes at `offset`. Returns as soon as there is room in the window.
    ///
    /// # Errors
    /// As [`File::write`], for this or an earlier call. The file's contents are then unknown.
    pub async fn write(&mut self, offset: u64, data: Bytes) -> Result<(), Error> {
        self.send(offset, data).await?;
        if self.kept_bytes >= UNCOMMITTED_BYTES {
            self.commit().await?;
        }
        Ok(())
    }

    /// Waits until all data written so far is durable on the server.
    ///
    /// # Errors
    /// As [`finish`](Self::finish).
    pub async fn checkpoint(&mut self) -> Result<(), Error> {
        self.commit().await
    }

    /// Waits until all data is durable on the server.
    ///
    /// # Errors
    /// As [`write`](Self::write); also if the server keeps losing data.
    pub async fn finish(mut self) -> Result<(), Error> {
        self.commit().await
    }

    async fn send(&mut self, mut offset: u64, mut data: Bytes) -> Result<(), Error> {
        while !data.is_empty() {
            while self.under_way.len() >= self.depth {
                self.wait_for_one().await?;
            }
            let block = data.split_to(self.block.min(data.len()));
            let len = block.len() as u64;
            self.under_way.push(Box::pin(write_whole(self.file.clone(), offset, self.stability, block)));
            offset = offset.saturating_add(len);
        }
        Ok(())
    }

    async fn wait_for_one(&mut self) -> Result<(), Error> {
        if let Some(written) = self.under_way.next().await {
            for kept in written? {
                self.kept_bytes += kept.data.len();
                self.kept.push(kept);
            }
        }
        Ok(())
    }

    async fn commit(&mut self) -> Result<(), Error> {
        for _ in 0..SENT_AGAIN_TIMES {
            while !self.under_way.is_empty() {
                self.wait_for_one().await?;
            }
            if self.kept.is_empty() {
                return Ok(());
            }
            let verifier = self.file.commit(0, 0).await?;
            self.kept_bytes = 0;
            let lost: Vec<_> = self.kept.drain(..).filter(|kept| kept.verifier != verifier).collect();
            if !lost.is_empty() {
                tracing::info!(blocks = lost.len(), "the server has restarted: sending again what it may have lost");
            }
            for kept in lost {
                self.send(kept.offset, kept.data).await?;
            }
        }
        Err(Error::NotDurable { times: SENT_AGAIN_TIMES })
    }
}

/// Writes all bytes even if the server takes fewer at a time. Returns those that are not durable yet.
async fn write_whole(file: File, mut offset: u64, stability: Stability, mut data: Bytes) -> Result<Vec<Kept>, Error> {
    let mut kept = Vec::with_capacity(1);
    while !data.is_empty() {
        let ok = file.write(offset, stability, data.clone()).await?;
        // At least 1 and at most the given bytes: the call has checked that.
        let written = data.split_to((ok.count as usize).min(data.len()));
        let len = written.len() as u64;
        if ok.committed == Stability::Unstable {
            kept.push(Kept { offset, data: written, verifier: ok.verifier });
        }
        offset = offset.saturating_add(len);
    }
    Ok(kept)
}
