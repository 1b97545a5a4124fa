//! Gives the engine a sequence of inputs: messages of a peer, requests of the upper layer, completions of the provider,
//! and time, in any order that the driver's contract allows.

use super::mint::Mint;
use bytes::Bytes;
use rpcrdma_engine::{
    Action, Answer, Call, CallId, Config, Endpoint, ExposeError, ExposureId, Host, PrivateData, RequestId, Segment,
    Sink, Versions,
};
use rpcrdma_env::Timestamp;
use rpcrdma_wire::{
    v1,
    v2::{
        Body, Chunks, Credits, ErrorBody, Flags, Header, Lists, OtherBody, PropertySet, ReadList, ReadSegment,
        WriteChunk, WriteList,
    },
};
use rpcrdma_xdr::Payload;
use std::{collections::VecDeque, time::Duration};

/// The most inputs of one run: later ones find nothing new.
const MAX_STEPS: usize = 400;
/// The most Sends for each input. One message may cause the parts of a few calls and replies, but not an unlimited
/// number.
const SENDS_PER_STEP: usize = 64;

pub(super) fn version_1(input: &[u8]) {
    run(input, Versions::One);
}

pub(super) fn version_2(input: &[u8]) {
    run(input, Versions::Two);
}

/// Gives out handles from 1000 on, and refuses now and then.
#[derive(Default)]
struct Handles {
    next: u32,
    xid: u32,
    refuses: bool,
}

impl Handles {
    fn lend(&mut self, length: usize) -> Result<Segment, ExposeError> {
        if self.refuses {
            return Err(ExposeError::Refused);
        }
        self.next += 1;
        Ok(Segment { handle: 999 + self.next, length: length as u32, offset: 0 })
    }
}

impl Host for Handles {
    fn expose_source(&mut self, _: ExposureId, octets: &Bytes) -> Result<Segment, ExposeError> {
        self.lend(octets.len())
    }

    fn expose_sink(&mut self, _: ExposureId, sink: Sink) -> Result<Segment, ExposeError> {
        self.lend(sink.octets)
    }

    fn next_xid(&mut self) -> u32 {
        self.xid += 1;
        0x7700 + self.xid
    }
}

/// An engine, and what its driver still has to do for it.
struct Driver {
    engine: Endpoint,
    host: Handles,
    now: Timestamp,
    largest: usize,
    posted: usize,
    sent: usize,
    closed: bool,
    calls: Vec<CallId>,
    undrained: usize,
    fences: VecDeque<ExposureId>,
    pulls: VecDeque<(RequestId, usize)>,
    requests: VecDeque<(RequestId, u32)>,
}

fn run(input: &[u8], version: Versions) {
    let mut mint = Mint::new(input);
    let flags = mint.u8();
    let config = if flags & 1 == 0 {
        Config { credits_wanted: 8, ..Config::server() }
    } else {
        Config { credits_granted: 8, ..Config::client() }
    };
    let versions = if flags & 2 == 0 { version } else { Versions::Auto };
    let peer = PrivateData { remote_invalidation: flags & 4 != 0, send_size: 4096, receive_size: 4096 };
    let config = Config { versions, remote_invalidation: flags & 8 != 0, ..config };
    let (posted, largest) = (config.initial_receives, config.send_bytes as usize);
    let engine = Endpoint::new(config, (flags & 16 != 0).then_some(&peer));
    let mut driver = Driver {
        engine,
        host: Handles::default(),
        now: Timestamp::from_nanos(1),
        largest,
        posted,
        sent: 0,
        closed: false,
        calls: Vec::new(),
        undrained: 0,
        fences: VecDeque::new(),
        pulls: VecDeque::new(),
        requests: VecDeque::new(),
    };
    driver.engine.start(driver.now, &mut driver.host);
    driver.carry_out();
    let mut steps = 0;
    while !mint.is_empty() && steps < MAX_STEPS && !driver.closed {
        driver.step(&mut mint, version);
        driver.carry_out();
        driver.check();
        steps += 1;
    }
    assert!(driver.sent <= SENDS_PER_STEP * (steps + 1), "{} Sends in {steps} steps", driver.sent);
    let mut left = driver.engine.closed();
    let open = left.len();
    left.sort_unstable_by_key(|call| call.0);
    left.dedup();
    assert_eq!(left.len(), open, "each call is given back once");
}

/// Few XIDs, so that they come again.
fn xid_of(call: CallId) -> u32 {
    1 + (call.0 as u32 - 1) % 16
}

