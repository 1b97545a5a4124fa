//! A server with RPCSEC_GSS, and a client with hand-made messages, so that it can send wrong ones.

use super::wire::Wire;
use bytes::Bytes;
use rpcrdma_env::{BoxFuture, Clock, Env, Heap, SeededRandom, Timestamp, TokioClock};
use rpcrdma_gss::{
    Context, Gss, Initiator, Kerberos, NameKind, Octets, Progress,
    realm::{REALM, Realm, SERVICE},
};
use rpcrdma_oncrpc::{
    Answer, CallContext, CallHeader, CallId, Connection, Credential, GoneSignal, Handler, Limits, OpaqueAuth, Outcome,
    Rejection, ReplyHeader, Router, Service, TransportKind,
    gss::{AcceptGss, GssUser, Names, RPCSEC_GSS, Work, Workshop},
};
use rpcrdma_xdr::{Decoder, Encoder, Payload, Stream};
use std::{
    io,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
    time::Duration,
};

/// The program to call: procedure 1 returns its word, procedure 2 counts and must not be executed twice, and procedure
/// 3 returns as many bytes as its word says, which may be placed directly.
#[derive(Default)]
pub(crate) struct Sample {
    pub(crate) count: AtomicU32,
    pub(crate) callers: Mutex<Vec<Credential>>,
}

struct Shared(Arc<Sample>);

impl Service for Shared {
    fn program(&self) -> u32 {
        77
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
            match (procedure, args.u32().and_then(|word| args.finish().map(|()| word))) {
                (1, Ok(word)) => results.u32(word),
                (2, Ok(_)) => results.u32(sample.count.fetch_add(1, Ordering::Relaxed)),
                (3, Ok(len)) => results.item(vec![5; len.min(1 << 20) as usize].into()),
                (_, Ok(_)) => return Answer::ProcUnavail,
                (_, Err(error)) => return error.into(),
            }
            Answer::Results(results.finish())
        })
    }
}

/// Runs each job at once, unless the jobs are held.
#[derive(Default)]
pub(crate) struct Threads(Mutex<Option<Vec<Job>>>);

type Job = Box<dyn FnOnce() + Send>;

impl Threads {
    /// From now on jobs wait.
    pub(crate) fn hold(&self) {
        *self.0.lock().unwrap() = Some(Vec::new());
    }

    /// Takes the jobs that have come so far.
    pub(crate) fn take(&self) -> Vec<Job> {
        std::mem::take(self.0.lock().unwrap().as_mut().unwrap())
    }

    /// Waits for the next jobs, and takes them.
    pub(crate) async fn wait_for_one(&self) -> Vec<Job> {
        loop {
            match self.take() {
                jobs if jobs.is_empty() => tokio::time::sleep(Duration::from_millis(5)).await,
                jobs => return jobs,
            }
        }
    }

    /// Takes the waiting jobs; later jobs are done at once again.
    pub(crate) fn release(&self) -> Vec<Job> {
        self.0.lock().unwrap().take().unwrap()
    }
}

impl Work for Threads {
    fn run(&self, job: Job) {
        match &mut *self.0.lock().unwrap() {
            Some(held) => held.push(job),
            None => drop(std::thread::spawn(job)),
        }
    }
}

/// alice is user 1000; there is no other user. A machine is root.
struct Users;

impl Names for Users {
    fn user(&self, principal: &str, local: Option<&str>) -> io::Result<Option<GssUser>> {
        if principal.contains('/') {
            assert_eq!(local, Some("root"), "{principal}");
            return Ok(Some(GssUser::default()));
        }
        assert_eq!(Some(principal), local.map(|local| format!("{local}@{REALM}")).as_deref());
        let groups = (0..40).collect();
        Ok((local == Some("alice")).then_some(GssUser { uid: 1000, gid: 100, groups }))
    }
}

