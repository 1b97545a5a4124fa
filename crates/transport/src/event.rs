//! What a transport does, for those who watch: logs, metrics, pictures.
//!
//! Events are small values; an observer that is slow slows the connection down.

use crate::ConnectionError;
use rpcrdma_engine::{Negotiated, Sent, v2::Received};
use std::{net::SocketAddr, time::Duration};

/// What something waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Stall {
    /// Calls of ours wait for credits.
    Credits,
    /// A call of the peer waits for memory.
    Memory,
}

/// Why a server is taken for one without version 2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NoVersion2 {
    /// It has refused; the connection goes on in version 1.
    Refused,
    /// The server did not answer in time; the client connects again, in version 1.
    NoAnswer,
    /// The server ended the connection without an answer; the client connects again, in version 1.
    Dropped,
}

/// Something that happened on a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// A connection is established.
    Connected {
        /// The inline threshold of what we send, in bytes.
        send_inline: usize,
        /// The inline threshold of what we receive, in bytes.
        receive_inline: usize,
        /// Whether our Sends may invalidate the peer's memory.
        send_invalidates: bool,
        /// RDMA Reads of ours under way at a time.
        ord: u16,
        /// RDMA Reads of the peer that we serve at a time.
        ird: u16,
    },
    /// The two ends have agreed on a version and its parameters.
    Negotiated(Negotiated),
    /// The server has no version 2, as far as we can know. A program that remembers it saves the next client the
    /// attempt.
    NoVersion2(NoVersion2),
    /// Something for the extension of version 2.
    Extension(Received),
    /// A message for the extension was dropped, because its reader is too slow.
    ExtensionDropped {
        /// How much was, on this transport.
        total: u64,
    },
    /// A message was sent.
    Sent(Sent),
    /// A message has arrived.
    Received {
        /// Its bytes.
        octets: usize,
    },
    /// A message of the peer was dropped without an answer.
    Discarded {
        /// How many there were on this connection.
        total: u64,
    },
    /// A call of the peer was handed to the service.
    Called {
        /// Its XID.
        xid: u32,
        /// Bytes that came with it.
        inline_octets: usize,
        /// Bytes that were pulled for it.
        pulled_octets: usize,
    },
    /// A call of ours was answered.
    Answered {
        /// Its XID.
        xid: u32,
        /// Bytes of the reply that came inline.
        inline_octets: usize,
        /// Bytes that the peer placed in our memory.
        placed_octets: usize,
        /// Whether the call was sent more than once.
        retransmitted: bool,
    },
    /// A call of ours failed.
    Failed {
        /// Its XID.
        xid: u32,
    },
    /// The peer has answered a health check: it is alive, and slow with the other calls.
    Alive,
    /// An exposure of ours has ended.
    Invalidated {
        /// Its former handle.
        handle: u32,
        /// Whether the peer ended it.
        by_peer: bool,
    },
    /// Something has to wait.
    Stalled(Stall),
    /// Receives were posted.
    ReceivesPosted {
        /// How many.
        count: usize,
    },
    /// The connection is over. Without an error it was ended in an orderly manner.
    Closed {
        /// Why.
        error: Option<ConnectionError>,
    },
    /// A connection will be made again.
    Reconnecting {
        /// After which pause.
        pause: Duration,
    },
}

/// Receives the events of a client or server.
pub trait Observer: Send + Sync {
    /// Something happened on the connection with `peer`.
    fn event(&self, peer: SocketAddr, event: &Event);
}

/// Watches nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Quiet;

impl Observer for Quiet {
    fn event(&self, _: SocketAddr, _: &Event) {}
}
