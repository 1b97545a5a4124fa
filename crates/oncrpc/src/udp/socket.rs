//! The source and destination of datagrams: a trait, and a socket of this machine.
//!
//! For a socket on every address of a machine, the kernel reports the address to which each datagram was sent, and the
//! socket answers from there: a client accepts no answer from an address that it did not ask. A datagram to many
//! (broadcast, multicast) is marked as such.

use nix::{
    errno::Errno,
    libc,
    sys::socket::{
        ControlMessage, ControlMessageOwned, MsgFlags, RecvMsg, SockaddrStorage, recvmsg, sendmsg, setsockopt, sockopt,
    },
};
use std::{
    io::{self, IoSlice, IoSliceMut},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6, UdpSocket},
    os::fd::AsRawFd,
    task::{Context, Poll, ready},
};
use tokio::io::Interest;

/// Receives and sends datagrams.
pub trait Datagrams: Send {
    /// The next datagram, copied into `room` as far as it fits.
    ///
    /// # Errors
    /// If it cannot be read. It may be possible to read the next one.
    fn poll_receive(&mut self, cx: &mut Context<'_>, room: &mut [u8]) -> Poll<io::Result<Received>>;

    /// Sends a datagram now, or not at all.
    ///
    /// # Errors
    /// If it was not sent.
    fn send(&mut self, octets: &[u8], to: SocketAddr, from: Option<Local>) -> io::Result<()>;
}

/// A datagram that has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// Its whole length in bytes, even if it did not fit.
    pub len: usize,
    /// The sender's address, which may be false.
    pub peer: SocketAddr,
    /// The address that it was sent to, if the kernel reports it.
    pub local: Option<Local>,
}

/// The address to which a datagram was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Local {
    /// The address of this machine that it was sent to; where it was sent to many, one that it reached.
    pub address: IpAddr,
    /// The system's number of the interface that it came in by.
    pub interface: u32,
    /// Whether it was sent to many receivers.
    pub to_many: bool,
}

/// A socket.
#[derive(Debug)]
pub struct Socket {
    socket: tokio::net::UdpSocket,
    /// Room for what the kernel reports about a datagram.
    told: Vec<u8>,
}

impl Socket {
    /// A socket that is bound. Must be called in the runtime where it is used.
    ///
    /// # Errors
    /// If the kernel does not report to which address datagrams were sent, or the runtime does not take the socket.
    pub fn new(socket: UdpSocket) -> io::Result<Self> {
        match socket.local_addr()?.ip() {
            IpAddr::V4(_) => setsockopt(&socket, sockopt::Ipv4PacketInfo, &true)?,
            IpAddr::V6(_) => setsockopt(&socket, sockopt::Ipv6RecvPacketInfo, &true)?,
        }
        socket.set_nonblocking(true)?;
        let told = nix::cmsg_space!(libc::in_pktinfo, libc::in6_pktinfo);
        Ok(Self { socket: tokio::net::UdpSocket::from_std(socket)?, told })
    }

    /// The address that it is bound to.
    ///
    /// # Errors
    /// If the kernel does not say.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }
}

impl Datagrams for Socket {
    fn poll_receive(&mut self, cx: &mut Context<'_>, room: &mut [u8]) -> Poll<io::Result<Received>> {
        let Self { socket, told } = self;
        loop {
            ready!(socket.poll_recv_ready(cx))?;
            let receive = || {
                let mut room = [IoSliceMut::new(room)];
                // With this flag the kernel says how long the datagram is, and not how much of it fits.
                let flags = MsgFlags::MSG_TRUNC;
                let received = recvmsg::<SockaddrStorage>(socket.as_raw_fd(), &mut room, Some(told), flags)?;
                // Without the sender's address there is no way to answer.
                let peer = received.address.and_then(socket_address).unwrap_or((Ipv4Addr::UNSPECIFIED, 0).into());
                Ok(Received { len: received.bytes, peer, local: local(&received) })
            };
            match socket.try_io(Interest::READABLE, receive) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                received => return Poll::Ready(received),
            }
        }
    }

    fn send(&mut self, octets: &[u8], to: SocketAddr, from: Option<Local>) -> io::Result<()> {
        let (octets, to) = ([IoSlice::new(octets)], SockaddrStorage::from(to));
        let send = |from: &[ControlMessage<'_>]| {
            sendmsg(self.socket.as_raw_fd(), &octets, from, MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL, Some(&to))
        };
        let sent: Result<usize, Errno> = match from.map(|from| (from.address, from.interface)) {
            None => send(&[]),
            Some((IpAddr::V4(address), _)) => {
                let source = libc::in_addr { s_addr: u32::from_ne_bytes(address.octets()) };
                let anywhere = libc::in_addr { s_addr: 0 };
                // The routing table chooses the interface: the way back may be another one.
                let info = libc::in_pktinfo { ipi_ifindex: 0, ipi_spec_dst: source, ipi_addr: anywhere };
                send(&[ControlMessage::Ipv4PacketInfo(&info)])
            }
            Some((IpAddr::V6(address), interface)) => {
                // On another interface, a link-local address belongs to another host.
                let interface = if address.is_unicast_link_local() { interface } else { 0 };
                let source = libc::in6_addr { s6_addr: address.octets() };
                let info = libc::in6_pktinfo { ipi6_addr: source, ipi6_ifindex: interface };
                send(&[ControlMessage::Ipv6PacketInfo(&info)])
            }
        };
        sent.map(drop).map_err(io::Error::from)
    }
}

fn socket_address(address: SockaddrStorage) -> Option<SocketAddr> {
    match (address.as_sockaddr_in(), address.as_sockaddr_in6()) {
        (Some(v4), _) => Some(SocketAddrV4::from(*v4).into()),
        (None, Some(v6)) => Some(SocketAddrV6::from(*v6).into()),
        (None, None) => None,
    }
}

/// To which address a datagram was sent, as the kernel reports it.
fn local(received: &RecvMsg<'_, '_, SockaddrStorage>) -> Option<Local> {
    received.cmsgs().ok()?.find_map(|told| match told {
        ControlMessageOwned::Ipv4PacketInfo(info) => {
            let [meant, reached] = [info.ipi_addr, info.ipi_spec_dst].map(|at| Ipv4Addr::from(at.s_addr.to_ne_bytes()));
            let interface = u32::try_from(info.ipi_ifindex).unwrap_or(0);
            // A datagram that came before the kernel was asked for this has only the address that it was sent to.
            let (address, to_many) = match reached.is_unspecified() {
                true => (meant, meant.is_broadcast() || meant.is_multicast()),
                false => (reached, meant != reached),
            };
            Some(Local { address: address.into(), interface, to_many })
        }
        ControlMessageOwned::Ipv6PacketInfo(info) => {
            let address = Ipv6Addr::from(info.ipi6_addr.s6_addr);
            Some(Local { address: address.into(), interface: info.ipi6_ifindex, to_many: address.is_multicast() })
        }
        _ => None,
    })
}
