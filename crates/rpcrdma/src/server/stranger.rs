//! Clients whose addresses `--allow` does not name: they are told so, at a cost that is bounded and theirs.
//!
//! They get one of a few places (see [`Gate`](super::gate::Gate)), for a few seconds. Of what they send no more is read
//! than the largest call that an honest client would begin with, into buffers that no budget counts and that are
//! smaller than what `--memory` is asked for; no call is executed.

use super::{gate, metrics, thread};
use bytes::Bytes;
use rpcrdma_env::{Allocator, BoxFuture, Buffer};
use rpcrdma_fabric::Pending;
use rpcrdma_oncrpc::tcp;
use std::{net::SocketAddr, sync::Arc, time::Duration};
use tokio::net::TcpStream;

/// How long a client that is not allowed may take to be told so. One that is honest takes milliseconds.
const STRANGER_TIME: Duration = Duration::from_secs(10);

/// The largest record that is read, in bytes: an RPC header whose credential and verifier have 400 bytes each, and the
/// longest path of MNT, 1,024 bytes, take 1,868.
const STRANGER_RECORD_BYTES: usize = 2048;

/// How many calls are looked at together.
const STRANGER_CALLS: usize = 1;

/// The memory that strangers get for records and results: none. Records up to [`STRANGER_RECORD_BYTES`] need none.
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

/// Answers calls over TCP, until the client has gone, its time is over or the server is to stop.
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
    // Its number is its own, as that of every connection, though nothing here goes by it.
    let endpoint = tcp::Endpoint { peer, local, id: shared.connection_ids.next_id(), allocator: Arc::new(Nothing) };
    let (_, driver) = tcp::serve(stream, endpoint, refusal, clock, options);
    tokio::select! {
        biased;
        () = thread::stopped(&mut stopping) => {}
        // What it has done wrong is its own affair.
        _ = tokio::time::timeout(STRANGER_TIME, driver) => {}
    }
    drop(place);
}
