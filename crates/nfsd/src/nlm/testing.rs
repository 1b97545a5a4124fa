//! Hosts that lock, for tests: whole calls to a server's handler, without a transport, and the server's calls to the
//! hosts.
//!
//! ```text
//! let world = World::memory();                or ::directory()
//! let host = world.host(1, "alpha");          at 192.0.2.1
//! host.lock(&file, "owner", (0, 10), WRITE)   LOCK that does not wait; .wait(...) does
//! world.drive()                               what the server has handed over to be done by and by
//! world.called()                              what the server has called since
//! ```

use super::NlmLimits;
use crate::{
    Locks, Nfsd, Outside, OutsideCall, OutsideError, Queue, StateDirectory,
    nfs4::testing::TestServer,
    testing::{Beside, Client, SECRET},
};
use bytes::Bytes;
use rpcrdma_env::{BoxFuture, Env, SeededRandom};
use rpcrdma_nfs::{
    nlm::{
        self, CallerName, CancelArguments, Cookie, Holder, Lock, LockArguments, Notice, OwnerHandle, Procedure,
        Response, Share, ShareAccess, ShareArguments, ShareDeny, ShareResponse, Status, TestArguments, TestResponse,
        Tested, UnlockArguments,
    },
    nsm,
    v3::Handle,
};
use rpcrdma_oncrpc::Rejection;
use rpcrdma_xdr::{Decode, Decoder, Encode, Encoder, Payload};
use std::{
    collections::VecDeque,
    net::IpAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
    },
    task::{Context, Waker},
    time::Duration,
};
use tokio::sync::oneshot;

/// For how long hosts may reclaim their locks, in tests.
pub(crate) const GRACE_SECONDS: u64 = 90;
/// Exclusive and shared locks.
pub(crate) const WRITE: bool = true;
pub(crate) const READ: bool = false;

/// A host's answer to a call: a status, or none.
pub(crate) type Saying = Result<Status, OutsideError>;

/// The hosts that the server calls.
#[derive(Default)]
pub(crate) struct Ears {
    heard: Mutex<Vec<OutsideCall>>,
    /// The answers to the next calls; after these every answer is yes.
    says: Mutex<VecDeque<Saying>>,
    /// The answer to the next call, which comes later.
    pub(crate) late: Mutex<Option<oneshot::Receiver<Saying>>>,
    /// Whether the host answers nothing.
    pub(crate) is_silent: Mutex<bool>,
}

impl Outside for Ears {
    fn call(&self, to: OutsideCall) -> BoxFuture<'static, Result<Bytes, OutsideError>> {
        self.heard.lock().unwrap().push(to);
        if *self.is_silent.lock().unwrap() {
            return Box::pin(std::future::pending());
        }
        let results = |said: Saying| said.map(|status| bytes_of(&Response { cookie: Cookie::default(), status }));
        if let Some(late) = self.late.lock().unwrap().take() {
            return Box::pin(async move { results(late.await.unwrap()) });
        }
        let said = self.says.lock().unwrap().pop_front().unwrap_or(Ok(Status::Granted));
        Box::pin(std::future::ready(results(said)))
    }
}

pub(crate) fn bytes_of(value: &impl Encode) -> Bytes {
    payload_of(value).to_bytes()
}

fn payload_of(value: &impl Encode) -> Payload {
    let mut encoder = Encoder::new();
    value.encode(&mut encoder);
    encoder.finish()
}

pub(crate) fn no_answer() -> Saying {
    Err(OutsideError::NoAnswer(Duration::from_secs(5)))
}

/// A server with its hosts.
pub(crate) struct World {
    pub(crate) server: TestServer,
    pub(crate) ears: Arc<Ears>,
    tasks: Beside,
    limits: NlmLimits,
    made: AtomicU32,
}

impl World {
    pub(crate) fn memory() -> Self {
        Self::with(TestServer::memory(), NlmLimits::default())
    }

    pub(crate) fn directory() -> Self {
        Self::with(TestServer::directory(), NlmLimits::default())
    }

    pub(crate) fn limited(limits: NlmLimits) -> Self {
        Self::with(TestServer::memory(), limits)
    }

