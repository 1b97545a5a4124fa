//! Carries out calls of several jobs on one thread: to wake a thread for each job, and the asker again after it, costs
//! more than most jobs do.
//!
//! The whole call is a job of its client. While it runs on a thread, that thread does the call's own jobs at once. The
//! call goes back to its asker, who waits without a thread, as soon as it has to wait: for a file's turn, for memory,
//! or for a client that the server calls. It also goes back when it has done [`TOGETHER`] jobs, or when work of another
//! client waits: from then on each of its jobs waits for its turn like any other.
//!
//! Calls that change the same directory wait for each other before they take a thread, not in the middle: the call has
//! the directory's turn from its beginning. It gives up this turn before it waits for the disk, before it changes
//! another file while another client wants the directory, and when it goes back.
//!
//! A thread does not wake a connection for each call that is done, either: while the thread's next job is another such
//! call of the same client, it keeps at most [`TOLD_TOGETHER`] answers. It reports all of them before it waits for the
//! disk.

use super::{After, Changes, Job, Lane, Queue};
use crate::{Origin, claims::FileKey};
use rpcrdma_env::BoxFuture;
use rpcrdma_oncrpc::ClientNetwork;
use std::{
    cell::{Cell, RefCell},
    sync::Arc,
    task::{Context, Poll, Waker},
};
use tokio::sync::oneshot;

/// The most jobs of a call that are done without a new turn.
const TOGETHER: u32 = 16;

/// The most answers that a thread keeps for the calls behind them.
const TOLD_TOGETHER: usize = 8;

/// A call that is polled on this thread.
#[derive(Clone, Copy)]
struct Carrying {
    /// The queue's address: only this queue does the call's jobs at once.
    queue: usize,
    client: ClientNetwork,
    left: u32,
}

thread_local! {
    static CARRYING: Cell<Option<Carrying>> = const { Cell::new(None) };
    /// The turn that the call has from its beginning.
    static DIRECTORY: RefCell<Option<Turn>> = const { RefCell::new(None) };
    /// The results that this thread has not yet reported.
    static UNTOLD: RefCell<Vec<Box<dyn FnOnce()>>> = const { RefCell::new(Vec::new()) };
}

/// Reports the results of the calls on this thread.
pub(super) fn tell_all() {
    for tell in UNTOLD.take() {
        tell();
    }
}

/// Reports the results, unless this thread's next job is another call of the same client.
pub(super) fn tell_before(next: Option<&(Origin, Job)>, client: ClientNetwork) {
    // NFS3-FAIR-a
    let is_another = next.is_some_and(|(origin, job)| job.ends_turn && origin.client == client);
    if !is_another || UNTOLD.with_borrow(Vec::len) >= TOLD_TOGETHER {
        tell_all();
    }
}

/// The directory whose turn the call on this thread has.
fn directory() -> Option<FileKey> {
    DIRECTORY.with_borrow(|turn| turn.as_ref().and_then(|turn| turn.file))
}

/// Ends the turn that the call on this thread has, if it still has one.
fn end_directory() {
    drop(DIRECTORY.take());
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

/// Gives the call on this thread the turn of a directory, until this is dropped.
struct HasTurn {
    /// What the thread had before.
    before: Option<Turn>,
}

impl HasTurn {
    fn of(turn: Option<Turn>) -> Self {
        Self { before: DIRECTORY.replace(turn) }
    }
}

impl Drop for HasTurn {
    fn drop(&mut self) {
        if let Some(turn) = DIRECTORY.replace(self.before.take()) {
            turn.end_with_the_job();
        }
    }
}

/// How a call comes back from a thread.
enum Back<T> {
    Done(T),
    /// It waits for something.
    Waits(BoxFuture<'static, T>),
}

/// The turn of a file's changes, until it is dropped.
struct Turn {
    queue: Arc<Queue>,
    /// `None` once the turn has ended.
    file: Option<FileKey>,
}

impl Turn {
    fn new(queue: &Arc<Queue>, file: FileKey) -> Self {
        Self { queue: queue.clone(), file: Some(file) }
    }

    /// Ends the turn. This thread's job ends now, and the thread then begins what has waited for the turn.
    fn end_with_the_job(mut self) {
        if let Some(file) = self.file.take() {
            self.queue.state().end_turn(file, &self.queue.limits);
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if let Some(file) = self.file.take() {
            self.queue.state().end_turn(file, &self.queue.limits);
            self.queue.start_waiting();
        }
    }
}

impl Queue {
    fn address(self: &Arc<Self>) -> usize {
        Arc::as_ptr(self).addr()
    }

    /// Carries out a call of several jobs in its client's turn, and in the turn of the directory that it changes, if
    /// there is one. Returns `None` if the program drops the call or the call panics.
    pub(crate) async fn carry<T: Send + 'static>(
        self: &Arc<Self>,
        origin: Origin,
        directory: Option<FileKey>,
        mut call: BoxFuture<'static, T>,
    ) -> Option<T> {
        let (sender, receiver) = oneshot::channel();
        let queue = self.clone();
        let work = Box::new(move || -> Option<After> {
            let carrying = Carrying { queue: queue.address(), client: origin.client, left: TOGETHER };
            let has_turn = HasTurn::of(directory.map(|file| Turn::new(&queue, file)));
            let restore = Restore::replace(Some(carrying));
            // The asker polls the call again when it gets it back, so no wake-up is needed before.
            let polled = call.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            drop((restore, has_turn));
            match polled {
                Poll::Ready(done) => UNTOLD.with_borrow_mut(|untold| {
                    untold.push(Box::new(move || drop(sender.send(Back::Done(done)))));
                }),
                Poll::Pending => drop(sender.send(Back::Waits(call))),
            }
            None
        });
        self.run(origin, Job { ends_turn: true, ..Job::new(Lane::Data, directory, work) });
        match receiver.await.ok()? {
            Back::Done(done) => Some(done),
            Back::Waits(call) => Some(call.await),
        }
    }

    /// Does a job at once if it belongs to the call on this thread and nothing is in its way.
    ///
    /// # Errors
    /// The job, if it must wait for its turn.
    pub(super) fn at_once(self: &Arc<Self>, origin: Origin, job: Job) -> Result<(), Job> {
        let Some(mut carrying) = CARRYING.get() else { return Err(job) };
        if carrying.queue != self.address() || carrying.client != origin.client || carrying.left == 0 {
            return Err(job);
        }
        let has_directory = job.turn.is_some() && job.turn == directory();
        let mut state = self.state();
        let is_free = has_directory || job.turn.is_none_or(|file| !state.files.contains_key(&file));
        // NFS3-FAIR-a
        if !is_free || state.waiting.iter().any(|waiting| waiting.has_another(origin.client)) {
            return Err(job);
        }
        let is_wanted = |directory| {
            state.files.get(&directory).is_some_and(|changes: &Changes| changes.waiting.has_another(origin.client))
        };
        // NFS3-FAIR-a
        let gives_up = !has_directory && directory().is_some_and(is_wanted);
        let turn = job.turn.filter(|_| !has_directory).map(|file| {
            state.files.entry(file).or_default().is_busy = true;
            Turn::new(self, file)
        });
        drop(state);
        if gives_up {
            end_directory();
        }
        // Jobs that this job asks for wait for their turn.
        let restore = Restore::replace(None);
        if let Some(after) = (job.work)() {
            drop((turn, DIRECTORY.take()));
            tell_all();
            after();
        }
        drop(restore);
        carrying.left -= 1;
        CARRYING.set(Some(carrying));
        Ok(())
    }
}
