//! Threads for work that waits for files and other hosts, and that nothing else may wait for: files, tokens of
//! Kerberos, the groups of users.
//!
//! They are the server's own. A runtime waits at its end for the work on its threads for blocking work, so that a disk
//! that does not answer would keep the program from ending; and the program's own work would wait for ours.

use super::seldom::Seldom;
use rpcrdma_oncrpc::gss::Work;
use std::{
    collections::VecDeque,
    io,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};
use tokio::sync::watch;

/// A thread that has had no job for this long ends, unless it is the last.
const IDLE: Duration = Duration::from_secs(10);

type Job = Box<dyn FnOnce() + Send>;

/// At most `most` threads, which start when there is work for them. The callers limit how many jobs wait for them. When
/// this is dropped, the threads do what waits, and end.
pub(super) struct Threads(Arc<Pool>);

struct Pool {
    name: String,
    most: usize,
    state: Mutex<State>,
    wake: Condvar,
    /// Each thread holds a receiver.
    alive: Arc<watch::Sender<()>>,
    /// Threads that could not be started.
    failed: Seldom,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    threads: usize,
    /// Threads that wait for a job.
    idle: usize,
    is_over: bool,
}

/// The end of some threads.
pub(super) struct Ended(Arc<watch::Sender<()>>);

impl Ended {
    /// Completes when [`Threads`] have been dropped, and all that they had to do is done.
    pub(super) async fn wait(&self) {
        self.0.closed().await;
    }
}

impl Threads {
    pub(super) fn start(name: &str, most: usize) -> io::Result<Self> {
        let alive = Arc::new(watch::Sender::new(()));
        let state = Mutex::new(State { threads: 1, ..State::default() });
        let pool =
            Arc::new(Pool { name: name.into(), most, state, wake: Condvar::new(), alive, failed: Seldom::default() });
        // With one thread every job is done at some time, also if the system allows no others.
        pool.start()?;
        Ok(Self(pool))
    }

    pub(super) fn ended(&self) -> Ended {
        Ended(self.0.alive.clone())
    }
}

impl Work for Threads {
    fn run(&self, job: Job) {
        let mut state = self.0.state();
        state.jobs.push_back(job);
        if state.jobs.len() <= state.idle {
            drop(state);
            self.0.wake.notify_one();
        } else if state.threads < self.0.most {
            state.threads += 1;
            drop(state);
            if let Err(error) = self.0.start() {
                // The job waits for the existing threads.
                self.0.state().threads -= 1;
                if let Some(untold) = self.0.failed.tell(Instant::now()) {
                    tracing::warn!(%error, threads = self.0.name, untold, "cannot start a thread; work waits");
                }
            }
        }
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.0.state().is_over = true;
        self.0.wake.notify_all();
    }
}

impl Pool {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a thread, which has been counted.
    fn start(self: &Arc<Self>) -> io::Result<()> {
        let (pool, alive) = (self.clone(), self.alive.subscribe());
        let work = move || {
            while let Some(job) = pool.next() {
                // A job that panics has reported that; the thread goes on with the next.
                let _ = catch_unwind(AssertUnwindSafe(job));
            }
            drop(alive);
        };
        thread::Builder::new().name(self.name.clone()).spawn(work)?;
        Ok(())
    }

    /// The next job, if the thread is to go on.
    fn next(&self) -> Option<Job> {
        let mut state = self.state();
        loop {
            if let Some(job) = state.jobs.pop_front() {
                return Some(job);
            }
            if state.is_over {
                return None;
            }
            state.idle += 1;
            let (woken, waited) = self.wake.wait_timeout(state, IDLE).unwrap_or_else(PoisonError::into_inner);
            state = woken;
            state.idle -= 1;
            if waited.timed_out() && state.jobs.is_empty() && state.threads > 1 {
                state.threads -= 1;
                return None;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt as _;
    use std::sync::mpsc::channel;

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

    #[test]
    fn each_job_has_a_thread_up_to_so_many() {
        let (threads, (begun, beginnings)) = (Threads::start("rpcrdma-files", 3).unwrap(), channel());
        let mut held = Vec::new();
        for _ in 0..4 {
            let (begun, (hold, held_up)) = (begun.clone(), channel::<()>());
            held.push(hold);
            threads.run(Box::new(move || {
                begun.send(()).unwrap();
                let _ = held_up.recv();
            }));
        }
        (0..3).for_each(|_| beginnings.recv().unwrap());
        assert_eq!(threads.0.state().threads, 3);
        assert_eq!(threads.0.state().jobs.len(), 1, "for the fourth there is no thread yet");
        drop(held);
        beginnings.recv().unwrap();
    }

    #[tokio::test]
    async fn threads_end_when_all_is_done() {
        let (threads, (hold, held_up)) = (Threads::start("rpcrdma-files", 2).unwrap(), channel::<()>());
        let ended = threads.ended();
        threads.run(Box::new(move || _ = held_up.recv()));
        drop(threads);
        assert!(ended.wait().now_or_never().is_none());
        drop(hold);
        ended.wait().await;
    }
}
