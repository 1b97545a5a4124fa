//! Servers that abuse version 2: each call of a client ends or goes to the next connection, and the client's memory
//! comes back.

mod common;
#[path = "common/peer.rs"]
mod peer;

use common::{COUNT, End, Log, Script, finish_read, pattern, read, script, serve_after, start_read};
use peer::{EXCHANGE, GRANT, Peer, header, rpc_reply};
use rpcrdma_env::Buffer;
use rpcrdma_oncrpc::{CallError, Client, ItemRoom, RemoteError, ReplyShape, TransportError};
use rpcrdma_sim::{Task, World};
use rpcrdma_transport::{ClientOptions, ConnectionError, Event, MessageKind, PeerFault, Versions, v2};
use rpcrdma_wire::v2::{Body, Chunks, Credits, ErrorBody, Header, Lists, PropertySet};
use rpcrdma_xdr::{Encoder, Payload};
use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
const SERVER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));
const ADDRESS: SocketAddr = SocketAddr::new(SERVER, 20049);

/// Gives the first `scripted` connections to the script, and all others to a real server.
fn serve(world: &World, versions: Versions, scripted: usize, script: Script) -> (Arc<common::Store>, Task<()>) {
    serve_after(world, ADDRESS, versions, scripted, script)
}

async fn connected(world: &World, versions: Versions) -> (Client, Arc<Log>) {
    world.sleep(Duration::from_millis(1)).await;
    let mut options = ClientOptions::default();
    options.versions = versions;
    common::connected(world, CLIENT, ADDRESS, options).await
}

/// Answers the client's first message with the server's properties.
async fn introduce(peer: &mut Peer) {
    peer.hear(|header| matches!(header.body, Body::Connprop(_))).await;
    peer.exchange().await;
}

fn faults(log: &Log, wanted: PeerFault) -> usize {
    let wanted = ConnectionError::Peer(wanted);
    log.count(|event| matches!(event, Event::Closed { error: Some(error) } if *error == wanted))
}

fn refused(error: &CallError) -> Option<u32> {
    match error {
        CallError::Transport(TransportError::Remote { source: RemoteError::Other { code, .. }, .. }) => Some(*code),
        _ => None,
    }
}

fn calls(log: &Log) -> usize {
    log.count(|event| matches!(event, Event::Sent(sent) if sent.kind == MessageKind::Call))
}

/// proves: V2-4.2.1.1-i
#[test]
fn a_server_that_grants_nothing_is_left_for_another_connection() {
    let world = World::new(1);
    world.block_on(async {
        let stingy = script(|world, mut peer: Peer| async move {
            peer.word = Credits::new(0, 0);
            introduce(&mut peer).await;
            // The server only shows that it is alive.
            while !peer.closed() {
                world.sleep(Duration::from_secs(1)).await;
                peer.say(header(9, true, Lists::default()), &rpc_reply(9, &[])).await;
            }
        });
        let _served = serve(&world, Versions::Two, 1, stingy);
        let (client, log) = connected(&world, Versions::Two).await;
        let begun = world.now();
        client.null().await.unwrap();
        let took = world.now().since(begun);
        assert!(took >= v2::CREDIT_TIMEOUT && took < v2::CREDIT_TIMEOUT * 2, "{took:?}");
        assert_eq!((faults(&log, PeerFault::NoCredits), calls(&log)), (1, 1));
    });
}

