//! The table of our calls, of both versions: from the queue to the fenced reply.
//!
//! Owns shares of the messages that wait or are under way, and the names of the memory exposed for them. A call ends in
//! exactly one of four actions (Complete, Fail, Cancelled, Released), and never before all its exposures have ended.
//! Each version keeps its further data in `X`.
//!
//! | state | means | leaves it when |
//! |---|---|---|
//! | `Queued` | no credit yet | a credit is free, or it is taken back |
//! | `Sent` | the peer may answer | a reply or an error comes |
//! | `Ending` | answered, or never sent | the last exposure has ended |
//! | `Again` | refused unexecuted, to be sent in another way | the last exposure has ended |

use crate::{
    Action, Call, CallError, CallId, ExposeError, ExposureId, Host, ReplyParts, Sink, SinkPlace,
    config::FORGOTTEN_CALL_DEADLINE, plan::CallPlan, returned::Offered, silence::program,
};
use bytes::Bytes;
use foldhash::HashMap;
use rpcrdma_env::{Timestamp, few};
use rpcrdma_wire::chunk::{Lists, ReadList, ReadSegment, Segment, WriteChunk, WriteList};
use rpcrdma_xdr::Payload;
use smallvec::SmallVec;
use std::collections::{VecDeque, hash_map};

/// The party that learns how a call ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    /// The caller waits for the reply.
    Caller,
    /// The caller has gone away and left the memory lent.
    Nobody,
    /// The caller has been away for so long that we take the memory back.
    Expired,
    /// The caller wants its memory back and nothing else.
    Canceller,
    /// The memory was given back; only the XID and the credit are still in use.
    Ghost,
    /// The call is a probe of our own.
    Probe,
}

impl Owner {
    /// Whether the driver still has a name for the call.
    fn may_act(self) -> bool {
        !matches!(self, Owner::Ghost | Owner::Probe)
    }
}

#[derive(Debug)]
pub(crate) enum State {
    Queued,
    Sent,
    Ending(Result<ReplyParts, CallError>),
    Again,
}

#[derive(Debug)]
struct Exposure {
    id: ExposureId,
    handle: u32,
    state: Exposed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Exposed {
    Open,
    Closing,
    Closed,
}

/// The table's data about a call.
#[derive(Debug)]
pub(crate) struct Entry<X> {
    /// The call as the driver passed it. Version 1 empties its message when it is sent; version 2 keeps it.
    pub(crate) call: Call,
    order: u64,
    pub(crate) owner: Owner,
    pub(crate) state: State,
    exposures: SmallVec<[Exposure; 1]>,
    pub(crate) offered: Offered,
    pub(crate) extra: X,
}

impl<X> Entry<X> {
    fn fenced(&self) -> bool {
        self.exposures.iter().all(|exposure| exposure.state == Exposed::Closed)
    }
}

#[derive(Debug)]
pub(crate) struct Table<X> {
    /// Calls by XID, which is the peer's name for them.
    // V2-3.1.3.4-c, V2-4.5.1-a
    calls: HashMap<u32, Entry<X>>,
    /// The XID of the call to which an exposure belongs.
    exposures: HashMap<ExposureId, u32>,
    /// Calls that wait for a credit: order and XID, in this order.
    queue: VecDeque<(u64, u32)>,
    /// The times at which forgotten calls lose their memory, in this order.
    forgotten: VecDeque<(Timestamp, CallId, u32)>,
    next_order: u64,
    next_exposure: u64,
    /// Program and version of the latest call, for probes.
    pub(crate) program: Option<(u32, u32)>,
}

impl<X> Default for Table<X> {
    fn default() -> Self {
        Self {
            calls: HashMap::default(),
            exposures: HashMap::default(),
            queue: VecDeque::new(),
            forgotten: VecDeque::new(),
            next_order: 0,
            next_exposure: 0,
            program: None,
        }
    }
}

impl<X> Table<X> {
    /// Whether a call with this XID has not ended yet.
    // V2-3.1.3.4-a
    pub(crate) fn contains(&self, xid: u32) -> bool {
        self.calls.contains_key(&xid)
    }

