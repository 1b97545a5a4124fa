//! Calls of ours: the memory that callers lend, and what they get back.
//!
//! The table owns a call's message (shared bytes) and, whenever they are not exposed, its buffers, for as long as a
//! caller waits for the call, across connections. Each call ends with a message to its caller, to its canceller, or to
//! neither; its buffers go with the reply, to the canceller, or back to their allocator.

use crate::Event;
use foldhash::HashMap;
use rpcrdma_engine::{CallError, CallId, CallRefused, ExposeError, ReplyBase, ReplyParts, SinkPlace, v1, v2};
use rpcrdma_env::{Allocator, BoxFuture, Buffer, few};
use rpcrdma_oncrpc::{
    Anew, CallInFlight, Cancelled, GivingUp, Limits, Misuse, PendingCall, RemoteError, Reply, Request, TransportError,
    XidSource,
};
use rpcrdma_xdr::{Payload, Placed, Stream};
use smallvec::SmallVec;
use std::{
    collections::hash_map,
    future::Future,
    net::SocketAddr,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    task::{Context, Poll},
};
use tokio::sync::{mpsc, oneshot};

type Answered = Result<Reply, TransportError>;

/// The engine's name for a call: a number, and in its low half the XID, by which the table finds the call.
fn name(number: u32, xid: u32) -> CallId {
    CallId(u64::from(number) << u32::BITS | u64::from(xid))
}

/// The XID of the call with this name.
pub(crate) fn xid_of(id: CallId) -> u32 {
    // The cast takes the low half.
    id.0 as u32
}

/// A caller's command to a driver.
#[derive(Debug)]
pub(crate) enum Command {
    /// Make a call. It goes from place to place in a box, because it is large.
    Call(Box<Call>),
    /// Cancel a call.
    Cancel(CallId, oneshot::Sender<Cancelled>),
    /// Forget a call, for which no caller waits any more.
    Forget(CallId),
}

/// The callers' end of a driver: makes pending calls.
#[derive(Debug)]
pub(crate) struct Caller {
    /// Unbounded: each entry is a call whose memory belongs to its caller, who waits for it. Each call has a share of
    /// this one sender, because a sender of its own would cost twice as many counters.
    commands: Arc<mpsc::UnboundedSender<Command>>,
    next: AtomicU32,
    pub(crate) xids: Arc<XidSource>,
    pub(crate) server: SocketAddr,
    max_message: usize,
    /// For the driver of a server's connection: whether a caller gives the peer up.
    pub(crate) giving_up: Arc<GivingUp>,
}

impl Caller {
    pub(crate) fn new(
        xids: Arc<XidSource>,
        server: SocketAddr,
        max_message: usize,
    ) -> (Self, mpsc::UnboundedReceiver<Command>) {
        let (commands, receiver) = mpsc::unbounded_channel();
        let giving_up = Arc::default();
        let commands = Arc::new(commands);
        (Self { commands, next: AtomicU32::new(0), xids, server, max_message, giving_up }, receiver)
    }

    pub(crate) fn call(&self, request: Request) -> PendingCall {
        if let Err(misuse) = request.check(self.limits()) {
            return PendingCall::failed(misuse.into());
        }
        let id = name(self.next.fetch_add(1, Ordering::Relaxed), request.xid);
        let lent = few(request.reply.items.iter().map(|room| room.buffer.is_some()));
        let (sender, reply) = oneshot::channel();
        // A driver that has ended drops the sender, and the call then fails.
        let _ = self.commands.send(Command::Call(Call::new(id, request, sender)));
        PendingCall::new(InFlight { id, reply, lent, commands: self.commands.clone(), over: false })
    }

    /// The limits on the length of messages.
    pub(crate) fn limits(&self) -> Limits {
        Limits::new(self.max_message, self.max_message)
    }
}

struct InFlight {
    id: CallId,
    reply: oneshot::Receiver<Answered>,
    /// Which of the results' buffers belong to the caller.
    lent: SmallVec<[bool; 8]>,
    commands: Arc<mpsc::UnboundedSender<Command>>,
    over: bool,
}

