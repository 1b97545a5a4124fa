//! How a client distinguishes servers that hang from servers that are only slow: in virtual time over the simulated
//! fabric, and over software iWARP and TCP with a clock that runs ten times as fast.

mod common;
#[path = "common/peer.rs"]
mod peer;

use common::{End, Log, Script, finish_read, read, router, script, serve_after, start_read, store};
use peer::{Peer, header, rpc_reply};
use rpcrdma_env::{BoxFuture, Clock, Env, Heap, Timestamp, TokioClock, tokio_env};
use rpcrdma_fabric::Fabric;
use rpcrdma_iwarp::{Config, Iwarp};
use rpcrdma_oncrpc::{ClientTransport, Spread, XidSource, tcp};
use rpcrdma_sim::World;
use rpcrdma_transport::{
    ClientOptions, ConnectionError, Event, MessageKind, RdmaTransport, Server, ServerMemory, ServerOptions, Versions,
    connect,
};
use rpcrdma_wire::{
    v1::{Body, Header, Lists},
    v2,
};
use std::{
    future::{Future, poll_fn},
    net::{IpAddr, Ipv4Addr, SocketAddr},
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
const SERVER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));
const ADDRESS: SocketAddr = SocketAddr::new(SERVER, 20049);
const BOTH: [Versions; 2] = [Versions::One, Versions::Two];
const SECOND: Duration = Duration::from_secs(1);

/// A server that grants `credits` in its reply to the first call, and sends nothing after that. With `takes` it
/// receives messages; otherwise not even that.
fn hangs(versions: Versions, credits: u16, takes: bool) -> Script {
    match versions {
        Versions::One => script(move |_, mut end: End| async move {
            let call = loop {
                end.wait().await;
                if let Some(call) = end.next() {
                    break call;
                }
            };
            let xid = Header::decode(&call).unwrap().0.xid;
            let header = Header::new(xid, credits.into(), Body::Msg(Lists::default())).to_bytes();
            end.post(vec![header, rpc_reply(xid, &[])], None);
            end.look().await;
            if takes { end.ends().await } else { std::future::pending().await }
        }),
        _ => script(move |_, mut peer: Peer| async move {
            peer.word = v2::Credits::new(credits, credits);
            peer.hear(|header| matches!(header.body, v2::Body::Connprop(_))).await;
            peer.exchange().await;
            let (call, _) = peer.call().await.unwrap();
            peer.say(header(call.xid, true, v2::Lists::default()), &rpc_reply(call.xid, &[])).await;
            if takes { peer.ends().await } else { std::future::pending().await }
        }),
    }
}

fn sent(log: &Log, kind: MessageKind) -> usize {
    log.count(|event| matches!(event, Event::Sent(sent) if sent.kind == kind))
}

fn silent_ends(log: &Log) -> usize {
    log.count(|event| matches!(event, Event::Closed { error: Some(ConnectionError::Silent) }))
}

async fn transport(world: &World, versions: Versions) -> (Arc<RdmaTransport>, Arc<Log>) {
    world.sleep(Duration::from_millis(1)).await;
    let log = Arc::new(Log::default());
    let mut options = ClientOptions::default();
    options.versions = versions;
    let fabric = Arc::new(world.fabric(CLIENT));
    let (transport, driver) = connect(fabric, ADDRESS, &world.env(), options, log.clone()).await.unwrap();
    world.spawn(driver);
    (transport, log)
}

/// However many credits calls use, one is left for a probe; a server that grants no second credit has longer. The
/// client repeats unanswered calls over the next connection.
///
/// proves: ULB-3.4.1-a, ULB-3.4.1-b, ULB-5.4.2-a
#[test]
fn a_server_that_hangs_is_left() {
    for versions in BOTH {
        for (credits, takes, seconds, probes) in
            [(64, true, 45, 1), (64, false, 45, 1), (4, true, 45, 1), (2, true, 45, 1), (1, true, 180, 0)]
        {
            let what = format!("{versions:?} with {credits} credits");
            let world = World::new(u64::from(credits));
            world.block_on(async {
                let _serving = serve_after(&world, ADDRESS, versions, 1, hangs(versions, credits, takes));
                let (transport, log) = transport(&world, versions).await;
                let (client, silence) = (common::client(transport.clone()), transport.silence().unwrap());
                client.null().await.unwrap();
                let begun = world.now();
                let calls: Vec<_> = (0..10).map(|seed| start_read(&client, 50_000, seed, Duration::ZERO)).collect();
                world.sleep(30 * SECOND).await;
                let told = silence.waiting().expect("calls wait");
                assert_eq!((told.alive, told.since), (None, begun), "{what}: nothing says that it lives");
                assert_eq!(told.until.since(begun).as_secs(), seconds + 120, "{what}: what is told is so");
                assert_eq!(sent(&log, MessageKind::Probe), probes, "{what}");
                assert!(sent(&log, MessageKind::Call) <= usize::from(credits).max(2), "{what}: within its credits");
                for (seed, call) in (0..).zip(calls) {
                    finish_read(call, 50_000, seed).await.unwrap();
                }
                let took = world.now().since(begun);
                assert!((seconds..seconds + 10).contains(&took.as_secs()), "{what}: {took:?}");
                assert_eq!((silent_ends(&log), silence.waiting()), (1, None), "{what}");
            });
        }
    }
}

