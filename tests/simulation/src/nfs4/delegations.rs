//! The work of clients with delegations: one client has a file alone, or several read it, until another client wants a
//! conflicting use. A few clients do not return their delegation, and lose it.

use super::{
    LEASE,
    checks::Thing,
    client::{Gone, Holding},
    work::{BOTH, Worker},
};
use rpcrdma_env::Random;
use rpcrdma_nfs::v4::{
    Args, Handle, List, Outcome, StateId, Status,
    ops::{self, Delegation, share},
};
use std::time::Duration;

/// How many files may be delegated.
const FILES: u64 = 3;
pub(super) const NAMES: [&str; FILES as usize] = ["shared 0", "shared 1", "shared 2"];
/// The counters in these files have numbers behind those of the locked counters.
pub(super) const FIRST_COUNTER: usize = 2;
/// One delegation in so many is not returned.
const NEVER_ONE_IN: u64 = 6;
/// How long a client that returns nothing waits until its delegation is taken away: some leases.
const LAST: Duration = LEASE.saturating_mul(4);
/// Deny WRITE.
const WRITE: u32 = 2;

/// A delegation that a client has.
#[derive(Clone, Debug)]
pub(super) struct Delegated {
    pub(super) state: StateId,
    pub(super) is_write: bool,
    pub(super) is_wanted: bool,
    /// Whether the client will never return it.
    pub(super) is_kept: bool,
}

impl Worker {
    /// Opens a file, and uses it for a while if it gets a delegation.
    pub(super) async fn have_delegated(&mut self) -> Result<(), Gone> {
        let file = self.client.random.below(FILES) as usize;
        let is_write = self.client.random.below(2) == 0;
        let thing = Thing::Delegated(file);
        if !self.client.holdings.contains_key(&thing) && !self.get_delegated(file, is_write).await? {
            return Ok(());
        }
        for _ in 0..=self.client.random.below(3) {
            self.use_delegated(file).await?;
            self.hold().await?;
        }
        // Sometimes it goes on and keeps the delegation.
        if self.client.random.below(3) == 0 { Ok(()) } else { self.give_back().await }
    }

    async fn get_delegated(&mut self, file: usize, is_write: bool) -> Result<bool, Gone> {
        let (number, checks) = (self.client.number, self.client.scene.checks.clone());
        let access = if is_write { BOTH | share::WANT_WRITE } else { share::READ | share::WANT_READ };
        let Some((handle, open)) = self.open_patiently(NAMES[file], "delegated", (access, 0)).await? else {
            return Ok(false);
        };
        let opened = checks.uses(file, number, is_write);
        let (state, kind) = match open.delegation {
            Delegation::Read(read) => (read.state, false),
            Delegation::Write(write) => (write.state, true),
            Delegation::None | Delegation::NoneExtended(_) => {
                self.client.scene.tally.count("nfs4: an open without a delegation");
                drop(opened);
                self.expect_ok(&handle, Args::Close(ops::Close { sequence: 0, state: open.state })).await?;
                return Ok(false);
            }
            other => {
                checks.found(format!("client {number}: OPEN brings {other:?}"));
                return Ok(false);
            }
        };
        if kind != is_write {
            checks.found(format!("client {number}: a delegation of another kind than was wanted"));
        }
        self.client.scene.tally.count(match is_write {
            true => "nfs4: a delegation for writing",
            false => "nfs4: a delegation for reading",
        });
        checks.delegated(&handle, state, file, number, is_write);
        drop(opened);
        let is_kept = self.client.random.below(NEVER_ONE_IN) == 0;
        let delegated = Some(Delegated { state, is_write, is_wanted: false, is_kept });
        let access = if is_write { BOTH } else { share::READ };
        let holding =
            Holding { file: handle, owner: "delegated", access, deny: 0, open: open.state, lock: None, delegated };
        self.client.holdings.insert(Thing::Delegated(file), holding);
        Ok(true)
    }

