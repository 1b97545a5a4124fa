//! The queue pair: posting work, lending memory, polling for what happened.

use crate::{Capabilities, FenceCause, Lent, Refused, WorkError, error::CloseReason};
use bytes::Bytes;
use rpcrdma_env::{Buffer, Slices};
use std::{
    net::SocketAddr,
    task::{Context, Poll},
};

/// The caller's name for a piece of work or an exposure. The provider gives it back and reads nothing into it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(pub u64);

/// A place in the peer's memory, or in ours as the peer sees it. RPC-over-RDMA headers and RDMA Read requests write it
/// as handle (32 bits), length (32 bits), offset (64 bits).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct RemoteSegment {
    /// The handle, also called steering tag or remote key.
    pub handle: u32,
    /// Bytes.
    pub length: u32,
    /// Where the first byte is: an address or an offset, as the exposing side has announced.
    pub offset: u64,
}

/// A Send.
#[derive(Debug, Default)]
pub struct Send {
    /// Named in the completion.
    pub token: Token,
    /// What to send, in this order: one message.
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
pub struct Write {
    /// Named in the completion.
    pub token: Token,
    /// What to write, in this order.
    pub octets: Slices,
    /// The peer's handle.
    pub handle: u32,
    /// Where the first byte goes.
    pub offset: u64,
    /// Report success with [`Completion::Done`]. Failure is always reported before that; without that, also when the
    /// peer refuses bytes that had left already, as far as the provider learns which they were.
    pub signaled: bool,
}

/// RDMA Reads that fill one buffer from several places, in order. One completion reports them all.
#[derive(Debug)]
pub struct Read {
    /// Named in the completion.
    pub token: Token,
    /// Where the bytes go. Its length is set to their number when all have come.
    pub sink: Buffer,
    /// The segments to read, in order.
    pub sources: Vec<RemoteSegment>,
}

/// What kind of work a completion is about.
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

/// Something that happened on a queue pair.
#[derive(Debug)]
#[non_exhaustive]
pub enum Completion {
    /// A Send of the peer has arrived. Everything that the peer wrote before it is in place.
    Received {
        /// The receive that the message is in; the buffer has the message's length.
        buffer: Buffer,
        /// The handle of ours that the peer's Send has invalidated. The exposure's own [`Completion::Fenced`] came
        /// before.
        invalidated: Option<u32>,
    },
    /// A signaled Send or Write no longer needs its bytes. They may not have arrived: a peer can still refuse them. No
    /// other completion follows for this work.
    Done {
        /// The work's token.
        token: Token,
        /// What it was.
        kind: WorkKind,
    },
    /// All bytes of a [`Read`] are in the sink.
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
        /// What it was.
        kind: WorkKind,
        /// Why.
        error: WorkError,
        /// The sink or receive.
        buffer: Option<Buffer>,
    },
    /// The connection is over and everything has come back. Nothing follows.
    Closed {
        /// Why.
        reason: CloseReason,
    },
}

/// What is known of a connection when it is made.
#[derive(Clone, Debug)]
pub struct ConnectionInfo {
    /// Our address.
    pub local: SocketAddr,
    /// The peer's address.
    pub peer: SocketAddr,
    /// The private data in the peer's request or answer. Some providers pad it with zeros or put words before it.
    pub private_data: Bytes,
    /// RDMA Reads of the peer that we serve at a time, as agreed. Zero: the peer may issue none.
    pub ird: u16,
    /// RDMA Reads of ours under way at a time, as agreed. Zero: we may issue none.
    pub ord: u16,
}

/// One end of a reliable connection. See the [crate's documentation](crate) for how to drive it.
///
/// It is polled in the runtime in which it was connected or accepted: its descriptors belong there.
pub trait QueuePair: std::marker::Send {
    /// What is known of the connection.
    fn info(&self) -> &ConnectionInfo;

    /// What this queue pair can do.
    fn capabilities(&self) -> &Capabilities;

    /// Posts a receive. The peer's next Send that finds no earlier one goes into it, over its whole capacity.
    ///
    /// # Errors
    /// [`RefusedReason::Limit`](crate::RefusedReason::Limit) above [`Capabilities::max_receives`]. After the
    /// connection's end it is not an error: the receive comes back flushed. Only after [`Completion::Closed`], the last
    /// completion, it is refused as [`RefusedReason::Closed`](crate::RefusedReason::Closed).
    fn post_receive(&mut self, buffer: Buffer) -> Result<(), Refused<Buffer>>;

    /// How many receives are posted and unused, without those of a shared pool.
    fn posted_receives(&self) -> usize;

    /// Posts a Send. It leaves after all Sends and Writes posted before it.
    ///
    /// # Errors
    /// If the Send exceeds a limit of the [`Capabilities`], asks for an invalidation that the provider cannot do, or
    /// the connection has ended.
    fn post_send(&mut self, send: Send) -> Result<(), Refused<Send>>;

    /// Posts an RDMA Write. A Send posted after it arrives only when its bytes are in place.
    ///
    /// # Errors
    /// A limit of the [`Capabilities`], or a connection that has ended.
    fn post_write(&mut self, write: Write) -> Result<(), Refused<Write>>;

    /// Posts RDMA Reads. They may finish after Sends posted later. More than [`ConnectionInfo::ord`] wait their turn.
    ///
    /// # Errors
    /// A limit of the [`Capabilities`], a sink that is too small, an ORD of zero, or a connection that has ended.
    fn post_read(&mut self, read: Read) -> Result<(), Refused<Read>>;

    /// Lends memory to the peer, and says at once how the peer names it. The handle is as unpredictable as
    /// [`Capabilities::unpredictable_handle_bits`] says and is used again as late as possible. A provider that binds a
    /// window does so before any Send that is posted later; one that registers memory instead may sleep in the kernel
    /// for it.
    ///
    /// # Errors
    /// A limit of the [`Capabilities`], empty memory, or a connection that has ended. The memory is in the error.
    fn expose(&mut self, token: Token, memory: Lent) -> Result<RemoteSegment, Refused<Lent>>;

    /// Ends an exposure. [`Completion::Fenced`] follows. A handle that is known to be no longer exposed is ignored.
    ///
    /// Devices differ in what they do when the peer's Send with Invalidate of the same handle is on its way: some end
    /// the connection. While such a Send may still come, invalidate only what must not stay exposed at any price.
    fn invalidate(&mut self, handle: u32);

    /// Ends the connection in an orderly manner after what is posted, as far as the peer takes it within the provider's
    /// time limit. [`Completion::Closed`] follows.
    fn disconnect(&mut self);

    /// Moves bytes, and says what happened next. After [`Completion::Closed`] it stays pending.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Completion>;
}
