//! A small exchange over fixed bytes, captured by the writer.

#![allow(dead_code, reason = "each test file uses its share")]

pub(crate) mod records;

use rpcrdma_capture::{Event, Options, ReadError, Sink, Summary, Written, capture, read_capture};
use rpcrdma_env::{BoxFuture, Clock, Timestamp};
use rpcrdma_iwarp::{
    Direction, Tap,
    protocol::{
        crc::Crc,
        ddp::{Header as Ddp, Placement, UNTAGGED_OCTETS},
        fpdu::{CRC_OCTETS, pad_bytes},
        mpa::{Enhanced, Frame, Head, Kind},
        rdmap::{Opcode, ReadRequest},
    },
};
use rpcrdma_wire::{
    PrivateData,
    v1::{Body, ErrorBody, Header, Lists, ReadList, ReadSegment, Segment, WriteChunk, WriteList},
};
use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

/// A clock that advances by 100 microseconds at each reading.
struct Ticking(AtomicU64);

impl Clock for Ticking {
    fn now(&self) -> Timestamp {
        Timestamp::ZERO
    }

    fn sleep_until(&self, _: Timestamp) -> BoxFuture<'static, ()> {
        Box::pin(std::future::pending())
    }

    fn unix_time(&self) -> Duration {
        Duration::from_secs(1_700_000_000) + Duration::from_micros(100) * self.0.fetch_add(1, Ordering::Relaxed) as u32
    }
}

/// An FPDU.
pub(crate) fn fpdu(opcode: Opcode, last: bool, placement: Placement, payload: &[u8]) -> Vec<u8> {
    let mut header = [0; UNTAGGED_OCTETS];
    let len = Ddp { opcode, last, placement }.encode(&mut header);
    let ulpdu = len + payload.len();
    let mut out = u16::try_from(ulpdu).unwrap().to_be_bytes().to_vec();
    out.extend(&header[..len]);
    out.extend(payload);
    out.resize(2 + ulpdu + pad_bytes(ulpdu), 0);
    let mut crc = Crc::new();
    crc.update(&out);
    out.extend(crc.octets());
    assert!(out.len().is_multiple_of(CRC_OCTETS));
    out
}

pub(crate) fn untagged(queue: u32, msn: u32, invalidate: u32) -> Placement {
    Placement::Untagged { queue, msn, offset: 0, invalidate }
}

pub(crate) fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

pub(crate) fn call(xid: u32, procedure: u32) -> Vec<u8> {
    words(&[xid, 0, 2, 100_003, 3, procedure, 0, 0, 0, 0, 4, 7])
}

pub(crate) fn reply(xid: u32, status: u32) -> Vec<u8> {
    words(&[xid, 1, 0, 0, 0, 0, status])
}

fn message(xid: u32, credits: u32, body: Body, rpc: &[u8]) -> Vec<u8> {
    let mut out = Header::new(xid, credits, body).to_bytes().to_vec();
    out.extend(rpc);
    out
}

pub(crate) fn segment(handle: u32, length: u32, offset: u64) -> Segment {
    Segment { handle, length, offset }
}

pub(crate) fn writes(handle: u32, length: u32) -> Lists {
    Lists {
        writes: WriteList(vec![WriteChunk(vec![segment(handle, length, 0x1000)].into())].into()),
        ..Lists::default()
    }
}

pub(crate) fn long_reply(handle: u32, length: u32) -> Lists {
    Lists { reply: Some(WriteChunk(vec![segment(handle, length, 0)].into())), ..Lists::default() }
}

pub(crate) fn reads(position: u32, handle: u32, length: u32) -> Lists {
    let read = ReadSegment { position, segment: segment(handle, length, 0) };
    Lists { reads: ReadList(vec![read].into()), ..Lists::default() }
}

pub(crate) fn set_up(kind: Kind) -> Vec<u8> {
    let head = Head { markers: false, crc: true, reject: false, enhanced: true, revision: 2, private_octets: 0 };
    let enhanced = Some(Enhanced { ird: 16, ord: 16, ..Enhanced::default() });
    let data = PrivateData { remote_invalidation: true, send_size: 4096, receive_size: 4096 };
    Frame { head, enhanced, private_data: data.to_octets().to_vec() }.encode(kind)
}

