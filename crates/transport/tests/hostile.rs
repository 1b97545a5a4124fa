//! Peers that break the rules: each loses at most its own connection, and no other client notices.

mod common;

use bytes::Bytes;
use common::{Log, bytes, params, read, router, store, write};
use rpcrdma_fabric::{Buffer, CloseReason, Completion, Connected, Fabric, Lent, RemoteSegment, SendWork, Token};
use rpcrdma_oncrpc::Client;
use rpcrdma_sim::World;
use rpcrdma_transport::{ClientOptions, ConnectionError, Event, PeerFault, Server, ServerMemory, ServerOptions};
use rpcrdma_wire::v1::{Body, ErrorBody, Header, Lists, ReadList, ReadSegment, Segment, WriteChunk, WriteList};
use std::{
    future::poll_fn,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

const FRIEND: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
const SERVER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));
const FOE: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 3));
const ADDRESS: SocketAddr = SocketAddr::new(SERVER, 20049);

/// Longer than any answer takes.
const IDLE: Duration = Duration::from_secs(600);

/// What RFC 5531 calls GARBAGE_ARGS.
const GARBAGE_ARGUMENTS: u32 = 4;

fn serve(world: &World, memory: ServerMemory) -> Arc<Log> {
    let fabric = world.fabric(SERVER);
    let env = world.env();
    let log = Arc::new(Log::default());
    let handler = router(&env, &store(&env));
    let server = Server::new(&fabric, handler, memory, env, ServerOptions::default(), log.clone());
    common::serve_at(world, Arc::new(fabric), ADDRESS, server);
    log
}

async fn friend(world: &World) -> Client {
    common::friend(world, FRIEND, ADDRESS, ClientOptions::default()).await
}

/// A bare queue pair to the server, with `receives` receives.
async fn foe(world: &World, receives: usize) -> Connected {
    world.fabric(FOE).connect(ADDRESS, params(receives)).await.unwrap()
}

fn post(qp: &mut Connected, octets: Bytes) {
    let _ = qp.post_send(SendWork { token: Token(1), octets: vec![octets].into(), ..SendWork::default() });
}

async fn next(qp: &mut Connected) -> Completion {
    poll_fn(|cx| qp.poll(cx)).await
}

/// The next message, or `None` if the connection ends first.
async fn message(qp: &mut Connected) -> Option<Header> {
    Some(whole_message(qp).await?.0)
}

/// The same with the bytes behind the header.
async fn whole_message(qp: &mut Connected) -> Option<(Header, Vec<u8>)> {
    loop {
        match next(qp).await {
            Completion::Received { buffer, .. } => {
                let (header, len) = Header::decode(buffer.filled()).unwrap();
                return Some((header, buffer.filled()[len..].to_vec()));
            }
            Completion::Closed { .. } => return None,
            _ => {}
        }
    }
}

/// Whether a queue pair has no completion.
async fn is_quiet(qp: &mut Connected) -> bool {
    poll_fn(|cx| std::task::Poll::Ready(qp.poll(cx).is_pending())).await
}

async fn closed(qp: &mut Connected) -> CloseReason {
    loop {
        if let Completion::Closed { reason } = next(qp).await {
            return reason;
        }
    }
}

fn call(xid: u32, lists: Lists, procedure: u32, args: &[u32]) -> Bytes {
    let mut octets = Header::new(xid, 8, Body::Msg(lists)).to_bytes().to_vec();
    octets.extend_from_slice(&bytes(&[xid, 0, 2, common::PROGRAM, 1, procedure, 0, 0, 0, 0]));
    octets.extend_from_slice(&bytes(args));
    octets.into()
}

fn null(xid: u32) -> Bytes {
    call(xid, Lists::default(), 0, &[])
}

/// A READ of `len` bytes into one Write chunk.
fn reading(xid: u32, len: u32, into: Segment) -> Bytes {
    let lists = Lists { writes: WriteList(vec![WriteChunk(vec![into].into())].into()), ..Lists::default() };
    call(xid, lists, common::READ, &[0, 0, len, 1])
}

