//! A lean client: it has a session with a few slots over two connections, sends calls again until they are answered,
//! and reclaims what it holds when the server has lost its sessions.

use super::{
    Scene,
    callback::{self, Program},
    checks::Thing,
    client_ip,
    delegations::Delegated,
    server::ADDRESS,
};
use rpcrdma_env::{Random, SeededRandom};
use rpcrdma_nfs::v4::{
    self, Args, Arguments, ClientId, ClientName, Handle, Outcome, Owner, OwnerName, Results, SessionId, StateId,
    Status, Verifier,
    ops::{self, ClientDirection, Failure as _, create_session, sequence_status},
};
use rpcrdma_oncrpc::{CallError, Client as Rpc, Router, SysAuth, SysCredential};
use rpcrdma_sim::Task;
use rpcrdma_transport::{ClientOptions, Quiet, Reverse, connect};
use rpcrdma_xdr::ItemData;
use std::{collections::BTreeMap, sync::Arc, time::Duration};

/// COMPOUND's number, and the largest reply that the client accepts.
const COMPOUND: u32 = 1;
const REPLY_BYTES: usize = 3_072;
/// Bytes of the server's calls and their replies.
const BACK_BYTES: u32 = 4_096 - 28;
/// Slots of a session, and connections of a client.
const SLOTS: usize = 3;
const CONNECTIONS: usize = 2;
/// How long a client waits before it repeats a call that was answered with DELAY or GRACE, or not at all.
const PAUSE: Duration = Duration::from_millis(700);
/// The flags by which SEQUENCE says that a lease was not renewed, and that the server cannot call.
const REVOKED: u32 = sequence_status::EXPIRED_SOME_STATE_REVOKED | sequence_status::EXPIRED_ALL_STATE_REVOKED;
const DOWN: u32 = sequence_status::CB_PATH_DOWN | sequence_status::CB_PATH_DOWN_SESSION;

/// The session is gone, and with it the result of the call.
#[derive(Debug)]
pub(super) struct Gone;

/// What a client holds, as the server has acknowledged.
#[derive(Clone)]
pub(super) struct Holding {
    pub(super) file: Handle,
    pub(super) owner: &'static str,
    pub(super) access: u32,
    pub(super) deny: u32,
    pub(super) open: StateId,
    /// A lock: its stateid and the range.
    pub(super) lock: Option<(StateId, (u64, u64))>,
    pub(super) delegated: Option<Delegated>,
}

pub(super) struct Client {
    pub(super) scene: Scene,
    pub(super) number: usize,
    pub(super) random: SeededRandom,
    minor: u32,
    connections: Vec<(Rpc, Task<()>)>,
    incarnation: u64,
    id: Option<ClientId>,
    session: SessionId,
    slots: [u32; SLOTS],
    pub(super) holdings: BTreeMap<Thing, Holding>,
    /// The program that takes the server's calls.
    pub(super) program: Arc<Program>,
    /// Whether the server says that it cannot call, and that it took a delegation away.
    is_down: bool,
    pub(super) has_lost: bool,
    /// Whether the server has taken something away, or may have by now, that the client has not freed: after a restart
    /// the server lets such a client reclaim nothing (RFC 8881 section 8.4.3).
    pub(super) owes_note: bool,
}

pub(super) type Outcomes = Vec<Outcome<ItemData>>;

impl Client {
    pub(super) async fn new(scene: Scene, number: usize, random: SeededRandom) -> Self {
        let program = Program::new(&scene, number, SeededRandom::new(random.next_u64()));
        let mut connections = Vec::new();
        for _ in 0..CONNECTIONS {
            connections.push(Self::connection(&scene, number, &program).await);
        }
        let minor = 1 + random.below(2) as u32;
        let mut client = Self {
            scene,
            number,
            random,
            minor,
            connections,
            incarnation: 1,
            id: None,
            session: SessionId([0; 16]),
            slots: [0; SLOTS],
            holdings: BTreeMap::new(),
            program,
            is_down: false,
            has_lost: false,
            owes_note: false,
        };
        client.recover().await;
        client
    }

