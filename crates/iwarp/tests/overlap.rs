//! Work that is posted while completions are delivered does not wait for the last of them.

mod common;

use common::{Pair, V4, both, buffer, pattern};
use rpcrdma_fabric::{Completion, SendWork};
use rpcrdma_iwarp::{Config, Direction, Tap, TapStream};
use smallvec::smallvec;
use std::{
    future::poll_fn,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::Poll,
};

/// Counts the bytes that each end has written: the responder first.
#[derive(Clone, Default)]
struct Written(Arc<[AtomicUsize; 2]>);

struct Stream(Arc<[AtomicUsize; 2]>, usize);

impl Tap for Written {
    fn connection(&self, _: SocketAddr, _: SocketAddr, initiator: bool) -> Box<dyn TapStream> {
        Box::new(Stream(self.0.clone(), initiator.into()))
    }
}

impl TapStream for Stream {
    fn octets(&mut self, direction: Direction, octets: &[u8]) {
        if direction == Direction::Sent {
            self.0[self.1].fetch_add(octets.len(), Ordering::Relaxed);
        }
    }
}

/// One end answers 32 messages that come together, with so many octets each: after how many of them something has left.
async fn left(initiator: bool, octets: usize) -> Vec<usize> {
    const MESSAGES: usize = 32;
    let written = Written::default();
    let mut config = Config::default();
    config.tap = Some(Arc::new(written.clone()));
    let mut pair = Pair::open(V4, config).await;
    // A responder sends nothing before it has heard the initiator.
    pair.there.qp.post_receive(buffer(100)).unwrap();
    pair.here.qp.post_send(SendWork { octets: smallvec![pattern(40, 1)], ..SendWork::default() }).unwrap();
    let sends = poll_fn(|cx| {
        assert!(pair.here.qp.poll(cx).is_pending());
        Poll::Ready(())
    });
    both(poll_fn(|cx| pair.there.qp.poll(cx)), sends).await;
    let (asks, answers) =
        if initiator { (&mut pair.there.qp, &mut pair.here.qp) } else { (&mut pair.here.qp, &mut pair.there.qp) };
    for _ in 0..MESSAGES {
        answers.post_receive(buffer(100)).unwrap();
        asks.post_send(SendWork { octets: smallvec![pattern(40, 1)], ..SendWork::default() }).unwrap();
    }
    poll_fn(|cx| {
        assert!(asks.poll(cx).is_pending());
        Poll::Ready(())
    })
    .await;
    let written = &written.0[usize::from(initiator)];
    let mut last = written.load(Ordering::Relaxed);
    let mut left = Vec::new();
    for told in 0..MESSAGES {
        let completion = poll_fn(|cx| answers.poll(cx)).await;
        assert!(matches!(completion, Completion::Received { .. }));
        let now = written.load(Ordering::Relaxed);
        if now > last {
            left.push(told);
            last = now;
        }
        answers.post_send(SendWork { octets: smallvec![pattern(octets, 2)], ..SendWork::default() }).unwrap();
    }
    left
}

#[tokio::test]
async fn answers_leave_in_halves_at_one_end_and_large_ones_soon_at_both() {
    assert_eq!(left(true, 40).await, [16]);
    assert_eq!(left(false, 40).await, [0; 0]);
    for initiator in [true, false] {
        assert_eq!(left(initiator, 8 << 10).await, [8, 16, 24]);
    }
}
