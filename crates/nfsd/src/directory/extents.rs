//! Data and holes of files: finding them, reading both, reserving space and giving it back.
//!
//! If the kernel cannot find holes, the whole file counts as data. A read of data and holes returns the buffer that it
//! got. Reserving or freeing space counts as a change of attributes: the server answers when it is on the disk.

use super::{
    Inner,
    attributes::{fault, stat},
    data::{MAX_OFFSET, read_fully},
    object::Mode,
};
use crate::{Changed, Content, Fault, Piece, PieceBudget, ReadData, Sought, SparseData, Told, Via, failed};
use rpcrdma_env::Buffer;
use rpcrdma_nfs::attr::Change;
use rustix::{
    fd::OwnedFd,
    fs::{Advice, FallocateFlags, SeekFrom, fadvise, fallocate, seek},
    io::{Errno, retry_on_intr},
};
use std::num::NonZeroU64;

/// The most bytes that the server reads ahead when a client announces that it will need them: eight READs of the
/// largest size. After that the kernel itself notices that the client reads on.
const MAX_READ_AHEAD: u64 = 8 << 20;

/// What a file has at an offset before its end, and up to where, at most `end`.
pub(super) fn extent(file: &OwnedFd, at: u64, end: u64) -> Result<(Content, u64), Errno> {
    let next = |whence: SeekFrom| match seek(file, whence) {
        Ok(found) => Ok(found.clamp(at, end)),
        // There is no more of this content up to the end.
        Err(Errno::NXIO) => Ok(end),
        Err(error) => Err(error),
    };
    match next(SeekFrom::Data(at)) {
        Ok(data) if data == at => {
            let hole = next(SeekFrom::Hole(at))?;
            // If the data has become a hole since, reading shows it.
            Ok((Content::Data, if hole == at { end } else { hole }))
        }
        Ok(data) => Ok((Content::Hole, data)),
        // The file system cannot report holes.
        Err(Errno::INVAL | Errno::OPNOTSUPP | Errno::NOSYS) => Ok((Content::Data, end)),
        Err(error) => Err(error),
    }
}

/// Whether a file has as many bytes on the disk as its size says: then there are no holes to look for.
pub(super) fn is_dense(read: &ReadData) -> bool {
    read.attributes.as_ref().is_some_and(|attributes| attributes.used >= attributes.size)
}

/// The end of a range, if a file can be as large as that.
fn checked_end(offset: u64, length: u64) -> Result<u64, Fault> {
    offset.checked_add(length).filter(|end| *end <= MAX_OFFSET).ok_or(Fault::TooLarge)
}

impl Inner {
    pub(super) fn seek(&self, via: &Via, offset: u64, what: Content) -> Told<Sought> {
        let (object, opened) = self.through(via, Mode::Read).map_err(failed)?;
        let size = stat(&object.fd).map_err(|error| failed(fault(error)))?.stx_size;
        if offset >= size {
            return Err(failed(Fault::NoDevice));
        }
        let (content, until) = extent(&opened, offset, size).map_err(|error| failed(fault(error)))?;
        let found = if content == what { offset } else { until };
        Ok(Sought { offset: found, end: found >= size })
    }

    pub(super) fn read_sparse(
        &self,
        via: &Via,
        offset: u64,
        mut budget: PieceBudget,
        mut buffer: Buffer,
    ) -> Told<SparseData> {
        let (object, opened) = self.through(via, Mode::Read).map_err(failed)?;
        let size = stat(&object.fd).map_err(|error| failed(fault(error)))?.stx_size;
        let end = offset.saturating_add(budget.count()).min(size);
        let (mut at, mut filled, mut pieces) = (offset, 0, Vec::new());
        while at < end {
            let piece = self.piece(&opened, (at, end), &mut budget, &mut buffer.bytes_mut()[filled..]);
            let (content, length) = match piece {
                Ok(Some(piece)) => piece,
                Ok(None) => break,
                // The pieces read so far are returned; a client that reads on learns why there are no more.
                Err(_) if !pieces.is_empty() => break,
                Err(error) => return Err(failed(fault(error))),
            };
            if content == Content::Data {
                filled += length as usize;
            }
            pieces.push(Piece { offset: at, length, content });
            at += length;
        }
        buffer.set_len(filled);
        let size = stat(&object.fd).map_err(|error| failed(fault(error)))?.stx_size;
        Ok(SparseData::new(buffer, pieces, at >= size))
    }

    /// The piece at the beginning of a range; `None` if there is no room for it, or the file ends there.
    fn piece(
        &self,
        file: &OwnedFd,
        (at, end): (u64, u64),
        budget: &mut PieceBudget,
        out: &mut [u8],
    ) -> Result<Option<(Content, u64)>, Errno> {
        let (content, until) = extent(file, at, end)?;
        let length = until - at;
        let taken = match content {
            Content::Hole if budget.take_hole(length) => length,
            Content::Hole => 0,
            Content::Data => {
                let room = budget.take_data(length).min(out.len());
                read_fully(file, &mut out[..room], at)? as u64
            }
        };
        Ok((taken > 0).then_some((content, taken)))
    }

    pub(super) fn will_need(&self, via: &Via, offset: u64, length: u64) -> Told<bool> {
        let (_, opened) = self.through(via, Mode::Read).map_err(failed)?;
        let length = if length == 0 { MAX_READ_AHEAD } else { length.min(MAX_READ_AHEAD) };
        if checked_end(offset, length).is_err() {
            return Ok(false);
        }
        // Advice for this range alone: advice on a descriptor would bind all users of the descriptor.
        Ok(fadvise(&opened, offset, NonZeroU64::new(length), Advice::WillNeed).is_ok())
    }

    pub(super) fn allocate(&self, via: &Via, offset: u64, length: u64) -> Changed<Change> {
        self.change_space(via, (offset, length), FallocateFlags::empty())
    }

    pub(super) fn deallocate(&self, via: &Via, offset: u64, length: u64) -> Changed<Change> {
        self.change_space(via, (offset, length), FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE)
    }

    fn change_space(&self, via: &Via, (offset, length): (u64, u64), how: FallocateFlags) -> Changed<Change> {
        let object = self.object(via.file()).map_err(failed)?;
        let ((), changed) = self.change_file(&object, || {
            checked_end(offset, length)?;
            let (_, opened) = self.through(via, Mode::Write)?;
            // As the caller, for the same reasons as in a write.
            let assumed = self.identity.assume(&via.caller).map_err(fault)?;
            let done = retry_on_intr(|| fallocate(&opened, how, offset, length));
            drop(assumed);
            done.map_err(|error| if error == Errno::NOSYS { Fault::Unsupported } else { fault(error) })
        })?;
        Ok(changed)
    }
}
