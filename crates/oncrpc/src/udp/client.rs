//! A client's transport over UDP: one datagram in each direction, for small calls to portmappers and status monitors.
//!
//! It sends a call again with the same XID, after pauses that grow, until it is answered or its time is over. The
//! socket is the program's, connected to the server: the system delivers nothing from elsewhere. A datagram that is not
//! a reply to the call under way is dropped. One call is under way at a time, others wait for it; a future that is
//! dropped sends nothing more. Memory: the call, and one buffer of the largest reply.

use crate::{
    CallInFlight, Cancelled, ClientTransport, Limits, PendingCall, Reply, Request, TransportError, TransportKind,
    XidSource,
    peek::{Direction, peek_direction_of},
};
use futures_util::future::{Either, select};
use rpcrdma_env::{BoxFuture, Clock, Env};
use rpcrdma_xdr::Stream;
use std::{
    future::Future,
    net::SocketAddr,
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};
use tokio::{net::UdpSocket, sync::Mutex};

/// The largest call and the largest reply over UDP, in bytes: implementations of RPC agree on this without asking.
pub const MAX_CLIENT_DATAGRAM_BYTES: usize = 8800;

/// Times of a client's transport over UDP.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct UdpClientOptions {
    /// How long the client waits for an answer before it sends the call again. The wait doubles each time.
    pub first_wait: Duration,
    /// The longest such wait.
    pub longest_wait: Duration,
    /// How long a call may take in all.
    pub limit: Duration,
}

impl Default for UdpClientOptions {
    /// 0.5 s, doubled up to 4 s, and 10 s in all: five datagrams for a call without an answer.
    fn default() -> Self {
        Self {
            first_wait: Duration::from_millis(500),
            longest_wait: Duration::from_secs(4),
            limit: Duration::from_secs(10),
        }
    }
}

/// RPC over UDP to one server.
#[derive(Clone)]
pub struct UdpTransport {
    link: Arc<Link>,
}

struct Link {
    socket: UdpSocket,
    server: SocketAddr,
    /// Held by the call that is under way.
    turn: Mutex<()>,
    clock: Arc<dyn Clock>,
    xids: XidSource,
    options: UdpClientOptions,
}

impl UdpTransport {
    /// A transport over a socket that is connected to `server`.
    pub fn new(socket: UdpSocket, server: SocketAddr, env: &Env, options: UdpClientOptions) -> Self {
        let (clock, xids) = (env.clock.clone(), XidSource::new(&*env.random));
        Self { link: Arc::new(Link { socket, server, turn: Mutex::new(()), clock, xids, options }) }
    }
}

impl std::fmt::Debug for UdpTransport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "UdpTransport({})", self.link.server)
    }
}

impl ClientTransport for UdpTransport {
    fn next_xid(&self) -> u32 {
        self.link.xids.next_xid()
    }

    fn call(&self, request: Request) -> PendingCall {
        if let Err(misuse) = request.check(self.limits()) {
            return PendingCall::failed(misuse.into());
        }
        PendingCall::new(Exchange(Box::pin(exchange(self.link.clone(), request))))
    }

    fn kind(&self) -> TransportKind {
        TransportKind::Udp
    }

    fn limits(&self) -> Limits {
        Limits::new(MAX_CLIENT_DATAGRAM_BYTES, MAX_CLIENT_DATAGRAM_BYTES)
    }

    fn server(&self) -> SocketAddr {
        self.link.server
    }
}

struct Exchange(BoxFuture<'static, Result<Reply, TransportError>>);

impl Future for Exchange {
    type Output = Result<Reply, TransportError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.as_mut().poll(cx)
    }
}

impl CallInFlight for Exchange {
    fn cancel(self: Pin<Box<Self>>) -> BoxFuture<'static, Cancelled> {
        // Nothing was lent: results come in memory of this transport's own.
        Box::pin(std::future::ready(Cancelled::default()))
    }
}

/// Sends the call until it is answered.
async fn exchange(link: Arc<Link>, request: Request) -> Result<Reply, TransportError> {
    let Link { server, clock, options, .. } = &*link;
    let begun = clock.now();
    let end = begun + options.limit;
    let not_answered = || TransportError::NotAnswered { server: *server, after: clock.now().since(begun) };
    let _turn = match select(pin!(link.turn.lock()), clock.sleep_until(end)).await {
        Either::Left((turn, _)) => turn,
        Either::Right(_) => return Err(not_answered()),
    };
    let unreachable = |error| TransportError::Unreachable { server: *server, source: Arc::new(error) };
    let mut call = request.message.to_bytes();
    let mut wait = options.first_wait;
    let mut is_first = true;
    // One byte more than a reply may have: a longer reply shows itself, and its beginning is not taken for a reply.
    let mut buffer = vec![0; request.reply.max_len + 1];
    loop {
        link.socket.send(&call).await.map_err(unreachable)?;
        let until = (clock.now() + wait).min(end);
        while clock.now() < until {
            let received = match select(pin!(link.socket.recv(&mut buffer)), clock.sleep_until(until)).await {
                Either::Left((received, _)) => received.map_err(unreachable)?,
                Either::Right(_) => break,
            };
            if let Some(reply) = buffer.get(..received)
                && received <= request.reply.max_len
                // RPC-5531-4-a
                && peek_direction_of(reply) == Some((request.xid, Some(Direction::Reply)))
            {
                buffer.truncate(received);
                return Ok(Reply { stream: Stream::from(bytes::Bytes::from(buffer)), retransmitted: !is_first });
            }
        }
        if clock.now() >= end {
            return Err(not_answered());
        }
        wait = wait.saturating_mul(2).min(options.longest_wait);
        is_first = false;
        if let Some(anew) = &request.anew {
            call = anew.message()?.to_bytes();
        }
    }
}

#[cfg(test)]
#[path = "client_tests.rs"]
mod tests;
