//! Clients of minor version 0 are called where they say, within limits, and only at their own address.

use super::*;
use crate::{
    Export, Identities, MemoryFs, Nfsd, Queue, Squash, StateDirectory, Version4,
    nfs4::{
        state::owners::Share,
        testing::{TestClient, back, only},
        testing40::Client40,
    },
    testing::{Client as Caller, SECRET},
};
use rpcrdma_env::{Clock, SeededRandom};
use rpcrdma_nfs::v4::{
    Handle, Opaque, StateId, Status,
    callback::{CbGetAttr, CbRecall},
    ops,
};
use rpcrdma_oncrpc::{
    Answer, CallContext, Credential, Router, Service,
    tcp::{Endpoint, ServerOptions},
};
use rpcrdma_xdr::{Decode, Decoder, Encode, Encoder};
use std::{
    pin::Pin as Pinned,
    sync::atomic::{AtomicU64, AtomicUsize},
    task::{Context, Poll, Waker},
};
use tokio::runtime::Runtime;

const PROGRAM: u32 = 0x4000_0000;

/// What a client does that is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Manner {
    Answers,
    /// It refuses connections.
    Away,
    /// It takes what comes and says nothing.
    Silent,
    /// It ends each connection with the first call.
    HangsUp,
    /// It answers something else than it was asked.
    Lies,
    /// It does not speak this minor version.
    Refuses,
    /// It does what it is asked, where the others know no file.
    Honest,
    /// It takes no connection, and refuses none.
    Lost,
    /// It takes a connection after nine seconds, and two for each answer.
    Slow,
}

/// A client's callback program, and the network to it.
#[derive(Clone)]
struct Called {
    manner: Arc<Mutex<Manner>>,
    /// Connections that were asked for, and those that stand.
    dialled: Arc<Mutex<Vec<(IpAddr, SocketAddr)>>>,
    standing: Arc<AtomicUsize>,
    heard: Arc<Mutex<Vec<(Arguments, Credential)>>>,
    steps: Arc<Steps>,
}

impl Called {
    fn new(manner: Manner, steps: Arc<Steps>) -> Self {
        Self {
            manner: Arc::new(Mutex::new(manner)),
            dialled: Arc::default(),
            standing: Arc::default(),
            heard: Arc::default(),
            steps,
        }
    }

    fn after(&self, seconds: u64) -> Sleep {
        let until = self.steps.nanos.load(Ordering::SeqCst) + seconds * 1_000_000_000;
        Sleep(self.steps.clone(), Timestamp::from_nanos(until))
    }

    fn manner(&self) -> Manner {
        *self.manner.lock().unwrap()
    }

    fn set(&self, manner: Manner) {
        *self.manner.lock().unwrap() = manner;
    }

    fn dials(&self) -> usize {
        self.dialled.lock().unwrap().len()
    }

    fn standing(&self) -> usize {
        self.standing.load(Ordering::SeqCst)
    }
}

impl Dial for Called {
    fn dial(&self, from: IpAddr, to: SocketAddr) -> BoxFuture<'static, io::Result<Box<dyn Io>>> {
        self.dialled.lock().unwrap().push((from, to));
        if self.manner() == Manner::Away {
            return Box::pin(std::future::ready(Err(io::ErrorKind::ConnectionRefused.into())));
        }
        if self.manner() == Manner::Lost {
            return Box::pin(std::future::pending());
        }
        let (ours, theirs) = tokio::io::duplex(1 << 16);
        // Who says nothing has the other end of this one, and reads it.
        let (ours, mut silent) =
            if self.manner() == Manner::Silent { tokio::io::duplex(1 << 16) } else { (ours, tokio::io::duplex(1).0) };
        let env = Env { clock: Arc::new(StepClock(Arc::default())), random: Arc::new(SeededRandom::new(1)) };
        let handler = Arc::new(Router::new(&env).with_service(Arc::new(self.clone())));
        let endpoint = Endpoint { peer: to, local: to, id: 1, allocator: Arc::new(Heap) };
        let (_, serving) = tcp::serve(theirs, endpoint, handler, env.clock.clone(), ServerOptions::default());
        let called = self.clone();
        called.standing.fetch_add(1, Ordering::SeqCst);
        let manner = called.manner();
        tokio::spawn(async move {
            match manner {
                Manner::HangsUp => {}
                Manner::Silent => drop(tokio::io::copy(&mut silent, &mut tokio::io::sink()).await),
                _ => drop(serving.await),
            }
            called.standing.fetch_sub(1, Ordering::SeqCst);
        });
        let taken = self.after(if manner == Manner::Slow { 9 } else { 0 });
        Box::pin(async move {
            taken.await;
            Ok(Box::new(ours) as Box<dyn Io>)
        })
    }
}

