//! Receives: the connection's own, which stay in its table until the device is done with them, and those that it takes
//! from a pool.

use super::{Kept, Phase, VerbsQueuePair};
use crate::{answer::check, completions::RECEIVE, status::Meaning, sys::verbs};
use rpcrdma_env::Buffer;
use rpcrdma_fabric::{CloseReason, Completion, FenceCause, ReceivePool, Refused, RefusedReason, Token, WorkKind};
use std::ptr;

/// The kernel's mark of an invalidation, which soft-RoCE passes on unchanged.
const KERNEL_INVALIDATED: u32 = 1 << 2;

/// A receive, and its registration if it does not lie in the pool.
pub(super) struct PostedReceive {
    region: Kept,
    buffer: Buffer,
}

impl PostedReceive {
    /// The buffer, when the device is done with it.
    pub(super) fn take(self) -> Buffer {
        drop(self.region);
        self.buffer
    }
}

impl VerbsQueuePair {
    /// Posts a receive.
    pub(super) fn give_receive(&mut self, mut buffer: Buffer) -> Result<(), Refused<Buffer>> {
        let max = self.shared.capabilities().max_receives;
        let refusal = match self.phase {
            Phase::Over => Some(RefusedReason::Closed),
            _ if self.pool.is_some() => Some(RefusedReason::Unsupported("a receive beside those of a pool")),
            _ if self.receives.len() >= max => {
                Some(RefusedReason::Limit { what: "the number of posted receives", max })
            }
            _ => None,
        };
        if let Some(reason) = refusal {
            return Err(Refused { reason, returned: buffer });
        }
        // SAFETY: the buffer goes into the table of receives, beside the region, and nothing touches it there.
        let Ok((mut slice, region)) = (unsafe { self.domain.receive_slice(&mut buffer) }) else {
            return Err(Refused { reason: RefusedReason::Registration, returned: buffer });
        };
        let number = self.number() | RECEIVE;
        let mut work = verbs::ReceiveWork {
            wr_id: number,
            next: ptr::null_mut(),
            num_sge: (slice.length > 0).into(),
            sg_list: &mut slice,
        };
        self.receives.insert(number, PostedReceive { region, buffer });
        if let (Some(post), Some(id)) = (self.shared.context.ops().post_recv, self.id()) {
            let mut bad = ptr::null_mut();
            // SAFETY: the queue pair exists as long as its identifier. Posted receives stay in the table until the
            // device is done with them or the queue pair is destroyed.
            if let Err(error) = check(unsafe { post(id.queue_pair(), &mut work, &mut bad) }) {
                // The receive comes back with the connection's end.
                self.end(CloseReason::Broken(format!("a receive cannot be posted: {error}")));
            }
        }
        Ok(())
    }

    /// The device is done with a receive.
    pub(super) fn received(&mut self, completion: &verbs::WorkCompletion) {
        let taken = match &self.pool {
            Some(pool) => pool.taken(completion.wr_id),
            None => self.receives.remove(&completion.wr_id).map(PostedReceive::take),
        };
        let Some(mut buffer) = taken else { return };
        if completion.status == verbs::STATUS_SUCCESS {
            buffer.set_len(completion.byte_len as usize);
            let invalidated = self.invalidated(completion);
            if let Some(handle) = invalidated {
                self.fenced(handle, FenceCause::Remote);
            }
            self.out.push_back(Completion::Received { buffer, invalidated });
            return;
        }
        if completion.status == verbs::STATUS_FLUSHED {
            self.suspect();
        } else {
            self.end(Meaning::at_receive(completion.status).of_receive());
        }
        if let Some(pool) = &self.pool {
            // The buffer belongs to the pool, and serves another connection.
            return pool.post(buffer);
        }
        let error = Meaning::at_receive(completion.status).error();
        let buffer = Some(buffer);
        self.out.push_back(Completion::Failed { token: Token(0), kind: WorkKind::Receive, error, buffer });
    }

    /// The exposure that the peer's Send has ended, if it has ended one.
    fn invalidated(&self, completion: &verbs::WorkCompletion) -> Option<u32> {
        let mut marks = verbs::COMPLETION_INVALIDATED;
        if self.shared.limits.quirks.kernel_invalidation_bit {
            marks |= KERNEL_INVALIDATED;
        }
        // Immediate data would stand in the same place; no correct peer sends it.
        let marked = completion.wc_flags & marks != 0 && completion.wc_flags & verbs::COMPLETION_IMMEDIATE == 0;
        let handle = completion.invalidated_rkey;
        (marked && self.exposures.contains_key(&handle)).then_some(handle)
    }
}
