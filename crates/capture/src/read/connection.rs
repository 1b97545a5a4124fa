//! One TCP connection: joins the layers of both directions and reports what they give.
//!
//! Owns what is under way in each layer, all of it bounded there.

use super::{
    Shared, Sink,
    calls::{Called, Calls, add_read_items, gss_call, written_items},
    framing::{Framing, Known, Unit},
    messages::{MAX_SEND_BYTES, Messages, TaggedRun, Whole},
    packet::Segment,
    reassembly::{Piece, Reassembly},
    records::{Record, Records},
    rpc,
};
use crate::{
    content::{Body, Content, Item},
    event::{CallTag, Carries, Connection, End, Event, EventKind, Message, Rpc, Tagged},
    header::{Meaning, TransportHeader},
};
use bytes::Bytes;
use rpcrdma_iwarp::protocol::{mpa::Kind, rdmap::Opcode, terminate};
use rpcrdma_wire::{chunk::Lists, v2};
use std::{io, net::SocketAddr, rc::Rc, time::Duration};

/// Where NFS over RDMA is served: distinguishes the ends if the beginning was not captured.
const NFS_RDMA_PORT: u16 = 20049;

/// One direction.
#[derive(Debug)]
struct Half {
    reassembly: Reassembly,
    framing: Framing,
    messages: Messages,
    records: Records,
    /// The sequence number of its FIN.
    fin: Option<u32>,
}

impl Half {
    fn new() -> Self {
        Half {
            reassembly: Reassembly::default(),
            framing: Framing::new(false),
            messages: Messages::default(),
            records: Records::new(),
            fin: None,
        }
    }
}

/// Bytes of a sequence's payload that are kept: as many as of one Send.
const MAX_SEQUENCE_BYTES: usize = MAX_SEND_BYTES;

/// Messages of version 2 whose payloads belong together.
#[derive(Debug)]
struct Sequence {
    xid: u32,
    header_type: u32,
    response: bool,
    /// The payload so far, and the bytes of it that were not kept.
    kept: Vec<u8>,
    missing_bytes: u64,
    /// The items that travel in Read chunks.
    items: Vec<Item>,
}

impl Sequence {
    fn of(prefix: &v2::Prefix) -> Self {
        let (kept, items) = (Vec::new(), Vec::new());
        let response = prefix.flags.response;
        Sequence { xid: prefix.xid, header_type: prefix.header_type, response, kept, missing_bytes: 0, items }
    }

    /// Whether a message goes on with it.
    fn goes_on_with(&self, prefix: &v2::Prefix) -> bool {
        (self.xid, self.header_type, self.response) == (prefix.xid, prefix.header_type, prefix.flags.response)
    }

    /// Adds a message's payload, of which `missing_bytes` are not there.
    fn add(&mut self, payload: &[u8], missing_bytes: u64) {
        // Nothing is kept behind missing bytes.
        let room = if self.missing_bytes == 0 { MAX_SEQUENCE_BYTES.saturating_sub(self.kept.len()) } else { 0 };
        let here = payload.get(..room).unwrap_or(payload);
        self.kept.extend_from_slice(here);
        let left_out = payload.len().saturating_sub(here.len()) as u64;
        self.missing_bytes = self.missing_bytes.saturating_add(left_out).saturating_add(missing_bytes);
    }
}

/// An event, and the content of the RPC message in it.
struct Told {
    kind: EventKind,
    content: Option<Content>,
}

impl From<EventKind> for Told {
    fn from(kind: EventKind) -> Self {
        Told { kind, content: None }
    }
}

/// What both directions share.
#[derive(Debug)]
struct Common {
    ends: [SocketAddr; 2],
    /// Which of the two asked for the connection.
    initiator: usize,
    /// Whether the capture shows which end asked for it.
    begun: bool,
    /// The connection, once it is known what it carries.
    identity: Option<Rc<Connection>>,
    calls: Calls,
    /// For each end: the sequence that it has begun and not ended.
    sequences: [Option<Sequence>; 2],
    request_crc: bool,
    /// Nothing more is to be read.
    ended: bool,
}

#[derive(Debug)]
pub(super) struct Flow {
    halves: [Half; 2],
    common: Common,
    known: Known,
    closed: bool,
    /// The number of the last packet.
    pub(super) last_used: u64,
}

