//! Moving the bytes of a file: shared or copied by the server where both ends are one server of version 4.2, else read
//! and written.
//!
//! A server may lose what it has copied until a COMMIT, as with writes; the verifier says whether it has. Holes stay
//! holes: the server is asked to copy the data between them.

use super::{Copier, Item};
use crate::{
    copy::{DEPTH, block_size, data_runs},
    holes::Segments,
    octets::Octets,
};
use anyhow::{Result, ensure};
use rpcrdma_nfs::attr::Stability;
use rpcrdma_nfs_client::{Cause, Error, File, Span, Verifier, Writer};
use std::{cell::Cell, sync::Arc};

/// Bytes that a server is asked to copy in one call: the work between two updates of the progress.
const COPY_BYTES: u64 = 256 << 20;
/// How often lost data is copied again before the copy fails.
const COPIED_AGAIN_TIMES: u32 = 16;

/// What the server has shown that it does not do, so that it is not asked again for each file.
#[derive(Debug, Default)]
pub(super) struct Ways {
    clones_nothing: Cell<bool>,
    copies_nothing: Cell<bool>,
}

/// Whether a server that refuses to copy may still let it be done by reading and writing.
fn may_go_through(error: &Error) -> bool {
    let causes = [Cause::NotSupported, Cause::OtherFileSystem, Cause::Invalid, Cause::Other];
    error.is_not_supported() || error.cause().is_some_and(|cause| causes.contains(&cause))
}

/// A file whose data is moved.
struct Moving<'a> {
    copier: &'a Copier<'a>,
    item: &'a Item,
    source: &'a File,
    target: &'a File,
    size: u64,
}

impl Copier<'_> {
    /// Copies all bytes of a file to one that is empty, makes them durable, and says how many they are.
    pub(super) async fn octets(&self, item: &Item, source: &File, target: &File) -> Result<u64> {
        let size = item.found.attributes.size;
        let moving = Moving { copier: self, item, source, target, size };
        let is_within =
            Arc::ptr_eq(&item.from, self.to) && self.to.files.version_4().is_some_and(|nfs| nfs.minor() >= 2);
        let mut done = 0;
        if is_within && size > 0 {
            if moving.cloned().await? {
                self.tell_way(item, "the server cloned it: it shares the bytes of its source");
                return Ok(size);
            }
            done = moving.copied().await?;
        }
        if done < size || size == 0 {
            let len = moving.through(done).await?;
            let way = if done > 0 {
                "the server copied a part, the rest went through this host"
            } else {
                "its bytes went through this host"
            };
            self.tell_way(item, way);
            return Ok(len);
        }
        self.tell_way(item, "the server copied it");
        Ok(size)
    }

    fn tell_way(&self, item: &Item, way: &str) {
        if self.args.verbose && !self.args.client.json {
            self.note(&item.shown, way);
        }
    }
}

