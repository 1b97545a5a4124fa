//! The queue pair: posting work, lending memory, polling for completions.

use crate::{Capabilities, FenceCause, Lent, Refused, WorkError, error::CloseReason};
use bytes::Bytes;
use rpcrdma_env::{Buffer, Slices};
use std::{
    net::SocketAddr,
    task::{Context, Poll},
};

/// The caller's name for a piece of work or an exposure. The provider gives it back unchanged; it has no meaning for
/// the provider.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(pub u64);

/// A range of the peer's memory, or of ours as the peer sees it. RPC-over-RDMA headers and RDMA Read requests write it
/// as handle (32 bits), length (32 bits), offset (64 bits).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct RemoteSegment {
    /// The handle, also called steering tag or remote key.
    pub handle: u32,
    /// The length in bytes.
    pub length: u32,
    /// The position of the first byte: an address or an offset, as the exposing end has announced.
    pub offset: u64,
}

/// A Send.
#[derive(Debug, Default)]
pub struct SendWork {
    /// The name in the completion.
    pub token: Token,
    /// The bytes of one message, in this order.
    pub octets: Slices,
    /// The peer's handle to invalidate on arrival.
    pub invalidate: Option<u32>,
    /// Ask the peer for a solicited event.
    pub solicited: bool,
    /// Report success with [`Completion::Done`]. Failure is always reported.
    pub signaled: bool,
}

/// An RDMA Write.
#[derive(Debug, Default)]
pub struct WriteWork {
    /// The name in the completion.
    pub token: Token,
    /// The bytes to write, in this order.
    pub octets: Slices,
    /// The peer's handle.
    pub handle: u32,
    /// The position of the first byte.
    pub offset: u64,
    /// Report success with [`Completion::Done`]. Failure before that completion is always reported. Of unsignaled
    /// Writes, failure is also reported if the peer refuses bytes that had already left, as far as the provider learns
    /// which bytes they were.
    pub signaled: bool,
}

/// RDMA Reads that fill one buffer from several ranges, in order. One completion reports them all.
#[derive(Debug)]
pub struct ReadWork {
    /// The name in the completion.
    pub token: Token,
    /// The destination. Its length becomes the number of bytes when all have arrived.
    pub sink: Buffer,
    /// The segments to read, in order.
    pub sources: Vec<RemoteSegment>,
}

/// The kind of work to which a completion belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkKind {
    /// A Send.
    Send,
    /// An RDMA Write.
    Write,
    /// An RDMA Read.
    Read,
    /// A posted receive.
    Receive,
}

/// A completion of a queue pair.
#[derive(Debug)]
#[non_exhaustive]
pub enum Completion {
    /// A Send of the peer has arrived. Everything that the peer wrote before it is in place.
    Received {
        /// The receive with the message; the buffer has the message's length.
        buffer: Buffer,
        /// The handle that the peer's Send has invalidated. The exposure's own [`Completion::Fenced`] came before.
        invalidated: Option<u32>,
    },
    /// A signaled Send or Write no longer needs its bytes. They may not have arrived: a peer can still refuse them. No
    /// other completion follows for this work.
    Done {
        /// The work's token.
        token: Token,
        /// The kind of work.
        kind: WorkKind,
    },
    /// All bytes of a [`ReadWork`] are in the sink.
    Read {
        /// The work's token.
        token: Token,
        /// The sink, filled.
        sink: Buffer,
    },
    /// An exposure has ended: the peer can no longer reach the memory.
    Fenced {
        /// The exposure's token.
        token: Token,
        /// Its former handle.
        handle: u32,
        /// The memory.
        memory: Lent,
        /// What ended it.
        cause: FenceCause,
    },
    /// Work failed, or was still open when the connection ended ([`WorkError::Flushed`]).
    Failed {
        /// The work's token; for a receive it has no meaning.
        token: Token,
        /// The kind of work.
        kind: WorkKind,
        /// The reason.
        error: WorkError,
        /// The sink of a Read, or the receive.
        buffer: Option<Buffer>,
    },
    /// The connection is over and everything has come back. Nothing follows.
    Closed {
        /// The reason.
        reason: CloseReason,
    },
}

