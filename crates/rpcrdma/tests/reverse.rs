//! The transport in the reverse direction, in version 1.

mod common;
#[path = "suite/reverse.rs"]
mod suite;

/// What both ends speak.
const VERSIONS: rpcrdma::Versions = rpcrdma::Versions::One;
