//! Peers that take nothing and answer no RDMA Read, over a queue pair that is made of nothing else.

mod common;

use bytes::Bytes;
use common::{Log, bytes, router, store};
use rpcrdma::{CLOSE_TIMEOUT, ConnectionError, Event, STALL_LIMIT, Server, ServerMemory, ServerOptions};
use rpcrdma_env::BoxFuture;
use rpcrdma_fabric::{
    AcceptError, Buffer, Capabilities, Completion, Connected, ConnectionInfo, ConnectionParams, Fabric, Incoming, Lent,
    Pending, QueuePair, Read, Refused, RefusedReason, RemoteSegment, Send, Token, Write,
};
use rpcrdma_sim::World;
use rpcrdma_wire::v1::{Body, Header, Lists, ReadList, ReadSegment, Segment, WriteChunk, WriteList};
use std::{
    collections::VecDeque,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

const SERVER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));

/// Says what it was told to say, and completes nothing. It does not even close.
struct Dead {
    info: ConnectionInfo,
    capabilities: Capabilities,
    says: VecDeque<Bytes>,
    held: Vec<Read>,
}

impl QueuePair for Dead {
    fn info(&self) -> &ConnectionInfo {
        &self.info
    }
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }
    fn post_receive(&mut self, _: Buffer) -> Result<(), Refused<Buffer>> {
        Ok(())
    }
    fn posted_receives(&self) -> usize {
        0
    }
    fn post_send(&mut self, _: Send) -> Result<(), Refused<Send>> {
        Ok(())
    }
    fn post_write(&mut self, _: Write) -> Result<(), Refused<Write>> {
        Ok(())
    }
    fn post_read(&mut self, read: Read) -> Result<(), Refused<Read>> {
        self.held.push(read);
        Ok(())
    }
    fn expose(&mut self, _: Token, returned: Lent) -> Result<RemoteSegment, Refused<Lent>> {
        Err(Refused { reason: RefusedReason::Unsupported("exposing"), returned })
    }
    fn invalidate(&mut self, _: u32) {}
    fn disconnect(&mut self) {}
    fn poll(&mut self, _: &mut Context<'_>) -> Poll<Completion> {
        match self.says.pop_front() {
            Some(octets) => {
                let mut buffer = Buffer::from_vec(octets.to_vec());
                buffer.set_len(octets.len());
                Poll::Ready(Completion::Received { buffer, invalidated: None })
            }
            None => Poll::Pending,
        }
    }
}

struct Arriving(Dead);

impl Pending for Arriving {
    fn peer(&self) -> SocketAddr {
        self.0.info.peer
    }
    fn request(self: Box<Self>) -> BoxFuture<'static, Result<Box<dyn Incoming>, AcceptError>> {
        Box::pin(async move { Ok(self as Box<dyn Incoming>) })
    }
}

impl Incoming for Arriving {
    fn info(&self) -> &ConnectionInfo {
        &self.0.info
    }
    fn accept(self: Box<Self>, _: ConnectionParams) -> BoxFuture<'static, Result<Connected, AcceptError>> {
        Box::pin(async move { Ok(Box::new(self.0) as Connected) })
    }
    fn reject(self: Box<Self>, _: Bytes) -> BoxFuture<'static, Result<(), AcceptError>> {
        Box::pin(async { Ok(()) })
    }
}

/// Serves a dead peer that says this. Returns how the connection ended and after what time, and the server's memory.
fn serve(says: &[Bytes]) -> (Result<(), ConnectionError>, Duration, ServerMemory) {
    serve_logged(says, &Arc::default())
}

fn serve_logged(says: &[Bytes], log: &Arc<Log>) -> (Result<(), ConnectionError>, Duration, ServerMemory) {
    let world = World::new(1);
    let env = world.env();
    let fabric = world.fabric(SERVER);
    let memory = ServerMemory::budget(4 << 20);
    let handler = router(&env, &store(&env));
    let server = Server::new(&fabric, handler, memory.clone(), env, ServerOptions::default(), log.clone());
    let address = SocketAddr::new(SERVER, 1);
    let info = ConnectionInfo { local: address, peer: address, private_data: Bytes::new(), ird: 4, ord: 4 };
    let says = says.iter().cloned().collect();
    let dead = Dead { info, capabilities: fabric.capabilities().clone(), says, held: Vec::new() };
    let started = world.now();
    let ended = world.block_on(async {
        let (_, driver) = server.accept(Box::new(Arriving(dead))).await.unwrap();
        driver.await
    });
    (ended, world.now().since(started), memory)
}

fn call(lists: Lists, procedure: u32, args: &[u32]) -> Bytes {
    call_with(1, lists, procedure, args)
}

fn call_with(xid: u32, lists: Lists, procedure: u32, args: &[u32]) -> Bytes {
    let mut octets = Header::new(xid, 8, Body::Msg(lists)).to_bytes().to_vec();
    octets.extend_from_slice(&bytes(&[xid, 0, 2, common::PROGRAM, 1, procedure, 0, 0, 0, 0]));
    octets.extend_from_slice(&bytes(args));
    octets.into()
}

#[test]
fn a_peer_that_serves_no_reads_is_dropped_with_the_memory_that_it_held() {
    let segment = Segment { handle: 1, length: 1 << 20, offset: 0 };
    let lists = Lists { reads: ReadList(vec![ReadSegment { position: 48, segment }]), ..Lists::default() };
    let (ended, took, memory) = serve(&[call(lists, common::WRITE, &[1, 1 << 20])]);
    assert_eq!(ended, Err(ConnectionError::Stalled { after: STALL_LIMIT }));
    assert_eq!(took, STALL_LIMIT, "neither sooner nor later");
    assert!(memory.arguments.try_allocate(2 << 20).is_some());
}

#[test]
fn a_peer_that_takes_no_answers_is_dropped() {
    let (ended, took, memory) = serve(&[call(Lists::default(), common::READ, &[0, 0, 100, 1])]);
    assert_eq!(ended, Err(ConnectionError::Stalled { after: STALL_LIMIT }));
    assert_eq!(took, STALL_LIMIT);
    assert!(memory.results.try_allocate(2 << 20).is_some());
}

/// What a peer does not take costs no more memory when it asks for more.
#[test]
fn a_peer_that_takes_no_data_has_no_further_calls_executed() {
    let log = Arc::new(Log::default());
    let reads: Vec<_> = (1..=8)
        .map(|handle| {
            let segment = Segment { handle, length: 400_000, offset: 0 };
            let lists = Lists { writes: WriteList(vec![WriteChunk(vec![segment])]), ..Lists::default() };
            call_with(handle, lists, common::READ, &[0, 0, 400_000, 1])
        })
        .collect();
    let (ended, ..) = serve_logged(&reads, &log);
    assert_eq!(ended, Err(ConnectionError::Stalled { after: STALL_LIMIT }));
    assert_eq!(log.count(|event| matches!(event, Event::Called { .. })), 3, "the first to pass 1 MiB is the last");
}

/// A provider that does not close in time is not waited for.
#[test]
fn a_connection_that_does_not_close_is_dropped() {
    let slow = call(Lists::default(), common::SLEEP, &[0, 1, 100, 1]);
    let (ended, took, _) = serve(&[slow.clone(), slow]);
    assert!(matches!(ended, Err(ConnectionError::Peer(_))), "{ended:?}");
    assert_eq!(took, CLOSE_TIMEOUT);
}
