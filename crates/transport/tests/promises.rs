//! Promises of the transport whose tests need two ends and a fabric with faults: calls that end with their connection,
//! and work that goes on whatever the ends negotiate.

mod common;

use bytes::Bytes;
use common::{COUNT, Log, bulk, bytes, client, finish_read, params, read, router, start_read, store, swap, write};
use rpcrdma_env::BoxFuture;
use rpcrdma_fabric::{
    Completion, Fabric, Lent, SendWork, Token, WriteWork,
    faults::{Fault, FaultFabric, Point, Script},
};
use rpcrdma_oncrpc::{
    AcceptNone, Answer, CallContext, CallError, Client, NoAuth, ReplyShape, Router, Service, TransportError,
};
use rpcrdma_sim::{SimConfig, World};
use rpcrdma_transport::{
    ClientOptions, ConnectionError, Event, Reverse, Server, ServerMemory, ServerOptions, Versions, connect,
};
use rpcrdma_wire::{
    v1::{Body, Header, Lists, ReadList, ReadSegment, Segment, WriteList},
    v2,
};
use rpcrdma_xdr::{Decoder, Encoder, Payload};
use std::{
    future::poll_fn,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::{Arc, Mutex},
    time::Duration,
};

const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
const SERVER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));
const FOREIGNER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 3));
const ADDRESS: SocketAddr = SocketAddr::new(SERVER, 20049);
const BOTH: [Versions; 2] = [Versions::One, Versions::Two];

/// Serves on a fabric until the world ends. Reports the peers' addresses.
fn serve(
    world: &World,
    fabric: Arc<dyn Fabric>,
    options: ServerOptions,
    handler: Arc<Router>,
) -> (Arc<Log>, Arc<Mutex<Vec<SocketAddr>>>) {
    let log = Arc::new(Log::default());
    let peers = Arc::new(Mutex::new(Vec::new()));
    let memory = ServerMemory::budget(16 << 20);
    let server = Server::new(&*fabric, handler, memory, world.env(), options, log.clone());
    let (spawner, seen) = (world.clone(), peers.clone());
    world.spawn(async move {
        let mut listener = fabric.listen(ADDRESS).await.unwrap();
        loop {
            let Ok(pending) = poll_fn(|cx| listener.poll_accept(cx)).await else { continue };
            let (server, seen) = (server.clone(), seen.clone());
            spawner.spawn(async move {
                seen.lock().unwrap().push(pending.peer());
                if let Ok((_, driver)) = server.accept(pending).await {
                    let _ = driver.await;
                }
            });
        }
    });
    (log, peers)
}

fn server_options(versions: Versions) -> ServerOptions {
    let mut options = ServerOptions::default();
    options.versions = versions;
    options
}

fn client_options(versions: Versions) -> ClientOptions {
    let mut options = ClientOptions::default();
    options.versions = versions;
    options
}

async fn connected(world: &World, fabric: Arc<dyn Fabric>, options: ClientOptions) -> (Client, Arc<Log>) {
    world.sleep(Duration::from_millis(1)).await;
    let log = Arc::new(Log::default());
    let (transport, driver) = connect(fabric, ADDRESS, &world.env(), options, log.clone()).await.unwrap();
    world.spawn(driver);
    (client(transport), log)
}

fn plain(world: &World, ip: IpAddr, config: SimConfig) -> Arc<dyn Fabric> {
    Arc::new(world.fabric_with(ip, config))
}

fn faulty(world: &World, inner: Arc<dyn Fabric>, script: Script) -> Arc<dyn Fabric> {
    Arc::new(FaultFabric::new(inner, Arc::new(script), world.env()))
}

fn connections(log: &Log) -> usize {
    log.count(|event| matches!(event, Event::Connected { .. }))
}

