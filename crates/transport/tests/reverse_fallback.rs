//! The transport in the reverse direction: a client of both versions and a server of version 1.

mod common;
#[path = "suite/options.rs"]
mod options;
#[path = "suite/reverse.rs"]
mod suite;

use rpcrdma_transport::Versions;

/// The versions of the client and of the server.
const VERSIONS: (Versions, Versions) = (Versions::Auto, Versions::One);
