//! CB_COMPOUND, and what the reply means for its slot (RFC 8881 sections 2.10.6.1, 20.2, 20.9).
//!
//! The server accepts a client's reply only if it fits the call. It takes none of these for a reply: results of other
//! operations, results of another session or slot, fewer results than their status allows.

use super::{
    super::state::backchannel::{Settled, TakenSlot},
    NoAnswer,
};
use rpcrdma_nfs::v4::{
    List, SessionId, Status,
    callback::{Args, Arguments, CbSequence, CbSequenceOk, Op, Outcome, ReferringCalls, Results},
};
use rpcrdma_oncrpc::{CallError, ReplyShape, Results as RpcResults, TransportError};
use rpcrdma_xdr::{Encode, Encoder, Payload};

/// Bytes of an RPC reply before CB_COMPOUND's results, with an empty verifier: `ca_maxresponsesize` counts them, too.
const RPC_REPLY_BYTES: usize = 24;

/// A CB_COMPOUND, which can be sent by any slot.
#[derive(Clone)]
pub(super) struct Message {
    pub(super) session: SessionId,
    pub(super) minor: u32,
    pub(super) ops: Vec<Args>,
    pub(super) referring: Vec<ReferringCalls>,
}

/// What to do about a reply.
#[derive(Debug)]
pub(super) enum Verdict {
    /// It is a reply to this call.
    Answered(Vec<Outcome>),
    /// The call has failed.
    Failed(NoAnswer),
    /// The client wants the same call again, after a pause.
    Later,
    /// Another slot may do.
    OtherSlot,
    /// The connection has ended: the call may go over another, with the same slot and number.
    OtherPath,
}

/// The meaning of a reply.
#[derive(Debug)]
pub(super) struct Judged {
    pub(super) settled: Settled,
    pub(super) verdict: Verdict,
    /// Whether the client takes part in callbacks, if the reply shows it.
    pub(super) is_up: Option<bool>,
    /// The highest slot that the client wants the server to use.
    pub(super) target: Option<u32>,
}

impl Judged {
    fn of(settled: Settled, verdict: Verdict, is_up: Option<bool>) -> Self {
        Self { settled, verdict, is_up, target: None }
    }

    fn refused(status: Status, is_up: Option<bool>) -> Self {
        Self::of(Settled::NotExecuted, Verdict::Failed(NoAnswer::Refused(status)), is_up)
    }
}

impl Message {
    /// CB_SEQUENCE alone, to settle a slot that is in doubt.
    pub(super) fn probe(&self) -> Self {
        Self { ops: Vec::new(), referring: Vec::new(), ..self.clone() }
    }

    /// How many operations the call has.
    pub(super) fn operations(&self) -> usize {
        self.ops.len().saturating_add(1)
    }

    fn arguments(&self, taken: TakenSlot) -> Arguments {
        let sequence = Args::Sequence(CbSequence {
            session: self.session,
            sequence: taken.sequence,
            slot: taken.slot,
            highest_slot: taken.highest,
            // The client may execute the operations twice, and the server looks at the results only once.
            cache: false,
            referring: List(self.referring.clone()),
        });
        let ops = [sequence].into_iter().chain(self.ops.iter().cloned()).collect();
        Arguments::new(self.minor, 0, ops)
    }

    /// The bytes of the call's arguments.
    pub(super) fn octets(&self) -> usize {
        let mut encoder = Encoder::new();
        self.arguments(TakenSlot { slot: 0, sequence: 0, highest: 0, is_doubtful: false }).encode(&mut encoder);
        encoder.position()
    }

    /// The arguments in wire form, and the shape of the largest results if a reply has at most `max_response` bytes.
    pub(super) fn encoded(&self, taken: TakenSlot, max_response: u32) -> (Payload, ReplyShape) {
        let arguments = self.arguments(taken);
        let mut encoder = Encoder::new();
        arguments.encode(&mut encoder);
        // ULB-6.2-b
        let most = (max_response as usize).saturating_sub(RPC_REPLY_BYTES);
        (encoder.finish(), ReplyShape::inline(arguments.largest_results().min(most)))
    }