/// A WRITE whose data the server pulls from `segment`.
fn writing(xid: u32, segment: Segment) -> Bytes {
    let lists = Lists { reads: ReadList(vec![ReadSegment { position: 48, segment }].into()), ..Lists::default() };
    call(xid, lists, common::WRITE, &[1, segment.length])
}

fn faults(log: &Log, wanted: &ConnectionError) -> usize {
    log.count(|event| matches!(event, Event::Closed { error: Some(error) } if error == wanted))
}

/// proves: V1-3.3.1-c, V1-8.1-a
#[test]
fn too_many_calls_end_the_connection_of_who_sends_them() {
    let world = World::new(1);
    world.block_on(async {
        let log = serve(&world, ServerMemory::budget(8 << 20));
        world.sleep(Duration::from_millis(1)).await;
        let friend = friend(&world).await;
        let mut qp = foe(&world, 8).await;
        // A call that takes a second, and a second call although there is only one credit.
        post(&mut qp, call(1, Lists::default(), common::SLEEP, &[0, 1_000_000_000, 4, 1]));
        post(&mut qp, null(2));
        closed(&mut qp).await;
        world.sleep(Duration::from_millis(1)).await;
        assert_eq!(faults(&log, &ConnectionError::Peer(PeerFault::CreditsOverrun)), 1);
        read(&friend, 100_000, 1).await;
    });
}

/// proves: V1-4.5-a, V1-4.5-b, V1-4.5.1-a, V1-4.5.2-a, V1-4.6.2-b, V1-3.3.1-j, V1-4.5.2-b
#[test]
fn malformed_messages_get_the_answer_owed_and_the_connection_lives() {
    let world = World::new(2);
    world.block_on(async {
        let _log = serve(&world, ServerMemory::budget(8 << 20));
        world.sleep(Duration::from_millis(1)).await;
        let mut qp = foe(&world, 8).await;
        world.sleep(IDLE).await;
        assert!(is_quiet(&mut qp).await, "nothing unsolicited before the first call");
        post(&mut qp, null(1));
        assert_eq!(message(&mut qp).await.unwrap().xid, 1);
        world.sleep(IDLE).await;
        assert!(is_quiet(&mut qp).await, "nor after it");
        // The server answers none of these.
        for silent in [vec![], vec![1, 2, 3], vec![0; 27], Header::new(9, 1, Body::Done).to_bytes().to_vec()] {
            post(&mut qp, silent.into());
        }
        world.sleep(IDLE).await;
        assert!(is_quiet(&mut qp).await, "no answer, and the connection stands");
        post(&mut qp, Header::new(2, 8, Body::Nomsg(Lists::default())).to_bytes());
        let answer = message(&mut qp).await.unwrap();
        assert_eq!((answer.xid, answer.body), (2, Body::Error(ErrorBody::Chunk)));
        let mut version = null(3).to_vec();
        version[7] = 2;
        post(&mut qp, version.into());
        let answer = message(&mut qp).await.unwrap();
        assert_eq!((answer.xid, answer.version), (3, 2));
        assert_eq!(answer.body, Body::Error(ErrorBody::Version { low: 1, high: 1 }));
        post(&mut qp, null(4));
        let answer = message(&mut qp).await.unwrap();
        assert_eq!((answer.xid, answer.credit), (4, 64));
        // A good header with malformed arguments: RPC answers this, not the transport.
        post(&mut qp, call(5, Lists::default(), common::READ, &[1]));
        let (header, reply) = whole_message(&mut qp).await.unwrap();
        assert!(matches!(header.body, Body::Msg(_)));
        assert_eq!(reply, bytes(&[5, 1, 0, 0, 0, GARBAGE_ARGUMENTS]), "accepted, and not understood");
    });
}