/// What both ends know when the connection is made.
#[derive(Clone, Debug)]
pub struct ConnectionInfo {
    /// Our address.
    pub local: SocketAddr,
    /// The peer's address.
    pub peer: SocketAddr,
    /// The private data in the peer's request or answer. Some providers pad it with zeros or put words before it.
    pub private_data: Bytes,
    /// The agreed number of RDMA Reads of the peer that we serve at a time. Zero: the peer may issue none.
    pub ird: u16,
    /// The agreed number of our RDMA Reads under way at a time. Zero: we may issue none.
    pub ord: u16,
}

/// One end of a reliable connection. See the [crate's documentation](crate) for how to drive it.
///
/// Poll it in the runtime in which it was connected or accepted: its descriptors belong there.
pub trait QueuePair: Send {
    /// The facts of the connection.
    fn info(&self) -> &ConnectionInfo;

    /// What this queue pair can do.
    fn capabilities(&self) -> &Capabilities;

    /// Posts a receive. The peer's Sends use receives in the order of posting, each over its whole capacity.
    ///
    /// # Errors
    /// [`RefusedReason::Limit`](crate::RefusedReason::Limit) above [`Capabilities::max_receives`]. After the
    /// connection's end it is not an error: the receive comes back flushed. Only after [`Completion::Closed`], the last
    /// completion, it is refused as [`RefusedReason::Closed`](crate::RefusedReason::Closed).
    fn post_receive(&mut self, buffer: Buffer) -> Result<(), Refused<Buffer>>;

    /// How many receives are posted and unused, without those of a shared pool.
    fn posted_receives(&self) -> usize;

    /// Posts a Send. It leaves after all Sends and Writes that were posted before it.
    ///
    /// # Errors
    /// If the Send exceeds a limit of the [`Capabilities`], asks for an invalidation that the provider cannot do, or
    /// the connection has ended.
    fn post_send(&mut self, send: SendWork) -> Result<(), Refused<SendWork>>;

    /// Posts an RDMA Write. A Send that is posted after it arrives only when the written bytes are in place.
    ///
    /// # Errors
    /// A limit of the [`Capabilities`], or a connection that has ended.
    fn post_write(&mut self, write: WriteWork) -> Result<(), Refused<WriteWork>>;

    /// Posts RDMA Reads. They may finish after Sends that are posted later. Reads beyond [`ConnectionInfo::ord`] wait
    /// for their turn.
    ///
    /// # Errors
    /// A limit of the [`Capabilities`], a sink that is too small, an ORD of zero, or a connection that has ended.
    fn post_read(&mut self, read: ReadWork) -> Result<(), Refused<ReadWork>>;

    /// Lends memory to the peer, and returns at once how the peer names it. The handle is as unpredictable as
    /// [`Capabilities::unpredictable_handle_bits`] says, and is used again as late as possible. A provider that binds a
    /// window does so before any Send that is posted later; a provider that registers memory instead may sleep in the
    /// kernel for it.
    ///
    /// # Errors
    /// A limit of the [`Capabilities`], empty memory, or a connection that has ended. The memory is in the error.
    fn expose(&mut self, token: Token, memory: Lent) -> Result<RemoteSegment, Refused<Lent>>;

    /// Ends an exposure. [`Completion::Fenced`] follows. A handle that is known to be no longer exposed is ignored.
    ///
    /// Devices differ in what they do if the peer's Send with Invalidate of the same handle is on its way: some end the
    /// connection. While such a Send may still come, invalidate only memory that must not stay exposed at any price.
    fn invalidate(&mut self, handle: u32);

    /// Ends the connection in an orderly manner after the posted work, as far as the peer accepts it within the
    /// provider's time limit. [`Completion::Closed`] follows.
    fn disconnect(&mut self);

    /// Whether the next [`poll`](Self::poll) is sure to return a completion that has already come; `false` if the
    /// provider cannot tell.
    fn has_completion(&self) -> bool {
        false
    }

    /// Moves bytes, and returns the next completion. After [`Completion::Closed`] it stays pending.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Completion>;
}
