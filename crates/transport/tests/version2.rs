//! Version 2 from end to end, and a client of both versions with servers of every kind.

mod common;

use bytes::Bytes;
use common::{COUNT, Log, bulk, client, finish_read, params, read, router, start_read, store, swap, write};
use rpcrdma_env::{Env, tokio_env};
use rpcrdma_fabric::{Completion, Fabric, Pending, SendWork, Token};
use rpcrdma_iwarp::{Config, Iwarp};
use rpcrdma_oncrpc::{CallError, Client, ClientTransport, Rejection, RemoteError, ReplyShape, TransportError};
use rpcrdma_sim::{SimConfig, World};
use rpcrdma_transport::{
    ClientOptions, Event, MessageKind, NoVersion2, Server, ServerMemory, ServerOptions, Versions, connect, v2,
};
use rpcrdma_wire::v2::probe;
use rpcrdma_xdr::Encoder;
use std::{
    future::poll_fn,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
const SERVER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));
const ADDRESS: SocketAddr = SocketAddr::new(SERVER, 20049);

fn server(fabric: &dyn Fabric, env: &Env, versions: Versions) -> (Arc<Server>, Arc<Log>) {
    let log = Arc::new(Log::default());
    let mut options = ServerOptions::default();
    options.versions = versions;
    let memory = ServerMemory::budget(64 << 20);
    (Server::new(fabric, router(env, &store(env)), memory, env.clone(), options, log.clone()), log)
}

/// The fate of the first connection, before the server gets one.
#[derive(Clone, Copy, PartialEq, Eq)]
enum First {
    Served,
    Ignored,
    Dropped,
    /// Refused, as a server of version 1 does, then dropped.
    Refused,
}

async fn spoil(pending: Box<dyn Pending>, first: First) {
    let Ok(incoming) = pending.request().await else { return };
    let Ok(mut qp) = incoming.accept(params(4)).await else { return };
    loop {
        match poll_fn(|cx| qp.poll(cx)).await {
            Completion::Received { .. } if first == First::Dropped => qp.disconnect(),
            Completion::Received { buffer, .. } if first == First::Refused => {
                let xid = buffer.filled().first_chunk().copied().map(u32::from_be_bytes).unwrap();
                let octets = vec![probe::refusal(xid, 2, 32, 1, 1)];
                let _ = qp.post_send(SendWork {
                    token: Token(1),
                    octets: octets.into(),
                    signaled: true,
                    ..SendWork::default()
                });
            }
            Completion::Done { .. } => qp.disconnect(),
            Completion::Closed { .. } => return,
            _ => {}
        }
    }
}

fn serve(world: &World, config: SimConfig, versions: Versions, first: First) -> Arc<Log> {
    let fabric = world.fabric_with(SERVER, config);
    let (server, log) = server(&fabric, &world.env(), versions);
    let spawner = world.clone();
    world.spawn(async move {
        let mut listener = fabric.listen(ADDRESS).await.unwrap();
        let mut spoilt = first == First::Served;
        loop {
            let Ok(pending) = poll_fn(|cx| listener.poll_accept(cx)).await else { continue };
            let server = server.clone();
            if !std::mem::replace(&mut spoilt, true) {
                spawner.spawn(spoil(pending, first));
                continue;
            }
            spawner.spawn(async move {
                if let Ok((_, driver)) = server.accept(pending).await {
                    let _ = driver.await;
                }
            });
        }
    });
    log
}

async fn connected(world: &World, config: SimConfig, versions: Versions) -> (Client, Arc<Log>) {
    world.sleep(Duration::from_millis(1)).await;
    let log = Arc::new(Log::default());
    let mut options = ClientOptions::default();
    options.versions = versions;
    let fabric = Arc::new(world.fabric_with(CLIENT, config));
    let (transport, driver) = connect(fabric, ADDRESS, &world.env(), options, log.clone()).await.unwrap();
    world.spawn(driver);
    (client(transport), log)
}

fn version(log: &Log) -> Option<u32> {
    log.find(|event| match event {
        Event::Negotiated(negotiated) => Some(negotiated.version),
        _ => None,
    })
}