    async fn connection(scene: &Scene, number: usize, program: &Arc<Program>) -> (Rpc, Task<()>) {
        let (world, env) = (&scene.world, scene.world.env());
        let handler = Arc::new(Router::new(&env).with_service(program.clone()));
        let fabric = Arc::new(world.fabric_with(client_ip(number), scene.config.clone()));
        loop {
            let mut options = ClientOptions::default();
            options.reverse = Some(Reverse { handler: handler.clone(), credits: callback::SLOTS });
            let connecting = connect(fabric.clone(), ADDRESS, &env, options, Arc::new(Quiet));
            match connecting.await {
                Ok((transport, driver)) => {
                    let driver = world.spawn(async move {
                        let _ = driver.await;
                    });
                    let identity = Arc::new(SysAuth::new(SysCredential::default()));
                    return (Rpc::new(transport, identity, v4::PROGRAM, v4::VERSION), driver);
                }
                Err(_) => world.sleep(PAUSE).await,
            }
        }
    }

    /// Sends arguments until they are answered, over one connection and then another.
    async fn send(&mut self, call: &Arguments) -> Results<ItemData> {
        let mut at = self.random.below(CONNECTIONS as u64) as usize;
        loop {
            let answered = self.connections[at].0.call_inline(COMPOUND, call, REPLY_BYTES).await;
            match answered {
                Ok(results) => return results,
                Err(CallError::Transport(error)) => {
                    self.scene.tally.count("nfs4: a call is sent again over another connection");
                    self.scene.checks.note(format!("client {}: {error}", self.number));
                    // A transport that has given up stays dead.
                    self.connections[at] = Self::connection(&self.scene, self.number, &self.program).await;
                    at = (at + 1) % CONNECTIONS;
                }
                Err(error) => {
                    self.scene.checks.found(format!("client {}: {error}", self.number));
                    self.scene.world.sleep(PAUSE).await;
                }
            }
        }
    }

    /// Sends a call without a session.
    async fn alone(&mut self, op: Args) -> Outcome<ItemData> {
        let call = Arguments::new(self.minor, vec![op]);
        self.send(&call).await.results.remove(0)
    }

    /// Sends a call and sometimes, at the same time, a copy of it over the other connection: both are the same call.
    async fn send_perhaps_twice(&mut self, call: &Arguments) -> Results<ItemData> {
        if self.random.below(4) > 0 {
            return self.send(call).await;
        }
        self.scene.tally.count("nfs4: a call comes over two connections at once");
        let (other, twin) = (self.connections[1].0.clone(), call.clone());
        let twin = self.scene.world.spawn(async move { other.call_inline(COMPOUND, &twin, REPLY_BYTES).await });
        let first = self.connections[0].0.call_inline(COMPOUND, call, REPLY_BYTES).await;
        let second = twin.await;
        match (first, second) {
            (Ok(first), Ok(second)) => {
                let is_kept = matches!(call.ops.first(), Some(Args::Sequence(first)) if first.cache);
                let is_refused = |results: &Results<ItemData>| {
                    let told = &results.results[0];
                    matches!(told, Outcome::Sequence(Err(Status::DELAY | Status::BADSESSION)))
                        || !is_kept && results.status == Status::RETRY_UNCACHED_REP
                };
                let is_same = format!("{first:?}") == format!("{second:?}");
                if !(is_same || is_refused(&first) || is_refused(&second)) {
                    self.scene.checks.found(format!("one call has two answers: {first:?} and {second:?}"));
                }
                if is_refused(&first) { second } else { first }
            }
            (Ok(results), Err(_)) | (Err(_), Ok(results)) => results,
            (Err(_), Err(_)) => self.send(call).await,
        }
    }

    /// Sends a COMPOUND in the session, and returns the results behind SEQUENCE. `None` if it was executed and its
    /// results are unknown.
    pub(super) async fn call(&mut self, cache: bool, ops: Vec<Args>) -> Result<Option<Outcomes>, Gone> {
        self.scene.checks.called();
        let slot = self.random.below(SLOTS as u64) as usize;
        self.slots[slot] += 1;
        let (session, sequence) = (self.session, self.slots[slot]);
        let highest_slot = SLOTS as u32 - 1;
        let first = ops::Sequence { session, sequence, slot: slot as u32, highest_slot, cache };
        let call = Arguments::new(self.minor, [vec![Args::Sequence(first)], ops].concat());
        loop {
            let mut results = self.send_perhaps_twice(&call).await.results;
            let told = match results.remove(0) {
                Outcome::Sequence(told) => told,
                other => {
                    self.scene.checks.found(format!("SEQUENCE is answered with {other:?}"));
                    return Err(Gone);
                }
            };
            match told {
                Ok(told) => {
                    self.is_down = told.status & DOWN != 0;
                    self.has_lost = told.status & sequence_status::RECALLABLE_STATE_REVOKED != 0;
                    if told.status & REVOKED != 0 {
                        self.scene.checks.found(format!("client {} has lost what it renewed in time", self.number));
                    }
                    let is_unknown =
                        results.first().is_some_and(|outcome| outcome.status() == Status::RETRY_UNCACHED_REP);
                    if is_unknown && cache {
                        self.scene.checks.found("an answer that was to be kept was not");
                    }
                    return Ok((!is_unknown).then_some(results));
                }
                Err(Status::DELAY) => {
                    self.scene.tally.count("nfs4: a repetition of a call that runs");
                    self.scene.world.sleep(PAUSE).await;
                }
                Err(Status::BADSESSION | Status::DEADSESSION) => {
                    self.scene.tally.count("nfs4: a session is gone");
                    return Err(Gone);
                }
                Err(other) => {
                    self.scene.checks.found(format!("SEQUENCE of client {} is answered with {other}", self.number));
                    self.scene.world.sleep(PAUSE).await;
                    return Err(Gone);
                }
            }
        }
    }

