//! Peers that break rules, over real sockets: at set-up and after it.

mod common;

use bytes::Bytes;
use common::{
    End, Pair, V4, both, buffer, connect_with, iwarp, listen, next_request, params, reason,
    wire::{output, parse, send, tagged},
};
use rpcrdma_fabric::{
    AcceptError, CloseReason, Completion, ConnectError, Connected, Fabric, Lent, ReadWork, RefusedReason,
    RemoteSegment, SendWork, Token, WriteWork,
};
use rpcrdma_iwarp::{
    Config, Direction, NUDGE_DELAYS, Tap, TapStream,
    protocol::{
        mpa::{Enhanced, Frame, HEAD_OCTETS, Head, Kind},
        rdmap::Opcode,
        terminate,
    },
};
use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

const SHORT: Duration = Duration::from_millis(100);

fn impatient() -> Config {
    let mut config = Config::default();
    config.setup_timeout = SHORT;
    config.stall_timeout = SHORT;
    config.linger = SHORT;
    config
}

fn request() -> Frame {
    let head = Head { markers: false, crc: true, reject: false, enhanced: true, revision: 2, private_octets: 0 };
    let enhanced = Enhanced { ird: 4, ord: 3, ..Enhanced::default() };
    Frame { head, enhanced: Some(enhanced), private_data: b"hi".to_vec() }
}

async fn read_frame(stream: &mut TcpStream, kind: Kind) -> Frame {
    let mut head = [0; HEAD_OCTETS];
    stream.read_exact(&mut head).await.unwrap();
    let head = Head::decode(kind, &head).unwrap();
    let mut private_data = vec![0; head.private_octets];
    stream.read_exact(&mut private_data).await.unwrap();
    Frame::decode(head, &private_data).unwrap()
}

/// A raw peer that sends `frame` as its request, the reply, and the endpoint that accepts it.
async fn accepted(config: Config, frame: Frame) -> (TcpStream, Frame, Connected) {
    let (mut listener, addr) = listen(&iwarp(config), V4).await;
    let peer = async {
        let mut stream = TcpStream::connect(addr).await.unwrap();
        stream.write_all(&frame.encode(Kind::Request)).await.unwrap();
        let reply = read_frame(&mut stream, Kind::Reply).await;
        (stream, reply)
    };
    let ours = async { next_request(&mut listener).await.unwrap().accept(params(2, 1000)).await.unwrap() };
    let ((stream, reply), qp) = both(peer, ours).await;
    (stream, reply, qp)
}

/// The result of a set-up in which the raw responder sends `answer`.
async fn answered(answer: Vec<u8>) -> Result<(), ConnectError> {
    answered_and_told(answer).await.0
}

/// The same, and what the raw responder receives after that.
async fn answered_and_told(answer: Vec<u8>) -> (Result<(), ConnectError>, Vec<u8>) {
    let listener = TcpListener::bind(V4).await.unwrap();
    let addr = listener.local_addr().unwrap();
    let here = iwarp(impatient());
    let peer = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        read_frame(&mut stream, Kind::Request).await;
        stream.write_all(&answer).await.unwrap();
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest).await;
        rest
    };
    both(async { here.connect(addr, params(1, 10)).await.map(drop) }, peer).await
}

/// The result at a responder that receives `octets`, and its answer.
async fn asked(octets: &[u8]) -> (Result<(), AcceptError>, Vec<u8>) {
    let (mut listener, addr) = listen(&iwarp(impatient()), V4).await;
    let peer = async {
        let mut stream = TcpStream::connect(addr).await.unwrap();
        stream.write_all(octets).await.unwrap();
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer).await;
        answer
    };
    let ours = async { next_request(&mut listener).await.map(|_| ()) };
    let (answer, result) = both(peer, ours).await;
    (result, answer)
}

