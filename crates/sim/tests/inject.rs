//! The fault wrapper of `rpcrdma-fabric`, over the simulation.

mod common;

use bytes::Bytes;
use common::{A, B, address, drain, next, params, start};
use rpcrdma_env::SeededRandom;
use rpcrdma_fabric::{
    Buffer, CloseReason, Completion, ConnectError, Connected, ConnectionParams, Fabric, FenceCause, Lent, ReadWork,
    RefusedReason, RemoteSegment, SendWork, Token, WorkError, WorkKind, WriteWork,
    faults::{Chance, Fault, FaultFabric, Plan, Point, Script},
    suite::{Setup, cases},
};
use rpcrdma_sim::{Logged, World};
use std::{
    future::poll_fn,
    sync::{Arc, Mutex},
    task::Poll,
    time::Duration,
};

fn faulty(world: &World, plan: impl Plan + 'static) -> Arc<FaultFabric> {
    Arc::new(FaultFabric::new(Arc::new(world.fabric(A)), Arc::new(plan), world.env()))
}

/// A connection from A to B; the plan's faults happen at A.
async fn connect(world: &World, a: &Arc<FaultFabric>, receives: usize) -> (Connected, Connected) {
    let mut listener = world.fabric(B).listen(address(0)).await.unwrap();
    let (a, to) = (a.clone(), listener.local_addr());
    let connecting = world.spawn(async move { a.connect(to, params(receives)).await.unwrap() });
    let pending = poll_fn(|cx| listener.poll_accept(cx)).await.unwrap();
    let accepted = pending.request().await.unwrap().accept(params(receives)).await.unwrap();
    (connecting.await, accepted)
}

