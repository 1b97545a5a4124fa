//! Peers that receive nothing and serve no RDMA Read, in version 2.

mod common;
#[path = "suite/stall.rs"]
mod suite;

use rpcrdma_transport::Versions;

/// The version of the server and of the peer.
const VERSION: Versions = Versions::Two;
