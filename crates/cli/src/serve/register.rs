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
