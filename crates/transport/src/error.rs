//! Why a connection ended.

use rpcrdma_engine::PeerFault;
use rpcrdma_fabric::CloseReason;
use std::time::Duration;

/// Why a connection ended, if its end was not orderly.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectionError {
    /// The peer broke a rule of RPC-over-RDMA.
    #[error("the peer broke a rule: {0}")]
    Peer(#[from] PeerFault),
    /// The peer did not answer anything, not even a probe.
    #[error("the peer is silent")]
    Silent,
    /// A caller has given the peer up, for this reason.
    #[error("{0}")]
    GivenUp(&'static str),
    /// The server did not answer our message of version 2.
    #[error("the server did not answer in version 2")]
    NoAnswer,
    /// The peer did not authenticate itself.
    #[error("the peer is not authenticated")]
    Unauthenticated,
    /// The two ends have no version in common.
    #[error("the server speaks versions {low} to {high} of RPC-over-RDMA only")]
    Version {
        /// The lowest version of the server.
        low: u32,
        /// The highest version of the server.
        high: u32,
    },
    /// For too long, the peer took no message, or answered no RDMA Read.
    #[error("the peer made no progress for {} seconds", after.as_secs())]
    Stalled {
        /// The time-out.
        after: Duration,
    },
    /// The fabric ended the connection.
    #[error("the connection was lost")]
    Fabric(#[source] CloseReason),
    /// The provider did not accept work that is within its limits.
    #[error("the provider refused work: {0}")]
    Provider(rpcrdma_fabric::RefusedReason),
    /// There is no memory for receives.
    #[error("no memory for receives")]
    NoMemory,
}