/// An invalidation that fails ends the connection, and only after this end the caller gets the reply. The client waits
/// for a slow invalidation.
/// proves: V1-4.5.4-b, V2-7.4-b
#[test]
fn a_reply_whose_memory_cannot_be_fenced_costs_the_connection() {
    const DELAY: Duration = Duration::from_secs(3);
    for versions in BOTH {
        for fault in [Fault::Cut, Fault::Delay(DELAY)] {
            let world = World::new(1);
            world.block_on(async {
                let config = SimConfig::without_invalidation();
                let handler = router(&world.env(), &store(&world.env()));
                serve(&world, plain(&world, SERVER, config.clone()), server_options(versions), handler);
                let script = Script::new().at(Point::Invalidate, 1, fault).only_connection(1);
                let fabric = faulty(&world, plain(&world, CLIENT, config), script);
                let (client, log) = connected(&world, fabric, client_options(versions)).await;
                client.null().await.unwrap();
                let before = world.now();
                read(&client, 100_000, 5).await;
                assert!(fault == Fault::Cut || world.now().since(before) >= DELAY, "it was waited for");
                let fenced_first = {
                    let events = log.0.lock().unwrap();
                    let at = |wanted: &dyn Fn(&Event) -> bool| events.iter().position(wanted).expect("it happened");
                    let fenced = at(&|event| matches!(event, Event::Invalidated { by_peer: false, .. }));
                    fenced < at(&|event| matches!(event, Event::Answered { placed_bytes: 100_000, .. }))
                };
                assert!(fenced_first, "the reply is given out when nobody reaches its memory any more");
                read(&client, 100_000, 6).await;
                assert_eq!(connections(&log), if fault == Fault::Cut { 2 } else { 1 }, "the first was given up");
            });
        }
    }
}

/// The reply has arrived, but the memory with its data never comes back: the connection is dropped for another reason,
/// and that memory with it. The client sends the call again, because the reply is useless without its data.
#[test]
fn an_answer_whose_memory_is_lost_with_the_connection_is_asked_for_again() {
    for versions in [Versions::Two, Versions::Auto] {
        let world = World::new(4);
        world.block_on(async {
            let config = SimConfig::without_invalidation();
            let handler = router(&world.env(), &store(&world.env()));
            serve(&world, plain(&world, SERVER, config.clone()), server_options(versions), handler);
            // No Send ever completes, so the Send of the properties seems stuck: the connection stalls.
            let script = Script::new().at(Point::Invalidate, 1, Fault::Withhold).always(Point::Done, Fault::Withhold);
            let fabric = faulty(&world, plain(&world, CLIENT, config), script.only_connection(1));
            let (client, log) = connected(&world, fabric, client_options(versions)).await;
            read(&client, 100_000, 5).await;
            assert_eq!(connections(&log), 2, "{versions:?}");
            let again =
                |event: &Event| matches!(event, Event::Answered { placed_bytes: 100_000, retransmitted: true, .. });
            assert_eq!(log.count(again), 1);
            assert_eq!(log.count(|event| matches!(event, Event::Answered { .. })), 1, "once, with its data");
        });
    }
}

/// proves: V1-4.5.4-c, V2-7.4-c
#[test]
fn a_server_that_cannot_answer_closes_and_the_client_learns_of_it() {
    for versions in BOTH {
        for fault in [Fault::Refuse, Fault::Fail] {
            let world = World::new(2);
            world.block_on(async {
                let handler = router(&world.env(), &store(&world.env()));
                // In version 2 the first Sends are the server's properties and a grant.
                let nth = if versions == Versions::One { 2 } else { 3 };
                let script = Script::new().at(Point::PostSend, nth, fault).only_connection(1);
                let fabric = faulty(&world, plain(&world, SERVER, SimConfig::default()), script);
                let (served, _) = serve(&world, fabric, server_options(versions), handler);
                let fabric = plain(&world, CLIENT, SimConfig::default());
                let (client, log) = connected(&world, fabric, client_options(versions)).await;
                let before = world.now();
                for seed in 0..4 {
                    read(&client, 100, seed).await;
                }
                assert_eq!(connections(&log), 2, "{versions:?} {fault:?}: the call was answered on another");
                assert!(world.now().since(before) < Duration::from_secs(10), "nobody waited for a silence to end");
                let gone = |event: &Event| matches!(event, Event::Closed { .. });
                assert_eq!(served.count(gone), 1);
                if fault == Fault::Refuse {
                    let refused =
                        |event: &Event| matches!(event, Event::Closed { error: Some(ConnectionError::Provider(_)) });
                    assert_eq!(served.count(refused), 1, "{versions:?}: by the server itself");
                }
            });
        }
    }
}

