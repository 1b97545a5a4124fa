//! Peers that take nothing and answer no RDMA Read, in version 2.

mod common;
#[path = "suite/stall.rs"]
mod suite;

use rpcrdma_transport::Versions;

/// What the server speaks, and the peer.
const VERSION: Versions = Versions::Two;
