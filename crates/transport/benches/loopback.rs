//! How fast calls go between a server and a client in one process, over software iWARP on the loopback interface:
//! `cargo bench -p rpcrdma-transport`.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use rpcrdma_env::{Allocator, BoxFuture, tokio_env};
use rpcrdma_fabric::{Fabric, pool::Pool};
use rpcrdma_iwarp::{Config, Iwarp};
use rpcrdma_oncrpc::{AcceptNone, Answer, CallContext, Client, ItemRoom, NoAuth, ReplyShape, Router, Service};
use rpcrdma_transport::{ClientOptions, Quiet, Server, ServerMemory, ServerOptions, connect};
use rpcrdma_xdr::{Decoder, Encoder, ItemData};
use std::{
    future::poll_fn,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

/// A program of one's own: procedure 1 takes a length and returns as many bytes.
struct Zeroes;

impl Service for Zeroes {
    fn program(&self) -> u32 {
        0x2000_0003
    }
    fn version(&self) -> u32 {
        1
    }
    fn is_idempotent(&self, _: u32) -> bool {
        true
    }
    fn call(&self, context: CallContext, _: u32, mut args: Decoder) -> BoxFuture<'static, Answer> {
        Box::pin(async move {
            let Ok(len) = args.count(1 << 20) else { return Answer::GarbageArgs };
            let mut buffer = context.connection.allocator.allocate(len).await;
            buffer.set_len(len);
            let mut results = Encoder::new();
            results.item(buffer.freeze());
            Answer::Results(results.finish())
        })
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
}

/// Serves on a thread of its own and says where.
fn serve() -> std::net::SocketAddr {
    let (sender, address) = std::sync::mpsc::channel();
    thread::spawn(move || {
        let local = tokio::task::LocalSet::new();
        local.block_on(&runtime(), async move {
            let env = tokio_env().expect("an environment");
            let fabric = Iwarp::new(env.clone(), Config::default());
            let router = Router::new(&env).with_service(Arc::new(Zeroes)).with_flavour(Arc::new(AcceptNone));
            let memory = ServerMemory::budget(256 << 20);
            let options = ServerOptions::default();
            let server = Server::new(&fabric, Arc::new(router), memory, env, options, Arc::new(Quiet));
            let any = "127.0.0.1:0".parse().expect("an address");
            let mut listener = fabric.listen(any).await.expect("a port");
            sender.send(listener.local_addr()).expect("somebody asks");
            loop {
                let Ok(pending) = poll_fn(|cx| listener.poll_accept(cx)).await else { continue };
                let server = server.clone();
                tokio::task::spawn_local(async move {
                    if let Ok((_, driver)) = server.accept(pending).await {
                        let _ = driver.await;
                    }
                });
            }
        });
    });
    address.recv().expect("the server listens")
}

/// The time that so many calls take, of which `depth` are under way at a time.
async fn calls(client: &Client, pool: &Pool, len: usize, depth: usize, count: u64) -> Duration {
    let left = Arc::new(AtomicU64::new(count));
    let begin = Instant::now();
    let workers = (0..depth).map(|_| {
        let (client, pool, left) = (client.clone(), pool.clone(), left.clone());
        tokio::spawn(async move {
            let mut buffer = None;
            while left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok() {
                let mut args = Encoder::new();
                args.u32(len as u32);
                let lent = buffer.take().or_else(|| pool.try_allocate(len)).expect("the pool has no limit");
                let room = ItemRoom { max_len: len, buffer: Some(lent) };
                let shape = ReplyShape { max_len: len + 8, items: vec![room].into() };
                let mut results = client.call(1, args.finish(), shape).await.expect("a reply");
                if let ItemData::Placed(placed) = results.decoder.item(len).expect("the octets") {
                    buffer = Some(placed);
                }
            }
        })
    });
    for worker in workers.collect::<Vec<_>>() {
        worker.await.expect("no panic");
    }
    begin.elapsed()
}

fn loopback(criterion: &mut Criterion) {
    let address = serve();
    let runtime = runtime();
    let client = runtime.block_on(async {
        let env = tokio_env().expect("an environment");
        let fabric = Arc::new(Iwarp::new(env.clone(), Config::default()));
        let (transport, driver) =
            connect(fabric, address, &env, ClientOptions::default(), Arc::new(Quiet)).await.expect("a connection");
        tokio::spawn(driver);
        Client::new(transport, Arc::new(NoAuth), 0x2000_0003, 1)
    });
    let pool = Pool::new();
    let mut group = criterion.benchmark_group("loopback");
    for (len, depth) in [(1 << 20, 8), (64 << 10, 8), (4096, 32), (4, 32), (4, 1)] {
        group.throughput(if len > 4 { Throughput::Bytes(len as u64) } else { Throughput::Elements(1) });
        group.bench_function(format!("{len} bytes, {depth} calls at a time"), |bencher| {
            bencher.iter_custom(|count| runtime.block_on(calls(&client, &pool, len, depth, count)));
        });
    }
}

criterion_group!(benches, loopback);
criterion_main!(benches);
