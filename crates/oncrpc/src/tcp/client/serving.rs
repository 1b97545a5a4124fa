//! Calls of the server that a client answers over its own connection.
//!
//! Owns the calls that are executed, across connections: if a call's connection is lost, the call is polled on the next
//! connection, and its reply is dropped. Without a handler, the server's calls are dropped.

use super::Reverse;
use crate::{Begun, CallContext, Connection, GoneSignal, Limits, Outcome, TransportKind};
use futures_util::stream::{FuturesUnordered, StreamExt};
use rpcrdma_env::{Allocator, BoxFuture};
use rpcrdma_xdr::{Payload, Stream};
use std::{
    net::{Ipv4Addr, SocketAddr},
    sync::Arc,
    task::{Context, Poll},
};

/// A connection as calls of the server see it. It is dropped when the connection ends.
pub(super) struct Peer {
    context: CallContext,
    _signal: GoneSignal,
}

impl Peer {
    /// The connection's number among those of the transport.
    pub(super) fn number(&self) -> u64 {
        self.context.connection.id
    }
}

/// Executes calls of the server.
pub(super) struct Serving {
    reverse: Option<Reverse>,
    running: FuturesUnordered<BoxFuture<'static, (u64, Outcome)>>,
    connections: u64,
}

impl Serving {
    pub(super) fn new(reverse: Option<Reverse>) -> Self {
        Self { reverse, running: FuturesUnordered::new(), connections: 0 }
    }

    /// A connection is established.
    pub(super) fn begin(&mut self, server: SocketAddr, limits: Limits, allocator: Arc<dyn Allocator>) -> Option<Peer> {
        self.reverse.as_ref()?;
        self.connections += 1;
        let (signal, gone) = GoneSignal::new();
        // A stream need not have addresses: the address of this end is unknown here.
        let local = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
        let connection = Connection::new(server, local, self.connections, TransportKind::Tcp, limits, allocator, gone);
        Some(Peer { context: CallContext::new(Arc::new(connection)), _signal: signal })
    }

    /// Executes a call. Returns the reply if there is one at once.
    pub(super) fn execute(&mut self, peer: &Peer, call: Stream, cx: &mut Context<'_>) -> Option<Payload> {
        let reverse = self.reverse.as_ref()?;
        if self.running.len() >= reverse.calls {
            tracing::debug!(server = %peer.context.connection.peer, "the server has more calls under way than it may");
            return None;
        }
        match reverse.handler.begin(peer.context.clone(), call, cx) {
            Begun::Done(outcome) => outcome.into_reply(),
            Begun::Waits(executing) => {
                let connection = peer.number();
                self.running.push(Box::pin(async move { (connection, executing.await) }));
                None
            }
        }
    }

    /// The next call that has been executed: the number of its connection, and its reply.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<(u64, Option<Payload>)>> {
        let polled = self.running.poll_next_unpin(cx);
        polled.map(|done| done.map(|(connection, outcome)| (connection, outcome.into_reply())))
    }
}