    /// Uses a delegated file: no other client can have changed it; with a write delegation this client counts it up.
    async fn use_delegated(&mut self, file: usize) -> Result<(), Gone> {
        let Some(holding) = self.client.holdings.get(&Thing::Delegated(file)).cloned() else { return Ok(()) };
        let Some(Delegated { state, is_write, .. }) = holding.delegated else { return Ok(()) };
        match is_write {
            true => self.count_once(&holding.file, state, FIRST_COUNTER + file, 0).await,
            false => self.read_checked(&holding.file, state, FIRST_COUNTER + file, 0).await.map(drop),
        }
    }

    /// Opens a file of which others may have delegations, and reads it or counts it up: while it is open, no other
    /// client may have a conflicting delegation.
    pub(super) async fn visit(&mut self) -> Result<(), Gone> {
        let (number, checks) = (self.client.number, self.client.scene.checks.clone());
        let file = self.client.random.below(FILES) as usize;
        if self.client.holdings.contains_key(&Thing::Delegated(file)) || self.client.random.below(4) == 0 {
            return self.look_in_passing((file + 1) % NAMES.len()).await;
        }
        if self.client.random.below(2) == 0 {
            let access = (share::READ | share::WANT_NONE, WRITE);
            let Some((handle, open)) = self.open_patiently(NAMES[file], "reads", access).await? else { return Ok(()) };
            self.client.scene.tally.count("nfs4: a visit to read");
            let using = checks.uses(file, number, false);
            self.read_checked(&handle, open.state, FIRST_COUNTER + file, 0).await?;
            drop(using);
            return self.expect_ok(&handle, Args::Close(ops::Close { sequence: 0, state: open.state })).await;
        }
        let access = (BOTH | share::WANT_NONE, BOTH);
        let Some((handle, open)) = self.open_patiently(NAMES[file], "writes", access).await? else { return Ok(()) };
        self.client.scene.tally.count("nfs4: a visit to write");
        let thing = Thing::Visited(file);
        checks.got(thing, number);
        let using = checks.uses(file, number, true);
        let (open, delegated) = (open.state, None);
        let holding = Holding { file: handle, owner: "writes", access: BOTH, deny: BOTH, open, lock: None, delegated };
        self.client.holdings.insert(thing, holding.clone());
        self.count_once(&holding.file, open, FIRST_COUNTER + file, 0).await?;
        self.hold().await?;
        drop(using);
        self.give_back().await
    }

    /// Reads without an open: the server must first recall a write delegation.
    async fn look_in_passing(&mut self, file: usize) -> Result<(), Gone> {
        let (number, checks) = (self.client.number, self.client.scene.checks.clone());
        let lookup = Args::Lookup(ops::Lookup { name: Self::name(NAMES[file]) });
        let read = Args::Read(ops::Read { state: StateId::ANONYMOUS, offset: 0, count: 8 });
        let before = checks.writers(file, number);
        let call = vec![Args::PutRootFh, lookup, read];
        match self.client.call(true, call).await?.and_then(|mut outcomes| outcomes.pop()) {
            Some(Outcome::Read(Ok(_))) => {
                self.client.scene.tally.count("nfs4: a look in passing");
                checks.passed_by(file, number, &before);
            }
            // The file does not exist, or another client denies reading it.
            Some(outcome) if matches!(outcome.status(), Status::NOENT | Status::LOCKED) => {}
            Some(outcome) => self.denied("READ", outcome.status()),
            None => {}
        }
        Ok(())
    }

