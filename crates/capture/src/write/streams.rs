//! Connections as a capture shows them: a handshake, segments with numbers that fit, and a FIN from each end.
//!
//! Sequence numbers count the bytes that went each way, those left out as well, so that a reader sees a gap where
//! there is one. A packet acknowledges all that has come from the other end before it.

use super::{
    WriteError, Written,
    frames::Frames,
    packets::{Header, Packets},
    queue::Event,
};
use rpcrdma_iwarp::Direction;
use std::{collections::BTreeMap, io::Write, net::SocketAddr, time::Duration};

/// The first sequence numbers of two connections lie this far apart, so that a reader tells a port's next use from the
/// one before.
const SEQUENCE_STEP: u32 = 0x0100_0193;
/// The numbers of the two ends in Ethernet addresses: the end that connects, and the end that accepts.
const INITIATOR: u8 = 1;
const RESPONDER: u8 = 2;

struct End {
    address: SocketAddr,
    number: u8,
    next: u32,
    frames: Frames,
    comment: Option<String>,
}

struct Connection {
    /// The local end, and the peer's.
    ends: [End; 2],
}

pub(super) struct Streams<W: Write> {
    packets: Packets<W>,
    open: BTreeMap<u64, Connection>,
    segment_bytes: usize,
    limit_bytes: usize,
    written: Written,
}

impl<W: Write> Streams<W> {
    pub(super) fn new(packets: Packets<W>, segment_bytes: usize, limit_bytes: usize) -> Self {
        Streams { packets, open: BTreeMap::new(), segment_bytes, limit_bytes, written: Written::default() }
    }

    pub(super) fn event(&mut self, event: &Event) -> Result<(), WriteError> {
        match event {
            &Event::Open { id, time, local, peer, initiator } => self.open(id, time, local, peer, initiator),
            Event::Octets { id, time, direction, octets, lost_before } => {
                let Some(connection) = self.open.get_mut(id) else { return Ok(()) };
                let from = match direction {
                    Direction::Sent => 0,
                    Direction::Received => 1,
                };
                if *lost_before > 0 {
                    let held = connection.ends[from].frames.lose_track();
                    connection.segments(&mut self.packets, *time, from, &held, self.segment_bytes)?;
                    connection.ends[from].lose(*lost_before, self.limit_bytes);
                }
                self.written.octets += octets.len() as u64;
                connection.octets(&mut self.packets, *time, from, octets, self.segment_bytes)
            }
            &Event::Close { id, time } => match self.open.remove(&id) {
                Some(connection) => connection.close(&mut self.packets, time, self.segment_bytes),
                None => Ok(()),
            },
        }
    }

    fn open(
        &mut self,
        id: u64,
        time: Duration,
        local: SocketAddr,
        peer: SocketAddr,
        initiator: bool,
    ) -> Result<(), WriteError> {
        // Wraps, as sequence numbers do.
        let first = (id as u32).wrapping_add(1).wrapping_mul(SEQUENCE_STEP);
        let end = |address, initiator| End {
            address,
            number: if initiator { INITIATOR } else { RESPONDER },
            next: first,
            frames: Frames::new(),
            comment: None,
        };
        let mut connection = Connection { ends: [end(local, initiator), end(peer, !initiator)] };
        let (asks, answers) = if initiator { (0, 1) } else { (1, 0) };
        connection.control(&mut self.packets, time, asks, Header { syn: true, ..Header::default() }, false)?;
        connection.control(&mut self.packets, time, answers, Header { syn: true, ..Header::default() }, true)?;
        connection.control(&mut self.packets, time, asks, Header::default(), true)?;
        self.open.insert(id, connection);
        Ok(())
    }

    pub(super) fn flush(&mut self) -> Result<(), WriteError> {
        self.packets.flush()
    }

