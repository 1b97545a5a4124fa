//! What DDP and RDMAP do with each segment that arrives: where its payload may go, and what happens when it is in
//! place.
//!
//! This module owns the memory for arriving octets: receives, exposed memory, sinks of our Reads. It judges a segment
//! by its header before the first octet of payload is placed; all further steps wait until the CRC is checked. The
//! first fault ends the connection, and nothing is placed after it.

use super::{
    ddp::{FIRST_MSN, Header, Placement, QUEUE_READ_REQUEST, QUEUE_SEND, QUEUE_TERMINATE},
    fault::Fault,
    rdmap::{Opcode, READ_REQUEST_OCTETS, ReadRequest},
    reads::Reads,
    receive_queue::ReceiveQueue,
    stags::{Denied, Stags},
    terminate,
    writes::Refused,
};
use bytes::Bytes;
use rpcrdma_env::Scratch;
use rpcrdma_fabric::{Access, Buffer, Completion, FenceCause, Lent};
use std::collections::VecDeque;

/// A Send of at most so many octets, which arrives whole, is put beside its receive: a small call or reply.
pub(crate) const HELD_OCTETS: usize = 512;

/// Where a segment's payload goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// Nowhere: the segment has no octets, or none that matter.
    Nowhere,
    /// The small buffer for requests and Terminates.
    Control,
    /// The receive for the Send that is arriving.
    Receive,
    /// The sink of the Read that is due.
    Sink,
    /// The exposed memory of this tag.
    Exposed(u32),
}

/// A Read of the peer that we are to answer.
#[derive(Debug)]
pub(crate) struct Served {
    pub(crate) sink_stag: u32,
    pub(crate) sink_offset: u64,
    pub(crate) octets: Bytes,
}

/// A Send of which some segments have arrived.
struct Arriving {
    buffer: Buffer,
    opcode: Opcode,
    octets: usize,
}

/// The peer's Terminate.
#[derive(Debug)]
pub(crate) struct Told {
    pub(crate) reading: Option<terminate::Reading>,
    /// The sink in our Read Request that the Terminate quotes.
    pub(crate) blamed: Option<u32>,
    /// The destination of the segment of our Write that the Terminate quotes.
    pub(crate) refused: Option<Refused>,
}

pub(crate) struct Inbound {
    pub(crate) stags: Stags,
    pub(crate) receives: ReceiveQueue,
    pub(crate) reads: Reads,
    pub(crate) served: VecDeque<Served>,
    pub(crate) events: VecDeque<Completion>,
    pub(crate) told: Option<Told>,
    /// Whether a whole and valid FPDU has arrived.
    pub(crate) heard: bool,
    arriving: Option<Arriving>,
    control: [u8; terminate::MAX_OCTETS],
    /// Memory for short Sends.
    scratch: Scratch,
    send_msn: u32,
    read_msn: u32,
    ird: usize,
    ready_by_send: bool,
    ready_by_read: bool,
}

impl Inbound {
    pub(crate) fn new(stags: Stags, receives: ReceiveQueue, agreed: &super::negotiation::Agreed) -> Self {
        Inbound {
            stags,
            receives,
            reads: Reads::new(agreed.ord),
            served: VecDeque::new(),
            events: VecDeque::new(),
            told: None,
            heard: false,
            arriving: None,
            control: [0; terminate::MAX_OCTETS],
            scratch: Scratch::default(),
            send_msn: FIRST_MSN,
            read_msn: FIRST_MSN,
            ird: agreed.ird.into(),
            ready_by_send: agreed.ready_by_send,
            ready_by_read: agreed.ready_by_read,
        }
    }

    /// Judges a segment with `octets` of payload: the memory into which they go, and the offset there.
    pub(crate) fn begin(&mut self, header: &Header, octets: usize) -> Result<(Target, usize), Fault> {
        match (header.opcode, header.placement) {
            (Opcode::Write, Placement::Tagged { stag, offset }) => self.begin_write(stag, offset, octets),
            (_, Placement::Tagged { stag, offset }) => {
                self.reads.check(stag, offset, octets, header.last).map(|at| (Target::Sink, at))
            }
            (opcode, Placement::Untagged { queue, msn, offset, .. }) => {
                let expected_queue = match opcode {
                    Opcode::ReadRequest => QUEUE_READ_REQUEST,
                    Opcode::Terminate => QUEUE_TERMINATE,
                    _ => QUEUE_SEND,
                };
                if queue > QUEUE_TERMINATE {
                    return Err(Fault::Queue { queue });
                }
                // RDMAP-5040-7.2-a
                if queue != expected_queue {
                    return Err(Fault::Opcode { opcode: opcode as u8 });
                }
                match opcode {
                    Opcode::ReadRequest => self.begin_read_request(msn, offset, octets, header.last),
                    Opcode::Terminate => self.begin_terminate(msn, offset, octets),
                    _ => self.begin_send(header, msn, offset, octets),
                }
            }
        }
    }