/// proves: V1-8.1.1-a, V1-8.1-a
#[test]
fn memory_that_was_never_registered_costs_its_namer_the_connection_and_us_no_memory() {
    let world = World::new(3);
    world.block_on(async {
        let memory = ServerMemory::budget(4 << 20);
        let log = serve(&world, memory.clone());
        world.sleep(Duration::from_millis(1)).await;
        let friend = friend(&world).await;
        // Memory that exists, but on another connection of the same host.
        let mut owner = foe(&world, 8).await;
        let sink = owner.expose(Token(1), Lent::Sink(Buffer::from_vec(vec![7; 1 << 20]))).unwrap();
        let source = owner.expose(Token(2), Lent::Source(vec![7; 1 << 20].into())).unwrap();
        let theirs = |lent: RemoteSegment| Segment { handle: lent.handle, length: lent.length, offset: lent.offset };
        let nowhere = Segment { handle: 0xDEAD, length: 1 << 20, offset: 7 };
        for round in 0..20 {
            let mut qp = foe(&world, 8).await;
            let call = match round % 4 {
                0 => writing(round, nowhere),
                1 => reading(round, 1 << 20, nowhere),
                2 => writing(round, theirs(source)),
                _ => reading(round, 1 << 20, theirs(sink)),
            };
            post(&mut qp, call);
            closed(&mut qp).await;
        }
        world.sleep(Duration::from_secs(1)).await;
        assert_eq!(log.count(|event| matches!(event, Event::Closed { .. })), 20);
        assert!(is_quiet(&mut owner).await, "the owner notices nothing");
        owner.invalidate(sink.handle);
        let Completion::Fenced { memory: Lent::Sink(mut back), .. } = next(&mut owner).await else { panic!("fenced") };
        assert!(back.bytes_mut().iter().all(|octet| *octet == 7), "and nobody wrote to it");
        assert!(memory.arguments.try_allocate(2 << 20).is_some(), "all of it has come back");
        assert!(memory.results.try_allocate(2 << 20).is_some());
        write(&friend, 1 << 20, 1).await;
    });
}

/// proves: V1-4.5.3-b
#[test]
fn a_result_that_could_not_be_written_is_not_tried_for_ever() {
    let world = World::new(4);
    world.block_on(async {
        let _log = serve(&world, ServerMemory::budget(4 << 20));
        world.sleep(Duration::from_millis(1)).await;
        let nowhere = Segment { handle: 0xDEAD, length: 9000, offset: 7 };
        let mut qp = foe(&world, 8).await;
        post(&mut qp, reading(77, 9000, nowhere));
        closed(&mut qp).await;
        let mut qp = foe(&world, 8).await;
        post(&mut qp, reading(77, 9000, nowhere));
        let answer = message(&mut qp).await.unwrap();
        assert_eq!((answer.xid, answer.body), (77, Body::Error(ErrorBody::Chunk)));
    });
}

/// proves: V1-4.5.3-a, V1-8.1.4-a
#[test]
fn chunks_that_are_too_small_or_too_large_are_refused() {
    let world = World::new(5);
    world.block_on(async {
        let _log = serve(&world, ServerMemory::budget(4 << 20));
        world.sleep(Duration::from_millis(1)).await;
        let mut qp = foe(&world, 8).await;
        let sink = qp.expose(Token(9), Lent::Sink(Buffer::from_vec(vec![0; 4096]))).unwrap();
        let small = Segment { handle: sink.handle, length: 99, offset: sink.offset };
        post(&mut qp, reading(1, 100, small));
        assert_eq!(message(&mut qp).await.unwrap().body, Body::Error(ErrorBody::Chunk));
        post(&mut qp, reading(2, 99, small));
        let answer = message(&mut qp).await.unwrap();
        assert_eq!(answer.body.lists().unwrap().writes.chunks()[0].len(), 99, "at the limit");
        let huge = Segment { handle: 1, length: u32::MAX, offset: 0 };
        post(&mut qp, writing(3, huge));
        assert_eq!(message(&mut qp).await.unwrap().body, Body::Error(ErrorBody::Chunk));
    });
}

