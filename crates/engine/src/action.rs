//! The actions that a connection asks its driver for, and its names for calls and memory.

use crate::{CallError, CloseCause, ExposeError, Link, extension::Received};
use bytes::Bytes;
use rpcrdma_env::Slices;
use rpcrdma_wire::{chunk::Segment, v2::Properties};
use rpcrdma_xdr::Payload;
use smallvec::SmallVec;
use std::ops::Range;

/// The driver's name for a call that it makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallId(pub u64);

/// The engine's name for a call that the peer makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

/// The engine's name for memory that was exposed for a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ExposureId(pub u64);

/// The purpose of memory to which the peer writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SinkPlace {
    /// The eligible result with this index.
    Item(usize),
    /// The Reply chunk.
    Reply,
}

/// Memory that the peer may write to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sink {
    /// The call to which it belongs.
    pub call: CallId,
    /// Its purpose.
    pub place: SinkPlace,
    /// The most bytes that the peer may write.
    pub octets: usize,
}

/// What the engine asks its driver for immediately, while it builds a message.
pub trait Host {
    /// Lets the peer read `octets`. The segment has the length of `octets`.
    ///
    /// # Errors
    /// If the provider refuses.
    fn expose_source(&mut self, exposure: ExposureId, octets: &Bytes) -> Result<Segment, ExposeError>;

    /// Lets the peer write to the memory of `sink`. The segment is at least as long as the sink.
    ///
    /// # Errors
    /// If there is no memory, or the provider refuses.
    fn expose_sink(&mut self, exposure: ExposureId, sink: Sink) -> Result<Segment, ExposeError>;

    /// An XID that no call of ours uses, for a probe.
    fn next_xid(&mut self) -> u32;
}

/// A piece of a received call, in stream order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// Bytes that came with the header.
    Inline(Bytes),
    /// Pulled bytes that belong to the stream itself.
    Run(Range<usize>),
    /// Pulled bytes of one item. Behind them the stream continues after the item's padding. Empty for an empty item.
    Item(Range<usize>),
}

/// A received call in pieces: usually one piece, or an item and the bytes before and after it.
pub type Pieces = SmallVec<[Piece; 1]>;

/// A service's answer to a call.
#[derive(Clone, Debug)]
pub enum Answer {
    /// A reply message.
    Reply(Payload),
    /// The call placed data directly that may not be placed (RFC 8166 section 6.1): we refuse the whole call.
    NotEligible,
    /// We could not fetch the call's chunks, on this connection or an earlier one: we refuse the whole call.
    Unreadable,
    /// No answer.
    Nothing,
}

/// The place of a reply's stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReplyBase {
    /// It came with the header.
    Inline(Bytes),
    /// The stream is in the sink of the Reply chunk.
    Chunk {
        /// The bytes of the stream.
        octets: usize,
    },
}

/// The use of the Write chunk of one eligible result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlacedItem {
    /// Bytes that we offered; 0 if the result had to come inline.
    pub offered: usize,
    /// Bytes that the peer says it has written.
    pub returned: usize,
}

/// A reply. All memory that was exposed for it is fenced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplyParts {
    /// The reduced stream.
    pub base: ReplyBase,
    /// One entry for each eligible result of the call.
    pub items: SmallVec<[PlacedItem; 1]>,
}

impl ReplyParts {
    /// The bytes of the reply: those of the reduced stream, and those that the peer says it has written.
    pub fn octets(&self) -> usize {
        let base = match &self.base {
            ReplyBase::Inline(stream) => stream.len(),
            ReplyBase::Chunk { octets } => *octets,
        };
        self.items.iter().fold(base, |octets, item| octets.saturating_add(item.returned))
    }
}

/// Why the connection does not use version 2 though we asked for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NoVersion2 {
    /// The server speaks the versions from `low` to `high`.
    Range {
        /// The lowest.
        low: u32,
        /// The highest.
        high: u32,
    },
    /// The server answered with an error that says nothing about versions.
    OtherError,
}

/// What both ends use on a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Negotiated {
    /// The version of RPC-over-RDMA.
    pub version: u32,
    /// If the version is not 2 though we asked for it: the reason.
    pub refused: Option<NoVersion2>,
    /// The thresholds, and whether our Sends may invalidate.
    pub link: Link,
    /// Our credits: calls in version 1, messages in version 2.
    pub credits: u32,
    /// The most credits of the peer that we accept, as far as we know it; zero in version 1, where each reply says it.
    pub peer_credits: u32,
    /// What the peer has announced (version 2).
    pub peer: Option<Properties>,
    /// Whether an authenticator has accepted the peer (version 2).
    pub authenticated: bool,
}

