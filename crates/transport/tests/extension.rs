//! An extension of version 2 that an embedder brings: a property and a header type, over every fabric.

mod common;

use bytes::Bytes;
use common::{Log, client, read, router, store};
use rpcrdma_env::{BoxFuture, Env, tokio_env};
use rpcrdma_fabric::Fabric;
use rpcrdma_iwarp::{Config, Iwarp};
use rpcrdma_oncrpc::Client;
use rpcrdma_sim::World;
use rpcrdma_transport::{
    ClientOptions, ConnectionHandle, Event, ExtensionChannel, ExtensionError, ExtensionEvent, MAX_UNREAD, MessageKind,
    RdmaTransport, Server, ServerMemory, ServerOptions, Versions, connect,
    v2::{self, ErrorBody, ExtensionRefused, OtherBody, OtherProperty, Received},
};
use std::{
    future::poll_fn,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::{Arc, Mutex},
    time::Duration,
};

const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
const SERVER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));
const ADDRESS: SocketAddr = SocketAddr::new(SERVER, 20049);

/// The header type: the peer returns its bytes in reverse order.
const MIRROR: u32 = 0x1_0000;
/// Another header type, which only one end knows.
const UNKNOWN: u32 = 0x1_0001;
/// The property: a name.
const NAME: u32 = 0x1_0002;

