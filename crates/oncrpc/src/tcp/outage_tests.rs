//! Servers that accept connections and do not speak RPC, and those that speak it and keep ending connections.

use super::*;
use crate::TransportKind;
use std::sync::atomic::AtomicUsize;

/// How each connection goes.
#[derive(Clone, Copy, Debug)]
enum Port {
    /// It is accepted and closed.
    Closes,
    /// It is accepted, and nothing follows.
    Silent,
    /// It is closed when a call has come.
    ClosesAfterCall,
    /// A banner comes, as of SSH.
    Banner,
    /// The answer, in another protocol, is that the request cannot be understood.
    Http,
    /// A record comes that is no reply.
    NoReply,
    /// Calls are answered once for each connection, and the connection is closed with the second call.
    AnswersOne,
    /// The same, and it is closed at once.
    AnswersAndCloses,
}

/// Counts the connections to a port.
struct Counted(Port, AtomicUsize);

impl Connector for Counted {
    fn connect(&self) -> BoxFuture<'_, io::Result<Box<dyn Io>>> {
        self.1.fetch_add(1, Ordering::SeqCst);
        let (near, far) = duplex(1 << 16);
        tokio::spawn(behave(self.0, far));
        Box::pin(async { Ok(Box::new(near) as Box<dyn Io>) })
    }
    fn server(&self) -> SocketAddr {
        ADDRESS.into()
    }
}

async fn behave(port: Port, mut io: DuplexStream) {
    let mut call = [0; 44];
    match port {
        Port::Closes => {}
        Port::Silent => tokio::time::sleep(Duration::from_secs(3600)).await,
        Port::ClosesAfterCall => drop(io.read_exact(&mut call).await),
        Port::Banner => drop(io.write_all(b"SSH-2.0-OpenSSH_9.2p1\r\n").await),
        Port::Http => {
            let _ = io.read_exact(&mut call).await;
            let _ = io.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
        }
        Port::NoReply => {
            let _ = io.write_all(&[0x80, 0, 0, 12, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 2]).await;
        }
        Port::AnswersOne | Port::AnswersAndCloses => {
            let _ = io.read_exact(&mut call).await;
            let reply = [&[0x80, 0, 0, 24][..], &call[4..8], &[0, 0, 0, 1], &[0; 16]].concat();
            let _ = io.write_all(&reply).await;
            if matches!(port, Port::AnswersOne) {
                let _ = io.read_exact(&mut call).await;
            }
        }
    }
}

async fn client(port: Port) -> (Client, Arc<Counted>) {
    let connector = Arc::new(Counted(port, AtomicUsize::new(0)));
    let options = ClientOptions { service: "NFS", ..ClientOptions::default() };
    let (transport, driver) = connect(connector.clone(), Arc::new(Heap), &env(), options).await.unwrap();
    tokio::spawn(driver);
    (Client::new(transport, Arc::new(NoAuth), 77, 1), connector)
}

/// proves: RPC-OUTAGE-a, RPC-OUTAGE-b, RPC-OUTAGE-c
#[tokio::test(start_paused = true)]
async fn what_accepts_connections_and_is_no_rpc_server_is_named_within_seconds() {
    for (port, least, most, connections) in [
        (Port::Closes, 10, 11, 6..=9),
        (Port::Silent, 30, 31, 2..=2),
        (Port::ClosesAfterCall, 10, 11, 6..=9),
        (Port::Banner, 0, 0, 1..=1),
        (Port::Http, 0, 0, 1..=1),
        (Port::NoReply, 10, 11, 6..=9),
    ] {
        let (client, connector) = client(port).await;
        let start = tokio::time::Instant::now();
        let failed = timeout(Duration::from_secs(300), client.null()).await.expect("it ends");
        let Err(CallError::Transport(error)) = failed else { panic!("{port:?}: {failed:?}") };
        let said = error.to_string();
        match (port, error) {
            (Port::Silent, TransportError::SaysNothing { over: TransportKind::Tcp, .. }) => {
                let wanted = "127.0.0.1:9 accepts connections but says nothing: it is stopped, has too much to do, or is no NFS server over TCP";
                assert_eq!(said, wanted);
            }
            (_, TransportError::NotSpoken { over: TransportKind::Tcp, .. }) => {
                assert_eq!(said, "127.0.0.1:9 answers, but does not speak NFS over TCP");
            }
            (port, error) => panic!("{port:?}: {error:?}"),
        }
        let took = start.elapsed().as_secs();
        assert!((least..=most).contains(&took), "{port:?}: {took} s");
        let made = connector.1.load(Ordering::SeqCst);
        assert!(connections.contains(&made), "{port:?}: {made} connections");
    }
}

