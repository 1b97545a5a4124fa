//! The client's answer to each operation of a CB_COMPOUND.

use crate::v4::{Inner, awaited::Recalled, session::BACK_OPERATIONS};
use rpcrdma_nfs::v4::{
    Status,
    callback::{self, Args, CbOffload, CbRecall, CbSequence, CbSequenceOk, Op, Outcome},
};

/// The outcomes of a call's operations, up to the first failure. The caller has already handled CB_SEQUENCE, the first
/// one.
pub(super) fn outcomes(
    client: Option<&Inner>,
    call: &callback::Arguments,
    sequence: &CbSequence,
    told: CbSequenceOk,
) -> Vec<Outcome> {
    if call.announced > BACK_OPERATIONS {
        return vec![Outcome::Sequence(Err(Status::TOO_MANY_OPS))];
    }
    let mut outcomes = vec![Outcome::Sequence(Ok(told))];
    for args in call.ops.iter().skip(1) {
        let status = execute(client, sequence, args);
        let outcome = if status == Status::OK { done(args) } else { Outcome::failed(args.op(), status) };
        outcomes.push(outcome);
        if status != Status::OK {
            return outcomes;
        }
    }
    outcomes.extend(call.broken_outcome());
    outcomes
}

/// The same in minor version 0, which has no sessions and only these two operations (RFC 7530 section 15.1).
pub(super) fn outcomes_without_session(client: &Inner, call: &callback::Arguments) -> Vec<Outcome> {
    if call.announced > BACK_OPERATIONS {
        return call.ops.first().map(|args| Outcome::failed(args.op(), Status::RESOURCE)).into_iter().collect();
    }
    let mut outcomes = Vec::new();
    for args in &call.ops {
        let status = match args {
            Args::Recall(recall) => client.gives_back(recall, || client.awaited.is_opening()),
            // The client never uses a delegation, so it knows nothing of the file that the server does not know.
            Args::GetAttr(_) => Status::BADHANDLE,
            _ => Status::OP_ILLEGAL,
        };
        outcomes.push(if status == Status::OK { done(args) } else { Outcome::failed(args.op(), status) });
        if status != Status::OK {
            return outcomes;
        }
    }
    outcomes.extend(call.broken_outcome());
    outcomes
}

/// The results of a successful operation, which has none beside its status.
fn done(args: &Args) -> Outcome {
    match args {
        Args::Recall(_) => Outcome::Recall(Ok(())),
        Args::RecallAny(_) => Outcome::RecallAny(Ok(())),
        Args::RecallSlot(_) => Outcome::RecallSlot(Ok(())),
        Args::NotifyLock(_) => Outcome::NotifyLock(Ok(())),
        Args::Offload(_) => Outcome::Offload(Ok(())),
        other => Outcome::failed(other.op(), Status::NOTSUPP),
    }
}

fn execute(client: Option<&Inner>, sequence: &CbSequence, args: &Args) -> Status {
    match args {
        Args::Sequence(_) => Status::SEQUENCE_POS,
        Args::Recall(recall) => client.map_or(Status::BAD_STATEID, |client| client.recalled(sequence, recall)),
        // A client that returns delegations at once has none, which satisfies any limit; one that keeps them keeps them
        // all the same.
        Args::RecallAny(_) => Status::OK,
        Args::RecallSlot(recall) => {
            if let Some(client) = client {
                client.slots_recalled(sequence, recall.target_highest_slot);
            }
            Status::OK
        }
        Args::NotifyLock(notify) => {
            if let Some(client) = client {
                client.awaited.can_lock(notify.file.clone(), notify.owner.name.clone());
            }
            Status::OK
        }
        Args::Offload(offload) => client.map_or(Status::BAD_STATEID, |client| client.offloaded(offload)),
        // The client has no layouts, and no delegations of this kind (RFC 8881 sections 20.3, 20.1).
        Args::LayoutRecall(_) => Status::NOMATCHING_LAYOUT,
        Args::GetAttr(_) => Status::BADHANDLE,
        Args::PushDeleg(_) => Status::REJECT_DELEG,
        args => {
            debug_assert!(
                matches!(args.op(), Op::Notify | Op::RecallableObjAvail | Op::WantsCancelled | Op::NotifyDeviceId),
                "{args:?}"
            );
            Status::NOTSUPP
        }
    }
}

impl Inner {
    /// CB_RECALL: the driver returns the delegation at once. If the client does not know it, the reply with the
    /// delegation may still be under way.
    fn recalled(&self, sequence: &CbSequence, recall: &CbRecall) -> Status {
        let session = self.standing().session.clone();
        let is_under_way = || {
            session.is_some_and(|session| {
                let ours = sequence.referring.iter().filter(|calls| calls.session == session.id);
                ours.flat_map(|calls| calls.calls.iter())
                    .any(|call| session.slots.is_under_way(call.slot, call.sequence))
            })
        };
        self.gives_back(recall, is_under_way)
    }

    /// The same. `is_under_way` says whether an unknown delegation may still be in a reply that is under way.
    fn gives_back(&self, recall: &CbRecall, is_under_way: impl FnOnce() -> bool) -> Status {
        match self.awaited.recalled(recall.state) {
            Some(Recalled::OnItsWay) => Status::OK,
            Some(Recalled::Of(file)) => match self.duties.give_back(file.clone(), recall.state) {
                true => Status::OK,
                // The server must recall it later: too many returns are waiting.
                false => {
                    self.awaited.delegated(&file, recall.state);
                    Status::DELAY
                }
            },
            None if is_under_way() => Status::DELAY,
            None => Status::BAD_STATEID,
        }
    }

    fn slots_recalled(&self, sequence: &CbSequence, target_highest_slot: u32) {
        let session = self.standing().session.clone();
        if let Some(session) = session.filter(|session| session.id == sequence.session) {
            session.slots.shrink(target_highest_slot);
        }
    }

    /// CB_OFFLOAD: a copy has ended.
    fn offloaded(&self, offload: &CbOffload) -> Status {
        if self.awaited.copied(offload.state, offload.outcome) { Status::OK } else { Status::BAD_STATEID }
    }
}
