//! Where work on files that may sleep is done: on the threads that the program's runtime has for what blocks.

use rpcrdma_nfsd::Workers;
use tokio::runtime::Handle;

/// Threads for work on files that may sleep, for each serving thread.
const FILE_THREADS: usize = 8;

/// Runs work on files on threads that may sleep.
pub(super) struct FileThreads {
    pub(super) handle: Handle,
    threads: usize,
}

impl FileThreads {
    /// On the threads of this runtime.
    pub(super) fn new(handle: Handle, serving_threads: usize) -> Self {
        Self { handle, threads: blocking_threads(serving_threads) }
    }
}

/// The most threads of the runtime that a server uses for work that blocks. If the runtime does other such work too,
/// its `max_blocking_threads` must be larger than this.
pub fn blocking_threads(serving_threads: usize) -> usize {
    serving_threads * FILE_THREADS
}

impl Workers for FileThreads {
    fn run(&self, job: Box<dyn FnOnce() + Send>) {
        self.handle.spawn_blocking(job);
    }

    fn threads(&self) -> usize {
        self.threads
    }
}