impl Service for Called {
    fn program(&self) -> u32 {
        PROGRAM
    }

    fn version(&self) -> u32 {
        VERSION
    }

    fn is_idempotent(&self, _: u32) -> bool {
        true
    }

    fn call(&self, context: CallContext, _: u32, mut args: Decoder) -> BoxFuture<'static, Answer> {
        let manner = self.manner();
        let call = Arguments::decode(&mut args).unwrap();
        let outcomes = match manner {
            Manner::Lies => vec![Outcome::failed(rpcrdma_nfs::v4::callback::Op::GetAttr, Status::OK)],
            Manner::Honest => call.ops.iter().map(|op| back::outcome(op.op(), Status::OK)).collect(),
            _ => call.ops.iter().map(|op| Outcome::failed(op.op(), Status::BADHANDLE)).take(1).collect(),
        };
        let mut results = Results::of(call.tag.clone(), outcomes);
        if manner == Manner::Refuses {
            results = Results { status: Status::MINOR_VERS_MISMATCH, results: Vec::new(), ..results };
        }
        self.heard.lock().unwrap().push((call, context.credential));
        let mut encoder = Encoder::new();
        results.encode(&mut encoder);
        let (answer, ready) = (encoder.finish(), self.after(if manner == Manner::Slow { 2 } else { 0 }));
        Box::pin(async move {
            ready.await;
            Answer::Results(answer)
        })
    }
}

/// A clock that goes on when it is told.
#[derive(Default)]
struct Steps {
    nanos: AtomicU64,
    sleepers: Mutex<Vec<Waker>>,
}

impl Steps {
    fn step(&self, seconds: u64) {
        self.nanos.fetch_add(seconds * 1_000_000_000, Ordering::SeqCst);
        self.sleepers.lock().unwrap().drain(..).for_each(Waker::wake);
    }
}

/// Completes when it is time.
struct Sleep(Arc<Steps>, Timestamp);

impl Future for Sleep {
    type Output = ();

    fn poll(self: Pinned<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        self.0.sleepers.lock().unwrap().push(cx.waker().clone());
        if self.0.nanos.load(Ordering::SeqCst) >= self.1.as_nanos() { Poll::Ready(()) } else { Poll::Pending }
    }
}

/// The clock of a server.
struct StepClock(Arc<Steps>);

impl Clock for StepClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_nanos(self.0.nanos.load(Ordering::SeqCst))
    }

    fn sleep_until(&self, when: Timestamp) -> BoxFuture<'static, ()> {
        Box::pin(Sleep(self.0.clone(), when))
    }

    fn unix_time(&self) -> Duration {
        Duration::from_secs(1_000_000_000)
    }
}

/// A server whose time passes when it is told.
struct Stage {
    runtime: Runtime,
    steps: Arc<Steps>,
    nfsd: Arc<Nfsd>,
    called: Called,
    _scratch: tempfile::TempDir,
}