    fn begin_write(&mut self, stag: u32, offset: u64, octets: usize) -> Result<(Target, usize), Fault> {
        // RFC 5041 section 7.1: a segment without octets needs no check.
        if octets == 0 {
            return Ok((Target::Nowhere, 0));
        }
        // DDP-5041-7.1-b
        let at = self.stags.check(stag, offset, octets, Access::Write).map_err(|denied| match denied {
            Denied::Unknown => Fault::Stag { stag },
            Denied::Access => Fault::WriteAccess { stag },
            Denied::Bounds => Fault::Bounds { stag, offset, octets },
            Denied::Wrap => Fault::OffsetWrap { offset, octets },
        })?;
        if let Some(exposure) = self.stags.get_mut(stag) {
            exposure.touched = exposure.touched.max(at + octets);
        }
        Ok((Target::Exposed(stag), at))
    }

    // V2-3.2.2.2-a, V1-2.3.2-b
    fn begin_send(&mut self, header: &Header, msn: u32, offset: u32, octets: usize) -> Result<(Target, usize), Fault> {
        // DDP-5041-7.1-c
        if msn != self.send_msn {
            return Err(Fault::Msn { queue: QUEUE_SEND, msn, expected: self.send_msn });
        }
        if self.ready_by_send && !self.heard && header.last && octets == 0 {
            return Ok((Target::Nowhere, 0));
        }
        if self.arriving.is_none() {
            if offset != 0 {
                return Err(Fault::MessageOffset { offset, expected: 0 });
            }
            let buffer = self.receives.take().ok_or(Fault::NoBuffer { queue: QUEUE_SEND, msn })?;
            self.arriving = Some(Arriving { buffer, opcode: header.opcode, octets: 0 });
        }
        let arriving = self.arriving.as_ref().ok_or(Fault::NoBuffer { queue: QUEUE_SEND, msn })?;
        if header.opcode != arriving.opcode {
            return Err(Fault::Opcode { opcode: header.opcode as u8 });
        }
        // DDP-5041-7.1-c
        if offset as usize != arriving.octets {
            return Err(Fault::MessageOffset { offset, expected: arriving.octets });
        }
        let (end, max) = (arriving.octets.saturating_add(octets), arriving.buffer.capacity());
        // DDP-5041-7.1-c
        if end > max {
            return Err(Fault::TooLong { octets: end, max });
        }
        Ok((Target::Receive, arriving.octets))
    }

    fn begin_read_request(
        &mut self,
        msn: u32,
        offset: u32,
        octets: usize,
        last: bool,
    ) -> Result<(Target, usize), Fault> {
        // DDP-5041-7.1-c
        if msn != self.read_msn {
            return Err(Fault::Msn { queue: QUEUE_READ_REQUEST, msn, expected: self.read_msn });
        }
        if offset != 0 {
            return Err(Fault::MessageOffset { offset, expected: 0 });
        }
        // RDMAP-5040-4.4-a
        if octets != READ_REQUEST_OCTETS || !last {
            return Err(Fault::ReadRequestLength { octets });
        }
        let ready = self.ready_by_read && !self.heard;
        // CM-6581-9.1-b
        if self.served.len() >= self.ird && !ready {
            return Err(Fault::NoBuffer { queue: QUEUE_READ_REQUEST, msn });
        }
        Ok((Target::Control, 0))
    }

    fn begin_terminate(&mut self, msn: u32, offset: u32, octets: usize) -> Result<(Target, usize), Fault> {
        if msn != FIRST_MSN {
            return Err(Fault::Msn { queue: QUEUE_TERMINATE, msn, expected: FIRST_MSN });
        }
        if offset != 0 {
            return Err(Fault::MessageOffset { offset, expected: 0 });
        }
        Ok(if octets <= self.control.len() { (Target::Control, 0) } else { (Target::Nowhere, 0) })
    }

    /// The memory of a target. `None` if it was fenced after the segment began.
    pub(crate) fn memory(&mut self, target: Target) -> Option<&mut [u8]> {
        match target {
            Target::Nowhere => None,
            Target::Control => Some(&mut self.control),
            Target::Receive => self.arriving.as_mut().map(|a| a.buffer.bytes_mut()),
            Target::Sink => self.reads.sink().map(Buffer::bytes_mut),
            Target::Exposed(stag) => match &mut self.stags.get_mut(stag)?.memory {
                Lent::Sink(buffer) => Some(buffer.bytes_mut()),
                Lent::Source(_) => None,
            },
        }
    }

    /// Puts the payload of a short Send, which has come whole, beside its receive, in memory that it shares with
    /// others. A receive takes memory of its own at its first write, which costs more than this copy.
    pub(crate) fn hold(&mut self, payload: &[u8]) {
        if let Some(arriving) = &mut self.arriving {
            arriving.buffer.hold(self.scratch.write(payload.len(), |out| out.extend_from_slice(payload)));
        }
    }

