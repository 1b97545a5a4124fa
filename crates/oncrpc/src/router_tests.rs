//! The router's tests: the answers to calls, and the duplicate request cache in its place.

use super::*;
use crate::{
    AUTH_SYS, ArgumentWords, Connection, Credential, GoneSignal, Limits, OpaqueAuth, ReplyHeader, SysCredential,
};
use bytes::Bytes;
use proptest::prelude::*;
use rpcrdma_env::{Heap, SeededRandom, Timestamp, TokioClock};
use rpcrdma_xdr::{Encode, Encoder};
use std::{
    net::SocketAddr,
    sync::{
        Mutex,
        atomic::{AtomicU32, Ordering},
    },
};
use tokio::sync::Notify;

/// Procedures: 1 echoes an item, 2 counts (not idempotent), 3 waits then counts (not idempotent), 4 to 8 answer
/// with the other kinds of answer, 9 writes its number behind the reply's header if it may.
#[derive(Default)]
pub(super) struct Sample {
    pub(super) version: u32,
    pub(super) count: Arc<AtomicU32>,
    pub(super) gate: Arc<Notify>,
    pub(super) seen: Arc<Mutex<Vec<Credential>>>,
}

impl Service for Sample {
    fn program(&self) -> u32 {
        77
    }
    fn version(&self) -> u32 {
        self.version
    }
    fn is_idempotent(&self, procedure: u32) -> bool {
        !matches!(procedure, 2 | 3)
    }
    fn call(&self, context: CallContext, procedure: u32, mut args: Decoder) -> BoxFuture<'static, Answer> {
        let (count, gate) = (self.count.clone(), self.gate.clone());
        self.seen.lock().unwrap().push(context.credential.clone());
        Box::pin(async move {
            let mut encoder = Encoder::new();
            match procedure {
                1 => match args.item(64) {
                    Ok(item) => encoder.item(item.into_bytes()),
                    Err(error) => return error.into(),
                },
                2 => encoder.u32(count.fetch_add(1, Ordering::Relaxed)),
                3 => {
                    gate.notified().await;
                    encoder.u32(count.fetch_add(1, Ordering::Relaxed));
                }
                4 => return Answer::SystemErr,
                5 => return Answer::AuthError(AuthStat::TOO_WEAK),
                6 => return Answer::Nothing,
                7 => match args.u32() {
                    Ok(word) => encoder.u32(word),
                    Err(error) => return error.into(),
                },
                9 => return context.results(4, |encoder| encoder.u32(procedure)),
                _ => return Answer::ProcUnavail,
            }
            Answer::Results(encoder.finish())
        })
    }
}

pub(super) fn env() -> Env {
    Env { clock: Arc::new(TokioClock::new()), random: Arc::new(SeededRandom::new(1)) }
}

pub(super) fn context(port: u16) -> (GoneSignal, CallContext) {
    let (signal, gone) = GoneSignal::new();
    let peer = ([127, 0, 0, 1], port).into();
    let connection = Connection::new(peer, peer, 1, TransportKind::Tcp, Limits::new(4096, 4096), Arc::new(Heap), gone);
    (signal, CallContext::new(Arc::new(connection)))
}

fn call(xid: u32, program: u32, version: u32, procedure: u32, args: &[u8]) -> Bytes {
    let mut encoder = Encoder::new();
    let id = CallId { xid, program, version, procedure };
    CallHeader { id, credential: OpaqueAuth::none(), verifier: OpaqueAuth::none() }.encode(&mut encoder);
    encoder.opaque_fixed(args);
    encoder.finish().to_bytes()
}

pub(super) fn outcome_to_header(outcome: Outcome) -> (ReplyHeader, Decoder) {
    let Outcome::Reply(payload) = outcome else { panic!("no reply but {outcome:?}") };
    let mut decoder = Decoder::new(Stream::from(payload.to_bytes()));
    (ReplyHeader::decode(&mut decoder).unwrap(), decoder)
}

async fn ask(router: &Router, message: Bytes) -> Result<Decoder, Rejection> {
    let (_signal, context) = context(700);
    let (header, decoder) = outcome_to_header(router.handle(context, Stream::from(message)).await);
    header.status.map(|()| decoder)
}

fn router() -> Router {
    let service = |version| Arc::new(Sample { version, ..Sample::default() });
    Router::new(&env()).with_service(service(1)).with_service(service(3))
}

