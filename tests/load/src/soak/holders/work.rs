//! The work of holders: they open files and get delegations, lock files and wait for locks, write under claims that
//! exclude others, remove names, and give everything back.

use super::{DIRECTORY, EXPIRED, Held, Holder, LATE, LEASE, LOCKED, Manner, PAUSE, Thing, ledger::Claim, link::Gone};
use crate::clients::CALL_LIMIT;
use rpcrdma_env::Random as _;
use rpcrdma_nfs::v4::{
    Args, ClientId, FileAttributes, Handle, Name, Outcome, Owner, OwnerName, StateId, Status, Value,
    ops::{
        self, Claim as By, CreateHow, Delegation, Failure as _, LockKind, Locker, NewLocker, OpenHow, Stability, share,
    },
};
use rpcrdma_xdr::ItemData;
use std::time::{Duration, Instant};

/// The number of files that holders share, and the most claims that one holder has at a time.
const FILES: u64 = 10;
const MOST_HELD: usize = 6;
/// Bytes of a file: it holds a number that holders count up.
const OCTETS: u32 = 8;
/// The pause before a holder asks again: for a file whose delegation another has to return, and for a lock, although
/// the server tells when it is free.
const RETRY: Duration = Duration::from_millis(100);
const LOCK_RETRY: Duration = Duration::from_secs(1);
/// How long a holder may wait for what another has to give back, without quiet points: a lease, and more for a busy
/// machine.
const RECALL_PATIENCE: Duration = LEASE.saturating_mul(4);

/// What a holder wants next.
#[derive(Clone, Debug)]
pub(super) struct Wish {
    name: u64,
    what: Wanted,
    /// The file, if the holder has already opened it.
    opened: Option<(Handle, StateId)>,
    /// How long it has waited, without quiet points.
    waited: Duration,
    last: Instant,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wanted {
    Has(Claim),
    Removed,
}

impl Wanted {
    fn words(self) -> &'static str {
        match self {
            Self::Has(Claim::ReadDelegation) => "open, delegated for reading",
            Self::Has(Claim::WriteDelegation) => "open, delegated for writing",
            Self::Has(Claim::ReadLock) => "lock for reading",
            Self::Has(_) => "lock for writing",
            Self::Removed => "remove a shared file",
        }
    }
}

type Outcomes = Vec<Outcome<ItemData>>;

/// Whether the server reports by this status that it has taken something away.
fn is_loss(status: Status) -> bool {
    matches!(status, Status::EXPIRED | Status::DELEG_REVOKED | Status::BAD_STATEID | Status::ADMIN_REVOKED)
}

fn status_of(outcomes: &Outcomes) -> Status {
    match outcomes.last() {
        Some(Outcome::Lock(Err(failure))) => failure.status(),
        Some(outcome) => outcome.status(),
        None => Status::OK,
    }
}

impl Holder {
    /// Makes a call in the session.
    pub(super) async fn call(&mut self, ops: Vec<Args>) -> Result<Outcomes, Gone> {
        let before = self.link.heard;
        let results = self.link.call(ops).await?;
        self.ledger.heard(self.number, self.link.heard);
        if self.link.flags & super::DOWN != 0 {
            self.ledger.unreachable(self.number, before);
        }
        if self.link.flags & EXPIRED != 0 && before.elapsed() < LEASE / 2 {
            return Err(Gone::Wrong("the lease was renewed, and is over".to_owned()));
        }
        Ok(results)
    }

    /// Does operations on a file, again and again while the server asks to try later.
    async fn on(&mut self, file: &Handle, op: Args) -> Result<Outcomes, Gone> {
        let put = Args::PutFh(ops::PutFh { file: file.clone() });
        let begin = Instant::now();
        loop {
            let outcomes = self.call(vec![put.clone(), op.clone()]).await?;
            match status_of(&outcomes) {
                Status::DELAY if begin.elapsed() < CALL_LIMIT => tokio::time::sleep(RETRY).await,
                _ => return Ok(outcomes),
            }
        }
    }

