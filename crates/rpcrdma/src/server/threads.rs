//! Threads for work that waits for files and other hosts, and that nothing else may wait for: tokens of Kerberos, the
//! groups of users.

use rpcrdma_oncrpc::gss::Work;
use std::{
    io,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, Mutex, PoisonError,
        mpsc::{Receiver, Sender, channel},
    },
    thread,
};

type Job = Box<dyn FnOnce() + Send>;

/// So many threads. The callers limit how many jobs wait for them.
pub(super) struct Threads(Sender<Job>);

impl Threads {
    pub(super) fn start(name: &str, count: usize) -> io::Result<Self> {
        let (sender, jobs) = channel::<Job>();
        let jobs = Arc::new(Mutex::new(jobs));
        for _ in 0..count {
            let jobs: Arc<Mutex<Receiver<Job>>> = jobs.clone();
            let work = move || {
                // The lock is released before the job begins.
                let next = || jobs.lock().unwrap_or_else(PoisonError::into_inner).recv();
                while let Ok(job) = next() {
                    // A job that panics has reported that; the thread goes on with the next.
                    let _ = catch_unwind(AssertUnwindSafe(job));
                }
            };
            thread::Builder::new().name(name.into()).spawn(work)?;
        }
        Ok(Self(sender))
    }
}

impl Work for Threads {
    fn run(&self, job: Job) {
        // Without threads the job is dropped, and its call answered that it has failed.
        let _ = self.0.send(job);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_are_done_by_threads_of_their_own() {
        let (threads, (done, answers)) = (Threads::start("rpcrdma-tokens", 4).unwrap(), channel());
        (0..8).for_each(|_| threads.run(Box::new(|| panic!("a job's own"))));
        for _ in 0..8 {
            let done = done.clone();
            threads.run(Box::new(move || done.send(thread::current().name().map(str::to_owned)).unwrap()));
        }
        for _ in 0..8 {
            assert_eq!(answers.recv().unwrap().as_deref(), Some("rpcrdma-tokens"));
        }
    }
}
