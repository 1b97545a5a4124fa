//! The server over sockets of this machine, and in memory where a test chooses time and senders.

use super::*;
use crate::{Answer, AuthStat, CallContext, CallHeader, CallId, OpaqueAuth, Rejection, ReplyHeader, Router, Service};
use bytes::Bytes;
use rpcrdma_env::{BoxFuture, Clock, Env, Heap, SeededRandom, Timestamp, TokioClock};
use rpcrdma_xdr::{Decoder, Encoder, Stream};
use std::{
    io,
    net::{IpAddr, SocketAddr, UdpSocket},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};
use tokio::sync::{mpsc, watch};

const PROGRAM: u32 = 400_000;
/// Answers with as many bytes as its argument says.
const OCTETS: u32 = 1;
/// Answers when the test releases it.
const HELD: u32 = 2;
/// Answers how often it was called; a repeated call is not executed again.
const COUNTED: u32 = 3;
/// Answers with the address by which it was called.
const WHERE: u32 = 4;

struct Program {
    counted: AtomicU32,
    go: watch::Receiver<bool>,
}

impl Service for Program {
    fn program(&self) -> u32 {
        PROGRAM
    }
    fn version(&self) -> u32 {
        1
    }
    fn is_idempotent(&self, procedure: u32) -> bool {
        procedure != COUNTED
    }
    fn call(&self, context: CallContext, procedure: u32, mut args: Decoder) -> BoxFuture<'static, Answer> {
        let mut encoder = Encoder::new();
        let mut go = self.go.clone();
        match procedure {
            OCTETS => (0..args.u32().unwrap() / 4).for_each(|_| encoder.u32(0)),
            COUNTED => encoder.u32(self.counted.fetch_add(1, Ordering::Relaxed)),
            WHERE => encoder.opaque(context.connection.local.to_string().as_bytes()),
            HELD => {
                return Box::pin(async move {
                    go.wait_for(|go| *go).await.unwrap();
                    Answer::Results(Encoder::new().finish())
                });
            }
            _ => return Box::pin(std::future::ready(Answer::ProcUnavail)),
        }
        Box::pin(std::future::ready(Answer::Results(encoder.finish())))
    }
}

/// A clock that stands until it is moved.
#[derive(Default)]
struct Standing(AtomicU64);

impl Clock for Standing {
    fn now(&self) -> Timestamp {
        Timestamp::from_nanos(self.0.load(Ordering::Relaxed))
    }
    fn sleep_until(&self, _: Timestamp) -> BoxFuture<'static, ()> {
        Box::pin(std::future::ready(()))
    }
    fn unix_time(&self) -> Duration {
        Duration::ZERO
    }
}

type Sent = Arc<Mutex<Vec<(Bytes, SocketAddr, Option<Local>)>>>;

/// A datagram, its sender and its destination; or an error.
type Come = io::Result<(Vec<u8>, SocketAddr, Option<Local>)>;

/// Datagrams in memory.
struct InMemory {
    come: mpsc::UnboundedReceiver<Come>,
    sent: Sent,
}

impl Datagrams for InMemory {
    fn poll_receive(&mut self, cx: &mut Context<'_>, room: &mut [u8]) -> Poll<io::Result<Received>> {
        let Poll::Ready(Some(come)) = self.come.poll_recv(cx) else { return Poll::Pending };
        Poll::Ready(come.map(|(octets, peer, local)| {
            let fits = octets.len().min(room.len());
            room[..fits].copy_from_slice(&octets[..fits]);
            Received { len: octets.len(), peer, local }
        }))
    }
    fn send(&mut self, octets: &[u8], to: SocketAddr, from: Option<Local>) -> io::Result<()> {
        if to.port() == 9 {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        self.sent.lock().unwrap().push((Bytes::copy_from_slice(octets), to, from));
        Ok(())
    }
}

fn router(env: &Env) -> (Arc<Router>, watch::Sender<bool>) {
    let (release, go) = watch::channel(false);
    (Arc::new(Router::new(env).with_service(Arc::new(Program { counted: AtomicU32::new(0), go }))), release)
}

/// A server in memory.
struct World {
    come: mpsc::UnboundedSender<Come>,
    sent: Sent,
    handle: ServerHandle,
    clock: Arc<Standing>,
    release: watch::Sender<bool>,
    driver: tokio::task::JoinHandle<()>,
}

impl World {
    fn new(options: ServerOptions) -> Self {
        let clock = Arc::<Standing>::default();
        let env = Env { clock: clock.clone(), random: Arc::new(SeededRandom::new(1)) };
        let (router, release) = router(&env);
        let (come, received) = mpsc::unbounded_channel();
        let sent = Sent::default();
        let socket = InMemory { come: received, sent: sent.clone() };
        let local = ([192, 0, 2, 1], 111).into();
        let endpoint = Endpoint { local, id: 1, allocator: Arc::new(Heap) };
        let (handle, driver) = serve(socket, endpoint, router, &env, options);
        Self { come, sent, handle, clock, release, driver: tokio::spawn(driver) }
    }

