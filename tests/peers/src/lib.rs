//! Peers over plain sockets, for tests that judge a live server: they send what the caller wants, however wrong, and
//! read the answers strictly.
//!
//! They are written from the specifications and use no crate of the project, so that the project does not judge itself.
//! If the server does something wrong, they panic.

#![allow(missing_docs, reason = "fields and constants have the names that their specifications give them")]

pub mod idlers;
pub mod nfs4;
pub mod peer;
pub mod rpc;
pub mod wire;
