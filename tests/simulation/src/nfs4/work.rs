//! The work of clients: they make and remove directories, count up counters under a lock, and open a file that only one
//! may have open. They report to the checks every call whose outcome stays unknown.

use super::{
    LEASE, Scene,
    checks::Thing,
    client::{Client, Gone, Holding, lock_status},
    delegations::{FIRST_COUNTER, NAMES as SHARED},
};
use rpcrdma_env::{Random, SeededRandom};
use rpcrdma_nfs::v4::{
    Args, FileAttributes, Handle, Name, Op, Outcome, StateId, Status,
    ops::{self, CreateKind},
};
use std::time::Duration;

/// The number of counters, one behind the other in a file, and their bytes.
const COUNTERS: u64 = 2;
const COUNTER_OCTETS: u64 = 8;
/// READ and WRITE.
pub(super) const BOTH: u32 = 3;
/// Open for reading and writing, denying nothing, and without a delegation.
const ALL: (u32, u32) = (BOTH | ops::share::WANT_NONE, 0);
/// How often a client asks for something that another has, before it gives up.
const PATIENCE: u64 = 40;
/// How often, at most, a client renews its lease while it holds something, and the time between.
const LONGEST_HELD: u64 = 3;
const RENEWED: Duration = Duration::from_secs(10);
/// The operations that must not be done twice.
const ONCE: [Op; 2] = [Op::Create, Op::Remove];

pub(super) struct Worker {
    pub(super) client: Client,
    made: Vec<String>,
    count: u64,
}

impl Worker {
    pub(super) async fn run(scene: Scene, number: usize, random: SeededRandom, rounds: u64) {
        let client = Client::new(scene, number, random).await;
        let mut worker = Self { client, made: Vec::new(), count: 0 };
        for _ in 0..rounds {
            let done = match worker.client.random.below(14) {
                0 | 1 => worker.make().await,
                2 => worker.remove().await,
                3..=5 => worker.count_up().await,
                6 => worker.have_alone().await,
                7..=9 => worker.have_delegated().await,
                10..=12 => worker.visit().await,
                _ => {
                    worker.client.forget().await;
                    Ok(())
                }
            };
            if let Err(Gone) = done {
                worker.client.recover().await;
            }
        }
        // Gives back what is left, or it would be in the way of others for a lease. First waits until the server has
        // taken away what the client never returns.
        while worker.outlast().await.is_err() {
            worker.client.recover().await;
        }
        while !worker.client.holdings.is_empty() {
            if worker.give_back().await.is_err() {
                worker.client.recover().await;
            }
        }
        worker.client.stop();
    }

    /// At the end: checks that acknowledged changes are there, and were done once.
    pub(super) async fn judge(scene: Scene, count: usize) {
        let checks = scene.checks.clone();
        let client = Client::new(scene, count.max(3), SeededRandom::new(1)).await;
        let mut judge = Self { client, made: Vec::new(), count: 0 };
        for _ in 0..PATIENCE {
            match judge.look().await {
                Ok(true) => break,
                Ok(false) => judge.client.pause().await,
                Err(Gone) => judge.client.recover().await,
            }
        }
        judge.client.stop();
        checks.judge_executions(&ONCE);
    }

    /// Checks that the counters have the values written last.
    async fn look(&mut self) -> Result<bool, Gone> {
        for (number, name) in SHARED.into_iter().enumerate() {
            let access = (BOTH | ops::share::WANT_NONE, BOTH);
            let Some((file, open)) = self.open(name, "judge", access).await? else { return Ok(false) };
            let Some(value) = self.read(&file, open.state, 0).await? else { return Ok(false) };
            self.client.scene.checks.read(FIRST_COUNTER + number, value);
            self.client.on(&file, Args::Close(ops::Close { sequence: 0, state: open.state })).await?;
        }
        let Some((file, open)) = self.open("counters", "judge", ALL).await? else { return Ok(false) };
        let state = open.state;
        for counter in 0..COUNTERS {
            let Some(value) = self.read(&file, state, counter).await? else { return Ok(false) };
            self.client.scene.checks.read(counter as usize, value);
        }
        let close = Args::Close(ops::Close { sequence: 0, state });
        self.client.on(&file, close).await?;
        Ok(true)
    }