impl Stage {
    fn new(manner: Manner) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let (steps, scratch) = (Arc::new(Steps::default()), tempfile::tempdir().unwrap());
        let called = Called::new(manner, steps.clone());
        let env = Env { clock: Arc::new(StepClock(steps.clone())), random: Arc::new(SeededRandom::new(1)) };
        let state = StateDirectory::open(scratch.path(), &*env.random).unwrap();
        let version_4 = Version4::new(&state, Queue::in_place()).with_dialler(Arc::new(called.clone()));
        // Who wants what is delegated asks again.
        let version_4 = version_4.with_recall_wait(Duration::ZERO);
        let trusting = Identities { squash: Squash::None, ..Identities::default() };
        let export = Export::new("/", Arc::new(MemoryFs::new(1 << 20, &env))).with_identities(trusting);
        let nfsd = Nfsd::new(vec![export], SECRET, &env).unwrap().with_version_4(version_4, false, &env).unwrap();
        runtime.spawn(nfsd.upkeep());
        Self { runtime, steps, nfsd: Arc::new(nfsd), called, _scratch: scratch }
    }

    fn shared(&self) -> Arc<Shared> {
        self.nfsd.shared_of_version_4().clone()
    }

    /// Time passes, and what is due is done.
    fn pass(&self, seconds: u64) {
        for _ in 0..seconds {
            self.settle();
            self.steps.step(1);
        }
        self.settle();
    }

    /// Whatever can be done is done.
    fn settle(&self) {
        self.runtime.block_on(async {
            for _ in 0..200 {
                tokio::task::yield_now().await;
            }
        });
    }

    /// A client that wants to be called at an address, and what the server knows of it.
    fn client(&self, name: &str, netid: &str, address: &str) -> (Client40, Arc<Client<Pin>>) {
        let mut client = Client40::over(Caller::of(&self.nfsd), name);
        let id = self.register(&client, name, netid, address, 7);
        client.id = id;
        (client, self.shared().state.client_of_zero(id).unwrap())
    }

    fn register(
        &self,
        client: &Client40,
        name: &str,
        netid: &str,
        address: &str,
        ident: u32,
    ) -> rpcrdma_nfs::v4::ClientId {
        let set = ops::SetClientId {
            owner: ops::ClientOwner { verifier: rpcrdma_nfs::v4::Verifier([1; 8]), name: name.into() },
            callback: said(netid, address),
            callback_ident: ident,
        };
        let told = only!(client.one(rpcrdma_nfs::v4::Args::SetClientId(set)), SetClientId).unwrap();
        let confirm = ops::SetClientIdConfirm { client: told.client, confirm: told.confirm };
        assert_eq!(client.one(rpcrdma_nfs::v4::Args::SetClientIdConfirm(confirm)).status(), Status::OK);
        told.client
    }

    fn call(&self, client: &Arc<Client<Pin>>, ops: Vec<Args>) -> Result<Vec<Outcome>, NoAnswer> {
        self.timed(client, ops).0
    }

    /// Calls that begin one second after the other, to their end, and how many seconds they took together.
    fn together(&self, client: &Arc<Client<Pin>>, count: usize) -> (Vec<Result<Vec<Outcome>, NoAnswer>>, u64) {
        let mut calls = Vec::new();
        for _ in 0..count {
            calls.push(self.runtime.spawn(self.shared().call_back(client, vec![recall()], Vec::new())));
            self.pass(1);
        }
        let mut took = count as u64;
        while !calls.iter().all(tokio::task::JoinHandle::is_finished) {
            self.pass(1);
            took += 1;
        }
        (calls.into_iter().map(|call| self.runtime.block_on(call).unwrap()).collect(), took)
    }

    /// The same, and how many seconds it took.
    fn timed(&self, client: &Arc<Client<Pin>>, ops: Vec<Args>) -> (Result<Vec<Outcome>, NoAnswer>, u64) {
        let calling = self.runtime.spawn(self.shared().call_back(client, ops, Vec::new()));
        let mut took = 0;
        self.settle();
        while !calling.is_finished() {
            self.pass(1);
            took += 1;
        }
        (self.runtime.block_on(calling).unwrap(), took)
    }
}

