//! A client of version 4 for tests: whole COMPOUNDs to the handler of a server, without a transport.
//!
//! ```text
//! let server = TestServer::memory();          or ::directory(), which survives a restart
//! let client = server.client("a");            EXCHANGE_ID, CREATE_SESSION, RECLAIM_COMPLETE
//! client.call(vec![Args::PutRootFh, ...])     SEQUENCE stands before it and is taken off the results
//! server.client_with("a", &back)              the same with a client that the server can call (testing/back.rs)
//! reached(&server, &client)                    the server can call this one, and it takes recalls (testing/holder.rs)
//! server.drive()                               what the server has handed over to be done by and by
//! ```

pub(crate) mod back;
pub(in crate::nfs4) mod holder;
pub(in crate::nfs4) mod memory;

use super::{Version4, service::Shared};
use crate::{
    DirectoryFs, Export, FileSystem, Identities, MemoryFs, Nfsd, Queue, Squash, StateDirectory,
    testing::{self, Beside, SECRET},
};
use back::Back;
use rpcrdma_env::{BoxFuture, Clock, Env, SeededRandom, Timestamp};
use rpcrdma_nfs::v4::{
    Args, Arguments, ClientId, ClientName, Handle, Name, Opaque, Outcome, Owner, OwnerName, PROGRAM, Results,
    SessionId, StateId, Status, VERSION, Verifier, ops,
};
use rpcrdma_xdr::{Decode, Encode, Encoder, ItemData};
use std::{
    path::PathBuf,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Waker},
    time::Duration,
};
use tokio::sync::oneshot;

/// A clock that stands still until the test moves it, and counts how often it is read.
#[derive(Default)]
pub(crate) struct TestClock(AtomicU64, AtomicU64, Mutex<Vec<(Timestamp, oneshot::Sender<()>)>>);

impl TestClock {
    /// Lets time pass, and wakes tasks that sleep until then.
    pub(crate) fn pass(&self, time: Duration) {
        let nanos = u64::try_from(time.as_nanos()).unwrap();
        let now = Timestamp::from_nanos(self.0.fetch_add(nanos, Ordering::SeqCst) + nanos);
        self.2.lock().unwrap().retain(|(until, sleeper)| *until > now && !sleeper.is_closed());
    }

    /// How often the clock was read.
    pub(crate) fn looks(&self) -> u64 {
        self.1.load(Ordering::SeqCst)
    }
}

impl Clock for TestClock {
    fn now(&self) -> Timestamp {
        self.1.fetch_add(1, Ordering::SeqCst);
        Timestamp::from_nanos(self.0.load(Ordering::SeqCst))
    }

    fn sleep_until(&self, until: Timestamp) -> BoxFuture<'static, ()> {
        let (sleeper, woken) = oneshot::channel();
        if until.as_nanos() > self.0.load(Ordering::SeqCst) {
            self.2.lock().unwrap().push((until, sleeper));
        }
        Box::pin(async move { drop(woken.await) })
    }

    fn unix_time(&self) -> Duration {
        Duration::from_secs(1_000_000_000) + Duration::from_nanos(self.0.load(Ordering::SeqCst))
    }
}

/// A server of versions 3 and 4 with one export, `/`.
pub(crate) struct TestServer {
    pub(crate) nfsd: Nfsd,
    pub(crate) clock: Arc<TestClock>,
    /// Outlives a restart; a directory is opened anew instead.
    memory: Option<Arc<dyn FileSystem>>,
    pub(crate) scratch: Arc<tempfile::TempDir>,
    setup: Setup,
    starts: u64,
    connections: AtomicU64,
    /// Work that goes on after its call's reply.
    beside: Beside,
    /// The directory, if the server serves one.
    directory: Option<DirectoryFs>,
}

/// How a server is started.
#[derive(Clone, Copy)]
pub(crate) struct Setup {
    pub(crate) squash: Squash,
    pub(crate) read_only: bool,
    pub(crate) version_4: fn(Version4) -> Version4,
    /// Whether work that goes on after a reply proceeds with each call; otherwise a test drives it.
    pub(crate) is_driven: bool,
}

