//! The queue pair that a program holds: checks posted work against the limits and passes it to its end.
//!
//! Work starts with the next poll. The error for refused work returns its memory. The end owns accepted memory until a
//! completion brings it back, or until the queue pair is dropped, which frees the memory and resets the peer.

use crate::{
    config::SimConfig,
    endpoint::{Channel, Endpoint, Exposure, Fin, Phase, Work, side, total},
    executor::lock,
    log::Event,
    send::segments_total,
    state::{Shared, State},
};
use rpcrdma_env::{Buffer, Random};
use rpcrdma_fabric::{
    Capabilities, Completion, Connected, ConnectionInfo, FenceCause, Lent, QueuePair, ReadWork, Refused, RefusedReason,
    RemoteSegment, SendWork, Token, WorkError, WorkKind, WriteWork,
};
use std::{
    sync::{Arc, MutexGuard},
    task::{Context, Poll},
};

/// A queue pair of the simulation.
pub(crate) struct SimQueuePair {
    shared: Arc<Shared>,
    id: u64,
    info: ConnectionInfo,
    config: Arc<SimConfig>,
}

impl SimQueuePair {
    pub(crate) fn boxed(shared: Arc<Shared>, id: u64, info: ConnectionInfo, config: Arc<SimConfig>) -> Connected {
        Box::new(Self { shared, id, info, config })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.shared.state)
    }

    /// Posts work, if `check` agrees and there is room for `slots` more.
    fn post<T>(
        &self,
        work: T,
        slots: usize,
        check: impl FnOnce(&T, &Endpoint) -> Result<(), RefusedReason>,
        into: impl FnOnce(T) -> Work,
    ) -> Result<(), Refused<T>> {
        let mut state = self.state();
        let Some(end) = state.endpoints.get_mut(&self.id) else {
            return Err(Refused { reason: RefusedReason::Closed, returned: work });
        };
        let max = end.capabilities.max_posted;
        let checked = match end.phase {
            Phase::Open if end.fin == Fin::No => check(&work, end),
            _ => Err(RefusedReason::Closed),
        };
        let room = if end.outstanding.saturating_add(slots) > max {
            Err(RefusedReason::Limit { what: "work", max })
        } else {
            Ok(())
        };
        if let Err(reason) = checked.and(room) {
            return Err(Refused { reason, returned: work });
        }
        end.outstanding += slots;
        let work = into(work);
        end.given += u64::from(matches!(work, Work::Read(_)));
        end.posted.push_back(work);
        Ok(())
    }
}

fn at_most(what: &'static str, value: usize, max: usize) -> Result<(), RefusedReason> {
    if value > max { Err(RefusedReason::Limit { what, max }) } else { Ok(()) }
}

fn check_message(octets: &[bytes::Bytes], capabilities: &Capabilities) -> Result<(), RefusedReason> {
    at_most("slices of a message", octets.len(), capabilities.max_gather)?;
    at_most("bytes of a message", total(octets), capabilities.max_message_bytes)
}

impl QueuePair for SimQueuePair {
    fn info(&self) -> &ConnectionInfo {
        &self.info
    }

    fn capabilities(&self) -> &Capabilities {
        &self.config.capabilities
    }

    fn post_receive(&mut self, buffer: Buffer) -> Result<(), Refused<Buffer>> {
        let mut state = self.state();
        let refused = |reason, returned| Err(Refused { reason, returned });
        let Some(end) = state.endpoints.get_mut(&self.id) else { return refused(RefusedReason::Closed, buffer) };
        let max = end.capabilities.max_receives;
        match end.phase {
            Phase::Open if end.shared.is_some() => {
                refused(RefusedReason::Unsupported("a receive beside those of a pool"), buffer)
            }
            Phase::Open if end.receives.len() >= max => refused(RefusedReason::Limit { what: "receives", max }, buffer),
            Phase::Open => {
                end.given += 1;
                end.receives.push_back(buffer);
                Ok(())
            }
            Phase::Ending(_) | Phase::Due(_) => {
                end.given += 1;
                let (token, kind, error) = (Token::default(), WorkKind::Receive, WorkError::Flushed);
                state.complete(self.id, Completion::Failed { token, kind, error, buffer: Some(buffer) });
                Ok(())
            }
            Phase::Over => refused(RefusedReason::Closed, buffer),
        }
    }

    fn posted_receives(&self) -> usize {
        self.state().endpoints.get(&self.id).map_or(0, |end| end.receives.len())
    }

    fn post_send(&mut self, send: SendWork) -> Result<(), Refused<SendWork>> {
        let check = |send: &SendWork, end: &Endpoint| {
            if send.invalidate.is_some() && !end.capabilities.send_with_invalidate {
                return Err(RefusedReason::Unsupported("Send with Invalidate"));
            }
            check_message(&send.octets, &end.capabilities)
        };
        self.post(send, 1, check, Work::Send)
    }