fn said(netid: &str, address: &str) -> CallbackClient {
    let of = |text: &str| Opaque(text.to_owned().into());
    CallbackClient { program: PROGRAM, address: ops::NetAddress { netid: of(netid), address: of(address) } }
}

const HERE: &str = "127.0.0.1.8.1";

fn recall() -> Args {
    let state = StateId { sequence: 1, other: rpcrdma_nfs::v4::StateIdOther([1; 12]) };
    Args::Recall(CbRecall { state, truncate: false, file: Handle::new(b"file").unwrap() })
}

/// proves: ULB-6.1-a, ULB-6.1-b, ULB-6.1-c
#[test]
fn only_the_address_that_a_client_calls_from_is_called_and_only_by_tcp() {
    let v4: IpAddr = [192, 0, 2, 1].into();
    let v6: IpAddr = "2001:db8::1".parse().unwrap();
    let to = |netid, address, peer| target(&said(netid, address), peer).map(|to| to.to_string());
    assert_eq!(to("tcp", "192.0.2.1.8.1", v4).as_deref(), Some("192.0.2.1:2049"));
    assert_eq!(to("tcp6", "2001:db8::1.3.255", v6).as_deref(), Some("[2001:db8::1]:1023"));
    let mapped = "::ffff:192.0.2.1".parse().unwrap();
    assert_eq!(to("tcp", "192.0.2.1.8.1", mapped).as_deref(), Some("192.0.2.1:2049"), "as an IPv6 socket tells it");
    for (netid, address, peer) in [
        ("tcp", "192.0.2.2.8.1", v4),
        ("tcp6", "2001:db8::2.8.1", v6),
        ("tcp", "127.0.0.1.8.1", v4),
        ("tcp", "192.0.2.1.0.0", v4),
        ("tcp6", "192.0.2.1.8.1", v4),
        ("tcp", "2001:db8::1.8.1", v6),
        ("rdma", "192.0.2.1.8.1", v4),
        ("rdma6", "2001:db8::1.8.1", v6),
        ("udp", "192.0.2.1.8.1", v4),
        ("", "", v4),
        ("tcp", "192.0.2.1", v4),
        ("tcp", "host.8.1", v4),
        ("tcp", "192.0.2.1.8.256", v4),
    ] {
        assert_eq!(to(netid, address, peer), None, "{netid} {address} by {peer}");
    }
    let strange = ops::NetAddress { netid: Opaque("tcp".into()), address: Opaque(vec![0xFF; 9].into()) };
    assert_eq!(target(&CallbackClient { program: 1, address: strange }, v4), None);
    // Nor does the server try.
    let stage = Stage::new(Manner::Answers);
    for (name, netid, address) in [("a", "tcp", "192.0.2.1.8.1"), ("b", "rdma", HERE)] {
        let (_, client) = stage.client(name, netid, address);
        stage.pass(1);
        assert!(!stage.shared().can_call(&client));
        assert_eq!(stage.call(&client, vec![recall()]), Err(NoAnswer::NoPath));
    }
    assert_eq!(stage.called.dials(), 0);
}

