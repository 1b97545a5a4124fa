//! A call that offers memory which does not exist costs its connection once. When the client comes back with the call,
//! the server says that there will be no answer, so that the client does not come back for ever; the server answers its
//! other calls.

mod common;

use bytes::Bytes;
use common::{Log, bytes, params, router, store};
use rpcrdma_env::{Env, tokio_env};
use rpcrdma_fabric::{Buffer, Completion, Connected, ConnectionParams, Fabric, Lent, Listener, SendWork, Token};
use rpcrdma_iwarp::{Config, Iwarp};
use rpcrdma_sim::World;
use rpcrdma_transport::{Server, ServerMemory, ServerOptions, Versions};
use rpcrdma_wire::{
    v1::{Body, ErrorBody, Header, Lists, ReadList, ReadSegment, Segment, WriteChunk, WriteList},
    v2,
};
use std::{
    collections::BTreeMap,
    future::{Future, poll_fn},
    net::{IpAddr, Ipv4Addr, SocketAddr},
    pin::Pin,
    sync::Arc,
    time::Duration,
};

const SERVER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));
const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 3));
const OCTETS: u32 = 9000;
/// The call that cannot be answered, between two that can.
const BAD: u32 = 77;
const XIDS: [u32; 3] = [76, BAD, 78];
/// Simulated worlds; in about half of them a Write is done before its bytes have arrived.
const SEEDS: u64 = 24;

/// The kind of chunk that a call offers and whose memory does not exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Offer {
    Write,
    Reply,
    Read,
}

const OFFERS: [Offer; 3] = [Offer::Write, Offer::Reply, Offer::Read];

fn serve(
    fabric: &dyn Fabric,
    mut listener: Box<dyn Listener>,
    env: &Env,
    versions: Versions,
    spawn: impl Fn(Pin<Box<dyn Future<Output = ()> + std::marker::Send>>) + Clone + std::marker::Send + 'static,
) {
    let mut options = ServerOptions::default();
    options.versions = versions;
    let handler = router(env, &store(env));
    // Like a program with two serving threads: a client that comes back may reach the other thread.
    let threads = [(); 2].map(|()| {
        let (log, memory) = (Arc::new(Log::default()), ServerMemory::budget(4 << 20));
        Server::new(fabric, handler.clone(), memory, env.clone(), options.clone(), log)
    });
    let spawner = spawn.clone();
    spawn(Box::pin(async move {
        for server in threads.iter().cycle() {
            let Ok(pending) = poll_fn(|cx| listener.poll_accept(cx)).await else { continue };
            let server = server.clone();
            spawner(Box::pin(async move {
                if let Ok((_, driver)) = server.accept(pending).await {
                    let _ = driver.await;
                }
            }));
        }
    }));
}

/// A server in a simulated world. Returns its address.
async fn serve_in(world: &World, versions: Versions) -> SocketAddr {
    let fabric = world.fabric(SERVER);
    let listener = fabric.listen(SocketAddr::new(SERVER, 20049)).await.unwrap();
    let (spawner, address) = (world.clone(), listener.local_addr());
    serve(&fabric, listener, &world.env(), versions, move |task| drop(spawner.spawn(task)));
    world.sleep(Duration::from_millis(1)).await;
    address
}

fn message(versions: Versions, xid: u32, offer: Offer, segment: Segment) -> Vec<Bytes> {
    let mut lists = Lists::default();
    let args = match offer {
        Offer::Write => {
            lists.writes = WriteList(vec![WriteChunk(vec![segment].into())].into());
            vec![common::READ, 0, 0, 0, 0, 0, 0, OCTETS, 1]
        }
        Offer::Reply => {
            lists.reply = Some(WriteChunk(vec![segment].into()));
            vec![common::READ, 0, 0, 0, 0, 0, 0, OCTETS - 100, 1]
        }
        Offer::Read => {
            lists.reads = ReadList(vec![ReadSegment { position: 48, segment }].into());
            vec![common::WRITE, 0, 0, 0, 0, 1, OCTETS]
        }
    };
    let header = match versions {
        Versions::One => Header::new(xid, 8, Body::Msg(lists)).to_bytes(),
        _ => v2::Header::msg(xid, v2::Credits::new(8, 8), false, false, v2::Chunks::from(lists)).to_bytes(),
    };
    vec![header, bytes(&[xid, 0, 2, common::PROGRAM, 1]), bytes(&args)]
}

/// Makes all calls on a new connection. Returns the replies until there is one for each call, or until the connection
/// ends.
async fn attempt(
    fabric: &dyn Fabric,
    server: SocketAddr,
    versions: Versions,
    offer: Offer,
) -> (BTreeMap<u32, Vec<u8>>, Connected) {
    let mut qp = fabric.connect(server, params(16)).await.unwrap();
    // There is one credit at first, so the first call goes alone.
    let mut said = BTreeMap::new();
    for (index, xid) in XIDS.into_iter().enumerate() {
        let lent = match offer {
            Offer::Read => Lent::Source(vec![1; OCTETS as usize].into()),
            _ => Lent::Sink(Buffer::from_vec(vec![0; OCTETS as usize])),
        };
        let there = qp.expose(Token(9), lent).unwrap();
        let handle = if xid == BAD { there.handle ^ 0x8000_0001 } else { there.handle };
        let segment = Segment { handle, length: OCTETS, offset: there.offset };
        let octets = message(versions, xid, offer, segment);
        let _ = qp.post_send(SendWork { token: Token(1), octets: octets.into(), ..SendWork::default() });
        let wanted = if index == 0 { 1 } else { XIDS.len() };
        while (index == 0 || index == XIDS.len() - 1) && said.len() < wanted {
            match poll_fn(|cx| qp.poll(cx)).await {
                Completion::Received { buffer, .. } => {
                    let xid = u32::from_be_bytes(*buffer.filled().first_chunk().unwrap());
                    // In version 2 the server sends other messages as well.
                    if XIDS.contains(&xid) {
                        assert!(said.insert(xid, buffer.filled().to_vec()).is_none(), "{xid} twice");
                    }
                }
                Completion::Closed { .. } => return (said, qp),
                _ => {}
            }
        }
    }
    (said, qp)
}

