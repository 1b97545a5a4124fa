//! Fifty connections of one client at once: Linux shares one transport per address and port, so each mount has a port
//! of its own.

use super::{Job, faults_copying};
use crate::interop::{context::Context, flavour, guest::GuestOptions, serve::ServeOptions};
use anyhow::ensure;
use faults_copying::Held;
use std::time::Duration;

pub(super) const JOB: Job = Job {
    name: "faults-connections",
    about: "fifty mounts over fifty connections, all at work at once; all is freed afterwards",
    seconds: 300,
    guests: 1,
    scales: false,
    flavours: flavour::ONE,
    run,
};

const CONNECTIONS: usize = 50;

/// How long the server may take to free connections: Linux closes them when it unmounts.
const FREED_WITHIN: Duration = Duration::from_secs(5);

fn run(context: &Context) -> anyhow::Result<()> {
    let server = context.serve(ServeOptions::new(context.folder("export")?).listeners(CONNECTIONS))?;
    let sockets = faults_copying::open_sockets(&server)?;
    let script = include_str!("../../../interop/guest/faults-connections.sh");
    let mut guest = context.boot(GuestOptions::new("client", script).mounts(&server).capture())?;
    guest.wait_for_mark("mounted")?;
    let held = Held::by(&server)?;
    ensure!(
        held.connections == CONNECTIONS as f64,
        "the server has {} connections, not {CONNECTIONS}",
        held.connections
    );
    guest.say("work")?;
    guest.wait_for_mark("worked")?;
    ensure!(
        Held::by(&server)?.connections == CONNECTIONS as f64,
        "a connection ended meanwhile; see {}",
        server.log().display()
    );
    context.note(format!("{} files and sockets open", faults_copying::open_files(&server)?));
    guest.say("leave")?;
    guest.finish()?;
    faults_copying::all_freed(context, &server, sockets, FREED_WITHIN)?;
    let metrics = server.finish()?;
    let orderly = faults_copying::ended_for(&metrics, "orderly");
    ensure!(orderly == CONNECTIONS as f64, "{orderly} of {CONNECTIONS} connections ended in order");
    Ok(())
}
