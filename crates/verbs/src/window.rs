//! Memory windows of type 2: handles that are bound to one queue pair and can be invalidated.

use crate::{
    answer::{check, report},
    domain::Domain,
    sys::verbs,
};
use std::{io, sync::Arc};

/// A window. The device chooses 24 bits of its handle; we choose the low byte, anew for each use.
pub(crate) struct Window {
    raw: *mut verbs::Window,
    domain: Arc<Domain>,
    /// Odd, so that the low byte takes every value once before one comes again.
    stride: u8,
    handle: u32,
}

// SAFETY: windows may be used from any thread.
unsafe impl Send for Window {}

impl Window {
    pub(crate) fn new(domain: &Arc<Domain>, random: u64) -> io::Result<Self> {
        let Some(alloc) = domain.context().ops().alloc_mw else { return Err(io::ErrorKind::Unsupported.into()) };
        // SAFETY: the domain is allocated, and kept as long as the window.
        let raw = unsafe { alloc(domain.raw(), verbs::WINDOW_TYPE_2) };
        if raw.is_null() {
            return Err(io::Error::last_os_error());
        }
        // The header's inline function does the same for the fields that the library leaves to it.
        // SAFETY: the window was just allocated.
        let device = unsafe {
            (*raw).context = domain.context().raw();
            (*raw).pd = domain.raw();
            (*raw).kind = verbs::WINDOW_TYPE_2;
            (*raw).rkey
        };
        let [start, stride, ..] = random.to_ne_bytes();
        Ok(Self { raw, domain: domain.clone(), stride: stride | 1, handle: (device & !0xFF) | u32::from(start) })
    }

    pub(crate) fn raw(&self) -> *mut verbs::Window {
        self.raw
    }

    /// The handle of the next use.
    pub(crate) fn next_handle(&mut self) -> u32 {
        self.handle = following(self.handle, self.stride);
        self.handle
    }

    /// Records that a bind to this handle has been posted: providers read the present handle from this field.
    pub(crate) fn bound(&mut self, handle: u32) {
        // SAFETY: the window is allocated, and nothing else writes to it.
        unsafe { (*self.raw).rkey = handle }
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        if let Some(dealloc) = self.domain.context().ops().dealloc_mw {
            // SAFETY: the window is allocated. If it is bound, this call ends the binding.
            report("freeing a memory window", check(unsafe { dealloc(self.raw) }));
        }
    }
}

/// The same handle with the next low byte.
fn following(handle: u32, stride: u8) -> u32 {
    let [a, b, c, low] = handle.to_be_bytes();
    u32::from_be_bytes([a, b, c, low.wrapping_add(stride)])
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_octet_comes_before_one_comes_again() {
        for stride in [1, 3, 127, 255] {
            let mut handle = 0x8000_12F0;
            let seen: BTreeSet<u32> = (0..256)
                .map(|_| {
                    handle = following(handle, stride);
                    handle
                })
                .collect();
            assert_eq!(seen.len(), 256);
            assert!(seen.iter().all(|seen| seen >> 8 == 0x0080_0012));
            assert_eq!(handle, 0x8000_12F0);
        }
    }
}
