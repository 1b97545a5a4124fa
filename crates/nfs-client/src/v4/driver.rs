//! What a client does without being called: it keeps the lease, and does what was left to do and what the server has
//! told.

use super::{
    Error, Inner, Nfs4,
    compound::{self, Plan},
    duties::{PATH_DOWN, REVOKED},
    standing::Ground,
};
use futures_util::future::{Either, select};
use rpcrdma_env::Timestamp;
use rpcrdma_nfs::v4::{Args, Handle, Op, StateId, Status, ops, ops::sequence_status};
use std::{pin::pin, sync::Arc, time::Duration};

/// How often what SEQUENCE tells is looked at: a server that tells it with each reply makes no more work.
const FLAGS_PAUSE: Duration = Duration::from_secs(1);

/// What the driver keeps in mind.
#[derive(Debug, Default)]
struct Course {
    /// When the lease was renewed, or that was tried, by a call of the driver's own.
    renewed: Timestamp,
    /// When flags may be looked at again.
    flags_from: Timestamp,
    /// Whether the last renewal has failed, and whether the file system's move was told.
    has_failed: bool,
    has_moved: bool,
}

impl Nfs4 {
    /// Keeps the lease and does what is left to do. To be polled for as long as the client is used; it completes when
    /// all clones of the client and all open files are dropped.
    pub fn driver(&self) -> impl Future<Output = ()> + Send + 'static {
        let (inner, duties) = (Arc::downgrade(&self.inner), self.inner.duties.clone());
        let clock = self.inner.env.clock.clone();
        async move {
            let mut course = Course { renewed: clock.now(), ..Course::default() };
            loop {
                let Some(strong) = inner.upgrade() else { return };
                let until = strong.drive(&mut course).await;
                drop(strong);
                if duties.has_ended() {
                    return;
                }
                let (woken, slept) = (pin!(duties.woken()), clock.sleep_until(until));
                match select(woken, slept).await {
                    Either::Left(_) | Either::Right(_) => {}
                }
            }
        }
    }

    /// Tells the server that the client will not be back, so that it keeps nothing for it. Files that nobody uses any
    /// more are closed first, others that are open are lost. In minor version 0 the server learns it when the lease
    /// ends.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn end(&self) -> Result<(), Error> {
        for held in self.inner.duties.take_closes() {
            self.inner.close_held(&held).await?;
        }
        for (file, state) in self.inner.awaited.delegations() {
            self.inner.return_delegation(&file, state).await;
        }
        let (client, session) = {
            let mut standing = self.inner.standing();
            let session = standing.session.take();
            (standing.client.take(), session)
        };
        if self.inner.minor == 0 {
            return Ok(());
        }
        if let Some(session) = session {
            self.inner.destroy_session(session.id).await;
        }
        if let Some(client) = client {
            let destroy = Args::DestroyClientId(ops::DestroyClientId { client: client.id });
            let status = self.inner.alone(destroy).await?.status();
            if status != Status::OK {
                return Err(self.inner.refused(Op::DestroyClientId, status));
            }
        }
        Ok(())
    }
}

impl Inner {
    /// Does what is due, and says when there is something again.
    async fn drive(self: &Arc<Self>, course: &mut Course) -> Timestamp {
        let left = self.duties.take();
        for held in left.closes {
            if let Err(error) = self.close_held(&held).await {
                tracing::debug!(%error, "a file that nobody uses any more could not be closed");
            }
        }
        for (file, state) in left.returns {
            self.return_delegation(&file, state).await;
        }
        for state in left.frees {
            self.free_state(state).await;
        }
        let now = self.env.clock.now();
        if now >= course.flags_from {
            let flags = self.duties.take_flags();
            if flags != 0 {
                self.heed(flags, course).await;
                course.flags_from = self.env.clock.now() + FLAGS_PAUSE;
            }
        }
        let interval = self.server().renewal();
        if self.renewal_due(course, interval) <= self.env.clock.now() {
            self.renew(course).await;
        }
        let due = self.renewal_due(course, interval);
        if self.duties.has_flags() { due.min(course.flags_from) } else { due }
    }

    /// Any call in a session renews the lease; in minor version 0 that is not so sure.
    fn renewal_due(&self, course: &Course, interval: Duration) -> Timestamp {
        let since = if self.minor == 0 { course.renewed } else { course.renewed.max(self.duties.last_heard()) };
        since + interval
    }

    async fn renew(&self, course: &mut Course) {
        course.renewed = self.env.clock.now();
        let renewed = match self.minor {
            0 => {
                let mut build = |ground: &Ground| Ok(vec![Args::Renew(ops::Renew { client: ground.client })]);
                self.perform(Plan::looks(Op::Renew), None, &mut build).await
            }
            _ => self.perform(Plan::looks(Op::Sequence), None, &mut |_| Ok(Vec::new())).await,
        };
        let renewed = renewed.and_then(|reply| match reply.failed {
            Some(failed) if failed.status == Status::CB_PATH_DOWN => Ok(()),
            Some(_) => Err(reply.error()),
            None => Ok(()),
        });
        match renewed {
            Ok(()) => course.has_failed = false,
            Err(error) if !course.has_failed => {
                course.has_failed = true;
                tracing::warn!(%error, "the lease could not be renewed; what is held may be lost");
            }
            Err(error) => tracing::debug!(%error, "the lease could not be renewed again"),
        }
    }

    /// Does something about what SEQUENCE has told.
    async fn heed(&self, flags: u32, course: &mut Course) {
        if flags & sequence_status::LEASE_MOVED != 0 && !course.has_moved {
            course.has_moved = true;
            tracing::warn!("a file system has moved to another server, and is not followed there");
        }
        if flags & REVOKED != 0 {
            self.find_revoked().await;
        }
        if self.options.callbacks.is_none() {
            return;
        }
        if flags & sequence_status::BACKCHANNEL_FAULT != 0 {
            let mut standing = self.standing();
            let epoch = standing.epoch;
            standing.drop_session(epoch, true);
        } else if flags & PATH_DOWN != 0 {
            tracing::debug!("the server cannot call: the connection is bound to the session");
            self.standing().owes_binding = true;
        }
    }

    /// DELEGRETURN, of a delegation that was not asked for or is recalled.
    pub(super) async fn return_delegation(&self, file: &Handle, state: StateId) {
        let returned = Args::DelegReturn(ops::DelegReturn { state });
        let plan = Plan::changes(Op::DelegReturn);
        let ops = [compound::put(file), returned];
        let done = self.perform(plan, None, &mut |_| Ok(ops.to_vec())).await.and_then(|reply| reply.ok());
        if let Err(error) = done {
            tracing::debug!(%error, "a delegation could not be returned");
        }
        self.awaited.returned(state);
    }
}