    pub(super) fn name(text: &str) -> Name {
        Name(bytes::Bytes::copy_from_slice(text.as_bytes()))
    }

    /// Makes a directory with a unique name: if it already exists, it was made twice.
    async fn make(&mut self) -> Result<(), Gone> {
        self.count += 1;
        let name = format!("{}-{}", self.client.number, self.count);
        let kind = CreateKind::Directory;
        let create = ops::Create { kind, name: Self::name(&name), attributes: FileAttributes::default() };
        let checks = self.client.scene.checks.clone();
        let made = self.client.call(true, vec![Args::PutRootFh, Args::Create(Box::new(create))]).await;
        match made {
            Err(Gone) => {
                checks.unsure(Op::Create);
                Err(Gone)
            }
            Ok(outcomes) => {
                match outcomes.and_then(|mut outcomes| outcomes.pop()).map(|outcome| outcome.status()) {
                    Some(Status::OK) => {
                        checks.acknowledged(Op::Create);
                        self.made.push(name);
                    }
                    other => checks.found(format!("a new directory is answered with {other:?}")),
                }
                Ok(())
            }
        }
    }

    /// Removes one of these directories: if it does not exist, it was removed twice.
    async fn remove(&mut self) -> Result<(), Gone> {
        let Some(name) = self.made.pop() else { return Ok(()) };
        let remove = Args::Remove(ops::Remove { name: Self::name(&name) });
        let checks = self.client.scene.checks.clone();
        match self.client.call(true, vec![Args::PutRootFh, remove]).await {
            Err(Gone) => {
                checks.unsure(Op::Remove);
                Err(Gone)
            }
            Ok(outcomes) => {
                match outcomes.and_then(|mut outcomes| outcomes.pop()).map(|outcome| outcome.status()) {
                    Some(Status::OK) => checks.acknowledged(Op::Remove),
                    other => checks.found(format!("the end of a directory is answered with {other:?}")),
                }
                Ok(())
            }
        }
    }

    /// Opens a file, and makes it if it does not exist. `None` if another client is in the way for now.
    async fn open(
        &mut self,
        name: &str,
        owner: &str,
        (access, deny): (u32, u32),
    ) -> Result<Option<(Handle, ops::OpenOk)>, Gone> {
        let how = ops::OpenHow::Create(ops::CreateHow::Unchecked(FileAttributes::default()));
        let (owner, claim) = (self.client.owner(owner), ops::Claim::Null(Self::name(name)));
        let open = ops::Open { sequence: 0, access, deny, owner, how, claim };
        let call = vec![Args::PutRootFh, Args::Open(Box::new(open)), Args::GetFh];
        let Some(mut outcomes) = self.client.call(true, call).await? else { return Ok(None) };
        match (outcomes.pop(), outcomes.pop()) {
            (Some(Outcome::GetFh(Ok(handle))), Some(Outcome::Open(Ok(open)))) => Ok(Some((handle.file, *open))),
            (Some(outcome), _) => {
                self.denied("OPEN", outcome.status());
                Ok(None)
            }
            (None, _) => Ok(None),
        }
    }

    /// The server has refused something. It is no fault if another client has it or may reclaim it.
    pub(super) fn denied(&self, what: &str, status: Status) {
        let scene = &self.client.scene;
        match status {
            Status::GRACE => scene.tally.count("nfs4: wait for the grace period"),
            Status::DENIED => scene.tally.count("nfs4: somebody else has the lock"),
            Status::SHARE_DENIED => scene.tally.count("nfs4: somebody else denies it"),
            Status::DELAY => scene.tally.count("nfs4: asked to wait"),
            other => scene.checks.found(format!("client {}: {what} is answered with {other}", self.client.number)),
        }
    }

