//! The seam between a server's transports and the code that executes calls: a call's context, and the handler.
//!
//! A transport makes one [`Connection`] for each connection that it accepts and shares it with every call. A handler's
//! future is `'static`: a call that was dispatched runs to its end even if its connection ends. It owns the received
//! message, and with it the receive memory, until it drops it.

use crate::{Arrival, ClientTransport, Credential, Limits, TransportKind};
use rpcrdma_env::{Allocator, BoxFuture};
use rpcrdma_xdr::{Payload, SharedScratch, Stream};
use std::{
    net::SocketAddr,
    sync::{Arc, OnceLock},
    task::{Context, Poll},
};
use tokio::sync::watch;

/// Executes whole RPC messages.
pub trait Handler: Send + Sync {
    /// Executes the RPC call in `message`. The future must be polled to its end; if the connection has ended, its
    /// result is dropped.
    fn handle(&self, context: CallContext, message: Stream) -> BoxFuture<'static, Outcome>;

    /// Executes the call as far as possible at once: most calls wait for nothing, and then need no memory for a future.
    /// `cx` is the context of the task that polls the rest.
    fn begin(&self, context: CallContext, message: Stream, cx: &mut Context<'_>) -> Begun {
        let mut call = self.handle(context, message);
        match call.as_mut().poll(cx) {
            Poll::Ready(outcome) => Begun::Done(outcome),
            Poll::Pending => Begun::Waits(call),
        }
    }
}

/// How far a call has come: to a handler's outcome, or to a service's answer.
pub enum Begun<T = Outcome> {
    /// It is over.
    Done(T),
    /// It waits for something, or has not begun.
    Waits(BoxFuture<'static, T>),
}

/// What a transport does about a received call.
#[derive(Debug)]
pub enum Outcome {
    /// A whole RPC reply message, to be sent.
    Reply(Payload),
    /// The peer placed data directly where the binding does not allow it; the call was not executed. A transport
    /// answers with ERR_CHUNK (RFC 8166 section 6.1).
    NotEligible,
    /// No reply: the message is not a call, is a duplicate of a call in progress, or must not be answered.
    Nothing,
}

impl Outcome {
    /// The reply, if there is one. A transport without direct placement sends nothing in any other case.
    pub fn into_reply(self) -> Option<Payload> {
        match self {
            Outcome::Reply(reply) => Some(reply),
            Outcome::NotEligible | Outcome::Nothing => None,
        }
    }
}

/// The connection of a call.
#[derive(Clone)]
#[non_exhaustive]
pub struct Connection {
    /// The client's address.
    pub peer: SocketAddr,
    /// The address that the client connected to.
    pub local: SocketAddr,
    /// Identifies the connection among all that share [`ConnectionIds`](crate::ConnectionIds).
    pub id: u64,
    /// What carries the messages.
    pub kind: TransportKind,
    /// How large messages may be.
    pub limits: Limits,
    /// The source of buffers for results: memory that the transport can send without a copy.
    pub allocator: Arc<dyn Allocator>,
    /// Memory for short replies.
    pub scratch: SharedScratch,
    /// Signals that the connection has ended, or that its peer will send nothing more.
    pub gone: Gone,
    /// Calls the peer in the reverse direction, where the transport can (RFC 8167).
    pub reverse: Option<Arc<dyn ClientTransport>>,
}

impl Connection {
    /// A connection from `peer` to `local` without a reverse direction.
    pub fn new(
        peer: SocketAddr,
        local: SocketAddr,
        id: u64,
        kind: TransportKind,
        limits: Limits,
        allocator: Arc<dyn Allocator>,
        gone: Gone,
    ) -> Self {
        let scratch = SharedScratch::default();
        Self { peer, local, id, kind, limits, allocator, scratch, gone, reverse: None }
    }

    /// The same with a caller for the reverse direction.
    pub fn with_reverse(mut self, reverse: Arc<dyn ClientTransport>) -> Self {
        self.reverse = Some(reverse);
        self
    }
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Connection({} from {}, {:?})", self.id, self.peer, self.kind)
    }
}

/// Where a call came from, and its caller's identity. Cloning shares.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CallContext {
    /// The connection.
    pub connection: Arc<Connection>,
    /// The caller's identity. A transport says [`Credential::None`]; the RPC layer fills it in.
    pub credential: Credential,
    /// Which calls it came with, if the transport knows. A later call from the same peer must not have this mark.
    pub arrival: Option<Arrival>,
    /// Whether the connection has something else to do meanwhile: its next call has come, and few of its calls are
    /// under way elsewhere. Then long work that needs no wait may pay on another thread.
    pub is_followed: bool,
    /// Gets the first word of the results before they are sealed: afterwards this end cannot read it.
    pub(crate) first_word: Option<Arc<FirstWord>>,
    /// The call's XID, if its reply is the results behind a plain header, and is not kept.
    pub(crate) plain: Option<u32>,
}

impl CallContext {
    /// The context of a call whose credential has not been read.
    pub fn new(connection: Arc<Connection>) -> Self {
        Self {
            connection,
            credential: Credential::None,
            arrival: None,
            is_followed: false,
            first_word: None,
            plain: None,
        }
    }

    /// The same, with an observer that gets the first word of the results before a flavour protects them: in many
    /// programs it is a status. [`peek_reply`](crate::peek_reply) sees other bytes then.
    pub fn with_first_word(mut self, told: Arc<FirstWord>) -> Self {
        self.first_word = Some(told);
        self
    }

    /// The same for a call that came together with others.
    pub fn arrived(self, arrival: Arrival) -> Self {
        Self { arrival: Some(arrival), ..self }
    }

    /// The same for a call whose connection may have [something else to do](Self::is_followed).
    pub fn followed(self, is_followed: bool) -> Self {
        Self { is_followed, ..self }
    }

    /// The same with the caller's identity.
    pub fn with_credential(mut self, credential: Credential) -> Self {
        self.credential = credential;
        self
    }
}

/// The first word of a call's results, once they are protected.
#[derive(Debug, Default)]
pub struct FirstWord(OnceLock<u32>);

impl FirstWord {
    /// The word, if a flavour has protected results that have one.
    pub fn get(&self) -> Option<u32> {
        self.0.get().copied()
    }

    pub(crate) fn tell(&self, word: u32) {
        // The results of a call are protected once.
        let _ = self.0.set(word);
    }
}

/// The transport's end of a [`Gone`]: dropping it signals that the connection has ended.
#[derive(Debug)]
pub struct GoneSignal(#[allow(dead_code, reason = "its drop is what matters")] watch::Sender<()>);

impl GoneSignal {
    /// An open connection, and the signal that its calls watch.
    pub fn new() -> (Self, Gone) {
        let (sender, receiver) = watch::channel(());
        (Self(sender), Gone(receiver))
    }
}

/// Shows whether a connection has ended. Cloning shares.
#[derive(Clone, Debug)]
pub struct Gone(watch::Receiver<()>);

impl Gone {
    /// Whether it has ended.
    pub fn is_gone(&self) -> bool {
        self.0.has_changed().is_err()
    }

    /// Completes once it has ended.
    pub fn wait(&self) -> impl Future<Output = ()> + Send + 'static {
        let mut receiver = self.0.clone();
        async move { while receiver.changed().await.is_ok() {} }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn gone_is_seen_and_awaited() {
        let (signal, gone) = GoneSignal::new();
        let waiting = gone.wait();
        assert!(!gone.is_gone());
        drop(signal);
        assert!(gone.is_gone());
        waiting.await;
        gone.clone().wait().await;
    }
}
