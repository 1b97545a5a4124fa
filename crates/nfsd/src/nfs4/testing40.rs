//! A client of minor version 0 for tests: whole COMPOUNDs to the handler of a server, without a transport.
//!
//! ```text
//! let client = Client40::new(&server, "a");        SETCLIENTID, SETCLIENTID_CONFIRM
//! let owner = client.owner("o");                   counts its sequence numbers
//! client.open(&owner, "f", BOTH, 0)                OPEN, and OPEN_CONFIRM if it is asked for
//! ```

use super::testing::{TestServer, only};
use crate::testing;
use rpcrdma_nfs::v4::{
    Args, Arguments, ClientId, ClientName, FileAttributes, Handle, Name, Opaque, Outcome, Owner, OwnerName, PROGRAM,
    Results, StateId, Status, VERSION, Value, Verifier,
    ops::{self, Claim, CreateHow, DelegationKind, Locker, OpenHow, open_result},
};
use rpcrdma_xdr::{Decode, Encode, Encoder, ItemData};
use std::cell::Cell;

/// A client of minor version 0.
pub(crate) struct Client40 {
    pub(crate) rpc: testing::Client,
    pub(crate) id: ClientId,
    name: String,
}

/// An owner of opens or of locks, with its last sequence number.
pub(crate) struct Counter {
    pub(crate) owner: Owner,
    pub(crate) last: Cell<u32>,
}

impl Counter {
    /// The next sequence number.
    pub(crate) fn next(&self) -> u32 {
        self.last.set(self.last.get().wrapping_add(1));
        self.last.get()
    }
}

/// SETCLIENTID of an incarnation of a client.
pub(crate) fn set_client_id(name: &str, incarnation: u64) -> Args {
    let address = ops::NetAddress { netid: Opaque("tcp".into()), address: Opaque("127.0.0.1.8.1".into()) };
    Args::SetClientId(Box::new(ops::SetClientId {
        owner: ops::ClientOwner { verifier: Verifier(incarnation.to_be_bytes()), name: ClientName::from(name) },
        callback: ops::CallbackClient { program: 0x4000_0000, address },
        callback_ident: 1,
    }))
}

impl Client40 {
    /// A confirmed client.
    pub(crate) fn new(server: &TestServer, name: &str) -> Self {
        Self::of_incarnation(server, name, 0, 1)
    }

    /// The same with this user and incarnation.
    pub(crate) fn of_incarnation(server: &TestServer, name: &str, uid: u32, incarnation: u64) -> Self {
        let mut client = Self::over(server.version_3().as_user(uid, uid, &[]), name);
        client.known(incarnation);
        client
    }

    /// The same, and a file `f` that its owner `o` has made and has open.
    pub(crate) fn with_file(server: &TestServer, name: &str) -> (Self, Counter, Handle, StateId) {
        let client = Self::new(server, name);
        let owner = client.owner("o");
        let (file, state) = client.create(&owner, "f");
        (client, owner, file, state)
    }

    /// OPEN that reclaims the current file.
    pub(crate) fn to_reclaim(&self, owner: &Counter, access: u32) -> Args {
        let claim = Claim::Previous(DelegationKind::None);
        Args::Open(Box::new(ops::Open { claim, ..self.to_open(owner, "", access, 0) }))
    }

    /// A client that the server does not know yet.
    pub(crate) fn over(rpc: testing::Client, name: &str) -> Self {
        Self { rpc, id: ClientId(0), name: name.to_owned() }
    }

    /// The same client as another user.
    pub(crate) fn as_user(&self, uid: u32) -> Self {
        Self { rpc: self.rpc.as_user(uid, uid, &[]), id: self.id, name: self.name.clone() }
    }

    /// Makes the client known.
    pub(crate) fn known(&mut self, incarnation: u64) {
        let answer = only!(self.one(set_client_id(&self.name, incarnation)), SetClientId).unwrap();
        let confirm = ops::SetClientIdConfirm { client: answer.client, confirm: answer.confirm };
        assert_eq!(self.one(Args::SetClientIdConfirm(confirm)).status(), Status::OK);
        self.id = answer.client;
    }

    /// A whole COMPOUND, sent as it is.
    pub(crate) fn send(&self, ops: Vec<Args>) -> Results<ItemData> {
        self.send_as(0, ops)
    }

    /// The same in a minor version.
    pub(crate) fn send_as(&self, minor: u32, ops: Vec<Args>) -> Results<ItemData> {
        let mut encoder = Encoder::new();
        Arguments::new(minor, ops).encode(&mut encoder);
        let mut decoder = self.rpc.raw(PROGRAM, VERSION, 1, encoder.finish()).unwrap();
        let results: Results<ItemData> = Results::decode(&mut decoder).unwrap();
        decoder.finish().unwrap();
        let last = results.results.last().map_or(results.status, Outcome::status);
        assert_eq!(results.status, last, "the status of the whole");
        assert!(minor > 0 || last.0 <= Status::CB_PATH_DOWN.0, "{last} is none of minor version 0");
        results
    }

    /// The outcome of the last operation, or of the one that has failed.
    pub(crate) fn last(&self, ops: Vec<Args>) -> Outcome<ItemData> {
        self.send(ops).results.pop().unwrap()
    }

    pub(crate) fn one(&self, op: Args) -> Outcome<ItemData> {
        self.last(vec![op])
    }

    /// Executes one operation on a file.
    pub(crate) fn on(&self, file: &Handle, op: Args) -> Outcome<ItemData> {
        self.last(vec![Args::PutFh(ops::PutFh { file: file.clone() }), op])
    }

