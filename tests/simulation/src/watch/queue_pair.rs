//! A queue pair that is watched.

use super::Watch;
use crate::{capture::End, lock, wire::Account};
use rpcrdma_env::Buffer;
use rpcrdma_fabric::{
    Capabilities, Completion, Connected, ConnectionInfo, Lent, QueuePair, Read, Refused, RemoteSegment, Send, Token,
    Write,
};
use std::{
    collections::BTreeMap,
    hash::{DefaultHasher, Hasher},
    sync::Arc,
    task::{Context, Poll},
};

pub(super) struct WatchedQueuePair {
    inner: Connected,
    watch: Arc<Watch>,
    number: u64,
    end: End,
    account: Account,
    /// What is lent to the peer, by handle: a digest of the octets where it may read them.
    exposed: BTreeMap<u32, Option<u64>>,
    /// Reads under way, with their tags in the capture.
    reads: BTreeMap<Token, Vec<(u32, u32)>>,
}

/// Tells whether octets have changed. Both digests are taken in the same process, by the same function.
fn digest(octets: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(octets);
    hasher.finish()
}

impl WatchedQueuePair {
    pub(super) fn new(inner: Connected, watch: Arc<Watch>, number: u64, initiator: bool) -> Self {
        let info = inner.info();
        let address = if initiator { info.local } else { info.peer };
        let end = End { address, initiator };
        let account = Account::new(initiator);
        Self { inner, watch, number, end, account, exposed: BTreeMap::new(), reads: BTreeMap::new() }
    }

    fn found(&self, text: &str) {
        let side = if self.end.initiator { "initiator" } else { "acceptor" };
        self.watch.record.found(format!("connection of {}, {side}: {text}", self.end.address));
    }

    fn judge(&self, judgement: Result<(), String>) {
        if let Err(text) = judgement {
            self.found(&text);
        }
    }

    fn fenced(&mut self, handle: u32, memory: &Lent) {
        let lent = self.exposed.remove(&handle);
        if lent.is_some() {
            lock(&self.watch.counts).1 -= 1;
        }
        match (lent, memory) {
            (None, _) => self.found(&format!("handle {handle:#010x} was fenced and is not exposed")),
            (Some(Some(before)), Lent::Source(octets)) if digest(octets) != before => {
                self.found(&format!("memory lent for Reads as {handle:#010x} has changed"));
            }
            _ => {}
        }
        if let Lent::Sink(buffer) = memory {
            self.watch.registry.take(self.number, buffer);
        }
    }

    fn completed(&mut self, completion: &Completion) {
        match completion {
            Completion::Received { buffer, .. } => {
                self.watch.registry.take(self.number, buffer);
                let judgement = self.account.received(buffer.filled());
                self.judge(judgement);
            }
            Completion::Read { token, sink } => {
                self.watch.registry.take(self.number, sink);
                let tags = self.reads.remove(token).unwrap_or_default();
                if let Some(recorder) = &self.watch.recorder {
                    recorder.has_read(self.end, &tags, sink.filled());
                }
            }
            Completion::Fenced { handle, memory, .. } => self.fenced(*handle, memory),
            Completion::Failed { buffer: Some(buffer), .. } => self.watch.registry.take(self.number, buffer),
            Completion::Closed { .. } => {
                self.watch.registry.closed(self.number);
                if !self.exposed.is_empty() {
                    self.found(&format!("closed with {} exposures", self.exposed.len()));
                }
            }
            _ => {}
        }
    }
}

impl QueuePair for WatchedQueuePair {
    fn info(&self) -> &ConnectionInfo {
        self.inner.info()
    }

    fn capabilities(&self) -> &Capabilities {
        self.inner.capabilities()
    }

    fn post_receive(&mut self, buffer: Buffer) -> Result<(), Refused<Buffer>> {
        self.watch.registry.give(self.number, &buffer);
        self.inner.post_receive(buffer).inspect_err(|refused| self.watch.registry.take(self.number, &refused.returned))
    }

    fn posted_receives(&self) -> usize {
        self.inner.posted_receives()
    }

    fn post_send(&mut self, send: Send) -> Result<(), Refused<Send>> {
        let seen = Send { octets: send.octets.clone(), ..send };
        self.inner.post_send(send)?;
        let judgement = self.account.sent(&seen.octets.concat());
        self.judge(judgement);
        if let Some(recorder) = &self.watch.recorder {
            recorder.send(self.end, &seen);
        }
        Ok(())
    }

    fn post_write(&mut self, write: Write) -> Result<(), Refused<Write>> {
        let seen = self.watch.recorder.is_some().then(|| Write { octets: write.octets.clone(), ..write });
        self.inner.post_write(write)?;
        if let (Some(recorder), Some(write)) = (&self.watch.recorder, seen) {
            recorder.write_posted(self.end, &write);
        }
        Ok(())
    }

    fn post_read(&mut self, read: Read) -> Result<(), Refused<Read>> {
        self.watch.registry.give(self.number, &read.sink);
        let (token, sources) = (read.token, read.sources.clone());
        self.inner
            .post_read(read)
            .inspect_err(|refused| self.watch.registry.take(self.number, &refused.returned.sink))?;
        if let Some(recorder) = &self.watch.recorder {
            self.reads.insert(token, recorder.read(self.end, &sources));
        }
        Ok(())
    }

    fn expose(&mut self, token: Token, memory: Lent) -> Result<RemoteSegment, Refused<Lent>> {
        let before = match &memory {
            Lent::Source(octets) => Some(digest(octets)),
            Lent::Sink(buffer) => {
                self.watch.registry.give(self.number, buffer);
                None
            }
        };
        let exposed = self.inner.expose(token, memory);
        match &exposed {
            Ok(segment) => {
                lock(&self.watch.counts).1 += 1;
                if self.exposed.insert(segment.handle, before).is_some() {
                    self.found(&format!("handle {:#010x} is exposed twice", segment.handle));
                }
            }
            Err(Refused { returned: Lent::Sink(buffer), .. }) => self.watch.registry.take(self.number, buffer),
            Err(_) => {}
        }
        exposed
    }

    fn invalidate(&mut self, handle: u32) {
        self.inner.invalidate(handle);
    }

    fn disconnect(&mut self) {
        self.inner.disconnect();
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Completion> {
        let polled = self.inner.poll(cx);
        if let Poll::Ready(completion) = &polled {
            self.completed(completion);
        }
        polled
    }
}

impl Drop for WatchedQueuePair {
    fn drop(&mut self) {
        // The provider is dropped after this, and what it has with it.
        self.watch.registry.abandon(self.number);
        lock(&self.watch.counts).1 -= self.exposed.len();
        if self.end.initiator
            && let Some(recorder) = &self.watch.recorder
        {
            recorder.closed(self.end.address);
        }
    }
}
