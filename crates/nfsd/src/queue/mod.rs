//! Work that may sleep: which job comes next, and what no client can take from the others.
//!
//! The program's threads are few, and a job may sleep for as long as a disk does. All work of a program goes through
//! one queue, for every export and every protocol: two queues would not know of each other's threads. So
//!
//! * jobs wait by client and connection, and begin in turn ([`fair`]): a client with a thousand calls waits only behind
//!   its own calls;
//! * a quarter of the threads moves no data and does not wait for the disk: a job that looks at names and attributes
//!   never waits behind writes ([`Lane`]);
//! * one client has at most three quarters of the threads, and of those for data ([`SHARE`]);
//! * jobs that change the same file run one after another and take no thread while they wait. Work that follows a
//!   change, such as waiting for the disk, runs beside the next change. A job that waits for a thread does not hold a
//!   file's turn;
//! * a call of several jobs takes one thread for them, as long as no other job waits ([`carry`]).
//!
//! Owns jobs until they begin. If a job panics, only its call fails. A program drops a job that has not begun only when
//! it is about to end: then the queue drops all waiting jobs.

mod carry;
mod fair;

use crate::{Origin, Workers, claims::FileKey, fs::InPlace};
use fair::Fair;
use foldhash::HashMap;
use rpcrdma_oncrpc::ClientNetwork;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::oneshot;

/// One in this many threads only looks at names and attributes.
const LOOKING: usize = 4;
/// One client leaves one in this many of a lane's threads to others.
const SHARE: usize = 4;

/// What kind of work a job is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Lane {
    /// Looks at names and attributes.
    Look,
    /// Reads or writes data, changes something, or waits for the disk.
    Data,
}

const LANES: [Lane; 2] = [Lane::Look, Lane::Data];

/// The work that follows a change, while the file's next change may begin.
pub(crate) type After = Box<dyn FnOnce() + Send>;

/// What a job does.
pub(crate) type Work = Box<dyn FnOnce() -> Option<After> + Send>;

/// Work that may sleep.
pub(crate) struct Job {
    pub(crate) lane: Lane,
    /// The file that the job changes: it takes this file's turn.
    pub(crate) turn: Option<FileKey>,
    pub(crate) work: Work,
    /// The work ends its file's turn by itself ([`carry`]).
    ends_turn: bool,
}

impl Job {
    pub(crate) fn new(lane: Lane, turn: Option<FileKey>, work: Work) -> Self {
        Self { lane, turn, work, ends_turn: false }
    }
}

/// How many jobs may be under way.
#[derive(Clone, Copy)]
struct Limits {
    all: usize,
    data: usize,
    all_of_client: usize,
    data_of_client: usize,
}

impl Limits {
    fn of(threads: usize) -> Self {
        let all = threads.max(1);
        let data = (all - all / LOOKING).clamp(1, (all - 1).max(1));
        let share = |threads: usize| (threads - threads / SHARE).max(1);
        Self { all, data, all_of_client: share(all), data_of_client: share(data) }
    }
}

/// Jobs under way.
#[derive(Clone, Copy, Default)]
struct Count {
    all: usize,
    data: usize,
}

impl Count {
    fn add(&mut self, lane: Lane) {
        self.all += 1;
        self.data += usize::from(lane == Lane::Data);
    }

    fn take(&mut self, lane: Lane) {
        self.all -= 1;
        self.data -= usize::from(lane == Lane::Data);
    }

    fn has_room(self, lane: Lane, all: usize, data: usize) -> bool {
        self.all < all && (lane == Lane::Look || self.data < data)
    }
}

/// Decides which job is next on the program's [`Workers`]: one queue for all exports and all versions of a program.
pub struct Queue {
    workers: Arc<dyn Workers>,
    limits: Limits,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    running: Count,
    running_of: HashMap<ClientNetwork, Count>,
    /// The jobs that wait for a thread, by lane.
    waiting: [Fair<Job>; 2],
    files: HashMap<FileKey, Changes>,
}

/// The changes of one file.
#[derive(Default)]
struct Changes {
    /// Whether a change is under way. If not, the next change waits for a thread.
    is_busy: bool,
    /// The changes that wait for the one under way.
    waiting: Fair<Job>,
}

