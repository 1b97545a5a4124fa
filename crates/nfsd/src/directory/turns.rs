//! Writes to one file, one after another on one thread.
//!
//! They exclude each other in any case, here and in the kernel. On a thread each, all but one of them would sleep, and
//! waking them costs more than a write of a page. Files wait for each other in no way. Owns the jobs that wait for their
//! turn; one that the program drops takes with it those that wait behind it, and their calls fail.

use crate::{FileId, Workers};
use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// Work that may sleep.
pub(super) type Job = Box<dyn FnOnce() + Send>;

/// The files that have a job under way, with those that wait.
#[derive(Default)]
pub(super) struct Turns(Mutex<HashMap<FileId, VecDeque<Job>>>);

impl Turns {
    /// Runs a job after all of the same file that were given before.
    pub(super) fn run(self: &Arc<Self>, file: FileId, workers: &dyn Workers, job: Job) {
        let mut files = self.files();
        if let Some(waiting) = files.get_mut(&file) {
            waiting.push_back(job);
            return;
        }
        files.insert(file, VecDeque::new());
        drop(files);
        let mut turn = Turn { turns: self.clone(), file, ended: false };
        workers.run(Box::new(move || {
            job();
            while let Some(job) = turn.next() {
                job();
            }
        }));
    }

    fn files(&self) -> MutexGuard<'_, HashMap<FileId, VecDeque<Job>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The right to run jobs of a file.
struct Turn {
    turns: Arc<Turns>,
    file: FileId,
    /// Somebody else may have the turn already.
    ended: bool,
}

impl Turn {
    /// The next job. If there is none, the turn has ended.
    fn next(&mut self) -> Option<Job> {
        let mut files = self.turns.files();
        let next = files.get_mut(&self.file).and_then(VecDeque::pop_front);
        if next.is_none() {
            files.remove(&self.file);
            self.ended = true;
        }
        next
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if !self.ended {
            let waiting = self.turns.files().remove(&self.file);
            // Without the lock: what a job holds may do anything when it goes.
            drop(waiting);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{Receiver, channel};

    /// Keeps jobs until they are asked for.
    #[derive(Default)]
    struct Later(Mutex<Vec<Job>>);

    impl Workers for Later {
        fn run(&self, job: Job) {
            self.0.lock().unwrap().push(job);
        }
    }

    impl Later {
        fn take(&self) -> Vec<Job> {
            std::mem::take(&mut self.0.lock().unwrap())
        }
    }

    fn id(number: u8) -> FileId {
        FileId::new(&[number]).unwrap()
    }

    /// Gives three jobs of one file and one of another.
    fn given(turns: &Arc<Turns>, workers: &Later) -> Receiver<(u8, u8)> {
        let (sender, done) = channel();
        for (file, number) in [(1, 1), (1, 2), (2, 1), (1, 3)] {
            let sender = sender.clone();
            turns.run(id(file), workers, Box::new(move || sender.send((file, number)).unwrap()));
        }
        done
    }

    #[test]
    fn jobs_of_a_file_run_in_their_order_on_one_thread() {
        let (turns, workers) = (Arc::new(Turns::default()), Later::default());
        let done = given(&turns, &workers);
        let jobs = workers.take();
        assert_eq!(jobs.len(), 2, "one for each file");
        jobs.into_iter().for_each(|job| job());
        assert_eq!(done.iter().collect::<Vec<_>>(), [(1, 1), (1, 2), (1, 3), (2, 1)]);
        assert!(turns.files().is_empty());
    }

    #[test]
    fn a_job_that_is_dropped_or_panics_takes_those_behind_it_along_and_the_file_goes_on() {
        let (turns, workers) = (Arc::new(Turns::default()), Later::default());
        let done = given(&turns, &workers);
        drop(workers.take());
        assert_eq!(done.iter().count(), 0, "nobody waits for what will not come");
        let (sender, done) = channel::<()>();
        turns.run(id(1), &workers, Box::new(|| panic!("a fault in a job")));
        turns.run(id(1), &workers, Box::new(move || sender.send(()).unwrap()));
        let job = workers.take().remove(0);
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(job)).is_err());
        assert!(done.recv().is_err());
        assert!(turns.files().is_empty());
        let done = given(&turns, &workers);
        workers.take().into_iter().for_each(|job| job());
        assert_eq!(done.iter().count(), 4);
    }
}