    /// The meaning of a reply that came over this connection.
    pub(super) fn judge(&self, taken: TakenSlot, connection: u64, answer: Result<RpcResults, CallError>) -> Judged {
        let unknown = Settled::Unknown { connection };
        let lost = |settled| Judged::of(settled, Verdict::Failed(NoAnswer::Lost), Some(false));
        let results = match answer.and_then(|results| results.decode::<Results>()) {
            Ok(results) => results,
            Err(CallError::Transport(error)) => return Self::not_carried(&error, unknown),
            // The client does not have the program, or does not accept the credential.
            Err(CallError::Rejected(_)) => return Judged::refused(Status::SERVERFAULT, Some(false)),
            Err(_) => return lost(unknown),
        };
        let mut outcomes = results.results.into_iter();
        match outcomes.next() {
            Some(Outcome::Sequence(Ok(ok))) if Self::is_for(&ok, self.session, taken) => {
                let verdict = match matching(&self.ops, results.status, outcomes.collect()) {
                    Some(outcomes) => Verdict::Answered(outcomes),
                    None => Verdict::Failed(NoAnswer::Lost),
                };
                let target = Some(ok.target_highest_slot.min(ok.highest_slot));
                Judged { target, ..Judged::of(Settled::Executed, verdict, Some(true)) }
            }
            Some(Outcome::Sequence(Err(status))) => Self::refused(status, taken),
            // Before any operation: the client refuses the minor version, or could not decode the call.
            None if results.status != Status::OK => Judged::refused(results.status, None),
            _ => lost(unknown),
        }
    }

    fn is_for(ok: &CbSequenceOk, session: SessionId, taken: TakenSlot) -> bool {
        (ok.session, ok.slot, ok.sequence) == (session, taken.slot, taken.sequence)
    }

    /// CB_SEQUENCE has failed: in general the slot is unchanged (RFC 8881 section 20.9.3).
    fn refused(status: Status, taken: TakenSlot) -> Judged {
        match status {
            Status::DELAY => Judged::of(Settled::NotExecuted, Verdict::Later, None),
            // The client has executed the call that came over another connection.
            Status::RETRY_UNCACHED_REP | Status::SEQ_FALSE_RETRY => {
                Judged::of(Settled::Executed, Verdict::Failed(NoAnswer::Lost), Some(true))
            }
            Status::SEQ_MISORDERED => Judged::of(Settled::Broken, Verdict::OtherSlot, None),
            Status::BADSLOT | Status::BAD_HIGH_SLOT => {
                let target = taken.slot.saturating_sub(1);
                let verdict = match taken.slot {
                    0 => Verdict::Failed(NoAnswer::Refused(status)),
                    _ => Verdict::OtherSlot,
                };
                let is_up = (taken.slot == 0).then_some(false);
                Judged { target: Some(target), ..Judged::of(Settled::NotExecuted, verdict, is_up) }
            }
            Status::BADSESSION | Status::CONN_NOT_BOUND_TO_SESSION => Judged::refused(status, Some(false)),
            _ => Judged::refused(status, None),
        }
    }

    /// The transport has no reply.
    fn not_carried(error: &TransportError, unknown: Settled) -> Judged {
        match error {
            TransportError::Closed | TransportError::Lost { .. } | TransportError::Violation { .. } => {
                Judged::of(unknown, Verdict::OtherPath, None)
            }
            // Nothing was sent, or the client's transport has not delivered it.
            TransportError::Misuse(_) | TransportError::NotLent { .. } => Judged::refused(Status::REQ_TOO_BIG, None),
            TransportError::Remote { .. } => Judged::refused(Status::SERVERFAULT, Some(false)),
            // The client has executed the call, with larger results than the call allows.
            TransportError::ReplyTooLarge { .. } => {
                Judged::of(Settled::Executed, Verdict::Failed(NoAnswer::Lost), Some(true))
            }
            _ => Judged::of(unknown, Verdict::Failed(NoAnswer::Lost), Some(false)),
        }
    }

    /// The call's operations, for counters: CB_SEQUENCE if there is no other.
    pub(super) fn names(&self) -> Vec<Op> {
        match self.ops.is_empty() {
            true => vec![Op::Sequence],
            false => self.ops.iter().map(Args::op).collect(),
        }
    }
}

/// The results, up to the first failure, if they match the operations of the call.
pub(super) fn matching(asked: &[Args], status: Status, outcomes: Vec<Outcome>) -> Option<Vec<Outcome>> {
    let is_of = |(asked, outcome): (&Args, &Outcome)| outcome.op() == Some(asked.op());
    let fits = outcomes.len() <= asked.len() && asked.iter().zip(&outcomes).all(is_of);
    let last = outcomes.last().map_or(Status::OK, Outcome::status);
    let (done, _) = outcomes.split_at(outcomes.len().saturating_sub(1));
    let all_before = done.iter().all(|outcome| outcome.status() == Status::OK);
    let is_whole = outcomes.len() == asked.len() || last != Status::OK;
    (fits && all_before && is_whole && status == last).then_some(outcomes)
}