fn is_error(versions: Versions, answer: &[u8]) -> bool {
    if versions == Versions::One {
        let body = Header::decode(answer).unwrap().0.body;
        assert!(matches!(body, Body::Error(ErrorBody::Chunk) | Body::Msg(_) | Body::Nomsg(_)), "{body:?}");
        matches!(body, Body::Error(_))
    } else {
        let body = v2::Header::decode(&Bytes::copy_from_slice(answer)).unwrap().0.body;
        let known = [v2::ErrorBody::System, v2::ErrorBody::ReadChunks { max_chunks: 0 }];
        assert!(!matches!(body, v2::Body::Error(ref error) if !known.contains(error)), "{body:?}");
        matches!(body, v2::Body::Error(_))
    }
}

async fn told_when_it_comes_again(fabric: &dyn Fabric, server: SocketAddr, versions: Versions, offer: Offer) {
    let what = format!("{versions:?}, {offer:?}");
    let (first, _kept) = attempt(fabric, server, versions, offer).await;
    assert!(first.len() < XIDS.len() && !first.contains_key(&BAD), "{what}: it cost the connection: {first:?}");
    assert!(first.values().all(|answer| !is_error(versions, answer)), "{what}");
    let (again, _kept) = attempt(fabric, server, versions, offer).await;
    assert_eq!(again.keys().copied().collect::<Vec<_>>(), XIDS, "{what}: all are answered");
    for (xid, answer) in &again {
        assert_eq!(is_error(versions, answer), *xid == BAD, "{what}: {xid}");
    }
}

/// proves: V1-4.5.3-b, V2-7.3-b, V2-7.3-c
#[test]
fn a_call_whose_memory_is_not_there_is_told_the_next_time() {
    for seed in 0..SEEDS {
        for (versions, offer) in [Versions::One, Versions::Two].into_iter().flat_map(|v| OFFERS.map(|o| (v, o))) {
            let world = World::new(seed);
            world.block_on(async {
                let address = serve_in(&world, versions).await;
                told_when_it_comes_again(&world.fabric(CLIENT), address, versions, offer).await;
            });
        }
    }
}

/// A client that serves no RDMA Reads gets an error for each call that needs one, and keeps its connection.
///
/// proves: V1-4.5-b, V2-7.4.1-a, V2-7.3.1-b, V2-7.3-c
#[test]
fn a_call_that_cannot_be_read_is_answered() {
    for versions in [Versions::One, Versions::Two] {
        let world = World::new(1);
        world.block_on(async {
            let address = serve_in(&world, versions).await;
            let params = ConnectionParams { ird: 0, ord: 0, ..params(16) };
            let mut qp = world.fabric(CLIENT).connect(address, params).await.unwrap();
            let there = qp.expose(Token(9), Lent::Source(vec![1; OCTETS as usize].into())).unwrap();
            let segment = Segment { handle: there.handle, length: OCTETS, offset: there.offset };
            for wanted in XIDS {
                let octets = message(versions, wanted, Offer::Read, segment);
                qp.post_send(SendWork { token: Token(1), octets: octets.into(), ..SendWork::default() }).unwrap();
                let answer = loop {
                    match poll_fn(|cx| qp.poll(cx)).await {
                        Completion::Received { buffer, .. } if buffer.filled().starts_with(&wanted.to_be_bytes()) => {
                            break buffer.filled().to_vec();
                        }
                        Completion::Closed { reason } => panic!("{versions:?}: {reason:?}"),
                        _ => {}
                    }
                };
                assert!(is_error(versions, &answer), "{versions:?}: {wanted}");
                if versions == Versions::Two {
                    let body = v2::Header::decode(&answer.into()).unwrap().0.body;
                    // With this error the client can send the call again without chunks.
                    assert_eq!(body, v2::Body::Error(v2::ErrorBody::ReadChunks { max_chunks: 0 }), "{wanted}");
                }
            }
        });
    }
}

/// Over iWARP a Write is done when its bytes are in the socket: only the peer's Terminate says which Write was refused.
/// proves: V1-4.5.3-b, V2-7.3-b, V2-7.3-c
#[tokio::test]
async fn over_iwarp_too() {
    for (versions, offer) in [Versions::One, Versions::Two].into_iter().flat_map(|v| OFFERS.map(|o| (v, o))) {
        let env = tokio_env().unwrap();
        let fabric = Iwarp::new(env.clone(), Config::default());
        let listener = fabric.listen("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let address = listener.local_addr();
        serve(&fabric, listener, &env, versions, |task| drop(tokio::spawn(task)));
        let told = told_when_it_comes_again(&fabric, address, versions, offer);
        tokio::time::timeout(Duration::from_secs(30), told).await.expect("done in time");
    }
}