    /// Begins something new, or goes on with its wish.
    pub(super) async fn step(&mut self) -> Result<(), Gone> {
        let Some(mut wish) = self.wish.take() else { return self.begin().await };
        let now = Instant::now();
        wish.waited += now.saturating_duration_since(wish.last).min(LOCK_RETRY);
        wish.last = now;
        let patience = if wish.opened.is_some() { CALL_LIMIT } else { RECALL_PATIENCE };
        if wish.waited > patience {
            return Err(Gone::Wrong(format!("it does not get what others have to give back: {wish:?}")));
        }
        self.fulfil(wish).await
    }

    /// Draws what it does next.
    async fn begin(&mut self) -> Result<(), Gone> {
        let (kind, name) = (self.random.below(100), self.random.below(FILES));
        let pause = Duration::from_millis(self.random.below(PAUSE));
        self.next = Instant::now() + pause;
        if self.held.len() >= MOST_HELD {
            return self.give_back(0).await;
        }
        let what = match kind {
            0..25 => Wanted::Has(Claim::WriteDelegation),
            25..45 => Wanted::Has(Claim::ReadDelegation),
            45..70 => Wanted::Has(Claim::WriteLock),
            70..80 => Wanted::Has(Claim::ReadLock),
            80..90 => Wanted::Removed,
            90..99 if self.held.is_empty() => return Ok(()),
            90..99 => return self.give_back(self.random.below(self.held.len() as u64) as usize).await,
            _ => return self.vanish().await,
        };
        self.fulfil(Wish { name, what, opened: None, waited: Duration::ZERO, last: Instant::now() }).await
    }

    /// Vanishes for a while, with all its claims.
    async fn vanish(&mut self) -> Result<(), Gone> {
        let away = LEASE.mul_f64(self.random.below(150) as f64 / 100.0);
        self.link.hang_up();
        let begin = Instant::now();
        while begin.elapsed() < away && !self.scene.is_over() {
            tokio::time::sleep(RETRY).await;
        }
        Err(Gone::Vanished)
    }

    /// Asks once for what it wants.
    async fn fulfil(&mut self, mut wish: Wish) -> Result<(), Gone> {
        if wish.what == Wanted::Removed {
            return self.remove(wish).await;
        }
        if wish.opened.is_none() {
            match self.open(&wish).await? {
                Some((file, open, delegation)) => match wish.what {
                    Wanted::Has(claim) if claim.is_delegation() => {
                        return self.delegated(wish, (file, open), delegation).await;
                    }
                    _ => wish.opened = Some((file, open)),
                },
                None => return self.wait(wish, RETRY),
            }
        }
        self.lock(wish).await
    }

    fn wait(&mut self, wish: Wish, retry: Duration) -> Result<(), Gone> {
        self.next = Instant::now() + retry;
        self.wish = Some(wish);
        Ok(())
    }

    fn done(&self, wish: &Wish) {
        let (what, took) = (wish.what.words(), wish.waited + wish.last.elapsed());
        self.scene.report(|report| report.done(what, took));
    }

    /// Which open a claim needs.
    fn access(claim: Claim) -> Claim {
        if matches!(claim, Claim::ReadDelegation | Claim::ReadLock) { Claim::Reads } else { Claim::Writes }
    }

