//! The ports, opened before anything else is promised.

use super::{
    Options, Result, Rpcbind, kerberos,
    listeners::{Addresses, Listeners, NFS_PORT},
};
use crate::{
    Error,
    carrier::{self, Carrier},
    error::{Context, bail},
};
use rpcrdma_env::Env;
use rpcrdma_fabric::{Fabric, Listener};
use rpcrdma_oncrpc::rpcbind::RPCBIND_PORT;
use rpcrdma_verbs::Device;
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};
use std::{
    io::ErrorKind,
    net::{SocketAddr, TcpListener, UdpSocket},
    sync::Arc,
};

/// Peers that the system keeps waiting for us.
const BACKLOG: i32 = 1024;
/// How often the server tries to find a port that is free for both TCP and UDP, if the system may choose it.
const ATTEMPTS: usize = 16;

/// The protocol of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spoken {
    /// NFS over RPC-over-RDMA.
    Rdma,
    /// NFS over record-marked TCP.
    Nfs,
    /// MOUNT over record-marked TCP.
    Mount,
    /// rpcbind's protocol over record-marked TCP, and over UDP.
    Portmapper,
    /// NLM over record-marked TCP.
    Lockd,
    /// NSM over record-marked TCP, and over UDP.
    Statd,
}

impl Spoken {
    pub(super) fn name(self) -> &'static str {
        match self {
            Spoken::Rdma => "NFS over RDMA",
            Spoken::Nfs => "NFS over TCP",
            Spoken::Mount => "MOUNT",
            Spoken::Portmapper => "the portmapper",
            Spoken::Lockd => "NLM",
            Spoken::Statd => "NSM",
        }
    }

    /// Whether clients reach files by it.
    fn is_nfs(self) -> bool {
        matches!(self, Spoken::Rdma | Spoken::Nfs)
    }
}

/// A port that is open.
pub(super) struct Port {
    pub(super) spoken: Spoken,
    pub(super) address: SocketAddr,
    /// The socket of a TCP port; a device's port has none.
    pub(super) listener: Option<TcpListener>,
    /// The socket of a UDP port.
    pub(super) datagrams: Option<UdpSocket>,
}

/// All ports that are open.
pub(super) struct Ports(pub(super) Vec<Port>);

/// The device that carries RDMA, or the program's own provider, and its listeners.
pub(super) struct OnDevice {
    pub(super) device: Arc<dyn Fabric>,
    pub(super) listeners: Vec<Box<dyn Listener>>,
}

impl Ports {
    /// Opens every port that the options name. With version 4, opens those of the default ports that are free.
    pub(super) async fn open(options: &Options, env: &Env) -> Result<(Self, Option<OnDevice>)> {
        let mut ports = Vec::new();
        let wanted = Listeners::of(options);
        let mut over_tcp =
            vec![(Spoken::Mount, &wanted.mount), (Spoken::Nfs, &wanted.nfs), (Spoken::Lockd, &wanted.lockd)];
        let on_device = match (&options.fabric, options.carrier) {
            (None, Carrier::Iwarp) => {
                over_tcp.insert(0, (Spoken::Rdma, &wanted.rdma));
                None
            }
            _ => Some(open_device(options, &wanted.rdma.all, env, &mut ports).await?),
        };
        let is_secured = !kerberos::wanted(options).is_empty();
        let mut lacking = Vec::new();
        for (spoken, Addresses { all, are_default }) in over_tcp {
            for address in all {
                match Port::open(spoken, *address) {
                    Ok(port) => ports.push(port),
                    // Clients that need none of the missing ports are served by the others.
                    Err(error) if *are_default && options.nfs.has_4() && !(spoken == Spoken::Nfs && is_secured) => {
                        lacking.push((spoken, error));
                    }
                    Err(error) => return Err(error),
                }
            }
        }
        for address in &wanted.statd.all {
            ports.extend(Port::open_both(Spoken::Statd, *address)?);
        }
        if !ports.iter().any(|port| port.spoken.is_nfs()) {
            let why: Vec<_> = lacking.iter().map(|(_, error)| format!("{error:#}")).collect();
            bail!("no port for NFS can be had: {}; name others with --listen and --tcp", why.join("; "));
        }
        for (spoken, error) in lacking {
            tracing::warn!(
                "{error:#}; this is a default, and the server goes on without it: name another with {}",
                spoken.option()
            );
        }
        if options.rpcbind == Some(Rpcbind::Own) {
            for address in portmapper_addresses(&options.portmapper, &ports) {
                let opened = Port::open_both(Spoken::Portmapper, address);
                ports.extend(opened.map_err(|error| explain_portmapper(error, address))?);
            }
        }
        let ports = Self(ports);
        if is_secured {
            ports.check_kerberos(options)?;
        }
        Ok((ports, on_device))
    }

