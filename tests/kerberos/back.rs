//! A server of NFS version 4 calls its client in the client's own context (RFC 8881 section 18.36.3), over TCP and both
//! versions of RPC-over-RDMA, with each service.

use super::{
    house::{Ahead, Connections, Nobody, SERVICES, Threads, WIRES, Wire, serve_rdma, serve_tcp},
    in_realm,
};
use bytes::Bytes;
use rpcrdma_env::{BoxFuture, Env, Heap, tokio_env};
use rpcrdma_fabric::Fabric;
use rpcrdma_gss::{
    Gss, Kerberos, Tickets,
    realm::{REALM, Realm},
};
use rpcrdma_iwarp::{Config, Iwarp};
use rpcrdma_nfs::{
    attr::NewAttributes,
    v4::{
        Name, PROGRAM, VERSION, callback,
        ops::{LockKind, TRANSIENT_PROGRAM},
    },
};
use rpcrdma_nfs_client::v4::{Access, CALLBACK_SLOTS, Callbacks, How, Nfs4, Opened, Options};
use rpcrdma_nfsd::{Export, Identities, MemoryFs, Nfsd, Queue, Securities, Security, Squash, StateDirectory, Version4};
use rpcrdma_oncrpc::{
    AuthStat, CallContext, CallHeader, CallId, Client, ClientTransport, Connection, GoneSignal, Handler, Limits,
    OpaqueAuth, Outcome, Rejection, ReplyHeader, Router, TransportKind,
    gss::{AcceptBack, AcceptGss, BackHandles, GssAuth, GssService, GssUser, Names, Workshop},
    tcp::{self, TcpConnector},
};
use rpcrdma_transport::{ClientOptions, Quiet, Reverse, connect};
use rpcrdma_xdr::{Decoder, Encode as _, Encoder, Stream, StreamPart};
use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Duration,
};

/// Makes every caller root, so that all may make files.
struct Root;

impl Names for Root {
    fn user(&self, _: &str, _: Option<&str>) -> std::io::Result<Option<GssUser>> {
        Ok(Some(GssUser::default()))
    }
}

/// The server's lease: clients renew it, so each makes calls at least this often.
const LEASE: Duration = Duration::from_secs(9);

/// A server in memory.
struct House {
    env: Env,
    /// The clock of the server's contexts alone, and the clock of its clients.
    clock: Ahead,
    clients_clock: Ahead,
    contexts: Arc<AcceptGss>,
    fabric: Arc<dyn Fabric>,
    tcp: SocketAddr,
    rdma: SocketAddr,
    _state: tempfile::TempDir,
}

fn accept(realm: &Realm, env: &Env, clock: &Ahead, names: impl Names + 'static) -> Arc<AcceptGss> {
    let env = Env { clock: Arc::new(clock.clone()), ..env.clone() };
    let kerberos = Kerberos::with_keytab(Gss::load().unwrap(), Some(&realm.keytab())).unwrap();
    let workshop = Workshop { tokens: Arc::new(Threads), users: Arc::new(Threads) };
    Arc::new(AcceptGss::new(&env, Arc::new(kerberos), Arc::new(names), workshop))
}

impl House {
    async fn new(realm: &Realm) -> Self {
        let env = tokio_env().unwrap();
        let (clock, clients_clock, directory) = (Ahead::of(&env), Ahead::of(&env), tempfile::tempdir().unwrap());
        let contexts = accept(realm, &env, &clock, Root);
        let state = StateDirectory::open(directory.path().join("state"), &*env.random).unwrap();
        let export = Export::new("/", Arc::new(MemoryFs::new(64 << 20, &env)))
            .with_identities(Identities { squash: Squash::None, ..Identities::default() })
            .with_securities(Securities::new([Security::Krb5, Security::Krb5i, Security::Krb5p]));
        let nfsd = Nfsd::new(vec![export], [7; rpcrdma_nfsd::SECRET_BYTES], &env).unwrap();
        let nfsd = nfsd.with_contexts(contexts.clone(), &env);
        let version_4 = Version4::new(&state, Queue::in_place()).with_lease(LEASE);
        let nfsd = nfsd.with_version_4(version_4, false, &env).unwrap();
        tokio::spawn(nfsd.upkeep());
        let fabric: Arc<dyn Fabric> = Arc::new(Iwarp::new(env.clone(), Config::default()));
        let connections = Connections::default();
        let tcp = serve_tcp(&env, nfsd.nfs(), connections.clone()).await;
        let rdma = serve_rdma(&env, nfsd.nfs(), connections, &*fabric).await;
        Self { env, clock, clients_clock, contexts, fabric, tcp, rdma, _state: directory }
    }

