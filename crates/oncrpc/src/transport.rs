//! The seam between the RPC client and the transports that carry its messages.
//!
//! A [`Request`] lends the transport the call's bytes (shared) and the buffers for its results (exclusive).
//! The buffers come back in the [`Reply`], or by [`PendingCall::cancel`]; dropping a [`PendingCall`] leaves them
//! lent and owned by the connection, which returns them to their allocator once the peer cannot reach them any
//! more. When a call fails, its buffers go back to their allocator.

mod error;

use crate::{Silence, under_way::UnderWay};
pub use error::{ContextError, Misuse, NoAnswer, RemoteError, TransportError};
use rpcrdma_env::{BoxFuture, Buffer, Random};
use rpcrdma_xdr::{Payload, Stream, padded};
use smallvec::SmallVec;
use std::{
    fmt,
    future::Future,
    net::SocketAddr,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    task::{Context, Poll, ready},
};

/// The protocol that carries RPC messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum TransportKind {
    /// Record-marked TCP (RFC 5531 section 11).
    Tcp,
    /// RPC-over-RDMA (RFC 8166).
    Rdma,
    /// A message in each datagram of UDP.
    Udp,
}

impl fmt::Display for TransportKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tcp => "TCP",
            Self::Rdma => "RDMA",
            Self::Udp => "UDP",
        })
    }
}

/// How large messages may be on a transport, in bytes of the whole RPC message: header, items and padding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// The largest call.
    pub max_call: usize,
    /// The largest reply.
    pub max_reply: usize,
}

impl Limits {
    /// Limits of `max_call` and `max_reply` bytes.
    pub const fn new(max_call: usize, max_reply: usize) -> Self {
        Self { max_call, max_reply }
    }
}

/// A place for one result that may be placed directly.
#[derive(Debug)]
pub struct ItemRoom {
    /// The largest size of the item, in bytes, without padding.
    pub max_len: usize,
    /// The caller's buffer for it, of at least `max_len` bytes. Without one a transport that places data
    /// directly takes a buffer of its own allocator.
    pub buffer: Option<Buffer>,
}

impl ItemRoom {
    /// Room for an item of at most `max_len` bytes, in the transport's own memory.
    pub fn new(max_len: usize) -> Self {
        Self { max_len, buffer: None }
    }

    /// Room for an item in the caller's `buffer`, as large as the buffer.
    pub fn lend(buffer: Buffer) -> Self {
        Self { max_len: buffer.capacity(), buffer: Some(buffer) }
    }
}

/// How large the answer to a call can become.
#[derive(Debug, Default)]
pub struct ReplyShape {
    /// The largest size of the answer, in bytes, with every item and its padding in place. In a [`Request`] it is the
    /// whole RPC message; in a binding's statement the results alone.
    pub max_len: usize,
    /// One for each eligible result, in the order in which the binding marks them.
    pub items: SmallVec<[ItemRoom; 1]>,
}

impl ReplyShape {
    /// An answer of at most `max_len` bytes without eligible items.
    pub const fn inline(max_len: usize) -> Self {
        Self { max_len, items: SmallVec::new_const() }
    }

    /// The largest rest of the answer when every item travels on its own, together with its padding.
    pub fn reduced_len(&self) -> usize {
        self.items.iter().fold(self.max_len, |len, item| len.saturating_sub(padded(item.max_len)))
    }
}

/// A call as a transport sees it.
#[derive(Debug)]
pub struct Request {
    /// The XID in the message, from [`ClientTransport::next_xid`].
    pub xid: u32,
    /// The whole RPC call message.
    pub message: Payload,
    /// The largest whole RPC reply message, and room for its items.
    pub reply: ReplyShape,
    /// Whether executing the call twice does no harm. With some transports the server can answer that the reply did not
    /// fit the room offered for it; such a call is then sent again with more room, and any other fails.
    pub repeatable: bool,
    /// Makes the message of each further transmission, where no message may be sent twice. Without it, every
    /// transmission sends `message`.
    pub anew: Option<Arc<dyn Anew>>,
}