/// A clock that can be put forward.
#[derive(Clone)]
pub(crate) struct Ahead {
    clock: TokioClock,
    seconds: Arc<AtomicU64>,
}

impl Ahead {
    pub(crate) fn put_forward(&self, by: Duration) {
        self.seconds.fetch_add(by.as_secs(), Ordering::Relaxed);
    }
}

impl Clock for Ahead {
    fn now(&self) -> Timestamp {
        self.clock.now() + Duration::from_secs(self.seconds.load(Ordering::Relaxed))
    }
    fn sleep_until(&self, when: Timestamp) -> BoxFuture<'static, ()> {
        self.clock.sleep_until(when)
    }
    fn unix_time(&self) -> Duration {
        self.clock.unix_time()
    }
}

pub(crate) struct House<'a> {
    pub(crate) realm: &'a Realm,
    pub(crate) sample: Arc<Sample>,
    pub(crate) clock: Ahead,
    pub(crate) threads: Arc<Threads>,
    pub(crate) users: Arc<Threads>,
    pub(crate) flavour: Arc<AcceptGss>,
    router: Arc<Router>,
    wire: Option<Wire>,
    context: CallContext,
    _signal: GoneSignal,
}

/// What a reply says.
pub(crate) type Replied = (ReplyHeader, Decoder);

impl<'a> House<'a> {
    pub(crate) fn new(realm: &'a Realm) -> Self {
        let clock = Ahead { clock: TokioClock::new(), seconds: Arc::default() };
        let env = Env { clock: Arc::new(clock.clone()), random: Arc::new(SeededRandom::new(7)) };
        let sample = Arc::new(Sample::default());
        let threads = Arc::new(Threads::default());
        let kerberos = Kerberos::with_keytab(Gss::load().unwrap(), Some(&realm.keytab())).unwrap();
        let users = Arc::new(Threads::default());
        let workshop = Workshop { tokens: threads.clone(), users: users.clone() };
        let flavour = Arc::new(AcceptGss::new(&env, Arc::new(kerberos), Arc::new(Users), workshop));
        let router = Router::new(&env).with_service(Arc::new(Shared(sample.clone()))).with_flavour(flavour.clone());
        let router = Arc::new(router);
        let (context, signal) = connection([127, 0, 0, 1]);
        Self { realm, sample, clock, threads, users, flavour, router, wire: None, context, _signal: signal }
    }

    /// The same server, as a client at another address sees it.
    pub(crate) fn seen_from(&self, address: [u8; 4]) -> Self {
        let (context, signal) = connection(address);
        Self {
            realm: self.realm,
            sample: self.sample.clone(),
            clock: self.clock.clone(),
            threads: self.threads.clone(),
            users: self.users.clone(),
            flavour: self.flavour.clone(),
            router: self.router.clone(),
            wire: None,
            context,
            _signal: signal,
        }
    }

    /// The same server behind a socket.
    pub(crate) async fn over_tcp(mut self) -> Self {
        self.wire = Some(Wire::to(self.router.clone(), Arc::new(self.clock.clone())).await);
        self
    }

    /// Ends the connection.
    pub(crate) async fn hang_up(&mut self) {
        self.wire.take().expect("a socket").hang_up().await;
    }

    /// How many items of the reply may be placed directly.
    pub(crate) async fn items(&self, message: Payload) -> usize {
        match self.router.handle(self.context.clone(), Stream::from(message.to_bytes())).await {
            Outcome::Reply(reply) => reply.items().count(),
            other => panic!("{other:?}"),
        }
    }

    pub(crate) async fn send(&self, message: Payload) -> Option<Replied> {
        let read = |reply: Bytes| {
            let mut decoder = Decoder::new(Stream::from(reply));
            Some((ReplyHeader::decode(&mut decoder).unwrap(), decoder))
        };
        if let Some(wire) = &self.wire {
            return read(wire.exchange(&message.to_bytes()).await.into());
        }
        match self.router.handle(self.context.clone(), Stream::from(message.to_bytes())).await {
            Outcome::Reply(reply) => read(reply.to_bytes()),
            Outcome::Nothing => None,
            Outcome::NotEligible => panic!("nothing was placed"),
        }
    }