    /// That NFS is served over TCP at its usual port wherever it is over RDMA: V1-8.2.2.1-a, V2-11.2.2.1-a. Clients
    /// make their contexts there.
    fn check_kerberos(&self, options: &Options) -> Result<()> {
        let tcp: Vec<_> = self.of(Spoken::Nfs).filter(|address| address.port() == NFS_PORT).collect();
        let covers = |tcp: &SocketAddr, rdma: &SocketAddr| {
            tcp.ip() == rdma.ip() || tcp.ip().is_unspecified() && tcp.is_ipv4() == rdma.is_ipv4()
        };
        match self.of(Spoken::Rdma).find(|rdma| !tcp.iter().any(|tcp| covers(tcp, rdma))) {
            None => Ok(()),
            Some(rdma) => bail!(
                "--sec {}: with Kerberos, NFS over RDMA at {rdma} needs NFS over TCP at port {NFS_PORT} of the same \
                 address (RFC 8166 section 8.2.2.1): add --tcp {}",
                kerberos::words(&kerberos::wanted(options)),
                SocketAddr::new(rdma.ip(), NFS_PORT)
            ),
        }
    }

    /// Whether all of them are loopback addresses, which no other machine reaches.
    pub(super) fn only_loopback(&self) -> bool {
        self.0.iter().all(|port| port.address.ip().to_canonical().is_loopback())
    }

    /// The addresses at which a protocol is served, each once. UDP has the same addresses as TCP.
    pub(super) fn of(&self, spoken: Spoken) -> impl Iterator<Item = SocketAddr> {
        let of_streams = self.0.iter().filter(move |port| port.spoken == spoken && port.datagrams.is_none());
        of_streams.map(|port| port.address)
    }
}

impl Port {
    fn open(spoken: Spoken, address: SocketAddr) -> Result<Self> {
        let listener = bind(address).with_context(|| format!("cannot listen on {address} for {}", spoken.name()))?;
        let address = listener.local_addr()?;
        Ok(Self { spoken, address, listener: Some(listener), datagrams: None })
    }

    /// Opens a port over TCP and the same over UDP.
    pub(super) fn open_both(spoken: Spoken, address: SocketAddr) -> Result<[Self; 2]> {
        let mut attempts = if address.port() == 0 { ATTEMPTS } else { 1 };
        loop {
            attempts -= 1;
            let stream = Self::open(spoken, address)?;
            let address = stream.address;
            match bind_datagrams(address) {
                Ok(socket) => {
                    return Ok([stream, Self { spoken, address, listener: None, datagrams: Some(socket) }]);
                }
                // The system has chosen a port that is free for TCP alone.
                Err(error) if error.kind() == ErrorKind::AddrInUse && attempts > 0 => {}
                Err(error) => {
                    let context = format!("cannot listen on {address} over UDP for {}", spoken.name());
                    return Err(error).context(context);
                }
            }
        }
    }
}

/// Where the portmapper listens: where the options say, else at its usual port of every address where clients
/// from elsewhere reach something.
fn portmapper_addresses(named: &[SocketAddr], ports: &[Port]) -> Vec<SocketAddr> {
    if !named.is_empty() {
        return named.to_vec();
    }
    let mut all: Vec<SocketAddr> = Vec::new();
    let of = ports.iter().map(|port| port.address.ip()).filter(|address| !address.is_loopback());
    for address in of.map(|address| SocketAddr::new(address, RPCBIND_PORT)) {
        // A port on all addresses of a family conflicts with the same port on any of them.
        let covers = |all: &SocketAddr, one: &SocketAddr| all.ip().is_unspecified() && all.is_ipv4() == one.is_ipv4();
        if !all.iter().any(|known| *known == address || covers(known, &address)) {
            all.retain(|known| !covers(&address, known));
            all.push(address);
        }
    }
    all
}

/// Explains why the portmapper cannot have its port.
fn explain_portmapper(error: Error, address: SocketAddr) -> Error {
    let kind = error.find::<std::io::Error>().map(std::io::Error::kind);
    let told = match kind {
        Some(ErrorKind::AddrInUse) if address.port() == RPCBIND_PORT => {
            "a portmapper runs here already: use --rpcbind system"
        }
        Some(ErrorKind::PermissionDenied) => {
            "ports below 1024 are for root and for programs with CAP_NET_BIND_SERVICE: clients look for a portmapper \
             at port 111 only"
        }
        _ => return error,
    };
    error.context(format!("--rpcbind own: {told}"))
}

