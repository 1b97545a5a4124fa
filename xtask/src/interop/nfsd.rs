//! A guest whose Linux serves NFS over RDMA.

use super::{
    context::Context,
    guest::{Guest, GuestOptions},
    ports,
    process::last_lines,
};
use std::path::PathBuf;

const SCRIPT: &str = include_str!("../../interop/guest/nfsd.sh");

/// Where nfsd and mountd listen in the guest.
const NFS_PORT: u16 = 20_049;
const MOUNT_PORT: u16 = 20_048;

/// How the server is to be booted.
pub(super) struct NfsdOptions {
    guest: GuestOptions,
}

impl NfsdOptions {
    /// An export `/exports` in memory, with the tree that `nfsd.sh` makes.
    pub(super) fn new() -> Self {
        Self { guest: GuestOptions::new("nfsd", SCRIPT) }
    }

    /// Changes what is booted.
    pub(super) fn with(mut self, change: impl FnOnce(GuestOptions) -> GuestOptions) -> Self {
        self.guest = change(self.guest);
        self
    }
}

/// Linux's nfsd, serving.
pub(super) struct Nfsd {
    guest: Guest,
    port: u16,
    mount_port: u16,
}

impl Nfsd {
    pub(super) fn boot(context: &Context, options: NfsdOptions) -> anyhow::Result<Self> {
        let (port, mount_port) = (ports::free()?, ports::free()?);
        let guest = options.guest.forward(port, NFS_PORT).forward(mount_port, MOUNT_PORT);
        let mut guest = context.boot(guest)?;
        guest.wait_for_mark("serves")?;
        Ok(Self { guest, port, mount_port })
    }

    /// Where it answers over RDMA on the host's loopback.
    pub(super) fn port(&self) -> u16 {
        self.port
    }

    /// Where MOUNT answers.
    pub(super) fn mount_port(&self) -> u16 {
        self.mount_port
    }

    /// A URL of a path in the export, for our client.
    pub(super) fn url(&self, path: &str) -> String {
        format!("nfs://127.0.0.1:{}/exports/{}?mountport={}", self.port, path.trim_start_matches('/'), self.mount_port)
    }

    /// What its network interface saw, if that was asked for.
    pub(super) fn wire(&self) -> PathBuf {
        self.guest.wire()
    }

    /// Runs a shell script in the guest and returns what it printed; fails with it when its exit status is not 0.
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
