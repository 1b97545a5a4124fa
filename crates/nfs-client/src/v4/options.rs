//! What an embedder says of a client of version 4.

use super::Callbacks;
use std::{net::SocketAddr, ops::RangeInclusive};

/// How a client behaves.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Options {
    /// The host's name, for the server's administrator to see. It need not be unique.
    pub host: String,
    /// Which minor versions the client may use; it uses the highest that the server has.
    pub minors: RangeInclusive<u32>,
    /// The most calls under way at a time, where there are sessions.
    pub slots: u32,
    /// What answers the calls of the server, if the transport can bring them. Without it no callbacks are asked for.
    pub callbacks: Option<Callbacks>,
    /// Whether delegations that the server gives with an open are kept, until it recalls them or the client ends. The
    /// client does not use them: they show whether a server can call. Otherwise the client asks for none, and gives
    /// back at once any that come.
    pub keeps_delegations: bool,
    /// Where servers of minor version 0 call over TCP: a listener's address, as the server can reach it, with the
    /// service of the callbacks. Without it they cannot call. A server that can call may delegate files, which are
    /// given back at once: each open then costs a call more.
    pub callback_address: Option<SocketAddr>,
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
            callback_address: None,
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

    /// Servers of minor version 0 call this address over TCP, where the callbacks' service is listened for.
    #[must_use]
    pub fn with_callback_address(mut self, address: SocketAddr) -> Self {
        self.callback_address = Some(address);
        self
    }
}
