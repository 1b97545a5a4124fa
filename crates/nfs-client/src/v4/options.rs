//! What an embedder says of a client of version 4.

use super::Callbacks;
use std::ops::RangeInclusive;

/// How a client behaves.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Options {
    /// The host's name, for the server's administrator to see. It need not be unique.
    pub host: String,
    /// Which minor versions may be spoken; the highest that the server serves is.
    pub minors: RangeInclusive<u32>,
    /// The most calls under way at a time, where there are sessions.
    pub slots: u32,
    /// What answers the calls of the server, if the transport can bring them. Without it no callbacks are asked for.
    pub callbacks: Option<Callbacks>,
    /// Whether delegations are kept that the server gives with an open, until it wants them back or the client ends.
    /// Nothing is done by them: they show whether a server can call. Otherwise none is asked for, and what comes all
    /// the same goes back at once.
    pub keeps_delegations: bool,
}

impl Options {
    /// All minor versions, 64 slots, and no callbacks.
    pub fn new(host: impl Into<String>) -> Self {
        Self {
            host: host.into(),
            minors: 0..=2,
            slots: super::slots::MAX_SLOTS,
            callbacks: None,
            keeps_delegations: false,
        }
    }

    /// Only these minor versions.
    #[must_use]
    pub fn with_minors(mut self, minors: RangeInclusive<u32>) -> Self {
        self.minors = minors;
        self
    }

    /// With callbacks. Their service belongs to the transport over which the client calls.
    #[must_use]
    pub fn with_callbacks(mut self, callbacks: Callbacks) -> Self {
        self.callbacks = Some(callbacks);
        self
    }

    /// Keeping delegations.
    #[must_use]
    pub fn with_delegations(mut self) -> Self {
        self.keeps_delegations = true;
        self
    }
}
