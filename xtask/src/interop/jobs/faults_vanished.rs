//! The client's host vanishes without FIN or RST, busy on one connection and idle on another. A server of version 1 may send nothing unasked,
//! so TCP has to find out: what is not acknowledged by the user time-out, what is idle by keep-alive.

use super::{Job, faults_copying};
use crate::interop::{context::Context, guest::GuestOptions, namespace::Cable, ports, serve::ServeOptions};
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
    run,
};

/// What `serve --stall-timeout` is given here, in seconds.
const STALL: u64 = 5;

/// A busy connection: the time-out, twice for a call's Read chunks as a whole, and a moment for TCP's own clock.
const BUSY_WITHIN: Duration = Duration::from_secs(2 * STALL + 3);

/// An idle one: keep-alive asks often enough that it is given up after the same time-out (`keepalive` in crates/iwarp), at TCP's next clock.
const IDLE_WITHIN: Duration = Duration::from_secs(2 * STALL + 3);

/// Linux's own keep-alive and its attempts to connect are up to 30 s apart.
const BACK_WITHIN: Duration = Duration::from_secs(60);

fn run(context: &Context) -> anyhow::Result<()> {
    let cable = Cable::new(context)?;
    let (idle, busy, mount) = (ports::free()?, ports::free()?, ports::free()?);
    let address = cable.address();
    let at = |port: u16| format!("{address}:{port}");
    let mut options = ServeOptions::new(context.folder("export")?);
    options = options.argument("--stall-timeout").argument(STALL.to_string());
    for port in [idle, busy] {
        options = options.argument("--listen").argument(at(port));
    }
    let server = context.serve(options.argument("--mountd").argument(at(mount)))?;
    let sockets = faults_copying::open_sockets(&server)?;
    let guest = GuestOptions::new("client", include_str!("../../../interop/guest/faults-vanish.sh"))
        .mounts_at(idle, mount, "/");
    let guest = guest.set("NFS_PORTS", format!("{idle} {busy}")).after_all("HOST", address).inside(&cable).capture();
    let guest = guest
        .allow("nfs: server * not responding, still trying", "that is the fault")
        .allow("nfs: server * OK", "that is its end");
    let mut guest = context.boot(guest)?;
    guest.wait_for_mark("mounted")?;
    ensure!(Held::by(&server)?.connections == 2.0, "the server does not have two connections");
    thread::sleep(Duration::from_secs(2));

    cable.connect(false)?;
    let gone = Instant::now();
    let connections = |wanted: f64, within: Duration| -> anyhow::Result<Duration> {
        loop {
            let held = Held::by(&server)?;
            if held.connections <= wanted {
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
    let first = connections(1.0, BUSY_WITHIN)?;
    let second = connections(0.0, IDLE_WITHIN)?;
    faults_copying::all_freed(context, &server, sockets, Duration::from_secs(2))?;
    context.note(format!("freed: busy after {:.1} s, idle after {:.1} s", first.as_secs_f64(), second.as_secs_f64()));

    cable.connect(true)?;
    let back = Instant::now();
    context.wait_for("the client is back", BACK_WITHIN, || Ok(Held::by(&server)?.connections >= 1.0))?;
    context.note(format!("back {:.1} s after its network", back.elapsed().as_secs_f64()));
    guest.say("enough")?;
    guest.finish()?;
    server.finish()?;
    Ok(())
}
