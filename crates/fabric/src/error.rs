//! What can go wrong with a provider, in families: no connection came about, the caller misused the provider, the peer
//! broke the rules, the network failed.

use bytes::Bytes;
use std::{io, net::SocketAddr};

/// Why no connection was made. The messages do not name the peer: the code that reports the error adds it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// No program listens at that address.
    #[error("the connection was refused: nothing listens there")]
    Refused {
        /// The peer's address.
        peer: SocketAddr,
    },
    /// The upper layer of the peer rejected the request.
    #[error("the server rejected the connection request; it may not serve this address")]
    Rejected {
        /// The peer's address.
        peer: SocketAddr,
        /// The private data of the rejection.
        private_data: Bytes,
    },
    /// The set-up did not finish in time.
    #[error("no answer to the connection request within {seconds} s")]
    TimedOut {
        /// The peer's address.
        peer: SocketAddr,
        /// The time-out.
        seconds: u64,
    },
    /// The program that listens at that address accepts connections, and did not answer the request in time.
    #[error("the program that listens there did not answer the connection request within {seconds} s")]
    Silent {
        /// The peer's address.
        peer: SocketAddr,
        /// The time-out.
        seconds: u64,
    },
    /// The peer's answer breaks a rule.
    #[error("the program that listens there does not speak this protocol")]
    Violation {
        /// The peer's address.
        peer: SocketAddr,
        /// The rule.
        #[source]
        violation: PeerViolation,
    },
    /// The network or the device failed.
    #[error("the connection broke during set-up")]
    Io {
        /// The peer's address.
        peer: SocketAddr,
        /// The error.
        #[source]
        error: io::Error,
    },
    /// The caller asked for something that the provider cannot do.
    #[error("the connection request itself cannot be made: {0}")]
    Misuse(RefusedReason),
}

impl ConnectError {
    /// Whether the program that accepts connections at that address does not speak the provider's protocol: it answered
    /// by other rules, did not answer, or ended the connection.
    pub fn is_foreign(&self) -> bool {
        use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
        match self {
            Self::Silent { .. } | Self::Violation { .. } => true,
            Self::Io { error, .. } => {
                matches!(error.kind(), BrokenPipe | ConnectionAborted | ConnectionReset | UnexpectedEof)
            }
            _ => false,
        }
    }
}

/// Why listening failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ListenError {
    /// The system refused the address.
    #[error("cannot listen on {local}")]
    Io {
        /// The address.
        local: SocketAddr,
        /// Why.
        #[source]
        error: io::Error,
    },
}

/// Why a peer that wanted a connection did not get one.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AcceptError {
    /// The peer broke a rule.
    #[error("the connection request breaks a rule")]
    Violation(#[source] PeerViolation),
    /// The peer did not finish its request in time.
    #[error("no complete connection request within {seconds} s")]
    TimedOut {
        /// The time-out.
        seconds: u64,
    },
    /// The network or the system failed.
    #[error("the connection failed during set-up")]
    Io(#[source] io::Error),
    /// The caller asked for something that the provider cannot do.
    #[error("the answer itself cannot be made: {0}")]
    Misuse(RefusedReason),
}

/// A rule of the provider's protocol that the peer broke.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{protocol}: {rule}")]
pub struct PeerViolation {
    /// The protocol: `MPA`, `DDP`, `RDMAP`.
    pub protocol: &'static str,
    /// The breach, in the protocol's words, with the numbers that matter.
    pub rule: String,
}

/// The provider did not accept what the caller gave it, and hands it back.
#[derive(Debug, thiserror::Error)]
#[error("{reason}")]
pub struct Refused<T> {
    /// Why.
    pub reason: RefusedReason,
    /// What the caller gave.
    pub returned: T,
}

/// Why a provider did not accept a piece of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RefusedReason {
    /// A limit of the [`Capabilities`](crate::Capabilities).
    #[error("{what} is limited to {max}")]
    Limit {
        /// The limited thing.
        what: &'static str,
        /// The limit.
        max: usize,
    },
    /// The provider or the connection has no such operation.
    #[error("{0} is not available here")]
    Unsupported(&'static str),
    /// Nothing to send, read or expose.
    #[error("there are no bytes to work on")]
    Empty,
    /// The device cannot register the memory. The system's limit on locked memory may be too low; the provider's log
    /// says more.
    #[error("the memory cannot be registered with the device")]
    Registration,
    /// The connection has ended.
    #[error("the connection has ended")]
    Closed,
}

/// How a piece of work failed. For logs: devices report the same error in different words, and some report only a
/// flush.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WorkError {
    /// The connection ended first.
    #[error("the connection ended first")]
    Flushed,
    /// A Send of the peer was longer than the receive, or an operation was longer than its buffer.
    #[error("the message does not fit the buffer")]
    LocalLength,
    /// The peer does not allow the access: unknown handle, out of bounds, or no right to read or write.
    #[error("the peer does not allow the access")]
    RemoteAccess,
    /// The peer could not do the operation.
    #[error("the peer could not do it")]
    RemoteOperation,
    /// The peer had no receive for a Send, for longer than the device waits.
    #[error("the peer has no receive for it")]
    NoReceive,
    /// The peer does not answer.
    #[error("the peer does not answer")]
    Unreachable,
    /// The network or the device failed.
    #[error("the fabric failed")]
    Fabric,
}

/// Why a connection ended. For logs: not every device distinguishes a peer's orderly disconnect from its death.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CloseReason {
    /// We ended it.
    #[error("ended from this side")]
    Local,
    /// The peer ended it in an orderly manner.
    #[error("ended by the peer")]
    Remote,
    /// The peer broke a rule. If the protocol has a message for it, we have sent it.
    #[error("the peer broke a rule: {0}")]
    Violation(PeerViolation),
    /// The peer says that we broke a rule, or that it failed.
    #[error("the peer terminated the connection: {0}")]
    Terminated(String),
    /// The peer did not accept sent data for too long, or its host acknowledged nothing.
    #[error("the peer has taken nothing for {seconds} s")]
    Stalled {
        /// For how long.
        seconds: u64,
    },
    /// The network or the device failed.
    #[error("the connection broke: {0}")]
    Broken(String),
}
