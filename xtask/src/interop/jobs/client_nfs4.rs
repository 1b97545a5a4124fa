//! Linux mounts our server without a version in its options, and without MOUNT: it chooses NFS version 4.2.

use super::Job;
use crate::interop::{
    context::Context, flavour, guest::GuestOptions, jobs::faults_copying::same_on_disk, ports, serve::ServeOptions,
    wire::Wire,
};
use anyhow::ensure;
use std::{fs, os::unix::fs::PermissionsExt as _, time::Duration};

pub(super) const JOB: Job = Job {
    name: "client-nfs4",
    about: "a mount without a version and without MOUNT ends in 4.2; files, links, locks in 4.2 and 4.1 over RDMA and TCP, 3 beside",
    seconds: 400,
    guests: 1,
    scales: false,
    flavours: flavour::ONE,
    run,
};

/// How long the server's count may take to show that the guest holds nothing: it counts once a second.
const COUNTED_WITHIN: Duration = Duration::from_secs(5);

/// Operations that the script cannot do without, over each version and transport. LOCK is not among them: a client
/// locks a file that is delegated to it without the server (`client-locks` has two clients).
const NEEDED: [&str; 13] = [
    "EXCHANGE_ID",
    "CREATE_SESSION",
    "RECLAIM_COMPLETE",
    "OPEN",
    "CLOSE",
    "READ",
    "WRITE",
    "READDIR",
    "RENAME",
    "REMOVE",
    "LINK",
    "SETATTR",
    "DELEGRETURN",
];

fn run(context: &Context) -> anyhow::Result<()> {
    let export = context.folder("export")?;
    fs::set_permissions(&export, fs::Permissions::from_mode(0o755))?;
    let tcp = ports::free()?;
    let options = ServeOptions::new(export);
    let server = context.serve(options.argument("--tcp").argument(format!("127.0.0.1:{tcp}")).capture())?;
    let guest = GuestOptions::new("client", include_str!("../../../interop/guest/nfs4.sh"));
    let ended = context.boot(guest.mounts(&server).set("TCP_PORT", tcp).with_tools().capture())?.finish()?;
    same_on_disk(context, &server, &ended.read("sums")?, "")?;
    context.note(Wire::read(context, &ended.wire())?.in_short());

    // Linux gives everything back when it unmounts.
    let held = || Ok(server.metrics()?.sum("rpcrdma_nfs4_stateids", &[]) == 0.0);
    context.wait_for("the server counts no open and no lock after the last unmount", COUNTED_WITHIN, held)?;
    let metrics = server.finish()?;
    let answered = |labels: &[&str]| metrics.sum("rpcrdma_nfs4_operations_total", labels);
    for name in NEEDED {
        let operation = format!("operation=\"{name}\"");
        ensure!(answered(&[&operation, "status=\"OK\""]) > 0.0, "the server has counted no {name} that was done");
    }
    Ok(())
}
