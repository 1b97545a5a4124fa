//! The trace wrapper of `rpcrdma-fabric`, over the simulation.

mod common;

use bytes::Bytes;
use common::{A, B, address, drain, next, params, start};
use rpcrdma_fabric::{
    Buffer, Completion, Fabric, Lent, RefusedReason, SendWork, Token,
    suite::{Setup, cases},
    trace::{Event, EventKind, TraceFabric, Tracer},
};
use rpcrdma_sim::World;
use std::{
    future::poll_fn,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

/// Writes one line for each event.
#[derive(Default)]
struct Lines(Mutex<Vec<(u64, u64, String)>>);

impl Tracer for Lines {
    fn event(&self, event: &Event<'_>) {
        let line = match event.kind {
            EventKind::Connecting { .. } => "connecting".to_owned(),
            EventKind::NotConnected { error, .. } => format!("not connected: {error}"),
            EventKind::Requested(info) => format!("requested with {} bytes", info.private_data.len()),
            EventKind::Accepting { params, .. } => format!("accepting with ird {}", params.ird),
            EventKind::Rejecting { private_data, .. } => format!("rejecting with {} bytes", private_data.len()),
            EventKind::Connected { accepted, .. } => format!("connected, accepted {accepted}"),
            EventKind::PostReceive { octets } => format!("receive of {octets}"),
            EventKind::PostSend(send) => format!("send {:?}", send.octets.concat()),
            EventKind::PostWrite(write) => format!("write {}", write.handle),
            EventKind::PostRead(read) => format!("read {}", read.sources.len()),
            EventKind::Refused(reason) => format!("refused: {reason}"),
            EventKind::Exposed { token, segment, writable } => {
                format!("exposed {} of {}, writable {writable}", token.0, segment.length)
            }
            EventKind::Invalidating { .. } => "invalidating".to_owned(),
            EventKind::Disconnecting => "disconnecting".to_owned(),
            EventKind::Completed(Completion::Received { buffer, .. }) => format!("received {:?}", buffer.filled()),
            EventKind::Completed(Completion::Done { token, .. }) => format!("done {}", token.0),
            EventKind::Completed(Completion::Fenced { token, .. }) => format!("fenced {}", token.0),
            EventKind::Completed(Completion::Failed { kind, .. }) => format!("failed {kind:?}"),
            EventKind::Completed(Completion::Closed { reason }) => format!("closed: {reason}"),
            EventKind::Dropped => "dropped".to_owned(),
            other => format!("{other:?}"),
        };
        self.0.lock().unwrap().push((event.at.as_nanos(), event.connection, line));
    }
}

impl Lines {
    fn of(&self, connection: u64) -> Vec<String> {
        self.0.lock().unwrap().iter().filter(|(_, c, _)| *c == connection).map(|(_, _, line)| line.clone()).collect()
    }
}

#[test]
fn every_step_is_told_in_order() {
    let world = World::new(6);
    let (at_a, at_b) = (Arc::new(Lines::default()), Arc::new(Lines::default()));
    world.block_on(async {
        let a = TraceFabric::new(Arc::new(world.fabric(A)), at_a.clone(), world.env());
        let b = TraceFabric::new(Arc::new(world.fabric(B)), at_b.clone(), world.env());
        let mut listener = b.listen(address(0)).await.unwrap();
        let to = listener.local_addr();
        let connecting = world.spawn(async move { a.connect(to, params(1)).await.unwrap() });
        let pending = poll_fn(|cx| listener.poll_accept(cx)).await.unwrap();
        let mut b = pending.request().await.unwrap().accept(params(0)).await.unwrap();
        let mut a = connecting.await;
        b.post_receive(Buffer::from_vec(vec![0; 8])).unwrap();
        let lent = b.expose(Token(3), Lent::Sink(Buffer::from_vec(vec![0; 5]))).unwrap();
        assert_eq!(b.expose(Token(4), Lent::Source(Bytes::new())).unwrap_err().reason, RefusedReason::Empty);
        b.invalidate(lent.handle);
        assert!(matches!(next(&mut b).await, Completion::Fenced { .. }));
        let octets = vec![Bytes::from_static(b"h"), Bytes::from_static(b"i")];
        a.post_send(SendWork { token: Token(9), octets: octets.into(), signaled: true, ..SendWork::default() })
            .unwrap();
        assert!(matches!(next(&mut a).await, Completion::Done { .. }));
        assert!(matches!(next(&mut b).await, Completion::Received { .. }));
        a.disconnect();
        start(&mut a).await;
        drain(&mut b).await;
        drain(&mut a).await;
    });
    assert_eq!(at_a.of(0), ["connecting"]);
    assert_eq!(
        at_a.of(1),
        [
            "connected, accepted false",
            "send [104, 105]",
            "done 9",
            "disconnecting",
            "failed Receive",
            "closed: ended from this side",
            "dropped"
        ]
    );
    assert_eq!(at_b.of(0), ["requested with 0 bytes", "accepting with ird 4"]);
    assert_eq!(
        at_b.of(1),
        [
            "connected, accepted true",
            "receive of 8",
            "exposed 3 of 5, writable true",
            "refused: there are no bytes to work on",
            "invalidating",
            "fenced 3",
            "received [104, 105]",
            "closed: ended by the peer",
            "dropped"
        ]
    );
    let times: Vec<u64> = at_b.0.lock().unwrap().iter().map(|(at, _, _)| *at).collect();
    assert!(times.is_sorted() && times[0] < times[times.len() - 1]);
}

#[test]
fn failures_of_the_set_up_are_told() {
    let world = World::new(6);
    let lines = Arc::new(Lines::default());
    world.block_on(async {
        let a = TraceFabric::new(Arc::new(world.fabric(A)), lines.clone(), world.env());
        assert!(a.connect(address(1), params(1)).await.is_err());
        let b = TraceFabric::new(Arc::new(world.fabric(B)), lines.clone(), world.env());
        let mut listener = b.listen(address(2)).await.unwrap();
        let connecting = world.spawn(async move { a.connect(address(2), params(1)).await.is_err() });
        let incoming = poll_fn(|cx| listener.poll_accept(cx)).await.unwrap().request().await.unwrap();
        incoming.reject(Bytes::from_static(b"no")).await.unwrap();
        assert!(connecting.await);
    });
    assert_eq!(
        lines.of(0),
        [
            "connecting",
            "not connected: the connection was refused: nothing listens there",
            "connecting",
            "requested with 0 bytes",
            "rejecting with 2 bytes",
            "not connected: the server rejected the connection request; it may not serve this address",
        ]
    );
}

/// Counts connections and completions.
#[derive(Default)]
struct Counts {
    connected: AtomicU64,
    completed: AtomicU64,
}

impl Tracer for Counts {
    fn event(&self, event: &Event<'_>) {
        match event.kind {
            EventKind::Connected { .. } => self.connected.fetch_add(1, Ordering::Relaxed),
            EventKind::Completed(_) => self.completed.fetch_add(1, Ordering::Relaxed),
            _ => 0,
        };
    }
}

#[test]
fn tracing_keeps_the_whole_contract() {
    let counts = Arc::new(Counts::default());
    for case in cases() {
        let world = World::new(5);
        let wrap = |ip| Arc::new(TraceFabric::new(Arc::new(world.fabric(ip)), counts.clone(), world.env()));
        let setup = Setup { a: wrap(A), b: wrap(B), listen: address(0), env: world.env() };
        world.block_on(case.run(setup));
    }
    assert!(counts.connected.load(Ordering::Relaxed) > 100);
    assert!(counts.completed.load(Ordering::Relaxed) > 1000);
}
