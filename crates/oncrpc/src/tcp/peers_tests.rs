//! What a server does about peers that are slow, hold its memory, break the rules, or are gone.

use super::*;
use crate::tcp::io::Io;
use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Counts the buffers that it hands out, and makes callers wait beyond its budget.
struct Budget(Arc<Semaphore>, Arc<AtomicU32>);

impl rpcrdma_env::Allocator for Budget {
    fn try_allocate(&self, len: usize) -> Option<Buffer> {
        self.1.fetch_add(1, Ordering::SeqCst);
        self.0.try_acquire().ok()?.forget();
        Some(Buffer::from_vec(vec![0; len]))
    }
    fn allocate(&self, len: usize) -> BoxFuture<'_, Buffer> {
        Box::pin(async move {
            if let Ok(permit) = self.0.acquire().await {
                permit.forget();
            }
            Buffer::from_vec(vec![0; len])
        })
    }
}

#[tokio::test(start_paused = true)]
async fn a_large_call_waits_for_memory_and_is_not_taken_for_a_stalled_peer() {
    let budget = Arc::new(Semaphore::new(0));
    let asked = Arc::new(AtomicU32::new(0));
    let (connector, mut far) = prepared(1);
    let endpoint = Endpoint { allocator: Arc::new(Budget(budget.clone(), asked.clone())), ..endpoint() };
    let server = far.pop_front().unwrap();
    tokio::spawn(serve(server, endpoint, router(Sample::default()), env().clock, ServerOptions::default()).1);
    let options = ClientOptions { silence: Duration::from_secs(10_000), ..ClientOptions::default() };
    let (client, _) = client_of(connector, options).await;
    client.null().await.unwrap();
    assert_eq!(asked.load(Ordering::SeqCst), 0, "small calls need none");
    let call = tokio::spawn(echo(&client, vec![0; 100_000]));
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert!(!call.is_finished());
    budget.add_permits(1);
    call.await.unwrap().unwrap();
}

/// A socket that TCP has given up: what its peer did not acknowledge in time was no longer in this program.
struct GivenUp;

impl Io for GivenUp {}

impl AsyncRead for GivenUp {
    fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, _: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl AsyncWrite for GivenUp {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, octets: &[u8]) -> Poll<io::Result<usize>> {
        Poll::Ready(Ok(octets.len()))
    }
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[tokio::test]
async fn a_peer_that_tcp_gives_up_has_stalled() {
    let options = ServerOptions::default();
    let limit = options.stall;
    let (_, driver) = serve(GivenUp, endpoint(), router(Sample::default()), env().clock, options);
    let ended = driver.await;
    assert!(matches!(ended, Err(ConnectionError::Stalled { after }) if after == limit), "{ended:?}");
}

#[tokio::test(start_paused = true)]
async fn peers_that_stop_half_way_or_do_not_read_are_dropped() {
    for sent in [&[0x80, 0, 0, 40, 1][..], &[0x80, 1, 0, 0, 1]] {
        let (mut near, far) = duplex(64);
        let (_, driver) = serve(far, endpoint(), router(Sample::default()), env().clock, ServerOptions::default());
        near.write_all(sent).await.unwrap();
        assert!(matches!(driver.await, Err(ConnectionError::Stalled { .. })));
    }
    let (mut near, far) = duplex(64);
    let (_, driver) = serve(far, endpoint(), router(Sample::default()), env().clock, ServerOptions::default());
    let call: Vec<u8> = [0x8000_0028_u32, 1, 0, 2, 77, 1, 0, 0, 0, 0, 0].iter().flat_map(|w| w.to_be_bytes()).collect();
    let client = async {
        let mut sent = 0;
        while near.write_all(&call).await.is_ok() {
            sent += 1;
        }
        sent
    };
    let (ended, sent) = tokio::join!(driver, client);
    assert!(matches!(ended, Err(ConnectionError::Stalled { .. })), "{ended:?}");
    assert!(sent > 10);
}

/// A call that waits before its execution learns that the peer has left; a call that is executed gets its reply.
#[tokio::test(start_paused = true)]
async fn a_peer_that_sends_nothing_more_is_gone() {
    struct Leaves;
    impl Handler for Leaves {
        fn handle(&self, context: CallContext, _: Stream) -> BoxFuture<'static, Outcome> {
            let gone = context.connection.gone.wait();
            Box::pin(async move {
                gone.await;
                Outcome::Nothing
            })
        }
    }
    let call: Vec<u8> = [0x8000_0028_u32, 1, 0, 2, 77, 1, 2, 0, 0, 0, 0].iter().flat_map(|w| w.to_be_bytes()).collect();
    let (mut near, far) = duplex(64);
    let (_, driver) = serve(far, endpoint(), Arc::new(Leaves), env().clock, ServerOptions::default());
    near.write_all(&call).await.unwrap();
    near.shutdown().await.unwrap();
    timeout(Duration::from_secs(1), driver).await.expect("it ends").unwrap();

