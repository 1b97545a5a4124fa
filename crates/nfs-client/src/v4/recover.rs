//! Registers the client, its session and what it holds with the server again, step by step, until calls are possible.
//!
//! Callers that need a repair drive it, and all of them share it: there is one repair, which goes on as long as any of
//! them drives it.

use super::{
    Error, Inner, Lost,
    compound::{self, Plan},
    held::Held,
    mend::Mended,
    reply::{Failed, Reply, done},
    standing::{Ground, Known},
};
use crate::patience::Patience;
use futures_util::{
    FutureExt,
    future::{BoxFuture, Shared, WeakShared},
};
use rpcrdma_nfs::v4::{
    Args, Op, Owner, Status,
    ops::{self, Claim, DelegationKind, OpenHow},
};
use rpcrdma_oncrpc::CallError;
use std::sync::{Arc, PoisonError};

/// A repair of the standing, shared by all callers that wait for it.
pub(super) type Repairing = BoxFuture<'static, Result<(), Error>>;
type Repair = Shared<Repairing>;

/// How many steps a repair may take: then the client gives up a server that forgets each step.
const MAX_STEPS: u32 = 24;

/// How a step ended.
enum Step {
    /// This step is done, or something else must be done first.
    Next,
    /// The server asks to try later. The error is for a server that says so for ever.
    Later(Error),
}

impl Inner {
    /// The ground for calls, once everything that the client owes the server is done.
    pub(super) async fn ready(&self, purpose: Op) -> Result<Ground, Error> {
        loop {
            if let Some(ground) = self.standing().ground(self.minor) {
                return Ok(ground);
            }
            self.repair(purpose)?.await?;
        }
    }

    /// The repair in progress, or a new one. All callers that wait for it drive it: if one of them is not polled for a
    /// while, such as a future in a set whose owner is busy, the others are not delayed.
    fn repair(&self, purpose: Op) -> Result<Repair, Error> {
        let mut known = self.repair.lock().unwrap_or_else(PoisonError::into_inner);
        let goes_on = known.as_ref().and_then(WeakShared::upgrade).filter(|repair| repair.peek().is_none());
        if let Some(repair) = goes_on {
            return Ok(repair);
        }
        let me = self.me.upgrade().ok_or(Error::Unsettled { operation: purpose, times: 0 })?;
        let repair = async move { me.mend_standing(purpose).await }.boxed().shared();
        // Weakly: if a caller goes away in the middle, the next caller does the rest.
        *known = repair.downgrade();
        Ok(repair)
    }

    async fn mend_standing(&self, purpose: Op) -> Result<(), Error> {
        let (mut patience, mut steps) = (Patience::new(), 0);
        while self.standing().ground(self.minor).is_none() {
            match self.step().await? {
                Step::Next if steps < MAX_STEPS => steps += 1,
                Step::Next => return Err(Error::Unsettled { operation: purpose, times: steps }),
                Step::Later(error) => {
                    if !patience.wait_after(&error, &*self.env.clock).await {
                        return Err(error);
                    }
                }
            }
        }
        Ok(())
    }

    async fn step(&self) -> Result<Step, Error> {
        let (client, session, owes_binding) = {
            let standing = self.standing();
            (standing.client, standing.session.clone(), standing.owes_binding)
        };
        let Some(client) = client else { return self.make_known().await };
        if self.minor > 0 {
            let Some(session) = session else { return self.make_session(client).await };
            if owes_binding {
                let bound = self.bind(&session).await;
                return self.bound(bound);
            }
        }
        self.reclaim().await
    }

    /// Makes the client known: gets its id.
    async fn make_known(&self) -> Result<Step, Error> {
        let made = match self.minor {
            0 => self.set_client_id().await.map(|known| (known, false)),
            _ => self.exchange_id().await,
        };
        let (known, was_known) = match made {
            Ok(made) => made,
            Err(error) if is_later(&error) => return Ok(Step::Later(error)),
            // The server has restarted between the two calls of minor version 0.
            Err(error) if error.status() == Some(Status::STALE_CLIENTID) => return Ok(Step::Next),
            Err(error) => return Err(error),
        };
        let mut standing = self.standing();
        standing.epoch += 1;
        if !(was_known && standing.state_of == Some(known.id)) {
            standing.owes_reclaim = true;
            standing.state_of = Some(known.id);
        }
        standing.client = Some(known);
        self.duties.ending(false);
        Ok(Step::Next)
    }

