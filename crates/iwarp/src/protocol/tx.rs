//! The transmitter: cuts messages into FPDUs and lends them as slices, with payload straight from the posted octets.
//!
//! It owns posted work until it is done. Messages leave whole, one after the other; between messages, posted work and
//! answers to the peer's Reads take turns, so that neither starves. A message is done when its last octet has been
//! written.

use super::{
    crc::Crc,
    ddp::{FIRST_MSN, Header, Placement, QUEUE_READ_REQUEST, QUEUE_SEND, QUEUE_TERMINATE, UNTAGGED_OCTETS},
    fpdu::{CRC_OCTETS, LENGTH_OCTETS, MAX_HEADER_OCTETS, Segmentation, pad_bytes},
    framed::{COPIED_OCTETS, Framed, WriteSlices},
    inbound::Served,
    rdmap::{Opcode, ReadRequest},
    writes::{DoneWrites, Refused, Span},
};
use bytes::{Buf, Bytes};
use rpcrdma_env::Slices;
use rpcrdma_fabric::{Completion, SendWork, Token, WorkError, WorkKind, WriteWork};
use smallvec::smallvec;
use std::collections::VecDeque;

/// What to report when a message is done.
struct Report {
    token: Token,
    kind: WorkKind,
    signaled: bool,
    /// The destination of a Write.
    span: Option<Span>,
    /// The position in the stream of its first segment, once that is framed.
    begins: Option<u64>,
}

impl Report {
    fn new(token: Token, kind: WorkKind, signaled: bool, span: Option<Span>) -> Self {
        Report { token, kind, signaled, span, begins: None }
    }

    /// Whether the peer can have refused this Write there: some of its octets have left.
    fn is_refused(&self, refused: Refused, written: u64) -> bool {
        self.begins.is_some_and(|begins| begins < written) && self.span.is_some_and(|span| span.holds(refused))
    }
}

fn failed(token: Token, kind: WorkKind, error: WorkError) -> Completion {
    Completion::Failed { token, kind, error, buffer: None }
}

struct Message {
    opcode: Opcode,
    /// The steering tag of the destination, or the tag to invalidate.
    stag: u32,
    /// Of a tagged message: the offset of its first octet in the destination.
    offset: u64,
    parts: smallvec::IntoIter<[Bytes; 2]>,
    part: Bytes,
    /// Octets already framed, and octets left.
    sent: usize,
    left: usize,
    report: Option<Report>,
}

impl Message {
    fn new(opcode: Opcode, stag: u32, offset: u64, octets: Slices, report: Option<Report>) -> Self {
        let left = octets.iter().map(Bytes::len).sum();
        Message { opcode, stag, offset, parts: octets.into_iter(), part: Bytes::new(), sent: 0, left, report }
    }
}

pub(crate) struct Transmitter {
    crc: Option<Crc>,
    cut: Segmentation,
    queue: VecDeque<Message>,
    current: Option<Message>,
    answered_last: bool,
    framed: Framed,
    /// The positions in the stream at which messages end whose completion must be reported.
    ends: VecDeque<(u64, Report)>,
    done: DoneWrites,
    msn: [u32; 3],
    posted: usize,
}

impl Transmitter {
    pub(crate) fn new(with_crc: bool, cut: Segmentation) -> Self {
        Transmitter {
            crc: with_crc.then(Crc::new),
            cut,
            queue: VecDeque::new(),
            current: None,
            answered_last: false,
            framed: Framed::default(),
            ends: VecDeque::new(),
            done: DoneWrites::default(),
            msn: [FIRST_MSN; 3],
            posted: 0,
        }
    }

    /// Sends and Writes that are posted and not done.
    pub(crate) fn posted(&self) -> usize {
        self.posted
    }

