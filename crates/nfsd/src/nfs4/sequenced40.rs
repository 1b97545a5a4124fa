//! Minor version 0: operations with the sequence number of an owner (RFC 7530 sections 9.1.7 to 9.1.11, 16.18).
//!
//! This module executes OPEN, OPEN_CONFIRM, OPEN_DOWNGRADE, CLOSE, LOCK and LOCKU one after the other for each owner,
//! and each of them once: a repeated operation gets the same answer. Their work is the same as in later minor versions,
//! whose code does it (`open.rs`, `lock.rs`). In addition, an open of an owner that is not confirmed waits for
//! OPEN_CONFIRM, and the client cannot use its stateid before that.

use super::{
    compound::Compound,
    service::Pin,
    state::{
        checked::Wanted,
        clients::Client,
        owners40::{OwnerOf, Remembered, StateOwner, Turn},
    },
};
use crate::{claims::FileKey, opened::Opened};
use rpcrdma_nfs::v4::{
    Args, Op, Outcome, StateId, StateIdOther, Status,
    ops::{self, Answer, Claim, Locker, open_result},
};
use rpcrdma_xdr::{Encode, Encoder, Part};
use siphasher::sip::SipHasher13;
use std::{
    hash::{Hash, Hasher},
    sync::Arc,
};

/// Flags of OPEN's results that minor version 0 has.
const RESULT_FLAGS: u32 = open_result::CONFIRM | open_result::LOCKTYPE_POSIX;

/// An operation of an owner.
struct Call {
    client: Arc<Client<Pin>>,
    owner: Arc<StateOwner>,
    number: u32,
    digest: u64,
    file: Opened,
}

/// Distinguishes an operation on a file from others.
fn digest(args: &Args, file: FileKey) -> u64 {
    let mut encoder = Encoder::new();
    args.encode(&mut encoder);
    let mut hasher = SipHasher13::new();
    for part in encoder.finish().parts() {
        match part {
            Part::Run(octets) => hasher.write(octets),
            Part::Item(octets) => hasher.write(octets),
        }
    }
    file.hash(&mut hasher);
    hasher.finish()
}

/// The owner's sequence number in an operation, the state that the operation names, and its kind.
fn number_and_state(args: &Args) -> Option<(u32, StateId, Wanted)> {
    Some(match args {
        Args::OpenConfirm(args) => (args.sequence, args.state, Wanted::Open),
        Args::OpenDowngrade(args) => (args.sequence, args.state, Wanted::Open),
        Args::Close(args) => (args.sequence, args.state, Wanted::Open),
        Args::LockU(args) => (args.sequence, args.state, Wanted::Lock),
        Args::Lock(lock) => match &lock.locker {
            Locker::New(new) => (new.open_sequence, new.open_state, Wanted::Open),
            Locker::Known(known) => (known.sequence, known.state, Wanted::Lock),
        },
        _ => return None,
    })
}

impl Compound {
    /// Executes an operation that has an owner's sequence number.
    pub(super) async fn in_sequence(&mut self, args: Args) -> Outcome {
        let op = args.op();
        match self.try_in_sequence(args).await {
            Ok(outcome) => outcome,
            Err(status) => Outcome::failed(op, status),
        }
    }

    async fn try_in_sequence(&mut self, args: Args) -> Result<Outcome, Status> {
        let file = self.file()?;
        let digest = digest(&args, Self::key(&file));
        match args {
            Args::Open(open) => {
                let client = self.client_of_id(open.owner.client)?;
                let owner = client.zero()?.owners.get(OwnerOf::Opens, &open.owner.name)?;
                let _present = self.present(client.clone())?;
                let call = Call { client, owner, number: open.sequence, digest, file };
                self.open_in_sequence(call, *open).await
            }
            args => {
                let (number, state, wanted) = number_and_state(&args).ok_or(Status::SERVERFAULT)?;
                let client = self.client_of(state)?;
                let owner = owner_of(&client, state, wanted)?;
                let _present = self.present(client.clone())?;
                let call = Call { client, owner, number, digest, file };
                self.by_state_in_sequence(call, args, state).await
            }
        }
    }

    /// OPEN, the only operation for owners that are not yet known.
    async fn open_in_sequence(&mut self, call: Call, open: ops::Open) -> Result<Outcome, Status> {
        let mut turn = call.owner.turn().await;
        match turn.check(call.number, call.digest) {
            Ok(Some(known)) => return Ok(self.again(known, &call.file)),
            Ok(None) => {}
            // NFS4-7530-16.18-b: the unconfirmed OPEN may be an old one that came late.
            Err(_) if !turn.is_confirmed => turn.start_over(),
            Err(status) => return Err(status),
        }
        if let Some(before) = turn.unconfirmed.take() {
            let released = call.client.held.cancel(before);
            self.shared.release(self.origin(), released);
        }
        let is_reclaim = matches!(open.claim, Claim::Previous(_) | Claim::DelegatePrevious(_));
        self.may_delegate = turn.is_confirmed || is_reclaim;
        let mut answer = self.open(open).await;
        if let Ok(ok) = &mut answer {
            ok.flags &= RESULT_FLAGS;
            // NFS4-7530-9.1.11-b
            turn.is_confirmed |= is_reclaim;
            if !turn.is_confirmed {
                ok.flags |= open_result::CONFIRM;
                turn.unconfirmed = Some(ok.state.other);
                call.client.held.wait_for_confirmation(ok.state.other);
            }
        }
        let opened = answer.is_ok().then(|| self.file().ok()).flatten().map(|file| file.file);
        Ok(self.executed(&call, &mut turn, Outcome::Open(answer.map(Box::new)), opened))
    }

