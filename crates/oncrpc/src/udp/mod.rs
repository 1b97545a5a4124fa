//! RPC over UDP: a message in each datagram (RFC 5531 section 10 leaves losses to the programs).
//!
//! For the small programs around NFS that clients call like this: the portmapper, and the status monitor. Nothing here
//! starts a task or a runtime: [`serve`] returns a handle and a driver future, which the program polls where it likes;
//! a [`UdpTransport`] calls others.
//!
//! The sender of a datagram can write a false source address into it. So a question costs little until it has passed
//! the limits of [`ServerOptions`], and an answer is never much larger than its question: nobody can flood a third
//! party through this server.

mod client;
mod server;
mod socket;
mod sources;

pub use client::{MAX_CLIENT_DATAGRAM_BYTES, UdpClientOptions, UdpTransport};
pub use server::{Dropped, Endpoint, ServerHandle, ServerOptions, serve};
pub use socket::{Datagrams, Local, Received, Socket};

/// The largest datagram that is accepted, in bytes: this size passes whole through every network. Calls of the
/// programs that are served over UDP have a tenth of it.
pub const MAX_DATAGRAM_BYTES: usize = 1232;
/// Calls that are executed at a time, in number, over one socket.
pub const MAX_CALLS: usize = 64;
/// Calls of one source ([`ClientNetwork`](crate::ClientNetwork)) that are executed at a time, in number.
pub const MAX_CALLS_BY_SOURCE: usize = 8;
/// The most calls of one source that are accepted: this many at once, and then this many a second.
pub const CALLS_BY_SOURCE_PER_SECOND: u32 = 100;
/// How many times as large as its question an answer may be.
pub const MAX_AMPLIFICATION: usize = 3;
/// Datagrams that are read before other tasks of the same thread have their turn, in number.
const DATAGRAMS_A_TURN: usize = 64;

#[cfg(test)]
mod tests;
