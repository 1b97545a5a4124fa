//! Memory lent to the peer.

use bytes::Bytes;
use rpcrdma_env::Buffer;

/// What the peer may do with exposed memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// RDMA Read.
    Read,
    /// RDMA Write.
    Write,
}

/// Lent memory. It comes back when it is fenced.
#[derive(Debug)]
pub enum Lent {
    /// For RDMA Read: shared memory that nothing changes.
    Source(Bytes),
    /// For RDMA Write, over its whole capacity, with exclusive access. The provider does not count how much the peer
    /// has written: the reply that ends the exchange says it.
    Sink(Buffer),
}

impl Lent {
    /// What the peer may do with it.
    pub fn access(&self) -> Access {
        match self {
            Lent::Source(_) => Access::Read,
            Lent::Sink(_) => Access::Write,
        }
    }

    /// How many bytes the peer can reach.
    pub fn octets(&self) -> usize {
        match self {
            Lent::Source(octets) => octets.len(),
            Lent::Sink(buffer) => buffer.capacity(),
        }
    }
}

/// What ended an exposure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FenceCause {
    /// [`QueuePair::invalidate`](crate::QueuePair::invalidate).
    Local,
    /// The peer's Send with Invalidate.
    Remote,
    /// The connection's end.
    Closed,
}
