//! The service of NFS version 4 in this process: virtual time, a file system in memory, a state directory that survives
//! a restart. The service works only when it is polled. The clients' connections last until the next restart, and the
//! server calls over them.

use super::{called::Called, model::CLIENTS};
use bytes::Bytes;
use rpcrdma_env::{BoxFuture, Clock, Env, Heap, SeededRandom, Timestamp};
use rpcrdma_nfs::v4::{Arguments, PROGRAM, Results, VERSION, callback};
use rpcrdma_nfsd::{Export, Identities, MemoryFs, Nfsd, Queue, SECRET_BYTES, Squash, StateDirectory, Version4};
use rpcrdma_oncrpc::{CallContext, Connection, GoneSignal, Limits, Outcome, TransportKind};
use rpcrdma_xdr::{Decode, Decoder, Encode, Encoder, ItemData, Stream};
use std::{
    cell::{Cell, RefCell},
    future::poll_fn,
    net::SocketAddr,
    path::Path,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll, Waker},
    time::Duration,
};
use tempfile::TempDir;

/// Bytes of the file system: more than the files here can have, wherever the input puts their data.
const STORAGE_OCTETS: u64 = 64 << 20;
/// Bytes of an accepted reply before the results.
const REPLY_HEADER_BYTES: usize = 24;
/// How long a lease and a grace period last, in seconds.
pub(super) const LEASE: u64 = 10;

/// Time that stands still until the run moves it, in nanoseconds.
#[derive(Default)]
struct Virtual(Arc<AtomicU64>);

impl Clock for Virtual {
    fn now(&self) -> Timestamp {
        Timestamp::from_nanos(self.0.load(Ordering::Relaxed))
    }

    /// Wakes nothing: the run polls sleeping futures again after it has moved the time.
    fn sleep_until(&self, deadline: Timestamp) -> BoxFuture<'static, ()> {
        let time = self.0.clone();
        Box::pin(poll_fn(move |_| match time.load(Ordering::Relaxed) >= deadline.as_nanos() {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }))
    }

    fn unix_time(&self) -> Duration {
        Duration::from_secs(1_000_000_000) + Duration::from_nanos(self.0.load(Ordering::Relaxed))
    }
}

/// A state directory, in memory if the system has such a place, because the server often waits for it.
fn scratch() -> TempDir {
    let memory = Path::new("/dev/shm");
    let above = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
    tempfile::Builder::new().prefix("rpcrdma-fuzz-").tempdir_in(above).expect("a directory for the state")
}

/// The number of the first client's connection; other clients have the next numbers.
pub(super) const OWN: u64 = 10;
/// How often work is polled: one part may wait for another.
const ROUNDS: usize = 8;

/// How long a call waits for a delegation to be returned, in nanoseconds.
const RECALL_WAIT: u64 = 25_000_000;

/// A client's connection.
struct Own {
    connection: Arc<Connection>,
    called: Arc<Called>,
    _stands: GoneSignal,
}

impl Own {
    fn new(number: u64, clock: Arc<dyn Clock>) -> Self {
        let called = Arc::new(Called::new(number, clock));
        let (signal, connection) = connection(number);
        Self { connection: Arc::new(connection.with_reverse(called.clone())), called, _stands: signal }
    }
}

/// A server that can be started again.
pub(super) struct World {
    clock: Arc<Virtual>,
    storage: Arc<MemoryFs>,
    scratch: TempDir,
    starts: u64,
    server: Option<Nfsd>,
    /// The server's work besides calls.
    upkeep: RefCell<BoxFuture<'static, ()>>,
    own: Vec<Own>,
    /// Whether a call has waited for another client, so that a part of a second has passed.
    waited: Cell<bool>,
}

fn connection(number: u64) -> (GoneSignal, Connection) {
    let address = SocketAddr::from(([192, 0, 2, 1], 700));
    let (signal, gone) = GoneSignal::new();
    let limits = Limits::new(1 << 20, 1 << 20);
    (signal, Connection::new(address, address, number, TransportKind::Tcp, limits, Arc::new(Heap), gone))
}

impl World {
    pub(super) fn new() -> Self {
        let clock = Arc::new(Virtual::default());
        let env = Env { clock: clock.clone(), random: Arc::new(SeededRandom::new(1)) };
        let storage = Arc::new(MemoryFs::new(STORAGE_OCTETS, &env));
        let upkeep: BoxFuture<'static, ()> = Box::pin(std::future::pending());
        let (scratch, upkeep) = (scratch(), RefCell::new(upkeep));
        let mut world = Self {
            clock,
            storage,
            scratch,
            starts: 0,
            server: None,
            upkeep,
            own: Vec::new(),
            waited: Cell::new(false),
        };
        world.restart();
        world
    }