    async fn open(&mut self, wish: &Wish) -> Result<Option<(Handle, StateId, Delegation)>, Gone> {
        let Wanted::Has(claim) = wish.what else { return Ok(None) };
        let access = if Self::access(claim) == Claim::Reads { share::READ } else { share::BOTH };
        let want = match claim {
            Claim::ReadDelegation => share::WANT_READ,
            Claim::WriteDelegation => share::WANT_WRITE,
            _ => share::WANT_NONE,
        };
        let how = OpenHow::Create(CreateHow::Unchecked(FileAttributes::of(&[Value::Mode(0o666)])));
        // A new owner for each open, so that a CLOSE ends only this open.
        self.owners += 1;
        let owner = Owner { client: ClientId(0), name: OwnerName::from(&*format!("o{}", self.owners)) };
        let claim_by = By::Null(Name::from(&*format!("f{}", wish.name)));
        let open = ops::Open { sequence: 0, access: access | want, deny: 0, owner, how, claim: claim_by };
        let directory = Args::Lookup(ops::Lookup { name: Name::from(DIRECTORY) });
        let mut outcomes = self.call(vec![Args::PutRootFh, directory, Args::Open(Box::new(open)), Args::GetFh]).await?;
        match (outcomes.pop(), outcomes.pop()) {
            (Some(Outcome::GetFh(Ok(handle))), Some(Outcome::Open(Ok(open)))) => {
                // Copies the handle, because it is a part of the received message.
                let file = Handle::new(handle.file.as_slice()).ok_or(Gone::Wrong("a long handle".to_owned()))?;
                let got = self.ledger.got(&file, self.who(), Self::access(claim), Instant::now());
                got.map_err(Gone::Broken)?;
                Ok(Some((file, open.state, open.delegation)))
            }
            (Some(failed), _) => match failed.status() {
                Status::DELAY | Status::GRACE => Ok(None),
                other => Err(Gone::Wrong(format!("OPEN of {wish:?} is answered with {other}"))),
            },
            (None, _) => Err(Gone::Wrong("OPEN has no results".to_owned())),
        }
    }

    /// Takes the reply to an open that wished for a delegation.
    async fn delegated(
        &mut self,
        wish: Wish,
        (file, open): (Handle, StateId),
        delegation: Delegation,
    ) -> Result<(), Gone> {
        let (state, claim) = match &delegation {
            Delegation::Read(read) => (read.state, Claim::ReadDelegation),
            Delegation::Write(write) => (write.state, Claim::WriteDelegation),
            Delegation::None | Delegation::NoneExtended(_) => {
                self.count("opened without a delegation");
                let access = if wish.what == Wanted::Has(Claim::ReadDelegation) { Claim::Reads } else { Claim::Writes };
                return self.close(&file, (open, access)).await;
            }
            other => return Err(Gone::Wrong(format!("OPEN brings {other:?}"))),
        };
        if wish.what != Wanted::Has(claim) {
            return Err(Gone::Wrong(format!("{wish:?} brings {claim:?}")));
        }
        self.ledger.got(&file, self.who(), claim, Instant::now()).map_err(Gone::Broken)?;
        self.done(&wish);
        let manner = match self.random.below(100) {
            0..60 => Manner::AtOnce,
            60..90 => Manner::Late(Duration::from_millis(self.random.below(LATE))),
            _ => Manner::Never,
        };
        let recalled = self.early.remove(&state.other).then(Instant::now);
        // The other early recalls were for delegations that had already been returned.
        self.early.clear();
        if recalled.is_some() {
            self.count("told before it was told of the delegation");
            self.ledger.recalled(&file, self.number, Instant::now());
        }
        let thing = Thing::Delegation { manner, recalled };
        let held = Held { file, open: (open, Self::access(claim)), state, claim, thing };
        self.held.push(held.clone());
        self.read(&held).await.map(drop)
    }

    async fn lock(&mut self, wish: Wish) -> Result<(), Gone> {
        let (Wanted::Has(claim), Some((file, open_state))) = (wish.what, wish.opened.clone()) else { return Ok(()) };
        let owner = Owner { client: ClientId(0), name: OwnerName::from(&*format!("l{}", self.owners)) };
        let locker = Locker::New(NewLocker { open_sequence: 0, open_state, lock_sequence: 0, owner });
        let kind = if claim == Claim::ReadLock { LockKind::ReadWaiting } else { LockKind::WriteWaiting };
        let lock = ops::Lock { kind, reclaim: false, offset: 0, length: u64::MAX, locker };
        let outcomes = self.on(&file, Args::Lock(Box::new(lock))).await?;
        match (outcomes.last(), status_of(&outcomes)) {
            (Some(Outcome::Lock(Ok(locked))), _) => {
                self.ledger.got(&file, self.who(), claim, Instant::now()).map_err(Gone::Broken)?;
                self.done(&wish);
                let until = Instant::now() + Duration::from_millis(self.random.below(LOCKED));
                let open = (open_state, Self::access(claim));
                let held = Held { file, open, state: locked.state, claim, thing: Thing::Lock { until } };
                self.held.push(held.clone());
                self.read(&held).await.map(drop)
            }
            (_, Status::DENIED | Status::GRACE) => {
                self.count("a lock that somebody else has");
                self.wait(wish, LOCK_RETRY)
            }
            (_, status) => self.failed(&file, Self::access(claim), "LOCK", status),
        }
    }

