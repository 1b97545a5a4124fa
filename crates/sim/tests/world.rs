//! The world itself: a seed decides a run, time is virtual, and a deadlock names the waiting tasks.

mod common;

use bytes::Bytes;
use common::{connect, drain, next};
use rpcrdma_fabric::{Access, Buffer, Completion, Lent, ReadWork, SendWork, Token, WriteWork};
use rpcrdma_sim::{Logged, World};
use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

/// A run in which several connections move bytes in every way.
fn run(seed: u64) -> Vec<Logged> {
    let world = World::new(seed);
    let inner = world.clone();
    world.block_on(async {
        let tasks: Vec<_> = (0..4)
            .map(|_| {
                let world = inner.clone();
                inner.spawn(async move { exchange(&world).await })
            })
            .collect();
        for task in tasks {
            task.await;
        }
    });
    assert_eq!(world.open_ends(), 0);
    world.log()
}

async fn exchange(world: &World) {
    let (mut a, mut b) = connect(world, 8).await;
    let source = Bytes::from(vec![7; 3000]);
    let read = b.expose(Token(1), Lent::Source(source.clone())).unwrap();
    let sink = b.expose(Token(2), Lent::Sink(Buffer::from_vec(vec![0; 3000]))).unwrap();
    assert_eq!(Lent::Source(source.clone()).access(), Access::Read);
    for token in 0..3 {
        a.post_read(ReadWork { token: Token(10 + token), sink: Buffer::from_vec(vec![0; 3000]), sources: vec![read] })
            .unwrap();
    }
    a.post_write(WriteWork {
        token: Token(20),
        octets: vec![source].into(),
        handle: sink.handle,
        offset: sink.offset,
        signaled: true,
    })
    .unwrap();
    a.post_send(SendWork {
        token: Token(21),
        octets: vec![Bytes::from_static(b"written")].into(),
        invalidate: Some(sink.handle),
        ..SendWork::default()
    })
    .unwrap();
    let reader = world.spawn(async move {
        let mut reads = 0;
        while reads < 3 {
            reads += usize::from(matches!(next(&mut a).await, Completion::Read { .. }));
        }
        a.disconnect();
        drain(&mut a).await;
    });
    drain(&mut b).await;
    reader.await;
}

#[test]
fn a_seed_decides_a_run_wholly() {
    for seed in 0..20 {
        let first = run(seed);
        assert!(first.len() > 100);
        assert_eq!(first, run(seed), "seed {seed}");
    }
    assert_ne!(run(1), run(2));
}

#[test]
fn time_moves_only_when_nothing_can_run_and_costs_nothing() {
    let world = World::new(3);
    let order = Arc::new(Mutex::new(Vec::new()));
    for hours in [3_u64, 1, 2] {
        let (order, inner) = (order.clone(), world.clone());
        world.spawn(async move {
            inner.sleep(Duration::from_secs(3600 * hours)).await;
            order.lock().unwrap().push((hours, inner.now().as_nanos()));
        });
    }
    world.run_for(Duration::from_secs(4 * 3600));
    let hour = 3_600_000_000_000;
    assert_eq!(*order.lock().unwrap(), vec![(1, hour), (2, 2 * hour), (3, 3 * hour)]);
}

#[test]
fn the_seed_orders_ready_tasks() {
    let order = |seed| {
        let world = World::new(seed);
        let order = Arc::new(Mutex::new(Vec::new()));
        for n in 0..8 {
            let order = order.clone();
            world.spawn(async move { order.lock().unwrap().push(n) });
        }
        world.run_for(Duration::from_nanos(1));
        order.lock().unwrap().clone()
    };
    assert_eq!(order(5), order(5));
    assert!((0..20).any(|seed| order(seed) != order(5)));
}

#[test]
fn what_waits_for_ever_is_named() {
    let world = World::new(11);
    let inner = world.clone();
    let task = world.spawn(async move {
        let (mut a, _b) = connect(&inner, 1).await;
        next(&mut a).await;
    });
    let deadlock = world.try_block_on(task).unwrap_err();
    assert_eq!(deadlock.seed, 11);
    let text = deadlock.to_string();
    assert!(text.contains("tests/world.rs"), "{text}");
    assert!(text.contains("from 10.0.0.1"), "{text}");
}

#[test]
fn a_time_out_that_was_dropped_moves_no_time() {
    let world = World::new(1);
    let sleep = world.sleep(Duration::from_secs(60));
    drop(sleep);
    assert!(world.try_block_on(std::future::pending::<()>()).is_err());
    assert_eq!(world.now().as_nanos(), 0);
}

#[test]
fn an_aborted_task_drops_what_it_holds() {
    let world = World::new(1);
    let held = Arc::new(());
    let clone = held.clone();
    let task = world.spawn(async move {
        let _held = clone;
        std::future::pending::<()>().await;
    });
    world.run_for(Duration::from_nanos(1));
    assert_eq!(Arc::strong_count(&held), 2);
    task.abort();
    assert_eq!(Arc::strong_count(&held), 1);
}

#[test]
#[should_panic(expected = "keep waking each other")]
fn standing_still_is_noticed() {
    World::new(1).block_on(std::future::poll_fn(|cx| -> std::task::Poll<()> {
        cx.waker().wake_by_ref();
        std::task::Poll::Pending
    }));
}