impl Default for Setup {
    fn default() -> Self {
        Self { squash: Squash::None, read_only: false, version_4: |version_4| version_4, is_driven: true }
    }
}

impl TestServer {
    /// A server of a file system in memory, which trusts its clients.
    pub(crate) fn memory() -> Self {
        Self::memory_with(Setup::default())
    }

    pub(crate) fn memory_with(setup: Setup) -> Self {
        let clock = Arc::new(TestClock::default());
        let env = Env { clock: clock.clone(), random: Arc::new(SeededRandom::new(1)) };
        let memory: Arc<dyn FileSystem> = Arc::new(MemoryFs::new(64 << 20, &env));
        Self::start(clock, Some(memory), Arc::new(tempfile::tempdir().unwrap()), setup, 1)
    }

    /// A server of a directory, which trusts its clients.
    pub(crate) fn directory() -> Self {
        Self::directory_with(Setup::default())
    }

    pub(crate) fn directory_with(setup: Setup) -> Self {
        let scratch = tempfile::tempdir().unwrap();
        std::fs::create_dir(scratch.path().join("served")).unwrap();
        Self::start(Arc::default(), None, Arc::new(scratch), setup, 1)
    }

    /// A server of this file system. The test drives the work that goes on after a reply.
    pub(crate) fn serving(file_system: Arc<dyn FileSystem>) -> Self {
        let scratch = Arc::new(tempfile::tempdir().unwrap());
        let setup = Setup { is_driven: false, ..Setup::default() };
        Self::start(Arc::default(), Some(file_system), scratch, setup, 1)
    }

    /// A server of a file system in memory, whose waiting work goes to this queue.
    pub(crate) fn waiting_in(queue: Arc<Queue>) -> Self {
        let clock = Arc::new(TestClock::default());
        let env = Env { clock: clock.clone(), random: Arc::new(SeededRandom::new(1)) };
        let memory: Arc<dyn FileSystem> = Arc::new(MemoryFs::new(64 << 20, &env));
        Self::start_with(clock, Some(memory), Arc::new(tempfile::tempdir().unwrap()), Setup::default(), 1, queue)
    }

    /// A server of a directory, whose waiting work goes to this queue. The test drives the work that goes on after a
    /// reply.
    pub(crate) fn directory_in(queue: Arc<Queue>) -> Self {
        let scratch = tempfile::tempdir().unwrap();
        std::fs::create_dir(scratch.path().join("served")).unwrap();
        let setup = Setup { is_driven: false, ..Setup::default() };
        Self::start_with(Arc::default(), None, Arc::new(scratch), setup, 1, queue)
    }

    fn start(
        clock: Arc<TestClock>,
        memory: Option<Arc<dyn FileSystem>>,
        scratch: Arc<tempfile::TempDir>,
        setup: Setup,
        starts: u64,
    ) -> Self {
        Self::start_with(clock, memory, scratch, setup, starts, Queue::in_place())
    }