impl Future for InFlight {
    type Output = Answered;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let reply = std::task::ready!(Pin::new(&mut self.reply).poll(cx));
        self.over = true;
        Poll::Ready(reply.unwrap_or(Err(TransportError::Closed)))
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        if !self.over {
            let _ = self.commands.send(Command::Forget(self.id));
        }
    }
}

impl CallInFlight for InFlight {
    fn cancel(mut self: Pin<Box<Self>>) -> BoxFuture<'static, Cancelled> {
        if std::mem::replace(&mut self.over, true) {
            return Box::pin(std::future::ready(Cancelled::default()));
        }
        let (sender, cancelled) = oneshot::channel();
        let _ = self.commands.send(Command::Cancel(self.id, sender));
        Box::pin(async move {
            match cancelled.await {
                Ok(cancelled) => cancelled,
                // The reply came first, or the driver has ended.
                Err(_) => match self.reply.try_recv() {
                    Ok(Ok(reply)) => Cancelled { buffers: lent_buffers(reply.stream, &self.lent) },
                    _ => Cancelled::default(),
                },
            }
        })
    }
}

fn lent_buffers(stream: Stream, lent: &[bool]) -> Vec<Buffer> {
    stream.into_placed().zip(lent).filter(|(_, lent)| **lent).filter_map(|(placed, _)| placed.buffer).collect()
}

/// The memory for a result.
#[derive(Debug)]
struct Room {
    max_len: usize,
    lent: bool,
    buffer: Option<Buffer>,
}

/// A call, for as long as its caller waits for it.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) id: CallId,
    /// Calls are sent again in the order in which they came.
    order: u64,
    message: Payload,
    /// Makes the message of another transmission, if the same message may not be sent twice.
    anew: Option<Arc<dyn Anew>>,
    reply_max: usize,
    repeatable: bool,
    rooms: SmallVec<[Room; 1]>,
    reply: Option<Buffer>,
    sender: Option<oneshot::Sender<Answered>>,
    canceller: Option<oneshot::Sender<Cancelled>>,
    /// The number of connections on which it was sent.
    sent: u32,
}

impl Call {
    fn new(id: CallId, request: Request, sender: oneshot::Sender<Answered>) -> Box<Self> {
        // The engine would send the same message again. The server has already executed that message, and drops it.
        let repeatable = request.repeatable && request.anew.is_none();
        let items = request.reply.items.into_iter();
        let rooms =
            few(items.map(|item| Room { max_len: item.max_len, lent: item.buffer.is_some(), buffer: item.buffer }));
        Box::new(Self {
            id,
            order: 0,
            message: request.message,
            anew: request.anew,
            reply_max: request.reply.max_len,
            repeatable,
            rooms,
            reply: None,
            sender: Some(sender),
            canceller: None,
            sent: 0,
        })
    }

    fn cancelled(self) {
        let buffers = self.rooms.into_iter().filter(|room| room.lent).filter_map(|room| room.buffer).collect();
        if let Some(canceller) = self.canceller {
            let _ = canceller.send(Cancelled { buffers });
        }
    }
}

/// All calls that have not ended, by XID.
pub(crate) struct Calls {
    calls: HashMap<u32, Box<Call>>,
    next_order: u64,
    pool: Arc<dyn Allocator>,
    server: SocketAddr,
    pub(crate) xids: Arc<XidSource>,
}

impl Calls {
    pub(crate) fn new(pool: Arc<dyn Allocator>, server: SocketAddr, xids: Arc<XidSource>) -> Self {
        Self { calls: HashMap::default(), next_order: 0, pool, server, xids }
    }

    pub(crate) fn len(&self) -> usize {
        self.calls.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }

    /// The calls' names, in the order of the calls.
    pub(crate) fn ids(&self) -> Vec<CallId> {
        let mut calls: Vec<_> = self.calls.values().map(|call| (call.order, call.id)).collect();
        calls.sort_unstable();
        calls.into_iter().map(|(_, id)| id).collect()
    }

