//! Why a call fails, a connection is closed, or a command is refused.

use rpcrdma_wire::{v1::ErrorBody, v2};

/// A rule that the peer broke.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PeerFault {
    /// The peer sends more calls than it has credits for (RFC 8166 section 3.3.1).
    #[error("more calls than credits")]
    CreditsOverrun,
    /// The peer sends messages that need an answer faster than it takes the answers.
    #[error("it sends faulty messages faster than it takes the answers")]
    AnswersNotTaken,
    /// The chunks in the peer's reply are not the offered ones (RFC 8166 section 3.4.6).
    #[error("the reply's chunks are not those of the call")]
    ChunksChanged,
    /// The reply is in a Reply chunk that we never offered.
    #[error("the reply uses a Reply chunk that was not offered")]
    NoReplyChunk,
    /// A short reply says that its Reply chunk was used (RFC 8166 section 4.3.3).
    #[error("a short reply claims to use its Reply chunk")]
    ReplyChunkBesideMessage,
    /// The parts of the peer's reply do not belong together (version 2, section 6.2.2.2).
    #[error("the parts of the reply do not belong together")]
    BrokenSequence,
    /// The peer grants no credits, though answers or calls have been waiting for them (version 2).
    #[error("it grants no credits, although messages wait for them")]
    NoCredits,
    /// The peer begins a message and does not finish it (version 2).
    #[error("a message in parts was not finished in time")]
    Unfinished,
    /// The parts of the peer's reply are more than we join.
    #[error("the reply in parts is above the limit")]
    TooLong,
}

impl PeerFault {
    /// The rule, as text.
    pub fn rule(self) -> &'static str {
        match self {
            PeerFault::CreditsOverrun => "a requester must not send more calls than it has credits",
            PeerFault::AnswersNotTaken => "a requester must take the answers to its messages",
            PeerFault::ChunksChanged => "a reply must repeat the chunks of its call",
            PeerFault::NoReplyChunk => "a long reply needs a Reply chunk",
            PeerFault::ReplyChunkBesideMessage => "a short reply must leave the Reply chunk unused",
            PeerFault::BrokenSequence => "the parts of a reply must follow each other",
            PeerFault::NoCredits => "every message must grant at least one credit",
            PeerFault::Unfinished => "a peer must finish a message that it has begun",
            PeerFault::TooLong => "a reply in parts must keep within the limit",
        }
    }
}

/// Why the engine closes the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CloseCause {
    /// The peer broke a rule, and we can no longer trust any of its messages.
    #[error("the peer broke a rule: {0}")]
    Peer(#[from] PeerFault),
    /// The peer did not answer, not even a probe.
    #[error("the peer is silent")]
    Silent,
    /// The server did not answer the first message of version 2 in time. It may speak version 1, on another connection.
    #[error("the server did not answer in version 2")]
    NoAnswer,
    /// The peer did not authenticate itself.
    #[error("the peer is not authenticated")]
    Unauthenticated,
    /// The ends have no version in common.
    #[error("the server speaks versions {low} to {high} of RPC-over-RDMA only")]
    NoCommonVersion {
        /// The lowest version of the server.
        low: u32,
        /// The highest version of the server.
        high: u32,
    },
}

/// Why memory could not be exposed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ExposeError {
    /// No buffer is free.
    #[error("no memory for the reply")]
    NoMemory,
    /// The connection has just ended. The call can be sent on another connection.
    #[error("the connection has ended")]
    Closed,
    /// The provider refuses.
    #[error("the provider cannot expose the memory")]
    Refused,
}

/// Why a call has no reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// The peer answered with `RDMA_ERROR`.
    #[error("the peer refused the message: {}", .0.name())]
    Remote(ErrorBody),
    /// The peer answered with `RDMA2_ERROR`, and the call cannot be sent in another way.
    #[error("the peer refused the message: {}", .0.name().unwrap_or("an unknown error"))]
    Rejected(v2::ErrorBody),
    /// The peer's reply breaks a rule.
    #[error("the peer broke a rule: {0}")]
    Peer(#[from] PeerFault),
    /// The call's memory could not be exposed.
    #[error("the call cannot be sent: {0}")]
    Expose(#[from] ExposeError),
    /// The call cannot be put into a message.
    #[error("the call cannot be sent: {0}")]
    Refused(#[from] CallRefused),
}

/// Why a call is refused before anything happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CallRefused {
    /// The XID belongs to a call that is not answered yet.
    #[error("the XID {xid:#010x} is in use")]
    XidInUse {
        /// The XID.
        xid: u32,
    },
    /// The call needs chunks, which do not exist in the reverse direction.
    #[error("a message of {len} bytes does not fit the inline threshold of {max}")]
    TooLargeInline {
        /// Bytes of header and message, or of the largest reply.
        len: usize,
        /// The threshold.
        max: usize,
    },
    /// A header with the chunks alone is longer than a message.
    #[error("a header of {len} bytes does not fit the inline threshold of {max}")]
    HeaderTooLarge {
        /// Bytes of the header.
        len: usize,
        /// The threshold.
        max: usize,
    },
    /// A chunk is longer than one exposure can be.
    #[error("a chunk of {len} bytes is above the limit of {max}")]
    ChunkTooLarge {
        /// Its bytes.
        len: usize,
        /// The limit.
        max: usize,
    },
    /// This end was configured not to call.
    #[error("calls are not enabled at this end")]
    NotEnabled,
}