    async fn read(&mut self, file: &Handle, state: StateId, counter: u64) -> Result<Option<u64>, Gone> {
        let read = Args::Read(ops::Read { state, offset: counter * COUNTER_OCTETS, count: COUNTER_OCTETS as u32 });
        let put = Args::PutFh(ops::PutFh { file: file.clone() });
        match self.client.call(false, vec![put, read]).await?.and_then(|mut outcomes| outcomes.pop()) {
            Some(Outcome::Read(Ok(read))) => {
                let mut octets = [0; COUNTER_OCTETS as usize];
                let data = read.data.as_slice();
                octets[..data.len()].copy_from_slice(data);
                Ok(Some(u64::from_be_bytes(octets)))
            }
            Some(outcome) if self.is_taken_away(state, outcome.status()) => Err(Gone),
            Some(outcome) => {
                self.denied("READ", outcome.status());
                Ok(None)
            }
            None => Ok(None),
        }
    }

    /// Locks a counter, counts it up, perhaps keeps it for longer than a lease, and gives it back.
    async fn count_up(&mut self) -> Result<(), Gone> {
        let counter = self.client.random.below(COUNTERS);
        let thing = Thing::Counter(counter as usize);
        let (number, checks) = (self.client.number, self.client.scene.checks.clone());
        if !self.client.holdings.contains_key(&thing) {
            let owner = ["zero", "one"][counter as usize];
            let Some((file, open)) = self.open_patiently("counters", owner, ALL).await? else { return Ok(()) };
            let open = open.state;
            let range = (counter * COUNTER_OCTETS, COUNTER_OCTETS);
            let Some(lock) = self.lock(&file, open, range).await? else {
                self.client.on(&file, Args::Close(ops::Close { sequence: 0, state: open })).await?;
                return Ok(());
            };
            checks.got(thing, number);
            let owner = ["zero", "one"][counter as usize];
            let holding =
                Holding { file, owner, access: BOTH, deny: 0, open, lock: Some((lock, range)), delegated: None };
            self.client.holdings.insert(thing, holding);
        }
        let Some(holding) = self.client.holdings.get(&thing).cloned() else { return Ok(()) };
        let state = holding.lock.map_or(holding.open, |(state, _)| state);
        self.read_checked(&holding.file, holding.open, counter as usize, counter).await?;
        self.hold().await?;
        self.count_once(&holding.file, state, counter as usize, counter).await?;
        self.give_back().await
    }

    /// Reads a counter that no other client can write meanwhile.
    pub(super) async fn read_checked(
        &mut self,
        file: &Handle,
        state: StateId,
        number: usize,
        place: u64,
    ) -> Result<u64, Gone> {
        for _ in 0..PATIENCE {
            if let Some(value) = self.read(file, state, place).await? {
                self.client.scene.checks.read(number, value);
                return Ok(value);
            }
        }
        // The server has taken it away, and will not give it back.
        Err(Gone)
    }

    /// Counts up a counter that no other client can use meanwhile.
    pub(super) async fn count_once(
        &mut self,
        file: &Handle,
        state: StateId,
        number: usize,
        place: u64,
    ) -> Result<(), Gone> {
        let value = self.read_checked(file, state, number, place).await? + 1;
        let (client, checks) = (self.client.number, self.client.scene.checks.clone());
        let data = bytes::Bytes::copy_from_slice(&value.to_be_bytes());
        let write = ops::Write { state, offset: place * COUNTER_OCTETS, stability: ops::Stability::FileSync, data };
        // Until the reply, the value may be written or not.
        checks.wrote(number, value, false);
        match self.client.on(file, Args::Write(write)).await? {
            Some(Outcome::Write(Ok(_))) => checks.wrote(number, value, true),
            Some(outcome) if self.is_taken_away(state, outcome.status()) => return Err(Gone),
            other => checks.found(format!("client {client}: a write that excludes others is answered with {other:?}")),
        }
        Ok(())
    }

    /// Whether a status means that a delegation was not returned in time: its holder may learn this when it uses the
    /// delegation, before it has looked for its losses.
    fn is_taken_away(&self, state: StateId, status: Status) -> bool {
        let is_it = |holding: &Holding| holding.delegated.as_ref().is_some_and(|held| held.state.other == state.other);
        let mut things = self.client.holdings.iter().filter(|(_, holding)| is_it(holding)).map(|(thing, _)| *thing);
        let is_taken = status == Status::DELEG_REVOKED && things.any(|thing| self.client.may_be_lost(thing));
        if is_taken {
            self.client.scene.tally.count("nfs4: who uses a delegation learns that it was taken away");
        }
        is_taken
    }