    /// Does what the server's calls ask for, and makes sure that it can call.
    pub(super) async fn attend(&mut self) -> Result<(), Gone> {
        self.client.bind_if_down().await?;
        for (file, state) in self.client.program.recalled() {
            let held = self.client.holdings.values_mut().filter(|holding| holding.file == file);
            for delegated in held.filter_map(|holding| holding.delegated.as_mut()) {
                delegated.is_wanted |= delegated.state.other == state.other;
            }
        }
        if self.client.has_lost {
            self.look_for_what_is_lost().await?;
        }
        let is_due = |holding: &Holding| {
            holding.delegated.as_ref().is_some_and(|delegated| delegated.is_wanted && !delegated.is_kept)
        };
        while let Some(thing) =
            self.client.holdings.iter().find(|(_, holding)| is_due(holding)).map(|(thing, _)| *thing)
        {
            self.client.scene.tally.count("nfs4: a delegation is returned as it is wanted");
            if let Thing::Delegated(file) = thing {
                // Uses the file before it returns the delegation: the next client must see the result.
                self.use_delegated(file).await?;
            }
            if let Some(holding) = self.client.holdings.remove(&thing) {
                self.give_one_back(thing, holding).await?;
            }
        }
        Ok(())
    }

    /// Finds out which delegations the server has taken away, and checks that they are no longer valid.
    async fn look_for_what_is_lost(&mut self) -> Result<(), Gone> {
        let (number, checks) = (self.client.number, self.client.scene.checks.clone());
        self.client.has_lost = false;
        let all: Vec<_> = self.client.holdings.iter().map(|(thing, holding)| (*thing, holding.clone())).collect();
        for (thing, holding) in all {
            let Some(Delegated { state, .. }) = holding.delegated else { continue };
            let test = Args::TestStateId(ops::TestStateId { states: List(vec![state]) });
            let status = match self.client.call(true, vec![test]).await?.and_then(|mut outcomes| outcomes.pop()) {
                Some(Outcome::TestStateId(Ok(tested))) => tested.statuses.0.first().copied().unwrap_or(Status::OK),
                _ => Status::OK,
            };
            if status == Status::OK {
                continue;
            }
            self.client.scene.tally.count("nfs4: a delegation is taken away");
            self.client.owes_note = true;
            let Thing::Delegated(file) = thing else { continue };
            if !checks.may_be_lost(file, number) {
                checks.found(format!("client {number} has lost {thing:?}, which it would have returned: {status}"));
            }
            let put = Args::PutFh(ops::PutFh { file: holding.file.clone() });
            let read = Args::Read(ops::Read { state, offset: 0, count: 8 });
            let read = self.client.call(true, vec![put, read]).await?.and_then(|mut outcomes| outcomes.pop());
            if matches!(&read, Some(outcome) if outcome.status() == Status::OK) {
                checks.found(format!("client {number} reads by a delegation that was taken away"));
            }
            self.client.holdings.remove(&thing);
            checks.gives_up(thing, number);
            let free = Args::FreeStateId(ops::FreeStateId { state });
            self.expect_ok(&holding.file, free).await?;
            self.client.owes_note = false;
            self.expect_ok(&holding.file, Args::Close(ops::Close { sequence: 0, state: holding.open })).await?;
        }
        Ok(())
    }

    /// Whether it keeps a recalled delegation.
    fn keeps(&self) -> bool {
        let kept = self.client.holdings.values().filter_map(|holding| holding.delegated.as_ref());
        kept.into_iter().any(|delegated| delegated.is_kept && delegated.is_wanted)
    }

    /// Waits until the server takes away what it keeps, and renews its lease meanwhile.
    pub(super) async fn outlast(&mut self) -> Result<(), Gone> {
        let until = self.client.scene.world.now() + LAST;
        while self.keeps() {
            if self.client.scene.world.now() >= until {
                let number = self.client.number;
                self.client.scene.checks.found(format!("what client {number} does not return is not taken away"));
                return Ok(());
            }
            self.client.pause().await;
            self.client.renew().await?;
            self.attend().await?;
        }
        Ok(())
    }

    /// DELEGRETURN.
    pub(super) async fn return_delegation(&mut self, file: &Handle, state: StateId) -> Result<(), Gone> {
        self.expect_ok(file, Args::DelegReturn(ops::DelegReturn { state })).await
    }
}
