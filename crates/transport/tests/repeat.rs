//! Calls whose results do not fit the offered room: the client sends calls that may be executed twice again with more
//! room; all others fail and were executed once (version 2 draft, section 6.4).

mod common;

use common::{Log, pattern};
use rpcrdma_env::BoxFuture;
use rpcrdma_oncrpc::{
    AcceptNone, Answer, CallContext, CallError, Client, ClientTransport, ItemRoom, NoAuth, RemoteError, ReplyShape,
    Router, Service, TransportError,
};
use rpcrdma_sim::World;
use rpcrdma_transport::{
    ClientOptions, DEFAULT_MAX_MESSAGE_BYTES, Event, MessageKind, Reverse, Server, ServerMemory, ServerOptions,
    Versions, connect, v2,
};
use rpcrdma_xdr::{Decoder, Encoder, Payload};
use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
const SERVER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));
const ADDRESS: SocketAddr = SocketAddr::new(SERVER, 20049);
const PROGRAM: u32 = 0x2000_0005;
/// Returns as many bytes as its argument says, as an item.
const ITEM: u32 = 1;
/// The same; the server keeps its replies for duplicates.
const KEPT_ITEM: u32 = 2;
/// Returns as many bytes as its argument says, as part of the stream.
const RUN: u32 = 3;
/// Calls the client back: [`RUN`], with or without leave to repeat it. Returns the error's code.
const CALL_BACK: u32 = 4;

/// Counts how often a procedure that returns bytes is executed.
#[derive(Default)]
struct Counting(Arc<AtomicU32>);

impl Service for Counting {
    fn program(&self) -> u32 {
        PROGRAM
    }
    fn version(&self) -> u32 {
        1
    }
    fn is_idempotent(&self, procedure: u32) -> bool {
        procedure != KEPT_ITEM
    }
    fn call(&self, context: CallContext, procedure: u32, mut args: Decoder) -> BoxFuture<'static, Answer> {
        if procedure != CALL_BACK {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
        Box::pin(async move {
            let Ok(len) = args.u32() else { return Answer::GarbageArgs };
            let mut results = Encoder::new();
            match procedure {
                ITEM | KEPT_ITEM => results.item(pattern(len as usize, 1).into()),
                RUN => results.opaque(&pattern(len as usize, 1)),
                _ => {
                    let Some(reverse) = context.connection.reverse.clone() else { return Answer::SystemErr };
                    let back = Client::new(reverse, Arc::new(NoAuth), PROGRAM, 1);
                    let called = back.call_repeatable(RUN, word(len), ReplyShape::inline(16)).await;
                    results.u32(called.map_or_else(|error| refused(&error).map_or(u32::MAX, |(code, _)| code), |_| 0));
                }
            }
            Answer::Results(results.finish())
        })
    }
}

fn word(word: u32) -> Payload {
    let mut args = Encoder::new();
    args.u32(word);
    args.finish()
}

/// The error of the peer's transport.
fn refused(error: &CallError) -> Option<(u32, &'static str)> {
    match error {
        CallError::Transport(TransportError::Remote { source: RemoteError::Other { code, name }, .. }) => {
            Some((*code, name))
        }
        _ => None,
    }
}

struct Rig {
    client: Client,
    log: Arc<Log>,
    /// Executions at the server, and at the client.
    executed: [Arc<AtomicU32>; 2],
}

impl Rig {
    async fn new(world: &World, versions: Versions) -> Self {
        let env = world.env();
        let executed = [Arc::default(), Arc::default()];
        let router = |count: &Arc<AtomicU32>| {
            Arc::new(
                Router::new(&env).with_service(Arc::new(Counting(count.clone()))).with_flavour(Arc::new(AcceptNone)),
            )
        };
        let fabric = world.fabric(SERVER);
        let mut options = ServerOptions::default();
        (options.versions, options.reverse_credits) = (versions, 4);
        let memory = ServerMemory::budget(8 << 20);
        let handler = router(&executed[0]);
        let server = Server::new(&fabric, handler, memory, env.clone(), options, Arc::new(Log::default()));
        common::serve_at(world, Arc::new(fabric), ADDRESS, server);
        world.sleep(Duration::from_millis(1)).await;
        let log = Arc::new(Log::default());
        let mut options = ClientOptions::default();
        options.versions = versions;
        options.reverse = Some(Reverse { handler: router(&executed[1]), credits: 4 });
        options.reverse_support = v2::ReverseSupport::Simple;
        let fabric = Arc::new(world.fabric(CLIENT));
        let (transport, driver) = connect(fabric, ADDRESS, &env, options, log.clone()).await.unwrap();
        world.spawn(driver);
        let transport: Arc<dyn ClientTransport> = transport;
        Self { client: Client::new(transport, Arc::new(NoAuth), PROGRAM, 1), log, executed }
    }