    let sample = Sample::default();
    let (gate, running) = (sample.gate.clone(), sample.running.clone());
    let (mut near, far) = duplex(64);
    let driver = tokio::spawn(serve(far, endpoint(), router(sample), env().clock, ServerOptions::default()).1);
    near.write_all(&call).await.unwrap();
    near.shutdown().await.unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(running.load(Ordering::SeqCst) == 1 && !driver.is_finished());
    gate.notify_one();
    let mut reply = Vec::new();
    near.read_to_end(&mut reply).await.unwrap();
    assert_eq!(reply.len(), 4 + 24);
    driver.await.unwrap().unwrap();
}

/// A peer that keeps a large record just alive is dropped, and so is one that holds memory and waits for more.
#[tokio::test(start_paused = true)]
async fn peers_that_hold_memory_and_get_nowhere_are_dropped() {
    let (mut near, far) = duplex(64);
    let (_, driver) = serve(far, endpoint(), router(Sample::default()), env().clock, ServerOptions::default());
    let trickle = async {
        near.write_all(&0x8010_0000_u32.to_be_bytes()).await.unwrap();
        while near.write_all(&[0]).await.is_ok() {
            tokio::time::sleep(Duration::from_secs(10)).await;
        }
    };
    let (ended, ()) = tokio::join!(driver, trickle);
    assert!(matches!(ended, Err(ConnectionError::Stalled { .. })), "{ended:?}");

    let budget = Arc::new(Semaphore::new(1));
    let endpoint = Endpoint { allocator: Arc::new(Budget(budget.clone(), Arc::default())), ..endpoint() };
    let (mut near, far) = duplex(64);
    let (_, driver) = serve(far, endpoint, router(Sample::default()), env().clock, ServerOptions::default());
    let halves = async {
        for _ in 0..2 {
            near.write_all(&20_000_u32.to_be_bytes()).await.unwrap();
            if near.write_all(&[0; 20_000]).await.is_err() {
                return;
            }
        }
    };
    let (ended, ()) = tokio::join!(driver, halves);
    assert!(matches!(ended, Err(ConnectionError::Stalled { .. })), "{ended:?}");
}

/// A peer that takes a few bytes now and then makes no progress: the reply holds memory meanwhile.
#[tokio::test(start_paused = true)]
async fn a_peer_that_takes_a_reply_too_slowly_is_dropped() {
    let options = ServerOptions::default();
    let (mut near, far) = duplex(64);
    let (_, driver) = serve(far, endpoint(), router(Sample::default()), env().clock, options);
    let words = [0x8000_002c_u32 + 20_000, 1, 0, 2, 77, 1, 1, 0, 0, 0, 0, 20_000];
    let call = [words.iter().flat_map(|w| w.to_be_bytes()).collect(), vec![7; 20_000]].concat();
    let begin = tokio::time::Instant::now();
    let client = async {
        near.write_all(&call).await.unwrap();
        while begin.elapsed() < 10 * options.stall {
            if near.read(&mut [0; 100]).await.unwrap() == 0 {
                return;
            }
            tokio::time::sleep(Duration::from_secs(5)).await;
        }
    };
    let (ended, ()) = tokio::join!(driver, client);
    assert!(matches!(ended, Err(ConnectionError::Stalled { .. })), "{ended:?}");
    assert!(begin.elapsed() < 2 * options.stall, "{:?}", begin.elapsed());
}

