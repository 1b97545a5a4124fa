//! Access control lists of version 3 (NFSACL): `setfacl` and `getfacl` in mounts of our server and of Linux's. Both
//! must say the same, and what a list forbids or grants must hold.

use super::{Job, client_nlm::with_locks};
use crate::interop::{
    context::Context, flavour, guest::GuestOptions, network, nfsd::NfsdOptions, serve::ServeOptions, tshark,
};
use anyhow::{Context as _, ensure};
use std::{fs, os::unix::fs::PermissionsExt as _};

pub(super) const JOB: Job = Job {
    name: "client-acl",
    about: "setfacl and getfacl in version 3 with locks, with default lists, in mounts of our server and of Linux's: the same comes of each step",
    seconds: 300,
    guests: 2,
    scales: false,
    flavours: flavour::OLDEST,
    run,
};

/// The extended attribute that holds a list on the host.
const LIST: &str = "system.posix_acl_access";

/// Bytes of a list in this attribute: a version, then for each entry its kind, its permissions and its user or group.
const VERSION_SIZE: usize = 4;
const ENTRY_SIZE: usize = 8;

fn run(context: &Context) -> anyhow::Result<()> {
    let network = context.network(network::ETHERNET)?;
    let export = context.folder("export")?;
    fs::set_permissions(&export, fs::Permissions::from_mode(0o755))?;
    let server = network.serve(with_locks(ServeOptions::new(export.clone()), network.host()))?;
    let nfsd = network.nfsd(NfsdOptions::new())?;

    let tcp = context.flavour().is_tcp();
    let guest = GuestOptions::new("client", include_str!("../../../interop/guest/acl.sh")).mounts(&server).capture();
    let guest = guest.set("WHO", "client").set("LINUX", nfsd.host()).set("LINUX_MOUNT", nfsd.mount_port());
    let guest = guest.set("LINUX_PORT", if tcp { nfsd.tcp_port() } else { nfsd.port() });
    let ended = network.guest(guest)?.finish()?;
    nfsd.finish()?;
    server.finish()?;

    let [ours, linux] = ["ours", "linux"].map(|name| ended.read(&format!("lists-{name}.txt")));
    let (ours, linux) = (ours?, linux?);
    for (number, (ours, linux)) in ours.lines().zip(linux.lines()).enumerate() {
        ensure!(
            ours == linux,
            "line {} is {ours:?} with ours, and {linux:?} with Linux's; see {}",
            number + 1,
            ended.dir().join("lists-ours.txt").display()
        );
    }
    ensure!(
        ours.lines().count() == linux.lines().count(),
        "one says more than the other; see {}",
        ended.dir().display()
    );
    // Both servers would agree, too, if neither kept any list: so these entries must be there.
    for line in ["user:1000:r--", "default:user:1001:rwx", "user:1001:rw-\t#effective:r--", "100"] {
        ensure!(ours.lines().any(|found| found == line), "no line is {line:?}; see {}", ended.dir().display());
    }

    // On the server's disk any program can see the list: three entries of the mode, the mask, a hundred users.
    let mut list = vec![0; 64 << 10];
    let octets = rustix::fs::getxattr(export.join("acl/file"), LIST, &mut list).context("the list on the host")?;
    let entries = (octets - VERSION_SIZE) / ENTRY_SIZE;
    ensure!(entries == 104, "on the host the list has {entries} entries instead of 104");
    let (gets, sets) = tshark::lists(context, &ended.wire(), network.host())?;
    ensure!(gets > 0 && sets > 0, "the capture shows {gets} GETACL and {sets} SETACL; see {}", ended.wire().display());
    context.note(format!("{} lines the same; {gets} GETACL and {sets} SETACL to ours", ours.lines().count()));
    Ok(())
}
