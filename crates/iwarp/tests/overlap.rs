//! Work that is posted while completions are delivered does not wait for the last of them.

mod common;

use common::{Pair, V4, buffer, pattern};
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

/// Counts the bytes that the responder has written.
#[derive(Clone, Default)]
struct Written(Arc<AtomicUsize>);

struct Stream(Option<Arc<AtomicUsize>>);

impl Tap for Written {
    fn connection(&self, _: SocketAddr, _: SocketAddr, initiator: bool) -> Box<dyn TapStream> {
        Box::new(Stream((!initiator).then(|| self.0.clone())))
    }
}

impl TapStream for Stream {
    fn octets(&mut self, direction: Direction, octets: &[u8]) {
        if let (Some(written), Direction::Sent) = (&self.0, direction) {
            written.fetch_add(octets.len(), Ordering::Relaxed);
        }
    }
}

#[tokio::test]
async fn answers_leave_in_quarters_of_what_has_come() {
    const MESSAGES: usize = 32;
    let written = Written::default();
    let mut config = Config::default();
    config.tap = Some(Arc::new(written.clone()));
    let mut pair = Pair::open(V4, config).await;
    for _ in 0..MESSAGES {
        pair.there.qp.post_receive(buffer(100)).unwrap();
        pair.here.qp.post_send(SendWork { octets: smallvec![pattern(40, 1)], ..SendWork::default() }).unwrap();
    }
    poll_fn(|cx| {
        assert!(pair.here.qp.poll(cx).is_pending());
        Poll::Ready(())
    })
    .await;
    let mut last = written.0.load(Ordering::Relaxed);
    let mut left = Vec::new();
    for told in 0..MESSAGES {
        let completion = poll_fn(|cx| pair.there.qp.poll(cx)).await;
        assert!(matches!(completion, Completion::Received { .. }));
        let now = written.0.load(Ordering::Relaxed);
        if now > last {
            left.push(told);
            last = now;
        }
        pair.there.qp.post_send(SendWork { octets: smallvec![pattern(40, 2)], ..SendWork::default() }).unwrap();
    }
    assert_eq!(left, [8, 16, 24], "after how many completions something had left");
}
