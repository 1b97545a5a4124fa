//! Both ends of a connection work at the same time: what follows from a batch leaves in parts.

use super::*;
use futures_util::future::join_all;
use std::{
    io::IoSlice,
    pin::Pin,
    task::{Context, Poll},
};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A stream that counts the writes.
struct Counted {
    io: DuplexStream,
    writes: Arc<AtomicU32>,
}

impl AsyncRead for Counted {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(cx, buf)
    }
}

impl AsyncWrite for Counted {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, octets: &[u8]) -> Poll<io::Result<usize>> {
        self.writes.fetch_add(1, Ordering::Relaxed);
        Pin::new(&mut self.io).poll_write(cx, octets)
    }
    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.writes.fetch_add(1, Ordering::Relaxed);
        Pin::new(&mut self.io).poll_write_vectored(cx, slices)
    }
    fn is_write_vectored(&self) -> bool {
        true
    }
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

impl Io for Counted {}

/// Connects once.
struct Once(Mutex<Option<Box<dyn Io>>>);

impl Connector for Once {
    fn connect(&self) -> BoxFuture<'_, io::Result<Box<dyn Io>>> {
        let io = self.0.lock().unwrap().take().ok_or(io::ErrorKind::ConnectionRefused.into());
        Box::pin(async move { io })
    }
    fn server(&self) -> SocketAddr {
        ADDRESS.into()
    }
}

#[tokio::test]
async fn replies_and_the_calls_that_follow_leave_in_parts() {
    const ROUNDS: u32 = 8;
    let (near, far) = duplex(1 << 16);
    let (calls, replies) = (Arc::<AtomicU32>::default(), Arc::<AtomicU32>::default());
    let far = Counted { io: far, writes: replies.clone() };
    let serving = serve(far, endpoint(), router(Sample::default()), env().clock, ServerOptions::default()).1;
    tokio::spawn(serving);
    let near: Box<dyn Io> = Box::new(Counted { io: near, writes: calls.clone() });
    let connector = Arc::new(Once(Mutex::new(Some(near))));
    let (transport, driver) = connect(connector, Arc::new(Heap), &env(), ClientOptions::default()).await.unwrap();
    tokio::spawn(driver);
    let client = Client::new(transport, Arc::new(NoAuth), 77, 1);
    // In a task: the runtime's outermost future has its turn when no task has anything to do.
    let callers = async move {
        join_all((0..32).map(|_| async {
            for _ in 0..ROUNDS {
                client.null().await.unwrap();
            }
        }))
        .await
    };
    tokio::spawn(callers).await.unwrap();
    // If the ends took turns, there would be one write for all 32 calls of a round. The client makes two of it, and the
    // server two for each of these.
    for (what, writes, least) in [("calls", calls, 2 * ROUNDS - 2), ("replies", replies, 3 * ROUNDS)] {
        let writes = writes.load(Ordering::Relaxed);
        assert!((least..=16 * ROUNDS).contains(&writes), "{what} left in {writes} writes");
    }
}
