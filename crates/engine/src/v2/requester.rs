//! The requester half of version 2: calls of ours, and how errors change them (draft sections 6.4 and 7).
//!
//! Owns the table of calls, and for each call the data to send it again in another way. It plans a call when it sends
//! it, because only then it knows what the peer accepts. If a refusal says that the call was not executed, or if the
//! call may be executed twice, the requester tries another way if there is one; every other refusal ends the call.

use super::{
    credits::Credits,
    outbox::{Outgoing, fits, part},
    plan::{Narrowed, Way, goes_inline, plan},
};
use crate::{
    Action, Call, CallError, CallRefused, Config, ExposeError, ExposureId, Host, MessageKind, PeerFault, ReplyParts,
    Sent, Side,
    config::MAX_CREDITS,
    plan::{chunk_count, rest},
    table::{Entry, Owner, State, Table},
};
use bytes::Bytes;
use rpcrdma_env::{Scratch, Slices, Timestamp};
use rpcrdma_wire::{
    rpc::null_call,
    v2::{Chunks, ErrorBody, Lists, NO_CHUNKS_OCTETS, Properties, ReverseSupport, WriteChunk},
};
use rpcrdma_xdr::{Payload, padded};
use std::collections::VecDeque;

/// How often one call is sent again in another way: once because of the call, once because of its reply.
const MAX_AGAIN: u8 = 2;

/// The data to plan a call again.
#[derive(Debug, Default)]
pub(crate) struct Terms {
    narrowed: Narrowed,
    again: u8,
    /// All that was granted when its last part was sent.
    mark: Option<u64>,
    /// If the reply may be long: the most bytes of a short one; else zero.
    short_bytes: usize,
    /// Whether the peer accepts chunks.
    chunks: bool,
    /// The Read chunks, Write chunks and segments with which it was sent.
    reads: usize,
    writes: usize,
    segments: usize,
}

/// The most bytes of a call's reply without the results that Write chunks can hold.
fn reduced_reply(call: &Call) -> usize {
    call.items.iter().fold(call.reply_max, |octets, &item| octets.saturating_sub(padded(item)))
}

#[derive(Debug, Default)]
pub(crate) struct Requester {
    pub(crate) table: Table<Terms>,
    /// Calls that were sent and are not answered.
    unanswered: usize,
    /// Whether the last reply that could be long was long.
    long_replies: bool,
}

/// The data outside of this half that sending a call needs.
pub(crate) struct Sending<'a> {
    pub(crate) config: &'a Config,
    pub(crate) theirs: &'a Properties,
    pub(crate) credits: &'a mut Credits,
    pub(crate) link: crate::Link,
    /// Memory for headers.
    pub(crate) scratch: &'a mut Scratch,
    pub(crate) actions: &'a mut VecDeque<Action>,
}

/// What became of a call whose turn it is.
pub(crate) enum Begun {
    /// It was sent.
    Sent,
    /// It is to be sent in parts, or waits for a credit.
    Waits(Box<Outgoing>),
}

impl Sending<'_> {
    /// Which calls the peer accepts.
    fn level(&self) -> ReverseSupport {
        match self.config.side {
            Side::Client => ReverseSupport::General,
            Side::Server => self.theirs.reverse,
        }
    }

    /// Whether the peer accepts chunks in a call that has been narrowed like this.
    // V2-4.5.4-c, V2-5.2.4-b
    fn takes_chunks(&self, narrowed: Narrowed) -> bool {
        let segments = self.theirs.segment_count > 0 && narrowed.segments > 0;
        self.level() == ReverseSupport::General && self.theirs.segment_size > 0 && segments
    }

    /// Sends a whole message.
    fn send(&mut self, about: &Sent, chunks: &Chunks, payload: Option<Slices>) {
        let credits = self.credits.stamp();
        let send = part(about, chunks, payload, true, credits, self.config.max_gather, self.scratch);
        self.actions.push_back(send);
    }

    /// What the peer lets us use, or `None` if it accepts no calls. If a reply may be long but the last such reply was
    /// short, we offer no chunk: a responder whose reply is longer than expected can send it in parts.
    // V2-4.5.3-c, V2-4.5.3-e, V2-4.5.4-a, V2-4.5.4-c, V2-5.2.5-c, V2-5.2.5-e, V2-4.5.1-e
    fn way(&self, long_replies: bool) -> Option<Way> {
        let level = self.level();
        if level == ReverseSupport::None {
            return None;
        }
        let segments = usize::try_from(self.theirs.segment_count).unwrap_or(usize::MAX);
        let window = self.credits.own() / 2;
        Some(Way {
            link: self.link,
            chunks: level == ReverseSupport::General,
            continues: level >= ReverseSupport::Continued,
            // Longer messages would use up the window in which the other direction has to grant credits.
            call_parts: self.config.call_parts.min(self.credits.peer() / 2),
            reply_parts: if long_replies { self.config.reply_parts.min(window) } else { window },
            segment_bytes: self.theirs.segment_size,
            chunk_bytes: self.config.max_transfer_bytes,
            narrowed: Narrowed { segments, ..Narrowed::default() },
        })
    }
}

