//! A small program to call: it reads, writes, sleeps, echoes and counts.
#![allow(dead_code, unused_imports, unreachable_pub)]

mod end;
mod serving;

pub use end::{End, params};
pub use serving::{Script, connected, friend, script, serve_after, serve_at};

use bytes::Bytes;
use rpcrdma_env::{Allocator, BoxFuture, Env};
use rpcrdma_oncrpc::{
    AcceptNone, Answer, Call, CallContext, Client, ClientTransport, ItemRoom, NoAuth, ReplyShape, Router, Service,
};
use rpcrdma_transport::{Event, Observer};
use rpcrdma_xdr::{Decoder, Encoder, ItemData, Payload, padded};
use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

pub const PROGRAM: u32 = 0x2000_0001;
pub const READ: u32 = 1;
pub const WRITE: u32 = 2;
pub const SLEEP: u32 = 3;
pub const BULK: u32 = 4;
pub const SWAP: u32 = 5;
pub const STRICT: u32 = 6;
pub const COUNT: u32 = 7;
/// Takes bytes, and holds them while it sleeps.
pub const HOLD: u32 = 8;
pub const MAX: usize = 1 << 20;

/// Bytes that depend on a seed and on their place.
pub fn pattern(len: usize, seed: u32) -> Vec<u8> {
    let words = (0..len.div_ceil(4) as u32).map(|at| at.wrapping_mul(0x9E37_79B9) ^ seed);
    let mut octets = Vec::with_capacity(len + 4);
    for word in words {
        octets.extend_from_slice(&word.to_le_bytes());
    }
    octets.truncate(len);
    octets
}

pub struct Store {
    pub env: Env,
    pub executed: AtomicU32,
}

impl Service for Store {
    fn program(&self) -> u32 {
        PROGRAM
    }

    fn version(&self) -> u32 {
        1
    }

    fn is_idempotent(&self, procedure: u32) -> bool {
        procedure != COUNT
    }

    fn call(&self, context: CallContext, procedure: u32, args: Decoder) -> BoxFuture<'static, Answer> {
        let env = self.env.clone();
        let count = if procedure == COUNT { self.executed.fetch_add(1, Ordering::Relaxed) + 1 } else { 0 };
        Box::pin(async move {
            match serve(context, procedure, args, env, count).await {
                Ok(results) => Answer::Results(results),
                Err(error) => error.into(),
            }
        })
    }
}

async fn serve(
    context: CallContext,
    procedure: u32,
    mut args: Decoder,
    env: Env,
    count: u32,
) -> Result<Payload, rpcrdma_xdr::DecodeError> {
    let mut results = Encoder::new();
    match procedure {
        READ | SLEEP => {
            let nanos = args.u64()?;
            let len = args.count(MAX)?;
            let seed = args.u32()?;
            args.finish()?;
            if nanos > 0 {
                env.clock.sleep_until(env.clock.now() + Duration::from_nanos(nanos)).await;
            }
            let mut buffer = context.connection.allocator.allocate(len.max(1)).await;
            buffer.bytes_mut()[..len].copy_from_slice(&pattern(len, seed));
            buffer.set_len(len);
            results.u32(seed);
            results.item(buffer.freeze());
            results.u32(seed);
        }
        WRITE => {
            let seed = args.u32()?;
            let data = args.item(MAX)?.into_bytes();
            args.finish()?;
            results.bool(data == pattern(data.len(), seed));
            results.u32(data.len() as u32);
        }
        BULK => {
            let data = args.opaque(MAX)?;
            args.finish()?;
            results.opaque_shared(data);
        }
        SWAP => {
            let first = args.item(MAX)?.into_bytes();
            let second = args.item(MAX)?.into_bytes();
            args.finish()?;
            results.item(second);
            results.u32(7);
            results.item(first);
        }
        HOLD => {
            let nanos = args.u64()?;
            let _held = args.opaque(MAX)?;
            args.finish()?;
            env.clock.sleep_until(env.clock.now() + Duration::from_nanos(nanos)).await;
        }
        STRICT => {
            args.opaque(MAX)?;
            args.finish()?;
        }
        _ => {
            args.finish()?;
            results.u32(count);
        }
    }
    Ok(results.finish())
}

pub fn store(env: &Env) -> Arc<Store> {
    Arc::new(Store { env: env.clone(), executed: AtomicU32::new(0) })
}