    fn start_with(
        clock: Arc<TestClock>,
        memory: Option<Arc<dyn FileSystem>>,
        scratch: Arc<tempfile::TempDir>,
        setup: Setup,
        starts: u64,
        queue: Arc<Queue>,
    ) -> Self {
        let env = Env { clock: clock.clone(), random: Arc::new(SeededRandom::new(starts)) };
        let state = StateDirectory::open(scratch.path().join("state"), &*env.random).unwrap();
        let mut directory = None;
        let file_system = memory.clone().unwrap_or_else(|| {
            let served = scratch.path().join("served");
            let opened = DirectoryFs::open(&served, &state, queue.clone(), &env).unwrap();
            directory = Some(opened.clone());
            Arc::new(opened)
        });
        let identities = Identities { squash: setup.squash, ..Identities::default() };
        let export = Export::new("/", file_system).with_identities(identities).with_read_only(setup.read_only);
        let version_4 = (setup.version_4)(Version4::new(&state, queue).with_recall_wait(Duration::ZERO));
        let nfsd = Nfsd::new(vec![export], SECRET, &env).unwrap().with_version_4(version_4, true, &env).unwrap();
        let tasks: BoxFuture<'static, ()> = match setup.is_driven {
            true => Box::pin(nfsd.shared_of_version_4().tasks.driver().unwrap()),
            false => Box::pin(std::future::pending()),
        };
        let (connections, beside) = (AtomicU64::new(1), Arc::new(Mutex::new(tasks)));
        Self { nfsd, clock, memory, scratch, setup, starts, connections, beside, directory }
    }

    /// Kills the server and starts it again: it loses what it has not written down.
    pub(crate) fn restart(self) -> Self {
        let Self { nfsd, clock, memory, scratch, setup, starts, beside, directory, .. } = self;
        drop((beside, directory));
        drop(nfsd);
        Self::start(clock, memory, scratch, setup, starts + 1)
    }

    /// The same with another setup.
    pub(crate) fn restart_with(mut self, setup: Setup) -> Self {
        self.setup = setup;
        self.restart()
    }

    /// The directory that is served.
    pub(crate) fn served(&self) -> PathBuf {
        self.scratch.path().join("served")
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        self.nfsd.shared_of_version_4()
    }

    /// Lets time pass, and does what is due then.
    pub(crate) fn pass(&self, seconds: u64) {
        self.clock.pass(Duration::from_secs(seconds));
        self.shared().sweep();
    }

    /// Lets work that goes on after its reply go on as far as it can.
    pub(crate) fn drive(&self) {
        // A task may wait for the work of another task.
        for _ in 0..16 {
            let _ = self.beside.lock().unwrap().as_mut().poll(&mut Context::from_waker(Waker::noop()));
        }
    }

    /// The upkeep of the served directory, as every second.
    pub(crate) fn tidy(&self) {
        self.directory.iter().for_each(DirectoryFs::tidy_now);
    }

    /// A client that the server has already called, and can call again.
    pub(crate) fn client_with(&self, name: &str, back: &Arc<Back>) -> TestClient {
        let client = self.client_over(name, back);
        self.drive();
        client.reclaim_complete();
        client
    }

    /// The same, before the server has called it, and before RECLAIM_COMPLETE.
    pub(crate) fn client_over(&self, name: &str, back: &Arc<Back>) -> TestClient {
        TestClient::new(self.connection_over(back), name, 2, 1)
    }

    /// A connection over which the server can call. The test drives the server's work.
    pub(crate) fn connection_over(&self, back: &Arc<Back>) -> testing::Client {
        let mut rpc = self.version_3();
        rpc.beside = None;
        rpc.reverse = Some((back.clone(), back.gone()));
        rpc
    }

    /// Ends a connection.
    pub(crate) fn end(&self, rpc: &testing::Client, back: &Back) {
        back.end();
        self.nfsd.connection_ended(rpc.connection);
    }

    /// A client of version 3.
    pub(crate) fn version_3(&self) -> testing::Client {
        let connection = self.connections.fetch_add(1, Ordering::Relaxed);
        let mut client = testing::Client::of(&self.nfsd);
        client.connection = connection;
        client.beside = Some(self.beside.clone());
        client
    }

    /// A client of version 4.2 with this name that has nothing to reclaim, and may open files.
    pub(crate) fn client(&self, name: &str) -> TestClient {
        let client = self.client_in_grace(name);
        client.reclaim_complete();
        client
    }

    /// The same before RECLAIM_COMPLETE.
    pub(crate) fn client_in_grace(&self, name: &str) -> TestClient {
        self.client_as(name, 2, 0, 1)
    }

    /// A client with this name, minor version, user, and incarnation.
    pub(crate) fn client_as(&self, name: &str, minor: u32, uid: u32, incarnation: u64) -> TestClient {
        let rpc = self.version_3().as_user(uid, uid, &[]);
        TestClient::new(rpc, name, minor, incarnation)
    }
}

