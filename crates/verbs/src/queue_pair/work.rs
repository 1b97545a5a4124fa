//! Posting work, and handling its completions.
//!
//! The device reports signaled work, RDMA Reads, invalidations, each Send, and the last piece of work that is posted
//! together. On soft-iWARP each Write is signaled as well: the device does not copy unsignaled Writes, and would
//! retransmit what their memory contains by then. The report of one piece of work means that the unsignaled ones before
//! it are done. After an error the device should report all remaining work; pieces that it does not report come back
//! when the queue pair is destroyed.

use super::{Kept, Phase, VerbsQueuePair};
use crate::{
    answer::check,
    completions::RECEIVE,
    domain::{Key, Region},
    status::Meaning,
    sys::verbs,
};
use bytes::Bytes;
use rpcrdma_env::{Allocator, Buffer};
use rpcrdma_fabric::{
    CloseReason, Completion, FenceCause, ReadWork, Refused, RefusedReason, RemoteSegment, SendWork, WorkError,
    WorkKind, WriteWork,
};
use smallvec::SmallVec;
use std::{ffi::c_int, io, ptr};

/// Slices of at most so many bytes that lie outside of the pool are copied: that costs less than a registration.
const COPY_BYTES: usize = 4096;
/// The most requests in one list.
const LIST: usize = 16;
/// Most lists are short: so many requests need no memory.
const FEW: usize = 4;
/// At least one of so many pieces of work is signaled, and at least one in each half of the send queue.
const REPORT_EVERY: usize = 16;

/// Work that waits for the device, or that the device has.
pub(super) enum Work {
    Send(SendWork),
    Write(WriteWork),
    Read(ReadPart),
    /// Binds the window of an exposure.
    Bind(u32),
    /// Ends an exposure by a window.
    Invalidate(u32),
    /// A Write without data, which asks for a sign of life.
    Probe,
}

/// One segment of a Read.
pub(super) struct ReadPart {
    read: u64,
    /// Its offset in the sink.
    at: usize,
    source: RemoteSegment,
}

/// A Read whose parts are not all done.
pub(super) struct Reading {
    pub(super) read: ReadWork,
    parts: usize,
    pub(super) error: Option<WorkError>,
    /// The sink's registration, if it does not lie in the pool.
    region: Kept,
    key: Key,
}

/// Work that the device has, and the memory that the device reads for it.
pub(super) struct Posted {
    number: u64,
    signaled: bool,
    pub(super) work: Work,
    _copied: Option<Buffer>,
    _regions: SmallVec<[Region; 1]>,
}

impl Reading {
    /// The Read, when the device is done with it.
    pub(super) fn take(self) -> ReadWork {
        drop(self.region);
        self.read
    }
}

/// The slices of a message in the device's form.
#[derive(Default)]
struct Gathered {
    slices: SmallVec<[verbs::Slice; 4]>,
    copied: Option<Buffer>,
    regions: SmallVec<[Region; 1]>,
}

/// Work that is ready for the device, and the memory to which its request points.
struct Prepared {
    request: verbs::SendWork,
    gathered: Gathered,
    signaled: bool,
    work: Work,
}

/// An otherwise empty work request.
fn request(number: u64, opcode: c_int) -> verbs::SendWork {
    // SAFETY: numbers and pointers, for which zero is a value.
    let mut request: verbs::SendWork = unsafe { std::mem::zeroed() };
    request.wr_id = number;
    request.opcode = opcode;
    request
}