/// Each step: whether the initiator sends it, and its bytes.
pub(crate) fn exchange() -> Vec<(bool, Vec<u8>)> {
    let send = |msn, octets: &[u8]| fpdu(Opcode::Send, true, untagged(0, msn, 0), octets);
    let send_invalidate =
        |msn, handle, octets: &[u8]| fpdu(Opcode::SendInvalidate, true, untagged(0, msn, handle), octets);
    let tagged =
        |opcode, last, stag, offset, octets: &[u8]| fpdu(opcode, last, Placement::Tagged { stag, offset }, octets);
    let request = |msn, size, source_stag| {
        let request = ReadRequest { sink_stag: 0x51_0000 + msn, sink_offset: 0, size, source_stag, source_offset: 0 };
        fpdu(Opcode::ReadRequest, true, untagged(1, msn, 0), &request.encode())
    };
    let nothing = Lists::default();
    vec![
        (true, set_up(Kind::Request)),
        (false, set_up(Kind::Reply)),
        // NULL: a short exchange.
        (true, send(1, &message(0x101, 32, Body::Msg(nothing.clone()), &call(0x101, 0)))),
        (false, send(1, &message(0x101, 64, Body::Msg(nothing.clone()), &reply(0x101, 0)[..24]))),
        // READ into a Write chunk, in two FPDUs; WRITE from a Read chunk meanwhile.
        (true, send(2, &message(0x102, 32, Body::Msg(writes(0xAAA1, 8192)), &call(0x102, 6)))),
        (true, send(3, &message(0x103, 32, Body::Msg(reads(48, 0xBBB1, 3000)), &call(0x103, 7)))),
        (false, request(1, 3000, 0xBBB1)),
        (false, tagged(Opcode::Write, false, 0xAAA1, 0x1000, &[0x5A; 5000])),
        (true, tagged(Opcode::ReadResponse, false, 0x51_0001, 0, &[3; 2000])),
        (false, tagged(Opcode::Write, true, 0xAAA1, 0x1000 + 5000, &[0x5A; 3192])),
        (false, send_invalidate(2, 0xAAA1, &message(0x102, 64, Body::Msg(writes(0xAAA1, 8192)), &reply(0x102, 0)))),
        (true, tagged(Opcode::ReadResponse, true, 0x51_0001, 2000, &[4; 1000])),
        (false, send_invalidate(3, 0xBBB1, &message(0x103, 64, Body::Msg(nothing.clone()), &reply(0x103, 28)))),
        // A long call, SYMLINK, refused; a long reply, READDIRPLUS.
        (true, send(4, &message(0x104, 32, Body::Nomsg(reads(0, 0xCCC1, 48)), &[]))),
        (false, request(2, 48, 0xCCC1)),
        (true, tagged(Opcode::ReadResponse, true, 0x51_0002, 0, &call(0x104, 10))),
        (false, send(4, &message(0x104, 64, Body::Msg(nothing.clone()), &reply(0x104, 13)))),
        (true, send(5, &message(0x105, 32, Body::Msg(long_reply(0xDDD1, 65_536)), &call(0x105, 17)))),
        (false, tagged(Opcode::Write, true, 0xDDD1, 0, &reply(0x105, 0))),
        (false, send(5, &message(0x105, 64, Body::Nomsg(long_reply(0xDDD1, 28)), &[]))),
        // An unknown version; a call without a reply; the end.
        (true, send(6, &words(&[0x106, 9, 32, 0]))),
        (false, send(6, &message(0x106, 64, Body::Error(ErrorBody::Version { low: 1, high: 1 }), &[]))),
        (true, send(7, &message(0x107, 32, Body::Msg(nothing), &call(0x107, 1)))),
        (false, fpdu(Opcode::Terminate, true, untagged(2, 1, 0), &[0x12, 0x02, 0, 0])),
    ]
}

/// The exchange's capture.
pub(crate) fn captured(initiator: &str, responder: &str, segment_bytes: usize) -> (Vec<u8>, Written) {
    captured_steps(exchange(), initiator, responder, segment_bytes)
}

/// The capture of these steps.
pub(crate) fn captured_steps(
    steps: Vec<(bool, Vec<u8>)>,
    initiator: &str,
    responder: &str,
    segment_bytes: usize,
) -> (Vec<u8>, Written) {
    let mut options = Options::default();
    options.segment_bytes = segment_bytes;
    let (tap, writer) = capture(Arc::new(Ticking(AtomicU64::new(0))), options);
    let mut stream = tap.connection(initiator.parse().unwrap(), responder.parse().unwrap(), true);
    for (from_initiator, octets) in steps {
        let direction = if from_initiator { Direction::Sent } else { Direction::Received };
        stream.octets(direction, &octets);
    }
    drop(stream);
    tap.finish();
    let mut file = Vec::new();
    let written = writer.run(&mut file).unwrap();
    (file, written)
}

/// Keeps events.
#[derive(Default)]
pub(crate) struct Kept(pub(crate) Vec<Event>);

impl Sink for Kept {
    fn event(&mut self, event: &Event) -> io::Result<()> {
        self.0.push(event.clone());
        Ok(())
    }

    fn finish(&mut self, _: &Summary) -> io::Result<()> {
        Ok(())
    }
}

pub(crate) fn read(file: &[u8]) -> (Vec<Event>, Result<Summary, ReadError>) {
    let mut kept = Kept::default();
    let summary = read_capture(file, &mut kept);
    (kept.0, summary)
}
