//! A client's callback program: it takes recalls, delays some of them, and checks that the server's calls come in
//! order.

use super::Scene;
use crate::lock;
use rpcrdma_env::{BoxFuture, Random, SeededRandom};
use rpcrdma_nfs::v4::{
    Handle, SessionId, StateId, Status,
    callback::{self, CbSequence, CbSequenceOk},
    ops::TRANSIENT_PROGRAM,
};
use rpcrdma_oncrpc::{Answer, CallContext, Service};
use rpcrdma_xdr::{Decode as _, Decoder, Encode as _, Encoder};
use std::{
    collections::BTreeMap,
    mem,
    sync::{Arc, Mutex},
};

/// Slots for the server's calls.
pub(super) const SLOTS: u32 = 8;
/// One recall in so many is delayed.
const PUT_OFF_ONE_IN: u64 = 3;

#[derive(Default)]
struct Inner {
    /// The recalls that the client has not handled yet.
    recalled: Vec<(Handle, StateId)>,
    /// The last sequence number of each slot of each session.
    slots: BTreeMap<([u8; 16], u32), u32>,
}

/// A client's program, one for all of its connections.
pub(super) struct Program {
    scene: Scene,
    client: usize,
    random: SeededRandom,
    inner: Mutex<Inner>,
}

impl Program {
    pub(super) fn new(scene: &Scene, client: usize, random: SeededRandom) -> Arc<Self> {
        Arc::new(Self { scene: scene.clone(), client, random, inner: Mutex::default() })
    }

    /// Takes the recalls since the last call of this function.
    pub(super) fn recalled(&self) -> Vec<(Handle, StateId)> {
        mem::take(&mut lock(&self.inner).recalled)
    }

    fn sequence(&self, call: &CbSequence) -> Result<CbSequenceOk, Status> {
        let CbSequence { session: SessionId(session), sequence, slot, .. } = *call;
        let last = lock(&self.inner).slots.insert((session, slot), sequence).unwrap_or_default();
        // The same number again is a repetition after a connection has ended.
        if slot >= SLOTS || sequence != last && sequence != last.wrapping_add(1) {
            let found = format!("client {}: the server calls out of order: {call:?} after {last}", self.client);
            self.scene.checks.found(found);
        }
        let (highest_slot, session) = (SLOTS - 1, SessionId(session));
        Ok(CbSequenceOk { session, sequence, slot, highest_slot, target_highest_slot: highest_slot })
    }

    fn answer(&self, op: callback::Args) -> callback::Outcome {
        match op {
            callback::Args::Sequence(call) => callback::Outcome::Sequence(self.sequence(&call)),
            callback::Args::Recall(_) if self.random.below(PUT_OFF_ONE_IN) == 0 => {
                self.scene.tally.count("nfs4: a recall is put off");
                callback::Outcome::Recall(Err(Status::DELAY))
            }
            callback::Args::Recall(recall) => {
                self.scene.tally.count("nfs4: a delegation is recalled");
                self.scene.checks.recalled(&recall.file, recall.state, self.client);
                lock(&self.inner).recalled.push((recall.file, recall.state));
                callback::Outcome::Recall(Ok(()))
            }
            callback::Args::NotifyLock(_) => callback::Outcome::NotifyLock(Ok(())),
            other => callback::Outcome::failed(other.op(), Status::NOTSUPP),
        }
    }
}

impl Service for Program {
    fn program(&self) -> u32 {
        TRANSIENT_PROGRAM
    }

    fn version(&self) -> u32 {
        callback::VERSION
    }

    fn is_idempotent(&self, _: u32) -> bool {
        true
    }

    fn call(&self, _: CallContext, procedure: u32, mut args: Decoder) -> BoxFuture<'static, Answer> {
        if procedure == 0 {
            return Box::pin(std::future::ready(Answer::Results(Encoder::new().finish())));
        }
        let Ok(call) = callback::Arguments::decode(&mut args) else {
            self.scene.checks.found(format!("client {}: the server's call cannot be read", self.client));
            return Box::pin(std::future::ready(Answer::GarbageArgs));
        };
        let mut outcomes = Vec::new();
        for op in call.ops.iter().cloned() {
            outcomes.push(self.answer(op));
            if outcomes.last().is_some_and(|outcome| outcome.status() != Status::OK) {
                break;
            }
        }
        let mut encoder = Encoder::new();
        callback::Results::of(call.tag.clone(), outcomes).encode(&mut encoder);
        Box::pin(std::future::ready(Answer::Results(encoder.finish())))
    }
}
