//! A client of NFS version 4, as small as it can be.

use bytes::Bytes;
use rpcrdma_env::{Env, Heap};
use rpcrdma_iwarp::{Config, Iwarp};
use rpcrdma_nfs::v4::{
    self, Args, Arguments, ClientId, ClientName, Handle, Name, Outcome, Owner, OwnerName, Results, SessionId, StateId,
    Status, Verifier,
    ops::{self, ChannelAttributes, CreateSession, ExchangeId, ExchangeIdOk, Sequence},
};
use rpcrdma_oncrpc::{
    Client, ClientTransport, SysAuth, SysCredential,
    tcp::{self, TcpConnector},
};
use rpcrdma_transport::Tracing;
use rpcrdma_xdr::ItemData;
use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering},
};

/// COMPOUND.
const COMPOUND: u32 = 1;
/// The most bytes of any reply here.
const REPLY_BYTES: usize = 4_096;

/// A client with its own connection, which ends when the client is dropped.
pub(crate) struct Caller(pub(crate) Client);

impl Caller {
    pub(crate) async fn over_tcp(address: &str, env: &Env) -> Self {
        let connector = Arc::new(TcpConnector::new(address.parse().unwrap()));
        let (transport, driver) = tcp::connect(connector, Arc::new(Heap), env, Default::default()).await.unwrap();
        tokio::spawn(driver);
        Self::of(transport)
    }

    pub(crate) async fn over_rdma(address: &str, env: &Env) -> Self {
        let fabric = Arc::new(Iwarp::new(env.clone(), Config::default()));
        let connecting =
            rpcrdma_transport::connect(fabric, address.parse().unwrap(), env, Default::default(), Arc::new(Tracing));
        let (transport, driver) = connecting.await.unwrap();
        tokio::spawn(driver);
        Self::of(transport)
    }

    fn of(transport: Arc<dyn ClientTransport>) -> Self {
        Self(Client::new(transport, Arc::new(SysAuth::new(SysCredential::default())), v4::PROGRAM, v4::VERSION))
    }

    pub(crate) async fn compound(&self, minor: u32, ops: Vec<Args>) -> Results<ItemData> {
        self.0.call_inline(COMPOUND, &Arguments::new(minor, ops), REPLY_BYTES).await.unwrap()
    }

    pub(crate) async fn session(&self, name: &'static [u8]) -> SessionId {
        self.known(name).await.0
    }

    /// Makes a session. Returns it, and the name and number by which the server knows the client.
    pub(crate) async fn known(&self, name: &'static [u8]) -> (SessionId, ExchangeIdOk) {
        let exchange = ExchangeId::new(ClientName(Bytes::from_static(name)), Verifier([1; 8]), 0);
        let known = match &self.compound(2, vec![Args::ExchangeId(Box::new(exchange))]).await.results[..] {
            [Outcome::ExchangeId(Ok(known))] => known.clone(),
            other => panic!("{other:?}"),
        };
        let create = CreateSession::new(&known, ChannelAttributes::new(65_536, 2_048, 8, 4));
        match &self.compound(2, vec![Args::CreateSession(Box::new(create))]).await.results[..] {
            [Outcome::CreateSession(Ok(created))] => (created.session, *known),
            other => panic!("{other:?}"),
        }
    }

    /// The first call of a session.
    pub(crate) async fn use_session(&self, session: SessionId) {
        let sequence = Sequence { session, sequence: 1, slot: 0, highest_slot: 0, cache: false };
        let said = self.compound(2, vec![Args::Sequence(sequence), Args::PutRootFh, Args::GetFh]).await;
        assert_eq!((said.status, said.results.len()), (Status::OK, 3));
    }
}

/// A client with one session of minor version 2 and one slot, which has nothing to reclaim.
pub(crate) struct Session {
    caller: Caller,
    session: SessionId,
    pub(crate) known: ExchangeIdOk,
    calls: AtomicU32,
}

impl Session {
    /// Over TCP.
    pub(crate) async fn begin(address: &str, name: &'static [u8], env: &Env) -> Self {
        let caller = Caller::over_tcp(address, env).await;
        let (session, known) = caller.known(name).await;
        let begun = Self { caller, session, known, calls: AtomicU32::new(0) };
        let complete = Args::ReclaimComplete(ops::ReclaimComplete { one_file_system: false });
        assert_eq!(begun.status(vec![complete]).await, Status::OK);
        begun
    }

    fn client(&self) -> ClientId {
        self.known.client
    }

    /// Sends a COMPOUND. Returns the outcome of its last operation, or of the failed one.
    pub(crate) async fn last(&self, ops: Vec<Args>) -> Outcome<ItemData> {
        let sequence = self.calls.fetch_add(1, Ordering::Relaxed) + 1;
        let sequence = Sequence { session: self.session, sequence, slot: 0, highest_slot: 0, cache: false };
        let all = [vec![Args::Sequence(sequence)], ops].concat();
        self.caller.compound(2, all).await.results.pop().unwrap()
    }

    pub(crate) async fn status(&self, ops: Vec<Args>) -> Status {
        self.last(ops).await.status()
    }

    /// The handle at a path from the root.
    pub(crate) async fn walk(&self, path: &str) -> Result<Handle, Status> {
        let names = path.split('/').filter(|name| !name.is_empty());
        let lookups = names.map(|name| Args::Lookup(ops::Lookup { name: Name::from(name) }));
        match self.last([Args::PutRootFh].into_iter().chain(lookups).chain([Args::GetFh]).collect()).await {
            Outcome::GetFh(answer) => answer.map(|ok| ok.file),
            failed => Err(failed.status()),
        }
    }

    /// One operation on a file.
    pub(crate) async fn on(&self, file: &Handle, op: Args) -> Outcome<ItemData> {
        self.last(vec![Args::PutFh(ops::PutFh { file: file.clone() }), op]).await
    }

    /// Opens a file of a directory for this access.
    pub(crate) async fn open(&self, directory: &Handle, name: &str, access: u32) -> Result<StateId, Status> {
        let open = ops::Open {
            sequence: 0,
            access,
            deny: 0,
            owner: self.owner(),
            how: ops::OpenHow::NoCreate,
            claim: ops::Claim::Null(Name::from(name)),
        };
        match self.on(directory, Args::Open(Box::new(open))).await {
            Outcome::Open(answer) => answer.map(|ok| ok.state),
            failed => Err(failed.status()),
        }
    }

    pub(crate) fn owner(&self) -> Owner {
        Owner { client: self.client(), name: OwnerName::from("o") }
    }
}
