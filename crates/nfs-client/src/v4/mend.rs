//! The reaction to a failed operation: repeat the call at once, later or after a repair, or give up.

use super::{
    Error, Inner, Lost,
    compound::Plan,
    held::Held,
    reply::{Failed, Reply},
    standing::Ground,
};
use crate::patience::Patience;
use rpcrdma_env::Buffer;
use rpcrdma_nfs::v4::{Args, Op, Status, ops::sequence_status};
use std::sync::Arc;

/// How often a call is repeated after a repair.
const MAX_MENDS: u32 = 8;

/// The reaction to a failure.
#[derive(Debug)]
pub(super) enum Mended {
    /// None: the caller gets the failure.
    No,
    /// Repeat the call at once.
    Again,
    /// Repeat the call after a while.
    Later,
    /// The call has failed for good.
    Failed(Error),
}

/// Makes the operations of a call, with the present stateids.
pub(super) type Build<'a> = &'a mut (dyn FnMut(&Ground) -> Result<Vec<Args>, Error> + Send);
/// Gets the reply of each attempt first; true repeats the call.
pub(super) type Seen<'a> = &'a mut (dyn FnMut(&Reply) -> bool + Send);

impl Inner {
    /// Makes a call as often as needed. If the returned reply has a failed operation, nothing can be done about it.
    pub(super) async fn perform(&self, plan: Plan, held: Option<&Arc<Held>>, build: Build<'_>) -> Result<Reply, Error> {
        self.perform_with(plan, held, None, build, &mut |_| false).await
    }

    /// The same, with a buffer for the first attempt, and a function that sees each reply.
    pub(super) async fn perform_with(
        &self,
        plan: Plan,
        held: Option<&Arc<Held>>,
        mut sink: Option<Buffer>,
        build: Build<'_>,
        seen: Seen<'_>,
    ) -> Result<Reply, Error> {
        let (mut patience, mut mends, mut is_repeated) = (Patience::new(), 0, false);
        loop {
            let ground = self.ready(plan.purpose).await?;
            let version = held.map_or(0, |held| held.version());
            let ops = build(&ground)?;
            let mut reply = self.attempt(&ground, plan, ops, sink.take()).await?;
            is_repeated |= reply.is_repeated;
            let again = seen(&reply);
            let status = reply.failed.as_ref().map_or(Status::OK, |failed| failed.status);
            let mended = match reply.failed {
                None => Mended::No,
                Some(_) if again => Mended::Again,
                // An operation after the important one has failed: the caller has to handle that.
                Some(_) if plan.changes && reply.has_done(plan.purpose) => Mended::No,
                Some(failed) => {
                    is_repeated |= failed.status == Status::RETRY_UNCACHED_REP;
                    self.mend(&ground, plan, failed, held.map(|held| (held, version)))
                }
            };
            match mended {
                Mended::Failed(error) => return Err(error),
                Mended::Again if mends < MAX_MENDS => mends += 1,
                Mended::Again => return Err(Error::Unsettled { operation: plan.purpose, times: mends }),
                Mended::Later if patience.wait_after(status, &*self.env.clock).await => {}
                Mended::No | Mended::Later => {
                    reply.is_repeated = is_repeated;
                    return Ok(reply);
                }
            }
        }
    }

    /// Does what can be done about a failure without a call.
    pub(super) fn mend(&self, ground: &Ground, plan: Plan, failed: Failed, held: Option<(&Arc<Held>, u64)>) -> Mended {
        let status = failed.status;
        match status {
            Status::DELAY | Status::GRACE => return Mended::Later,
            Status::RETRY_UNCACHED_REP | Status::SEQ_FALSE_RETRY => return Mended::Again,
            // If the stateid of a returned delegation does not exist, nothing else needs repair. The next call shows
            // whether the server has restarted.
            Status::STALE_STATEID | Status::EXPIRED if failed.op == Op::DelegReturn => return Mended::No,
            Status::STALE_CLIENTID => self.standing().drop_client(ground.epoch),
            Status::BADSESSION | Status::DEADSESSION => self.standing().drop_session(ground.epoch, false),
            Status::SEQ_MISORDERED | Status::BADSLOT | Status::BAD_HIGH_SLOT if failed.op == Op::Sequence => {
                self.standing().drop_session(ground.epoch, true);
            }
            Status::CONN_NOT_BOUND_TO_SESSION => self.standing().owes_binding = true,
            // This is the only way in which minor version 0 learns of a restart and of the end of its lease.
            Status::STALE_STATEID | Status::EXPIRED if self.minor == 0 => self.standing().drop_client(ground.epoch),
            Status::STALE_STATEID => self.standing().owe_reclaim(ground.epoch),
            Status::EXPIRED
            | Status::ADMIN_REVOKED
            | Status::DELEG_REVOKED
            | Status::BAD_STATEID
            | Status::OLD_STATEID => return self.mend_state(plan, failed, held),
            _ => return Mended::No,
        }
        tracing::info!(operation = %failed.op, %status, "the server has lost the state that a call needs; the client sets it up again");
        Mended::Again
    }

    /// The server no longer knows a stateid, or knows a newer one.
    fn mend_state(&self, plan: Plan, failed: Failed, held: Option<(&Arc<Held>, u64)>) -> Mended {
        let Some((held, version)) = held else { return Mended::No };
        if held.version() != version {
            return Mended::Again;
        }
        let what = held.used();
        held.lose(what, failed.status);
        if self.minor > 0 && failed.status != Status::BAD_STATEID {
            let revoked = held.stateids().into_iter().filter(|(_, of)| what == Lost::Open || *of == what);
            revoked.for_each(|(state, _)| self.duties.free(state));
        }
        tracing::warn!(operation = %failed.op, status = %failed.status, %what, "state was lost");
        Mended::Failed(Error::Lost { operation: plan.purpose, what, status: failed.status })
    }

    /// Handles the flags that SEQUENCE has returned.
    pub(super) fn told(&self, ground: &Ground, status: u32) {
        if status & sequence_status::RESTART_RECLAIM_NEEDED != 0 {
            self.standing().owe_reclaim(ground.epoch);
        }
        self.duties.told(status & !sequence_status::RESTART_RECLAIM_NEEDED);
    }

    /// Fails if the open or its locks are lost.
    pub(super) fn still_held(&self, operation: Op, held: &Held) -> Result<(), Error> {
        match held.lost() {
            Some((what, status)) => Err(Error::Lost { operation, what, status }),
            None => Ok(()),
        }
    }
}