/// proves: V2-A.4-b, V1-6.3-b
#[test]
fn callers_notice_nothing_of_what_is_agreed_upon() {
    let small = SimConfig::default().with_capabilities(|capabilities| {
        capabilities.max_gather = 2;
        capabilities.max_ord = 1;
        capabilities.max_exposure_bytes = 1 << 20;
    });
    for versions in [Versions::One, Versions::Two, Versions::Auto] {
        for (ours, theirs) in [(4096, 4096), (65_536, 4096), (4096, 65_536), (65_536, 65_536)] {
            for (credits, segments) in [(1, 512), (2, 3), (64, 16)] {
                for config in [SimConfig::default(), small.clone()] {
                    let world = World::new(3);
                    world.block_on(async {
                        let mut options = server_options(versions);
                        (options.credits, options.inline_bytes) = (credits, theirs);
                        // Version 1 cannot announce how many segments an end takes.
                        options.limits.segments = if versions == Versions::One { 512 } else { segments };
                        let handler = router(&world.env(), &store(&world.env()));
                        serve(&world, plain(&world, SERVER, config.clone()), options, handler);
                        let mut options = client_options(versions);
                        (options.credits, options.inline_bytes) = (credits, ours);
                        let fabric = plain(&world, CLIENT, config.clone());
                        let (client, log) = connected(&world, fabric, options).await;
                        for len in [0, 5, 4000, 9000, 70_001] {
                            read(&client, len, 5).await;
                            write(&client, len, 6).await;
                            bulk(&client, len).await;
                            swap(&client, len, len / 2).await;
                        }
                        assert_eq!(connections(&log), 1);
                    });
                }
            }
        }
    }
}

/// A client that lost its connection comes back from another port, and the server still recognizes its call.
/// proves: ULB-3.4.2-a, ULB-3.4.2-b
#[test]
fn a_retransmission_from_another_port_is_no_other_call() {
    for versions in BOTH {
        let world = World::new(4);
        world.block_on(async {
            let store = store(&world.env());
            let handler = router(&world.env(), &store);
            // The connection ends before the reply leaves.
            let script = Script::new().at(Point::PostSend, if versions == Versions::One { 2 } else { 3 }, Fault::Cut);
            let fabric = faulty(&world, plain(&world, SERVER, SimConfig::default()), script.only_connection(1));
            let (_, peers) = serve(&world, fabric, server_options(versions), handler);
            let fabric = plain(&world, CLIENT, SimConfig::default());
            let (client, _) = connected(&world, fabric, client_options(versions)).await;
            client.null().await.unwrap();
            let mut counts = Vec::new();
            for _ in 0..3 {
                let mut results = client.call(COUNT, Payload::new(), ReplyShape::inline(4)).await.unwrap();
                counts.push(results.decoder.u32().unwrap());
            }
            assert_eq!(counts, [1, 2, 3], "each executed once");
            let peers = peers.lock().unwrap();
            let [first, second] = peers[..] else { panic!("two connections: {peers:?}") };
            assert!(first.ip() == second.ip() && first.port() != second.port());
        });
    }
}

/// Results that fill what a server has on the way wait until the client takes those before them, and no longer.
#[test]
fn a_result_that_is_taken_lets_the_next_call_run() {
    for versions in BOTH {
        let world = World::new(7);
        world.block_on(async {
            let handler = router(&world.env(), &store(&world.env()));
            serve(&world, plain(&world, SERVER, SimConfig::default()), server_options(versions), handler);
            let fabric = plain(&world, CLIENT, SimConfig::default());
            let (client, _) = connected(&world, fabric, client_options(versions)).await;
            let before = world.now();
            let calls: Vec<_> = (0..12).map(|seed| start_read(&client, common::MAX, seed, Duration::ZERO)).collect();
            for (call, seed) in calls.into_iter().zip(0..) {
                finish_read(call, common::MAX, seed).await.unwrap();
            }
            assert!(world.now().since(before) < Duration::from_secs(5), "nobody waited for a silence to end");
        });
    }
}

/// A client that has its answer may call again before the server knows that the answer was taken. Such a call is held
/// so long, and no longer.
#[test]
fn a_call_that_is_held_starts_when_an_answer_is_taken() {
    for versions in BOTH {
        let world = World::new(8);
        world.block_on(async {
            let late = Script::new().always(Point::Done, Fault::Delay(Duration::from_millis(20)));
            let fabric = faulty(&world, plain(&world, SERVER, SimConfig::default()), late);
            let mut options = server_options(versions);
            options.credits = 1;
            serve(&world, fabric, options, router(&world.env(), &store(&world.env())));
            let fabric = plain(&world, CLIENT, SimConfig::default());
            let (client, _) = connected(&world, fabric, client_options(versions)).await;
            let before = world.now();
            for seed in 0..4 {
                read(&client, 100, seed).await;
            }
            let took = world.now().since(before);
            assert!(took > Duration::from_millis(60), "each but the first was held: {took:?}");
            assert!(took < Duration::from_secs(5), "nobody waited for a silence to end: {took:?}");
        });
    }
}

