//! The end: afterwards the device can reach no memory of the connection, so everything can be handed back even if the
//! device has not reported it.
//!
//! The order matters. Windows go before their regions and before the queue pair, which some drivers cannot destroy
//! while it has windows. The queue pair goes before the memory of posted work is handed back. The identifier goes last,
//! which tells the peer of the end if it has not learned of it in another way.

use super::{Hardware, Phase, VerbsQueuePair};
use crate::{
    answer::{check, report},
    events::forget,
    shared::Shared,
    shared_receives::await_last,
    sys::verbs,
};
use rpcrdma_fabric::{CloseReason, Completion, FenceCause, Token, WorkError, WorkKind};

impl VerbsQueuePair {
    /// Ends the connection, in an orderly manner or not, and hands everything back.
    pub(super) fn finish(&mut self) {
        if self.phase == Phase::Over {
            return;
        }
        if let Some(hardware) = &self.hardware {
            hardware.stop(&self.shared);
            if self.pool.is_some() {
                await_last(&self.shared.context, hardware.id.queue_pair(), &*self.shared.env.clock);
            }
        }
        while self.take_completions() {}
        self.phase = Phase::Over;
        self.timer = None;
        self.alive = None;
        self.fence_all();
        let hardware = self.hardware.take();
        let destroyed = hardware.is_none_or(|hardware| hardware.destroy(&self.shared));
        if !destroyed {
            return self.abandon();
        }
        while let Some(posted) = self.posted.pop_front() {
            self.done(posted.work, verbs::STATUS_FLUSHED);
        }
        while let Some(work) = self.waiting.pop_front() {
            self.done(work, verbs::STATUS_FLUSHED);
        }
        self.reads_waiting.clear();
        while let Some((_, reading)) = self.reads.pop_first() {
            let error = reading.error.clone().unwrap_or(WorkError::Flushed);
            let read = reading.take();
            let (token, buffer) = (read.token, Some(read.sink));
            self.out.push_back(Completion::Failed { token, kind: WorkKind::Read, error, buffer });
        }
        while let Some((_, receive)) = self.receives.pop_first() {
            let buffer = Some(receive.take());
            let (token, kind, error) = (Token(0), WorkKind::Receive, WorkError::Flushed);
            self.out.push_back(Completion::Failed { token, kind, error, buffer });
        }
        self.close();
    }

    fn close(&mut self) {
        let reason = self.reason.take().unwrap_or(CloseReason::Local);
        tracing::debug!(local = %self.info.local, peer = %self.info.peer, %reason, "closed");
        self.out.push_back(Completion::Closed { reason });
    }

    /// The device did not destroy the queue pair: memory that it may still reach is never used again.
    fn abandon(&mut self) {
        tracing::error!("a queue pair could not be destroyed; its memory is abandoned");
        std::mem::forget(std::mem::take(&mut self.posted));
        std::mem::forget(std::mem::take(&mut self.reads));
        std::mem::forget(std::mem::take(&mut self.receives));
        std::mem::forget(self.pool.take());
        self.waiting.clear();
        self.reads_waiting.clear();
        // Nor is memory that the end has fenced: the device may not have freed its windows and regions either.
        for completion in std::mem::take(&mut self.out) {
            match completion {
                fenced @ Completion::Fenced { cause: FenceCause::Closed, .. } => std::mem::forget(fenced),
                other => self.out.push_back(other),
            }
        }
        self.close();
    }
}

impl Hardware {
    /// Disconnects, and makes the device give back its work.
    fn stop(&self, shared: &Shared) {
        // An error means that the connection no longer exists, or does not exist yet.
        if let Err(error) = self.id.disconnect() {
            tracing::trace!(%error, "disconnecting");
        }
        // SAFETY: numbers, for which zero is a value.
        let mut attributes: verbs::QueuePairAttributes = unsafe { std::mem::zeroed() };
        attributes.qp_state = verbs::QP_ERROR;
        let library = &shared.context.library().verbs;
        // SAFETY: the queue pair exists as long as its identifier.
        let answer =
            check(unsafe { (library.ibv_modify_qp)(self.id.queue_pair(), &mut attributes, verbs::QP_ATTRIBUTE_STATE) });
        if let Err(error) = answer {
            tracing::trace!(%error, "stopping a queue pair");
        }
    }

    /// Destroys the queue pair and everything that belongs to it. Returns false if the device refuses.
    fn destroy(mut self, shared: &Shared) -> bool {
        let library = &shared.context.library().verbs;
        let queue_pair = self.id.queue_pair();
        // SAFETY: the queue pair exists, and nothing names it afterwards.
        let answer = check(unsafe { (library.ibv_destroy_qp)(queue_pair) });
        let destroyed = answer.is_ok();
        report("destroying a queue pair", answer);
        if destroyed {
            forget(queue_pair);
            self.id.forget_queue_pair();
        } else {
            std::mem::forget(self);
        }
        destroyed
    }
}
