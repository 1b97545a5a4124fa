//! Client and server over streams in memory and over loopback: concurrency, limits, loss, silence.

use super::*;
use crate::{
    Answer, CallContext, CallError, Client, ClientTransport, Handler, ItemRoom, Misuse, NoAuth, Outcome, ReplyShape,
    Request, Router, Service, TransportError,
};
use bytes::Bytes;
use rpcrdma_env::{BoxFuture, Buffer, Env, Heap, SeededRandom, TokioClock};
use rpcrdma_xdr::{Decoder, Encoder, Payload, Stream};
use std::{
    collections::VecDeque,
    io,
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex},
    net::TcpListener,
    sync::{Notify, Semaphore},
    time::timeout,
};

#[path = "followed_tests.rs"]
mod followed;
#[path = "outage_tests.rs"]
mod outage;
#[path = "overlap_tests.rs"]
mod overlap;
#[path = "peers_tests.rs"]
mod peers;

const ADDRESS: ([u8; 4], u16) = ([127, 0, 0, 1], 9);

fn env() -> Env {
    Env { clock: Arc::new(TokioClock::new()), random: Arc::new(SeededRandom::new(1)) }
}

/// Procedure 1 echoes an item; 2 waits for the gate; 3 counts and is not idempotent; 4 never ends.
#[derive(Default)]
struct Sample {
    gate: Arc<Notify>,
    running: Arc<AtomicU32>,
    executed: Arc<AtomicU32>,
}

impl Service for Sample {
    fn program(&self) -> u32 {
        77
    }
    fn version(&self) -> u32 {
        1
    }
    fn is_idempotent(&self, procedure: u32) -> bool {
        procedure != 3
    }
    fn call(&self, _: CallContext, procedure: u32, mut args: Decoder) -> BoxFuture<'static, Answer> {
        let (gate, running, executed) = (self.gate.clone(), self.running.clone(), self.executed.clone());
        Box::pin(async move {
            let mut encoder = Encoder::new();
            match procedure {
                1 => match args.item(MAX_RECORD_BYTES) {
                    Ok(item) => encoder.item(item.into_bytes()),
                    Err(error) => return error.into(),
                },
                2 => {
                    running.fetch_add(1, Ordering::SeqCst);
                    gate.notified().await;
                }
                3 => encoder.u32(executed.fetch_add(1, Ordering::SeqCst)),
                _ => std::future::pending().await,
            }
            Answer::Results(encoder.finish())
        })
    }
}

fn router(sample: Sample) -> Arc<dyn Handler> {
    Arc::new(Router::new(&env()).with_service(Arc::new(sample)))
}

fn endpoint() -> Endpoint {
    Endpoint { peer: ADDRESS.into(), local: ADDRESS.into(), id: 1, allocator: Arc::new(Heap) }
}

/// Hands out prepared streams, one for each connection, and waits until one is there.
#[derive(Default)]
struct Prepared {
    streams: Mutex<VecDeque<DuplexStream>>,
    refuse: bool,
}

impl Connector for Prepared {
    fn connect(&self) -> BoxFuture<'_, io::Result<Box<dyn Io>>> {
        let io = self.streams.lock().unwrap().pop_front().ok_or(io::ErrorKind::ConnectionRefused.into());
        Box::pin(async move {
            if io.is_err() && !self.refuse {
                tokio::time::sleep(Duration::from_secs(3600)).await;
            }
            io.map(|io| Box::new(io) as Box<dyn Io>)
        })
    }
    fn server(&self) -> SocketAddr {
        ADDRESS.into()
    }
}

fn prepared(count: usize) -> (Arc<Prepared>, VecDeque<DuplexStream>) {
    let (near, far) = (0..count).map(|_| duplex(1 << 16)).unzip();
    (Arc::new(Prepared { streams: Mutex::new(near), refuse: true }), far)
}

