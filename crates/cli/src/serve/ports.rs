//! The ports, opened before anything else is promised.

use crate::args::ServeArgs;
use anyhow::{Context, Result};
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};
use std::net::{SocketAddr, TcpListener};

/// Peers that the system keeps waiting for us.
const BACKLOG: i32 = 1024;

/// What is spoken on a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Spoken {
    /// NFS over RPC-over-RDMA over iWARP.
    Rdma,
    /// NFS over record-marked TCP.
    Nfs,
    /// MOUNT over record-marked TCP.
    Mount,
}

impl Spoken {
    fn name(self) -> &'static str {
        match self {
            Spoken::Rdma => "NFS over RDMA",
            Spoken::Nfs => "NFS over TCP",
            Spoken::Mount => "MOUNT",
        }
    }
}

/// A port that is open.
pub(super) struct Port {
    pub(super) spoken: Spoken,
    pub(super) address: SocketAddr,
    pub(super) listener: TcpListener,
}

/// All ports that are open.
pub(super) struct Ports(pub(super) Vec<Port>);

impl Ports {
    /// Opens every port of the command line.
    pub(super) fn open(args: &ServeArgs) -> Result<Self> {
        let lists = [(Spoken::Rdma, &args.listen), (Spoken::Mount, &args.mountd), (Spoken::Nfs, &args.tcp)];
        let mut ports = Vec::new();
        for (spoken, addresses) in lists {
            for address in addresses {
                ports.push(Port::open(spoken, *address)?);
            }
        }
        Ok(Self(ports))
    }

    /// Whether nobody on another machine can reach any of them.
    pub(super) fn only_loopback(&self) -> bool {
        self.0.iter().all(|port| port.address.ip().to_canonical().is_loopback())
    }

    /// The addresses where something is spoken.
    pub(super) fn of(&self, spoken: Spoken) -> impl Iterator<Item = SocketAddr> {
        self.0.iter().filter(move |port| port.spoken == spoken).map(|port| port.address)
    }
}

impl Port {
    fn open(spoken: Spoken, address: SocketAddr) -> Result<Self> {
        let listener = bind(address).with_context(|| format!("cannot listen on {address} for {}", spoken.name()))?;
        let address = listener.local_addr()?;
        Ok(Self { spoken, address, listener })
    }
}

fn bind(address: SocketAddr) -> std::io::Result<TcpListener> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
    // A restarted server finds its port free although old connections are still known to TCP.
    sockopt::set_socket_reuseaddr(&socket, true)?;
    if address.is_ipv6() {
        // Two listeners for two families do not get in each other's way.
        sockopt::set_ipv6_v6only(&socket, true)?;
    }
    rustix::net::bind(&socket, &address)?;
    rustix::net::listen(&socket, BACKLOG)?;
    Ok(TcpListener::from(socket))
}
