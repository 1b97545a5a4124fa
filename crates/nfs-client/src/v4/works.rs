//! The work that a client's driver does at the same time, so that no part waits for another: a few duties, calls whose
//! callers have gone, and a renewal of the lease.

use super::{Error, duties::Duties};
use futures_util::{StreamExt as _, stream::FuturesUnordered};
use rpcrdma_env::BoxFuture;
use std::{collections::VecDeque, sync::Arc};

/// How many duties are under way at a time: the others wait, so that most slots of the session are free for callers.
const MAX_DUTIES: usize = 8;

/// A piece of work that has ended.
#[derive(Debug)]
pub(super) enum Done {
    /// A duty.
    Duty,
    /// A call whose caller has gone.
    Finished,
    /// The driver has acted on the flags of SEQUENCE.
    Heeded {
        /// Whether there was something to do.
        has_found: bool,
    },
    /// A renewal of the lease.
    Renewed(Result<(), Error>),
}

/// The driver's work.
#[derive(Default)]
pub(super) struct Works {
    active: FuturesUnordered<BoxFuture<'static, Done>>,
    waiting: VecDeque<BoxFuture<'static, ()>>,
    duties: usize,
}

impl Works {
    /// Begins work that does not wait for other work.
    pub(super) fn begin(&mut self, work: impl Future<Output = Done> + Send + 'static) {
        self.active.push(Box::pin(work));
    }

    /// Finishes a call whose caller has gone.
    pub(super) fn finish(&mut self, duties: &Arc<Duties>, call: BoxFuture<'static, ()>) {
        let at_work = duties.begin();
        // It does not count as a duty: it may wait for something that another such call holds.
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

    /// Waits until a piece of work has ended.
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
