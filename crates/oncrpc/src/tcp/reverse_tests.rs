//! Calls in both directions over one stream: replies between calls, limits, deadlines, and peers that send replies to
//! no call.

use super::*;
use crate::{
    Answer, CallContext, CallError, CallHeader, CallId, Client, ClientTransport, Handler, NoAuth, OpaqueAuth,
    ReplyShape, Router, Service, TransportError,
};
use bytes::Bytes;
use rpcrdma_env::{BoxFuture, Env, Heap, SeededRandom, TokioClock};
use rpcrdma_xdr::{Decoder, Encoder, Payload};
use std::{
    collections::VecDeque,
    io,
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex},
    sync::Notify,
    task::JoinHandle,
};

const ADDRESS: ([u8; 4], u16) = ([127, 0, 0, 1], 9);
/// The program of the server, and that of the client.
const FORWARD: u32 = 77;
const BACKWARD: u32 = 0x4000_0000;
/// Procedures of both programs: one returns its argument plus one; one waits for the gate.
const NEXT: u32 = 1;
const WAIT: u32 = 2;
/// A procedure of the server alone: calls the client's [`NEXT`] before it answers.
const THERE_AND_BACK: u32 = 3;

fn env() -> Env {
    Env { clock: Arc::new(TokioClock::new()), random: Arc::new(SeededRandom::new(1)) }
}

/// A program of either end.
#[derive(Clone, Default)]
struct Sample {
    program: u32,
    gate: Arc<Notify>,
    running: Arc<AtomicUsize>,
    most: Arc<AtomicUsize>,
    /// The reverse direction to the last caller.
    back: Arc<Mutex<Option<Arc<dyn ClientTransport>>>>,
}

impl Sample {
    fn of(program: u32) -> Self {
        Self { program, ..Self::default() }
    }

    fn router(&self) -> Arc<dyn Handler> {
        Arc::new(Router::new(&env()).with_service(Arc::new(self.clone())))
    }

    fn back(&self) -> Client {
        let back = self.back.lock().unwrap().clone().expect("somebody has called");
        Client::new(back, Arc::new(NoAuth), BACKWARD, 1)
    }
}

impl Service for Sample {
    fn program(&self) -> u32 {
        self.program
    }
    fn version(&self) -> u32 {
        1
    }
    fn is_idempotent(&self, _: u32) -> bool {
        true
    }
    fn call(&self, context: CallContext, procedure: u32, mut args: Decoder) -> BoxFuture<'static, Answer> {
        let this = self.clone();
        this.back.lock().unwrap().clone_from(&context.connection.reverse);
        Box::pin(async move {
            let Ok(number) = args.u32() else { return Answer::GarbageArgs };
            let number = match procedure {
                THERE_AND_BACK => next(&this.back(), number).await.unwrap(),
                WAIT => {
                    let running = this.running.fetch_add(1, Ordering::SeqCst) + 1;
                    this.most.fetch_max(running, Ordering::SeqCst);
                    this.gate.notified().await;
                    this.running.fetch_sub(1, Ordering::SeqCst);
                    number
                }
                _ => number,
            };
            let mut results = Encoder::new();
            results.u32(number.wrapping_add(1));
            Answer::Results(results.finish())
        })
    }
}

fn call(client: &Client, procedure: u32, number: u32) -> crate::Call {
    let mut args = Encoder::new();
    args.u32(number);
    client.call(procedure, args.finish(), ReplyShape::inline(4))
}

async fn next(client: &Client, number: u32) -> Result<u32, CallError> {
    call(client, NEXT, number).await?.decode()
}

type Ended = Result<(), ConnectionError>;

fn options() -> ServerOptions {
    ServerOptions {
        reverse_calls: 4,
        reverse_deadline: Duration::from_secs(20),
        max_calls: 8,
        ..ServerOptions::default()
    }
}

fn start_server(far: DuplexStream, sample: &Sample, options: ServerOptions) -> (ConnectionHandle, JoinHandle<Ended>) {
    let endpoint = Endpoint { peer: ADDRESS.into(), local: ADDRESS.into(), id: 1, allocator: Arc::new(Heap) };
    let (handle, driver) = serve(far, endpoint, sample.router(), env().clock, options);
    (handle, tokio::spawn(driver))
}

