//! What a transport does, for observers: logs, metrics, pictures.
//!
//! Events are small values; a slow observer slows the connection down.

use crate::ConnectionError;
use rpcrdma_engine::{Negotiated, Sent, v2::Received};
use std::{net::SocketAddr, time::Duration};

/// What a call waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Stall {
    /// Calls of ours wait for credits.
    Credits,
    /// A call of the peer waits for memory.
    Memory,
}

/// Why the client takes a server for one without version 2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NoVersion2 {
    /// The server has refused version 2; the connection continues in version 1.
    Refused,
    /// The server did not answer in time; the client connects again, in version 1.
    NoAnswer,
    /// The server ended the connection without an answer; the client connects again, in version 1.
    Dropped,
}

/// An event of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// A connection is established.
    Connected {
        /// The inline threshold of messages that we send, in bytes.
        send_inline: usize,
        /// The inline threshold of messages that we receive, in bytes.
        receive_inline: usize,
        /// Whether our Sends may invalidate the peer's memory.
        send_invalidates: bool,
        /// Our RDMA Reads under way at a time.
        ord: u16,
        /// RDMA Reads of the peer that we serve at a time.
        ird: u16,
    },
    /// Both ends have agreed on a version and its parameters.
    Negotiated(Negotiated),
    /// As far as we can know, the server has no version 2. If a program remembers this, its next client need not try
    /// version 2.
    NoVersion2(NoVersion2),
    /// Something for the extension of version 2.
    Extension(Received),
    /// The transport dropped a message for the extension, because the embedder reads too slowly.
    ExtensionDropped {
        /// How many messages it has dropped so far.
        total: u64,
    },
    /// A message was sent.
    Sent(Sent),
    /// A message has arrived.
    Received {
        /// Its bytes.
        octets: usize,
    },
    /// We dropped a message of the peer without an answer.
    Discarded {
        /// How many we have dropped on this connection.
        total: u64,
    },
    /// The service got a call of the peer.
    Called {
        /// Its XID.
        xid: u32,
        /// Bytes that came with the message.
        inline_bytes: usize,
        /// Bytes that we pulled for it.
        pulled_bytes: usize,
    },
    /// A call of ours has a reply.
    Answered {
        /// Its XID.
        xid: u32,
        /// Bytes of the reply that came inline.
        inline_bytes: usize,
        /// Bytes that the peer placed in our memory.
        placed_bytes: usize,
        /// Whether the call was sent more than once.
        retransmitted: bool,
    },
    /// A call of ours failed.
    Failed {
        /// Its XID.
        xid: u32,
    },
    /// The peer has answered a probe: it is alive, and slow with the other calls.
    Alive,
    /// An exposure of ours has ended.
    Invalidated {
        /// Its former handle.
        handle: u32,
        /// Whether the peer ended it.
        by_peer: bool,
    },
    /// A call has to wait.
    Stalled(Stall),
    /// Receives were posted.
    ReceivesPosted {
        /// How many.
        count: usize,
    },
    /// The connection is over. Without an error, its end was orderly.
    Closed {
        /// The error.
        error: Option<ConnectionError>,
    },
    /// The client will connect again.
    Reconnecting {
        /// The pause before.
        pause: Duration,
    },
}

/// Receives the events of a client or server.
pub trait Observer: Send + Sync {
    /// An event of the connection with `peer`.
    fn event(&self, peer: SocketAddr, event: &Event);
}

/// An observer that ignores all events.
#[derive(Clone, Copy, Debug, Default)]
pub struct Quiet;

impl Observer for Quiet {
    fn event(&self, _: SocketAddr, _: &Event) {}
}
