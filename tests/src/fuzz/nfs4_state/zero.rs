//! A client of minor version 0: it has no session. Its owners number their operations, a new owner has to confirm its
//! first open, and the server answers a repeated operation without executing it. The client has its own file, so that
//! only a grace period can be in its way.

use super::{
    Run,
    model::{Model, ZERO},
    session::only,
    world::{LEASE, decoded, encoded},
};
use crate::fuzz::mint::Mint;
use bytes::Bytes;
use rpcrdma_nfs::v4::{
    Args, Arguments, ClientId, ClientName, Name, Opaque, Outcome, Owner, OwnerName, StateId, StateIdOther, Status,
    Verifier,
    ops::{self, open_result},
};
use rpcrdma_xdr::ItemData;

/// Owners of opens, each with an owner of locks.
const OWNERS: usize = 2;
/// The client's connection.
const CONNECTION: u64 = 30;
/// The file's name.
pub(super) const FILE: &str = "4";

/// The numbered operations of an owner.
#[derive(Clone, Debug, Default)]
struct Counter {
    last: Option<u32>,
    /// The last call that used a number, and its results behind PUTFH.
    known: Option<(Vec<Args>, Bytes)>,
    used: u64,
}

impl Counter {
    /// Whether the server executes a call with this number.
    fn takes(&self, number: u32) -> bool {
        self.last.is_none_or(|last| number == last.wrapping_add(1))
    }

    fn number(&self, mint: &mut Mint<'_>) -> u32 {
        let last = self.last.unwrap_or_else(|| mint.u8().into());
        last.wrapping_add([1, 1, 1, 1, 1, 0, 2, u32::MAX][mint.below(8)])
    }

    fn executed(&mut self, number: u32, call: Vec<Args>, answer: Bytes, now: u64) {
        (self.last, self.known, self.used) = (Some(number), Some((call, answer)), now);
    }
}

#[derive(Clone, Debug)]
struct Open {
    id: StateId,
    access: u32,
    lock: Option<Lock>,
}

#[derive(Clone, Copy, Debug)]
struct Lock {
    id: StateId,
    holds: bool,
}

#[derive(Clone, Debug, Default)]
struct OpenOwner {
    counter: Counter,
    is_confirmed: bool,
    open: Option<Open>,
    locker: Counter,
}

/// The confirmed client.
#[derive(Clone, Debug)]
struct Known {
    incarnation: u64,
    renewed: u64,
    owners: [OpenOwner; OWNERS],
    swept: u64,
}

/// The client.
#[derive(Default)]
pub(super) struct Zero {
    known: Option<Known>,
    incarnation: u64,
    /// Its last id, and whether the server has restarted since.
    id: Option<(ClientId, bool)>,
    xid: u32,
    /// The XID of its last call that changed something, the call, and the answer. No time has passed since.
    last: Option<(u32, Bytes, Bytes)>,
}

impl Zero {
    /// How many client records and stateids the server must have.
    pub(super) fn counts(&self) -> (usize, usize) {
        let Some(known) = &self.known else { return (0, 0) };
        let opens = known.owners.iter().filter_map(|owner| owner.open.as_ref());
        (1, opens.map(|open| 1 + usize::from(open.lock.is_some())).sum())
    }

    /// Time has passed: does what is due.
    pub(super) fn passed(&mut self, model: &mut Model) {
        self.last = None;
        let Some(known) = &mut self.known else { return };
        if model.now - known.renewed > LEASE + super::model::COURTESY {
            self.known = None;
            model.journal.remove(&ZERO);
            return;
        }
        if model.now - known.swept < LEASE / 2 {
            return;
        }
        known.swept = model.now;
        for owner in &mut known.owners {
            if model.now - owner.counter.used > LEASE {
                if !owner.is_confirmed {
                    owner.open = None;
                }
                if owner.open.is_none() {
                    (owner.counter, owner.is_confirmed) = (Counter::default(), false);
                }
            }
            let has_state = owner.open.as_ref().is_some_and(|open| open.lock.is_some());
            if model.now - owner.locker.used > LEASE && !has_state {
                owner.locker = Counter::default();
            }
        }
    }

    pub(super) fn restarted(&mut self) {
        (self.known, self.last) = (None, None);
        self.id = self.id.map(|(id, _)| (id, true));
    }