/// Connections that exist already, and then none.
struct Prepared(Mutex<VecDeque<DuplexStream>>);

impl Connector for Prepared {
    fn connect(&self) -> BoxFuture<'_, io::Result<Box<dyn Io>>> {
        let next = self.0.lock().unwrap().pop_front();
        Box::pin(async move { Ok(Box::new(next.ok_or(io::ErrorKind::ConnectionRefused)?) as Box<dyn Io>) })
    }
    fn server(&self) -> SocketAddr {
        ADDRESS.into()
    }
}

async fn start_client(near: Vec<DuplexStream>, reverse: Option<Reverse>) -> Client {
    let options = ClientOptions { reverse, ..ClientOptions::default() };
    let connector = Arc::new(Prepared(Mutex::new(near.into())));
    let (transport, driver) = connect(connector, Arc::new(Heap), &env(), options).await.unwrap();
    tokio::spawn(driver);
    Client::new(transport, Arc::new(NoAuth), FORWARD, 1)
}

fn reverse(sample: &Sample, calls: usize) -> Option<Reverse> {
    Some(Reverse { handler: sample.router(), calls })
}

#[tokio::test]
async fn both_ends_call_over_one_stream_at_once() {
    let (near, far) = duplex(1 << 12);
    let server = Sample::of(FORWARD);
    let (handle, _driver) = start_server(far, &server, options());
    let client = start_client(vec![near], reverse(&Sample::of(BACKWARD), 4)).await;
    let calls: Vec<_> = (0..8).map(|number| call(&client, THERE_AND_BACK, number)).collect();
    let plain: Vec<_> = (0..8).map(|number| call(&client, NEXT, number)).collect();
    for (number, (through, plain)) in (0..).zip(calls.into_iter().zip(plain)) {
        assert_eq!(through.await.unwrap().decode::<u32>().unwrap(), number + 2);
        assert_eq!(plain.await.unwrap().decode::<u32>().unwrap(), number + 1);
    }
    assert_eq!(handle.stray_replies(), 0);
}

#[tokio::test]
async fn a_server_that_may_not_call_has_nobody_to_call() {
    let (near, far) = duplex(1 << 12);
    let server = Sample::of(FORWARD);
    start_server(far, &server, ServerOptions::default());
    let client = start_client(vec![near], None).await;
    next(&client, 1).await.unwrap();
    assert!(server.back.lock().unwrap().is_none());
}

/// Calls beyond the limit wait for those before them, and are all made.
#[tokio::test]
async fn no_more_calls_are_under_way_than_the_limit() {
    let (near, far) = duplex(1 << 12);
    let (server, client_side) = (Sample::of(FORWARD), Sample::of(BACKWARD));
    start_server(far, &server, options());
    let client = start_client(vec![near], reverse(&client_side, 100)).await;
    next(&client, 1).await.unwrap();
    let back = server.back();
    let calls: Vec<_> = (0..5).map(|number| call(&back, WAIT, number)).collect();
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(client_side.running.load(Ordering::SeqCst), 4, "at the limit");
    for (number, call) in (0..).zip(calls) {
        client_side.gate.notify_one();
        assert_eq!(call.await.unwrap().decode::<u32>().unwrap(), number + 1);
    }
    assert_eq!(client_side.most.load(Ordering::SeqCst), 4, "the one past it came later");
}

/// A client answers as many calls as it says; one past that is dropped, and the connection stays.
#[tokio::test(start_paused = true)]
async fn a_client_drops_calls_beyond_its_limit() {
    let (near, far) = duplex(1 << 12);
    let (server, client_side) = (Sample::of(FORWARD), Sample::of(BACKWARD));
    let (_, driver) = start_server(far, &server, options());
    let client = start_client(vec![near], reverse(&client_side, 2)).await;
    next(&client, 1).await.unwrap();
    let back = server.back();
    let [first, second, third] = [0, 1, 2].map(|number| call(&back, WAIT, number));
    tokio::time::sleep(Duration::from_millis(50)).await;
    client_side.gate.notify_one();
    client_side.gate.notify_one();
    first.await.unwrap();
    second.await.unwrap();
    assert!(matches!(third.await, Err(CallError::Transport(TransportError::NotAnswered { .. }))));
    assert_eq!(next(&back, 4).await.unwrap(), 5);
    assert!(!driver.is_finished());
}

