//! Finding out what a server has taken away, when it says that it has taken something (RFC 8881 section 8.3).

use super::{Error, Inner, compound::Plan, reply::done};
use rpcrdma_nfs::v4::{Args, List, Op, StateId, Status, ops};

/// How many stateids are asked about in a call.
const TESTED_AT_ONCE: usize = 64;

/// Whether a server that returns this for a stateid keeps it until it is freed, and reports it until then.
pub(super) fn is_to_be_freed(status: Status) -> bool {
    matches!(status, Status::EXPIRED | Status::ADMIN_REVOKED | Status::DELEG_REVOKED)
}

impl Inner {
    /// Asks about everything that is held; what no longer exists is lost, and freed. False if everything exists.
    pub(super) async fn find_revoked(&self) -> bool {
        let (held, mut has_found) = (self.opens.all(), false);
        let states: Vec<_> =
            held.iter().flat_map(|held| held.stateids().into_iter().map(move |state| (held, state))).collect();
        for tested in states.chunks(TESTED_AT_ONCE) {
            let asked: Vec<StateId> = tested.iter().map(|(_, (state, _))| *state).collect();
            let statuses = match self.test(&asked).await {
                Ok(statuses) => statuses,
                Err(error) => {
                    tracing::info!(%error, "the server has revoked something and does not say what");
                    return has_found;
                }
            };
            for ((held, (state, what)), status) in tested.iter().zip(statuses) {
                // One that has changed meanwhile exists, under its new number.
                if matches!(status, Status::OK | Status::OLD_STATEID) {
                    continue;
                }
                // A state that was reclaimed meanwhile has a new stateid, and the old one means nothing to the server.
                if held.has_name(*state, *what) && held.lose(*what, status) {
                    tracing::warn!(%status, %what, "the server has revoked state");
                    has_found = true;
                }
                if is_to_be_freed(status) {
                    self.free_state(*state).await;
                    has_found = true;
                }
            }
        }
        has_found
    }

    async fn test(&self, states: &[StateId]) -> Result<Vec<Status>, Error> {
        let ops = [Args::TestStateId(ops::TestStateId { states: List(states.to_vec()) })];
        let mut reply = self.perform(Plan::looks(Op::TestStateId), None, &mut |_| Ok(ops.to_vec())).await?;
        let ops::TestStateIdOk { statuses } = done!(reply, TestStateId)?;
        if statuses.len() != states.len() {
            return Err(Error::nonsense(
                Op::TestStateId,
                "answered for more or fewer stateids than it was asked about",
            ));
        }
        Ok(statuses.0)
    }

    /// FREE_STATEID: whatever the server says to it.
    pub(super) async fn free_state(&self, state: StateId) {
        if self.minor == 0 {
            return;
        }
        let ops = [Args::FreeStateId(ops::FreeStateId { state })];
        if let Err(error) = self.perform(Plan::changes(Op::FreeStateId), None, &mut |_| Ok(ops.to_vec())).await {
            tracing::debug!(%error, "a revoked stateid could not be freed");
        }
    }
}
