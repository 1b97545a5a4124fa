//! How a client's connections are made.

use super::Io;
use rpcrdma_env::BoxFuture;
use std::{
    io,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr},
    path::PathBuf,
};
use tokio::net::{TcpSocket, TcpStream, UnixStream};

/// Makes connections to one server, again and again.
pub trait Connector: Send + Sync {
    /// A new connection.
    fn connect(&self) -> BoxFuture<'_, io::Result<Box<dyn Io>>>;

    /// The server, as errors name it.
    fn server(&self) -> SocketAddr;
}

/// The reserved ports that are tried, from the highest down. Below 665 many belong to well-known services.
const RESERVED_PORTS: std::ops::Range<u16> = 665..1024;
/// How many reserved ports are tried before any port is taken.
const RESERVED_PORT_ATTEMPTS: usize = 32;

/// Connects over TCP.
#[derive(Clone, Copy, Debug)]
pub struct TcpConnector {
    server: SocketAddr,
    reserved: bool,
}

impl TcpConnector {
    /// Connects to `server` from any port.
    pub fn new(server: SocketAddr) -> Self {
        Self { server, reserved: false }
    }

    /// Connects from a reserved port where the process may have one: many NFS servers ask for it.
    pub fn from_reserved_port(server: SocketAddr) -> Self {
        Self { server, reserved: true }
    }

    async fn connect_reserved(&self) -> Option<TcpStream> {
        for port in RESERVED_PORTS.rev().take(RESERVED_PORT_ATTEMPTS) {
            let socket = self.socket().ok()?;
            let local = match self.server {
                SocketAddr::V4(_) => SocketAddr::from((Ipv4Addr::UNSPECIFIED, port)),
                SocketAddr::V6(_) => SocketAddr::from((Ipv6Addr::UNSPECIFIED, port)),
            };
            match socket.bind(local) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => continue,
                Err(_) => return None,
            }
            match socket.connect(self.server).await {
                Ok(stream) => return Some(stream),
                // The port's last connection to this server still lingers.
                Err(error) if error.kind() == io::ErrorKind::AddrNotAvailable => {}
                Err(_) => return None,
            }
        }
        None
    }

    fn socket(&self) -> io::Result<TcpSocket> {
        if self.server.is_ipv6() { TcpSocket::new_v6() } else { TcpSocket::new_v4() }
    }
}

impl Connector for TcpConnector {
    fn connect(&self) -> BoxFuture<'_, io::Result<Box<dyn Io>>> {
        Box::pin(async {
            let reserved = if self.reserved { self.connect_reserved().await } else { None };
            let stream = match reserved {
                Some(stream) => stream,
                None => TcpStream::connect(self.server).await?,
            };
            stream.set_nodelay(true)?;
            Ok(Box::new(stream) as Box<dyn Io>)
        })
    }

    fn server(&self) -> SocketAddr {
        self.server
    }
}

/// Connects to a socket in the file system, as rpcbind has one for the programs of its own host.
#[derive(Clone, Debug)]
pub struct UnixConnector {
    path: PathBuf,
    server: SocketAddr,
}

impl UnixConnector {
    /// Connects to the socket at `path`; errors name `server`.
    pub fn new(path: impl Into<PathBuf>, server: SocketAddr) -> Self {
        Self { path: path.into(), server }
    }
}

impl Connector for UnixConnector {
    fn connect(&self) -> BoxFuture<'_, io::Result<Box<dyn Io>>> {
        Box::pin(async { Ok(Box::new(UnixStream::connect(&self.path).await?) as Box<dyn Io>) })
    }

    fn server(&self) -> SocketAddr {
        self.server
    }
}
