//! The operations of clients on files, with the model's prediction and the server's result.

use super::{
    Run,
    model::{CLIENTS, FILES, LOCKERS, Lock, OCTETS, OWNERS, Open, SLOTS, Way},
    session::only,
};
use crate::fuzz::mint::Mint;
use rpcrdma_nfs::v4::{
    Args, ClientId, List, Outcome, Owner, OwnerName, StateId, StateIdOther, Status,
    ops::{self, Failure as _},
};
use rpcrdma_xdr::ItemData;

/// A stateid that the server has given to no client.
const UNKNOWN: StateId = StateId { sequence: 1, other: StateIdOther([7; 12]) };

fn owner(name: String) -> Owner {
    Owner { client: ClientId(0), name: OwnerName::from(name.as_str()) }
}

/// A range: its offset, its length, and which of the model's bytes it contains.
fn range(mint: &mut Mint<'_>) -> (u64, u64, Vec<usize>) {
    let (offset, len) = (mint.below(OCTETS - 1), mint.below(6));
    match len {
        0 => (offset as u64, u64::MAX, (offset..OCTETS).collect()),
        len => {
            let len = len.min(OCTETS - 1 - offset);
            (offset as u64, len as u64, (offset..offset + len).collect())
        }
    }
}

impl Run {
    /// Makes a call with one operation on a file, on a slot that the input chooses.
    fn on(&mut self, client: usize, file: usize, mint: &mut Mint<'_>, op: Args) -> Option<Outcome<ItemData>> {
        let (slot, cache) = (mint.below(SLOTS), mint.below(3) > 0 && !matches!(op, Args::Read(_)));
        let put = Args::PutFh(ops::PutFh { file: self.files[file].clone() });
        self.call(client, slot, cache, vec![put, op])?.pop()
    }

    /// Compares a status with what was in the way, and updates the model for clients that have lost something. Returns
    /// whether the operation was done.
    #[track_caller]
    fn settle(&mut self, what: &'static str, (way, file): (Way, usize), status: Status, refused: &[Status]) -> bool {
        match way {
            Way::Free => self.is(what, status, Status::OK),
            Way::Taken(clients) => {
                self.is(what, status, Status::OK);
                clients.into_iter().for_each(|client| self.model.take(client, file));
                self.saw("taken", Status::EXPIRED);
            }
            Way::Denied(perhaps) => {
                assert!(refused.contains(&status), "{what}: {status} instead of {refused:?}");
                self.saw(what, status);
                perhaps.into_iter().for_each(|client| self.observe(client, file));
                return false;
            }
        }
        true
    }

    /// A client whose lease was over may have lost its state of a file or not: it asks the server.
    fn observe(&mut self, client: usize, file: usize) {
        if self.model.clients[client].as_ref().is_some_and(|known| known.session.is_none()) {
            self.greet(client, false);
        }
        let known = self.model.known(client);
        let of_file = known.opens.iter().filter(|((of, _), _)| *of == file);
        let states: Vec<_> = of_file.map(|(_, open)| open.id).collect();
        let test = Args::TestStateId(ops::TestStateId { states: List(states) });
        let mut told = self.call_telling(client, (0, false, false), vec![test]).expect("it has a session");
        let statuses = only!(told, TestStateId).expect("it is told").statuses;
        assert!(statuses.iter().all(|status| *status == statuses[0]), "all on the file or nothing: {statuses:?}");
        match statuses[0] {
            Status::OK => {}
            Status::EXPIRED => self.model.take(client, file),
            other => panic!("{other} of a state that was held"),
        }
    }

    pub(super) fn open(&mut self, client: usize, mint: &mut Mint<'_>, reclaims: bool) {
        let (file, of) = (mint.below(FILES), mint.below(OWNERS));
        let access = 1 + mint.below(3) as u32;
        let deny = if mint.below(6) == 0 { 1 + mint.below(3) as u32 } else { 0 };
        let what = if reclaims { "reclaim" } else { "OPEN" };
        let claim = if reclaims { ops::Claim::Previous(ops::DelegationKind::None) } else { ops::Claim::Handle };
        let how = ops::OpenHow::NoCreate;
        // The model of these files has no delegations.
        let wish = access | ops::share::WANT_NONE;
        let open = ops::Open { sequence: 0, access: wish, deny, owner: owner(format!("o{of}")), how, claim };
        let wanted = if reclaims { self.model.reclaim(client) } else { self.model.fresh(client) };
        let Some(outcome) = self.on(client, file, mint, Args::Open(Box::new(open))) else { return };
        let status = outcome.status();
        if wanted != Status::OK {
            return self.is(what, status, wanted);
        }
        let way = self.model.shares(client, file, access, deny);
        let refused = [Status::SHARE_DENIED, Status::RECLAIM_CONFLICT];
        if !self.settle(what, (way, file), status, &refused[..if reclaims { 2 } else { 1 }]) {
            return;
        }
        let id = only!(vec![outcome], Open).expect("it is open").state;
        let opens = &mut self.model.known(client).opens;
        let had = opens.get(&(file, of)).map(|open| open.id);
        counted(had, id);
        let new = Open { id, accesses: Default::default(), denials: Default::default(), locks: Default::default() };
        let open = opens.entry((file, of)).or_insert(new);
        open.id = id;
        open.accesses.insert(access);
        open.denials.insert(deny);
    }

