//! Two endpoints joined by a fabric in memory, under random workloads from a seed.
//!
//! The checkers are independent of the engines: the fabric counts receives and credits itself, keeps the memory, and
//! compares every byte that arrives with what was sent.

#![allow(dead_code, reason = "the tests of each version use their share")]

pub mod one;
pub mod rows;
pub mod two;

use crate::common::words;
use bytes::Bytes;
use rpcrdma_engine::{
    Action, Answer, Call, CallError, CallId, CloseCause, Config, Endpoint, ExposeError, ExposureId, Host, Limits,
    Negotiated, Piece, ReplyBase, RequestId, Sink, SinkPlace, Versions, v2::ReverseSupport,
};
use rpcrdma_env::{Random, SeededRandom, Timestamp};
use rpcrdma_wire::v2::{self, Segment};
use rpcrdma_xdr::{Payload, padded};
use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};
use two::Watched;

/// The memory that a handle lends.
pub enum Lent {
    Source(Bytes),
    Sink(Vec<u8>),
}

pub struct Exposure {
    pub id: ExposureId,
    pub sink: Option<Sink>,
    pub lent: Lent,
}

/// The memory of one end, as the provider would keep it.
pub struct Memory {
    pub random: SeededRandom,
    pub by_handle: BTreeMap<u32, Exposure>,
    pub returned: BTreeMap<(CallId, Option<usize>), Vec<u8>>,
    pub exposed_ever: u64,
    pub fenced_ever: u64,
    pub next_xid: u32,
}

impl Memory {
    fn lend(&mut self, id: ExposureId, sink: Option<Sink>, lent: Lent, length: usize) -> Segment {
        let handle = self.random.next_u32();
        self.exposed_ever += 1;
        assert!(self.by_handle.insert(handle, Exposure { id, sink, lent }).is_none());
        Segment { handle, length: length as u32, offset: 1 << 40 }
    }

    /// Ends an exposure: the driver gets the sink's bytes back.
    pub fn fence(&mut self, handle: u32) -> Option<ExposureId> {
        let exposure = self.by_handle.remove(&handle)?;
        self.fenced_ever += 1;
        if let (Lent::Sink(octets), Some(sink)) = (exposure.lent, exposure.sink) {
            let place = match sink.place {
                SinkPlace::Item(index) => Some(index),
                SinkPlace::Reply => None,
            };
            assert!(self.returned.insert((sink.call, place), octets).is_none(), "memory comes back once");
        }
        Some(exposure.id)
    }
}

impl Host for Memory {
    fn expose_source(&mut self, id: ExposureId, octets: &Bytes) -> Result<Segment, ExposeError> {
        Ok(self.lend(id, None, Lent::Source(octets.clone()), octets.len()))
    }

    fn expose_sink(&mut self, id: ExposureId, sink: Sink) -> Result<Segment, ExposeError> {
        // Now and then give more than requested, as pools round up.
        let extra = self.random.below(2) as usize * 64;
        Ok(self.lend(id, Some(sink), Lent::Sink(vec![0xEE; sink.octets + extra]), sink.octets + extra))
    }

    fn next_xid(&mut self) -> u32 {
        self.next_xid = self.next_xid.wrapping_add(1);
        self.next_xid
    }
}

/// What one end sends the other, in order.
pub enum Wire {
    Write { to: Segment, octets: Vec<u8> },
    Send { octets: Bytes, invalidate: Option<u32>, signaled: bool },
}

/// A message that has landed in a receive, and that its end has not looked at.
pub struct Arrived {
    pub octets: Bytes,
    /// The exposure that its sender has invalidated.
    pub fenced: Option<ExposureId>,
}

pub struct Pull {
    pub request: RequestId,
    pub octets: usize,
    pub sources: Vec<Segment>,
}

/// A call as the test remembers it.
pub struct Expected {
    pub call: Bytes,
    pub items: Vec<usize>,
    pub reply: Option<Payload>,
}

