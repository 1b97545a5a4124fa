//! Calls of several jobs that are carried out on one thread, since to wake a thread for each, and the asker again after it, costs more
//! than most of them do.
//!
//! The call itself is a job of its client's. While it runs on a thread, what it asks of the queue is done at once, on that thread. It
//! goes back to its asker, who waits for what is to come without a thread, as soon as it has to wait for anything: a file's turn, memory,
//! a client that is called. It goes back, too, when it has done [`TOGETHER`] jobs or another client's work waits: from then on each of its
//! jobs waits for its turn as every other.

use super::{After, Job, Lane, Queue};
use crate::{Origin, claims::FileKey};
use rpcrdma_env::BoxFuture;
use rpcrdma_oncrpc::ClientNetwork;
use std::{
    cell::Cell,
    sync::Arc,
    task::{Context, Poll, Waker},
};
use tokio::sync::oneshot;

/// The most jobs of a call that are done without a new turn.
const TOGETHER: u32 = 16;

/// A call that is polled on this thread.
#[derive(Clone, Copy)]
struct Carrying {
    /// Its address: only the same queue does a job at once.
    queue: usize,
    client: ClientNetwork,
    left: u32,
}

thread_local! {
    static CARRYING: Cell<Option<Carrying>> = const { Cell::new(None) };
}

/// Puts back what this thread carried before.
struct Restore(Option<Carrying>);

impl Restore {
    /// From now on the thread carries this.
    fn replace(carrying: Option<Carrying>) -> Self {
        Self(CARRYING.replace(carrying))
    }
}

impl Drop for Restore {
    fn drop(&mut self) {
        CARRYING.set(self.0);
    }
}

/// How a call comes back from a thread.
enum Back<T> {
    Done(T),
    /// It waits for something.
    Waits(BoxFuture<'static, T>),
}

/// The turn of a file's changes, held by a job that is done at once.
struct Turn<'a> {
    queue: &'a Arc<Queue>,
    file: Option<FileKey>,
}

impl Turn<'_> {
    fn end(&mut self) {
        if let Some(file) = self.file.take() {
            self.queue.state().end_turn(file, &self.queue.limits);
            self.queue.start_waiting();
        }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.end();
    }
}

impl Queue {
    fn address(self: &Arc<Self>) -> usize {
        Arc::as_ptr(self).addr()
    }

    /// Carries out a call of several jobs, in its client's turn. Nothing comes of it if the program drops it, or it panics.
    pub(crate) async fn carry<T: Send + 'static>(
        self: &Arc<Self>,
        origin: Origin,
        mut call: BoxFuture<'static, T>,
    ) -> Option<T> {
        let (sender, receiver) = oneshot::channel();
        let queue = self.address();
        let work = Box::new(move || -> Option<After> {
            let carrying = Carrying { queue, client: origin.client, left: TOGETHER };
            let restore = Restore::replace(Some(carrying));
            // Whoever gets it back polls it again: nobody has to be woken before.
            let polled = call.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            drop(restore);
            let _ = sender.send(match polled {
                Poll::Ready(done) => Back::Done(done),
                Poll::Pending => Back::Waits(call),
            });
            None
        });
        self.run(origin, Job { lane: Lane::Data, turn: None, work });
        match receiver.await.ok()? {
            Back::Done(done) => Some(done),
            Back::Waits(call) => Some(call.await),
        }
    }

    /// Does a job of a call that this thread carries at once, if it may be done.
    ///
    /// # Errors
    /// The job, if not.
    pub(super) fn at_once(self: &Arc<Self>, origin: Origin, job: Job) -> Result<(), Job> {
        let Some(mut carrying) = CARRYING.get() else { return Err(job) };
        if carrying.queue != self.address() || carrying.client != origin.client || carrying.left == 0 {
            return Err(job);
        }
        let mut state = self.state();
        let is_free = job.turn.is_none_or(|file| !state.files.contains_key(&file));
        if !is_free || state.waiting.iter().any(|waiting| waiting.has_another(origin.client)) {
            return Err(job);
        }
        if let Some(file) = job.turn {
            state.files.entry(file).or_default().is_busy = true;
        }
        drop(state);
        let mut turn = Turn { queue: self, file: job.turn };
        // What the job itself asks for waits for its turn.
        let restore = Restore::replace(None);
        if let Some(after) = (job.work)() {
            turn.end();
            after();
        }
        drop(turn);
        drop(restore);
        carrying.left -= 1;
        CARRYING.set(Some(carrying));
        Ok(())
    }
}