fn send(token: u64, octets: &'static [u8]) -> SendWork {
    SendWork {
        token: Token(token),
        octets: vec![Bytes::from_static(octets)].into(),
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

fn run_suite(seed: u64, plan: &Script) {
    for case in cases() {
        let world = World::new(seed);
        let wrap = |ip| {
            Arc::new(FaultFabric::new(Arc::new(world.fabric(ip)), Arc::new(plan.clone()), world.env()))
                as Arc<dyn Fabric>
        };
        let setup = Setup { a: wrap(A), b: wrap(B), listen: address(0), env: world.env() };
        println!("{} with seed {seed}", case.name());
        world.block_on(case.run(setup));
    }
}

#[test]
fn without_faults_the_wrapper_keeps_the_whole_contract() {
    run_suite(1, &Script::new());
}

#[test]
fn delays_keep_the_whole_contract() {
    let delay = Fault::Delay(Duration::from_micros(200));
    let points = [Point::Received, Point::Done, Point::Read, Point::Fenced, Point::Invalidate];
    run_suite(2, &points.into_iter().fold(Script::new(), |script, point| script.always(point, delay)));
}

/// Whether any case of the suite fails if this fault happens at every such step of B.
fn is_noticed(point: Point, fault: Fault) -> bool {
    cases().into_iter().any(|case| {
        let run = move || {
            let world = World::new(3);
            let plan = Arc::new(Script::new().always(point, fault));
            let b = Arc::new(FaultFabric::new(Arc::new(world.fabric(B)), plan, world.env()));
            let setup = Setup { a: Arc::new(world.fabric(A)), b, listen: address(0), env: world.env() };
            world.block_on(case.run(setup));
        };
        std::panic::catch_unwind(run).is_err()
    })
}

#[test]
fn the_suite_notices_a_provider_that_breaks_the_contract() {
    for point in [Point::Received, Point::Read] {
        assert!(is_noticed(point, Fault::Corrupt), "{point:?}");
    }
    // A completion that never comes makes the suite hang; the clock ends it.
    for point in [Point::Received, Point::Read, Point::Fenced, Point::Invalidate, Point::Done] {
        assert!(is_noticed(point, Fault::Withhold), "{point:?}");
    }
    for point in [Point::Accept, Point::PostReceive, Point::PostRead, Point::Expose, Point::PostSend] {
        assert!(is_noticed(point, Fault::Cut), "{point:?}");
    }
}

/// A queue pair with an account of the memory it was given.
struct Side {
    queue_pair: Connected,
    given: usize,
    back: usize,
}

impl Side {
    fn new(queue_pair: Connected, receives: usize) -> Self {
        Self { queue_pair, given: receives, back: 0 }
    }

    fn receive(&mut self) {
        let taken = self.queue_pair.post_receive(Buffer::from_vec(vec![0; 64])).is_ok();
        self.given += usize::from(taken);
    }

    fn read(&mut self, from: RemoteSegment) {
        let read = ReadWork { token: Token(3), sink: Buffer::from_vec(vec![0; 500]), sources: vec![from] };
        self.given += usize::from(self.queue_pair.post_read(read).is_ok());
    }

    fn expose(&mut self, memory: Lent) -> Option<RemoteSegment> {
        let segment = self.queue_pair.expose(Token(4), memory).ok()?;
        self.given += 1;
        Some(segment)
    }

    fn account(&mut self, completion: &Completion) {
        self.back += usize::from(match completion {
            Completion::Received { .. } | Completion::Read { .. } | Completion::Fenced { .. } => true,
            Completion::Failed { buffer, .. } => buffer.is_some(),
            _ => false,
        });
    }

    /// The next completion within a second, if any.
    async fn next(&mut self, world: &World) -> Option<Completion> {
        let mut sleep = Box::pin(world.sleep(Duration::from_secs(1)));
        let completion = poll_fn(|cx| match self.queue_pair.poll(cx) {
            Poll::Ready(completion) => Poll::Ready(Some(completion)),
            Poll::Pending => sleep.as_mut().poll(cx).map(|()| None),
        })
        .await?;
        self.account(&completion);
        Some(completion)
    }
}

/// An exchange with every kind of work. At the end both sides must have all their memory back. Returns how A's side
/// ended.
async fn exchange(world: &World, fabric: &Arc<FaultFabric>) -> CloseReason {
    let (a, b) = connect(world, fabric, 6).await;
    let (mut a, mut b) = (Side::new(a, 6), Side::new(b, 6));
    let source = b.expose(Lent::Source(Bytes::from(vec![5; 500]))).unwrap();
    let sink = b.expose(Lent::Sink(Buffer::from_vec(vec![0; 500]))).unwrap();
    let own = a.expose(Lent::Sink(Buffer::from_vec(vec![0; 500])));
    let other = a.expose(Lent::Source(Bytes::from(vec![6; 500])));
    for n in 0..5 {
        let octets = vec![Bytes::from(vec![n; 500])];
        let write = WriteWork {
            token: Token(2),
            octets: octets.into(),
            handle: sink.handle,
            offset: sink.offset,
            signaled: n % 2 == 0,
        };
        let _refused_or_not = a.queue_pair.post_write(write);
        a.read(source);
        let _refused_or_not = a.queue_pair.post_send(send(1, b"ask"));
        a.receive();
    }
    if let Some(own) = own {
        a.queue_pair.invalidate(own.handle);
    }
    let answering = {
        let world = world.clone();
        world.clone().spawn(async move {
            loop {
                match b.next(&world).await {
                    Some(Completion::Received { .. }) => {
                        b.receive();
                        let _ended_or_not = b.queue_pair.post_send(send(9, b"answer"));
                        if let Some(other) = other {
                            b.read(other);
                        }
                    }
                    Some(Completion::Closed { .. }) => break,
                    _ => {}
                }
            }
            (b.given, b.back)
        })
    };
    let reason = loop {
        match a.next(world).await {
            Some(Completion::Closed { reason }) => break reason,
            Some(_) => {}
            None => a.queue_pair.disconnect(),
        }
    };
    assert_eq!(a.given, a.back, "at A");
    let (given, back) = answering.await;
    assert_eq!(given, back, "at B");
    reason
}

#[test]
fn a_cut_at_any_step_loses_no_memory() {
    let late = Fault::Delay(Duration::from_millis(3));
    let faults = [Fault::Cut, Fault::Fail, Fault::FailAs(&WorkError::NoReceive), Fault::Refuse, Fault::Withhold, late];
    for fault in faults {
        let mut injected = 0;
        for step in 1..60 {
            let world = World::new(step);
            world.block_on(async {
                let fabric = faulty(&world, Script::new().at_step(step, fault));
                let reason = exchange(&world, &fabric).await;
                injected += fabric.injected();
                let broken = matches!(reason, CloseReason::Broken(_));
                if matches!(fault, Fault::Cut) {
                    assert_eq!(broken, fabric.injected() == 1, "step {step}: {reason:?}");
                }
            });
        }
        assert!(injected > 35, "{fault:?} happened only {injected} times");
    }
}

#[test]
fn chance_faults_are_repeated_by_their_seed() {
    let run = |seed| -> Vec<Logged> {
        let world = World::new(seed);
        world.block_on(async {
            let chance = Chance::new(Arc::new(SeededRandom::new(seed)))
                .with(Point::PostSend, 12, Fault::Cut)
                .with(Point::Done, 8, Fault::Fail)
                .with(Point::Read, 6, Fault::Withhold)
                .with(Point::Received, 6, Fault::Delay(Duration::from_millis(20)))
                .with(Point::Expose, 5, Fault::Refuse);
            let fabric = faulty(&world, chance);
            for _ in 0..3 {
                exchange(&world, &fabric).await;
            }
        });
        world.log()
    };
    for seed in 0..30 {
        assert_eq!(run(seed), run(seed), "seed {seed}");
    }
}

#[test]
fn a_refused_post_comes_back_with_its_reason() {
    let world = World::new(1);
    world.block_on(async {
        let script = Script::new().at(Point::PostSend, 2, Fault::Refuse).at(Point::Expose, 1, Fault::Refuse).at(
            Point::PostReceive,
            1,
            Fault::Refuse,
        );
        let fabric = faulty(&world, script);
        let (mut a, mut b) = connect(&world, &fabric, 4).await;
        a.post_send(send(1, b"one")).unwrap();
        let refused = a.post_send(send(2, b"two")).unwrap_err();
        assert!(matches!(refused.reason, RefusedReason::Limit { .. }));
        assert_eq!(refused.returned.token, Token(2));
        assert_eq!(a.expose(Token(1), Lent::Source(Bytes::from_static(b"x"))).unwrap_err().returned.octets(), 1);
        assert_eq!(a.post_receive(Buffer::from_vec(vec![0; 9])).unwrap_err().returned.capacity(), 9);
        a.post_send(refused.returned).unwrap();
        start(&mut a).await;
        for expected in [b"one", b"two"] {
            let Completion::Received { buffer, .. } = next(&mut b).await else { panic!("no message") };
            assert_eq!(buffer.filled(), expected);
        }
        assert_eq!(fabric.injected(), 3);
    });
}

#[test]
fn failed_work_ends_the_connection() {
    for (fault, said) in [
        (Fault::Fail, WorkError::Fabric),
        (Fault::FailAs(&WorkError::RemoteAccess), WorkError::RemoteAccess),
        (Fault::FailAs(&WorkError::NoReceive), WorkError::NoReceive),
    ] {
        let world = World::new(1);
        world.block_on(async {
            let fabric = faulty(&world, Script::new().at(Point::PostSend, 2, fault));
            let (mut a, mut b) = connect(&world, &fabric, 2).await;
            a.post_send(send(1, b"one")).unwrap();
            a.post_send(send(2, b"two")).unwrap();
            assert_eq!(a.post_send(send(3, b"three")).unwrap_err().reason, RefusedReason::Closed);
            let at_a = drain(&mut a).await;
            let failed = |c: &Completion| match c {
                Completion::Failed { token: Token(2), kind: WorkKind::Send, error, .. } => *error == said,
                _ => false,
            };
            assert_eq!(at_a.iter().filter(|c| failed(c)).count(), 1);
            assert!(matches!(reason(&at_a), CloseReason::Broken(_)));
            assert_eq!(reason(&drain(&mut b).await), CloseReason::Remote);
        });
    }
}

/// A completion reports the work's failure with the status in the plan.
#[test]
fn completions_fail_as_the_plan_says() {
    let world = World::new(1);
    world.block_on(async {
        let fault = Fault::FailAs(&WorkError::LocalLength);
        let fabric = faulty(&world, Script::new().at(Point::Received, 1, fault));
        let (mut a, mut b) = connect(&world, &fabric, 2).await;
        b.post_send(send(1, b"message")).unwrap();
        start(&mut b).await;
        let at_a = drain(&mut a).await;
        let failed = |c: &Completion| match c {
            Completion::Failed { kind: WorkKind::Receive, error, buffer: Some(buffer), .. } => {
                *error == WorkError::LocalLength && buffer.is_empty()
            }
            _ => false,
        };
        assert_eq!(at_a.iter().filter(|c| failed(c)).count(), 1);
        assert!(matches!(reason(&at_a), CloseReason::Broken(_)));
    });
}

/// Nothing may come after the last completion: so a fault that would need one does not happen.
#[test]
fn nothing_goes_wrong_any_more_when_the_fabric_below_has_closed() {
    let world = World::new(1);
    world.block_on(async {
        let late = Fault::Delay(Duration::from_secs(1));
        let script = Script::new().at(Point::Received, 1, late).always(Point::PostReceive, Fault::Cut);
        let fabric = faulty(&world, script);
        let (mut a, mut b) = connect(&world, &fabric, 4).await;
        b.post_send(send(1, b"message")).unwrap();
        b.disconnect();
        drain(&mut b).await;
        // The message waits for its time, and all later completions wait, too.
        for _ in 0..10 {
            start(&mut a).await;
            world.sleep(Duration::from_millis(1)).await;
        }
        let refused = a.post_receive(Buffer::from_vec(vec![0; 9])).unwrap_err();
        assert_eq!((refused.reason, refused.returned.capacity()), (RefusedReason::Closed, 9));
        assert!(matches!(drain(&mut a).await.last(), Some(Completion::Closed { .. })));
        assert_eq!(fabric.injected(), 1);
    });
}

#[test]
fn what_is_withheld_comes_back_at_the_end() {
    let world = World::new(1);
    world.block_on(async {
        let fabric = faulty(&world, Script::new().at(Point::Received, 2, Fault::Withhold));
        let (mut a, mut b) = connect(&world, &fabric, 3).await;
        for token in 0..3 {
            b.post_send(send(token, b"message")).unwrap();
        }
        start(&mut b).await;
        for _ in 0..2 {
            assert!(matches!(next(&mut a).await, Completion::Received { .. }));
        }
        b.disconnect();
        start(&mut b).await;
        let at_a = drain(&mut a).await;
        let flushed = |c: &Completion| matches!(c, Completion::Failed { kind: WorkKind::Receive, buffer: Some(_), .. });
        assert_eq!(at_a.iter().filter(|c| flushed(c)).count(), 1);
    });
}

#[test]
fn a_withheld_invalidation_fences_only_at_the_end() {
    let world = World::new(1);
    world.block_on(async {
        let fabric = faulty(&world, Script::new().at(Point::Invalidate, 1, Fault::Withhold));
        let (mut a, _b) = connect(&world, &fabric, 1).await;
        let segment = a.expose(Token(7), Lent::Sink(Buffer::from_vec(vec![0; 9]))).unwrap();
        a.invalidate(segment.handle);
        world.sleep(Duration::from_secs(1)).await;
        assert!(start(&mut a).await.is_empty());
        a.disconnect();
        let fenced = |c: &Completion| matches!(c, Completion::Fenced { cause: FenceCause::Closed, .. });
        assert!(drain(&mut a).await.iter().any(fenced));
    });
}

#[test]
fn a_delay_holds_back_what_comes_after_it_too() {
    let world = World::new(1);
    world.block_on(async {
        let fabric = faulty(&world, Script::new().at(Point::Received, 1, Fault::Delay(Duration::from_secs(5))));
        let (mut a, mut b) = connect(&world, &fabric, 2).await;
        b.post_send(send(1, b"one")).unwrap();
        b.post_send(send(2, b"two")).unwrap();
        start(&mut b).await;
        let before = world.now();
        for expected in [b"one", b"two"] {
            let Completion::Received { buffer, .. } = next(&mut a).await else { panic!("no message") };
            assert_eq!(buffer.filled(), expected);
        }
        let took = world.now().since(before);
        assert!(took >= Duration::from_secs(5) && took < Duration::from_secs(6), "{took:?}");
    });
}

#[test]
fn corruption_turns_one_bit_over() {
    let world = World::new(1);
    world.block_on(async {
        let fabric =
            faulty(&world, Script::new().at(Point::Received, 1, Fault::Corrupt).at(Point::Connect, 1, Fault::Corrupt));
        let mut listener = world.fabric(B).listen(address(0)).await.unwrap();
        let to = listener.local_addr();
        let sent = Bytes::from(vec![0; 20]);
        let asking = ConnectionParams { private_data: sent, ..params(1) };
        let connecting = world.spawn(async move { fabric.connect(to, asking).await.unwrap() });
        let incoming = poll_fn(|cx| listener.poll_accept(cx)).await.unwrap().request().await.unwrap();
        let ones = |octets: &[u8]| octets.iter().map(|octet| octet.count_ones()).sum::<u32>();
        assert_eq!((incoming.info().private_data.len(), ones(&incoming.info().private_data)), (20, 1));
        let mut b = incoming.accept(params(1)).await.unwrap();
        let mut a = connecting.await;
        b.post_send(send(1, &[0; 30])).unwrap();
        start(&mut b).await;
        let Completion::Received { buffer, .. } = next(&mut a).await else { panic!("no message") };
        assert_eq!((buffer.len(), ones(buffer.filled())), (30, 1));
    });
}

#[test]
fn connecting_and_accepting_can_fail() {
    let world = World::new(1);
    world.block_on(async {
        let a = faulty(&world, Script::new().at(Point::Connect, 1, Fault::Cut));
        let b = Arc::new(FaultFabric::new(
            Arc::new(world.fabric(B)),
            Arc::new(Script::new().at(Point::Accept, 1, Fault::Fail)),
            world.env(),
        ));
        let mut listener = b.listen(address(0)).await.unwrap();
        let to = listener.local_addr();
        assert!(matches!(a.connect(to, params(1)).await.err(), Some(ConnectError::Io { .. })));
        let outcome = Arc::new(Mutex::new(None));
        let (plain, slot) = (world.fabric(A), outcome.clone());
        let connecting = world.spawn(async move { *slot.lock().unwrap() = plain.connect(to, params(1)).await.err() });
        let incoming = poll_fn(|cx| listener.poll_accept(cx)).await.unwrap().request().await.unwrap();
        assert!(incoming.accept(params(1)).await.is_err());
        connecting.await;
        assert!(outcome.lock().unwrap().is_some());
    });
}
