//! Part of a file in memory. The only file of this crate with `unsafe`: there is no safe way to map a file.
//!
//! The mapping is shared, lives as long as its value, and is read and written by copies only, so that no reference into
//! it exists. Another process that makes the file shorter would cost this one a SIGBUS; the exerciser is the only user
//! of its file.

#![allow(unsafe_code)]

use rustix::mm::{MapFlags, MsyncFlags, ProtFlags, mmap, msync, munmap};
use std::{ffi::c_void, fs::File, io, ptr};

/// Offsets of mappings are multiples of this.
pub(super) const PAGE: u64 = 4096;

/// Bytes of a file, mapped for reading and writing.
pub(super) struct Mapping {
    start: *mut c_void,
    length: usize,
}

impl Mapping {
    /// Maps bytes of a file; the offset is a multiple of [`PAGE`], the length is not zero, and the file is long
    /// enough.
    pub(super) fn new(file: &File, offset: u64, length: usize) -> io::Result<Self> {
        // SAFETY: the address is the kernel's choice, so that no memory in use is replaced.
        let start = unsafe {
            mmap(ptr::null_mut(), length, ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED, file, offset)
        }?;
        Ok(Self { start, length })
    }

    /// Copies bytes out.
    pub(super) fn read(&self, offset: usize, into: &mut [u8]) {
        assert!(offset.checked_add(into.len()).is_some_and(|end| end <= self.length), "beyond the mapping");
        // SAFETY: the range lies in the mapping, which is readable, and no Rust memory overlaps it.
        unsafe { ptr::copy_nonoverlapping(self.start.cast::<u8>().add(offset), into.as_mut_ptr(), into.len()) }
    }

    /// Copies bytes in.
    pub(super) fn write(&mut self, offset: usize, from: &[u8]) {
        assert!(offset.checked_add(from.len()).is_some_and(|end| end <= self.length), "beyond the mapping");
        // SAFETY: the range lies in the mapping, which is writable, and no Rust memory overlaps it.
        unsafe { ptr::copy_nonoverlapping(from.as_ptr(), self.start.cast::<u8>().add(offset), from.len()) }
    }

    /// Writes changed bytes to the file.
    pub(super) fn sync(&self) -> io::Result<()> {
        // SAFETY: the range is the mapping.
        Ok(unsafe { msync(self.start, self.length, MsyncFlags::SYNC) }?)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range is the mapping, and nothing refers into it.
        let _ = unsafe { munmap(self.start, self.length) };
    }
}
