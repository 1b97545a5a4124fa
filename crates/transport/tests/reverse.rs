//! The transport in the reverse direction, in version 1.

mod common;
#[path = "suite/options.rs"]
mod options;
#[path = "suite/reverse.rs"]
mod suite;

use rpcrdma_transport::Versions;

/// The versions of the client and of the server.
const VERSIONS: (Versions, Versions) = (Versions::One, Versions::One);
