//! The events of a simulated world, in order, with virtual time. Two runs with the same seed have equal logs.

use rpcrdma_env::Timestamp;
use rpcrdma_fabric::{CloseReason, Completion, FenceCause, Token, WorkError, WorkKind};
use std::net::{IpAddr, SocketAddr};

/// An entry of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Logged {
    /// When it happened.
    pub at: Timestamp,
    /// What happened.
    pub event: Event,
}

/// An end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Side {
    /// The end that connected.
    Initiator,
    /// The end that accepted.
    Acceptor,
}

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// A host wants a connection. The number identifies the connection in the whole world.
    Connecting {
        /// The connection.
        connection: u64,
        /// The initiator's address.
        from: SocketAddr,
        /// The address that it connects to.
        to: SocketAddr,
    },
    /// A connection was not made.
    NotConnected {
        /// The connection.
        connection: u64,
    },
    /// An end of a connection exists now.
    Connected {
        /// The connection.
        connection: u64,
        /// Which end.
        side: Side,
    },
    /// Work was handed to the network.
    Started {
        /// The connection.
        connection: u64,
        /// Which end.
        side: Side,
        /// What kind of work.
        kind: WorkKind,
        /// Its token.
        token: Token,
        /// How many bytes it moves.
        octets: usize,
    },
    /// Memory was lent.
    Exposed {
        /// The connection.
        connection: u64,
        /// Which end.
        side: Side,
        /// The exposure's token.
        token: Token,
        /// Its handle.
        handle: u32,
        /// Its length.
        octets: usize,
    },
    /// Something happened on a queue pair. Its owner learns it with its next poll.
    Completed {
        /// The connection.
        connection: u64,
        /// Which end.
        side: Side,
        /// What happened.
        happening: Happening,
    },
    /// A queue pair was dropped before it was closed.
    Dropped {
        /// The connection.
        connection: u64,
        /// Which end.
        side: Side,
    },
    /// The connections between two hosts were cut.
    Cut(IpAddr, IpAddr),
    /// Nothing passes between two hosts any more.
    Partitioned(IpAddr, IpAddr),
    /// Messages pass again between two hosts.
    Healed(IpAddr, IpAddr),
    /// A host crashed.
    Crashed(IpAddr),
    /// A host is back.
    Restarted(IpAddr),
}

/// A completion without its memory.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Happening {
    /// A message arrived.
    Received {
        /// Its length in bytes.
        octets: usize,
        /// The handle it invalidated.
        invalidated: Option<u32>,
    },
    /// A Send or Write is done.
    Done(Token, WorkKind),
    /// A Read is done.
    Read(Token),
    /// An exposure ended.
    Fenced(Token, u32, FenceCause),
    /// Work failed.
    Failed(Token, WorkKind, WorkError),
    /// The queue pair has closed.
    Closed(CloseReason),
}

impl Happening {
    /// The contents of `completion`, without its memory.
    pub(crate) fn of(completion: &Completion) -> Option<Self> {
        Some(match completion {
            Completion::Received { buffer, invalidated } => {
                Happening::Received { octets: buffer.len(), invalidated: *invalidated }
            }
            Completion::Done { token, kind } => Happening::Done(*token, *kind),
            Completion::Read { token, .. } => Happening::Read(*token),
            Completion::Fenced { token, handle, cause, .. } => Happening::Fenced(*token, *handle, *cause),
            Completion::Failed { token, kind, error, .. } => Happening::Failed(*token, *kind, error.clone()),
            Completion::Closed { reason } => Happening::Closed(reason.clone()),
            _ => return None,
        })
    }
}
