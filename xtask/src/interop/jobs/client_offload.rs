//! Linux asks our server for what NFS 4.2 lets a server do by itself: copies without data on the wire, holes, extended
//! attributes, and the ACLs of NFS version 4.

use super::Job;
use crate::interop::{
    context::Context,
    flavour,
    guest::GuestOptions,
    process,
    serve::{ServeOptions, Server},
};
use anyhow::{Context as _, ensure};
use std::{
    fs::{self, File},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Command,
};

pub(super) const JOB: Job = Job {
    name: "client-offload",
    about: "clones, copies, holes, extended attributes and ACLs are the server's work, on a file system in which files share blocks",
    seconds: 300,
    guests: 1,
    scales: false,
    flavours: flavour::NEWEST,
    run,
};

/// The size of the image: XFS wants 300 MiB. Blocks that are never written take no room.
const IMAGE_OCTETS: u64 = 512 << 20;

/// The operations that the script causes, and the capture must show.
const NEEDED: [&str; 9] =
    ["CLONE", "COPY", "SEEK", "ALLOCATE", "DEALLOCATE", "GETXATTR", "SETXATTR", "LISTXATTRS", "REMOVEXATTR"];

/// A file system in which files share blocks. Dropping the value unmounts it.
struct Disk(PathBuf);

impl Disk {
    fn make(image: &Path, folder: &Path) -> anyhow::Result<Self> {
        File::create(image)?.set_len(IMAGE_OCTETS)?;
        let said = |command: &mut Command| -> anyhow::Result<()> {
            let output = command.output().with_context(|| format!("{command:?}"))?;
            ensure!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr).trim());
            Ok(())
        };
        said(Command::new("mkfs.xfs").args(["-q", "-m", "reflink=1"]).arg(image))?;
        said(Command::new("mount").args(["-t", "xfs", "-o", "loop"]).arg(image).arg(folder))?;
        Ok(Self(folder.to_owned()))
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // Lazily, because a server that still runs may hold a file.
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

/// How many READs and WRITEs the server has done.
fn moved(server: &Server) -> anyhow::Result<f64> {
    let metrics = server.metrics()?;
    let count = |name: &str| metrics.sum("rpcrdma_nfs4_operations_total", &[&format!("operation=\"{name}\"")]);
    Ok(count("READ") + count("WRITE") + count("READ_PLUS"))
}

fn run(context: &Context) -> anyhow::Result<()> {
    let export = context.folder("export")?;
    let _disk = Disk::make(&context.dir().join("disk.xfs"), &export)?;
    fs::set_permissions(&export, fs::Permissions::from_mode(0o777))?;
    let server = context.serve(ServeOptions::new(export.clone()).capture())?;
    let script = include_str!("../../../interop/guest/offload.sh");
    let mut guest = context.boot(GuestOptions::new("client", script).mounts(&server).with_tools().capture())?;

    guest.wait_for_mark("written")?;
    let before = moved(&server)?;
    guest.say("copy")?;
    guest.wait_for_mark("copied")?;
    let after = moved(&server)?;
    ensure!(before == after, "{} READs and WRITEs, where the server was to copy by itself", after - before);
    guest.say("go on")?;
    let ended = guest.finish()?;

    // The host's files must be equal to the guest's.
    let original = fs::read(export.join("original"))?;
    for name in ["cloned", "copied"] {
        ensure!(fs::read(export.join(name))? == original, "{name} is not the original");
    }
    let listed = ended.read("acl")?;
    let mut acl = vec![0; 1 << 10];
    let name = "system.posix_acl_access";
    let octets = rustix::fs::getxattr(export.join("guarded"), name, &mut acl).context("the ACL on the host")?;
    // The ACL has version 2 and entries of 8 bytes, and must have more entries than the three of the mode.
    ensure!(octets > 4 + 3 * 8, "the file's ACL has {octets} bytes on the host; the guest says: {listed}");

    let metrics = server.finish()?;
    let capture = context.dir().join("serve.pcapng");
    for operation in NEEDED {
        let labels = [&*format!("operation=\"{operation}\""), "status=\"OK\""];
        let done = metrics.sum("rpcrdma_nfs4_operations_total", &labels);
        ensure!(done > 0.0, "the server has counted no {operation} that was done");
        let mut command = context.command();
        command.arg("decode").arg(&capture).args(["--procedure", operation]);
        let shown = process::run(context, &format!("decode-{operation}"), command)?.expect_success()?.stdout;
        ensure!(shown.contains(&format!(" {operation} ")), "decode shows no {operation} in {}", capture.display());
    }
    Ok(())
}
