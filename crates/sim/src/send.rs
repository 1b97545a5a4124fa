//! Starts work: posted work goes to the network, in order.

use crate::{
    endpoint::{Channel, Failing, Fin, OpenRead, Segment, Sent, Work, side, total},
    log::Event,
    state::State,
};
use rpcrdma_fabric::{CloseReason, Completion, ReadWork, RemoteSegment, SendWork, Token, WorkKind, WriteWork};

impl State {
    /// Starts all work that end `id` can start now.
    pub(crate) fn kick(&mut self, id: u64) {
        loop {
            self.issue_reads(id);
            let Some(end) = self.open_end(id) else { return };
            if end.stalls_behind_reads && !end.segments.is_empty() {
                return;
            }
            match end.posted.pop_front() {
                Some(Work::Send(send)) => self.start_send(id, send),
                Some(Work::Write(write)) => self.start_write(id, write),
                Some(Work::Read(read)) => self.start_read(id, read),
                None => break,
            }
        }
        let Some(end) = self.open_end(id) else { return };
        if end.fin == Fin::Wanted && end.reads.is_empty() {
            end.fin = Fin::Sent;
            self.transmit(id, Channel::Ordered, 0, move |state| state.fin_arrives(id ^ 1));
        }
    }

    /// Records a Send or Write as under way, and returns its number.
    fn note_sent(&mut self, id: u64, token: Token, kind: WorkKind, signaled: bool) -> u64 {
        let Some(end) = self.endpoints.get_mut(&id) else { return 0 };
        let number = end.number();
        let early = end.early;
        end.sent.push_back(Sent { number, token, kind, signaled });
        if early {
            self.locally(id, Channel::Local, move |state| state.retire(id, number));
        }
        number
    }

    fn start_send(&mut self, id: u64, send: SendWork) {
        let octets = total(&send.octets);
        let number = self.note_sent(id, send.token, WorkKind::Send, send.signaled);
        self.record_started(id, WorkKind::Send, send.token, octets);
        self.transmit(id, Channel::Ordered, octets, move |state| {
            state.send_arrives(id ^ 1, number, &send.octets, send.invalidate);
        });
    }

    fn start_write(&mut self, id: u64, write: WriteWork) {
        let octets = total(&write.octets);
        let number = self.note_sent(id, write.token, WorkKind::Write, write.signaled);
        self.record_started(id, WorkKind::Write, write.token, octets);
        self.transmit(id, Channel::Ordered, octets, move |state| {
            state.write_arrives(id ^ 1, number, &write.octets, write.handle, write.offset);
        });
    }

    fn start_read(&mut self, id: u64, read: ReadWork) {
        let Some(end) = self.endpoints.get_mut(&id) else { return };
        let number = end.number();
        let mut at = 0;
        for source in &read.sources {
            end.segments.push_back(Segment { read: number, at, source: *source });
            at += source.length as usize;
        }
        let segments = read.sources.len();
        let (token, octets) = (read.token, at);
        end.reads.insert(number, OpenRead { token, sink: read.sink, octets, segments_left: segments, segments });
        self.record_started(id, WorkKind::Read, token, octets);
    }

    /// Issues Read requests as far as the ORD allows.
    fn issue_reads(&mut self, id: u64) {
        while let Some(end) = self.open_end(id) {
            if end.reading >= usize::from(end.info.ord) {
                return;
            }
            let Some(Segment { read, at, source }) = end.segments.pop_front() else { return };
            end.reading += 1;
            self.transmit(id, Channel::Ordered, 0, move |state| state.read_arrives(id ^ 1, read, at, source));
        }
    }

    /// A Send or Write of end `id` is done.
    pub(crate) fn retire(&mut self, id: u64, number: u64) {
        let Some(end) = self.open_end(id) else { return };
        // With early completion it may already be gone.
        if end.sent.front().is_none_or(|sent| sent.number != number) {
            return;
        }
        let Some(sent) = end.sent.pop_front() else { return };
        end.outstanding = end.outstanding.saturating_sub(1);
        if end.early {
            end.depart(&sent);
        }
        if sent.signaled {
            self.complete(id, Completion::Done { token: sent.token, kind: sent.kind });
        }
    }

    /// Tells the peer of end `from` that its work has arrived.
    pub(crate) fn acknowledge(&mut self, from: u64, number: u64) {
        let peer = from ^ 1;
        if self.endpoints.get(&peer).is_some_and(|end| end.early) {
            return;
        }
        self.transmit(from, Channel::Acks, 0, move |state| state.retire(peer, number));
    }

    /// Bytes of a Read of end `id` have arrived.
    pub(crate) fn response_arrives(&mut self, id: u64, read: u64, at: usize, octets: &[u8]) {
        let Some(end) = self.open_end(id) else { return };
        end.reading = end.reading.saturating_sub(1);
        let Some(open) = end.reads.get_mut(&read) else { return };
        open.sink.bytes_mut()[at..at + octets.len()].copy_from_slice(octets);
        open.segments_left -= 1;
        if open.segments_left == 0
            && let Some(mut open) = end.reads.remove(&read)
        {
            end.outstanding = end.outstanding.saturating_sub(open.segments);
            open.sink.set_len(open.octets);
            self.complete(id, Completion::Read { token: open.token, sink: open.sink });
        }
        self.kick(id);
    }

    /// The peer of end `id` reports that our work broke a rule.
    pub(crate) fn terminate_arrives(&mut self, id: u64, rule: &str, failing: Option<&Failing>) {
        self.end(id, CloseReason::Terminated(rule.to_owned()), failing);
    }

    fn record_started(&mut self, id: u64, kind: WorkKind, token: Token, octets: usize) {
        self.record(Event::Started { connection: id / 2, side: side(id), kind, token, octets });
    }
}

/// How many bytes the segments have in all.
pub(crate) fn segments_total(segments: &[RemoteSegment]) -> usize {
    segments.iter().map(|segment| segment.length as usize).fold(0, usize::saturating_add)
}