/// proves: RPC-5531-9-c
#[tokio::test]
async fn each_kind_of_rejection_has_its_cause() {
    let router = router();
    let cases = [
        (call(1, 78, 1, 1, b""), Rejection::ProgramUnavailable),
        (call(1, 77, 2, 1, b""), Rejection::ProgramMismatch { low: 1, high: 3 }),
        (call(1, 77, 4, 1, b""), Rejection::ProgramMismatch { low: 1, high: 3 }),
        (call(1, 77, 1, 99, b""), Rejection::ProcedureUnavailable),
        (call(1, 77, 1, 7, b""), Rejection::GarbageArgs),
        (call(1, 77, 1, 0, b"more"), Rejection::GarbageArgs),
        (call(1, 77, 1, 4, b""), Rejection::SystemError),
        (call(1, 77, 1, 5, b""), Rejection::Auth(AuthStat::TOO_WEAK)),
    ];
    for (message, rejection) in cases {
        assert_eq!(ask(&router, message).await.map(|_| ()), Err(rejection));
    }
    ask(&router, call(1, 77, 3, 0, b"")).await.unwrap().finish().unwrap();
    let (_signal, context) = context(1);
    let silent = router.handle(context, Stream::from(call(1, 77, 1, 6, b""))).await;
    assert!(matches!(silent, Outcome::Nothing));
}

/// proves: RPC-5531-8.2-b
#[tokio::test]
async fn credentials_reach_the_service_or_are_refused() {
    let sample = Sample { version: 1, ..Sample::default() };
    let seen = sample.seen.clone();
    let router = Router::new(&env()).with_service(Arc::new(sample));
    let identity = SysCredential { uid: 5, gid: 6, groups: vec![7], ..SysCredential::default() };
    let with = |flavour, body: Bytes| {
        let mut encoder = Encoder::new();
        let id = CallId { xid: 1, program: 77, version: 1, procedure: 7 };
        let credential = OpaqueAuth { flavour, body };
        CallHeader { id, credential, verifier: OpaqueAuth::none() }.encode(&mut encoder);
        encoder.u32(9);
        encoder.finish().to_bytes()
    };
    let mut body = Encoder::new();
    identity.encode(&mut body);
    let body = body.finish().to_bytes();
    assert!(ask(&router, with(AUTH_SYS, body.clone())).await.is_ok());
    assert_eq!(*seen.lock().unwrap(), [Credential::Sys(Arc::new(identity))]);
    let bad = Err(Rejection::Auth(AuthStat::BAD_CREDENTIAL));
    assert_eq!(ask(&router, with(AUTH_SYS, body.slice(..body.len() - 4))).await.map(|_| ()), bad);
    let trailing = [&body[..], &[0; 4]].concat();
    assert_eq!(ask(&router, with(AUTH_SYS, trailing.into())).await.map(|_| ()), bad);
    let unknown = Err(Rejection::Auth(AuthStat::REJECTED_CREDENTIAL));
    assert_eq!(ask(&router, with(6, Bytes::new())).await.map(|_| ()), unknown);
}

/// proves: V1-6.1-a, V1-6.1-c
#[tokio::test]
async fn a_chunk_where_none_is_allowed_is_told_to_the_transport() {
    let router = router();
    let chunked = |procedure, first: &[u8], chunk: &'static [u8]| {
        let mut stream = Stream::from(call(1, 77, 1, procedure, first));
        stream.push_chunk(Bytes::from_static(chunk));
        stream
    };
    let (_signal, context) = context(1);
    let eligible = router.handle(context.clone(), chunked(1, &[0, 0, 0, 4], b"data")).await;
    assert!(outcome_to_header(eligible).0.status.is_ok());
    for (procedure, first) in [(7, &b""[..]), (0, b"")] {
        let outcome = router.handle(context.clone(), chunked(procedure, first, b"word")).await;
        assert!(matches!(outcome, Outcome::NotEligible), "{outcome:?}");
    }
}

/// proves: RPC-DRC-a
#[tokio::test]
async fn a_repeated_call_is_answered_from_the_cache_whatever_its_port() {
    let router = router();
    let ask = |port, xid, procedure| {
        let (_signal, context) = context(port);
        router.handle(context, Stream::from(call(xid, 77, 1, procedure, b"")))
    };
    let count = |outcome| outcome_to_header(outcome).1.u32().unwrap();
    assert_eq!(count(ask(700, 5, 2).await), 0);
    assert_eq!(count(ask(701, 5, 2).await), 0, "the same call again");
    assert_eq!(count(ask(700, 6, 2).await), 1, "another XID");
}

