//! Two real endpoints over loopback TCP, driven by one task.

#![allow(dead_code)]

pub(crate) mod wire;

use bytes::Bytes;
use rpcrdma_env::tokio_env;
use rpcrdma_fabric::{
    AcceptError, Buffer, CloseReason, Completion, ConnectError, Connected, ConnectionParams, Fabric, Incoming,
    Listener, QueuePair, Receives,
};
use rpcrdma_iwarp::{Config, Iwarp};
use std::{
    collections::VecDeque,
    future::{Future, poll_fn},
    net::SocketAddr,
    pin::pin,
    task::{Context, Poll},
    time::Duration,
};

pub(crate) const V4: &str = "127.0.0.1:0";
pub(crate) const V6: &str = "[::1]:0";

/// No test waits longer than this.
const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) fn iwarp(config: Config) -> Iwarp {
    Iwarp::new(tokio_env().unwrap(), config)
}

pub(crate) fn params(receives: usize, octets: usize) -> ConnectionParams {
    ConnectionParams {
        private_data: Bytes::new(),
        ird: 16,
        ord: 16,
        receives: Receives::Own((0..receives).map(|_| buffer(octets)).collect()),
    }
}

pub(crate) fn buffer(octets: usize) -> Buffer {
    Buffer::from_vec(vec![0; octets])
}

/// Bytes that differ from place to place.
pub(crate) fn pattern(octets: usize, seed: usize) -> Bytes {
    (0..octets).map(|i| (i ^ (i >> 8) ^ (i >> 16) ^ seed) as u8).collect::<Vec<u8>>().into()
}

/// Polls two futures; the first one must end first.
pub(crate) async fn both<A, B>(a: impl Future<Output = A>, b: impl Future<Output = B>) -> (A, B) {
    let (mut a, mut b) = (pin!(a), pin!(b));
    let (mut x, mut y) = (None, None);
    let joined = poll_fn(move |cx| {
        if x.is_none()
            && let Poll::Ready(value) = a.as_mut().poll(cx)
        {
            x = Some(value);
        }
        if y.is_none()
            && let Poll::Ready(value) = b.as_mut().poll(cx)
        {
            y = Some(value);
        }
        match (x.take(), y.take()) {
            (Some(x), Some(y)) => Poll::Ready((x, y)),
            (older, newer) => {
                (x, y) = (older, newer);
                Poll::Pending
            }
        }
    });
    tokio::time::timeout(PATIENCE, joined).await.expect("done in time")
}

pub(crate) async fn next_request(listener: &mut Box<dyn Listener>) -> Result<Box<dyn Incoming>, AcceptError> {
    let pending = poll_fn(|cx| listener.poll_accept(cx)).await?;
    pending.request().await
}

pub(crate) async fn listen(iwarp: &Iwarp, local: &str) -> (Box<dyn Listener>, SocketAddr) {
    let listener = iwarp.listen(local.parse().unwrap()).await.unwrap();
    let addr = listener.local_addr();
    (listener, addr)
}

pub(crate) async fn connect_with(
    local: &str,
    initiator: (Config, ConnectionParams),
    responder: (Config, ConnectionParams),
) -> (Result<Connected, ConnectError>, Result<Connected, AcceptError>) {
    let there = iwarp(responder.0);
    let (mut listener, addr) = listen(&there, local).await;
    let here = iwarp(initiator.0);
    both(here.connect(addr, initiator.1), async { next_request(&mut listener).await?.accept(responder.1).await }).await
}

/// Two ends, and what happened on each.
pub(crate) struct Pair {
    pub(crate) here: End,
    pub(crate) there: End,
}

pub(crate) struct End {
    pub(crate) qp: Connected,
    pub(crate) seen: VecDeque<Completion>,
    pub(crate) closed: bool,
}

impl End {
    pub(crate) fn new(qp: Connected) -> End {
        End { qp, seen: VecDeque::new(), closed: false }
    }

    pub(crate) fn pump(&mut self, cx: &mut Context<'_>) {
        while !self.closed {
            let Poll::Ready(completion) = self.qp.poll(cx) else { return };
            self.closed = matches!(completion, Completion::Closed { .. });
            self.seen.push_back(completion);
        }
    }

    pub(crate) fn buffers(&mut self) -> &mut dyn QueuePair {
        &mut *self.qp
    }
}

impl Pair {
    pub(crate) async fn new(local: &str, config: Config) -> Pair {
        let (here, there) = connect_with(local, (config.clone(), params(16, 8192)), (config, params(16, 8192))).await;
        Pair { here: End::new(here.unwrap()), there: End::new(there.unwrap()) }
    }

    /// Drives both ends until `done` says so.
    pub(crate) async fn until(&mut self, mut done: impl FnMut(&End, &End) -> bool) {
        let drive = poll_fn(|cx| {
            self.here.pump(cx);
            self.there.pump(cx);
            if done(&self.here, &self.there) { Poll::Ready(()) } else { Poll::Pending }
        });
        let waited = tokio::time::timeout(PATIENCE, drive).await;
        if waited.is_err() {
            panic!("still waiting; here {:?}, there {:?}", self.here.seen, self.there.seen);
        }
    }

    /// Drives both ends until the initiator has a completion, and takes it.
    pub(crate) async fn next_here(&mut self) -> Completion {
        self.until(|here, _| !here.seen.is_empty()).await;
        self.here.seen.pop_front().unwrap()
    }

    /// The same for the responder.
    pub(crate) async fn next_there(&mut self) -> Completion {
        self.until(|_, there| !there.seen.is_empty()).await;
        self.there.seen.pop_front().unwrap()
    }

    /// Opens a connection whose responder may send, as it has heard from the initiator.
    pub(crate) async fn open(local: &str, config: Config) -> Pair {
        let mut pair = Pair::new(local, config).await;
        pair.here.qp.post_send(rpcrdma_fabric::SendWork::default()).unwrap();
        assert!(matches!(pair.next_there().await, Completion::Received { .. }));
        pair
    }

    /// Drives both ends until both are closed, and says why each is.
    pub(crate) async fn closed(&mut self) -> (CloseReason, CloseReason) {
        self.until(|here, there| here.closed && there.closed).await;
        (reason(&self.here), reason(&self.there))
    }
}

pub(crate) fn reason(end: &End) -> CloseReason {
    match end.seen.back() {
        Some(Completion::Closed { reason }) => reason.clone(),
        other => panic!("not closed: {other:?}"),
    }
}

pub(crate) fn received(completion: Completion) -> (Buffer, Option<u32>) {
    match completion {
        Completion::Received { buffer, invalidated } => (buffer, invalidated),
        other => panic!("not received: {other:?}"),
    }
}