impl VerbsQueuePair {
    pub(super) fn queue_read(&mut self, mut read: ReadWork) -> Result<(), Refused<ReadWork>> {
        let octets = read.sink.bytes_mut();
        let (address, octets) = (octets.as_mut_ptr() as usize, octets.len());
        // SAFETY: the sink goes into the table of Reads, beside the region, and nothing touches it there.
        let (key, region) = match unsafe { self.domain.key(address, octets, verbs::ACCESS_LOCAL_WRITE) } {
            Ok(found) => found,
            Err(_) => return Err(Refused { reason: RefusedReason::Registration, returned: read }),
        };
        let name = self.number();
        let mut at = 0;
        let mut parts = 0;
        for source in read.sources.iter().filter(|source| source.length > 0) {
            self.reads_waiting.push_back(ReadPart { read: name, at, source: *source });
            at += source.length as usize;
            parts += 1;
        }
        self.reads.insert(name, Reading { read, parts, error: None, region, key });
        Ok(())
    }

    /// Gives the device the waiting work, as far as it has room: in lists, each of which costs one write to its
    /// doorbell.
    pub(super) fn post_waiting(&mut self) {
        while matches!(self.phase, Phase::Open | Phase::Draining(_)) && self.reason.is_none() {
            let mut list = SmallVec::new();
            while list.len() < LIST && self.posted.len() + list.len() < self.shared.limits.send_queue {
                let may_read = self.reads_posted < usize::from(self.info.ord);
                let part = if may_read { self.reads_waiting.pop_front() } else { None };
                let Some(work) = part.map(Work::Read).or_else(|| self.waiting.pop_front()) else { break };
                match self.prepare(work) {
                    Ok(prepared) => list.push(prepared),
                    Err((work, error)) => {
                        // The work comes back with the connection's end.
                        self.waiting.push_front(work);
                        self.end(CloseReason::Broken(error.to_string()));
                        break;
                    }
                }
            }
            if list.is_empty() {
                break;
            }
            self.post(list);
        }
    }

    /// Makes one piece of work ready for the device.
    fn prepare(&mut self, work: Work) -> Result<Prepared, (Work, io::Error)> {
        let number = self.number();
        let last = self.waiting.is_empty();
        let few = REPORT_EVERY.min(self.shared.limits.send_queue / 2);
        let mut signaled = last || self.unreported + 1 >= few;
        let mut request = request(number, verbs::OP_SEND);
        let mut gathered = Gathered::default();
        let prepared = match &work {
            Work::Send(send) => {
                signaled = true;
                if let Some(handle) = send.invalidate {
                    request.opcode = verbs::OP_SEND_INVALIDATE;
                    request.invalidate_rkey = handle;
                }
                if send.solicited {
                    request.send_flags |= verbs::SEND_SOLICITED;
                }
                self.gather(&send.octets).map(|octets| gathered = octets)
            }
            Work::Write(write) => {
                signaled |= write.signaled || self.shared.limits.quirks.sends_again_from_memory;
                request.opcode = verbs::OP_WRITE;
                (request.remote_addr, request.rkey) = (write.offset, write.handle);
                self.gather(&write.octets).map(|octets| gathered = octets)
            }
            Work::Read(part) => {
                signaled = true;
                request.opcode = verbs::OP_READ;
                (request.remote_addr, request.rkey) = (part.source.offset, part.source.handle);
                match self.reads.get_mut(&part.read) {
                    Some(reading) => {
                        let address = reading.read.sink.bytes_mut().as_mut_ptr() as u64 + part.at as u64;
                        let (length, lkey) = (part.source.length, reading.key.local);
                        gathered.slices.push(verbs::Slice { addr: address, length, lkey });
                        self.reads_posted += 1;
                        Ok(())
                    }
                    // Cannot happen: a Read stays in the table until all its parts are done.
                    None => Err(io::ErrorKind::NotFound.into()),
                }
            }
            Work::Bind(handle) => self.prepare_bind(*handle, &mut request),
            Work::Invalidate(handle) => {
                signaled = true;
                request.opcode = verbs::OP_LOCAL_INVALIDATE;
                request.invalidate_rkey = *handle;
                Ok(())
            }
            Work::Probe => {
                signaled = true;
                request.opcode = verbs::OP_WRITE;
                Ok(())
            }
        };
        if let Err(error) = prepared {
            return Err((work, error));
        }
        if signaled {
            request.send_flags |= verbs::SEND_SIGNALED;
        }
        self.unreported = if signaled { 0 } else { self.unreported + 1 };
        Ok(Prepared { request, gathered, signaled, work })
    }

