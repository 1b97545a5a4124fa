//! A server with RPCSEC_GSS over any transport, in real time, and its clients.

use rpcrdma_env::{BoxFuture, Clock, Env, Heap, Timestamp, tokio_env};
use rpcrdma_fabric::Fabric;
use rpcrdma_gss::{Gss, Kerberos, Tickets, realm::Realm};
use rpcrdma_iwarp::{Config, Iwarp};
use rpcrdma_oncrpc::{
    Answer, CallContext, CallHeader, Client, ClientTransport, Credential, Handler, Outcome, Router, Service,
    gss::{AcceptGss, GssAuth, GssService, Handshake, Mechanism, Names, Work, Workshop},
    tcp::{self, TcpConnector},
};
use rpcrdma_transport::{
    ClientOptions, Event, Observer, Quiet, Server, ServerMemory, ServerOptions, Versions, connect,
};
use rpcrdma_xdr::{Decoder, Encoder, Stream, StreamPart};
use std::{
    future::poll_fn,
    net::{Ipv4Addr, SocketAddr},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio::{
    net::TcpListener,
    sync::Notify,
    task::{AbortHandle, JoinSet},
};

pub(crate) const PROGRAM: u32 = 77;

/// The transport that carries calls.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Wire {
    Tcp,
    Rdma(Versions),
}

pub(crate) const WIRES: [Wire; 3] = [Wire::Tcp, Wire::Rdma(Versions::One), Wire::Rdma(Versions::Two)];
pub(crate) const SERVICES: [GssService; 3] = [GssService::Authentication, GssService::Integrity, GssService::Privacy];

/// The program that tests call. Its procedures: 1 returns its word, 2 counts and must not be executed twice, 3 reads, 4
/// writes, 5 waits until the test releases it.
#[derive(Default)]
pub(crate) struct Sample {
    pub(crate) count: AtomicU32,
    pub(crate) callers: Mutex<Vec<Credential>>,
    pub(crate) go: Notify,
}

struct Shared(Arc<Sample>);

impl Service for Shared {
    fn program(&self) -> u32 {
        PROGRAM
    }
    fn version(&self) -> u32 {
        1
    }
    fn is_idempotent(&self, procedure: u32) -> bool {
        procedure != 2
    }
    fn call(&self, context: CallContext, procedure: u32, mut args: Decoder) -> BoxFuture<'static, Answer> {
        self.0.callers.lock().unwrap().push(context.credential);
        let sample = self.0.clone();
        Box::pin(async move {
            let mut results = Encoder::new();
            let word = match args.u32() {
                Ok(word) => word,
                Err(_) if procedure == 0 => return Answer::Results(results.finish()),
                Err(error) => return error.into(),
            };
            match procedure {
                1 => results.u32(word),
                2 => results.u32(sample.count.fetch_add(word, Ordering::Relaxed)),
                3 => results.item(vec![word as u8; word as usize].into()),
                4 => match args.item(1 << 20) {
                    Ok(item) => results.u32(item.as_slice().iter().map(|octet| u32::from(*octet)).sum()),
                    Err(error) => return error.into(),
                },
                5 => {
                    sample.go.notified().await;
                    results.u32(word);
                }
                _ => return Answer::ProcUnavail,
            }
            Answer::Results(results.finish())
        })
    }
}

/// Each job has a thread.
pub(crate) struct Threads;

impl Work for Threads {
    fn run(&self, job: Box<dyn FnOnce() + Send>) {
        drop(std::thread::spawn(job));
    }
}

/// Knows no user: no principal is a user of this machine.
pub(crate) struct Nobody;

impl Names for Nobody {
    fn user(&self, _: &str, _: Option<&str>) -> std::io::Result<Option<rpcrdma_oncrpc::gss::GssUser>> {
        Ok(None)
    }
}

/// Counts contexts that are begun.
struct Counting(Kerberos, Arc<AtomicU32>);

impl Mechanism for Counting {
    fn begin(&self) -> Box<dyn Handshake> {
        self.1.fetch_add(1, Ordering::Relaxed);
        self.0.begin()
    }
}

/// A clock that can be put forward.
#[derive(Clone)]
pub(crate) struct Ahead {
    clock: Arc<dyn Clock>,
    seconds: Arc<AtomicU64>,
}

impl Ahead {
    pub(crate) fn of(env: &Env) -> Self {
        Self { clock: env.clock.clone(), seconds: Arc::default() }
    }