/// A transport that begins a call gets its outcome without a future, if the call waits for nothing.
#[tokio::test]
async fn what_waits_for_nothing_is_over_at_once() {
    let sample = Sample { version: 1, ..Sample::default() };
    let gate = sample.gate.clone();
    let router = Router::new(&env()).with_service(Arc::new(sample));
    let (_signal, context) = context(700);
    let begin = |xid, procedure| {
        let cx = &mut Context::from_waker(std::task::Waker::noop());
        router.begin(context.clone(), Stream::from(call(xid, 77, 1, procedure, b"")), cx)
    };
    for (xid, procedure) in [(1, 0), (2, 1), (3, 2), (4, 8)] {
        let Begun::Done(outcome) = begin(xid, procedure) else { panic!("procedure {procedure} waits for nothing") };
        assert_eq!(outcome_to_header(outcome).0.xid, xid);
    }
    let Begun::Waits(waiting) = begin(5, 3) else { panic!("it waits for the gate") };
    assert!(matches!(begin(5, 3), Begun::Done(Outcome::Nothing)), "the same call meanwhile");
    gate.notify_one();
    assert_eq!(outcome_to_header(waiting.await).1.u32(), Ok(1));
    let Begun::Done(kept) = begin(5, 3) else { panic!("its reply is kept") };
    assert_eq!(outcome_to_header(kept).1.u32(), Ok(1));
}

/// One client calls over a socket of both families, and over one of IPv4; another client sends the same call.
///
/// proves: ULB-3.4.2-a
#[tokio::test]
async fn a_kept_reply_is_for_the_address_of_its_client() {
    let router = router();
    let count = async |address: &str, kind, xid, args: &'static [u8]| {
        let (_signal, gone) = GoneSignal::new();
        let (peer, limits) = (SocketAddr::new(address.parse().unwrap(), 700), Limits::new(4096, 4096));
        let connection = Connection::new(peer, peer, 1, kind, limits, Arc::new(Heap), gone);
        let message = Stream::from(call(xid, 77, 1, 2, args));
        let outcome = router.handle(CallContext::new(Arc::new(connection)), message).await;
        outcome_to_header(outcome).1.u32().unwrap()
    };
    let (tcp, rdma) = (TransportKind::Tcp, TransportKind::Rdma);
    assert_eq!([count("::ffff:192.0.2.1", tcp, 5, b"").await, count("192.0.2.1", rdma, 5, b"").await], [0, 0]);
    for (others, stranger) in (1..).zip(["192.0.2.2", "::ffff:192.0.2.3", "2001:db8::1", "::192.0.2.1"]) {
        assert_eq!(count(stranger, rdma, 5, b"").await, others, "{stranger}");
    }
    assert_eq!(count("192.0.2.1", rdma, 5, b"").await, 0, "nobody has driven it out");
    // The same XID with other contents: each call is executed.
    let others = [count("192.0.2.1", tcp, 5, &[0; 4]).await, count("192.0.2.1", tcp, 5, &[0; 8]).await];
    assert_eq!(others, [5, 6]);
    let altered = [count("192.0.2.1", tcp, 5, &[0, 0, 0, 1]).await, count("192.0.2.1", tcp, 5, &[0; 4]).await];
    assert_eq!(altered, [7, 5], "one byte differs");
}

/// A client that sends calls to be remembered without end takes no more memory than the limit, and keeps its latest.
///
/// proves: RPC-DRC-c
#[tokio::test]
async fn a_flood_of_calls_is_remembered_within_bounds() {
    const OCTETS: usize = 64 << 10;
    let router = router().with_duplicate_cache_bytes(OCTETS);
    let ask = async |xid: u32| ask(&router, call(xid, 77, 1, 2, b"")).await.unwrap().u32().unwrap();
    for xid in 0..20_000 {
        assert_eq!(ask(xid).await, xid);
        assert!(router.duplicates.octets() <= OCTETS, "after {xid} calls");
    }
    assert_eq!(router.duplicates.in_progress(), 0);
    assert_eq!(ask(19_999).await, 19_999, "the latest is known");
    assert_eq!(ask(0).await, 20_000, "the first is forgotten");
}