    /// Makes a call that returns `len` bytes and offers room for `room` of them.
    async fn call(&self, procedure: u32, len: u32, room: usize, repeatable: bool) -> Result<bool, CallError> {
        let shape = ReplyShape { max_len: 8000, items: vec![ItemRoom::new(room)].into() };
        let call = match repeatable {
            true => self.client.call_repeatable(procedure, word(len), shape),
            false => self.client.call(procedure, word(len), shape),
        };
        let mut results = call.await?;
        assert_eq!(results.decoder.item(2 << 20)?.into_bytes(), pattern(len as usize, 1));
        results.decoder.finish()?;
        Ok(results.retransmitted)
    }

    fn executed(&self) -> [u32; 2] {
        [0, 1].map(|end: usize| self.executed[end].swap(0, Ordering::Relaxed))
    }

    fn calls(&self) -> usize {
        self.log.count(|event| matches!(event, Event::Sent(sent) if sent.kind == MessageKind::Call))
    }
}

/// proves: V2-6.4-f, V2-7.3.4-a, V2-7.3.4-c
#[test]
fn a_call_that_may_be_repeated_gets_more_room() {
    let world = World::new(1);
    world.block_on(async {
        let rig = Rig::new(&world, Versions::Two).await;
        assert!(!rig.call(ITEM, 4000, 4000, true).await.unwrap(), "it fits");
        assert_eq!((rig.executed(), rig.calls()), ([1, 0], 1));
        for (len, room) in [(4001, 4000), (70_000, 4000), (9000, 1)] {
            let before = rig.calls();
            assert!(rig.call(ITEM, len, room, true).await.unwrap(), "sent twice, and the caller is told");
            assert_eq!((rig.executed(), rig.calls() - before), ([2, 0], 2));
        }
        assert!(rig.call(KEPT_ITEM, 4001, 4000, true).await.unwrap());
        assert_eq!(rig.executed(), [1, 0], "a server that keeps answers executes nothing twice");
        assert_eq!(rig.log.count(|event| matches!(event, Event::Closed { .. })), 0);
    });
}

/// proves: V2-6.4-g, V2-7.3.4-d, ULB-3.2-f
#[test]
fn any_other_call_fails_by_name_and_is_executed_once() {
    let world = World::new(2);
    world.block_on(async {
        let rig = Rig::new(&world, Versions::Two).await;
        for procedure in [ITEM, KEPT_ITEM] {
            let error = rig.call(procedure, 4001, 4000, false).await.unwrap_err();
            assert_eq!(refused(&error), Some((9, "RDMA2_ERR_WRITE_RESOURCE")), "{error}");
            assert_eq!(rig.executed(), [1, 0]);
        }
        assert_eq!(rig.calls(), 2);
        assert!(!rig.call(ITEM, 4000, 4000, false).await.unwrap(), "the connection goes on");
        assert_eq!(rig.log.count(|event| matches!(event, Event::Closed { .. })), 0);
    });
}

/// The client does not try again if the result is larger than it can offer at all.
///
/// proves: V2-7.3.4-d
#[test]
fn a_result_beyond_the_limits_is_not_asked_for_again() {
    let world = World::new(3);
    world.block_on(async {
        let rig = Rig::new(&world, Versions::Two).await;
        // The client adds the room offered before, and RPC's header and verifier, to the size that the error names.
        let most = DEFAULT_MAX_MESSAGE_BYTES as u32 - 8000 - 424;
        assert!(rig.call(ITEM, most, 4000, true).await.unwrap());
        assert_eq!(rig.executed(), [2, 0]);
        let error = rig.call(ITEM, most + 1, 4000, true).await.unwrap_err();
        assert_eq!(refused(&error), Some((9, "RDMA2_ERR_WRITE_RESOURCE")), "{error}");
        assert_eq!(rig.executed(), [1, 0]);
    });
}

/// A client in Simple Format takes no chunks and no parts, so it cannot offer more room.
///
/// proves: V2-6.4-g, V2-7.3.5-a, V2-7.3.5-c
#[test]
fn where_no_more_room_can_be_had_nothing_is_executed_twice() {
    let world = World::new(4);
    world.block_on(async {
        let rig = Rig::new(&world, Versions::Two).await;
        for (len, code) in [(100, 0), (9000, 10), (17_000, 10)] {
            let results = rig.client.call(CALL_BACK, word(len), ReplyShape::inline(4)).await.unwrap();
            assert_eq!(results.decode::<u32>().unwrap(), code, "RDMA2_ERR_REPLY_RESOURCE");
            assert_eq!(rig.executed(), [0, 1]);
        }
    });
}

/// Version 1 reports only that something was wrong with chunks, not what: the client sends nothing again.
#[test]
fn version_1_repeats_nothing() {
    let world = World::new(5);
    world.block_on(async {
        let rig = Rig::new(&world, Versions::One).await;
        for repeatable in [false, true] {
            let error = rig.call(ITEM, 4001, 4000, repeatable).await.unwrap_err();
            let chunk = TransportError::Remote { server: ADDRESS, source: RemoteError::Chunk };
            assert!(matches!(&error, CallError::Transport(error) if error.to_string() == chunk.to_string()), "{error}");
            assert_eq!(rig.executed(), [1, 0]);
        }
    });
}