impl State {
    /// Puts a job where it has to wait: for another change of its file, or for a thread.
    fn add(&mut self, origin: Origin, job: Job) {
        match job.turn.and_then(|file| self.files.get_mut(&file)) {
            Some(changes) if changes.is_busy => changes.waiting.push(origin, job),
            _ => self.waiting[job.lane as usize].push(origin, job),
        }
    }

    /// The next job that may begin. It counts as under way from now on.
    fn begin(&mut self, limits: &Limits) -> Option<(Origin, Job)> {
        LANES.into_iter().find_map(|lane| {
            // NFS3-FAIR-a
            while self.running.has_room(lane, limits.all, limits.data) {
                let Self { running_of, waiting, .. } = self;
                let may = |client| Self::client_may(running_of, client, lane, limits);
                let (origin, job) = waiting[lane as usize].pop(may)?;
                if let Some(file) = job.turn {
                    let changes = self.files.entry(file).or_default();
                    if changes.is_busy {
                        // Another change of the file has begun first.
                        changes.waiting.push_front(origin, job);
                        continue;
                    }
                    changes.is_busy = true;
                }
                self.start(lane, origin.client);
                return Some((origin, job));
            }
            None
        })
    }

    /// A job is under way from now on.
    fn start(&mut self, lane: Lane, client: ClientNetwork) {
        self.running.add(lane);
        self.running_of.entry(client).or_default().add(lane);
    }

    fn client_may(of: &HashMap<ClientNetwork, Count>, client: ClientNetwork, lane: Lane, limits: &Limits) -> bool {
        let running = of.get(&client).copied().unwrap_or_default();
        // NFS3-FAIR-b
        running.has_room(lane, limits.all_of_client, limits.data_of_client)
    }

    fn end(&mut self, lane: Lane, client: ClientNetwork) {
        self.running.take(lane);
        if let Some(count) = self.running_of.get_mut(&client) {
            count.take(lane);
            if count.all == 0 {
                self.running_of.remove(&client);
            }
        }
    }

    /// A change of a file has ended; the next change now waits for a thread, before all other jobs of its client. It is
    /// a change of a client that may have a thread, if there is one: a client that has used up its share of the threads
    /// does not keep others from the file.
    fn end_turn(&mut self, file: FileKey, limits: &Limits) {
        let Self { running_of, waiting, files, .. } = self;
        let Some(changes) = files.get_mut(&file) else { return };
        changes.is_busy = false;
        let may = |client| Self::client_may(running_of, client, Lane::Data, limits);
        // NFS3-FAIR-b
        match changes.waiting.pop(may).or_else(|| changes.waiting.pop(|_| true)) {
            Some((origin, job)) => waiting[job.lane as usize].push_front(origin, job),
            None => {
                files.remove(&file);
            }
        }
    }

    /// Forgets all jobs that have not begun.
    fn drain(&mut self) -> Vec<Job> {
        let mut drained: Vec<Job> = self.waiting.iter_mut().flat_map(Fair::drain).collect();
        for changes in self.files.values_mut() {
            drained.extend(changes.waiting.drain());
        }
        self.files.retain(|_, changes| changes.is_busy);
        drained
    }
}

impl Queue {
    /// A queue for these threads; they must get work from no other queue.
    pub fn new(workers: Arc<dyn Workers>) -> Arc<Self> {
        let limits = Limits::of(workers.threads());
        Arc::new(Self { workers, limits, state: Mutex::default() })
    }