/// proves: NFS4-7530-15-a, ULB-6.1-b
#[test]
fn a_client_that_answers_is_called_with_what_it_said() {
    let stage = Stage::new(Manner::Answers);
    let (caller, client) = stage.client("a", "tcp", HERE);
    assert!(!stage.shared().can_call(&client), "it has not shown that it answers");
    stage.pass(1);
    assert!(stage.shared().can_call(&client));
    let local: IpAddr = [127, 0, 0, 1].into();
    assert_eq!(*stage.called.dialled.lock().unwrap(), [(local, SocketAddr::new(local, 2049))]);
    let get = Args::GetAttr(CbGetAttr { file: Handle::new(b"file").unwrap(), asked: Default::default() });
    for op in [recall(), get] {
        let outcomes = stage.call(&client, vec![op.clone()]).unwrap();
        assert_eq!((outcomes.len(), outcomes[0].op(), outcomes[0].status()), (1, Some(op.op()), Status::BADHANDLE));
        let (call, credential) = stage.called.heard.lock().unwrap().pop().unwrap();
        assert_eq!((call.minor, call.ident, call.ops), (0, 7, vec![op]));
        assert!(matches!(credential, Credential::Sys(_)), "{credential:?}");
    }
    assert_eq!((stage.called.dials(), stage.called.standing()), (1, 1), "over one connection");
    // What it says anew counts from then on.
    stage.register(&caller, "a", "tcp", "127.0.0.1.9.1", 8);
    assert!(!stage.shared().can_call(&client));
    stage.pass(1);
    assert!(stage.shared().can_call(&client));
    stage.call(&client, vec![recall()]).unwrap();
    assert_eq!(stage.called.heard.lock().unwrap().pop().unwrap().0.ident, 8);
    assert_eq!(stage.called.dialled.lock().unwrap()[1].1.port(), 2305);
    assert_eq!(stage.called.standing(), 1);
}

/// proves: NFS4-7530-15-a
#[test]
fn a_connection_that_is_not_used_is_ended_and_made_again() {
    let stage = Stage::new(Manner::Answers);
    let (_, client) = stage.client("a", "tcp", HERE);
    stage.pass(9);
    stage.call(&client, vec![recall()]).unwrap();
    stage.pass(9);
    assert_eq!((stage.called.dials(), stage.called.standing()), (1, 1));
    stage.pass(12);
    assert_eq!(stage.called.standing(), 0);
    assert!(stage.shared().can_call(&client));
    stage.call(&client, vec![recall()]).unwrap();
    assert_eq!((stage.called.dials(), stage.called.standing()), (2, 1));
    assert_eq!(lock(&stage.shared().dialler.counts).all, 1);
}

/// A hostile or broken client costs itself its callbacks, and nobody anything else.
///
/// proves: NFS4-7530-15-b
#[test]
fn a_client_that_does_not_answer_is_given_up_in_time() {
    for manner in [Manner::Away, Manner::Silent, Manner::HangsUp, Manner::Lies, Manner::Refuses] {
        let stage = Stage::new(manner);
        let (_, client) = stage.client("a", "tcp", HERE);
        stage.pass(30);
        let answers_null = matches!(manner, Manner::Lies | Manner::Refuses);
        assert_eq!(stage.shared().can_call(&client), answers_null, "{manner:?}");
        let expected = match manner {
            Manner::Away => NoAnswer::NoPath,
            Manner::Refuses => NoAnswer::Refused(Status::MINOR_VERS_MISMATCH),
            _ => NoAnswer::Lost,
        };
        let (answer, took) = stage.timed(&client, vec![recall()]);
        assert_eq!(answer, Err(expected), "{manner:?}");
        assert!(took <= ANSWER_TIME.as_secs(), "{manner:?} took {took} s");
        stage.pass(30);
        let counted = lock(&stage.shared().dialler.counts).all;
        assert_eq!((stage.called.standing(), counted), (0, 0), "{manner:?}");
    }
}

/// proves: NFS4-7530-16.29-a
#[test]
fn who_has_answered_once_and_cannot_be_reached_any_more_counts_as_such() {
    let stage = Stage::new(Manner::Answers);
    let (_, client) = stage.client("a", "tcp", HERE);
    stage.pass(30);
    assert!(stage.shared().can_call(&client));
    stage.called.set(Manner::Away);
    assert_eq!(stage.timed(&client, vec![recall()]).0, Err(NoAnswer::NoPath));
    assert!(!stage.shared().can_call(&client), "it gets no delegations, and RENEW says why");
}

