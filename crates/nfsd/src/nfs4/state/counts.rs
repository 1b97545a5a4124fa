//! How much there is, for the program's numbers.

use super::State;
use std::sync::{
    Arc,
    atomic::{AtomicU64, AtomicUsize, Ordering},
};

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
    /// Opens that were taken since the server started from clients that were away.
    pub expired_opens: u64,
    /// Stateids of locks that were taken so.
    pub expired_locks: u64,
    /// Delegations that were taken so.
    pub expired_delegations: u64,
    /// Copies that go on after COPY was answered.
    pub copies: usize,
    /// Bytes that COPY has copied since the server started, by whichever of both ways.
    pub copied: u64,
}

/// What the server copies for its clients, from its start on.
#[derive(Debug, Default)]
pub(crate) struct CopyCounts {
    under_way: AtomicUsize,
    copied: AtomicU64,
}

/// A copy that goes on, as it is counted: until it is dropped.
pub(crate) struct UnderWay(Arc<CopyCounts>);

impl CopyCounts {
    /// A copy goes on after its call.
    pub(crate) fn begin(self: &Arc<Self>) -> UnderWay {
        self.under_way.fetch_add(1, Ordering::Relaxed);
        UnderWay(self.clone())
    }

    /// So many bytes more are copied.
    pub(crate) fn add(&self, bytes: u64) {
        self.copied.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Copies that go on, and bytes that were copied.
    pub(crate) fn now(&self) -> (usize, u64) {
        (self.under_way.load(Ordering::Relaxed), self.copied.load(Ordering::Relaxed))
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.under_way.fetch_sub(1, Ordering::Relaxed);
    }
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
