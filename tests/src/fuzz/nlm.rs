//! NLM: a decoded value survives its own encoding, in either width, and a narrow value stays the same in the wide form.
//! The first byte chooses the type of the rest, or calls to a lock manager in this process.

use super::{
    mint::Mint,
    nfs::{encoded, survives},
};
use bytes::Bytes;
use rpcrdma_env::{BoxFuture, Clock, Env, Heap, SeededRandom, Timestamp};
use rpcrdma_nfs::nlm::{
    CancelArguments, LockArguments, MAX_NAME_BYTES, Notice, PROGRAM, Response, ShareArguments, ShareResponse,
    TestArguments, TestResponse, UnlockArguments, VERSIONS, Widen,
};
use rpcrdma_nfsd::{
    Export, Locks, MemoryFs, Nfsd, Outside, OutsideCall, OutsideError, Queue, SECRET_BYTES, StateDirectory,
};
use rpcrdma_oncrpc::{
    CallContext, CallHeader, CallId, Connection, GoneSignal, Limits, OpaqueAuth, Outcome, TransportKind,
};
use rpcrdma_xdr::{Decode, Decoder, Encoder, Stream};
use std::{
    net::SocketAddr,
    sync::Arc,
    task::{Context, Poll, Waker},
    time::Duration,
};

/// The checks of the rest of an input, by its first byte.
pub(super) const KINDS: [fn(Bytes); 14] = [
    survives::<LockArguments<u32>>,
    survives::<LockArguments<u64>>,
    survives::<CancelArguments<u32>>,
    survives::<CancelArguments<u64>>,
    survives::<TestArguments<u32>>,
    survives::<TestArguments<u64>>,
    survives::<UnlockArguments<u32>>,
    survives::<UnlockArguments<u64>>,
    survives::<TestResponse<u32>>,
    survives::<TestResponse<u64>>,
    survives::<Response>,
    survives::<ShareArguments>,
    survives::<ShareResponse>,
    survives::<Notice>,
];

pub(super) fn types(input: &[u8]) {
    let mut mint = Mint::new(input);
    let kind = mint.below(KINDS.len() + 2);
    let octets = Bytes::copy_from_slice(mint.rest());
    match KINDS.get(kind) {
        Some(check) => check(octets),
        None if kind == KINDS.len() => widened(octets),
        None => calls(&octets),
    }
}

fn widened(octets: Bytes) {
    let Ok(narrow) = TestArguments::<u32>::decode(&mut Decoder::new(Stream::from(octets))) else { return };
    assert!(narrow.lock.caller.as_slice().len() <= MAX_NAME_BYTES);
    let wide = narrow.clone().widen();
    assert_eq!(encoded(&wide.narrow::<u32>()), encoded(&narrow));
}

/// Ignores everything that the server sends.
struct Nobody;

impl Outside for Nobody {
    fn call(&self, to: OutsideCall) -> BoxFuture<'static, Result<Bytes, OutsideError>> {
        assert_eq!(to.program, PROGRAM);
        assert!(to.to.is_ipv4(), "nobody else has called");
        Box::pin(std::future::ready(Err(OutsideError::NotRegistered)))
    }
}

/// A clock that stands still.
struct Still;

impl Clock for Still {
    fn now(&self) -> Timestamp {
        Timestamp::ZERO
    }

    fn sleep_until(&self, _: Timestamp) -> BoxFuture<'static, ()> {
        Box::pin(std::future::pending())
    }

    fn unix_time(&self) -> Duration {
        Duration::from_secs(1)
    }
}

/// Calls to a lock manager, each with its version, its procedure and the length of its arguments. Whatever they
/// contain, no count may exceed its limit, and even an invalid call must be answered.
fn calls(octets: &[u8]) {
    let env = Env { clock: Arc::new(Still), random: Arc::new(SeededRandom::new(1)) };
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let state = StateDirectory::open(scratch.path(), &*env.random).expect("a state directory");
    let storage = Arc::new(MemoryFs::new(1 << 20, &env));
    let locks = Locks {
        state: &state,
        server: 1,
        name: Bytes::from_static(b"server"),
        queue: Queue::in_place(),
        outside: Arc::new(Nobody),
        grace: Duration::ZERO,
        host_locks: false,
    };
    let nfsd = Nfsd::new(vec![Export::new("/", storage)], [7; SECRET_BYTES], &env).expect("one export");
    let nfsd = nfsd.with_locks(locks, &env).expect("an empty list");
    let mut mint = Mint::new(octets);
    for xid in 0..32 {
        let [host, version, procedure, len] = [mint.u8(), mint.u8(), mint.u8(), mint.u8()];
        let arguments = Bytes::copy_from_slice(mint.take(len.into()));
        let version = VERSIONS.get(usize::from(version % 4)).copied().unwrap_or(version.into());
        let id = CallId { xid, program: PROGRAM, version, procedure: procedure.into() };
        let is_answered = call(&nfsd, host % 3, id, arguments);
        assert!(is_answered);
    }
    let counts = nfsd.lock_counts().expect("there are locks");
    // Random bytes never hit a valid handle of this server.
    assert_eq!((counts.hosts, counts.locks, counts.shares, counts.owners, counts.waiting), (0, 0, 0, 0, 0));
}

fn call(nfsd: &Nfsd, host: u8, id: CallId, arguments: Bytes) -> bool {
    let mut encoder = Encoder::new();
    CallHeader { id, credential: OpaqueAuth::none(), verifier: OpaqueAuth::none() }.encode(&mut encoder);
    let mut message = Stream::from(encoder.finish().to_bytes());
    message.push_run(arguments);
    let (_signal, gone) = GoneSignal::new();
    let peer = SocketAddr::from(([192, 0, 2, host], 700));
    let limits = Limits::new(1 << 16, 1 << 16);
    let connection = Connection::new(peer, peer, 1, TransportKind::Tcp, limits, Arc::new(Heap), gone);
    let handler = nfsd.lockd().expect("there are locks");
    let mut answer = handler.handle(CallContext::new(Arc::new(connection)), message);
    // All work here is done at once, so the first poll completes.
    let polled = answer.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    matches!(polled, Poll::Ready(Outcome::Reply(_)))
}