    /// The status for a client that the server does not know.
    fn unknown(&self) -> Status {
        match self.id {
            Some((_, false)) => Status::EXPIRED,
            _ => Status::STALE_CLIENTID,
        }
    }
}

fn name(of: String) -> OwnerName {
    OwnerName::from(of.as_str())
}

impl Run {
    pub(super) fn of_zero(&mut self, mint: &mut Mint<'_>) {
        if self.zero.known.is_none() {
            // A client that the server has forgotten must first learn this.
            if let Some((client, _)) = self.zero.id
                && mint.below(3) == 0
            {
                let wanted = self.zero.unknown();
                let renewed = self.said(vec![Args::Renew(ops::Renew { client })]).1;
                return self.is("RENEW", renewed, wanted);
            }
            return self.introduce(true);
        }
        let of = mint.below(OWNERS);
        match mint.below(16) {
            0 => self.introduce(mint.below(3) == 0),
            1..=4 => self.open_zero(of, mint),
            5 => self.reclaim_zero(of, mint),
            6 | 7 => self.confirm_zero(of, mint),
            8 => self.close_zero(of, mint),
            9 | 10 => self.lock_zero(of, mint),
            11 => self.unlock_zero(of, mint),
            12 => self.release_zero(of),
            13 => self.read_zero(of, mint),
            14 => self.again_zero(of),
            _ => self.say_again(),
        }
    }

    /// Sends a call, and returns its answer as bytes, and its status.
    fn said(&mut self, ops: Vec<Args>) -> (Bytes, Status) {
        self.zero.xid += 1;
        let call = encoded(&Arguments::new(0, ops));
        let answer = self.world.call_numbered(CONNECTION, self.zero.xid, &call);
        let status = decoded(&answer).status;
        self.zero.last = Some((self.zero.xid, call, answer.clone()));
        if let Some(known) = &mut self.zero.known {
            known.renewed = self.model.now;
        }
        (answer, status)
    }

    fn owner(&mut self, of: usize) -> &mut OpenOwner {
        &mut self.zero.known.as_mut().expect("the caller has looked").owners[of]
    }

    /// SETCLIENTID, a wrong confirmation of it, and the right one.
    fn introduce(&mut self, is_new: bool) {
        self.zero.incarnation += u64::from(is_new);
        let incarnation = self.zero.incarnation;
        let address = ops::NetAddress { netid: Opaque("tcp".into()), address: Opaque("192.0.2.1.0.0".into()) };
        let set = ops::SetClientId {
            owner: ops::ClientOwner { verifier: Verifier(incarnation.to_be_bytes()), name: ClientName::from("zero") },
            callback: ops::CallbackClient { program: 0x4000_0000, address },
            callback_ident: 1,
        };
        let answer = self.said(vec![Args::SetClientId(Box::new(set))]).0;
        let told = only!(decoded(&answer).results, SetClientId).expect("a client");
        let known = self.zero.known.take();
        let is_same = known.as_ref().is_some_and(|known| known.incarnation == incarnation);
        assert!(!is_same || self.zero.id == Some((told.client, false)), "the same client has the same id");
        assert!(is_same || self.zero.id.is_none_or(|(id, _)| id != told.client), "another one has another");
        let Verifier(mut wrong) = told.confirm;
        wrong[7] ^= 1;
        for (confirm, wanted) in [(Verifier(wrong), Status::STALE_CLIENTID), (told.confirm, Status::OK)] {
            let confirm = ops::SetClientIdConfirm { client: told.client, confirm };
            let confirmed = self.said(vec![Args::SetClientIdConfirm(confirm)]).1;
            self.is("SETCLIENTID_CONFIRM", confirmed, wanted);
        }
        let new = || Known { incarnation, renewed: 0, owners: Default::default(), swept: 0 };
        let known = known.filter(|_| is_same).unwrap_or_else(new);
        self.zero.known = Some(Known { renewed: self.model.now, ..known });
        self.zero.id = Some((told.client, false));
    }

    fn client_of_zero(&self) -> ClientId {
        self.zero.id.expect("it is known").0
    }

    fn open_zero(&mut self, of: usize, mint: &mut Mint<'_>) {
        let number = self.owner(of).counter.number(mint);
        let access = 1 + mint.below(3) as u32;
        let owner = Owner { client: self.client_of_zero(), name: name(format!("o{of}")) };
        let claim = ops::Claim::Null(Name::from(FILE));
        let open = ops::Open { sequence: number, access, deny: 0, owner, how: ops::OpenHow::NoCreate, claim };
        let may = if self.model.is_grace { Status::GRACE } else { Status::OK };
        self.opened_zero(of, number, access, (vec![Args::PutRootFh, Args::Open(Box::new(open))], may));
    }

