//! The state as the service uses it: a world with a disk that can fail, a clock in seconds, and clients whose calls are
//! steps of a test.

mod clients;
mod conflicts;
mod copies;
mod floods;
mod owners;
mod releases;
mod sequences;
mod sessions;

use super::{
    Identity, Release, State,
    callers::{Callers, Contexts},
    channel::Channel,
    clients::{Client, Principal},
    exchange::{ExchangeId, Exchanged},
    grace::{Recorded, Recovery},
    journal::tests::Platter,
    limits::Limits,
    owners::{Opened, Opening, Share},
    session::Begin,
    sessions::{CreateSession, Created},
    slots::Request,
};
use crate::claims::FileKey;
use bytes::Bytes;
use rpcrdma_env::{SeededRandom, Timestamp};
use rpcrdma_nfs::v4::{
    ClientId, List, OwnerName, SessionId, StateId, Status, Verifier,
    ops::{CallbackSecurity, create_session},
};
use rpcrdma_oncrpc::ClientNetwork;
use std::{cell::Cell, net::IpAddr, sync::Arc, time::Duration};

pub(super) const LEASE: u64 = 10;
pub(super) const COURTESY: u64 = 100;
pub(super) const ROOT: Principal = Principal::unix(0);

pub(super) fn at(seconds: u64) -> Timestamp {
    Timestamp::from_nanos(seconds * 1_000_000_000)
}

pub(super) fn limits() -> Limits {
    Limits {
        lease: Duration::from_secs(LEASE),
        grace: Duration::from_secs(LEASE),
        courtesy: Duration::from_secs(COURTESY),
        ..Limits::default()
    }
}

pub(super) fn file(number: u64) -> FileKey {
    FileKey { file_system: 1, file: crate::FileId::new(&number.to_be_bytes()).unwrap() }
}

pub(super) fn name(text: &str) -> OwnerName {
    OwnerName(Bytes::copy_from_slice(text.as_bytes()))
}

pub(super) fn share(access: u32, deny: u32) -> Share {
    Share::new(access, deny).unwrap()
}

pub(super) fn channel(slots: u32) -> Channel {
    Channel { padding: 0, request: 4_096, response: 4_096, cached: 1_024, operations: 8, slots }
}

/// A server that can start again on the same disk. The pin of an open is a number.
pub(super) struct World {
    pub(super) state: State<u32>,
    pub(super) platter: Platter,
    pub(super) now: Cell<u64>,
    connections: Cell<u64>,
}

impl World {
    pub(super) fn new() -> Self {
        Self::with(limits())
    }

    pub(super) fn with(limits: Limits) -> Self {
        Self::on(Platter::default(), limits, 0)
    }

    /// A server that starts at `now` with the contents of this disk.
    pub(super) fn on(platter: Platter, limits: Limits, now: u64) -> Self {
        let recovery = Recovery::with_store(Box::new(platter.clone()), 1_000, at(now), &limits).unwrap();
        let identity = Identity { major: Bytes::from_static(b"major"), minor: 0, scope: Bytes::from_static(b"scope") };
        let state = State::new(recovery, identity, Arc::new(SeededRandom::new(7)), limits);
        Self { state, platter, now: Cell::new(now), connections: Cell::new(100) }
    }

    /// The same after a crash.
    pub(super) fn restart(&self) -> Self {
        Self::on(self.platter.crashed(), self.state.limits().clone(), self.now.get())
    }

    pub(super) fn now(&self) -> Timestamp {
        at(self.now.get())
    }

    pub(super) fn wait(&self, seconds: u64) {
        self.now.set(self.now.get() + seconds);
    }

    pub(super) fn exchange(&self, call: &ExchangeId) -> Result<Exchanged, Status> {
        self.state.exchange_id(call, self.now())
    }

    pub(super) fn create(&self, client: ClientId, sequence: u32) -> (Result<Created, Status>, Vec<Release<u32>>) {
        self.state.create_session(&creation(client, sequence), self.now())
    }

    /// A client with a session that has not sent RECLAIM_COMPLETE.
    pub(super) fn client(&self, owner: &str) -> Guest<'_> {
        self.guest(&who(owner))
    }

    pub(super) fn guest(&self, call: &ExchangeId) -> Guest<'_> {
        let client = self.exchange(call).unwrap();
        let connection = self.connections.replace(self.connections.get() + 1);
        let create =
            CreateSession { connection, principal: call.principal, ..creation(client.client, client.sequence) };
        let (created, released) = self.state.create_session(&create, self.now());
        assert_eq!(released, []);
        let client = self.state.client(client.client).unwrap();
        Guest { world: self, client, created: created.unwrap(), connection, sequence: Cell::new(0) }
    }

    /// A client with a session that may open files.
    pub(super) fn ready(&self, owner: &str) -> Guest<'_> {
        let guest = self.client(owner);
        self.state.recovery.complete(&guest.client, self.now()).unwrap();
        guest
    }

    pub(super) fn sweep(&self) -> Vec<Release<u32>> {
        let mut released = self.state.sweep(self.now());
        released.extend(self.state.sweep_owners(self.now()));
        released
    }
}

pub(super) fn network(last: u8) -> ClientNetwork {
    ClientNetwork::of(IpAddr::from([10, 0, 0, last]))
}

pub(super) fn who(owner: &str) -> ExchangeId {
    ExchangeId {
        owner: Bytes::copy_from_slice(owner.as_bytes()),
        verifier: Verifier([1; 8]),
        flags: 0,
        minor: 1,
        principal: ROOT,
        network: network(1),
        machine: None,
        is_protected: false,
    }
}

pub(super) fn creation(client: ClientId, sequence: u32) -> CreateSession {
    CreateSession {
        client,
        sequence,
        flags: create_session::CONN_BACK_CHAN,
        fore: channel(4),
        back: channel(2),
        program: 0x4000_0000,
        callers: Callers::read(&List::<_, 1>(vec![CallbackSecurity::None]), Contexts { all: None, principal: None }),
        minor: 2,
        principal: ROOT,
        connection: 1,
        can_call: true,
    }
}

/// A client with a session.
pub(super) struct Guest<'a> {
    pub(super) world: &'a World,
    pub(super) client: Arc<Client<u32>>,
    pub(super) created: Created,
    pub(super) connection: u64,
    sequence: Cell<u32>,
}

impl Guest<'_> {
    pub(super) fn session(&self) -> SessionId {
        self.created.session
    }

    /// A SEQUENCE on slot 0 with the next number; the call ends at once.
    pub(super) fn call(&self) -> Result<super::session::Told, Status> {
        let sequence = self.sequence.get() + 1;
        let begin = self.begin(&request(0, sequence))?;
        let Begin::New(guard) = begin else { panic!("{begin:?}") };
        self.sequence.set(sequence);
        let told = guard.told();
        guard.finish(&Bytes::from_static(b"done").into(), self.world.now());
        Ok(told)
    }

    pub(super) fn begin(&self, request: &Request) -> Result<Begin<u32>, Status> {
        self.world.state.begin(self.session(), request, self.connection, self.world.now())
    }

    pub(super) fn record(&self) -> Recorded {
        self.world.state.recovery.record(&self.client).unwrap()
    }

    pub(super) fn open(&self, owner: &str, number: u64, share: Share) -> Result<Opened, Status> {
        let opening = Opening { owner: name(owner), file: file(number), share, pin: number as u32 };
        self.client.held.open(&self.record(), opening)
    }
}

pub(super) fn request(slot: u32, sequence: u32) -> Request {
    Request { slot, sequence, highest: slot, cache: true, alone: false, digest: 1, principal: ROOT }
}