/// Keeps the reverse client of the last caller.
struct Remembers(Arc<Mutex<Option<Client>>>);

impl Service for Remembers {
    fn program(&self) -> u32 {
        0x2000_0003
    }
    fn version(&self) -> u32 {
        1
    }
    fn is_idempotent(&self, _: u32) -> bool {
        true
    }
    fn call(&self, context: CallContext, _: u32, _: Decoder) -> BoxFuture<'static, Answer> {
        let reverse = context.connection.reverse.clone();
        let back = reverse.map(|reverse| Client::new(reverse, Arc::new(NoAuth), common::PROGRAM, 1));
        *self.0.lock().unwrap() = back;
        Box::pin(async { Answer::Results(Payload::new()) })
    }
}

/// A server makes no connections: an unfinished reverse call fails, and its caller can call again when the client is
/// back.
/// proves: V2-4.5.5-c, V2-3.1.3.2-a
#[test]
fn a_lost_reverse_call_is_given_up_and_can_be_made_again() {
    for versions in BOTH {
        let world = World::new(5);
        world.block_on(async {
            let env = world.env();
            let back = Arc::new(Mutex::new(None));
            let handler = Router::new(&env)
                .with_service(Arc::new(Remembers(back.clone())))
                .with_service(store(&env))
                .with_flavour(Arc::new(AcceptNone));
            let mut options = server_options(versions);
            options.reverse_credits = 4;
            let (served, _) = serve(&world, plain(&world, SERVER, SimConfig::default()), options, Arc::new(handler));
            let mut options = client_options(versions);
            options.reverse = Some(Reverse { handler: router(&env, &store(&env)), credits: 4 });
            let fabric = plain(&world, CLIENT, SimConfig::default());
            let (client, _) = connected(&world, fabric, options).await;
            let caller = Client::new(client.transport().clone(), Arc::new(NoAuth), 0x2000_0003, 1);
            let calling_back = async || {
                caller.call(1, Payload::new(), ReplyShape::inline(0)).await.unwrap();
                back.lock().unwrap().clone().expect("there is a way back")
            };
            let first = calling_back().await;
            let lost = start_read(&first, 100, 5, Duration::from_secs(5));
            world.sleep(Duration::from_millis(10)).await;
            world.cut(CLIENT, SERVER);
            let before = world.now();
            let error = finish_read(lost, 100, 5).await.unwrap_err();
            assert!(matches!(error, CallError::Transport(TransportError::Closed)), "{error}");
            assert!(world.now().since(before) < Duration::from_secs(120), "it does not wait for ever");
            let second = calling_back().await;
            read_back(&second, 100).await;
            assert_eq!(connections(&served), 2, "both made by the client");
        });
    }
}

/// A READ in the reverse direction: all of it inline.
async fn read_back(client: &Client, len: usize) {
    finish_read(start_read(client, len, 6, Duration::ZERO), len, 6).await.unwrap();
}

/// A server of version 1 that writes into a Write chunk and then returns the chunk as unused.
/// proves: V1-4.3.2.2-d
#[test]
fn memory_behind_an_unused_chunk_is_taken_for_nothing() {
    let world = World::new(6);
    world.block_on(async {
        let fabric = world.fabric(SERVER);
        world.spawn(async move {
            let mut listener = fabric.listen(ADDRESS).await.unwrap();
            let pending = poll_fn(|cx| listener.poll_accept(cx)).await.unwrap();
            let mut qp = pending.request().await.unwrap().accept(params(8)).await.unwrap();
            loop {
                let Completion::Received { buffer, .. } = poll_fn(|cx| qp.poll(cx)).await else { continue };
                let (header, _) = Header::decode(buffer.filled()).unwrap();
                let chunks = header.body.lists().unwrap().writes.chunks().to_vec();
                for segment in chunks.iter().flat_map(|chunk| chunk.segments()) {
                    let octets = vec![Bytes::from(vec![0xBA; segment.length as usize])];
                    let (handle, offset) = (segment.handle, segment.offset);
                    qp.post_write(WriteWork { octets: octets.into(), handle, offset, ..WriteWork::default() }).unwrap();
                }
                let writes = WriteList(chunks.iter().filter_map(|chunk| chunk.filled(0)).collect());
                let reply = Header::new(header.xid, 8, Body::Msg(Lists { writes, ..Lists::default() })).to_bytes();
                // The result is inline: a seed, no bytes, the seed.
                let results = bytes(&[header.xid, 1, 0, 0, 0, 0, 7, 0, 7]);
                qp.post_send(SendWork { token: Token(1), octets: vec![reply, results].into(), ..SendWork::default() })
                    .unwrap();
            }
        });
        let fabric = plain(&world, CLIENT, SimConfig::default());
        let (client, log) = connected(&world, fabric, client_options(Versions::One)).await;
        let mut args = Encoder::new();
        args.u64(0);
        args.u32(50_000);
        args.u32(7);
        let allocated = rpcrdma_env::Allocator::try_allocate(&rpcrdma_env::Heap, 50_000);
        let room = rpcrdma_oncrpc::ItemRoom { max_len: 50_000, buffer: allocated };
        let shape = ReplyShape { max_len: 50_012, items: vec![room].into() };
        let mut results = client.call(common::READ, args.finish(), shape).await.unwrap();
        assert_eq!(results.decoder.u32().unwrap(), 7);
        assert!(results.decoder.item(50_000).unwrap().as_slice().is_empty(), "no byte of what was written is read");
        assert_eq!(results.decoder.u32().unwrap(), 7);
        assert_eq!(log.count(|event| matches!(event, Event::Closed { .. })), 0);
    });
}

