//! Threads for work that may sleep in the kernel.

/// Runs work that may sleep in the kernel, on threads of the program. The library starts no thread.
pub trait Workers: Send + Sync {
    /// Runs `job` on some thread, at once if fewer than [`threads`](Self::threads) jobs are under way. If a job is
    /// dropped instead, its call fails, and so do the calls that wait for their turn.
    fn run(&self, job: Box<dyn FnOnce() + Send>);

    /// How many jobs can run at a time. The [`Queue`](crate::Queue) hands over no more than that, and decides which
    /// jobs come next.
    fn threads(&self) -> usize {
        usize::MAX
    }
}

/// Does the work at once, on the thread that asks.
pub(crate) struct InPlace;

impl Workers for InPlace {
    fn run(&self, job: Box<dyn FnOnce() + Send>) {
        job();
    }
}
