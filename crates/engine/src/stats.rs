//! Numbers about a connection, in either version.

/// Present numbers of a connection, for observers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Receives that are posted, as far as the engine knows.
    pub receives: usize,
    /// Credits that the peer may use.
    pub granted: u32,
    /// Calls of ours that are not answered, including cancelled ones.
    pub unanswered: usize,
    /// Calls of ours that wait for a credit.
    pub queued: usize,
    /// Pieces of our memory that the peer can reach.
    pub exposed: usize,
    /// Calls of the peer that are not answered.
    pub executing: usize,
    /// Messages of the peer that were dropped in silence.
    pub discarded: u64,
}
