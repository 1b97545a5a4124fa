//! Where a call came from: this decides in whose turn the work is done, never what a caller may do.

use rpcrdma_oncrpc::{CallContext, ClientNetwork};
use std::net::{Ipv4Addr, SocketAddr};

/// The client and the connection that a call came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Origin {
    /// The client, for the shares of threads.
    pub client: ClientNetwork,
    /// The client's end of the connection.
    pub connection: SocketAddr,
}

impl Origin {
    /// The program itself: work that no client has asked for.
    pub const LOCAL: Self = Self {
        client: ClientNetwork::LOCAL,
        connection: SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0),
    };

    /// Where a call came from.
    pub fn of(context: &CallContext) -> Self {
        Self::at(context.connection.peer)
    }

    /// A connection from `peer`.
    pub fn at(peer: SocketAddr) -> Self {
        Self { client: ClientNetwork::of(peer.ip()), connection: peer }
    }
}