fn record(words: &[u32]) -> Vec<u8> {
    let len = 0x8000_0000 | (4 * words.len() as u32);
    [len].iter().chain(words).flat_map(|word| word.to_be_bytes()).collect()
}

fn forward_call(xid: u32, procedure: u32) -> Vec<u8> {
    record(&[xid, 0, 2, FORWARD, 1, procedure, 0, 0, 0, 0, 7])
}

fn good_reply(xid: u32, result: u32) -> Vec<u8> {
    record(&[xid, 1, 0, 0, 0, 0, result])
}

async fn read_record(io: &mut DuplexStream) -> Vec<u32> {
    let mut head = [0; 4];
    io.read_exact(&mut head).await.unwrap();
    let mut octets = vec![0; (u32::from_be_bytes(head) & 0x7FFF_FFFF) as usize];
    io.read_exact(&mut octets).await.unwrap();
    octets.chunks(4).map(|word| u32::from_be_bytes(word.try_into().unwrap())).collect()
}

/// A server with a peer that is a bare stream and has called once.
async fn bare(sample: &Sample, options: ServerOptions) -> (DuplexStream, ConnectionHandle, JoinHandle<Ended>) {
    let (mut near, far) = duplex(1 << 16);
    let (handle, driver) = start_server(far, sample, options);
    near.write_all(&forward_call(1, NEXT)).await.unwrap();
    assert_eq!(read_record(&mut near).await[0], 1);
    (near, handle, driver)
}

/// The server finds the reply behind more calls than it executes at a time.
#[tokio::test]
async fn a_reply_is_found_behind_calls_that_are_not_executed_yet() {
    let sample = Sample::of(FORWARD);
    let options = options();
    let (mut near, ..) = bare(&sample, options).await;
    let back = sample.back();
    let reply = tokio::spawn(async move { next(&back, 10).await });
    let xid = read_record(&mut near).await[0];
    // As many as are executed, and as many again.
    for call in 0..2 * options.max_calls as u32 {
        near.write_all(&forward_call(100 + call, WAIT)).await.unwrap();
    }
    near.write_all(&good_reply(xid, 11)).await.unwrap();
    assert_eq!(reply.await.unwrap().unwrap(), 11);
    assert_eq!(sample.most.load(Ordering::SeqCst), options.max_calls);
    // They are executed in the end, each once.
    let mut answered = Vec::new();
    for _ in 0..2 * options.max_calls {
        sample.gate.notify_one();
        answered.push(read_record(&mut near).await[0]);
    }
    answered.sort_unstable();
    assert_eq!(answered, (100..100 + 2 * options.max_calls as u32).collect::<Vec<_>>());
    assert_eq!(sample.most.load(Ordering::SeqCst), options.max_calls, "never more at a time");
}

/// With one call more than the server holds, the reply behind it waits for the peer's own calls, and the server's call
/// fails in time.
#[tokio::test(start_paused = true)]
async fn a_reply_behind_too_many_calls_waits_for_them() {
    let sample = Sample::of(FORWARD);
    let options = options();
    let (mut near, handle, driver) = bare(&sample, options).await;
    let back = sample.back();
    let reply = tokio::spawn(async move { next(&back, 10).await });
    let xid = read_record(&mut near).await[0];
    for call in 0..=2 * options.max_calls as u32 {
        near.write_all(&forward_call(100 + call, WAIT)).await.unwrap();
    }
    near.write_all(&good_reply(xid, 11)).await.unwrap();
    let refused = reply.await.unwrap();
    assert!(matches!(refused, Err(CallError::Transport(TransportError::NotAnswered { .. }))), "{refused:?}");
    for _ in 0..=2 * options.max_calls {
        sample.gate.notify_one();
        read_record(&mut near).await;
    }
    assert_eq!(handle.stray_replies(), 1, "it comes too late");
    assert!(!driver.is_finished());
}