/// proves: V2-4.2.3.1-a, V2-4.2.3-a, V2-6.2.4-d, V2-4.4.2-a
#[test]
fn messages_of_every_size_and_form_arrive() {
    let narrow = SimConfig::default().with_capabilities(|capabilities| {
        capabilities.max_gather = 2;
        capabilities.max_private_data = 0;
        capabilities.max_ord = 1;
    });
    for (seed, config) in [SimConfig::default(), SimConfig::without_invalidation(), narrow].into_iter().enumerate() {
        let world = World::new(seed as u64);
        world.block_on(async {
            let served = serve(&world, config.clone(), Versions::Auto, First::Served);
            let (client, log) = connected(&world, config, Versions::Auto).await;
            client.null().await.unwrap();
            for len in [0, 1, 3, 4, 900, 4097, 8000, 8191, 8192, 8193, 65_537, 1 << 20] {
                let placed = read(&client, len, 5).await;
                assert!(placed || len < 8192, "{len} bytes are placed");
                write(&client, len, 6).await;
                bulk(&client, len.min(1 << 19)).await;
                swap(&client, len / 3, len / 2).await;
                swap(&client, 70_000, len / 4).await;
            }
            assert_eq!((version(&log), version(&served)), (Some(2), Some(2)));
            let parts = |event: &Event| matches!(event, Event::Sent(sent) if sent.kind == MessageKind::Part);
            assert!(log.count(parts) > 0 && served.count(parts) > 0, "both continue messages");
            assert_eq!(log.count(|event| matches!(event, Event::Closed { .. } | Event::Failed { .. })), 0);
            let peer = log.find(|event| match event {
                Event::Negotiated(negotiated) => negotiated.peer.clone(),
                _ => None,
            });
            assert_eq!(peer.map(|peer| (peer.send_size, peer.segment_count)), Some((8192, 512)));
        });
    }
}

#[test]
fn many_calls_run_at_once() {
    for seed in 0..4 {
        let world = World::new(seed);
        world.block_on(async {
            let _served = serve(&world, SimConfig::default(), Versions::Two, First::Served);
            let (client, log) = connected(&world, SimConfig::default(), Versions::Two).await;
            let mut tasks = Vec::new();
            for k in 0..200u32 {
                let client = client.clone();
                tasks.push(world.spawn(async move {
                    let len = k as usize * 301;
                    let call = start_read(&client, len, k, Duration::from_micros(u64::from(k % 7)));
                    write(&client, len, k).await;
                    bulk(&client, len % 20_000).await;
                    finish_read(call, len, k).await.unwrap();
                }));
            }
            for task in tasks {
                task.await;
            }
            assert_eq!(log.count(|event| matches!(event, Event::Closed { .. })), 0);
        });
    }
}

/// proves: V2-4.2.3.2-c, V2-4.2.3.3-a, V2-4.2.3.3-b, V2-7.1.1-c, V2-7.1.1-d
#[test]
fn ends_that_share_version_1_speak_it_on_the_same_connection() {
    for (theirs, ours) in [(Versions::One, Versions::Auto), (Versions::Auto, Versions::One)] {
        let world = World::new(1);
        world.block_on(async {
            let served = serve(&world, SimConfig::default(), theirs, First::Served);
            let (client, log) = connected(&world, SimConfig::default(), ours).await;
            client.null().await.unwrap();
            read(&client, 70_000, 5).await;
            bulk(&client, 20_000).await;
            assert_eq!((version(&log), version(&served)), (Some(1), Some(1)));
            assert_eq!(log.count(|event| matches!(event, Event::Closed { .. })), 0, "on the same connection");
            let refused = log.count(|event| matches!(event, Event::NoVersion2(NoVersion2::Refused)));
            assert_eq!(refused, usize::from(ours == Versions::Auto));
        });
    }
}

