//! Tracing around any provider: an [`Event`] for each connection, post, exposure, invalidation and completion.
//!
//! [`TraceFabric`] wraps a fabric and changes nothing. Events borrow their contents, messages and memory included, so
//! that a [`Tracer`] that needs only numbers copies only numbers. The connection's own task calls the tracer, which
//! must not block.

mod queue_pair;

use crate::{
    AcceptError, Capabilities, Completion, ConnectError, Connected, ConnectionInfo, ConnectionParams, Fabric, Lent,
    ListenError, Listener, ReadWork, ReceivePool, RefusedReason, RemoteSegment, SendWork, Token, WriteWork,
    layer::{Layer, Layered},
};
use bytes::Bytes;
use queue_pair::TraceQueuePair;
use rpcrdma_env::{Allocator, BoxFuture, Env, Timestamp};
use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

/// Receives the events of a traced fabric.
pub trait Tracer: Send + Sync {
    /// This event happens now.
    fn event(&self, event: &Event<'_>);
}

/// An event of a traced fabric.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Event<'a> {
    /// The time by the environment's clock.
    pub at: Timestamp,
    /// The connection's number on the fabric, counted from 1 in the order in which connections were made; zero before
    /// that.
    pub connection: u64,
    /// What happens.
    pub kind: EventKind<'a>,
}

/// What happens.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum EventKind<'a> {
    /// Our end asks for a connection.
    Connecting {
        /// The peer's address.
        peer: SocketAddr,
        /// The parameters of our end.
        params: &'a ConnectionParams,
    },
    /// Our end asked for a connection, and none was made.
    NotConnected {
        /// The peer's address.
        peer: SocketAddr,
        /// The error.
        error: &'a ConnectError,
    },
    /// A peer asks for a connection.
    Requested(&'a ConnectionInfo),
    /// Our end accepts a peer's request.
    Accepting {
        /// The peer's address.
        peer: SocketAddr,
        /// The parameters of our end.
        params: &'a ConnectionParams,
    },
    /// Our end rejects a peer's request.
    Rejecting {
        /// The peer's address.
        peer: SocketAddr,
        /// The private data of the rejection.
        private_data: &'a Bytes,
    },
    /// A connection was made.
    Connected {
        /// Whether the peer had asked for it.
        accepted: bool,
        /// The facts of the connection.
        info: &'a ConnectionInfo,
    },
    /// A receive is posted.
    PostReceive {
        /// Its capacity.
        octets: usize,
    },
    /// A Send is posted.
    PostSend(&'a SendWork),
    /// A Write is posted.
    PostWrite(&'a WriteWork),
    /// A Read is posted.
    PostRead(&'a ReadWork),
    /// The provider refused the post that this connection's last event reported, or an exposure.
    Refused(RefusedReason),
    /// Memory has been lent.
    Exposed {
        /// The exposure's token.
        token: Token,
        /// How the peer names it.
        segment: RemoteSegment,
        /// Whether the peer may write.
        writable: bool,
    },
    /// Our end ends an exposure.
    Invalidating {
        /// Its handle.
        handle: u32,
    },
    /// Our end ends the connection.
    Disconnecting,
    /// A completion was handed out.
    Completed(&'a Completion),
    /// The queue pair is dropped.
    Dropped,
}

/// A fabric whose connections are traced.
pub struct TraceFabric {
    layered: Layered<Trace>,
}

/// The tracer, and what all connections share.
struct Trace {
    tracer: Arc<dyn Tracer>,
    env: Env,
    connections: AtomicU64,
}

impl TraceFabric {
    /// Wraps `inner`. The environment's clock gives events their time.
    pub fn new(inner: Arc<dyn Fabric>, tracer: Arc<dyn Tracer>, env: Env) -> Self {
        let trace = Trace { tracer, env, connections: AtomicU64::new(0) };
        Self { layered: Layered::new(inner, Arc::new(trace)) }
    }
}

/// Whether the peer may write to it.
fn is_writable(memory: &Lent) -> bool {
    matches!(memory, Lent::Sink(_))
}

impl Trace {
    fn before_it_is_there(&self, kind: EventKind<'_>) {
        self.tracer.event(&Event { at: self.env.clock.now(), connection: 0, kind });
    }
}

impl Layer for Trace {
    fn connecting(&self, peer: SocketAddr, params: &mut ConnectionParams) -> Result<(), ConnectError> {
        self.before_it_is_there(EventKind::Connecting { peer, params });
        Ok(())
    }

    fn not_connected(&self, peer: SocketAddr, error: &ConnectError) {
        self.before_it_is_there(EventKind::NotConnected { peer, error });
    }

    fn requested(&self, info: &ConnectionInfo) {
        self.before_it_is_there(EventKind::Requested(info));
    }

    fn accepting(&self, peer: SocketAddr, params: &mut ConnectionParams) -> Result<(), AcceptError> {
        self.before_it_is_there(EventKind::Accepting { peer, params });
        Ok(())
    }

    fn rejecting(&self, peer: SocketAddr, private_data: &mut Bytes) {
        self.before_it_is_there(EventKind::Rejecting { peer, private_data });
    }

    fn connected(&self, accepted: bool, queue_pair: Connected) -> Connected {
        let connection = self.connections.fetch_add(1, Ordering::Relaxed) + 1;
        let traced = TraceQueuePair::new(queue_pair, self.tracer.clone(), self.env.clone(), connection);
        traced.announce(accepted);
        Box::new(traced)
    }
}

impl Fabric for TraceFabric {
    fn name(&self) -> &'static str {
        self.layered.name()
    }

    fn capabilities(&self) -> &Capabilities {
        self.layered.capabilities()
    }

    fn pool(&self) -> Arc<dyn Allocator> {
        self.layered.pool()
    }

    fn receive_pool(&self) -> Option<Arc<dyn ReceivePool>> {
        self.layered.receive_pool()
    }

    fn connect(&self, peer: SocketAddr, params: ConnectionParams) -> BoxFuture<'_, Result<Connected, ConnectError>> {
        self.layered.connect(peer, params)
    }

    fn listen(&self, local: SocketAddr) -> BoxFuture<'_, Result<Box<dyn Listener>, ListenError>> {
        self.layered.listen(local)
    }
}
