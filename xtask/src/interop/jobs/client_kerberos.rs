//! Linux mounts our server with Kerberos, in a realm of the job's own: each service in turn, two users, root, a tree,
//! and a restart, after which the server knows none of the old contexts.

use super::Job;
use crate::interop::{
    context::Context, decrypt, flavour, guest::GuestOptions, network, protected, realm::Realm, serve::ServeOptions,
    wire::Wire,
};
use anyhow::ensure;
use std::{fs, os::unix::fs::PermissionsExt as _, process::Command, thread, time::Duration};

pub(super) const JOB: Job = Job {
    name: "client-kerberos",
    about: "Linux mounts our server with krb5, krb5i and krb5p: two users, root, a tree both ways, a restart of the server",
    seconds: 400,
    guests: 1,
    scales: false,
    flavours: flavour::PROVEN,
    run,
};

/// The services that mounts ask for, in turn.
pub(super) const SERVICES: [&str; 3] = ["krb5", "krb5i", "krb5p"];

pub(super) const SCRIPT: &str = include_str!("../../../interop/guest/kerberos-client.sh");
const RESTART: &str = include_str!("../../../interop/guest/kerberos-restart.sh");

/// How long the server is away.
const DOWN: Duration = Duration::from_millis(700);

/// The lease of version 4, and the time in which clients may reclaim opens, in seconds.
const LEASE: u32 = 10;

/// A mode: everybody may make files in the folder, and only the owner of a file may remove it.
const COMMON: u32 = 0o1777;

fn run(context: &Context) -> anyhow::Result<()> {
    let network = context.network(network::ETHERNET)?;
    let realm = Realm::in_network(context, &network)?;
    let export = context.folder("export")?;
    fs::set_permissions(&export, fs::Permissions::from_mode(COMMON))?;
    let server = network.serve(ServeOptions::new(export).kerberos(&realm, &SERVICES.join(",")).lease(LEASE))?;
    let script = [SCRIPT, RESTART].join("\n");
    let guest = realm.guest(GuestOptions::new("client", &script).mounts(&server).capture());
    let mut guest = network.guest(guest.set("SERVICES", SERVICES.join(" ")))?;
    for service in SERVICES {
        guest.wait_for_mark(&format!("restart-{service}"))?;
        server.kill()?;
        thread::sleep(DOWN);
        server.start()?;
        guest.say(&format!("again-{service}"))?;
    }
    let ended = guest.finish()?;
    for service in SERVICES {
        let mut sums = Command::new("sha256sum");
        sums.args(["--quiet", "-c"]).arg(ended.dir().join(format!("sums-{service}")));
        sums.current_dir(server.export().join(format!("tree-{service}")));
        context.run(&format!("sums-on-disk-{service}"), sums)?.expect_success()?;
    }
    context.note(Wire::read(context, &ended.wire())?.in_short());
    protected::judge(context, &ended.wire())?;
    decrypt::judge(context, &realm, &ended.wire())?;
    let metrics = server.finish()?;
    let made = metrics.sum("rpcrdma_gss_contexts_made_total", &[]);
    ensure!(made > 0.0, "no context was made since the last restart; see {}", server.log().display());
    for reason in ["header", "arguments"] {
        let refused = metrics.sum("rpcrdma_gss_refused_total", &[&format!("reason=\"{reason}\"")]);
        ensure!(refused == 0.0, "{refused} calls had a wrong checksum ({reason}); see {}", server.log().display());
    }
    Ok(())
}
