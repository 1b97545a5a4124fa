//! Which call a message belongs to: by XID, by the handles that the call's chunks name, by the order of RDMA Reads.
//!
//! Holds unanswered calls and RDMA Reads, within limits: if the replies are missing in a capture, the oldest goes.

use crate::{
    content::{Content, GssCall, Item},
    event::{CallTag, End, ProcedureName},
};
use rpcrdma_iwarp::protocol::rdmap::ReadRequest;
use rpcrdma_nfs::v4;
use rpcrdma_oncrpc::CallId;
use rpcrdma_wire::chunk::{Lists, Segment};
use std::{collections::VecDeque, time::Duration};

/// Unanswered calls on one connection: several times the credits in use.
pub(super) const MAX_CALLS: usize = 1024;
/// Handles of one call that are remembered; the largest chunk lists in use name some dozens.
pub(super) const MAX_HANDLES: usize = 256;
/// Read chunks of one call that are remembered: NFS has one.
const MAX_ITEMS: usize = 4;
/// RDMA Reads of one end that are not answered: several times the depth in use.
pub(super) const MAX_READS: usize = 1024;

/// What a reader must know of a call to read its reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Called {
    /// Its procedure.
    pub(super) name: ProcedureName,
    /// How it is protected.
    pub(super) gss: Option<GssCall>,
}

impl Called {
    /// From a call's header and its content.
    pub(super) fn of(id: CallId, content: Option<&Content>) -> Self {
        Self { name: ProcedureName::of(id, content), gss: gss_call(content) }
    }
}

/// How a call is protected, by its content.
pub(super) fn gss_call(content: Option<&Content>) -> Option<GssCall> {
    Some(content?.gss.as_ref()?.call)
}

#[derive(Debug)]
struct Call {
    tag: CallTag,
    /// How it is protected.
    gss: Option<GssCall>,
    time: Duration,
    handles: Vec<u32>,
    /// Where the whole call stands, if it is a long one: its Position Zero chunk.
    long_call: Option<Segment>,
    /// The bytes of all segments of that chunk.
    long_call_bytes: u64,
    /// Where the whole reply goes, if it is a long one.
    reply_chunk: Option<Segment>,
    /// Whether more than that segment is offered: others for a long reply, or chunks for data.
    more_room: bool,
    /// Data of the call that travel in Read chunks.
    items: Vec<Item>,
}

/// Adds a message's Read chunks to the known ones: segments of one position are one chunk. Position zero is not an
/// item.
pub(super) fn add_read_items(lists: &Lists, items: &mut Vec<Item>) {
    for read in lists.reads.segments().iter().filter(|read| read.position != 0) {
        let octets = u64::from(read.segment.length);
        if let Some(item) = items.last_mut().filter(|item| item.position == Some(read.position)) {
            item.octets = item.octets.saturating_add(octets);
        } else if items.len() < MAX_ITEMS {
            items.push(Item { position: Some(read.position), octets });
        }
    }
}

/// The data that a reply has placed, by its Write chunks.
pub(super) fn written_items(lists: &Lists) -> Vec<Item> {
    let octets = |segments: &[Segment]| segments.iter().map(|segment| u64::from(segment.length)).sum();
    let chunks = lists.writes.chunks().iter().map(|chunk| Item { position: None, octets: octets(chunk.segments()) });
    chunks.filter(|item| item.octets > 0).take(MAX_ITEMS).collect()
}

impl Call {
    fn expose(&mut self, lists: &Lists) {
        let read = lists.reads.segments().iter().map(|read| &read.segment);
        let written = lists.writes.chunks().iter().chain(&lists.reply).flat_map(|chunk| chunk.segments());
        let room = MAX_HANDLES.saturating_sub(self.handles.len());
        self.handles.extend(read.chain(written).map(|segment| segment.handle).take(room));
        let long_call = lists.reads.segments().first().filter(|read| read.position == 0).map(|read| read.segment);
        self.long_call = self.long_call.or(long_call);
        let long = lists.reads.segments().iter().filter(|read| read.position == 0);
        self.long_call_bytes =
            long.fold(self.long_call_bytes, |sum, read| sum.saturating_add(read.segment.length.into()));
        add_read_items(lists, &mut self.items);
        let segments = lists.reply.as_ref().map_or(0, |chunk| chunk.segments().len());
        self.more_room |= segments > 1 || !lists.writes.chunks().is_empty();
        let reply_chunk = lists.reply.as_ref().and_then(|chunk| chunk.segments().first()).copied();
        self.reply_chunk = self.reply_chunk.or(reply_chunk);
    }
}

#[derive(Debug)]
struct Read {
    from: End,
    sink: u32,
    call: Option<CallTag>,
    /// It fetches the beginning of a long call.
    fetches_call: bool,
}