/// A healthy server that is stopped for some seconds, just when a client connects, is not given up.
///
/// proves: RPC-OUTAGE-c
#[tokio::test(start_paused = true)]
async fn a_server_that_is_stopped_for_a_while_at_first_is_waited_for() {
    const STOPPED: Duration = Duration::from_secs(20);
    struct Stopped(tokio::time::Instant);
    impl Connector for Stopped {
        fn connect(&self) -> BoxFuture<'_, io::Result<Box<dyn Io>>> {
            let (near, far) = duplex(1 << 16);
            let goes_on = self.0;
            tokio::spawn(async move {
                tokio::time::sleep_until(goes_on).await;
                behave(Port::AnswersOne, far).await;
            });
            Box::pin(async { Ok(Box::new(near) as Box<dyn Io>) })
        }
        fn server(&self) -> SocketAddr {
            ADDRESS.into()
        }
    }
    let connector = Arc::new(Stopped(tokio::time::Instant::now() + STOPPED));
    let (transport, driver) = connect(connector, Arc::new(Heap), &env(), ClientOptions::default()).await.unwrap();
    tokio::spawn(driver);
    Client::new(transport, Arc::new(NoAuth), 77, 1).null().await.unwrap();
}

/// When the call is dropped, the state that a program shows its user no longer says that a call waits.
#[tokio::test(start_paused = true)]
async fn nobody_waits_once_the_call_is_dropped() {
    let connector = Arc::new(Counted(Port::Closes, AtomicUsize::new(0)));
    let (transport, driver) = connect(connector, Arc::new(Heap), &env(), ClientOptions::default()).await.unwrap();
    tokio::spawn(driver);
    let silence = transport.silence().unwrap();
    let client = Client::new(transport, Arc::new(NoAuth), 77, 1);
    assert!(timeout(Duration::from_secs(5), client.null()).await.is_err());
    assert!(silence.waiting().is_some(), "until the driver looks");
    tokio::time::sleep(ClientOptions::default().max_pause * 2).await;
    assert_eq!(silence.waiting(), None);
}

/// A server answers, and ends each connection with the same call: the client connects again after pauses that grow.
///
/// proves: RPC-OUTAGE-b
#[tokio::test(start_paused = true)]
async fn connections_that_end_with_a_call_are_not_made_at_full_speed() {
    let (client, connector) = client(Port::AnswersOne).await;
    client.null().await.unwrap();
    let failed = timeout(Duration::from_secs(60), async {
        // The first is answered on each new connection; the two others are not.
        let call = || client.call(3, Payload::new(), ReplyShape::inline(4));
        tokio::join!(call(), call(), call())
    });
    let _ = failed.await;
    let made = connector.1.load(Ordering::SeqCst);
    assert!((2..=30).contains(&made), "{made} connections in a minute");
}

/// A server that closes a connection on which no call is unanswered delays no call.
#[tokio::test(start_paused = true)]
async fn a_connection_that_ends_while_nothing_waits_is_replaced_at_once() {
    const BETWEEN: Duration = Duration::from_millis(10);
    let (client, connector) = client(Port::AnswersAndCloses).await;
    let start = tokio::time::Instant::now();
    for _ in 0..20 {
        client.null().await.unwrap();
        tokio::time::sleep(BETWEEN).await;
    }
    assert!(start.elapsed() < 21 * BETWEEN, "{:?}", start.elapsed());
    assert_eq!(connector.1.load(Ordering::SeqCst), 20);
}
