//! Random operations from a printed seed, while the server is killed and the connection is cut at random moments.

use super::{Job, faults_copying};
use crate::interop::{
    context::Context,
    flavour,
    guest::GuestOptions,
    middlebox::{Cut, End, Middlebox, Part, Place, Way},
    serve::ServeOptions,
};
use crate::numbers::Numbers;
use anyhow::ensure;
use std::{
    thread,
    time::{Duration, Instant},
};

pub(super) const JOB: Job = Job {
    name: "faults-fsx",
    about: "random operations from a printed seed while the server is killed and the connection is cut, again and again",
    seconds: 300,
    guests: 1,
    scales: true,
    flavours: flavour::VERSIONS,
    run,
};

/// The share of all operations that this job does: one in this number.
const SHARE: u64 = 20;

/// On each line: mount options, how many bytes of the file are used, the largest operation, the first byte that is
/// used, further options of `xtask fsx`. They settle: Linux 6.12's client was seen to send a SETATTR and, 27 us later
/// and without its reply, WRITEs beyond the new size, which a killed server had answered and not committed.
const MOUNTS: &str = "
rsize=65536,wsize=65536 300000 70000 0 --settle
rsize=1048576,wsize=1048576 1000000 300000 0 --settle
rsize=1048576,wsize=1048576 300000 70000 0 --settle --direct
";

/// The time between two faults, in milliseconds; after a fault the client needs up to 5 s to connect again.
const LEAST_MS: u64 = 800;
const MORE_MS: u64 = 2500;

/// How many FPDUs of a kind pass before a cut, at most.
const SKIPPED: u64 = 30;

/// The lease of version 4, and the time in which clients may reclaim opens, in seconds.
const LEASE: u32 = 10;

const PLACES: [(Way, Part); 5] = [
    (Way::Up, Part::ReadResponse),
    (Way::Down, Part::ReadRequest),
    (Way::Down, Part::Write),
    (Way::Up, Part::Send),
    (Way::Down, Part::Send),
];

fn run(context: &Context) -> anyhow::Result<()> {
    let server = context.serve(ServeOptions::new(context.folder("export")?).lease(LEASE))?;
    let middlebox = Middlebox::before(server.port())?;
    let ops = context.ops().div_ceil(SHARE);
    let guest =
        GuestOptions::new("client", include_str!("../../../interop/guest/faults-fsx.sh")).set("MOUNTS", MOUNTS.trim());
    let guest =
        guest.mounts_at(middlebox.port(), server.mount_port(), "/").with_tools().capture().after_all("OPS", ops);
    let guest = guest
        .allow("nfs: server * not responding, still trying", "that is the fault")
        .allow("nfs: server * OK", "that is its end");
    let mut guest = context.boot(guest)?;
    guest.wait_for_mark("mounted")?;
    let mut numbers = Numbers(context.seed());
    let (mut kills, mut last) = (0, Instant::now());
    let mut pause = Duration::from_millis(LEAST_MS);
    while !guest.has_ended()? {
        ensure!(
            Instant::now() < context.deadline(),
            "the budget ended before the operations did; see {}",
            guest.dir().display()
        );
        thread::sleep(Duration::from_millis(50));
        if last.elapsed() < pause {
            continue;
        }
        if numbers.below(3) == 0 {
            server.kill()?;
            thread::sleep(Duration::from_millis(numbers.below(500)));
            server.start()?;
            kills += 1;
        } else if middlebox.is_done() {
            let (way, part) = PLACES[numbers.below(PLACES.len() as u64) as usize];
            let end = if numbers.below(2) == 0 { End::Fin } else { End::Reset };
            middlebox.cut(Cut { way, place: Place::Inside(part), skip: numbers.below(SKIPPED), end });
        }
        (last, pause) = (Instant::now(), Duration::from_millis(LEAST_MS + numbers.below(MORE_MS)));
    }
    let ended = guest.finish()?;
    faults_copying::same_on_disk(context, &server, &ended.read("sums")?, "")?;
    context.note(format!("seed {}, {ops} operations, {kills} kills, {} cuts", context.seed(), middlebox.cuts().len()));
    ensure!(kills + middlebox.cuts().len() > 0, "no fault happened");
    server.finish()?;
    Ok(())
}
