//! A full disk: Linux gets ENOSPC, older data do not change, and everything works again when there is room.

use super::{Job, faults_copying};
use crate::interop::{context::Context, flavour, guest::GuestOptions, serve::ServeOptions};
use anyhow::Context as _;
use std::{
    path::{Path, PathBuf},
    process::Command,
};

pub(super) const JOB: Job = Job {
    name: "faults-full",
    about: "a full disk: ENOSPC arrives at Linux through the page cache and around it, nothing is corrupted, it works again with room",
    seconds: 240,
    guests: 1,
    scales: false,
    flavours: flavour::VERSIONS,
    run,
};

/// The size of the disk, and how much of it the host occupies for a while, in MiB.
const ROOM: u64 = 20;

/// A small file system in memory. Dropping the value unmounts it.
struct Disk(PathBuf);

impl Disk {
    fn mount(folder: &Path) -> anyhow::Result<Self> {
        let mut command = Command::new("mount");
        command.args(["-t", "tmpfs", "-o", &format!("size={ROOM}m,mode=0755"), "rpcrdma-interop"]).arg(folder);
        let output = command.output().context("mount")?;
        anyhow::ensure!(output.status.success(), "mount: {}", String::from_utf8_lossy(&output.stderr).trim());
        Ok(Self(folder.to_owned()))
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // Lazily, because a server that still runs may hold a file.
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

fn run(context: &Context) -> anyhow::Result<()> {
    let export = context.folder("export")?;
    let _disk = Disk::mount(&export)?;
    let server = context.serve(ServeOptions::new(export.clone()))?;
    let script = include_str!("../../../interop/guest/faults-full.sh");
    let mut guest = context.boot(GuestOptions::new("client", script).mounts(&server).set("ROOM", ROOM).capture())?;
    guest.wait_for_mark("full")?;
    let free = rustix::fs::statvfs(&export)?;
    context.note(format!("{} bytes left when full", free.f_bavail * free.f_frsize));
    guest.say("room")?;
    let ended = guest.finish()?;
    faults_copying::same_on_disk(context, &server, &ended.read("sums")?, "")?;
    server.finish()?;
    Ok(())
}
