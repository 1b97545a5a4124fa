//! A guest whose Linux serves NFS over RDMA and over TCP.

use super::{
    context::Context,
    flavour::Flavour,
    guest::{Guest, GuestOptions},
    kernel_log,
    network::Network,
    ports,
    process::last_lines,
};
use std::{net::Ipv4Addr, path::PathBuf};

const SCRIPT: &str = include_str!("../../interop/guest/nfsd.sh");

/// Where nfsd and mountd listen in the guest.
const NFS_PORT: u16 = 20_049;
const TCP_PORT: u16 = 2_049;
const MOUNT_PORT: u16 = 20_048;

/// Starts nfsd with the options of rpc.nfsd in `$1`, and waits until it listens for RDMA.
const START: &str = "rpc.nfsd $1 --rdma=20049 4
for i in $(seq 100); do ! grep -q rdma /proc/fs/nfsd/portlist || exit 0; sleep 0.1; done
echo 'no RDMA listener'; exit 1";

/// How the server is to be booted.
pub(super) struct NfsdOptions {
    guest: GuestOptions,
    name: Option<&'static str>,
}

impl NfsdOptions {
    /// A server with an export `/exports` in memory, which has the tree that `nfsd.sh` makes.
    pub(super) fn new() -> Self {
        Self { guest: GuestOptions::new("nfsd", SCRIPT), name: None }
    }

    /// For a server whose connections are cut under load.
    pub(super) fn under_cuts(self) -> Self {
        self.with(|guest| {
            guest.allow(
                kernel_log::REGIONS_IN_USE,
                "nfsd counts memory regions as in use when a connection ends during its RDMA Reads, and the kernel says so once",
            )
        })
    }

    /// Lets URLs use this name for the server; programs that use the URLs must be able to resolve it.
    pub(super) fn called(mut self, name: &'static str) -> Self {
        self.name = Some(name);
        self
    }

    /// Changes the options of the guest.
    pub(super) fn with(mut self, change: impl FnOnce(GuestOptions) -> GuestOptions) -> Self {
        self.guest = change(self.guest);
        self
    }
}

/// Linux's nfsd, serving.
pub(super) struct Nfsd {
    guest: Guest,
    flavour: Flavour,
    address: Ipv4Addr,
    /// The server's name in URLs.
    name: String,
    port: u16,
    tcp_port: u16,
    mount_port: u16,
}

impl Nfsd {
    pub(super) fn boot(context: &Context, options: NfsdOptions) -> anyhow::Result<Self> {
        let (port, tcp_port, mount_port) = (ports::free()?, ports::free()?, ports::free()?);
        let guest = options.guest.forward(port, NFS_PORT).forward(tcp_port, TCP_PORT).forward(mount_port, MOUNT_PORT);
        let mut guest = context.boot(guest)?;
        guest.wait_for_mark("serves")?;
        let (flavour, address) = (context.flavour(), Ipv4Addr::LOCALHOST);
        let name = options.name.map_or(address.to_string(), str::to_owned);
        Ok(Self { guest, flavour, address, name, port, tcp_port, mount_port })
    }

    /// Boots it in the job's own network, where it has an address and the usual ports.
    pub(super) fn boot_in(context: &Context, network: &Network<'_>, options: NfsdOptions) -> anyhow::Result<Self> {
        let mut guest = network.guest(options.guest)?;
        guest.wait_for_mark("serves")?;
        let (address, flavour) = (guest.address()?, context.flavour());
        let name = options.name.map_or(address.to_string(), str::to_owned);
        Ok(Self { guest, flavour, address, name, port: NFS_PORT, tcp_port: TCP_PORT, mount_port: MOUNT_PORT })
    }

    /// Its address, or this machine's loopback if it has no address of its own.
    pub(super) fn host(&self) -> Ipv4Addr {
        self.address
    }

    /// Where it answers over RDMA on the host's loopback.
    pub(super) fn port(&self) -> u16 {
        self.port
    }

    /// Where it answers over TCP.
    pub(super) fn tcp_port(&self) -> u16 {
        self.tcp_port
    }

    /// Where MOUNT answers.
    pub(super) fn mount_port(&self) -> u16 {
        self.mount_port
    }

    /// Where it answers over the job's transport.
    pub(super) fn address(&self) -> String {
        format!("{}:{}", self.address, if self.flavour.is_tcp() { self.tcp_port } else { self.port })
    }

    /// A URL of a path in the export, for our client in the job's version and over its transport.
    pub(super) fn url(&self, path: &str) -> String {
        self.url_in(self.flavour.version, self.flavour.transport, path)
    }

    /// The same in a version of NFS (`auto`: the newest that both have) and over a transport.
    pub(super) fn url_in(&self, version: &str, transport: &str, path: &str) -> String {
        let port = if transport == "tcp" { self.tcp_port } else { self.port };
        self.url_at(port, version, transport, path)
    }

    /// A URL in the job's version and over its transport, for a middlebox before the server at this port.
    pub(super) fn url_behind(&self, port: u16, path: &str) -> String {
        self.url_at(port, self.flavour.version, self.flavour.transport, path)
    }

    fn url_at(&self, port: u16, version: &str, transport: &str, path: &str) -> String {
        let path = path.trim_start_matches('/');
        // Version 4 has no MOUNT.
        let mount = match version {
            "3" | "auto" => format!("&mountport={}", self.mount_port),
            _ => String::new(),
        };
        format!("nfs://{}:{port}/exports/{path}?version={version}&transport={transport}{mount}", self.name)
    }

    /// Stops nfsd: its threads and listeners end, and of its clients it keeps only their names.
    pub(super) fn stop(&self) -> anyhow::Result<()> {
        self.run("rpc.nfsd 0").map(drop)
    }

    /// Starts it again with these options of rpc.nfsd. In version 4 it begins with a time of grace.
    pub(super) fn start(&self, options: &str) -> anyhow::Result<()> {
        self.run(&format!("set -- '{options}'\n{START}")).map(drop)
    }

    /// Ends the time of grace, because no client is there that could reclaim.
    pub(super) fn end_grace(&self) -> anyhow::Result<()> {
        self.run("echo Y >/proc/fs/nfsd/v4_end_grace").map(drop)
    }

    /// What its network interface saw, if that was asked for.
    pub(super) fn wire(&self) -> PathBuf {
        self.guest.wire()
    }

    /// Runs a shell script in the guest and returns what it printed; fails with that output if its exit status is not
    /// 0.
    pub(super) fn run(&self, script: &str) -> anyhow::Result<String> {
        self.guest.run(script)
    }

    /// The last lines of its kernel's log.
    pub(super) fn kernel_said(&self) -> String {
        last_lines(&self.guest.kernel_log(), 3)
    }

    /// Stops nfsd and the guest; fails if its kernel's log has a line that is not expected.
    pub(super) fn finish(self) -> anyhow::Result<()> {
        self.guest.say("end")?;
        self.guest.finish()?;
        Ok(())
    }
}
