//! Clients that abuse version 2: each loses at most its own connection, and no other client notices.

mod common;
#[path = "common/peer.rs"]
mod peer;

use bytes::Bytes;
use common::{End, Log, params, read, router, store, write};
use peer::{EXCHANGE, GRANT, Peer, header, rpc};
use rpcrdma_fabric::{Fabric, Lent, Token};
use rpcrdma_oncrpc::Client;
use rpcrdma_sim::World;
use rpcrdma_transport::{
    ClientOptions, ConnectionError, Event, PeerFault, Server, ServerMemory, ServerOptions, Stall, Versions, v2,
};
use rpcrdma_wire::{
    v1,
    v2::{
        Body, Chunks, Credits, ErrorBody, Header, Lists, OtherBody, PropertySet, ReadList, ReadSegment, Segment,
        WriteChunk, WriteList,
    },
};
use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

const FRIEND: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
const SERVER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));
const FOE: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 3));
const ADDRESS: SocketAddr = SocketAddr::new(SERVER, 20049);

async fn serve(world: &World, memory: ServerMemory) -> Arc<Log> {
    let fabric = world.fabric(SERVER);
    let env = world.env();
    let log = Arc::new(Log::default());
    let mut options = ServerOptions::default();
    options.versions = Versions::Auto;
    let handler = router(&env, &store(&env));
    let server = Server::new(&fabric, handler, memory, env, options, log.clone());
    common::serve_at(world, Arc::new(fabric), ADDRESS, server);
    world.sleep(Duration::from_millis(1)).await;
    log
}

async fn friend(world: &World) -> Client {
    let mut options = ClientOptions::default();
    options.versions = Versions::Two;
    common::friend(world, FRIEND, ADDRESS, options).await
}

async fn bare_foe(world: &World) -> Peer {
    Peer::new(End::new(world.fabric(FOE).connect(ADDRESS, params(128)).await.unwrap()))
}

/// A hostile client that has announced its properties.
async fn foe(world: &World) -> Peer {
    let mut foe = bare_foe(world).await;
    foe.exchange().await;
    foe.hear(|header| matches!(header.body, Body::Connprop(_))).await.unwrap();
    foe
}

fn faults(log: &Log, wanted: PeerFault) -> usize {
    let wanted = ConnectionError::Peer(wanted);
    log.count(|event| matches!(event, Event::Closed { error: Some(error) } if *error == wanted))
}

fn closed(log: &Log) -> usize {
    log.count(|event| matches!(event, Event::Closed { .. }))
}

/// Checks that the server still serves the connection.
async fn lives(foe: &mut Peer, xid: u32) {
    assert!(foe.say(header(xid, false, Lists::default()), &rpc(xid, 0, &[])).await);
    assert!(foe.reply(xid).await.is_some(), "a call is answered");
}

/// proves: V2-4.2.3.3-c, V2-4.2.3.3-d
#[test]
fn a_version_that_is_settled_stays() {
    let world = World::new(1);
    world.block_on(async {
        let log = serve(&world, ServerMemory::budget(8 << 20)).await;
        let mut foe = foe(&world).await;
        for (xid, version) in [(7, 1), (8, 3), (9, u32::MAX)] {
            let mut octets = header(xid, false, Lists::default()).to_bytes().to_vec();
            octets[4..8].copy_from_slice(&u32::to_be_bytes(version));
            octets.extend_from_slice(&rpc(xid, 0, &[]));
            let errors = foe.errors.len();
            foe.post(octets.into());
            while foe.errors.len() == errors {
                world.sleep(Duration::from_micros(100)).await;
                foe.look().await;
            }
        }
        lives(&mut foe, 10).await;
        let refused: Vec<_> = foe.errors.clone();
        assert!(refused.iter().all(|(_, error)| *error == ErrorBody::Version { low: 2, high: 2 }), "{refused:?}");
        assert_eq!(closed(&log), 0);
        // And version 1 stays version 1.
        let mut foe = Peer::new(End::new(world.fabric(FOE).connect(ADDRESS, params(16)).await.unwrap()));
        let one = |xid: u32| {
            let mut octets = v1::Header::new(xid, 8, v1::Body::Msg(v1::Lists::default())).to_bytes().to_vec();
            octets.extend_from_slice(&rpc(xid, 0, &[]));
            Bytes::from(octets)
        };
        for octets in [one(1), header(2, false, Lists::default()).to_bytes(), one(3)] {
            foe.post(octets);
            foe.look().await;
            world.sleep(Duration::from_millis(10)).await;
            foe.look().await;
        }
        assert_eq!(foe.messages, 3, "a reply, a refusal, a reply");
        assert_eq!(closed(&log), 0);
    });
}