    fn reclaim_zero(&mut self, of: usize, mint: &mut Mint<'_>) {
        let number = self.owner(of).counter.number(mint);
        let access = 1 + mint.below(3) as u32;
        let owner = Owner { client: self.client_of_zero(), name: name(format!("o{of}")) };
        let claim = ops::Claim::Previous(ops::DelegationKind::None);
        let open = ops::Open { sequence: number, access, deny: 0, owner, how: ops::OpenHow::NoCreate, claim };
        // The root is not a file: so the reclaim fails and changes nothing.
        let (at, got) = match mint.below(4) {
            0 => (Args::PutRootFh, Status::ISDIR),
            _ => (self.at_zero(), Status::OK),
        };
        let may = self.model.reclaim(ZERO);
        let may = if may == Status::OK { got } else { may };
        self.opened_zero(of, number, access, (vec![at, Args::Open(Box::new(open))], may));
    }

    fn at_zero(&self) -> Args {
        Args::PutFh(ops::PutFh { file: self.zero_file.clone() })
    }

    fn opened_zero(&mut self, of: usize, number: u32, access: u32, (call, may): (Vec<Args>, Status)) {
        let is_reclaim = matches!(&call[1], Args::Open(open) if matches!(open.claim, ops::Claim::Previous(_)));
        let (answer, status) = self.said(call.clone());
        let (now, owner) = (self.model.now, self.owner(of));
        if owner.counter.last == Some(number) && owner.counter.known.as_ref().is_some_and(|(known, _)| *known == call) {
            let known = owner.counter.known.as_ref().map(|(_, answer)| answer.clone());
            assert_eq!(Some(behind(&answer)), known, "the answer of the first");
            return self.saw("OPEN repeated", Status::OK);
        }
        // For an owner that was never confirmed, any number is a valid first number.
        let takes = owner.counter.takes(number) || !owner.is_confirmed;
        if !takes {
            return self.is("OPEN of a wrong number", status, Status::BAD_SEQID);
        }
        if !owner.is_confirmed {
            // The earlier, unconfirmed open ends, whatever the result of this one is.
            owner.open = None;
        }
        owner.counter.executed(number, call, behind(&answer), now);
        if may == Status::OK {
            let opened = only!(decoded(&answer).results, Open).unwrap_or_else(|status| panic!("OPEN: {status}"));
            owner.is_confirmed |= is_reclaim;
            assert_eq!(opened.flags & open_result::CONFIRM == 0, owner.is_confirmed, "who has to confirm it");
            match &mut owner.open {
                Some(open) => {
                    assert_eq!(opened.state, StateId { sequence: open.id.sequence + 1, ..open.id });
                    (open.id, open.access) = (opened.state, open.access | access);
                }
                None => {
                    assert_eq!(opened.state.sequence, 1);
                    owner.open = Some(Open { id: opened.state, access, lock: None });
                }
            }
            if is_reclaim {
                self.model.reclaimed(ZERO);
            }
            self.model.journal.entry(ZERO).or_insert(false);
        }
        self.is(if is_reclaim { "reclaim of minor version 0" } else { "OPEN of minor version 0" }, status, may);
    }

    /// Does an operation on the state of an owner. If it was executed, returns its result, the answer and the call.
    fn by_state(&mut self, of: usize, number: u32, op: Args) -> Option<(Outcome<ItemData>, Bytes, Vec<Args>)> {
        let is_confirm = matches!(op, Args::OpenConfirm(_));
        let is_known = match &op {
            Args::Lock(lock) => matches!(lock.locker, ops::Locker::Known(_)),
            op => matches!(op, Args::LockU(_)),
        };
        let call = vec![self.at_zero(), op];
        let (answer, status) = self.said(call.clone());
        let owner = self.owner(of);
        let counter = if is_known { &owner.locker } else { &owner.counter };
        if counter.last == Some(number) && counter.known.as_ref().is_some_and(|(known, _)| *known == call) {
            assert_eq!(Some(behind(&answer)), counter.known.as_ref().map(|(_, answer)| answer.clone()));
            self.saw("repeated by a state", Status::OK);
            return None;
        }
        if !counter.takes(number) {
            self.is("a wrong number", status, Status::BAD_SEQID);
            return None;
        }
        if !is_known && owner.is_confirmed == is_confirm {
            self.is("not confirmed, or twice", status, Status::BAD_STATEID);
            return None;
        }
        Some((decoded(&answer).results.pop()?, answer, call))
    }

