//! Serving files, and your own RPC programs, over RDMA and TCP.
//!
//! [`Server::builder`] takes what is to be served; the builder's [`bind`](Builder::bind) opens every port, and
//! [`start`](Server::start) starts the serving threads. Each thread runs a single-threaded runtime with its own accept
//! loops on the shared ports; a connection stays with the thread that accepted it. Work on files that may sleep has
//! other threads of the server. The server's periodic work runs in the runtime in which the server was
//! made. That runtime also listens on the ports of RDMA devices, and hands connection requests to the serving threads
//! in turn.
//!
//! A server limits what its peers can use: places for connections, memory by address, and what it sends to clients of
//! networks that are not allowed. Its threads share the connections evenly.

mod bound;
mod builder;
mod check;
mod datagrams;
mod dialler;
mod domain;
mod ends;
mod exports;
mod files;
mod gate;
mod handed;
mod kerberos;
mod listeners;
mod memory;
mod metrics;
mod nfs_versions;
mod options;
mod outside;
mod own;
mod ports;
mod programs;
mod register;
mod running;
mod seldom;
mod served;
mod serving;
mod setups;
mod shares;
mod stranger;
mod tally;
mod thread;
mod threads;

pub use bound::Server;
pub use builder::Builder;
pub use exports::Export;
pub use nfs_versions::{DEFAULT_NFS_VERSIONS, NfsVersions};
pub use options::{Options, Rpcbind};
pub use ports::Spoken;
pub use rpcrdma_nfsd::{BadCidr, Cidr, Domain, Securities, Security};
pub use running::{Running, Stopped};

/// Limits for the clients of a small listener that a program has next to the server, such as that of the command's
/// metrics.
#[doc(hidden)]
pub mod beside {
    pub use super::{
        gate::{Admitted, Entry, Gate, Refusal, Setup, Stranger},
        ports::bind,
        seldom::Seldom,
        thread::ACCEPT_PAUSE,
    };
}

type Result<T, E = crate::Error> = std::result::Result<T, E>;