    /// How many octets behind `at` hold no data yet, so that guessed octets may land there.
    pub(crate) fn untouched(&self, target: Target, at: usize) -> usize {
        match target {
            Target::Nowhere | Target::Control => 0,
            Target::Receive => self.arriving.as_ref().map_or(0, |a| a.buffer.capacity().saturating_sub(at)),
            Target::Sink => self.reads.due_end().saturating_sub(at),
            Target::Exposed(stag) => self
                .stags
                .get(stag)
                .filter(|exposure| exposure.touched <= at)
                .map_or(0, |exposure| exposure.memory.octets().saturating_sub(at)),
        }
    }

    /// A segment is in place and its CRC is right.
    pub(crate) fn finish(&mut self, header: &Header, octets: usize) -> Result<(), Fault> {
        let first = !std::mem::replace(&mut self.heard, true);
        match (header.opcode, header.placement) {
            (Opcode::Write, _) => {}
            (Opcode::ReadResponse, _) => self.events.extend(self.reads.placed(octets, header.last)),
            (Opcode::ReadRequest, _) => {
                self.read_msn = self.read_msn.wrapping_add(1);
                self.serve()?;
            }
            (Opcode::Terminate, _) => self.terminated(octets),
            (_, Placement::Untagged { invalidate, .. }) => self.sent(header, octets, invalidate, first)?,
            (_, Placement::Tagged { .. }) => {}
        }
        Ok(())
    }

    /// The raw Read Request in the control buffer.
    pub(crate) fn read_request(&self) -> &[u8] {
        self.control.get(..READ_REQUEST_OCTETS).unwrap_or_default()
    }

    fn serve(&mut self) -> Result<(), Fault> {
        let Some(raw) = self.control.first_chunk() else { return Ok(()) };
        let ReadRequest { sink_stag, sink_offset, size, source_stag: stag, source_offset: offset } =
            ReadRequest::decode(raw);
        if sink_offset.checked_add(size.into()).is_none() {
            return Err(Fault::ReadOffsetWrap { offset: sink_offset, octets: size });
        }
        // RDMAP-5040-5.2-b
        let octets = if size == 0 {
            // RFC 5040 section 5.2.1: the source of a Read without octets needs no check.
            Bytes::new()
        } else {
            let at = self.stags.check(stag, offset, size as usize, Access::Read).map_err(|denied| match denied {
                Denied::Unknown => Fault::ReadStag { stag },
                Denied::Access => Fault::ReadAccess { stag },
                Denied::Bounds => Fault::ReadBounds { stag, offset, octets: size },
                Denied::Wrap => Fault::ReadOffsetWrap { offset, octets: size },
            })?;
            match self.stags.get(stag).map(|exposure| &exposure.memory) {
                Some(Lent::Source(octets)) => octets.slice(at..at + size as usize),
                _ => return Err(Fault::ReadStag { stag }),
            }
        };
        // RDMAP-5040-5.2-b
        self.served.push_back(Served { sink_stag, sink_offset, octets });
        Ok(())
    }

    fn sent(&mut self, header: &Header, octets: usize, invalidate: u32, first: bool) -> Result<(), Fault> {
        let Some(arriving) = &mut self.arriving else {
            // Only the Send that means "ready" has no receive.
            debug_assert!(first);
            self.send_msn = self.send_msn.wrapping_add(1);
            return Ok(());
        };
        arriving.octets += octets;
        if !header.last {
            return Ok(());
        }
        let invalidated = if header.opcode.invalidates() {
            let fault = Fault::CannotInvalidate { stag: invalidate };
            // RDMAP-5040-5.3-a
            let exposure = self.stags.remove(invalidate).ok_or(fault)?;
            self.events.push_back(Completion::Fenced {
                token: exposure.token,
                handle: invalidate,
                memory: exposure.memory,
                cause: FenceCause::Remote,
            });
            Some(invalidate)
        } else {
            None
        };
        self.send_msn = self.send_msn.wrapping_add(1);
        if let Some(Arriving { mut buffer, octets, .. }) = self.arriving.take() {
            buffer.set_len(octets);
            self.events.push_back(Completion::Received { buffer, invalidated });
        }
        Ok(())
    }

    fn terminated(&mut self, octets: usize) {
        let payload = self.control.get(..octets).unwrap_or_default();
        self.told = Some(Told {
            reading: terminate::decode(payload),
            blamed: terminate::quoted_sink(payload),
            refused: terminate::quoted_write(payload),
        });
    }

    /// Takes the receive of a Send that has not arrived completely.
    pub(crate) fn take_arriving(&mut self) -> Option<Buffer> {
        self.arriving.take().map(|arriving| arriving.buffer)
    }
}
