//! Making connections, in the manner of a connection manager.

use crate::{
    AcceptError, Capabilities, ConnectError, ListenError, QueuePair, ReceivePool, Receives, RefusedReason,
    queue_pair::ConnectionInfo,
};
use bytes::Bytes;
use rpcrdma_env::{Allocator, BoxFuture};
use std::{
    net::SocketAddr,
    sync::Arc,
    task::{Context, Poll},
};

/// What one end brings to a new connection.
#[derive(Debug)]
pub struct ConnectionParams {
    /// Upper-layer data that the peer sees before it answers, or with the answer.
    pub private_data: Bytes,
    /// The most RDMA Reads of the peer that this end serves at a time.
    pub ird: u16,
    /// The most RDMA Reads that this end has under way at a time.
    pub ord: u16,
    /// The receives that are posted before the peer can send.
    pub receives: Receives,
}

impl ConnectionParams {
    /// Checks that a connection can begin with these parameters.
    ///
    /// # Errors
    /// The limit that is exceeded, or the function that the provider does not have.
    pub fn check(&self, limits: &Capabilities) -> Result<(), RefusedReason> {
        check_private_data(&self.private_data, limits)?;
        match &self.receives {
            Receives::Own(buffers) if buffers.len() > limits.max_receives => {
                Err(RefusedReason::Limit { what: "the number of posted receives", max: limits.max_receives })
            }
            Receives::Shared(_) if !limits.shared_receives => Err(RefusedReason::Unsupported("a pool of receives")),
            _ => Ok(()),
        }
    }
}

/// Checks that so much private data can go with a request or its answer.
///
/// # Errors
/// The limit, if it is exceeded.
pub fn check_private_data(private_data: &[u8], limits: &Capabilities) -> Result<(), RefusedReason> {
    let max = limits.max_private_data;
    if private_data.len() > max {
        return Err(RefusedReason::Limit { what: "the number of bytes of private data", max });
    }
    Ok(())
}

/// A new connection.
pub type Connected = Box<dyn QueuePair>;

/// An RDMA provider: one device, or software that does its work. If the route to an address goes through another
/// device, connecting fails and a listener drops the request.
pub trait Fabric: Send + Sync {
    /// Its name: `iwarp`, `sim`.
    fn name(&self) -> &'static str;

    /// What its queue pairs can do.
    fn capabilities(&self) -> &Capabilities;

    /// The memory that its queue pairs reach without a further registration. It is registered once in each protection
    /// domain.
    fn pool(&self) -> Arc<dyn Allocator>;

    /// A pool of receives for many connections, if [`Capabilities::shared_receives`] says that the provider has one.
    fn receive_pool(&self) -> Option<Arc<dyn ReceivePool>>;

    /// Connects. The provider has a time-out for the set-up.
    fn connect(&self, peer: SocketAddr, params: ConnectionParams) -> BoxFuture<'_, Result<Connected, ConnectError>>;

    /// Listens. Port 0 lets the system choose.
    fn listen(&self, local: SocketAddr) -> BoxFuture<'_, Result<Box<dyn Listener>, ListenError>>;
}

/// A listening endpoint.
pub trait Listener: Send {
    /// The address at which it listens.
    fn local_addr(&self) -> SocketAddr;

    /// The next peer that wants a connection. The listener need not have read its request yet, so that a slow peer
    /// delays only itself.
    ///
    /// An error concerns one peer, or a passing shortage (of descriptors); the caller waits a little and continues.
    fn poll_accept(&mut self, cx: &mut Context<'_>) -> Poll<Result<Box<dyn Pending>, AcceptError>>;
}

/// A peer that has begun to connect.
pub trait Pending: Send {
    /// The address of the peer.
    fn peer(&self) -> SocketAddr;

    /// Reads the peer's request, within the provider's time-out for set-up.
    fn request(self: Box<Self>) -> BoxFuture<'static, Result<Box<dyn Incoming>, AcceptError>>;
}

/// A connection request that awaits its answer. Dropping it refuses the request without private data.
pub trait Incoming: Send {
    /// What the request says. IRD and ORD are the peer's wishes, seen from our end: `ord` is the number of RDMA Reads
    /// that the peer would serve, `ird` the number that it would issue.
    fn info(&self) -> &ConnectionInfo;

    /// Accepts. The agreed IRD and ORD are the lower of both ends' wishes.
    fn accept(self: Box<Self>, params: ConnectionParams) -> BoxFuture<'static, Result<Connected, AcceptError>>;

    /// Refuses, with private data that may say why.
    fn reject(self: Box<Self>, private_data: Bytes) -> BoxFuture<'static, Result<(), AcceptError>>;
}