impl Requester {
    /// Takes a call. It is planned and sent when its turn comes.
    pub(crate) fn call(&mut self, call: Call, config: &Config) -> Result<(), CallRefused> {
        if config.credits_wanted == 0 {
            return Err(CallRefused::NotEnabled);
        }
        if self.table.contains(call.xid) {
            return Err(CallRefused::XidInUse { xid: call.xid });
        }
        self.table.insert(call, Terms::default());
        Ok(())
    }

    /// Calls that were sent and are not answered.
    pub(crate) fn unanswered(&self) -> usize {
        self.unanswered
    }

    /// Whether another call may be sent now.
    // V2-11.1.4-c
    fn may_start(&self, config: &Config, credits: &Credits) -> bool {
        let most = usize::try_from(config.credits_wanted.min(MAX_CREDITS)).unwrap_or(usize::MAX);
        self.unanswered < most.min(credits.peer()) && credits.may_call(self.unanswered)
    }

    /// Begins the next call that can be sent: its memory is exposed, and it is sent if one Send takes it.
    pub(crate) fn start(&mut self, host: &mut dyn Host, sending: &mut Sending<'_>) -> Option<Begun> {
        while self.may_start(sending.config, sending.credits) {
            let xid = self.table.pop_queued()?;
            let begun = self.begin(xid, true, host, sending);
            if begun.is_some() {
                return begun;
            }
        }
        None
    }

    /// A NULL call, to find out whether the peer is alive.
    pub(crate) fn probe(&mut self, host: &mut dyn Host, sending: &mut Sending<'_>) -> Option<Outgoing> {
        let xid = host.next_xid();
        if self.table.contains(xid) {
            return None;
        }
        let message = Payload::from(null_call(xid, self.table.program));
        self.table.insert_probe(xid, message, Terms::default());
        // Other messages may wait before it.
        match self.begin(xid, false, host, sending)? {
            Begun::Waits(outgoing) => Some(*outgoing),
            Begun::Sent => None,
        }
    }

    /// The last part of a call was sent.
    pub(crate) fn sent(&mut self, xid: u32, mark: u64) {
        if let Some(entry) = self.table.sent(xid) {
            entry.extra.mark = Some(mark);
        }
    }

    /// All that was granted when the last part of a call was sent, if it was sent.
    pub(crate) fn mark(&mut self, xid: u32) -> Option<u64> {
        self.table.sent(xid)?.extra.mark
    }

