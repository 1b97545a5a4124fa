//! What programs do with files through `Files`, in each version of NFS, held against a model: over the simulated fabric
//! in virtual time, over software iWARP and over TCP in real time, while connections are cut and the server restarts.

mod fabric;
mod house;
mod play;
mod real;
#[path = "../simulated/mod.rs"]
mod simulated;