/// A large record that comes in time for every part of it, but not for the whole; and one that comes just as slowly
/// while small replies are taken.
#[tokio::test(start_paused = true)]
async fn a_record_has_to_be_whole_in_time() {
    for replies in [false, true] {
        let options = ServerOptions::default();
        let (mut near, far) = duplex(64);
        let sample = Sample::default();
        let (gate, running) = (sample.gate.clone(), sample.running.clone());
        let (_, driver) = serve(far, endpoint(), router(sample), env().clock, options);
        let begin = tokio::time::Instant::now();
        let trickle = async {
            if replies {
                // A call whose reply can be taken while the record comes.
                let call = [0x8000_0028_u32, 1, 0, 2, 77, 1, 2, 0, 0, 0, 0];
                near.write_all(&call.iter().flat_map(|w| w.to_be_bytes()).collect::<Vec<_>>()).await.unwrap();
                while running.load(Ordering::SeqCst) == 0 {
                    tokio::task::yield_now().await;
                }
            }
            near.write_all(&0x8010_0000_u32.to_be_bytes()).await.unwrap();
            for part in 0..128 {
                if near.write_all(&[0; 8192]).await.is_err() {
                    break;
                }
                if part == 20 {
                    gate.notify_waiters();
                }
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        };
        let (ended, ()) = tokio::join!(driver, trickle);
        assert!(matches!(ended, Err(ConnectionError::Stalled { .. })), "{ended:?}");
        assert!(begin.elapsed() < 2 * options.stall, "{:?}", begin.elapsed());
    }
}

/// A slow peer is not a stalled one: its calls come one by one, and a large call takes most of its time limit.
#[tokio::test(start_paused = true)]
async fn peers_that_are_merely_slow_are_served() {
    let (mut near, far) = duplex(64);
    let (_, driver) = serve(far, endpoint(), router(Sample::default()), env().clock, ServerOptions::default());
    let call: Vec<u8> = [0x8000_0028_u32, 1, 0, 2, 77, 1, 0, 0, 0, 0, 0].iter().flat_map(|w| w.to_be_bytes()).collect();
    let client = async move {
        for _ in 0..40 {
            for half in call.chunks(call.len() / 2) {
                near.write_all(half).await.unwrap();
                tokio::time::sleep(Duration::from_secs(25)).await;
            }
            near.read_exact(&mut [0; 28]).await.unwrap();
        }
        near.write_all(&0x8010_0000_u32.to_be_bytes()).await.unwrap();
        for _ in 0..128 {
            near.write_all(&[0; 8192]).await.unwrap();
            tokio::time::sleep(Duration::from_millis(450)).await;
        }
        // The call has RPC version 0, which the reply rejects.
        near.read_exact(&mut [0; 28]).await.unwrap();
    };
    let (ended, ()) = tokio::join!(driver, client);
    ended.unwrap();
}

#[tokio::test]
async fn an_idle_connection_stays_and_a_hostile_record_ends_it() {
    let (mut near, far) = duplex(64);
    let (_, driver) = serve(far, endpoint(), router(Sample::default()), env().clock, ServerOptions::default());
    near.write_all(&Bytes::from_static(&[0xFF; 4])).await.unwrap();
    assert!(matches!(driver.await, Err(ConnectionError::Record(RecordError::TooLong { .. }))));
    assert_eq!(near.read(&mut [0]).await.unwrap(), 0);
}

/// Calls that came with one read have one mark, and calls that come later have another.
#[tokio::test(start_paused = true)]
async fn calls_that_come_together_are_marked() {
    #[derive(Default)]
    struct Marks(Mutex<Vec<crate::Arrival>>);
    impl Handler for Marks {
        fn handle(&self, context: CallContext, _: Stream) -> BoxFuture<'static, Outcome> {
            self.0.lock().unwrap().push(context.arrival.unwrap());
            Box::pin(std::future::ready(Outcome::Nothing))
        }
    }
    let call: Vec<u8> = [0x8000_0028_u32, 1, 0, 2, 77, 1, 2, 0, 0, 0, 0].iter().flat_map(|w| w.to_be_bytes()).collect();
    let (mut near, far) = duplex(1024);
    let marks = Arc::new(Marks::default());
    let driver = tokio::spawn(serve(far, endpoint(), marks.clone(), env().clock, ServerOptions::default()).1);
    for calls in [2, 1, 1] {
        near.write_all(&call.repeat(calls)).await.unwrap();
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    drop(near);
    driver.await.unwrap().unwrap();
    let marks = marks.0.lock().unwrap();
    assert_eq!(marks.len(), 4);
    assert_eq!(marks[0], marks[1]);
    assert!(marks[1] != marks[2] && marks[2] != marks[3]);
}