    /// Adds a call. Returns whether the driver must make it.
    pub(crate) fn add(&mut self, mut call: Box<Call>) -> bool {
        let xid = xid_of(call.id);
        let hash_map::Entry::Vacant(place) = self.calls.entry(xid) else {
            if let Some(sender) = call.sender {
                let _ = sender.send(Err(Misuse::XidInUse { xid }.into()));
            }
            return false;
        };
        call.order = self.next_order;
        place.insert(call);
        self.next_order += 1;
        true
    }

    fn get(&self, id: CallId) -> Option<&Call> {
        self.calls.get(&xid_of(id)).map(|call| &**call).filter(|call| call.id == id)
    }

    fn get_mut(&mut self, id: CallId) -> Option<&mut Call> {
        self.calls.get_mut(&xid_of(id)).map(|call| &mut **call).filter(|call| call.id == id)
    }

    /// An XID that no call has.
    pub(crate) fn free_xid(&self) -> u32 {
        loop {
            let xid = self.xids.next_xid();
            if !self.calls.contains_key(&xid) {
                return xid;
            }
        }
    }

    /// Builds a call's message again before it is sent on another connection, for flavours that give each transmission
    /// a number of its own. The caller renews all calls in their order, even those that were not sent yet: so no call
    /// has an older number than a call that is sent before it. A call that cannot be renewed ends.
    pub(crate) fn renew(&mut self, id: CallId) -> Option<Event> {
        let call = self.get_mut(id)?;
        match call.anew.as_ref()?.message() {
            Ok(message) => {
                call.message = message;
                None
            }
            Err(error) => self.fail_with(id, error),
        }
    }

    /// A call in the engine's form.
    #[inline]
    pub(crate) fn wanted(&self, id: CallId) -> Option<rpcrdma_engine::Call> {
        let call = self.get(id)?;
        Some(rpcrdma_engine::Call {
            id,
            xid: xid_of(id),
            message: call.message.clone(),
            reply_max: call.reply_max,
            items: few(call.rooms.iter().map(|room| room.max_len)),
            repeatable: call.repeatable,
        })
    }

    fn take(&mut self, id: CallId) -> Option<Box<Call>> {
        match self.calls.entry(xid_of(id)) {
            hash_map::Entry::Occupied(found) if found.get().id == id => Some(found.remove()),
            _ => None,
        }
    }

    /// A message with this XID was sent.
    pub(crate) fn sent(&mut self, xid: u32) {
        if let Some(call) = self.calls.get_mut(&xid) {
            call.sent = call.sent.saturating_add(1);
        }
    }

    /// Lends the memory for a result, to be exposed.
    pub(crate) fn lend(&mut self, id: CallId, place: SinkPlace, octets: usize) -> Result<Buffer, ExposeError> {
        let slot = self.slot(id, place).ok_or(ExposeError::Refused)?;
        // If a call is sent again in another way, it may need a larger buffer than before.
        let kept = slot.take_if(|buffer| buffer.capacity() >= octets);
        kept.or_else(|| self.pool.try_allocate(octets)).ok_or(ExposeError::NoMemory)
    }

    /// Takes back memory that is no longer exposed.
    pub(crate) fn restore(&mut self, id: CallId, place: SinkPlace, buffer: Buffer) {
        if let Some(slot) = self.slot(id, place) {
            *slot = Some(buffer);
        }
    }

    fn slot(&mut self, id: CallId, place: SinkPlace) -> Option<&mut Option<Buffer>> {
        let call = self.get_mut(id)?;
        match place {
            SinkPlace::Item(index) => call.rooms.get_mut(index).map(|room| &mut room.buffer),
            SinkPlace::Reply => Some(&mut call.reply),
        }
    }

