//! Copies from file to file: the kernel copies pieces of the size of a write, or shares the blocks on the disk.
//!
//! On a file system that can clone, the kernel also shares blocks in a copy. Copied data counts as written and not
//! committed. A copy skips holes beyond the destination's end, so that a copy of a sparse file is sparse; before that
//! end it writes zeroes, since space there may have been reserved. A copy that fails after some bytes reports how many
//! it copied.

use super::{
    Inner,
    attributes::{fault, stat},
    data::{MAX_OFFSET, Target, write_fully},
    extents::extent,
    object::Mode,
    opens::Open,
    sys,
};
use crate::{Changed, Content, Copied, Failure, Fault, Span, Via, failed};
use rpcrdma_nfs::attr::{Change, Stability};
use rustix::{
    fd::{AsFd, OwnedFd},
    fs::{Mode as Bits, OFlags, copy_file_range, openat},
    io::{Errno, pread, retry_on_intr},
};
use std::sync::Arc;

/// The most data of a piece, in bytes: as in the largest WRITE, for which other work waits as well.
const PIECE_BYTES: u64 = 1 << 20;
/// The most holes that a piece skips: to find each one costs some microseconds.
const PIECE_HOLES: usize = 256;
/// Memory for data that the kernel cannot copy directly from file to file, in bytes.
const BETWEEN_BYTES: usize = 128 << 10;

impl Inner {
    /// Copies the first piece of a range. Also returns the file to wait for, and its descriptor.
    pub(super) fn copy(&self, from: &Via, to: &Via, span: &Span) -> Changed<(Copied, Target)> {
        let object = self.object(to.file()).map_err(failed)?;
        let ((held, is_crowded, count), file) = self.change_file(&object, || {
            let (source, target) = self.ends(from, to, span)?;
            let (writing, is_crowded) = self.uncommitted.begin(object.id, &target, self.clock.now());
            // As the caller, for the same reasons as in a write.
            let assumed = self.identity.assume(&to.caller).map_err(fault)?;
            let copied = copy_piece(&source, &target, span);
            drop(assumed);
            Ok((writing.held(), is_crowded, copied.map_err(fault)?))
        })?;
        // If data cannot stay uncommitted, the copy waits for the disk.
        let committed = if is_crowded { Stability::FileSync } else { Stability::Unstable };
        Ok((Copied::new(count, committed, file), Target::new(object, held)))
    }

    pub(super) fn clone_range(&self, from: &Via, to: &Via, span: &Span) -> Changed<Change> {
        let object = self.object(to.file()).map_err(failed)?;
        let ((), changed) = self.change_file(&object, || {
            let (source, target) = self.ends(from, to, span)?;
            let assumed = self.identity.assume(&to.caller).map_err(fault)?;
            let cloned = retry_on_intr(|| sys::clone_range(source.as_fd(), target.as_fd(), span));
            drop(assumed);
            cloned.map_err(|error| match error {
                Errno::XDEV => Fault::OtherFileSystem,
                Errno::NOSYS | Errno::NOTTY => Fault::Unsupported,
                other => fault(other),
            })
        })?;
        Ok(changed)
    }

    /// The descriptors of source and destination.
    fn ends(&self, from: &Via, to: &Via, span: &Span) -> Result<(Arc<OwnedFd>, Arc<OwnedFd>), Fault> {
        let end = |at: u64| at.checked_add(span.length).filter(|end| *end <= MAX_OFFSET);
        if end(span.from).is_none() || end(span.to).is_none() {
            return Err(Fault::TooLarge);
        }
        // The source is open in another file system: its number means nothing here, or another file.
        if from.opened().is_some() && from.opened_as::<Open>().is_none() {
            return Err(Fault::OtherFileSystem);
        }
        let (_, source) = self.through(from, Mode::Read)?;
        let (_, target) = self.through(to, Mode::Write)?;
        // The two may be one file that was found through two exports.
        let (one, other) = (stat(&source).map_err(fault)?, stat(&target).map_err(fault)?);
        let device = |stat: &rustix::fs::Statx| (stat.stx_dev_major, stat.stx_dev_minor, stat.stx_ino);
        if device(&one) == device(&other) && span.overlaps() {
            return Err(Fault::Invalid);
        }
        Ok((source, target))
    }

    /// Ends a copy that may not stay uncommitted: waits until the disk has the piece.
    pub(super) fn copy_through(&self, copied: Copied, target: &Target) -> Changed<Copied> {
        match self.wait_for(target) {
            Ok(()) => Ok(copied),
            Err(error) => Err(Failure { fault: fault(error), info: copied.file }),
        }
    }
}

/// Copies the first piece of a range, as much of it as the source has.
fn copy_piece(source: &OwnedFd, target: &OwnedFd, span: &Span) -> Result<u64, Errno> {
    let end = (span.from + span.length).min(stat(source)?.stx_size);
    let (mut at, mut data, mut holes) = (span.from, 0, 0);
    // Up to this offset of the source the destination has the copy.
    let mut done = span.from;
    let mut failed = loop {
        if at >= end || data >= PIECE_BYTES || holes >= PIECE_HOLES {
            break None;
        }
        let to = span.to + (at - span.from);
        match copy_extent(source, target, (at, end), to, PIECE_BYTES - data) {
            Ok(Passed::Hole(length)) => (at, holes) = (at + length, holes + 1),
            Ok(Passed::Data(0)) => break None,
            Ok(Passed::Data(length)) => {
                (at, data) = (at + length, data + length);
                done = at;
            }
            Err(error) => break Some(error),
        }
    };
    if at > done {
        // A hole at the end: the destination must reach its end. The code does not set the size, because another
        // program may be writing to the file.
        let last = span.to + (at - span.from) - 1;
        let reaches = stat(target).map(|target| target.stx_size > last);
        match reaches.and_then(|reaches| if reaches { Ok(1) } else { write_fully(target, &[0], last) }) {
            Ok(0) => {}
            Ok(_) => done = at,
            // The bytes copied before still count.
            Err(error) => failed = failed.or(Some(error)),
        }
    }
    match failed {
        Some(error) if done == span.from => Err(error),
        _ => Ok(done - span.from),
    }
}