    /// Why the server did not execute a call.
    pub(crate) async fn refusal(&self, message: Payload) -> Rejection {
        self.send(message).await.expect("an answer").0.status.unwrap_err()
    }

    pub(crate) fn initiate(&self, user: &str) -> (Initiator, Octets) {
        let gss = Gss::load().unwrap();
        let principal = gss.name(&format!("{user}@{REALM}"), NameKind::Principal).unwrap();
        let cache = self.realm.folder().join(format!("cache.{}", user.replace('/', ".")));
        let keytab = if user.contains('/') { self.realm.keytab() } else { self.realm.users() };
        let credential = gss.initiate_with_keytab(&principal, &keytab, &cache).unwrap();
        match gss.initiator(&credential, gss.name(SERVICE, NameKind::Service).unwrap()).step(&[]).unwrap() {
            Progress::More { unfinished, token } => (unfinished, token),
            Progress::Done { .. } => panic!("the service has not proven anything yet"),
        }
    }

    /// A client with a context of this user.
    pub(crate) async fn client(&self, user: &str) -> Client {
        let (initiator, token) = self.initiate(user);
        let (header, results) = self.send(init(1, b"", &token)).await.unwrap();
        assert_eq!(header.status, Ok(()));
        let made = Made::read(results);
        assert_eq!((made.major, made.minor), (0, 0));
        let Progress::Done { mut context, .. } = initiator.step(&made.token).unwrap() else { panic!("not made") };
        assert_eq!(header.verifier.flavour, RPCSEC_GSS);
        context.verify(&made.window.to_be_bytes(), &header.verifier.body).expect("the window is signed");
        Client { context, handle: made.handle, xid: 1, window: made.window }
    }
}

fn connection(address: [u8; 4]) -> (CallContext, GoneSignal) {
    let (signal, gone) = GoneSignal::new();
    let peer = (address, 700).into();
    let limits = Limits::new(1 << 20, 1 << 20);
    let connection = Connection::new(peer, peer, 1, TransportKind::Tcp, limits, Arc::new(Heap), gone);
    (CallContext::new(Arc::new(connection)), signal)
}

/// A message that makes a context: procedure 1 begins, 2 goes on.
pub(crate) fn init(procedure: u32, handle: &[u8], token: &[u8]) -> Payload {
    let mut arguments = Encoder::new();
    arguments.opaque(token);
    let credential = credential([1, procedure, 0xdead, 0xbeef], handle);
    message(id(0, 5), credential, OpaqueAuth::none(), arguments.finish())
}

pub(crate) fn id(procedure: u32, xid: u32) -> CallId {
    CallId { xid, program: 77, version: 1, procedure }
}

/// Version, procedure, sequence number, service, handle.
pub(crate) fn credential(words: [u32; 4], handle: &[u8]) -> OpaqueAuth {
    let mut body = Encoder::new();
    words.into_iter().for_each(|word| body.u32(word));
    body.opaque(handle);
    OpaqueAuth { flavour: RPCSEC_GSS, body: body.finish().to_bytes() }
}

pub(crate) fn message(id: CallId, credential: OpaqueAuth, verifier: OpaqueAuth, body: Payload) -> Payload {
    let mut encoder = Encoder::new();
    CallHeader { id, credential, verifier }.encode(&mut encoder);
    encoder.payload(body);
    encoder.finish()
}

/// The server's answer to a token.
pub(crate) struct Made {
    pub(crate) handle: Vec<u8>,
    pub(crate) major: u32,
    pub(crate) minor: u32,
    pub(crate) window: u32,
    pub(crate) token: Vec<u8>,
}