    fn confirm_zero(&mut self, of: usize, mint: &mut Mint<'_>) {
        let number = self.owner(of).counter.number(mint);
        let Some(open) = self.owner(of).open.clone() else { return };
        let state = StateId { sequence: open.id.sequence + u32::from(mint.below(8) == 0), ..open.id };
        let confirm = Args::OpenConfirm(ops::OpenConfirm { state, sequence: number });
        let Some((outcome, answer, call)) = self.by_state(of, number, confirm) else { return };
        let wanted = if state == open.id { Status::OK } else { Status::BAD_STATEID };
        let (now, owner) = (self.model.now, self.owner(of));
        if let Outcome::OpenConfirm(Ok(ok)) = &outcome {
            assert_eq!(ok.state, StateId { sequence: open.id.sequence + 1, ..open.id });
            owner.is_confirmed = true;
            owner.open = Some(Open { id: ok.state, ..open });
            owner.counter.executed(number, call, behind(&answer), now);
        }
        // This counts as a use, even if it uses no number.
        self.owner(of).counter.used = now;
        self.is("OPEN_CONFIRM", outcome.status(), wanted);
    }

    fn close_zero(&mut self, of: usize, mint: &mut Mint<'_>) {
        let number = self.owner(of).counter.number(mint);
        let Some(open) = self.owner(of).open.clone() else { return };
        let close = Args::Close(ops::Close { sequence: number, state: open.id });
        let Some((outcome, answer, call)) = self.by_state(of, number, close) else { return };
        let (now, owner) = (self.model.now, self.owner(of));
        owner.open = None;
        owner.counter.executed(number, call, behind(&answer), now);
        self.is("CLOSE of minor version 0", outcome.status(), Status::OK);
    }

    fn lock_zero(&mut self, of: usize, mint: &mut Mint<'_>) {
        let Some(open) = self.owner(of).open.clone() else { return };
        let others = self.owner((of + 1) % OWNERS).open.as_ref().and_then(|open| open.lock);
        let (open_sequence, lock_sequence) = (self.owner(of).counter.number(mint), self.owner(of).locker.number(mint));
        let owner = Owner { client: self.client_of_zero(), name: name(format!("l{of}")) };
        let known = open.lock.filter(|_| mint.below(2) == 0);
        let locker = match known {
            Some(lock) => ops::Locker::Known(ops::KnownLocker { state: lock.id, sequence: lock_sequence }),
            None => ops::Locker::New(ops::NewLocker {
                open_sequence,
                open_state: open.id,
                lock_sequence,
                owner: owner.clone(),
            }),
        };
        let lock = ops::Lock { kind: ops::LockKind::Write, reclaim: false, offset: 0, length: 10, locker };
        let number = if known.is_some() { lock_sequence } else { open_sequence };
        let Some((outcome, answer, call)) = self.by_state(of, number, Args::Lock(Box::new(lock))) else { return };
        let is_grace = self.model.is_grace;
        let (now, owner) = (self.model.now, self.owner(of));
        if known.is_none() {
            // An owner without a lock state begins again.
            if open.lock.is_none() {
                owner.locker.last = None;
            }
            if !owner.locker.takes(lock_sequence) {
                return self.is("LOCK of a wrong number", outcome.status(), Status::BAD_SEQID);
            }
        }
        let wanted = match () {
            () if open.access & 2 == 0 => Status::OPENMODE,
            () if is_grace => Status::GRACE,
            () if others.is_some_and(|lock| lock.holds) => Status::DENIED,
            () => Status::OK,
        };
        if let Outcome::Lock(Ok(ok)) = &outcome {
            match open.lock {
                Some(lock) => assert_eq!(ok.state, StateId { sequence: lock.id.sequence + 1, ..lock.id }),
                None => assert_eq!(ok.state.sequence, 1),
            }
            owner.open = Some(Open { lock: Some(Lock { id: ok.state, holds: true }), ..open });
        }
        owner.locker.executed(lock_sequence, call.clone(), behind(&answer), now);
        if known.is_none() {
            owner.counter.executed(open_sequence, call, behind(&answer), now);
        }
        self.is("LOCK of minor version 0", outcome.status(), wanted);
    }