/// A client of version 4 with one session.
pub(crate) struct TestClient {
    pub(crate) rpc: testing::Client,
    pub(crate) minor: u32,
    pub(crate) id: ClientId,
    pub(crate) session: SessionId,
    pub(crate) fore: ops::ChannelAttributes,
    /// The arguments with which the last session was made.
    created: Mutex<ops::CreateSession>,
    /// The last sequence number of each slot.
    slots: Mutex<Vec<u32>>,
}

/// The attributes that a client wants for a channel.
fn channel() -> ops::ChannelAttributes {
    ops::ChannelAttributes::new((1 << 20) + 4_096, 2_048, 32, 16)
}

/// Takes the results of the one kind that a test has asked for: `only!(results, Open)`.
macro_rules! only {
    ($outcome:expr, $op:ident) => {
        match $outcome {
            rpcrdma_nfs::v4::Outcome::$op(answer) => answer,
            other => panic!("results of another operation: {other:?}"),
        }
    };
}
pub(crate) use only;

impl TestClient {
    /// Makes the client known, and makes a session.
    pub(crate) fn new(rpc: testing::Client, name: &str, minor: u32, incarnation: u64) -> Self {
        Self::made(rpc, name, (minor, incarnation), |_| {})
    }

    /// The same; `change` changes the arguments of the session.
    pub(crate) fn with(rpc: testing::Client, name: &str, change: impl FnOnce(&mut ops::CreateSession)) -> Self {
        Self::made(rpc, name, (2, 1), change)
    }

    fn made(
        rpc: testing::Client,
        name: &str,
        (minor, incarnation): (u32, u64),
        change: impl FnOnce(&mut ops::CreateSession),
    ) -> Self {
        let unknown = ops::ExchangeIdOk {
            client: ClientId(0),
            sequence: 0,
            flags: 0,
            protection: ops::StateProtectionOk::None,
            server: ops::ServerOwner { minor_id: 0, major_id: Opaque(Default::default()) },
            scope: Opaque(Default::default()),
            implementation: None,
        };
        let mut client = Self {
            rpc,
            minor,
            id: ClientId(0),
            session: SessionId([0; 16]),
            fore: channel(),
            created: Mutex::new(ops::CreateSession::new(&unknown, channel())),
            slots: Mutex::new(vec![0; 16]),
        };
        let verifier = Verifier(incarnation.to_be_bytes());
        let exchange = ops::ExchangeId::new(ClientName::from(name), verifier, 0);
        let mut results = client.send(vec![Args::ExchangeId(Box::new(exchange))]).results;
        let known = only!(results.remove(0), ExchangeId).unwrap();
        client.id = known.client;
        let mut create = ops::CreateSession::new(&known, channel());
        if client.rpc.reverse.is_some() {
            create.flags = ops::create_session::CONN_BACK_CHAN;
        }
        change(&mut create);
        client.created = Mutex::new(create.clone());
        let mut results = client.send(vec![Args::CreateSession(Box::new(create))]).results;
        let created = only!(results.remove(0), CreateSession).unwrap();
        (client.session, client.fore) = (created.session, created.fore);
        client
    }

    /// Another session, made like the first.
    pub(crate) fn another_session(&self) -> SessionId {
        let create = {
            let mut created = self.created.lock().unwrap();
            created.sequence += 1;
            created.clone()
        };
        let mut results = self.send(vec![Args::CreateSession(Box::new(create))]).results;
        only!(results.remove(0), CreateSession).unwrap().session
    }

    /// A whole COMPOUND, sent as it is.
    pub(crate) fn send(&self, ops: Vec<Args>) -> Results<ItemData> {
        self.send_over(&self.rpc, ops)
    }

    /// The same over another connection.
    pub(crate) fn send_over(&self, rpc: &testing::Client, ops: Vec<Args>) -> Results<ItemData> {
        let mut encoder = Encoder::new();
        Arguments::new(self.minor, ops).encode(&mut encoder);
        let mut decoder = rpc.raw(PROGRAM, VERSION, 1, encoder.finish()).unwrap();
        let results: Results<ItemData> = Results::decode(&mut decoder).unwrap();
        decoder.finish().unwrap();
        // RFC 8881 section 16.2.3: the status of the COMPOUND is that of its last operation.
        let last = results.results.last().map_or(results.status, Outcome::status);
        assert_eq!(results.status, last, "the status of the whole");
        results
    }