/// proves: V2-4.2.3.2-d, V2-4.2.3.2-e, V2-4.2.3.2-h, IE-4.6-a
#[test]
fn servers_that_do_not_answer_get_version_1_on_another_connection() {
    for (first, why) in [
        (First::Ignored, NoVersion2::NoAnswer),
        (First::Dropped, NoVersion2::Dropped),
        (First::Refused, NoVersion2::Refused),
    ] {
        let world = World::new(2);
        world.block_on(async {
            let _served = serve(&world, SimConfig::default(), Versions::One, first);
            let (client, log) = connected(&world, SimConfig::default(), Versions::Auto).await;
            let before = world.env().clock.now();
            client.null().await.unwrap();
            let after = world.env().clock.now().since(before);
            assert!(after <= Duration::from_millis(2500), "{after:?}");
            assert_eq!(log.count(|event| *event == Event::NoVersion2(why)), 1);
            assert_eq!(version(&log), Some(1));
            let connections = log.count(|event| matches!(event, Event::Connected { .. }));
            assert_eq!(connections, 2, "no loop");
            read(&client, 70_000, 5).await;
        });
    }
}

/// A server that is too slow for the first message of version 2 does not cost the call: the client has no other version
/// to try, so it tries this one again.
///
/// proves: V2-4.2.3.2-e
#[test]
fn a_client_of_version_2_alone_tries_again_if_nothing_answers() {
    let world = World::new(2);
    world.block_on(async {
        let _served = serve(&world, SimConfig::default(), Versions::Two, First::Ignored);
        let (client, log) = connected(&world, SimConfig::default(), Versions::Two).await;
        client.null().await.unwrap();
        assert_eq!(version(&log), Some(2));
        let connections = log.count(|event| matches!(event, Event::Connected { .. }));
        assert_eq!(connections, 2, "no loop");
    });
}

/// Nobody knows which versions a server speaks that says nothing, so the error names none.
///
/// proves: V2-4.2.3.2-e, RPC-OUTAGE-c
#[test]
fn a_client_of_version_2_alone_says_that_a_server_says_nothing() {
    let world = World::new(2);
    world.block_on(async {
        let fabric = world.fabric_with(SERVER, SimConfig::default());
        let spawner = world.clone();
        world.spawn(async move {
            let mut listener = fabric.listen(ADDRESS).await.unwrap();
            loop {
                let Ok(pending) = poll_fn(|cx| listener.poll_accept(cx)).await else { continue };
                spawner.spawn(spoil(pending, First::Ignored));
            }
        });
        let (client, log) = connected(&world, SimConfig::default(), Versions::Two).await;
        let before = world.env().clock.now();
        let error = client.null().await.unwrap_err();
        let after = world.env().clock.now().since(before);
        let CallError::Transport(TransportError::SaysNothing { source, .. }) = error else { panic!("{error}") };
        let ended = source.source.as_ref().map(ToString::to_string);
        assert_eq!(ended.as_deref(), Some("the server did not answer in version 2"));
        assert!((30..=35).contains(&after.as_secs()) && source.connections >= 2, "{after:?}, {source}");
        assert_eq!(log.count(|event| matches!(event, Event::NoVersion2(_))), 0);
    });
}

/// proves: V2-4.2.3.2-c
#[test]
fn without_a_common_version_calls_fail_at_once() {
    for (theirs, ours, range) in [(Versions::One, Versions::Two, (1, 1)), (Versions::Two, Versions::One, (2, 2))] {
        let world = World::new(3);
        world.block_on(async {
            let _served = serve(&world, SimConfig::default(), theirs, First::Served);
            let (client, _) = connected(&world, SimConfig::default(), ours).await;
            let error = client.null().await.unwrap_err();
            let CallError::Transport(TransportError::Remote { source: RemoteError::Version { low, high }, .. }) = error
            else {
                panic!("{error}");
            };
            assert_eq!((low, high), range);
        });
    }
}