    /// Ends a call with its reply. All of its memory is back.
    pub(crate) fn complete(&mut self, id: CallId, reply: ReplyParts) -> Option<Event> {
        let call = self.take(id)?;
        let retransmitted = call.sent > 1;
        let mut stream = Stream::new();
        let mut inline_bytes = 0;
        let mut placed_bytes = 0;
        match reply.base {
            ReplyBase::Inline(octets) => {
                inline_bytes = octets.len();
                stream.push_run(octets);
            }
            ReplyBase::Chunk { octets } => {
                placed_bytes = octets;
                let mut buffer = call.reply?;
                buffer.set_len(octets);
                stream.push_run(buffer.freeze());
            }
        }
        for (mut room, item) in call.rooms.into_iter().zip(reply.items) {
            placed_bytes += item.returned;
            if let Some(buffer) = &mut room.buffer {
                buffer.set_len(item.returned);
            }
            let buffer = room.buffer.filter(|_| room.lent || item.offered > 0);
            stream.push_placed(Placed { offered: item.offered, buffer });
        }
        let xid = xid_of(id);
        if let Some(sender) = call.sender {
            let _ = sender.send(Ok(Reply { stream, retransmitted }));
        }
        Some(Event::Answered { xid, inline_bytes, placed_bytes, retransmitted })
    }

    /// Ends a call with an error of the engine.
    pub(crate) fn fail(&mut self, id: CallId, error: CallError) -> Option<Event> {
        let error = self.transport_error(id, error);
        self.fail_with(id, error)
    }

    pub(crate) fn fail_with(&mut self, id: CallId, error: TransportError) -> Option<Event> {
        let call = self.take(id)?;
        let xid = xid_of(id);
        if let Some(sender) = call.sender {
            let _ = sender.send(Err(error));
        }
        Some(Event::Failed { xid })
    }

    /// Ends every call.
    pub(crate) fn fail_all(&mut self, error: &TransportError) {
        for id in self.ids() {
            self.fail_with(id, error.clone());
        }
    }

    /// Records which caller wants the memory back.
    pub(crate) fn cancelling(&mut self, id: CallId, canceller: oneshot::Sender<Cancelled>) {
        if let Some(call) = self.get_mut(id) {
            call.canceller = Some(canceller);
            call.sender = None;
        }
    }

    /// The memory of a call is back, and goes to the caller that wants it, if there is one.
    pub(crate) fn released(&mut self, id: CallId) {
        if let Some(call) = self.take(id) {
            call.cancelled();
        }
    }

    fn transport_error(&self, id: CallId, error: CallError) -> TransportError {
        let server = self.server;
        let (call_len, reply_len) = self.get(id).map_or((0, 0), |call| (call.message.len(), call.reply_max));
        match error {
            CallError::Remote(v1::ErrorBody::Version { low, high }) => {
                TransportError::Remote { server, source: RemoteError::Version { low, high } }
            }
            CallError::Rejected(v2::ErrorBody::Version { low, high }) => {
                TransportError::Remote { server, source: RemoteError::Version { low, high } }
            }
            CallError::Rejected(error) if error != v2::ErrorBody::BadXdr => {
                let name = error.name().unwrap_or("an unknown error");
                TransportError::Remote { server, source: RemoteError::Other { code: error.code(), name } }
            }
            // BAD_XDR is version 2's name for version 1's ERR_CHUNK.
            CallError::Remote(_) | CallError::Rejected(_) => {
                TransportError::Remote { server, source: RemoteError::Chunk }
            }
            CallError::Peer(fault) => TransportError::Violation { server, rule: fault.rule() },
            CallError::Refused(CallRefused::XidInUse { xid }) => Misuse::XidInUse { xid }.into(),
            CallError::Refused(
                CallRefused::ChunkTooLarge { max, .. }
                | CallRefused::HeaderTooLarge { max, .. }
                | CallRefused::TooLargeInline { max, .. },
            ) if call_len > max || reply_len <= max => Misuse::CallTooLarge { len: call_len, max }.into(),
            CallError::Refused(
                CallRefused::ChunkTooLarge { max, .. }
                | CallRefused::HeaderTooLarge { max, .. }
                | CallRefused::TooLargeInline { max, .. },
            ) => Misuse::ReplyTooLarge { len: reply_len, max }.into(),
            CallError::Expose(_) => TransportError::NotLent { server },
            _ => TransportError::Closed,
        }
    }
}

#[cfg(test)]
mod tests;