/// Data of five bytes whose chunk has eight: the ends never send padding, but accept it.
/// proves: V2-4.3.5.2-c, V1-3.4.5.2-a, V1-3.4.5.2-d, V2-4.3.5.2-a, V2-4.3.5.2-b
#[test]
fn padding_in_a_chunk_is_taken_and_never_sent() {
    for versions in BOTH {
        let world = World::new(7);
        world.block_on(async {
            let handler = router(&world.env(), &store(&world.env()));
            let (served, _) =
                serve(&world, plain(&world, SERVER, SimConfig::default()), server_options(versions), handler);
            let (client, log) =
                connected(&world, plain(&world, CLIENT, SimConfig::default()), client_options(versions)).await;
            for len in [9001, 70_003] {
                write(&client, len, 6).await;
                let exactly = |event: &Event| matches!(event, Event::Sent(sent) if sent.placed_bytes == len as u64);
                assert_eq!(log.count(exactly), 1, "{len} bytes in the chunk and no more");
            }
            let mut qp = world.fabric(FOREIGNER).connect(ADDRESS, params(8)).await.unwrap();
            let mut data = common::pattern(5, 6);
            data.extend([0; 3]);
            let source = qp.expose(Token(9), Lent::Source(data.into())).unwrap();
            // With the padding in the last segment, and in a separate segment.
            for (xid, lengths) in [(3u32, &[8][..]), (4, &[5, 3])] {
                let mut offset = source.offset;
                let mut reads = Vec::new();
                for &length in lengths {
                    let segment = Segment { handle: source.handle, length, offset };
                    reads.push(ReadSegment { position: 48, segment });
                    offset += u64::from(length);
                }
                let lists = Lists { reads: ReadList(reads.into()), ..Lists::default() };
                let header = match versions {
                    Versions::One => Header::new(xid, 8, Body::Msg(lists)).to_bytes(),
                    _ => v2::Header::msg(xid, v2::Credits::new(8, 8), false, false, v2::Chunks::from(lists)).to_bytes(),
                };
                let call = bytes(&[xid, 0, 2, common::PROGRAM, 1, common::WRITE, 0, 0, 0, 0, 6, 5]);
                qp.post_send(SendWork { token: Token(1), octets: vec![header, call].into(), ..SendWork::default() })
                    .unwrap();
                // The reply says that five bytes came, and that they are correct.
                let answer = loop {
                    match poll_fn(|cx| qp.poll(cx)).await {
                        Completion::Received { buffer, .. } => {
                            let octets = buffer.filled().to_vec();
                            if octets.ends_with(&bytes(&[1, 5])) {
                                break octets;
                            }
                        }
                        Completion::Closed { reason } => panic!("{versions:?}: {reason:?}"),
                        _ => {}
                    }
                };
                assert_eq!(answer[..4], xid.to_be_bytes());
            }
            let pulled = |event: &Event| matches!(event, Event::Called { pulled_bytes: 8, .. });
            assert_eq!(served.count(pulled), 2);
        });
    }
}