    fn auth(&self, service: GssService) -> GssAuth {
        let tickets = Tickets::of_user(Gss::load().unwrap(), "localhost");
        GssAuth::new(&self.of_clients(), Arc::new(tickets), Arc::new(Threads), service)
    }

    fn of_clients(&self) -> Env {
        Env { clock: Arc::new(self.clients_clock.clone()), ..self.env.clone() }
    }

    /// A client, and the record of the server's calls to it.
    async fn client(&self, wire: Wire, service: GssService) -> (Nfs4, Arc<Heard>) {
        let auth = self.auth(service);
        let callbacks = Callbacks::in_contexts_of(auth.clone(), &self.of_clients());
        let heard = Arc::new(Heard { router: callbacks.router(&self.env), calls: Mutex::default() });
        let handler: Arc<dyn Handler> = Arc::new(Ear(heard.clone()));
        let transport: Arc<dyn ClientTransport> = match wire {
            Wire::Tcp => {
                let mut options = tcp::ClientOptions::default();
                options.reverse = Some(tcp::Reverse { handler, calls: CALLBACK_SLOTS as usize });
                let connector = Arc::new(TcpConnector::new(self.tcp));
                let (transport, driver) = tcp::connect(connector, Arc::new(Heap), &self.env, options).await.unwrap();
                tokio::spawn(driver);
                transport
            }
            Wire::Rdma(versions) => {
                let mut options = ClientOptions::default();
                (options.versions, options.reverse) = (versions, Some(Reverse { handler, credits: CALLBACK_SLOTS }));
                let (transport, driver) =
                    connect(self.fabric.clone(), self.rdma, &self.env, options, Arc::new(Quiet)).await.unwrap();
                tokio::spawn(driver);
                transport
            }
        };
        let client = Client::new(transport, Arc::new(auth), PROGRAM, VERSION);
        let options = Options::new("test").with_minors(1..=2).with_callbacks(callbacks);
        let nfs = Nfs4::connect(client, &self.env, options).await.unwrap();
        tokio::spawn(nfs.driver());
        (nfs, heard)
    }
}

/// The parts of a server's call that the tests look at.
#[derive(Clone, Debug)]
struct Call {
    procedure: u32,
    flavour: u32,
    /// The fields of RPCSEC_GSS: sequence number, service, handle.
    sequence: u32,
    service: u32,
    handle: Vec<u8>,
}

struct Heard {
    router: Router,
    calls: Mutex<Vec<Call>>,
}

impl Heard {
    fn calls(&self) -> Vec<Call> {
        self.calls.lock().unwrap().clone()
    }

    /// The last call that is a COMPOUND.
    async fn compound(&self) -> Call {
        until(|| self.calls().into_iter().rev().find(|call| call.procedure == 1)).await
    }
}

/// Stands between the transport and the router, and records calls.
struct Ear(Arc<Heard>);

impl Handler for Ear {
    fn handle(&self, context: CallContext, message: Stream) -> BoxFuture<'static, Outcome> {
        let mut octets = Vec::new();
        for part in message.parts() {
            let (StreamPart::Run(part) | StreamPart::Chunk(part)) = part;
            octets.extend_from_slice(part);
        }
        let header = CallHeader::decode(&mut Decoder::new(Stream::from(Bytes::from(octets)))).unwrap();
        let (flavour, body) = (header.credential.flavour, header.credential.body);
        let word = |at: usize| body.get(at..at + 4).map_or(0, |word| u32::from_be_bytes(word.try_into().unwrap()));
        let handle = body.get(20..).unwrap_or_default().to_vec();
        let procedure = header.id.procedure;
        let call = Call { procedure, flavour, sequence: word(8), service: word(12), handle };
        self.0.calls.lock().unwrap().push(call);
        self.0.router.handle(context, message)
    }
}