impl Driver {
    fn step(&mut self, mint: &mut Mint<'_>, version: Versions) {
        match mint.below(16) {
            0 => {
                let len = mint.u8().into();
                self.hear(mint.take(len).to_vec());
            }
            1..=6 => {
                let message = match version {
                    Versions::One => message_1(mint),
                    _ => message_2(mint),
                };
                self.hear(damaged(message, mint));
            }
            7 | 8 => self.call(mint),
            9 => {
                if let Some(&call) = self.calls.get(mint.below(self.calls.len())) {
                    self.calls.retain(|other| *other != call);
                    match mint.u8() & 1 {
                        0 => self.engine.cancel(call, xid_of(call)),
                        _ => self.engine.forget(call, xid_of(call), self.now),
                    }
                }
            }
            10 => {
                if let Some(exposure) = self.fences.pop_front() {
                    self.engine.fenced(exposure);
                }
            }
            11 => {
                if let Some((request, octets)) = self.pulls.pop_front() {
                    let mut head = vec![0; octets];
                    let octets = mint.take(24.min(octets));
                    head[..octets.len()].copy_from_slice(octets);
                    self.engine.pulled(request, &head);
                }
            }
            12 | 13 => self.answer(mint),
            14 => {
                if self.undrained > 0 {
                    self.undrained -= 1;
                    self.engine.drained();
                }
            }
            _ => match mint.below(4) {
                0 => self.host.refuses ^= true,
                _ => self.now = self.now + Duration::from_millis(mint.u16().into()),
            },
        }
        if self.engine.next_wake().is_some_and(|when| when <= self.now) {
            self.engine.wake(self.now, &mut self.host);
        }
    }

    fn hear(&mut self, message: Vec<u8>) {
        // If a Send finds no receive, the provider handles it, not the engine.
        if self.posted > 0 {
            self.posted -= 1;
            self.engine.received(message.into(), self.now, &mut self.host);
        }
    }

    fn call(&mut self, mint: &mut Mint<'_>) {
        let call = CallId(self.calls.last().map_or(1, |call| call.0 + 1));
        let xid = xid_of(call);
        let mut payload = Payload::from(Bytes::from(words(&[xid, 0, 2, 100_003, 3, 6])));
        payload.push_run(Bytes::from(vec![1; usize::from(mint.u8()) * 64]));
        for _ in 0..mint.u8() & 3 {
            payload.push_item(Bytes::from(vec![2; usize::from(mint.u16())]));
        }
        let items: Vec<_> = (0..mint.u8() & 3).map(|_| usize::from(mint.u16())).collect();
        let reply_max = 512 + usize::from(mint.u16()) + items.iter().sum::<usize>();
        let repeatable = mint.u8() & 1 == 0;
        let made = Call { repeatable, ..Call::new(call, xid, payload).with_reply(reply_max, &items) };
        let called = self.engine.call(made, self.now, &mut self.host);
        if called.is_ok() {
            self.calls.push(call);
        }
    }

    fn answer(&mut self, mint: &mut Mint<'_>) {
        let Some((request, xid)) = self.requests.pop_front() else { return };
        let answer = match mint.below(8) {
            0 => Answer::Nothing,
            1 => Answer::NotEligible,
            2 => Answer::Unreadable,
            _ => {
                let mut payload = Payload::from(Bytes::from(words(&[xid, 1, 0, 0, 0, 0])));
                payload.push_run(Bytes::from(vec![3; usize::from(mint.u8()) * 64]));
                for _ in 0..mint.u8() & 3 {
                    payload.push_item(Bytes::from(vec![4; usize::from(mint.u16())]));
                }
                Answer::Reply(payload)
            }
        };
        self.engine.answer(request, answer);
    }

    fn carry_out(&mut self) {
        while let Some(action) = self.engine.poll() {
            assert!(
                !self.closed || !matches!(action, Action::Send { .. } | Action::Close(_)),
                "{action:?} after the end"
            );
            match action {
                Action::PostReceives { count } => self.posted += count,
                Action::Send { octets, signaled, .. } => {
                    assert!(octets.iter().map(Bytes::len).sum::<usize>() <= self.largest);
                    self.sent += 1;
                    self.undrained += usize::from(signaled);
                }
                Action::Deliver { request, xid, .. } => self.requests.push_back((request, xid)),
                Action::Pull { request, octets, sources, .. } => {
                    assert_eq!(sources.iter().map(|source| source.length as usize).sum::<usize>(), octets);
                    self.pulls.push_back((request, octets));
                }
                Action::Invalidate { exposure, .. } => self.fences.push_back(exposure),
                Action::Write { to, octets, .. } => {
                    assert_eq!(octets.iter().map(Bytes::len).sum::<usize>(), to.length as usize);
                }
                Action::Complete { call, .. }
                | Action::Fail { call, .. }
                | Action::Cancelled { call }
                | Action::Released { call } => self.calls.retain(|other| *other != call),
                Action::Close(_) => self.closed = true,
                _ => {}
            }
        }
    }

