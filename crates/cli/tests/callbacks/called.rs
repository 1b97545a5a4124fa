//! Clients with a session over which the server can call them, over every transport, and the operations that tests
//! need.

use crate::common::Server;
use rpcrdma_env::{BoxFuture, Env, Heap};
use rpcrdma_iwarp::{Config, Iwarp};
use rpcrdma_nfs::v4::{
    Args, Arguments, ClientId, ClientName, FileAttributes, Handle, Name, Outcome, Owner, OwnerName, PROGRAM, Results,
    SessionId, StateId, Status, Value, Verifier,
    callback::{self, CbSequenceOk},
    ops::{
        self, Claim, CreateHow, Delegation, LockKind, Locker, NewLocker, OpenHow, TRANSIENT_PROGRAM, create_session,
        share,
    },
};
use rpcrdma_oncrpc::{
    Answer, CallContext, Client, ClientTransport, ReplyShape, Router, Service, SysAuth, SysCredential,
    tcp::{self, TcpConnector},
};
use rpcrdma_transport::{Quiet, Reverse, Versions};
use rpcrdma_xdr::{Decode, Decoder, Encode, Encoder, ItemData};
use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};
use tokio::{sync::mpsc, time::timeout};

/// How long anything may take; usually it takes milliseconds.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);
/// The pause before a test asks again for something that takes a while.
pub(crate) const PAUSE: Duration = Duration::from_millis(10);
/// The most bytes of a reply to a call in these tests.
const MAX_RESULTS: usize = 4_096;

/// The most bytes of a call that goes inline with default options, as the back channel counts them.
pub(crate) const MAX_CALL: u32 = 4_096 - 28;

/// Access for reading, for writing and for both.
pub(crate) const READ: u32 = 1;
pub(crate) const WRITE: u32 = 2;
pub(crate) const BOTH: u32 = 3;

/// The server's calls to a client.
pub(crate) type Calls = mpsc::UnboundedReceiver<callback::Arguments>;

/// A client's callback program: does everything that the server asks, and reports the calls.
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
            callback::Args::Recall(_) => callback::Outcome::Recall(Ok(())),
            callback::Args::Offload(_) => callback::Outcome::Offload(Ok(())),
            other => callback::Outcome::failed(other.op(), Status::NOTSUPP),
        });
        let results = callback::Results::of(call.tag.clone(), outcomes.collect());
        let mut encoder = Encoder::new();
        results.encode(&mut encoder);
        let _ = self.heard.send(call);
        Box::pin(std::future::ready(Answer::Results(encoder.finish())))
    }
}

/// The transport of a client.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Way {
    Tcp,
    Rdma(Versions),
}

/// All transports.
pub(crate) const WAYS: [Way; 3] = [Way::Tcp, Way::Rdma(Versions::One), Way::Rdma(Versions::Two)];

/// Connects a client of this version of NFS.
pub(crate) async fn connect(server: &Server, way: Way, version: u32, env: &Env) -> (Client, Calls) {
    connect_with(server, way, version, env, |_| {}).await
}

/// The same, with other options of RDMA.
pub(crate) async fn connect_with(
    server: &Server,
    way: Way,
    version: u32,
    env: &Env,
    change: impl FnOnce(&mut rpcrdma_transport::ClientOptions),
) -> (Client, Calls) {
    let (transport, calls) = transport(server, way, env, change).await;
    (Client::new(transport, Arc::new(SysAuth::new(SysCredential::default())), PROGRAM, version), calls)
}

/// What carries a client's calls and the server's.
pub(crate) async fn transport(
    server: &Server,
    way: Way,
    env: &Env,
    change: impl FnOnce(&mut rpcrdma_transport::ClientOptions),
) -> (Arc<dyn ClientTransport>, Calls) {
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
            let mut options = rpcrdma_transport::ClientOptions::default();
            (options.versions, options.reverse) = (versions, Some(Reverse { handler, credits: 16 }));
            change(&mut options);
            let fabric = Arc::new(Iwarp::new(env.clone(), Config::default()));
            let address = server.rdma.parse().unwrap();
            let (transport, driver) =
                rpcrdma_transport::connect(fabric, address, env, options, Arc::new(Quiet)).await.unwrap();
            tokio::spawn(driver);
            transport
        }
    };
    (transport, calls)
}