    /// Locks a range, if it becomes free within some time.
    async fn lock(
        &mut self,
        file: &Handle,
        open: StateId,
        (offset, length): (u64, u64),
    ) -> Result<Option<StateId>, Gone> {
        for _ in 0..PATIENCE {
            let owner = self.client.owner("locks");
            let new = ops::NewLocker { open_sequence: 0, open_state: open, lock_sequence: 0, owner };
            let (kind, locker) = (ops::LockKind::Write, ops::Locker::New(new));
            let lock = Args::Lock(Box::new(ops::Lock { kind, reclaim: false, offset, length, locker }));
            match self.client.on(file, lock).await? {
                Some(Outcome::Lock(Ok(lock))) => return Ok(Some(lock.state)),
                Some(outcome) => self.denied("LOCK", lock_status(&outcome)),
                None => {}
            }
            self.client.pause().await;
            self.attend().await?;
        }
        Ok(None)
    }

    pub(super) async fn open_patiently(
        &mut self,
        name: &str,
        owner: &str,
        access: (u32, u32),
    ) -> Result<Option<(Handle, ops::OpenOk)>, Gone> {
        for _ in 0..PATIENCE {
            if let Some(opened) = self.open(name, owner, access).await? {
                return Ok(Some(opened));
            }
            self.client.pause().await;
            self.attend().await?;
        }
        Ok(None)
    }

    /// Opens a file, denying it to all others.
    async fn have_alone(&mut self) -> Result<(), Gone> {
        let (number, checks) = (self.client.number, self.client.scene.checks.clone());
        if !self.client.holdings.contains_key(&Thing::Private) {
            let access = (BOTH | ops::share::WANT_NONE, BOTH);
            let Some((file, open)) = self.open_patiently("private", "alone", access).await? else { return Ok(()) };
            let open = open.state;
            checks.got(Thing::Private, number);
            let holding = Holding { file, owner: "alone", access: BOTH, deny: BOTH, open, lock: None, delegated: None };
            self.client.holdings.insert(Thing::Private, holding);
        }
        self.hold().await?;
        self.give_back().await
    }

    /// Keeps what it has for a while, sometimes for longer than a lease, which it renews.
    pub(super) async fn hold(&mut self) -> Result<(), Gone> {
        let steps = match self.client.random.below(4) {
            0 => LEASE.as_secs() / RENEWED.as_secs() * (1 + self.client.random.below(LONGEST_HELD)),
            _ => 0,
        };
        for _ in 0..steps {
            self.client.scene.world.sleep(RENEWED).await;
            self.client.renew().await?;
            self.attend().await?;
        }
        Ok(())
    }

    /// Gives back everything, except what it never returns.
    pub(super) async fn give_back(&mut self) -> Result<(), Gone> {
        self.outlast().await?;
        while let Some((thing, holding)) = self.client.holdings.pop_first() {
            self.give_one_back(thing, holding).await?;
        }
        Ok(())
    }

    /// Gives one thing back. From now on others may get it, whatever the results of these calls are.
    pub(super) async fn give_one_back(&mut self, thing: Thing, holding: Holding) -> Result<(), Gone> {
        self.client.scene.checks.gives_up(thing, self.client.number);
        if let Some(delegated) = holding.delegated {
            self.return_delegation(&holding.file, delegated.state).await?;
        }
        if let Some((state, (offset, length))) = holding.lock {
            let (kind, sequence) = (ops::LockKind::Write, 0);
            let unlock = Args::LockU(ops::LockU { kind, sequence, state, offset, length });
            self.expect_ok(&holding.file, unlock).await?;
        }
        let close = Args::Close(ops::Close { sequence: 0, state: holding.open });
        self.expect_ok(&holding.file, close).await
    }

    pub(super) async fn expect_ok(&mut self, file: &Handle, op: Args) -> Result<(), Gone> {
        let what = op.op();
        match self.client.on(file, op).await?.map(|outcome| outcome.status()) {
            Some(Status::OK) => {}
            other => {
                let number = self.client.number;
                self.client.scene.checks.found(format!("client {number}: {what:?} is answered with {other:?}"));
            }
        }
        Ok(())
    }
}