/// Late replies, replies to other calls, repeated and truncated replies: they are dropped and counted, and the
/// connection goes on.
#[tokio::test(start_paused = true)]
async fn replies_that_nobody_has_asked_for_are_dropped_and_counted() {
    let sample = Sample::of(FORWARD);
    let (mut near, handle, _driver) = bare(&sample, options()).await;
    let back = sample.back();
    near.write_all(&good_reply(4_711, 0)).await.unwrap();
    let late = next(&back, 1);
    let reply = tokio::join!(late, async {
        let xid = read_record(&mut near).await[0];
        tokio::time::sleep(Duration::from_secs(21)).await;
        near.write_all(&good_reply(xid, 2)).await.unwrap();
    });
    assert!(matches!(reply.0, Err(CallError::Transport(TransportError::NotAnswered { .. }))));
    let (answer, ()) = tokio::join!(next(&back, 1), async {
        let xid = read_record(&mut near).await[0];
        near.write_all(&good_reply(xid ^ 1, 99)).await.unwrap();
        near.write_all(&good_reply(xid, 2)).await.unwrap();
        near.write_all(&good_reply(xid, 98)).await.unwrap();
    });
    assert_eq!(answer.unwrap(), 2);
    near.write_all(&record(&[5, 1])).await.unwrap();
    near.write_all(&forward_call(7, NEXT)).await.unwrap();
    assert_eq!(read_record(&mut near).await[0], 7);
    assert_eq!(handle.stray_replies(), 5);
    let (malformed, ()) = tokio::join!(next(&back, 1), async {
        let xid = read_record(&mut near).await[0];
        near.write_all(&record(&[xid, 1])).await.unwrap();
    });
    assert!(matches!(malformed, Err(CallError::Malformed(_))), "{malformed:?}");
}

#[tokio::test]
async fn a_server_that_calls_nobody_counts_replies_too() {
    let sample = Sample::of(FORWARD);
    let (mut near, handle, _driver) = bare(&sample, ServerOptions::default()).await;
    near.write_all(&good_reply(1, 0)).await.unwrap();
    near.write_all(&forward_call(2, NEXT)).await.unwrap();
    assert_eq!(read_record(&mut near).await[0], 2);
    assert_eq!(handle.stray_replies(), 1);
}

/// However the connection ends, calls that were sent, that wait and that are made afterwards fail at once.
#[tokio::test]
async fn the_end_of_the_connection_ends_all_calls() {
    for end in 0..3 {
        let sample = Sample::of(FORWARD);
        let (mut near, _handle, driver) = bare(&sample, options()).await;
        let back = sample.back();
        let calls: Vec<_> = (0..9).map(|number| call(&back, NEXT, number)).collect();
        read_record(&mut near).await;
        match end {
            0 => drop(near),
            1 => near.write_all(&[0xFF; 4]).await.unwrap(),
            _ => near.shutdown().await.unwrap(),
        }
        for call in calls {
            assert!(matches!(call.await, Err(CallError::Transport(TransportError::Closed))), "end {end}");
        }
        let _ = driver.await.unwrap();
        let after = next(&back, 1).await;
        assert!(matches!(after, Err(CallError::Transport(TransportError::Closed))), "end {end}");
    }
}

/// A call that waits for the client's reply gets it although the connection drains, and calls that come meanwhile are
/// not executed.
#[tokio::test]
async fn a_connection_that_drains_reads_the_replies_that_its_calls_wait_for() {
    let sample = Sample::of(FORWARD);
    let (mut near, handle, driver) = bare(&sample, options()).await;
    near.write_all(&forward_call(2, THERE_AND_BACK)).await.unwrap();
    let xid = read_record(&mut near).await[0];
    handle.drain();
    tokio::time::sleep(Duration::from_millis(20)).await;
    near.write_all(&forward_call(3, WAIT)).await.unwrap();
    near.write_all(&good_reply(xid, 8)).await.unwrap();
    let answer = read_record(&mut near).await;
    assert_eq!((answer[0], answer[6]), (2, 9));
    driver.await.unwrap().unwrap();
    assert_eq!(sample.most.load(Ordering::SeqCst), 0);
}