    /// A file and an owner, mostly one that has it open.
    fn some_key(&self, client: usize, mint: &mut Mint<'_>) -> (usize, usize) {
        let key = (mint.below(FILES), mint.below(OWNERS));
        let Some(known) = &self.model.clients[client] else { return key };
        if known.opens.is_empty() || known.opens.contains_key(&key) || mint.below(4) == 0 {
            return key;
        }
        known.opens.keys().nth(mint.below(known.opens.len())).copied().unwrap_or(key)
    }

    /// An open of the client, with a sequence number that may be wrong; or an unknown stateid if it has no open.
    fn some_open(&self, client: usize, mint: &mut Mint<'_>) -> ((usize, usize), StateId) {
        let key = self.some_key(client, mint);
        let open = self.model.clients[client].as_ref().and_then(|known| known.opens.get(&key));
        let id = open.map_or(UNKNOWN, |open| open.id);
        let sequence = match mint.below(6) {
            0 => 0,
            1 => id.sequence - 1,
            2 => id.sequence + 1,
            _ => id.sequence,
        };
        (key, StateId { sequence, ..id })
    }

    pub(super) fn close(&mut self, client: usize, mint: &mut Mint<'_>) {
        let (key, state) = self.some_open(client, mint);
        let elsewhere = mint.below(8) == 0;
        let file = if elsewhere { (key.0 + 1) % FILES } else { key.0 };
        let wanted = if elsewhere { Status::BAD_STATEID } else { self.model.state(client, state) };
        let close = Args::Close(ops::Close { sequence: 0, state });
        let Some(outcome) = self.on(client, file, mint, close) else { return };
        self.is("CLOSE", outcome.status(), wanted);
        if wanted == Status::OK {
            self.model.known(client).opens.remove(&key);
        }
    }

    pub(super) fn downgrade(&mut self, client: usize, mint: &mut Mint<'_>) {
        let (key, state) = self.some_open(client, mint);
        let (access, deny) = (mint.below(4) as u32, mint.below(4) as u32);
        let union = |values: &std::collections::BTreeSet<u32>, of: u32| {
            let within: Vec<_> = values.iter().filter(|value| *value & !of == 0).collect();
            !within.is_empty() && within.iter().fold(0, |all, value| all | *value) == of
        };
        let mut wanted = if access == 0 { Status::INVAL } else { self.model.state(client, state) };
        let open = self.model.clients[client].as_ref().and_then(|known| known.opens.get(&key)).cloned();
        if let (Status::OK, Some(open)) = (wanted, &open)
            && !(union(&open.accesses, access) && union(&open.denials, deny))
        {
            wanted = Status::INVAL;
        }
        let down = Args::OpenDowngrade(ops::OpenDowngrade { state, sequence: 0, access, deny });
        let Some(outcome) = self.on(client, key.0, mint, down) else { return };
        self.is("OPEN_DOWNGRADE", outcome.status(), wanted);
        if wanted == Status::OK {
            let id = only!(vec![outcome], OpenDowngrade).expect("it is open").state;
            let open = self.model.known(client).opens.get_mut(&key).expect("the model has it");
            counted(Some(open.id), id);
            open.id = id;
            open.accesses.retain(|value| value & !access == 0);
            open.denials.retain(|value| value & !deny == 0);
        }
    }