/// Announces a name, and takes names of at most 5000 bytes.
#[derive(Debug)]
struct Mirrors(&'static [u8]);

impl v2::Extensions for Mirrors {
    fn header_type(&self, code: u32) -> bool {
        code == MIRROR
    }
    fn property(&self, property: &OtherProperty) -> v2::Fit {
        match (property.code(), property.data().len()) {
            (NAME, 1..=5000) => v2::Fit::Fits,
            (NAME, _) => v2::Fit::Unfit,
            _ => v2::Fit::Unknown,
        }
    }
}

impl v2::Extension for Mirrors {
    fn announced(&self) -> Vec<OtherProperty> {
        OtherProperty::new(NAME, Bytes::from_static(self.0)).into_iter().collect()
    }
}

fn body(header_type: u32, octets: &[u8]) -> OtherBody {
    OtherBody::new(header_type, Bytes::copy_from_slice(octets)).unwrap()
}

fn name_of(event: &ExtensionEvent) -> Option<&Bytes> {
    match &event.received {
        Received::Property(property) if property.code() == NAME => Some(property.data()),
        _ => None,
    }
}

/// Answers until the connection has ended. Returns the client's names.
async fn mirror(mut channel: ExtensionChannel) -> Vec<Bytes> {
    let mut names = Vec::new();
    while let Some(event) = channel.recv().await {
        names.extend(name_of(&event).cloned());
        if let Received::Message { xid, response: false, body } = event.received {
            let reversed: Vec<u8> = body.octets().iter().rev().copied().collect();
            channel.sender().respond(event.connection, xid, self::body(MIRROR, &reversed)).await.unwrap();
        }
    }
    names
}

type Spawn = Arc<dyn Fn(BoxFuture<'static, ()>) + Send + Sync>;

/// A server on any fabric.
struct Serving {
    address: SocketAddr,
    log: Arc<Log>,
    handles: Arc<Mutex<Vec<ConnectionHandle>>>,
    names: Arc<Mutex<Vec<Bytes>>>,
}

/// Serves; with `mirrors`, each connection has a mirror.
async fn serve(fabric: Arc<dyn Fabric>, at: SocketAddr, env: &Env, spawn: Spawn, know: bool, mirrors: bool) -> Serving {
    let log = Arc::new(Log::default());
    let mut options = ServerOptions::default();
    options.versions = Versions::Auto;
    options.extension = know.then(|| Arc::new(Mirrors(b"server")) as Arc<dyn v2::Extension>);
    let memory = ServerMemory::budget(8 << 20);
    let server = Server::new(&*fabric, router(env, &store(env)), memory, env.clone(), options, log.clone());
    let mut listener = fabric.listen(at).await.unwrap();
    let address = listener.local_addr();
    let handles = Arc::new(Mutex::new(Vec::new()));
    let names = Arc::new(Mutex::new(Vec::new()));
    let serving = Serving { address, log, handles: handles.clone(), names: names.clone() };
    let spawner = spawn.clone();
    spawn(Box::pin(async move {
        while let Ok(pending) = poll_fn(|cx| listener.poll_accept(cx)).await {
            let Ok((handle, driver)) = server.clone().accept(pending).await else { continue };
            if mirrors && let Some(channel) = handle.take_extension() {
                let names = names.clone();
                spawner(Box::pin(async move {
                    let heard = mirror(channel).await;
                    names.lock().unwrap().extend(heard);
                }));
            }
            handles.lock().unwrap().push(handle);
            spawner(Box::pin(async move {
                let _ = driver.await;
            }));
        }
    }));
    serving
}

async fn transport(
    fabric: Arc<dyn Fabric>,
    server: SocketAddr,
    env: &Env,
    spawn: &Spawn,
    versions: Versions,
    name: &'static [u8],
) -> (Arc<RdmaTransport>, Client, Arc<Log>) {
    let mut options = ClientOptions::default();
    options.versions = versions;
    options.extension = Some(Arc::new(Mirrors(name)));
    let log = Arc::new(Log::default());
    let (transport, driver) = connect(fabric, server, env, options, log.clone()).await.unwrap();
    spawn(Box::pin(driver));
    let rpc = client(transport.clone());
    (transport, rpc, log)
}

/// Sends a message and returns its answer; ignores other messages.
async fn ask(channel: &mut ExtensionChannel, octets: &[u8]) -> (u64, Bytes) {
    let sent = channel.sender().send(body(MIRROR, octets)).await.unwrap();
    loop {
        let event = channel.recv().await.unwrap();
        if let Received::Message { xid, response: true, body } = event.received {
            assert_eq!((xid, event.connection), (sent.xid, sent.connection));
            return (event.connection, body.octets().clone());
        }
    }
}

/// Tests what both ends can do on any fabric.
async fn both_ends(serving: &Serving, transport: &RdmaTransport, rpc: &Client) {
    let mut channel = transport.take_extension().unwrap();
    assert!(transport.take_extension().is_none(), "there is one");
    let first = {
        // A message sent before the negotiation waits for its end.
        let sent = channel.sender().send(body(MIRROR, b"early")).await.unwrap();
        let name = channel.recv().await.unwrap();
        assert_eq!(name_of(&name).unwrap(), &b"server"[..]);
        let answer = channel.recv().await.unwrap();
        let Received::Message { xid, body, .. } = answer.received else { panic!("{answer:?}") };
        assert_eq!((xid, &body.octets()[..]), (sent.xid, &b"ylrae"[..]));
        sent.connection
    };
    for len in [0usize, 1, 2, 3, 8172] {
        let octets: Vec<u8> = (0..len).map(|at| at as u8).collect();
        let (connection, answer) = ask(&mut channel, &octets).await;
        assert_eq!(connection, first);
        assert!(answer.iter().rev().eq(octets.iter()), "{len} bytes, whatever their number");
        read(rpc, len * 20, 1).await;
    }
    let refused = channel.sender().send(body(MIRROR, &[0; 8173])).await;
    assert_eq!(refused, Err(ExtensionRefused::TooLarge { len: 8193, max: 8192 }.into()));
    // The other end answers an unknown header type with an error, and this end does not send the type again.
    let sent = channel.sender().send(body(UNKNOWN, b"?")).await.unwrap();
    let answer = channel.recv().await.unwrap().received;
    assert_eq!(answer, Received::Error { xid: sent.xid, error: ErrorBody::InvalidHeaderType });
    let refused = channel.sender().send(body(UNKNOWN, b"?")).await;
    assert_eq!(refused, Err(ExtensionRefused::Unsupported { header_type: UNKNOWN }.into()));
    let elsewhere = channel.sender().respond(first + 1, 1, body(MIRROR, b"")).await;
    assert_eq!(elsewhere, Err(ExtensionError::NotConnected));
    assert_eq!(serving.log.count(|event| matches!(event, Event::Closed { .. })), 0);
}

fn sim(world: &World) -> Spawn {
    let world = world.clone();
    Arc::new(move |task| drop(world.spawn(task)))
}

/// proves: V2-B.1-a, V2-B.2-a, V2-B.5-b, V2-7.1.2-c, V2-7.1.2-e, V2-6.2.2.1-c
#[test]
fn an_embedder_extends_both_ends_over_the_simulated_fabric() {
    for (seed, name) in [(1, &b"client"[..]), (2, &[7; 5000])] {
        let world = World::new(seed);
        world.block_on(async {
            let (env, spawn) = (world.env(), sim(&world));
            let serving = serve(Arc::new(world.fabric(SERVER)), ADDRESS, &env, spawn.clone(), true, true).await;
            let fabric = Arc::new(world.fabric(CLIENT));
            let (transport, rpc, _) = transport(fabric, ADDRESS, &env, &spawn, Versions::Two, name).await;
            both_ends(&serving, &transport, &rpc).await;
            drop((transport, rpc));
            world.sleep(Duration::from_secs(1)).await;
            assert_eq!(*serving.names.lock().unwrap(), [Bytes::from_static(name)], "in pieces if need be");
        });
    }
}

#[tokio::test]
async fn an_embedder_extends_both_ends_over_iwarp() {
    let env = tokio_env().unwrap();
    let spawn: Spawn = Arc::new(|task| drop(tokio::spawn(task)));
    let fabric = Arc::new(Iwarp::new(env.clone(), Config::default()));
    let serving = serve(fabric, "127.0.0.1:0".parse().unwrap(), &env, spawn.clone(), true, true).await;
    let fabric = Arc::new(Iwarp::new(env.clone(), Config::default()));
    let (transport, rpc, _) = transport(fabric, serving.address, &env, &spawn, Versions::Auto, b"client").await;
    both_ends(&serving, &transport, &rpc).await;
}

/// The server can also send first.
#[test]
fn a_server_asks_its_clients() {
    let world = World::new(3);
    world.block_on(async {
        let (env, spawn) = (world.env(), sim(&world));
        let serving = serve(Arc::new(world.fabric(SERVER)), ADDRESS, &env, spawn.clone(), true, false).await;
        let fabric = Arc::new(world.fabric(CLIENT));
        let (transport, rpc, _) = transport(fabric, ADDRESS, &env, &spawn, Versions::Two, b"client").await;
        let answering = transport.take_extension().unwrap();
        world.spawn(mirror(answering));
        rpc.null().await.unwrap();
        let handle = serving.handles.lock().unwrap()[0].clone();
        let mut channel = handle.take_extension().unwrap();
        let (connection, answer) = ask(&mut channel, b"live").await;
        assert_eq!((connection, &answer[..]), (handle.id(), &b"evil"[..]));
        drop((transport, rpc));
        assert_eq!(channel.recv().await, None, "the connection is gone");
        assert_eq!(channel.sender().send(body(MIRROR, b"")).await, Err(ExtensionError::NotConnected));
    });
}

#[test]
fn without_version_2_nothing_is_sent() {
    let world = World::new(4);
    world.block_on(async {
        let (env, spawn) = (world.env(), sim(&world));
        let _serving = serve(Arc::new(world.fabric(SERVER)), ADDRESS, &env, spawn.clone(), true, true).await;
        let fabric = Arc::new(world.fabric(CLIENT));
        let (transport, _, _) = transport(fabric, ADDRESS, &env, &spawn, Versions::One, b"client").await;
        let channel = transport.take_extension().unwrap();
        let refused = channel.sender().send(body(MIRROR, b"")).await;
        assert_eq!(refused, Err(ExtensionRefused::Version.into()));
    });
}

/// A peer without the extension skips the property and says that it does not know the header type.
///
/// proves: V2-5-a, V2-7.1.2-e
#[test]
fn a_peer_without_the_extension_says_so() {
    let world = World::new(5);
    world.block_on(async {
        let (env, spawn) = (world.env(), sim(&world));
        let serving = serve(Arc::new(world.fabric(SERVER)), ADDRESS, &env, spawn.clone(), false, true).await;
        let fabric = Arc::new(world.fabric(CLIENT));
        let (transport, rpc, _) = transport(fabric, ADDRESS, &env, &spawn, Versions::Auto, b"client").await;
        let mut channel = transport.take_extension().unwrap();
        let sent = channel.sender().send(body(MIRROR, b"")).await.unwrap();
        let answer = channel.recv().await.unwrap().received;
        assert_eq!(answer, Received::Error { xid: sent.xid, error: ErrorBody::InvalidHeaderType });
        assert!(serving.handles.lock().unwrap()[0].take_extension().is_none());
        read(&rpc, 10_000, 1).await;
    });
}

/// The channel outlives the connection; a message for one connection is not sent on another.
#[test]
fn a_clients_channel_goes_on_after_a_reconnection() {
    let world = World::new(6);
    world.block_on(async {
        let (env, spawn) = (world.env(), sim(&world));
        let _serving = serve(Arc::new(world.fabric(SERVER)), ADDRESS, &env, spawn.clone(), true, true).await;
        let fabric = Arc::new(world.fabric(CLIENT));
        let (transport, rpc, _) = transport(fabric, ADDRESS, &env, &spawn, Versions::Two, b"client").await;
        let mut channel = transport.take_extension().unwrap();
        let (first, _) = ask(&mut channel, b"a").await;
        world.cut(CLIENT, SERVER);
        world.sleep(Duration::from_secs(1)).await;
        rpc.null().await.unwrap();
        let (second, answer) = ask(&mut channel, b"ab").await;
        assert!(second > first && answer == "ba");
        let late = channel.sender().respond(first, 1, body(MIRROR, b"")).await;
        assert_eq!(late, Err(ExtensionError::NotConnected));
        world.cut(CLIENT, SERVER);
        world.sleep(Duration::from_millis(1)).await;
        let nowhere = channel.sender().send(body(MIRROR, b"")).await;
        assert_eq!(nowhere, Err(ExtensionError::NotConnected), "no call, no connection");
    });
}

/// If a peer sends more than this end reads, it gets errors; this end keeps nothing beyond the limit, and calls go on.
#[test]
fn a_flood_is_refused_beyond_what_may_wait() {
    let world = World::new(7);
    world.block_on(async {
        let (env, spawn) = (world.env(), sim(&world));
        let serving = serve(Arc::new(world.fabric(SERVER)), ADDRESS, &env, spawn.clone(), true, false).await;
        let fabric = Arc::new(world.fabric(CLIENT));
        let (transport, rpc, log) = transport(fabric, ADDRESS, &env, &spawn, Versions::Two, b"client").await;
        let mut channel = transport.take_extension().unwrap();
        let flood = MAX_UNREAD * 5;
        let sender = channel.sender().clone();
        let flooding = world.spawn(async move {
            for _ in 0..flood {
                sender.send(body(MIRROR, &[1; 4000])).await.unwrap();
            }
        });
        let mut refused = 0;
        // The server's queue also holds the client's name.
        while refused < flood - (MAX_UNREAD - 1) {
            match channel.recv().await.unwrap().received {
                Received::Error { error, .. } => {
                    assert_eq!(error, ErrorBody::System);
                    refused += 1;
                }
                Received::Property(_) => {}
                other => panic!("{other:?}"),
            }
        }
        flooding.await;
        read(&rpc, 100_000, 1).await;
        let dropped = |log: &Log| {
            log.0.lock().unwrap().iter().rev().find_map(|event| match event {
                Event::ExtensionDropped { total } => Some(*total),
                _ => None,
            })
        };
        assert_eq!(dropped(&serving.log), Some(refused as u64));
        assert_eq!(log.count(|event| matches!(event, Event::Closed { .. })), 0);
        // When the messages have been read, there is room again.
        let handle = serving.handles.lock().unwrap()[0].clone();
        world.spawn(mirror(handle.take_extension().unwrap()));
        while !matches!(channel.recv().await.unwrap().received, Received::Message { .. }) {}
        let sent = serving.log.count(|event| matches!(event, Event::Sent(sent) if sent.kind == MessageKind::Extension));
        assert!(sent >= 1);
    });
}
