//! An observer of the octet streams, for captures.

use std::net::SocketAddr;

/// Which way octets went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// To the peer.
    Sent,
    /// From the peer.
    Received,
}

/// Is told of every connection. Where there is none, nothing is spent on it.
pub trait Tap: Send + Sync {
    /// A TCP connection was made; its set-up follows. `initiator`: we asked for it.
    fn connection(&self, local: SocketAddr, peer: SocketAddr, initiator: bool) -> Box<dyn TapStream>;
}

/// Sees the octets of one connection, from the set-up frames on. Dropped when the connection has ended.
pub trait TapStream: Send {
    /// The next octets of a direction, in the order of the wire. Those of one system call come in several slices.
    fn octets(&mut self, direction: Direction, octets: &[u8]);
}
