//! Peers that receive nothing and serve no RDMA Read, over a queue pair made for this only.

use crate::{
    VERSION,
    common::{self, Log, bytes, router, store},
};
use bytes::Bytes;
use rpcrdma_env::{BoxFuture, Clock};
use rpcrdma_fabric::{
    AcceptError, Buffer, Capabilities, CloseReason, Completion, Connected, ConnectionInfo, ConnectionParams, Fabric,
    Incoming, Lent, Pending, QueuePair, ReadWork, Refused, RefusedReason, RemoteSegment, SendWork, Token, WorkKind,
    WriteWork,
};
use rpcrdma_sim::World;
use rpcrdma_transport::{
    CLOSE_TIMEOUT, ConnectionError, Event, MAX_PULLS, PULL_STALLS, STALL_LIMIT, Server, ServerMemory, ServerOptions,
    Versions,
};
use rpcrdma_wire::{
    v1::{Body, Header, Lists, ReadList, ReadSegment, Segment, WriteChunk, WriteList},
    v2,
};
use std::{
    collections::VecDeque,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

const SERVER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));

/// A peer that sends its messages and completes nothing. It does not even close. With `drip` it accepts replies, sends
/// all messages after the first only when it has a reply, completes an RDMA Read now and then, and disconnects when
/// everything is answered.
struct Dead {
    info: ConnectionInfo,
    capabilities: Capabilities,
    says: VecDeque<Bytes>,
    held: VecDeque<ReadWork>,
    /// Sends that the peer has not completed, and the number of all.
    sent: VecDeque<Token>,
    answers: usize,
    /// When the peer sends its last message, if late.
    late: Option<BoxFuture<'static, ()>>,
    said: usize,
    /// The interval between completed Reads, if any, and when the next one completes.
    drip: Option<Duration>,
    due: BoxFuture<'static, ()>,
    clock: Arc<dyn Clock>,
    /// The most Reads that were posted at a time.
    most_held: Arc<AtomicUsize>,
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
    fn post_send(&mut self, send: SendWork) -> Result<(), Refused<SendWork>> {
        self.answers += 1;
        self.sent.extend(send.signaled.then_some(send.token));
        Ok(())
    }
    fn post_write(&mut self, _: WriteWork) -> Result<(), Refused<WriteWork>> {
        Ok(())
    }
    fn post_read(&mut self, read: ReadWork) -> Result<(), Refused<ReadWork>> {
        self.held.push_back(read);
        self.most_held.fetch_max(self.held.len(), Ordering::Relaxed);
        Ok(())
    }
    fn expose(&mut self, _: Token, returned: Lent) -> Result<RemoteSegment, Refused<Lent>> {
        Err(Refused { reason: RefusedReason::Unsupported("exposing"), returned })
    }
    fn invalidate(&mut self, _: u32) {}
    fn disconnect(&mut self) {}
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Completion> {
        let Some(drip) = self.drip else {
            if self.says.len() == 1
                && let Some(late) = &mut self.late
            {
                std::task::ready!(late.as_mut().poll(cx));
                self.late = None;
            }
            return self.says.pop_front().map_or(Poll::Pending, received);
        };
        if let Some(token) = self.sent.pop_front() {
            return Poll::Ready(Completion::Done { token, kind: WorkKind::Send });
        }
        if (self.said == 0 || self.answers > 0)
            && let Some(octets) = self.says.pop_front()
        {
            self.said += 1;
            return received(octets);
        }
        if self.held.is_empty() {
            let over = self.said == self.answers;
            return if over { Poll::Ready(Completion::Closed { reason: CloseReason::Remote }) } else { Poll::Pending };
        }
        std::task::ready!(self.due.as_mut().poll(cx));
        self.due = self.clock.sleep_until(self.clock.now() + drip);
        let Some(ReadWork { token, mut sink, .. }) = self.held.pop_front() else { return Poll::Pending };
        sink.set_len(sink.capacity());
        Poll::Ready(Completion::Read { token, sink })
    }
}

