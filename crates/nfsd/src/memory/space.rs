//! Holes, space and copies of files in memory.

use super::{
    MemoryFs, Open,
    data::{check_end, readable, writable},
    pages::PAGE_BYTES,
    tree::Tree,
};
use crate::{Changed, Content, Copied, Fault, Piece, PieceBudget, Sought, Span, SparseData, Told, Via};
use rpcrdma_env::Buffer;
use rpcrdma_nfs::attr::{Change, Stability};
use std::sync::Arc;

/// The most data of a piece of a copy, in bytes.
const PIECE_BYTES: u64 = 1 << 20;

const PAGE: u64 = PAGE_BYTES as u64;

impl MemoryFs {
    pub(super) fn seek_now(&self, via: &Via, offset: u64, what: Content) -> Told<Sought> {
        self.look(via.file(), |tree, _| {
            let pages = readable(tree, via)?;
            let size = pages.size();
            if offset >= size {
                return Err(Fault::NoDevice);
            }
            let (content, until) = pages.extent(offset, size);
            let found = if content == what { offset } else { until };
            Ok(Sought { offset: found, end: found >= size })
        })
    }

    pub(super) fn read_sparse_now(
        &self,
        via: &Via,
        offset: u64,
        mut budget: PieceBudget,
        mut buffer: Buffer,
    ) -> Told<SparseData> {
        self.look(via.file(), |tree, _| {
            let pages = readable(tree, via)?;
            let end = offset.saturating_add(budget.count()).min(pages.size());
            let (mut at, mut filled, mut told) = (offset, 0, Vec::new());
            while at < end {
                let (content, until) = pages.extent(at, end);
                let length = match content {
                    Content::Hole if budget.take_hole(until - at) => until - at,
                    Content::Hole => 0,
                    Content::Data => {
                        let out = &mut buffer.bytes_mut()[filled..];
                        let room = budget.take_data(until - at).min(out.len());
                        let read = pages.read(at, &mut out[..room]);
                        filled += read;
                        read as u64
                    }
                };
                if length == 0 {
                    break;
                }
                told.push(Piece { offset: at, length, content });
                at += length;
            }
            buffer.set_len(filled);
            Ok(SparseData::new(buffer, told, at >= pages.size()))
        })
    }

    /// Changes the contents of a file, and counts its pages anew. `change` gets the free room in pages.
    fn change_pages<T>(
        &self,
        via: &Via,
        change: impl FnOnce(&mut Tree, u64) -> Result<T, Fault>,
    ) -> Changed<(T, Change)> {
        let now = self.now();
        self.change(via.file(), |tree, number| {
            let before = writable(tree, via)?.count();
            let room = tree.max_pages - tree.pages;
            let done = change(tree, room)?;
            let after = writable(tree, via)?.count();
            tree.pages = (tree.pages + after).saturating_sub(before);
            tree.node_mut(number)?.touch(now);
            Ok(done)
        })
    }

    pub(super) fn allocate_now(&self, via: &Via, offset: u64, length: u64) -> Changed<Change> {
        let changed = self.change_pages(via, |tree, room| {
            check_end(offset, length)?;
            let pages = writable(tree, via)?;
            if pages.missing(offset, length) > room {
                return Err(Fault::NoSpace);
            }
            pages.allocate(offset, length);
            Ok(())
        });
        changed.map(|((), file)| file)
    }

    pub(super) fn deallocate_now(&self, via: &Via, offset: u64, length: u64) -> Changed<Change> {
        let changed = self.change_pages(via, |tree, _| {
            check_end(offset, length)?;
            writable(tree, via)?.clear(offset, length, true);
            Ok(())
        });
        changed.map(|((), file)| file)
    }

    /// Fails if the source is open in another file system, which has another tree and other numbers.
    fn check_source(&self, from: &Via) -> Result<(), Fault> {
        let is_here = match from.opened() {
            Some(_) => from.opened_as::<Open>().is_some_and(|open| Arc::ptr_eq(&open.tree, &self.tree)),
            None => true,
        };
        if is_here { Ok(()) } else { Err(Fault::OtherFileSystem) }
    }

    pub(super) fn clone_now(&self, from: &Via, to: &Via, span: &Span) -> Changed<Change> {
        let changed = self.change_pages(to, |tree, room| {
            self.check_source(from)?;
            let source = readable(tree, from)?;
            let rest = source.size().checked_sub(span.from).ok_or(Fault::Invalid)?;
            let span = Span { length: if span.length == 0 { rest } else { span.length }, ..*span };
            check_end(span.to, span.length)?;
            let is_whole = |octets: u64| octets.is_multiple_of(PAGE);
            let ends_well = is_whole(span.length) || span.length == rest;
            if span.length > rest || !is_whole(span.from) || !is_whole(span.to) || !ends_well {
                return Err(Fault::Invalid);
            }
            if from.file() == to.file() && span.overlaps() {
                return Err(Fault::Invalid);
            }
            let shared = source.share(span.from, span.length);
            let pages = writable(tree, to)?;
            // Pages are shared whole: bytes behind the range in the last page would be lost. Linux's file systems
            // refuse this, too.
            if !is_whole(span.length) && span.to + span.length < pages.size() {
                return Err(Fault::Invalid);
            }
            if pages.added_by(span.to, &shared) > i64::try_from(room).unwrap_or(i64::MAX) {
                return Err(Fault::NoSpace);
            }
            if span.length > 0 {
                pages.put(span.to, shared);
            }
            Ok(())
        });
        changed.map(|((), file)| file)
    }

    pub(super) fn copy_now(&self, from: &Via, to: &Via, span: &Span) -> Changed<Copied> {
        let changed = self.change_pages(to, |tree, room| {
            self.check_source(from)?;
            check_end(span.from, span.length)?;
            check_end(span.to, span.length)?;
            if from.file() == to.file() && span.overlaps() {
                return Err(Fault::Invalid);
            }
            let source = readable(tree, from)?;
            let end = (span.from + span.length).min(source.size());
            if span.from >= end {
                return Ok(0);
            }
            // The code looks at no more data than it copies.
            let (content, until) = source.extent(span.from, end.min(span.from + PIECE_BYTES));
            if content == Content::Hole {
                let (_, until) = source.extent(span.from, end);
                let pages = writable(tree, to)?;
                let length = until - span.from;
                pages.clear(span.to, length, false);
                pages.set_size(pages.size().max(span.to + length));
                return Ok(length);
            }
            let mut data = vec![0; (until - span.from) as usize];
            source.read(span.from, &mut data);
            let pages = writable(tree, to)?;
            if pages.missing(span.to, data.len() as u64) > room {
                return Err(Fault::NoSpace);
            }
            pages.write(span.to, &data);
            Ok(data.len() as u64)
        });
        // It will never be more durable than now.
        changed.map(|(count, file)| Copied::new(count, Stability::FileSync, file))
    }
}
