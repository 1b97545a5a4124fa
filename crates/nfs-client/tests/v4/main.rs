//! The client of version 4 against the server of this project, in one process: every operation in every minor version,
//! restarts, lost sessions and leases, and a server that lies.

mod callbacks;
mod callbacks40;
mod dropped;
mod every;
mod fabric;
mod files;
mod hostile;
mod house;
mod recovery;
mod slots;
mod tcp;
mod versions;