pub struct End {
    pub engine: Endpoint,
    pub memory: Memory,
    pub posted: usize,
    pub wire: VecDeque<Wire>,
    pub inbox: VecDeque<Arrived>,
    pub pulls: Vec<Pull>,
    pub pulled: BTreeMap<RequestId, Bytes>,
    pub delivered: Vec<(RequestId, u32)>,
    pub undrained: usize,
    pub open: BTreeMap<CallId, u32>,
    pub given_up: Vec<CallId>,
    pub ended: u64,
    pub negotiated: Option<Negotiated>,
    pub failed: Vec<(CallId, CallError)>,
    pub closed: Option<CloseCause>,
}

pub struct World {
    pub random: SeededRandom,
    pub now: Timestamp,
    pub ends: [End; 2],
    /// By the calling end and the XID.
    pub expected: BTreeMap<(usize, u32), Expected>,
    pub next_call: u64,
    pub broken: bool,
    /// What the checkers have seen on the wire, by the sending end.
    pub watched: [Watched; 2],
    /// The memory that a call lends and the handles that its peer may invalidate, by the calling end and the XID.
    pub offered: BTreeMap<(usize, u32), v2::Chunks>,
    /// Regions that the peer has invalidated with a reply.
    pub invalidated: usize,
    /// Whether the checkers check everything.
    pub strict: bool,
    /// The same for version 1.
    pub one: Option<[one::Watched; 2]>,
    /// Calls whose XID was in use in the other direction.
    pub shared: usize,
}

impl World {
    /// Two endpoints of version 2, of random shape.
    pub fn random(seed: u64) -> Self {
        let random = SeededRandom::new(seed ^ 77);
        let pick = |choices: &[u32]| choices[random.below(choices.len() as u64) as usize];
        let levels = [ReverseSupport::None, ReverseSupport::Simple, ReverseSupport::Continued, ReverseSupport::General];
        let shape = |config: Config| {
            let limits = Limits { segments: pick(&[3, 16, 512]) as usize, ..Limits::default() };
            Config {
                send_bytes: pick(&[4096, 8192, 65_536]),
                receive_bytes: pick(&[4096, 5000, 16_384]),
                remote_invalidation: random.below(2) == 0,
                max_gather: pick(&[2, 3, 8, 16]) as usize,
                max_transfer_bytes: pick(&[20_000, 1 << 20]) as usize,
                versions: Versions::Two,
                limits,
                ..config
            }
        };
        let reverse = levels[random.below(4) as usize];
        let back = if reverse == ReverseSupport::None { 0 } else { pick(&[1, 2, 8]) };
        let client = Config { credits_granted: back, credits_wanted: 16, reverse, ..shape(Config::client()) };
        let server = Config {
            credits_granted: pick(&[1, 2, 3, 8, 64]),
            credits_wanted: pick(&[0, 2, 8]),
            ..shape(Config::server())
        };
        Self::new(seed, client, server)
    }

    /// Two endpoints of version 1, of random shape.
    pub fn random_of_version_1(seed: u64) -> Self {
        let random = SeededRandom::new(seed ^ 77);
        let pick = |choices: &[u32]| choices[random.below(choices.len() as u64) as usize];
        let (inline, invalidation, gather) = (pick(&[1024, 2048, 4096]), random.below(2) == 0, pick(&[2, 5, 9]));
        let reverse = pick(&[0, 0, 2]);
        let shape = |config: Config| Config {
            send_bytes: inline,
            receive_bytes: inline,
            remote_invalidation: invalidation,
            max_gather: gather as usize,
            versions: Versions::One,
            ..config
        };
        let client = Config { credits_granted: reverse, credits_wanted: 16, ..shape(Config::client()) };
        let server =
            Config { credits_granted: pick(&[1, 2, 3, 8, 64]), credits_wanted: reverse, ..shape(Config::server()) };
        let mut world = Self::new(seed, client, server);
        world.strict = false;
        world.one = Some(Default::default());
        world
    }

    /// The most that an end may send inline in version 1, as agreed when the connection was made.
    fn inline(&self, at: usize) -> usize {
        self.ends[at].negotiated.as_ref().expect("version 1 is settled at once").link.send_inline
    }