    pub(crate) fn get(&mut self, xid: u32) -> Option<&mut Entry<X>> {
        self.calls.get_mut(&xid)
    }

    /// The call with this XID, if the peer may answer it.
    // V2-3.1.3.4-b, V2-3.1.2-c, V1-2.2.2-a
    pub(crate) fn sent(&mut self, xid: u32) -> Option<&mut Entry<X>> {
        self.calls.get_mut(&xid).filter(|entry| matches!(entry.state, State::Sent))
    }

    /// Adds a call of the program at the end of the queue.
    pub(crate) fn insert(&mut self, call: Call, extra: X) {
        self.queue.push_back((self.next_order, call.xid));
        self.insert_next(call, extra);
    }

    /// Adds a call of the program that is sent at once.
    pub(crate) fn insert_next(&mut self, call: Call, extra: X) {
        self.program = program(&call.message).or(self.program);
        self.add(call, Owner::Caller, State::Queued, extra);
    }

    /// The same for a call that goes inline as a whole. Returns its message.
    #[inline]
    pub(crate) fn insert_sent(&mut self, mut call: Call, extra: X) -> Payload {
        self.program = program(&call.message).or(self.program);
        let message = std::mem::take(&mut call.message);
        self.add(call, Owner::Caller, State::Sent, extra);
        message
    }

    /// Adds a probe, which has no name and no caller, and is found by its XID.
    pub(crate) fn insert_probe(&mut self, xid: u32, message: Payload, extra: X) {
        self.add(Call::new(CallId(u64::MAX), xid, message), Owner::Probe, State::Queued, extra);
    }

    #[inline]
    fn add(&mut self, call: Call, owner: Owner, state: State, extra: X) {
        let (order, xid) = (self.next_order, call.xid);
        self.next_order += 1;
        let offered = Offered { items: call.items.len(), ..Offered::default() };
        let exposures = SmallVec::new();
        self.calls.insert(xid, Entry { call, order, owner, state, exposures, offered, extra });
    }

    /// The call with this name and XID. The driver may name a call that has ended, and whose XID another call has by
    /// now; and its name for a call may be the one that probes have here.
    fn named(&mut self, id: CallId, xid: u32) -> Option<&mut Entry<X>> {
        self.calls.get_mut(&xid).filter(|entry| entry.call.id == id && entry.owner.may_act())
    }

    /// Takes the XID of the call that has waited longest out of the queue.
    pub(crate) fn pop_queued(&mut self) -> Option<u32> {
        self.queue.pop_front().map(|(_, xid)| xid)
    }

    /// Exposes the memory of a plan. Chunks have segments of at most `segment_bytes`. Returns the chunks with the
    /// number of bytes that the peer may read.
    // V1-3.4.3-b, V2-4.3.3-b, V1-8.1.3-a, V2-11.1.3-a, V2-6.4-a, V2-4-a, V1-3.1-a
    pub(crate) fn expose(
        &mut self,
        xid: u32,
        plan: &CallPlan,
        segment_bytes: u32,
        host: &mut dyn Host,
    ) -> Result<(Lists, u64), ExposeError> {
        if !plan.has_chunks() {
            return Ok((Lists::default(), 0));
        }
        let entry = self.calls.get_mut(&xid).ok_or(ExposeError::Refused)?;
        let (owners, next) = (&mut self.exposures, &mut self.next_exposure);
        let mut exposing = Exposing { entry, owners, next, host, xid, segment_bytes, octets: 0 };
        let lists = exposing.expose(plan)?;
        Ok((lists, exposing.octets))
    }

