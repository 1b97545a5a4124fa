//! The ports, opened before anything else is promised.

use super::listeners::{Addresses, Listeners};
use crate::{
    args::ServeArgs,
    transports::{self, Carrier},
};
use anyhow::{Context, Result, bail};
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

    /// The option that names its addresses.
    fn option(self) -> &'static str {
        match self {
            Spoken::Rdma => "--listen",
            Spoken::Nfs => "--tcp",
            Spoken::Mount => "--mountd",
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
    /// Opens every port that the command line names, and the defaults: with version 4 those of them that can be had.
    pub(super) async fn open(args: &ServeArgs, env: &Env) -> Result<(Self, Option<OnDevice>)> {
        let mut ports = Vec::new();
        let wanted = Listeners::of(args);
        let mut over_tcp = vec![(Spoken::Mount, &wanted.mount), (Spoken::Nfs, &wanted.nfs)];
        let on_device = match args.fabric {
            Carrier::Iwarp => {
                over_tcp.insert(0, (Spoken::Rdma, &wanted.rdma));
                None
            }
            Carrier::Verbs => Some(open_device(args, &wanted.rdma.all, env, &mut ports).await?),
        };
        let mut lacking = Vec::new();
        for (spoken, Addresses { all, are_default }) in over_tcp {
            for address in all {
                match Port::open(spoken, *address) {
                    Ok(port) => ports.push(port),
                    // Who needs none of them is served by the others.
                    Err(error) if *are_default && args.nfs.has_4() => lacking.push((spoken, error)),
                    Err(error) => return Err(error),
                }
            }
        }
        if ports.iter().all(|port| port.spoken == Spoken::Mount) {
            let why: Vec<_> = lacking.iter().map(|(_, error)| format!("{error:#}")).collect();
            bail!("no port for NFS can be had: {}; name others with --listen and --tcp", why.join("; "));
        }
        for (spoken, error) in lacking {
            tracing::warn!(
                "{error:#}; this is a default, and the server goes on without it: name another with {}",
                spoken.option()
            );
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
async fn open_device(args: &ServeArgs, addresses: &[SocketAddr], env: &Env, ports: &mut Vec<Port>) -> Result<OnDevice> {
    let choice = match (&args.device, addresses.first()) {
        (Some(name), _) => Device::Named(name.clone()),
        (None, Some(address)) => Device::Local(address.ip()),
        (None, None) => Device::Only,
    };
    let device = transports::verbs(env, choice, args.busy_poll, args.no_crc, args.capture.is_some()).await?;
    let mut listeners = Vec::new();
    for address in addresses {
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