    pub(crate) fn put_forward(&self, by: Duration) {
        self.seconds.fetch_add(by.as_secs(), Ordering::Relaxed);
    }
}

impl Clock for Ahead {
    fn now(&self) -> Timestamp {
        self.clock.now() + Duration::from_secs(self.seconds.load(Ordering::Relaxed))
    }
    fn sleep_until(&self, when: Timestamp) -> BoxFuture<'static, ()> {
        let ahead = Duration::from_secs(self.seconds.load(Ordering::Relaxed));
        self.clock.sleep_until(Timestamp::from_nanos(when.as_nanos() - ahead.as_nanos() as u64))
    }
    fn unix_time(&self) -> Duration {
        self.clock.unix_time()
    }
}

/// Fields of a call's credential: the purpose of the message, and its sequence number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Seen {
    pub(crate) xid: u32,
    pub(crate) control: u32,
    pub(crate) sequence: u32,
}

pub(crate) type Connections = Arc<Mutex<Vec<AbortHandle>>>;

/// Stands between the transports and the router.
pub(crate) struct Front {
    router: Mutex<Arc<Router>>,
    pub(crate) seen: Mutex<Vec<Seen>>,
    /// Whether connections end after the next call is executed.
    cut: Mutex<bool>,
    connections: Connections,
}

impl Front {
    pub(crate) fn cut(&self) {
        std::mem::take(&mut *self.connections.lock().unwrap()).iter().for_each(AbortHandle::abort);
    }

    /// Ends all connections after the next call of procedure 2 is executed.
    pub(crate) fn cut_next(&self) {
        *self.cut.lock().unwrap() = true;
    }
}

struct At(Arc<Front>);

impl Handler for At {
    fn handle(&self, context: CallContext, message: Stream) -> BoxFuture<'static, Outcome> {
        let front = self.0.clone();
        let mut octets = Vec::new();
        for part in message.parts() {
            let (StreamPart::Run(part) | StreamPart::Chunk(part)) = part;
            octets.extend_from_slice(&part[..part.len().min(500)]);
            if octets.len() > 500 {
                break;
            }
        }
        let header = CallHeader::decode(&mut Decoder::new(Stream::from(bytes::Bytes::from(octets)))).unwrap();
        if header.credential.flavour == 6 {
            let word = |at: usize| u32::from_be_bytes(header.credential.body[at..at + 4].try_into().unwrap());
            let seen = Seen { xid: header.id.xid, control: word(4), sequence: word(8) };
            front.seen.lock().unwrap().push(seen);
        }
        let call = front.router.lock().unwrap().handle(context, message);
        let cut = header.id.procedure == 2 && std::mem::take(&mut *front.cut.lock().unwrap());
        Box::pin(async move {
            let outcome = call.await;
            if cut {
                front.cut();
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
            outcome
        })
    }
}

/// Keeps the events of a client's transport.
#[derive(Default)]
pub(crate) struct Log(pub(crate) Mutex<Vec<Event>>);

impl Observer for Log {
    fn event(&self, _: SocketAddr, event: &Event) {
        self.0.lock().unwrap().push(event.clone());
    }
}

pub(crate) struct House<'a> {
    realm: &'a Realm,
    pub(crate) env: Env,
    /// The server's clock.
    pub(crate) clock: Ahead,
    pub(crate) sample: Arc<Sample>,
    pub(crate) front: Arc<Front>,
    /// How many contexts clients have begun at the server.
    pub(crate) begun: Arc<AtomicU32>,
    fabric: Arc<dyn Fabric>,
    tcp: SocketAddr,
    rdma: SocketAddr,
}

impl<'a> House<'a> {
    pub(crate) async fn new(realm: &'a Realm) -> Self {
        let env = tokio_env().unwrap();
        let clock = Ahead::of(&env);
        let sample = Arc::new(Sample::default());
        let begun = Arc::new(AtomicU32::new(0));
        let router = router(realm, &env, &clock, &sample, &begun);
        let (seen, cut, connections) = Default::default();
        let front = Arc::new(Front { router: Mutex::new(router), seen, cut, connections });
        let fabric: Arc<dyn Fabric> = Arc::new(Iwarp::new(env.clone(), Config::default()));
        let (at, cut) = (Arc::new(At(front.clone())), &front.connections);
        let tcp = serve_tcp(&env, at.clone(), cut.clone()).await;
        let rdma = serve_rdma(&env, at, cut.clone(), &*fabric).await;
        Self { realm, env, clock, sample, front, begun, fabric, tcp, rdma }
    }

