//! Sessions: CREATE_SESSION, DESTROY_SESSION, BIND_CONN_TO_SESSION and SEQUENCE (RFC 8881 sections 2.10, 18.34, 18.36,
//! 18.37, 18.46).
//!
//! Sessions stand in shards, each with a lock that is held only for a moment. A SEQUENCE takes that lock, its slot's
//! and its client's lease, and waits for no other client. CREATE_SESSION takes the table of clients, since it may
//! confirm a record and end another.

use super::{
    State,
    backchannel::BackChannel,
    callers::Callers,
    channel::Channel,
    clients::{Client, Principal, Table},
    connections::{Ask, Connections, Direction},
    lease::Standing,
    limits::Limits,
    release::Release,
    session::{Begin, Session, SlotGuard},
    slots::{Found, Request, Slots},
};
use rpcrdma_env::Timestamp;
use rpcrdma_nfs::v4::{ClientId, Op, SessionId, Status, ops::create_session};
use std::{
    collections::{HashMap, HashSet},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, RwLock,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
};

/// All flags of CREATE_SESSION: replies that survive a restart, the back channel, a step up to RDMA. The server does
/// not grant the first and the last.
const KNOWN_FLAGS: u32 = create_session::PERSIST | create_session::CONN_BACK_CHAN | create_session::CONN_RDMA;

/// The number of tables over which sessions are spread: a power of two, several for each serving thread.
const SHARDS: usize = 16;

/// The arguments of CREATE_SESSION, its sender, and its connection.
#[derive(Clone)]
pub(crate) struct CreateSession {
    /// `csa_clientid`.
    pub(crate) client: ClientId,
    /// `csa_sequence`.
    pub(crate) sequence: u32,
    /// `csa_flags`.
    pub(crate) flags: u32,
    /// `csa_fore_chan_attrs`.
    pub(crate) fore: Channel,
    /// `csa_back_chan_attrs`.
    pub(crate) back: Channel,
    /// `csa_cb_program`.
    pub(crate) program: u32,
    /// The credentials for calls to the client, from `csa_sec_parms`; or why they cannot be used.
    pub(crate) callers: Result<Callers, Status>,
    /// The minor version of the call.
    pub(crate) minor: u32,
    /// The caller.
    pub(crate) principal: Principal,
    /// The connection over which the call came.
    pub(crate) connection: u64,
    /// Whether the server can call over that connection.
    pub(crate) can_call: bool,
}

/// The results of CREATE_SESSION.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Created {
    /// `csr_sessionid`.
    pub(crate) session: SessionId,
    /// `csr_sequence`.
    pub(crate) sequence: u32,
    /// `csr_flags`.
    pub(crate) flags: u32,
    /// `csr_fore_chan_attrs`.
    pub(crate) fore: Channel,
    /// `csr_back_chan_attrs`.
    pub(crate) back: Channel,
}

/// The sessions of a client, and the reply cache of its CREATE_SESSIONs: one slot.
#[derive(Debug, Default)]
pub(super) struct Creation {
    last: u32,
    cached: Option<Result<Created, Status>>,
    pub(super) sessions: Vec<SessionId>,
}

impl Creation {
    /// The sequence number of the next CREATE_SESSION.
    pub(super) fn next(&self) -> u32 {
        self.last.wrapping_add(1)
    }
}

/// A quick hash whose seed is random is enough, because the server chooses the ids: a client can only ask for more.
type Shard<P> = RwLock<foldhash::HashMap<SessionId, Arc<Session<P>>>>;

/// All sessions, and for each connection the sessions to which it belongs.
pub(super) struct Sessions<P> {
    shards: [Shard<P>; SHARDS],
    of_connection: Mutex<HashMap<u64, HashSet<SessionId>>>,
    last: AtomicU32,
}

impl<P> Default for Sessions<P> {
    fn default() -> Self {
        Self { shards: Default::default(), of_connection: Mutex::default(), last: AtomicU32::new(0) }
    }
}

impl<P> Sessions<P> {
    fn shard(&self, id: SessionId) -> &Shard<P> {
        // The last byte counts up: see `State::session_id`.
        &self.shards[usize::from(id.0[15]) % SHARDS]
    }