async fn until<T>(mut look: impl FnMut() -> Option<T>) -> T {
    for _ in 0..1500 {
        if let Some(found) = look() {
            return found;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("in fifteen seconds it did not come");
}

const FILE: &str = "file that is locked";

async fn open(nfs: &Nfs4, how: How) -> Opened {
    let root = nfs.root().await.unwrap().file;
    nfs.open(&root, &Name::from(FILE), Access::Both, how).await.unwrap().0
}

/// A client that makes the file and has it open.
async fn holder(house: &House) -> (Nfs4, Opened) {
    let (nfs, _) = house.client(Wire::Tcp, GssService::Authentication).await;
    let attributes = NewAttributes { mode: Some(0o666), ..NewAttributes::default() };
    let opened = open(&nfs, How::Unchecked(attributes)).await;
    (nfs, opened)
}

/// A client waits for a lock that another has; the server tells it when the lock is free.
async fn lock_and_unlock(nfs: &Nfs4, has: &Opened, waits: (&Nfs4, &Opened)) {
    nfs.lock(has, LockKind::Write, 0, u64::MAX).await.unwrap();
    let waiting = waits.0.lock_when_free(waits.1, LockKind::Write, 0, u64::MAX);
    let unlock = async {
        tokio::time::sleep(Duration::from_millis(200)).await;
        nfs.unlock(has, 0, u64::MAX).await.unwrap();
    };
    let (locked, ()) = tokio::join!(waiting, unlock);
    locked.unwrap();
    waits.0.unlock(waits.1, 0, u64::MAX).await.unwrap();
}

fn number(service: GssService) -> u32 {
    match service {
        GssService::Authentication => 1,
        GssService::Integrity => 2,
        GssService::Privacy => 3,
    }
}

/// A call without credentials, as an attacker on the path would make it.
async fn unsigned(heard: &Heard) -> Result<(), Rejection> {
    let (_signal, gone) = GoneSignal::new();
    let address = SocketAddr::from(([127, 0, 0, 1], 2049));
    let limits = Limits::new(4_096, 4_096);
    let connection = Connection::new(address, address, 0, TransportKind::Tcp, limits, Arc::new(Heap), gone);
    let mut message = Encoder::new();
    let id = CallId { xid: 5, program: TRANSIENT_PROGRAM, version: callback::VERSION, procedure: 1 };
    CallHeader { id, credential: OpaqueAuth::none(), verifier: OpaqueAuth::none() }.encode(&mut message);
    callback::Arguments::new(2, 0, Vec::new()).encode(&mut message);
    let message = Stream::from(message.finish().to_bytes());
    match heard.router.handle(CallContext::new(Arc::new(connection)), message).await {
        Outcome::Reply(reply) => {
            let header = ReplyHeader::decode(&mut Decoder::new(Stream::from(reply.to_bytes()))).unwrap();
            header.status
        }
        other => panic!("{other:?}"),
    }
}

/// proves: NFS4-8881-18.36-o, OPS-SEC-o
#[test]
fn a_server_calls_in_the_context_of_its_client_and_by_nothing_less() {
    in_realm("back::a_server_calls_in_the_context_of_its_client_and_by_nothing_less", async |realm| {
        let house = House::new(realm).await;
        let (other, has) = holder(&house).await;
        for (wire, service) in WIRES.into_iter().flat_map(|wire| SERVICES.map(|service| (wire, service))) {
            let what = format!("{wire:?} {service:?}");
            let (nfs, heard) = house.client(wire, service).await;
            let probe = until(|| heard.calls().into_iter().next()).await;
            assert_eq!((probe.procedure, probe.flavour, probe.service), (0, 6, number(service)), "{what}");
            let opened = open(&nfs, How::Existing).await;
            lock_and_unlock(&other, &has, (&nfs, &opened)).await;
            let call = heard.compound().await;
            assert_eq!((call.flavour, call.service, &call.handle), (6, number(service), &probe.handle), "{what}");
            assert!(call.sequence > probe.sequence, "{what}: its own count");
            let calls = heard.calls();
            assert!(calls.iter().all(|call| call.flavour == 6), "{what}: {calls:?}");
            assert_eq!(unsigned(&heard).await, Err(Rejection::Auth(AuthStat::TOO_WEAK)), "{what}");
            nfs.close(opened).await.unwrap();
            nfs.end().await.unwrap();
        }
    });
}

/// The server has lost the context, or the context has ended: SEQUENCE says so, and the client names its next context.
///
/// proves: NFS4-8881-18.46-h, NFS4-8881-18.33-a
#[test]
fn a_context_that_ends_is_followed_by_the_next() {
    in_realm("back::a_context_that_ends_is_followed_by_the_next", async |realm| {
        let house = House::new(realm).await;
        let (other, has) = holder(&house).await;
        let (nfs, heard) = house.client(Wire::Tcp, GssService::Integrity).await;
        let opened = open(&nfs, How::Existing).await;
        lock_and_unlock(&other, &has, (&nfs, &opened)).await;
        let before = heard.compound().await.handle;
        // Longer than the ticket lasts, plus the allowed difference of clocks.
        house.clock.put_forward(Duration::from_secs(1_000));
        until_named(&nfs, &heard, &before, (&other, &has, &opened)).await;
        let calls = heard.calls();
        assert!(calls.iter().all(|call| call.flavour == 6), "{calls:?}");
    });
}

/// The client renews its context early, although the server would still accept the old context.
///
/// proves: NFS4-8881-18.33-a
#[test]
fn a_context_that_is_made_anew_is_named_before_the_last_one_ends() {
    in_realm("back::a_context_that_is_made_anew_is_named_before_the_last_one_ends", async |realm| {
        let house = House::new(realm).await;
        let (other, has) = holder(&house).await;
        let (nfs, heard) = house.client(Wire::Tcp, GssService::Privacy).await;
        let opened = open(&nfs, How::Existing).await;
        lock_and_unlock(&other, &has, (&nfs, &opened)).await;
        let before = heard.compound().await.handle;
        // The ticket lasts ten minutes; a minute before, the context is made anew.
        house.clients_clock.put_forward(Duration::from_secs(570));
        until_named(&nfs, &heard, &before, (&other, &has, &opened)).await;
        let calls = heard.calls();
        assert!(calls.iter().all(|call| call.flavour == 6), "{calls:?}");
    });
}

/// Locks and unlocks until the server calls with another handle.
async fn until_named(nfs: &Nfs4, heard: &Heard, before: &[u8], (other, has, opened): (&Nfs4, &Opened, &Opened)) {
    for _ in 0..20 {
        lock_and_unlock(other, has, (nfs, opened)).await;
        if heard.compound().await.handle != before {
            return;
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    panic!("the server was told of no other context");
}

/// proves: NFS4-8881-18.36-o
#[test]
fn nobody_is_called_in_the_context_of_another() {
    in_realm("back::nobody_is_called_in_the_context_of_another", async |realm| {
        let house = House::new(realm).await;
        let auth = house.auth(GssService::Integrity);
        let back = AcceptBack::new(auth.clone(), &house.env);
        assert_eq!(back.handles(), None, "there is no context yet");
        let (transport, driver) = tcp::connect(
            Arc::new(TcpConnector::new(house.tcp)),
            Arc::new(Heap),
            &house.env,
            tcp::ClientOptions::default(),
        )
        .await
        .unwrap();
        tokio::spawn(driver);
        let client = Client::new(transport, Arc::new(auth.clone()), PROGRAM, VERSION);
        client.null().await.unwrap();
        let handles = back.handles().unwrap();
        assert_eq!(back.handles().as_ref(), Some(&handles), "it keeps its handle");
        let alice = format!("alice@{REALM}");
        assert!(house.contexts.back(&alice, &handles).is_some());
        assert!(house.contexts.back(&format!("bob@{REALM}"), &handles).is_none());
        let unknown = BackHandles { from_server: Bytes::from_static(&[9; 16]), ..handles.clone() };
        assert!(house.contexts.back(&alice, &unknown).is_none());
        let caller = house.contexts.back(&alice, &handles).unwrap();
        assert!(caller.lasts(Duration::from_secs(60)) && !caller.lasts(Duration::from_secs(3600)));
        auth.close().await;
        assert!(!caller.lasts(Duration::ZERO), "it was destroyed");
        assert!(house.contexts.back(&alice, &handles).is_none());
        // Another acceptor does not know these handles.
        assert!(accept(realm, &house.env, &house.clock, Nobody).back(&alice, &handles).is_none());
    });
}