/// A client whose options say that the server has no version 2 does not try it, and notices if that is wrong.
#[test]
fn what_was_believed_of_a_server_need_not_be_so() {
    for (theirs, spoken, connections) in [(Versions::One, 1, 1), (Versions::Auto, 1, 1), (Versions::Two, 2, 2)] {
        let world = World::new(6);
        world.block_on(async {
            let _served = serve(&world, SimConfig::default(), theirs, First::Served);
            world.sleep(Duration::from_millis(1)).await;
            let log = Arc::new(Log::default());
            let mut options = ClientOptions::default();
            (options.versions, options.assume_version_1) = (Versions::Auto, true);
            let fabric = Arc::new(world.fabric(CLIENT));
            let (transport, driver) = connect(fabric, ADDRESS, &world.env(), options, log.clone()).await.unwrap();
            world.spawn(driver);
            let client = client(transport);
            client.null().await.unwrap();
            read(&client, 70_000, 5).await;
            let last = |event: &Event| matches!(event, Event::Negotiated(made) if made.version == spoken);
            assert_eq!(log.count(last), 1);
            assert_eq!(log.count(|event| matches!(event, Event::NoVersion2(_))), 0);
            assert_eq!(log.count(|event| matches!(event, Event::Connected { .. })), connections);
        });
    }
}

/// proves: V2-7.2-b, V2-7.2-c
#[test]
fn arguments_that_cannot_be_decoded_are_answered_by_the_rpc_layer() {
    let world = World::new(5);
    world.block_on(async {
        let served = serve(&world, SimConfig::default(), Versions::Two, First::Served);
        let (client, _) = connected(&world, SimConfig::default(), Versions::Two).await;
        for len in [0, 3, 9000] {
            let mut args = Encoder::new();
            args.item(vec![1; len].into());
            let error = client.call(COUNT, args.finish(), ReplyShape::inline(4)).await.unwrap_err();
            assert!(matches!(error, CallError::Rejected(Rejection::GarbageArgs)), "{error}");
        }
        let errors = |event: &Event| matches!(event, Event::Sent(sent) if sent.kind == MessageKind::Error);
        assert_eq!(served.count(errors), 0);
    });
}

/// proves: V2-7.4.1-c, V2-7.4.1-a
#[test]
fn an_error_of_version_2_reaches_the_caller_by_name() {
    let world = World::new(7);
    world.block_on(async {
        let _served = serve(&world, SimConfig::default(), Versions::Two, First::Served);
        world.sleep(Duration::from_millis(1)).await;
        let mut options = ClientOptions::default();
        options.versions = Versions::Two;
        // More than the server pulls for one call.
        options.max_message = 8 << 20;
        let fabric = Arc::new(world.fabric(CLIENT));
        let (transport, driver) =
            connect(fabric, ADDRESS, &world.env(), options, Arc::new(Log::default())).await.unwrap();
        world.spawn(driver);
        let client = client(transport);
        let mut args = Encoder::new();
        args.item(vec![1; 4 << 20].into());
        let error = client.call(common::WRITE, args.finish(), ReplyShape::inline(8)).await.unwrap_err();
        let CallError::Transport(TransportError::Remote { source, .. }) = error else { panic!("{error}") };
        assert_eq!(source, RemoteError::Other { code: 100, name: "RDMA2_ERR_SYSTEM" });
        client.null().await.unwrap();
    });
}

/// A reply arrives even if the caller could not know its size.
#[test]
fn a_reply_may_be_longer_than_expected() {
    let world = World::new(4);
    world.block_on(async {
        let _served = serve(&world, SimConfig::default(), Versions::Auto, First::Served);
        let (client, _) = connected(&world, SimConfig::default(), Versions::Auto).await;
        let mut args = Encoder::new();
        args.opaque(&[7; 30_000]);
        let mut results = client.call(common::BULK, args.finish(), ReplyShape::inline(16)).await.unwrap();
        assert_eq!(results.decoder.opaque(common::MAX).unwrap(), [7; 30_000][..]);
        let mut count = client.call(COUNT, Encoder::new().finish(), ReplyShape::inline(4)).await.unwrap();
        assert_eq!(count.decoder.u32().unwrap(), 1, "executed once");
    });
}

