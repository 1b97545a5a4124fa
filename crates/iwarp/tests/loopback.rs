//! Two endpoints over loopback TCP: every operation, in both address families, with and without CRC, with FPDUs of
//! several sizes.

mod common;

use bytes::Bytes;
use common::*;
use rpcrdma_fabric::{
    CloseReason, Completion, FenceCause, Lent, ReadWork, RefusedReason, RemoteSegment, SendWork, Token, WorkKind,
    WriteWork,
};
use rpcrdma_iwarp::{Config, MAX_GATHER};

fn config(crc: bool, fpdu_octets: Option<usize>) -> Config {
    let mut config = Config::default();
    config.crc = crc;
    config.fpdu_octets = fpdu_octets;
    config
}

/// Ways to run a connection.
fn ways() -> Vec<(&'static str, Config)> {
    let mut ways = Vec::new();
    for local in [V4, V6] {
        for crc in [true, false] {
            for fpdu in [None, Some(128), Some(1448), Some(4098)] {
                ways.push((local, config(crc, fpdu)));
            }
        }
    }
    ways
}

#[tokio::test]
async fn sends_arrive_in_order_in_every_way() {
    for (local, config) in ways() {
        let mut pair = Pair::open(local, config).await;
        for size in [0, 1, 3, 4, 1000, 4096, 8192] {
            let octets = pattern(size, size);
            let half = size / 2;
            for signaled in [false, true] {
                let send = SendWork {
                    token: Token(size as u64),
                    octets: vec![octets.slice(..half), octets.slice(half..)].into(),
                    signaled,
                    ..SendWork::default()
                };
                pair.here.qp.post_send(send).unwrap();
            }
            assert!(matches!(
                pair.next_here().await,
                Completion::Done { token, kind: WorkKind::Send } if token.0 == size as u64
            ));
            for _ in 0..2 {
                let (buffer, invalidated) = received(pair.next_there().await);
                assert_eq!((buffer.filled(), invalidated), (&octets[..], None));
                pair.there.qp.post_receive(buffer).unwrap();
            }
        }
        assert!(pair.here.seen.is_empty());
    }
}

#[tokio::test]
async fn writes_land_before_the_send_that_follows() {
    for (local, config) in ways() {
        let mut pair = Pair::open(local, config).await;
        for size in [1, 5, 4096, 1 << 20, (1 << 20) + 1] {
            let segment = pair.there.qp.expose(Token(7), Lent::Sink(buffer(size))).unwrap();
            assert_eq!((segment.length, segment.offset), (size as u32, 0));
            let octets = pattern(size, 1);
            let cut = size / 3;
            pair.here
                .qp
                .post_write(WriteWork {
                    token: Token(1),
                    octets: vec![octets.slice(..cut), octets.slice(cut..)].into(),
                    handle: segment.handle,
                    offset: segment.offset,
                    signaled: true,
                })
                .unwrap();
            let send = SendWork { octets: vec![Bytes::from_static(b"done")].into(), ..SendWork::default() };
            pair.here.qp.post_send(SendWork { invalidate: Some(segment.handle), ..send }).unwrap();
            match pair.next_there().await {
                Completion::Fenced { token: Token(7), handle, memory: Lent::Sink(mut sink), cause } => {
                    assert_eq!((handle, cause), (segment.handle, FenceCause::Remote));
                    assert!(sink.bytes_mut() == &octets[..], "{size} bytes");
                }
                other => panic!("{other:?}"),
            }
            let (buffer, invalidated) = received(pair.next_there().await);
            assert_eq!((buffer.filled(), invalidated), (&b"done"[..], Some(segment.handle)));
            pair.there.qp.post_receive(buffer).unwrap();
            assert!(matches!(pair.next_here().await, Completion::Done { token: Token(1), kind: WorkKind::Write }));
        }
    }
}

