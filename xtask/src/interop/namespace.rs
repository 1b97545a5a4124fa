//! A network of its own for a guest, so that its host can vanish: no FIN, no RST, no acknowledgement.
//!
//! A namespace with one end of a veth pair; the other end is this machine's. Taking the namespace's end down is a host that lost its
//! power. Root only. What was made goes when the value is dropped.

use anyhow::{Context as _, bail};
use std::{net::Ipv4Addr, process::Command};

/// The addresses are taken from 169.254/16, which no router passes on: four for each process.
fn addresses() -> (Ipv4Addr, Ipv4Addr) {
    let number = 0xa9fe_4000 | ((std::process::id() & 0xfff) << 2);
    (Ipv4Addr::from(number | 1), Ipv4Addr::from(number | 2))
}

/// A namespace that is joined to this machine.
pub(super) struct Namespace {
    name: String,
    here: String,
    there: String,
    address: Ipv4Addr,
}

impl Namespace {
    /// Makes it.
    pub(super) fn new() -> anyhow::Result<Self> {
        let id = std::process::id();
        let (here, there) = addresses();
        let made = Self {
            name: format!("rpcrdma-{id}"),
            here: format!("rdm{id}a"),
            there: format!("rdm{id}b"),
            address: here,
        };
        made.make(there).context("a network namespace could not be made")?;
        Ok(made)
    }

    fn make(&self, there: Ipv4Addr) -> anyhow::Result<()> {
        ip(&["netns", "add", &self.name])?;
        ip(&["link", "add", &self.here, "type", "veth", "peer", "name", &self.there])?;
        ip(&["link", "set", &self.there, "netns", &self.name])?;
        ip(&["addr", "add", &format!("{}/30", self.address), "dev", &self.here])?;
        ip(&["link", "set", &self.here, "up"])?;
        ip(&["-n", &self.name, "addr", "add", &format!("{there}/30"), "dev", &self.there])?;
        ip(&["-n", &self.name, "link", "set", "lo", "up"])?;
        self.connect(true)
    }

    /// Joins it to this machine or takes it away from it, without a word to anybody's TCP.
    pub(super) fn connect(&self, connected: bool) -> anyhow::Result<()> {
        ip(&["-n", &self.name, "link", "set", &self.there, if connected { "up" } else { "down" }])
    }

    /// Its name, for `ip netns exec`.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// This machine, as who is inside sees it.
    pub(super) fn address(&self) -> Ipv4Addr {
        self.address
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = ip(&["link", "del", &self.here]);
        let _ = ip(&["netns", "del", &self.name]);
    }
}

fn ip(arguments: &[&str]) -> anyhow::Result<()> {
    let output =
        Command::new("ip").args(arguments).env("PATH", "/usr/sbin:/sbin:/usr/bin:/bin").output().context("ip")?;
    if !output.status.success() {
        bail!("ip {}: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}
