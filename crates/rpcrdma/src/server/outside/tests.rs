//! Calls to clients over real sockets: a portmapper and a program of this host that answer as a test says.

use super::*;
use rpcrdma_env::{Heap, tokio_env};
use rpcrdma_oncrpc::{
    Answer, CallContext, Connection, GoneSignal, Handler, Limits, Outcome, Router, Service, TransportKind,
};
use rpcrdma_xdr::{Decoder, Encoder, Stream};
use std::sync::atomic::{AtomicU16, AtomicUsize, Ordering};
use tokio::net::{TcpListener, UdpSocket};

const PROGRAM: u32 = 100_024;

/// A portmapper that returns a port, and counts the questions.
struct Portmapper {
    version: u32,
    port: AtomicU16,
    asked: AtomicUsize,
}

/// Its service.
struct Mapping(Arc<Portmapper>);

impl Service for Mapping {
    fn program(&self) -> u32 {
        100_000
    }
    fn version(&self) -> u32 {
        self.0.version
    }
    fn is_idempotent(&self, _: u32) -> bool {
        true
    }
    fn call(&self, context: CallContext, procedure: u32, mut args: Decoder) -> BoxFuture<'static, Answer> {
        assert_eq!(procedure, 3);
        self.0.asked.fetch_add(1, Ordering::SeqCst);
        let port = self.0.port.load(Ordering::SeqCst);
        let mut encoder = Encoder::new();
        if self.0.version == 2 {
            let words: Vec<u32> = (0..4).map(|_| args.u32().unwrap()).collect();
            let protocol = if context.connection.kind == TransportKind::Udp { 17 } else { 6 };
            assert_eq!(words, [PROGRAM, 1, protocol, 0]);
            encoder.u32(port.into());
        } else {
            let [high, low] = port.to_be_bytes();
            // Another host's address: the server must not call it.
            encoder.opaque(format!("192.0.2.77.{high}.{low}").as_bytes());
        }
        Box::pin(std::future::ready(Answer::Results(encoder.finish())))
    }
}

/// A program that records the address of its caller and adds one to a word.
struct Program(Arc<Mutex<Vec<SocketAddr>>>);

impl Service for Program {
    fn program(&self) -> u32 {
        PROGRAM
    }
    fn version(&self) -> u32 {
        1
    }
    fn is_idempotent(&self, _: u32) -> bool {
        true
    }
    fn call(&self, context: CallContext, procedure: u32, mut args: Decoder) -> BoxFuture<'static, Answer> {
        self.0.lock().unwrap().push(context.connection.peer);
        let mut encoder = Encoder::new();
        encoder.u32(args.u32().unwrap() + 1);
        let answer = if procedure == 9 { Answer::Nothing } else { Answer::Results(encoder.finish()) };
        Box::pin(std::future::ready(answer))
    }
}

async fn execute(handler: &dyn Handler, kind: TransportKind, peer: SocketAddr, call: Vec<u8>) -> Option<Bytes> {
    let (_signal, gone) = GoneSignal::new();
    let local = ([127, 0, 0, 1], 1).into();
    let connection = Connection::new(peer, local, 1, kind, Limits::new(1000, 1000), Arc::new(Heap), gone);
    let context = CallContext::new(Arc::new(connection));
    match handler.handle(context, Stream::from(Bytes::from(call))).await {
        Outcome::Reply(reply) => Some(reply.to_bytes()),
        _ => None,
    }
}

/// Serves a handler at a port of its own, over TCP and UDP.
async fn serve(handler: Arc<dyn Handler>) -> (u16, tokio::task::JoinHandle<()>) {
    let (listener, socket) = loop {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        if let Ok(socket) = UdpSocket::bind(listener.local_addr().unwrap()).await {
            break (listener, socket);
        }
    };
    let port = listener.local_addr().unwrap().port();
    let task = tokio::spawn(async move {
        let over_tcp = async {
            let mut connections = tokio::task::JoinSet::new();
            loop {
                let (stream, peer) = listener.accept().await.unwrap();
                let local = stream.local_addr().unwrap();
                let endpoint = rpcrdma_oncrpc::tcp::Endpoint { peer, local, id: 1, allocator: Arc::new(Heap) };
                let clock = tokio_env().unwrap().clock;
                let options = rpcrdma_oncrpc::tcp::ServerOptions::default();
                let (_, driver) = rpcrdma_oncrpc::tcp::serve(stream, endpoint, handler.clone(), clock, options);
                connections.spawn(async move { drop(driver.await) });
            }
        };
        let over_udp = async {
            let mut room = [0; 2000];
            loop {
                let (len, peer) = socket.recv_from(&mut room).await.unwrap();
                if let Some(reply) = execute(&*handler, TransportKind::Udp, peer, room[..len].to_vec()).await {
                    socket.send_to(&reply, peer).await.unwrap();
                }
            }
        };
        tokio::select! { () = over_tcp => {} () = over_udp => {} }
    });
    (port, task)
}