/// proves: MPA-5044-7.1-b, MPA-5044-7.1-c, MPA-5044-7.1-f
#[tokio::test]
async fn requests_that_break_a_rule() {
    let good = request().encode(Kind::Request);
    let violation = |result| match result {
        Err(AcceptError::Violation(violation)) => violation,
        other => panic!("{other:?}"),
    };
    let (result, answer) = asked(b"GET / HTTP/1.1\r\nHost: example.org\r\n\r\n").await;
    assert_eq!((violation(result).protocol, answer.len()), ("MPA", 0));
    for (at, octet) in [(17, 0), (17, 3), (18, 3)] {
        let mut bad = good.clone();
        bad[at] = octet;
        let (result, answer) = asked(&bad).await;
        violation(result);
        assert!(answer.is_empty());
    }
    let mut markers = good.clone();
    markers[16] |= 0x80;
    let (result, answer) = asked(&markers).await;
    assert!(violation(result).rule.contains("markers"));
    let head = Head::decode(Kind::Reply, answer.first_chunk().unwrap()).unwrap();
    assert!(head.reject && head.revision == 2);
    let (result, _) = asked(&good[..30.min(good.len() - 1)]).await;
    assert!(matches!(result, Err(AcceptError::TimedOut { .. })), "a request without its end");
}

/// A peer that sends nothing delays no other peer, and the endpoint gives it up in time.
#[tokio::test]
async fn a_silent_peer_is_given_up() {
    let there = iwarp(impatient());
    let (mut listener, addr) = listen(&there, V4).await;
    let silent = TcpStream::connect(addr).await.unwrap();
    let slow = std::future::poll_fn(|cx| listener.poll_accept(cx)).await.unwrap();
    assert_eq!(slow.peer(), silent.local_addr().unwrap());
    let here = iwarp(Config::default());
    let (connected, _) = both(here.connect(addr, params(1, 10)), async {
        next_request(&mut listener).await.unwrap().accept(params(1, 10)).await.unwrap()
    })
    .await;
    connected.unwrap();
    let start = Instant::now();
    assert!(matches!(slow.request().await, Err(AcceptError::TimedOut { .. })));
    assert!(start.elapsed() >= SHORT);
}

/// proves: CM-6581-9.1-b, MPA-5044-7.1-f
#[tokio::test]
async fn replies_that_break_a_rule() {
    let reply = |change: fn(&mut Frame)| {
        let mut frame = request();
        change(&mut frame);
        frame.encode(Kind::Reply)
    };
    assert!(answered(reply(|_| {})).await.is_ok());
    let broken = [
        reply(|f| f.head.markers = true),
        reply(|f| f.head.revision = 1),
        reply(|f| f.enhanced = None),
        reply(|f| f.enhanced = Some(Enhanced { ord: 17, ..Enhanced::default() })),
        b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec(),
    ];
    for octets in broken {
        assert!(matches!(answered(octets).await, Err(ConnectError::Violation { .. })));
    }
    let greedy = reply(|f| f.enhanced = Some(Enhanced { ord: 17, ..Enhanced::default() }));
    let (_, told) = answered_and_told(greedy).await;
    let [(header, payload)] = &parse(&told)[..] else { panic!("{told:x?}") };
    assert_eq!((header.opcode, &payload[..]), (Opcode::Terminate, &[0x20, 6, 0, 0][..]), "layer 2, type 0, code 6");
    assert!(answered(reply(|f| f.enhanced = Some(Enhanced { ord: 16, ..Enhanced::default() }))).await.is_ok());
    let rejected = answered(reply(|f| f.head.reject = true)).await;
    assert!(matches!(rejected, Err(ConnectError::Rejected { private_data, .. }) if private_data == b"hi"[..]));
    assert!(matches!(answered(Vec::new()).await, Err(ConnectError::Silent { .. })));
}

#[tokio::test]
async fn misuse_of_the_set_up_is_named() {
    let here = iwarp(Config::default());
    let mut too_much = params(1, 10);
    too_much.private_data = Bytes::from(vec![0; 509]);
    let addr: SocketAddr = "127.0.0.1:9".parse().unwrap();
    let result = here.connect(addr, too_much).await;
    assert!(matches!(result, Err(ConnectError::Misuse(RefusedReason::Limit { max: 508, .. }))));
    let mut most = params(1, 10);
    most.private_data = Bytes::from(vec![7; 508]);
    let (a, b) = connect_with(V4, (Config::default(), most), (Config::default(), params(1, 10))).await;
    assert_eq!(b.unwrap().info().private_data.len(), 508);
    a.unwrap();
}

