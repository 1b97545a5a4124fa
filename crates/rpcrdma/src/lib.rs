//! NFS and RPC over RDMA, with or without RDMA hardware.

mod carrier;
pub mod client;
mod error;
pub mod server;

pub use carrier::Carrier;
pub use client::Client;
pub use error::Error;
pub use rpcrdma_nfs_client as nfs_client;
pub use server::Server;

/// What can be served.
pub mod fs {
    pub use rpcrdma_nfsd::{FileSystem, MemoryFs as Memory};

    /// A file system in this process's memory, of at most so many bytes.
    ///
    /// # Errors
    /// If the system has no random numbers.
    pub fn memory(max_bytes: u64) -> std::io::Result<Memory> {
        Ok(Memory::new(max_bytes, &rpcrdma_env::tokio_env()?))
    }
}