async fn client_of(connector: Arc<Prepared>, options: ClientOptions) -> (Client, Arc<TcpTransport>) {
    let (transport, driver) = connect(connector, Arc::new(Heap), &env(), options).await.unwrap();
    tokio::spawn(driver);
    (Client::new(transport.clone(), Arc::new(NoAuth), 77, 1), transport)
}

fn item(octets: Vec<u8>) -> Payload {
    let mut encoder = Encoder::new();
    encoder.item(octets.into());
    encoder.finish()
}

fn echo(client: &Client, octets: Vec<u8>) -> crate::Call {
    let max_len = 8 + octets.len();
    client.call(1, item(octets), ReplyShape { max_len, items: vec![ItemRoom::new(max_len - 8)].into() })
}

#[tokio::test]
async fn items_of_all_sizes_go_there_and_back_over_loopback() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let (io, peer) = listener.accept().await.unwrap();
        let endpoint = Endpoint { peer, ..endpoint() };
        serve(io, endpoint, router(Sample::default()), env().clock, ServerOptions::default()).1.await
    });
    let connector = Arc::new(TcpConnector::from_reserved_port(server));
    let (transport, driver) = connect(connector, Arc::new(Heap), &env(), ClientOptions::default()).await.unwrap();
    let driver = tokio::spawn(driver);
    let client = Client::new(transport, Arc::new(NoAuth), 77, 1);
    client.null().await.unwrap();
    for len in [0, 1, 3, 4, 8191, 8192, 8193, 1 << 20] {
        let data: Vec<u8> = (0..len).map(|n| n as u8).collect();
        let mut results = echo(&client, data.clone()).await.unwrap();
        assert!(!results.retransmitted);
        assert_eq!(results.decoder.item(len).unwrap().into_bytes(), data);
    }
    drop(client);
    driver.await.unwrap();
}