/// How many bytes were skipped or copied.
enum Passed {
    Hole(u64),
    Data(u64),
}

/// Copies data of one extent of the source, at most so much, or skips a hole.
fn copy_extent(source: &OwnedFd, target: &OwnedFd, (at, end): (u64, u64), to: u64, most: u64) -> Result<Passed, Errno> {
    let (content, until) = extent(source, at, end)?;
    let mut length = until - at;
    if content == Content::Hole {
        let within = stat(target)?.stx_size.saturating_sub(to);
        if within == 0 {
            return Ok(Passed::Hole(length));
        }
        length = length.min(within);
    }
    let length = usize::try_from(length.min(most)).unwrap_or(usize::MAX);
    copy_data(source, at, target, to, length).map(|copied| Passed::Data(copied as u64))
}

fn copy_data(source: &OwnedFd, at: u64, target: &OwnedFd, to: u64, length: usize) -> Result<usize, Errno> {
    let copied = retry_on_intr(|| {
        let (mut from, mut to) = (at, to);
        copy_file_range(source, Some(&mut from), target, Some(&mut to), length)
    });
    match copied {
        // Not between these two, or not supported; some file systems show that by copying nothing.
        Ok(0) | Err(Errno::XDEV | Errno::INVAL | Errno::OPNOTSUPP | Errno::NOSYS) => {
            copy_by_memory(source, at, target, to, length)
        }
        copied => copied,
    }
}

fn copy_by_memory(source: &OwnedFd, at: u64, target: &OwnedFd, to: u64, length: usize) -> Result<usize, Errno> {
    let mut between = vec![0; length.min(BETWEEN_BYTES)];
    let read = retry_on_intr(|| pread(source, &mut between[..], at))?;
    write_fully(target, &between[..read], to)
}

/// The unit in which ranges of files beneath a directory can be cloned, if they can: the code tries it with two unnamed
/// files.
pub(super) fn clone_unit(root: &OwnedFd, block: u64) -> Option<u32> {
    let unnamed = || openat(root, ".", OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC, Bits::RUSR | Bits::WUSR);
    let (source, target) = (unnamed().ok()?, unnamed().ok()?);
    sys::clone_range(source.as_fd(), target.as_fd(), &Span { from: 0, to: 0, length: 0 }).ok()?;
    u32::try_from(block).ok().filter(|block| *block > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fs::File, os::unix::fs::FileExt};

    fn file() -> (File, OwnedFd) {
        let file = tempfile::tempfile().unwrap();
        let fd = file.try_clone().unwrap().into();
        (file, fd)
    }

    #[test]
    fn a_piece_has_so_much_data_and_no_more() {
        let ((source, from), (target, to)) = (file(), file());
        source.write_all_at(&vec![7; PIECE_BYTES as usize + 1], 0).unwrap();
        let copy = |length| copy_piece(&from, &to, &Span { from: 0, to: 0, length }).unwrap();
        assert_eq!([copy(1), copy(PIECE_BYTES), copy(PIECE_BYTES + 1)], [1, PIECE_BYTES, PIECE_BYTES]);
        assert_eq!(target.metadata().unwrap().len(), PIECE_BYTES);
    }

    #[test]
    fn a_piece_passes_over_so_many_holes_and_no_more() {
        let ((source, from), (target, to)) = (file(), file());
        let block = 1 << 16;
        for number in 0..=PIECE_HOLES as u64 {
            source.write_all_at(&[1; 4096], (2 * number + 1) * block).unwrap();
        }
        let size = source.metadata().unwrap().len();
        let first = copy_piece(&from, &to, &Span { from: 0, to: 0, length: size }).unwrap();
        assert_eq!(first, (2 * PIECE_HOLES as u64 - 1) * block, "as many holes as are allowed, the last of them whole");
        let rest = Span { from: first, to: first, length: size - first };
        assert_eq!(copy_piece(&from, &to, &rest).unwrap(), size - first);
        let read = |file: &File| {
            let mut all = vec![9; size as usize];
            file.read_exact_at(&mut all, 0).unwrap();
            all
        };
        assert!(read(&source) == read(&target));
    }

    #[test]
    fn a_copy_by_memory_is_the_same() {
        let ((source, from), (target, to)) = (file(), file());
        source.write_all_at(&vec![3; BETWEEN_BYTES + 9], 5).unwrap();
        assert_eq!(copy_by_memory(&from, 5, &to, 100, BETWEEN_BYTES).unwrap(), BETWEEN_BYTES, "at the limit");
        assert_eq!(copy_by_memory(&from, 5, &to, 100, BETWEEN_BYTES + 1).unwrap(), BETWEEN_BYTES, "one past it");
        assert_eq!(copy_by_memory(&from, BETWEEN_BYTES as u64 + 13, &to, 0, 100).unwrap(), 1, "where the source ends");
        let mut all = vec![9; BETWEEN_BYTES + 100];
        target.read_exact_at(&mut all, 0).unwrap();
        assert!(all[100..] == vec![3; BETWEEN_BYTES][..] && all[..100] == [[3].as_slice(), &[0; 99]].concat());
    }
}