    /// Restarts the server, which loses what it has not written.
    pub(super) fn restart(&mut self) {
        self.upkeep = RefCell::new(Box::pin(std::future::pending()));
        self.own.clear();
        self.server = None;
        self.starts += 1;
        let env = Env { clock: self.clock.clone(), random: Arc::new(SeededRandom::new(self.starts)) };
        let state = StateDirectory::open(self.scratch.path(), &*env.random).expect("a state directory");
        let lease = Duration::from_secs(LEASE);
        let version_4 = Version4::new(&state, Queue::in_place()).with_lease(lease).with_grace(lease);
        let everybody = Identities { squash: Squash::None, ..Identities::default() };
        let export = Export::new("/", self.storage.clone()).with_identities(everybody);
        let nfsd = Nfsd::new(vec![export], [7; SECRET_BYTES], &env).expect("one export");
        let nfsd = nfsd.with_version_4(version_4, false, &env).expect("a journal");
        self.upkeep = RefCell::new(nfsd.upkeep());
        self.server = Some(nfsd);
        self.own = (0..CLIENTS as u64).map(|client| Own::new(OWN + client, self.clock.clone())).collect();
        // Lets the server's own work begin to sleep.
        self.drive();
    }

    /// Polls the server's work besides calls as far as it can go. No time passes.
    pub(super) fn drive(&self) {
        for _ in 0..ROUNDS {
            let polled = self.upkeep.borrow_mut().as_mut().poll(&mut Context::from_waker(Waker::noop()));
            assert!(polled.is_pending(), "it lasts as long as the server");
        }
    }

    /// Takes the server's calls to a client since the last call of this function.
    pub(super) fn heard(&self, client: usize) -> Vec<callback::Args> {
        self.own[client].called.heard()
    }

    /// When a client answered a call of the server last, in seconds.
    pub(super) fn answered(&self, client: usize) -> Option<u64> {
        self.own[client].called.answered().map(|at| at.as_nanos() / 1_000_000_000)
    }

    /// Completes a future that waits only for the server's work besides calls.
    fn driven<T>(&self, future: impl Future<Output = T>) -> T {
        let mut future = pin!(future);
        for _ in 0..ROUNDS {
            if let Poll::Ready(done) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                return done;
            }
            self.drive();
        }
        // Another client has a delegation: the call waits for its return, but no longer than this.
        self.waited.set(true);
        self.clock.0.fetch_add(RECALL_WAIT, Ordering::Relaxed);
        match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(done) => done,
            Poll::Pending => panic!("a call waits for something that nobody does"),
        }
    }

    /// Whether a call has waited since the last full second.
    pub(super) fn has_waited(&self) -> bool {
        self.waited.get()
    }

    /// Moves the time to a full second, and two seconds more, and lets the server do what is due.
    pub(super) fn round_up(&self) {
        self.waited.set(false);
        let second = 1_000_000_000;
        let now = self.clock.0.load(Ordering::Relaxed);
        self.clock.0.store((now.div_ceil(second) + 2) * second, Ordering::Relaxed);
        self.drive();
    }

    pub(super) fn server(&self) -> &Nfsd {
        self.server.as_ref().expect("it runs")
    }

    /// The time, in seconds.
    pub(super) fn now(&self) -> u64 {
        self.clock.0.load(Ordering::Relaxed) / 1_000_000_000
    }

    /// Moves the time by at least two seconds, and lets the server do what is due.
    pub(super) fn pass(&mut self, seconds: u64) {
        self.drive();
        self.clock.0.fetch_add(seconds * 1_000_000_000, Ordering::Relaxed);
        self.drive();
    }

    /// Sends a call's bytes to the server over a connection, and returns the answer.
    pub(super) fn call(&self, connection: u64, arguments: &Bytes) -> Bytes {
        self.call_numbered(connection, 1, arguments)
    }

    /// The same with an XID: without sessions it distinguishes a call from its repetition.
    pub(super) fn call_numbered(&self, number: u64, xid: u32, arguments: &Bytes) -> Bytes {
        let own = number.checked_sub(OWN).and_then(|client| self.own.get(usize::try_from(client).ok()?));
        let (_signal, connection) = match own {
            Some(own) => (None, own.connection.clone()),
            None => {
                let (signal, connection) = connection(number);
                (Some(signal), Arc::new(connection))
            }
        };
        let mut call = Encoder::new();
        // AUTH_SYS, root.
        for word in [xid, 0, 2, PROGRAM, VERSION, 1, 1, 20, 0, 0, 0, 0, 0, 0, 0] {
            call.u32(word);
        }
        let octets = [&call.finish().to_bytes()[..], arguments].concat();
        let handled = self.server().nfs().handle(CallContext::new(connection), Stream::from(Bytes::from(octets)));
        match self.driven(handled) {
            Outcome::Reply(reply) => reply.to_bytes().slice(REPLY_HEADER_BYTES..),
            _ => panic!("a COMPOUND is answered"),
        }
    }
}

/// Arguments as bytes.
pub(super) fn encoded(call: &Arguments) -> Bytes {
    let mut encoder = Encoder::new();
    call.encode(&mut encoder);
    encoder.finish().to_bytes()
}

/// Results from bytes.
pub(super) fn decoded(octets: &Bytes) -> Results<ItemData> {
    let mut decoder = Decoder::new(octets.clone().into());
    let results = Results::decode(&mut decoder).expect("results");
    decoder.finish().expect("nothing behind them");
    results
}