    /// Ends the open exposures of a call, and the call itself if it has none left.
    // V1-8.1.3-a, V2-11.1.3-b, V2-C.7-c
    pub(crate) fn fence(&mut self, xid: u32, actions: &mut VecDeque<Action>) {
        let hash_map::Entry::Occupied(found) = self.calls.entry(xid) else { return };
        fence(found, &mut self.queue, actions);
    }

    /// The peer has answered a call: with what `end` makes of it, it ends as soon as its exposures have ended. Returns
    /// whether the peer may answer this call, and `end` has made something of it.
    // V2-3.1.3.4-b, V2-3.1.2-c, V1-2.2.2-a
    pub(crate) fn answered(
        &mut self,
        xid: u32,
        actions: &mut VecDeque<Action>,
        end: impl FnOnce(&Entry<X>) -> Option<Result<ReplyParts, CallError>>,
    ) -> bool {
        let hash_map::Entry::Occupied(mut found) = self.calls.entry(xid) else { return false };
        let entry = found.get_mut();
        if !matches!(entry.state, State::Sent) {
            return false;
        }
        let Some(end) = end(entry) else { return false };
        entry.state = State::Ending(end);
        fence(found, &mut self.queue, actions);
        true
    }

    /// An exposure has ended. Returns whether it belonged to this table.
    pub(crate) fn fenced(&mut self, id: ExposureId, actions: &mut VecDeque<Action>) -> bool {
        let Some(xid) = self.exposures.remove(&id) else { return false };
        let hash_map::Entry::Occupied(mut found) = self.calls.entry(xid) else { return false };
        for exposure in found.get_mut().exposures.iter_mut().filter(|exposure| exposure.id == id) {
            exposure.state = Exposed::Closed;
        }
        settle(found, &mut self.queue, actions);
        true
    }

    /// Cancels a call: takes its memory back at once.
    // V1-4.4.1-b, V1-8.1.3-c, V1-8.1.4-c, V2-11.1.3-d, V2-11.1.4-d
    pub(crate) fn cancel(&mut self, id: CallId, xid: u32, actions: &mut VecDeque<Action>) {
        if self.disown(id, xid, Owner::Canceller, actions) {
            self.fence(xid, actions);
        }
    }

    /// Forgets a call: its memory stays lent until its reply or a deadline.
    pub(crate) fn forget(&mut self, id: CallId, xid: u32, now: Timestamp, actions: &mut VecDeque<Action>) {
        if self.disown(id, xid, Owner::Nobody, actions) {
            self.forgotten.push_back((now + FORGOTTEN_CALL_DEADLINE, id, xid));
        }
    }

    /// Returns whether the call goes on, because it is under way.
    fn disown(&mut self, id: CallId, xid: u32, owner: Owner, actions: &mut VecDeque<Action>) -> bool {
        let Some(entry) = self.named(id, xid) else { return false };
        entry.owner = owner;
        if !matches!(entry.state, State::Queued) {
            return true;
        }
        let order = entry.order;
        if let Ok(at) = self.queue.binary_search_by_key(&order, |(order, _)| *order) {
            self.queue.remove(at);
        }
        self.calls.remove(&xid);
        actions.push_back(match owner {
            Owner::Canceller => Action::Cancelled { call: id },
            _ => Action::Released { call: id },
        });
        false
    }

    /// The time at which the next forgotten call loses its memory.
    pub(crate) fn next_deadline(&self) -> Option<Timestamp> {
        self.forgotten.front().map(|(when, ..)| *when)
    }

    /// Takes back the memory of calls whose deadline is over.
    pub(crate) fn expire(&mut self, now: Timestamp, actions: &mut VecDeque<Action>) {
        while let Some((_, id, xid)) = self.forgotten.pop_front_if(|(when, ..)| *when <= now) {
            let Some(entry) = self.named(id, xid).filter(|entry| entry.owner == Owner::Nobody) else { continue };
            entry.owner = Owner::Expired;
            self.fence(xid, actions);
        }
    }

