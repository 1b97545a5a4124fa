//! Numbers of what version 4 keeps, for the program's metrics.

use super::State;
use std::sync::{
    Arc,
    atomic::{AtomicU64, AtomicUsize, Ordering},
};

/// How much version 4 keeps now.
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
    /// Delegations that the server has recalled since it started.
    pub recalls: u64,
    /// Delegations that the server has taken away since it started, because clients did not return them.
    pub revocations: u64,
    /// Opens that the server has taken since it started from clients that were away.
    pub expired_opens: u64,
    /// Stateids of locks that it has taken so.
    pub expired_locks: u64,
    /// Delegations that it has taken so.
    pub expired_delegations: u64,
    /// Copies that go on after COPY's reply.
    pub copies: usize,
    /// Bytes that COPY has copied since the server started, before and after its reply.
    pub copied: u64,
}

/// Counters of copies, from the server's start on.
#[derive(Debug, Default)]
pub(crate) struct CopyCounts {
    under_way: AtomicUsize,
    copied: AtomicU64,
}

/// Counts a copy that goes on, until this is dropped.
pub(crate) struct UnderWay(Arc<CopyCounts>);

impl CopyCounts {
    /// A copy goes on after COPY's reply.
    pub(crate) fn begin(self: &Arc<Self>) -> UnderWay {
        self.under_way.fetch_add(1, Ordering::Relaxed);
        UnderWay(self.clone())
    }

    /// Adds copied bytes.
    pub(crate) fn add(&self, bytes: u64) {
        self.copied.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Copies that go on, and bytes copied so far.
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
    /// The present numbers. Some may change while others are counted.
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
