//! Registering the addresses of the services with rpcbind of this machine.
//!
//! rpcbind keeps one address for each program, version and netid. If another server listens at a registered address,
//! the server leaves the registration alone. If nothing listens there, for example after a run that was killed, the
//! server replaces it. When the server ends, it removes its own registrations, and none that another server has made
//! since.

use super::Result;
use super::{nfs_versions::NfsVersions, ports::Ports, programs};
use crate::{
    carrier,
    error::{Context, bail, ensure},
};
use rpcrdma_env::{BoxFuture, BusyPoll, Env, Heap};
use rpcrdma_fabric::Fabric;
use rpcrdma_oncrpc::{
    CallError, Netid, parse_universal_address,
    portmap::Entry,
    rpcbind::{RPCBIND_PORT, RPCBIND_PROGRAM, RPCBIND_SOCKET, Rpcbind},
    tcp::{self, ClientOptions, UnixConnector},
    universal_address,
};
use rpcrdma_verbs::Device;
use std::{
    io::ErrorKind,
    net::{SocketAddr, TcpListener, UdpSocket},
    sync::Arc,
    time::Duration,
};

/// How long a server may take to accept a connection before it counts as alive, but busy.
const PROBE_TIME: Duration = Duration::from_secs(2);

/// Says whether something listens at an address.
type Probe<'a> = &'a (dyn Fn(Netid, SocketAddr) -> BoxFuture<'a, bool> + Sync);

/// The registrations of this server, to be removed at the end.
pub(super) struct Registered {
    rpcbind: Rpcbind,
    owner: String,
    entries: Vec<Entry>,
}

impl Registered {
    // V2-9-c, ULB-3.3-c
    pub(super) async fn with_rpcbind(ports: &Ports, versions: NfsVersions, env: &Env) -> Result<Self> {
        let here = SocketAddr::from(([127, 0, 0, 1], RPCBIND_PORT));
        let connector = Arc::new(UnixConnector::new(RPCBIND_SOCKET, here));
        let (transport, driver) = tcp::connect(connector, Arc::new(Heap), env, ClientOptions::default())
            .await
            .with_context(|| format!("--rpcbind: is rpcbind running ({RPCBIND_SOCKET})?"))?;
        tokio::spawn(driver);
        let of = |over_udp: bool| -> Vec<_> {
            let same = ports.0.iter().filter(|port| port.datagrams.is_some() == over_udp);
            same.map(|port| port.address).collect()
        };
        let (own, own_over_udp) = (of(false), of(true));
        let probe = |netid, address| {
            let own = if is_udp(netid) { &own_over_udp } else { &own };
            Box::pin(is_listened_at(netid, address, own, env)) as BoxFuture<'_, bool>
        };
        Self::register(Rpcbind::new(transport), wanted(ports, versions), &probe).await
    }

    async fn register(rpcbind: Rpcbind, wanted: Vec<Entry>, listens: Probe<'_>) -> Result<Self> {
        let owner = rustix::process::geteuid().as_raw().to_string();
        let mut registered = Self { rpcbind, owner, entries: Vec::new() };
        for entry in wanted {
            match registered.add(&entry, listens).await.with_context(|| format!("--rpcbind: {entry}")) {
                Ok(()) => registered.entries.push(entry),
                Err(error) => {
                    registered.remove().await;
                    return Err(error);
                }
            }
        }
        Ok(registered)
    }

    async fn add(&self, entry: &Entry, listens: Probe<'_>) -> Result<()> {
        let Entry { program, version, netid, address } = *entry;
        if let Some(text) = self.found(entry).await? {
            let shown = rpcrdma_nfs::names::escaped(&text);
            let other = std::str::from_utf8(&text).ok().and_then(parse_universal_address);
            let other = other.with_context(|| format!("it is registered at {shown}, which is not an address"))?;
            // If this server listens on the address, no other server does.
            ensure!(
                other == address || !listens(netid, other).await,
                "it is registered at {other}, where a server listens: stop that one, or do without --rpcbind"
            );
            tracing::info!(
                %entry, address = %other,
                "replacing a registration with rpcbind: nothing listens at its address"
            );
            if !self.rpcbind.unset(program, version, netid, &self.owner).await? {
                bail!("it is registered at {other} by another user");
            }
        }
        ensure!(
            self.rpcbind.set(program, version, netid, &address, &self.owner).await?,
            "rpcbind refuses: somebody else has just registered it, or this user may not"
        );
        Ok(())
    }

    /// The universal address that is registered for a service, if one is.
    async fn found(&self, entry: &Entry) -> Result<Option<Vec<u8>>, CallError> {
        let all = self.rpcbind.registrations().await?;
        let same = all.into_iter().find(|found| {
            (found.program, found.version, &found.netid[..])
                == (entry.program, entry.version, entry.netid.as_str().as_bytes())
        });
        Ok(same.map(|found| found.address))
    }

    pub(super) async fn remove(&self) {
        for entry in &self.entries {
            let removed = async {
                match self.found(entry).await? {
                    Some(address) if address == universal_address(&entry.address).as_bytes() => {
                        self.rpcbind.unset(entry.program, entry.version, entry.netid, &self.owner).await
                    }
                    Some(_) => {
                        tracing::info!(%entry, "somebody else has registered it since: the server does not remove it");
                        Ok(true)
                    }
                    None => Ok(true),
                }
            };
            match removed.await {
                Ok(true) => {}
                Ok(false) => tracing::warn!(%entry, "rpcbind does not remove the registration"),
                Err(error) => tracing::warn!(%error, %entry, "cannot remove the registration with rpcbind"),
            }
        }
    }
}

fn is_udp(netid: Netid) -> bool {
    matches!(netid, Netid::Udp | Netid::Udp6)
}

/// Whether a server listens at a registered address. `own` are the addresses where this server listens.
async fn is_listened_at(netid: Netid, address: SocketAddr, own: &[SocketAddr], env: &Env) -> bool {
    // If this server has a port on one address, no other server has it on all addresses. A call would reach this
    // server.
    let is_ours = |own: &SocketAddr| own.port() == address.port() && own.is_ipv4() == address.is_ipv4();
    if address.ip().is_unspecified() && own.iter().any(is_ours) {
        return false;
    }
    // If this server has the port on all addresses, no other server has it on one address of this machine.
    if own.iter().any(|own| own.ip().is_unspecified() && is_ours(own)) {
        return false;
    }
    if is_udp(netid) {
        // A UDP socket cannot be asked whether it is there. A port that can be bound is free.
        return UdpSocket::bind(address).is_err_and(|error| error.kind() == ErrorKind::AddrInUse);
    }
    match tokio::time::timeout(PROBE_TIME, tokio::net::TcpStream::connect(address)).await {
        Ok(Ok(_)) => true,
        Ok(Err(error)) if error.kind() == ErrorKind::ConnectionRefused => match netid {
            Netid::Rdma | Netid::Rdma6 => is_listened_on_device(address, env).await,
            _ => false,
        },
        // Only an address of this machine may belong to a server that is busy.
        _ => TcpListener::bind((address.ip(), 0)).is_ok(),
    }
}

/// Whether a server listens on the RDMA device that has an address. The ports of a device are not those of TCP: while
/// that server listens, no other can.
async fn is_listened_on_device(address: SocketAddr, env: &Env) -> bool {
    let device = if address.ip().is_unspecified() { Device::Only } else { Device::Local(address.ip()) };
    match carrier::verbs(env, device, BusyPoll::Off, false, false).await {
        Ok(device) => device.listen(address).await.is_err(),
        Err(_) => false,
    }
}

/// One entry for each service and netid: rpcbind keeps one address for each.
fn wanted(ports: &Ports, versions: NfsVersions) -> Vec<Entry> {
    let mut wanted: Vec<Entry> = Vec::new();
    let reached = programs::entries(ports, versions).into_iter().filter(|entry| !entry.address.ip().is_loopback());
    // This server's own portmapper is not registered with another portmapper.
    for entry in reached.filter(|entry| entry.program != RPCBIND_PROGRAM) {
        let key = |entry: &Entry| (entry.program, entry.version, entry.netid);
        if !wanted.iter().any(|known| key(known) == key(&entry)) {
            wanted.push(entry);
        }
    }
    wanted
}

#[cfg(test)]
mod tests {
    use super::{
        super::ports::{Port, Spoken},
        *,
    };
    use rpcrdma_env::{SeededRandom, TokioClock};
    use rpcrdma_oncrpc::{
        Answer, CallContext, Router, Service,
        rpcbind::{RPCBIND_PROGRAM, Registration},
        tcp::{Connector, Endpoint, Io, ServerOptions},
    };
    use rpcrdma_xdr::{Decode, Decoder, Encoder};
    use std::{io, sync::Mutex};

    type Table = Arc<Mutex<Vec<Registration>>>;

    /// A small rpcbind of version 4: SET, UNSET and DUMP of RFC 1833.
    struct Small(Table);

    impl Service for Small {
        fn program(&self) -> u32 {
            RPCBIND_PROGRAM
        }
        fn version(&self) -> u32 {
            4
        }
        fn is_idempotent(&self, _: u32) -> bool {
            true
        }
        fn call(&self, _: CallContext, procedure: u32, mut args: Decoder) -> BoxFuture<'static, Answer> {
            let mut table = self.0.lock().unwrap();
            let mut encoder = Encoder::new();
            if procedure == 4 {
                table.iter().for_each(|registration| encoder.optional(Some(registration)));
                encoder.bool(false);
            } else {
                let asked = Registration::decode(&mut args).unwrap();
                let same =
                    |r: &Registration| (r.program, r.version, &r.netid) == (asked.program, asked.version, &asked.netid);
                let found = table.iter().position(same);
                match (procedure, found) {
                    (1, None) => table.push(asked),
                    (2, Some(at)) if table[at].owner == asked.owner => drop(table.remove(at)),
                    _ => return Box::pin(std::future::ready(refused())),
                }
                encoder.bool(true);
            }
            Box::pin(std::future::ready(Answer::Results(encoder.finish())))
        }
    }

    fn refused() -> Answer {
        let mut encoder = Encoder::new();
        encoder.bool(false);
        Answer::Results(encoder.finish())
    }

    struct Duplex(Mutex<Option<tokio::io::DuplexStream>>);

    impl Connector for Duplex {
        fn connect(&self) -> BoxFuture<'_, io::Result<Box<dyn Io>>> {
            let io = self.0.lock().unwrap().take().ok_or(io::ErrorKind::ConnectionRefused.into());
            Box::pin(std::future::ready(io.map(|io| Box::new(io) as Box<dyn Io>)))
        }
        fn server(&self) -> SocketAddr {
            ([127, 0, 0, 1], RPCBIND_PORT).into()
        }
    }

    fn env() -> Env {
        Env { clock: Arc::new(TokioClock::new()), random: Arc::new(SeededRandom::new(1)) }
    }

    /// A client of a small rpcbind that knows `table`.
    async fn rpcbind(table: &Table) -> Rpcbind {
        let env = env();
        let router = Router::new(&env).with_service(Arc::new(Small(table.clone())));
        let (near, far) = tokio::io::duplex(4096);
        let address = SocketAddr::from(([127, 0, 0, 1], RPCBIND_PORT));
        let endpoint = Endpoint { peer: address, local: address, id: 1, allocator: Arc::new(Heap) };
        let (_, server) = tcp::serve(far, endpoint, Arc::new(router), env.clock.clone(), ServerOptions::default());
        tokio::spawn(server);
        let connector = Arc::new(Duplex(Mutex::new(Some(near))));
        let (transport, client) =
            tcp::connect(connector, Arc::new(Heap), &env, ClientOptions::default()).await.unwrap();
        tokio::spawn(client);
        Rpcbind::new(transport)
    }

    fn owner() -> String {
        rustix::process::geteuid().as_raw().to_string()
    }

    fn registration(netid: &str, address: &str, owner: &str) -> Registration {
        let address = universal_address(&address.parse().unwrap()).into();
        Registration { program: 100_003, version: 3, netid: netid.into(), address, owner: owner.into() }
    }

    fn entry(netid: Netid, address: &str) -> Entry {
        Entry { program: 100_003, version: 3, netid, address: address.parse().unwrap() }
    }

    fn addresses(table: &Table) -> Vec<String> {
        table.lock().unwrap().iter().map(|r| String::from_utf8(r.address.clone()).unwrap()).collect()
    }

    /// Only the server at port 2049 lives.
    fn lives(_: Netid, address: SocketAddr) -> BoxFuture<'static, bool> {
        Box::pin(std::future::ready(address.port() == 2049))
    }

    #[tokio::test]
    async fn a_server_that_lives_keeps_its_registration() {
        let table: Table = Arc::new(Mutex::new(vec![registration("tcp", "0.0.0.0:2049", &owner())]));
        let wanted = vec![entry(Netid::Rdma, "192.0.2.1:20049"), entry(Netid::Tcp, "192.0.2.1:4000")];
        let error = Registered::register(rpcbind(&table).await, wanted, &lives).await.err().unwrap();
        let text = format!("{error:#}");
        assert!(text.contains("program 100003 version 3 over tcp") && text.contains("0.0.0.0:2049"), "{text}");
        assert_eq!(addresses(&table), ["0.0.0.0.8.1"], "and what was registered before the failure is taken back");
    }

    #[tokio::test]
    async fn what_a_killed_run_left_behind_is_replaced() {
        let left = [registration("tcp", "192.0.2.1:4000", &owner()), registration("rdma", "192.0.2.9:20049", &owner())];
        let table: Table = Arc::new(Mutex::new(left.into()));
        let wanted = vec![entry(Netid::Rdma, "192.0.2.1:20049"), entry(Netid::Tcp, "192.0.2.1:4000")];
        let registered = Registered::register(rpcbind(&table).await, wanted, &lives).await.unwrap();
        assert_eq!(addresses(&table), ["192.0.2.1.78.81", "192.0.2.1.15.160"]);
        registered.remove().await;
        assert_eq!(addresses(&table), [""; 0]);
        // The server does not replace a registration of another user.
        table.lock().unwrap().push(registration("tcp", "192.0.2.1:4001", "another"));
        let wanted = vec![entry(Netid::Tcp, "192.0.2.1:4000")];
        let error = Registered::register(rpcbind(&table).await, wanted, &lives).await.err().unwrap();
        assert!(format!("{error:#}").contains("by another user"), "{error:#}");
    }

    #[tokio::test]
    async fn what_somebody_else_has_registered_since_is_left_at_the_end() {
        let table = Table::default();
        let wanted = vec![entry(Netid::Rdma, "192.0.2.1:20049"), entry(Netid::Tcp, "192.0.2.1:4000")];
        let registered = Registered::register(rpcbind(&table).await, wanted, &lives).await.unwrap();
        // An administrator has removed our registration, and another server of the same user has registered.
        table.lock().unwrap()[1] = registration("tcp", "192.0.2.1:2049", &owner());
        registered.remove().await;
        assert_eq!(addresses(&table), ["192.0.2.1.8.1"]);
    }

    #[tokio::test]
    async fn a_server_lives_where_something_listens() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let anywhere = SocketAddr::from(([0, 0, 0, 0], address.port()));
        let env = env();
        for netid in [Netid::Tcp, Netid::Rdma] {
            assert!(is_listened_at(netid, address, &[], &env).await);
            assert!(is_listened_at(netid, anywhere, &[], &env).await);
        }
        assert!(!is_listened_at(Netid::Tcp, anywhere, &[address], &env).await, "it would be us");
        drop(listener);
        assert!(!is_listened_at(Netid::Tcp, address, &[], &env).await);
        assert!(!is_listened_at(Netid::Rdma, address, &[], &env).await, "no device of this machine has it");
        // An address that neither this machine nor any other has: RFC 6666.
        assert!(!is_listened_at(Netid::Tcp, "[100::1]:2049".parse().unwrap(), &[], &env).await);
    }

    fn port(spoken: Spoken, address: &str) -> Port {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        Port { spoken, address: address.parse().unwrap(), listener: Some(listener), datagrams: None }
    }

    fn over_udp(spoken: Spoken, address: &str) -> Port {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        Port { spoken, address: address.parse().unwrap(), listener: None, datagrams: Some(socket) }
    }

    /// A client that locks looks for NLM, and one that has restarted for NSM.
    #[tokio::test]
    async fn locks_are_registered_where_they_are_served_and_gone_at_the_end() {
        let ports = Ports(vec![
            port(Spoken::Nfs, "192.0.2.1:2049"),
            port(Spoken::Lockd, "192.0.2.1:4045"),
            port(Spoken::Statd, "192.0.2.1:662"),
            over_udp(Spoken::Statd, "192.0.2.1:662"),
            port(Spoken::Portmapper, "192.0.2.1:111"),
        ]);
        let table = Table::default();
        let wanted = wanted(&ports, "3".parse().unwrap());
        let registered = Registered::register(rpcbind(&table).await, wanted, &lives).await.unwrap();
        let told = || -> Vec<_> {
            let told = table.lock().unwrap();
            told.iter().map(|r| (r.program, r.version, String::from_utf8(r.netid.clone()).unwrap())).collect()
        };
        let entry = |program, version, netid: &str| (program, version, netid.to_owned());
        let expected = [
            entry(100_003, 3, "tcp"),
            entry(100_227, 3, "tcp"),
            entry(100_021, 1, "tcp"),
            entry(100_021, 3, "tcp"),
            entry(100_021, 4, "tcp"),
            entry(100_024, 1, "tcp"),
            entry(100_024, 1, "udp"),
        ];
        assert_eq!(told(), expected);
        registered.remove().await;
        assert_eq!(told(), []);
    }

    #[tokio::test]
    async fn a_server_lives_over_udp_where_the_port_is_taken() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = socket.local_addr().unwrap();
        let anywhere = SocketAddr::from(([0, 0, 0, 0], address.port()));
        let env = env();
        assert!(is_listened_at(Netid::Udp, address, &[], &env).await);
        assert!(is_listened_at(Netid::Udp, anywhere, &[], &env).await);
        assert!(!is_listened_at(Netid::Udp, anywhere, &[address], &env).await, "it would be us");
        drop(socket);
        assert!(!is_listened_at(Netid::Udp, address, &[], &env).await);
        assert!(!is_listened_at(Netid::Udp, "[100::1]:662".parse().unwrap(), &[], &env).await);
    }

    /// iWARP is one of the networks whose endpoints are named by IP addresses and ports.
    /// proves: V1-9-a, V1-9-b, V2-9-c, V2-12-a, V2-12-b, ULB-3.3-c, V1-9-c
    #[test]
    fn rpcbind_is_told_of_rdma_by_address_family() {
        let ports = Ports(vec![
            port(Spoken::Rdma, "127.0.0.1:20049"),
            port(Spoken::Rdma, "192.0.2.1:20049"),
            port(Spoken::Rdma, "192.0.2.2:4000"),
            port(Spoken::Rdma, "[2001:db8::1]:20050"),
            port(Spoken::Nfs, "192.0.2.1:2049"),
            port(Spoken::Mount, "192.0.2.1:20048"),
        ]);
        let told = |versions: &str| -> Vec<_> {
            let told = wanted(&ports, versions.parse().unwrap()).into_iter();
            told.map(|e| (e.program, e.version, e.netid.as_str(), e.address.to_string())).collect()
        };
        let entry = |program, version, netid, address: &str| (program, version, netid, address.to_owned());
        assert_eq!(
            told("3"),
            [
                entry(100_003, 3, "rdma", "192.0.2.1:20049"),
                entry(100_227, 3, "rdma", "192.0.2.1:20049"),
                entry(100_003, 3, "rdma6", "[2001:db8::1]:20050"),
                entry(100_227, 3, "rdma6", "[2001:db8::1]:20050"),
                entry(100_003, 3, "tcp", "192.0.2.1:2049"),
                entry(100_227, 3, "tcp", "192.0.2.1:2049"),
                entry(100_005, 3, "tcp", "192.0.2.1:20048"),
                entry(100_005, 1, "tcp", "192.0.2.1:20048"),
            ]
        );
        let of_nfs = |version| told("3,4.2").into_iter().filter(move |entry| (entry.0, entry.1) == (100_003, version));
        assert_eq!((of_nfs(3).count(), of_nfs(4).count()), (3, 3));
        assert!(of_nfs(3).zip(of_nfs(4)).all(|(of_3, of_4)| (of_3.2, of_3.3) == (of_4.2, of_4.3)), "the same ports");
    }
}
