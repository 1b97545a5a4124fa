//! What a connection reads from and writes to.

use std::io;
use tokio::{
    io::{AsyncRead, AsyncWrite, DuplexStream},
    net::{TcpStream, UnixStream},
};

/// A stream of bytes in both directions.
///
/// A runtime learns what a stream has only when it asks the system for events, and a thread that waits for them sleeps.
/// A stream that can [look](Self::look) past the runtime lets a connection do without
/// ([`BusyPoll`](rpcrdma_env::BusyPoll)). Others need no function of this trait:
///
/// ```
/// use rpcrdma_oncrpc::tcp::Io;
/// # use std::{io::Result, pin::Pin, task::{Context, Poll}};
/// # use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf};
///
/// struct Mine(/* something that is AsyncRead and AsyncWrite */
/// #   DuplexStream
/// );
/// # impl AsyncRead for Mine {
/// #     fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, room: &mut ReadBuf<'_>) -> Poll<Result<()>> {
/// #         Pin::new(&mut self.0).poll_read(cx, room)
/// #     }
/// # }
/// # impl AsyncWrite for Mine {
/// #     fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<Result<usize>> {
/// #         Pin::new(&mut self.0).poll_write(cx, bytes)
/// #     }
/// #     fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
/// #         Pin::new(&mut self.0).poll_flush(cx)
/// #     }
/// #     fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
/// #         Pin::new(&mut self.0).poll_shutdown(cx)
/// #     }
/// # }
///
/// impl Io for Mine {}
/// ```
pub trait Io: AsyncRead + AsyncWrite + Send + Unpin {
    /// Whether the functions below do something.
    fn may_look(&self) -> bool {
        false
    }

    /// How many bytes can be read at once, whether the runtime knows of them or not. A stream's end is no byte.
    ///
    /// # Errors
    /// If the system does not say.
    fn look(&self) -> io::Result<usize> {
        Ok(0)
    }

    /// Reads some of the bytes that [`look`](Self::look) has found.
    ///
    /// # Errors
    /// If they cannot be read.
    fn take(&mut self, _room: &mut [u8]) -> io::Result<usize> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

impl Io for TcpStream {
    fn may_look(&self) -> bool {
        true
    }

    fn look(&self) -> io::Result<usize> {
        Ok(usize::try_from(rustix::io::ioctl_fionread(self)?).unwrap_or(usize::MAX))
    }

    fn take(&mut self, room: &mut [u8]) -> io::Result<usize> {
        Ok(rustix::io::read(&*self, room)?)
    }
}

impl Io for UnixStream {}

impl Io for DuplexStream {}
