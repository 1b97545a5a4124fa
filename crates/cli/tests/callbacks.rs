//! The server calls our own clients: over TCP, and over software iWARP in both versions of RPC-over-RDMA.

mod common;

use common::{Server, served};
use rpcrdma::{Quiet, Reverse, Versions};
use rpcrdma_env::{BoxFuture, Env, Heap};
use rpcrdma_iwarp::{Config, Iwarp};
use rpcrdma_nfs::v4::{
    Args, Arguments, ClientName, Handle, Name, Outcome, Owner, OwnerName, PROGRAM, Results, SessionId, StateId, Status,
    VERSION, Verifier,
    callback::{self, CbSequenceOk},
    ops::{
        self, Claim, CreateHow, LockKind, Locker, NewLocker, OpenHow, TRANSIENT_PROGRAM, create_session, open_result,
    },
};
use rpcrdma_oncrpc::{
    Answer, CallContext, Client, ClientTransport, ReplyShape, Router, Service, SysAuth, SysCredential,
    tcp::{self, TcpConnector},
};
use rpcrdma_xdr::{Decode, Decoder, Encode, Encoder, ItemData};
use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};
use tokio::{sync::mpsc, time::timeout};

/// How long anything may take that takes milliseconds.
const PATIENCE: Duration = Duration::from_secs(20);
/// Octets of a reply with all that is asked for here.
const MAX_RESULTS: usize = 4_096;

/// A client's program: does all that it is asked, and tells what it was.
struct Answers {
    heard: mpsc::UnboundedSender<callback::Arguments>,
}

impl Service for Answers {
    fn program(&self) -> u32 {
        TRANSIENT_PROGRAM
    }

    fn version(&self) -> u32 {
        callback::VERSION
    }

    fn is_idempotent(&self, _: u32) -> bool {
        true
    }

    fn call(&self, _: CallContext, _: u32, mut args: Decoder) -> BoxFuture<'static, Answer> {
        let Ok(call) = callback::Arguments::decode(&mut args) else {
            return Box::pin(std::future::ready(Answer::GarbageArgs));
        };
        let outcomes = call.ops.iter().map(|op| match op {
            callback::Args::Sequence(asked) => {
                let callback::CbSequence { session, sequence, slot, .. } = *asked;
                let ok = CbSequenceOk { session, sequence, slot, highest_slot: 15, target_highest_slot: 15 };
                callback::Outcome::Sequence(Ok(ok))
            }
            callback::Args::NotifyLock(_) => callback::Outcome::NotifyLock(Ok(())),
            other => callback::Outcome::failed(other.op(), Status::NOTSUPP),
        });
        let results = callback::Results::of(call.tag.clone(), outcomes.collect());
        let mut encoder = Encoder::new();
        results.encode(&mut encoder);
        let _ = self.heard.send(call);
        Box::pin(std::future::ready(Answer::Results(encoder.finish())))
    }
}

/// How a client comes.
#[derive(Clone, Copy, Debug)]
enum Way {
    Tcp,
    Rdma(Versions),
}

async fn connect(server: &Server, way: Way, env: &Env) -> (Client, mpsc::UnboundedReceiver<callback::Arguments>) {
    let (heard, calls) = mpsc::unbounded_channel();
    let handler = Arc::new(Router::new(env).with_service(Arc::new(Answers { heard })));
    let transport: Arc<dyn ClientTransport> = match way {
        Way::Tcp => {
            let mut options = tcp::ClientOptions::default();
            options.reverse = Some(tcp::Reverse { handler, calls: 16 });
            let connector = Arc::new(TcpConnector::new(server.tcp.clone().unwrap().parse().unwrap()));
            let (transport, driver) = tcp::connect(connector, Arc::new(Heap), env, options).await.unwrap();
            tokio::spawn(driver);
            transport
        }
        Way::Rdma(versions) => {
            let mut options = rpcrdma::ClientOptions::default();
            (options.versions, options.reverse) = (versions, Some(Reverse { handler, credits: 16 }));
            let fabric = Arc::new(Iwarp::new(env.clone(), Config::default()));
            let address = server.rdma.parse().unwrap();
            let (transport, driver) = rpcrdma::connect(fabric, address, env, options, Arc::new(Quiet)).await.unwrap();
            tokio::spawn(driver);
            transport
        }
    };
    let identity = Arc::new(SysAuth::new(SysCredential::default()));
    (Client::new(transport, identity, PROGRAM, VERSION), calls)
}

/// A client with one session that can be called.
struct Session {
    client: Client,
    id: rpcrdma_nfs::v4::ClientId,
    session: SessionId,
    sequence: AtomicU32,
}

impl Session {
    async fn new(client: Client, name: &str) -> Self {
        let exchange = ops::ExchangeId::new(ClientName::from(name), Verifier([1; 8]), 0);
        let known = match send(&client, vec![Args::ExchangeId(exchange)]).await.remove(0) {
            Outcome::ExchangeId(known) => known.unwrap(),
            other => panic!("{other:?}"),
        };
        let channel = ops::ChannelAttributes::new(4_096 - 28, 2_048, 16, 16);
        let mut create = ops::CreateSession::new(&known, channel);
        create.flags = create_session::CONN_BACK_CHAN;
        let created = match send(&client, vec![Args::CreateSession(create)]).await.remove(0) {
            Outcome::CreateSession(created) => created.unwrap(),
            other => panic!("{other:?}"),
        };
        assert_eq!(created.flags, create_session::CONN_BACK_CHAN, "the server calls over this connection");
        let session = Self { client, id: known.client, session: created.session, sequence: AtomicU32::new(0) };
        let complete = ops::ReclaimComplete { one_file_system: false };
        session.call(vec![Args::ReclaimComplete(complete)]).await;
        session
    }