/// A READ takes 40 s, and a NULL no time: the connection stays, and the client reports that the server is slow. All
/// credits are in use meanwhile.
///
/// proves: ULB-3.4.1-a, ULB-5.4.2-a
#[test]
fn a_server_that_is_slow_is_waited_for() {
    for versions in BOTH {
        let world = World::new(7);
        world.block_on(async {
            let env = world.env();
            let fabric = world.fabric(SERVER);
            let mut options = ServerOptions::default();
            (options.versions, options.credits) = (versions, 4);
            let (memory, store) = (ServerMemory::budget(8 << 20), store(&env));
            let server =
                Server::new(&fabric, router(&env, &store), memory, env.clone(), options, Arc::new(Log::default()));
            common::serve_at(&world, Arc::new(fabric), ADDRESS, server);
            let (transport, log) = transport(&world, versions).await;
            let (client, silence) = (common::client(transport.clone()), transport.silence().unwrap());
            client.null().await.unwrap();
            let begun = world.now();
            let calls: Vec<_> = (0..3).map(|seed| start_read(&client, 50_000, seed, 40 * SECOND)).collect();
            world.sleep(19 * SECOND).await;
            assert_eq!((silence.waiting().unwrap().alive, sent(&log, MessageKind::Probe)), (None, 0));
            world.sleep(2 * SECOND).await;
            let told = silence.waiting().unwrap();
            assert_eq!(told.since, begun, "what was asked for has not come");
            let alive = told.alive.expect("it has answered a health check").since(begun);
            assert!((20 * SECOND..21 * SECOND).contains(&alive), "{alive:?}");
            assert_eq!(told.until.since(begun), alive + (20 + 25 + 120) * SECOND, "nobody gives it up for that");
            for (seed, call) in (0..).zip(calls) {
                assert!(!finish_read(call, 50_000, seed).await.unwrap().1, "{versions:?}: sent once");
            }
            assert_eq!(silence.waiting(), None);
            let (asked, alive) = (sent(&log, MessageKind::Probe), log.count(|event| matches!(event, Event::Alive)));
            // The data may have come before the answer to the last probe.
            assert!(alive >= 1 && (alive..=alive + 1).contains(&asked), "{asked} {alive}");
            assert_eq!(log.count(|event| matches!(event, Event::Closed { .. })), 0);
        });
    }
}

/// The client watches each of several connections by itself: one that hangs delays only its own calls.
#[test]
fn of_several_connections_one_hangs() {
    let world = World::new(8);
    world.block_on(async {
        let _serving = serve_after(&world, ADDRESS, Versions::One, 1, hangs(Versions::One, 8, true));
        world.sleep(Duration::from_millis(1)).await;
        let xids = Arc::new(XidSource::new(&*world.env().random));
        let mut members: Vec<Arc<dyn ClientTransport>> = Vec::new();
        for _ in 0..2 {
            let mut options = ClientOptions::default();
            options.xids = Some(xids.clone());
            let (fabric, log) = (Arc::new(world.fabric(CLIENT)), Arc::new(Log::default()));
            let (transport, driver) = connect(fabric, ADDRESS, &world.env(), options, log).await.unwrap();
            world.spawn(driver);
            common::client(transport.clone()).null().await.unwrap();
            members.push(transport);
        }
        let second = members.pop().unwrap();
        let client = common::client(Arc::new(Spread::new(members.remove(0), [second], xids)));
        let begun = world.now();
        let held = start_read(&client, 9000, 1, Duration::ZERO);
        for seed in 2..20 {
            read(&client, 9000, seed).await;
        }
        assert!(world.now().since(begun) < SECOND, "the other connection carries them");
        assert!(finish_read(held, 9000, 1).await.unwrap().1);
        let took = world.now().since(begun);
        assert!((45 * SECOND..55 * SECOND).contains(&took), "{took:?}");
    });
}

/// A clock that runs ten times as fast as real time.
struct Hastened(TokioClock);

const HASTE: u32 = 10;