    pub(super) fn lock(&mut self, client: usize, mint: &mut Mint<'_>) {
        let key = self.some_key(client, mint);
        let (locker, writes, reclaims) = (mint.below(LOCKERS), mint.below(2) == 0, mint.below(16) == 0);
        let (offset, length, octets) = range(mint);
        let open = self.model.clients[client].as_ref().and_then(|known| known.opens.get(&key)).cloned();
        let had = open.as_ref().and_then(|open| open.locks.get(&locker)).map(|lock| lock.id);
        let by = match had {
            Some(state) if mint.below(2) == 0 => ops::Locker::Known(ops::KnownLocker { state, sequence: 0 }),
            _ => ops::Locker::New(ops::NewLocker {
                open_sequence: 0,
                open_state: open.as_ref().map_or(UNKNOWN, |open| open.id),
                lock_sequence: 0,
                owner: owner(format!("l{}-{locker}", key.1)),
            }),
        };
        let kind = if writes { ops::LockKind::Write } else { ops::LockKind::Read };
        let may = if reclaims { self.model.reclaim(client) } else { self.model.fresh(client) };
        let wanted = match &open {
            None => Status::BAD_STATEID,
            Some(open) if !open.allows(if writes { 2 } else { 1 }) => Status::OPENMODE,
            Some(_) => may,
        };
        let lock = ops::Lock { kind, reclaim: reclaims, offset, length, locker: by };
        let Some(outcome) = self.on(client, key.0, mint, Args::Lock(Box::new(lock))) else { return };
        let status = outcome.status();
        if wanted != Status::OK {
            return self.is("LOCK", status, wanted);
        }
        let way = self.model.locks((client, key.1, locker), key.0, &octets, writes);
        if !self.settle("LOCK", (way, key.0), status, &[Status::DENIED]) {
            return;
        }
        let id = match outcome {
            Outcome::Lock(Ok(ok)) => ok.state,
            other => panic!("{other:?}"),
        };
        counted(had, id);
        let open = self.model.known(client).opens.get_mut(&key).expect("the model has it");
        let lock = open.locks.entry(locker).or_insert(Lock { id, octets: [None; OCTETS] });
        lock.id = id;
        octets.iter().for_each(|at| lock.octets[*at] = Some(writes));
    }

    pub(super) fn unlock(&mut self, client: usize, mint: &mut Mint<'_>) {
        let (key, locker) = (self.some_key(client, mint), mint.below(LOCKERS));
        let (offset, length, octets) = range(mint);
        let open = self.model.clients[client].as_ref().and_then(|known| known.opens.get(&key));
        let had = open.and_then(|open| open.locks.get(&locker)).map(|lock| lock.id);
        let state = had.unwrap_or(UNKNOWN);
        let wanted = self.model.state(client, state);
        let unlock = ops::LockU { kind: ops::LockKind::Write, sequence: 0, state, offset, length };
        let Some(outcome) = self.on(client, key.0, mint, Args::LockU(unlock)) else { return };
        self.is("LOCKU", outcome.status(), wanted);
        if wanted == Status::OK {
            let id = only!(vec![outcome], LockU).expect("it was locked").state;
            counted(had, id);
            let open = self.model.known(client).opens.get_mut(&key).expect("the model has it");
            let lock = open.locks.get_mut(&locker).expect("the model has it");
            lock.id = id;
            octets.iter().for_each(|at| lock.octets[*at] = None);
        }
    }

    pub(super) fn test_lock(&mut self, client: usize, mint: &mut Mint<'_>) {
        let (file, of, locker) = (mint.below(FILES), mint.below(OWNERS), mint.below(LOCKERS));
        let writes = mint.below(2) == 0;
        let (offset, length, octets) = range(mint);
        let kind = if writes { ops::LockKind::Write } else { ops::LockKind::Read };
        let test = ops::LockT { kind, offset, length, owner: owner(format!("l{of}-{locker}")) };
        let Some(outcome) = self.on(client, file, mint, Args::LockT(test)) else { return };
        let status = match &outcome {
            Outcome::LockT(answer) => answer.as_ref().err().map_or(Status::OK, |failure| failure.status()),
            other => panic!("{other:?}"),
        };
        if self.model.is_grace {
            return self.is("LOCKT", status, Status::GRACE);
        }
        let way = self.model.locks((client, of, locker), file, &octets, writes);
        self.settle("LOCKT", (way, file), status, &[Status::DENIED]);
    }

