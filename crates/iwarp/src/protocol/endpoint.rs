//! One end of a connection, without input and output.
//!
//! Families of methods: *work* ([`post_send`](Endpoint::post_send) and its like, [`expose`](Endpoint::expose),
//! [`disconnect`](Endpoint::disconnect)), *octets* ([`read_slices`](Endpoint::read_slices) then
//! [`read`](Endpoint::read); [`write_slices`](Endpoint::write_slices) then [`written`](Endpoint::written)), *events of
//! the socket* ([`peer_closed`](Endpoint::peer_closed), [`broken`](Endpoint::broken), [`time_up`](Endpoint::time_up)),
//! and [`next_completion`](Endpoint::next_completion). A driver writes, reads and hands completions out until none of
//! the three has anything left; when [`wants_fin`](Endpoint::wants_fin) returns true it closes its half of the
//! connection.
//!
//! It owns everything that is posted or lent, and gives all of it back before [`Completion::Closed`].

use super::{
    fault::Fault,
    fpdu::Segmentation,
    framed::WriteSlices,
    inbound::Inbound,
    lifecycle::{Event, Phase},
    negotiation::Agreed,
    receive_queue::ReceiveQueue,
    rx::{ReadSlices, Receiver},
    stags::Stags,
    terminate,
    tx::Transmitter,
    writes::Refused as RefusedSegment,
};
use rpcrdma_env::Random;
use rpcrdma_fabric::{
    Buffer, Capabilities, CloseReason, Completion, FenceCause, Lent, ReadWork, Refused, RefusedReason, RemoteSegment,
    SendWork, Token, WorkError, WorkKind, WriteWork,
};
use std::sync::Arc;

/// Which end asked for the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// We asked, and send first.
    Initiator,
    /// The peer asked: we send nothing before its first FPDU has come (RFC 5044 section 7.1.2).
    Responder,
}

/// What a connection starts with.
pub struct Setup {
    /// Which end asked for it.
    pub role: Role,
    /// What the set-up agreed on.
    pub agreed: Agreed,
    /// How large FPDUs are.
    pub segmentation: Segmentation,
    /// The posted receives.
    pub receives: ReceiveQueue,
    /// The limits.
    pub capabilities: Arc<Capabilities>,
}

/// One end of a connection.
pub struct Endpoint {
    phase: Phase,
    role: Role,
    /// A responder holds its work until the peer's first FPDU.
    held: bool,
    fin_sent: bool,
    closed_said: bool,
    tx: Transmitter,
    rx: Receiver,
    inbound: Inbound,
    capabilities: Arc<Capabilities>,
    ord: u16,
}

impl Endpoint {
    /// An open connection. `random` decides its steering tags.
    pub fn new(setup: Setup, random: &dyn Random) -> Self {
        let Setup { role, agreed, segmentation, receives, capabilities } = setup;
        Endpoint {
            phase: Phase::Open,
            role,
            // MPA-5044-7.1-g
            held: role == Role::Responder,
            fin_sent: false,
            closed_said: false,
            tx: Transmitter::new(agreed.crc, segmentation),
            rx: Receiver::new(agreed.crc),
            inbound: Inbound::new(Stags::new(random), receives, &agreed),
            capabilities,
            ord: agreed.ord,
        }
    }

    /// Which end this is.
    pub fn role(&self) -> Role {
        self.role
    }

    /// The connection's phase.
    pub fn phase(&self) -> &Phase {
        &self.phase
    }

    /// Posts a receive; see [`QueuePair::post_receive`](rpcrdma_fabric::QueuePair::post_receive).
    ///
    /// # Errors
    /// Too many receives are posted, or [`Completion::Closed`] was returned.
    pub fn post_receive(&mut self, buffer: Buffer) -> Result<(), Refused<Buffer>> {
        if self.closed_said {
            return Err(Refused { reason: RefusedReason::Closed, returned: buffer });
        }
        if !self.phase.is_live() {
            self.inbound.events.push_back(flushed_receive(buffer));
            return Ok(());
        }
        let max = self.capabilities.max_receives;
        if self.inbound.receives.len() >= max {
            let reason = RefusedReason::Limit { what: "the number of posted receives", max };
            return Err(Refused { reason, returned: buffer });
        }
        self.inbound.receives.post(buffer);
        Ok(())
    }