    /// Plans a call, exposes its memory and, if that may be `at_once`, sends it. `None` if it has ended.
    fn begin(&mut self, xid: u32, at_once: bool, host: &mut dyn Host, sending: &mut Sending<'_>) -> Option<Begun> {
        let long_replies = self.long_replies;
        let entry = self.table.get(xid)?;
        let narrowed = entry.extra.narrowed;
        let may_go = at_once && entry.extra.again == 0 && sending.level() != ReverseSupport::None;
        if may_go && goes_inline(sending.link, narrowed, &entry.call) {
            // What would follow below as well, in fewer steps: most calls are like this.
            let inline = rest(&entry.call.message, &[]);
            sending.send(&Sent { xid, ..Sent::of(MessageKind::Call) }, &Chunks::default(), Some(inline));
            entry.extra.mark = Some(sending.credits.granted());
            entry.extra.chunks = sending.takes_chunks(narrowed);
            entry.state = State::Sent;
            self.unanswered += 1;
            return Some(Begun::Sent);
        }
        let way = sending.way(long_replies).map(|way| {
            let segments = way.narrowed.segments.min(narrowed.segments);
            Way { narrowed: Narrowed { segments, ..narrowed }, ..way }
        });
        let chunks = sending.takes_chunks(narrowed);
        let planned = way.ok_or(CallRefused::NotEnabled).and_then(|way| plan(&way, &entry.call));
        let mut plan = match planned {
            Ok(plan) => plan,
            Err(refused) => {
                // V2-7.4-a
                self.end(xid, Err(refused.into()), sending.actions);
                return None;
            }
        };
        // V2-11.1.3-a, V2-6.4-a
        let exposed = self.table.expose(xid, &plan, sending.theirs.segment_size, host);
        let entry = self.table.get(xid)?;
        let (lists, placed_bytes) = match exposed {
            Ok(exposed) => exposed,
            Err(ExposeError::Closed) => {
                // Nothing is sent, and the call stays among the unanswered calls at the connection's end.
                entry.state = State::Sent;
                return None;
            }
            Err(error) => {
                self.end(xid, Err(error.into()), sending.actions);
                return None;
            }
        };
        entry.extra.mark = None;
        entry.extra.chunks = chunks;
        let each = sending.link.receive_inline.saturating_sub(NO_CHUNKS_OCTETS);
        let short = each.saturating_mul(sending.config.reply_parts);
        entry.extra.short_bytes = if reduced_reply(&entry.call) > short { short } else { 0 };
        entry.extra.reads = plan.reads.len() + usize::from(plan.zero.is_some());
        entry.extra.writes = lists.writes.chunks().len();
        entry.extra.segments = lists.segment_count();
        let about = Sent {
            xid,
            placed_bytes,
            read_chunks: chunk_count(entry.extra.reads),
            write_chunks: chunk_count(entry.extra.writes),
            reply_chunk: lists.reply.is_some(),
            ..Sent::of(if entry.owner == Owner::Probe { MessageKind::Probe } else { MessageKind::Call })
        };
        // V2-6.2.4-a, V2-6.2.4-b, V2-C.7-a, V2-C.7-d
        let inv_handle = if sending.config.remote_invalidation { handle_of(&lists) } else { 0 };
        let chunks = Chunks { inv_handle, lists };
        let inline = if plan.zero.is_some() { None } else { Some(std::mem::take(&mut plan.inline)) };
        let (threshold, max_gather) = (sending.link.send_inline, sending.config.max_gather);
        let begun = match fits(&chunks, inline.as_ref(), threshold) {
            Ok(true) if at_once => {
                sending.send(&about, &chunks, inline);
                entry.extra.mark = Some(sending.credits.granted());
                entry.offered.keep(chunks.lists);
                Ok(Begun::Sent)
            }
            Ok(_) => {
                entry.offered.keep(chunks.lists.clone());
                Outgoing::new(about, chunks, inline, threshold, max_gather)
                    .map(|outgoing| Begun::Waits(outgoing.into()))
            }
            Err(no_room) => Err(no_room),
        };
        let Ok(begun) = begun else {
            let refused = CallRefused::HeaderTooLarge { len: threshold, max: threshold };
            self.end(xid, Err(refused.into()), sending.actions);
            return None;
        };
        entry.state = State::Sent;
        self.unanswered += 1;
        Some(begun)
    }

    /// Ends a call that was never sent.
    fn end(&mut self, xid: u32, end: Result<ReplyParts, CallError>, actions: &mut VecDeque<Action>) {
        if let Some(entry) = self.table.get(xid) {
            entry.state = State::Ending(end);
            self.table.fence(xid, actions);
        }
    }

    /// A call that was sent has got its answer, which its state shows.
    fn answered(&mut self, xid: u32, actions: &mut VecDeque<Action>) {
        self.unanswered = self.unanswered.saturating_sub(1);
        self.table.fence(xid, actions);
    }

    /// A reply: in the message, or with `None` in the Reply chunk. Returns whether it answered a call.
    pub(crate) fn replied(
        &mut self,
        xid: u32,
        lists: &Lists,
        stream: Option<Bytes>,
        actions: &mut VecDeque<Action>,
    ) -> bool {
        let long_replies = &mut self.long_replies;
        let known = self.table.answered(xid, actions, |entry| {
            if entry.extra.short_bytes > 0 {
                *long_replies = stream.as_ref().is_none_or(|stream| stream.len() > entry.extra.short_bytes);
            }
            let reply = match stream {
                Some(stream) => entry.offered.short(lists, stream),
                None => entry.offered.long(lists),
            };
            let reply = reply.map(|mut reply| {
                // A result whose chunk came back unused is inline, which we accept (V2-A.1-h).
                for item in reply.items.iter_mut().filter(|item| item.returned == 0) {
                    item.offered = 0;
                }
                reply
            });
            Some(reply.map_err(CallError::from))
        });
        self.unanswered = self.unanswered.saturating_sub(usize::from(known));
        known
    }

    /// The reply of a call is spoiled by a fault of the peer.
    pub(crate) fn spoiled(&mut self, xid: u32, fault: PeerFault, actions: &mut VecDeque<Action>) {
        if let Some(entry) = self.table.sent(xid) {
            entry.state = State::Ending(Err(fault.into()));
            self.answered(xid, actions);
        }
    }

