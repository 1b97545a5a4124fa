//! Bytes in the library's memory.

use crate::{Gss, sys::RawBuffer};
use std::{fmt, ops::Deref};

/// Bytes that the library has made, read where they are. They go back to it when they are dropped.
pub struct Octets {
    raw: RawBuffer,
    gss: Gss,
}

// SAFETY: the memory is plain, nothing else refers to it, and the library's allocator is the process's.
unsafe impl Send for Octets {}
// SAFETY: shared references only read it.
unsafe impl Sync for Octets {}

impl Octets {
    /// No bytes yet: the library fills it.
    pub(crate) fn empty(gss: Gss) -> Self {
        Self { raw: RawBuffer::EMPTY, gss }
    }

    /// The place where the library puts the bytes.
    pub(crate) fn as_mut_ptr(&mut self) -> *mut RawBuffer {
        &mut self.raw
    }

    /// As text.
    pub(crate) fn to_text(&self) -> String {
        String::from_utf8_lossy(self).into_owned()
    }
}

impl Deref for Octets {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        if self.raw.value.is_null() || self.raw.length == 0 {
            return &[];
        }
        // SAFETY: the library has filled the buffer: `length` bytes at `value`, which stay until they are released.
        unsafe { std::slice::from_raw_parts(self.raw.value.cast(), self.raw.length) }
    }
}

impl AsRef<[u8]> for Octets {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl fmt::Debug for Octets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Octets({})", self.len())
    }
}

impl Drop for Octets {
    fn drop(&mut self) {
        let mut minor = 0;
        // SAFETY: the library has filled the buffer, or left it empty, and nothing refers to it any more.
        unsafe { (self.gss.0.gss_release_buffer)(&mut minor, &mut self.raw) };
    }
}