/// A host authentication that knows one word.
#[derive(Debug)]
struct Password(&'static [u8]);

impl v2::HostAuthentication for Password {
    fn begin(&self, _: v2::Side) -> Box<dyn v2::HostAuthenticator> {
        Box::new(Password(self.0))
    }
}

impl v2::HostAuthenticator for Password {
    fn start(&mut self) -> Option<Bytes> {
        Some(Bytes::from_static(self.0))
    }
    fn hear(&mut self, material: &Bytes) -> v2::AuthenticationStep {
        if material == self.0 { v2::AuthenticationStep::Accept(None) } else { v2::AuthenticationStep::Reject }
    }
    fn silent(&mut self) -> bool {
        false
    }
}

/// proves: V2-5.2.6-b, V2-5.2.6-a
#[test]
fn hosts_can_be_asked_who_they_are() {
    let cases = [(Versions::Two, true), (Versions::Auto, true), (Versions::Auto, false), (Versions::One, false)];
    for (theirs, known) in cases {
        let world = World::new(6);
        world.block_on(async {
            let fabric = world.fabric(SERVER);
            let env = world.env();
            let mut options = ServerOptions::default();
            options.versions = theirs;
            options.host_authentication =
                known.then(|| Arc::new(Password(b"sesame")) as Arc<dyn v2::HostAuthentication>);
            let handler = router(&env, &store(&env));
            let served = Arc::new(Log::default());
            let memory = ServerMemory::budget(8 << 20);
            let server = Server::new(&fabric, handler, memory, env.clone(), options, served.clone());
            common::serve_at(&world, Arc::new(fabric), ADDRESS, server);
            world.sleep(Duration::from_millis(1)).await;
            let mut options = ClientOptions::default();
            options.versions = Versions::Auto;
            options.host_authentication = Some(Arc::new(Password(b"sesame")));
            let fabric = Arc::new(world.fabric(CLIENT));
            let log = Arc::new(Log::default());
            let (transport, driver) = connect(fabric, ADDRESS, &env, options, log.clone()).await.unwrap();
            world.spawn(driver);
            let client = client(transport);
            match client.null().await {
                Ok(_) => assert!(known),
                Err(CallError::Transport(TransportError::Violation { .. })) => assert!(!known),
                Err(error) => panic!("{error}"),
            }
            let made = log.find(|event| match event {
                Event::Negotiated(negotiated) => Some(negotiated.authenticated),
                _ => None,
            });
            assert_eq!(made, known.then_some(true));
        });
    }
}

#[tokio::test]
async fn version_2_over_iwarp() {
    let env = tokio_env().unwrap();
    let fabric = Iwarp::new(env.clone(), Config::default());
    let (server, _) = server(&fabric, &env, Versions::Auto);
    let mut listener = fabric.listen("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let address = listener.local_addr();
    tokio::spawn(async move {
        while let Ok(pending) = poll_fn(|cx| listener.poll_accept(cx)).await {
            let (_, driver) = server.clone().accept(pending).await.unwrap();
            tokio::spawn(driver);
        }
    });
    for versions in [Versions::Auto, Versions::One] {
        let log = Arc::new(Log::default());
        let mut options = ClientOptions::default();
        options.versions = versions;
        let fabric = Arc::new(Iwarp::new(env.clone(), Config::default()));
        let (transport, driver) = connect(fabric, address, &env, options, log.clone()).await.unwrap();
        tokio::spawn(driver);
        let transport: Arc<dyn ClientTransport> = transport;
        let client = client(transport);
        for len in [0, 1, 8191, 8193, 100_001, 1 << 20] {
            assert!(read(&client, len, 5).await || len < 8192);
            write(&client, len, 6).await;
            bulk(&client, len.min(1 << 19)).await;
            swap(&client, len / 2, len / 3).await;
        }
        let mut tasks = Vec::new();
        for k in 0..100u32 {
            let client = client.clone();
            tasks.push(tokio::spawn(async move {
                write(&client, k as usize * 3001, k).await;
                read(&client, k as usize * 3001, k).await;
                bulk(&client, k as usize * 301).await;
            }));
        }
        for task in tasks {
            task.await.unwrap();
        }
        assert_eq!(version(&log), Some(if versions == Versions::One { 1 } else { 2 }));
        assert!(log.count(|event| matches!(event, Event::Invalidated { by_peer: true, .. })) > 0);
        assert_eq!(log.count(|event| matches!(event, Event::Closed { .. })), 0);
    }
}