    pub fn new(seed: u64, client: Config, server: Config) -> Self {
        let random = SeededRandom::new(seed);
        let end = |config: Config, peer: Config, seed| End {
            posted: config.initial_receives,
            engine: Endpoint::new(config, Some(&peer.private_data())),
            memory: Memory {
                random: SeededRandom::new(seed),
                by_handle: BTreeMap::new(),
                returned: BTreeMap::new(),
                exposed_ever: 0,
                fenced_ever: 0,
                next_xid: 1_000_000,
            },
            wire: VecDeque::new(),
            inbox: VecDeque::new(),
            pulls: Vec::new(),
            pulled: BTreeMap::new(),
            delivered: Vec::new(),
            undrained: 0,
            open: BTreeMap::new(),
            given_up: Vec::new(),
            ended: 0,
            negotiated: None,
            failed: Vec::new(),
            closed: None,
        };
        let ends = [end(client.clone(), server.clone(), seed ^ 1), end(server, client, seed ^ 2)];
        let mut world = Self {
            random,
            now: Timestamp::from_nanos(1),
            ends,
            expected: BTreeMap::new(),
            next_call: 0,
            broken: false,
            watched: [Watched::new(true), Watched::new(false)],
            offered: BTreeMap::new(),
            invalidated: 0,
            strict: true,
            one: None,
            shared: 0,
        };
        let End { engine, memory, .. } = &mut world.ends[0];
        engine.start(world.now, memory);
        world.act(0);
        world.act(1);
        world
    }

    pub fn octets(&self, len: usize) -> Bytes {
        let mut octets = vec![0; len];
        self.random.fill(&mut octets);
        octets.into()
    }

    pub fn pick(&self, sizes: &[usize]) -> usize {
        sizes[self.random.below(sizes.len() as u64) as usize]
    }

    /// Starts a call at `end`, of random shape.
    pub fn start(&mut self, end: usize) {
        // Few XIDs, so that both directions use the same one at the same time, and each is used again once it is free.
        let xid = 1 + self.random.below(64) as u32;
        let id = CallId(self.next_call);
        let mut message = Payload::from(Bytes::from(words(&[xid, 0, 2, 100_003, 3, 1])));
        let mut items = Vec::new();
        // Version 1 has no chunks in the reverse direction.
        let inline_only = self.one.is_some() && end == 1;
        let mut reply_max = self.pick(&[24, 200, 980, 1000]);
        if !inline_only {
            message.push_run(self.octets(self.pick(&[0, 4, 400, 1200, 5000, 30_000])));
            for _ in 0..self.random.below(4) {
                message.push_run(self.octets(4));
                message.push_item(self.octets(self.pick(&[0, 1, 7, 900, 5001, 19_000])));
            }
            message.push_run(self.octets(self.pick(&[0, 8, 100])));
            reply_max = self.pick(&[24, 200, 1100, 6000, 40_000]);
            for _ in 0..self.random.below(4) {
                items.push(self.pick(&[0, 3, 500, 4096, 19_001]));
            }
        }
        reply_max += items.iter().map(|&len| padded(len) + 4).sum::<usize>();
        let call = message.to_bytes();
        let End { engine, memory, .. } = &mut self.ends[end];
        let made = Call::new(id, xid, message).with_reply(reply_max, &items);
        if engine.call(made, self.now, memory).is_err() {
            return;
        }
        self.next_call += 1;
        self.shared += usize::from(self.ends[1 - end].open.values().any(|other| *other == xid));
        self.ends[end].open.insert(id, xid);
        // The reply uses some of the room; now and then the rest of the stream fills the remaining room.
        let head = words(&[xid, 1, 0, 0, 0, 0]);
        let mut spare = reply_max - items.iter().map(|&len| padded(len) + 4).sum::<usize>() - head.len();
        let mut reply = Payload::from(Bytes::from(head));
        for &len in &items {
            reply.push_run(self.octets(4));
            let used = match self.random.below(3) {
                0 => len,
                1 => self.random.below(len as u64 + 1) as usize,
                _ => 0,
            };
            reply.push_item(self.octets(used));
        }
        // Now and then more than the caller expected: it need not know the size.
        let simple = self.watched[0].announced.reverse == ReverseSupport::Simple;
        let beyond = if !self.strict || end == 1 && simple { 0 } else { 20_000 };
        spare = [spare, 0, spare / 8 * 4, spare + beyond][self.random.below(4) as usize];
        reply.push_run(self.octets(spare));
        self.expected.insert((end, xid), Expected { call, items, reply: Some(reply) });
        self.act(end);
    }