    /// Gives the device a list of work. If it does not accept all of it, the connection ends, and until then keeps the
    /// memory of the whole list.
    fn post(&mut self, mut list: SmallVec<[Prepared; FEW]>) {
        let mut first = ptr::null_mut();
        for Prepared { request, gathered, .. } in list.iter_mut().rev() {
            request.sg_list = gathered.slices.as_mut_ptr();
            request.num_sge = gathered.slices.len().try_into().unwrap_or(c_int::MAX);
            request.next = first;
            first = request;
        }
        let mut bad = ptr::null_mut();
        let answer = match (self.shared.context.ops().post_send, self.id()) {
            // SAFETY: the queue pair exists as long as its identifier, and copies the requests, which stay in place
            // with their slices until the call returns. The memory that they name belongs to an entry of `posted`,
            // added below, to a Read in the table, or to an exposure; all of these stay until the device is done with
            // the work or the queue pair is destroyed.
            (Some(post), Some(id)) => check(unsafe { post(id.queue_pair(), first, &mut bad) }),
            _ => Err(io::ErrorKind::NotConnected.into()),
        };
        for Prepared { request, gathered, signaled, work } in list {
            if let Work::Bind(handle) = &work {
                self.bound(*handle);
            }
            let Gathered { copied, regions, .. } = gathered;
            self.posted.push_back(Posted { number: request.wr_id, signaled, work, _copied: copied, _regions: regions });
        }
        if let Err(error) = answer {
            self.end(CloseReason::Broken(error.to_string()));
        }
    }

    /// The slices of a message in the device's form. Small slices outside of the pool are copied into it.
    fn gather(&self, octets: &[Bytes]) -> io::Result<Gathered> {
        let mut gathered = Gathered::default();
        let outside = |slice: &&Bytes| {
            let little = (1..=COPY_BYTES).contains(&slice.len());
            little && self.domain.slab_key(slice.as_ptr() as usize, slice.len()).is_none()
        };
        let little: usize = octets.iter().filter(outside).map(Bytes::len).sum();
        let mut copy = None;
        if little > 0 {
            let mut buffer = self.shared.slab_pool().try_allocate(little);
            let space = buffer.as_mut().map(|buffer| buffer.bytes_mut().as_mut_ptr() as usize);
            // If the pool has no room, each is registered, like long ones.
            if let Some(Ok(key)) = space.and_then(|space| self.domain.slab_key(space, little)) {
                copy = buffer.map(|buffer| (buffer, key, 0));
            }
        }
        for slice in octets.iter().filter(|slice| !slice.is_empty()) {
            let length = u32::try_from(slice.len()).unwrap_or(u32::MAX);
            let (address, lkey) = match &mut copy {
                Some((buffer, key, used)) if outside(&slice) => {
                    let to = &mut buffer.bytes_mut()[*used..*used + slice.len()];
                    to.copy_from_slice(slice);
                    *used += slice.len();
                    (to.as_ptr() as u64, key.local)
                }
                _ => {
                    // SAFETY: the slice is shared and immutable, the device only reads it, and the work keeps it.
                    let (key, region) = unsafe { self.domain.key(slice.as_ptr() as usize, slice.len(), 0) }?;
                    gathered.regions.extend(region);
                    (slice.as_ptr() as u64, key.local)
                }
            };
            gathered.slices.push(verbs::Slice { addr: address, length, lkey });
        }
        gathered.copied = copy.map(|(buffer, ..)| buffer);
        Ok(gathered)
    }