impl Clock for Hastened {
    fn now(&self) -> Timestamp {
        Timestamp::ZERO + self.0.now().since(Timestamp::ZERO) * HASTE
    }

    fn sleep_until(&self, when: Timestamp) -> BoxFuture<'static, ()> {
        self.0.sleep_until(Timestamp::ZERO + when.since(Timestamp::ZERO) / HASTE + Duration::from_nanos(1))
    }

    fn unix_time(&self) -> Duration {
        self.0.unix_time()
    }
}

fn hastened() -> Env {
    Env { clock: Arc::new(Hastened(TokioClock::new())), ..tokio_env().unwrap() }
}

/// A connection's driver that can be stopped like a process: its sockets stay open, and the kernel acknowledges what
/// arrives.
struct Stoppable<F> {
    driver: Pin<Box<F>>,
    is_stopped: Arc<AtomicBool>,
}

impl<F: Future> Future for Stoppable<F> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        match self.is_stopped.load(Ordering::Relaxed) {
            true => Poll::Pending,
            false => self.driver.as_mut().poll(cx).map(drop),
        }
    }
}

/// A slow call, and then a stopped server, whose next connection works.
async fn slow_and_stopped(env: &Env, transport: Arc<dyn ClientTransport>, is_stopped: &AtomicBool) {
    let (client, silence) = (common::client(transport.clone()), transport.silence().unwrap());
    client.null().await.unwrap();
    let mut slow = Box::pin(finish_read(start_read(&client, 50_000, 1, 40 * SECOND), 50_000, 1));
    let mut was_slow = false;
    let (_, again) = loop {
        tokio::select! {
            read = &mut slow => break read.unwrap(),
            () = tokio::time::sleep(Duration::from_millis(20)) => {
                was_slow |= silence.waiting().is_some_and(|waiting| waiting.alive.is_some());
            }
        }
    };
    assert!(was_slow && !again, "it was seen to be slow: {was_slow}; sent again: {again}");
    is_stopped.store(true, Ordering::Relaxed);
    let begun = env.clock.now();
    let (_, again) = finish_read(start_read(&client, 50_000, 2, Duration::ZERO), 50_000, 2).await.unwrap();
    let took = env.clock.now().since(begun);
    assert!(again && took >= 44 * SECOND && took < 170 * SECOND, "sent again: {again}, after {took:?}");
}

#[tokio::test]
async fn the_same_over_iwarp() {
    for versions in BOTH {
        let env = hastened();
        let fabric = Arc::new(Iwarp::new(env.clone(), Config::default()));
        let mut options = ServerOptions::default();
        options.versions = versions;
        let (memory, store) = (ServerMemory::budget(8 << 20), store(&env));
        let server =
            Server::new(&*fabric, router(&env, &store), memory, env.clone(), options, Arc::new(Log::default()));
        let mut listener = fabric.listen("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let address = listener.local_addr();
        let is_stopped = Arc::<AtomicBool>::default();
        let of_first = is_stopped.clone();
        tokio::spawn(async move {
            let mut next = Some(of_first);
            loop {
                let pending = poll_fn(|cx| listener.poll_accept(cx)).await.unwrap();
                let Ok((_, driver)) = server.clone().accept(pending).await else { continue };
                tokio::spawn(Stoppable { driver: Box::pin(driver), is_stopped: next.take().unwrap_or_default() });
            }
        });
        let mut options = ClientOptions::default();
        options.versions = versions;
        let (transport, driver) = connect(fabric, address, &env, options, Arc::new(Log::default())).await.unwrap();
        tokio::spawn(driver);
        slow_and_stopped(&env, transport, &is_stopped).await;
    }
}

#[tokio::test]
async fn the_same_over_tcp() {
    let env = hastened();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let is_stopped = Arc::<AtomicBool>::default();
    let (handler, clock, of_first) = (router(&env, &store(&env)), env.clock.clone(), is_stopped.clone());
    tokio::spawn(async move {
        let mut next = Some(of_first);
        for id in 0.. {
            let (stream, peer) = listener.accept().await.unwrap();
            let endpoint = tcp::Endpoint { peer, local: address, id, allocator: Arc::new(Heap) };
            let options = tcp::ServerOptions::default();
            let (_, driver) = tcp::serve(stream, endpoint, handler.clone(), clock.clone(), options);
            tokio::spawn(Stoppable { driver: Box::pin(driver), is_stopped: next.take().unwrap_or_default() });
        }
    });
    let connector = Arc::new(tcp::TcpConnector::new(address));
    let (transport, driver) =
        tcp::connect(connector, Arc::new(Heap), &env, tcp::ClientOptions::default()).await.unwrap();
    tokio::spawn(driver);
    slow_and_stopped(&env, transport, &is_stopped).await;
}
