//! Telling rpcbind of this machine where the services are.

use super::ports::{Ports, Spoken};
use anyhow::{Context, Result, bail};
use rpcrdma_env::{Env, Heap};
use rpcrdma_nfs::{mount, v3};
use rpcrdma_oncrpc::{
    Netid,
    rpcbind::{RPCBIND_PORT, RPCBIND_SOCKET, Rpcbind},
    tcp::{self, ClientOptions, UnixConnector},
};
use std::{net::SocketAddr, sync::Arc};

/// What was registered, to be taken back at the end.
pub(super) struct Registered {
    rpcbind: Rpcbind,
    owner: String,
    entries: Vec<(u32, u32, Netid)>,
}

impl Registered {
    pub(super) async fn with_rpcbind(ports: &Ports, env: &Env) -> Result<Self> {
        let here = SocketAddr::from(([127, 0, 0, 1], RPCBIND_PORT));
        let connector = Arc::new(UnixConnector::new(RPCBIND_SOCKET, here));
        let (transport, driver) = tcp::connect(connector, Arc::new(Heap), env, ClientOptions::default())
            .await
            .with_context(|| format!("--rpcbind: is rpcbind running ({RPCBIND_SOCKET})?"))?;
        tokio::spawn(driver);
        let owner = rustix::process::geteuid().as_raw().to_string();
        let mut registered = Self { rpcbind: Rpcbind::new(transport), owner, entries: Vec::new() };
        for (program, version, netid, address) in wanted(ports) {
            // What an earlier run that was killed has left behind.
            let _ = registered.rpcbind.unset(program, version, netid, &registered.owner).await;
            let set = registered.rpcbind.set(program, version, netid, &address, &registered.owner).await;
            if !set.with_context(|| format!("--rpcbind: registering program {program}"))? {
                registered.remove().await;
                bail!(
                    "--rpcbind: program {program} version {version} is registered for {} by another user",
                    netid.as_str()
                );
            }
            registered.entries.push((program, version, netid));
        }
        Ok(registered)
    }

    pub(super) async fn remove(&self) {
        for (program, version, netid) in &self.entries {
            if let Err(error) = self.rpcbind.unset(*program, *version, *netid, &self.owner).await {
                tracing::warn!(%error, program, "cannot take the registration with rpcbind back");
            }
        }
    }
}

/// One entry for each service and netid: rpcbind keeps one address for each.
fn wanted(ports: &Ports) -> Vec<(u32, u32, Netid, SocketAddr)> {
    let mut wanted: Vec<(u32, u32, Netid, SocketAddr)> = Vec::new();
    let mut add = |program, version, netid, address| {
        if !wanted.iter().any(|&(p, v, n, _)| (p, v, n) == (program, version, netid)) {
            wanted.push((program, version, netid, address));
        }
    };
    for port in ports.0.iter().filter(|port| !port.address.ip().is_loopback()) {
        let address = port.address;
        match port.spoken {
            Spoken::Rdma => add(v3::PROGRAM, v3::VERSION, Netid::rdma(&address), address),
            Spoken::Nfs => add(v3::PROGRAM, v3::VERSION, Netid::tcp(&address), address),
            Spoken::Mount => {
                add(mount::PROGRAM, mount::VERSION_3, Netid::tcp(&address), address);
                add(mount::PROGRAM, mount::VERSION_1, Netid::tcp(&address), address);
            }
        }
    }
    wanted
}

#[cfg(test)]
mod tests {
    use super::{super::ports::Port, *};
    use std::net::TcpListener;

    fn port(spoken: Spoken, address: &str) -> Port {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        Port { spoken, address: address.parse().unwrap(), listener: Some(listener) }
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
        let told: Vec<_> = wanted(&ports)
            .into_iter()
            .map(|(program, version, netid, address)| (program, version, netid.as_str(), address.to_string()))
            .collect();
        let entry = |program, version, netid, address: &str| (program, version, netid, address.to_owned());
        assert_eq!(
            told,
            [
                entry(100_003, 3, "rdma", "192.0.2.1:20049"),
                entry(100_003, 3, "rdma6", "[2001:db8::1]:20050"),
                entry(100_003, 3, "tcp", "192.0.2.1:2049"),
                entry(100_005, 3, "tcp", "192.0.2.1:20048"),
                entry(100_005, 1, "tcp", "192.0.2.1:20048"),
            ]
        );
    }
}