    fn get(&self, id: SessionId) -> Option<Arc<Session<P>>> {
        self.shard(id).read().unwrap_or_else(PoisonError::into_inner).get(&id).cloned()
    }

    fn insert(&self, session: Arc<Session<P>>) {
        self.shard(session.id).write().unwrap_or_else(PoisonError::into_inner).insert(session.id, session);
    }

    fn remove(&self, id: SessionId) -> Option<Arc<Session<P>>> {
        let session = self.shard(id).write().unwrap_or_else(PoisonError::into_inner).remove(&id)?;
        session.is_ended.store(true, Ordering::Release);
        session.calls.end();
        let gone: Vec<_> = session.with_connections(|connections| {
            let all = connections.all().collect();
            *connections = Connections::default();
            all
        });
        gone.into_iter().for_each(|connection| self.part(connection, id));
        Some(session)
    }

    fn index(&self) -> MutexGuard<'_, HashMap<u64, HashSet<SessionId>>> {
        self.of_connection.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many sessions there are.
    pub(super) fn count(&self) -> usize {
        self.shards.iter().map(|shard| shard.read().unwrap_or_else(PoisonError::into_inner).len()).sum()
    }

    /// How many connections belong to sessions.
    pub(super) fn connections(&self) -> usize {
        self.index().len()
    }

    fn join(&self, connection: u64, session: SessionId) {
        self.index().entry(connection).or_default().insert(session);
    }

    fn part(&self, connection: u64, session: SessionId) {
        let mut index = self.index();
        if let Some(sessions) = index.get_mut(&connection) {
            sessions.remove(&session);
            if sessions.is_empty() {
                index.remove(&connection);
            }
        }
    }

    /// A connection carries a call of a session. Runs under the lock of the session's connections: the session ends
    /// only once, and the index then forgets its connections.
    fn note(&self, session: &Session<P>, connection: u64, limits: &Limits) {
        session.with_connections(|connections| {
            let noted = if session.is_ended() { None } else { connections.note(connection, limits.connections) };
            if let Some(gone) = noted {
                self.join(connection, session.id);
                gone.into_iter().for_each(|gone| self.part(gone, session.id));
            }
        });
    }

    fn bind(
        &self,
        session: &Session<P>,
        connection: u64,
        ask: Ask,
        back: bool,
        limit: usize,
    ) -> Result<Direction, Status> {
        session.with_connections(|connections| {
            if session.is_ended() {
                return Err(Status::BADSESSION);
            }
            let (direction, gone) = connections.bind(connection, ask, back, limit)?;
            self.join(connection, session.id);
            gone.into_iter().for_each(|gone| self.part(gone, session.id));
            Ok(direction)
        })
    }
}

impl<P> State<P> {
    /// The session with this id.
    ///
    /// # Errors
    /// BADSESSION if there is none.
    // NFS4-8881-18.46-d
    pub(crate) fn session(&self, id: SessionId) -> Result<Arc<Session<P>>, Status> {
        self.sessions.get(id).ok_or(Status::BADSESSION)
    }

    /// CREATE_SESSION. Whatever it returns, the releases belong to a former incarnation of the client, which the
    /// session has ended.
    ///
    /// # Errors
    /// STALE_CLIENTID if there is no such client; CLID_INUSE if the record is unconfirmed and belongs to another
    /// principal; SEQ_MISORDERED; INVAL for unknown flags; NOENT for a context that does not exist; TOOSMALL; or NOSPC
    /// if there is no room for a session. Except for the first three, a repetition gets the same answer.
    // NFS4-8881-18.36-a, NFS4-8881-18.36-b
    pub(crate) fn create_session(
        &self,
        call: &CreateSession,
        now: Timestamp,
    ) -> (Result<Created, Status>, Vec<Release<P>>) {
        let mut released = Vec::new();
        (self.try_create_session(call, now, &mut released), released)
    }

