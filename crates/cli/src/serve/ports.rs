//! The ports, opened before anything else is promised.

use crate::{
    args::ServeArgs,
    transports::{self, Carrier},
};
use anyhow::{Context, Result};
use rpcrdma_env::Env;
use rpcrdma_fabric::{Fabric, Listener};
use rpcrdma_verbs::{Device, Verbs};
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};
use std::net::{SocketAddr, TcpListener};

/// Peers that the system keeps waiting for us.
const BACKLOG: i32 = 1024;

/// What is spoken on a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Spoken {
    /// NFS over RPC-over-RDMA.
    Rdma,
    /// NFS over record-marked TCP.
    Nfs,
    /// MOUNT over record-marked TCP.
    Mount,
}

impl Spoken {
    pub(super) fn name(self) -> &'static str {
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
    /// Its socket; a device's port has none.
    pub(super) listener: Option<TcpListener>,
}

/// All ports that are open.
pub(super) struct Ports(pub(super) Vec<Port>);

/// The device that carries RDMA, and its listeners.
pub(super) struct OnDevice {
    pub(super) device: Verbs,
    pub(super) listeners: Vec<Box<dyn Listener>>,
}

impl Ports {
    /// Opens every port of the command line.
    pub(super) async fn open(args: &ServeArgs, env: &Env) -> Result<(Self, Option<OnDevice>)> {
        let mut ports = Vec::new();
        let on_device = match args.fabric {
            Carrier::Iwarp => None,
            Carrier::Verbs => Some(open_device(args, env, &mut ports).await?),
        };
        let over_iwarp: &[SocketAddr] = if on_device.is_some() { &[] } else { &args.listen };
        // Version 4 needs no MOUNT.
        let mountd: &[SocketAddr] = if args.nfs.has_3() { &args.mountd } else { &[] };
        let lists = [(Spoken::Rdma, over_iwarp), (Spoken::Mount, mountd), (Spoken::Nfs, &args.tcp)];
        for (spoken, addresses) in lists {
            for address in addresses {
                ports.push(Port::open(spoken, *address)?);
            }
        }
        Ok((Self(ports), on_device))
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
        Ok(Self { spoken, address, listener: Some(listener) })
    }
}

/// Opens the device that the command line names or means, and listens on it.
async fn open_device(args: &ServeArgs, env: &Env, ports: &mut Vec<Port>) -> Result<OnDevice> {
    let choice = match (&args.device, args.listen.first()) {
        (Some(name), _) => Device::Named(name.clone()),
        (None, Some(address)) => Device::Local(address.ip()),
        (None, None) => Device::Only,
    };
    let device = transports::verbs(env, choice, args.busy_poll, args.no_crc, args.capture.is_some()).await?;
    let mut listeners = Vec::new();
    for address in &args.listen {
        let spoken = Spoken::Rdma;
        let listener = device
            .listen(*address)
            .await
            .with_context(|| format!("{} cannot listen on {address} for {}", device.device(), spoken.name()))?;
        ports.push(Port { spoken, address: listener.local_addr(), listener: None });
        listeners.push(listener);
    }
    Ok(OnDevice { device, listeners })
}

/// Listens on an address, with a socket that does not block.
pub(super) fn bind(address: SocketAddr) -> std::io::Result<TcpListener> {
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