/// proves: NFS4-7530-16.29-a
#[test]
fn renew_says_when_a_client_with_delegations_cannot_be_called_and_tries_again() {
    let stage = Stage::new(Manner::Away);
    let (caller, client) = stage.client("a", "tcp", HERE);
    let owner = caller.owner("o");
    let (_, state) = caller.create(&owner, "f");
    assert_eq!(caller.renew(), Status::OK, "it has no delegation");
    let shared = stage.shared();
    let recorded = shared.state.recovery.recorded(&client).unwrap();
    let (_, name) = client.held.owner_of(state).unwrap();
    assert_eq!(name, owner.owner.name);
    let file = crate::claims::FileKey { file_system: 1, file: crate::FileId::new(b"f").unwrap() };
    let pin = {
        let root = caller.open(&owner, "f", 1, 0).unwrap();
        let key = client.held.file_of(root.1).unwrap();
        client.held.pin(root.1, key, 1).unwrap().unwrap()
    };
    client.held.delegate(&recorded, file, Share::new(1, 0).unwrap(), pin).unwrap();
    assert_eq!(caller.renew(), Status::CB_PATH_DOWN);
    stage.pass(31);
    stage.called.set(Manner::Answers);
    assert_eq!(caller.renew(), Status::CB_PATH_DOWN, "it is tried");
    stage.pass(1);
    assert_eq!(caller.renew(), Status::OK);
}

fn address(last: u8) -> SocketAddr {
    ([10, 0, 0, last], 2049).into()
}

/// proves: NFS4-7530-15-c
#[test]
fn connections_are_limited_at_a_time_by_address_and_in_a_minute() {
    let at = |seconds: u64| Timestamp::from_nanos(seconds * 1_000_000_000);
    let dialler = Dialler::default();
    let mut standing: Vec<_> =
        (0..MAX_DIALLED_OF_ADDRESS).map(|_| dialler.permit(address(0), at(0)).unwrap()).collect();
    assert!(dialler.permit(address(0), at(0)).is_none(), "one past the limit of an address");
    for number in standing.len()..MAX_DIALLED {
        standing.push(dialler.permit(address(1 + (number / MAX_DIALLED_OF_ADDRESS) as u8), at(0)).unwrap());
    }
    assert!(dialler.permit(address(200), at(0)).is_none(), "one past the limit of all");
    drop(standing.pop());
    assert!(dialler.permit(address(200), at(0)).is_some());
    standing.clear();
    let left = |counts: &Counts| (counts.all, counts.of.len());
    assert_eq!(left(&lock(&dialler.counts)), (0, 0));
    for _ in MAX_DIALLED_OF_ADDRESS..MAX_DIALS_IN_MINUTE {
        assert!(dialler.permit(address(0), at(1)).is_some());
    }
    assert!(dialler.permit(address(0), at(1)).is_none(), "one past the limit of a minute");
    assert!(dialler.permit(address(9), at(1)).is_some(), "which is the address's own");
    let end = Timestamp::from_nanos(at(60).as_nanos() - 1);
    assert!(dialler.permit(address(0), end).is_none());
    for _ in 0..MAX_DIALLED_OF_ADDRESS {
        assert!(dialler.permit(address(0), at(60)).is_some(), "those of a minute ago do not count");
    }
    assert!(dialler.permit(address(0), at(60)).is_none());
    let _ = dialler.permit(address(0), at(1_000));
    assert_eq!(lock(&dialler.counts).tried.len(), 1, "what is past is forgotten");
}

/// One host may have all addresses of a network, and its neighbours have theirs.
///
/// proves: NFS4-7530-15-c
#[test]
fn addresses_of_one_network_have_connections_each_and_not_all_together() {
    let address = |last: u16| SocketAddr::new(std::net::Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, last).into(), 2049);
    let dialler = Dialler::default();
    let mut standing = Vec::new();
    for number in 0..MAX_DIALLED_OF_NETWORK {
        let address = address((number / MAX_DIALLED_OF_ADDRESS) as u16);
        standing.push(dialler.permit(address, Timestamp::ZERO).expect("each has its own"));
    }
    assert!(dialler.permit(address(99), Timestamp::ZERO).is_none(), "one past the limit of a network");
    let other = SocketAddr::new("2001:db8:1::1".parse().unwrap(), 2049);
    assert!(dialler.permit(other, Timestamp::ZERO).is_some());
    standing.pop();
    assert!(dialler.permit(address(99), Timestamp::ZERO).is_some());
}