/// proves: V2-6.4-f, V2-6.4-g, V2-7.3.5-c, V2-7.3.4-d
#[test]
fn a_server_that_never_has_room_enough_is_not_believed_for_ever() {
    let world = World::new(2);
    world.block_on(async {
        let greedy = script(|_, mut peer: Peer| async move {
            introduce(&mut peer).await;
            let mut needed = 10_000;
            while let Some((call, _)) = peer.call().await {
                needed += 10_000;
                let error = ErrorBody::ReplyResource { length_needed: needed };
                peer.say(Header::error(call.xid, 2, GRANT, error), &[]).await;
            }
        });
        let _served = serve(&world, Versions::Two, 1, greedy);
        let (client, log) = connected(&world, Versions::Two).await;
        for (repeatable, times) in [(true, 3), (false, 1), (true, 3)] {
            let before = calls(&log);
            let call = match repeatable {
                true => client.call_repeatable(COUNT, Payload::new(), ReplyShape::inline(4)),
                false => client.call(COUNT, Payload::new(), ReplyShape::inline(4)),
            };
            let error = call.await.unwrap_err();
            assert_eq!(refused(&error), Some(10), "{error}");
            assert_eq!(calls(&log) - before, times);
        }
        // The client does not try again: `u32::MAX` is too much, and zero names no missing room.
        let cases = [
            ErrorBody::ReplyResource { length_needed: 0 },
            ErrorBody::ReplyResource { length_needed: u32::MAX },
            ErrorBody::WriteResource { chunk_index: 0, length_needed: 0 },
            ErrorBody::WriteResource { chunk_index: 1, length_needed: u32::MAX },
        ];
        for error in cases {
            let world = World::new(3);
            world.block_on(async {
                let refusing = script(move |_, mut peer: Peer| async move {
                    introduce(&mut peer).await;
                    while let Some((call, _)) = peer.call().await {
                        peer.say(Header::error(call.xid, 2, GRANT, error), &[]).await;
                    }
                });
                let _served = serve(&world, Versions::Two, 1, refusing);
                let (client, log) = connected(&world, Versions::Two).await;
                let call = client.call_repeatable(COUNT, Payload::new(), ReplyShape::inline(4));
                assert!(refused(&call.await.unwrap_err()).is_some());
                assert_eq!(calls(&log), 1);
            });
        }
    });
}

/// The state of a call when the caller takes it back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The server has not said which version it speaks.
    Probing,
    /// The exchange of properties is under way.
    Exchanging,
    /// The call waits for a credit.
    Queued,
    /// The server does not answer.
    Sent,
    /// Some parts of the call are sent.
    Halfway,
    /// The server has refused the call once, and the client has sent it again.
    Again,
    /// Some parts of the reply have come.
    Answered,
}

#[test]
fn calls_are_taken_back_in_every_phase() {
    use Phase::{Again, Answered, Exchanging, Halfway, Probing, Queued, Sent};
    for phase in [Probing, Exchanging, Queued, Sent, Halfway, Again, Answered] {
        let world = World::new(4);
        world.block_on(async {
            let reached = Arc::new(AtomicU32::new(0));
            let reaching = reached.clone();
            let stopping = script(move |world, mut peer: Peer| {
                let reached = reaching.clone();
                async move {
                    peer.word = match phase {
                        Queued => Credits::new(0, 32),
                        Halfway => Credits::new(5, 32),
                        _ => GRANT,
                    };
                    peer.hear(|header| matches!(header.body, Body::Connprop(_))).await;
                    match phase {
                        Probing => {}
                        Exchanging => {
                            peer.say(Header::connprop(EXCHANGE, GRANT, true, PropertySet::default()), &[]).await;
                        }
                        _ => peer.exchange().await,
                    }
                    peer.word = Credits::new(0, 32);
                    match phase {
                        Sent => drop(peer.call().await),
                        Halfway => drop(peer.hear(|header| header.flags.more).await),
                        Again => {
                            peer.word = GRANT;
                            let (call, _) = peer.call().await.unwrap();
                            let error = ErrorBody::ReplyResource { length_needed: 200_000 };
                            peer.say(Header::error(call.xid, 2, GRANT, error), &[]).await;
                            drop(peer.call().await);
                        }
                        Answered => {
                            let (call, _) = peer.call().await.unwrap();
                            peer.part(call.xid, true, true, &rpc_reply(call.xid, &[100_000])).await;
                        }
                        _ => {}
                    }
                    reached.store(1, Ordering::Relaxed);
                    while !peer.closed() {
                        peer.look().await;
                        world.sleep(Duration::from_millis(1)).await;
                    }
                }
            });
            let _served = serve(&world, Versions::Two, 1, stopping);
            let (client, log) = connected(&world, Versions::Two).await;
            let mut args = Encoder::new();
            args.opaque(&pattern(if phase == Halfway { 60_000 } else { 100 }, 1));
            let buffer = Buffer::from_vec(vec![0; 100_000]);
            let shape = ReplyShape { max_len: 100_100, items: vec![ItemRoom::lend(buffer)].into() };
            let call = client.call_repeatable(common::BULK, args.finish(), shape);
            let dropped = start_read(&client, 100_000, 2, Duration::ZERO);
            world.sleep(Duration::from_millis(500)).await;
            assert_eq!(reached.load(Ordering::Relaxed), 1, "{phase:?}");
            drop(dropped);
            let begun = world.now();
            let cancelled = call.cancel().await;
            assert_eq!(cancelled.buffers.len(), 1, "{phase:?}");
            assert!(cancelled.buffers[0].capacity() >= 100_000);
            assert!(world.now().since(begun) < Duration::from_millis(1), "{phase:?}: at once");
            assert_eq!(log.count(|event| matches!(event, Event::Closed { .. })), 0, "{phase:?}");
            drop(client);
            world.sleep(Duration::from_secs(10)).await;
            assert_eq!(world.open_ends(), 0, "{phase:?}: nothing is left");
        });
    }
}