    fn unlock_zero(&mut self, of: usize, mint: &mut Mint<'_>) {
        let number = self.owner(of).locker.number(mint);
        let Some(open) = self.owner(of).open.clone() else { return };
        let Some(lock) = open.lock else { return };
        let unlock =
            ops::LockU { kind: ops::LockKind::Write, sequence: number, state: lock.id, offset: 0, length: u64::MAX };
        let Some((outcome, answer, call)) = self.by_state(of, number, Args::LockU(unlock)) else { return };
        let (now, owner) = (self.model.now, self.owner(of));
        let id = StateId { sequence: lock.id.sequence + 1, ..lock.id };
        owner.open = Some(Open { lock: Some(Lock { id, holds: false }), ..open });
        owner.locker.executed(number, call, behind(&answer), now);
        match outcome {
            Outcome::LockU(Ok(ok)) => assert_eq!(ok.state, id),
            other => panic!("{other:?}"),
        }
        self.saw("LOCKU of minor version 0", Status::OK);
    }

    fn release_zero(&mut self, of: usize) {
        let owner = Owner { client: self.client_of_zero(), name: name(format!("l{of}")) };
        let status = self.said(vec![Args::ReleaseLockOwner(ops::ReleaseLockOwner { owner })]).1;
        let owner = self.owner(of);
        let lock = owner.open.as_ref().and_then(|open| open.lock);
        let wanted = if lock.is_some_and(|lock| lock.holds) { Status::LOCKS_HELD } else { Status::OK };
        if wanted == Status::OK {
            owner.locker = Counter::default();
            if let Some(open) = &mut owner.open {
                open.lock = None;
            }
        }
        self.is("RELEASE_LOCKOWNER", status, wanted);
    }

    fn read_zero(&mut self, of: usize, mint: &mut Mint<'_>) {
        let Some(open) = self.owner(of).open.clone() else { return };
        let is_confirmed = self.owner(of).is_confirmed;
        let (sequence, compared) = match mint.below(4) {
            0 => (0, Status::OLD_STATEID),
            1 if open.id.sequence > 1 => (open.id.sequence - 1, Status::OLD_STATEID),
            2 => (open.id.sequence + 1, Status::BAD_STATEID),
            _ => (open.id.sequence, Status::OK),
        };
        let mut state = StateId { sequence, ..open.id };
        let mut wanted = if is_confirmed { compared } else { Status::BAD_STATEID };
        if mint.below(8) == 0 {
            let StateIdOther(mut other) = state.other;
            other[11] ^= 0x40;
            // A stateid contains its client's id; this one is not the client's.
            (state.other, wanted) = (StateIdOther(other), Status::BAD_STATEID);
        }
        let read = Args::Read(ops::Read { state, offset: 0, count: 4 });
        let status = self.said(vec![self.at_zero(), read]).1;
        self.is("READ of minor version 0", status, wanted);
    }

    /// Repeats the last call of an owner with another XID: the owner's number shows that it is a repetition.
    fn again_zero(&mut self, of: usize) {
        let owner = self.owner(of);
        let Some((call, answer)) = owner.counter.known.clone() else { return };
        // The server recognizes a repeated CLOSE only by the state that it closed.
        let again = self.said(call).0;
        assert_eq!(behind(&again), answer, "the answer of the first");
        self.saw("repeated by number", Status::OK);
    }

    /// Repeats the last call, byte for byte and with the same XID, over another connection from the same port.
    fn say_again(&mut self) {
        let Some((xid, call, answer)) = self.zero.last.clone() else { return };
        let is_look = decoded(&answer).results.iter().any(|outcome| matches!(outcome, Outcome::Read(_)));
        let again = self.world.call_numbered(CONNECTION + 1, xid, &call);
        if !is_look {
            assert_eq!(again, answer, "the reply cache");
            self.saw("repeated by XID", Status::OK);
        }
    }
}

/// The results behind the first operation, PUTFH, which comes before the owner's operation.
fn behind(answer: &Bytes) -> Bytes {
    // The status, an empty tag, the number of results, and the results of PUTFH or PUTROOTFH.
    answer.slice(12 + 8..)
}