/// Whatever there is to call it for, the server tries less and less often.
///
/// proves: NFS4-7530-15-c
#[test]
fn a_client_that_does_not_answer_leaves_attempts_for_others_at_its_address() {
    for manner in [Manner::Away, Manner::HangsUp, Manner::Silent, Manner::Lost] {
        let stage = Stage::new(manner);
        let (_, client) = stage.client("a", "tcp", HERE);
        stage.pass(1);
        let mut seconds = 0;
        while seconds < 60 {
            let (answer, took) = stage.timed(&client, vec![recall()]);
            assert!(answer.is_err());
            stage.pass(2);
            seconds += took + 2;
        }
        let dials = stage.called.dials();
        assert!((2..=MAX_DIALS_IN_MINUTE / 2).contains(&dials), "{manner:?}: {dials}");
        stage.called.set(Manner::Answers);
        let (_, neighbour) = stage.client("b", "tcp", HERE);
        stage.pass(1);
        assert!(stage.shared().can_call(&neighbour), "{manner:?}");
        // It is there again.
        stage.pass(LONGEST_PAUSE.as_secs());
        assert!(stage.call(&client, vec![recall()]).is_ok(), "{manner:?}");
    }
}

/// proves: NFS4-7530-15-c
#[test]
fn who_waits_for_a_connection_that_is_not_made_makes_none_when_it_is_too_late() {
    let stage = Stage::new(Manner::Away);
    let (_, client) = stage.client("a", "tcp", HERE);
    stage.pass(FIRST_PAUSE.as_secs() + 1);
    stage.called.set(Manner::Lost);
    let before = stage.called.dials();
    let (answers, took) = stage.together(&client, 3);
    assert_eq!(answers, vec![Err(NoAnswer::NoPath); 3]);
    assert!(took <= ANSWER_TIME.as_secs() + 2, "{took} s");
    assert_eq!(stage.called.dials(), before + 1);
}

/// The connection came late, and the client had no time for an answer: it is not the client's fault.
#[test]
fn a_connection_that_came_late_is_not_ended_for_that() {
    let stage = Stage::new(Manner::Away);
    let (_, client) = stage.client("a", "tcp", HERE);
    stage.pass(FIRST_PAUSE.as_secs() + 1);
    stage.called.set(Manner::Slow);
    let before = stage.called.dials();
    let (answers, _) = stage.together(&client, 1);
    assert_eq!(answers, [Err(NoAnswer::Lost)]);
    assert_eq!(stage.called.standing(), 1);
    assert!(stage.call(&client, vec![recall()]).is_ok());
    assert_eq!(stage.called.dials(), before + 1);
}

/// A client that says again and again where it wants to be called makes the server call no more often.
///
/// proves: NFS4-7530-15-c
#[test]
fn a_client_that_confirms_again_and_again_is_not_called_each_time() {
    let stage = Stage::new(Manner::Away);
    for number in 0..3 * MAX_DIALS_IN_MINUTE {
        stage.client(&format!("{number}"), "tcp", HERE);
        stage.pass(1);
    }
    assert_eq!(stage.called.dials(), MAX_DIALS_IN_MINUTE);
}

