//! Writes what the hosts gave to their providers as a capture file of iWARP, which this project's readers of captures
//! can read.
//!
//! The simulated network has no bytes of its own. In the file a message has the time at which it was posted, whether or
//! not it arrived; the data of a Read have the time at which they were known. Owns copies of the bytes until the file
//! is written.

use crate::lock;
use rpcrdma_capture::{Options, WriteError, Written, capture};
use rpcrdma_env::Clock;
use rpcrdma_fabric::{RemoteSegment, SendWork, WriteWork};
use rpcrdma_iwarp::{
    Direction, Tap, TapStream,
    protocol::{
        crc::Crc,
        ddp::{Header, Placement, UNTAGGED_OCTETS},
        fpdu::pad_bytes,
        mpa::{Enhanced, Frame, Head, Kind},
        rdmap::{Opcode, ReadRequest},
    },
};
use std::{
    collections::BTreeMap,
    io,
    net::SocketAddr,
    sync::{Arc, Mutex},
};

/// Payload bytes of a segment.
const SEGMENT_OCTETS: usize = 16 << 10;
/// The most bytes in the capture of one run; the rest is left out, and the file says so.
const CAPTURE_OCTETS: usize = 1 << 30;

/// A connection as the file shows it.
struct Stream {
    tap: Box<dyn TapStream>,
    /// Message numbers of Sends and of Read requests, for each direction.
    numbers: [(u32, u32); 2],
}

/// Collects what goes over all connections.
pub struct Recorder {
    tap: Arc<rpcrdma_capture::Capture>,
    writer: Mutex<Option<rpcrdma_capture::CaptureWriter>>,
    /// By the initiator's address.
    streams: Mutex<BTreeMap<SocketAddr, Stream>>,
}

impl Recorder {
    /// A recorder without records.
    pub fn new(clock: Arc<dyn Clock>) -> Arc<Self> {
        let mut options = Options::default();
        options.pending_bytes = CAPTURE_OCTETS;
        let (tap, writer) = capture(clock, options);
        Arc::new(Self { tap, writer: Mutex::new(Some(writer)), streams: Mutex::default() })
    }