/// Opens the device that the options name or mean, and listens on it.
async fn open_device(
    options: &Options,
    addresses: &[SocketAddr],
    env: &Env,
    ports: &mut Vec<Port>,
) -> Result<OnDevice> {
    let choice = match (&options.device, addresses.first()) {
        (Some(name), _) => Device::Named(name.clone()),
        (None, Some(address)) => Device::Local(address.ip()),
        (None, None) => Device::Only,
    };
    let (device, name): (Arc<dyn Fabric>, _) = match &options.fabric {
        Some(own) => (own.clone(), own.name().to_owned()),
        None => {
            let device = carrier::verbs(env, choice, options.busy_poll, !options.crc, false).await?;
            let name = device.device().to_string();
            (Arc::new(device), name)
        }
    };
    let mut listeners = Vec::new();
    for address in addresses {
        let spoken = Spoken::Rdma;
        let listener = device
            .listen(*address)
            .await
            .with_context(|| format!("{name} cannot listen on {address} for {}", spoken.name()))?;
        ports.push(Port { spoken, address: listener.local_addr(), listener: None, datagrams: None });
        listeners.push(listener);
    }
    Ok(OnDevice { device, listeners })
}

/// Listens on an address with the socket options of the server, and with a non-blocking socket: for a service that a
/// program has next to the server.
///
/// # Errors
/// If the address cannot be bound.
pub fn bind(address: SocketAddr) -> std::io::Result<TcpListener> {
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

/// Opens a socket for datagrams, which does not block.
fn bind_datagrams(address: SocketAddr) -> std::io::Result<UdpSocket> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(family, SocketType::DGRAM, flags, None)?;
    if address.is_ipv6() {
        sockopt::set_ipv6_v6only(&socket, true)?;
    }
    rustix::net::bind(&socket, &address)?;
    Ok(UdpSocket::from(socket))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn port(spoken: Spoken, address: &str) -> Port {
        Port { spoken, address: address.parse().unwrap(), listener: None, datagrams: None }
    }

    #[test]
    fn the_portmapper_listens_where_clients_reach_something() {
        let told = |named: &[&str], ports: &[&str]| {
            let named: Vec<_> = named.iter().map(|address| address.parse().unwrap()).collect();
            let ports: Vec<_> = ports.iter().map(|address| port(Spoken::Nfs, address)).collect();
            portmapper_addresses(&named, &ports).iter().map(SocketAddr::to_string).collect::<Vec<_>>()
        };
        assert_eq!(told(&[], &["127.0.0.1:1", "[::1]:1"]), [""; 0]);
        assert_eq!(told(&[], &["192.0.2.1:1", "127.0.0.1:2", "192.0.2.1:3"]), ["192.0.2.1:111"]);
        assert_eq!(told(&[], &["192.0.2.1:1", "0.0.0.0:2", "192.0.2.2:2"]), ["0.0.0.0:111"]);
        assert_eq!(told(&[], &["0.0.0.0:1", "[2001:db8::1]:1"]), ["0.0.0.0:111", "[2001:db8::1]:111"]);
        assert_eq!(told(&["127.0.0.1:7"], &["0.0.0.0:1"]), ["127.0.0.1:7"]);
    }

    #[test]
    fn a_port_for_both_has_one_number_and_its_address_is_told_once() {
        let [stream, datagrams] = Port::open_both(Spoken::Portmapper, "127.0.0.1:0".parse().unwrap()).unwrap();
        assert_eq!(stream.address, datagrams.address);
        assert_ne!(stream.address.port(), 0);
        let address = stream.address;
        let ports = Ports(vec![stream, datagrams]);
        assert_eq!(ports.of(Spoken::Portmapper).collect::<Vec<_>>(), [address]);
        let error = Port::open_both(Spoken::Portmapper, address).err().unwrap();
        assert!(format!("{error:#}").contains("cannot listen on"), "{error:#}");
        // The usual port, which another process has.
        let usual = SocketAddr::new(address.ip(), RPCBIND_PORT);
        let told = format!("{:#}", explain_portmapper(error, usual));
        assert!(told.starts_with("--rpcbind own: a portmapper runs here already: use --rpcbind system"), "{told}");
    }

    #[test]
    fn a_port_that_is_taken_for_datagrams_alone_is_not_had() {
        let taken = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let holder = UdpSocket::bind(taken).unwrap();
        let error = format!("{:#}", Port::open_both(Spoken::Statd, taken).err().unwrap());
        assert!(error.contains("over UDP for NSM") || error.contains("cannot listen"), "{error}");
        drop(holder);
    }
}
