//! How much there is, for the program's numbers.

use super::State;

/// How much version 4 keeps now, in number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    /// Client records, unconfirmed ones too.
    pub clients: usize,
    /// Sessions.
    pub sessions: usize,
    /// Connections that belong to sessions.
    pub connections: usize,
    /// Stateids of opens.
    pub opens: usize,
    /// Stateids of byte-range locks: one for each owner and file.
    pub locks: usize,
    /// Stateids of delegations.
    pub delegations: usize,
    /// Delegations that were called back since the server started.
    pub recalls: u64,
    /// Delegations that were taken away since the server started, as they were not returned.
    pub revocations: u64,
}

impl<P> State<P> {
    /// How much there is now. Parts of it may change while it is counted.
    pub(crate) fn counts(&self) -> Counts {
        let [opens, locks, delegations] = self.totals.counts();
        let (sessions, connections) = (self.sessions.count(), self.sessions.connections());
        Counts {
            clients: self.table().by_id.len(),
            sessions,
            connections,
            opens,
            locks,
            delegations,
            ..Counts::default()
        }
    }
}