/// proves: V2-6.2.2.2-i
#[test]
fn a_message_that_does_not_end_ends_the_connection_in_a_minute() {
    let world = World::new(2);
    world.block_on(async {
        let memory = ServerMemory::budget(8 << 20);
        let log = serve(&world, memory.clone()).await;
        // One message stops; the other goes on without end, a few bytes at a time.
        for drip in [None, Some(Duration::from_secs(5))] {
            let mut foe = foe(&world).await;
            let begun = world.now();
            foe.part(7, false, true, &rpc(7, common::BULK, &[100_000])).await;
            while !foe.closed()
                && let Some(drip) = drip
            {
                world.sleep(drip).await;
                foe.part(7, false, true, &[0; 4]).await;
            }
            foe.ends().await;
            let took = world.now().since(begun);
            assert!(took >= v2::SEQUENCE_TIMEOUT && took < v2::SEQUENCE_TIMEOUT * 5 / 4, "{took:?}");
        }
        assert_eq!(faults(&log, PeerFault::Unfinished), 2);
        assert!(memory.arguments.try_allocate(4 << 20).is_some(), "its memory has come back");
    });
}

/// Messages in parts occupy the server's memory, and count against its budget.
#[test]
fn many_unfinished_messages_keep_within_the_budget() {
    let world = World::new(3);
    world.block_on(async {
        let memory = ServerMemory::budget(16 << 20);
        let log = serve(&world, memory.clone()).await;
        let friend = friend(&world).await;
        read(&friend, 100_000, 1).await;
        let mut foes = Vec::new();
        for _ in 0..8 {
            let mut foe = foe(&world).await;
            foe.part(7, false, true, &rpc(7, common::BULK, &[1 << 20])).await;
            foes.push(foe);
        }
        world.sleep(Duration::from_secs(1)).await;
        assert!(memory.arguments.try_allocate(1 << 20).is_none(), "all of it is in use");
        let stalled = log.count(|event| *event == Event::Stalled(Stall::Memory));
        assert!((1..8).contains(&stalled), "{stalled} of them wait");
        // A call that needs this memory waits, and gets its turn; a read needs none of it.
        read(&friend, 100_000, 1).await;
        let begun = world.now();
        write(&friend, 300_000, 1).await;
        assert!(world.now().since(begun) <= v2::SEQUENCE_TIMEOUT * 3);
        world.sleep(v2::SEQUENCE_TIMEOUT * 4).await;
        assert_eq!(faults(&log, PeerFault::Unfinished), 8);
        assert!(memory.arguments.try_allocate(8 << 20).is_some(), "all of it is back");
        drop(foes);
    });
}

/// A client whose calls are answered keeps none of the server's memory, however long it stays connected.
#[test]
fn what_a_call_in_parts_took_is_free_when_it_is_answered() {
    let world = World::new(8);
    world.block_on(async {
        let memory = ServerMemory::budget(16 << 20);
        let log = serve(&world, memory.clone()).await;
        let mut client = foe(&world).await;
        let bulk = [rpc(3, common::BULK, &[5000]), vec![0; 5000].into()].concat();
        let (head, tail) = bulk.split_at(4040);
        client.part(3, false, true, head).await;
        world.sleep(Duration::from_millis(10)).await;
        assert!(memory.arguments.try_allocate(8 << 20).is_none(), "some of it is in use");
        client.part(3, false, false, tail).await;
        assert!(client.reply(3).await.is_some());
        world.sleep(Duration::from_millis(10)).await;
        assert!(memory.arguments.try_allocate(8 << 20).is_some(), "all of it is back");
        lives(&mut client, 4).await;
        assert_eq!(closed(&log), 0);
    });
}

