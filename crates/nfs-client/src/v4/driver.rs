//! The work that a client does without a caller: it renews the lease, finishes what callers have left, and acts on the
//! server's announcements.

use super::{
    Error, Inner, Nfs4,
    compound::{self, Plan},
    duties::{CONTEXTS, PATH_DOWN, REVOKED},
    revoked::is_to_be_freed,
    standing::Ground,
    works::{Done, Works},
};
use futures_util::future::{Either, select};
use rpcrdma_env::Timestamp;
use rpcrdma_nfs::v4::{Args, Handle, Op, StateId, Status, ops, ops::sequence_status};
use std::{pin::pin, sync::Arc, time::Duration};

/// How often the client acts on SEQUENCE's flags: a server that sends them with each reply must not cause more work.
const FLAGS_PAUSE: Duration = Duration::from_secs(1);
/// The pause doubles up to this while the client finds nothing to do.
const LONGEST_FLAGS_PAUSE: Duration = Duration::from_secs(64);

/// The driver's own state.
#[derive(Debug)]
struct Course {
    /// When the driver last renewed the lease, or tried to, by a call of its own.
    renewed: Timestamp,
    /// When the driver may act on flags again, and the pause after that.
    flags_from: Timestamp,
    flags_pause: Duration,
    /// Whether acting on flags is under way, and whether a renewal is.
    is_heeding: bool,
    is_renewing: bool,
    /// Whether the last renewal has failed, and whether the server has announced that the file system moved.
    has_failed: bool,
    has_moved: bool,
}

impl Course {
    fn new(now: Timestamp) -> Self {
        Self {
            renewed: now,
            flags_from: now,
            flags_pause: FLAGS_PAUSE,
            is_heeding: false,
            is_renewing: false,
            has_failed: false,
            has_moved: false,
        }
    }

    /// A piece of work has ended.
    fn done(&mut self, done: Done, now: Timestamp) {
        match done {
            Done::Duty | Done::Finished => {}
            Done::Heeded { has_found } => {
                self.is_heeding = false;
                self.flags_pause =
                    if has_found { FLAGS_PAUSE } else { (self.flags_pause * 2).min(LONGEST_FLAGS_PAUSE) };
                self.flags_from = now + self.flags_pause;
            }
            Done::Renewed(renewed) => {
                self.is_renewing = false;
                match renewed {
                    Ok(()) => self.has_failed = false,
                    Err(error) if !self.has_failed => {
                        self.has_failed = true;
                        tracing::warn!(%error, "the lease could not be renewed; what is held may be lost");
                    }
                    Err(error) => tracing::debug!(%error, "the lease could not be renewed again"),
                }
            }
        }
    }
}