    /// Receives posted and unused.
    pub fn posted_receives(&self) -> usize {
        self.inbound.receives.len()
    }

    fn refusal(&self, parts: usize, octets: u64, more_posted: usize) -> Option<RefusedReason> {
        let limits = &self.capabilities;
        let limit = |what, max| Some(RefusedReason::Limit { what, max });
        if self.phase != Phase::Open {
            Some(RefusedReason::Closed)
        } else if parts > limits.max_gather {
            limit("the number of slices in one message", limits.max_gather)
        } else if octets > limits.max_message_bytes as u64 {
            limit("the number of bytes in one message", limits.max_message_bytes)
        } else if self.tx.posted() + self.inbound.reads.segments() + more_posted > limits.max_posted {
            limit("the number of pieces of posted work", limits.max_posted)
        } else {
            None
        }
    }

    /// Posts a Send.
    ///
    /// # Errors
    /// A limit, or the connection's end.
    pub fn post_send(&mut self, send: SendWork) -> Result<(), Refused<SendWork>> {
        let octets = send.octets.iter().map(|o| o.len() as u64).sum();
        match self.refusal(send.octets.len(), octets, 1) {
            Some(reason) => Err(Refused { reason, returned: send }),
            None => {
                // The peer's Reads, and a peer that is not ready to receive, come first.
                let at_once = !self.held && self.inbound.served.is_empty();
                self.tx.send(send, at_once);
                Ok(())
            }
        }
    }

    /// Posts a Write.
    ///
    /// # Errors
    /// A limit, or the connection's end.
    pub fn post_write(&mut self, write: WriteWork) -> Result<(), Refused<WriteWork>> {
        let octets = write.octets.iter().map(|o| o.len() as u64).sum();
        match self.refusal(write.octets.len(), octets, 1) {
            Some(reason) => Err(Refused { reason, returned: write }),
            None => {
                self.tx.write(write);
                Ok(())
            }
        }
    }

    /// Posts Reads. They follow the Reads that are already posted, as far as the ORD allows.
    ///
    /// # Errors
    /// A limit, a sink that is too small, no octets, an ORD of zero, or the connection's end.
    pub fn post_read(&mut self, read: ReadWork) -> Result<(), Refused<ReadWork>> {
        let total: u64 = read.sources.iter().map(|s| u64::from(s.length)).sum();
        let largest = read.sources.iter().map(|s| u64::from(s.length)).max().unwrap_or(0);
        let segments = read.sources.iter().filter(|s| s.length > 0).count();
        let capacity = read.sink.capacity();
        let reason = if let Some(reason) = self.refusal(0, largest, segments) {
            reason
        } else if self.ord == 0 {
            RefusedReason::Unsupported("RDMA Read (the peer serves none)")
        } else if total == 0 {
            RefusedReason::Empty
        } else if total > capacity as u64 {
            RefusedReason::Limit { what: "the number of bytes in this Read (by the size of its sink)", max: capacity }
        } else {
            self.inbound.reads.post(read, total as usize);
            self.issue_reads();
            return Ok(());
        };
        Err(Refused { reason, returned: read })
    }

    fn issue_reads(&mut self) {
        let Inbound { reads, stags, .. } = &mut self.inbound;
        while let Some(request) = reads.issue(|| stags.fresh_tag()) {
            self.tx.read_request(request);
        }
    }

    /// Lends memory to the peer. Offsets in it count from zero.
    ///
    /// # Errors
    /// A limit, no octets, or the connection's end.
    pub fn expose(&mut self, token: Token, memory: Lent) -> Result<RemoteSegment, Refused<Lent>> {
        let limits = &self.capabilities;
        let octets = memory.octets();
        let reason = if self.phase != Phase::Open {
            RefusedReason::Closed
        } else if octets == 0 {
            RefusedReason::Empty
        } else if octets > limits.max_exposure_bytes {
            RefusedReason::Limit { what: "the number of bytes in one exposure", max: limits.max_exposure_bytes }
        } else if self.inbound.stags.len() >= limits.max_exposures {
            RefusedReason::Limit { what: "the number of exposures", max: limits.max_exposures }
        } else if let Ok(length) = u32::try_from(octets) {
            return Ok(RemoteSegment { handle: self.inbound.stags.expose(token, memory), length, offset: 0 });
        } else {
            RefusedReason::Limit { what: "the number of bytes in one exposure", max: u32::MAX as usize }
        };
        Err(Refused { reason, returned: memory })
    }

