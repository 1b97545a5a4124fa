//! A middlebox cuts the connection in the middle of each kind of message, while files are copied: data are identical afterwards, and no call
//! is done twice.

use super::{Job, faults_copying};
use crate::interop::{
    context::Context,
    middlebox::{Cut, End, Middlebox, Part, Place, Way},
    nfsd::NfsdOptions,
    process::{self, Running},
    serve::ServeOptions,
    tree,
};
use crate::numbers::Numbers;
use anyhow::{Context as _, bail, ensure};
use std::{ffi::OsStr, path::Path, process::Command, time::Duration};

pub(super) const CLIENT: Job = Job {
    name: "faults-cut",
    about: "the connection is cut in the middle of an RDMA Read, a Write, a call, a reply, by FIN and by RST, while Linux copies files",
    seconds: 180,
    guests: 1,
    scales: false,
    run: client,
};

pub(super) const SERVER: Job = Job {
    name: "server-faults-cut",
    about: "the same while our client copies a tree to Linux's nfsd and back",
    seconds: 180,
    guests: 1,
    scales: false,
    run: server,
};

/// Where Linux's client is cut from our server, and our client from Linux's: data go the same ways.
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

/// Octets of MPA's request or reply, which has 20 before its private data, that pass before a cut.
const INSIDE_SETUP: u64 = 10;

/// How long it may take until a connection comes to the place, with the time to connect again.
const PATIENCE: Duration = Duration::from_secs(40);

fn cut((way, part, end): (Way, Part, End), numbers: &mut Numbers) -> Cut {
    Cut { way, place: Place::Inside(part), skip: numbers.below(SKIPPED), end }
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
    // Those that come back are cut in the middle of MPA's request, then in the middle of its reply.
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
    let nfsd = context.nfsd(NfsdOptions::new().with(|guest| {
        guest.capture().allow(
            "WARNING: * ib_destroy_qp_user+*",
            "nfsd counts memory regions as in use when a connection ends during its RDMA Reads, and the kernel says so once",
        )
    }))?;
    let middlebox = Middlebox::before(nfsd.port())?;
    let trees = context.folder("trees")?;
    let made = trees.join("made");
    tree::make(&made, context.seed())?;
    let url =
        |path: &str| format!("nfs://127.0.0.1:{}/exports/{path}?mountport={}", middlebox.port(), nfsd.mount_port());
    let mut numbers = Numbers(context.seed());
    // What this way of the copy has.
    let of = |parts: &[Part]| -> Vec<_> { PLACES.into_iter().filter(|(_, part, _)| parts.contains(part)).collect() };
    let text = |path: &Path| path.as_os_str().to_owned();
    let put = [OsStr::new("put").to_owned(), "-q".into(), "-r".into(), text(&made), url("").into()];
    let get = [OsStr::new("get").to_owned(), "-q".into(), "-r".into(), url("made").into(), text(&trees.join("back"))];
    for (name, arguments, places) in [
        ("put", put, of(&[Part::ReadResponse, Part::ReadRequest, Part::Send])),
        ("get", get, of(&[Part::Write, Part::Send])),
    ] {
        let mut command = Command::new(context.program());
        command.args(arguments);
        let log = context.dir().join(format!("{name}.err"));
        let mut running = Running::start(command, &log, &log)?;
        let mut made = 0;
        let status = loop {
            if middlebox.is_done() && made < places.len() {
                middlebox.cut(cut(places[made], &mut numbers));
                made += 1;
            }
            if let Some(status) = running.wait_until(std::time::Instant::now() + process::LOOK)? {
                break status;
            }
            if std::time::Instant::now() > context.deadline() {
                bail!("{name} did not end within the budget; see {}", log.display());
            }
        };
        ensure!(status.success(), "{name} failed under cuts: {status}; see {}", log.display());
        ensure!(made == places.len() && middlebox.is_done(), "{name} ended after {made} of {} cuts", places.len());
    }
    tree::same(context, "compare", &made, &trees.join("back"))?;
    context.note(middlebox.cuts().join(", "));
    nfsd.finish().context("nfsd")?;
    Ok(())
}
