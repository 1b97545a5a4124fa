//! A provider or a transport misbehaves once in each way that the watch looks for.

use super::{Watch, queue_pair::WatchedQueuePair};
use crate::{
    ledger::Ledger,
    lock,
    memory::{Registry, Watched},
    plan::Faults,
    record::Record,
    tally::Tally,
};
use bytes::Bytes;
use rpcrdma_env::{Allocator, Buffer, Heap};
use rpcrdma_fabric::{
    Capabilities, CloseReason, Completion, ConnectionInfo, FenceCause, Lent, QueuePair, ReadWork, Refused,
    RemoteSegment, SendWork, Token, WriteWork,
};
use rpcrdma_sim::{SimConfig, World};
use rpcrdma_wire::v1::{Body, Header, Lists};
use std::{
    collections::VecDeque,
    net::SocketAddr,
    sync::{Arc, Mutex},
    task::{Context, Poll, Waker},
};

/// A provider that accepts everything, and completes what the test wants.
struct Puppet {
    info: ConnectionInfo,
    capabilities: Capabilities,
    says: Arc<Mutex<VecDeque<Completion>>>,
    kept: Vec<Buffer>,
}

impl QueuePair for Puppet {
    fn info(&self) -> &ConnectionInfo {
        &self.info
    }
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }
    fn post_receive(&mut self, buffer: Buffer) -> Result<(), Refused<Buffer>> {
        self.kept.push(buffer);
        Ok(())
    }
    fn posted_receives(&self) -> usize {
        self.kept.len()
    }
    fn post_send(&mut self, _: SendWork) -> Result<(), Refused<SendWork>> {
        Ok(())
    }
    fn post_write(&mut self, _: WriteWork) -> Result<(), Refused<WriteWork>> {
        Ok(())
    }
    fn post_read(&mut self, _: ReadWork) -> Result<(), Refused<ReadWork>> {
        Ok(())
    }
    fn expose(&mut self, _: Token, memory: Lent) -> Result<RemoteSegment, Refused<Lent>> {
        // The same handle each time.
        Ok(RemoteSegment { handle: 7, length: memory.octets() as u32, offset: 0 })
    }
    fn invalidate(&mut self, _: u32) {}
    fn disconnect(&mut self) {}
    fn poll(&mut self, _: &mut Context<'_>) -> Poll<Completion> {
        lock(&self.says).pop_front().map_or(Poll::Pending, Poll::Ready)
    }
}

struct Scene {
    watch: Arc<Watch>,
    qp: WatchedQueuePair,
    says: Arc<Mutex<VecDeque<Completion>>>,
    allocator: Watched,
}

const INITIATOR: &str = "10.0.0.2:5000";

impl Scene {
    fn new() -> Self {
        let clock = World::new(1).env().clock;
        let record = Record::new(clock.clone());
        let registry = Registry::new(record.clone());
        let ledger = Ledger::new(record.clone());
        let watch = Watch::new(record, registry.clone(), ledger, Arc::<Tally>::default(), None);
        let faults = Arc::new(Faults::none());
        let info = ConnectionInfo {
            local: INITIATOR.parse().unwrap(),
            peer: "10.0.0.1:20049".parse().unwrap(),
            private_data: Bytes::new(),
            ird: 1,
            ord: 1,
        };
        let says = Arc::<Mutex<VecDeque<Completion>>>::default();
        let capabilities = SimConfig::default().capabilities;
        let puppet = Puppet { info, capabilities, says: says.clone(), kept: Vec::new() };
        let qp = WatchedQueuePair::new(Box::new(puppet), watch.clone(), faults.clone(), 1, true);
        let allocator = Watched { inner: Arc::new(Heap), name: "test", registry, faults, clock, allowance: None };
        Self { watch, qp, says, allocator }
    }

    fn buffer(&self, octets: &[u8]) -> Buffer {
        let mut buffer = self.allocator.try_allocate(octets.len()).unwrap();
        buffer.bytes_mut()[..octets.len()].copy_from_slice(octets);
        buffer.set_len(octets.len());
        buffer
    }

