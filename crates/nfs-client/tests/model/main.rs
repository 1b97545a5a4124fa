//! What programs do with files through `Files`, in each version of NFS, compared with a model: over the simulated
//! fabric in virtual time, and over software iWARP and TCP in real time, while connections are cut and the server
//! restarts.

mod fabric;
mod house;
mod play;
mod real;
#[path = "../simulated/mod.rs"]
mod simulated;