    // NFS4-8881-18.36-e
    fn try_create_session(
        &self,
        call: &CreateSession,
        now: Timestamp,
        released: &mut Vec<Release<P>>,
    ) -> Result<Created, Status> {
        let mut table = self.table();
        // A client of minor version 0 has no sessions.
        let client = table.by_id.get(&call.client).cloned().filter(|client| !client.is_zero());
        let client = client.ok_or(Status::STALE_CLIENTID)?;
        // NFS4-8881-18.36-c: only the principal that made a record confirms it. Checked before the slot, which no other
        // may advance.
        if !table.is_confirmed(&client) && client.principal() != call.principal {
            return Err(Status::CLID_INUSE);
        }
        let mut creation = client.creation();
        let is_repeated = call.sequence == creation.last;
        // NFS4-8881-18.36-l: TOOSMALL depends on the arguments alone, so their repetition gets the same answer without
        // the cache. Linux's server checks the sizes before the number, so clients may take a refused number for
        // unused.
        if is_repeated && creation.cached != Some(Err(Status::TOOSMALL)) {
            return creation.cached.unwrap_or(Err(Status::SEQ_MISORDERED));
        }
        if !is_repeated && call.sequence != creation.next() {
            return Err(Status::SEQ_MISORDERED);
        }
        let result = self.make_session(&mut table, &client, &mut creation, call, released);
        if result.is_ok() {
            client.lease.renew(now);
        }
        creation.last = call.sequence;
        creation.cached = Some(result);
        result
    }

    // NFS4-8881-18.36-d
    fn make_session(
        &self,
        table: &mut Table<P>,
        client: &Arc<Client<P>>,
        creation: &mut Creation,
        call: &CreateSession,
        released: &mut Vec<Release<P>>,
    ) -> Result<Created, Status> {
        if call.flags & !KNOWN_FLAGS != 0 {
            return Err(Status::INVAL);
        }
        if creation.sessions.len() >= self.limits.sessions {
            return Err(Status::NOSPC);
        }
        // NFS4-8881-18.36-o
        let callers = call.callers.clone()?;
        let wants_back = call.flags & create_session::CONN_BACK_CHAN != 0;
        // Also without the flag: the client may bind a later connection for the server's calls.
        // NFS4-8881-18.36-j
        let back = call.back.back()?;
        let (fore, memory) = call.fore.fore(&self.limits, &self.budget)?;
        let gets_back = wants_back && call.can_call && !callers.is_empty();
        let session = Arc::new(Session {
            id: self.session_id(),
            client: client.clone(),
            fore,
            back,
            calls: BackChannel::new(call.minor, call.program, callers, back.slots),
            slots: Slots::new(fore.slots, fore.cached),
            memory,
            connections: Mutex::default(),
            has_back: AtomicBool::new(false),
            had_back: AtomicBool::new(false),
            is_ended: AtomicBool::new(false),
        });
        let ask = if gets_back { Ask::ForeOrBoth } else { Ask::Fore };
        self.sessions.bind(&session, call.connection, ask, gets_back, self.limits.connections)?;
        // From here on nothing fails: the records change together with the session, or not at all.
        creation.sessions.push(session.id);
        let id = session.id;
        self.sessions.insert(session);
        if !table.is_confirmed(client)
            && let Some(former) = table.confirm(client)
        {
            // NFS4-8881-18.35-e
            released.extend(self.purge(&former));
        }
        let flags = if gets_back { create_session::CONN_BACK_CHAN } else { 0 };
        Ok(Created { session: id, sequence: call.sequence, flags, fore, back })
    }

    /// Sixteen bytes: the boot epoch, eight bytes that cannot be guessed, and a number that makes the id unique in this
    /// boot.
    fn session_id(&self) -> SessionId {
        let mut octets = [0; 16];
        octets[..4].copy_from_slice(&self.recovery.epoch().to_be_bytes());
        self.random.fill(&mut octets[4..12]);
        let number = self.sessions.last.fetch_add(1, Ordering::Relaxed);
        octets[12..].copy_from_slice(&number.to_be_bytes());
        SessionId(octets)
    }

    /// DESTROY_SESSION. Calls of the session that still run go on to their end.
    ///
    /// # Errors
    /// BADSESSION, or CONN_NOT_BOUND_TO_SESSION over a connection that does not belong to it.
    // NFS4-8881-18.37-a
    pub(crate) fn destroy_session(&self, id: SessionId, connection: u64) -> Result<(), Status> {
        let session = self.session(id)?;
        if !session.connections().has(connection) {
            return Err(Status::CONN_NOT_BOUND_TO_SESSION);
        }
        session.client.creation().sessions.retain(|other| *other != id);
        self.sessions.remove(id).map(drop).ok_or(Status::BADSESSION)
    }

