//! The work that a client's driver does at the same time: a few duties, the rest of calls whose callers are gone, and a
//! renewal of the lease, so that none waits for another.

use super::{Error, duties::Duties};
use futures_util::{StreamExt as _, stream::FuturesUnordered};
use rpcrdma_env::BoxFuture;
use std::{collections::VecDeque, sync::Arc};

/// Duties at a time: the others wait, so that most slots of the session are free for the callers.
const MAX_DUTIES: usize = 8;

/// What was done.
#[derive(Debug)]
pub(super) enum Done {
    /// Something that was left to do.
    Duty,
    /// A call without a caller.
    Finished,
    /// The flags of SEQUENCE have been acted on.
    Heeded {
        /// Whether something could be done about it.
        has_found: bool,
    },
    /// The lease was to be renewed.
    Renewed(Result<(), Error>),
}

/// What the driver does.
#[derive(Default)]
pub(super) struct Works {
    active: FuturesUnordered<BoxFuture<'static, Done>>,
    waiting: VecDeque<BoxFuture<'static, ()>>,
    duties: usize,
}

impl Works {
    /// Begins something that waits for nothing else.
    pub(super) fn begin(&mut self, work: impl Future<Output = Done> + Send + 'static) {
        self.active.push(Box::pin(work));
    }

    /// Finishes a call whose caller is gone.
    pub(super) fn finish(&mut self, duties: &Arc<Duties>, call: BoxFuture<'static, ()>) {
        let at_work = duties.begin();
        // It is not counted as a duty: it may wait for something that another such call holds.
        self.begin(async move {
            call.await;
            drop(at_work);
            Done::Finished
        });
    }

    /// Begins a duty as soon as there is room.
    pub(super) fn duty(&mut self, duties: &Arc<Duties>, work: impl Future<Output = ()> + Send + 'static) {
        let at_work = duties.begin();
        self.waiting.push_back(Box::pin(async move {
            work.await;
            drop(at_work);
        }));
        self.fill();
    }

    fn fill(&mut self) {
        while self.duties < MAX_DUTIES
            && let Some(work) = self.waiting.pop_front()
        {
            self.duties += 1;
            self.begin(async move {
                work.await;
                Done::Duty
            });
        }
    }

    /// Waits until something is done.
    pub(super) async fn next(&mut self) -> Done {
        match self.active.next().await {
            Some(done) => {
                if matches!(done, Done::Duty) {
                    self.duties -= 1;
                    self.fill();
                }
                done
            }
            None => std::future::pending().await,
        }
    }
}