    async fn remove(&mut self, wish: Wish) -> Result<(), Gone> {
        let directory = Args::Lookup(ops::Lookup { name: Name::from(DIRECTORY) });
        let remove = Args::Remove(ops::Remove { name: Name::from(&*format!("f{}", wish.name)) });
        let outcomes = self.call(vec![Args::PutRootFh, directory, remove]).await?;
        match status_of(&outcomes) {
            Status::OK | Status::NOENT => {
                self.done(&wish);
                Ok(())
            }
            Status::DELAY | Status::GRACE => self.wait(wish, RETRY),
            other => Err(Gone::Wrong(format!("REMOVE is answered with {other}"))),
        }
    }

    /// Reads the number in a file under a claim that excludes writers.
    async fn read(&mut self, held: &Held) -> Result<u64, Gone> {
        let read = Args::Read(ops::Read { state: held.state, offset: 0, count: OCTETS });
        let outcomes = self.on(&held.file, read).await?;
        let Some(Outcome::Read(Ok(read))) = outcomes.last() else {
            return self.failed(&held.file, held.claim, "READ", status_of(&outcomes)).map(|()| 0);
        };
        let mut octets = [0; OCTETS as usize];
        let data = read.data.as_slice();
        octets.iter_mut().zip(data).for_each(|(octet, data)| *octet = *data);
        let value = u64::from_be_bytes(octets);
        self.ledger.read(&held.file, value).map_err(Gone::Broken)?;
        Ok(value)
    }

    /// Counts up the number in a file under a claim that excludes all others.
    async fn write(&mut self, held: &Held) -> Result<(), Gone> {
        let value = self.read(held).await? + 1;
        let data = bytes::Bytes::copy_from_slice(&value.to_be_bytes());
        let write = ops::Write { state: held.state, offset: 0, stability: Stability::FileSync, data };
        self.ledger.writes(&held.file, value);
        let outcomes = self.on(&held.file, Args::Write(write)).await?;
        let is_written = status_of(&outcomes) == Status::OK;
        self.ledger.wrote(&held.file, value, is_written);
        match status_of(&outcomes) {
            Status::OK => Ok(()),
            status => self.failed(&held.file, held.claim, "WRITE", status),
        }
    }

    /// The server has refused an operation under a claim of this holder.
    fn failed(&self, file: &Handle, claim: Claim, what: &str, status: Status) -> Result<(), Gone> {
        match is_loss(status) && self.ledger.may_be_lost(file, self.number, claim, Instant::now()) {
            true => Err(Gone::Lost),
            false => Err(Gone::Wrong(format!("{what} of {file:?} by {claim:?} is answered with {status}"))),
        }
    }

    /// Gives back a claim on a file, after using it once more.
    pub(super) async fn give_back(&mut self, at: usize) -> Result<(), Gone> {
        let held = self.held[at].clone();
        match held.claim {
            Claim::WriteDelegation | Claim::WriteLock => self.write(&held).await?,
            _ => drop(self.read(&held).await?),
        }
        self.held.swap_remove(at);
        let Held { file, open, state, claim, thing } = held;
        let may_be_lost = self.ledger.may_be_lost(&file, self.number, claim, Instant::now());
        // From now on others may get the claim, whatever the result of the call is.
        self.ledger.gives_up(&file, self.number, claim);
        let give = match thing {
            Thing::Delegation { .. } => Args::DelegReturn(ops::DelegReturn { state }),
            Thing::Lock { .. } => {
                let kind = if claim == Claim::ReadLock { LockKind::Read } else { LockKind::Write };
                Args::LockU(ops::LockU { kind, sequence: 0, state, offset: 0, length: u64::MAX })
            }
        };
        let outcomes = self.on(&file, give).await?;
        match status_of(&outcomes) {
            Status::OK => self.close(&file, open).await,
            status if is_loss(status) && may_be_lost => Err(Gone::Lost),
            status => Err(Gone::Wrong(format!("{claim:?} of {file:?} is given back and answered with {status}"))),
        }
    }

