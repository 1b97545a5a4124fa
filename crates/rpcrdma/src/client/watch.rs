//! What a person who waits for a server may want to know.

use rpcrdma_env::Env;
use rpcrdma_oncrpc::ClientTransport;
use rpcrdma_transport::Observer;
use std::{net::SocketAddr, sync::Arc, time::Duration};

/// Receives what a person may want to know of a client's connections. The default methods do nothing, except that
/// warnings go to the log.
pub trait Watch: Send + Sync {
    /// A connection is being made, which takes `limit` at most. The returned value is dropped when that has failed.
    fn connecting(&self, server: SocketAddr, env: &Env, limit: Duration) -> Box<dyn Attempt> {
        let _ = (server, env, limit);
        Box::new(Unwatched)
    }

    /// A connection is established.
    fn connected(&self, transport: &dyn ClientTransport, env: &Env) {
        let _ = (transport, env);
    }

    /// Something is not as it was asked for.
    fn warning(&self, text: &str) {
        tracing::warn!("{text}");
    }
}

/// A connection that is being made.
pub trait Attempt: Send + Sync {
    /// An observer of the connection over RDMA, around the one that there is.
    fn observed(&self, next: Arc<dyn Observer>) -> Arc<dyn Observer> {
        next
    }

    /// It is established.
    fn done(self: Box<Self>) {}
}

/// A watch without a receiver.
pub(super) struct Unwatched;

impl Watch for Unwatched {}
impl Attempt for Unwatched {}
