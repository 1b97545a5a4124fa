//! The driver's use of TCP: options of the socket, and whole frames during set-up.

use crate::{
    config::{Config, LOOPBACK_SEND_BUFFER_OCTETS, keepalive},
    protocol::{
        Fault,
        fpdu::{LARGE_MSS_OCTETS, Segmentation},
        mpa::{Frame, HEAD_OCTETS, Head, Kind},
    },
    tap::{Direction, TapStream},
};
use socket2::{SockRef, TcpKeepalive};
use std::io;
use tokio::net::TcpStream;

/// A TCP connection with its observer.
pub(crate) struct Wire {
    pub(crate) stream: TcpStream,
    pub(crate) tap: Option<Box<dyn TapStream>>,
}

/// Why a set-up frame could not be read.
pub(crate) enum FrameError {
    Fault(Fault),
    Io(io::Error),
}

impl From<io::Error> for FrameError {
    fn from(error: io::Error) -> Self {
        FrameError::Io(error)
    }
}

impl From<Fault> for FrameError {
    fn from(fault: Fault) -> Self {
        FrameError::Fault(fault)
    }
}

impl Wire {
    /// Takes over a fresh connection: no delay of small segments, keep-alive on, and a time-out if the other host is
    /// gone. The system chooses buffer sizes except on loopback; if we set any, it stops tuning them. On loopback there
    /// is no delay that a large buffer could bridge, and buffered data that exceeds the cache costs half of the
    /// throughput.
    pub(crate) fn new(stream: TcpStream, config: &Config, initiator: bool) -> io::Result<Wire> {
        stream.set_nodelay(true)?;
        let (idle, interval) = keepalive(config.stall_timeout);
        let keepalive = TcpKeepalive::new().with_time(idle).with_interval(interval);
        let socket = SockRef::from(&stream);
        socket.set_tcp_keepalive(&keepalive)?;
        // Keep-alive does not probe while data in the socket is not acknowledged: the user time-out covers that.
        socket.set_tcp_user_timeout(Some(config.stall_timeout))?;
        if socket.tcp_mss()? as usize >= LARGE_MSS_OCTETS {
            let [connecting, accepting] = LOOPBACK_SEND_BUFFER_OCTETS;
            socket.set_send_buffer_size(if initiator { connecting } else { accepting })?;
        }
        let tap = match &config.tap {
            Some(tap) => Some(tap.connection(stream.local_addr()?, stream.peer_addr()?, initiator)),
            None => None,
        };
        Ok(Wire { stream, tap })
    }

    /// How large FPDUs are on this path.
    pub(crate) fn segmentation(&self, config: &Config) -> io::Result<Segmentation> {
        Ok(match config.fpdu_octets {
            Some(octets) => Segmentation::for_fpdu(octets),
            None => Segmentation::for_mss(SockRef::from(&self.stream).tcp_mss()? as usize),
        })
    }

    async fn read_exact(&mut self, out: &mut [u8]) -> io::Result<()> {
        let mut have = 0;
        while let Some(room) = out.get_mut(have..).filter(|room| !room.is_empty()) {
            self.stream.readable().await?;
            match self.stream.try_read(room) {
                Ok(0) => return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "it was closed by the other side")),
                Ok(octets) => have += octets,
                Err(error) if is_passing(&error) => {}
                Err(error) => return Err(error),
            }
        }
        if let Some(tap) = &mut self.tap {
            tap.octets(Direction::Received, out);
        }
        Ok(())
    }

    /// Writes all of `octets`.
    pub(crate) async fn write_all(&mut self, octets: &[u8]) -> io::Result<()> {
        let mut rest = octets;
        while !rest.is_empty() {
            self.stream.writable().await?;
            match self.stream.try_write(rest) {
                Ok(octets) => rest = rest.get(octets..).unwrap_or_default(),
                Err(error) if is_passing(&error) => {}
                Err(error) => return Err(error),
            }
        }
        if let Some(tap) = &mut self.tap {
            tap.octets(Direction::Sent, octets);
        }
        Ok(())
    }

    /// Reads a set-up frame, and not an octet more.
    pub(crate) async fn read_frame(&mut self, kind: Kind) -> Result<Frame, FrameError> {
        let mut head = [0; HEAD_OCTETS];
        self.read_exact(&mut head).await?;
        let head = Head::decode(kind, &head)?;
        // At most 512 octets: `Head::decode` has checked the number.
        let mut private_data = vec![0; head.private_octets];
        self.read_exact(&mut private_data).await?;
        Ok(Frame::decode(head, &private_data)?)
    }
}

/// Whether the caller should simply try the operation again.
pub(crate) fn is_passing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}
