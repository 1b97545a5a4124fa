//! Which version of RPC-over-RDMA was measured.

use rpcrdma_transport::{Event, Observer, Tracing};
use std::{
    net::SocketAddr,
    sync::atomic::{AtomicU32, Ordering},
};

/// Keeps the version that the last connection has settled; zero before that.
#[derive(Default)]
pub(super) struct Settled(AtomicU32);

impl Settled {
    /// The version. None over other transports than RDMA.
    pub(super) fn version(&self) -> Option<u32> {
        Some(self.0.load(Ordering::Relaxed)).filter(|version| *version > 0)
    }
}

impl Observer for Settled {
    fn event(&self, peer: SocketAddr, event: &Event) {
        if let Event::Negotiated(made) = event {
            self.0.store(made.version, Ordering::Relaxed);
        }
        Tracing.event(peer, event);
    }
}