/// The same call in another user's name is another call.
#[tokio::test]
async fn a_kept_reply_is_for_the_credential_of_its_call() {
    let router = router();
    let count = async |uid| {
        let mut body = Encoder::new();
        SysCredential { uid, ..SysCredential::default() }.encode(&mut body);
        let credential = OpaqueAuth { flavour: AUTH_SYS, body: body.finish().to_bytes() };
        let mut encoder = Encoder::new();
        let id = CallId { xid: 5, program: 77, version: 1, procedure: 2 };
        CallHeader { id, credential, verifier: OpaqueAuth::none() }.encode(&mut encoder);
        ask(&router, encoder.finish().to_bytes()).await.unwrap().u32().unwrap()
    };
    assert_eq!((count(1000).await, count(1000).await), (0, 0));
    assert_eq!((count(1001).await, count(1001).await), (1, 1));
}

/// proves: RPC-DRC-b
#[tokio::test]
async fn a_duplicate_of_a_call_in_progress_is_not_executed_and_the_call_outlives_its_connection() {
    let sample = Sample { version: 1, ..Sample::default() };
    let gate = sample.gate.clone();
    let router = Router::new(&env()).with_service(Arc::new(sample));
    let message = call(5, 77, 1, 3, b"");
    let (signal, first) = context(700);
    let running = router.handle(first.clone(), Stream::from(message.clone()));
    let duplicate = router.handle(first, Stream::from(message.clone())).await;
    assert!(matches!(duplicate, Outcome::Nothing), "over the same connection: {duplicate:?}");
    drop(signal);
    let (_signal, second) = context(701);
    let waiting = router.handle(second.clone(), Stream::from(message.clone()));
    gate.notify_one();
    assert!(matches!(running.await, Outcome::Reply(_)));
    assert_eq!(outcome_to_header(waiting.await).1.u32(), Ok(0), "where the client is now, it gets the answer");
    let again = router.handle(second, Stream::from(message)).await;
    assert_eq!(outcome_to_header(again).1.u32(), Ok(0), "executed once");
}

#[tokio::test]
async fn a_header_in_pieces_is_found_in_the_cache_too() {
    let router = router();
    let message = call(5, 77, 1, 2, b"");
    let (_signal, context) = context(1);
    for _ in 0..2 {
        let mut stream = Stream::new();
        for piece in message.chunks(3) {
            stream.push_run(Bytes::copy_from_slice(piece));
        }
        let outcome = router.handle(context.clone(), stream).await;
        assert_eq!(outcome_to_header(outcome).1.u32(), Ok(0));
    }
    assert!(router.clock.now() >= Timestamp::ZERO);
}

proptest! {
    #[test]
    fn arbitrary_messages_are_survived(
        mut octets in prop::collection::vec(any::<u8>(), 0..120),
        shaped in any::<bool>(),
        chunk in prop::collection::vec(any::<u8>(), 0..20),
    ) {
        if shaped && octets.len() >= 24 {
            let head = call(1, 77, 1, u32::from(octets[0] % 9), b"");
            // Procedure 3 waits for a gate that stays closed here.
            let procedure = if head[23] == 3 { 2 } else { head[23] };
            octets[..23].copy_from_slice(&head[..23]);
            octets[23] = procedure;
        }
        let mut stream = Stream::from(Bytes::from(octets));
        stream.push_chunk(chunk.into());
        let (_signal, context) = context(1);
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let _ = runtime.block_on(router().handle(context, stream));
    }
}

/// Counts calls; the first word of a call's arguments says how its repetition is handled.
#[derive(Default)]
struct Various(AtomicU32);

impl Service for Various {
    fn program(&self) -> u32 {
        79
    }
    fn version(&self) -> u32 {
        1
    }
    fn is_idempotent(&self, _: u32) -> bool {
        true
    }
    fn repetition(&self, _: u32, arguments: &mut ArgumentWords<'_>) -> Repetition {
        match arguments.next() {
            Some(1) => Repetition::Answered,
            Some(2 | 3) => Repetition::AnsweredToPort,
            _ => Repetition::Executed,
        }
    }
    fn call(&self, _: CallContext, _: u32, mut args: Decoder) -> BoxFuture<'static, Answer> {
        let (kind, mut encoder) = (args.u32(), Encoder::new());
        encoder.u32(self.0.fetch_add(1, Ordering::Relaxed));
        let results = encoder.finish();
        let answer = if kind == Ok(3) { Answer::Repeatable(results) } else { Answer::Results(results) };
        Box::pin(std::future::ready(answer))
    }
}