/// Takes this many steps of a conversation, and disconnects.
async fn leaves_after(mut peer: Peer, steps: usize) {
    for step in 0..steps {
        match step {
            0 => drop(peer.hear(|header| matches!(header.body, Body::Connprop(_))).await),
            1 => drop(peer.say(Header::connprop(EXCHANGE, GRANT, true, PropertySet::default()), &[]).await),
            2 => peer.exchange().await,
            3 => drop(peer.call().await),
            _ => drop(peer.say(Header::grant(GRANT), &[]).await),
        }
    }
    peer.end.qp.disconnect();
    peer.ends().await;
}

/// proves: V2-4.2.3.2-h
#[test]
fn connections_that_are_lost_at_any_step_lose_no_call() {
    for versions in [Versions::Two, Versions::Auto] {
        for steps in 0..6 {
            let world = World::new(steps as u64);
            world.block_on(async {
                let leaving = script(move |_, peer| leaves_after(peer, steps));
                let (store, _served) = serve(&world, Versions::Auto, 1, leaving);
                let (client, log) = connected(&world, versions).await;
                let begun = world.now();
                let counting = client.call(COUNT, Payload::new(), ReplyShape::inline(4));
                let reading = start_read(&client, 70_000, 3, Duration::ZERO);
                assert_eq!(counting.await.unwrap().decode::<u32>().unwrap(), 1);
                finish_read(reading, 70_000, 3).await.unwrap();
                assert_eq!(store.executed.load(Ordering::Relaxed), 1);
                assert!(world.now().since(begun) < Duration::from_millis(500), "{versions:?} {steps}");
                let last = log.0.lock().unwrap().iter().rev().find_map(|event| match event {
                    Event::Negotiated(made) => Some(made.version),
                    _ => None,
                });
                // The client assumes that a server without an answer has no version 2.
                let one = versions == Versions::Auto && steps < 2;
                assert_eq!(last, Some(if one { 1 } else { 2 }), "{versions:?} {steps}");
            });
        }
    }
}

#[test]
fn a_reply_that_does_not_end_is_asked_for_elsewhere() {
    let world = World::new(5);
    world.block_on(async {
        let endless = script(|world, mut peer: Peer| async move {
            introduce(&mut peer).await;
            let Some((call, _)) = peer.call().await else { return };
            let mut payload = rpc_reply(call.xid, &[4]);
            while peer.part(call.xid, true, true, &payload).await {
                payload = vec![0; 4].into();
                world.sleep(Duration::from_secs(1)).await;
            }
        });
        let _served = serve(&world, Versions::Two, 1, endless);
        let (client, log) = connected(&world, Versions::Two).await;
        let begun = world.now();
        read(&client, 50_000, 1).await;
        let took = world.now().since(begun);
        assert!(took >= v2::SEQUENCE_TIMEOUT && took < v2::SEQUENCE_TIMEOUT * 2, "{took:?}");
        assert_eq!(faults(&log, PeerFault::Unfinished), 1);
    });
}