    /// The connection is over and every exposure has ended. Returns the unanswered calls in order: calls that were
    /// sent, then calls that waited. Forgotten ones are released instead.
    pub(crate) fn unanswered(&mut self, actions: &mut VecDeque<Action>) -> Vec<CallId> {
        let mut left: Vec<Entry<X>> = self.calls.drain().map(|(_, entry)| entry).collect();
        left.sort_by_key(|entry| entry.order);
        self.queue.clear();
        self.forgotten.clear();
        self.exposures.clear();
        left.into_iter()
            .filter_map(|entry| match entry.owner {
                Owner::Caller => Some(entry.call.id),
                Owner::Nobody | Owner::Expired => {
                    actions.push_back(Action::Released { call: entry.call.id });
                    None
                }
                Owner::Canceller => {
                    actions.push_back(Action::Cancelled { call: entry.call.id });
                    None
                }
                Owner::Ghost | Owner::Probe => None,
            })
            .collect()
    }

    /// Calls that wait for a credit.
    pub(crate) fn queued(&self) -> usize {
        self.queue.len()
    }

    /// Exposures that have not ended.
    pub(crate) fn exposed(&self) -> usize {
        self.exposures.len()
    }
}

/// Ends the open exposures of a call, and the call itself if it has none left.
fn fence<X>(
    mut found: hash_map::OccupiedEntry<'_, u32, Entry<X>>,
    queue: &mut VecDeque<(u64, u32)>,
    actions: &mut VecDeque<Action>,
) {
    for exposure in found.get_mut().exposures.iter_mut().filter(|exposure| exposure.state == Exposed::Open) {
        exposure.state = Exposed::Closing;
        actions.push_back(Action::Invalidate { exposure: exposure.id, handle: exposure.handle });
    }
    settle(found, queue, actions);
}

/// Reports how a call ended, when none of its memory is exposed any more.
// V1-4.4.1-a, V1-8.1.3-b, V2-11.1.3-c, V1-3.4.5.1-b, V2-4.3.5.1-c
// V1-4.5.4-b, V2-7.4-b
fn settle<X>(
    mut found: hash_map::OccupiedEntry<'_, u32, Entry<X>>,
    queue: &mut VecDeque<(u64, u32)>,
    actions: &mut VecDeque<Action>,
) {
    let xid = *found.key();
    let entry = found.get_mut();
    if !entry.fenced() {
        return;
    }
    let id = entry.call.id;
    let ended = matches!(entry.state, State::Ending(_) | State::Again);
    match (entry.owner, ended) {
        (Owner::Canceller, _) => {
            actions.push_back(Action::Cancelled { call: id });
            entry.owner = Owner::Ghost;
        }
        (Owner::Expired, _) | (Owner::Nobody, true) => {
            actions.push_back(Action::Released { call: id });
            entry.owner = Owner::Ghost;
        }
        _ => {}
    }
    if !ended {
        return;
    }
    if matches!((entry.owner, &entry.state), (Owner::Caller, State::Again)) {
        entry.state = State::Queued;
        entry.exposures.clear();
        let at = queue.partition_point(|(order, _)| *order < entry.order);
        queue.insert(at, (entry.order, xid));
        return;
    }
    // V2-3.1.2-c, V1-2.2.2-a
    let entry = found.remove();
    let State::Ending(end) = entry.state else { return };
    match entry.owner {
        Owner::Caller => actions.push_back(match end {
            Ok(reply) => Action::Complete { call: id, reply },
            Err(error) => Action::Fail { call: id, error },
        }),
        // An error, too, shows that the peer is alive.
        Owner::Probe => actions.push_back(Action::Alive),
        Owner::Nobody | Owner::Expired | Owner::Canceller | Owner::Ghost => {}
    }
}

/// Exposes the memory of one call.
struct Exposing<'a, X> {
    entry: &'a mut Entry<X>,
    owners: &'a mut HashMap<ExposureId, u32>,
    next: &'a mut u64,
    host: &'a mut dyn Host,
    xid: u32,
    segment_bytes: u32,
    octets: u64,
}