    async fn make_session(&self, client: Known) -> Result<Step, Error> {
        let made = self.create_session(client).await;
        let doomed = {
            let mut standing = self.standing();
            match made {
                Ok(session) => {
                    standing.epoch += 1;
                    standing.client = Some(Known { sequence: client.sequence.wrapping_add(1), ..client });
                    standing.session = Some(Arc::new(session));
                    standing.owes_binding = false;
                }
                Err(error) if is_later(&error) => return Ok(Step::Later(error)),
                Err(error) => {
                    // The outcome is unknown, or the server does not know the client: the next step asks for the
                    // client's id again.
                    standing.client = None;
                    return match error.status() {
                        Some(Status::STALE_CLIENTID | Status::SEQ_MISORDERED) => Ok(Step::Next),
                        _ => Err(error),
                    };
                }
            }
            std::mem::take(&mut standing.doomed)
        };
        for session in doomed {
            self.destroy_session(session).await;
        }
        Ok(Step::Next)
    }

    fn bound(&self, bound: Result<(), Error>) -> Result<Step, Error> {
        let mut standing = self.standing();
        match bound {
            Ok(()) => standing.owes_binding = false,
            Err(error) if is_later(&error) => return Ok(Step::Later(error)),
            Err(error) => {
                tracing::info!(%error, "the connection could not be bound to the session: a new session is made");
                let epoch = standing.epoch;
                standing.drop_session(epoch, error.status() != Some(Status::BADSESSION));
                standing.owes_binding = false;
                if matches!(error, Error::Call { source: CallError::Transport(_), .. }) {
                    return Err(error);
                }
            }
        }
        Ok(Step::Next)
    }

    /// Reclaims what the client holds, and says that it is done.
    async fn reclaim(&self) -> Result<Step, Error> {
        let Some(ground) = self.standing().any_ground(self.minor) else { return Ok(Step::Next) };
        for held in self.opens.all() {
            if held.is_reclaimed_in(ground.epoch) {
                continue;
            }
            match self.reclaim_open(&ground, &held).await? {
                Mended::No => held.reclaimed_in(ground.epoch),
                mended => return step_of(mended),
            }
        }
        if self.minor > 0 {
            let plan = Plan::changes(Op::ReclaimComplete);
            let complete = Args::ReclaimComplete(ops::ReclaimComplete { one_file_system: false });
            let reply = self.attempt(&ground, plan, vec![complete], None).await?;
            match reply.failed {
                None => {}
                Some(Failed { op: Op::ReclaimComplete, status: Status::COMPLETE_ALREADY, .. }) => {}
                Some(failed) => match self.mend(&ground, plan, failed, None) {
                    Mended::No => return Err(reply.error()),
                    Mended::Later => return Ok(Step::Later(reply.error())),
                    mended => return step_of(mended),
                },
            }
        }
        let mut standing = self.standing();
        if standing.epoch == ground.epoch {
            standing.epoch += 1;
            standing.owes_reclaim = false;
        }
        Ok(Step::Next)
    }