/// proves: NFS4-7530-16.18-d
#[test]
fn what_is_delegated_to_a_client_without_sessions_is_called_back_and_returned() {
    use rpcrdma_nfs::v4::{
        Args,
        ops::{Delegation, OpenOk, open_result},
    };
    const READ: u32 = 1;
    let stage = Stage::new(Manner::Honest);
    let (client, _) = stage.client("a", "tcp", HERE);
    let mut caller = Caller::of(&stage.nfsd);
    caller.connection = 2;
    let other = TestClient::new(caller, "b", 2, 1);
    other.reclaim_complete();
    let owner = client.owner("o");
    let (file, state) = client.create(&owner, "f");
    client.write(&file, state, b"data").unwrap();
    assert_eq!(client.close(&owner, &file, state), Status::OK);
    stage.settle();
    let state_of = |opened: &OpenOk| match &opened.delegation {
        Delegation::Read(delegation) => Some(delegation.state),
        _ => None,
    };

    let new = client.owner("new");
    let (_, unconfirmed) = client.open_as_is(client.to_open(&new, "f", READ, 0)).unwrap();
    assert_eq!(state_of(&unconfirmed), None, "who has not confirmed it gets nothing");
    let (_, opened) = client.open_as_is(client.to_open(&owner, "f", READ, 0)).unwrap();
    assert_eq!(opened.flags & open_result::MAY_NOTIFY_LOCK, 0);
    let delegation = state_of(&opened).unwrap_or_else(|| panic!("{:?}", opened.delegation));
    assert_eq!(client.read(&file, delegation), Ok(b"data".to_vec()));

    let recalls = || {
        let heard = stage.called.heard.lock().unwrap();
        let recalled = |(call, _): &(Arguments, Credential)| match &call.ops[..] {
            [super::Args::Recall(recall)] => Some((call.minor, call.ident, recall.state, recall.file.clone())),
            _ => None,
        };
        heard.iter().filter_map(recalled).collect::<Vec<_>>()
    };
    let write = |what: &str| {
        let written = other.write(&file, StateId::ANONYMOUS, 0, b"more").err().unwrap_or(Status::OK);
        stage.settle();
        assert_eq!(recalls(), [(0, 7, delegation, file.clone())], "{what}");
        written
    };
    assert_eq!(write("it is called back"), Status::DELAY);
    assert_eq!(write("once"), Status::DELAY);
    let give_back = ops::DelegReturn { state: delegation };
    assert_eq!(client.on(&file, Args::DelegReturn(give_back)).status(), Status::OK);
    assert_eq!(write("and is back"), Status::OK);
}

/// It cannot be told of a part of a loss, but a delegation may be taken from it alone.
///
/// proves: NFS4-7530-9.6.3-a
#[test]
fn a_client_without_sessions_that_is_away_loses_the_delegation_that_is_wanted_and_nothing_else() {
    use rpcrdma_nfs::v4::ops::Delegation;
    let stage = Stage::new(Manner::Honest);
    let (client, _) = stage.client("a", "tcp", HERE);
    let mut caller = Caller::of(&stage.nfsd);
    caller.connection = 2;
    let other = TestClient::new(caller, "b", 2, 1);
    other.reclaim_complete();
    let owner = client.owner("o");
    let (file, state) = client.create(&owner, "f");
    client.write(&file, state, b"data").unwrap();
    assert_eq!(client.close(&owner, &file, state), Status::OK);
    stage.settle();
    let (_, opened) = client.open_as_is(client.to_open(&owner, "f", 1, 0)).unwrap();
    let Delegation::Read(delegation) = &opened.delegation else { panic!("{:?}", opened.delegation) };
    for _ in 0..7 {
        stage.pass(13);
        other.walk("").unwrap();
    }
    let write = || other.write(&file, StateId::ANONYMOUS, 0, b"more").err().unwrap_or(Status::OK);
    assert_eq!(write(), Status::DELAY);
    stage.settle();
    assert_eq!(write(), Status::OK, "it was taken from it at once");
    assert_eq!(client.read(&file, opened.state), Ok(b"more".to_vec()), "its open is in nobody's way");
    assert_eq!(client.read(&file, delegation.state), Err(Status::BAD_STATEID));
    assert_eq!(client.renew(), Status::OK);
}