    fn check(&self) {
        let stats = self.engine.stats();
        assert!(self.closed || stats.receives == self.posted, "the engine's count is the provider's");
        assert!(stats.executing <= 4096, "{} calls are executed", stats.executing);
    }
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

fn xid(mint: &mut Mint<'_>) -> u32 {
    match mint.u8() {
        code @ 0..=0xEF => u32::from(code % 20),
        0xF0..=0xF7 => 0x7701 + mint.u32() % 4,
        _ => mint.u32(),
    }
}

/// The beginning of an RPC message; the input decides its kind and length.
fn rpc(xid: u32, mint: &mut Mint<'_>) -> Vec<u8> {
    let kind = mint.u8();
    let mut octets = match kind & 3 {
        0 | 1 => words(&[xid, 0, 2, 100_003, 3, 1]),
        2 => words(&[xid, 1, 0, 0, 0, 0]),
        _ => Vec::new(),
    };
    octets.resize(octets.len() + usize::from(kind >> 2) * 4, 0);
    octets
}

fn segment(mint: &mut Mint<'_>) -> Segment {
    let handle = match mint.u8() {
        code @ 0..=0x7F => 1000 + u32::from(code % 32),
        code => code.into(),
    };
    let length = match mint.u8() {
        0xFF => mint.u32(),
        code => u32::from(code) * 16,
    };
    Segment { handle, length, offset: 0 }
}

fn lists(mint: &mut Mint<'_>) -> Lists {
    let counts = mint.u8();
    let read = |mint: &mut Mint<'_>| ReadSegment { position: u32::from(mint.u8()) * 4, segment: segment(mint) };
    let chunk = |mint: &mut Mint<'_>| WriteChunk((0..mint.u8() & 3).map(|_| segment(mint)).collect());
    Lists {
        reads: ReadList((0..counts & 3).map(|_| read(mint)).collect()),
        writes: WriteList((0..counts >> 2 & 3).map(|_| chunk(mint)).collect()),
        reply: (counts & 16 != 0).then(|| chunk(mint)),
    }
}

fn message_1(mint: &mut Mint<'_>) -> Vec<u8> {
    let (kind, xid, credit) = (mint.below(8), xid(mint), mint.u8().into());
    let body = match kind {
        0..=3 => v1::Body::Msg(lists(mint)),
        4 | 5 => v1::Body::Nomsg(lists(mint)),
        6 => v1::Body::Error(v1::ErrorBody::Chunk),
        _ => v1::Body::Error(v1::ErrorBody::Version { low: mint.u8().into(), high: mint.u8().into() }),
    };
    let mut octets = v1::Header::new(xid, credit, body).to_bytes().to_vec();
    octets.extend(rpc(xid, mint));
    octets
}

fn message_2(mint: &mut Mint<'_>) -> Vec<u8> {
    let (kind, xid, flags) = (mint.below(12), xid(mint), mint.u8());
    let credits = Credits::new(u16::from(mint.u8() % 64), u16::from(mint.u8()));
    let chunks = |mint: &mut Mint<'_>| Chunks { inv_handle: 1000 + u32::from(mint.u8() % 32), lists: lists(mint) };
    let more = flags & 2 != 0;
    let body = match kind {
        0..=4 => Body::Msg(chunks(mint)),
        5 | 6 => Body::Nomsg(chunks(mint)),
        7 => Body::Error(error(mint)),
        8 if more => Body::ConnpropPiece(Bytes::copy_from_slice(mint.take(16))),
        8 => Body::Connprop(PropertySet::default()),
        9 => match OtherBody::new(mint.u32(), Bytes::new()) {
            Some(other) => Body::Other(other),
            None => Body::Nomsg(Chunks::default()),
        },
        10 => return v1::Header::new(xid, flags.into(), v1::Body::Msg(lists(mint))).to_bytes().to_vec(),
        _ => Body::Nomsg(Chunks::default()),
    };
    let flags = Flags { response: flags & 1 != 0, more, tpmore: flags & 4 != 0 };
    let payload = body.has_payload();
    let mut octets = Header { xid, version: 2, credits, flags, body }.to_bytes().to_vec();
    if payload {
        octets.extend(rpc(xid, mint));
    }
    octets
}

fn error(mint: &mut Mint<'_>) -> ErrorBody {
    match mint.below(9) {
        0 => ErrorBody::Version { low: mint.u8().into(), high: mint.u8().into() },
        1 => ErrorBody::BadXdr,
        2 => ErrorBody::InvalidContinuation,
        3 => ErrorBody::ReadChunks { max_chunks: mint.u8().into() },
        4 => ErrorBody::WriteChunks { max_chunks: mint.u8().into() },
        5 => ErrorBody::Segments { max_segments: mint.u8().into() },
        6 => ErrorBody::WriteResource { chunk_index: mint.u8().into(), length_needed: mint.u32() },
        7 => ErrorBody::ReplyResource { length_needed: mint.u32() },
        _ => ErrorBody::System,
    }
}

/// Rarely changes a byte, or cuts the message.
fn damaged(mut octets: Vec<u8>, mint: &mut Mint<'_>) -> Vec<u8> {
    match mint.u8() {
        0xF0..=0xF7 => {
            if let Some(octet) = octets.get_mut(usize::from(mint.u8())) {
                *octet = mint.u8();
            }
        }
        0xF8..=0xFF => octets.truncate(mint.u8().into()),
        _ => {}
    }
    octets
}