    /// BIND_CONN_TO_SESSION; `can_call` says whether the server can call over the connection.
    /// `bctsr_use_conn_in_rdma_mode` is always false.
    ///
    /// # Errors
    /// BADSESSION; INVAL if the connection is already bound in another way than the client now demands, or if the
    /// client demands calls that the server cannot make.
    // NFS4-8881-18.34-a
    pub(crate) fn bind_connection(
        &self,
        id: SessionId,
        connection: u64,
        ask: Ask,
        can_call: bool,
    ) -> Result<Direction, Status> {
        let session = self.session(id)?;
        let can_call = can_call && session.calls.has_callers();
        self.sessions.bind(&session, connection, ask, can_call, self.limits.connections)
    }

    /// A connection has ended: it belongs to no session any more.
    pub(crate) fn connection_ended(&self, connection: u64) {
        let sessions = self.sessions.index().remove(&connection).unwrap_or_default();
        for session in sessions.into_iter().filter_map(|id| self.sessions.get(id)) {
            session.with_connections(|connections| connections.remove(connection));
            session.calls.notice();
        }
    }

    /// The sessions of a client, the newest first.
    pub(crate) fn sessions_by_age(&self, client: &Client<P>) -> Vec<Arc<Session<P>>> {
        let ids = client.creation().sessions.clone();
        ids.into_iter().rev().filter_map(|id| self.sessions.get(id)).collect()
    }

    /// SEQUENCE: renews the lease unless it fails, and takes the slot if the call is new. From now on the connection
    /// belongs to the session. If only the client's machine may bind connections, the connection must belong already.
    ///
    /// # Errors
    /// CONN_NOT_BOUND_TO_SESSION if it does not; BADSESSION if the session has ended; BADSLOT, BAD_HIGH_SLOT,
    /// SEQ_MISORDERED, SEQ_FALSE_RETRY, or DELAY while the repeated call still runs. None of them changes anything.
    // NFS4-8881-18.46-b, NFS4-8881-18.46-c
    pub(crate) fn begin_in(
        &self,
        session: Arc<Session<P>>,
        request: &Request,
        connection: u64,
        now: Timestamp,
    ) -> Result<Begin<P>, Status> {
        // NFS4-8881-18.46-g
        let is_closed = session.client.keeps_for_machine(Op::BindConnToSession);
        if is_closed && !session.with_connections(|connections| connections.has(connection)) {
            return Err(Status::CONN_NOT_BOUND_TO_SESSION);
        }
        let found = session.slots.begin(request)?;
        match found {
            Found::New { retired } => {
                session.memory.retire(retired);
                if !session.client.lease.enter(now) {
                    session.slots.finish(request.slot, None);
                    return Err(Status::BADSESSION);
                }
                let told = session.told(self.limits.lease);
                self.sessions.note(&session, connection, &self.limits);
                Ok(Begin::New(SlotGuard { session, slot: request.slot, told, is_finished: false }))
            }
            other => {
                if !session.client.lease.renew(now) {
                    return Err(Status::BADSESSION);
                }
                let begin = match other {
                    Found::Replay(reply) => Begin::Replay(reply),
                    _ => Begin::Uncached(session.told(self.limits.lease)),
                };
                self.sessions.note(&session, connection, &self.limits);
                Ok(begin)
            }
        }
    }

    /// The same, by the session's id.
    #[cfg(test)]
    pub(crate) fn begin(
        &self,
        id: SessionId,
        request: &Request,
        connection: u64,
        now: Timestamp,
    ) -> Result<Begin<P>, Status> {
        self.begin_in(self.session(id)?, request, connection, now)
    }

    /// Ends all sessions of a client.
    pub(super) fn end_sessions(&self, client: &Client<P>) {
        let sessions = std::mem::take(&mut client.creation().sessions);
        sessions.into_iter().for_each(|id| drop(self.sessions.remove(id)));
    }

    /// Whether a client's lease runs.
    pub(crate) fn is_live(&self, client: &Client<P>, now: Timestamp) -> bool {
        client.lease.standing(now, &self.limits) == Standing::Live
    }
}