/// If a server comes back with other versions, the client uses one of these.
#[test]
fn a_server_may_come_back_with_other_versions() {
    let world = World::new(6);
    world.block_on(async {
        let nobody = || script(|_, _: End| async {});
        let (_, mut task) = serve(&world, Versions::Two, 0, nobody());
        let (client, log) = connected(&world, Versions::Auto).await;
        read(&client, 50_000, 1).await;
        for (versions, spoken) in [(Versions::One, 1), (Versions::Two, 2), (Versions::Auto, 2), (Versions::One, 1)] {
            task.abort();
            world.crash(SERVER);
            world.sleep(Duration::from_secs(1)).await;
            world.restart(SERVER);
            (_, task) = serve(&world, versions, 0, nobody());
            read(&client, 50_000, 1).await;
            let last = log.0.lock().unwrap().iter().rev().find_map(|event| match event {
                Event::Negotiated(made) => Some(made.version),
                _ => None,
            });
            assert_eq!(last, Some(spoken), "{versions:?}");
        }
    });
}

/// Random messages from the server on a few connections, then an honest connection: every call ends.
#[test]
fn noise_from_a_server_delays_calls_and_no_more() {
    for seed in 0..40 {
        let world = World::new(seed);
        world.block_on(async {
            let noise = script(|world, mut peer: Peer| async move {
                let random = world.env().random;
                peer.hear(|header| matches!(header.body, Body::Connprop(_))).await;
                if random.below(4) > 0 {
                    peer.exchange().await;
                }
                let mut xid = 0;
                for _ in 0..random.below(60) {
                    peer.look().await;
                    // Often about a call of the client.
                    if random.below(2) == 0
                        && let Some((call, _)) = peer.waiting()
                    {
                        xid = call.xid;
                    }
                    let (message, payload) = match random.below(7) {
                        0 => (header(xid, true, Lists::default()), rpc_reply(xid, &[random.next_u32()])),
                        1 => (Header::msg(xid, GRANT, true, true, Chunks::default()), rpc_reply(xid, &[])),
                        2 => {
                            (Header::connprop(xid, GRANT, random.below(2) == 0, PropertySet::default()), vec![].into())
                        }
                        3 => (Header::error(xid, 2, GRANT, ErrorBody::ReadChunks { max_chunks: 0 }), vec![].into()),
                        4 => (
                            Header::error(
                                xid,
                                2,
                                GRANT,
                                ErrorBody::ReplyResource { length_needed: random.next_u32() >> 12 },
                            ),
                            vec![].into(),
                        ),
                        5 => (header(xid, false, Lists::default()), peer::rpc(xid, 0, &[])),
                        _ => (Header::grant(GRANT), vec![].into()),
                    };
                    let word = Credits::new(random.below(9) as u16, random.below(40) as u16);
                    let mut octets = [Header { credits: word, ..message }.to_bytes(), payload].concat();
                    for _ in 0..random.below(3) {
                        let at = random.below(octets.len() as u64) as usize;
                        octets[at] = random.next_u32() as u8;
                    }
                    if peer.credits > 0 || random.below(20) == 0 {
                        peer.post(octets.into());
                        peer.look().await;
                    }
                    world.sleep(Duration::from_micros(random.below(300))).await;
                }
                peer.end.qp.disconnect();
                peer.ends().await;
            });
            let _served = serve(&world, Versions::Two, 4, noise);
            let (client, _) = connected(&world, Versions::Two).await;
            let mut tasks = Vec::new();
            for k in 0..20u32 {
                let client = client.clone();
                tasks.push(world.spawn(async move {
                    // Such a server may answer wrongly: only the end of each call counts.
                    let mut args = Encoder::new();
                    args.opaque(&pattern(k as usize * 900, k));
                    let shape = ReplyShape { max_len: 20_000, items: vec![ItemRoom::new(9000)].into() };
                    let _ = client.call_repeatable(common::BULK, args.finish(), shape).await;
                }));
            }
            for task in tasks {
                task.await;
            }
            // Whatever noise remains, sooner or later a call succeeds.
            let begun = world.now();
            while client.null().await.is_err() {
                world.sleep(Duration::from_millis(100)).await;
                assert!(world.now().since(begun) < Duration::from_secs(1000), "seed {seed}");
            }
            drop(client);
            world.sleep(Duration::from_secs(200)).await;
            assert_eq!(world.open_ends(), 0, "seed {seed}");
        });
    }
}
