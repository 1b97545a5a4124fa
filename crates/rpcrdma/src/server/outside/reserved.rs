//! Sockets with the address by which a client knows the server, and with a port below 1024 if this process may bind
//! one.
//!
//! Each search begins at another port, as the last connection from a port lingers. If no such port is free, the system
//! chooses any.

use std::{
    io::{self, ErrorKind},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    ops::Range,
    sync::atomic::{AtomicU16, Ordering},
};
use tokio::net::{TcpSocket, TcpStream, UdpSocket};

/// The reserved ports that are tried. Below 665 many belong to well-known services.
const PORTS: Range<u16> = 665..1024;
/// How many of them are tried before any port is taken.
const ATTEMPTS: u16 = 32;

static NEXT: AtomicU16 = AtomicU16::new(0);

/// The reserved ports that are tried this time.
fn ports() -> impl Iterator<Item = u16> {
    let first = NEXT.fetch_add(1, Ordering::Relaxed);
    (0..ATTEMPTS).map(move |more| PORTS.end - 1 - first.wrapping_add(more) % (PORTS.end - PORTS.start))
}

/// Where a socket to `to` is bound: at `from`, if that is an address of the same family.
fn local(from: IpAddr, to: SocketAddr, port: u16) -> SocketAddr {
    let from = if to.is_ipv6() { from } else { from.to_canonical() };
    let anywhere = if to.is_ipv6() { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() };
    SocketAddr::new(if from.is_ipv6() == to.is_ipv6() { from } else { anywhere }, port)
}

/// A socket for datagrams, connected to `to`.
pub(super) fn datagrams(from: IpAddr, to: SocketAddr, reserved: bool) -> io::Result<UdpSocket> {
    let bind = |port| std::net::UdpSocket::bind(local(from, to, port));
    let mut socket = None;
    for port in ports().filter(|_| reserved) {
        match bind(port) {
            Err(error) if error.kind() == ErrorKind::AddrInUse => {}
            bound => {
                socket = bound.ok();
                break;
            }
        }
    }
    let socket = socket.map_or_else(|| bind(0), Ok)?;
    socket.connect(to)?;
    socket.set_nonblocking(true)?;
    UdpSocket::from_std(socket)
}

/// A connection to `to`.
pub(super) async fn stream(from: IpAddr, to: SocketAddr, reserved: bool) -> io::Result<TcpStream> {
    let bound = |port| {
        let socket = if to.is_ipv6() { TcpSocket::new_v6()? } else { TcpSocket::new_v4()? };
        // A port whose last connection is in TIME_WAIT can be used for a connection to another host.
        socket.set_reuseaddr(port != 0)?;
        socket.bind(local(from, to, port))?;
        io::Result::Ok(socket)
    };
    for port in ports().filter(|_| reserved) {
        let socket = match bound(port) {
            Err(error) if error.kind() == ErrorKind::AddrInUse => continue,
            Err(_) => break,
            Ok(socket) => socket,
        };
        match socket.connect(to).await {
            Err(error) if matches!(error.kind(), ErrorKind::AddrNotAvailable | ErrorKind::AddrInUse) => {}
            connected => return connected,
        }
    }
    bound(0)?.connect(to).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_time_other_reserved_ports_are_tried() {
        let first: Vec<u16> = ports().collect();
        assert_eq!(first.len(), usize::from(ATTEMPTS));
        assert!(first.iter().all(|port| PORTS.contains(port)));
        let starts: std::collections::HashSet<u16> = (0..10).filter_map(|_| ports().next()).collect();
        assert!(starts.len() > 5, "{starts:?}");
    }

    #[test]
    fn a_socket_is_bound_where_the_client_knows_the_server() {
        let [v4, v6] = ["192.0.2.1:1", "[2001:db8::1]:1"].map(|to| to.parse::<SocketAddr>().unwrap());
        let of = |from: &str, to, port| local(from.parse().unwrap(), to, port).to_string();
        assert_eq!(of("192.0.2.9", v4, 700), "192.0.2.9:700");
        assert_eq!(of("::ffff:192.0.2.9", v4, 0), "192.0.2.9:0");
        assert_eq!(of("2001:db8::9", v6, 0), "[2001:db8::9]:0");
        assert_eq!(of("192.0.2.9", v6, 0), "[::]:0");
        assert_eq!(of("2001:db8::9", v4, 0), "0.0.0.0:0");
    }
}