    pub(crate) fn with(mut server: TestServer, limits: NlmLimits) -> Self {
        let env = Env { clock: server.clock.clone(), random: Arc::new(SeededRandom::new(7)) };
        let state = StateDirectory::open(server.scratch.path().join("state"), &*env.random).unwrap();
        let ears = Arc::<Ears>::default();
        let nobody = Nfsd::new(Vec::new(), SECRET, &env).unwrap();
        let nfsd = std::mem::replace(&mut server.nfsd, nobody);
        let locks = Locks {
            state: &state,
            server: 1,
            name: Bytes::from_static(b"server"),
            queue: Queue::in_place(),
            outside: ears.clone(),
            grace: Duration::from_secs(GRACE_SECONDS),
            host_locks: true,
        };
        server.nfsd = nfsd.with_limited_locks(locks, limits, &env).unwrap();
        let [tasks, _sweeps] = server.nfsd.lock_manager().drive().unwrap();
        Self { server, ears, tasks: Arc::new(Mutex::new(tasks)), limits, made: AtomicU32::new(1) }
    }

    /// Kills the server and starts it again.
    pub(crate) fn restart(self) -> Self {
        let Self { server, ears, tasks, limits, .. } = self;
        drop((tasks, ears));
        Self::with(server.restart(), limits)
    }

    /// Lets work that goes on after its reply go on as far as it can.
    pub(crate) fn drive(&self) {
        for _ in 0..16 {
            let _ = self.tasks.lock().unwrap().as_mut().poll(&mut Context::from_waker(Waker::noop()));
        }
    }

    /// Lets time pass, and does what is due then.
    pub(crate) fn pass(&self, seconds: u64) {
        self.server.clock.pass(Duration::from_secs(seconds));
        self.server.nfsd.lock_manager().sweep();
        self.drive();
    }

    /// The calls that the server has made since this was last asked, after it has done all that it can.
    pub(crate) fn called(&self) -> Vec<OutsideCall> {
        self.drive();
        std::mem::take(&mut *self.ears.heard.lock().unwrap())
    }

    /// Sets the answers to the next calls.
    pub(crate) fn say(&self, said: impl IntoIterator<Item = Saying>) {
        self.ears.says.lock().unwrap().extend(said);
    }

    pub(crate) fn counts(&self) -> super::NlmCounts {
        self.server.nfsd.lock_counts().unwrap()
    }

    /// A file in the root with this mode, which belongs to its maker.
    pub(crate) fn file(&self, name: &str) -> Handle {
        let client = self.server.version_3();
        client.new_file(&client.root(), name)
    }

    /// A host at 192.0.2.`last`, which calls NLM version 4 as the superuser.
    pub(crate) fn host(&self, last: u8, name: &str) -> TestHost {
        self.host_as(last, name, 0)
    }

    pub(crate) fn host_as(&self, last: u8, name: &str, uid: u32) -> TestHost {
        let mut rpc = self.server.version_3().as_user(uid, uid, &[]).calling(self.server.nfsd.lockd().unwrap());
        rpc.address = [192, 0, 2, last].into();
        // If a test makes a host a second time, the new one does not repeat the first one's xids.
        let rpc = rpc.numbered_from(self.made.fetch_add(1 << 16, Ordering::Relaxed));
        TestHost { rpc, name: CallerName::from(name), version: nlm::VERSION_4 }
    }

    /// A host says that it has started again.
    pub(crate) fn notify(&self, last: u8, name: &str, state: i32) {
        let mut rpc = self.server.version_3().calling(self.server.nfsd.statd().unwrap());
        rpc.address = [192, 0, 2, last].into();
        let notice = nsm::Notify { name: nsm::HostName::from(name), state };
        rpc.raw(nsm::PROGRAM, nsm::VERSION, nsm::procedure::NOTIFY, payload_of(&notice)).unwrap();
    }
}

/// A host that locks.
pub(crate) struct TestHost {
    pub(crate) rpc: Client,
    pub(crate) name: CallerName,
    pub(crate) version: u32,
}

impl TestHost {
    pub(crate) fn address(&self) -> IpAddr {
        self.rpc.address
    }

    pub(crate) fn raw(&self, procedure: Procedure, args: &impl Encode) -> Result<Decoder, Rejection> {
        self.rpc.raw(nlm::PROGRAM, self.version, procedure as u32, payload_of(args))
    }

    pub(crate) fn call<R: Decode>(&self, procedure: Procedure, args: &impl Encode) -> R {
        let mut decoder = self.raw(procedure, args).unwrap();
        let reply = R::decode(&mut decoder).unwrap();
        decoder.finish().unwrap();
        reply
    }