impl Moving<'_> {
    /// CLONE, which takes no time and no space. False if the server does not do that.
    async fn cloned(&self) -> Result<bool> {
        if self.copier.ways.clones_nothing.get() {
            return Ok(false);
        }
        let whole = Span { source_offset: 0, offset: 0, count: 0 };
        for _ in 0..COPIED_AGAIN_TIMES {
            let before = self.target.commit(0, 0).await?;
            match self.source.clone_range(self.target, whole).await {
                Err(error) if may_go_through(&error) => {
                    self.copier.ways.clones_nothing.set(error.is_not_supported());
                    return Ok(false);
                }
                cloned => cloned?,
            }
            if self.target.commit(0, 0).await? == before {
                let now = self.target.getattr().await?.size;
                ensure!(now == self.size, "{now} bytes were cloned, the file had {}: it changed meanwhile", self.size);
                self.copier.tally.borrow_mut().moved_by_server(self.size);
                return Ok(true);
            }
        }
        Err(Error::NotDurable { times: COPIED_AGAIN_TIMES }.into())
    }

    /// COPY of everything that is not a hole. Returns how far that came: not to the end, if the server does not do it.
    async fn copied(&self) -> Result<u64> {
        for _ in 0..COPIED_AGAIN_TIMES {
            if self.copier.ways.copies_nothing.get() {
                return Ok(0);
            }
            let before = self.target.commit(0, 0).await?;
            let mut verifiers = Vec::new();
            let done = self.copied_once(&mut verifiers).await?;
            let after = self.target.commit(0, 0).await?;
            // A server that has not restarted meanwhile has lost nothing, whatever verifiers it returns for copies.
            if after == before || verifiers.iter().all(|verifier| *verifier == Some(after)) {
                return Ok(done);
            }
            tracing::info!("the server has restarted: it copies again what it may have lost");
        }
        Err(Error::NotDurable { times: COPIED_AGAIN_TIMES }.into())
    }

    async fn copied_once(&self, verifiers: &mut Vec<Option<Verifier>>) -> Result<u64> {
        let mut segments = Segments::new(self.source.clone(), 0, self.size, self.may_have_holes());
        while let Some(segment) = segments.next().await? {
            let mut at = segment.start;
            while at < segment.end {
                let count = (segment.end - at).min(COPY_BYTES);
                let copied = match self.source.copy(self.target, Span { source_offset: at, offset: at, count }).await {
                    Err(error) if may_go_through(&error) => {
                        self.copier.ways.copies_nothing.set(error.is_not_supported());
                        return Ok(at);
                    }
                    copied => copied?,
                };
                // Nothing was copied: reading shows why.
                if copied.count == 0 {
                    return Ok(at);
                }
                if copied.committed == Stability::Unstable && verifiers.last() != Some(&copied.verifier) {
                    verifiers.push(copied.verifier);
                }
                // At most `count`: the call has checked that.
                at = at.saturating_add(copied.count);
                self.copier.tally.borrow_mut().moved_by_server(copied.count);
            }
        }
        // Bytes that were cut off meanwhile were not copied, and must not look like a hole.
        let now = self.source.getattr().await?;
        ensure!(
            now.size == self.size,
            "has {} bytes now and had {}: it changed while it was copied",
            now.size,
            self.size
        );
        Ok(self.size)
    }

    /// A file that uses less storage than it has bytes has holes.
    fn may_have_holes(&self) -> bool {
        self.item.found.attributes.used < self.size
    }

    /// READ and WRITE, from an offset on. Says how long the file is.
    async fn through(&self, begin: u64) -> Result<u64> {
        let has_holes = self.may_have_holes();
        let mut octets = Octets::of(&self.item.from, self.source.clone(), &self.item.found.attributes, begin);
        let (block, _) = block_size(self.size, self.copier.to.transfer.write, DEPTH);
        let block = if self.size == 0 { self.copier.to.transfer.write } else { block };
        let mut writer = Writer::new(self.target.clone(), block, DEPTH);
        let mut len = begin;
        while let Some(found) = octets.next().await? {
            len = found.offset.saturating_add(found.data.len() as u64);
            let octets = found.data.len();
            if has_holes {
                for run in data_runs(&found.data) {
                    writer.write(found.offset + run.start as u64, found.data.slice(run)).await?;
                }
            } else {
                writer.write(found.offset, found.data).await?;
            }
            self.copier.tally.borrow_mut().moved(octets);
        }
        writer.finish().await?;
        len = octets.len(len).await?;
        self.compare(len, begin).await?;
        Ok(len)
    }

    /// Whether the copy equals the file.
    async fn compare(&self, len: u64, begin: u64) -> Result<()> {
        if len == self.size && begin == 0 {
            return Ok(());
        }
        // The listing may be older than the file.
        let now = self.source.getattr().await?;
        let is_unsized = self.size == 0 && now.size == 0;
        let may_have_grown = len >= self.size;
        let is_same = len == now.size && (may_have_grown || now.modified == self.item.found.attributes.modified);
        ensure!(is_same || is_unsized, "{len} bytes came, the file has {}: it changed while it was copied", now.size);
        Ok(())
    }
}
