//! Jobs that wait for threads, in turn for each client.
//!
//! The queue owns a job until its turn comes, and gives a few at a time to the threads. Clients have their turns one
//! after the other, however much each has waiting, and no client occupies all threads. So a client that sends much
//! waits for its own jobs, and others wait for one job of each client before them.
//!
//! The weight of waiting jobs is limited. If there is no room for one more, the client with the most loses the job that
//! it gave last; a newcomer is refused only if it would be that client. A job that is refused learns it, and ends.

use super::Work;
use crate::ClientNetwork;
use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// Whether a job's turn comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// It is on a thread, and does its work.
    Comes,
    /// It is refused, because too many jobs wait.
    Never,
}

/// Is called once, if the threads do not drop it.
pub(super) type Job = Box<dyn FnOnce(Turn) + Send>;

#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// How many jobs the threads have at a time.
    pub(super) at_once: usize,
    /// How many of them may belong to one client.
    pub(super) at_once_of_client: usize,
    /// The most weight that all waiting jobs may have.
    pub(super) waiting: usize,
    /// The most weight that the waiting jobs of one client may have.
    pub(super) waiting_of_client: usize,
}

pub(super) struct Queue {
    work: Arc<dyn Work>,
    bounds: Bounds,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The waiting jobs of each client that has some.
    waiting: HashMap<ClientNetwork, Own>,
    /// The same clients, the one whose turn is next at the front.
    turns: VecDeque<ClientNetwork>,
    weight: usize,
    /// How many jobs of a client the threads have.
    running: HashMap<ClientNetwork, usize>,
}

#[derive(Default)]
struct Own {
    jobs: VecDeque<(usize, Job)>,
    weight: usize,
}

impl Queue {
    pub(super) fn new(work: Arc<dyn Work>, bounds: Bounds) -> Arc<Self> {
        Arc::new(Self { work, bounds, state: Mutex::default() })
    }

    /// How many jobs wait for their turn.
    pub(super) fn len(&self) -> usize {
        self.state().waiting.values().map(|own| own.jobs.len()).sum()
    }

    /// Puts `job` into the queue, to be done in the client's turn.
    pub(super) fn enter(self: &Arc<Self>, client: ClientNetwork, weight: usize, job: Job) {
        let mut state = self.state();
        let mut refused = Vec::new();
        let own = state.waiting.get(&client).map_or(0, |own| own.weight) + weight;
        let mut has_room = own <= self.bounds.waiting_of_client && weight <= self.bounds.waiting;
        while has_room && state.weight + weight > self.bounds.waiting {
            match state.take_last_of_heaviest(own) {
                Some(job) => refused.push(job),
                None => has_room = false,
            }
        }
        match has_room {
            true => state.push(client, weight, job),
            false => refused.push(job),
        }
        self.go_on(state);
        refused.into_iter().for_each(|job| job(Turn::Never));
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives the threads as many jobs as they can take.
    fn go_on(self: &Arc<Self>, mut state: MutexGuard<'_, State>) {
        let mut next = Vec::new();
        while let Some((client, job)) = state.next(&self.bounds) {
            next.push((Running { queue: self.clone(), client }, job));
        }
        // [`Work`] may run a job at once, on this thread.
        drop(state);
        for (running, job) in next {
            self.work.run(Box::new(move || {
                let _running = running;
                job(Turn::Comes);
            }));
        }
    }
}

impl State {
    fn push(&mut self, client: ClientNetwork, weight: usize, job: Job) {
        let own = self.waiting.entry(client).or_default();
        if own.jobs.is_empty() {
            self.turns.push_back(client);
        }
        own.jobs.push_back((weight, job));
        own.weight += weight;
        self.weight += weight;
    }

    /// The next job, which runs from now on.
    fn next(&mut self, bounds: &Bounds) -> Option<(ClientNetwork, Job)> {
        if self.running.values().sum::<usize>() >= bounds.at_once {
            return None;
        }
        // At most as many clients are passed over as jobs run.
        let may_run = |client| self.running.get(client).is_none_or(|running| *running < bounds.at_once_of_client);
        let place = self.turns.iter().position(may_run)?;
        let client = self.turns.remove(place)?;
        let own = self.waiting.get_mut(&client)?;
        let (weight, job) = own.jobs.pop_front()?;
        own.weight -= weight;
        self.weight -= weight;
        match own.jobs.is_empty() {
            true => drop(self.waiting.remove(&client)),
            false => self.turns.push_back(client),
        }
        *self.running.entry(client).or_default() += 1;
        Some((client, job))
    }

    /// The last job of the client with the most, if it has more than `than`.
    fn take_last_of_heaviest(&mut self, than: usize) -> Option<Job> {
        let (client, own) = self.waiting.iter_mut().max_by_key(|(_, own)| own.weight)?;
        if own.weight <= than {
            return None;
        }
        let client = *client;
        let (weight, job) = own.jobs.pop_back()?;
        own.weight -= weight;
        self.weight -= weight;
        if own.jobs.is_empty() {
            self.waiting.remove(&client);
            self.turns.retain(|other| *other != client);
        }
        Some(job)
    }
}

/// A job that the threads have. Dropping it ends the job for the queue, also if the job panics or the threads drop it.
struct Running {
    queue: Arc<Queue>,
    client: ClientNetwork,
}

impl Drop for Running {
    fn drop(&mut self) {
        let mut state = self.queue.state();
        if let Some(running) = state.running.get_mut(&self.client) {
            *running -= 1;
            if *running == 0 {
                state.running.remove(&self.client);
            }
        }
        self.queue.go_on(state);
    }
}

#[cfg(test)]
mod tests;