struct Host {
    sockets: Sockets,
    portmapper: Arc<Portmapper>,
    callers: Arc<Mutex<Vec<SocketAddr>>>,
    program: tokio::task::JoinHandle<()>,
}

async fn program(callers: &Arc<Mutex<Vec<SocketAddr>>>) -> (u16, tokio::task::JoinHandle<()>) {
    let router = Router::new(&tokio_env().unwrap()).with_service(Arc::new(Program(callers.clone())));
    serve(Arc::new(router)).await
}

async fn host(version: u32) -> Host {
    let env = tokio_env().unwrap();
    let callers = Arc::<Mutex<Vec<SocketAddr>>>::default();
    let (port, program) = program(&callers).await;
    let portmapper = Arc::new(Portmapper { version, port: port.into(), asked: AtomicUsize::new(0) });
    let router = Router::new(&env).with_service(Arc::new(Mapping(portmapper.clone())));
    let (portmapper_port, _) = serve(Arc::new(router)).await;
    let sockets = Sockets::with_portmapper(Handle::current(), Bytes::from_static(b"server1"), &env, portmapper_port);
    Host { sockets, portmapper, callers, program }
}

fn call(transport: OutsideTransport, procedure: u32) -> OutsideCall {
    let arguments = Bytes::copy_from_slice(&41_u32.to_be_bytes());
    let limit = Duration::from_secs(4);
    let local = "127.0.0.1".parse().unwrap();
    let to = "::ffff:127.0.0.1".parse().unwrap();
    OutsideCall { from: local, to, transport, program: PROGRAM, version: 1, procedure, arguments, limit }
}

use OutsideTransport::{Tcp, Udp};

#[tokio::test]
async fn a_program_is_called_at_the_port_that_its_portmapper_says() {
    for version in [2, 3, 4] {
        let host = host(version).await;
        for transport in [Udp, Tcp, Udp, Tcp] {
            let results = host.sockets.call(call(transport, 1)).await.unwrap();
            assert_eq!(&results[..], 42_u32.to_be_bytes());
        }
        let asked = host.portmapper.asked.load(Ordering::SeqCst);
        assert_eq!(asked, 2, "it is asked once for each transport");
        let callers = std::mem::take(&mut *host.callers.lock().unwrap());
        assert_eq!(callers[1], callers[3], "a connection is kept");
        if rustix::process::geteuid().is_root() {
            assert!(callers.iter().all(|caller| caller.port() < 1024), "{callers:?}");
        }
    }
}

#[tokio::test]
async fn a_program_that_has_another_port_now_is_found_there() {
    for transport in [Udp, Tcp] {
        let mut host = host(2).await;
        host.sockets.call(call(transport, 1)).await.unwrap();
        host.program.abort();
        let _ = (&mut host.program).await;
        let (port, _program) = program(&host.callers).await;
        host.portmapper.port.store(port, Ordering::SeqCst);
        host.sockets.call(call(transport, 1)).await.unwrap();
        assert_eq!(host.portmapper.asked.load(Ordering::SeqCst), 2);
    }
}

#[tokio::test]
async fn who_does_not_answer_and_who_is_not_there_is_said_in_time() {
    let host = host(2).await;
    for transport in [Udp, Tcp] {
        let limit = Duration::from_millis(700);
        let begun = Instant::now();
        let failed = host.sockets.call(OutsideCall { limit, ..call(transport, 9) }).await;
        assert_eq!(failed, Err(OutsideError::NoAnswer(limit)));
        assert!(begun.elapsed() < 10 * limit);
        let answered = host.sockets.call(call(transport, 1)).await;
        assert!(answered.is_ok(), "the next call is answered: {transport:?}: {answered:?}");
        host.portmapper.port.store(0, Ordering::SeqCst);
        host.sockets.inner.ports().clear();
        assert_eq!(host.sockets.call(call(transport, 1)).await, Err(OutsideError::NotRegistered));
        let port = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
        host.portmapper.port.store(port, Ordering::SeqCst);
        let failed = host.sockets.call(call(transport, 1)).await;
        assert!(matches!(failed, Err(OutsideError::Unreachable(_))), "{failed:?}");
        let (port, _) = program(&host.callers).await;
        host.portmapper.port.store(port, Ordering::SeqCst);
        host.sockets.inner.ports().clear();
    }
}

#[tokio::test]
async fn one_host_has_so_many_calls_and_what_nobody_waits_for_ends() {
    let host = host(2).await;
    let calls: Vec<_> = (0..places::MAX_CALLS_TO_ADDRESS).map(|_| host.sockets.call(call(Udp, 9))).collect();
    assert_eq!(host.sockets.call(call(Udp, 1)).await, Err(OutsideError::Busy));
    drop(calls);
    let begun = Instant::now();
    loop {
        match host.sockets.call(call(Udp, 1)).await {
            Err(OutsideError::Busy) if begun.elapsed() < Duration::from_secs(3) => tokio::task::yield_now().await,
            done => break assert!(done.is_ok(), "{done:?}"),
        }
    }
}