/// proves: RPC-TCP-a
#[tokio::test]
async fn calls_run_concurrently_up_to_the_limit() {
    let sample = Sample::default();
    let (gate, running) = (sample.gate.clone(), sample.running.clone());
    let (connector, mut far) = prepared(1);
    let options = ServerOptions { max_calls: 2, ..ServerOptions::default() };
    tokio::spawn(serve(far.pop_front().unwrap(), endpoint(), router(sample), env().clock, options).1);
    let (client, _) = client_of(connector, ClientOptions::default()).await;
    let calls: Vec<_> = (0..3).map(|_| tokio::spawn(client.call(2, Payload::new(), ReplyShape::inline(0)))).collect();
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(running.load(Ordering::SeqCst), 2, "the third waits");
    for _ in 0..3 {
        gate.notify_waiters();
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    for call in calls {
        call.await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn draining_answers_what_was_read_and_closes() {
    let sample = Sample::default();
    let (gate, running) = (sample.gate.clone(), sample.running.clone());
    let (connector, mut far) = prepared(1);
    let (handle, driver) =
        serve(far.pop_front().unwrap(), endpoint(), router(sample), env().clock, ServerOptions::default());
    let server = tokio::spawn(driver);
    let (client, _) = client_of(connector, ClientOptions::default()).await;
    let call = tokio::spawn(client.call(2, Payload::new(), ReplyShape::inline(0)));
    while running.load(Ordering::SeqCst) == 0 {
        tokio::task::yield_now().await;
    }
    handle.drain();
    tokio::task::yield_now().await;
    gate.notify_waiters();
    call.await.unwrap().unwrap();
    server.await.unwrap().unwrap();
}

/// proves: RPC-TCP-b
#[tokio::test(start_paused = true)]
async fn a_lost_connection_is_made_again_and_calls_are_sent_again_with_their_xids() {
    let (connector, mut far) = prepared(2);
    let (client, _) = client_of(connector, ClientOptions::default()).await;
    let calls: Vec<_> = (0..3).map(|_| tokio::spawn(client.call(3, Payload::new(), ReplyShape::inline(4)))).collect();
    let mut first = far.pop_front().unwrap();
    let mut octets = vec![0; 3 * 44];
    first.read_exact(&mut octets).await.unwrap();
    drop(first);
    let mut second = far.pop_front().unwrap();
    let mut again = vec![0; 3 * 44];
    second.read_exact(&mut again).await.unwrap();
    assert_eq!(octets, again, "the same calls in the same order");
    for call in again.chunks(44) {
        let reply = [&[0x80, 0, 0, 28][..], &call[4..8], &[0, 0, 0, 1], &[0; 16], &[0, 0, 0, 5]].concat();
        second.write_all(&reply).await.unwrap();
    }
    for call in calls {
        let mut results = call.await.unwrap().unwrap();
        assert!(results.retransmitted);
        assert_eq!(results.decoder.u32(), Ok(5));
    }
}

/// Makes messages that differ, and no more of them than it may.
#[derive(Debug)]
struct Differing(Mutex<std::ops::Range<u8>>);

impl crate::Anew for Differing {
    fn message(&self) -> Result<Payload, TransportError> {
        let next = self.0.lock().unwrap().next();
        let source = crate::ContextError::new("no more");
        let octet = next.ok_or(TransportError::NotSigned { server: ADDRESS.into(), source })?;
        Ok(Payload::from(Bytes::from(vec![octet; 44])))
    }
}

/// GSS-2203-5.3.3.1-f: no message is sent twice.
#[tokio::test(start_paused = true)]
async fn a_call_whose_messages_differ_is_made_anew_for_each_connection() {
    let (connector, mut far) = prepared(3);
    let (_, transport) = client_of(connector, ClientOptions::default()).await;
    let anew: Option<Arc<dyn crate::Anew>> = Some(Arc::new(Differing(Mutex::new(1..2))));
    let message = Payload::from(Bytes::from(vec![0; 44]));
    let request = Request { xid: 5, message, reply: ReplyShape::inline(4), repeatable: false, anew };
    let call = tokio::spawn(transport.call(request));
    for octet in [0, 1] {
        let mut record = [0; 48];
        far.pop_front().unwrap().read_exact(&mut record).await.unwrap();
        assert_eq!(record[4..], [octet; 44]);
    }
    // The second connection was dropped as well, and there is no third message.
    assert!(matches!(call.await.unwrap(), Err(TransportError::NotSigned { .. })));
}

#[tokio::test(start_paused = true)]
async fn a_call_that_nobody_waits_for_is_not_sent_again() {
    let (connector, mut far) = prepared(3);
    let (client, _) = client_of(connector.clone(), ClientOptions::default()).await;
    let call = || tokio::spawn(client.call(3, Payload::new(), ReplyShape::inline(4)));
    let (given_up, kept) = (call(), call());
    let mut octets = vec![0; 2 * 44];
    let mut first = far.pop_front().unwrap();
    first.read_exact(&mut octets).await.unwrap();
    given_up.abort();
    assert!(given_up.await.is_err());
    drop(first);
    let mut again = vec![0; 44];
    let mut second = far.pop_front().unwrap();
    second.read_exact(&mut again).await.unwrap();
    assert_eq!(again, octets[44..], "the other call alone");
    kept.abort();
    assert!(kept.await.is_err());
    drop(second);
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(connector.streams.lock().unwrap().len(), 1, "nothing is left for which to connect");
}

/// proves: RPC-TCP-c
#[tokio::test(start_paused = true)]
async fn an_outage_fails_calls_only_after_its_time_and_the_next_call_tries_again() {
    let (connector, far) = prepared(1);
    let (client, _) = client_of(connector.clone(), ClientOptions::default()).await;
    let start = tokio::time::Instant::now();
    drop(far);
    match client.null().await {
        Err(CallError::Transport(TransportError::Lost { server, after, source })) => {
            assert_eq!(server, ADDRESS.into());
            assert!(after >= Duration::from_secs(120) && source.is_some());
        }
        other => panic!("{other:?}"),
    }
    let waited = start.elapsed();
    assert!((Duration::from_secs(120)..Duration::from_secs(130)).contains(&waited), "{waited:?}");
    let (near, far) = duplex(1 << 16);
    connector.streams.lock().unwrap().push_back(near);
    tokio::spawn(serve(far, endpoint(), router(Sample::default()), env().clock, ServerOptions::default()).1);
    client.null().await.unwrap();
}

#[tokio::test]
async fn the_first_connection_fails_at_once() {
    let (connector, _) = prepared(0);
    let refused = connect(connector, Arc::new(Heap), &env(), ClientOptions::default()).await;
    assert!(matches!(refused.map(|_| ()), Err(TransportError::Unreachable { .. })));
}

/// proves: RPC-TCP-d
#[tokio::test(start_paused = true)]
async fn a_silent_server_is_asked_by_a_null_and_only_then_left() {
    // The first server answers NULLs only; the second nothing.
    let (connector, mut far) = prepared(3);
    let sample = Sample::default();
    tokio::spawn(serve(far.pop_front().unwrap(), endpoint(), router(sample), env().clock, ServerOptions::default()).1);
    let (client, transport) = client_of(connector.clone(), ClientOptions::default()).await;
    client.null().await.unwrap();
    let mut waiting = Box::pin(client.call(4, Payload::new(), ReplyShape::inline(0)));
    let silence = transport.silence().unwrap();
    let mut asked = None;
    for (seconds, is_alive) in [(19, false), (2, true), (579, true)] {
        let waited = timeout(Duration::from_secs(seconds), &mut waiting).await;
        assert!(waited.is_err(), "a slow call is waited for");
        let told = silence.waiting().unwrap();
        assert_eq!(told.alive.is_some(), is_alive, "after {seconds} s more: {told:?}");
        assert_eq!(*asked.get_or_insert(told.since), told.since, "nothing that was asked for has come");
        assert!(told.until > told.alive.unwrap_or(told.since), "{told:?}");
    }
    assert_eq!(connector.streams.lock().unwrap().len(), 2, "on the same connection");

    let (silent, mut far) = prepared(2);
    let (client, _) = client_of(silent.clone(), ClientOptions::default()).await;
    let mut first = far.pop_front().unwrap();
    answer_one(&client, &mut first).await;
    let call = tokio::spawn(client.call(1, item(vec![1]), ReplyShape::inline(64)));
    let mut octets = vec![0; 52];
    first.read_exact(&mut octets).await.unwrap();
    let start = tokio::time::Instant::now();
    let mut null = vec![0; 44];
    first.read_exact(&mut null).await.unwrap();
    assert_eq!(null[16..28], [0, 0, 0, 77, 0, 0, 0, 1, 0, 0, 0, 0]);
    assert_eq!(first.read(&mut octets).await.unwrap(), 0, "the connection is dropped");
    let waited = start.elapsed();
    // 20 s of silence, and 25 s for the NULL.
    assert!((Duration::from_secs(44)..Duration::from_secs(46)).contains(&waited), "{waited:?}");
    let second = far.pop_front().unwrap();
    tokio::spawn(serve(second, endpoint(), router(Sample::default()), env().clock, ServerOptions::default()).1);
    assert!(call.await.unwrap().unwrap().retransmitted);
}

/// Makes a NULL call and answers it by hand.
async fn answer_one(client: &Client, server: &mut DuplexStream) {
    let null = client.null();
    let answering = async {
        let mut call = [0; 44];
        server.read_exact(&mut call).await.unwrap();
        let reply = [&[0x80, 0, 0, 24][..], &call[4..8], &[0, 0, 0, 1], &[0; 16]].concat();
        server.write_all(&reply).await.unwrap();
    };
    let (answered, ()) = tokio::join!(null, answering);
    answered.unwrap();
}

#[tokio::test]
async fn misuse_is_told_before_anything_is_sent() {
    let (connector, _far) = prepared(1);
    let (client, transport) = client_of(connector, ClientOptions::default()).await;
    let max = MAX_RECORD_BYTES;
    let refused = echo(&client, vec![0; max]).await;
    assert!(matches!(refused, Err(CallError::Transport(TransportError::Misuse(Misuse::CallTooLarge { .. })))));
    let refused = client.call(1, Payload::new(), ReplyShape::inline(max)).await;
    assert!(matches!(refused, Err(CallError::Transport(TransportError::Misuse(Misuse::ReplyTooLarge { .. })))));
    let room = ItemRoom { max_len: 9, buffer: Some(Buffer::from_vec(vec![0; 8])) };
    let request = Request {
        xid: 1,
        message: Payload::new(),
        reply: ReplyShape { max_len: 100, items: vec![room].into() },
        repeatable: false,
        anew: None,
    };
    let refused = transport.call(request).await;
    assert!(matches!(refused, Err(TransportError::Misuse(Misuse::BufferTooSmall { capacity: 8, max_len: 9 }))));
    let twice = || {
        transport.call(Request {
            xid: 5,
            message: Payload::new(),
            reply: ReplyShape::inline(64),
            repeatable: false,
            anew: None,
        })
    };
    let _first = twice();
    assert!(matches!(twice().await, Err(TransportError::Misuse(Misuse::XidInUse { xid: 5 }))));
}

#[tokio::test]
async fn a_cancelled_call_gives_its_buffers_back() {
    let (connector, _far) = prepared(1);
    let (client, _) = client_of(connector, ClientOptions::default()).await;
    let rooms = [8, 16].map(|len| ItemRoom::lend(Buffer::from_vec(vec![0; len])));
    let call = client.call(4, Payload::new(), ReplyShape { max_len: 100, items: rooms.into_iter().collect() });
    let lent: Vec<_> = call.cancel().await.buffers.iter().map(Buffer::capacity).collect();
    assert_eq!(lent, [8, 16]);
}

#[tokio::test]
async fn a_reply_above_what_the_call_allowed_is_refused_and_the_connection_lives() {
    let (connector, mut far) = prepared(1);
    let server = far.pop_front().unwrap();
    tokio::spawn(serve(server, endpoint(), router(Sample::default()), env().clock, ServerOptions::default()).1);
    let (client, _) = client_of(connector, ClientOptions::default()).await;
    let refused = client.call(1, item(vec![0; 1000]), ReplyShape::inline(8)).await;
    assert!(matches!(refused, Err(CallError::Transport(TransportError::ReplyTooLarge { .. }))), "{refused:?}");
    client.null().await.unwrap();
}

#[tokio::test]
async fn a_server_that_breaks_record_marking_fails_the_calls_that_wait() {
    let (connector, mut far) = prepared(2);
    let (client, _) = client_of(connector, ClientOptions::default()).await;
    let mut server = far.pop_front().unwrap();
    answer_one(&client, &mut server).await;
    server.write_all(&[0xFF; 8]).await.unwrap();
    let failed = client.null().await;
    assert!(matches!(failed, Err(CallError::Transport(TransportError::Violation { .. }))), "{failed:?}");
    let second = far.pop_front().unwrap();
    tokio::spawn(serve(second, endpoint(), router(Sample::default()), env().clock, ServerOptions::default()).1);
    client.null().await.unwrap();
}

/// proves: RPC-DRC-b
#[tokio::test]
async fn the_driver_ends_only_after_its_calls() {
    let sample = Sample::default();
    let (gate, running) = (sample.gate.clone(), sample.running.clone());
    let (mut near, far) = duplex(1 << 10);
    let (_, driver) = serve(far, endpoint(), router(sample), env().clock, ServerOptions::default());
    let server = tokio::spawn(driver);
    let call: Vec<u8> = [0x8000_0028_u32, 1, 0, 2, 77, 1, 2, 0, 0, 0, 0].iter().flat_map(|w| w.to_be_bytes()).collect();
    near.write_all(&call).await.unwrap();
    while running.load(Ordering::SeqCst) == 0 {
        tokio::task::yield_now().await;
    }
    drop(near);
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert!(!server.is_finished());
    gate.notify_waiters();
    let _ = server.await.unwrap();
}