pub fn router(env: &Env, store: &Arc<Store>) -> Arc<Router> {
    Arc::new(Router::new(env).with_service(store.clone()).with_flavour(Arc::new(AcceptNone)))
}

pub fn client(transport: Arc<dyn ClientTransport>) -> Client {
    Client::new(transport, Arc::new(NoAuth), PROGRAM, 1)
}

fn item_shape(len: usize, allocator: Option<&dyn Allocator>) -> ReplyShape {
    let room = match allocator {
        Some(allocator) => ItemRoom { max_len: len, buffer: allocator.try_allocate(len) },
        None => ItemRoom::new(len),
    };
    ReplyShape { max_len: 12 + padded(len), items: vec![room].into() }
}

/// Starts a READ that sleeps first, into the caller's memory.
pub fn start_read(client: &Client, len: usize, seed: u32, sleep: Duration) -> Call {
    let mut args = Encoder::new();
    args.u64(sleep.as_nanos() as u64);
    args.u32(len as u32);
    args.u32(seed);
    client.call(SLEEP, args.finish(), item_shape(len, Some(&rpcrdma_env::Heap)))
}

/// Waits for a READ and checks its bytes. Returns whether they were placed directly, and whether the call was
/// repeated.
pub async fn finish_read(call: Call, len: usize, seed: u32) -> Result<(bool, bool), rpcrdma_oncrpc::CallError> {
    let mut results = call.await?;
    assert_eq!(results.decoder.u32()?, seed);
    let data = results.decoder.item(len)?;
    assert_eq!(data.as_slice(), pattern(len, seed), "{len} bytes arrive as they were");
    assert_eq!(results.decoder.u32()?, seed);
    results.decoder.finish()?;
    Ok((matches!(data, ItemData::Placed(_)), results.retransmitted))
}

pub async fn read(client: &Client, len: usize, seed: u32) -> bool {
    finish_read(start_read(client, len, seed, Duration::ZERO), len, seed).await.unwrap().0
}

pub async fn write(client: &Client, len: usize, seed: u32) {
    let mut args = Encoder::new();
    args.u32(seed);
    args.item(pattern(len, seed).into());
    let mut results = client.call(WRITE, args.finish(), ReplyShape::inline(8)).await.unwrap();
    assert!(results.decoder.bool().unwrap(), "{len} bytes arrive as they were");
    assert_eq!(results.decoder.u32().unwrap(), len as u32);
}

pub async fn bulk(client: &Client, len: usize) {
    let mut args = Encoder::new();
    args.opaque_shared(pattern(len, 3).into());
    let mut results = client.call(BULK, args.finish(), ReplyShape::inline(4 + padded(len))).await.unwrap();
    assert_eq!(results.decoder.opaque(MAX).unwrap(), pattern(len, 3));
}

pub async fn swap(client: &Client, first: usize, second: usize) {
    let mut args = Encoder::new();
    args.item(pattern(first, 1).into());
    args.item(pattern(second, 2).into());
    let max_len = 12 + padded(first) + padded(second);
    let shape = ReplyShape { max_len, items: vec![ItemRoom::new(second), ItemRoom::new(first)].into() };
    let mut results = client.call(SWAP, args.finish(), shape).await.unwrap();
    assert_eq!(results.decoder.item(MAX).unwrap().into_bytes(), pattern(second, 2));
    assert_eq!(results.decoder.u32().unwrap(), 7);
    assert_eq!(results.decoder.item(MAX).unwrap().into_bytes(), pattern(first, 1));
    results.decoder.finish().unwrap();
}

/// Keeps every event.
#[derive(Default)]
pub struct Log(pub Mutex<Vec<Event>>);

impl Observer for Log {
    fn event(&self, _: SocketAddr, event: &Event) {
        self.0.lock().unwrap().push(event.clone());
    }
}

impl Log {
    pub fn count(&self, wanted: impl Fn(&Event) -> bool) -> usize {
        self.0.lock().unwrap().iter().filter(|event| wanted(event)).count()
    }

    pub fn find<T>(&self, wanted: impl Fn(&Event) -> Option<T>) -> Option<T> {
        self.0.lock().unwrap().iter().find_map(wanted)
    }
}

pub fn bytes(words: &[u32]) -> Bytes {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}