/// Sends a COMPOUND as it is.
pub(crate) async fn send(client: &Client, minor: u32, ops: Vec<Args>) -> Vec<Outcome<ItemData>> {
    let mut encoder = Encoder::new();
    Arguments::new(minor, ops).encode(&mut encoder);
    let call = client.call(1, encoder.finish(), ReplyShape::inline(MAX_RESULTS));
    let results = timeout(PATIENCE, call).await.expect("the server answers").unwrap();
    results.decode::<Results<ItemData>>().unwrap().results
}

/// Asks again while the answer is DELAY.
pub(crate) async fn until_done<T>(ask: impl AsyncFn() -> Result<T, Status>) -> T {
    let asking = async {
        loop {
            match ask().await {
                Err(Status::DELAY) => tokio::time::sleep(PAUSE).await,
                other => return other.unwrap(),
            }
        }
    };
    timeout(PATIENCE, asking).await.expect("nobody waits for ever")
}

/// A client that the server can call, with one session.
pub(crate) struct Session {
    client: Client,
    minor: u32,
    pub(crate) id: ClientId,
    pub(crate) session: SessionId,
    sequence: AtomicU32,
}

impl Session {
    /// A session of minor version 2.
    pub(crate) async fn new(client: Client, name: &str) -> Self {
        Self::with(client, name, 2, MAX_CALL).await
    }

    /// A session of another minor version.
    pub(crate) async fn of_minor(client: Client, name: &str, minor: u32) -> Self {
        Self::with(client, name, minor, MAX_CALL).await
    }

    /// A session that takes calls of the server of at most so many bytes.
    pub(crate) async fn with(client: Client, name: &str, minor: u32, max_call: u32) -> Self {
        let exchange = ops::ExchangeId::new(ClientName::from(name), Verifier([1; 8]), 0);
        let known = match send(&client, minor, vec![Args::ExchangeId(Box::new(exchange))]).await.remove(0) {
            Outcome::ExchangeId(known) => known.unwrap(),
            other => panic!("{other:?}"),
        };
        let channel = ops::ChannelAttributes::new(MAX_CALL, 2_048, 16, 16);
        let mut create = ops::CreateSession::new(&known, channel);
        (create.flags, create.back.max_request) = (create_session::CONN_BACK_CHAN, max_call);
        let created = match send(&client, minor, vec![Args::CreateSession(Box::new(create))]).await.remove(0) {
            Outcome::CreateSession(created) => created.unwrap(),
            other => panic!("{other:?}"),
        };
        assert_eq!(created.flags, create_session::CONN_BACK_CHAN, "the server calls over this connection");
        let session = Self { client, minor, id: known.client, session: created.session, sequence: AtomicU32::new(0) };
        let complete = ops::ReclaimComplete { one_file_system: false };
        session.call(vec![Args::ReclaimComplete(complete)]).await;
        session
    }

    pub(crate) async fn call(&self, ops: Vec<Args>) -> Vec<Outcome<ItemData>> {
        let sequence = self.sequence.fetch_add(1, Ordering::Relaxed) + 1;
        let session = self.session;
        let first = Args::Sequence(ops::Sequence { session, sequence, slot: 0, highest_slot: 0, cache: false });
        let mut outcomes = send(&self.client, self.minor, [vec![first], ops].concat()).await;
        assert!(matches!(outcomes.remove(0), Outcome::Sequence(Ok(ok)) if ok.status == 0));
        outcomes
    }

    /// The outcome of the last operation, or of the one that failed.
    pub(crate) async fn last(&self, ops: Vec<Args>) -> Outcome<ItemData> {
        self.call(ops).await.pop().unwrap()
    }

    /// Makes a call with one operation on a file.
    pub(crate) async fn on(&self, file: &Handle, op: Args) -> Outcome<ItemData> {
        self.last(vec![Args::PutFh(ops::PutFh { file: file.clone() }), op]).await
    }

