//! Linux copies a tree to our server and back.

use super::Job;
use crate::interop::{context::Context, flavour, guest::GuestOptions, serve::ServeOptions, wire::Wire};
use std::{fs, process::Command};

pub(super) const JOB: Job = Job {
    name: "client-tree",
    about: "Linux mounts our server: a tree is copied in and out, with checksums, links, modes and times; remount",
    seconds: 240,
    guests: 1,
    scales: false,
    flavours: flavour::ALL,
    run,
};

fn run(context: &Context) -> anyhow::Result<()> {
    let server = context.serve(ServeOptions::new(context.folder("export")?).capture())?;
    let guest = GuestOptions::new("client", include_str!("../../../interop/guest/tree.sh"));
    let ended = context.boot(guest.mounts(&server).capture())?.finish()?;
    // The files that the client sees must be on the server's disk.
    let tree = server.export().join("tree");
    fs::copy(ended.dir().join("sums"), context.dir().join("sums"))?;
    let mut sums = Command::new("sha256sum");
    sums.args(["--quiet", "-c"]).arg(context.dir().join("sums")).current_dir(&tree);
    context.run("sums-on-disk", sums)?.expect_success()?;
    context.note(Wire::read(context, &ended.wire())?.in_short());
    server.finish()?;
    Ok(())
}
