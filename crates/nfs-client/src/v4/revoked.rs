//! Finds out what a server has taken away, when it reports that it has taken something (RFC 8881 section 8.3).

use super::{Error, Inner, compound::Plan, reply::done};
use rpcrdma_nfs::v4::{Args, List, Op, StateId, Status, ops};

/// How many stateids the client tests in a call.
const TESTED_AT_ONCE: usize = 64;

/// Whether this status means that the server keeps the stateid, and reports it, until the client frees it.
pub(super) fn is_to_be_freed(status: Status) -> bool {
    matches!(status, Status::EXPIRED | Status::ADMIN_REVOKED | Status::DELEG_REVOKED)
}

impl Inner {
    /// Tests all stateids that the client holds; states that no longer exist are lost, and freed. Returns false if all
    /// exist.
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
                // A state that has changed meanwhile exists, with a new number.
                if matches!(status, Status::OK | Status::OLD_STATEID) {
                    continue;
                }
                // A state that was reclaimed meanwhile has a new stateid, and the server no longer knows the old one.
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

    /// FREE_STATEID, whatever the server's answer.
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
