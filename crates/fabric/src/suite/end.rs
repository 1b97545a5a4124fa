//! One end of a connection under test: it records what the queue pair was given and checks each completion against
//! that.

use super::ledger::number;
use crate::{
    Access, CloseReason, Completion, Connected, Lent, ReadWork, RemoteSegment, SendWork, Token, WorkKind, WriteWork,
};
use bytes::Bytes;
use rpcrdma_env::Buffer;
use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    task::{Context, Poll},
};

/// A queue pair, and what it still has to give back.
pub(super) struct End {
    name: &'static str,
    pub(super) queue_pair: Connected,
    /// Completions that no check has taken yet.
    pub(super) events: VecDeque<Completion>,
    pub(super) closed: Option<CloseReason>,
    /// Whether receives come from a pool that is not this end's.
    pub(super) pooled: bool,
    receives: BTreeSet<u64>,
    reads: BTreeMap<Token, u64>,
    signaled: BTreeMap<Token, WorkKind>,
    exposures: BTreeMap<u32, (Token, Access)>,
    sinks: BTreeMap<Token, u64>,
    next_token: u64,
    dirty: bool,
}

impl End {
    pub(super) fn new(name: &'static str, queue_pair: Connected, receives: BTreeSet<u64>, pooled: bool) -> Self {
        Self {
            name,
            queue_pair,
            events: VecDeque::new(),
            closed: None,
            pooled,
            receives,
            reads: BTreeMap::new(),
            signaled: BTreeMap::new(),
            exposures: BTreeMap::new(),
            sinks: BTreeMap::new(),
            next_token: 1,
            dirty: true,
        }
    }

    pub(super) fn token(&mut self) -> Token {
        let token = Token(self.next_token);
        self.next_token += 1;
        token
    }

    pub(super) fn receive(&mut self, buffer: Buffer) {
        self.dirty = true;
        let number = number(&buffer);
        if let Err(refused) = self.queue_pair.post_receive(buffer) {
            panic!("{}: a receive was refused: {}", self.name, refused.reason);
        }
        self.receives.insert(number);
    }

    /// Sends one message; `signaled` asks for a completion.
    pub(super) fn send(&mut self, octets: Vec<Bytes>, invalidate: Option<u32>, signaled: bool) -> Token {
        self.dirty = true;
        let token = self.token();
        let send = SendWork { token, octets: octets.into(), invalidate, solicited: false, signaled };
        if let Err(refused) = self.queue_pair.post_send(send) {
            panic!("{}: a Send was refused: {}", self.name, refused.reason);
        }
        if signaled {
            self.signaled.insert(token, WorkKind::Send);
        }
        token
    }

    /// Sends a few bytes, unsignaled.
    pub(super) fn say(&mut self, octets: &[u8]) {
        self.send(vec![Bytes::copy_from_slice(octets)], None, false);
    }

    pub(super) fn write(&mut self, octets: Vec<Bytes>, handle: u32, offset: u64, signaled: bool) -> Token {
        self.dirty = true;
        let token = self.token();
        if let Err(refused) =
            self.queue_pair.post_write(WriteWork { token, octets: octets.into(), handle, offset, signaled })
        {
            panic!("{}: a Write was refused: {}", self.name, refused.reason);
        }
        if signaled {
            self.signaled.insert(token, WorkKind::Write);
        }
        token
    }

    pub(super) fn read(&mut self, sink: Buffer, sources: Vec<RemoteSegment>) -> Token {
        self.dirty = true;
        let token = self.token();
        let number = number(&sink);
        if let Err(refused) = self.queue_pair.post_read(ReadWork { token, sink, sources }) {
            panic!("{}: a Read was refused: {}", self.name, refused.reason);
        }
        self.reads.insert(token, number);
        token
    }

    pub(super) fn expose(&mut self, memory: Lent) -> (Token, RemoteSegment) {
        self.dirty = true;
        let token = self.token();
        let (access, octets) = (memory.access(), memory.octets());
        if let Lent::Sink(buffer) = &memory {
            self.sinks.insert(token, number(buffer));
        }
        match self.queue_pair.expose(token, memory) {
            Ok(segment) => {
                assert_eq!(segment.length as usize, octets, "{}: the exposure's length", self.name);
                let before = self.exposures.insert(segment.handle, (token, access));
                assert!(before.is_none(), "{}: handle {:#x} names two exposures", self.name, segment.handle);
                (token, segment)
            }
            Err(refused) => panic!("{}: an exposure was refused: {}", self.name, refused.reason),
        }
    }

