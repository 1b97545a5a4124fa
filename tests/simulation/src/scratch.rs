//! State directories of servers.

use std::path::Path;
use tempfile::TempDir;

/// A state directory, in memory if the system has such a place, because the server often waits for it.
pub(crate) fn scratch() -> TempDir {
    let memory = Path::new("/dev/shm");
    let above = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
    tempfile::Builder::new().prefix("rpcrdma-sim-").tempdir_in(above).expect("a directory for the state")
}