/// The server does not read from a client that waits for its memory, and does not give it up for messages not yet read.
#[test]
fn who_waits_for_memory_is_not_given_up() {
    let world = World::new(7);
    world.block_on(async {
        let memory = ServerMemory::budget(4 << 20);
        let log = serve(&world, memory.clone()).await;
        let mut first = foe(&world).await;
        first.part(7, false, true, &rpc(7, common::BULK, &[1 << 20])).await;
        let mut honest = bare_foe(&world).await;
        honest.word = Credits::new(1, 1);
        honest.exchange().await;
        honest.hear(|header| matches!(header.body, Body::Connprop(_))).await.unwrap();
        // Two calls whose replies need credits, a call in parts that waits for memory, and then the credits.
        honest.word = Credits::new(0, 1);
        for xid in 1..3 {
            honest.say(header(xid, false, Lists::default()), &rpc(xid, common::READ, &[0, 0, 100, 1])).await;
        }
        let bulk = [rpc(3, common::BULK, &[5000]), vec![0; 5000].into()].concat();
        let (head, tail) = bulk.split_at(4040);
        honest.part(3, false, true, head).await;
        honest.word = GRANT;
        honest.part(3, false, false, tail).await;
        for xid in 1..4 {
            assert!(honest.reply(xid).await.is_some(), "{xid}");
        }
        assert!(u128::from(world.now().as_nanos()) >= v2::SEQUENCE_TIMEOUT.as_nanos(), "it did wait");
        assert_eq!((faults(&log, PeerFault::Unfinished), faults(&log, PeerFault::NoCredits)), (1, 0));
    });
}

/// The server grants a peer with unanswered calls in parts no credits for more of them.
#[test]
fn calls_in_parts_pile_up_to_a_limit() {
    let world = World::new(4);
    world.block_on(async {
        let memory = ServerMemory::budget(64 << 20);
        let log = serve(&world, memory.clone()).await;
        let mut foe = foe(&world).await;
        let sent = world.spawn({
            let world = world.clone();
            async move {
                // The server sleeps a minute over each call.
                let mut sent = 0;
                'calls: for xid in 1..60u32 {
                    let mut octets = rpc(xid, common::HOLD, &[13, 0xf847_5800, 200_000]).to_vec();
                    octets.resize(octets.len() + 200_000, 0);
                    let parts: Vec<&[u8]> = octets.chunks(4060).collect();
                    for (at, part) in parts.iter().enumerate() {
                        let patience = world.now() + Duration::from_secs(10);
                        loop {
                            foe.look().await;
                            if foe.credits > 0 {
                                break;
                            }
                            if world.now() > patience {
                                break 'calls;
                            }
                            world.sleep(Duration::from_millis(1)).await;
                        }
                        foe.part(xid, false, at + 1 < parts.len(), part).await;
                        sent += part.len();
                    }
                }
                (sent, foe)
            }
        });
        let (sent, mut foe) = sent.await;
        assert!((500_000..1_500_000).contains(&sent), "{sent} bytes were taken");
        assert_eq!(closed(&log), 0);
        // When the calls are answered, the peer can go on.
        world.sleep(Duration::from_secs(100)).await;
        foe.look().await;
        assert!(foe.credits > 0, "it may go on");
    });
}

/// In any flood, each message of a peer gets at most one answer, and the connection lives or ends.
#[test]
fn floods_are_answered_once_each_or_end_their_connection() {
    let segment = Segment { handle: 1, length: 8, offset: 0 };
    let reads = Lists { reads: ReadList(vec![ReadSegment { position: 40, segment }].into()), ..Lists::default() };
    let floods: [(&str, Header, Bytes); 8] = [
        ("properties", Header::connprop(EXCHANGE, GRANT, false, PropertySet::default()), Bytes::new()),
        ("properties and more", Header::connprop(EXCHANGE, GRANT, true, PropertySet::default()), Bytes::new()),
        ("errors", Header::error(7, 2, GRANT, ErrorBody::System), Bytes::new()),
        ("unknown types", Header::other(7, GRANT, false, OtherBody::new(99, Bytes::new()).unwrap()), Bytes::new()),
        ("unknown answers", Header::other(7, GRANT, true, OtherBody::new(99, Bytes::new()).unwrap()), Bytes::new()),
        ("replies to nobody", header(7, true, Lists::default()), peer::rpc_reply(7, &[])),
        ("replies in chunks", Header::nomsg(7, GRANT, true, Chunks::from(reads)), Bytes::new()),
        ("calls that are none", header(7, false, Lists::default()), Bytes::from_static(&[0; 40])),
    ];
    for (seed, (name, flood, payload)) in floods.into_iter().enumerate() {
        let world = World::new(seed as u64);
        world.block_on(async {
            let log = serve(&world, ServerMemory::budget(8 << 20)).await;
            let friend = friend(&world).await;
            let mut foe = foe(&world).await;
            let before = foe.messages;
            let mut sent = 0;
            while sent < 1000 && foe.say(flood.clone(), &payload).await {
                sent += 1;
            }
            world.sleep(Duration::from_millis(10)).await;
            foe.look().await;
            assert!(foe.messages - before <= sent + 2, "{name}: {} answers to {sent} messages", foe.messages - before);
            if !foe.closed() {
                lives(&mut foe, 2000).await;
            }
            read(&friend, 50_000, 1).await;
            assert!(closed(&log) <= 1, "{name}");
        });
    }
}

