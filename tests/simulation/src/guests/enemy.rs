//! One hostile end of a connection: a queue pair, what it has received, and what it does next.

use super::{
    lists::pick,
    speech::{Speaker, any_segment},
};
use crate::{tally::Tally, work::pattern};
use bytes::Bytes;
use rpcrdma_env::{Buffer, Random, SeededRandom};
use rpcrdma_fabric::{
    Completion, Connected, ConnectionParams, Lent, ReadWork, ReceivePool as _, Receives, SendWork, SharedReceives,
};
use rpcrdma_fabric::{RemoteSegment, Token, WriteWork};
use rpcrdma_sim::World;
use rpcrdma_wire::{
    PrivateData,
    chunk::{Lists, Segment},
    v1, v2, version,
};
use std::{
    collections::VecDeque,
    future::poll_fn,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::Poll,
    time::Duration,
};

/// How many things of each kind an enemy remembers.
const MEMORY: usize = 24;
/// The most actions on one connection.
const MAX_ACTS: u64 = 150;
/// Bytes of most receives.
const RECEIVE_BYTES: usize = 8192;
/// How often an enemy stays silent because it has no credits, before it sends nevertheless.
const MAX_HEED: u32 = 40;

/// A received call.
pub(super) struct Heard {
    pub(super) xid: u32,
    pub(super) version: u32,
    pub(super) lists: Lists,
}

/// What an enemy knows.
#[derive(Default)]
pub(super) struct Known {
    /// Calls of the peer.
    pub(super) calls: VecDeque<Heard>,
    /// Memory that the peer has named.
    pub(super) handles: Vec<Segment>,
    /// Memory that is lent to the peer.
    pub(super) own: Vec<Segment>,
    /// Messages that were sent.
    pub(super) sent: VecDeque<Bytes>,
}

/// How an enemy behaves on one connection.
struct Temper {
    version: u32,
    /// Keeps to credits, so that the connection lasts.
    heeds: bool,
    /// Reads, writes and invalidates memory that it may not touch.
    brutal: bool,
    /// Posts receives again after use.
    listens: bool,
}

pub(super) struct Enemy {
    pub(super) world: Arc<World>,
    pub(super) random: Arc<SeededRandom>,
    pub(super) tally: Arc<Tally>,
    qp: Connected,
    client: bool,
    temper: Temper,
    known: Known,
    /// How many messages the peer allows.
    credits: i64,
    heeded: u32,
    shared: Option<Arc<SharedReceives>>,
    closed: bool,
}

/// The parameters of an enemy's connection: any private data, few receives or many, its own or shared ones.
pub(super) fn params(random: &dyn Random) -> (ConnectionParams, Option<Arc<SharedReceives>>) {
    let private_data = match random.below(4) {
        0 => Bytes::new(),
        1 => pattern(random.below(56) as usize, random.next_u64()).into(),
        _ => {
            let size = |random: &dyn Random| 1024 << random.below(9);
            let remote_invalidation = random.below(2) == 0;
            let block = PrivateData { remote_invalidation, send_size: size(random), receive_size: size(random) };
            Bytes::copy_from_slice(&block.to_octets())
        }
    };
    let count = if random.below(4) == 0 { 1 + random.below(3) } else { 96 };
    let octets = if random.below(6) == 0 { 1024 } else { RECEIVE_BYTES };
    let buffers = (0..count).map(|_| Buffer::from_vec(vec![0; octets]));
    let (receives, shared) = if random.below(4) == 0 {
        let pool = SharedReceives::new();
        buffers.for_each(|buffer| pool.post(buffer));
        (Receives::Shared(pool.clone()), Some(pool))
    } else {
        (Receives::Own(buffers.collect()), None)
    };
    let reads = |random: &dyn Random| [0, 1, 4, 16][random.below(4) as usize];
    (ConnectionParams { private_data, ird: reads(random), ord: reads(random), receives }, shared)
}

