//! Why a call has no reply.

use super::TransportKind;
use std::{error::Error, net::SocketAddr, sync::Arc, time::Duration};

/// Why a call has no reply. Clones share their cause: one lost connection fails many calls.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TransportError {
    /// The first connection was refused or the server cannot be reached.
    #[error("cannot connect to {server}")]
    Unreachable {
        /// The server.
        server: SocketAddr,
        /// The error of connecting.
        source: Arc<dyn Error + Send + Sync>,
    },
    /// The connection was lost and could not be restored in time.
    #[error("the connection to {server} was lost and could not be restored for {} seconds", after.as_secs())]
    Lost {
        /// The server.
        server: SocketAddr,
        /// How long the client tried.
        after: Duration,
        /// Why the last attempt failed, if an attempt was made.
        source: Option<Arc<dyn Error + Send + Sync>>,
    },
    /// Something accepts connections there, and does not speak the protocol.
    #[error("{server} answers, but does not speak {service} over {over}")]
    NotSpoken {
        /// The server.
        server: SocketAddr,
        /// The protocol that it should speak, as the transport's options name it.
        service: &'static str,
        /// The transport.
        over: TransportKind,
        /// What it did instead: [`NoAnswer`], or what the set-up of a connection found wrong.
        source: Arc<dyn Error + Send + Sync>,
    },
    /// A program accepts connections there and has never sent anything.
    #[error(
        "{server} accepts connections but says nothing: it is stopped, has too much to do, or is no {service} server over {over}"
    )]
    SaysNothing {
        /// The server.
        server: SocketAddr,
        /// The protocol that it should speak, as the transport's options name it.
        service: &'static str,
        /// The transport.
        over: TransportKind,
        /// How long the client has tried, and on how many connections.
        source: NoAnswer,
    },
    /// The other end of an established connection did not answer a call in the reverse direction, or a server did not
    /// answer over UDP.
    #[error("{server} did not answer a call for {} seconds", after.as_secs())]
    NotAnswered {
        /// The end that was called.
        server: SocketAddr,
        /// How long the caller waited.
        after: Duration,
    },
    /// The server broke a rule of the protocol.
    #[error("{server} broke the protocol: {rule}")]
    Violation {
        /// The server.
        server: SocketAddr,
        /// The rule.
        rule: &'static str,
    },
    /// The server's transport answered with an error instead of a reply.
    #[error("{server} refused the message")]
    Remote {
        /// The server.
        server: SocketAddr,
        /// The server's error.
        source: RemoteError,
    },
    /// The reply is larger than the call allowed.
    #[error("the reply has {len} bytes, the call allowed {max}")]
    ReplyTooLarge {
        /// The reply's length, as far as it is known.
        len: usize,
        /// What the call allowed.
        max: usize,
    },
    /// The caller asked for what the transport cannot do.
    #[error("the call cannot be sent")]
    Misuse(#[from] Misuse),
    /// The provider does not lend the call's memory to the server, as when it cannot register any more. The call was
    /// not sent.
    #[error("the memory of the call cannot be lent to {server}")]
    NotLent {
        /// The server.
        server: SocketAddr,
    },
    /// The call had to be sent again, and its flavour could not sign it once more.
    #[error("the call to {server} cannot be sent again")]
    NotSigned {
        /// The server.
        server: SocketAddr,
        /// Why not.
        source: ContextError,
    },
    /// The transport was closed on this side.
    #[error("the connection was closed")]
    Closed,
}

/// The flavour cannot sign calls. The text says what to do about it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct ContextError {
    /// What is wrong, and what to do.
    pub text: Arc<str>,
}

impl ContextError {
    /// An error in words.
    pub fn new(text: impl Into<Arc<str>>) -> Self {
        Self { text: text.into() }
    }
}

/// An error that the peer's transport reported instead of delivering a call (RFC 8166 section 4.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RemoteError {
    /// ERR_VERS: the version of the transport protocol is not supported.
    #[error("it speaks versions {low} to {high} of RPC-over-RDMA")]
    Version {
        /// The lowest version that it speaks.
        low: u32,
        /// The highest.
        high: u32,
    },
    /// ERR_CHUNK: it could not parse the message or use its chunks.
    #[error("it could not use the message's chunks")]
    Chunk,
    /// Another error of version 2, `RDMA2_ERROR`.
    #[error("it answered {name} ({code})")]
    Other {
        /// `rdma_err`.
        code: u32,
        /// Its name in the draft.
        name: &'static str,
    },
}

/// Connections were accepted, and none of them brought an answer.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{connections} connections in {} s brought no answer to a call", after.as_secs())]
pub struct NoAnswer {
    /// How many connections.
    pub connections: u32,
    /// The time in which they were made.
    pub after: Duration,
    /// How the last one ended.
    pub source: Option<Arc<dyn Error + Send + Sync>>,
}

/// What a caller may not ask of a transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Misuse {
    /// The call is larger than the transport can send.
    #[error("a call of {len} bytes is above the limit of {max}")]
    CallTooLarge {
        /// The call's length.
        len: usize,
        /// The limit.
        max: usize,
    },
    /// The largest reply is larger than the transport can receive.
    #[error("a reply of up to {len} bytes is above the limit of {max}")]
    ReplyTooLarge {
        /// The largest reply's length.
        len: usize,
        /// The limit.
        max: usize,
    },
    /// A lent buffer is smaller than the item that it is for.
    #[error("a buffer of {capacity} bytes was lent for an item of up to {max_len}")]
    BufferTooSmall {
        /// The buffer's capacity.
        capacity: usize,
        /// The item's largest length.
        max_len: usize,
    },
    /// An outstanding call has the same XID.
    #[error("the XID {xid:#010x} is in use")]
    XidInUse {
        /// The XID.
        xid: u32,
    },
}