/// What is needed to handle a packet.
pub(super) struct Context<'a> {
    pub(super) shared: &'a mut Shared,
    pub(super) time: Duration,
    pub(super) sink: &'a mut dyn Sink,
}

impl Flow {
    pub(super) fn new(ends: [SocketAddr; 2]) -> Flow {
        let port = |end: SocketAddr| (end.port() != NFS_RDMA_PORT, end.port());
        let initiator = usize::from(port(ends[0]) < port(ends[1]));
        let (identity, calls) = (None, Calls::default());
        let sequences = [None, None];
        let common =
            Common { ends, initiator, begun: false, identity, calls, sequences, request_crc: false, ended: false };
        Flow { halves: [Half::new(), Half::new()], common, known: Known::default(), closed: false, last_used: 0 }
    }

    /// Whether the segment begins another connection between the same ports.
    pub(super) fn is_other(&self, from: usize, segment: &Segment<'_>) -> bool {
        segment.syn
            && (self.closed || self.halves.get(from).is_some_and(|half| half.reassembly.is_other(segment.sequence)))
    }

    /// Takes a segment sent by the end number `from`.
    pub(super) fn segment(&mut self, from: usize, segment: &Segment<'_>, context: &mut Context<'_>) -> io::Result<()> {
        if self.closed {
            return Ok(());
        }
        if segment.syn {
            self.common.initiator = if segment.acknowledgment.is_none() { from } else { 1 - from };
            self.common.begun = true;
            let half = &mut self.halves[from];
            if !half.reassembly.is_begun() {
                half.reassembly.begin(segment.sequence);
                half.framing = Framing::new(true);
            }
        }
        if let Some(acknowledgment) = segment.acknowledgment {
            self.reassemble(1 - from, context, |stream, waiting, out| {
                stream.acknowledged(acknowledgment, waiting, out)
            })?;
        }
        // A SYN takes the first number.
        let sequence = segment.sequence.wrapping_add(u32::from(segment.syn));
        self.reassemble(from, context, |stream, waiting, out| stream.segment(sequence, segment.payload, waiting, out))?;
        if segment.fin {
            // At most an IP packet's bytes.
            self.halves[from].fin = Some(sequence.wrapping_add(segment.payload.len() as u32));
        }
        if segment.reset || self.halves.iter().all(|half| half.fin.is_some()) {
            // The end that closed first.
            self.close(if segment.reset { from } else { 1 - from }, segment.reset, context)?;
        }
        Ok(())
    }

