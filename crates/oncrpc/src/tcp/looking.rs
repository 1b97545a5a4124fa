//! How a connection waits for its peer: it reads what the runtime knows of, and looks for more before a thread sleeps.

use super::Io;
use bytes::BytesMut;
use rpcrdma_env::{BusyPoll, Clock, Pause, Spin};
use std::{
    future::Future,
    io,
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll, ready},
};
use tokio::io::{AsyncReadExt, ReadBuf};

pub(super) struct Looking {
    spin: Spin,
    clock: Arc<dyn Clock>,
    /// Whether nothing waits to be written: a peer that still has to read does not answer soon.
    is_due: bool,
}

impl Looking {
    pub(super) fn new(busy_poll: BusyPoll, clock: Arc<dyn Clock>) -> Self {
        Self { spin: Spin::new(busy_poll), clock, is_due: true }
    }

    /// So many bytes wait to be written to the peer.
    pub(super) fn unsent(&mut self, unsent: usize) {
        self.is_due = unsent == 0;
    }

    /// Reads the rest of a record into `room`; 0 bytes at the stream's end.
    pub(super) fn poll_read(
        &mut self,
        io: &mut (impl Io + ?Sized),
        cx: &mut Context<'_>,
        room: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        let mut read = ReadBuf::new(room);
        let octets = match Pin::new(&mut *io).poll_read(cx, &mut read) {
            Poll::Ready(done) => done.map(|()| read.filled().len())?,
            Poll::Pending => {
                // The rest has most likely come with the beginning.
                ready!(self.finds(io, cx, true))?;
                ready!(takes(io, cx, room))?
            }
        };
        self.spin.heard(&*self.clock);
        Poll::Ready(Ok(octets))
    }

    /// Appends to `stage` what has come, within its capacity; 0 bytes at the stream's end.
    pub(super) fn poll_fill(
        &mut self,
        io: &mut (impl Io + ?Sized),
        cx: &mut Context<'_>,
        stage: &mut BytesMut,
    ) -> Poll<io::Result<usize>> {
        let octets = match pin!(io.read_buf(stage)).poll(cx) {
            Poll::Ready(read) => read?,
            Poll::Pending => {
                let found = ready!(self.finds(io, cx, false))?;
                let begin = stage.len();
                stage.resize(stage.capacity().min(begin.saturating_add(found)), 0);
                let taken = takes(io, cx, &mut stage[begin..]);
                let octets = if let Poll::Ready(Ok(octets)) = &taken { *octets } else { 0 };
                stage.truncate(begin + octets);
                ready!(taken)?
            }
        };
        self.spin.heard(&*self.clock);
        Poll::Ready(Ok(octets))
    }

    /// How many bytes a stream has to read of which the runtime does not know. If `at_once`, it looks before it gives
    /// way.
    fn finds(&mut self, io: &(impl Io + ?Sized), cx: &mut Context<'_>, at_once: bool) -> Poll<io::Result<usize>> {
        if !self.is_due || !io.may_look() {
            return Poll::Pending;
        }
        let found = match self.spin.pause(&*self.clock) {
            Pause::Sleep => return Poll::Pending,
            Pause::GiveWay if !at_once => 0,
            Pause::GiveWay | Pause::Look => io.look()?,
        };
        if found == 0 {
            Spin::again(cx);
            return Poll::Pending;
        }
        Poll::Ready(Ok(found))
    }
}

/// Reads what was found.
fn takes(io: &mut (impl Io + ?Sized), cx: &mut Context<'_>, room: &mut [u8]) -> Poll<io::Result<usize>> {
    match io.take(room) {
        // It cannot be read after all, or not yet.
        Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
            Spin::again(cx);
            Poll::Pending
        }
        taken => Poll::Ready(taken),
    }
}

