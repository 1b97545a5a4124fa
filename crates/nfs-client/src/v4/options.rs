//! The embedder's settings for a client of version 4.

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
    /// The most calls under way at a time, if there is a session.
    pub slots: u32,
    /// Answers the calls of the server, if the transport can bring them. Without it the client asks for no callbacks.
    pub callbacks: Option<Callbacks>,
    /// Whether the client keeps delegations that the server grants with an open, until the server recalls them or the
    /// client ends. The client does not use them: they show whether a server can call. Without this the client asks for
    /// none, and returns at once any that come.
    pub keeps_delegations: bool,
    /// Where servers of minor version 0 call over TCP: the address, as the server can reach it, of a listener with the
    /// callbacks' service. Without it they cannot call. A server that can call may delegate files, and the client
    /// returns them at once: then each open costs one call more.
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

    /// Servers of minor version 0 call this address over TCP; the embedder listens there with the callbacks' service.
    #[must_use]
    pub fn with_callback_address(mut self, address: SocketAddr) -> Self {
        self.callback_address = Some(address);
        self
    }
}