/// A peer that has spent its last credit on grants may wait for one of ours and gets it, but never one for each of its
/// own.
///
/// proves: V2-4.2.1.2-d
#[test]
fn a_flood_of_grants_is_answered_only_where_no_credit_may_be_left() {
    const GRANTS: usize = 500;
    let world = World::new(5);
    world.block_on(async {
        let log = serve(&world, ServerMemory::budget(8 << 20)).await;
        let mut foe = foe(&world).await;
        let before = foe.messages;
        for _ in 0..GRANTS {
            assert!(foe.say(Header::grant(GRANT), &[]).await, "a legal message");
        }
        world.sleep(Duration::from_secs(1)).await;
        foe.look().await;
        let answers = foe.messages - before;
        assert!((1..=GRANTS / 8).contains(&answers), "{answers} grants for {GRANTS}");
        lives(&mut foe, 2000).await;
        assert_eq!(closed(&log), 0);
    });
}

/// proves: V2-4.2.1.1-i
#[test]
fn a_peer_that_grants_nothing_is_given_up_with_its_answers() {
    let world = World::new(6);
    world.block_on(async {
        let memory = ServerMemory::budget(8 << 20);
        let log = serve(&world, memory.clone()).await;
        let mut foe = bare_foe(&world).await;
        foe.word = Credits::new(1, 1);
        foe.exchange().await;
        foe.hear(|header| matches!(header.body, Body::Connprop(_))).await.unwrap();
        foe.word = Credits::new(0, 0);
        let begun = world.now();
        for xid in 1..4 {
            foe.say(header(xid, false, Lists::default()), &rpc(xid, common::READ, &[0, 0, 3000, 1])).await;
        }
        foe.ends().await;
        let took = world.now().since(begun);
        assert!(took >= v2::CREDIT_TIMEOUT && took <= v2::CREDIT_TIMEOUT * 2, "{took:?}");
        world.sleep(Duration::from_secs(10)).await;
        assert_eq!(faults(&log, PeerFault::NoCredits), 1);
        assert!(memory.results.try_allocate(4 << 20).is_some());
    });
}

fn reading(xid: u32, len: u32, into: Segment) -> (Header, Bytes) {
    let lists = Lists { writes: WriteList(vec![WriteChunk(vec![into].into())].into()), ..Lists::default() };
    (header(xid, false, lists), rpc(xid, common::READ, &[0, 0, len, 1]))
}

fn writing(xid: u32, segment: Segment) -> (Header, Bytes) {
    let lists = Lists { reads: ReadList(vec![ReadSegment { position: 48, segment }].into()), ..Lists::default() };
    (header(xid, false, lists), rpc(xid, common::WRITE, &[1, segment.length]))
}

#[test]
fn more_messages_than_credits_end_the_connection() {
    let world = World::new(8);
    world.block_on(async {
        let log = serve(&world, ServerMemory::budget(8 << 20)).await;
        let friend = friend(&world).await;
        let mut foe = foe(&world).await;
        for xid in 0..200 {
            let call = rpc(xid, common::SLEEP, &[0, 500_000_000, 4, 1]);
            foe.post([header(xid, false, Lists::default()).to_bytes(), call].concat().into());
            foe.look().await;
        }
        foe.ends().await;
        world.sleep(Duration::from_millis(1)).await;
        assert_eq!(faults(&log, PeerFault::CreditsOverrun), 1);
        read(&friend, 100_000, 1).await;
        assert_eq!(closed(&log), 1);
    });
}

