//! The behaviour of the simulation where the contract leaves a choice, and its reasons in errors.

mod common;

use bytes::Bytes;
use common::{A, B, address, connect, connect_with, drain, next, params, start};
use rpcrdma_fabric::{
    Buffer, CloseReason, Completion, ConnectError, Connected, Fabric, FenceCause, Lent, ReadWork, RemoteSegment,
    SendWork, Token, WorkError, WorkKind, WriteWork,
};
use rpcrdma_sim::{Link, SimConfig, World};
use std::{
    collections::BTreeSet,
    future::poll_fn,
    sync::{Arc, Mutex},
    task::Poll,
    time::Duration,
};

fn send(octets: &'static [u8]) -> SendWork {
    SendWork { token: Token(1), octets: vec![Bytes::from_static(octets)].into(), signaled: true, ..SendWork::default() }
}

fn read(source: RemoteSegment) -> ReadWork {
    ReadWork { token: Token(2), sink: Buffer::from_vec(vec![0; source.length as usize]), sources: vec![source] }
}

/// How the work with this token failed.
fn error(completions: &[Completion], wanted: Token) -> Option<WorkError> {
    completions.iter().find_map(|c| match c {
        Completion::Failed { token, error, kind, .. } if *token == wanted && *kind != WorkKind::Receive => {
            Some(error.clone())
        }
        _ => None,
    })
}

fn reason(completions: &[Completion]) -> &CloseReason {
    match completions.last() {
        Some(Completion::Closed { reason }) => reason,
        other => panic!("{other:?}"),
    }
}

/// Polls both ends until one of them has a completion.
async fn first(a: &mut Connected, b: &mut Connected) -> Completion {
    poll_fn(|cx| match a.poll(cx) {
        Poll::Ready(completion) => Poll::Ready(completion),
        Poll::Pending => b.poll(cx),
    })
    .await
}

#[test]
fn reads_finish_before_and_after_sends_that_were_posted_later() {
    let mut seen = BTreeSet::new();
    for seed in 0..300 {
        let world = World::new(seed);
        world.block_on(async {
            let (mut a, mut b) = connect(&world, 1).await;
            let source = b.expose(Token(3), Lent::Source(Bytes::from(vec![1; 100]))).unwrap();
            a.post_read(read(source)).unwrap();
            a.post_send(SendWork { signaled: false, ..send(b"later") }).unwrap();
            seen.insert(matches!(first(&mut a, &mut b).await, Completion::Read { .. }));
        });
    }
    assert_eq!(seen.len(), 2, "both orders happen");
}

#[test]
fn sends_are_done_before_and_after_they_arrive() {
    let mut seen = BTreeSet::new();
    for seed in 0..40 {
        let world = World::new(seed);
        world.block_on(async {
            let (mut a, mut b) = connect(&world, 1).await;
            a.post_send(send(b"x")).unwrap();
            seen.insert(matches!(first(&mut a, &mut b).await, Completion::Done { .. }));
        });
    }
    assert_eq!(seen.len(), 2, "both orders happen");
}

#[test]
fn a_peer_that_is_faster_may_still_reach_what_is_being_fenced() {
    let mut outcomes = BTreeSet::new();
    for seed in 0..60 {
        let world = World::new(seed);
        world.block_on(async {
            let (mut a, mut b) = connect(&world, 1).await;
            let sink = b.expose(Token(3), Lent::Sink(Buffer::from_vec(vec![0; 8]))).unwrap();
            a.post_send(SendWork { invalidate: Some(sink.handle), ..send(b"done") }).unwrap();
            start(&mut a).await;
            b.invalidate(sink.handle);
            let Completion::Fenced { cause, .. } = next(&mut b).await else { panic!("no fence") };
            let after = next(&mut b).await;
            let ended = matches!(after, Completion::Failed { .. });
            assert_eq!(ended, cause == FenceCause::Local, "whoever comes second finds nothing: {after:?}");
            outcomes.insert(ended);
        });
    }
    assert_eq!(outcomes.len(), 2, "both are first at times");
}

#[test]
fn a_failed_access_names_the_work() {
    let world = World::new(1);
    world.block_on(async {
        let (mut a, mut b) = connect(&world, 1).await;
        a.post_read(read(RemoteSegment { handle: 5, length: 8, offset: 0 })).unwrap();
        start(&mut a).await;
        let (at_a, at_b) = (drain(&mut a).await, drain(&mut b).await);
        assert_eq!(error(&at_a, Token(2)), Some(WorkError::RemoteAccess));
        assert!(matches!(reason(&at_a), CloseReason::Terminated(why) if why.contains("0x00000005")));
        assert!(matches!(reason(&at_b), CloseReason::Violation(_)));
    });
}

