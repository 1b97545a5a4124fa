//! A client's standing with its server: its id, its session, and what it must do before the next call.

use super::session::Session;
use rpcrdma_nfs::v4::{ClientId, SessionId};
use std::sync::Arc;

/// A client's record on the server.
#[derive(Clone, Copy, Debug)]
pub(super) struct Known {
    pub(super) id: ClientId,
    /// The number of the next CREATE_SESSION.
    pub(super) sequence: u32,
}

/// How much of the standing exists.
#[derive(Debug, Default)]
pub(super) struct Standing {
    pub(super) client: Option<Known>,
    pub(super) session: Option<Arc<Session>>,
    /// Useless sessions that the server may still keep.
    pub(super) doomed: Vec<SessionId>,
    /// Whether the client must reclaim what it holds, and send RECLAIM_COMPLETE.
    pub(super) owes_reclaim: bool,
    /// Whether the client must bind the connection to the session.
    pub(super) owes_binding: bool,
    /// The client id to which the held state belongs.
    pub(super) state_of: Option<ClientId>,
    /// Changes with each loss and each repair.
    pub(super) epoch: u64,
}

/// The ground of ordinary calls: the client and its session.
#[derive(Clone, Debug)]
pub(super) struct Ground {
    pub(super) client: ClientId,
    /// None in minor version 0.
    pub(super) session: Option<Arc<Session>>,
    /// Changes when either of them changes.
    pub(super) epoch: u64,
}

/// The most useless sessions that the client remembers in order to destroy them.
const MAX_DOOMED: usize = 8;

impl Standing {
    /// The ground of ordinary calls, if nothing has to be done first.
    pub(super) fn ground(&self, minor: u32) -> Option<Ground> {
        if self.owes_reclaim || self.owes_binding {
            return None;
        }
        self.any_ground(minor)
    }

    /// The same, for the calls that do what has to be done first.
    pub(super) fn any_ground(&self, minor: u32) -> Option<Ground> {
        let client = self.client?.id;
        if minor > 0 && self.session.is_none() {
            return None;
        }
        Some(Ground { client, session: self.session.clone(), epoch: self.epoch })
    }

    /// The session of this epoch is useless now.
    pub(super) fn drop_session(&mut self, epoch: u64, is_known_to_the_server: bool) {
        if epoch != self.epoch {
            return;
        }
        let Some(session) = self.session.take() else { return };
        self.epoch += 1;
        if is_known_to_the_server && self.doomed.len() < MAX_DOOMED {
            self.doomed.push(session.id);
        }
    }

    /// The server has restarted and kept the session of this epoch, but not what the client holds.
    pub(super) fn owe_reclaim(&mut self, epoch: u64) {
        if epoch == self.epoch && !self.owes_reclaim {
            self.epoch += 1;
            self.owes_reclaim = true;
        }
    }

    /// The server no longer knows the client of this epoch.
    pub(super) fn drop_client(&mut self, epoch: u64) {
        if epoch == self.epoch {
            self.epoch += 1;
            (self.client, self.session) = (None, None);
            self.doomed.clear();
        }
    }
}
