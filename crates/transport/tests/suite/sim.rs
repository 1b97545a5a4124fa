//! The transport over the simulated fabric: time is virtual, and a seed determines each run.

use crate::common::{
    COUNT, Log, STRICT, bulk, bytes, client, finish_read, pattern, read, router, start_read, store, swap, write,
};
use crate::{
    common,
    options::{client_options, server_options},
};
use bytes::Bytes;
use rpcrdma_env::Buffer;
use rpcrdma_fabric::Fabric;
use rpcrdma_oncrpc::{
    CallError, Client, ClientTransport, ItemRoom, Misuse, RemoteError, ReplyShape, Request, TransportError,
};
use rpcrdma_sim::{SimConfig, World};
use rpcrdma_transport::{
    ClientOptions, ConnectionHandle, Event, MessageKind, RdmaTransport, STALL_LIMIT, Server, ServerMemory,
    ServerOptions, connect,
};
use rpcrdma_xdr::{Encoder, Payload};
use std::{
    future::poll_fn,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
const SERVER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));
const ADDRESS: SocketAddr = SocketAddr::new(SERVER, 20049);

/// A server on [`ADDRESS`], and its log of events.
struct Serving {
    log: Arc<Log>,
    store: Arc<common::Store>,
    task: rpcrdma_sim::Task<()>,
}

fn serve(world: &World, config: SimConfig, options: ServerOptions, memory: usize) -> Serving {
    let fabric = world.fabric_with(SERVER, config);
    let env = world.env();
    let log = Arc::new(Log::default());
    let store = store(&env);
    let handler = router(&env, &store);
    let server = Server::new(&fabric, handler, ServerMemory::budget(memory), env, options, log.clone());
    let task = common::serve_at(world, Arc::new(fabric), ADDRESS, server);
    Serving { log, store, task }
}

async fn transport(world: &World, config: SimConfig) -> (Arc<RdmaTransport>, Arc<Log>) {
    transport_with(world, config, client_options()).await
}

async fn transport_with(world: &World, config: SimConfig, options: ClientOptions) -> (Arc<RdmaTransport>, Arc<Log>) {
    let log = Arc::new(Log::default());
    let fabric = Arc::new(world.fabric_with(CLIENT, config));
    let (transport, driver) = connect(fabric, ADDRESS, &world.env(), options, log.clone()).await.unwrap();
    world.spawn(driver);
    (transport, log)
}

async fn both(world: &World) -> (Client, Arc<Log>, Serving) {
    let serving = serve(world, SimConfig::default(), server_options(), 64 << 20);
    world.sleep(Duration::from_millis(1)).await;
    let (transport, log) = transport(world, SimConfig::default()).await;
    (client(transport), log, serving)
}

fn configurations() -> Vec<SimConfig> {
    vec![
        SimConfig::default(),
        SimConfig::without_invalidation(),
        SimConfig::default().with_capabilities(|capabilities| {
            capabilities.max_gather = 2;
            capabilities.max_private_data = 0;
            capabilities.max_ord = 1;
        }),
    ]
}

/// `forms.rs` tests which form each message takes.
/// proves: V1-3.5.2-b, V1-3.3.1-k, V1-6.3-b
#[test]
fn messages_of_every_size_and_form_arrive() {
    for (seed, config) in configurations().into_iter().enumerate() {
        let world = World::new(seed as u64);
        world.block_on(async {
            let _serving = serve(&world, config.clone(), server_options(), 64 << 20);
            world.sleep(Duration::from_millis(1)).await;
            let (transport, _) = transport(&world, config).await;
            let client = client(transport);
            client.null().await.unwrap();
            for len in [0, 1, 3, 4, 900, 4097, 8000, 8191, 8192, 8193, 65_537, 1 << 20] {
                let placed = read(&client, len, 5).await;
                assert!(placed || len < 8192, "{len} bytes are placed");
                write(&client, len, 6).await;
                bulk(&client, len.min(1 << 19)).await;
                swap(&client, len / 3, len / 2).await;
                swap(&client, 70_000, len / 4).await;
            }
        });
    }
}