    fn send(&self, octets: Vec<u8>, peer: &str) {
        self.come.send(Ok((octets, peer.parse().unwrap(), None))).unwrap();
    }

    /// All that the server has sent, once nothing more happens.
    async fn sent(&self) -> Vec<(Bytes, SocketAddr, Option<Local>)> {
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        std::mem::take(&mut *self.sent.lock().unwrap())
    }

    /// The reasons for which something was dropped.
    fn dropped(&self) -> Vec<(&'static str, u64)> {
        self.handle.dropped().by_reason().into_iter().filter(|(_, count)| *count > 0).collect()
    }
}

fn call_of(xid: u32, program: u32, version: u32, procedure: u32, args: &[u32]) -> Vec<u8> {
    let id = CallId { xid, program, version, procedure };
    let mut encoder = Encoder::new();
    CallHeader { id, credential: OpaqueAuth::none(), verifier: OpaqueAuth::none() }.encode(&mut encoder);
    args.iter().for_each(|word| encoder.u32(*word));
    encoder.finish().to_bytes().into()
}

fn call(xid: u32, procedure: u32, args: &[u32]) -> Vec<u8> {
    call_of(xid, PROGRAM, 1, procedure, args)
}

/// The XID of a reply, how it answers, and its results.
fn reply(octets: &Bytes) -> (u32, Result<(), Rejection>, Bytes) {
    let mut decoder = Decoder::new(Stream::from(octets.clone()));
    let header = ReplyHeader::decode(&mut decoder).unwrap();
    (header.xid, header.status, octets.slice(decoder.position()..))
}

const A: &str = "192.0.2.7:700";

#[tokio::test]
async fn calls_are_answered_and_what_cannot_be_is_told() {
    let world = World::new(ServerOptions::default());
    world.send(call(1, 0, &[]), A);
    world.send(call(2, 99, &[]), A);
    world.send(call_of(3, PROGRAM, 9, 0, &[]), A);
    world.send(call_of(4, 5, 1, 0, &[]), A);
    world.send([call(5, 0, &[]), vec![0; 4]].concat(), A);
    let mut of_version_3 = call(6, 0, &[]);
    of_version_3[11] = 3;
    world.send(of_version_3, A);
    let mut of_a_stranger = call(7, 0, &[]);
    of_a_stranger[27] = 99;
    world.send(of_a_stranger, A);
    let told: Vec<_> = world.sent().await.iter().map(|(octets, ..)| reply(octets)).map(|r| (r.0, r.1)).collect();
    let expected = [
        (1, Ok(())),
        (2, Err(Rejection::ProcedureUnavailable)),
        (3, Err(Rejection::ProgramMismatch { low: 1, high: 1 })),
        (4, Err(Rejection::ProgramUnavailable)),
        (5, Err(Rejection::GarbageArgs)),
        (6, Err(Rejection::RpcMismatch { low: 2, high: 2 })),
        (7, Err(Rejection::Auth(AuthStat::REJECTED_CREDENTIAL))),
    ];
    assert_eq!(told, expected);
    assert_eq!((world.handle.answered(), world.dropped()), (7, vec![]));
}

#[tokio::test]
async fn what_is_no_call_is_answered_with_nothing_and_takes_nothing_of_a_share() {
    let world = World::new(ServerOptions { calls_by_source_per_second: 1.try_into().unwrap(), ..Default::default() });
    let mut a_reply = call(1, 0, &[]);
    a_reply[7] = 1;
    let short = call(1, 0, &[])[..39].to_vec();
    for octets in [vec![], vec![0; 39], short, a_reply, vec![0xff; 1232]] {
        world.send(octets, A);
    }
    world.send(call(1, 0, &[]), "192.0.2.7:0");
    world.send(call(1, 0, &[]), "0.0.0.0:700");
    world.send([call(1, 0, &[]), vec![0; MAX_DATAGRAM_BYTES - 39]].concat(), A);
    let to_many = Local { address: [192, 0, 2, 1].into(), interface: 1, to_many: true };
    world.come.send(Ok((call(1, 0, &[]), A.parse().unwrap(), Some(to_many)))).unwrap();
    assert_eq!(world.sent().await, []);
    assert_eq!(world.dropped(), [("malformed", 7), ("too_large", 1), ("to_many", 1)]);
    // The largest datagram, and the only call of this second.
    let largest = [call(1, 0, &[]), vec![0; MAX_DATAGRAM_BYTES - 40]].concat();
    world.send(largest, A);
    let sent = world.sent().await;
    assert_eq!(reply(&sent[0].0).1, Err(Rejection::GarbageArgs));
}

/// proves: RPC-UDP-b
#[tokio::test]
async fn a_source_that_floods_has_its_share_and_others_have_theirs() {
    let world = World::new(ServerOptions::default());
    for xid in 0..10_000 {
        world.send(call(xid, 0, &[]), &format!("192.0.2.7:{}", 1000 + xid));
        // Addresses of one network are one source.
        world.send(call(xid, 0, &[]), &format!("[2001:db8::{xid:x}]:700"));
    }
    world.send(call(7, 0, &[]), "192.0.2.8:700");
    let mut sent = Vec::new();
    while world.handle.dropped().too_often < 2 * (10_000 - u64::from(CALLS_BY_SOURCE_PER_SECOND)) || sent.is_empty() {
        sent.extend(world.sent().await);
    }
    sent.extend(world.sent().await);
    let of = |ip: &str| sent.iter().filter(|(_, to, _)| to.ip() == ip.parse::<IpAddr>().unwrap()).count();
    assert_eq!((of("192.0.2.7"), of("192.0.2.8")), (CALLS_BY_SOURCE_PER_SECOND as usize, 1));
    assert_eq!(sent.len(), 2 * CALLS_BY_SOURCE_PER_SECOND as usize + 1);
    world.clock.0.fetch_add(1_000_000_000, Ordering::Relaxed);
    world.send(call(8, 0, &[]), A);
    assert_eq!(world.sent().await.len(), 1, "a second later it is heard again");
}

/// proves: RPC-UDP-b
#[tokio::test]
async fn an_answer_is_never_much_larger_than_its_question() {
    let world = World::new(ServerOptions::default());
    let question = call(1, OCTETS, &[0]).len();
    let most = (question * MAX_AMPLIFICATION - crate::REPLY_HEADER_BYTES) as u32 / 4 * 4;
    world.send(call(1, OCTETS, &[most]), A);
    world.send(call(2, OCTETS, &[most + 4]), A);
    world.send(call(3, OCTETS, &[100_000]), A);
    let sent = world.sent().await;
    assert_eq!(sent.iter().map(|(octets, ..)| reply(octets).0).collect::<Vec<_>>(), [1], "at the limit");
    assert_eq!(sent[0].0.len(), question * MAX_AMPLIFICATION);
    assert_eq!(world.dropped(), [("amplified", 2)]);
}

#[tokio::test]
async fn calls_that_last_are_bounded_by_source_and_at_all() {
    let world = World::new(ServerOptions { max_calls: 20, ..Default::default() });
    for xid in 0..10 {
        world.send(call(xid, HELD, &[]), A);
    }
    assert_eq!(world.sent().await, []);
    assert_eq!(world.dropped(), [("busy", 2)], "8 of one source are executed");
    for xid in 0..8 {
        world.send(call(xid, HELD, &[]), "192.0.2.8:700");
        world.send(call(xid, HELD, &[]), &format!("192.0.3.{xid}:700"));
    }
    assert_eq!(world.sent().await, []);
    assert_eq!(world.dropped(), [("busy", 6)], "20 at all");
    world.release.send_replace(true);
    assert_eq!(world.sent().await.len(), 20);
    world.send(call(1, 0, &[]), A);
    assert_eq!(world.sent().await.len(), 1, "there is room again");
}

#[tokio::test]
async fn a_call_that_comes_again_is_executed_once() {
    let world = World::new(ServerOptions::default());
    world.send(call(1, COUNTED, &[]), A);
    world.send(call(1, COUNTED, &[]), A);
    world.send(call(2, COUNTED, &[]), A);
    let told: Vec<_> = world.sent().await.iter().map(|(octets, ..)| reply(octets)).map(|r| (r.0, r.2[3])).collect();
    assert_eq!(told, [(1, 0), (1, 0), (2, 1)]);
}

#[tokio::test]
async fn a_socket_that_fails_is_read_again_and_what_cannot_be_sent_is_counted() {
    let world = World::new(ServerOptions::default());
    world.come.send(Err(io::ErrorKind::OutOfMemory.into())).unwrap();
    world.come.send(Err(io::ErrorKind::ConnectionRefused.into())).unwrap();
    world.send(call(1, 0, &[]), "192.0.2.7:9");
    world.send(call(2, 0, &[]), A);
    assert_eq!(world.sent().await.len(), 1);
    assert_eq!(world.dropped(), [("unsent", 1), ("unread", 2)]);
}

#[tokio::test]
async fn a_drained_server_answers_what_it_executes_and_reads_nothing_more() {
    let world = World::new(ServerOptions::default());
    world.send(call(1, HELD, &[]), A);
    assert_eq!(world.sent().await, []);
    world.handle.drain();
    world.send(call(2, 0, &[]), A);
    assert_eq!(world.sent().await, []);
    assert!(!world.driver.is_finished());
    world.release.send_replace(true);
    assert_eq!(world.sent().await.len(), 1);
    world.driver.await.unwrap();
}

/// Serves a real socket, and asks it at `asked` from a socket of its own.
async fn ask(bound: &str, asked: &str, question: &[u8]) -> Option<(Bytes, SocketAddr)> {
    let socket = UdpSocket::bind(bound).ok()?;
    let local = socket.local_addr().unwrap();
    let env = Env { clock: Arc::new(TokioClock::new()), random: Arc::new(SeededRandom::new(1)) };
    let (router, _release) = router(&env);
    let endpoint = Endpoint { local, id: 1, allocator: Arc::new(Heap) };
    let (handle, driver) = serve(Socket::new(socket).unwrap(), endpoint, router, &env, ServerOptions::default());
    let driver = tokio::spawn(driver);
    let client = tokio::net::UdpSocket::bind((local.ip(), 0)).await.unwrap();
    client.send_to(question, (asked.parse::<IpAddr>().unwrap(), local.port())).await.unwrap();
    let mut room = [0; 2048];
    let answered = tokio::time::timeout(Duration::from_secs(10), client.recv_from(&mut room));
    let (len, from) = answered.await.expect("no answer").unwrap();
    handle.drain();
    driver.await.unwrap();
    Some((Bytes::copy_from_slice(&room[..len]), from))
}

/// A client drops an answer that does not come from the address that it has asked.
///
/// proves: RPC-UDP-a
#[tokio::test]
async fn a_socket_on_all_addresses_answers_from_the_one_that_was_asked() {
    for asked in ["127.0.0.1", "127.0.0.77"] {
        let (answer, from) = ask("0.0.0.0:0", asked, &call(9, WHERE, &[])).await.unwrap();
        let (xid, status, results) = reply(&answer);
        assert_eq!((xid, status), (9, Ok(())));
        assert_eq!(from.ip(), asked.parse::<IpAddr>().unwrap());
        assert!(results[4..].starts_with(from.to_string().as_bytes()), "{results:?}: and the service is told");
    }
    match ask("[::]:0", "::1", &call(9, WHERE, &[])).await {
        Some((answer, from)) => {
            assert_eq!(from.ip(), "::1".parse::<IpAddr>().unwrap());
            assert!(reply(&answer).2[4..].starts_with(from.to_string().as_bytes()));
        }
        None => println!("this machine has no IPv6"),
    }
}

/// A client that asks as soon as the port is open is answered as all others.
#[tokio::test]
async fn a_datagram_that_came_before_the_socket_was_served_is_for_its_address() {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let to = socket.local_addr().unwrap();
    let client = UdpSocket::bind("127.0.0.1:0").unwrap();
    client.send_to(&[7; 5], to).unwrap();
    let mut socket = Socket::new(socket).unwrap();
    let mut room = [0; 100];
    let received = std::future::poll_fn(|cx| socket.poll_receive(cx, &mut room)).await.unwrap();
    assert_eq!(received.local.map(|local| (local.address, local.to_many)), Some((to.ip(), false)));
    socket.send(b"answer", received.peer, received.local).unwrap();
    let (len, from) = client.recv_from(&mut room).unwrap();
    assert_eq!((&room[..len], from), (&b"answer"[..], to));
}

#[tokio::test]
async fn a_datagram_that_is_larger_than_the_room_is_known_to_be() {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let to = socket.local_addr().unwrap();
    let mut socket = Socket::new(socket).unwrap();
    let client = UdpSocket::bind("127.0.0.1:0").unwrap();
    client.send_to(&[7; 5000], to).unwrap();
    let mut room = [0; 100];
    let received = std::future::poll_fn(|cx| socket.poll_receive(cx, &mut room)).await.unwrap();
    assert_eq!((received.len, received.peer), (5000, client.local_addr().unwrap()));
    assert_eq!(received.local.map(|local| (local.address, local.to_many)), Some((to.ip(), false)));
}