impl Nfs4 {
    /// Renews the lease and does the work that callers have left. Poll it for as long as the client is used; it
    /// completes when all clones of the client and all open files are dropped.
    ///
    /// If a caller drops the future of a call that opens, locks or unlocks a file before its end, the driver finishes
    /// the call.
    pub fn driver(&self) -> impl Future<Output = ()> + Send + 'static {
        let (inner, duties) = (Arc::downgrade(&self.inner), self.inner.duties.clone());
        let clock = self.inner.env.clock.clone();
        async move {
            let _driven = duties.driven();
            let (mut course, mut works) = (Course::new(clock.now()), Works::default());
            loop {
                let Some(strong) = inner.upgrade() else { return };
                let until = strong.drive(&mut course, &mut works);
                drop(strong);
                if duties.has_ended() {
                    return;
                }
                let (woken, slept) = (pin!(duties.woken()), clock.sleep_until(until));
                match select(pin!(works.next()), select(woken, slept)).await {
                    Either::Left((done, _)) => course.done(done, clock.now()),
                    Either::Right(_) => {}
                }
            }
        }
    }

    /// Tells the server that the client will not come back, so that the server keeps nothing for it. First closes files
    /// that are no longer used; other open files are lost. In minor version 0 the server learns of the end only when
    /// the lease ends.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn end(&self) -> Result<(), Error> {
        self.inner.duties.ending(true);
        for held in self.inner.duties.take_closes() {
            self.inner.close_held(&held).await?;
        }
        self.inner.duties.settled().await;
        for (file, state) in self.inner.awaited.delegations() {
            self.inner.return_delegation(&file, state).await;
        }
        let (client, session) = {
            let mut standing = self.inner.standing();
            // To come this far, the client may have had to register again.
            self.inner.duties.ending(true);
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
    /// Begins the work that is due. Returns when there is work again.
    fn drive(self: &Arc<Self>, course: &mut Course, works: &mut Works) -> Timestamp {
        let beginning = self.duties.begin();
        let left = self.duties.take();
        for call in left.unfinished {
            works.finish(&self.duties, call);
        }
        for (file, state) in left.returns {
            let inner = self.clone();
            works.duty(&self.duties, async move { inner.return_delegation(&file, state).await });
        }
        for held in left.closes {
            let inner = self.clone();
            works.duty(&self.duties, async move {
                if let Err(error) = inner.close_in_the_end(&held).await {
                    tracing::debug!(%error, "a file that is no longer used could not be closed");
                }
            });
        }
        for state in left.frees {
            let inner = self.clone();
            works.duty(&self.duties, async move { inner.free_state(state).await });
        }
        drop(beginning);
        let now = self.env.clock.now();
        // A client that is ending does not register again: a new session would prevent its end.
        let is_ending = self.duties.is_ending();
        let may_heed = |course: &Course| !course.is_heeding && !is_ending && self.duties.has_flags();
        if may_heed(course) && now >= course.flags_from {
            let flags = self.duties.take_flags();
            course.is_heeding = true;
            if flags & sequence_status::LEASE_MOVED != 0 && !course.has_moved {
                course.has_moved = true;
                tracing::warn!("a file system has moved to another server, and this client does not follow it");
            }
            let (inner, at_work) = (self.clone(), self.duties.begin());
            works.begin(async move {
                let has_found = inner.heed(flags).await;
                drop(at_work);
                Done::Heeded { has_found }
            });
        }
        // Because clocks may differ, the server may accept the last context for some minutes after its end.
        if !course.is_heeding && !is_ending && now >= course.flags_from && self.owes_context() {
            course.is_heeding = true;
            let (inner, at_work) = (self.clone(), self.duties.begin());
            works.begin(async move {
                let has_found = inner.name_context().await;
                drop(at_work);
                Done::Heeded { has_found }
            });
        }
        let interval = self.server().renewal();
        if !course.is_renewing && !is_ending && self.renewal_due(course, interval) <= now {
            (course.is_renewing, course.renewed) = (true, now);
            let (inner, at_work) = (self.clone(), self.duties.begin());
            works.begin(async move {
                let renewed = inner.renew().await;
                drop(at_work);
                Done::Renewed(renewed)
            });
        }
        // While a renewal is under way, the next one is due an interval from now at the earliest.
        let due =
            self.renewal_due(course, interval).max(if course.is_renewing || is_ending { now + interval } else { now });
        if may_heed(course) { due.min(course.flags_from) } else { due }
    }

    /// Any call in a session renews the lease; in minor version 0 that is not certain.
    fn renewal_due(&self, course: &Course, interval: Duration) -> Timestamp {
        let since = if self.minor == 0 { course.renewed } else { course.renewed.max(self.duties.last_heard()) };
        since + interval
    }

    async fn renew(&self) -> Result<(), Error> {
        let renewed = match self.minor {
            0 => {
                let mut build = |ground: &Ground| Ok(vec![Args::Renew(ops::Renew { client: ground.client })]);
                self.perform(Plan::looks(Op::Renew), None, &mut build).await
            }
            _ => self.perform(Plan::looks(Op::Sequence), None, &mut |_| Ok(Vec::new())).await,
        };
        renewed.and_then(|reply| match reply.failed {
            Some(failed) if failed.status == Status::CB_PATH_DOWN => Ok(()),
            Some(_) => Err(reply.error()),
            None => Ok(()),
        })
    }

    /// Acts on the flags of SEQUENCE. Returns false if there was nothing to do: then the server will send the same
    /// flags again.
    async fn heed(&self, flags: u32) -> bool {
        let mut has_found = flags & REVOKED == 0 || self.find_revoked().await;
        if self.options.callbacks.is_none() {
            return has_found;
        }
        if flags & CONTEXTS != 0 {
            // A later call makes the context again: until then the client looks for it often.
            has_found |= self.name_context().await || flags & sequence_status::CB_GSS_CONTEXTS_EXPIRING != 0;
        }
        if flags & sequence_status::BACKCHANNEL_FAULT != 0 {
            let mut standing = self.standing();
            let epoch = standing.epoch;
            standing.drop_session(epoch, true);
        } else if flags & PATH_DOWN != 0 {
            tracing::debug!("the server cannot call: the connection is bound to the session");
            self.standing().owes_binding = true;
        } else {
            return has_found;
        }
        // Now, and not with the next call: another client may wait for something that this client holds (V2-4.5.5-d).
        if let Err(error) = self.ready(Op::BindConnToSession).await {
            tracing::debug!(%error, "the server still cannot call");
        }
        has_found
    }

    /// DELEGRETURN, for a delegation that the client did not ask for or that the server recalls.
    pub(super) async fn return_delegation(&self, file: &Handle, state: StateId) {
        let returned = Args::DelegReturn(ops::DelegReturn { state });
        let plan = Plan::changes(Op::DelegReturn);
        let ops = [compound::put(file), returned];
        let done = self.perform(plan, None, &mut |_| Ok(ops.to_vec())).await.and_then(|reply| reply.ok());
        if let Err(error) = done {
            tracing::debug!(%error, "a delegation could not be returned");
            if self.minor > 0 && error.status().is_some_and(is_to_be_freed) {
                self.duties.free(state);
            }
        }
        self.awaited.returned(state);
    }
}
