//! The binding of NFS version 4 (draft-ietf-nfsv4-nfs-ulb-v2, section 5) from a client's view: COMPOUNDs and chunk
//! lists written byte by byte, in both versions of RPC-over-RDMA, and the bytes that the server puts into messages and
//! chunks.
//!
//! NFSACL, which travels on the same connections (section 4.2), is tested in the same way.
//!
//! The client is a bare queue pair of the simulated fabric. The server is the real one: the transport with its engine,
//! and NFS version 4 over a file system in memory.
#![allow(unreachable_pub, reason = "what the files of a test program share")]

mod example;
mod hostile;
mod lists;
mod nfsacl;
mod ops;
mod pairing;
mod refused;
mod served;
mod sizes;
mod wire;
mod zero;
