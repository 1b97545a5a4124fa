//! What wrappers around a fabric have in common: a layer sees how connections are made, and wraps their queue pairs.
//!
//! Everything else passes through. Errors of the fabric below reach the caller as they are.

use crate::{
    AcceptError, Capabilities, ConnectError, Connected, ConnectionInfo, ConnectionParams, Fabric, Incoming,
    ListenError, Listener, Pending, ReceivePool,
};
use bytes::Bytes;
use rpcrdma_env::{Allocator, BoxFuture};
use std::{
    net::SocketAddr,
    sync::Arc,
    task::{Context, Poll},
};

/// The part of a wrapper that differs.
pub(crate) trait Layer: Send + Sync + 'static {
    /// The caller is about to ask for a connection.
    fn connecting(&self, peer: SocketAddr, params: &mut ConnectionParams) -> Result<(), ConnectError>;
    /// The connection was not made.
    fn not_connected(&self, peer: SocketAddr, error: &ConnectError);
    /// A peer asks for a connection.
    fn requested(&self, info: &ConnectionInfo);
    /// The caller is about to accept a peer's request.
    fn accepting(&self, peer: SocketAddr, params: &mut ConnectionParams) -> Result<(), AcceptError>;
    /// The caller is about to reject a peer's request.
    fn rejecting(&self, peer: SocketAddr, private_data: &mut Bytes);
    /// A connection was made; `accepted` if the peer had asked for it.
    fn connected(&self, accepted: bool, queue_pair: Connected) -> Connected;
}

/// A fabric with a layer around it.
pub(crate) struct Layered<L> {
    inner: Arc<dyn Fabric>,
    layer: Arc<L>,
}

impl<L> Layered<L> {
    pub(crate) fn new(inner: Arc<dyn Fabric>, layer: Arc<L>) -> Self {
        Self { inner, layer }
    }

    pub(crate) fn layer(&self) -> &L {
        &self.layer
    }
}

impl<L: Layer> Fabric for Layered<L> {
    fn name(&self) -> &'static str {
        self.inner.name()
    }

    fn capabilities(&self) -> &Capabilities {
        self.inner.capabilities()
    }

    fn pool(&self) -> Arc<dyn Allocator> {
        self.inner.pool()
    }

    fn receive_pool(&self) -> Option<Arc<dyn ReceivePool>> {
        self.inner.receive_pool()
    }

    fn connect(
        &self,
        peer: SocketAddr,
        mut params: ConnectionParams,
    ) -> BoxFuture<'_, Result<Connected, ConnectError>> {
        Box::pin(async move {
            let connected = match self.layer.connecting(peer, &mut params) {
                Ok(()) => self.inner.connect(peer, params).await,
                Err(error) => Err(error),
            };
            connected
                .inspect_err(|error| self.layer.not_connected(peer, error))
                .map(|queue_pair| self.layer.connected(false, queue_pair))
        })
    }

    fn listen(&self, local: SocketAddr) -> BoxFuture<'_, Result<Box<dyn Listener>, ListenError>> {
        Box::pin(async move {
            let inner = self.inner.listen(local).await?;
            Ok(Box::new(LayeredListener { inner, layer: self.layer.clone() }) as Box<dyn Listener>)
        })
    }
}

struct LayeredListener<L> {
    inner: Box<dyn Listener>,
    layer: Arc<L>,
}

impl<L: Layer> Listener for LayeredListener<L> {
    fn local_addr(&self) -> SocketAddr {
        self.inner.local_addr()
    }

    fn poll_accept(&mut self, cx: &mut Context<'_>) -> Poll<Result<Box<dyn Pending>, AcceptError>> {
        let layer = &self.layer;
        self.inner.poll_accept(cx).map_ok(|inner| Box::new(LayeredPending { inner, layer: layer.clone() }) as _)
    }
}

struct LayeredPending<L> {
    inner: Box<dyn Pending>,
    layer: Arc<L>,
}

impl<L: Layer> Pending for LayeredPending<L> {
    fn peer(&self) -> SocketAddr {
        self.inner.peer()
    }

    fn request(self: Box<Self>) -> BoxFuture<'static, Result<Box<dyn Incoming>, AcceptError>> {
        Box::pin(async move {
            let Self { inner, layer } = *self;
            let inner = inner.request().await?;
            layer.requested(inner.info());
            Ok(Box::new(LayeredIncoming { inner, layer }) as Box<dyn Incoming>)
        })
    }
}

struct LayeredIncoming<L> {
    inner: Box<dyn Incoming>,
    layer: Arc<L>,
}

impl<L: Layer> Incoming for LayeredIncoming<L> {
    fn info(&self) -> &ConnectionInfo {
        self.inner.info()
    }

    fn accept(self: Box<Self>, mut params: ConnectionParams) -> BoxFuture<'static, Result<Connected, AcceptError>> {
        Box::pin(async move {
            let Self { inner, layer } = *self;
            layer.accepting(inner.info().peer, &mut params)?;
            Ok(layer.connected(true, inner.accept(params).await?))
        })
    }

    fn reject(self: Box<Self>, mut private_data: Bytes) -> BoxFuture<'static, Result<(), AcceptError>> {
        Box::pin(async move {
            let Self { inner, layer } = *self;
            layer.rejecting(inner.info().peer, &mut private_data);
            inner.reject(private_data).await
        })
    }
}
