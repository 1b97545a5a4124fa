//! A watched queue pair.

use super::Watch;
use crate::{
    capture::End,
    lock,
    plan::Faults,
    wire::{Account, traits},
};
use bytes::Bytes;
use rpcrdma_env::{Buffer, Random};
use rpcrdma_fabric::{
    Capabilities, Completion, Connected, ConnectionInfo, Lent, QueuePair, ReadWork, Refused, RemoteSegment, SendWork,
    Token, WriteWork,
};
use std::{
    collections::BTreeMap,
    hash::{DefaultHasher, Hasher},
    net::IpAddr,
    sync::Arc,
    task::{Context, Poll},
};

pub(super) struct WatchedQueuePair {
    inner: Connected,
    watch: Arc<Watch>,
    faults: Arc<Faults>,
    number: u64,
    end: End,
    /// The host that accepted.
    acceptor: IpAddr,
    account: Account,
    /// Memory that is lent to the peer, by handle, with a digest of the bytes if it may read them.
    exposed: BTreeMap<u32, Option<u64>>,
    /// Reads under way, with their tags in the capture.
    reads: BTreeMap<Token, Vec<(u32, u32)>>,
}

/// A digest that shows whether bytes have changed. It is only compared within this process.
fn digest(octets: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(octets);
    hasher.finish()
}

impl WatchedQueuePair {
    pub(super) fn new(inner: Connected, watch: Arc<Watch>, faults: Arc<Faults>, number: u64, initiator: bool) -> Self {
        let info = inner.info();
        let (address, acceptor) = if initiator { (info.local, info.peer) } else { (info.peer, info.local) };
        let end = End { address, initiator };
        let account = Account::new(initiator);
        let (exposed, reads) = (BTreeMap::new(), BTreeMap::new());
        Self { inner, watch, faults, number, end, acceptor: acceptor.ip(), account, exposed, reads }
    }

    fn found(&self, text: &str) {
        let side = if self.end.initiator { "initiator" } else { "acceptor" };
        self.watch.record.found(format!("connection of {}, {side}: {text}", self.end.address));
    }

    /// Judges our messages, which must be right towards every peer.
    fn judge_us(&self, judgement: Result<(), String>) {
        if let Err(text) = judgement
            && self.watch.ledger.trust.holds_us(self.end.address)
        {
            self.found(&text);
        }
    }

    /// Judges the peer's messages, if they count.
    fn judge_peer(&self, judgement: Result<(), String>) {
        if let Err(text) = judgement
            && self.watch.ledger.trust.counts(self.end.address, self.acceptor)
        {
            self.found(&text);
        }
    }

    /// Records a message of a peer that is not watched when it arrives.
    fn keep_foreign(&self, buffer: &Buffer, invalidate: Option<u32>) {
        let peer = if self.end.initiator { self.acceptor } else { self.end.address.ip() };
        if let Some(recorder) = &self.watch.recorder
            && self.watch.ledger.trust.is_foreign(peer)
        {
            let octets = vec![Bytes::copy_from_slice(buffer.filled())];
            let end = End { initiator: !self.end.initiator, ..self.end };
            recorder.send(end, &SendWork { octets: octets.into(), invalidate, ..SendWork::default() });
        }
    }

    /// Flips one bit, if it is time for that.
    fn corrupt(&self, buffer: &mut Buffer) {
        let bits = buffer.len() as u64 * 8;
        if bits == 0 || !self.faults.corrupts() {
            return;
        }
        let bit = self.faults.random.below(bits);
        if let Some(octet) = buffer.bytes_mut().get_mut((bit / 8) as usize) {
            *octet ^= 1 << (bit % 8);
        }
        self.watch.tally.count("fault: a message was corrupted");
        self.watch.record.note(format!("bit {bit} of a message of {} was corrupted", self.end.address));
        self.watch.ledger.spoil(self.end.address);
    }

    fn fenced(&mut self, handle: u32, memory: &Lent) {
        let lent = self.exposed.remove(&handle);
        self.watch.registry.fence(self.number, handle);
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

    fn completed(&mut self, completion: &mut Completion) {
        match completion {
            Completion::Received { buffer, invalidated } => {
                self.keep_foreign(buffer, *invalidated);
                self.watch.registry.take(self.number, buffer);
                let judgement = self.account.received(buffer.filled());
                self.judge_peer(judgement);
                self.corrupt(buffer);
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

    fn post_send(&mut self, send: SendWork) -> Result<(), Refused<SendWork>> {
        let seen = SendWork { octets: send.octets.clone(), ..send };
        self.inner.post_send(send)?;
        let octets = seen.octets.concat();
        traits(&octets).into_iter().for_each(|what| self.watch.tally.count(what));
        if seen.invalidate.is_some() {
            self.watch.tally.count("message: Send with Invalidate");
        }
        let judgement = self.account.sent(&octets);
        self.judge_us(judgement);
        if let Some(recorder) = &self.watch.recorder {
            recorder.send(self.end, &seen);
        }
        Ok(())
    }

    fn post_write(&mut self, write: WriteWork) -> Result<(), Refused<WriteWork>> {
        let seen = self.watch.recorder.is_some().then(|| WriteWork { octets: write.octets.clone(), ..write });
        self.inner.post_write(write)?;
        if let (Some(recorder), Some(write)) = (&self.watch.recorder, seen) {
            recorder.write_posted(self.end, &write);
        }
        Ok(())
    }

    fn post_read(&mut self, read: ReadWork) -> Result<(), Refused<ReadWork>> {
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
        let mut source = None;
        let before = match &memory {
            Lent::Source(octets) => {
                source = Some(octets.clone());
                Some(digest(octets))
            }
            Lent::Sink(buffer) => {
                self.watch.registry.give(self.number, buffer);
                None
            }
        };
        let exposed = self.inner.expose(token, memory);
        match &exposed {
            Ok(segment) => {
                lock(&self.watch.counts).1 += 1;
                if let Some(octets) = source {
                    self.watch.registry.expose(self.number, segment.handle, &octets);
                }
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

    fn has_completion(&self) -> bool {
        self.inner.has_completion()
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Completion> {
        let mut polled = self.inner.poll(cx);
        if let Poll::Ready(completion) = &mut polled {
            self.completed(completion);
        }
        polled
    }
}

impl Drop for WatchedQueuePair {
    fn drop(&mut self) {
        // The provider is dropped after this, with all its buffers.
        self.watch.registry.abandon(self.number);
        lock(&self.watch.counts).1 -= self.exposed.len();
        let trust = &self.watch.ledger.trust;
        if self.end.initiator {
            trust.over(self.end.address);
        }
        if (self.end.initiator || trust.is_foreign(self.end.address.ip()))
            && let Some(recorder) = &self.watch.recorder
        {
            recorder.closed(self.end.address);
        }
    }
}