    /// A queue that does all work at once, on the thread that asks: for tests, and for programs with one thread per
    /// connection.
    pub fn in_place() -> Arc<Self> {
        Self::new(Arc::new(InPlace))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs a job when its turn comes.
    pub(crate) fn run(self: &Arc<Self>, origin: Origin, job: Job) {
        if let Err(job) = self.at_once(origin, job) {
            self.state().add(origin, job);
            self.start_waiting();
        }
    }

    /// Takes a thread for a job of this client that changes no file, if there is one for it now.
    pub(crate) fn thread_for(self: &Arc<Self>, origin: Origin, lane: Lane) -> Option<Thread> {
        let mut state = self.state();
        let Limits { all, data, .. } = self.limits;
        // NFS3-FAIR-b
        let is_free = state.running.has_room(lane, all, data)
            && State::client_may(&state.running_of, origin.client, lane, &self.limits);
        if !is_free {
            return None;
        }
        state.start(lane, origin.client);
        drop(state);
        let running = Running {
            queue: self.clone(),
            client: origin.client,
            lane,
            turn: None,
            work: None,
            ends_turn: false,
            ended: false,
        };
        Some(Thread(running))
    }

    /// Runs work that changes no file in particular, and returns its result: `None` if the program drops the work.
    pub(crate) fn ask<T: Send + 'static>(
        self: &Arc<Self>,
        origin: Origin,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> oneshot::Receiver<T> {
        let (sender, receiver) = oneshot::channel();
        let work = Box::new(move || {
            let _ = sender.send(work());
            None
        });
        self.run(origin, Job::new(Lane::Data, None, work));
        receiver
    }

    /// Begins all jobs that may begin, on other threads.
    fn start_waiting(self: &Arc<Self>) {
        loop {
            let Some((origin, job)) = self.state().begin(&self.limits) else { return };
            let running = Running::new(self.clone(), origin, job);
            self.workers.run(Box::new(move || running.work()));
        }
    }
}

/// A thread that waits for a job. It is free again if this is dropped.
pub(crate) struct Thread(Running);

impl Thread {
    /// Runs a job on the thread.
    pub(crate) fn run(self, work: Work) {
        let Self(mut running) = self;
        running.work = Some(work);
        let workers = running.queue.workers.clone();
        workers.run(Box::new(move || running.work()));
    }
}

/// A job under way, on a thread or on its way there.
struct Running {
    queue: Arc<Queue>,
    client: ClientNetwork,
    lane: Lane,
    turn: Option<FileKey>,
    /// The work, until it has begun.
    work: Option<Work>,
    ends_turn: bool,
    ended: bool,
}

impl Running {
    fn new(queue: Arc<Queue>, origin: Origin, job: Job) -> Self {
        let Job { lane, turn, work, ends_turn } = job;
        Self { queue, client: origin.client, lane, turn, work: Some(work), ends_turn, ended: false }
    }

    /// Does the work, and then other jobs while there are any.
    fn work(mut self) {
        loop {
            if self.ends_turn {
                self.turn = None;
            }
            let after = self.work.take().and_then(|work| work());
            if let Some(after) = after {
                self.end_turn();
                carry::tell_all();
                after();
            }
            let next = self.end();
            carry::tell_before(next.as_ref(), self.client);
            let Some((origin, job)) = next else { return };
            let queue = self.queue.clone();
            self = Self::new(queue, origin, job);
            // The job that has ended may have blocked more than one.
            self.queue.start_waiting();
        }
    }

    /// Lets the file's next change begin, on another thread if there is one.
    fn end_turn(&mut self) {
        if let Some(file) = self.turn.take() {
            self.queue.state().end_turn(file, &self.queue.limits);
            self.queue.start_waiting();
        }
    }

    /// Gives the thread to the next job, if there is one.
    fn end(&mut self) -> Option<(Origin, Job)> {
        let mut state = self.queue.state();
        self.ended = true;
        state.end(self.lane, self.client);
        if let Some(file) = self.turn.take() {
            state.end_turn(file, &self.queue.limits);
        }
        state.begin(&self.queue.limits)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.ended {
            return;
        }
        self.ended = true;
        carry::tell_all();
        let mut state = self.queue.state();
        state.end(self.lane, self.client);
        if let Some(file) = self.turn.take() {
            state.end_turn(file, &self.queue.limits);
        }
        // A job that had begun has panicked: the others go on, on other threads.
        let dropped = if self.work.is_some() { state.drain() } else { Vec::new() };
        drop(state);
        // After the lock is released: the drop of what a job holds may do anything.
        drop(dropped);
        self.queue.start_waiting();
    }
}

#[cfg(test)]
mod tests;