    /// A new owner.
    pub(crate) fn owner(&self, name: &str) -> Counter {
        Counter { owner: Owner { client: self.id, name: OwnerName::from(name) }, last: Cell::new(0) }
    }

    pub(crate) fn to_open(&self, owner: &Counter, name: &str, access: u32, deny: u32) -> ops::Open {
        let (owner, sequence) = (owner.owner.clone(), owner.next());
        ops::Open { sequence, access, deny, owner, how: OpenHow::NoCreate, claim: Claim::Null(Name::from(name)) }
    }

    /// OPEN in the root, without OPEN_CONFIRM.
    pub(crate) fn open_as_is(&self, open: ops::Open) -> Result<(Handle, ops::OpenOk), Status> {
        let mut outcomes = self.send(vec![Args::PutRootFh, Args::Open(Box::new(open)), Args::GetFh]).results;
        match (outcomes.pop().unwrap(), outcomes.pop().unwrap()) {
            (Outcome::GetFh(handle), Outcome::Open(opened)) => Ok((handle.unwrap().file, *opened.unwrap())),
            (failed, _) => Err(failed.status()),
        }
    }

    pub(crate) fn confirm(&self, owner: &Counter, file: &Handle, state: StateId) -> Result<StateId, Status> {
        let confirm = ops::OpenConfirm { state, sequence: owner.next() };
        only!(self.on(file, Args::OpenConfirm(confirm)), OpenConfirm).map(|ok| ok.state)
    }

    /// OPEN, and OPEN_CONFIRM if the server asks for it.
    pub(crate) fn open_with(&self, owner: &Counter, open: ops::Open) -> Result<(Handle, StateId), Status> {
        let (file, opened) = self.open_as_is(open)?;
        match opened.flags & open_result::CONFIRM {
            0 => Ok((file, opened.state)),
            _ => self.confirm(owner, &file, opened.state).map(|state| (file, state)),
        }
    }

    pub(crate) fn open(
        &self,
        owner: &Counter,
        name: &str,
        access: u32,
        deny: u32,
    ) -> Result<(Handle, StateId), Status> {
        self.open_with(owner, self.to_open(owner, name, access, deny))
    }

    /// Makes a file, and opens it for reading and writing.
    pub(crate) fn create(&self, owner: &Counter, name: &str) -> (Handle, StateId) {
        let how = CreateHow::Guarded(FileAttributes::of(&[Value::Mode(0o644)]));
        let open = ops::Open { how: OpenHow::Create(how), ..self.to_open(owner, name, 3, 0) };
        self.open_with(owner, open).unwrap()
    }

    pub(crate) fn close(&self, owner: &Counter, file: &Handle, state: StateId) -> Status {
        self.on(file, Args::Close(ops::Close { sequence: owner.next(), state })).status()
    }

    pub(crate) fn downgrade(
        &self,
        owner: &Counter,
        file: &Handle,
        state: StateId,
        access: u32,
    ) -> Result<StateId, Status> {
        let downgrade = ops::OpenDowngrade { state, sequence: owner.next(), access, deny: 0 };
        only!(self.on(file, Args::OpenDowngrade(downgrade)), OpenDowngrade).map(|ok| ok.state)
    }

    /// LOCK for writing.
    pub(crate) fn lock(&self, file: &Handle, locker: Locker, range: (u64, u64)) -> Result<StateId, ops::LockFailure> {
        let kind = ops::LockKind::Write;
        let lock = ops::Lock { kind, reclaim: false, offset: range.0, length: range.1, locker };
        only!(self.on(file, Args::Lock(Box::new(lock))), Lock).map(|ok| ok.state)
    }

    pub(crate) fn unlock(&self, lock: &Counter, file: &Handle, state: StateId) -> Result<StateId, Status> {
        let (kind, sequence) = (ops::LockKind::Write, lock.next());
        let unlock = ops::LockU { kind, sequence, state, offset: 0, length: u64::MAX };
        only!(self.on(file, Args::LockU(unlock)), LockU).map(|ok| ok.state)
    }

    pub(crate) fn release_lock_owner(&self, lock: &Counter) -> Status {
        self.one(Args::ReleaseLockOwner(ops::ReleaseLockOwner { owner: lock.owner.clone() })).status()
    }

    pub(crate) fn renew(&self) -> Status {
        self.one(Args::Renew(ops::Renew { client: self.id })).status()
    }

    pub(crate) fn read(&self, file: &Handle, state: StateId) -> Result<Vec<u8>, Status> {
        let outcome = self.on(file, Args::Read(ops::Read { state, offset: 0, count: 100 }));
        only!(outcome, Read).map(|ok| ok.data.as_slice().to_vec())
    }

    pub(crate) fn write(&self, file: &Handle, state: StateId, data: &[u8]) -> Result<u32, Status> {
        let write = ops::Write { state, offset: 0, stability: ops::Stability::Unstable, data: data.to_vec().into() };
        only!(self.on(file, Args::Write(write)), Write).map(|ok| ok.count)
    }
}

/// The first lock of an owner by an open.
pub(crate) fn first(opener: &Counter, open_state: StateId, locker: &Counter) -> Locker {
    let (open_sequence, lock_sequence) = (opener.next(), locker.next());
    Locker::New(ops::NewLocker { open_sequence, open_state, lock_sequence, owner: locker.owner.clone() })
}

/// A later lock of an owner.
pub(crate) fn known(locker: &Counter, state: StateId) -> Locker {
    Locker::Known(ops::KnownLocker { state, sequence: locker.next() })
}