impl Enemy {
    pub(super) fn new(
        (world, random, tally): (Arc<World>, Arc<SeededRandom>, Arc<Tally>),
        qp: Connected,
        shared: Option<Arc<SharedReceives>>,
        client: bool,
    ) -> Self {
        let temper = Temper {
            version: if random.below(2) == 0 { v1::VERSION } else { v2::VERSION },
            heeds: random.below(4) != 0,
            brutal: random.below(3) == 0,
            listens: random.below(6) != 0,
        };
        let (known, credits) = (Known::default(), i64::from(client));
        Self { world, random, tally, qp, client, temper, known, credits, heeded: 0, shared, closed: false }
    }

    /// Does random actions until it has done enough.
    pub(super) async fn act(mut self, on: &AtomicBool) {
        for _ in 0..2 + self.random.below(6) {
            self.lend();
        }
        if self.temper.version == v2::VERSION && self.client && self.random.below(5) != 0 {
            let octets = self.speaker().properties(true);
            self.post(octets, None);
        }
        for _ in 0..self.random.below(MAX_ACTS) {
            self.look().await;
            if self.closed || !on.load(Ordering::Relaxed) {
                break;
            }
            self.one_act();
            self.look().await;
            self.world.sleep(self.pause()).await;
        }
        if self.random.below(2) == 0 {
            self.qp.disconnect();
            self.look().await;
            self.world.sleep(Duration::from_millis(self.random.below(50))).await;
            self.look().await;
        }
        // Everything left ends with the queue pair.
    }

    fn pause(&self) -> Duration {
        let random = &self.random;
        match random.below(100) {
            0 => Duration::from_millis(random.below(40_000)),
            1..10 => Duration::from_millis(random.below(50)),
            10..40 => Duration::from_micros(random.below(3_000)),
            _ => Duration::from_micros(random.below(100)),
        }
    }

