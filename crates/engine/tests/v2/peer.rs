//! One connection of version 2 with a hand-made peer.

use crate::common::{Handles, T, closed, segment};
use bytes::Bytes;
use rpcrdma_engine::{Action, Call, CallError, CallId, Config, MessageKind, RequestId, v2::Connection};
use rpcrdma_env::Timestamp;
use rpcrdma_wire::v2::{Body, Chunks, Credits, ErrorBody, Header, Lists, ReadList, ReadSegment, WriteChunk, WriteList};
use rpcrdma_xdr::Payload;

/// The effects of one input.
#[derive(Debug, Default)]
pub struct Done {
    pub sent: Vec<(Header, usize, MessageKind, Option<u32>)>,
    pub actions: Vec<Action>,
    pub receives: usize,
}

impl Done {
    /// The errors among the sent messages, with their XIDs.
    pub fn errors(&self) -> Vec<(u32, ErrorBody)> {
        let error = |(header, ..): &(Header, usize, MessageKind, Option<u32>)| match header.body {
            Body::Error(error) => Some((header.xid, error)),
            _ => None,
        };
        self.sent.iter().filter_map(error).collect()
    }

    pub fn grants(&self) -> usize {
        self.sent.iter().filter(|(_, _, kind, _)| *kind == MessageKind::Grant).count()
    }

    pub fn delivered(&self) -> Vec<(RequestId, u32)> {
        let delivered = |action: &Action| match action {
            Action::Deliver { request, xid, .. } => Some((*request, *xid)),
            _ => None,
        };
        self.actions.iter().filter_map(delivered).collect()
    }

    pub fn failed(&self) -> Vec<CallError> {
        let failed = |action: &Action| match action {
            Action::Fail { error, .. } => Some(*error),
            _ => None,
        };
        self.actions.iter().filter_map(failed).collect()
    }

    pub fn completed(&self) -> usize {
        self.actions.iter().filter(|action| matches!(action, Action::Complete { .. })).count()
    }

    pub fn closed(&self) -> bool {
        closed(&self.actions).is_some()
    }
}

pub struct Peer {
    pub engine: Connection,
    pub host: Handles,
    pub now: Timestamp,
}

impl Peer {
    pub fn new(config: Config) -> Self {
        Self { engine: Connection::new(config, 2), host: Handles::default(), now: T }
    }

    /// A server whose client has announced the defaults, or a client whose server has done so.
    pub fn ready(config: Config) -> Self {
        Self::announced(config, Vec::new())
    }

    /// The same with properties.
    pub fn announced(config: Config, set: Vec<rpcrdma_wire::v2::Property>) -> Self {
        let mut peer = Self::new(config);
        peer.engine.start(T, &mut peer.host);
        peer.take();
        let set = rpcrdma_wire::v2::PropertySet(set);
        peer.hear(&Header::connprop(0x66, Credits::new(32, 32), false, set), &[]);
        peer
    }

    pub fn hear(&mut self, header: &Header, payload: &[u8]) -> Done {
        let mut octets = header.to_bytes().to_vec();
        octets.extend_from_slice(payload);
        self.hear_bytes(octets)
    }

    pub fn hear_bytes(&mut self, octets: Vec<u8>) -> Done {
        self.engine.received(octets.into(), self.now, &mut self.host);
        self.take()
    }

    pub fn call(&mut self, xid: u32, message: Payload, reply_max: usize, items: &[usize], repeatable: bool) -> Done {
        let call = CallId(xid.into());
        let made = Call { repeatable, ..Call::new(call, xid, message).with_reply(reply_max, items) };
        self.engine.call(made, self.now, &mut self.host).unwrap();
        self.take()
    }

    pub fn wake(&mut self, now: Timestamp) -> Done {
        self.now = now;
        self.engine.wake(now, &mut self.host);
        self.take()
    }

    /// Carries out the engine's actions: invalidates at once, and collects Sends.
    pub fn take(&mut self) -> Done {
        let mut done = Done::default();
        while let Some(action) = self.engine.poll() {
            match action {
                Action::Send { octets, signaled, about } => {
                    let octets = Bytes::from(octets.concat());
                    let (header, len) = Header::decode(&octets).or_else(|_| Header::decode_piece(&octets)).unwrap();
                    done.sent.push((header, octets.len() - len, about.kind, about.invalidates));
                    if signaled {
                        self.engine.drained();
                    }
                }
                Action::Invalidate { exposure, .. } => {
                    self.engine.fenced(exposure);
                    if self.engine.next_wake().is_some_and(|when| when <= self.now) {
                        self.engine.wake(self.now, &mut self.host);
                    }
                }
                Action::PostReceives { count } => done.receives += count,
                other => done.actions.push(other),
            }
        }
        done
    }
}

pub fn credits() -> Credits {
    Credits::new(1, 32)
}

pub fn msg(xid: u32, response: bool, more: bool, lists: Lists) -> Header {
    Header::msg(xid, credits(), response, more, Chunks { inv_handle: 0, lists })
}

pub fn reads(chunks: &[(u32, u32)]) -> Lists {
    let entry = |&(position, length): &(u32, u32)| ReadSegment { position, segment: segment(5, length) };
    Lists { reads: ReadList(chunks.iter().map(entry).collect()), ..Lists::default() }
}

pub fn writes(chunks: &[&[u32]]) -> Lists {
    let chunk = |lengths: &&[u32]| WriteChunk(lengths.iter().map(|&length| segment(6, length)).collect());
    Lists { writes: WriteList(chunks.iter().map(chunk).collect()), ..Lists::default() }
}

pub fn payload(run: usize) -> Payload {
    Payload::from(Bytes::from(vec![0; run]))
}
