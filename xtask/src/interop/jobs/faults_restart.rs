//! The server is killed and started again under a Linux client that writes: data are identical afterwards, and no
//! program waits longer than Linux takes to connect again.

use super::{Job, faults_copying};
use crate::interop::{
    context::Context,
    flavour,
    serve::{ServeOptions, Server},
};
use crate::numbers::Numbers;
use anyhow::ensure;
use std::{thread, time::Duration};

pub(super) const JOB: Job = Job {
    name: "faults-restart",
    about: "the server is killed and started again under a Linux client that copies: data identical, no hang beyond the time to connect again",
    seconds: 300,
    guests: 1,
    scales: false,
    flavours: flavour::WITH_TCP,
    run,
};

/// How often the server is killed.
const KILLS: usize = 5;

/// At most so long between the kill and the start; the last start comes after [`LONG_DOWN`].
const DOWN_MS: u64 = 800;
const LONG_DOWN: Duration = Duration::from_secs(3);

/// Linux's transport tries again at once, then 5 s later, then 10 s after that (twice as long each time, up to 30 s). A
/// server that is away for less than 5 s is found by the second attempt, or, if its start took a moment longer, by the
/// third. The command itself gets some seconds more, because the guest is emulated.
const PATIENCE: Duration = Duration::from_secs(5 + 10 + 10);

/// The lease of version 4, and the time in which clients may reclaim opens, in seconds.
const LEASE: u32 = 10;

/// Whether the client works again; in version 4, whether it has reclaimed what it had open.
fn is_back(context: &Context, server: &Server) -> anyhow::Result<bool> {
    let metrics = server.metrics()?;
    let done = |name: &str, labels: &[&str]| metrics.sum(name, &[&["status=\"OK\""], labels].concat());
    if context.flavour().is_version_4() {
        let operations = |name: &str| done("rpcrdma_nfs4_operations_total", &[&format!("operation=\"{name}\"")]);
        return Ok(operations("RECLAIM_COMPLETE") > 0.0 && operations("OPEN") > 0.0);
    }
    Ok(done("rpcrdma_calls_total", &["nfs3"]) > 3.0)
}

fn run(context: &Context) -> anyhow::Result<()> {
    let server = context.serve(ServeOptions::new(context.folder("export")?).lease(LEASE))?;
    let mut guest = context.boot(
        faults_copying::guest(3_000_000, 6).mounts(&server).set("MOUNT_OPTIONS", "rsize=65536,wsize=65536").capture(),
    )?;
    guest.wait_for_mark("copying")?;
    let mut numbers = Numbers(context.seed());
    for number in 1..=KILLS {
        thread::sleep(Duration::from_millis(500 + numbers.below(3000)));
        let calls = server.metrics()?.sum("rpcrdma_calls_total", &["status=\"OK\""]);
        server.kill()?;
        let down = if number == KILLS { LONG_DOWN } else { Duration::from_millis(numbers.below(DOWN_MS)) };
        thread::sleep(down);
        server.start()?;
        context.note(format!("kill {number} after {calls} calls, {} ms down", down.as_millis()));
        // The next kill comes when the client is back. If the client has given up, its output says why.
        let goes_on = "the client has connected again";
        context.wait_for(goes_on, PATIENCE, || Ok(guest.has_ended()? || is_back(context, &server)?))?;
    }
    let (_, longest) = faults_copying::finish(context, guest, &server)?;
    context.note(format!("the longest command took {:.1} s", longest.as_secs_f64()));
    ensure!(longest < PATIENCE + LONG_DOWN, "a command took {longest:?}; see {}", context.dir().display());
    server.finish()?;
    Ok(())
}