impl Request {
    /// Whether a transport with these limits can carry the call and its reply. Every transport asks this before it
    /// sends anything.
    ///
    /// # Errors
    /// If the call or its largest reply is too large, or a lent buffer smaller than the item that it is for.
    pub fn check(&self, limits: Limits) -> Result<(), Misuse> {
        let Limits { max_call, max_reply } = limits;
        if self.message.len() > max_call {
            return Err(Misuse::CallTooLarge { len: self.message.len(), max: max_call });
        }
        if self.reply.max_len > max_reply {
            return Err(Misuse::ReplyTooLarge { len: self.reply.max_len, max: max_reply });
        }
        for ItemRoom { max_len, buffer } in &self.reply.items {
            let capacity = buffer.as_ref().map_or(*max_len, Buffer::capacity);
            if capacity < *max_len {
                return Err(Misuse::BufferTooSmall { capacity, max_len: *max_len });
            }
        }
        Ok(())
    }
}

/// Makes a call's message once more, for a flavour by which each transmission has a credential and a verifier of its
/// own. A message that a transport has made is to be sent soon, and before those that are made later.
pub trait Anew: fmt::Debug + Send + Sync {
    /// The message of the next transmission.
    ///
    /// # Errors
    /// If the flavour cannot make it any more.
    fn message(&self) -> Result<Payload, TransportError>;
}

/// The answer to a call.
#[derive(Debug)]
pub struct Reply {
    /// The whole RPC reply message.
    pub stream: Stream,
    /// Whether the call was sent more than once, so that the server may have executed it more than once.
    pub retransmitted: bool,
}

/// What a cancelled call gives back.
#[derive(Debug, Default)]
pub struct Cancelled {
    /// The buffers that the caller had lent, in their order.
    pub buffers: Vec<Buffer>,
}

/// A call on its way, as a transport implements it.
pub trait CallInFlight: Future<Output = Result<Reply, TransportError>> + Send {
    /// Ends the exposure of the call's memory at once and gives the lent buffers back. The peer may still execute the
    /// call; if it writes to memory that is no longer exposed, the connection ends.
    fn cancel(self: Pin<Box<Self>>) -> BoxFuture<'static, Cancelled>;
}

/// A call on its way. Dropping it takes nothing back: the call's memory stays lent and belongs to the connection
/// until its reply, the connection's end or the transport's deadline for forgotten calls.
pub struct PendingCall {
    in_flight: Pin<Box<dyn CallInFlight>>,
    /// Counts the call as under way, if it is one of several connections'.
    under_way: Option<UnderWay>,
}

impl PendingCall {
    /// A call that `in_flight` carries out.
    pub fn new(in_flight: impl CallInFlight + 'static) -> Self {
        Self { in_flight: Box::pin(in_flight), under_way: None }
    }

    /// A call that failed before it was sent.
    pub fn failed(error: TransportError) -> Self {
        Self::new(Failed(Some(error)))
    }

    /// The same call, which counts as under way until it has ended or this is dropped.
    pub(crate) fn counted(self, under_way: UnderWay) -> Self {
        Self { under_way: Some(under_way), ..self }
    }

    /// Takes the call back: see [`CallInFlight::cancel`].
    pub async fn cancel(self) -> Cancelled {
        let Self { in_flight, under_way } = self;
        drop(under_way);
        in_flight.cancel().await
    }
}

impl Future for PendingCall {
    type Output = Result<Reply, TransportError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let ended = ready!(self.in_flight.as_mut().poll(cx));
        if let Some(under_way) = self.under_way.take() {
            under_way.end(ended.is_ok());
        }
        Poll::Ready(ended)
    }
}

impl std::fmt::Debug for PendingCall {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PendingCall")
    }
}

struct Failed(Option<TransportError>);

impl Future for Failed {
    type Output = Result<Reply, TransportError>;

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
        Poll::Ready(Err(self.0.take().unwrap_or(TransportError::Closed)))
    }
}

impl CallInFlight for Failed {
    fn cancel(self: Pin<Box<Self>>) -> BoxFuture<'static, Cancelled> {
        Box::pin(std::future::ready(Cancelled::default()))
    }
}

/// Sends calls and brings their replies. One object represents one server, however often its connection is replaced,
/// and may be shared by clients of several programs.
pub trait ClientTransport: Send + Sync {
    /// The XID for the next call. No two outstanding calls of one transport share one.
    fn next_xid(&self) -> u32;

    /// Sends a call. Its memory is lent from this moment on.
    fn call(&self, request: Request) -> PendingCall;

    /// What kind of transport it is.
    fn kind(&self) -> TransportKind;