    /// The other operations, which name a state.
    async fn by_state_in_sequence(&mut self, call: Call, args: Args, state: StateId) -> Result<Outcome, Status> {
        let mut turn = call.owner.turn().await;
        if let Some(known) = turn.check(call.number, call.digest)? {
            return Ok(self.again(known, &call.file));
        }
        // NFS4-7530-16.18-d
        let is_open_owner = match &args {
            Args::LockU(_) => false,
            Args::Lock(lock) => matches!(lock.locker, Locker::New(_)),
            _ => true,
        };
        if is_open_owner && turn.is_confirmed == matches!(args, Args::OpenConfirm(_)) {
            return Err(Status::BAD_STATEID);
        }
        if let Args::Lock(lock) = args {
            return match &lock.locker {
                Locker::New(new) => {
                    let new = new.clone();
                    Ok(self.lock_by_new(call, &mut turn, *lock, new).await)
                }
                Locker::Known(_) => {
                    let outcome = Outcome::Lock(self.lock(*lock).await);
                    Ok(self.executed(&call, &mut turn, outcome, None))
                }
            };
        }
        let outcome = match args {
            Args::OpenConfirm(args) => Outcome::OpenConfirm(self.confirm_open(&call, &mut turn, args)),
            Args::OpenDowngrade(args) => Outcome::OpenDowngrade(self.open_downgrade(args)),
            Args::Close(args) => {
                let answer = self.close(args);
                if answer.is_ok() {
                    call.client.zero()?.owners.closed(&call.owner, &mut turn, state.other);
                }
                Outcome::Close(answer)
            }
            Args::LockU(args) => Outcome::LockU(self.unlock(args).await),
            other => Outcome::failed(other.op(), Status::SERVERFAULT),
        };
        Ok(self.executed(&call, &mut turn, outcome, None))
    }

    fn confirm_open(&self, call: &Call, turn: &mut Turn, args: ops::OpenConfirm) -> Answer<ops::OpenConfirmOk> {
        let state = call.client.held.confirm(args.state, Self::key(&call.file))?;
        turn.is_confirmed = true;
        turn.unconfirmed = None;
        Ok(ops::OpenConfirmOk { state })
    }

    /// LOCK by an owner that is new to the file: both owners have a sequence number. The open-owner's number is used up
    /// however the LOCK ends, unless the status says that it was not.
    async fn lock_by_new(&mut self, call: Call, turn: &mut Turn, lock: ops::Lock, new: ops::NewLocker) -> Outcome {
        let locked = self.try_lock_by_new(&call, lock, new).await;
        // NFS4-7530-9.1.7-b
        self.executed(&call, turn, locked.unwrap_or_else(|status| Outcome::failed(Op::Lock, status)), None)
    }

    // NFS4-7530-9.1.1-b
    async fn try_lock_by_new(&mut self, call: &Call, lock: ops::Lock, new: ops::NewLocker) -> Result<Outcome, Status> {
        if new.owner.client != call.client.id() {
            self.shared.state.client_of_zero(new.owner.client)?;
            return Err(Status::BAD_STATEID);
        }
        let owners = &call.client.zero()?.owners;
        let locker = owners.get(OwnerOf::Locks, &new.owner.name)?;
        let mut lockers_turn = locker.turn().await;
        // NFS4-7530-9.1.9-a
        if !call.client.held.has_lock_states(&new.owner.name) {
            lockers_turn.start_over();
        }
        if lockers_turn.check(new.lock_sequence, call.digest)?.is_some() {
            // The open-owner's number is another one now than in the first call.
            return Err(Status::BAD_SEQID);
        }
        let outcome = Outcome::Lock(self.lock(lock).await).in_minor(0);
        let known = Remembered { digest: call.digest, outcome: outcome.clone(), file: None };
        lockers_turn.executed(new.lock_sequence, known, self.shared.now());
        Ok(outcome)
    }

    /// An operation was executed: the owner remembers it.
    fn executed(&self, call: &Call, turn: &mut Turn, outcome: Outcome, file: Option<crate::FileId>) -> Outcome {
        let outcome = outcome.in_minor(0);
        let known = Remembered { digest: call.digest, outcome: outcome.clone(), file };
        turn.executed(call.number, known, self.shared.now());
        outcome
    }

    /// The answer to a repeated operation.
    fn again(&mut self, known: &Remembered, at: &Opened) -> Outcome {
        if let Some(file) = known.file {
            self.go_to(Opened { file, ..at.clone() });
        }
        known.outcome.clone()
    }
}

/// The owner to whom the sequence number of an operation on a state belongs.
fn owner_of(client: &Client<Pin>, state: StateId, wanted: Wanted) -> Result<Arc<StateOwner>, Status> {
    let owners = &client.zero()?.owners;
    let closed = |other: StateIdOther| owners.closer_of(other).filter(|_| wanted == Wanted::Open);
    let (kind, name) = match client.held.owner_of(state) {
        Ok(known) => known,
        Err(status) => return closed(state.other).ok_or(status),
    };
    match kind {
        kind if kind != wanted => Err(Status::BAD_STATEID),
        Wanted::Lock => owners.get(OwnerOf::Locks, &name),
        _ => owners.get(OwnerOf::Opens, &name),
    }
}