impl<X> Exposing<'_, X> {
    fn expose(&mut self, plan: &CallPlan) -> Result<Lists, ExposeError> {
        let mut reads = SmallVec::with_capacity(plan.reads.len() + 1);
        if let Some(zero) = &plan.zero {
            self.source(0, zero, &mut reads)?;
        }
        for reduced in &plan.reads {
            self.source(reduced.position, &reduced.data, &mut reads)?;
        }
        let mut writes = SmallVec::with_capacity(plan.writes.len());
        for (index, &octets) in plan.writes.iter().enumerate() {
            writes.push(match octets {
                0 => WriteChunk::default(),
                _ => self.sink(SinkPlace::Item(index), octets)?,
            });
        }
        let reply = plan.reply.map(|octets| self.sink(SinkPlace::Reply, octets)).transpose()?;
        Ok(Lists { reads: ReadList(reads), writes: WriteList(writes), reply })
    }

    // V2-4.3.5-d, V1-3.4.5-d
    fn source(
        &mut self,
        position: u32,
        octets: &Bytes,
        reads: &mut SmallVec<[ReadSegment; 1]>,
    ) -> Result<(), ExposeError> {
        let id = self.name();
        let segment = self.host.expose_source(id, octets)?;
        self.octets += octets.len() as u64;
        self.keep(id, segment.handle);
        reads.extend(cut(segment, self.segment_bytes).map(|segment| ReadSegment { position, segment }));
        Ok(())
    }

    // V1-3.4.6-b, V2-4.3.6-b
    fn sink(&mut self, place: SinkPlace, octets: usize) -> Result<WriteChunk, ExposeError> {
        let id = self.name();
        let segment = self.host.expose_sink(id, Sink { call: self.entry.call.id, place, octets })?;
        self.keep(id, segment.handle);
        // The memory may be longer than the offer.
        let length = u32::try_from(octets).map_err(|_| ExposeError::Refused)?.min(segment.length);
        Ok(WriteChunk(few(cut(Segment { length, ..segment }, self.segment_bytes))))
    }

    fn name(&mut self) -> ExposureId {
        let id = ExposureId(*self.next);
        *self.next += 1;
        id
    }

    fn keep(&mut self, id: ExposureId, handle: u32) {
        self.owners.insert(id, self.xid);
        self.entry.exposures.push(Exposure { id, handle, state: Exposed::Open });
    }
}

/// Cuts `whole` into consecutive segments of at most `max` bytes; at least one.
// V1-3.4.4-a, V2-4.3.4-a, V2-5.2.3-a
fn cut(whole: Segment, max: u32) -> impl Iterator<Item = Segment> {
    let max = max.max(1);
    let count = whole.length.div_ceil(max).max(1);
    (0..count).map(move |index| {
        let before = index * max;
        Segment { length: (whole.length - before).min(max), offset: whole.offset + u64::from(before), ..whole }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// proves: V2-4.3.4-a, V2-4.3.4-b, V2-5.2.3-a
    #[test]
    fn a_chunk_is_cut_into_segments_of_the_largest_size() {
        let lengths = |length, max| {
            let whole = Segment { handle: 7, length, offset: 1 << 40 };
            let cut: Vec<Segment> = cut(whole, max).collect();
            let mut next = whole.offset;
            for segment in &cut {
                assert_eq!((segment.handle, segment.offset), (7, next));
                next += u64::from(segment.length);
            }
            cut.iter().map(|segment| segment.length).collect::<Vec<_>>()
        };
        assert_eq!(lengths(100, u32::MAX), [100]);
        assert_eq!(lengths(100, 100), [100]);
        assert_eq!(lengths(101, 100), [100, 1]);
        assert_eq!(lengths(u32::MAX, u32::MAX - 1), [u32::MAX - 1, 1]);
        assert_eq!(lengths(0, 100), [0]);
    }
}