    /// Ends an exposure at once. A Write to it that is arriving, or comes later, ends the connection; a Read of it that
    /// the peer requested before still gets its answer, from bytes that nothing changes.
    pub fn invalidate(&mut self, handle: u32) {
        if let Some(exposure) = self.inbound.stags.remove(handle) {
            self.inbound.events.push_back(Completion::Fenced {
                token: exposure.token,
                handle,
                memory: exposure.memory,
                cause: FenceCause::Local,
            });
        }
    }

    /// Ends the connection after the posted work. If the peer has sent a responder nothing yet, the responder may not
    /// send either: its posted work is flushed.
    pub fn disconnect(&mut self) {
        self.enter(Event::Disconnect);
        self.settle();
    }

    /// Slices to read into, in this order.
    pub fn read_slices(&mut self) -> ReadSlices<'_> {
        self.rx.slices(&mut self.inbound)
    }

    /// Shows the first `octets` octets that the driver has read into the slices.
    pub fn show_read(&mut self, octets: usize, show: impl FnMut(&[u8])) {
        self.rx.show(octets, &mut self.inbound, show);
    }

    /// The driver has read `octets` octets, at least one, into the slices.
    pub fn read(&mut self, octets: usize) {
        if self.phase.is_live() {
            let result = self.rx.received(octets, &mut self.inbound);
            self.after_read(result);
        }
    }

    /// Takes octets that the driver has read into other memory.
    pub fn feed(&mut self, octets: &[u8]) {
        if self.phase.is_live() {
            let result = self.rx.feed(octets, &mut self.inbound);
            self.after_read(result);
        }
    }

    fn after_read(&mut self, result: Result<(), Fault>) {
        self.held &= !self.inbound.heard;
        if let Some(told) = self.inbound.told.take() {
            let (access, text) = match told.reading {
                Some(reading) => (reading.is_access_error(), reading.to_string()),
                None => (false, "a Terminate without content".to_owned()),
            };
            self.give_back(access, told.blamed, told.refused, true);
            self.enter(Event::Terminated(CloseReason::Terminated(text)));
        } else if let Err(fault) = result {
            let payload = terminate::encode(&fault, self.rx.offender(&self.inbound));
            if matches!(fault, Fault::TooLong { .. })
                && let Some(buffer) = self.inbound.take_arriving()
            {
                self.inbound.events.push_back(failed_receive(buffer, WorkError::LocalLength));
            }
            // RDMAP-5040-5.4-a
            self.give_back(false, None, None, false);
            if let Some(payload) = payload {
                self.held = false;
                // RDMAP-5040-5.3-a, RDMAP-5040-4.8-a
                self.tx.terminate(payload);
            }
            self.enter(Event::Violated(CloseReason::Violation(fault.violation())));
        }
        self.settle();
    }

    /// Slices to write, in this order; none if there is nothing to write now.
    pub fn write_slices(&mut self) -> WriteSlices<'_> {
        if self.held {
            return WriteSlices::new();
        }
        self.tx.fill(&mut self.inbound.served);
        self.tx.slices()
    }

    /// Whether the driver has something to write.
    pub fn has_output(&self) -> bool {
        !self.held && (!self.tx.is_empty() || !self.inbound.served.is_empty())
    }

    /// The driver has written the first `octets` octets of the slices.
    pub fn written(&mut self, octets: usize) {
        self.tx.written(octets, &mut self.inbound.events);
        self.settle();
    }

    /// Whether the stream is inside an FPDU of the peer.
    pub fn mid_fpdu(&self) -> bool {
        self.phase.is_live() && !self.rx.at_boundary()
    }

    /// Whether the peer owes bytes: the rest of an FPDU, or the answer to a Read, which the peer's provider sends
    /// without its program. While it owes none, a peer may be silent for as long as it likes.
    pub fn awaits_octets(&self) -> bool {
        self.mid_fpdu() || (self.phase.is_live() && !self.held && self.inbound.reads.any_due())
    }

    /// Whether a [nudge](Self::nudge) makes sense: we have sent the peer something, all of it is written, and the peer
    /// has sent nothing yet.
    pub fn may_nudge(&self) -> bool {
        self.role == Role::Initiator
            && self.phase.is_live()
            && !self.inbound.heard
            && self.tx.has_written()
            && !self.has_output()
    }

    /// Sends an RDMA Write without octets. Its only effect is that the peer looks at its socket.
    pub fn nudge(&mut self) {
        self.tx.nudge();
    }

    /// Whether the driver must close our half of the connection now. Returns true once.
    pub fn wants_fin(&mut self) -> bool {
        matches!(self.phase, Phase::Lingering(_)) && !std::mem::replace(&mut self.fin_sent, true)
    }

    /// The peer has closed its half.
    pub fn peer_closed(&mut self) {
        // RDMAP-5040-6.2-a
        let event = if self.phase.is_live() && !self.rx.at_boundary() {
            Event::Broken(CloseReason::Broken("the peer closed it in the middle of an FPDU".to_owned()))
        } else {
            Event::PeerFin
        };
        self.end(event);
    }

    /// The socket has failed.
    pub fn broken(&mut self, how: String) {
        self.end(Event::Broken(CloseReason::Broken(how)));
    }

    /// For this long the peer has neither accepted what was sent nor sent what it owed.
    pub fn time_up(&mut self, seconds: u64) {
        self.end(Event::TimeUp(CloseReason::Stalled { seconds }));
    }

    /// The next completion.
    pub fn next_completion(&mut self) -> Option<Completion> {
        if let Some(completion) = self.inbound.events.pop_front() {
            return Some(completion);
        }
        match &self.phase {
            Phase::Over(reason) if !self.closed_said => {
                self.closed_said = true;
                Some(Completion::Closed { reason: reason.clone() })
            }
            _ => None,
        }
    }

    /// Completions that have not been handed out yet.
    pub fn completions(&self) -> usize {
        self.inbound.events.len()
    }

    /// Whether [`next_completion`](Self::next_completion) has something.
    pub fn has_completion(&self) -> bool {
        !self.inbound.events.is_empty() || (matches!(self.phase, Phase::Over(_)) && !self.closed_said)
    }

    fn end(&mut self, event: Event) {
        if self.phase.is_live() {
            self.give_back(false, None, None, true);
        }
        self.enter(event);
    }

    fn enter(&mut self, event: Event) {
        let phase = std::mem::replace(&mut self.phase, Phase::Draining);
        self.phase = phase.next(event);
    }

    /// Takes the next step after a change: further requests, or the end.
    fn settle(&mut self) {
        if self.phase.is_live() {
            self.issue_reads();
        }
        let idle = self.tx.is_empty() && self.inbound.served.is_empty() && self.inbound.reads.is_empty();
        match self.phase {
            Phase::Draining if idle || self.held => {
                self.give_back(false, None, None, true);
                self.enter(Event::Drained);
            }
            Phase::Terminating(_) if self.tx.is_empty() => self.enter(Event::Drained),
            _ => {}
        }
    }

    /// Gives back everything that was posted or lent, in a fixed order. With `access_denied` the peer has refused us
    /// its memory: to the Write that had a segment `refused`, or to the Read with the sink `blamed`.
    fn give_back(
        &mut self,
        access_denied: bool,
        blamed: Option<u32>,
        refused: Option<RefusedSegment>,
        framed_too: bool,
    ) {
        let Inbound { events, reads, served, .. } = &mut self.inbound;
        self.tx.flush(framed_too, refused.filter(|_| access_denied), events);
        served.clear();
        reads.flush(blamed.filter(|_| access_denied), events);
        if let Some(buffer) = self.inbound.take_arriving() {
            // Of a pool's receive this connection knows only that it belongs there.
            self.inbound.receives.give_back(buffer);
        }
        let Inbound { events, receives, stags, .. } = &mut self.inbound;
        events.extend(receives.drain().map(flushed_receive));
        events.extend(stags.drain().into_iter().map(|(handle, exposure)| Completion::Fenced {
            token: exposure.token,
            handle,
            memory: exposure.memory,
            cause: FenceCause::Closed,
        }));
    }
}

fn flushed_receive(buffer: Buffer) -> Completion {
    failed_receive(buffer, WorkError::Flushed)
}

fn failed_receive(buffer: Buffer, error: WorkError) -> Completion {
    Completion::Failed { token: Token::default(), kind: WorkKind::Receive, error, buffer: Some(buffer) }
}
