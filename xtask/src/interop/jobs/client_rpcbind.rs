//! Our own rpcbind: what `rpcinfo` in a guest and on the host finds there, mounts that name no port, and what remains
//! after the server's end.

use super::{Job, client_nlm::with_locks};
use crate::interop::{
    context::Context,
    flavour,
    guest::GuestOptions,
    network::{self, Network},
    process,
    serve::ServeOptions,
};
use anyhow::{Context as _, ensure};
use std::{collections::BTreeSet, fs, os::unix::fs::PermissionsExt as _, path::PathBuf};

pub(super) const JOB: Job = Job {
    name: "client-rpcbind",
    about: "`--rpcbind own`: rpcinfo of a guest and of the host finds each program; mounts without ports; nothing is left after SIGTERM",
    seconds: 200,
    guests: 1,
    scales: false,
    flavours: flavour::ONE,
    run,
};

/// The ports that Linux's client uses if its options name none.
const RDMA_PORT: u16 = 20_049;
const TCP_PORT: u16 = 2_049;

/// Program, version and how it is reached, as rpcinfo writes them.
type Registered = (u32, u32, String);

/// What rpcinfo must find.
const WANTED: [(u32, u32, &[&str]); 12] = [
    (100_000, 2, &["tcp", "udp"]),
    (100_000, 3, &["tcp", "udp"]),
    (100_000, 4, &["tcp", "udp"]),
    (100_003, 3, &["tcp", "rdma"]),
    (100_003, 4, &["tcp", "rdma"]),
    (100_005, 3, &["tcp"]),
    (100_021, 1, &["tcp"]),
    (100_021, 3, &["tcp"]),
    (100_021, 4, &["tcp"]),
    (100_024, 1, &["tcp", "udp"]),
    (100_227, 3, &["tcp", "rdma"]),
    (100_227, 2, &[]),
];

fn run(context: &Context) -> anyhow::Result<()> {
    let network = context.network(network::ETHERNET)?;
    let export = context.folder("export")?;
    fs::set_permissions(&export, fs::Permissions::from_mode(0o755))?;
    let host = network.host();
    // The well-known ports, beside the harness's own, which are arbitrary.
    let options = with_locks(ServeOptions::new(export), host);
    let options = options.argument("--listen").argument(format!("{host}:{RDMA_PORT}"));
    let server = network.serve(options.argument("--tcp").argument(format!("{host}:{TCP_PORT}")))?;

    let guest =
        GuestOptions::new("client", include_str!("../../../interop/guest/rpcbind.sh")).mounts(&server).capture();
    let mut guest = network.guest(guest.set("WHO", "client").with_tools())?;
    guest.wait_for_mark("asked")?;
    let of_guest = fs::read_to_string(guest.dir().join("all.txt"))?;
    judge(&of_guest).with_context(|| guest.dir().join("all.txt").display().to_string())?;
    let of_host = rpcinfo(context, &network, "rpcinfo-before")?.expect_success()?;
    judge(&of_host.stdout).with_context(|| of_host.out.display().to_string())?;
    context.note(format!("{} registrations", registered(&of_host.stdout).len()));
    server.finish()?;
    rpcinfo(context, &network, "rpcinfo-after")?.expect_failure("rpcinfo")?;
    guest.say("gone")?;
    guest.finish().map(drop)
}

/// Runs rpcinfo on the host, in the job's network: it is the guest's rpcinfo, with its libraries.
fn rpcinfo(context: &Context, network: &Network<'_>, name: &str) -> anyhow::Result<process::Finished> {
    let system = context.image().folder.join("system");
    let found = |places: &[&str]| -> anyhow::Result<PathBuf> {
        let mut places = places.iter().map(|place| system.join(place));
        places.find(|place| place.exists()).with_context(|| format!("none of {places:?} in {}", system.display()))
    };
    let program = found(&["usr/sbin/rpcinfo", "usr/bin/rpcinfo", "sbin/rpcinfo"])?;
    let loader = found(&["lib64/ld-linux-x86-64.so.2", "lib/x86_64-linux-gnu/ld-linux-x86-64.so.2"])?;
    let mut command = network.command(&loader);
    let libraries =
        ["lib/x86_64-linux-gnu", "usr/lib/x86_64-linux-gnu"].map(|place| system.join(place).display().to_string());
    command.arg("--library-path").arg(libraries.join(":")).arg(program).arg(network.host().to_string());
    context.run(name, command)
}

fn judge(said: &str) -> anyhow::Result<()> {
    let found = registered(said);
    for (program, version, netids) in WANTED {
        for netid in netids {
            let wanted = (program, version, (*netid).to_owned());
            ensure!(found.contains(&wanted), "rpcinfo does not find {wanted:?} among {found:?}");
        }
    }
    let strange = found.iter().find(|(program, _, _)| !WANTED.iter().any(|(wanted, _, _)| wanted == program));
    ensure!(strange.is_none(), "rpcinfo finds {strange:?}, which this server is not");
    Ok(())
}

/// The lines of rpcinfo: program, version, netid, address, service, owner.
fn registered(said: &str) -> BTreeSet<Registered> {
    let lines = said.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        let (program, version) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        Some((program, version, words.next()?.to_owned()))
    });
    lines.collect()
}

#[cfg(test)]
mod tests {
    use super::{judge, registered};

    #[test]
    fn reads_what_rpcinfo_prints() {
        let said = "   program version netid     address                service    owner\n    \
            100000    4    tcp6      ::.0.111               portmapper superuser\n    \
            100003    3    rdma      10.77.0.1.78.81        nfs        superuser\n";
        let found = registered(said);
        assert_eq!(found.len(), 2);
        assert!(found.contains(&(100_003, 3, "rdma".to_owned())), "{found:?}");
        judge(said).unwrap_err();
    }
}
