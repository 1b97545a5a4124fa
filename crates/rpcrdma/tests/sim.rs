//! The transport over the simulated fabric, in version 1.

mod common;
#[path = "suite/sim.rs"]
mod suite;

/// What both ends speak.
const VERSIONS: rpcrdma::Versions = rpcrdma::Versions::One;
