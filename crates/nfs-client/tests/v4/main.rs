//! The client of version 4 against the server of this project, in one process: every operation in every minor version,
//! restarts, lost sessions and leases, and a server that lies.

mod callbacks;
mod callbacks40;
mod connections;
mod dropped;
mod every;
mod extras;
mod fabric;
mod files;
mod hostile;
mod house;
mod lies;
mod offload;
mod recovery;
mod revoked;
#[path = "../simulated/mod.rs"]
mod simulated;
mod slots;
mod small;
mod tcp;
mod unanswered;
mod versions;