    /// Begins again, as after a crash: as soon as the server knows, all that this client held is free.
    pub(super) async fn forget(&mut self) {
        self.incarnation += 1;
        self.scene.tally.count("nfs4: a client begins anew");
        self.scene.checks.forgets(self.number);
        self.holdings.clear();
        (self.id, self.owes_note) = (None, false);
        self.recover().await;
    }

    /// Gets a session, and reclaims what it holds.
    pub(super) async fn recover(&mut self) {
        while self.try_recover().await.is_err() {
            self.scene.world.sleep(PAUSE).await;
        }
    }

    async fn try_recover(&mut self) -> Result<(), Gone> {
        let name = ClientName::from(["first", "second", "third", "judge"][self.number.min(3)]);
        let exchange = ops::ExchangeId::new(name, Verifier(self.incarnation.to_be_bytes()), 0);
        let known = match self.alone(Args::ExchangeId(Box::new(exchange))).await {
            Outcome::ExchangeId(Ok(known)) => known,
            other => return Err(self.odd(&other)),
        };
        let channel = ops::ChannelAttributes::new(8_192, 2_048, 8, SLOTS as u32);
        let mut create = ops::CreateSession::new(&known, channel);
        // This fits into the reverse direction of version 1, which is always inline.
        create.back = ops::ChannelAttributes::new(BACK_BYTES, 0, 8, callback::SLOTS);
        create.flags = create_session::CONN_BACK_CHAN;
        let created = match self.alone(Args::CreateSession(Box::new(create))).await {
            Outcome::CreateSession(Ok(created)) => created,
            // The server has restarted in between.
            Outcome::CreateSession(Err(Status::STALE_CLIENTID)) => return Err(Gone),
            other => return Err(self.odd(&other)),
        };
        (self.session, self.slots) = (created.session, [0; SLOTS]);
        if self.id == Some(known.client) {
            return Ok(());
        }
        // The server has forgotten this client.
        self.id = None;
        self.owes_note |= self.holdings.keys().any(|thing| self.may_be_lost(*thing));
        for thing in self.holdings.keys().copied().collect::<Vec<_>>() {
            self.reclaim(thing).await?;
        }
        let complete = Args::ReclaimComplete(ops::ReclaimComplete { one_file_system: false });
        match self.call(true, vec![complete]).await?.as_deref() {
            Some([Outcome::ReclaimComplete(Ok(()))]) => self.owes_note = false,
            other => self.scene.checks.found(format!("RECLAIM_COMPLETE: {other:?}")),
        }
        self.id = Some(known.client);
        Ok(())
    }

    fn odd(&self, outcome: &Outcome<ItemData>) -> Gone {
        self.scene.checks.found(format!("client {} gets no session: {outcome:?}", self.number));
        Gone
    }