    /// Carries out the actions of one end.
    pub fn act(&mut self, at: usize) {
        while let Some(action) = self.ends[at].engine.poll() {
            let end = &mut self.ends[at];
            match action {
                Action::PostReceives { count } => end.posted += count,
                Action::Send { octets, signaled, about } => {
                    let (whole, invalidate) = (octets.concat(), about.invalidates);
                    assert_eq!(whole.len(), about.inline_bytes, "as it is told");
                    let inline = self.one.is_some().then(|| self.inline(at));
                    if let (Some(one), Some(inline)) = (&mut self.one, inline) {
                        one[at].sends(inline, &whole);
                    }
                    if self.strict {
                        let [client, server] = &mut self.watched;
                        let (ours, theirs) = if at == 0 { (client, server) } else { (server, client) };
                        let header = ours.sends(theirs, &whole);
                        assert_eq!(u32::from(header.credits.granted), about.credit);
                        let last_of_a_reply = header.flags.response && !header.flags.more;
                        assert!(invalidate.is_none() || last_of_a_reply, "only the last Send of a reply invalidates");
                        self.check_offer(at, &header, invalidate);
                    }
                    self.ends[at].wire.push_back(Wire::Send { octets: whole.into(), invalidate, signaled });
                }
                Action::Write { to, octets, .. } => {
                    let octets = octets.concat();
                    assert_eq!(octets.len(), to.length as usize);
                    end.wire.push_back(Wire::Write { to, octets });
                }
                Action::Pull { request, octets, sources, .. } => {
                    end.pulls.push(Pull { request, octets, sources: sources.into_vec() });
                }
                Action::Invalidate { handle, exposure } => {
                    if let Some(id) = end.memory.fence(handle) {
                        assert_eq!(id, exposure);
                        end.engine.fenced(id);
                    }
                }
                Action::Deliver { request, xid, pieces } => {
                    let pulled = end.pulled.remove(&request).unwrap_or_default();
                    let stream = assemble(&pieces, &pulled);
                    match self.expected.get(&(1 - at, xid)) {
                        Some(expected) => assert_eq!(stream, expected.call, "the call arrives whole"),
                        None => assert_eq!(stream[20..24], [0; 4], "a probe calls procedure 0"),
                    }
                    end.delivered.push((request, xid));
                }
                Action::Complete { call, reply } => {
                    let xid = self.close_call(at, call);
                    self.check_reply(at, call, xid, &reply.base, &reply.items);
                }
                Action::Cancelled { call } | Action::Released { call } => {
                    self.close_call(at, call);
                    let end = &mut self.ends[at];
                    let wanted = end.given_up.iter().position(|&given_up| given_up == call);
                    end.given_up.remove(wanted.expect("only what was given up is taken back"));
                    end.memory.returned.retain(|(of, _), _| *of != call);
                }
                Action::Fail { call, error } => {
                    let xid = self.close_call(at, call);
                    self.expected.remove(&(at, xid));
                    self.ends[at].failed.push((call, error));
                }
                Action::Negotiated(negotiated) => {
                    assert!(end.negotiated.replace(negotiated).is_none(), "said once");
                }
                Action::Close(cause) => {
                    end.closed = Some(cause);
                    return self.break_off();
                }
                // The peer was slow, and has answered a probe.
                Action::Alive => {}
                other => panic!("{other:?}"),
            }
        }
        let end = &self.ends[at];
        let stats = end.engine.stats();
        let receives = end.posted + end.inbox.len();
        assert_eq!(stats.receives, receives, "the engine's count is the fabric's");
        if self.one.is_some() {
            assert!(receives > stats.granted as usize + stats.unanswered, "one for each promise, and one more");
        }
    }

