//! File systems of one's own: the trait, and the types of its methods.
//!
//! A read-only [`FileSystem`] has six methods; the others have defaults that answer what the protocol names, such as
//! [`Fault::ReadOnly`] and [`Fault::Unsupported`]. `examples/serve_map.rs` is one in 50 lines. [`memory`] is a whole
//! file system in memory.
//!
//! Rights are the file system's own to check: [`FileSystem`] says in which methods. Examples of the types here may use
//! the crates that define them: `rpcrdma_nfsd` is [`rpcrdma::nfsd`](crate::nfsd), `rpcrdma_nfs` is
//! [`rpcrdma::nfs`](crate::nfs), and `rpcrdma_env` is [`rpcrdma::env`](mod@crate::env).

pub use bytes::Bytes;
pub use rpcrdma_env::{BoxFuture, Buffer};
pub use rpcrdma_nfs::attr::{Acls, Attributes, Change, FileType, NewAttributes, Stability, Time};
pub use rpcrdma_nfsd::{
    Access, Broken, Caller, Changed, Content, Copied, CreateHow, Failure, Fault, Features, FileId, FileSystem, Found,
    HostLease, Linked, Listing, ListingBudget, ListingEntry, MAX_FILE_ID_BYTES, Made, MemoryFs as Memory, New,
    NodeKind, OpenFile, Piece, PieceBudget, ReadData, Reading, Renamed, Rights, SetXattr, Sought, Span, SparseData,
    Told, Usage, Via, Written, XattrNames, failed,
};

/// A file system in this process's memory, of at most `max_bytes` bytes, in which every caller may make files.
///
/// ```
/// let files = rpcrdma::fs::memory(64 << 20)?;
/// let builder = rpcrdma::Server::builder().export("/scratch", files);
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Errors
/// If the system has no random numbers.
pub fn memory(max_bytes: u64) -> std::io::Result<Memory> {
    Ok(Memory::new(max_bytes, &rpcrdma_env::tokio_env()?).with_root_mode(0o777))
}