    async fn call(&self, ops: Vec<Args>) -> Vec<Outcome<ItemData>> {
        let sequence = self.sequence.fetch_add(1, Ordering::Relaxed) + 1;
        let session = self.session;
        let first = Args::Sequence(ops::Sequence { session, sequence, slot: 0, highest_slot: 0, cache: false });
        let mut outcomes = send(&self.client, [vec![first], ops].concat()).await;
        assert!(matches!(outcomes.remove(0), Outcome::Sequence(Ok(ok)) if ok.status == 0));
        outcomes
    }

    async fn open(&self, name: &str) -> (Handle, ops::OpenOk) {
        let how = OpenHow::Create(CreateHow::Unchecked(rpcrdma_nfs::v4::FileAttributes::of(&[
            rpcrdma_nfs::v4::Value::Mode(0o666),
        ])));
        let claim = Claim::Null(Name::from(name));
        // The others open it, too, and would wait for a delegation.
        let access = 3 | ops::share::WANT_NONE;
        let open = ops::Open { sequence: 0, access, deny: 0, owner: self.owner("o"), how, claim };
        let mut outcomes = self.call(vec![Args::PutRootFh, Args::Open(open), Args::GetFh]).await;
        match (outcomes.pop(), outcomes.pop()) {
            (Some(Outcome::GetFh(Ok(handle))), Some(Outcome::Open(Ok(opened)))) => (handle.file, opened),
            other => panic!("{other:?}"),
        }
    }

    fn owner(&self, name: &str) -> Owner {
        Owner { client: self.id, name: OwnerName::from(name) }
    }

    /// Locks all of a file for writing.
    async fn lock(&self, file: &Handle, open_state: StateId, kind: LockKind) -> Result<StateId, Status> {
        let locker = Locker::New(NewLocker { open_sequence: 0, open_state, lock_sequence: 0, owner: self.owner("l") });
        let lock = ops::Lock { kind, reclaim: false, offset: 0, length: u64::MAX, locker };
        let put = Args::PutFh(ops::PutFh { file: file.clone() });
        match self.call(vec![put, Args::Lock(lock)]).await.pop() {
            Some(Outcome::Lock(Ok(ok))) => Ok(ok.state),
            Some(failed) => Err(failed.status()),
            None => panic!("no results"),
        }
    }
}

async fn send(client: &Client, ops: Vec<Args>) -> Vec<Outcome<ItemData>> {
    let mut encoder = Encoder::new();
    Arguments::new(2, ops).encode(&mut encoder);
    let call = client.call(1, encoder.finish(), ReplyShape::inline(MAX_RESULTS));
    let results = timeout(PATIENCE, call).await.expect("the server answers").unwrap();
    results.decode::<Results<ItemData>>().unwrap().results
}

/// proves: ULB-6.2-a
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn our_clients_are_called_over_every_transport() {
    let scratch = tempfile::tempdir().unwrap();
    let more = ["--tcp", "127.0.0.1:0", "--no-root-squash"];
    let server = Server::start(&served(scratch.path()), &scratch.path().join("state"), &more);
    let env = rpcrdma_env::tokio_env().unwrap();
    for way in [Way::Tcp, Way::Rdma(Versions::One), Way::Rdma(Versions::Two)] {
        let name = format!("{way:?}");
        let (first, _calls) = connect(&server, way, &env).await;
        let has = Session::new(first, &format!("has {way:?}")).await;
        let (second, mut calls) = connect(&server, way, &env).await;
        let waits = Session::new(second, &format!("waits {way:?}")).await;
        let (file, opened) = has.open(&name).await;
        let locked = has.lock(&file, opened.state, LockKind::Write).await.unwrap();
        // The server learns of the answer to CB_NULL by and by.
        let opened = timeout(PATIENCE, async {
            loop {
                let (_, opened) = waits.open(&name).await;
                if opened.flags & open_result::MAY_NOTIFY_LOCK != 0 {
                    break opened;
                }
            }
        });
        let opened = opened.await.expect("the client can be called");
        assert_eq!(waits.lock(&file, opened.state, LockKind::WriteWaiting).await, Err(Status::DENIED));
        let unlock = ops::LockU { kind: LockKind::Write, sequence: 0, state: locked, offset: 0, length: u64::MAX };
        let put = Args::PutFh(ops::PutFh { file: file.clone() });
        assert!(has.call(vec![put, Args::LockU(unlock)]).await.iter().all(|outcome| outcome.status() == Status::OK));
        let call = timeout(PATIENCE, calls.recv()).await.expect("the client is told").unwrap();
        let [callback::Args::Sequence(sequence), callback::Args::NotifyLock(notify)] = &call.ops[..] else {
            panic!("{way:?}: {call:?}");
        };
        assert_eq!((call.minor, sequence.session, sequence.sequence), (2, waits.session, 1), "{way:?}");
        assert_eq!((&notify.file, &notify.owner), (&file, &waits.owner("l")), "{way:?}");
        waits.lock(&file, opened.state, LockKind::WriteWaiting).await.unwrap();
    }
}
