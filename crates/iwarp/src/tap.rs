//! An observer of the octet streams, for captures.

use std::net::SocketAddr;

/// The direction in which octets went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// To the peer.
    Sent,
    /// From the peer.
    Received,
}

/// Observes all connections. Without a tap, nothing is spent on it.
pub trait Tap: Send + Sync {
    /// A TCP connection exists; its set-up follows. `initiator`: this end asked for it.
    fn connection(&self, local: SocketAddr, peer: SocketAddr, initiator: bool) -> Box<dyn TapStream>;
}

/// Observes the octets of one connection, from the set-up frames on. Dropped when the connection has ended.
pub trait TapStream: Send {
    /// The next octets of a direction, in the order of the wire. The octets of one system call come in several slices.
    fn octets(&mut self, direction: Direction, octets: &[u8]);
}