    /// How large messages may be now. May change when the transport has to connect again.
    fn limits(&self) -> Limits;

    /// The server.
    fn server(&self) -> SocketAddr;

    /// Whether calls wait for a silent server, if the transport can tell.
    fn silence(&self) -> Option<Arc<Silence>> {
        None
    }

    /// The caller has found that the peer no longer answers: ends the connection, with `why` as the reason. A client's
    /// own transport finds that out by itself, and does nothing here.
    fn give_up(&self, why: &'static str) {
        let _ = why;
    }

    /// The transports that it is made of, if it spreads calls over several ([`Spread`](crate::Spread)): for messages
    /// that must go out on each connection.
    fn members(&self) -> Vec<Arc<dyn ClientTransport>> {
        Vec::new()
    }
}

/// Hands out XIDs: consecutive, from a random start for each connection object, so that a restarted client does not
/// meet its predecessor's entries in a duplicate request cache.
#[derive(Debug)]
pub struct XidSource(AtomicU32);

impl XidSource {
    /// A source that starts at a random XID.
    pub fn new(random: &dyn Random) -> Self {
        Self(AtomicU32::new(random.next_u32()))
    }

    /// A source that starts at this XID.
    pub(crate) fn starting_at(first: u32) -> Self {
        Self(AtomicU32::new(first))
    }

    /// The next XID. It is never zero, which version 2 of RPC-over-RDMA uses for messages that concern no call.
    pub fn next_xid(&self) -> u32 {
        loop {
            let xid = self.0.fetch_add(1, Ordering::Relaxed);
            if xid != 0 {
                return xid;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rpcrdma_env::SeededRandom;

    /// proves: RPC-5531-9-a
    #[test]
    fn xids_start_anywhere_and_do_not_repeat_soon() {
        let a = XidSource::new(&SeededRandom::new(1));
        let b = XidSource::new(&SeededRandom::new(2));
        let first = a.next_xid();
        assert_ne!(first, b.next_xid());
        assert_eq!(a.next_xid(), first.wrapping_add(1));
    }

    /// proves: V2-6.3.2-g
    #[test]
    fn no_xid_is_zero() {
        let xids = XidSource(AtomicU32::new(u32::MAX));
        assert_eq!([xids.next_xid(), xids.next_xid(), xids.next_xid()], [u32::MAX, 1, 2]);
    }

    #[test]
    fn a_reduced_reply_leaves_items_and_padding_out() {
        let shape = ReplyShape { max_len: 100, items: vec![ItemRoom::new(5), ItemRoom::new(8)].into() };
        assert_eq!(shape.reduced_len(), 100 - 8 - 8);
        let buffer = Buffer::from_vec(vec![0; 9]);
        assert_eq!(ItemRoom::lend(buffer).max_len, 9);
    }

    #[test]
    fn a_request_is_checked_at_each_limit_and_one_past_it() {
        let checked = |call: usize, reply: usize, room: usize, lent: usize| {
            let mut message = Payload::new();
            message.push_run(vec![0; call].into());
            let mut item = ItemRoom::lend(Buffer::from_vec(vec![0; lent]));
            item.max_len = room;
            let items = [ItemRoom::new(1 << 20), item].into_iter().collect();
            let reply = ReplyShape { max_len: reply, items };
            Request { xid: 1, message, reply, repeatable: false, anew: None }.check(Limits::new(100, 200))
        };
        assert_eq!(checked(100, 200, 8, 8), Ok(()));
        assert_eq!(checked(101, 200, 8, 8), Err(Misuse::CallTooLarge { len: 101, max: 100 }));
        assert_eq!(checked(100, 201, 8, 8), Err(Misuse::ReplyTooLarge { len: 201, max: 200 }));
        assert_eq!(checked(100, 200, 9, 8), Err(Misuse::BufferTooSmall { capacity: 8, max_len: 9 }));
    }

    #[tokio::test]
    async fn a_call_that_failed_early_says_why() {
        let misuse = Misuse::CallTooLarge { len: 2, max: 1 };
        let failed = PendingCall::failed(misuse.into()).await;
        assert!(matches!(failed, Err(TransportError::Misuse(Misuse::CallTooLarge { len: 2, max: 1 }))));
        assert!(PendingCall::failed(TransportError::Closed).cancel().await.buffers.is_empty());
    }
}