#[derive(Debug, Default)]
pub(super) struct Calls {
    count: u64,
    open: VecDeque<Call>,
    reads: VecDeque<Read>,
    /// The ends that have called NFS: the other one may call back.
    nfs_clients: [bool; 2],
}

impl Calls {
    /// Whether a call of this end may be one of NFS's callbacks: the other end has called NFS.
    pub(super) fn may_call_back(&self, requester: End) -> bool {
        self.nfs_clients.get(requester.other() as usize).is_some_and(|is| *is)
    }

    fn is_for(&mut self, requester: End, name: Option<ProcedureName>) {
        if name.is_some_and(|name| name.program == v4::PROGRAM)
            && let Some(is) = self.nfs_clients.get_mut(requester as usize)
        {
            *is = true;
        }
    }

    /// A Call was sent.
    pub(super) fn call(
        &mut self,
        xid: u32,
        requester: End,
        called: Option<Called>,
        lists: &Lists,
        time: Duration,
    ) -> CallTag {
        self.count += 1;
        let name = called.map(|called| called.name);
        self.is_for(requester, name);
        let tag = CallTag { number: self.count, xid, requester, name };
        self.open.retain(|call| (call.tag.xid, call.tag.requester) != (xid, requester));
        if self.open.len() >= MAX_CALLS {
            self.open.pop_front();
        }
        let mut call = Call {
            tag,
            gss: called.and_then(|called| called.gss),
            time,
            handles: Vec::new(),
            long_call: None,
            long_call_bytes: 0,
            reply_chunk: None,
            more_room: false,
            items: Vec::new(),
        };
        call.expose(lists);
        self.open.push_back(call);
        tag
    }

    /// A Reply was sent by `from`: the call, and the time since it.
    pub(super) fn reply(&mut self, xid: u32, from: End, time: Duration) -> Option<(CallTag, Duration)> {
        let at = self.open.iter().position(|call| (call.tag.xid, call.tag.requester.other()) == (xid, from))?;
        let call = self.open.remove(at)?;
        Some((call.tag, time.saturating_sub(call.time)))
    }

    /// A later part of a Call was sent, which has these chunks too. Returns the call. Its last part shows how it is
    /// protected.
    pub(super) fn goes_on(&mut self, xid: u32, requester: End, lists: &Lists, gss: Option<GssCall>) -> Option<CallTag> {
        let call = self.open.iter_mut().find(|call| (call.tag.xid, call.tag.requester) == (xid, requester))?;
        call.expose(lists);
        call.gss = gss.or(call.gss);
        Some(call.tag)
    }

    /// `from` sent a part of a Reply that others follow. Returns the call.
    pub(super) fn being_answered(&self, xid: u32, from: End) -> Option<CallTag> {
        let call = self.open.iter().find(|call| (call.tag.xid, call.tag.requester.other()) == (xid, from))?;
        Some(call.tag)
    }

    /// What the call with this XID is.
    pub(super) fn called(&self, xid: u32, replier: End) -> Option<Called> {
        let call = self.open.iter().find(|call| (call.tag.xid, call.tag.requester.other()) == (xid, replier))?;
        Some(Called { name: call.tag.name?, gss: call.gss })
    }

    /// The youngest call that exposed `handle` to `user`.
    fn exposed(&self, handle: u32, user: End) -> Option<&Call> {
        let mut calls = self.open.iter().rev();
        calls.find(|call| call.tag.requester.other() == user && call.handles.contains(&handle))
    }

    /// An RDMA Read Request was sent.
    pub(super) fn read_request(&mut self, from: End, request: &ReadRequest) -> Option<CallTag> {
        let call = self.exposed(request.source_stag, from);
        let fetches_call = call
            .and_then(|call| call.long_call)
            .is_some_and(|chunk| (chunk.handle, chunk.offset) == (request.source_stag, request.source_offset));
        let call = call.map(|call| call.tag);
        if self.reads.len() >= MAX_READS {
            self.reads.pop_front();
        }
        self.reads.push_back(Read { from, sink: request.sink_stag, call, fetches_call });
        call
    }

    /// An RDMA Read Response was sent: the call, and whether it brings the beginning of a long one.
    pub(super) fn read_response(&mut self, from: End, sink: u32) -> (Option<CallTag>, bool) {
        let at = self.reads.iter().position(|read| (read.from, read.sink) == (from.other(), sink));
        match at.and_then(|at| self.reads.remove(at)) {
            Some(read) => (read.call, read.fetches_call),
            None => (None, false),
        }
    }

    fn tagged(&self, tag: Option<CallTag>) -> Option<&Call> {
        let number = tag?.number;
        self.open.iter().find(|call| call.tag.number == number)
    }