    /// A reply must give back the chunks that its call offers: filled in order, and with at most one handle
    /// invalidated.
    fn check_offer(&mut self, at: usize, header: &v2::Header, invalidate: Option<u32>) {
        let Some(chunks) = header.body.chunks().filter(|_| !header.flags.more && !header.is_grant()) else { return };
        if !header.flags.response {
            self.offered.insert((at, header.xid), chunks.clone());
            return;
        }
        let offer = self.offered.remove(&(1 - at, header.xid)).expect("a reply answers a call");
        if let Some(handle) = invalidate {
            assert_eq!(offer.inv_handle, handle, "what was offered");
            self.invalidated += 1;
        }
        let lent = |lists: &v2::Lists| {
            let chunks = lists.writes.chunks().iter().chain(&lists.reply);
            chunks.map(|chunk| chunk.segments().to_vec()).collect::<Vec<_>>()
        };
        let (offered, returned) = (lent(&offer.lists), lent(&chunks.lists));
        assert_eq!(offered.len(), returned.len(), "every chunk comes back");
        for (offered, returned) in offered.iter().zip(&returned) {
            assert_eq!(offered.len(), returned.len(), "with as many segments");
            for (index, (offered, written)) in offered.iter().zip(returned).enumerate() {
                assert_eq!((offered.handle, offered.offset), (written.handle, written.offset));
                assert!(written.length <= offered.length, "no more than there is room for");
                let later = returned[index + 1..].iter().any(|segment| segment.length > 0);
                assert!(!later || written.length == offered.length, "filled in order");
            }
        }
    }

    pub fn close_call(&mut self, at: usize, call: CallId) -> u32 {
        let end = &mut self.ends[at];
        end.ended += 1;
        let exposed = end.memory.by_handle.values().any(|exposure| exposure.sink.is_some_and(|sink| sink.call == call));
        assert!(!exposed, "nothing is exposed for a call that has ended");
        end.open.remove(&call).expect("each call ends once")
    }

    pub fn check_reply(
        &mut self,
        at: usize,
        call: CallId,
        xid: u32,
        base: &ReplyBase,
        items: &[rpcrdma_engine::PlacedItem],
    ) {
        let memory = &mut self.ends[at].memory;
        let expected = self.expected.remove(&(at, xid)).expect("known");
        let reply = expected.reply.expect("answered once");
        assert_eq!(items.len(), expected.items.len());
        let mut reduced = match base {
            ReplyBase::Inline(octets) => octets.to_vec(),
            ReplyBase::Chunk { octets } => {
                memory.returned.remove(&(call, None)).expect("a Reply chunk")[..*octets].to_vec()
            }
        };
        let mut sent = reply.items();
        for (index, item) in items.iter().enumerate() {
            let (position, data) = sent.next().expect("as many items as room");
            if item.returned > 0 {
                let sink = &memory.returned[&(call, Some(index))];
                assert_eq!(&sink[..item.returned], &data[..], "placed in the right memory");
                assert!(sink[item.returned..].iter().all(|&octet| octet == 0xEE), "and nowhere else");
                let padding = padded(data.len());
                reduced.splice(position..position, data.iter().copied().chain(std::iter::repeat(0)).take(padding));
            } else {
                assert!(data.is_empty() || item.offered == 0);
            }
        }
        assert_eq!(reduced, reply.to_bytes(), "the reply arrives whole");
        memory.returned.retain(|(of, _), _| *of != call);
    }