/// Writes of parts out of order: a wrong guess about the next segment's place must not damage earlier data.
#[tokio::test]
async fn parts_written_backwards_stay_whole() {
    for fpdu in [None, Some(128), Some(1448)] {
        let mut pair = Pair::open(V4, config(true, fpdu)).await;
        let (size, part) = (400_000, 40_000);
        let octets = pattern(size, 3);
        let segment = pair.there.qp.expose(Token(7), Lent::Sink(buffer(size))).unwrap();
        for index in (0..size / part).rev() {
            let range = index * part..(index + 1) * part;
            pair.here
                .qp
                .post_write(WriteWork {
                    octets: vec![octets.slice(range.clone())].into(),
                    handle: segment.handle,
                    offset: range.start as u64,
                    ..WriteWork::default()
                })
                .unwrap();
        }
        pair.here.qp.post_send(SendWork { invalidate: Some(segment.handle), ..SendWork::default() }).unwrap();
        match pair.next_there().await {
            Completion::Fenced { memory: Lent::Sink(mut sink), .. } => assert!(sink.bytes_mut() == &octets[..]),
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn reads_fill_the_sink_from_all_their_sources() {
    for (local, config) in ways() {
        let mut pair = Pair::open(local, config).await;
        // Both ends read from each other at the same time, more than the depth allows at once.
        let sizes = [1, 4096, 300_000, 1 << 20, 7];
        let octets = pattern(sizes.iter().sum(), 9);
        let mut at = 0;
        let mut sources: [Vec<RemoteSegment>; 2] = [vec![], vec![]];
        for size in sizes {
            let part = octets.slice(at..at + size);
            sources[0].push(pair.there.qp.expose(Token(0), Lent::Source(part.clone())).unwrap());
            sources[1].push(pair.here.qp.expose(Token(0), Lent::Source(part)).unwrap());
            at += size;
        }
        for round in 0..6 {
            let read = |sources: &Vec<RemoteSegment>| ReadWork {
                token: Token(round),
                sink: buffer(octets.len()),
                sources: sources.clone(),
            };
            pair.here.qp.post_read(read(&sources[0])).unwrap();
            pair.there.qp.post_read(read(&sources[1])).unwrap();
        }
        for round in 0..6 {
            for completion in [pair.next_here().await, pair.next_there().await] {
                match completion {
                    Completion::Read { token, sink } => {
                        assert_eq!(token, Token(round));
                        assert!(sink.filled() == &octets[..]);
                    }
                    other => panic!("{other:?}"),
                }
            }
        }
    }
}

/// proves: MPA-5044-7.1-g
#[tokio::test]
async fn a_responder_waits_for_the_first_word() {
    let mut pair = Pair::new(V4, Config::default()).await;
    let send = |text: &'static [u8]| SendWork {
        octets: vec![Bytes::from_static(text)].into(),
        signaled: true,
        ..SendWork::default()
    };
    pair.there.qp.post_send(send(b"eager")).unwrap();
    let waited = tokio::time::timeout(std::time::Duration::from_millis(50), pair.next_there()).await;
    assert!(waited.is_err(), "nothing has left");
    pair.here.qp.post_send(send(b"first")).unwrap();
    assert_eq!(received(pair.next_there().await).0.filled(), b"first");
    assert!(matches!(pair.next_here().await, Completion::Done { .. }));
    assert_eq!(received(pair.next_here().await).0.filled(), b"eager");
}

/// proves: RDMAP-5040-6.2-a
#[tokio::test]
async fn an_orderly_end_comes_after_what_was_posted() {
    let mut pair = Pair::open(V4, Config::default()).await;
    let segment = pair.there.qp.expose(Token(5), Lent::Source(pattern(1 << 20, 0))).unwrap();
    let read = ReadWork { token: Token(1), sink: buffer(1 << 20), sources: vec![segment] };
    pair.here.qp.post_read(read).unwrap();
    pair.here
        .qp
        .post_send(SendWork { octets: vec![Bytes::from_static(b"last")].into(), ..SendWork::default() })
        .unwrap();
    let exposed = pair.here.qp.expose(Token(6), Lent::Sink(buffer(10))).unwrap();
    pair.here.qp.disconnect();
    assert!(pair.here.qp.post_send(SendWork::default()).is_err_and(|r| r.reason == RefusedReason::Closed));
    assert_eq!(pair.closed().await, (CloseReason::Local, CloseReason::Remote));
    assert!(
        matches!(pair.here.seen.front(), Some(Completion::Read { token: Token(1), sink }) if sink.len() == 1 << 20)
    );
    let flushed = |end: &End| {
        let receive = |c: &&Completion| matches!(c, Completion::Failed { kind: WorkKind::Receive, .. });
        end.seen.iter().filter(receive).count()
    };
    assert_eq!((flushed(&pair.here), flushed(&pair.there)), (16, 14));
    assert!(pair.here.seen.iter().any(|c| matches!(
        c,
        Completion::Fenced { handle, cause: FenceCause::Closed, .. } if *handle == exposed.handle
    )));
    assert_eq!(received(pair.there.seen.pop_front().unwrap()).0.filled(), b"last");
    let late = pair.here.qp.post_receive(buffer(4)).unwrap_err();
    assert_eq!((late.reason, late.returned.capacity()), (RefusedReason::Closed, 4));
}

/// More slices than one system call takes, and the largest number that a message may have.
#[tokio::test]
async fn messages_gather_many_slices() {
    let mut pair = Pair::open(V4, Config::default()).await;
    let octets = pattern(MAX_GATHER + 1, 0);
    let slices = |count: usize| (0..count).map(|at| octets.slice(at..at + 1)).collect::<Vec<Bytes>>();
    for _ in 0..3 {
        pair.here.qp.post_send(SendWork { octets: slices(MAX_GATHER).into(), ..SendWork::default() }).unwrap();
    }
    let refused =
        pair.here.qp.post_send(SendWork { octets: slices(MAX_GATHER + 1).into(), ..SendWork::default() }).unwrap_err();
    assert!(matches!(refused.reason, RefusedReason::Limit { max: MAX_GATHER, .. }));
    for _ in 0..3 {
        assert_eq!(received(pair.next_there().await).0.filled(), &octets[..MAX_GATHER]);
    }
}

#[tokio::test]
async fn limits_hold_at_the_limit_and_one_past() {
    let mut config = Config::default();
    config.max_exposures = 2;
    config.max_posted = 3;
    config.max_receives = 17;
    let mut pair = Pair::open(V4, config).await;
    for _ in 0..2 {
        pair.here.qp.expose(Token(0), Lent::Sink(buffer(1))).unwrap();
    }
    let refused = pair.here.qp.expose(Token(0), Lent::Sink(buffer(1))).unwrap_err();
    assert!(matches!(refused.reason, RefusedReason::Limit { max: 2, .. }));
    let empty = pair.there.qp.expose(Token(0), Lent::Source(Bytes::new())).unwrap_err();
    assert_eq!(empty.reason, RefusedReason::Empty);
    for _ in 0..3 {
        pair.here.qp.post_write(WriteWork::default()).unwrap();
    }
    let refused = pair.here.qp.post_send(SendWork::default()).unwrap_err();
    assert!(matches!(refused.reason, RefusedReason::Limit { max: 3, .. }));
    pair.there.qp.post_receive(buffer(1)).unwrap();
    pair.there.qp.post_receive(buffer(1)).unwrap();
    let refused = pair.there.qp.post_receive(buffer(1)).unwrap_err();
    assert!(matches!(refused.reason, RefusedReason::Limit { max: 17, .. }));
    let source = RemoteSegment { handle: 1, length: 9, offset: 0 };
    let read = ReadWork { token: Token(0), sink: buffer(8), sources: vec![source] };
    let refused = pair.there.qp.post_read(read).unwrap_err();
    assert!(matches!(refused.reason, RefusedReason::Limit { max: 8, .. }));
    let read = ReadWork { token: Token(0), sink: buffer(8), sources: vec![] };
    assert_eq!(pair.there.qp.post_read(read).unwrap_err().reason, RefusedReason::Empty);
}