    /// Writes what is held of connections that are still open, without a FIN.
    pub(super) fn finish(mut self, dropped_bytes: u64, dropped_connections: u64) -> Result<Written, WriteError> {
        let time = self.packets.last_time;
        for (_, mut connection) in std::mem::take(&mut self.open) {
            connection.flush(&mut self.packets, time, self.segment_bytes)?;
        }
        let comment = (dropped_bytes > 0 || dropped_connections > 0).then(|| {
            format!(
                "{dropped_bytes} bytes and {dropped_connections} connections are not in this file: the disk was too \
                 slow, and no more than {} bytes may wait to be written",
                self.limit_bytes
            )
        });
        let packets = self.packets.finish(comment)?;
        Ok(Written { packets, dropped_bytes, dropped_connections, ..self.written })
    }
}

impl End {
    fn lose(&mut self, octets: u64, limit_bytes: usize) {
        // Wraps, as sequence numbers do.
        self.next = self.next.wrapping_add(octets as u32);
        self.comment = Some(format!(
            "{octets} bytes before these are not in this file: the disk was too slow, and no more than {limit_bytes} \
             bytes may wait to be written"
        ));
    }
}

impl Connection {
    /// A packet from one end to the other.
    fn packet<W: Write>(
        &mut self,
        packets: &mut Packets<W>,
        time: Duration,
        from: usize,
        header: Header,
        payload: &[u8],
    ) -> Result<(), WriteError> {
        let [local, peer] = &mut self.ends;
        let (from, to) = if from == 0 { (local, peer) } else { (peer, local) };
        let header = Header { sequence: from.next, ..header };
        let ends = ((from.address, from.number), (to.address, to.number));
        packets.write(time, ends, header, payload, from.comment.take())?;
        // A segment has at most 32 KiB.
        let used = payload.len() as u32 + u32::from(header.syn) + u32::from(header.fin);
        from.next = from.next.wrapping_add(used);
        Ok(())
    }

    fn control<W: Write>(
        &mut self,
        packets: &mut Packets<W>,
        time: Duration,
        from: usize,
        header: Header,
        acknowledges: bool,
    ) -> Result<(), WriteError> {
        let acknowledgment = acknowledges.then_some(self.ends[1 - from].next);
        self.packet(packets, time, from, Header { acknowledgment, ..header }, &[])
    }

    fn octets<W: Write>(
        &mut self,
        packets: &mut Packets<W>,
        time: Duration,
        from: usize,
        octets: &[u8],
        segment_bytes: usize,
    ) -> Result<(), WriteError> {
        let mut frames = std::mem::replace(&mut self.ends[from].frames, Frames::new());
        let result = frames.push(octets, |frame| self.segments(packets, time, from, frame, segment_bytes));
        self.ends[from].frames = frames;
        result
    }

    fn segments<W: Write>(
        &mut self,
        packets: &mut Packets<W>,
        time: Duration,
        from: usize,
        octets: &[u8],
        segment_bytes: usize,
    ) -> Result<(), WriteError> {
        let mut pieces = octets.chunks(segment_bytes).peekable();
        while let Some(piece) = pieces.next() {
            let header = Header {
                acknowledgment: Some(self.ends[1 - from].next),
                push: pieces.peek().is_none(),
                ..Header::default()
            };
            self.packet(packets, time, from, header, piece)?;
        }
        Ok(())
    }

    fn flush<W: Write>(
        &mut self,
        packets: &mut Packets<W>,
        time: Duration,
        segment_bytes: usize,
    ) -> Result<(), WriteError> {
        for from in 0..2 {
            let held = self.ends[from].frames.lose_track();
            self.segments(packets, time, from, &held, segment_bytes)?;
        }
        Ok(())
    }

    fn close<W: Write>(
        mut self,
        packets: &mut Packets<W>,
        time: Duration,
        segment_bytes: usize,
    ) -> Result<(), WriteError> {
        self.flush(packets, time, segment_bytes)?;
        let fin = Header { fin: true, ..Header::default() };
        self.control(packets, time, 0, fin, true)?;
        self.control(packets, time, 1, fin, true)?;
        self.control(packets, time, 0, Header::default(), true)
    }
}