    /// Takes completions from the device. Returns whether there were any.
    pub(super) fn take_completions(&mut self) -> bool {
        let Some(hardware) = &self.hardware else { return false };
        let mut taken = std::mem::take(&mut self.taken);
        if let Err(error) = hardware.completions.take(&mut taken) {
            self.end(CloseReason::Broken(error.to_string()));
        }
        for completion in &taken {
            if ![verbs::STATUS_SUCCESS, verbs::STATUS_FLUSHED].contains(&completion.status) {
                let verbs::WorkCompletion { status, vendor_err, .. } = *completion;
                tracing::debug!(peer = %self.info.peer, status, vendor_err, "the device reports an error");
            }
            if completion.wr_id & RECEIVE != 0 {
                self.received(completion);
            } else {
                self.worked(completion.wr_id, completion.status);
            }
        }
        let any = !taken.is_empty();
        self.heard |= any;
        if any {
            self.spin.heard(&*self.shared.env.clock);
        }
        self.taken = taken;
        any
    }

    /// The device is done with a piece of work, and with the unsignaled work posted before it.
    fn worked(&mut self, number: u64, status: c_int) {
        let mut at = 0;
        while let Some(posted) = self.posted.get(at).filter(|posted| posted.number <= number) {
            let own = posted.number == number;
            if !own && posted.signaled {
                // Its own report is still to come: soft-iWARP reports a Send before a Read that was posted earlier. If
                // the report never comes, the connection's end hands the work back.
                at += 1;
                continue;
            }
            let Some(posted) = self.posted.remove(at) else { break };
            self.done(posted.work, if own { status } else { verbs::STATUS_SUCCESS });
        }
    }

    /// Reports a piece of work as completed or failed.
    pub(super) fn done(&mut self, work: Work, status: c_int) {
        let error = (status != verbs::STATUS_SUCCESS).then(|| Meaning::of(status).error());
        if error.is_some() {
            self.failed(status);
        }
        let report = |token, kind, signaled: bool| match error.clone() {
            Some(error) => Some(Completion::Failed { token, kind, error, buffer: None }),
            None => signaled.then_some(Completion::Done { token, kind }),
        };
        match work {
            Work::Send(send) => self.out.extend(report(send.token, WorkKind::Send, send.signaled)),
            Work::Write(write) => self.out.extend(report(write.token, WorkKind::Write, write.signaled)),
            Work::Read(part) => self.read_part(&part, error),
            // A failed bind has broken the connection, and the exposure comes back with its end.
            Work::Bind(_) | Work::Probe => {}
            Work::Invalidate(handle) => {
                if error.is_none() {
                    self.fenced(handle, FenceCause::Local);
                }
            }
        }
    }

    fn read_part(&mut self, part: &ReadPart, error: Option<WorkError>) {
        self.reads_posted = self.reads_posted.saturating_sub(1);
        let Some(reading) = self.reads.get_mut(&part.read) else { return };
        if error.is_some() {
            // The sink comes back with the connection's end: other parts may be under way.
            reading.error = reading.error.take().or(error);
            return;
        }
        reading.parts -= 1;
        if reading.parts > 0 {
            return;
        }
        if let Some(reading) = self.reads.remove(&part.read) {
            let ReadWork { token, mut sink, sources } = reading.take();
            sink.set_len(sources.iter().map(|source| source.length as usize).sum());
            self.out.push_back(Completion::Read { token, sink });
        }
    }

    /// Our own work has failed.
    fn failed(&mut self, status: c_int) {
        if status == verbs::STATUS_FLUSHED {
            return self.suspect();
        }
        self.end(Meaning::of(status).of_work());
    }

    /// Work was flushed, and the reason is not known.
    pub(super) fn suspect(&mut self) {
        if matches!(self.phase, Phase::Open | Phase::Draining(_)) {
            self.phase = Phase::Suspect(self.shared.env.clock.now() + crate::config::SUSPICION);
        }
    }
}