    pub(super) fn invalidate(&mut self, handle: u32) {
        self.dirty = true;
        self.queue_pair.invalidate(handle);
    }

    pub(super) fn disconnect(&mut self) {
        self.dirty = true;
        self.queue_pair.disconnect();
    }

    /// Whether something was posted since the last poll.
    pub(super) fn take_dirty(&mut self) -> bool {
        std::mem::take(&mut self.dirty)
    }

    /// Polls until nothing more happens.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) {
        while let Poll::Ready(completion) = self.queue_pair.poll(cx) {
            self.check(&completion);
            match completion {
                Completion::Closed { reason } => self.closed = Some(reason),
                other => self.events.push_back(other),
            }
        }
    }

    fn check(&mut self, completion: &Completion) {
        let name = self.name;
        assert!(self.closed.is_none(), "{name}: after the end came {completion:?}");
        match completion {
            Completion::Received { buffer, .. } => self.take_receive(buffer),
            Completion::Done { token, kind } => {
                assert_eq!(self.signaled.remove(token), Some(*kind), "{name}: {completion:?} that nobody asked for");
            }
            Completion::Read { token, sink } => {
                assert_eq!(self.reads.remove(token), Some(number(sink)), "{name}: {completion:?} with another sink");
            }
            Completion::Fenced { token, handle, memory, .. } => {
                let lent = self.exposures.remove(handle);
                assert_eq!(lent, Some((*token, memory.access())), "{name}: {completion:?} of what was not lent");
                if let Lent::Sink(buffer) = memory {
                    assert_eq!(self.sinks.remove(token), Some(number(buffer)), "{name}: other memory came back");
                }
            }
            Completion::Failed { kind: WorkKind::Receive, buffer, .. } => match buffer {
                Some(buffer) => self.take_receive(buffer),
                None => panic!("{name}: a receive failed without its buffer"),
            },
            Completion::Failed { token, kind: WorkKind::Read, buffer, .. } => {
                let sink = buffer.as_ref().map(number);
                assert!(sink.is_some(), "{name}: a Read failed without its sink");
                assert_eq!(self.reads.remove(token), sink, "{name}: {completion:?} of an unknown Read");
            }
            Completion::Failed { token, .. } => {
                self.signaled.remove(token);
            }
            Completion::Closed { .. } => {
                assert!(self.receives.is_empty(), "{name}: closed with {} receives", self.receives.len());
                assert!(self.reads.is_empty(), "{name}: closed with {} Reads", self.reads.len());
                assert!(self.exposures.is_empty(), "{name}: closed with {} exposures", self.exposures.len());
                assert!(self.signaled.is_empty(), "{name}: closed without a word about {:?}", self.signaled);
            }
        }
    }

    fn take_receive(&mut self, buffer: &Buffer) {
        let number = number(buffer);
        assert!(self.pooled || self.receives.remove(&number), "{}: receive {number} came twice", self.name);
    }

    /// The first completion for which `which` is true.
    pub(super) fn take(&mut self, mut which: impl FnMut(&Completion) -> bool) -> Option<Completion> {
        let index = self.events.iter().position(&mut which)?;
        self.events.remove(index)
    }

    /// The next message, if it has come.
    pub(super) fn take_received(&mut self) -> Option<(Buffer, Option<u32>)> {
        match self.take(|c| matches!(c, Completion::Received { .. }))? {
            Completion::Received { buffer, invalidated } => Some((buffer, invalidated)),
            _ => None,
        }
    }

    /// The state of this end, for a failure's message.
    pub(super) fn describe(&self) -> String {
        format!(
            "{}: closed {:?}, {} receives, {} Reads, {} exposures, signaled {:?}, not looked at {:?}",
            self.name,
            self.closed,
            self.receives.len(),
            self.reads.len(),
            self.exposures.len(),
            self.signaled.keys(),
            self.events
        )
    }
}
