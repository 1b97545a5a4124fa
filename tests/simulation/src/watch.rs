//! Stands between the transport and its provider, and sees everything that passes.
//!
//! It follows each buffer from one to the other and back, keeps an [account](crate::wire::Account) of each end's
//! messages, checks that memory which is lent for Reads does not change, and counts exposures. Faults come from below,
//! so that it sees what the transport sees; but it corrupts messages itself, after it has looked at them. Messages of
//! hostile peers do not count; our messages to them do.

mod queue_pair;
#[cfg(test)]
mod tests;

use crate::{
    capture::Recorder,
    ledger::Ledger,
    lock,
    memory::{Registry, number},
    plan::Faults,
    record::Record,
    tally::Tally,
};
use bytes::Bytes;
use queue_pair::WatchedQueuePair;
use rpcrdma_env::{Allocator, BoxFuture};
use rpcrdma_fabric::{
    AcceptError, Capabilities, ConnectError, Connected, ConnectionInfo, ConnectionParams, Fabric, Incoming,
    ListenError, Listener, Pending, ReceivePool, Receives,
};
use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
    task::{Context, Poll},
};

/// What all watched fabrics of a run share.
pub struct Watch {
    /// Takes findings.
    pub record: Arc<Record>,
    /// Follows buffers.
    pub registry: Arc<Registry>,
    /// Knows which messages count, and which connections were corrupted.
    pub ledger: Arc<Ledger>,
    /// Counts messages.
    pub tally: Arc<Tally>,
    /// Keeps the bytes, if a capture is wanted.
    pub recorder: Option<Arc<Recorder>>,
    /// Queue pairs so far, and exposures that have not ended.
    counts: Mutex<(u64, usize)>,
}

impl Watch {
    /// A watch that has seen nothing.
    pub fn new(
        record: Arc<Record>,
        registry: Arc<Registry>,
        ledger: Arc<Ledger>,
        tally: Arc<Tally>,
        recorder: Option<Arc<Recorder>>,
    ) -> Arc<Self> {
        Arc::new(Self { record, registry, ledger, tally, recorder, counts: Mutex::default() })
    }

    /// How many pieces of memory are lent to peers.
    pub fn exposed(&self) -> usize {
        lock(&self.counts).1
    }

    fn next_queue_pair(&self) -> u64 {
        let mut counts = lock(&self.counts);
        counts.0 += 1;
        counts.0
    }

    /// A connection is established. The provider had its first receives before, but reports nothing about them until
    /// now.
    fn connected(
        self: &Arc<Self>,
        receives: &[u64],
        initiator: bool,
        faults: &Arc<Faults>,
        inner: Connected,
    ) -> Connected {
        let number = self.next_queue_pair();
        self.registry.give_numbers(number, receives);
        Box::new(WatchedQueuePair::new(inner, self.clone(), faults.clone(), number, initiator))
    }
}

/// The numbers of the receives that a connection begins with.
fn receives(params: &ConnectionParams) -> Vec<u64> {
    match &params.receives {
        Receives::Own(buffers) => buffers.iter().filter_map(number).collect(),
        Receives::Shared(_) => Vec::new(),
    }
}

/// A watched fabric.
pub struct WatchedFabric {
    /// The fabric below.
    pub inner: Arc<dyn Fabric>,
    /// The watch, which all fabrics share.
    pub watch: Arc<Watch>,
    /// Says which messages are corrupted.
    pub faults: Arc<Faults>,
    /// Replaces the provider's own pool.
    pub pool: Arc<dyn Allocator>,
}

impl Fabric for WatchedFabric {
    fn name(&self) -> &'static str {
        self.inner.name()
    }

    fn capabilities(&self) -> &Capabilities {
        self.inner.capabilities()
    }

    fn pool(&self) -> Arc<dyn Allocator> {
        self.pool.clone()
    }

    fn receive_pool(&self) -> Option<Arc<dyn ReceivePool>> {
        self.inner.receive_pool()
    }

    fn connect(&self, peer: SocketAddr, params: ConnectionParams) -> BoxFuture<'_, Result<Connected, ConnectError>> {
        Box::pin(async move {
            let receives = receives(&params);
            let private_data = params.private_data.clone();
            let reads = params.ird;
            let inner = self.inner.connect(peer, params).await?;
            if let Some(recorder) = &self.watch.recorder {
                let info = inner.info();
                recorder.connected(info.local, info.peer, [(&private_data, reads), (&info.private_data, info.ord)]);
            }
            Ok(self.watch.connected(&receives, true, &self.faults, inner))
        })
    }

    fn listen(&self, local: SocketAddr) -> BoxFuture<'_, Result<Box<dyn Listener>, ListenError>> {
        Box::pin(async move {
            let inner = self.inner.listen(local).await?;
            let (watch, faults) = (self.watch.clone(), self.faults.clone());
            Ok(Box::new(WatchedListener { inner, watch, faults }) as Box<dyn Listener>)
        })
    }
}

struct WatchedListener {
    inner: Box<dyn Listener>,
    watch: Arc<Watch>,
    faults: Arc<Faults>,
}

impl Listener for WatchedListener {
    fn local_addr(&self) -> SocketAddr {
        self.inner.local_addr()
    }

    fn poll_accept(&mut self, cx: &mut Context<'_>) -> Poll<Result<Box<dyn Pending>, AcceptError>> {
        let (watch, faults) = (&self.watch, &self.faults);
        let watched = |inner| Box::new(WatchedPending { inner, watch: watch.clone(), faults: faults.clone() }) as _;
        self.inner.poll_accept(cx).map_ok(watched)
    }
}

struct WatchedPending {
    inner: Box<dyn Pending>,
    watch: Arc<Watch>,
    faults: Arc<Faults>,
}

impl Pending for WatchedPending {
    fn peer(&self) -> SocketAddr {
        self.inner.peer()
    }

    fn request(self: Box<Self>) -> BoxFuture<'static, Result<Box<dyn Incoming>, AcceptError>> {
        Box::pin(async move {
            let Self { inner, watch, faults } = *self;
            Ok(Box::new(WatchedIncoming { inner: inner.request().await?, watch, faults }) as Box<dyn Incoming>)
        })
    }
}

struct WatchedIncoming {
    inner: Box<dyn Incoming>,
    watch: Arc<Watch>,
    faults: Arc<Faults>,
}

impl Incoming for WatchedIncoming {
    fn info(&self) -> &ConnectionInfo {
        self.inner.info()
    }

    fn accept(self: Box<Self>, params: ConnectionParams) -> BoxFuture<'static, Result<Connected, AcceptError>> {
        Box::pin(async move {
            let Self { inner, watch, faults } = *self;
            let receives = receives(&params);
            let ConnectionInfo { local, peer, private_data, ord, .. } = inner.info().clone();
            let (answer, reads) = (params.private_data.clone(), params.ird);
            let inner = inner.accept(params).await?;
            // A peer that is not watched does not report its connection, so this end does it.
            if let Some(recorder) = &watch.recorder
                && watch.ledger.trust.is_foreign(peer.ip())
            {
                recorder.connected(peer, local, [(&private_data, ord), (&answer, reads)]);
            }
            Ok(watch.connected(&receives, false, &faults, inner))
        })
    }

    fn reject(self: Box<Self>, private_data: Bytes) -> BoxFuture<'static, Result<(), AcceptError>> {
        self.inner.reject(private_data)
    }
}
