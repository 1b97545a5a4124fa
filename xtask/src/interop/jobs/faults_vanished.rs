//! The client's host vanishes without FIN or RST, while its connection to one server is busy and its connection to
//! another is idle. A server of version 1 may not send anything by itself, so TCP has to find out: by the user time-out
//! if data are not acknowledged, by keep-alive on an idle connection.

use super::{Job, faults_copying};
use crate::interop::{
    context::Context,
    flavour,
    guest::GuestOptions,
    namespace::Cable,
    ports,
    serve::{ServeOptions, Server},
};
use anyhow::{bail, ensure};
use faults_copying::Held;
use std::{
    thread,
    time::{Duration, Instant},
};

pub(super) const JOB: Job = Job {
    name: "faults-vanished",
    about: "a host vanishes without FIN or RST: its busy connection is freed by --stall-timeout, its idle one by keep-alive; it comes back and goes on",
    seconds: 300,
    guests: 1,
    scales: false,
    flavours: flavour::VERSIONS,
    run,
};

/// The value of `serve --stall-timeout` here, in seconds.
const STALL: u64 = 5;

/// For a busy connection: twice the time-out, which is what a call's Read chunks may take together, and a moment for
/// TCP's own clock.
const BUSY_WITHIN: Duration = Duration::from_secs(2 * STALL + 3);

/// For an idle connection: keep-alive probes come often enough that TCP gives it up after the same time-out
/// (`keepalive` in crates/iwarp), at the next tick of its clock.
const IDLE_WITHIN: Duration = Duration::from_secs(2 * STALL + 3);

/// Linux's own keep-alive and its attempts to connect are up to 30 s apart.
const BACK_WITHIN: Duration = Duration::from_secs(60);

fn run(context: &Context) -> anyhow::Result<()> {
    let cable = Cable::new(context)?;
    let address = cable.address();
    // Two servers, because in version 4 Linux would use one connection for two mounts of the same server.
    let serve = |name: &str| -> anyhow::Result<(Server, u16, u16)> {
        let (port, mount) = (ports::free()?, ports::free()?);
        let at = |port: u16| format!("{address}:{port}");
        let options = ServeOptions::new(context.folder(&format!("export-{name}"))?).named(name);
        let options = options.argument("--stall-timeout").argument(STALL.to_string());
        let options = options.argument("--listen").argument(at(port)).argument("--mountd").argument(at(mount));
        Ok((context.serve(options)?, port, mount))
    };
    let (busy, busy_port, busy_mount) = serve("busy")?;
    let (idle, idle_port, idle_mount) = serve("idle")?;
    let sockets = [&busy, &idle].map(faults_copying::open_sockets);
    let guest = GuestOptions::new("client", include_str!("../../../interop/guest/faults-vanish.sh"))
        .mounts_at(busy_port, busy_mount, "/");
    let guest = guest.set("IDLE_PORT", idle_port).set("IDLE_MOUNT_PORT", idle_mount);
    let guest = guest.after_all("HOST", address).inside(&cable).capture();
    let guest = guest
        .allow("nfs: server * not responding, still trying", "that is the fault")
        .allow("nfs: server * OK", "that is its end");
    let mut guest = context.boot(guest)?;
    guest.wait_for_mark("mounted")?;
    for server in [&busy, &idle] {
        ensure!(Held::by(server)?.connections == 1.0, "a server does not have one connection");
    }
    thread::sleep(Duration::from_secs(2));

    cable.connect(false)?;
    let gone = Instant::now();
    let freed = |server: &Server, within: Duration| -> anyhow::Result<Duration> {
        loop {
            let held = Held::by(server)?;
            if held.connections == 0.0 {
                return Ok(gone.elapsed());
            }
            if gone.elapsed() > within {
                bail!(
                    "{:?} after a host vanished the server still holds {held:?}; see {}",
                    gone.elapsed(),
                    server.log().display()
                );
            }
            thread::sleep(Duration::from_millis(100));
        }
    };
    let first = freed(&busy, BUSY_WITHIN)?;
    let second = freed(&idle, IDLE_WITHIN)?;
    for (server, sockets) in [&busy, &idle].into_iter().zip(sockets) {
        faults_copying::all_freed(context, server, sockets?, Duration::from_secs(2))?;
    }
    context.note(format!("freed: busy after {:.1} s, idle after {:.1} s", first.as_secs_f64(), second.as_secs_f64()));

    cable.connect(true)?;
    let back = Instant::now();
    let is_back = || Ok(Held::by(&busy)?.connections + Held::by(&idle)?.connections >= 1.0);
    context.wait_for("the client is back", BACK_WITHIN, is_back)?;
    context.note(format!("back {:.1} s after its network", back.elapsed().as_secs_f64()));
    guest.say("enough")?;
    guest.finish()?;
    busy.finish()?;
    idle.finish()?;
    Ok(())
}
