//! Locked memory: registering needs some, and the system limits it for each process.

use rustix::process::{Resource, getrlimit};
use std::io;

/// The limit on locked memory, in words; `None` if there is no limit.
pub(crate) fn memory_lock_limit() -> Option<String> {
    getrlimit(Resource::Memlock).current.map(|octets| format!("{octets} bytes"))
}

/// Whether registering failed because the process may not lock more memory.
pub(crate) fn is_memory_lock(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::OutOfMemory)
        || error.raw_os_error() == Some(rustix::io::Errno::PERM.raw_os_error())
}