    /// SEQUENCE for the next call in a slot.
    pub(crate) fn sequence(&self, slot: u32, cache: bool) -> Args {
        let mut slots = self.slots.lock().unwrap();
        let last = &mut slots[slot as usize];
        *last = last.wrapping_add(1);
        let session = self.session;
        Args::Sequence(ops::Sequence { session, sequence: *last, slot, highest_slot: 15, cache })
    }

    /// A COMPOUND in the session. Returns the outcomes after SEQUENCE, up to the first failure.
    pub(crate) fn call(&self, ops: Vec<Args>) -> Vec<Outcome<ItemData>> {
        let mut results = self.send([vec![self.sequence(0, false)], ops].concat()).results;
        only!(results.remove(0), Sequence).unwrap();
        results
    }

    /// The outcome of the last operation, or of the one that has failed.
    pub(crate) fn last(&self, ops: Vec<Args>) -> Outcome<ItemData> {
        self.call(ops).pop().unwrap()
    }

    /// The status of the COMPOUND.
    pub(crate) fn status(&self, ops: Vec<Args>) -> Status {
        self.last(ops).status()
    }

    pub(crate) fn reclaim_complete(&self) {
        let complete = ops::ReclaimComplete { one_file_system: false };
        assert_eq!(self.status(vec![Args::ReclaimComplete(complete)]), Status::OK);
    }

    /// An owner of this client.
    pub(crate) fn owner(&self, name: &str) -> Owner {
        Owner { client: self.id, name: OwnerName::from(name) }
    }

    /// The handle at a path from the root, "" for the root itself.
    pub(crate) fn walk(&self, path: &str) -> Result<Handle, Status> {
        let names = path.split('/').filter(|name| !name.is_empty());
        let lookups = names.map(|name| Args::Lookup(ops::Lookup { name: Name::from(name) }));
        let outcome = self.last([Args::PutRootFh].into_iter().chain(lookups).chain([Args::GetFh]).collect());
        match outcome {
            Outcome::GetFh(answer) => answer.map(|ok| ok.file),
            failed => Err(failed.status()),
        }
    }

    /// Executes one operation on a file.
    pub(crate) fn on(&self, file: &Handle, op: Args) -> Outcome<ItemData> {
        self.last(vec![Args::PutFh(ops::PutFh { file: file.clone() }), op])
    }

    pub(crate) fn read(&self, file: &Handle, state: StateId, offset: u64, count: u32) -> Result<Vec<u8>, Status> {
        let outcome = self.on(file, Args::Read(ops::Read { state, offset, count }));
        only!(outcome, Read).map(|ok| ok.data.as_slice().to_vec())
    }

    pub(crate) fn write(&self, file: &Handle, state: StateId, offset: u64, data: &[u8]) -> Result<u32, Status> {
        let data = data.to_vec().into();
        let write = ops::Write { state, offset, stability: ops::Stability::Unstable, data };
        only!(self.on(file, Args::Write(write)), Write).map(|ok| ok.count)
    }
}

mod tests {
    use super::*;

    #[test]
    fn a_client_finds_the_root_in_its_session() {
        for server in [TestServer::memory(), TestServer::directory()] {
            let client = server.client("a");
            assert!(client.walk("").is_ok());
            assert_eq!(client.walk("x").err(), Some(Status::NOENT));
        }
    }

    #[test]
    fn a_repeated_call_is_answered_from_its_slot() {
        let server = TestServer::memory();
        let client = server.client("a");
        let call = vec![client.sequence(0, true), Args::PutRootFh, Args::GetFh];
        let (first, again) = (client.send(call.clone()), client.send(call));
        assert_eq!((first.status, format!("{first:?}")), (Status::OK, format!("{again:?}")));
    }
}