    fn post_write(&mut self, write: WriteWork) -> Result<(), Refused<WriteWork>> {
        self.post(write, 1, |write, end| check_message(&write.octets, &end.capabilities), Work::Write)
    }

    fn post_read(&mut self, read: ReadWork) -> Result<(), Refused<ReadWork>> {
        let check = |read: &ReadWork, end: &Endpoint| {
            if end.info.ord == 0 {
                return Err(RefusedReason::Unsupported("RDMA Read"));
            }
            if read.sources.is_empty() {
                return Err(RefusedReason::Empty);
            }
            let max = end.capabilities.max_message_bytes;
            read.sources.iter().try_for_each(|s| at_most("bytes of a Read segment", s.length as usize, max))?;
            at_most("bytes of a Read", segments_total(&read.sources), read.sink.capacity())
        };
        let slots = read.sources.len();
        self.post(read, slots, check, Work::Read)
    }

    fn expose(&mut self, token: Token, memory: Lent) -> Result<RemoteSegment, Refused<Lent>> {
        let mut state = self.state();
        let state = &mut *state;
        let octets = memory.octets();
        let checked = match state.endpoints.get(&self.id) {
            Some(end) if end.is_open() && end.fin == Fin::No => {
                let capabilities = &end.capabilities;
                at_most("exposures", end.exposures.len() + 1, capabilities.max_exposures)
                    .and(at_most("bytes of an exposure", octets, capabilities.max_exposure_bytes))
                    .and(if octets == 0 { Err(RefusedReason::Empty) } else { Ok(()) })
                    .and(u32::try_from(octets).map_err(|_| {
                        let max = capabilities.max_exposure_bytes;
                        RefusedReason::Limit { what: "bytes of an exposure", max }
                    }))
            }
            _ => Err(RefusedReason::Closed),
        };
        let (Ok(length), Some(end)) = (checked, state.endpoints.get_mut(&self.id)) else {
            let reason = checked.err().unwrap_or(RefusedReason::Closed);
            return Err(Refused { reason, returned: memory });
        };
        // A handle is never reused while its exposure lives, and later only if the same 32 random bits are drawn again.
        let handle = std::iter::repeat_with(|| state.random.next_u32())
            .find(|handle| !end.exposures.contains_key(handle))
            .unwrap_or_default();
        // The offset looks like an address, so that no code can assume small offsets, and it is far from the end of 64
        // bits.
        let offset = state.random.next_u64() >> 2;
        end.given += 1;
        end.exposures.insert(handle, Exposure { token, memory, base: offset, ending: false });
        state.record(Event::Exposed { connection: self.id / 2, side: side(self.id), token, handle, octets });
        Ok(RemoteSegment { handle, length, offset })
    }

    fn invalidate(&mut self, handle: u32) {
        let id = self.id;
        let mut state = self.state();
        let Some(exposure) = state.open_end(id).and_then(|end| end.exposures.get_mut(&handle)) else { return };
        if std::mem::replace(&mut exposure.ending, true) {
            return;
        }
        // Until then the peer can still reach it, and may end it first.
        state.locally(id, Channel::Local, move |state| {
            let Some(end) = state.open_end(id) else { return };
            if end.exposures.get(&handle).is_none_or(|exposure| !exposure.ending) {
                return;
            }
            if let Some(Exposure { token, memory, .. }) = end.exposures.remove(&handle) {
                state.complete(id, Completion::Fenced { token, handle, memory, cause: FenceCause::Local });
            }
        });
    }

    fn disconnect(&mut self) {
        let mut state = self.state();
        if let Some(end) = state.endpoints.get_mut(&self.id).filter(|end| end.is_open() && end.fin == Fin::No) {
            end.fin = Fin::Wanted;
        }
    }

    fn has_completion(&self) -> bool {
        self.state().endpoints.get(&self.id).is_some_and(|end| !end.completions.is_empty())
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Completion> {
        let mut state = self.state();
        state.kick(self.id);
        let seed = state.seed;
        let Some(end) = state.endpoints.get_mut(&self.id) else { return Poll::Pending };
        if let Some(completion) = end.completions.pop_front() {
            return Poll::Ready(completion);
        }
        if let Phase::Due(reason) = &end.phase {
            let reason = reason.clone();
            end.assert_settled(self.id, seed);
            end.phase = Phase::Over;
            end.waker = None;
            return Poll::Ready(Completion::Closed { reason });
        }
        end.waker = Some(cx.waker().clone());
        Poll::Pending
    }
}

impl Drop for SimQueuePair {
    fn drop(&mut self) {
        self.state().abandon(self.id);
    }
}
