//! A guest loses its power while it has memory exposed and calls under way: the server frees everything, and serves on.

use super::{Job, faults_copying};
use crate::interop::{context::Context, flavour, guest::GuestOptions, serve::ServeOptions};
use faults_copying::Held;
use std::{thread, time::Duration};

pub(super) const JOB: Job = Job {
    name: "faults-killed",
    about: "the guest is killed with memory exposed and calls under way: the server's connections, calls, memory and sockets are back at zero",
    seconds: 300,
    guests: 1,
    scales: false,
    flavours: flavour::VERSIONS,
    run,
};

/// How long the server may take to free everything: the host's kernel closes QEMU's connections at once, as it does for
/// any process.
const FREED_WITHIN: Duration = Duration::from_secs(3);

/// How long the guest runs between two attempts to catch it with calls under way.
const BETWEEN: Duration = Duration::from_millis(150);

/// How long the server may take to become idle while a guest is frozen.
const REST: Duration = Duration::from_millis(300);

fn run(context: &Context) -> anyhow::Result<()> {
    let server = context.serve(ServeOptions::new(context.folder("export")?))?;
    let sockets = faults_copying::open_sockets(&server)?;
    let guest = GuestOptions::new("client", include_str!("../../../interop/guest/faults-writer.sh")).mounts(&server);
    let mut guest = context.boot(guest)?;
    guest.wait_for_mark("busy")?;
    // A frozen guest answers nothing, so the calls that it has under way stay visible. Then its power is cut.
    let mut held = Held::by(&server)?;
    context.wait_for("the guest is caught with memory exposed", Duration::from_secs(30), || {
        guest.freeze(false);
        thread::sleep(BETWEEN);
        guest.freeze(true);
        thread::sleep(REST);
        held = Held::by(&server)?;
        // The server is still reading a call's arguments out of the guest's memory.
        Ok(held.memory > 0.0)
    })?;
    guest.kill();
    let took = faults_copying::all_freed(context, &server, sockets, FREED_WITHIN)?;
    context.note(format!("killed while the server held {held:?}; all freed {:.2} s later", took.as_secs_f64()));
    context.rpcrdma("ping", ["ping", "-c", "3", &server.url("")])?.expect_success()?;
    faults_copying::all_freed(context, &server, sockets, FREED_WITHIN)?;
    server.finish()?;
    Ok(())
}
