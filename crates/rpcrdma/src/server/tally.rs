//! What one connection has carried, for the line in the log at its end; and the bytes of TCP as they pass.
//!
//! A tally is shared by the parts of one connection, all of them on one thread but for its calls. Counting cannot fail,
//! and takes no memory.

use metrics::Counter;
use rpcrdma_env::BoxFuture;
use rpcrdma_oncrpc::{Begun, CallContext, Handler, Outcome, tcp::Io};
use rpcrdma_transport::{Event, Observer};
use rpcrdma_xdr::Stream;
use std::{
    io::{self, IoSlice},
    net::SocketAddr,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll, ready},
};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// What a connection has carried.
#[derive(Debug, Default)]
pub(super) struct Tally {
    calls: AtomicU64,
    bytes_in: AtomicU64,
    bytes_out: AtomicU64,
}

impl Tally {
    fn called(&self) {
        self.calls.fetch_add(1, Ordering::Relaxed);
    }

    fn arrived(&self, bytes: u64) {
        self.bytes_in.fetch_add(bytes, Ordering::Relaxed);
    }

    fn left(&self, bytes: u64) {
        self.bytes_out.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Calls, bytes in, bytes out.
    pub(super) fn read(&self) -> [u64; 3] {
        [&self.calls, &self.bytes_in, &self.bytes_out].map(|number| number.load(Ordering::Relaxed))
    }
}

/// Counts the calls and bytes of one RDMA connection, and passes its events on.
pub(super) struct Watched {
    pub(super) inner: Arc<dyn Observer>,
    pub(super) tally: Arc<Tally>,
}

impl Observer for Watched {
    fn event(&self, peer: SocketAddr, event: &Event) {
        match event {
            Event::Called { inline_bytes, pulled_bytes, .. } => {
                self.tally.called();
                self.tally.arrived(*inline_bytes as u64 + *pulled_bytes as u64);
            }
            Event::Sent(sent) => self.tally.left(sent.inline_bytes as u64 + sent.placed_bytes),
            _ => {}
        }
        self.inner.event(peer, event);
    }
}

/// Counts the calls of one TCP connection.
pub(super) struct Called {
    pub(super) inner: Arc<dyn Handler>,
    pub(super) tally: Arc<Tally>,
}

impl Handler for Called {
    fn handle(&self, context: CallContext, message: Stream) -> BoxFuture<'static, Outcome> {
        self.tally.called();
        self.inner.handle(context, message)
    }

    fn begin(&self, context: CallContext, message: Stream, cx: &mut Context<'_>) -> Begun {
        self.tally.called();
        self.inner.begin(context, message, cx)
    }
}

/// A stream whose bytes are counted.
pub(super) struct Counted<T> {
    pub(super) stream: T,
    pub(super) tally: Arc<Tally>,
    /// The server's numbers: bytes in, bytes out.
    pub(super) numbers: (Counter, Counter),
}

impl<T> Counted<T> {
    fn read(&self, bytes: usize) {
        self.tally.arrived(bytes as u64);
        self.numbers.0.increment(bytes as u64);
    }

    fn wrote(&self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if let Poll::Ready(Ok(bytes)) = &written {
            self.tally.left(*bytes as u64);
            self.numbers.1.increment(*bytes as u64);
        }
        written
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Counted<T> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buffer))?;
        self.read(buffer.filled().len() - before);
        Poll::Ready(Ok(()))
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Counted<T> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.wrote(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, slices);
        self.wrote(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

impl<T: Io> Io for Counted<T> {
    fn may_look(&self) -> bool {
        self.stream.may_look()
    }

    fn look(&self) -> io::Result<usize> {
        self.stream.look()
    }

    fn take(&mut self, room: &mut [u8]) -> io::Result<usize> {
        let bytes = self.stream.take(room)?;
        self.read(bytes);
        Ok(bytes)
    }
}
