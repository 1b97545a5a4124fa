//! Handles what arrives at an end: places bytes, checks handles, and ends the connection if a rule is broken.

use crate::{
    endpoint::{Channel, Endpoint, Failing, Fin, gather, total},
    faults::PROTOCOL,
    state::State,
};
use bytes::Bytes;
use rpcrdma_fabric::{
    Access, CloseReason, Completion, FenceCause, Lent, PeerViolation, RemoteSegment, Token, WorkError, WorkKind,
};

impl State {
    /// Whether a message that arrives at end `id` finds it open. If not, the sender is reset.
    fn finds_open(&mut self, id: u64) -> bool {
        match self.endpoints.get(&id) {
            Some(end) if end.is_open() => !end.severed,
            Some(_) => {
                self.reset_peer(id);
                false
            }
            None => false,
        }
    }

    pub(crate) fn send_arrives(&mut self, id: u64, number: u64, octets: &[Bytes], invalidate: Option<u32>) {
        if !self.finds_open(id) {
            return;
        }
        let Some(end) = self.endpoints.get_mut(&id) else { return };
        let taken = match &end.shared {
            Some(pool) => {
                let buffer = pool.take();
                end.given += u64::from(buffer.is_some());
                buffer
            }
            None => end.receives.pop_front(),
        };
        let Some(mut buffer) = taken else {
            let failing = Failing { number, error: WorkError::NoReceive };
            return self.violation(id, "a Send found no receive".to_owned(), Some(failing));
        };
        let length = total(octets);
        if length > buffer.capacity() {
            let rule = format!("a Send of {length} bytes found a receive of {}", buffer.capacity());
            self.receive_failed(id, WorkError::LocalLength, buffer);
            let failing = Failing { number, error: WorkError::RemoteOperation };
            return self.violation(id, rule, Some(failing));
        }
        if let Some(handle) = invalidate {
            let allowed = end.capabilities.remote_invalidation;
            let exposure = if allowed { end.exposures.remove(&handle) } else { None };
            let Some(exposure) = exposure else {
                self.receive_failed(id, WorkError::Flushed, buffer);
                let failing = Failing { number, error: WorkError::RemoteAccess };
                return self.violation(id, format!("a Send invalidates handle {handle:#010x}"), Some(failing));
            };
            let (token, memory) = (exposure.token, exposure.memory);
            self.complete(id, Completion::Fenced { token, handle, memory, cause: FenceCause::Remote });
        }
        gather(octets, buffer.bytes_mut());
        buffer.set_len(length);
        self.complete(id, Completion::Received { buffer, invalidated: invalidate });
        self.acknowledge(id, number);
    }

    fn receive_failed(&mut self, id: u64, error: WorkError, buffer: rpcrdma_env::Buffer) {
        let token = Token::default();
        self.complete(id, Completion::Failed { token, kind: WorkKind::Receive, error, buffer: Some(buffer) });
    }

    pub(crate) fn write_arrives(&mut self, id: u64, number: u64, octets: &[Bytes], handle: u32, offset: u64) {
        if !self.finds_open(id) {
            return;
        }
        let Some(end) = self.endpoints.get_mut(&id) else { return };
        let length = total(octets);
        // A Write of zero bytes names no memory, whatever its handle is.
        if length > 0 {
            match reach(end, Access::Write, handle, offset, length) {
                Some((Lent::Sink(buffer), at)) => gather(octets, &mut buffer.bytes_mut()[at..at + length]),
                _ => {
                    let rule = format!("a Write of {length} bytes at {offset:#x} of handle {handle:#010x}");
                    let failing = Failing { number, error: WorkError::RemoteAccess };
                    return self.violation(id, rule, Some(failing));
                }
            }
        }
        self.acknowledge(id, number);
    }

    pub(crate) fn read_arrives(&mut self, id: u64, read: u64, at: usize, source: RemoteSegment) {
        if !self.finds_open(id) {
            return;
        }
        let Some(end) = self.endpoints.get_mut(&id) else { return };
        if end.serving >= usize::from(end.info.ird) {
            let rule = format!("more than {} Reads at a time", end.info.ird);
            let failing = Failing { number: read, error: WorkError::RemoteOperation };
            return self.violation(id, rule, Some(failing));
        }
        end.serving += 1;
        // The memory is read when the response leaves, not when the request arrives.
        self.locally(id, Channel::Service, move |state| state.serve(id, read, at, source));
    }

    fn serve(&mut self, id: u64, read: u64, at: usize, source: RemoteSegment) {
        let Some(end) = self.open_end(id) else { return };
        end.serving = end.serving.saturating_sub(1);
        let length = source.length as usize;
        let octets = if length == 0 {
            Bytes::new()
        } else {
            match reach(end, Access::Read, source.handle, source.offset, length) {
                Some((Lent::Source(octets), from)) => octets.slice(from..from + length),
                _ => {
                    let rule =
                        format!("a Read of {length} bytes at {:#x} of handle {:#010x}", source.offset, source.handle);
                    let failing = Failing { number: read, error: WorkError::RemoteAccess };
                    return self.violation(id, rule, Some(failing));
                }
            }
        };
        self.transmit(id, Channel::Responses, length, move |state| {
            state.response_arrives(id ^ 1, read, at, &octets);
        });
    }

    pub(crate) fn fin_arrives(&mut self, id: u64) {
        let Some(end) = self.open_end(id) else { return };
        if end.fin == Fin::Sent {
            return self.end(id, CloseReason::Local, None);
        }
        self.end(id, CloseReason::Remote, None);
        self.transmit(id, Channel::Last, 0, move |state| state.end(id ^ 1, CloseReason::Local, None));
    }

    /// The peer of end `id` has broken a rule: tells the peer, and closes the end.
    fn violation(&mut self, id: u64, rule: String, failing: Option<Failing>) {
        let told = rule.clone();
        self.transmit(id, Channel::Last, 0, move |state| state.terminate_arrives(id ^ 1, &told, failing.as_ref()));
        self.end(id, CloseReason::Violation(PeerViolation { protocol: PROTOCOL, rule }), None);
    }
}

/// The lent memory that the peer may access with this handle and offset, and the position in it.
fn reach(end: &mut Endpoint, access: Access, handle: u32, offset: u64, length: usize) -> Option<(&mut Lent, usize)> {
    let exposure = end.exposures.get_mut(&handle)?;
    let at = usize::try_from(offset.checked_sub(exposure.base)?).ok()?;
    let past = at.checked_add(length)?;
    (exposure.memory.access() == access && past <= exposure.memory.octets()).then_some((&mut exposure.memory, at))
}