    /// Starts the server again, without its contexts and its cache of replies.
    pub(crate) fn restart(&self) {
        let router = router(self.realm, &self.env, &self.clock, &self.sample, &self.begun);
        *self.front.router.lock().unwrap() = router;
    }

    pub(crate) async fn transport(&self, wire: Wire, log: Arc<Log>) -> Arc<dyn ClientTransport> {
        match wire {
            Wire::Tcp => {
                let (connector, options) = (TcpConnector::new(self.tcp), tcp::ClientOptions::default());
                let (transport, driver) =
                    tcp::connect(Arc::new(connector), Arc::new(Heap), &self.env, options).await.unwrap();
                tokio::spawn(driver);
                transport
            }
            Wire::Rdma(versions) => {
                let mut options = ClientOptions::default();
                options.versions = versions;
                let (transport, driver) =
                    connect(self.fabric.clone(), self.rdma, &self.env, options, log).await.unwrap();
                tokio::spawn(driver);
                transport
            }
        }
    }

    pub(crate) fn auth(&self, service: GssService) -> GssAuth {
        let tickets = Tickets::of_user(Gss::load().unwrap(), "localhost");
        GssAuth::new(&self.env, Arc::new(tickets), Arc::new(Threads), service)
    }

    /// A client that calls as the user of the ticket cache.
    pub(crate) async fn client(&self, wire: Wire, service: GssService) -> (Client, GssAuth) {
        let auth = self.auth(service);
        let transport = self.transport(wire, Arc::default()).await;
        (Client::new(transport, Arc::new(auth.clone()), PROGRAM, 1), auth)
    }

    pub(crate) fn contexts(&self) -> u32 {
        self.begun.load(Ordering::Relaxed)
    }
}

fn router(realm: &Realm, env: &Env, clock: &Ahead, sample: &Arc<Sample>, begun: &Arc<AtomicU32>) -> Arc<Router> {
    let env = Env { clock: Arc::new(clock.clone()), ..env.clone() };
    let kerberos = Kerberos::with_keytab(Gss::load().unwrap(), Some(&realm.keytab())).unwrap();
    let mechanism = Arc::new(Counting(kerberos, begun.clone()));
    let workshop = Workshop { tokens: Arc::new(Threads), users: Arc::new(Threads) };
    let flavour = AcceptGss::new(&env, mechanism, Arc::new(Nobody), workshop);
    Arc::new(Router::new(&env).with_service(Arc::new(Shared(sample.clone()))).with_flavour(Arc::new(flavour)))
}

/// Serves over TCP, and may call its clients.
pub(crate) async fn serve_tcp(env: &Env, handler: Arc<dyn Handler>, connections: Connections) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let local = listener.local_addr().unwrap();
    let clock = env.clock.clone();
    tokio::spawn(async move {
        let mut drivers = JoinSet::new();
        for id in 1.. {
            let Ok((io, peer)) = listener.accept().await else { continue };
            let endpoint = tcp::Endpoint { peer, local, id, allocator: Arc::new(Heap) };
            let mut options = tcp::ServerOptions::default();
            options.reverse_calls = 16;
            let (_, driver) = tcp::serve(io, endpoint, handler.clone(), clock.clone(), options);
            let connection = drivers.spawn(async move { drop(driver.await) });
            connections.lock().unwrap().push(connection);
        }
    });
    local
}

/// The same over RPC-over-RDMA.
pub(crate) async fn serve_rdma(
    env: &Env,
    handler: Arc<dyn Handler>,
    connections: Connections,
    fabric: &dyn Fabric,
) -> SocketAddr {
    let mut options = ServerOptions::default();
    (options.versions, options.reverse_credits) = (Versions::Auto, 16);
    let memory = ServerMemory::budget(16 << 20);
    let server = Server::new(fabric, handler, memory, env.clone(), options, Arc::new(Quiet));
    let mut listener = fabric.listen((Ipv4Addr::LOCALHOST, 0).into()).await.unwrap();
    let address = listener.local_addr();
    tokio::spawn(async move {
        let mut drivers = JoinSet::new();
        loop {
            let Ok(pending) = poll_fn(|cx| listener.poll_accept(cx)).await else { continue };
            let server = server.clone();
            let connection = drivers.spawn(async move {
                if let Ok((_, driver)) = server.accept(pending).await {
                    let _ = driver.await;
                }
            });
            connections.lock().unwrap().push(connection);
        }
    });
    address
}