/// A long call whose XID differs from its header's is refused after its chunk has been read.
/// proves: V1-4.2.1-a
#[test]
fn chunks_that_are_no_call_keep_no_memory() {
    let world = World::new(7);
    world.block_on(async {
        let memory = ServerMemory::budget(4 << 20);
        let _log = serve(&world, memory.clone());
        world.sleep(Duration::from_millis(1)).await;
        let mut qp = foe(&world, 8).await;
        let source = qp.expose(Token(9), Lent::Source(vec![0xAB; 1 << 20].into())).unwrap();
        let segment = Segment { handle: source.handle, length: source.length, offset: source.offset };
        let lists = Lists { reads: ReadList(vec![ReadSegment { position: 0, segment }].into()), ..Lists::default() };
        for xid in 1..=4 {
            post(&mut qp, Header::new(xid, 8, Body::Nomsg(lists.clone())).to_bytes());
            let answer = message(&mut qp).await.unwrap();
            assert_eq!((answer.xid, answer.body), (xid, Body::Error(ErrorBody::Chunk)));
            assert!(memory.arguments.try_allocate(2 << 20).is_some(), "all of it is free after call {xid}");
        }
    });
}

#[test]
fn a_peer_that_vanishes_is_dropped_and_its_calls_run_to_their_end() {
    let world = World::new(6);
    world.block_on(async {
        let memory = ServerMemory::budget(4 << 20);
        let log = serve(&world, memory.clone());
        world.sleep(Duration::from_millis(1)).await;
        let mut qp = foe(&world, 8).await;
        let source = qp.expose(Token(9), Lent::Source(vec![1; 1 << 20].into())).unwrap();
        let segment = Segment { handle: source.handle, length: source.length, offset: source.offset };
        post(&mut qp, writing(1, segment));
        poll_fn(|cx| std::task::Poll::Ready(qp.poll(cx).is_pending())).await;
        world.sleep(Duration::from_micros(60)).await;
        world.partition(FOE, SERVER);
        world.sleep(Duration::from_secs(70)).await;
        assert_eq!(log.count(|event| matches!(event, Event::Closed { error: Some(_) })), 1);
        assert!(memory.arguments.try_allocate(2 << 20).is_some(), "its memory has come back");
    });
}

/// Random bytes, from many peers, in many worlds.
#[test]
fn noise_costs_nobody_else_anything() {
    for seed in 0..30 {
        let world = World::new(seed);
        world.block_on(async {
            let memory = ServerMemory::budget(4 << 20);
            let _log = serve(&world, memory.clone());
            world.sleep(Duration::from_millis(1)).await;
            let friend = friend(&world).await;
            let random = world.env().random;
            for _ in 0..10 {
                let mut qp = foe(&world, 64).await;
                for xid in 0..random.below(20) as u32 {
                    let nowhere = Segment { handle: random.next_u32(), length: random.next_u32(), offset: 0 };
                    let mut octets = match random.below(4) {
                        0 => null(xid),
                        1 => writing(xid, nowhere),
                        2 => reading(xid, random.below(10_000) as u32, nowhere),
                        _ => vec![0; random.below(200) as usize].into(),
                    }
                    .to_vec();
                    for _ in 0..random.below(4) {
                        let at = random.below(octets.len().max(1) as u64) as usize;
                        if let Some(octet) = octets.get_mut(at) {
                            *octet = random.next_u32() as u8;
                        }
                    }
                    post(&mut qp, octets.into());
                    world.sleep(Duration::from_micros(random.below(200))).await;
                    poll_fn(|cx| {
                        while let std::task::Poll::Ready(completion) = qp.poll(cx) {
                            if matches!(completion, Completion::Closed { .. }) {
                                break;
                            }
                        }
                        std::task::Poll::Ready(())
                    })
                    .await;
                }
                read(&friend, 5000, 1).await;
                write(&friend, 50_000, 2).await;
            }
            world.sleep(Duration::from_secs(60)).await;
            assert!(memory.arguments.try_allocate(2 << 20).is_some(), "seed {seed}");
            assert!(memory.results.try_allocate(2 << 20).is_some(), "seed {seed}");
        });
    }
}