/// proves: V1-3.3.1-c, V1-8.1.4-b
#[test]
fn many_calls_run_at_once_and_within_their_credits() {
    for seed in 0..4 {
        let world = World::new(seed);
        world.block_on(async {
            let options = server_options();
            let (client, log, serving) = {
                let serving = serve(&world, SimConfig::default(), options, 3 << 20);
                world.sleep(Duration::from_millis(1)).await;
                let (transport, log) = transport(&world, SimConfig::default()).await;
                (client(transport), log, serving)
            };
            let mut reads = Vec::new();
            for k in 0..100 {
                let len = 1 + (k as usize * 7919) % 500_000;
                reads.push((start_read(&client, len, k, Duration::from_micros(u64::from(k % 7) * 100)), len, k));
                let writer = client.clone();
                world.spawn(async move { write(&writer, len, k).await });
            }
            for (call, len, k) in reads {
                assert!(!finish_read(call, len, k).await.unwrap().1);
            }
            world.sleep(Duration::from_secs(1)).await;
            let closed = log.count(|event| matches!(event, Event::Closed { .. }));
            assert_eq!(closed, 0, "nobody ran out of receives");
            assert_eq!(serving.log.count(|event| matches!(event, Event::Called { .. })), 200);
        });
    }
}

/// proves: V1-4.4.1-a, CM-8797-4-e
#[test]
fn memory_is_fenced_by_the_peer_where_both_can() {
    for (ours, theirs) in [(true, true), (true, false), (false, true), (false, false)] {
        let world = World::new(1);
        world.block_on(async {
            let config = |can: bool| {
                SimConfig::default().with_capabilities(|capabilities| {
                    (capabilities.remote_invalidation, capabilities.send_with_invalidate) = (can, can);
                })
            };
            let serving = serve(&world, config(theirs), server_options(), 64 << 20);
            world.sleep(Duration::from_millis(1)).await;
            let (transport, log) = transport(&world, config(ours)).await;
            let client = client(transport);
            for round in 1..=3 {
                read(&client, 100_000, 1).await;
                let fenced = |wanted: bool| {
                    log.count(|event| matches!(event, Event::Invalidated { by_peer, .. } if *by_peer == wanted))
                };
                assert_eq!((fenced(true), fenced(false)), if ours && theirs { (round, 0) } else { (0, round) });
                let asked = |event: &Event| matches!(event, Event::Sent(sent) if sent.invalidates.is_some());
                assert_eq!(serving.log.count(asked), if ours && theirs { round } else { 0 });
            }
            // The caller learns of its reply only when it has the memory back.
            let mut lent = 0;
            for event in log.0.lock().unwrap().iter() {
                match event {
                    Event::Sent(sent) => lent += sent.write_chunks as usize,
                    Event::Invalidated { .. } => lent -= 1,
                    Event::Answered { .. } => assert_eq!(lent, 0, "{ours} {theirs}"),
                    _ => {}
                }
            }
            let linked = log.find(|event| match event {
                Event::Connected { send_inline, receive_inline, send_invalidates, .. } => {
                    Some((*send_inline, *receive_inline, *send_invalidates))
                }
                _ => None,
            });
            assert_eq!(linked, Some((8192, 8192, ours && theirs)));
        });
    }
}

/// proves: V1-4.5.5-a, V1-2.2.3-a, V2-4.5.5-b, V2-7.5-a, V2-3.1.3-a
#[test]
fn unanswered_calls_survive_their_connection() {
    for seed in 0..10 {
        let world = World::new(seed);
        world.block_on(async {
            let (client, log, serving) = both(&world).await;
            client.null().await.unwrap();
            let calls: Vec<_> =
                (0..20).map(|k| (start_read(&client, 50_000, k, Duration::from_millis(300)), k)).collect();
            let counting = client.call(COUNT, Payload::new(), ReplyShape::inline(4));
            world.sleep(Duration::from_millis(100)).await;
            world.cut(CLIENT, SERVER);
            for (call, k) in calls {
                let (placed, retransmitted) = finish_read(call, 50_000, k).await.unwrap();
                assert!(placed && retransmitted);
            }
            assert_eq!(counting.await.unwrap().decode::<Word>().unwrap().0, 1);
            assert_eq!(serving.store.executed.load(std::sync::atomic::Ordering::Relaxed), 1, "executed once");
            assert_eq!(log.count(|event| matches!(event, Event::Connected { .. })), 2);
        });
    }
}

struct Word(u32);
impl rpcrdma_xdr::Decode for Word {
    fn decode(decoder: &mut rpcrdma_xdr::Decoder) -> Result<Self, rpcrdma_xdr::DecodeError> {
        decoder.u32().map(Word)
    }
}