    /// Reclaims an open and its locks; whatever cannot be reclaimed is lost.
    async fn reclaim_open(&self, ground: &Ground, held: &Arc<Held>) -> Result<Mended, Error> {
        if held.is_gone() {
            return Ok(Mended::No);
        }
        let sequence = held.owner.begin();
        let open = ops::Open {
            sequence,
            access: held.access | self.wants(),
            deny: held.deny,
            owner: Owner { client: ground.client, name: held.owner.name.clone() },
            how: OpenHow::NoCreate,
            claim: Claim::Previous(DelegationKind::None),
        };
        let plan = Plan::changes(Op::Open);
        let mut reply =
            self.attempt(ground, plan, vec![compound::put(&held.file), Args::Open(Box::new(open))], None).await?;
        held.owner.seen(&reply, Op::Open);
        match done!(reply, Open) {
            Ok(ok) => {
                tracing::info!("an open file was reclaimed");
                held.opened_again(ok.state);
                self.not_wanted(held, &ok.delegation);
                if self.minor == 0 && ok.flags & ops::open_result::CONFIRM != 0 {
                    let confirmed = self.confirm_reclaimed(ground, held).await?;
                    if !matches!(confirmed, Mended::No) || held.is_gone() {
                        return Ok(confirmed);
                    }
                }
            }
            Err(error) => return Ok(self.not_reclaimed(ground, plan, (held, Lost::Open), &reply, error)),
        }
        self.reclaim_locks(ground, held).await
    }

    /// OPEN_CONFIRM, which some servers require even for a reclaimed open. Minor version 0.
    async fn confirm_reclaimed(&self, ground: &Ground, held: &Arc<Held>) -> Result<Mended, Error> {
        let confirm = ops::OpenConfirm { state: held.open_state(ground), sequence: held.owner.begin() };
        let plan = Plan::changes(Op::OpenConfirm);
        let ops = vec![compound::put(&held.file), Args::OpenConfirm(confirm)];
        let mut reply = self.attempt(ground, plan, ops, None).await?;
        held.owner.seen(&reply, Op::OpenConfirm);
        match done!(reply, OpenConfirm) {
            Ok(ok) => {
                held.confirmed(ok.state);
                Ok(Mended::No)
            }
            Err(error) => Ok(self.not_reclaimed(ground, plan, (held, Lost::Open), &reply, error)),
        }
    }

    async fn reclaim_locks(&self, ground: &Ground, held: &Arc<Held>) -> Result<Mended, Error> {
        for range in held.locked() {
            let (locker, by_open) = held.locker(ground);
            let lock =
                ops::Lock { kind: range.kind, reclaim: true, offset: range.offset(), length: range.length(), locker };
            let plan = Plan::changes(Op::Lock);
            let ops = vec![compound::put(&held.file), Args::Lock(Box::new(lock))];
            let mut reply = self.attempt(ground, plan, ops, None).await?;
            held.counted(&reply, Op::Lock, by_open);
            match done!(reply, Lock) {
                Ok(ok) => held.locked_again(ok.state),
                Err(error) => {
                    let mended = self.not_reclaimed(ground, plan, (held, Lost::Locks), &reply, error);
                    if !matches!(mended, Mended::No) {
                        return Ok(mended);
                    }
                }
            }
            if held.is_gone() {
                break;
            }
        }
        Ok(Mended::No)
    }

    /// The server does not accept a reclaim.
    fn not_reclaimed(
        &self,
        ground: &Ground,
        plan: Plan,
        (held, what): (&Held, Lost),
        reply: &Reply,
        error: Error,
    ) -> Mended {
        let Some(failed) = reply.failed else { return Mended::Failed(error) };
        let gone = matches!(
            failed.status,
            Status::EXPIRED | Status::ADMIN_REVOKED | Status::DELEG_REVOKED | Status::BAD_STATEID | Status::OLD_STATEID
        );
        if !gone {
            match self.mend(ground, plan, failed, None) {
                Mended::No => {}
                Mended::Later => return Mended::Later,
                mended => return mended,
            }
        }
        held.lose(what, failed.status);
        tracing::warn!(status = %failed.status, %what, "what was held on a file could not be reclaimed");
        Mended::No
    }
}

fn is_later(error: &Error) -> bool {
    matches!(error.status(), Some(Status::DELAY | Status::GRACE))
}

/// How a step ends after a failure.
fn step_of(mended: Mended) -> Result<Step, Error> {
    match mended {
        Mended::Failed(error) => Err(error),
        Mended::Later => Ok(Step::Later(Error::Status { operation: Op::Open, status: Status::DELAY, denied: None })),
        Mended::No | Mended::Again => Ok(Step::Next),
    }
}