/// proves: RPC-DRC-a
#[tokio::test]
async fn a_service_says_of_each_call_whether_it_is_told_from_its_repetitions() {
    let router = Router::new(&env()).with_service(Arc::new(Various::default()));
    let said = async |kind: TransportKind, port: u16, word: u8| {
        let (_signal, gone) = GoneSignal::new();
        let peer = ([127, 0, 0, 1], port).into();
        let connection = Connection::new(peer, peer, 1, kind, Limits::new(4096, 4096), Arc::new(Heap), gone);
        let context = CallContext::new(Arc::new(connection));
        let message = Stream::from(call(9, 79, 1, 1, &[0, 0, 0, word]));
        let (header, mut decoder) = outcome_to_header(router.handle(context, message).await);
        header.status.map(|()| decoder.u32().unwrap()).unwrap()
    };
    let (tcp, rdma) = (TransportKind::Tcp, TransportKind::Rdma);
    // Executed each time.
    assert_eq!([said(tcp, 700, 0).await, said(tcp, 700, 0).await], [0, 1]);
    // Answered, whatever the port is.
    assert_eq!([said(tcp, 700, 1).await, said(tcp, 701, 1).await, said(rdma, 702, 1).await], [2, 2, 2]);
    // Answered to the same port only; a device gives each connection another port.
    assert_eq!([said(tcp, 700, 2).await, said(tcp, 700, 2).await, said(tcp, 701, 2).await], [3, 3, 4]);
    assert_eq!([said(rdma, 700, 2).await, said(rdma, 701, 2).await], [5, 5]);
    // Results that are not kept.
    assert_eq!([said(tcp, 700, 3).await, said(tcp, 700, 3).await], [6, 7]);
}

/// Procedure 1 counts, and procedure 2 counts and is not idempotent. Procedure 3 keeps its answer, and procedure 4
/// gives that.
#[derive(Default)]
struct Together {
    count: AtomicU32,
    kept: Mutex<Option<Answer>>,
}

impl Service for Together {
    fn program(&self) -> u32 {
        80
    }
    fn version(&self) -> u32 {
        1
    }
    fn is_idempotent(&self, procedure: u32) -> bool {
        procedure != 2
    }
    fn call(&self, context: CallContext, procedure: u32, _: Decoder) -> BoxFuture<'static, Answer> {
        let answer = context.results(4, |encoder| encoder.u32(self.count.fetch_add(1, Ordering::Relaxed)));
        let answer = match procedure {
            3 => {
                *self.kept.lock().unwrap() = Some(answer);
                Answer::Nothing
            }
            4 => self.kept.lock().unwrap().take().unwrap(),
            _ => answer,
        };
        Box::pin(std::future::ready(answer))
    }
}

/// Results that were written behind their reply's header are sent as they are; if the reply is kept, they are not.
#[tokio::test]
async fn results_behind_their_header_are_the_reply() {
    let router = Router::new(&env()).with_service(Arc::new(Together::default()));
    let (_signal, context) = context(700);
    let ask = async |xid, procedure| {
        let message = Stream::from(call(xid, 80, 1, procedure, b""));
        let Outcome::Reply(reply) = router.handle(context.clone(), message).await else { panic!("no reply") };
        reply
    };
    let expected = |xid: u32, count: u32| [xid, 1, 0, 0, 0, 0, count].map(u32::to_be_bytes).concat();
    let first = ask(5, 1).await;
    assert_eq!((first.parts().len(), &first.to_bytes()[..]), (1, &expected(5, 0)[..]));
    assert_eq!(ask(5, 1).await.to_bytes()[..], expected(5, 1), "executed again");
    assert_eq!(ask(6, 2).await.to_bytes()[..], expected(6, 2));
    assert_eq!(ask(6, 2).await.to_bytes()[..], expected(6, 2), "kept");
    assert_eq!(ask(7, 1).await.to_bytes()[..], expected(7, 3));
}

/// A service that answers with the reply to another call fails, and nobody gets that reply.
#[tokio::test]
async fn a_reply_to_another_call_is_not_sent() {
    let router = Router::new(&env()).with_service(Arc::new(Together::default()));
    let (_signal, context) = context(700);
    let ask =
        async |xid, procedure| router.handle(context.clone(), Stream::from(call(xid, 80, 1, procedure, b""))).await;
    assert!(matches!(ask(5, 3).await, Outcome::Nothing));
    let (header, _) = outcome_to_header(ask(6, 4).await);
    assert_eq!((header.xid, header.status), (6, Err(Rejection::SystemError)));
    // To the same call it is an answer.
    assert!(matches!(ask(7, 3).await, Outcome::Nothing));
    assert_eq!(outcome_to_header(ask(7, 4).await).1.u32(), Ok(2));
}