#[test]
fn a_server_that_restarts_in_time_is_found_again_and_one_that_does_not_is_named() {
    let world = World::new(3);
    world.block_on(async {
        let (client, log, serving) = both(&world).await;
        client.null().await.unwrap();
        let call = start_read(&client, 5000, 1, Duration::from_secs(1));
        world.sleep(Duration::from_millis(10)).await;
        serving.task.abort();
        world.crash(SERVER);
        world.sleep(Duration::from_secs(30)).await;
        world.restart(SERVER);
        let serving = serve(&world, SimConfig::default(), server_options(), 64 << 20);
        assert!(finish_read(call, 5000, 1).await.unwrap().1, "sent again");
        serving.task.abort();
        world.crash(SERVER);
        let started = world.now();
        let error = read_error(&client).await;
        assert!(matches!(error, TransportError::Lost { server: ADDRESS, .. }), "{error:?}");
        let took = world.now().since(started);
        assert!(took >= Duration::from_secs(120) && took < Duration::from_secs(200), "{took:?}");
        // The pauses of the first outage: from 100 ms to 5 s, each twice the last one, plus up to half of it.
        let pauses: Vec<_> = log.0.lock().unwrap().iter().filter_map(pause).take(8).collect();
        let mut least = Duration::from_millis(100);
        for &pause in &pauses {
            assert!(pause >= least && pause <= least + least / 2, "{pauses:?}");
            least = (least * 2).min(Duration::from_secs(5));
        }
        assert!(pauses[6..].iter().any(|&pause| pause > least), "not all at the same time: {pauses:?}");
    });
}

fn pause(event: &Event) -> Option<Duration> {
    match event {
        Event::Reconnecting { pause } => Some(*pause),
        _ => None,
    }
}