/// If a caller goes away before its call is sent, the call is not sent; if it goes away later, the reply frees its
/// place.
#[tokio::test]
async fn calls_whose_callers_have_gone_away_leave_nothing() {
    let sample = Sample::of(FORWARD);
    let (mut near, handle, _driver) = bare(&sample, options()).await;
    let back = sample.back();
    let mut calls: VecDeque<_> = (0..6).map(|number| call(&back, NEXT, number)).collect();
    let xid = read_record(&mut near).await[0];
    calls.pop_front();
    calls.pop_back();
    calls.pop_back();
    near.write_all(&good_reply(xid, 1)).await.unwrap();
    for _ in 0..3 {
        let sent = read_record(&mut near).await;
        near.write_all(&good_reply(sent[0], sent[10] + 1)).await.unwrap();
    }
    for (number, call) in (1..).zip(calls) {
        assert_eq!(call.await.unwrap().decode::<u32>().unwrap(), number + 1);
    }
    let (answer, sent) = tokio::join!(next(&back, 70), async {
        let sent = read_record(&mut near).await;
        near.write_all(&good_reply(sent[0], sent[10] + 1)).await.unwrap();
        sent[10]
    });
    assert_eq!((answer.unwrap(), sent), (71, 70), "the calls in between were never sent");
    assert_eq!(handle.stray_replies(), 0);
}

/// A server's call that was begun on a connection that is gone is executed to its end, and its reply goes nowhere.
#[tokio::test]
async fn a_call_of_the_servers_outlives_its_connection() {
    let (first, mut first_far) = duplex(1 << 12);
    let (second, mut second_far) = duplex(1 << 12);
    let sample = Sample::of(BACKWARD);
    let client = start_client(vec![first, second], reverse(&sample, 4)).await;
    let pending = tokio::spawn(async move { next(&client, 1).await });
    read_record(&mut first_far).await;
    let backward = |xid, procedure| record(&[xid, 0, 2, BACKWARD, 1, procedure, 0, 0, 0, 0, 7]);
    first_far.write_all(&backward(50, WAIT)).await.unwrap();
    while sample.running.load(Ordering::SeqCst) == 0 {
        tokio::task::yield_now().await;
    }
    drop(first_far);
    let again = read_record(&mut second_far).await;
    sample.gate.notify_one();
    second_far.write_all(&backward(51, NEXT)).await.unwrap();
    assert_eq!(read_record(&mut second_far).await[0], 51, "the first has nowhere to go");
    assert_eq!(sample.running.load(Ordering::SeqCst), 0, "and has ended");
    second_far.write_all(&good_reply(again[0], 2)).await.unwrap();
    assert_eq!(pending.await.unwrap().unwrap(), 2);
}

/// A client without a handler drops every call of the server, and its own calls go on.
#[tokio::test]
async fn a_client_that_serves_nothing_answers_nothing() {
    let (near, mut far) = duplex(1 << 12);
    let client = start_client(vec![near], None).await;
    let pending = tokio::spawn(async move { next(&client, 1).await });
    let sent = read_record(&mut far).await;
    let mut encoder = Encoder::new();
    let id = CallId { xid: sent[0], program: BACKWARD, version: 1, procedure: 0 };
    CallHeader { id, credential: OpaqueAuth::none(), verifier: OpaqueAuth::none() }.encode(&mut encoder);
    let call: Payload = encoder.finish();
    let octets: Bytes = call.to_bytes();
    far.write_all(&(0x8000_0000 | octets.len() as u32).to_be_bytes()).await.unwrap();
    // This call has the XID of the client's own call, and does not answer it.
    far.write_all(&octets).await.unwrap();
    far.write_all(&good_reply(sent[0], 2)).await.unwrap();
    assert_eq!(pending.await.unwrap().unwrap(), 2);
}