fn received(octets: Bytes) -> Poll<Completion> {
    let mut buffer = Buffer::from_vec(octets.to_vec());
    buffer.set_len(octets.len());
    Poll::Ready(Completion::Received { buffer, invalidated: None })
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

/// Serves a dead peer that sends `says`. Returns how the connection ended, after which time, and the server's memory.
fn serve(says: &[Bytes]) -> (Result<(), ConnectionError>, Duration, ServerMemory) {
    serve_logged(says, &Arc::default())
}

fn serve_logged(says: &[Bytes], log: &Arc<Log>) -> (Result<(), ConnectionError>, Duration, ServerMemory) {
    serve_dripping(says, log, None, &Arc::default())
}

/// The same with a peer that completes a Read each `drip`. Also counts the Reads posted at a time.
fn serve_dripping(
    says: &[Bytes],
    log: &Arc<Log>,
    drip: Option<Duration>,
    most_held: &Arc<AtomicUsize>,
) -> (Result<(), ConnectionError>, Duration, ServerMemory) {
    serve_late(says, log, drip, None, most_held)
}

/// The same with a peer that sends its last message after `late`, if it does not drip.
fn serve_late(
    says: &[Bytes],
    log: &Arc<Log>,
    drip: Option<Duration>,
    late: Option<Duration>,
    most_held: &Arc<AtomicUsize>,
) -> (Result<(), ConnectionError>, Duration, ServerMemory) {
    let world = World::new(1);
    let env = world.env();
    let fabric = world.fabric(SERVER);
    let memory = ServerMemory::budget(4 << 20);
    let handler = router(&env, &store(&env));
    let clock = env.clock.clone();
    let mut options = ServerOptions::default();
    options.versions = VERSION;
    let server = Server::new(&fabric, handler, memory.clone(), env, options, log.clone());
    let address = SocketAddr::new(SERVER, 1);
    let info = ConnectionInfo { local: address, peer: address, private_data: Bytes::new(), ird: 4, ord: 4 };
    let says = says.iter().cloned().collect();
    let started = world.now();
    let dead = Dead {
        info,
        capabilities: fabric.capabilities().clone(),
        says,
        held: VecDeque::new(),
        sent: VecDeque::new(),
        answers: 0,
        said: 0,
        late: late.map(|late| clock.sleep_until(started + late)),
        drip,
        due: clock.sleep_until(started + drip.unwrap_or_default()),
        clock,
        most_held: most_held.clone(),
    };
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
    let mut octets = match VERSION {
        Versions::One => Header::new(xid, 8, Body::Msg(lists)).to_bytes().to_vec(),
        // Without an exchange of properties, which a server accepts as well.
        _ => v2::Header::msg(xid, v2::Credits::new(64, 64), false, false, lists.into()).to_bytes().to_vec(),
    };
    octets.extend_from_slice(&bytes(&[xid, 0, 2, common::PROGRAM, 1, procedure, 0, 0, 0, 0]));
    octets.extend_from_slice(&bytes(args));
    octets.into()
}

#[test]
fn a_peer_that_serves_no_reads_is_dropped_with_the_memory_that_it_held() {
    let segment = Segment { handle: 1, length: 1 << 20, offset: 0 };
    let lists = Lists { reads: ReadList(vec![ReadSegment { position: 48, segment }].into()), ..Lists::default() };
    let (ended, took, memory) = serve(&[call(lists, common::WRITE, &[1, 1 << 20])]);
    assert_eq!(ended, Err(ConnectionError::Stalled { after: STALL_LIMIT }));
    assert_eq!(took, STALL_LIMIT, "neither sooner nor later");
    assert!(memory.arguments.try_allocate(2 << 20).is_some());
}

/// A small call, whose reply grants credits, and calls with a chunk of `octets` bytes each.
fn writes(count: usize, octets: u32) -> Vec<Bytes> {
    let write = |xid| {
        let segment = Segment { handle: 1, length: octets, offset: 0 };
        let lists = Lists { reads: ReadList(vec![ReadSegment { position: 48, segment }].into()), ..Lists::default() };
        call_with(xid, lists, common::WRITE, &[1, octets])
    };
    let first = call_with(1000, Lists::default(), common::READ, &[0, 0, 100, 1]);
    std::iter::once(first).chain((1..=count as u32).map(write)).collect()
}

/// Each Read completes before the peer counts as stalled, but all together take too long.
#[test]
fn a_peer_that_answers_reads_one_by_one_is_dropped_when_a_calls_chunks_are_overdue() {
    let drip = STALL_LIMIT - Duration::from_secs(1);
    let held = Arc::default();
    let (ended, took, memory) = serve_dripping(&writes(MAX_PULLS, 4096), &Arc::default(), Some(drip), &held);
    let limit = STALL_LIMIT * PULL_STALLS;
    assert_eq!(ended, Err(ConnectionError::Stalled { after: limit }));
    assert_eq!(took, limit, "neither sooner nor later");
    assert!(memory.arguments.try_allocate(2 << 20).is_some());
}

/// The calls beyond the limit wait until it is their turn, and are executed then.
#[test]
fn a_connection_pulls_for_a_few_calls_at_a_time() {
    for calls in [MAX_PULLS, MAX_PULLS + 1, 3 * MAX_PULLS] {
        let (log, held) = (Arc::new(Log::default()), Arc::new(AtomicUsize::new(0)));
        let (ended, ..) = serve_dripping(&writes(calls, 4096), &log, Some(Duration::from_secs(1)), &held);
        assert_eq!(ended, Ok(()));
        assert_eq!(held.load(Ordering::Relaxed), MAX_PULLS);
        assert_eq!(log.count(|event| matches!(event, Event::Called { .. })), 1 + calls);
    }
}

#[test]
fn a_peer_that_takes_no_answers_is_dropped() {
    let (ended, took, memory) = serve(&[call(Lists::default(), common::READ, &[0, 0, 100, 1])]);
    assert_eq!(ended, Err(ConnectionError::Stalled { after: STALL_LIMIT }));
    assert_eq!(took, STALL_LIMIT);
    assert!(memory.results.try_allocate(2 << 20).is_some());
}

/// Data that a peer does not take cost no further memory when it makes more calls.
#[test]
fn a_peer_that_takes_no_data_has_no_further_calls_executed() {
    let log = Arc::new(Log::default());
    let reads: Vec<_> = (1..=8)
        .map(|handle| {
            let segment = Segment { handle, length: 400_000, offset: 0 };
            let lists = Lists { writes: WriteList(vec![WriteChunk(vec![segment].into())].into()), ..Lists::default() };
            call_with(handle, lists, common::READ, &[0, 0, 400_000, 1])
        })
        .collect();
    let (ended, ..) = serve_logged(&reads, &log);
    assert_eq!(ended, Err(ConnectionError::Stalled { after: STALL_LIMIT }));
    assert_eq!(log.count(|event| matches!(event, Event::Called { .. })), 3, "the first to pass 1 MiB is the last");
}

/// The server does not wait for a provider that does not close in time.
#[test]
fn a_connection_that_does_not_close_is_dropped() {
    let slow = call(Lists::default(), common::SLEEP, &[0, 1, 100, 1]);
    let (ended, took, _) = serve(&[slow.clone(), slow]);
    assert!(matches!(ended, Err(ConnectionError::Peer(_))), "{ended:?}");
    assert_eq!(took, CLOSE_TIMEOUT);
}

/// The provider has its whole time to close, even if another limit ends sooner: here that of the unserved RDMA Read.
#[test]
fn the_time_to_close_begins_with_the_end() {
    let segment = Segment { handle: 1, length: 4096, offset: 0 };
    let lists = Lists { reads: ReadList(vec![ReadSegment { position: 48, segment }].into()), ..Lists::default() };
    let unread = call(lists, common::WRITE, &[1, 4096]);
    // There is no credit for a second call.
    let fault = call_with(2, Lists::default(), common::READ, &[0, 0, 100, 1]);
    let late = STALL_LIMIT - CLOSE_TIMEOUT / 2;
    let (ended, took, _) = serve_late(&[unread, fault], &Arc::default(), None, Some(late), &Arc::default());
    assert!(matches!(ended, Err(ConnectionError::Peer(_))), "{ended:?}");
    assert_eq!(took, late + CLOSE_TIMEOUT);
}