    /// Handles an error. Returns whether it answered a call.
    // V2-7.1.1-e
    pub(crate) fn refused(
        &mut self,
        xid: u32,
        error: ErrorBody,
        config: &Config,
        actions: &mut VecDeque<Action>,
    ) -> bool {
        let Some(entry) = self.table.sent(xid) else { return false };
        let max_bytes = usize::try_from(config.limits.call_bytes).unwrap_or(usize::MAX).min(config.max_transfer_bytes);
        let narrowed = match entry.extra.again < MAX_AGAIN {
            true => narrower(entry, error, config.side, max_bytes),
            false => None,
        };
        entry.state = match narrowed {
            Some(narrowed) => {
                entry.extra.narrowed = narrowed;
                entry.extra.again += 1;
                State::Again
            }
            // V2-7.1.2-d, V2-7.1.3-c, V2-7.2.1-c, V2-7.3.1-e, V2-7.3.2-c, V2-7.3.3-c, V2-7.3.4-d, V2-7.3.5-c,
            // V2-7.4.1-c, V2-6.4-g
            None => State::Ending(Err(CallError::Rejected(error))),
        };
        self.answered(xid, actions);
        true
    }

    /// An exposure has ended.
    pub(crate) fn fenced(&mut self, id: ExposureId, actions: &mut VecDeque<Action>) {
        self.table.fenced(id, actions);
    }

    /// Takes back the memory of calls whose deadline is over.
    pub(crate) fn expire(&mut self, now: Timestamp, actions: &mut VecDeque<Action>) {
        self.table.expire(now, actions);
    }
}

/// What a refused call may use when it is sent again, if that can help and is safe.
fn narrower(entry: &Entry<Terms>, error: ErrorBody, side: Side, max_bytes: usize) -> Option<Narrowed> {
    let Entry { call, extra: terms, .. } = entry;
    let now = terms.narrowed;
    let count = |count: u32| usize::try_from(count).unwrap_or(usize::MAX);
    let reply_bytes = |needed: u32| Some(count(needed)).filter(|&octets| octets > 0 && octets <= max_bytes);
    let whole_reply = Some(call.reply_max).filter(|&octets| octets > 0 && octets <= max_bytes);
    match error {
        // The client accepts no chunks; it has executed none of these calls.
        ErrorBody::ReadChunks { .. } | ErrorBody::WriteChunks { .. } | ErrorBody::Segments { .. }
            // V2-4.5.4-e
            if side == Side::Server =>
        {
            (terms.segments > 0).then_some(Narrowed { segments: 0, ..now })
        }
        // V2-7.3.1-d
        ErrorBody::ReadChunks { max_chunks } => {
            (count(max_chunks) < terms.reads).then(|| Narrowed { reads: count(max_chunks), ..now })
        }
        // V2-7.3.2-b
        ErrorBody::WriteChunks { max_chunks } => {
            (count(max_chunks) < terms.writes).then_some(Narrowed { writes: false, reply: whole_reply, ..now })
        }
        // V2-7.3.3-b, V2-5.2.4-b
        ErrorBody::Segments { max_segments } => {
            (count(max_segments) < terms.segments).then(|| Narrowed { segments: count(max_segments), ..now })
        }
        // The peer finds out the two errors below only after it has executed the call. Without a Reply chunk it would
        // only execute the call again.
        _ if !terms.chunks => None,
        // V2-6.4-f, V2-6.4-g, V2-7.3.4-d
        ErrorBody::WriteResource { length_needed, .. } if call.repeatable && terms.writes > 0 => {
            let octets = call.reply_max.saturating_add(count(length_needed));
            let octets = reply_bytes(length_needed).and(Some(octets)).filter(|&octets| octets <= max_bytes);
            octets.map(|octets| Narrowed { writes: false, reply: Some(octets), ..now })
        }
        // V2-6.4-f, V2-6.4-g, V2-7.3.5-c
        ErrorBody::ReplyResource { length_needed } if call.repeatable => {
            let larger = reply_bytes(length_needed).filter(|octets| now.reply.is_none_or(|reply| reply < *octets));
            larger.map(|octets| Narrowed { writes: false, reply: Some(octets), ..now })
        }
        _ => None,
    }
}

/// The handle that the reply may invalidate: the handle of the memory that the reply fills, if there is one.
// V2-C.7-c
fn handle_of(lists: &Lists) -> u32 {
    let written = lists.writes.chunks().iter().chain(&lists.reply).flat_map(WriteChunk::segments);
    let read = lists.reads.segments().iter().map(|entry| &entry.segment);
    written.chain(read).map(|segment| segment.handle).next().unwrap_or(0)
}