/// A server that writes eight bytes into each Write chunk if `returned` says so, and whose inline results are
/// `results`.
fn odd_server(world: &World, versions: Versions, returned: u64, results: &'static [u32]) {
    let fabric = world.fabric(SERVER);
    world.spawn(async move {
        let mut listener = fabric.listen(ADDRESS).await.unwrap();
        let pending = poll_fn(|cx| listener.poll_accept(cx)).await.unwrap();
        let mut qp = pending.request().await.unwrap().accept(params(64)).await.unwrap();
        loop {
            let Completion::Received { buffer, .. } = poll_fn(|cx| qp.poll(cx)).await else { continue };
            let octets = Bytes::copy_from_slice(buffer.filled());
            let grants = v2::Credits::new(8, 32);
            let (xid, lists, payload) = if versions == Versions::One {
                let (header, len) = Header::decode(&octets).unwrap();
                (header.xid, header.body.lists().unwrap().clone(), octets.slice(len..))
            } else {
                let (header, len) = v2::Header::decode(&octets).unwrap();
                match header.body {
                    v2::Body::Msg(chunks) => (header.xid, chunks.lists, octets.slice(len..)),
                    v2::Body::Connprop(_) => {
                        let ours = v2::Header::connprop(9, grants, false, v2::PropertySet::default()).to_bytes();
                        qp.post_send(SendWork { octets: vec![ours].into(), ..SendWork::default() }).unwrap();
                        continue;
                    }
                    _ => continue,
                }
            };
            let null = payload[20..24] == [0; 4];
            let mut writes = Vec::new();
            for chunk in lists.writes.chunks() {
                writes.extend(chunk.filled(returned));
                let to = &chunk.segments()[0];
                let octets = vec![Bytes::from(vec![0xBA; returned as usize])];
                qp.post_write(WriteWork {
                    octets: octets.into(),
                    handle: to.handle,
                    offset: to.offset,
                    ..WriteWork::default()
                })
                .unwrap();
            }
            let lists = Lists { writes: WriteList(writes.into()), ..Lists::default() };
            let header = match versions {
                Versions::One => Header::new(xid, 8, Body::Msg(lists)).to_bytes(),
                _ => v2::Header::msg(xid, grants, true, false, v2::Chunks::from(lists)).to_bytes(),
            };
            let reply = bytes(&[&[xid, 1, 0, 0, 0, 0][..], if null { &[] } else { results }].concat());
            qp.post_send(SendWork { octets: vec![header, reply].into(), ..SendWork::default() }).unwrap();
        }
    });
}

/// A reply whose chunks and stream do not match ends its call and nothing else. If an item comes inline and its chunk
/// comes back unused, version 2 uses the inline item.
/// proves: V1-6.1-e, V1-6.1-f, V2-A.1-d, V2-A.1-e, V2-A.1-h
#[test]
fn a_reply_that_is_reduced_wrongly_ends_its_call() {
    // Bytes in the chunk; the results inline: a seed, a count, the bytes if they are inline, and the seed.
    let cases: [(u64, &'static [u32], [bool; 2]); 4] = [
        (8, &[7, 8, 7], [true, true]),
        (8, &[7, 0, 7], [false, false]),
        (8, &[7, 3, 0x0101_0100, 7], [false, false]),
        (0, &[7, 3, 0x0101_0100, 7], [false, true]),
    ];
    for (returned, results, taken) in cases {
        for (versions, taken) in BOTH.into_iter().zip(taken) {
            let world = World::new(8);
            world.block_on(async {
                odd_server(&world, versions, returned, results);
                let fabric = plain(&world, CLIENT, SimConfig::default());
                let (client, log) = connected(&world, fabric, client_options(versions)).await;
                let mut args = Encoder::new();
                args.u64(0);
                args.u32(50_000);
                args.u32(7);
                let shape = ReplyShape { max_len: 50_012, items: vec![rpcrdma_oncrpc::ItemRoom::new(50_000)].into() };
                let result = client.call(common::READ, args.finish(), shape).await.map_err(|error| error.to_string());
                let read = result.and_then(|mut results| {
                    let said = |error: rpcrdma_xdr::DecodeError| error.to_string();
                    results.decoder.u32().map_err(said)?;
                    let octets = results.decoder.item(50_000).map_err(said)?.as_slice().len();
                    results.decoder.u32().map_err(said)?;
                    results.decoder.finish().map_err(said)?;
                    Ok(octets)
                });
                assert_eq!(read.is_ok(), taken, "{versions:?}, {returned} bytes returned, {results:?}: {read:?}");
                client.null().await.unwrap();
                assert_eq!(log.count(|event| matches!(event, Event::Closed { .. })), 0);
            });
        }
    }
}
