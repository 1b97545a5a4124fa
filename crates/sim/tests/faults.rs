//! Deliberate faults must not lose anything.

mod common;

use bytes::Bytes;
use common::{A, B, address, connect, drain, next, params, start};
use rpcrdma_fabric::{
    Buffer, CloseReason, Completion, ConnectError, Fabric, FenceCause, Lent, SendWork, Token, WorkError, WorkKind,
};
use rpcrdma_sim::World;
use std::{future::poll_fn, time::Duration};

fn send(token: u64) -> SendWork {
    SendWork {
        token: Token(token),
        octets: vec![Bytes::from_static(b"x")].into(),
        signaled: true,
        ..SendWork::default()
    }
}

fn reason(completions: &[Completion]) -> CloseReason {
    match completions.last() {
        Some(Completion::Closed { reason }) => reason.clone(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_cut_ends_both_sides_and_gives_everything_back() {
    for seed in 0..20 {
        let world = World::new(seed);
        world.block_on(async {
            let (mut a, mut b) = connect(&world, 3).await;
            b.expose(Token(5), Lent::Sink(Buffer::from_vec(vec![0; 10]))).unwrap();
            a.post_send(send(1)).unwrap();
            start(&mut a).await;
            world.cut(A, B);
            let (at_a, at_b) = (drain(&mut a).await, drain(&mut b).await);
            assert!(matches!(reason(&at_a), CloseReason::Broken(_)));
            assert!(matches!(reason(&at_b), CloseReason::Broken(_)));
            let flushed = |all: &[Completion]| {
                all.iter()
                    .filter(|c| {
                        matches!(
                            c,
                            Completion::Failed {
                                kind: WorkKind::Receive,
                                error: WorkError::Flushed,
                                buffer: Some(_),
                                ..
                            }
                        )
                    })
                    .count()
            };
            assert_eq!((flushed(&at_a), flushed(&at_b)), (3, 3));
            let fenced =
                |c: &Completion| matches!(c, Completion::Fenced { token: Token(5), cause: FenceCause::Closed, .. });
            assert!(at_b.iter().any(fenced));
            // A new connection works.
            let (mut a, mut b) = connect(&world, 1).await;
            a.post_send(send(1)).unwrap();
            start(&mut a).await;
            assert!(matches!(next(&mut b).await, Completion::Received { .. }));
        });
    }
}

#[test]
fn a_short_partition_delays_and_loses_nothing() {
    let world = World::new(4);
    world.block_on(async {
        let (mut a, mut b) = connect(&world, 20).await;
        for token in 0..10 {
            a.post_send(send(token)).unwrap();
        }
        start(&mut a).await;
        world.partition(A, B);
        world.sleep(Duration::from_secs(5)).await;
        start(&mut b).await;
        for token in 10..20 {
            a.post_send(send(token)).unwrap();
        }
        let mut done = start(&mut a).await;
        world.heal(B, A);
        for _ in 0..20 {
            assert!(matches!(next(&mut b).await, Completion::Received { .. }));
        }
        while done.len() < 20 {
            done.push(next(&mut a).await);
        }
        for (token, done) in (0..).zip(&done) {
            assert!(matches!(done, Completion::Done { token: Token(t), .. } if *t == token), "{done:?}");
        }
    });
}

#[test]
fn a_long_partition_stalls_the_side_that_sends() {
    let world = World::new(4);
    world.block_on(async {
        let (mut a, mut b) = connect(&world, 1).await;
        world.partition(A, B);
        let before = world.now();
        a.post_send(send(1)).unwrap();
        assert_eq!(reason(&drain(&mut a).await), CloseReason::Stalled { seconds: 30 });
        assert!(world.now().since(before) >= Duration::from_secs(30));
        start(&mut b).await;
        // The other side learns this when it sends after the partition.
        world.heal(A, B);
        b.post_send(send(2)).unwrap();
        assert!(matches!(reason(&drain(&mut b).await), CloseReason::Broken(_)));
    });
}

#[test]
fn nobody_answers_across_a_partition() {
    let world = World::new(4);
    world.block_on(async {
        let (a, b) = (world.fabric(A), world.fabric(B));
        let _listener = b.listen(address(2049)).await.unwrap();
        world.partition(A, B);
        let error = a.connect(address(2049), params(1)).await.err();
        assert!(matches!(error, Some(ConnectError::TimedOut { seconds: 10, .. })), "{error:?}");
    });
}

#[test]
fn a_crashed_host_is_silent_and_resets_after_its_restart() {
    let world = World::new(9);
    world.block_on(async {
        let (mut a, mut b) = connect(&world, 1).await;
        world.crash(B);
        assert!(matches!(reason(&drain(&mut b).await), CloseReason::Broken(_)));
        start(&mut a).await;
        world.sleep(Duration::from_secs(1)).await;
        a.post_send(send(1)).unwrap();
        start(&mut a).await;
        world.sleep(Duration::from_secs(1)).await;
        assert!(world.fabric(B).listen(address(2049)).await.is_err(), "it is down");
        world.restart(B);
        assert!(matches!(reason(&drain(&mut a).await), CloseReason::Broken(_)));
        let (mut a, mut b) = connect(&world, 1).await;
        a.post_send(send(1)).unwrap();
        start(&mut a).await;
        assert!(matches!(next(&mut b).await, Completion::Received { .. }));
    });
}

#[test]
fn a_host_that_restarts_unnoticed_resets_the_next_message() {
    let world = World::new(9);
    world.block_on(async {
        let (mut a, b) = connect(&world, 1).await;
        world.crash(B);
        drop(b);
        world.restart(B);
        world.sleep(Duration::from_secs(100)).await;
        start(&mut a).await;
        a.post_send(send(1)).unwrap();
        assert!(matches!(reason(&drain(&mut a).await), CloseReason::Broken(_)));
    });
}

#[test]
fn a_dropped_queue_pair_resets_its_peer() {
    let world = World::new(2);
    world.block_on(async {
        let (a, mut b) = connect(&world, 1).await;
        drop(a);
        assert!(matches!(reason(&drain(&mut b).await), CloseReason::Broken(_)));
    });
    assert_eq!(world.open_ends(), 0);
}

#[test]
fn a_dropped_connect_ends_what_the_other_side_accepts() {
    let world = World::new(2);
    world.block_on(async {
        let (a, b) = (world.fabric(A), world.fabric(B));
        let mut listener = b.listen(address(0)).await.unwrap();
        let to = listener.local_addr();
        let connecting = world.spawn(async move { a.connect(to, params(1)).await });
        let pending = poll_fn(|cx| listener.poll_accept(cx)).await.unwrap();
        let incoming = pending.request().await.unwrap();
        let mut accepted = incoming.accept(params(1)).await.unwrap();
        connecting.abort();
        assert!(matches!(reason(&drain(&mut accepted).await), CloseReason::Broken(_)));
    });
}