/// proves: CM-6581-9.1-a, MPA-5044-7.1-e
#[tokio::test]
async fn what_linux_and_older_peers_ask_is_answered_in_kind() {
    let (_stream, reply, qp) = accepted(Config::default(), request()).await;
    let block = reply.enhanced.unwrap();
    assert_eq!((reply.head.revision, reply.head.crc, block.ird, block.ord), (2, true, 3, 4));
    assert_eq!((qp.info().ird, qp.info().ord, &qp.info().private_data[..]), (3, 4, &b"hi"[..]));

    let mut old = request();
    old.head.revision = 1;
    old.head.enhanced = false;
    old.enhanced = None;
    let (_stream, reply, qp) = accepted(Config::default(), old).await;
    assert_eq!((reply.head.revision, reply.enhanced), (1, None));
    assert_eq!((qp.info().ird, qp.info().ord), (16, 16));
}

/// proves: RDMAP-5040-5.4-a
#[tokio::test]
async fn an_offender_gets_its_terminate_and_an_orderly_end() {
    let (mut stream, _, qp) = accepted(Config::default(), request()).await;
    let mut end = End::new(qp);
    let peer = async {
        // More bytes than the endpoint looks at: they must not turn the orderly end into a reset.
        let octets = [send(1, b"hello"), tagged(Opcode::Write, true, 1, 0, &[0; 900])].concat();
        stream.write_all(&octets).await.unwrap();
        stream.write_all(&vec![0; 100_000]).await.unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await.unwrap();
        drop(stream);
        answer
    };
    let ours = std::future::poll_fn(|cx| {
        end.pump(cx);
        if end.closed { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
    });
    let (answer, ()) = both(peer, ours).await;
    let mut fpdus = parse(&answer);
    assert_eq!(fpdus.len(), 1, "the Terminate and nothing else");
    let (header, payload) = fpdus.remove(0);
    assert_eq!(header.opcode, Opcode::Terminate);
    assert_eq!(terminate::decode(&payload).unwrap().code.to_string(), "DDP: invalid STag (layer 1, type 1, code 0x00)");
    assert!(matches!(reason(&end), CloseReason::Violation(v) if v.protocol == "DDP"));
    assert!(matches!(end.seen.front(), Some(Completion::Received { buffer, .. }) if buffer.filled() == b"hello"));
}

/// Drives one end for a while.
async fn drive(end: &mut End, time: Duration) {
    let forever = std::future::poll_fn(|cx| {
        end.pump(cx);
        std::task::Poll::<()>::Pending
    });
    let _ = tokio::time::timeout(time, forever).await;
}

/// Drives one end until it is closed.
async fn until_closed(qp: Connected) -> End {
    let mut end = End::new(qp);
    let drive = std::future::poll_fn(|cx| {
        end.pump(cx);
        if end.closed { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
    });
    tokio::time::timeout(Duration::from_secs(10), drive).await.expect("closed in time");
    end
}

#[tokio::test]
async fn a_peer_that_takes_nothing_is_given_up() {
    let (mut stream, _, mut qp) = accepted(impatient(), request()).await;
    stream.write_all(&send(1, b"go")).await.unwrap();
    for _ in 0..64 {
        let octets = vec![Bytes::from(vec![0; 1 << 20])];
        qp.post_write(WriteWork { octets: octets.into(), signaled: true, ..WriteWork::default() }).unwrap();
    }
    let end = until_closed(qp).await;
    assert!(matches!(reason(&end), CloseReason::Stalled { .. }));
    let failed = end.seen.iter().filter(|c| matches!(c, Completion::Failed { token: Token(0), .. })).count();
    assert!(failed > 2, "what was not taken is flushed");
}

/// All that was sent is in the socket, and too much for the peer's: only TCP can see that the peer takes nothing.
#[tokio::test]
async fn a_peer_that_takes_nothing_of_the_socket_is_given_up_for_the_same_reason() {
    let (mut stream, _, mut qp) = accepted(impatient(), request()).await;
    socket2::SockRef::from(&stream).set_recv_buffer_size(4_096).unwrap();
    stream.write_all(&send(1, b"go")).await.unwrap();
    // A socket takes as much to send even where `net.core.wmem_max` has Linux's default.
    let octets = vec![Bytes::from(vec![0; 200_000])];
    qp.post_write(WriteWork { token: Token(7), octets: octets.into(), signaled: true, ..WriteWork::default() })
        .unwrap();
    let end = until_closed(qp).await;
    assert!(end.seen.iter().any(|c| matches!(c, Completion::Done { token: Token(7), .. })), "{:?}", end.seen);
    assert!(matches!(reason(&end), CloseReason::Stalled { .. }), "{:?}", reason(&end));
}

#[tokio::test]
async fn a_peer_that_stops_within_an_fpdu_is_given_up() {
    let (mut stream, _, qp) = accepted(impatient(), request()).await;
    stream.write_all(&send(1, b"hello")[..21]).await.unwrap();
    let end = until_closed(qp).await;
    assert!(matches!(reason(&end), CloseReason::Stalled { .. }));
}

#[tokio::test]
async fn a_peer_that_answers_no_read_is_given_up() {
    let (mut stream, _, mut qp) = accepted(impatient(), request()).await;
    stream.write_all(&send(1, b"hello")).await.unwrap();
    let sources = vec![RemoteSegment { handle: 1, length: 10, offset: 0 }];
    qp.post_read(ReadWork { token: Token(4), sink: buffer(10), sources }).unwrap();
    qp.disconnect();
    let end = until_closed(qp).await;
    assert!(matches!(reason(&end), CloseReason::Stalled { .. } | CloseReason::Local));
    assert!(end.seen.iter().any(|c| matches!(c, Completion::Failed { token: Token(4), buffer: Some(_), .. })));

    let (mut stream, _, mut qp) = accepted(impatient(), request()).await;
    stream.write_all(&send(1, b"hello")).await.unwrap();
    let sources = vec![RemoteSegment { handle: 1, length: 10, offset: 0 }];
    qp.post_read(ReadWork { token: Token(4), sink: buffer(10), sources }).unwrap();
    assert!(matches!(reason(&until_closed(qp).await), CloseReason::Stalled { .. }));
}

#[tokio::test]
async fn an_idle_peer_is_not_given_up() {
    let mut pair = Pair::open(V4, impatient()).await;
    let waited = tokio::time::timeout(SHORT * 4, pair.next_here()).await;
    assert!(waited.is_err());
    pair.here
        .qp
        .post_send(SendWork { octets: vec![Bytes::from_static(b"still")].into(), ..SendWork::default() })
        .unwrap();
    assert!(matches!(pair.next_there().await, Completion::Received { .. }));
}

/// The initiator nudges a responder that has received its first message and does not answer, a few times. It does not
/// nudge a responder that answers.
#[tokio::test]
async fn a_responder_that_says_nothing_is_nudged() {
    for answers in [false, true] {
        let listener = TcpListener::bind(V4).await.unwrap();
        let addr = listener.local_addr().unwrap();
        let here = iwarp(Config::default());
        let peer = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            let frame = read_frame(&mut stream, Kind::Request).await;
            stream.write_all(&frame.encode(Kind::Reply)).await.unwrap();
            stream
        };
        let (qp, mut stream) = both(here.connect(addr, params(1, 1000)), peer).await;
        let mut end = End::new(qp.unwrap());
        let silence: Duration = NUDGE_DELAYS.iter().sum();
        drive(&mut end, SHORT).await;
        end.qp
            .post_send(SendWork { octets: vec![Bytes::from_static(b"hello")].into(), ..SendWork::default() })
            .unwrap();
        if answers {
            stream.write_all(&send(1, b"there")).await.unwrap();
        }
        drive(&mut end, silence + SHORT * 4).await;
        drop(end);
        let mut octets = Vec::new();
        let _ = stream.read_to_end(&mut octets).await;
        let seen: Vec<Opcode> = parse(&octets).iter().map(|(header, _)| header.opcode).collect();
        let nudges = if answers { 0 } else { NUDGE_DELAYS.len() };
        assert_eq!(seen[0], Opcode::Send, "nothing is sent before the owner's first word");
        assert_eq!(seen[1..], vec![Opcode::Write; nudges]);
    }
}

#[tokio::test]
async fn a_peer_that_never_ends_is_left_after_the_linger() {
    let (mut stream, _, mut qp) = accepted(impatient(), request()).await;
    stream.write_all(&send(1, b"hello")).await.unwrap();
    qp.disconnect();
    let end = until_closed(qp).await;
    assert_eq!(reason(&end), CloseReason::Local);
    drop(stream);
}

/// proves: RDMAP-5040-6.2-a
#[tokio::test]
async fn ends_within_an_fpdu_and_resets_are_breaks() {
    let (mut stream, _, qp) = accepted(Config::default(), request()).await;
    stream.write_all(&send(1, b"hello")[..10]).await.unwrap();
    drop(stream);
    assert!(matches!(reason(&until_closed(qp).await), CloseReason::Broken(_)));

    let (mut stream, _, mut qp) = accepted(Config::default(), request()).await;
    stream.write_all(&send(1, b"hello")).await.unwrap();
    let exposed = qp.expose(Token(3), Lent::Sink(buffer(5))).unwrap();
    socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO)).unwrap();
    drop(stream);
    let end = until_closed(qp).await;
    assert!(matches!(reason(&end), CloseReason::Broken(_)));
    assert!(end.seen.iter().any(|c| matches!(c, Completion::Fenced { handle, .. } if *handle == exposed.handle)));
}