    /// READ, WRITE, or an operation with the same rules on a range, under an open, its locks, or no state.
    pub(super) fn transfer(&mut self, client: usize, mint: &mut Mint<'_>) {
        let (key, writes, how) = (self.some_key(client, mint), mint.below(2) == 0, mint.below(12));
        let (is_of_range, how) = (how >= 6, how % 6);
        let access = if writes { 2 } else { 1 };
        let open = self.model.clients[client].as_ref().and_then(|known| known.opens.get(&key)).cloned();
        let lock = open.as_ref().and_then(|open| open.locks.values().next()).map(|lock| lock.id);
        let (state, own) = match (how, lock) {
            (0, _) => (StateId::ANONYMOUS, None),
            (1, _) => (StateId::BYPASS, None),
            (2 | 3, Some(lock)) => (lock, None),
            _ => (open.as_ref().map_or(UNKNOWN, |open| open.id), Some(key.1)),
        };
        let is_special = how < 2;
        let op = match writes {
            true if is_of_range => Args::Allocate(ops::Allocate { state, offset: 0, length: 6 }),
            false if is_of_range => Args::ReadPlus(ops::ReadPlus { state, offset: 0, count: 16 }),
            true => {
                let stability = ops::Stability::FileSync;
                Args::Write(ops::Write { state, offset: 0, stability, data: bytes::Bytes::from_static(b"octets") })
            }
            false => Args::Read(ops::Read { state, offset: 0, count: 16 }),
        };
        let what = if writes { "WRITE" } else { "READ" };
        let Some(outcome) = self.on(client, key.0, mint, op) else { return };
        let status = outcome.status();
        let plain = match &open {
            _ if how == 1 && !writes => Some(Status::OK),
            _ if is_special => self.model.is_grace.then_some(Status::GRACE),
            None => Some(Status::BAD_STATEID),
            Some(open) if open.allows(access) => Some(Status::OK),
            Some(_) if writes => Some(Status::OPENMODE),
            Some(_) => None,
        };
        if let Some(wanted) = plain {
            return self.is(what, status, wanted);
        }
        let way = self.model.denials(client, key.0, access, own.filter(|_| !is_special));
        self.settle(what, (way, key.0), status, &[Status::LOCKED]);
    }

    pub(super) fn free(&mut self, client: usize, mint: &mut Mint<'_>) {
        let states = self.model.states(client);
        let state = if states.is_empty() { UNKNOWN } else { states[mint.below(states.len())] };
        let free = Args::FreeStateId(ops::FreeStateId { state });
        let Some(mut outcomes) = self.call(client, 1, true, vec![free]) else { return };
        let status = only!(outcomes, FreeStateId).err().unwrap_or(Status::OK);
        let known = self.model.known(client);
        if known.lost.remove(&state.other.0).is_some() || known.not_returned.remove(&state.other.0) {
            // The locks go with their open (NFS4-8881-18.38-c).
            known.lost.retain(|_, under| *under != Some(state.other.0));
            if known.lost.is_empty() && known.not_returned.is_empty() {
                self.model.restore(client);
            }
            return self.is("FREE_STATEID", status, Status::OK);
        }
        let is_delegation = known.delegation.is_some_and(|held| held.id == state);
        let (mut wanted, mut freed) = (Status::BAD_STATEID, None);
        if is_delegation {
            wanted = Status::LOCKS_HELD;
        }
        for (key, open) in &known.opens {
            if open.id == state {
                wanted = Status::LOCKS_HELD;
            }
            if let Some((locker, lock)) = open.locks.iter().find(|(_, lock)| lock.id == state) {
                let holds = lock.octets.iter().any(Option::is_some);
                wanted = if holds { Status::LOCKS_HELD } else { Status::OK };
                freed = (!holds).then_some((*key, *locker));
            }
        }
        if let Some((key, locker)) = freed {
            known.opens.get_mut(&key).expect("it was there").locks.remove(&locker);
        }
        self.is("FREE_STATEID", status, wanted);
    }

    /// Tests each stateid of a client.
    pub(super) fn test_states(&mut self, client: usize) {
        let mut states = self.model.states(client);
        states.push(UNKNOWN);
        let wanted: Vec<_> = states.iter().map(|state| self.model.state(client, *state)).collect();
        let test = Args::TestStateId(ops::TestStateId { states: List(states) });
        let Some(mut outcomes) = self.call(client, 0, false, vec![test]) else { return };
        assert_eq!(only!(outcomes, TestStateId).expect("it is told").statuses.0, wanted);
    }

    /// Checks that the server has exactly the state that the model has.
    pub(super) fn check_all(&mut self) {
        (0..CLIENTS).for_each(|client| self.test_states(client));
        let known = self.model.clients.iter().flatten();
        let held = known.clone().map(|known| {
            let delegations = known.not_returned.len() + usize::from(known.delegation.is_some());
            known.lost.len() + delegations + known.opens.values().map(|open| 1 + open.locks.len()).sum::<usize>()
        });
        let sessions = known.clone().filter(|known| known.session.is_some()).count();
        let counts = self.world.server().version_4_counts().expect("it is served");
        let (zero, of_zero) = self.zero.counts();
        assert_eq!((counts.clients, counts.sessions), (known.clone().count() + zero, sessions));
        assert_eq!(counts.opens + counts.locks + counts.delegations, held.sum::<usize>() + of_zero);
        self.check_data();
    }
}

/// A state that has changed keeps its id, and its number grows by one; a new state begins with 1.
#[track_caller]
fn counted(had: Option<StateId>, has: StateId) {
    match had {
        Some(had) => assert_eq!(has, StateId { sequence: had.sequence + 1, ..had }),
        None => assert_eq!(has.sequence, 1),
    }
}
