//! Clients whose addresses `--allow` does not name: the server tells them so, at a bounded cost.
//!
//! Each takes one of a few places (see [`Gate`](super::gate::Gate)) for a few seconds. The server reads no more from it
//! than the largest call with which an honest client would begin. The buffers for this do not count in the budget of
//! `--memory`, and are smaller than it. No call is executed.

use super::{gate, metrics, thread};
use bytes::Bytes;
use rpcrdma_env::{Allocator, BoxFuture, Buffer};
use rpcrdma_fabric::Pending;
use rpcrdma_oncrpc::tcp;
use std::{net::SocketAddr, sync::Arc, time::Duration};
use tokio::net::TcpStream;

/// How long the exchange with a client that is not allowed may take. An honest client takes milliseconds.
const STRANGER_TIME: Duration = Duration::from_secs(10);

/// The largest record that is read, in bytes: an RPC header whose credential and verifier have 400 bytes each, and the
/// longest path of MNT, 1,024 bytes, take 1,868.
const STRANGER_RECORD_BYTES: usize = 2048;

/// How many calls are looked at together.
const STRANGER_CALLS: usize = 1;

/// The memory of these clients for records and results: none. Records up to [`STRANGER_RECORD_BYTES`] need none.
struct Nothing;

impl Allocator for Nothing {
    fn try_allocate(&self, _: usize) -> Option<Buffer> {
        None
    }

    fn allocate(&self, _: usize) -> BoxFuture<'_, Buffer> {
        Box::pin(std::future::pending())
    }
}

fn tell(peer: SocketAddr) {
    metrics::refused(gate::Refusal::Strangers);
    tracing::debug!(%peer, refusal = %gate::Refusal::Strangers, "not served");
}

/// Refuses a connection request over RDMA.
pub(super) async fn reject(pending: Box<dyn Pending>, place: gate::Stranger, peer: SocketAddr) {
    tell(peer);
    let rejected = async { pending.request().await?.reject(Bytes::new()).await };
    if let Err(error) = rejected.await {
        tracing::debug!(%peer, error = thread::describe(&error), "set-up failed");
    }
    drop(place);
}

/// Answers calls over TCP, until the client has gone, the time is over or the server stops.
pub(super) async fn answer(stream: TcpStream, peer: SocketAddr, place: gate::Stranger, shared: &thread::Shared) {
    tell(peer);
    let Ok(local) = stream.local_addr() else { return };
    // NFS3-ACL-c
    let (refusal, clock, mut stopping) = (shared.stranger.clone(), shared.env.clock.clone(), shared.stopping.clone());
    let mut options = tcp::ServerOptions::default();
    // NFS3-ACL-c
    options.max_record = STRANGER_RECORD_BYTES;
    options.max_calls = STRANGER_CALLS;
    options.stall = STRANGER_TIME;
    // The connection gets a number of its own, as every connection does, although nothing here uses it.
    let endpoint = tcp::Endpoint { peer, local, id: shared.connection_ids.next_id(), allocator: Arc::new(Nothing) };
    let (_, driver) = tcp::serve(stream, endpoint, refusal, clock, options);
    tokio::select! {
        biased;
        () = thread::stopped(&mut stopping) => {}
        // The client's mistakes do not matter here.
        _ = tokio::time::timeout(STRANGER_TIME, driver) => {}
    }
    drop(place);
}