    /// Lets the next thing on the wire from `from` arrive.
    pub fn arrive(&mut self, from: usize) {
        let Some(next) = self.ends[from].wire.pop_front() else { return };
        let to = 1 - from;
        match next {
            Wire::Write { to: segment, octets } => {
                let known = self.ends[to].memory.by_handle.get_mut(&segment.handle);
                let Some(Exposure { lent: Lent::Sink(sink), .. }) = known else { return self.break_off() };
                let at = (segment.offset - (1 << 40)) as usize;
                sink[at..at + octets.len()].copy_from_slice(&octets);
            }
            Wire::Send { octets, invalidate, signaled } => {
                self.ends[from].undrained += usize::from(signaled);
                let end = &mut self.ends[to];
                assert!(end.posted > 0, "a Send that finds no receive ends an iWARP connection");
                end.posted -= 1;
                let fenced = invalidate.and_then(|handle| end.memory.fence(handle));
                end.inbox.push_back(Arrived { octets, fenced });
            }
        }
    }

    /// Lets an end look at the next message that has landed. Until then the message occupies its receive, and the end
    /// posts no other for it; messages on their way must find receives all the same.
    pub fn look(&mut self, at: usize) {
        let end = &mut self.ends[at];
        let Some(Arrived { octets, fenced }) = end.inbox.pop_front() else { return };
        if let Some(id) = fenced {
            end.engine.fenced(id);
        }
        if self.strict
            && let Ok((header, _)) = v2::Header::decode_piece(&octets)
        {
            self.watched[at].hears(&header);
        }
        if let Some(one) = &mut self.one {
            one[at].hears(&octets);
        }
        end.engine.received(octets, self.now, &mut end.memory);
        self.act(at);
    }

    /// Fetches one chunk for `end`.
    pub fn pull(&mut self, at: usize) {
        if self.ends[at].pulls.is_empty() {
            return;
        }
        let which = self.random.below(self.ends[at].pulls.len() as u64) as usize;
        let pull = self.ends[at].pulls.remove(which);
        let mut data = Vec::new();
        for source in &pull.sources {
            let known = self.ends[1 - at].memory.by_handle.get(&source.handle);
            let Some(Exposure { lent: Lent::Source(octets), .. }) = known else { return self.break_off() };
            let from = (source.offset - (1 << 40)) as usize;
            data.extend_from_slice(&octets[from..from + source.length as usize]);
        }
        assert_eq!(data.len(), pull.octets);
        let end = &mut self.ends[at];
        let data = Bytes::from(data);
        end.pulled.insert(pull.request, data.clone());
        end.engine.pulled(pull.request, &data);
        self.act(at);
    }

    pub fn serve(&mut self, at: usize) {
        if self.ends[at].delivered.is_empty() {
            return;
        }
        let which = self.random.below(self.ends[at].delivered.len() as u64) as usize;
        let (request, xid) = self.ends[at].delivered.remove(which);
        let reply = self.expected.get(&(1 - at, xid)).and_then(|expected| expected.reply.clone());
        let reply = reply.unwrap_or_else(|| Payload::from(Bytes::from(words(&[xid, 1, 0, 0, 0, 0]))));
        self.ends[at].engine.answer(request, Answer::Reply(reply));
        self.act(at);
    }

    pub fn give_up(&mut self, at: usize, cancel: bool) {
        let end = &mut self.ends[at];
        let open: Vec<(CallId, u32)> =
            end.open.iter().map(|(call, xid)| (*call, *xid)).filter(|(call, _)| !end.given_up.contains(call)).collect();
        let Some(&(call, xid)) = open.get(self.random.below(open.len().max(1) as u64) as usize) else { return };
        end.given_up.push(call);
        if cancel {
            end.engine.cancel(call, xid);
        } else {
            end.engine.forget(call, xid, self.now);
        }
        self.act(at);
    }

    pub fn drain(&mut self, at: usize) {
        if self.ends[at].undrained > 0 {
            self.ends[at].undrained -= 1;
            self.ends[at].engine.drained();
            self.act(at);
        }
    }