    fn say(&mut self, completion: Completion) -> Completion {
        lock(&self.says).push_back(completion);
        match self.qp.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(completion) => completion,
            Poll::Pending => panic!("nothing was said"),
        }
    }

    fn send(&mut self, message: Vec<u8>) {
        self.qp.post_send(SendWork { octets: vec![message.into()].into(), ..SendWork::default() }).unwrap();
    }

    fn hear(&mut self, message: &[u8]) {
        let buffer = Buffer::from_vec(message.to_vec());
        let mut buffer = buffer;
        buffer.set_len(message.len());
        self.say(Completion::Received { buffer, invalidated: None });
    }

    fn findings(&self) -> usize {
        self.watch.record.findings().len()
    }
}

fn source(octets: &'static [u8]) -> Lent {
    Lent::Source(Bytes::from_static(octets))
}

fn fenced(memory: Lent) -> Completion {
    Completion::Fenced { token: Token(0), handle: 7, memory, cause: FenceCause::Local }
}

fn message(xid: u32, reply: bool) -> Vec<u8> {
    let mut octets = Header::new(xid, 1, Body::Msg(Lists::default())).to_bytes().to_vec();
    octets.extend([xid, u32::from(reply)].into_iter().flat_map(u32::to_be_bytes));
    octets
}

#[test]
fn memory_that_is_lent_and_comes_back_as_it_was_is_no_finding() {
    let mut scene = Scene::new();
    scene.qp.expose(Token(0), source(b"octets")).unwrap();
    assert_eq!(scene.watch.exposed(), 1);
    scene.say(fenced(source(b"octets")));
    scene.say(Completion::Closed { reason: CloseReason::Local });
    assert_eq!((scene.watch.exposed(), scene.findings()), (0, 0));
}

#[test]
fn memory_that_changes_while_a_peer_may_read_it_is_found() {
    let mut scene = Scene::new();
    scene.qp.expose(Token(0), source(b"octets")).unwrap();
    scene.say(fenced(source(b"0ctets")));
    assert_eq!(scene.findings(), 1);
}

#[test]
fn exposures_that_end_twice_or_begin_twice_or_outlive_their_connection_are_found() {
    for misdeed in 0..3 {
        let mut scene = Scene::new();
        scene.qp.expose(Token(0), source(b"octets")).unwrap();
        match misdeed {
            0 => {
                scene.say(fenced(source(b"octets")));
                scene.say(fenced(source(b"octets")));
            }
            1 => drop(scene.qp.expose(Token(1), source(b"others"))),
            _ => drop(scene.say(Completion::Closed { reason: CloseReason::Local })),
        }
        assert_eq!(scene.findings(), 1, "misdeed {misdeed}");
    }
}

#[test]
fn buffers_that_were_never_given_or_never_come_back_are_found() {
    let mut scene = Scene::new();
    let buffer = scene.buffer(b"octets");
    scene.say(fenced(Lent::Sink(buffer)));
    assert_eq!(scene.findings(), 2, "neither the exposure nor the buffer was the provider's");
    let mut scene = Scene::new();
    let buffer = scene.buffer(b"octets");
    scene.qp.post_receive(buffer).unwrap();
    scene.say(Completion::Closed { reason: CloseReason::Local });
    assert_eq!(scene.findings(), 1);
}

/// Before the first reply, version 1 has one credit.
#[test]
fn credits_that_are_overrun_and_answers_that_come_twice_are_found() {
    let mut scene = Scene::new();
    scene.send(message(1, false));
    scene.hear(&message(1, true));
    assert_eq!(scene.findings(), 0);
    scene.hear(&message(1, true));
    assert_eq!(scene.findings(), 1, "answered twice");
    scene.send(message(2, false));
    scene.send(message(3, false));
    assert_eq!(scene.findings(), 2, "overrun");
    scene.send(vec![1, 2, 3]);
    assert_eq!(scene.findings(), 3, "no message");
}

#[test]
fn words_do_not_count_on_a_spoilt_connection_and_memory_does() {
    let mut scene = Scene::new();
    let initiator: SocketAddr = INITIATOR.parse().unwrap();
    scene.watch.ledger.spoil(initiator);
    scene.hear(&message(1, true));
    scene.hear(b"noise");
    assert_eq!(scene.findings(), 0);
    scene.qp.expose(Token(0), source(b"octets")).unwrap();
    scene.say(fenced(source(b"0ctets")));
    assert_eq!(scene.findings(), 1);
}