    /// Opens a file of the root, and makes it if it does not exist. Asks for no delegation, because the other clients
    /// open it, too, and would have to wait.
    pub(crate) async fn open(&self, name: &str) -> (Handle, ops::OpenOk) {
        let how = OpenHow::Create(CreateHow::Unchecked(FileAttributes::of(&[Value::Mode(0o666)])));
        self.open_with(name, BOTH | share::WANT_NONE, how).await.unwrap()
    }

    /// Opens a file of the root.
    pub(crate) async fn open_with(
        &self,
        name: &str,
        access: u32,
        how: OpenHow,
    ) -> Result<(Handle, ops::OpenOk), Status> {
        let claim = Claim::Null(Name::from(name));
        let open = ops::Open { sequence: 0, access, deny: 0, owner: self.owner("o"), how, claim };
        let mut outcomes = self.call(vec![Args::PutRootFh, Args::Open(Box::new(open)), Args::GetFh]).await;
        match (outcomes.pop(), outcomes.pop()) {
            (Some(Outcome::GetFh(Ok(handle))), Some(Outcome::Open(Ok(opened)))) => Ok((handle.file, *opened)),
            (Some(failed), _) => Err(failed.status()),
            (None, _) => panic!("no results"),
        }
    }

    /// Opens a file until it is delegated, closes it, and keeps the delegation: the server needs a moment to learn that
    /// the client answers, and delegates nothing before.
    pub(crate) async fn delegated(&self, name: &str, access: u32) -> (Handle, StateId) {
        let opening = async {
            loop {
                let (file, opened) = self.open_with(name, access, OpenHow::NoCreate).await.unwrap();
                assert_eq!(self.close(&file, opened.state).await, Status::OK);
                match (&opened.delegation, access & WRITE) {
                    (Delegation::Read(delegation), 0) => return (file, delegation.state),
                    (Delegation::Write(delegation), WRITE) => return (file, delegation.state),
                    _ => tokio::time::sleep(PAUSE).await,
                }
            }
        };
        timeout(PATIENCE, opening).await.expect("the file is delegated")
    }

    pub(crate) async fn close(&self, file: &Handle, state: StateId) -> Status {
        self.on(file, Args::Close(ops::Close { sequence: 0, state })).await.status()
    }

    pub(crate) async fn give_back(&self, file: &Handle, state: StateId) -> Status {
        self.on(file, Args::DelegReturn(ops::DelegReturn { state })).await.status()
    }

    pub(crate) async fn read(&self, file: &Handle, state: StateId) -> Vec<u8> {
        read_of(self.on(file, Args::Read(ops::Read { state, offset: 0, count: 100 })).await)
    }

    pub(crate) async fn write(&self, file: &Handle, state: StateId, data: &'static [u8]) {
        assert_eq!(self.on(file, write_of(state, data)).await.status(), Status::OK);
    }

    pub(crate) fn owner(&self, name: &str) -> Owner {
        Owner { client: self.id, name: OwnerName::from(name) }
    }

    /// Locks a whole file for writing.
    pub(crate) async fn lock(&self, file: &Handle, open_state: StateId, kind: LockKind) -> Result<StateId, Status> {
        self.lock_by("l", file, open_state, kind).await
    }

    /// The same with an owner of this name.
    pub(crate) async fn lock_by(
        &self,
        owner: &str,
        file: &Handle,
        open_state: StateId,
        kind: LockKind,
    ) -> Result<StateId, Status> {
        let owner = self.owner(owner);
        let locker = Locker::New(NewLocker { open_sequence: 0, open_state, lock_sequence: 0, owner });
        let lock = ops::Lock { kind, reclaim: false, offset: 0, length: u64::MAX, locker };
        match self.on(file, Args::Lock(Box::new(lock))).await {
            Outcome::Lock(Ok(ok)) => Ok(ok.state),
            failed => Err(failed.status()),
        }
    }
}

pub(crate) fn read_of(outcome: Outcome<ItemData>) -> Vec<u8> {
    match outcome {
        Outcome::Read(Ok(read)) => read.data.as_slice().to_vec(),
        other => panic!("{other:?}"),
    }
}

pub(crate) fn write_of(state: StateId, data: &'static [u8]) -> Args {
    let data = data.to_vec().into();
    Args::Write(ops::Write { state, offset: 0, stability: ops::Stability::FileSync, data })
}
