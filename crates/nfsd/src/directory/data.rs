//! Reading and writing files.
//!
//! If the file is known, the asking thread first tries to read without waiting; if the pages are not in memory, the
//! buffer goes on to a file system thread.

use super::{
    Inner, Object,
    access::Owner,
    attributes::{fault, stat},
    identity::Extent,
    object::Mode,
    opens::Open,
    recent::{recent, stat_shared},
    uncommitted::{For, Held},
};
use crate::{Caller, Changed, Failure, Fault, ReadData, Told, Via, Written, failed};
use bytes::Bytes;
use rpcrdma_env::Buffer;
use rpcrdma_nfs::attr::{Change, Stability};
use rustix::{
    fd::OwnedFd,
    fs::Statx,
    io::{Errno, ReadWriteFlags, pread, preadv2, pwrite},
};
use std::{io::IoSliceMut, sync::Arc};

/// The arguments of a write.
pub(super) struct Write {
    pub(super) offset: u64,
    pub(super) data: Bytes,
    pub(super) stability: Stability,
}

/// A file that was written to, and the descriptor.
pub(super) struct Target {
    object: Arc<Object>,
    held: Held,
}

impl Target {
    pub(super) fn new(object: Arc<Object>, held: Held) -> Self {
        Self { object, held }
    }
}

/// Set-user-ID and set-group-ID.
const SET_ID_BITS: u16 = 0o6000;
/// The largest offset that the kernel takes.
pub(super) const MAX_OFFSET: u64 = i64::MAX as u64;

impl Inner {
    /// Reads bytes that are in memory, or gives the buffer back.
    pub(super) fn read_now(
        &self,
        via: &Via,
        offset: u64,
        count: usize,
        mut buffer: Buffer,
    ) -> Result<ReadData, Buffer> {
        let count = count.min(buffer.capacity());
        match self.try_read_now(via, offset, &mut buffer.bytes_mut()[..count]) {
            Some((object, len, stat)) => {
                buffer.set_len(len);
                Ok(self.data(&object, buffer, offset, &stat))
            }
            None => Err(buffer),
        }
    }

    fn try_read_now(&self, via: &Via, offset: u64, out: &mut [u8]) -> Option<(Arc<Object>, usize, Statx)> {
        if !self.local || offset > MAX_OFFSET - out.len() as u64 {
            return None;
        }
        let open = via.opened_as::<Open>();
        let (object, opened) = match open {
            Some(open) => (open.object().clone(), open.descriptor(Mode::Read)?),
            None => {
                let object = match self.cache.get(via.file()) {
                    Some(object) => object,
                    None if self.in_memory => self.object(via.file()).ok()?,
                    None => return None,
                };
                let opened = match object.opened(&via.caller, Mode::Read) {
                    Some(opened) => opened,
                    // This may be a connection's thread, which must not take on another identity.
                    None if !self.identity.is_of(&via.caller) => return None,
                    // The inode is in memory as long as the object is: nothing waits for a disk.
                    None => self.open(&via.caller, &object, Mode::Read, Owner::Always).ok()?.0,
                };
                (object, opened)
            }
        };
        let wanted = out.len();
        let len = match wanted {
            0 => 0,
            // Such a file system cannot be asked not to wait, and never waits.
            _ if self.in_memory => read_fully(&opened, out, offset).ok()?,
            _ => preadv2(&opened, &mut [IoSliceMut::new(out)], offset, ReadWriteFlags::NOWAIT).ok()?,
        };
        // Attributes from after the read: they say whether it ends at the file's end, and a caller that may no longer
        // read gets nothing. Shared ones do if they leave no doubt about the end.
        let is_inside = |stat: &Statx| len == wanted && offset + (len as u64) < stat.stx_size;
        let stat = match recent(&object, via.arrival(), is_inside) {
            Some(stat) => stat,
            None => stat_shared(&object, via.arrival()).ok()?,
        };
        let whole = len == wanted || offset + len as u64 >= stat.stx_size;
        let may = || stat.stx_nlink > 0 && object.still_may(&via.caller, Mode::Read, &stat, self.identity.keeping());
        (whole && (open.is_some() || may())).then_some((object, len, stat))
    }

    fn data(&self, object: &Object, buffer: Buffer, offset: u64, stat: &Statx) -> ReadData {
        let end = offset.saturating_add(buffer.len() as u64) >= stat.stx_size;
        ReadData::new(buffer, end, Some(object.told(stat, self.id)))
    }