#[derive(Default)]
struct Recorded {
    sent: Vec<u8>,
    received: Vec<u8>,
}

#[derive(Clone, Default)]
struct Recorder(Arc<Mutex<Vec<Arc<Mutex<Recorded>>>>>);

impl Tap for Recorder {
    fn connection(&self, local: SocketAddr, peer: SocketAddr, initiator: bool) -> Box<dyn TapStream> {
        assert!(local != peer);
        let stream = Arc::new(Mutex::new(Recorded::default()));
        let mut all = self.0.lock().unwrap();
        // The initiator's stream comes first, whichever end is set up first.
        let at = if initiator { 0 } else { all.len() };
        all.insert(at, stream.clone());
        Box::new(RecordedStream(stream))
    }
}

struct RecordedStream(Arc<Mutex<Recorded>>);

impl TapStream for RecordedStream {
    fn octets(&mut self, direction: Direction, octets: &[u8]) {
        let mut recorded = self.0.lock().unwrap();
        match direction {
            Direction::Sent => recorded.sent.extend(octets),
            Direction::Received => recorded.received.extend(octets),
        }
    }
}

/// The taps of both ends see the same streams, from the set-up frames to the last FPDU.
#[tokio::test]
async fn a_tap_sees_all_octets() {
    let recorder = Recorder::default();
    let mut config = Config::default();
    config.tap = Some(Arc::new(recorder.clone()));
    let mut pair = Pair::open(V4, config).await;
    let segment = pair.there.qp.expose(Token(0), Lent::Sink(buffer(500_000))).unwrap();
    let octets = vec![common::pattern(500_000, 0)];
    pair.here
        .qp
        .post_write(WriteWork { octets: octets.into(), handle: segment.handle, ..WriteWork::default() })
        .unwrap();
    pair.here.qp.post_send(SendWork { invalidate: Some(segment.handle), ..SendWork::default() }).unwrap();
    pair.next_there().await;
    pair.next_there().await;
    pair.here.qp.disconnect();
    pair.closed().await;
    let all = recorder.0.lock().unwrap();
    let (here, there) = (all[0].lock().unwrap(), all[1].lock().unwrap());
    assert!(here.sent.len() > 500_000);
    assert!(here.sent == there.received && here.received == there.sent);
    assert_eq!(here.sent[..16], *b"MPA ID Req Frame");
    let frame = Head::decode(Kind::Request, here.sent.first_chunk().unwrap()).unwrap();
    let fpdus = parse(&here.sent[HEAD_OCTETS + frame.private_octets..]);
    assert_eq!(fpdus.last().map(|(header, _)| header.opcode), Some(Opcode::SendInvalidate));
}

/// An endpoint without a socket produces the bytes that a socket would carry.
#[tokio::test]
async fn the_protocol_alone_says_the_same() {
    let mut endpoint = common::wire::endpoint(rpcrdma_iwarp::protocol::Role::Initiator, common::wire::AGREED, 0, 1448);
    endpoint.post_send(SendWork { octets: vec![Bytes::from_static(b"hello")].into(), ..SendWork::default() }).unwrap();
    assert_eq!(output(&mut endpoint), send(1, b"hello"));
}
