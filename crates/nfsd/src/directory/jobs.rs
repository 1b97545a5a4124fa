//! Jobs on the program's threads: where they queue, whose turn they take, and when a change is answered.

use super::{Answers, DirectoryFs, Inner};
use crate::{
    Caller, Changed, Failure, Fault, FileId,
    claims::FileKey,
    failed,
    queue::{After, Job, Lane, Thread, Work},
};
use rpcrdma_env::BoxFuture;
use rpcrdma_nfs::attr::Change;
use tokio::sync::oneshot;

/// The result of the first part of a job.
pub(super) enum Step<T, F> {
    /// All of it is done.
    Done(Result<T, Failure<F>>),
    /// The rest runs beside the file's next change.
    Then(Rest<T, F>),
}

pub(super) type Rest<T, F> = Box<dyn FnOnce(&Inner) -> Result<T, Failure<F>> + Send>;

impl DirectoryFs {
    /// Runs a job on the program's threads. If they drop the job, its call fails.
    pub(super) fn run<T: Send + 'static, F: Default + Send + 'static>(
        &self,
        caller: &Caller,
        lane: Lane,
        job: impl FnOnce(&Inner) -> Result<T, Failure<F>> + Send + 'static,
    ) -> BoxFuture<'static, Result<T, Failure<F>>> {
        self.queued(caller, lane, None, |inner| Step::Done(job(inner)))
    }

    /// Runs a job that changes a file, after all earlier jobs that change the same file.
    pub(super) fn run_in_turn<T: Send + 'static, F: Default + Send + 'static>(
        &self,
        caller: &Caller,
        file: FileId,
        job: impl FnOnce(&Inner) -> Step<T, F> + Send + 'static,
    ) -> BoxFuture<'static, Result<T, Failure<F>>> {
        self.queued(caller, Lane::Data, Some(file), job)
    }

    /// The same for a change of attributes or names: the server answers when it is on the disk.
    pub(super) fn change<T: Send + 'static, F: Default + Send + 'static>(
        &self,
        caller: &Caller,
        file: FileId,
        change: impl FnOnce(&Inner) -> Result<T, Failure<F>> + Send + 'static,
        wait: impl FnOnce(&Inner, Answers, T) -> Result<T, Failure<F>> + Send + 'static,
    ) -> BoxFuture<'static, Result<T, Failure<F>>> {
        let answers = self.answers;
        self.run_in_turn(caller, file, move |inner| match change(inner) {
            Ok(done) if answers == Answers::Stable => Step::Then(Box::new(move |inner| wait(inner, answers, done))),
            done => Step::Done(done),
        })
    }

    fn queued<T: Send + 'static, F: Default + Send + 'static>(
        &self,
        caller: &Caller,
        lane: Lane,
        turn: Option<FileId>,
        job: impl FnOnce(&Inner) -> Step<T, F> + Send + 'static,
    ) -> BoxFuture<'static, Result<T, Failure<F>>> {
        let turn = turn.map(|file| FileKey { file_system: self.inner.id, file });
        let (work, answer) = self.work(job);
        self.queue.run(caller.origin, Job::new(lane, turn, work));
        answer
    }

    /// Runs a job that only looks or reads on a thread that waits for it.
    pub(super) fn run_on<T: Send + 'static, F: Default + Send + 'static>(
        &self,
        thread: Thread,
        job: impl FnOnce(&Inner) -> Result<T, Failure<F>> + Send + 'static,
    ) -> BoxFuture<'static, Result<T, Failure<F>>> {
        let (work, answer) = self.work(|inner| Step::Done(job(inner)));
        thread.run(work);
        answer
    }

    /// A job as a thread does it, and its answer.
    fn work<T: Send + 'static, F: Default + Send + 'static>(
        &self,
        job: impl FnOnce(&Inner) -> Step<T, F> + Send + 'static,
    ) -> (Work, BoxFuture<'static, Result<T, Failure<F>>>) {
        let (sender, receiver) = oneshot::channel();
        let inner = self.inner.clone();
        let work = Box::new(move || match job(&inner) {
            Step::Done(result) => {
                let _ = sender.send(result);
                None
            }
            Step::Then(then) => {
                let after: After = Box::new(move || {
                    let _ = sender.send(then(&inner));
                });
                Some(after)
            }
        });
        (work, Box::pin(async move { receiver.await.unwrap_or_else(|_| Err(failed(Fault::Internal))) }))
    }

    /// Runs a job that only looks, and whose failure has only a cause.
    pub(super) fn look<T: Send + 'static>(
        &self,
        caller: &Caller,
        job: impl FnOnce(&Inner) -> Result<T, Fault> + Send + 'static,
    ) -> BoxFuture<'static, Result<T, Fault>> {
        let job = self.run(caller, Lane::Look, |inner| job(inner).map_err(failed::<()>));
        Box::pin(async { job.await.map_err(|failure| failure.fault) })
    }

    /// Runs a job that changes one file. The server answers when the change is on the disk.
    pub(super) fn change_one(
        &self,
        caller: &Caller,
        file: FileId,
        change: impl FnOnce(&Inner) -> Changed<Change> + Send + 'static,
    ) -> BoxFuture<'static, Changed<Change>> {
        self.change(caller, file, change, move |inner, answers, changed| {
            answers.after(inner, &[file], changed, |changed| changed)
        })
    }
}