#[test]
fn memory_that_was_never_registered_costs_its_namer_the_connection_and_us_no_memory() {
    let world = World::new(9);
    world.block_on(async {
        let memory = ServerMemory::budget(8 << 20);
        let log = serve(&world, memory.clone()).await;
        let friend = friend(&world).await;
        for round in 0..20 {
            let mut foe = foe(&world).await;
            let nowhere = Segment { handle: 0xDEAD, length: 1 << 20, offset: 7 };
            let (header, call) =
                if round % 2 == 0 { writing(round, nowhere) } else { reading(round, 1 << 20, nowhere) };
            foe.say(header, &call).await;
            foe.ends().await;
        }
        world.sleep(Duration::from_secs(1)).await;
        assert_eq!(closed(&log), 20);
        assert!(memory.arguments.try_allocate(4 << 20).is_some(), "all of it has come back");
        assert!(memory.results.try_allocate(4 << 20).is_some());
        write(&friend, 1 << 20, 1).await;
    });
}

#[test]
fn a_peer_that_vanishes_is_dropped_with_what_it_has_begun() {
    for parts in [false, true] {
        let world = World::new(10);
        world.block_on(async {
            let memory = ServerMemory::budget(8 << 20);
            let log = serve(&world, memory.clone()).await;
            let mut foe = foe(&world).await;
            if parts {
                foe.part(7, false, true, &rpc(7, common::BULK, &[1 << 20])).await;
            } else {
                let source = foe.end.qp.expose(Token(9), Lent::Source(vec![1; 1 << 20].into())).unwrap();
                let segment = Segment { handle: source.handle, length: source.length, offset: source.offset };
                let (header, call) = writing(7, segment);
                foe.say(header, &call).await;
            }
            world.sleep(Duration::from_micros(60)).await;
            world.partition(FOE, SERVER);
            world.sleep(Duration::from_secs(90)).await;
            assert_eq!(log.count(|event| matches!(event, Event::Closed { error: Some(_) })), 1);
            assert!(memory.arguments.try_allocate(4 << 20).is_some(), "its memory has come back");
        });
    }
}

/// Random messages, from many peers, in many worlds.
#[test]
fn noise_costs_nobody_else_anything() {
    for seed in 0..30 {
        let world = World::new(seed);
        world.block_on(async {
            let memory = ServerMemory::budget(8 << 20);
            let _log = serve(&world, memory.clone()).await;
            let friend = friend(&world).await;
            let random = world.env().random;
            for _ in 0..10 {
                let mut foe = bare_foe(&world).await;
                if random.below(4) > 0 {
                    foe.exchange().await;
                }
                for _ in 0..random.below(40) {
                    let xid = random.below(4) as u32;
                    let response = random.below(4) == 0;
                    let segment = Segment { handle: random.next_u32(), length: random.next_u32() >> 12, offset: 0 };
                    let reads = Lists {
                        reads: ReadList(vec![ReadSegment { position: 48, segment }].into()),
                        ..Lists::default()
                    };
                    let (mut octets, payload) = match random.below(6) {
                        0 => (Header::msg(xid, GRANT, response, true, Chunks::default()), rpc(xid, 0, &[])),
                        1 => (header(xid, response, Lists::default()), rpc(xid, common::BULK, &[0])),
                        2 => (header(xid, response, reads), rpc(xid, common::WRITE, &[1, segment.length])),
                        3 => (Header::connprop(xid, GRANT, response, PropertySet::default()), Bytes::new()),
                        4 => (Header::error(xid, 2, GRANT, ErrorBody::System), Bytes::new()),
                        _ => (Header::grant(GRANT), Bytes::new()),
                    };
                    octets.credits = Credits::new(random.below(5) as u16, random.below(40) as u16);
                    let mut octets = [octets.to_bytes(), payload].concat();
                    for _ in 0..random.below(3) {
                        let at = random.below(octets.len() as u64) as usize;
                        octets[at] = random.next_u32() as u8;
                    }
                    foe.look().await;
                    if foe.credits > 0 || random.below(20) == 0 {
                        foe.post(octets.into());
                    }
                    foe.look().await;
                    world.sleep(Duration::from_micros(random.below(200))).await;
                }
                read(&friend, 5000, 1).await;
                write(&friend, 50_000, 2).await;
            }
            world.sleep(Duration::from_secs(120)).await;
            assert!(memory.arguments.try_allocate(4 << 20).is_some(), "seed {seed}");
            assert!(memory.results.try_allocate(4 << 20).is_some(), "seed {seed}");
        });
    }
}