    /// Reclaims what the server had acknowledged before it restarted.
    async fn reclaim(&mut self, thing: Thing) -> Result<(), Gone> {
        let Some(mut holding) = self.holdings.get(&thing).cloned() else { return Ok(()) };
        self.scene.tally.count("nfs4: something is reclaimed");
        let kind = match &holding.delegated {
            Some(delegated) if delegated.is_write => ops::DelegationKind::Write,
            Some(_) => ops::DelegationKind::Read,
            None => ops::DelegationKind::None,
        };
        let (owner, claim) = (self.owner(holding.owner), ops::Claim::Previous(kind));
        let (access, deny, how) = (holding.access, holding.deny, ops::OpenHow::NoCreate);
        let open = ops::Open { sequence: 0, access, deny, owner, how, claim };
        holding.open = match self.on(&holding.file, Args::Open(Box::new(open))).await? {
            Some(Outcome::Open(Ok(open))) => {
                if let Some(delegated) = &mut holding.delegated {
                    let (state, is_wanted) = match &open.delegation {
                        ops::Delegation::Read(read) if !delegated.is_write => (read.state, read.recalled),
                        ops::Delegation::Write(write) if delegated.is_write => (write.state, write.recalled),
                        other => return self.lost(thing, None, &format!("{other:?}")),
                    };
                    self.scene.tally.count("nfs4: a delegation is reclaimed");
                    // The reply itself may say that the delegation is recalled.
                    delegated.is_wanted |= is_wanted;
                    delegated.state = state;
                    if is_wanted {
                        self.scene.checks.recalled(&holding.file, state, self.number);
                    }
                }
                open.state
            }
            other => {
                let status = other.as_ref().map(|outcome| outcome.status());
                return self.lost(thing, status, &format!("{other:?}"));
            }
        };
        if let Some((_, (offset, length))) = holding.lock {
            let owner = self.owner("locks");
            let new = ops::NewLocker { open_sequence: 0, open_state: holding.open, lock_sequence: 0, owner };
            let (kind, locker) = (ops::LockKind::Write, ops::Locker::New(new));
            let lock = ops::Lock { kind, reclaim: true, offset, length, locker };
            let state = match self.on(&holding.file, Args::Lock(Box::new(lock))).await? {
                Some(Outcome::Lock(Ok(lock))) => lock.state,
                other => return self.lost(thing, other.as_ref().map(lock_status), &format!("{other:?}")),
            };
            holding.lock = Some((state, (offset, length)));
        }
        self.holdings.insert(thing, holding);
        Ok(())
    }

    /// Whether the server may have taken something away: a delegation that it recalled and that was not returned.
    pub(super) fn may_be_lost(&self, thing: Thing) -> bool {
        matches!(thing, Thing::Delegated(file) if self.scene.checks.may_be_lost(file, self.number))
    }

    fn lost(&mut self, thing: Thing, status: Option<Status>, why: &str) -> Result<(), Gone> {
        let checks = &self.scene.checks;
        match status {
            _ if self.may_be_lost(thing) => {}
            Some(Status::NO_GRACE) if self.owes_note => {
                self.scene.tally.count("nfs4: who has taken no note of a loss reclaims nothing");
            }
            _ => checks.found(format!("client {} does not get {thing:?} back: {why}", self.number)),
        }
        checks.gives_up(thing, self.number);
        self.holdings.remove(&thing);
        Ok(())
    }

    pub(super) fn owner(&self, name: &str) -> Owner {
        Owner { client: ClientId(0), name: OwnerName::from(name) }
    }

    /// Makes a call with one operation on a file; the server keeps the reply.
    pub(super) async fn on(&mut self, file: &Handle, op: Args) -> Result<Option<Outcome<ItemData>>, Gone> {
        let put = Args::PutFh(ops::PutFh { file: file.clone() });
        Ok(self.call(true, vec![put, op]).await?.and_then(|mut outcomes| outcomes.pop()))
    }

    /// Binds a connection to the back channel, if the server says that it has none.
    pub(super) async fn bind_if_down(&mut self) -> Result<(), Gone> {
        if !std::mem::take(&mut self.is_down) {
            return Ok(());
        }
        self.scene.tally.count("nfs4: a connection is bound again");
        let direction = ClientDirection::BackOrBoth;
        let bind = ops::BindConnToSession { session: self.session, direction, rdma_mode: false };
        match self.alone(Args::BindConnToSession(bind)).await {
            Outcome::BindConnToSession(Ok(_)) => Ok(()),
            Outcome::BindConnToSession(Err(Status::BADSESSION | Status::DEADSESSION)) => Err(Gone),
            other => {
                self.scene.checks.found(format!("client {} is not bound again: {other:?}", self.number));
                Ok(())
            }
        }
    }

    /// Renews the lease.
    pub(super) async fn renew(&mut self) -> Result<(), Gone> {
        self.call(false, vec![Args::PutRootFh]).await.map(drop)
    }

    /// Sleeps for a moment before the next attempt.
    pub(super) async fn pause(&self) {
        self.scene.world.sleep(PAUSE).await;
    }

    /// Closes its connections.
    pub(super) fn stop(self) {
        self.connections.into_iter().for_each(|(_, driver)| driver.abort());
    }
}

/// The status of a LOCK.
pub(super) fn lock_status(outcome: &Outcome<ItemData>) -> Status {
    match outcome {
        Outcome::Lock(Err(failure)) => failure.status(),
        other => other.status(),
    }
}