    async fn close(&mut self, file: &Handle, (state, access): (StateId, Claim)) -> Result<(), Gone> {
        let may_be_lost = self.ledger.may_be_lost(file, self.number, access, Instant::now());
        self.ledger.gives_up(file, self.number, access);
        let outcomes = self.on(file, Args::Close(ops::Close { sequence: 0, state })).await?;
        match status_of(&outcomes) {
            Status::OK => Ok(()),
            status if is_loss(status) && may_be_lost => Err(Gone::Lost),
            status => Err(Gone::Wrong(format!("CLOSE of {file:?} is answered with {status}"))),
        }
    }

    /// The server has taken delegations away: finds out which, checks that they are no longer valid, and frees them.
    pub(super) async fn look_for_what_is_lost(&mut self) -> Result<(), Gone> {
        let all: Vec<Held> = self.held.iter().filter(|held| held.claim.is_delegation()).cloned().collect();
        let states = rpcrdma_nfs::v4::List(all.iter().map(|held| held.state).collect());
        let outcomes = self.call(vec![Args::TestStateId(ops::TestStateId { states })]).await?;
        let Some(Outcome::TestStateId(Ok(tested))) = outcomes.last() else {
            return Err(Gone::Wrong(format!("TEST_STATEID is answered with {outcomes:?}")));
        };
        let statuses = tested.statuses.0.clone();
        let lost: Vec<_> = all.iter().zip(&statuses).filter(|(_, status)| **status != Status::OK).collect();
        if lost.is_empty() {
            return Err(Gone::Wrong("SEQUENCE says that a delegation was taken away, and none was".to_owned()));
        }
        for (held, status) in lost {
            self.failed_unless_lost(held, *status)?;
            let read = Args::Read(ops::Read { state: held.state, offset: 0, count: OCTETS });
            let outcomes = self.on(&held.file, read).await?;
            if !is_loss(status_of(&outcomes)) {
                return Err(Gone::Wrong(format!("a delegation that was taken away reads: {outcomes:?}")));
            }
            self.count("a delegation lost");
            let free = self.call(vec![Args::FreeStateId(ops::FreeStateId { state: held.state })]).await?;
            if status_of(&free) != Status::OK {
                return Err(Gone::Wrong(format!("FREE_STATEID is answered with {free:?}")));
            }
            self.ledger.gives_up(&held.file, self.number, held.claim);
            self.held.retain(|other| other.state != held.state);
            self.close(&held.file, held.open).await?;
        }
        // The server delegates nothing to this client any more, only to its next incarnation.
        if self.held.iter().any(|held| matches!(held.thing, Thing::Delegation { manner: Manner::Never, .. })) {
            return Ok(());
        }
        self.call(Vec::new()).await?;
        if self.link.flags & rpcrdma_nfs::v4::ops::sequence_status::RECALLABLE_STATE_REVOKED != 0 {
            return Err(Gone::Wrong("SEQUENCE goes on saying that a delegation was taken away".to_owned()));
        }
        Err(Gone::Lost)
    }

    fn failed_unless_lost(&self, held: &Held, status: Status) -> Result<(), Gone> {
        match self.failed(&held.file, held.claim, "TEST_STATEID", status) {
            Err(Gone::Lost) => Ok(()),
            other => other,
        }
    }

    /// Gives back all claims, and what it was about to get.
    pub(super) async fn give_back_all(&mut self) -> Result<(), Gone> {
        if let Some(Wish { what: Wanted::Has(claim), opened: Some((file, open)), .. }) = self.wish.take() {
            self.close(&file, (open, Self::access(claim))).await?;
        }
        while !self.held.is_empty() {
            self.give_back(0).await?;
        }
        Ok(())
    }
}