    /// For a long call that begins with `here` bytes: how many follow, and its Read chunks.
    pub(super) fn long_call(&self, tag: Option<CallTag>, here: u64) -> (Option<u64>, Vec<Item>) {
        let call = self.tagged(tag);
        let missing = call.and_then(|call| call.long_call_bytes.checked_sub(here));
        (missing, call.map(|call| call.items.clone()).unwrap_or_default())
    }

    /// Whether a long reply that begins with a whole RDMA Write ends with it: there is no other memory for it.
    pub(super) fn long_reply_ends(&self, tag: Option<CallTag>) -> bool {
        self.tagged(tag).is_some_and(|call| !call.more_room)
    }

    /// The content of a long call was seen: notes its procedure and protection.
    pub(super) fn named(&mut self, tag: CallTag, Called { name, gss }: Called) -> CallTag {
        self.is_for(tag.requester, Some(name));
        for call in self.open.iter_mut().filter(|call| call.tag.number == tag.number) {
            call.tag.name = Some(name);
            call.gss = gss;
        }
        CallTag { name: Some(name), ..tag }
    }

    /// An RDMA Write was sent: the call, and whether a long reply begins with it.
    pub(super) fn write(&self, from: End, handle: u32, offset: u64) -> (Option<CallTag>, bool) {
        let Some(call) = self.exposed(handle, from) else { return (None, false) };
        let begins_reply = call.reply_chunk.is_some_and(|chunk| (chunk.handle, chunk.offset) == (handle, offset));
        (Some(call.tag), begins_reply)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rpcrdma_wire::chunk::{ReadList, ReadSegment};

    const NOW: Duration = Duration::ZERO;

    fn lists(handles: std::ops::Range<u32>) -> Lists {
        let reads =
            handles.map(|handle| ReadSegment { position: 4, segment: Segment { handle, length: 1, offset: 0 } });
        Lists { reads: ReadList(reads.collect()), ..Lists::default() }
    }

    fn request(sink_stag: u32, source_stag: u32) -> ReadRequest {
        ReadRequest { sink_stag, sink_offset: 0, size: 1, source_stag, source_offset: 0 }
    }

    #[test]
    fn items_of_a_call_end_at_their_limit() {
        let read = |position| ReadSegment { position, segment: Segment { handle: 1, length: 3, offset: 0 } };
        let all = |last: u32| Lists { reads: ReadList((0..=last).map(read).collect()), ..Lists::default() };
        let items = |lists: &Lists| {
            let mut items = Vec::new();
            add_read_items(lists, &mut items);
            items.iter().map(|item| (item.position, item.octets)).collect::<Vec<_>>()
        };
        let most = MAX_ITEMS as u32;
        let told: Vec<_> = (1..=most).map(|position| (Some(position), 3)).collect();
        assert_eq!(items(&all(most)), told, "position zero is none");
        assert_eq!(items(&all(most + 1)), told);
        let twice = Lists { reads: ReadList(vec![read(9), read(9)].into()), ..Lists::default() };
        assert_eq!(items(&twice), [(Some(9), 6)], "segments of one position are one");
    }

    #[test]
    fn unanswered_calls_end_at_their_limit() {
        let mut calls = Calls::default();
        for xid in 0..MAX_CALLS as u32 {
            calls.call(xid, End::Initiator, None, &Lists::default(), NOW);
        }
        // A repeated XID takes the place of the first.
        calls.call(1, End::Initiator, None, &Lists::default(), NOW);
        assert_eq!(calls.open.len(), MAX_CALLS);
        calls.call(u32::MAX, End::Initiator, None, &Lists::default(), NOW);
        assert_eq!(calls.open.len(), MAX_CALLS);
        assert!(calls.reply(0, End::Responder, NOW).is_none(), "the oldest is gone");
        assert!(calls.reply(2, End::Initiator, NOW).is_none(), "its own end does not answer it");
        assert!(calls.reply(2, End::Responder, NOW).is_some());
    }

    #[test]
    fn remembered_handles_and_reads_end_at_their_limits() {
        let mut calls = Calls::default();
        calls.call(7, End::Initiator, None, &lists(0..MAX_HANDLES as u32 + 1), NOW);
        let last = MAX_HANDLES as u32 - 1;
        assert!(calls.read_request(End::Responder, &request(100, last)).is_some());
        assert!(calls.read_request(End::Responder, &request(101, last + 1)).is_none());
        assert!(calls.read_request(End::Initiator, &request(102, last)).is_none(), "it is not exposed to its owner");
        for sink in 1000..1000 + MAX_READS as u32 - 2 {
            calls.read_request(End::Responder, &request(sink, last));
        }
        assert_eq!(calls.reads.len(), MAX_READS);
        assert!(calls.read_response(End::Initiator, 100).0.is_none(), "the oldest is gone");
        assert!(calls.read_response(End::Initiator, 1000).0.is_some());
    }
}
