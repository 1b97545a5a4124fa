//! Where work on files that may sleep is done: on threads of the server's own.

use super::threads::{Ended, Threads};
use rpcrdma_nfsd::Workers;
use rpcrdma_oncrpc::gss::Work as _;
use std::io;

/// Threads for work on files that may sleep, for each serving thread.
const FILE_THREADS: usize = 8;

/// Runs work on files on threads that may sleep.
pub(super) struct FileThreads {
    threads: Threads,
    most: usize,
}

impl FileThreads {
    pub(super) fn start(serving_threads: usize) -> io::Result<Self> {
        let most = serving_threads * FILE_THREADS;
        Ok(Self { threads: Threads::start("rpcrdma-files", most)?, most })
    }

    pub(super) fn ended(&self) -> Ended {
        self.threads.ended()
    }
}

impl Workers for FileThreads {
    fn run(&self, job: Box<dyn FnOnce() + Send>) {
        self.threads.run(job);
    }

    fn threads(&self) -> usize {
        self.most
    }
}
