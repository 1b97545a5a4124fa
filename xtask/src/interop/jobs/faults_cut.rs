//! A middlebox cuts the connection in the middle of each kind of message, while files are copied: data are identical
//! afterwards, and no call is done twice.

use super::{Job, faults_copying};
use crate::interop::{
    context::Context,
    flavour,
    middlebox::{Cut, End, Middlebox, Part, Place, Way},
    nfsd::NfsdOptions,
    process::{self, Running},
    schedule,
    serve::ServeOptions,
    tree,
};
use crate::numbers::Numbers;
use anyhow::{Context as _, bail, ensure};
use std::{
    ffi::OsStr,
    process::Command,
    time::{Duration, Instant},
};

pub(super) const CLIENT: Job = Job {
    name: "faults-cut",
    about: "the connection is cut in the middle of an RDMA Read, a Write, a call, a reply, by FIN and by RST, while Linux copies files",
    seconds: 300,
    guests: 1,
    scales: false,
    flavours: flavour::VERSIONS,
    run: client,
};

pub(super) const SERVER: Job = Job {
    name: "server-faults-cut",
    about: "the same while our client copies a tree to Linux's nfsd and back",
    seconds: 300,
    guests: 1,
    scales: false,
    flavours: flavour::ENDS_OF_RDMA,
    run: server,
};

/// The places at which the middlebox cuts: Linux's client from our server, and our client from Linux's server. In both
/// cases data go the same ways.
const PLACES: [(Way, Part, End); 10] = [
    (Way::Up, Part::ReadResponse, End::Fin),
    (Way::Up, Part::ReadResponse, End::Reset),
    (Way::Down, Part::ReadRequest, End::Fin),
    (Way::Down, Part::Write, End::Fin),
    (Way::Down, Part::Write, End::Reset),
    (Way::Up, Part::Send, End::Fin),
    (Way::Up, Part::Send, End::Reset),
    (Way::Down, Part::Send, End::Fin),
    (Way::Down, Part::Send, End::Reset),
    (Way::Down, Part::Send, End::Fin),
];

/// FPDUs of the kind that pass before a cut, at most.
const SKIPPED: u64 = 20;

/// The same for requests of RDMA Reads, of which each round of the copy has two.
const REQUESTS_SKIPPED: u64 = 6;

/// How often, at most, a tree is copied each way until all cuts are made.
const ROUNDS: usize = 6;

/// Bytes of MPA's request or reply, which has 20 before its private data, that pass before a cut.
const INSIDE_SETUP: u64 = 10;

/// How long a connection may take to reach the place of the cut, including the time to connect again.
const PATIENCE: Duration = Duration::from_secs(40);

fn cut((way, part, end): (Way, Part, End), numbers: &mut Numbers) -> Cut {
    let most = if part == Part::ReadRequest { REQUESTS_SKIPPED } else { SKIPPED };
    Cut { way, place: Place::Inside(part), skip: numbers.below(most), end }
}

fn client(context: &Context) -> anyhow::Result<()> {
    let server = context.serve(ServeOptions::new(context.folder("export")?))?;
    let middlebox = Middlebox::before(server.port())?;
    let guest = faults_copying::guest(2_000_000, 4).set("NAMES", 1).capture();
    let mut guest = context.boot(guest.mounts_at(middlebox.port(), server.mount_port(), "/"))?;
    guest.wait_for_mark("copying")?;
    let mut numbers = Numbers(context.seed());
    for place in PLACES {
        let (order, before) = (cut(place, &mut numbers), middlebox.accepted());
        middlebox.cut(order);
        context.wait_for(&format!("cut: {order}, and a new connection"), PATIENCE, || {
            Ok(middlebox.is_done() && middlebox.accepted() > before)
        })?;
    }
    // Connections that come back are cut first in the middle of MPA's request, then in the middle of its reply.
    let before = middlebox.accepted();
    middlebox.cut(cut(PLACES[0], &mut numbers));
    for way in [Way::Up, Way::Down] {
        middlebox.cut(Cut { way, place: Place::After(INSIDE_SETUP), skip: 0, end: End::Fin });
    }
    context.wait_for("cut in the middle of the set-up, and a new connection", PATIENCE, || {
        Ok(middlebox.is_done() && middlebox.accepted() > before + 2)
    })?;
    let (_, longest) = faults_copying::finish(context, guest, &server)?;
    context.note(format!("{}; the longest command took {:.1} s", middlebox.cuts().join(", "), longest.as_secs_f64()));
    server.finish()?;
    Ok(())
}

fn server(context: &Context) -> anyhow::Result<()> {
    let nfsd = context.nfsd(NfsdOptions::new().with(|guest| guest.capture()).under_cuts())?;
    let middlebox = Middlebox::before(nfsd.port())?;
    let trees = context.folder("trees")?;
    let made = trees.join("made");
    tree::make(&made, context.seed())?;
    let url = |path: &str| nfsd.url_behind(middlebox.port(), path);
    let mut numbers = Numbers(context.seed());
    // The places that this direction of the copy passes.
    let of = |parts: &[Part]| -> Vec<_> { PLACES.into_iter().filter(|(_, part, _)| parts.contains(part)).collect() };
    let mut round = 0;
    for (command, parts) in
        [("put", &[Part::ReadResponse, Part::ReadRequest, Part::Send][..]), ("get", &[Part::Write, Part::Send])]
    {
        let mut left = of(parts);
        left.reverse();
        // If a cut still waits for its message at the end of a copy, the copy runs again.
        for _ in 0..ROUNDS {
            let name = format!("{command}-{round}");
            let from_there = url(if command == "put" { &name } else { "put-0" });
            let here = trees.join(&name);
            let mut copy = context.command();
            copy.args([command, "-q", "-r"]);
            match command {
                "put" => copy.arg(&made).arg(from_there),
                _ => copy.arg(from_there).arg(&here),
            };
            under_cuts(context, &name, copy, &middlebox, || left.pop().map(|place| cut(place, &mut numbers)))?;
            if command == "put" {
                context
                    .rpcrdma(
                        "check",
                        [OsStr::new("get"), "-q".as_ref(), "-r".as_ref(), nfsd.url(&name).as_ref(), here.as_ref()],
                    )?
                    .expect_success()?;
            }
            tree::same(context, "compare", &made, &here)?;
            round += 1;
            if left.is_empty() && middlebox.is_done() {
                break;
            }
        }
        ensure!(left.is_empty() && middlebox.is_done(), "{ROUNDS} rounds of {command} did not come to all cuts");
    }
    context.note(middlebox.cuts().join(", "));
    nfsd.finish().context("nfsd")?;
    Ok(())
}

/// Runs a copy, which must succeed. As soon as one cut is made, orders the next one.
fn under_cuts(
    context: &Context,
    name: &str,
    copy: Command,
    middlebox: &Middlebox,
    mut next: impl FnMut() -> Option<Cut>,
) -> anyhow::Result<()> {
    let log = context.dir().join(format!("{name}.err"));
    let mut running = Running::start(copy, &log, &log)?;
    let status = loop {
        if middlebox.is_done()
            && let Some(cut) = next()
        {
            middlebox.cut(cut);
        }
        if let Some(status) = running.wait_until(Instant::now() + process::LOOK)? {
            break status;
        }
        if let Some(reason) = schedule::qemu_aborted(context.dir()) {
            bail!("the guest is gone: {reason}");
        }
        if Instant::now() > context.deadline() {
            bail!("{name} did not end within the budget; see {}", log.display());
        }
    };
    ensure!(status.success(), "{name} failed under cuts: {status}; see {}", log.display());
    Ok(())
}