    /// Writes the file. The second time there is nothing left to write.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn write(&self, file: impl io::Write) -> Result<Written, WriteError> {
        lock(&self.streams).clear();
        self.tap.finish();
        lock(&self.writer).take().map_or(Ok(Written::default()), |writer| writer.run(file))
    }

    /// A connection is established. `sides`: private data and IRD of the initiator, and of its peer.
    pub(crate) fn connected(&self, initiator: SocketAddr, peer: SocketAddr, sides: [(&[u8], u16); 2]) {
        let mut tap = self.tap.connection(initiator, peer, true);
        for ((private_data, reads), kind, direction) in
            [(sides[0], Kind::Request, Direction::Sent), (sides[1], Kind::Reply, Direction::Received)]
        {
            // The encoder sets the length of the private data.
            let head =
                Head { markers: false, crc: true, reject: false, enhanced: true, revision: 2, private_octets: 0 };
            let enhanced = Some(Enhanced { ird: reads, ord: reads, ..Enhanced::default() });
            tap.octets(direction, &Frame { head, enhanced, private_data: private_data.to_vec() }.encode(kind));
        }
        lock(&self.streams).insert(initiator, Stream { tap, numbers: [(1, 1); 2] });
    }

    /// The connection's initiator is gone.
    pub(crate) fn closed(&self, initiator: SocketAddr) {
        lock(&self.streams).remove(&initiator);
    }

    pub(crate) fn send(&self, end: End, send: &SendWork) {
        self.on(end, |stream, direction, side| {
            let octets = send.octets.concat();
            let msn = stream.numbers[side].0;
            stream.numbers[side].0 += 1;
            let (queue, invalidate) = (0, send.invalidate.unwrap_or_default());
            let opcode = Opcode::send(send.invalidate.is_some(), send.solicited);
            pieces(&octets, |at, last, piece| {
                let placement = Placement::Untagged { queue, msn, offset: at as u32, invalidate };
                stream.tap.octets(direction, &fpdu(opcode, last, placement, piece));
            });
        });
    }

    pub(crate) fn write_posted(&self, end: End, write: &WriteWork) {
        self.on(end, |stream, direction, _| {
            pieces(&write.octets.concat(), |at, last, piece| {
                let placement = Placement::Tagged { stag: write.handle, offset: write.offset + at as u64 };
                stream.tap.octets(direction, &fpdu(Opcode::Write, last, placement, piece));
            });
        });
    }

    /// Records Read requests. Each has its own tag, which is returned.
    pub(crate) fn read(&self, end: End, sources: &[RemoteSegment]) -> Vec<(u32, u32)> {
        let mut tags = Vec::new();
        self.on(end, |stream, direction, side| {
            for source in sources {
                let msn = stream.numbers[side].1;
                stream.numbers[side].1 += 1;
                let request = ReadRequest {
                    sink_stag: msn,
                    sink_offset: 0,
                    size: source.length,
                    source_stag: source.handle,
                    source_offset: source.offset,
                };
                let placement = Placement::Untagged { queue: 1, msn, offset: 0, invalidate: 0 };
                stream.tap.octets(direction, &fpdu(Opcode::ReadRequest, true, placement, &request.encode()));
                tags.push((msn, source.length));
            }
        });
        tags
    }

    /// Records the data that Read requests have brought to this end.
    pub(crate) fn has_read(&self, end: End, tags: &[(u32, u32)], mut octets: &[u8]) {
        let peer = End { initiator: !end.initiator, ..end };
        self.on(peer, |stream, direction, _| {
            for (stag, length) in tags {
                let (own, rest) = octets.split_at((*length as usize).min(octets.len()));
                octets = rest;
                pieces(own, |at, last, piece| {
                    let placement = Placement::Tagged { stag: *stag, offset: at as u64 };
                    stream.tap.octets(direction, &fpdu(Opcode::ReadResponse, last, placement, piece));
                });
            }
        });
    }

    fn on(&self, end: End, act: impl FnOnce(&mut Stream, Direction, usize)) {
        if let Some(stream) = lock(&self.streams).get_mut(&end.address) {
            let direction = if end.initiator { Direction::Sent } else { Direction::Received };
            act(stream, direction, usize::from(end.initiator));
        }
    }
}

/// An end of a connection.
#[derive(Clone, Copy)]
pub(crate) struct End {
    /// The address of the connection's initiator.
    pub(crate) address: SocketAddr,
    /// Whether it is this end.
    pub(crate) initiator: bool,
}

/// Cuts bytes into segments, with the place of each and whether it is the last. An empty slice is one segment, too.
fn pieces(octets: &[u8], mut each: impl FnMut(usize, bool, &[u8])) {
    if octets.is_empty() {
        return each(0, true, octets);
    }
    let count = octets.len().div_ceil(SEGMENT_OCTETS);
    for (index, piece) in octets.chunks(SEGMENT_OCTETS).enumerate() {
        each(index * SEGMENT_OCTETS, index + 1 == count, piece);
    }
}

fn fpdu(opcode: Opcode, last: bool, placement: Placement, payload: &[u8]) -> Vec<u8> {
    let mut header = [0; UNTAGGED_OCTETS];
    let len = Header { opcode, last, placement }.encode(&mut header);
    let ulpdu = len + payload.len();
    // A segment has at most 16 KiB.
    let mut out = (ulpdu as u16).to_be_bytes().to_vec();
    out.extend_from_slice(&header[..len]);
    out.extend_from_slice(payload);
    out.resize(2 + ulpdu + pad_bytes(ulpdu), 0);
    let mut crc = Crc::new();
    crc.update(&out);
    out.extend_from_slice(&crc.octets());
    out
}