    fn reassemble(
        &mut self,
        from: usize,
        context: &mut Context<'_>,
        act: impl FnOnce(&mut Reassembly, &mut usize, &mut dyn FnMut(Piece<'_>) -> io::Result<()>) -> io::Result<()>,
    ) -> io::Result<()> {
        let (Half { reassembly, framing, messages, records, .. }, common, known) =
            (&mut self.halves[from], &mut self.common, &mut self.known);
        known.searched_bytes = context.shared.searched_bytes;
        let mut waiting = context.shared.waiting_bytes;
        act(reassembly, &mut waiting, &mut |piece| match piece {
            Piece::Octets(octets) => {
                if common.carries() != Some(Carries::Iwarp) {
                    let end = common.end(from);
                    let sought = records.sought(octets, |xid| common.calls.called(xid, end).is_some());
                    records.octets(&sought, &mut |record| common.record(from, record, context))?;
                }
                framing
                    .octets(octets, false, known, &mut |unit, known| common.unit(from, unit, known, messages, context))
            }
            Piece::Gap(octets) => {
                context.shared.summary.missing_bytes += octets;
                framing.gap();
                records.gap();
                let goes_on = match common.carries() {
                    Some(Carries::Iwarp) => !common.ended,
                    carries => carries.is_some(),
                };
                if goes_on {
                    common.report(from, None, EventKind::Gap { octets }, context)?;
                }
                Ok(())
            }
        })?;
        context.shared.waiting_bytes = waiting;
        context.shared.searched_bytes = known.searched_bytes;
        if common.ended {
            self.halves.iter_mut().for_each(|half| half.framing.end());
        }
        Ok(())
    }

    fn close(&mut self, from: usize, reset: bool, context: &mut Context<'_>) -> io::Result<()> {
        self.finish(context)?;
        if self.common.identity.is_some() {
            self.common.report(from, None, EventKind::Closed { reset }, context)?;
        }
        Ok(())
    }

    /// No more packets come: reads what is held as far as possible, and drops the rest.
    pub(super) fn finish(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        if self.closed {
            return Ok(());
        }
        for from in 0..2 {
            let fin = self.halves[from].fin;
            self.reassemble(from, context, |stream, waiting, out| stream.finish(fin, waiting, out))?;
            let (half, common) = (&mut self.halves[from], &mut self.common);
            let (framing, messages) = (&mut half.framing, &mut half.messages);
            framing.finish(&mut self.known, &mut |unit, known| common.unit(from, unit, known, messages, context))?;
            for whole in messages.finish() {
                common.message(from, whole, context)?;
            }
        }
        self.closed = true;
        self.halves = [Half::new(), Half::new()];
        self.common.calls = Calls::default();
        if self.common.identity.is_none() {
            context.shared.summary.other_connections += 1;
        }
        Ok(())
    }
}

impl Common {
    fn end(&self, index: usize) -> End {
        if index == self.initiator { End::Initiator } else { End::Responder }
    }

    fn report(
        &mut self,
        from: usize,
        call: Option<CallTag>,
        told: impl Into<Told>,
        context: &mut Context<'_>,
    ) -> io::Result<()> {
        let connection = self.identify(Carries::Iwarp, context);
        let Told { kind, content } = told.into();
        context.sink.event(&Event { time: context.time, connection, from: self.end(from), call, kind, content })
    }

    /// What it carries, once that is known.
    fn carries(&self) -> Option<Carries> {
        self.identity.as_ref().map(|connection| connection.carries)
    }

    /// The connection, which carries this unless something else was known before.
    fn identify(&mut self, carries: Carries, context: &mut Context<'_>) -> Rc<Connection> {
        let connection = self.identity.get_or_insert_with(|| {
            let summary = &mut context.shared.summary;
            match carries {
                Carries::Iwarp => summary.connections += 1,
                Carries::Records => summary.record_connections += 1,
            }
            Rc::new(Connection {
                number: summary.connections + summary.record_connections,
                carries,
                initiator: self.ends[self.initiator],
                responder: self.ends[1 - self.initiator],
            })
        });
        connection.clone()
    }

    fn record(&mut self, from: usize, record: Record, context: &mut Context<'_>) -> io::Result<()> {
        let replier = self.end(from);
        let kept = Bytes::from(record.head);
        let missing_bytes = record.octets.checked_sub(kept.len() as u64);
        let body = Body { kept, missing_bytes, items: &[] };
        let (rpc, content) =
            rpc::message(&body, self.calls.may_call_back(replier), |xid| self.calls.called(xid, replier)).unzip();
        if !self.begun && self.identity.is_none() && matches!(rpc, Some(Rpc::Call(_))) {
            self.initiator = from;
        }
        self.identify(Carries::Records, context);
        // Nothing here is iWARP's.
        self.ended = true;
        context.shared.summary.records += 1;
        let end = self.end(from);
        let (call, since_call) = match rpc {
            Some(Rpc::Call(id)) => {
                let called = Some(Called::of(id, content.as_ref().and_then(Option::as_ref)));
                (Some(self.calls.call(id.xid, end, called, &Lists::default(), context.time)), None)
            }
            Some(Rpc::Reply { xid, .. }) => self.calls.reply(xid, end, context.time).unzip(),
            None => (None, None),
        };
        let kind = EventKind::Record { octets: record.octets, fragments: record.fragments, rpc, since_call };
        self.report(from, call, Told { kind, content: content.flatten() }, context)
    }

    fn unit(
        &mut self,
        from: usize,
        unit: Unit<'_>,
        known: &mut Known,
        messages: &mut Messages,
        context: &mut Context<'_>,
    ) -> io::Result<()> {
        match unit {
            Unit::SetUp(kind, frame) => {
                match kind {
                    Kind::Request => {
                        if self.identity.is_none() {
                            self.initiator = from;
                        }
                        self.request_crc = frame.head.crc;
                        known.crc = frame.head.crc.then_some(true).or(known.crc);
                    }
                    Kind::Reply => known.crc = Some(frame.head.crc || self.request_crc),
                }
                let markers = frame.head.markers;
                self.ended |= frame.head.reject || markers;
                self.report(from, None, EventKind::SetUp(kind, frame), context)?;
                if markers {
                    self.report(from, None, EventKind::Unread("a peer asked for markers"), context)?;
                }
                Ok(())
            }
            Unit::Ulpdu(ulpdu) => {
                messages.ulpdu(ulpdu).into_iter().try_for_each(|whole| self.message(from, whole, context))
            }
            Unit::BadCrc { octets } => {
                context.shared.summary.bad_crcs += 1;
                self.report(from, None, EventKind::BadCrc { octets }, context)
            }
            Unit::Resumed { skipped_bytes } => self.report(from, None, EventKind::Resumed { skipped_bytes }, context),
            Unit::Unread(why) => self.report(from, None, EventKind::Unread(why), context),
            Unit::Foreign => {
                self.ended |= self.identity.is_none();
                Ok(())
            }
        }
    }

    fn message(&mut self, from: usize, whole: Whole, context: &mut Context<'_>) -> io::Result<()> {
        context.shared.summary.messages += 1;
        let end = self.end(from);
        let (call, told) = match whole {
            Whole::Send { opcode, invalidate, octets, fpdus, head, partial } => {
                let (message, content) = match (partial, octets) {
                    (true, _) => (Message::Partial, None),
                    (false, 0) => (Message::Empty, None),
                    (false, _) => self.transport(from, head, octets),
                };
                let (call, since_call) = self.sent(end, &message, content.as_ref(), context.time);
                let kind = EventKind::Send { opcode, invalidate, octets, fpdus, message, since_call };
                (call, Told { kind, content })
            }
            Whole::ReadRequest(request) => {
                (self.calls.read_request(end, &request), EventKind::ReadRequest(request).into())
            }
            Whole::Tagged(run) => self.tagged(end, run),
            Whole::Terminate(payload) => (None, EventKind::Terminate(terminate::decode(&payload)).into()),
        };
        self.report(from, call, told, context)
    }

    fn transport(&mut self, from: usize, head: Vec<u8>, octets: u64) -> (Message, Option<Content>) {
        let head = Bytes::from(head);
        let sequence = self.sequences.get_mut(from).and_then(Option::take);
        let prefix = v2::Prefix::decode(&head).ok().filter(|prefix| prefix.version == v2::VERSION);
        let goes_on = matches!((&sequence, &prefix), (Some(sequence), Some(prefix)) if sequence.goes_on_with(prefix));
        let (header, end) = match TransportHeader::decode(&head, octets, goes_on) {
            Ok(decoded) => decoded,
            Err(error) => {
                self.put_sequence(from, sequence);
                return (Message::Unreadable(error), None);
            }
        };
        let more = header.flags().more;
        let payload = head.slice(end.min(head.len())..);
        let missing_bytes = octets.saturating_sub(head.len() as u64);
        let replier = self.end(from);
        let called = |calls: &Calls, xid| calls.called(xid, replier);
        let may_call_back = self.calls.may_call_back(replier);
        let (mut rpc, mut content) = (None, None::<Option<Content>>);
        if more || goes_on {
            let begun = if goes_on { sequence } else { prefix.as_ref().map(Sequence::of) };
            if let Some(mut begun) = begun {
                if header.has_payload() {
                    if !goes_on {
                        rpc = rpc::beginning(&payload, |xid| called(&self.calls, xid));
                    }
                    begun.add(&payload, missing_bytes);
                }
                header.lists().into_iter().for_each(|lists| add_read_items(lists, &mut begun.items));
                if more {
                    self.put_sequence(from, Some(begun));
                } else if header.has_payload() {
                    let items = if begun.response { written(&header) } else { begun.items };
                    let missing_bytes = Some(begun.missing_bytes);
                    let body = Body { kept: begun.kept.into(), missing_bytes, items: &items };
                    content =
                        rpc::message(&body, may_call_back, |xid| called(&self.calls, xid)).map(|(_, content)| content);
                }
            }
        } else {
            self.put_sequence(from, sequence);
            if header.has_payload() {
                let items = if is_call(&payload) { read(&header) } else { written(&header) };
                let body = Body { kept: payload, missing_bytes: Some(missing_bytes), items: &items };
                (rpc, content) = rpc::message(&body, may_call_back, |xid| called(&self.calls, xid)).unzip();
            }
        }
        let inline_bytes = octets.saturating_sub(end as u64);
        (Message::Transport { header, inline_bytes, rpc, continues: goes_on }, content.flatten())
    }

    fn put_sequence(&mut self, from: usize, sequence: Option<Sequence>) {
        if let Some(slot) = self.sequences.get_mut(from) {
            *slot = sequence;
        }
    }

    /// The call that a Send makes or answers.
    fn sent(
        &mut self,
        from: End,
        message: &Message,
        content: Option<&Content>,
        time: Duration,
    ) -> (Option<CallTag>, Option<Duration>) {
        let Message::Transport { header, rpc, continues, .. } = message else { return (None, None) };
        let xid = header.xid();
        let called = match rpc {
            Some(Rpc::Call(id)) => Some(Called::of(*id, content)),
            _ => None,
        };
        match (header.meaning(), rpc) {
            (Meaning::Call(lists), _) if *continues => (self.calls.goes_on(xid, from, lists, gss_call(content)), None),
            (Meaning::Call(lists), _) | (Meaning::CallOrReply(lists), Some(Rpc::Call(_))) => {
                (Some(self.calls.call(xid, from, called, lists, time)), None)
            }
            (Meaning::Reply, _) | (Meaning::CallOrReply(_), Some(Rpc::Reply { .. })) => {
                self.calls.reply(xid, from, time).unzip()
            }
            (Meaning::ReplyPart, _) => (self.calls.being_answered(xid, from), None),
            (Meaning::CallOrReply(_) | Meaning::Nothing, _) => (None, None),
        }
    }

    fn tagged(&mut self, from: End, run: TaggedRun) -> (Option<CallTag>, Told) {
        let mut tagged = Tagged {
            handle: run.handle,
            offset: run.offset,
            octets: run.octets,
            fpdus: run.fpdus,
            complete: run.complete,
            rpc: None,
        };
        let is_read = run.opcode == Opcode::ReadResponse;
        let (call, brings_header) = match is_read {
            true => self.calls.read_response(from, run.handle),
            false => self.calls.write(from, run.handle, run.offset),
        };
        let mut content = None;
        if brings_header {
            let kept = Bytes::from(run.head);
            let (missing_bytes, items) = match (run.complete, is_read) {
                (false, _) => (None, Vec::new()),
                (true, true) => self.calls.long_call(call, kept.len() as u64),
                (true, false) if self.calls.long_reply_ends(call) => {
                    (run.octets.checked_sub(kept.len() as u64), Vec::new())
                }
                (true, false) => (None, Vec::new()),
            };
            let body = Body { kept, missing_bytes, items: &items };
            (tagged.rpc, content) =
                rpc::message(&body, self.calls.may_call_back(from), |xid| self.calls.called(xid, from)).unzip();
        }
        let call = match (call, tagged.rpc) {
            (Some(tag), Some(Rpc::Call(id))) if is_read => {
                let called = Called::of(id, content.as_ref().and_then(Option::as_ref));
                Some(self.calls.named(tag, called))
            }
            (call, _) => call,
        };
        let kind = if is_read { EventKind::ReadResponse(tagged) } else { EventKind::Write(tagged) };
        (call, Told { kind, content: content.flatten() })
    }
}

/// Whether an RPC message is a Call.
fn is_call(message: &[u8]) -> bool {
    message.get(4..8) == Some(&[0; 4])
}

/// The data of a call, by its header's Read chunks.
fn read(header: &TransportHeader) -> Vec<Item> {
    let mut items = Vec::new();
    header.lists().into_iter().for_each(|lists| add_read_items(lists, &mut items));
    items
}

/// The data of a reply, by its header's Write chunks.
fn written(header: &TransportHeader) -> Vec<Item> {
    header.lists().map(written_items).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sequence_keeps_octets_up_to_its_limit() {
        let new = || Sequence {
            xid: 1,
            header_type: 0,
            response: false,
            kept: Vec::new(),
            missing_bytes: 0,
            items: Vec::new(),
        };
        let payload = vec![7; MAX_SEQUENCE_BYTES - 1];
        let mut sequence = new();
        sequence.add(&payload, 0);
        sequence.add(&[1], 0);
        assert_eq!((sequence.kept.len(), sequence.missing_bytes), (MAX_SEQUENCE_BYTES, 0));
        sequence.add(&[2, 3], 4);
        assert_eq!((sequence.kept.len(), sequence.missing_bytes), (MAX_SEQUENCE_BYTES, 6));
        // Bytes behind a gap are not kept, because they would seem to follow the bytes before it.
        let mut sequence = new();
        sequence.add(&[1], 1);
        sequence.add(&[2], 0);
        assert_eq!((sequence.kept, sequence.missing_bytes), (vec![1], 2));
    }
}