    /// A late access to memory that was taken back ends the connection, and all memory comes back.
    pub fn break_off(&mut self) {
        self.broken = true;
        for at in 0..2 {
            let end = &mut self.ends[at];
            let fenced: Vec<ExposureId> = end.inbox.drain(..).filter_map(|arrived| arrived.fenced).collect();
            fenced.into_iter().for_each(|id| end.engine.fenced(id));
            let handles: Vec<u32> = self.ends[at].memory.by_handle.keys().copied().collect();
            for handle in handles {
                let id = self.ends[at].memory.fence(handle).expect("it is there");
                self.ends[at].engine.fenced(id);
            }
            self.act_after_close(at);
            let again = self.ends[at].engine.closed();
            self.act_after_close(at);
            for call in &again {
                self.close_call(at, *call);
            }
            assert!(again.is_sorted(), "in the order in which they were made");
            assert!(self.ends[at].open.is_empty(), "every call is accounted for");
        }
    }

    pub fn act_after_close(&mut self, at: usize) {
        while let Some(action) = self.ends[at].engine.poll() {
            match action {
                Action::Cancelled { call } | Action::Released { call } => drop(self.close_call(at, call)),
                Action::Complete { call, .. } => drop(self.close_call(at, call)),
                _ => {}
            }
        }
    }

    pub fn busy(&self) -> bool {
        self.ends.iter().any(|end| {
            !end.wire.is_empty()
                || !end.inbox.is_empty()
                || !end.pulls.is_empty()
                || !end.delivered.is_empty()
                || end.undrained > 0
        })
    }

    pub fn wake(&mut self, at: usize) {
        let end = &mut self.ends[at];
        end.engine.wake(self.now, &mut end.memory);
        self.act(at);
    }
}

pub fn assemble(pieces: &[Piece], pulled: &[u8]) -> Vec<u8> {
    let mut stream = Vec::new();
    for piece in pieces {
        match piece {
            Piece::Inline(octets) => stream.extend_from_slice(octets),
            Piece::Run(range) => stream.extend_from_slice(&pulled[range.clone()]),
            Piece::Item(range) => {
                stream.extend_from_slice(&pulled[range.clone()]);
                stream.resize(padded(stream.len()), 0);
            }
        }
    }
    stream
}

impl World {
    /// Takes `steps` random steps.
    pub fn work(&mut self, steps: usize, give_up: bool) {
        let mut blind = None;
        for _ in 0..steps {
            if self.broken {
                break;
            }
            let at = self.random.below(2) as usize;
            // Now and then an end does not look at messages for a while, but goes on sending.
            if self.random.below(60) == 0 {
                blind = [None, None, Some(0), Some(1)][self.random.below(4) as usize];
            }
            match self.random.below(16) {
                0 | 1 => self.start(at),
                2..=5 => self.arrive(at),
                6 | 7 => self.pull(at),
                8 => self.serve(at),
                9 => self.drain(at),
                10 if give_up => {
                    let cancel = self.random.below(2) == 0;
                    self.give_up(at, cancel);
                }
                11 if give_up => {
                    self.now = self.now + Duration::from_secs(self.random.below(3) * 4);
                    self.wake(at);
                }
                12..=15 if blind != Some(at) => self.look(at),
                _ => {}
            }
        }
    }

    /// Lets all work end, without new work.
    pub fn finish(&mut self) {
        let mut rounds = 0;
        while self.busy() && !self.broken {
            for at in 0..2 {
                for step in [World::arrive, World::look, World::pull, World::serve, World::drain] {
                    if !self.broken {
                        step(self, at);
                    }
                }
                if !self.broken && self.ends[at].engine.next_wake().is_some_and(|when| when <= self.now) {
                    self.wake(at);
                }
            }
            rounds += 1;
            assert!(rounds < 100_000, "it converges");
        }
    }

    /// Checks that nothing is left of all work.
    pub fn check_end(&mut self) {
        self.now = self.now + Duration::from_secs(60);
        for at in 0..2 {
            if !self.broken {
                self.wake(at);
            }
        }
        for end in &self.ends {
            let stats = end.engine.stats();
            assert!(end.open.is_empty(), "every call has ended: {stats:?}");
            assert_eq!(end.memory.exposed_ever, end.memory.fenced_ever, "every exposure ended once");
            assert!(end.memory.by_handle.is_empty());
        }
        assert_eq!(self.ends.iter().map(|end| end.ended).sum::<u64>(), self.next_call);
    }
}