    pub(super) fn read(&self, via: &Via, offset: u64, count: usize, mut buffer: Buffer) -> Told<ReadData> {
        let (object, opened) = self.through(via, Mode::Read).map_err(failed)?;
        let count = count.min(buffer.capacity());
        let room = usize::try_from(MAX_OFFSET.saturating_sub(offset)).unwrap_or(usize::MAX).min(count);
        let len = read_fully(&opened, &mut buffer.bytes_mut()[..room], offset).map_err(|e| failed(fault(e)))?;
        buffer.set_len(len);
        let stat = stat(&object.fd).map_err(|error| failed(fault(error)))?;
        Ok(self.data(&object, buffer, offset, &stat))
    }

    /// Writes without waiting for the disk. Also returns the file to wait for, and its descriptor.
    pub(super) fn write(&self, via: &Via, write: &Write) -> Changed<(Written, Target)> {
        let caller = &via.caller;
        let object = self.object(via.file()).map_err(failed)?;
        let Write { offset, data, stability } = write;
        let ((held, is_crowded, count), file) = self.change_file_from(&object, |before| {
            if offset.checked_add(data.len() as u64).is_none_or(|end| end > MAX_OFFSET) {
                return Err(Fault::TooLarge);
            }
            let opened = self.through_as_of(before, via, &object, Mode::Write)?;
            let (writing, is_crowded) = self.uncommitted.begin(object.id, &opened, self.clock.now());
            let written = self.write_as(caller, before, || write_fully(&opened, data, *offset));
            // NFS3-LOSS-c
            Ok((writing.held(), is_crowded, written.map_err(fault)?))
        })?;
        // If data cannot stay uncommitted, the write waits for the disk, and promises more than the client asked for.
        let committed = if is_crowded { Stability::FileSync } else { *stability };
        let written = Written::new(count, committed, file);
        Ok((written, Target::new(object, held)))
    }

    /// Writes to a file that is open, as the caller: when anybody but the superuser writes to a file, the kernel clears
    /// its set-user-ID and set-group-ID bits, and it charges quotas and reserved space to the writer.
    ///
    /// The writer's groups only count for the set-group-ID bit and for space that is reserved for a group. So where
    /// neither matters, the thread takes the caller's user alone.
    pub(super) fn write_as(
        &self,
        caller: &Caller,
        before: &Statx,
        write: impl Fn() -> Result<usize, Errno>,
    ) -> Result<usize, Errno> {
        let is_other = !self.identity.is_of(caller);
        if is_other && self.local && self.identity.has_no_other_group() && before.stx_mode & SET_ID_BITS == 0 {
            let assumed = self.identity.assume_to(caller, Extent::User)?;
            let written = write();
            drop(assumed);
            // There may be room that is reserved for a group of the caller.
            if written != Err(Errno::NOSPC) {
                return written;
            }
        }
        let assumed = self.identity.assume(caller)?;
        let written = write();
        drop(assumed);
        written
    }

    /// Ends a write that has to be durable: waits until the disk has the data.
    pub(super) fn write_through(&self, written: Written, target: &Target) -> Changed<Written> {
        match self.wait_for(target) {
            Ok(()) => Ok(written),
            Err(error) => Err(Failure { fault: fault(error), info: written.file }),
        }
    }

    /// Waits until the disk has what was written.
    pub(super) fn wait_for(&self, target: &Target) -> Result<(), Errno> {
        self.settle(&target.held, For::Data)?;
        self.close_writers(&target.object);
        Ok(())
    }

    /// Most clients commit when they close the file, and a file that is open for writing cannot be executed. If the
    /// file's mode would forbid opening it again, its writers keep it open until it is idle.
    fn close_writers(&self, object: &Object) {
        const OWNER_WRITES: u16 = 0o200;
        let can_be_reopened = || stat(&object.fd).is_ok_and(|stat| stat.stx_mode & OWNER_WRITES != 0);
        if self.identity.is_privileged() || can_be_reopened() {
            object.forget_writers();
        }
    }