#[cfg(test)]
mod tests {
    use super::{super::record::RecordReader, *};
    use rpcrdma_env::{Heap, tokio_env};
    use rpcrdma_xdr::StreamPart;
    use std::{
        future::poll_fn,
        io::Write as _,
        task::Waker,
        time::{Duration, Instant},
    };
    use tokio::{
        io::{AsyncRead, AsyncWrite, Join, Sink, join, sink},
        net::TcpListener,
    };

    const MAX: usize = 40_000;

    fn reader(time: Duration) -> RecordReader {
        RecordReader::new(Arc::new(Heap), MAX, BusyPoll::For(time), tokio_env().unwrap().clock)
    }

    /// A record of one fragment.
    fn record(octets: &[u8]) -> Vec<u8> {
        [&(octets.len() as u32 | 1 << 31).to_be_bytes()[..], octets].concat()
    }

    /// A stream has what the runtime was not told of: one that sleeps would find it later.
    #[tokio::test]
    async fn a_reader_that_looks_needs_no_runtime() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut near = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut far, _) = listener.accept().await.unwrap();
        let time = Duration::from_secs(60);
        let mut reader = reader(time);
        for len in [100, 30_000] {
            let record = record(&vec![7; len]);
            near.write_all(&record).unwrap();
            assert!(poll_fn(|cx| reader.poll_record(&mut far, cx, 0)).await.unwrap().is_some());
            let cx = &mut Context::from_waker(Waker::noop());
            assert!(reader.poll_record(&mut far, cx, 0).is_pending());
            near.write_all(&record).unwrap();
            let begin = Instant::now();
            while rustix::io::ioctl_fionread(&far).unwrap() < 4 + len as u64 {
                assert!(begin.elapsed() < time, "it does not arrive");
            }
            // A peer that still has to read is not expected to answer.
            assert!(reader.poll_record(&mut far, cx, 1).is_pending());
            let Poll::Ready(Ok(Some(found))) = reader.poll_record(&mut far, cx, 0) else { panic!("not found") };
            let octets: Vec<u8> = found
                .parts()
                .flat_map(|part| match part {
                    StreamPart::Run(run) | StreamPart::Chunk(run) => run.to_vec(),
                })
                .collect();
            assert_eq!(octets, vec![7; len]);
        }
    }

    /// The system has counted bytes that cannot be read yet.
    #[tokio::test]
    async fn a_look_that_was_too_early_is_no_failure() {
        struct Early(Join<&'static [u8], Sink>);
        impl AsyncRead for Early {
            fn poll_read(
                mut self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                room: &mut ReadBuf<'_>,
            ) -> Poll<io::Result<()>> {
                ready!(Pin::new(&mut self.0).poll_read(cx, room))?;
                if room.filled().is_empty() { Poll::Pending } else { Poll::Ready(Ok(())) }
            }
        }
        impl AsyncWrite for Early {
            fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, octets: &[u8]) -> Poll<io::Result<usize>> {
                Pin::new(&mut self.0).poll_write(cx, octets)
            }
            fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                Pin::new(&mut self.0).poll_flush(cx)
            }
            fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                Pin::new(&mut self.0).poll_shutdown(cx)
            }
        }
        impl Io for Early {
            fn may_look(&self) -> bool {
                true
            }
            fn look(&self) -> io::Result<usize> {
                Ok(1)
            }
            fn take(&mut self, _: &mut [u8]) -> io::Result<usize> {
                Err(io::ErrorKind::WouldBlock.into())
            }
        }
        for octets in [&[0x80, 0, 0, 1, 7, 0x80, 0][..], &[0x80, 0, 0, 1, 7, 0x80, 0, 0x40, 0, 7]] {
            let mut io = Early(join(octets.to_vec().leak(), sink()));
            let mut reader = reader(Duration::from_secs(60));
            assert!(poll_fn(|cx| reader.poll_record(&mut io, cx, 0)).await.unwrap().is_some());
            let cx = &mut Context::from_waker(Waker::noop());
            for _ in 0..3 {
                assert!(reader.poll_record(&mut io, cx, 0).is_pending());
            }
        }
    }
}
