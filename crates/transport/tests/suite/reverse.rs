//! Calls from the server to the client, on the client's connection (RFC 8167).

use crate::common::{Log, client, finish_read, read, start_read, store};
use crate::{
    VERSIONS, common,
    options::{client_options, server_options},
};
use rpcrdma_env::BoxFuture;
use rpcrdma_fabric::Fabric;
use rpcrdma_oncrpc::{
    AcceptNone, Answer, CallContext, CallError, Client, Misuse, NoAuth, ReplyShape, Router, Service, TransportError,
};
use rpcrdma_sim::World;
use rpcrdma_transport::{ClientOptions, Reverse, Server, ServerMemory, Versions, connect, v2::ReverseSupport};
use rpcrdma_xdr::{Decoder, Encoder};
use std::{
    future::poll_fn,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
const SERVER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));
const ADDRESS: SocketAddr = SocketAddr::new(SERVER, 20049);
const CALLER: u32 = 0x2000_0002;
/// The answer when there is no client to call back.
const NOBODY: u32 = u32::MAX - 1;

/// A program whose procedures call the caller back.
struct CallsBack;

impl Service for CallsBack {
    fn program(&self) -> u32 {
        CALLER
    }
    fn version(&self) -> u32 {
        1
    }
    fn is_idempotent(&self, _: u32) -> bool {
        true
    }
    fn call(&self, context: CallContext, _: u32, mut args: Decoder) -> BoxFuture<'static, Answer> {
        Box::pin(async move {
            let Ok(len) = args.u32() else { return Answer::GarbageArgs };
            let Some(reverse) = context.connection.reverse.clone() else {
                let mut results = Encoder::new();
                results.u32(NOBODY);
                return Answer::Results(results.finish());
            };
            let back = Client::new(reverse, Arc::new(NoAuth), common::PROGRAM, 1);
            let mut args = Encoder::new();
            args.opaque(&vec![7; len as usize]);
            let echoed = back.call(common::BULK, args.finish(), ReplyShape::inline(len as usize + 8)).await;
            let mut results = Encoder::new();
            match echoed.and_then(|mut results| Ok(results.decoder.opaque(10_000)?)) {
                Ok(octets) => results.u32(octets.len() as u32),
                Err(CallError::Transport(TransportError::Misuse(Misuse::CallTooLarge { .. }))) => results.u32(u32::MAX),
                Err(_) => return Answer::SystemErr,
            }
            Answer::Results(results.finish())
        })
    }
}

async fn call_back(caller: &Client, len: u32) -> Result<u32, CallError> {
    let mut args = Encoder::new();
    args.u32(len);
    let mut results = caller.call(1, args.finish(), ReplyShape::inline(4)).await?;
    Ok(results.decoder.u32()?)
}

async fn run(world: &World, credits: u32, reverse: u32) -> (Client, Client) {
    run_with(world, credits, reverse, ClientOptions::default().reverse_support).await
}

/// The same with the support level that the client announces for the server's calls, in version 2.
async fn run_with(world: &World, credits: u32, reverse: u32, support: ReverseSupport) -> (Client, Client) {
    let fabric = world.fabric(SERVER);
    let env = world.env();
    let router = Router::new(&env)
        .with_service(Arc::new(CallsBack))
        .with_service(store(&env))
        .with_flavour(Arc::new(AcceptNone));
    let mut options = server_options();
    options.reverse_credits = reverse;
    let memory = ServerMemory::budget(8 << 20);
    let log = Arc::new(Log::default());
    let server = Server::new(&fabric, Arc::new(router), memory, env.clone(), options, log);
    let mut listener = fabric.listen(ADDRESS).await.unwrap();
    let spawner = world.clone();
    world.spawn(async move {
        let pending = poll_fn(|cx| listener.poll_accept(cx)).await.unwrap();
        let (_, driver) = server.accept(pending).await.unwrap();
        spawner.spawn(driver);
    });
    let mut options = client_options();
    options.reverse_support = support;
    if credits > 0 {
        options.reverse = Some(Reverse { handler: common::router(&env, &store(&env)), credits });
    }
    let fabric = Arc::new(world.fabric(CLIENT));
    let (transport, driver) = connect(fabric, ADDRESS, &env, options, Arc::new(Log::default())).await.unwrap();
    world.spawn(driver);
    (Client::new(transport.clone(), Arc::new(NoAuth), CALLER, 1), client(transport))
}

/// proves: V1-7.1-b, IE-5.1-a, V1-6.3-a, V2-3.1.3.3-a, V2-4.5.4-a, V2-A.4-a
#[test]
fn both_directions_work_at_once() {
    for seed in 0..10 {
        let world = World::new(seed);
        world.block_on(async {
            let (caller, reader) = run(&world, 4, 4).await;
            assert_eq!(call_back(&caller, 100).await.unwrap(), 100);
            let mut tasks = Vec::new();
            for k in 0..30 {
                let caller = caller.clone();
                tasks.push(world.spawn(async move { assert_eq!(call_back(&caller, k * 30).await.unwrap(), k * 30) }));
            }
            let reads: Vec<_> =
                (0..30).map(|k| (start_read(&reader, 60_000, k, Duration::from_micros(90)), k)).collect();
            for (call, k) in reads {
                finish_read(call, 60_000, k).await.unwrap();
            }
            for task in tasks {
                task.await;
            }
        });
    }
}

/// proves: ULB-6.2-d
#[test]
fn a_call_that_does_not_fit_inline_is_refused_here_or_sent_in_parts() {
    let world = World::new(1);
    world.block_on(async {
        let (caller, _) = run(&world, 4, 4).await;
        assert_eq!(call_back(&caller, 3000).await.unwrap(), 3000);
        // Version 2 sends the call in parts.
        let longer = if VERSIONS.1 == Versions::One { u32::MAX } else { 8186 };
        assert_eq!(call_back(&caller, 8186).await.unwrap(), longer);
    });
}

/// A call that fits inline goes so at every support level; a longer one needs a level with a form for it.
///
/// proves: ULB-6.2-g
#[test]
fn a_longer_call_goes_as_the_client_has_announced_that_it_takes_it() {
    for (support, takes) in
        [(ReverseSupport::Simple, false), (ReverseSupport::Continued, true), (ReverseSupport::General, true)]
    {
        let world = World::new(3);
        world.block_on(async {
            let (caller, _) = run_with(&world, 4, 4, support).await;
            assert_eq!(call_back(&caller, 3000).await.unwrap(), 3000, "{support:?}");
            let longer = if takes && VERSIONS.1 != Versions::One { 8186 } else { u32::MAX };
            assert_eq!(call_back(&caller, 8186).await.unwrap(), longer, "{support:?}");
            assert_eq!(call_back(&caller, 100).await.unwrap(), 100, "{support:?}: the connection is as it was");
        });
    }
}

/// proves: V1-7.1-a
#[test]
fn without_a_reverse_direction_there_is_no_caller() {
    let world = World::new(2);
    world.block_on(async {
        let (caller, reader) = run(&world, 0, 0).await;
        assert_eq!(call_back(&caller, 100).await.unwrap(), NOBODY);
        read(&reader, 100, 1).await;
    });
}
