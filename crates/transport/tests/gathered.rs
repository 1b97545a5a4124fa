//! Completions that come together are handled together: what must not be lost or change its order by that. Needs a
//! provider that has all of them at once, and says so.

mod common;

use bytes::Bytes;
use common::{Log, client};
use rpcrdma_env::{Allocator, BoxFuture, Heap};
use rpcrdma_fabric::{
    Buffer, Capabilities, CloseReason, Completion, ConnectError, Connected, ConnectionInfo, ConnectionParams, Fabric,
    Lent, ListenError, Listener, QueuePair, ReadWork, ReceivePool, Refused, RefusedReason, RemoteSegment, SendWork,
    Token, WriteWork,
};
use rpcrdma_sim::World;
use rpcrdma_transport::{ClientOptions, Event, Versions, connect};
use rpcrdma_wire::v1::{Body, Header, Lists};
use std::{
    collections::VecDeque,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll, Waker},
};

const SERVER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2)), 20049);
const CALLS: usize = 20;
/// Those that are answered before the connection ends: fewer than are handled together.
const ANSWERED: usize = 4;

/// A server's end of a connection that answers each call at once. The first connection does so with its first call;
/// then it waits until it has all calls, and the answers to some of them and the end come together.
struct Leaving {
    info: ConnectionInfo,
    capabilities: Capabilities,
    completions: VecDeque<Completion>,
    waker: Option<Waker>,
    /// The answers of the first connection that wait.
    answers: Option<Vec<Completion>>,
    calls: Arc<AtomicUsize>,
}

/// The answer to a NULL call.
fn answer(call: &[Bytes]) -> Completion {
    let call = call.concat();
    let xid = u32::from_be_bytes([call[0], call[1], call[2], call[3]]);
    let mut octets = Header::new(xid, 64, Body::Msg(Lists::default())).to_bytes().to_vec();
    // A reply, accepted, without a verifier, successful.
    for word in [xid, 1, 0, 0, 0, 0] {
        octets.extend(word.to_be_bytes());
    }
    let len = octets.len();
    let mut buffer = Buffer::from_vec(octets);
    buffer.set_len(len);
    Completion::Received { buffer, invalidated: None }
}

impl QueuePair for Leaving {
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
        let answer = answer(&send.octets);
        let is_first = self.calls.fetch_add(1, Ordering::Relaxed) == 0;
        match &mut self.answers {
            Some(answers) if !is_first => {
                answers.push(answer);
                if answers.len() == CALLS {
                    self.completions.extend(answers.drain(..ANSWERED));
                    self.completions.push_back(Completion::Closed { reason: CloseReason::Remote });
                }
            }
            _ => self.completions.push_back(answer),
        }
        self.waker.take().inspect(Waker::wake_by_ref);
        Ok(())
    }
    fn post_write(&mut self, returned: WriteWork) -> Result<(), Refused<WriteWork>> {
        Err(Refused { reason: RefusedReason::Unsupported("writing"), returned })
    }
    fn post_read(&mut self, returned: ReadWork) -> Result<(), Refused<ReadWork>> {
        Err(Refused { reason: RefusedReason::Unsupported("reading"), returned })
    }
    fn expose(&mut self, _: Token, returned: Lent) -> Result<RemoteSegment, Refused<Lent>> {
        Err(Refused { reason: RefusedReason::Unsupported("exposing"), returned })
    }
    fn invalidate(&mut self, _: u32) {}
    fn disconnect(&mut self) {}
    fn has_completion(&self) -> bool {
        !self.completions.is_empty()
    }
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Completion> {
        self.waker = Some(cx.waker().clone());
        self.completions.pop_front().map_or(Poll::Pending, Poll::Ready)
    }
}

struct Leavers {
    capabilities: Capabilities,
    calls: Arc<AtomicUsize>,
}

impl Fabric for Leavers {
    fn name(&self) -> &'static str {
        "leavers"
    }
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }
    fn pool(&self) -> Arc<dyn Allocator> {
        Arc::new(Heap)
    }
    fn receive_pool(&self) -> Option<Arc<dyn ReceivePool>> {
        None
    }
    fn connect(&self, peer: SocketAddr, _: ConnectionParams) -> BoxFuture<'_, Result<Connected, ConnectError>> {
        let leaving = Leaving {
            info: ConnectionInfo { local: peer, peer, private_data: Bytes::new(), ird: 4, ord: 4 },
            capabilities: self.capabilities.clone(),
            completions: VecDeque::new(),
            waker: None,
            answers: (self.calls.load(Ordering::Relaxed) == 0).then(Vec::new),
            calls: self.calls.clone(),
        };
        Box::pin(async move { Ok(Box::new(leaving) as Connected) })
    }
    fn listen(&self, _: SocketAddr) -> BoxFuture<'_, Result<Box<dyn Listener>, ListenError>> {
        Box::pin(std::future::pending())
    }
}

/// Answers that came before the end of the connection end their calls: only the others are sent a second time.
#[test]
fn what_came_before_the_end_counts() {
    let world = World::new(1);
    world.block_on(async {
        let calls = Arc::new(AtomicUsize::new(0));
        let capabilities = world.fabric(SERVER.ip()).capabilities().clone();
        let fabric = Arc::new(Leavers { capabilities, calls: calls.clone() });
        let mut options = ClientOptions::default();
        options.versions = Versions::One;
        let log = Arc::new(Log::default());
        let (transport, driver) = connect(fabric, SERVER, &world.env(), options, log.clone()).await.unwrap();
        world.spawn(driver);
        let client = client(transport);
        client.null().await.unwrap();
        let all = futures_util::future::try_join_all((0..CALLS).map(|_| client.null()));
        all.await.unwrap();
        assert_eq!(calls.load(Ordering::Relaxed), 1 + CALLS + (CALLS - ANSWERED), "all calls that were sent");
        assert_eq!(log.count(|event| matches!(event, Event::Connected { .. })), 2);
    });
}
