//! Peers over plain sockets, for those who judge a live server: they say what the caller wants, however wrong, and read
//! strictly what comes back.
//!
//! Written from the specifications; no crate of the project is used, so that what is judged does not judge itself.
//! Whatever the server does that it must not do is a panic.

#![allow(missing_docs, reason = "fields and constants have the names that their specifications give them")]

pub mod idlers;
pub mod nfs4;
pub mod peer;
pub mod rpc;
pub mod wire;