    /// The status of a call; checks that its cookie comes back.
    pub(crate) fn status(&self, procedure: Procedure, args: &impl Encode) -> Status {
        let Response { cookie, status } = self.call(procedure, args);
        assert_eq!(cookie, Cookie::from("cookie"));
        status
    }

    /// A byte range of a file for an owner, which is a process of this host.
    pub(crate) fn place(&self, file: &Handle, owner: &str, (offset, length): (u64, u64)) -> Lock<u64> {
        let (caller, file, owner) = (self.name.clone(), file.clone(), OwnerHandle::from(owner));
        Lock { caller, file, owner, process: 77, offset, length }
    }

    pub(crate) fn to_lock(&self, place: Lock<u64>, exclusive: bool, block: bool) -> LockArguments<u64> {
        LockArguments { cookie: Cookie::from("cookie"), block, exclusive, lock: place, reclaim: false, state: 1 }
    }

    /// LOCK without waiting.
    pub(crate) fn lock(&self, file: &Handle, owner: &str, range: (u64, u64), exclusive: bool) -> Status {
        let args = self.to_lock(self.place(file, owner, range), exclusive, false);
        self.status(Procedure::Lock, &args)
    }

    /// LOCK that waits.
    pub(crate) fn wait(&self, file: &Handle, owner: &str, range: (u64, u64), exclusive: bool) -> Status {
        let args = self.to_lock(self.place(file, owner, range), exclusive, true);
        self.status(Procedure::Lock, &args)
    }

    pub(crate) fn reclaim(&self, file: &Handle, owner: &str, range: (u64, u64), exclusive: bool) -> Status {
        let args = self.to_lock(self.place(file, owner, range), exclusive, false);
        self.status(Procedure::Lock, &LockArguments { reclaim: true, ..args })
    }

    pub(crate) fn unlock(&self, file: &Handle, owner: &str, range: (u64, u64)) -> Status {
        let args = UnlockArguments { cookie: Cookie::from("cookie"), lock: self.place(file, owner, range) };
        self.status(Procedure::Unlock, &args)
    }

    pub(crate) fn cancel(&self, file: &Handle, owner: &str, range: (u64, u64), exclusive: bool) -> Status {
        let (cookie, lock) = (Cookie::from("cookie"), self.place(file, owner, range));
        self.status(Procedure::Cancel, &CancelArguments { cookie, block: true, exclusive, lock })
    }

    pub(crate) fn to_test(&self, file: &Handle, owner: &str, range: (u64, u64), exclusive: bool) -> TestArguments<u64> {
        TestArguments { cookie: Cookie::from("cookie"), exclusive, lock: self.place(file, owner, range) }
    }

    pub(crate) fn test(
        &self,
        file: &Handle,
        owner: &str,
        range: (u64, u64),
        exclusive: bool,
    ) -> Result<(), Result<Holder<u64>, Status>> {
        let args = self.to_test(file, owner, range, exclusive);
        match self.call::<TestResponse<u64>>(Procedure::Test, &args).tested {
            Tested::Other(Status::Granted) => Ok(()),
            Tested::Other(status) => Err(Err(status)),
            Tested::Denied(holder) => Err(Ok(holder)),
        }
    }

    fn shared(&self, procedure: Procedure, share: Share) -> Status {
        let args = ShareArguments { cookie: Cookie::from("cookie"), share, reclaim: false };
        self.call::<ShareResponse>(procedure, &args).status
    }

    pub(crate) fn share(&self, file: &Handle, owner: &str, access: ShareAccess, deny: ShareDeny) -> Status {
        let (caller, file, owner) = (self.name.clone(), file.clone(), OwnerHandle::from(owner));
        self.shared(Procedure::Share, Share { caller, file, owner, deny, access })
    }

    pub(crate) fn unshare(&self, file: &Handle, owner: &str) -> Status {
        let (caller, file, owner) = (self.name.clone(), file.clone(), OwnerHandle::from(owner));
        let (deny, access) = (ShareDeny::None, ShareAccess::None);
        self.shared(Procedure::Unshare, Share { caller, file, owner, deny, access })
    }

    pub(crate) fn free_all(&self) {
        self.call::<()>(Procedure::FreeAll, &Notice { name: self.name.clone(), state: 3 });
    }
}