impl Made {
    pub(crate) fn read(mut results: Decoder) -> Self {
        let handle = results.opaque(64).unwrap().to_vec();
        let [major, minor, window] = [0; 3].map(|_| results.u32().unwrap());
        let token = results.opaque(4096).unwrap().to_vec();
        results.finish().unwrap();
        Self { handle, major, minor, window, token }
    }
}

/// The plan of a call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) xid: u32,
    /// Of RPCSEC_GSS: 0 is data, 3 destroys.
    pub(crate) control: u32,
    pub(crate) procedure: u32,
    pub(crate) sequence: u32,
    /// The sequence number in the body.
    pub(crate) inner: u32,
    /// 1 authentication, 2 integrity, 3 privacy.
    pub(crate) service: u32,
    pub(crate) word: Option<u32>,
}

impl Plan {
    /// A call of procedure 1 with a word.
    pub(crate) fn new(service: u32, sequence: u32) -> Self {
        Self { xid: sequence, control: 0, procedure: 1, sequence, inner: sequence, service, word: Some(7 + sequence) }
    }
}

pub(crate) struct Client {
    pub(crate) context: Context,
    pub(crate) handle: Vec<u8>,
    pub(crate) window: u32,
    xid: u32,
}

impl Client {
    pub(crate) fn call(&mut self, plan: Plan) -> Payload {
        let body = self.body(plan);
        self.call_with(plan, body)
    }

    /// A call with any body, whose header is signed.
    pub(crate) fn call_with(&mut self, plan: Plan, body: Payload) -> Payload {
        self.xid += 1;
        let credential = credential([1, plan.control, plan.sequence, plan.service], &self.handle);
        let unsigned = message(id(plan.procedure, plan.xid), credential.clone(), OpaqueAuth::none(), Payload::new());
        let header = unsigned.to_bytes();
        // The signed part: all but the empty verifier.
        let checksum = self.context.sign(&header[..header.len() - 8]).unwrap();
        let verifier = OpaqueAuth { flavour: RPCSEC_GSS, body: checksum.into() };
        message(id(plan.procedure, plan.xid), credential, verifier, body)
    }

    fn body(&mut self, plan: Plan) -> Payload {
        let mut encoder = Encoder::new();
        if plan.service == 1 {
            plan.word.into_iter().for_each(|word| encoder.u32(word));
            return encoder.finish();
        }
        let words: Vec<u8> = [plan.inner].into_iter().chain(plan.word).flat_map(u32::to_be_bytes).collect();
        if plan.service == 2 {
            let checksum = self.context.sign(&words).unwrap();
            encoder.opaque(&words);
            encoder.opaque(&checksum);
        } else {
            encoder.opaque(&self.context.seal(&words).unwrap());
        }
        encoder.finish()
    }

    /// Checks the whole reply. Returns the words of its results.
    pub(crate) fn results(&mut self, plan: Plan, (header, mut results): Replied) -> Result<Vec<u32>, Rejection> {
        assert_eq!(header.verifier.flavour, RPCSEC_GSS, "{header:?}");
        self.context.verify(&plan.sequence.to_be_bytes(), &header.verifier.body).expect("the reply's verifier");
        header.status?;
        let plain = match plan.service {
            1 => {
                let len = results.remaining();
                results.opaque_fixed(len).unwrap()
            }
            2 => {
                let octets = results.opaque(4096).unwrap();
                let checksum = results.opaque(400).unwrap();
                self.context.verify(&octets, &checksum).expect("the results' checksum");
                octets
            }
            _ => {
                let opened = self.context.open(&results.opaque(4096).unwrap()).expect("results that are sealed");
                assert!(opened.is_confidential);
                opened.octets.into()
            }
        };
        results.finish().unwrap();
        let mut words = plain.chunks(4).map(|word| u32::from_be_bytes(word.try_into().unwrap()));
        if plan.service != 1 {
            assert_eq!(words.next(), Some(plan.sequence), "the number in the body");
        }
        Ok(words.collect())
    }
}
