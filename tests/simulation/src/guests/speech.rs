//! The messages of an enemy: of both versions, right, wrong, and at the wrong time.

use super::{
    enemy::{Heard, Known},
    lists::{self, pick},
};
use crate::work::{BACK, PAIR, PROGRAM, UNKNOWN, is_once, pattern};
use bytes::Bytes;
use rpcrdma_env::Random;
use rpcrdma_wire::{
    v1,
    v2::{self, Chunks, Credits, OtherBody, OtherProperty, Property, PropertyId, PropertySet},
};

/// Bytes of filler in a message that fits no receive.
const TOO_LONG: usize = 20_000;
/// The most bytes of an inline argument.
const MAX_INLINE: u64 = 900;

/// An enemy that is about to send a message.
pub(super) struct Speaker<'a> {
    pub(super) known: &'a Known,
    pub(super) random: &'a dyn Random,
    /// Whether it is the end that connected.
    pub(super) client: bool,
    /// The version that it uses mostly.
    pub(super) version: u32,
}

impl Speaker<'_> {
    fn one_in(&self, of: u64) -> bool {
        self.random.below(of) == 0
    }

    /// Credits: none, a few, or the largest number.
    fn credit(&self) -> u32 {
        match self.random.below(8) {
            0 => 0,
            1 => u32::MAX,
            2 => 0xFFFF,
            3 => 1,
            _ => 1 + self.random.below(64) as u32,
        }
    }

    fn credits(&self) -> Credits {
        Credits::from_word(match self.random.below(6) {
            0 => self.random.next_u32(),
            1 => self.credit() << 16 | self.credit(),
            _ => Credits::new(16, 64).word(),
        })
    }

    /// An XID: new, of a received call, or of a message that this end has sent.
    fn xid(&self) -> u32 {
        match (self.random.below(3), self.known.calls.back(), self.known.sent.front()) {
            (0, Some(Heard { xid, .. }), _) => *xid,
            (1, _, Some(sent)) => sent.first_chunk().map_or(0, |octets| u32::from_be_bytes(*octets)),
            _ => self.random.next_u32(),
        }
    }

    /// An RPC call. With `reduced`, its item is elsewhere.
    fn call(&self, xid: u32, reduced: bool) -> Vec<u8> {
        let random = self.random;
        let procedure = match random.below(10) {
            0 => UNKNOWN,
            1 => random.next_u32(),
            _ => 1 + random.below(u64::from(PAIR)) as u32,
        };
        let program = if self.one_in(16) { random.next_u32() } else { PROGRAM };
        let wanted = match procedure {
            BACK => random.below(3),
            _ if is_once(procedure) => random.below(9_000),
            _ => random.below(200_000),
        };
        let len = if reduced { random.below(20_000) } else { random.below(MAX_INLINE) };
        let number = random.next_u64();
        let mut words = vec![xid, 0, 2, program, 1, procedure, 0, 0, 0, 0];
        words.extend([(number >> 32) as u32, number as u32, random.below(3_000) as u32, wanted as u32, len as u32]);
        let mut octets: Vec<u8> = words.into_iter().flat_map(u32::to_be_bytes).collect();
        if !reduced {
            octets.extend(pattern((len as usize).next_multiple_of(4), number));
        }
        octets
    }

    /// An RPC reply of some length.
    fn reply(&self, xid: u32) -> Vec<u8> {
        let random = self.random;
        let status = if self.one_in(4) { random.below(7) as u32 } else { 0 };
        let mut words = vec![xid, 1, 0, 0, 0, status, random.next_u32(), random.next_u32()];
        words.push(random.below(2_000) as u32);
        let mut octets: Vec<u8> = words.into_iter().flat_map(u32::to_be_bytes).collect();
        octets.extend(pattern((random.below(MAX_INLINE) as usize).next_multiple_of(4), 7));
        octets
    }

    fn wrap(&self, version: u32, xid: u32, lists: v1::Lists, response: bool, payload: &[u8], nomsg: bool) -> Bytes {
        let header = if version == v2::VERSION {
            let handles = lists.reads.0.first().map(|read| read.segment.handle);
            let inv_handle = handles.filter(|_| self.one_in(2)).unwrap_or_default();
            let chunks = Chunks { inv_handle, lists };
            match nomsg {
                true => v2::Header::nomsg(xid, self.credits(), response, chunks).to_bytes(),
                false => v2::Header::msg(xid, self.credits(), response, false, chunks).to_bytes(),
            }
        } else {
            let body = if nomsg { v1::Body::Nomsg(lists) } else { v1::Body::Msg(lists) };
            v1::Header::new(xid, self.credit(), body).to_bytes()
        };
        let mut octets = header.to_vec();
        if !nomsg {
            octets.extend_from_slice(payload);
        }
        octets.into()
    }

    /// A call as a client of the program might make it, with arbitrary chunks.
    pub(super) fn any_call(&self) -> Bytes {
        let xid = if self.one_in(6) { self.xid() } else { self.random.next_u32() };
        let lists = if self.one_in(3) { v1::Lists::default() } else { lists::draw(self.known, self.random) };
        let reduced = !lists.reads.is_empty();
        self.wrap(self.version, xid, lists, false, &self.call(xid, reduced), self.one_in(10))
    }

    /// A reply to a received call, or to none.
    pub(super) fn any_reply(&self) -> Bytes {
        let heard = match self.random.below(6) {
            0 => None,
            _ => self.known.calls.get(self.random.below(self.known.calls.len() as u64) as usize),
        };
        let Some(Heard { xid, version, lists: of_call }) = heard else {
            let xid = self.xid();
            let lists = lists::draw(self.known, self.random);
            return self.wrap(self.version, xid, lists, true, &self.reply(xid), self.one_in(6));
        };
        let echoed = lists::echo(of_call, self.known, self.random);
        let nomsg = of_call.reply.is_some() && self.one_in(2);
        self.wrap(*version, *xid, echoed, true, &self.reply(*xid), nomsg)
    }

    fn error(&self) -> Bytes {
        let (xid, random) = (self.xid(), self.random);
        if self.version == v2::VERSION {
            use v2::ErrorBody::{
                BadPropertyValue, BadXdr, InvalidContinuation, InvalidHeaderType, ReadChunks, ReplyResource, Segments,
                System, Version, WriteChunks, WriteResource,
            };
            let number = self.credit();
            let errors = [
                Version { low: number, high: random.next_u32() },
                BadXdr,
                BadPropertyValue,
                InvalidHeaderType,
                InvalidContinuation,
                ReadChunks { max_chunks: number },
                WriteChunks { max_chunks: number },
                Segments { max_segments: number },
                WriteResource { chunk_index: number, length_needed: random.next_u32() },
                ReplyResource { length_needed: random.next_u32() },
                System,
            ];
            let error = errors[random.below(errors.len() as u64) as usize];
            let version = if self.one_in(4) { random.next_u32() } else { v2::VERSION };
            return v2::Header::error(xid, version, self.credits(), error).to_bytes();
        }
        let error = match self.one_in(2) {
            true => v1::ErrorBody::Chunk,
            false => v1::ErrorBody::Version { low: self.credit(), high: self.credit() },
        };
        v1::Header::new(xid, self.credit(), v1::Body::Error(error)).to_bytes()
    }

    /// Transport properties, of any value.
    pub(super) fn properties(&self, decent: bool) -> Bytes {
        let number = || if decent { 4096 } else { self.random.next_u32() >> self.random.below(32) };
        let mut properties = vec![Property::SendSize(number()), Property::ReceiveSize(number())];
        if !decent {
            properties.push(Property::SegmentSize(number()));
            properties.push(Property::SegmentCount(number()));
            properties.push(Property::Reverse(number()));
            properties.push(Property::Default(PropertyId::SendSize));
            properties.push(Property::HostAuth(pattern(self.random.below(300) as usize, 1).into()));
            let other = OtherProperty::new(0x1_0000, pattern(self.random.below(300) as usize, 2).into());
            properties.extend(other.map(Property::Other));
            (0..self.random.below(4)).for_each(|_| {
                properties.swap_remove(self.random.below(properties.len() as u64) as usize);
            });
        }
        let credits = if decent { Credits::new(16, 64) } else { self.credits() };
        let (xid, tpmore) = (self.random.next_u32(), !decent && self.one_in(3));
        v2::Header::connprop(xid, credits, tpmore, PropertySet(properties)).to_bytes()
    }

    /// A part, after which more parts may follow or not.
    fn part(&self) -> Bytes {
        let (xid, response) = (self.xid(), !self.client || self.one_in(4));
        let chunks = if self.one_in(2) { Chunks::default() } else { self.chunks() };
        let mut octets = v2::Header::msg(xid, self.credits(), response, !self.one_in(4), chunks).to_bytes().to_vec();
        octets.extend(self.call(xid, false));
        octets.into()
    }

    fn chunks(&self) -> Chunks {
        Chunks { inv_handle: self.random.next_u32(), lists: lists::draw(self.known, self.random) }
    }

    fn grant(&self) -> Bytes {
        let chunks = if self.one_in(4) { self.chunks() } else { Chunks::default() };
        let xid = if self.one_in(2) { 0 } else { self.xid() };
        v2::Header::nomsg(xid, self.credits(), self.one_in(3), chunks).to_bytes()
    }

    fn odd(&self) -> Bytes {
        let random = self.random;
        match random.below(4) {
            0 => v1::Header::new(self.xid(), self.credit(), v1::Body::Done).to_bytes(),
            1 => {
                let lists = lists::draw(self.known, random);
                let body = v1::Body::Msgp { align: random.next_u32(), thresh: random.next_u32(), lists };
                v1::Header::new(self.xid(), self.credit(), body).to_bytes()
            }
            2 => v1::Header { version: random.next_u32(), ..v1::Header::new(self.xid(), 1, v1::Body::Done) }.to_bytes(),
            _ => {
                let body = OtherBody::new(random.next_u32(), pattern(random.below(200) as usize, 3).into());
                let header = body.map(|body| v2::Header::other(self.xid(), self.credits(), self.one_in(2), body));
                header.map(|header| header.to_bytes()).unwrap_or_default()
            }
        }
    }

    /// The next message, and its kind.
    pub(super) fn next(&self) -> (Bytes, &'static str) {
        let random = self.random;
        let decent = || if self.client == self.one_in(10) { self.any_reply() } else { self.any_call() };
        match random.below(24) {
            0..10 => (decent(), "calls and replies with any chunks"),
            10 | 11 => (pick_sent(self.known, random), "the same message again"),
            12 | 13 => (self.error(), "errors"),
            14 => (cut(decent(), random), "cut messages"),
            15 => (flip(decent(), random), "flipped bits"),
            16 => (pattern(random.below(200) as usize, random.next_u64()).into(), "noise"),
            17 | 18 => (self.part(), "parts of messages"),
            19 => (self.properties(false), "properties"),
            20 | 21 => (self.grant(), "grants"),
            22 => (self.odd(), "odd headers"),
            _ if self.one_in(6) => ([decent(), vec![7; TOO_LONG].into()].concat().into(), "messages that fit nowhere"),
            _ => {
                let other = if self.version == v2::VERSION { v1::VERSION } else { v2::VERSION };
                (Speaker { version: other, ..*self }.any_call(), "the other version")
            }
        }
    }
}

fn pick_sent(known: &Known, random: &dyn Random) -> Bytes {
    known.sent.get(random.below(known.sent.len() as u64) as usize).cloned().unwrap_or_default()
}

fn cut(message: Bytes, random: &dyn Random) -> Bytes {
    message.slice(..random.below(message.len() as u64 + 1) as usize)
}

fn flip(message: Bytes, random: &dyn Random) -> Bytes {
    let mut octets = message.to_vec();
    for _ in 0..=random.below(4) {
        let bit = random.below((octets.len().min(64) as u64 * 8).max(1));
        if let Some(octet) = octets.get_mut((bit / 8) as usize) {
            *octet ^= 1 << (bit % 8);
        }
    }
    octets.into()
}

/// A copy of one of the peer's segments, chosen at random.
pub(super) fn any_segment(known: &Known, random: &dyn Random) -> Option<v1::Segment> {
    pick(&known.handles, random)
}