    /// Whether nothing is left to write.
    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty() && self.current.is_none() && self.framed.is_empty()
    }

    /// Posts a Send. If it is short and its turn has come, it is framed `at_once`, which is less work than to queue it.
    pub(crate) fn send(&mut self, send: SendWork, at_once: bool) {
        self.posted += 1;
        let opcode = Opcode::send(send.invalidate.is_some(), send.solicited);
        let report = Report::new(send.token, WorkKind::Send, send.signaled, None);
        let stag = send.invalidate.unwrap_or(0);
        let len: usize = send.octets.iter().map(Bytes::len).sum();
        let is_next = self.queue.is_empty() && self.current.is_none() && self.framed.has_room();
        if at_once && is_next && len <= COPIED_OCTETS.min(self.cut.untagged_octets) {
            return self.frame_short(opcode, stag, &send.octets, report);
        }
        self.queue.push_back(Message::new(opcode, stag, 0, send.octets, Some(report)));
    }

    /// Frames a Send that is one segment.
    // MPA-5044-4.1-a, DDP-5041-5.1-a, MPA-5044-4.4-b, RDMAP-5040-4.4-a
    fn frame_short(&mut self, opcode: Opcode, stag: u32, octets: &[Bytes], report: Report) {
        self.answered_last = false;
        let [msn, ..] = &mut self.msn;
        let placement = Placement::Untagged { queue: QUEUE_SEND, msn: *msn, offset: 0, invalidate: stag };
        *msn = msn.wrapping_add(1);
        let len = octets.iter().map(Bytes::len).sum();
        let (head, header_octets) = head(&Header { opcode, last: true, placement }, len);
        let crc = &mut self.crc;
        self.framed.append(|out| {
            let begin = out.len();
            out.extend_from_slice(&head);
            octets.iter().for_each(|part| out.extend_from_slice(part));
            out.extend_from_slice([0; 3].get(..pad_bytes(header_octets + len)).unwrap_or_default());
            let crc = crc.as_mut().map_or([0; CRC_OCTETS], |crc| {
                crc.reset();
                crc.update(out.get(begin..).unwrap_or_default());
                crc.octets()
            });
            out.extend_from_slice(&crc);
        });
        self.ends.push_back((self.framed.end(), report));
    }

    pub(crate) fn write(&mut self, write: WriteWork) {
        self.posted += 1;
        let octets = write.octets.iter().map(|octets| octets.len() as u64).sum();
        let span = Span { stag: write.handle, offset: write.offset, octets };
        let report = Report::new(write.token, WorkKind::Write, write.signaled, Some(span));
        let message = Message::new(Opcode::Write, write.handle, write.offset, write.octets, Some(report));
        self.queue.push_back(message);
    }

    /// Queues an RDMA Write without data, which reports no completion.
    pub(crate) fn nudge(&mut self) {
        self.queue.push_back(Message::new(Opcode::Write, 0, 0, Slices::new(), None));
    }

    /// Whether any octet was ever written.
    pub(crate) fn has_written(&self) -> bool {
        self.framed.written() > 0
    }

    pub(crate) fn read_request(&mut self, request: ReadRequest) {
        let octets = smallvec![Bytes::copy_from_slice(&request.encode())];
        self.queue.push_back(Message::new(Opcode::ReadRequest, 0, 0, octets, None));
    }

    /// Queues a Terminate.
    pub(crate) fn terminate(&mut self, payload: Vec<u8>) {
        self.queue.push_back(Message::new(Opcode::Terminate, 0, 0, smallvec![payload.into()], None));
    }

    /// Reports all work as flushed, except the Write of which the peer has `refused` a segment: if octets of it have
    /// left, it has failed, even if it was done. Framed octets still leave, unless `framed_too`.
    pub(crate) fn flush(&mut self, framed_too: bool, refused: Option<Refused>, events: &mut VecDeque<Completion>) {
        let framed = self.ends.drain(..).map(|(_, report)| report);
        let rest = self.current.take().into_iter().chain(self.queue.drain(..)).filter_map(|m| m.report);
        let undone: Vec<Report> = framed.chain(rest).collect();
        let guilty =
            refused.and_then(|refused| undone.iter().rposition(|r| r.is_refused(refused, self.framed.written())));
        if guilty.is_none() {
            let done = refused.and_then(|refused| self.done.refused(refused));
            events.extend(done.map(|token| failed(token, WorkKind::Write, WorkError::RemoteAccess)));
        }
        events.extend(undone.into_iter().enumerate().map(|(index, report)| {
            let error = if guilty == Some(index) { WorkError::RemoteAccess } else { WorkError::Flushed };
            failed(report.token, report.kind, error)
        }));
        self.done.clear();
        self.posted = 0;
        if framed_too {
            self.framed.clear();
        }
    }

    /// Frames ahead.
    pub(crate) fn fill(&mut self, served: &mut VecDeque<Served>) {
        while self.framed.has_room() {
            let Some(mut message) = self.current.take().or_else(|| self.next(served)) else { return };
            if self.frame(&mut message) {
                if let Some(report) = message.report {
                    self.ends.push_back((self.framed.end(), report));
                }
            } else {
                self.current = Some(message);
            }
        }
    }

    // RDMAP-5040-5.2-b
    fn next(&mut self, served: &mut VecDeque<Served>) -> Option<Message> {
        let answer = if self.answered_last { self.queue.is_empty() } else { !served.is_empty() };
        self.answered_last = answer;
        if !answer {
            return self.queue.pop_front();
        }
        served
            .pop_front()
            .map(|s| Message::new(Opcode::ReadResponse, s.sink_stag, s.sink_offset, smallvec![s.octets], None))
    }

    /// Frames the next segment of `message`. Returns whether it is the last one.
    // MPA-5044-4.1-a, DDP-5041-5.1-a, MPA-5044-4.4-b
    fn frame(&mut self, message: &mut Message) -> bool {
        let tagged = message.opcode.tagged();
        let most = if tagged { self.cut.tagged_octets } else { self.cut.untagged_octets };
        let len = message.left.min(most);
        let last = len == message.left;
        let placement = self.placement(message, last);
        let (head, header_bytes) = head(&Header { opcode: message.opcode, last, placement }, len);
        let ulpdu_octets = header_bytes + len;
        if let Some(report) = &mut message.report {
            report.begins.get_or_insert(self.framed.end());
        }

        if let Some(crc) = &mut self.crc {
            crc.reset();
        }
        let mut mark = self.framed.mark();
        self.framed.copy(head.get(..LENGTH_OCTETS + header_bytes).unwrap_or_default());
        let mut left = len;
        while left > 0 {
            if message.part.is_empty() {
                match message.parts.next() {
                    Some(part) => message.part = part,
                    None => break,
                }
                continue;
            }
            let now = left.min(message.part.len());
            left -= now;
            let run = message.part.get(..now).unwrap_or_default();
            if Framed::is_short(run) {
                self.framed.copy(run);
                message.part.advance(now);
                continue;
            }
            if let Some(crc) = &mut self.crc {
                crc.update(self.framed.copied_since(mark));
                crc.update(run);
            }
            self.framed.share(message.part.split_to(now));
            mark = self.framed.mark();
        }
        self.framed.copy([0; 3].get(..pad_bytes(ulpdu_octets)).unwrap_or_default());
        let crc = self.crc.as_mut().map_or([0; CRC_OCTETS], |crc| {
            crc.update(self.framed.copied_since(mark));
            crc.octets()
        });
        self.framed.copy(&crc);

        message.sent += len;
        message.left -= len;
        last
    }

    // DDP-5041-5.1-a, DDP-5041-5.2-a, RDMAP-5040-4.4-a
    fn placement(&mut self, message: &Message, last: bool) -> Placement {
        if message.opcode.tagged() {
            let offset = message.offset.wrapping_add(message.sent as u64);
            return Placement::Tagged { stag: message.stag, offset };
        }
        let queue = match message.opcode {
            Opcode::ReadRequest => QUEUE_READ_REQUEST,
            Opcode::Terminate => QUEUE_TERMINATE,
            _ => QUEUE_SEND,
        };
        let counter = match queue {
            QUEUE_READ_REQUEST => &mut self.msn[1],
            QUEUE_TERMINATE => &mut self.msn[2],
            _ => &mut self.msn[0],
        };
        let msn = *counter;
        if last {
            *counter = msn.wrapping_add(1);
        }
        // The length of a message was limited to less than 2^32 when it was posted.
        Placement::Untagged { queue, msn, offset: message.sent as u32, invalidate: message.stag }
    }

    /// The slices to write next, in this order.
    pub(crate) fn slices(&self) -> WriteSlices<'_> {
        self.framed.slices()
    }

    /// The driver has written the first `octets` octets of the [slices](Self::slices).
    // V2-3.2.2.4-a
    pub(crate) fn written(&mut self, octets: usize, events: &mut VecDeque<Completion>) {
        self.framed.wrote(octets);
        let written = self.framed.written();
        while let Some((_, report)) = self.ends.pop_front_if(|(end, _)| *end <= written) {
            self.posted = self.posted.saturating_sub(1);
            if let Some(span) = report.span {
                self.done.add(report.token, span, report.signaled);
            }
            if report.signaled {
                events.push_back(Completion::Done { token: report.token, kind: report.kind });
            }
        }
    }
}

