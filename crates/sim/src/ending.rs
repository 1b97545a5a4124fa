//! Closing an end: all memory that it was given comes back.

use crate::{
    endpoint::{Channel, Endpoint, Failing, Fin, Phase, Work, side},
    log::{Event, Happening},
    state::State,
};
use rpcrdma_env::Random;
use rpcrdma_fabric::{CloseReason, Completion, FenceCause, Token, WorkError, WorkKind};
use std::collections::VecDeque;

impl Endpoint {
    /// Takes out everything that the end holds, as completions. Completions that must keep their order share a queue:
    /// exposures may end in any order; work keeps its order, and so do receives.
    fn take_all(&mut self, failing: Option<&Failing>) -> Vec<VecDeque<Completion>> {
        let error = |number: u64| match failing {
            Some(failing) if failing.number == number => failing.error.clone(),
            _ => WorkError::Flushed,
        };
        let failed = |token, kind, error, buffer| Completion::Failed { token, kind, error, buffer };
        let mut work: VecDeque<Completion> = VecDeque::new();
        for (number, token) in std::mem::take(&mut self.departed) {
            if let Some(failing) = failing.filter(|failing| failing.number == number) {
                work.push_back(failed(token, WorkKind::Write, failing.error.clone(), None));
            }
        }
        for sent in self.sent.drain(..) {
            work.push_back(failed(sent.token, sent.kind, error(sent.number), None));
        }
        for (number, read) in std::mem::take(&mut self.reads) {
            work.push_back(failed(read.token, WorkKind::Read, error(number), Some(read.sink)));
        }
        for posted in self.posted.drain(..) {
            work.push_back(match posted {
                Work::Send(send) => failed(send.token, WorkKind::Send, WorkError::Flushed, None),
                Work::Write(write) => failed(write.token, WorkKind::Write, WorkError::Flushed, None),
                Work::Read(read) => failed(read.token, WorkKind::Read, WorkError::Flushed, Some(read.sink)),
            });
        }
        let mut receives: VecDeque<Completion> = VecDeque::new();
        for buffer in self.receives.drain(..) {
            receives.push_back(failed(Token::default(), WorkKind::Receive, WorkError::Flushed, Some(buffer)));
        }
        let fenced: Vec<Completion> = std::mem::take(&mut self.exposures)
            .into_iter()
            .map(|(handle, exposure)| Completion::Fenced {
                token: exposure.token,
                handle,
                memory: exposure.memory,
                cause: FenceCause::Closed,
            })
            .collect();
        let mut queues = vec![work, receives];
        queues.extend(fenced.into_iter().map(|completion| VecDeque::from([completion])));
        queues.retain(|queue| !queue.is_empty());
        queues
    }
}

impl State {
    /// Closes end `id`: everything that it holds comes back, in an order that the seed draws; some time later the end
    /// closes.
    pub(crate) fn end(&mut self, id: u64, reason: CloseReason, failing: Option<&Failing>) {
        let Some(end) = self.endpoints.get_mut(&id).filter(|end| end.is_open()) else { return };
        end.phase = Phase::Ending(reason);
        end.fin = Fin::Sent;
        end.outstanding = 0;
        end.reading = 0;
        end.segments.clear();
        end.shared = None;

        let mut queues = end.take_all(failing);
        while !queues.is_empty() {
            let index = self.random.below(queues.len() as u64) as usize;
            if let Some(completion) = queues[index].pop_front() {
                self.complete(id, completion);
            }
            if queues[index].is_empty() {
                queues.swap_remove(index);
            }
        }
        self.locally(id, Channel::Local, move |state| {
            let Some(end) = state.endpoints.get_mut(&id) else { return };
            if let Phase::Ending(reason) = &end.phase {
                let reason = reason.clone();
                end.phase = Phase::Due(reason.clone());
                end.wake();
                let happening = Happening::Closed(reason);
                state.record(Event::Completed { connection: id / 2, side: side(id), happening });
            }
        });
    }

    /// The owner has dropped end `id`: drops its memory, and resets the peer.
    pub(crate) fn abandon(&mut self, id: u64) {
        let Some(end) = self.endpoints.get_mut(&id) else { return };
        if end.is_over() {
            return;
        }
        let was_open = end.is_open();
        end.phase = Phase::Over;
        end.receives.clear();
        end.shared = None;
        end.exposures.clear();
        end.posted.clear();
        end.sent.clear();
        end.departed.clear();
        end.segments.clear();
        end.reads.clear();
        end.completions.clear();
        end.waker = None;
        self.record(Event::Dropped { connection: id / 2, side: side(id) });
        if was_open {
            self.reset_peer(id);
        }
    }

    /// Tells the peer of end `id` that this end does not exist.
    pub(crate) fn reset_peer(&mut self, id: u64) {
        if let Some(end) = self.endpoints.get_mut(&id) {
            // The host sends this reset; the end itself may have ended in a crash.
            end.severed = false;
        }
        self.transmit(id, Channel::Last, 0, move |state| {
            state.end(id ^ 1, CloseReason::Broken("reset by the peer".to_owned()), None);
        });
    }
}