    /// Returns no attributes from before: others may change the file during the wait for the disk.
    pub(super) fn commit(&self, via: &Via) -> Changed<Change> {
        let object = self.object(via.file()).map_err(failed)?;
        let synced = match self.uncommitted.hold(object.id) {
            Some(held) => self.settle(&held, For::Data),
            None => {
                // A caller that may only read may also commit: it may have written the data before the rights changed.
                let (_, opened) = self
                    .through(via, Mode::Write)
                    .or_else(|fault| self.through(via, Mode::Read).map_err(|_| fault))
                    .map_err(failed)?;
                self.wait(object.id, &opened)
            }
        };
        self.close_writers(&object);
        let after = stat(&object.fd).ok().map(|stat| object.told(&stat, self.id));
        let info = Change { before: None, after };
        match synced {
            // The write verifier that would show a loss has not changed yet. NFS3-LOSS-a
            Ok(()) if self.losses.is_waiting(object.id) => Err(Failure { fault: Fault::Later, info }),
            Ok(()) => Ok(info),
            Err(error) => Err(Failure { fault: fault(error), info }),
        }
    }

    /// Does something to one file, with its attributes from before and after.
    pub(super) fn change_file<T>(
        &self,
        object: &Object,
        change: impl FnOnce() -> Result<T, Fault>,
    ) -> Result<(T, Change), Failure<Change>> {
        self.change_file_from(object, |_| change())
    }

    /// The same for a change that depends on the file's attributes.
    fn change_file_from<T>(
        &self,
        object: &Object,
        change: impl FnOnce(&Statx) -> Result<T, Fault>,
    ) -> Result<(T, Change), Failure<Change>> {
        let changing = object.begin_change();
        let before = stat(&object.fd).map_err(|error| failed(fault(error)))?;
        self.check_there(object, &before).map_err(failed)?;
        let changed = self.changed(object, &before, |_| true, || change(&before));
        drop(changing);
        changed
    }

    /// The same in a directory that lies beneath the served one. `is_change` says whether a success has changed
    /// something; a failure may always have.
    pub(super) fn change_directory_if<T>(
        &self,
        directory: &Object,
        is_change: impl FnOnce(&T) -> bool,
        change: impl FnOnce() -> Result<T, Fault>,
    ) -> Result<(T, Change), Failure<Change>> {
        let changing = directory.begin_change();
        let before = self.present_stat(directory).map_err(failed)?;
        let changed = self.changed(directory, &before, is_change, change);
        drop(changing);
        changed
    }

    /// The same for operations that always change something.
    pub(super) fn change_directory<T>(
        &self,
        directory: &Object,
        change: impl FnOnce() -> Result<T, Fault>,
    ) -> Result<(T, Change), Failure<Change>> {
        self.change_directory_if(directory, |_| true, change)
    }

    fn changed<T>(
        &self,
        object: &Object,
        before: &Statx,
        is_change: impl FnOnce(&T) -> bool,
        change: impl FnOnce() -> Result<T, Fault>,
    ) -> Result<(T, Change), Failure<Change>> {
        let told_before = object.told(before, self.id).before();
        let changed = change();
        object.end_change();
        let after = stat(&object.fd).ok();
        if let Some(after) = &after
            && changed.as_ref().map_or(true, is_change)
        {
            object.has_changed(before, after);
        }
        let after = after.map(|after| object.told(&after, self.id));
        let info = Change { before: Some(told_before), after };
        match changed {
            Ok(value) => Ok((value, info)),
            Err(fault) => Err(Failure { fault, info }),
        }
    }
}

pub(super) fn read_fully(file: &OwnedFd, out: &mut [u8], offset: u64) -> Result<usize, Errno> {
    let mut filled = 0;
    while filled < out.len() {
        match pread(file, &mut out[filled..], offset + filled as u64) {
            Ok(0) => break,
            Ok(len) => filled += len,
            Err(Errno::INTR) => {}
            Err(error) if filled == 0 => return Err(error),
            Err(_) => break,
        }
    }
    Ok(filled)
}

/// Writes as many bytes as there is room for.
pub(super) fn write_fully(file: &OwnedFd, data: &[u8], offset: u64) -> Result<usize, Errno> {
    let mut written = 0;
    while written < data.len() {
        match pwrite(file, &data[written..], offset + written as u64) {
            Ok(0) => break,
            Ok(len) => written += len,
            Err(Errno::INTR) => {}
            Err(error) if written == 0 => return Err(error),
            Err(_) => break,
        }
    }
    Ok(written)
}
