//! What a connection asks its driver to do, and the names that it gives to things.

use crate::{CallError, CloseCause, ExposeError, Link, extension::Received};
use bytes::Bytes;
use rpcrdma_env::Slices;
use rpcrdma_wire::{chunk::Segment, v2::Properties};
use rpcrdma_xdr::Payload;
use smallvec::SmallVec;
use std::ops::Range;

/// The driver's name for a call of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallId(pub u64);

/// The engine's name for a call of the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

/// The engine's name for memory that it had exposed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ExposureId(pub u64);

/// What memory that the peer writes to is for.
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
    /// The call it belongs to.
    pub call: CallId,
    /// What it is for.
    pub place: SinkPlace,
    /// The most bytes that will be written.
    pub octets: usize,
}

/// What the engine asks its driver on the spot, while it builds a message.
pub trait Host {
    /// Lets the peer read `octets`. The segment's length is that of `octets`.
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
    /// Pulled bytes of one item, at whose place the stream goes on after its padding. Empty for an empty item.
    Item(Range<usize>),
}

/// A received call in pieces: mostly one, or an item and what stands before and after it.
pub type Pieces = SmallVec<[Piece; 1]>;

/// What a service says to a call.
#[derive(Clone, Debug)]
pub enum Answer {
    /// A reply message.
    Reply(Payload),
    /// The call placed directly what may not be (RFC 8166 section 6.1): it is refused as a whole.
    NotEligible,
    /// The call's chunks could not be fetched, here or on an earlier connection: it is refused as a whole.
    Unreadable,
    /// Nothing.
    Nothing,
}

/// Where the stream of a reply is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReplyBase {
    /// It came with the header.
    Inline(Bytes),
    /// It is in the sink of the Reply chunk.
    Chunk {
        /// Its bytes.
        octets: usize,
    },
}

/// What became of the Write chunk of one eligible result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlacedItem {
    /// Bytes that were offered; 0 if the result had to come inline.
    pub offered: usize,
    /// Bytes that the peer says it has written.
    pub returned: usize,
}

/// A reply, all of its memory fenced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplyParts {
    /// The reduced stream.
    pub base: ReplyBase,
    /// One for each eligible result of the call.
    pub items: SmallVec<[PlacedItem; 1]>,
}

/// Why version 2 is not spoken though we asked for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NoVersion2 {
    /// The server speaks these versions.
    Range {
        /// The lowest.
        low: u32,
        /// The highest.
        high: u32,
    },
    /// The server answered with an error that says nothing about versions.
    OtherError,
}

/// How a connection is spoken on.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Negotiated {
    /// The version of RPC-over-RDMA.
    pub version: u32,
    /// Why it is not version 2, if we asked for that.
    pub refused: Option<NoVersion2>,
    /// Thresholds, and what Sends may invalidate.
    pub link: Link,
    /// Credits of ours: calls in version 1, messages in version 2.
    pub credits: u32,
    /// The most credits of the peer that we accept, as far as we know it; zero in version 1, where replies say it.
    pub peer_credits: u32,
    /// What the peer has announced (version 2).
    pub peer: Option<Properties>,
    /// Whether an authenticator has accepted the peer (version 2).
    pub authenticated: bool,
}

/// What kind of message was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MessageKind {
    /// Our call.
    Call,
    /// Our probe, which finds out whether the peer is alive.
    Probe,
    /// A reply to the peer's call.
    Reply,
    /// An error instead of a reply.
    Error,
    /// A part of a call or reply that is not the last (version 2).
    Part,
    /// Credits and nothing else (version 2).
    Grant,
    /// Transport properties (version 2).
    Properties,
    /// A header type of an extension's (version 2).
    Extension,
}

/// A summary of a message, for those who watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent {
    /// What it is.
    pub kind: MessageKind,
    /// Its XID.
    pub xid: u32,
    /// The credit value in its header; in version 2 what it adds.
    pub credit: u32,
    /// Bytes in the Send: header and inline stream.
    pub inline_octets: usize,
    /// Bytes in chunks that the peer pulls, or that were written to the peer's chunks.
    pub placed_octets: u64,
    /// Read chunks, the Position Zero chunk included.
    pub read_chunks: usize,
    /// Write chunks.
    pub write_chunks: usize,
    /// Whether there is a Reply chunk.
    pub reply_chunk: bool,
    /// The handle of the peer's that the Send invalidates.
    pub invalidates: Option<u32>,
}

/// What the driver has to do, in this order.
#[derive(Debug)]
#[non_exhaustive]
pub enum Action {
    /// Post this many more receives of [`Config::receive_octets`](crate::Config::receive_octets).
    PostReceives {
        /// How many.
        count: usize,
    },
    /// Post a Send of these slices. If `signaled`, say [`drained`](crate::Endpoint::drained) when it is done.
    Send {
        /// Header, then inline stream.
        octets: Slices,
        /// A handle of the peer to invalidate.
        invalidate: Option<u32>,
        /// Whether the driver must report its completion.
        signaled: bool,
        /// What it is.
        about: Sent,
    },
    /// Post an RDMA Write of these slices.
    Write {
        /// The XID of the call whose result it is. If the peer's memory cannot be written, and the same XID comes again
        /// on another connection, we refuse that call (RFC 8166 section 4.5.3).
        xid: u32,
        /// Handle, bytes, and where they go.
        to: Segment,
        /// The bytes.
        octets: Slices,
    },
    /// Fetch the call's chunks by RDMA Read, all into one buffer, as soon as there is one, then say
    /// [`pulled`](crate::Endpoint::pulled).
    Pull {
        /// For which call.
        request: RequestId,
        /// The call's XID.
        xid: u32,
        /// The beginning of the call, as far as it came with the message; empty if the whole call has to be fetched.
        head: Bytes,
        /// How many bytes in all.
        octets: usize,
        /// From where, in order.
        sources: SmallVec<[Segment; 1]>,
    },
    /// End an exposure; [`fenced`](crate::Endpoint::fenced) follows.
    Invalidate {
        /// Whose.
        exposure: ExposureId,
        /// Its handle.
        handle: u32,
    },
    /// Execute a call of the peer, then say [`answer`](crate::Endpoint::answer).
    Deliver {
        /// Its name.
        request: RequestId,
        /// Its XID.
        xid: u32,
        /// Its stream. Ranges are those of the buffer that was pulled.
        pieces: Pieces,
    },
    /// A call of ours was answered. The engine has forgotten it.
    Complete {
        /// Which.
        call: CallId,
        /// The reply.
        reply: ReplyParts,
    },
    /// A call of ours failed. The engine has forgotten it.
    Fail {
        /// Which.
        call: CallId,
        /// Why.
        error: CallError,
    },
    /// The memory of a call that was cancelled is fenced.
    Cancelled {
        /// Which.
        call: CallId,
    },
    /// The memory of a call that was forgotten is fenced.
    Released {
        /// Which.
        call: CallId,
    },
    /// The peer has answered a probe: it is alive, and slow.
    Alive,
    /// It is settled how the connection is spoken on. Said once.
    Negotiated(Negotiated),
    /// Something for the extension of version 2.
    Extension(Received),
    /// End the connection.
    Close(CloseCause),
}
