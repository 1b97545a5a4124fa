//! The transport over the simulated fabric, in version 2.

mod common;
#[path = "suite/sim.rs"]
mod suite;

/// What both ends speak.
const VERSIONS: rpcrdma::Versions = rpcrdma::Versions::Two;