    fn speaker(&self) -> Speaker<'_> {
        let Self { known, random, client, temper, .. } = self;
        Speaker { known, random: &**random, client: *client, version: temper.version }
    }

    fn count(&self, what: &str) {
        let role = if self.client { "client" } else { "server" };
        self.tally.count(format!("hostile {role}: {what}"));
    }

    fn one_act(&mut self) {
        match self.random.below(20) {
            0 => self.lend(),
            1 => self.take_back(),
            2 | 3 if self.temper.brutal => self.reach(),
            4 => self.use_loans(),
            5 if !self.client || self.temper.brutal => self.invalidate(),
            _ => self.speak(),
        }
    }

    fn speak(&mut self) {
        if self.temper.heeds && self.credits <= 0 && self.heeded < MAX_HEED {
            self.heeded += 1;
            return;
        }
        self.heeded = 0;
        let (octets, what) = self.speaker().next();
        self.count(what);
        self.post(octets, None);
    }

    fn post(&mut self, octets: Bytes, invalidate: Option<u32>) {
        self.credits -= 1;
        self.known.sent.push_back(octets.clone());
        if self.known.sent.len() > MEMORY {
            self.known.sent.pop_front();
        }
        let _ = self.qp.post_send(SendWork { octets: vec![octets].into(), invalidate, ..SendWork::default() });
    }

    /// Lends memory of any size, for reading or for writing.
    fn lend(&mut self) {
        let len = 1 + self.random.below(30_000) as usize;
        let memory = match self.random.below(2) {
            0 => Lent::Source(pattern(len, self.random.next_u64()).into()),
            _ => Lent::Sink(Buffer::from_vec(vec![0; len])),
        };
        if let Ok(RemoteSegment { handle, length, offset }) = self.qp.expose(Token(1), memory) {
            self.known.own.push(Segment { handle, length, offset });
        }
    }

    /// Ends a loan, whether or not the peer still needs it.
    fn take_back(&mut self) {
        if let Some(segment) = pick(&self.known.own, &*self.random) {
            self.count("loans that end too early");
            self.qp.invalidate(segment.handle);
            if self.random.below(2) == 0 {
                self.known.own.retain(|own| own.handle != segment.handle);
            }
        }
    }

    /// Uses memory that the peer has lent, from its beginning.
    fn use_loans(&mut self) {
        let Some(segment) = any_segment(&self.known, &*self.random) else { return };
        let length = self.random.below(u64::from(segment.length) + 1) as u32;
        self.count("loans that are used");
        self.write_or_read(Segment { length, ..segment });
    }

    /// Uses memory of the peer that was never lent, or not for this use.
    fn reach(&mut self) {
        let random = &self.random;
        let made_up = Segment { handle: random.next_u32(), length: 100, offset: random.next_u64() };
        let near = any_segment(&self.known, &**random).unwrap_or(made_up);
        let beyond = match random.below(4) {
            0 => made_up,
            1 => Segment { offset: near.offset.wrapping_add(u64::from(near.length)), length: 1, ..near },
            2 => Segment { offset: near.offset.wrapping_sub(1), ..near },
            _ => Segment { length: near.length.saturating_add(1).min(1 << 20), ..near },
        };
        self.count("Writes and Reads out of the region");
        self.write_or_read(beyond);
    }

    fn write_or_read(&mut self, segment: Segment) {
        let Segment { handle, length, offset } = segment;
        let length = length.min(1 << 20);
        if self.random.below(2) == 0 {
            let octets = vec![pattern(length as usize, 11).into()];
            let _ = self.qp.post_write(WriteWork { octets: octets.into(), handle, offset, ..WriteWork::default() });
        } else {
            let sink = Buffer::from_vec(vec![0; length as usize]);
            let sources = vec![RemoteSegment { handle, length, offset }];
            let _ = self.qp.post_read(ReadWork { token: Token(2), sink, sources });
        }
    }

    /// Sends a message that invalidates a loan of the peer: one that exists, has ended, or never existed.
    fn invalidate(&mut self) {
        let known = any_segment(&self.known, &*self.random).map(|segment| segment.handle);
        let handle = match self.random.below(3) {
            0 => self.random.next_u32(),
            _ => known.unwrap_or_else(|| self.random.next_u32()),
        };
        let octets = if self.client { self.speaker().any_call() } else { self.speaker().any_reply() };
        self.count("invalidations");
        self.post(octets, Some(handle));
    }

    /// Takes all completions that have come.
    async fn look(&mut self) {
        poll_fn(|cx| {
            while !self.closed
                && let Poll::Ready(completion) = self.qp.poll(cx)
            {
                self.took(completion);
            }
            Poll::Ready(())
        })
        .await;
    }

    fn took(&mut self, completion: Completion) {
        match completion {
            Completion::Received { buffer, .. } => {
                let octets = Bytes::copy_from_slice(buffer.filled());
                self.hear(&octets);
                match &self.shared {
                    Some(pool) if self.temper.listens => pool.post(buffer),
                    None if self.temper.listens => drop(self.qp.post_receive(buffer)),
                    _ => {}
                }
            }
            Completion::Fenced { handle, .. } => self.known.own.retain(|own| own.handle != handle),
            Completion::Closed { .. } => self.closed = true,
            _ => {}
        }
    }

    fn hear(&mut self, octets: &Bytes) {
        let (xid, version, lists, is_call) = match version(octets) {
            Some(v2::VERSION) => {
                let Ok((header, _)) = v2::Header::decode_piece(octets) else { return };
                self.credits += i64::from(header.credits.granted);
                let lists = header.body.chunks().map(|chunks| chunks.lists.clone());
                (header.xid, v2::VERSION, lists, !header.flags.response)
            }
            _ => {
                let Ok((header, _)) = v1::Header::decode(octets) else { return };
                self.credits = (self.credits + 1).clamp(1, i64::from(header.credit.min(1 << 16)).max(1));
                (header.xid, v1::VERSION, header.body.lists().cloned(), true)
            }
        };
        let Some(lists) = lists else { return };
        let named = lists.writes.0.iter().chain(&lists.reply).flat_map(|chunk| chunk.0.iter().copied());
        self.known.handles.extend(named.chain(lists.reads.0.iter().map(|read| read.segment)));
        let forgotten = self.known.handles.len().saturating_sub(MEMORY);
        self.known.handles.drain(..forgotten);
        if is_call {
            self.known.calls.push_back(Heard { xid, version, lists });
            if self.known.calls.len() > MEMORY {
                self.known.calls.pop_front();
            }
        }
    }
}