async fn read_error(client: &Client) -> TransportError {
    match finish_read(start_read(client, 5000, 1, Duration::ZERO), 5000, 1).await {
        Err(CallError::Transport(error)) => error,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_first_connection_fails_at_once_on_refusal() {
    let world = World::new(4);
    world.block_on(async {
        let fabric = Arc::new(world.fabric(CLIENT));
        let log = Arc::new(Log::default());
        let refused = connect(fabric, ADDRESS, &world.env(), client_options(), log).await;
        assert!(matches!(refused, Err(TransportError::Unreachable { server: ADDRESS, .. })));
        assert!(world.now().as_nanos() < 1_000_000_000);
    });
}

/// proves: V1-8.1.4-c, V1-4.4.1-b
#[test]
fn a_cancelled_call_gives_its_buffer_back_and_a_late_write_ends_the_connection() {
    let world = World::new(5);
    world.block_on(async {
        let (client, log, _serving) = both(&world).await;
        client.null().await.unwrap();
        let call = start_read(&client, 100_000, 1, Duration::from_secs(2));
        world.sleep(Duration::from_millis(500)).await;
        let cancelled = call.cancel().await;
        assert_eq!(cancelled.buffers.len(), 1);
        assert!(cancelled.buffers[0].capacity() >= 100_000);
        assert!(world.now().as_nanos() < 1_000_000_000, "at once");
        read(&client, 100, 2).await;
        world.sleep(Duration::from_secs(3)).await;
        assert_eq!(log.count(|event| matches!(event, Event::Closed { error: Some(_) })), 1, "the late write");
        read(&client, 100_000, 3).await;
    });
}

#[test]
fn a_call_that_is_taken_back_before_or_after_its_time_gives_its_buffer_back_too() {
    let world = World::new(6);
    world.block_on(async {
        let (client, _, _serving) = both(&world).await;
        let early = start_read(&client, 100_000, 1, Duration::ZERO).cancel().await;
        assert_eq!(early.buffers.len(), 1);
        let late = start_read(&client, 100_000, 1, Duration::ZERO);
        world.sleep(Duration::from_secs(1)).await;
        assert_eq!(late.cancel().await.buffers.len(), 1, "its reply was there, unread");
    });
}

#[test]
fn a_forgotten_call_ends_with_its_reply() {
    let world = World::new(7);
    world.block_on(async {
        let (client, log, _serving) = both(&world).await;
        client.null().await.unwrap();
        drop(start_read(&client, 100_000, 1, Duration::from_secs(2)));
        world.sleep(Duration::from_secs(1)).await;
        assert_eq!(log.count(|event| matches!(event, Event::Invalidated { .. })), 0, "still lent");
        world.sleep(Duration::from_secs(2)).await;
        assert_eq!(log.count(|event| matches!(event, Event::Invalidated { .. })), 1);
        assert_eq!(log.count(|event| matches!(event, Event::Closed { .. })), 0);
    });
}

#[test]
fn silence_is_probed_and_a_slow_answer_waited_for() {
    let world = World::new(8);
    world.block_on(async {
        let (client, log, _serving) = both(&world).await;
        client.null().await.unwrap();
        let slow = start_read(&client, 100_000, 1, Duration::from_secs(200));
        let (_, retransmitted) = finish_read(slow, 100_000, 1).await.unwrap();
        assert!(!retransmitted, "a live connection is not hurried");
        let probes = log.count(|event| matches!(event, Event::Sent(sent) if sent.kind == MessageKind::Probe));
        assert_eq!(probes, 9, "one each 20 s");
    });
}

#[test]
fn everything_ends_when_the_client_is_dropped() {
    let world = World::new(9);
    world.block_on(async {
        let (client, _, serving) = both(&world).await;
        read(&client, 100_000, 1).await;
        drop(client);
        world.sleep(Duration::from_secs(1)).await;
        assert_eq!(world.open_ends(), 0);
        assert_eq!(serving.log.count(|event| matches!(event, Event::Closed { error: None })), 1);
    });
}

/// proves: V1-6.1-c, V1-6.1-d, V1-4.5-g, V2-A.1-c
#[test]
fn a_chunk_that_may_not_be_is_refused_and_the_connection_goes_on() {
    let world = World::new(10);
    world.block_on(async {
        let (client, log, serving) = both(&world).await;
        let calls = || log.count(|event| matches!(event, Event::Sent(sent) if sent.kind == MessageKind::Call));
        let refusals =
            || serving.log.count(|event| matches!(event, Event::Sent(sent) if sent.kind == MessageKind::Error));
        client.null().await.unwrap();
        let before = (calls(), refusals());
        let mut args = Encoder::new();
        args.item(pattern(9000, 1).into());
        let refused = client.call(STRICT, args.finish(), ReplyShape::inline(0)).await;
        let remote =
            matches!(refused, Err(CallError::Transport(TransportError::Remote { source: RemoteError::Chunk, .. })));
        assert!(remote, "{refused:?}");
        assert_eq!(
            (calls() - before.0, refusals() - before.1),
            (1, 1),
            "the error is the end of it: the call is not made again"
        );
        read(&client, 100, 1).await;
    });
}

/// A server on [`ADDRESS`] with one connection, over which a call has been made.
async fn one_connection(world: &World) -> (Client, ConnectionHandle, rpcrdma_sim::Task<bool>, Arc<common::Store>) {
    let fabric = world.fabric(SERVER);
    let env = world.env();
    let store = store(&env);
    let log = Arc::new(Log::default());
    let memory = ServerMemory::budget(1 << 20);
    let server = Server::new(&fabric, router(&env, &store), memory, env, server_options(), log);
    let mut listener = fabric.listen(ADDRESS).await.unwrap();
    let connecting = {
        let world = world.clone();
        async move { transport(&world, SimConfig::default()).await.0 }
    };
    let connecting = world.spawn(connecting);
    let pending = poll_fn(|cx| listener.poll_accept(cx)).await.unwrap();
    let (handle, driver) = server.accept(pending).await.unwrap();
    let served = world.spawn(async move { driver.await.is_ok() });
    let transport = connecting.await;
    assert_eq!(transport.server(), ADDRESS);
    let client = client(transport);
    client.null().await.unwrap();
    (client, handle, served, store)
}

#[test]
fn draining_answers_what_was_dispatched() {
    let world = World::new(11);
    world.block_on(async {
        let (client, handle, served, store) = one_connection(&world).await;
        let call = start_read(&client, 100_000, 1, Duration::from_secs(1));
        world.sleep(Duration::from_millis(100)).await;
        handle.drain();
        // The next call is for another connection.
        let late = client.call(COUNT, Payload::new(), ReplyShape::inline(4));
        finish_read(call, 100_000, 1).await.unwrap();
        assert!(served.await);
        assert_eq!(store.executed.load(std::sync::atomic::Ordering::Relaxed), 0);
        drop(late);
    });
}

#[test]
fn draining_closes_a_connection_without_calls_at_once() {
    let world = World::new(13);
    world.block_on(async {
        let (_client, handle, served, _) = one_connection(&world).await;
        world.sleep(Duration::from_millis(100)).await;
        let before = world.now();
        handle.drain();
        assert!(served.await);
        assert!(world.now().since(before) < Duration::from_millis(100));
    });
}

#[test]
fn misuse_is_told_at_the_limit_and_nothing_is_sent() {
    let world = World::new(12);
    world.block_on(async {
        let _serving = serve(&world, SimConfig::default(), server_options(), 64 << 20);
        world.sleep(Duration::from_millis(1)).await;
        let (transport, log) = transport(&world, SimConfig::default()).await;
        client(transport.clone()).null().await.unwrap();
        let limits = transport.limits();
        let call = |octets: usize, reply: ReplyShape| {
            let xid = transport.next_xid();
            let mut message = bytes(&[xid, 0, 2, common::PROGRAM, 1, common::READ, 0, 0, 0, 0]).to_vec();
            message.resize(octets, 0);
            transport.call(Request {
                xid,
                message: Payload::from(Bytes::from(message)),
                reply,
                repeatable: false,
                anew: None,
            })
        };
        let lent = |capacity: usize| {
            let buffer = Some(Buffer::from_vec(vec![0; capacity]));
            ReplyShape { max_len: 20_000, items: vec![ItemRoom { max_len: 10_000, buffer }].into() }
        };
        let sent = || log.count(|event| matches!(event, Event::Sent(about) if about.kind == MessageKind::Call));
        let before = sent();
        let refused = call(limits.max_call + 1, ReplyShape::inline(64)).await;
        assert!(matches!(refused, Err(TransportError::Misuse(Misuse::CallTooLarge { .. }))), "{refused:?}");
        let refused = call(40, ReplyShape::inline(limits.max_reply + 1)).await;
        assert!(matches!(refused, Err(TransportError::Misuse(Misuse::ReplyTooLarge { .. }))), "{refused:?}");
        let refused = call(40, lent(9_999)).await;
        let too_small = Misuse::BufferTooSmall { capacity: 9_999, max_len: 10_000 };
        assert!(matches!(refused, Err(TransportError::Misuse(misuse)) if misuse == too_small));
        assert_eq!(sent(), before);
        // Calls at the limits are sent; it does not matter that the service understands none of them.
        for (octets, reply) in
            [(limits.max_call, ReplyShape::inline(64)), (40, ReplyShape::inline(limits.max_reply)), (40, lent(10_000))]
        {
            let answer = call(octets, reply).await;
            assert!(answer.is_ok(), "{answer:?}");
        }
        assert_eq!(sent(), before + 3);
    });
}

/// A peer that posts no receives takes no replies, so the server drops it, and other clients do not notice.
#[test]
fn a_server_with_little_memory_serves_everybody_in_turn() {
    for seed in 20..23 {
        let world = World::new(seed);
        world.block_on(async {
            let serving = serve(&world, SimConfig::default(), server_options(), 2 << 20);
            world.sleep(Duration::from_millis(1)).await;
            let mut tasks = Vec::new();
            for k in 0..4 {
                let (transport, _) = transport(&world, SimConfig::default()).await;
                let client = client(transport);
                tasks.push(world.spawn(async move {
                    for round in 0..10 {
                        write(&client, 700_000, k * 100 + round).await;
                        read(&client, 800_000, k * 100 + round).await;
                        swap(&client, 300_000, 400_000).await;
                    }
                }));
            }
            for task in tasks {
                task.await;
            }
            assert!(serving.log.count(|event| matches!(event, Event::Stalled(_))) > 0, "memory was short");
        });
    }
}

#[test]
fn lost_connections_at_any_moment_lose_no_call() {
    for seed in 100..115 {
        let world = World::new(seed);
        world.block_on(async {
            let (client, _, _serving) = both(&world).await;
            let random = world.env().random;
            let mut tasks = Vec::new();
            for k in 0..30 {
                let client = client.clone();
                tasks.push(world.spawn(async move {
                    let len = (k as usize * 12_345) % 300_000;
                    for round in 0..4 {
                        write(&client, len, k + round).await;
                        let call = start_read(&client, len, k, Duration::from_micros(50 * u64::from(k)));
                        finish_read(call, len, k).await.unwrap();
                    }
                }));
            }
            for _ in 0..4 {
                world.sleep(Duration::from_micros(random.below(3000))).await;
                world.cut(CLIENT, SERVER);
            }
            for task in tasks {
                task.await;
            }
            assert!(world.now().since(rpcrdma_env::Timestamp::ZERO) < STALL_LIMIT, "without waiting for time-outs");
        });
    }
}