/// The kind of a sent message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MessageKind {
    /// A call that we make.
    Call,
    /// Our probe, which shows whether the peer is alive.
    Probe,
    /// A reply to the peer's call.
    Reply,
    /// An error instead of a reply.
    Error,
    /// A part of a call or reply that is not the last (version 2).
    Part,
    /// A grant of credits and nothing else (version 2).
    Grant,
    /// Transport properties (version 2).
    Properties,
    /// A message of an extension's header type (version 2).
    Extension,
}

/// A summary of a sent message, for observers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent {
    /// Its kind.
    pub kind: MessageKind,
    /// Its XID.
    pub xid: u32,
    /// The credit value in its header; in version 2 the credits that it adds.
    pub credit: u32,
    /// Bytes in the Send: header and inline stream.
    pub inline_bytes: usize,
    /// Bytes in chunks that the peer pulls, or that we wrote to the peer's chunks.
    pub placed_bytes: u64,
    /// Read chunks, the Position Zero chunk included.
    pub read_chunks: u32,
    /// Write chunks.
    pub write_chunks: u32,
    /// Whether it has a Reply chunk.
    pub reply_chunk: bool,
    /// The peer's handle that the Send invalidates.
    pub invalidates: Option<u32>,
}

impl Sent {
    /// A message of this kind without chunks and bytes.
    pub(crate) const fn of(kind: MessageKind) -> Self {
        Self {
            kind,
            xid: 0,
            credit: 0,
            inline_bytes: 0,
            placed_bytes: 0,
            read_chunks: 0,
            write_chunks: 0,
            reply_chunk: false,
            invalidates: None,
        }
    }
}

/// What the driver has to do, in the order in which it gets the actions.
#[derive(Debug)]
#[non_exhaustive]
pub enum Action {
    /// Post this many more receives of [`Config::receive_bytes`](crate::Config::receive_bytes).
    PostReceives {
        /// How many.
        count: usize,
    },
    /// Post a Send of these slices. If `signaled`, call [`drained`](crate::Endpoint::drained) when it is done.
    Send {
        /// Header, then inline stream.
        octets: Slices,
        /// Whether the driver must report its completion.
        signaled: bool,
        /// A summary of the message. It names the handle of the peer that the Send invalidates.
        about: Sent,
    },
    /// Post an RDMA Write of these slices.
    Write {
        /// The XID of the call whose result this is. If we cannot write to the peer's memory, and the same XID comes
        /// again on another connection, we refuse that call (RFC 8166 section 4.5.3).
        xid: u32,
        /// The destination: handle, length and offset.
        to: Segment,
        /// The bytes.
        octets: Slices,
    },
    /// Fetch the call's chunks by RDMA Read, all into one buffer, as soon as a buffer is free, then call
    /// [`pulled`](crate::Endpoint::pulled).
    Pull {
        /// The call.
        request: RequestId,
        /// The call's XID.
        xid: u32,
        /// The beginning of the call, as far as it came with the message; empty if all of the call is in chunks.
        head: Bytes,
        /// The bytes of all sources together.
        octets: usize,
        /// The segments to read, in order.
        sources: SmallVec<[Segment; 1]>,
    },
    /// End an exposure; [`fenced`](crate::Endpoint::fenced) follows.
    Invalidate {
        /// The exposure.
        exposure: ExposureId,
        /// Its handle.
        handle: u32,
    },
    /// Execute a call of the peer, then call [`answer`](crate::Endpoint::answer).
    Deliver {
        /// The engine's name for it.
        request: RequestId,
        /// Its XID.
        xid: u32,
        /// Its stream. Ranges lie in the buffer that was pulled.
        pieces: Pieces,
    },
    /// A call of ours has a reply. The engine has forgotten the call.
    Complete {
        /// The call.
        call: CallId,
        /// The reply.
        reply: ReplyParts,
    },
    /// A call of ours failed. The engine has forgotten the call.
    Fail {
        /// The call.
        call: CallId,
        /// The error.
        error: CallError,
    },
    /// The memory of a cancelled call is fenced.
    Cancelled {
        /// The call.
        call: CallId,
    },
    /// The memory of a forgotten call is fenced.
    Released {
        /// The call.
        call: CallId,
    },
    /// The peer has answered a probe: it is alive, and slow.
    Alive,
    /// Both ends have agreed on what the connection uses. Comes once.
    Negotiated(Negotiated),
    /// Something for the extension of version 2.
    Extension(Received),
    /// End the connection.
    Close(CloseCause),
}