#[test]
fn work_that_is_done_early_fails_no_more() {
    let mut seen = BTreeSet::new();
    for seed in 0..40 {
        let world = World::new(seed);
        world.block_on(async {
            let (mut a, mut b) = connect(&world, 0).await;
            let octets = vec![Bytes::from_static(b"x")];
            a.post_write(WriteWork { token: Token(8), octets: octets.into(), handle: 5, offset: 0, signaled: true })
                .unwrap();
            a.post_send(send(b"no receive")).unwrap();
            start(&mut a).await;
            let at_a = drain(&mut a).await;
            drain(&mut b).await;
            let done = at_a.iter().any(|c| matches!(c, Completion::Done { token: Token(8), .. }));
            let failed = error(&at_a, Token(8));
            assert_eq!(failed, (!done).then_some(WorkError::RemoteAccess));
            seen.insert(done);
        });
    }
    assert_eq!(seen.len(), 2, "both kinds of device happen");
}

#[test]
fn a_send_without_a_receive_says_so() {
    for seed in 0..10 {
        let world = World::new(seed);
        world.block_on(async {
            let (mut a, mut b) = connect(&world, 0).await;
            a.post_send(send(b"x")).unwrap();
            start(&mut a).await;
            let at_a = drain(&mut a).await;
            assert!(matches!(error(&at_a, Token(1)), Some(WorkError::NoReceive) | None));
            assert!(matches!(reason(&drain(&mut b).await), CloseReason::Violation(_)));
        });
    }
}

#[test]
fn an_invalidation_that_the_peer_does_not_allow_ends_the_connection() {
    let world = World::new(1);
    let config = SimConfig::default().with_capabilities(|c| c.remote_invalidation = false);
    world.block_on(async {
        let (mut a, mut b) = connect_with(&world, config, 1).await;
        let sink = b.expose(Token(3), Lent::Sink(Buffer::from_vec(vec![0; 8]))).unwrap();
        a.post_send(SendWork { invalidate: Some(sink.handle), ..send(b"done") }).unwrap();
        start(&mut a).await;
        drain(&mut a).await;
        let at_b = drain(&mut b).await;
        assert!(matches!(reason(&at_b), CloseReason::Violation(_)));
        let closed = |c: &Completion| matches!(c, Completion::Fenced { cause: FenceCause::Closed, .. });
        assert!(at_b.iter().any(closed), "the memory comes back with the connection");
    });
}

#[test]
fn a_read_waits_for_the_slow_link_it_is_on() {
    let world = World::new(1);
    let link = Link::new(Duration::from_millis(10), Duration::from_millis(10));
    world.block_on(async {
        let (mut a, mut b) = connect_with(&world, SimConfig::default().with_link(link), 1).await;
        let source = b.expose(Token(3), Lent::Source(Bytes::from(vec![1; 100]))).unwrap();
        let before = world.now();
        a.post_read(read(source)).unwrap();
        assert!(matches!(next(&mut a).await, Completion::Read { .. }));
        assert!(world.now().since(before) >= Duration::from_millis(20));
    });
}

#[test]
fn other_seeds_give_other_handles() {
    let handle = |seed| {
        let world = World::new(seed);
        world.block_on(async {
            let (_a, mut b) = connect(&world, 0).await;
            b.expose(Token(3), Lent::Source(Bytes::from_static(b"x"))).unwrap().handle
        })
    };
    assert_eq!(handle(1), handle(1));
    assert_eq!((0..50).map(handle).collect::<BTreeSet<_>>().len(), 50);
}

#[test]
fn a_listener_holds_as_many_requests_as_its_backlog() {
    const BACKLOG: usize = 128;
    let world = World::new(1);
    let refused = Arc::new(Mutex::new(0));
    let fabric = world.fabric(B);
    let listener = world.block_on(fabric.listen(address(2049))).unwrap();
    for n in 0..=BACKLOG {
        let (a, count) = (world.fabric(A), refused.clone());
        world.spawn(async move {
            if let Err(ConnectError::Refused { .. }) = a.connect(address(2049), params(0)).await {
                *count.lock().unwrap() += 1;
            }
        });
        world.run_for(Duration::from_millis(1));
        assert_eq!(*refused.lock().unwrap(), n / BACKLOG, "{n}");
    }
    // The other initiators learn that the listener is gone.
    drop(listener);
    world.run_for(Duration::from_millis(1));
    assert_eq!(*refused.lock().unwrap(), BACKLOG + 1);
}