/// Length field and header of a segment with `octets` of payload, and the length of the header.
fn head(header: &Header, octets: usize) -> ([u8; MAX_HEADER_OCTETS], usize) {
    let mut encoded = [0; UNTAGGED_OCTETS];
    let header_octets = header.encode(&mut encoded);
    let mut head = [0; MAX_HEADER_OCTETS];
    // The segmentation keeps a ULPDU within what its length field can state.
    head[..LENGTH_OCTETS].copy_from_slice(&((header_octets + octets) as u16).to_be_bytes());
    head[LENGTH_OCTETS..].copy_from_slice(&encoded);
    (head, header_octets)
}

/// The only FPDU of a connection that ends before it begins: the Terminate for `fault`.
pub fn terminate_fpdu(fault: &super::fault::Fault, with_crc: bool) -> Option<Vec<u8>> {
    let payload = super::terminate::encode(fault, super::terminate::Offender::default())?;
    let mut tx = Transmitter::new(with_crc, Segmentation::for_fpdu(0));
    tx.terminate(payload);
    tx.fill(&mut VecDeque::new());
    Some(tx.slices().iter().flat_map(|slice| slice.iter().copied()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drain(tx: &mut Transmitter, served: &mut VecDeque<Served>) -> Vec<u8> {
        let mut out = Vec::new();
        loop {
            tx.fill(served);
            let chunk: Vec<u8> = tx.slices().iter().flat_map(|s| s.to_vec()).collect();
            if chunk.is_empty() {
                return out;
            }
            tx.written(chunk.len(), &mut VecDeque::new());
            out.extend(chunk);
        }
    }

    fn tx(crc: bool) -> Transmitter {
        Transmitter::new(crc, Segmentation::for_mss(1460))
    }

    fn hex(text: &str) -> Vec<u8> {
        let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
        digits.chunks(2).map(|d| u8::from_str_radix(std::str::from_utf8(d).unwrap(), 16).unwrap()).collect()
    }

    /// proves: MPA-5044-4.1-a, DDP-5041-4.3-a, DDP-5041-5.2-a
    #[test]
    fn golden_sends_without_crc() {
        for at_once in [false, true] {
            let mut tx = tx(false);
            tx.send(SendWork { octets: vec![Bytes::from_static(b"hello")].into(), ..SendWork::default() }, at_once);
            let second = SendWork {
                octets: vec![Bytes::from_static(b"ab"), Bytes::from_static(b"cd")].into(),
                invalidate: Some(0x01020304),
                solicited: true,
                ..SendWork::default()
            };
            tx.send(second, at_once);
            let expected = hex("0017 4143 00000000 00000000 00000001 00000000 68656c6c6f 000000 00000000
                 0016 4146 01020304 00000000 00000002 00000000 61626364 00000000");
            assert_eq!(drain(&mut tx, &mut VecDeque::new()), expected);
        }
    }

    /// Whichever Sends are framed at once, the peer gets the same octets.
    /// proves: MPA-5044-4.1-a, MPA-5044-4.4-b, DDP-5041-5.1-a, RDMAP-5040-4.4-a
    #[test]
    fn sends_framed_at_once_are_the_same_octets_in_the_same_order() {
        let sent = |at_once: fn(usize) -> bool| {
            let mut tx = tx(true);
            for (number, len) in [0, 1, 100, 511, 512, 513, 3, 1400, 1500, 40, 512].into_iter().enumerate() {
                let whole = Bytes::from(vec![number as u8; len]);
                let octets = vec![whole.slice(..len / 3), whole.slice(len / 3..)].into();
                tx.send(SendWork { octets, ..SendWork::default() }, at_once(number));
            }
            assert_eq!(tx.posted(), 11);
            drain(&mut tx, &mut VecDeque::new())
        };
        let queued = sent(|_| false);
        assert_eq!(queued.len(), 5092 + 12 * 24 + 8, "payload, twelve FPDUs, padding");
        assert!(sent(|_| true) == queued && sent(|number| number % 2 == 0) == queued);
    }

    /// proves: MPA-5044-4.4-b, DDP-5041-4.2-a
    #[test]
    fn a_golden_write_with_crc() {
        let mut tx = tx(true);
        tx.write(WriteWork {
            octets: vec![Bytes::from_static(b"abc")].into(),
            handle: 0xAABBCCDD,
            offset: 0x10,
            ..WriteWork::default()
        });
        let octets = drain(&mut tx, &mut VecDeque::new());
        let covered = hex("0011 c140 aabbccdd 0000000000000010 616263 00");
        let mut crc = Crc::new();
        crc.update(&covered);
        assert_eq!(octets[..covered.len()], covered[..]);
        assert_eq!(octets[covered.len()..], crc.octets());
    }

    /// proves: RDMAP-5040-4.4-a, RDMAP-5040-5.2-b
    #[test]
    fn golden_read_request_response_and_terminate() {
        let mut tx = tx(false);
        tx.read_request(ReadRequest { sink_stag: 1, sink_offset: 2, size: 3, source_stag: 4, source_offset: 5 });
        let expected = hex("002e 4141 00000000 00000001 00000001 00000000
             00000001 0000000000000002 00000003 00000004 0000000000000005 00000000");
        assert_eq!(drain(&mut tx, &mut VecDeque::new()), expected);

        let served = Served { sink_stag: 1, sink_offset: 2, octets: Bytes::from_static(b"xyz") };
        let expected = hex("0011 c142 00000001 0000000000000002 78797a 00 00000000");
        assert_eq!(drain(&mut tx, &mut VecDeque::from([served])), expected);

        tx.terminate(vec![0x20, 2, 0, 0]);
        let expected = hex("0016 4147 00000000 00000002 00000001 00000000 20020000 00000000");
        assert_eq!(drain(&mut tx, &mut VecDeque::new()), expected);
    }

    /// proves: DDP-5041-5.1-a
    #[test]
    fn segments_continue_each_other_and_the_last_one_says_so() {
        let message: Vec<u8> = (0..3000u32).map(|at| (at ^ (at >> 8)) as u8).collect();
        let cut = |from: usize, to: usize| Bytes::copy_from_slice(&message[from..to]);
        let parts = || vec![cut(0, 1), cut(1, 1500), Bytes::new(), cut(1500, 3000)];
        let mut tx = tx(true);
        tx.send(SendWork { octets: parts().into(), ..SendWork::default() }, true);
        tx.write(WriteWork { octets: parts().into(), handle: 5, offset: 1 << 40, ..WriteWork::default() });
        let octets = drain(&mut tx, &mut VecDeque::new());
        let mut at = 0;
        let (mut sent, mut written) = (Vec::new(), Vec::new());
        let (mut offsets, mut tagged_offsets) = (Vec::new(), Vec::new());
        while at < octets.len() {
            let len = usize::from(u16::from_be_bytes([octets[at], octets[at + 1]]));
            let ulpdu = &octets[at + 2..at + 2 + len];
            let header = Header::decode(ulpdu).unwrap();
            let payload = &ulpdu[super::super::ddp::header_bytes(ulpdu[0])..];
            match header.placement {
                Placement::Untagged { msn, offset, .. } => {
                    offsets.push((msn, offset, header.last));
                    sent.extend_from_slice(payload);
                }
                Placement::Tagged { stag, offset } => {
                    assert_eq!((stag, offset), (5, (1 << 40) + written.len() as u64));
                    tagged_offsets.push((offset - (1 << 40), header.last));
                    written.extend_from_slice(payload);
                }
            }
            at += LENGTH_OCTETS + len + pad_bytes(len) + CRC_OCTETS;
        }
        assert_eq!(offsets, [(1, 0, false), (1, 1436, false), (1, 2872, true)]);
        assert_eq!(tagged_offsets, [(0, false), (1440, false), (2880, true)]);
        assert!(sent == message && written == message, "the bytes in their order");
    }

    #[test]
    fn work_and_answers_take_turns() {
        let mut tx = tx(false);
        for _ in 0..3 {
            tx.write(WriteWork { octets: vec![Bytes::from_static(b"w")].into(), ..WriteWork::default() });
        }
        let answer = || Served { sink_stag: 0, sink_offset: 0, octets: Bytes::from_static(b"r") };
        let mut served = VecDeque::from([answer(), answer()]);
        let octets = drain(&mut tx, &mut served);
        let kinds: Vec<u8> = octets.chunks(2 + 14 + 1 + 3 + 4).map(|fpdu| fpdu[3] & 0x0F).collect();
        assert_eq!(kinds, [2, 0, 2, 0, 0]);
    }

    #[test]
    fn done_is_said_when_the_last_octet_is_written_and_only_if_asked_for() {
        for at_once in [false, true] {
            let mut tx = tx(false);
            for (token, signaled) in [(1, true), (2, false), (3, true)] {
                let send = SendWork {
                    token: Token(token),
                    octets: vec![vec![0; 100].into()].into(),
                    signaled,
                    ..SendWork::default()
                };
                tx.send(send, at_once);
            }
            tx.fill(&mut VecDeque::new());
            let total: usize = tx.slices().iter().map(|s| s.len()).sum();
            let mut events = VecDeque::new();
            tx.written(total / 3 - 1, &mut events);
            assert!(events.is_empty());
            tx.written(1, &mut events);
            assert!(matches!(events.pop_front(), Some(Completion::Done { token: Token(1), .. })));
            tx.written(total / 3, &mut events);
            assert!(events.is_empty());
            assert_eq!(tx.posted(), 1);
            tx.written(total / 3, &mut events);
            assert!(matches!(events.pop_front(), Some(Completion::Done { token: Token(3), .. })));
            assert!(tx.is_empty());
        }
    }
}
