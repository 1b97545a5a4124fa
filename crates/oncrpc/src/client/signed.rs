//! A call whose transmissions are signed one by one.
//!
//! It waits until its flavour can sign it, is sent, and checks its reply. If the server does not know the context with
//! which the call was signed, or the context has expired, the same call is sent once more with the same XID: a server
//! that has executed it already recognises it by the XID.
//!
//! The results' memory belongs to this call before it is sent and between its two attempts, else to the transport.

use super::{Results, header, message};
use crate::{
    Anew, AuthStat, CallError, CallId, Cancelled, ClientTransport, ItemRoom, PendingCall, Rejection, Reply, ReplyShape,
    Request, Signed, SignedLater, TransportError,
};
use rpcrdma_env::Buffer;
use rpcrdma_xdr::{Payload, SharedScratch};
use smallvec::SmallVec;
use std::{
    fmt,
    net::SocketAddr,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

/// How a call is sent.
pub(super) struct Sending {
    pub(super) id: CallId,
    pub(super) repeatable: bool,
    pub(super) transport: Arc<dyn ClientTransport>,
    /// Memory for short messages.
    pub(super) scratch: SharedScratch,
}

/// The state of the call.
enum State {
    /// The flavour waits until it can sign.
    Waiting(SignedLater),
    /// It is on its way.
    Sent(PendingCall, Arc<dyn Signed>),
    Over,
}

/// A call whose transmissions are signed one by one.
pub(super) struct SignedCall {
    sending: Sending,
    max_len: usize,
    /// Room for results that may be placed, while the transport does not have it.
    items: SmallVec<[ItemRoom; 1]>,
    /// The lengths of that room, and whether the memory is the caller's.
    rooms: SmallVec<[(usize, bool); 1]>,
    state: State,
    /// The call was sent before, and may have been executed.
    was_sent: bool,
    /// Whether the call was renewed ([`Signed::renew`]), which happens at most once.
    was_renewed: bool,
}

impl SignedCall {
    pub(super) fn new(sending: Sending, reply: ReplyShape) -> Self {
        let rooms = reply.items.iter().map(|room| (room.max_len, room.buffer.is_some())).collect();
        let ReplyShape { max_len, items } = reply;
        Self { sending, max_len, items, rooms, state: State::Over, was_sent: false, was_renewed: false }
    }

    /// The call, sent at once.
    pub(super) fn begun(mut self, signed: Arc<dyn Signed>) -> Box<Self> {
        self.send(signed);
        Box::new(self)
    }

    /// The call, sent when the flavour can sign it.
    pub(super) fn waiting(mut self, later: SignedLater) -> Box<Self> {
        self.state = State::Waiting(later);
        Box::new(self)
    }

    fn send(&mut self, signed: Arc<dyn Signed>) {
        let Sending { id, repeatable, transport, scratch } = &self.sending;
        let (server, scratch) = (transport.server(), scratch.clone());
        let anew = Again { id: *id, server, scratch, signed: signed.clone() };
        let pending = match anew.message() {
            Ok(message) => {
                let reply = ReplyShape { max_len: self.max_len, items: std::mem::take(&mut self.items) };
                let anew: Option<Arc<dyn Anew>> = Some(Arc::new(anew));
                transport.call(Request { xid: id.xid, message, reply, repeatable: *repeatable, anew })
            }
            Err(error) => PendingCall::failed(error),
        };
        self.state = State::Sent(pending, signed);
    }

    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<Results, CallError>> {
        loop {
            match &mut self.state {
                State::Waiting(later) => match ready!(later.as_mut().poll(cx)) {
                    Ok(signed) => self.send(signed),
                    Err(error) => return self.over(Err(error)),
                },
                State::Sent(pending, _) => {
                    let answered = ready!(Pin::new(pending).poll(cx));
                    let State::Sent(_, signed) = std::mem::replace(&mut self.state, State::Over) else { continue };
                    match self.answered(answered, &signed) {
                        Some(result) => return self.over(result),
                        None => self.state = State::Waiting(signed.renew(&self.sending.transport)),
                    }
                }
                State::Over => return Poll::Ready(Err(TransportError::Closed.into())),
            }
        }
    }

    fn over(&mut self, result: Result<Results, CallError>) -> Poll<Result<Results, CallError>> {
        self.state = State::Over;
        Poll::Ready(result)
    }

    /// Turns an answer into the call's result, or into `None` if the call must be signed and sent again.
    fn answered(
        &mut self,
        answered: Result<Reply, TransportError>,
        signed: &Arc<dyn Signed>,
    ) -> Option<Result<Results, CallError>> {
        let reply = match answered {
            Ok(reply) => reply,
            Err(TransportError::NotSigned { .. }) if !self.was_renewed => {
                // The transport has kept the memory; the call may have been executed.
                (self.was_renewed, self.was_sent) = (true, true);
                self.take_back(Vec::new());
                return None;
            }
            Err(error) => return Some(Err(error.into())),
        };
        let retransmitted = reply.retransmitted || self.was_sent;
        let (header, mut decoder) = match header(self.sending.id, reply) {
            Ok(read) => read,
            Err(error) => return Some(Err(error)),
        };
        let rejection = match header.status {
            Ok(()) => {
                let opened = signed.unwrap(&header.verifier, Some(decoder)).map_err(CallError::BadVerifier);
                let opened = opened.and_then(|opened| opened.ok_or(CallError::BadVerifier(AuthStat::INVALID_RESPONSE)));
                return Some(opened.map(|decoder| Results { decoder, retransmitted }));
            }
            Err(rejection) => rejection,
        };
        match rejection {
            Rejection::Auth(AuthStat::GSS_CREDENTIAL_PROBLEM | AuthStat::GSS_CONTEXT_PROBLEM) if !self.was_renewed => {
                self.was_renewed = true;
                self.was_sent |= retransmitted;
                self.take_back(decoder.take_unused_buffers());
                None
            }
            // The reply to a denied call has no verifier.
            Rejection::Auth(_) | Rejection::RpcMismatch { .. } => Some(Err(rejection.into())),
            _ => match signed.unwrap(&header.verifier, None) {
                Ok(_) => Some(Err(rejection.into())),
                Err(stat) => Some(Err(CallError::BadVerifier(stat))),
            },
        }
    }

    /// Makes room for another answer, in the caller's memory if it has come back.
    fn take_back(&mut self, buffers: Vec<Buffer>) {
        // If some are missing, it is unknown which buffer belongs to which result: the transport takes memory of its
        // own.
        let has_all = buffers.len() == self.rooms.len();
        let mut buffers = buffers.into_iter().filter(|_| has_all);
        let room = |&(max_len, is_callers): &(usize, bool)| {
            let buffer = buffers.next().filter(|buffer| is_callers && buffer.capacity() >= max_len);
            ItemRoom { max_len, buffer }
        };
        self.items = self.rooms.iter().map(room).collect();
    }

    pub(super) async fn cancel(mut self: Box<Self>) -> Cancelled {
        match std::mem::replace(&mut self.state, State::Over) {
            State::Sent(pending, _) => pending.cancel().await,
            State::Waiting(_) | State::Over => Cancelled {
                buffers: std::mem::take(&mut self.items).into_iter().filter_map(|room| room.buffer).collect(),
            },
        }
    }
}

/// Makes the message of each transmission.
struct Again {
    id: CallId,
    server: SocketAddr,
    scratch: SharedScratch,
    signed: Arc<dyn Signed>,
}

impl Anew for Again {
    fn message(&self) -> Result<Payload, TransportError> {
        let not_signed = |source| TransportError::NotSigned { server: self.server, source };
        let protected = self.signed.sign().map_err(not_signed)?;
        Ok(message(self.id, protected, &self.scratch))
    }
}

impl fmt::Debug for Again {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Again").field(&self.id).finish()
    }
}
