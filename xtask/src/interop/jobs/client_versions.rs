//! Linux's client, which knows version 1, and ours, which speaks version 2, use one port of our server at the same
//! time.

use super::Job;
use crate::interop::{
    context::Context, flavour, guest::GuestOptions, jobs::faults_copying::same_on_disk, process::Finished,
    serve::ServeOptions, tree, wire::Wire,
};
use anyhow::{Context as _, ensure};
use std::{
    path::Path,
    thread,
    time::{Duration, Instant},
};

pub(super) const JOB: Job = Job {
    name: "client-versions",
    about: "Linux's client in version 1 and ours in version 2 at work on one port of our server at the same time",
    seconds: 150,
    guests: 1,
    scales: false,
    flavours: flavour::ONE,
    run,
};

/// How often our client copies in both directions while Linux works.
const ROUNDS: usize = 4;
/// Files that each client copies.
const FILES: usize = 80;
/// How long Linux may take for two rounds, and to end.
const PATIENCE: Duration = Duration::from_secs(60);
/// The pause between our copies once there were enough.
const PAUSE: Duration = Duration::from_millis(500);

fn run(context: &Context) -> anyhow::Result<()> {
    let server = context.serve(ServeOptions::new(context.folder("export")?).capture())?;
    let trees = context.folder("trees")?;
    let text = |path: &Path| path.to_string_lossy().into_owned();
    let ours = |name: &str, arguments: &[&str]| -> anyhow::Result<Finished> {
        context.rpcrdma(name, arguments)?.expect_success().with_context(|| format!("rpcrdma {}", arguments.join(" ")))
    };
    let guest = GuestOptions::new("client", include_str!("../../../interop/guest/versions.sh"));
    let mut guest = context.boot(guest.mounts(&server).set("FILES", FILES).capture())?;
    guest.wait_for_mark("working")?;
    let rounds = |guest: &crate::interop::guest::Guest| guest.out().matches("== round ").count();
    let (begin, before) = (Instant::now(), rounds(&guest));
    let mut done = 0;
    // Neither client waits for the other. Both counts must grow: each client makes progress while the other works.
    while done < ROUNDS || rounds(&guest) < before + 2 {
        let name = format!("ours-{done}");
        let (made, back) = (trees.join(&name), trees.join(format!("back-{done}")));
        tree::make_small(&made, FILES, context.seed().wrapping_add(done as u64))?;
        ours("put", &["put", "-q", "-r", &text(&made), &server.url(&name)])?;
        ours("get", &["get", "-q", "-r", &format!("{}&rpcrdma=2", server.url(&name)), &text(&back)])?;
        tree::same(context, "compare", &made, &back)?;
        done += 1;
        ensure!(!guest.has_ended()?, "the guest ended before it was told to; see {}", guest.dir().display());
        ensure!(begin.elapsed() < PATIENCE, "Linux did not go on while we copied; see {}", guest.dir().display());
        if done >= ROUNDS {
            thread::sleep(PAUSE);
        }
    }
    let while_we_copied = rounds(&guest) - before;
    guest.say("check")?;
    guest.wait_for_mark("checked")?;

    // Each client's files, as the other client sees them.
    let theirs = trees.join("theirs");
    ours("get-theirs", &["get", "-q", "-r", &server.url("linux"), &text(&theirs)])?;
    tree::same(context, "compare-theirs", &server.export().join("linux"), &theirs)?;
    guest.say("end")?;
    context.wait_for("the guest ended", PATIENCE, || guest.has_ended())?;
    let ended = guest.finish()?;
    same_on_disk(context, &server, &ended.read("sums")?, "linux")?;
    let of_ours = ended.read("sums-ours")?;
    ensure!(of_ours.lines().count() > 2 * FILES, "Linux found too few files of ours; see {}", ended.dir().display());
    same_on_disk(context, &server, &of_ours, "")?;
    for number in 0..done {
        let name = format!("ours-{number}");
        tree::same(context, "compare-in-guest", &trees.join(&name), &server.export().join(&name))?;
    }

    let metrics = server.finish()?;
    let capture = context.dir().join("serve.pcapng");
    let wire = Wire::read(context, &capture)?;
    context.note(format!("Linux came to {while_we_copied} rounds while we copied {done} trees; {}", wire.in_short()));
    let versions = &wire.versions;
    ensure!(
        versions.connections[0] >= 1 && versions.connections[1] >= 2 * done as u64 && versions.refused == 0,
        "not both versions on one port: {versions:?}; see {}",
        capture.display()
    );
    ensure!(
        versions.calls.iter().all(|&calls| calls > 100),
        "few calls of one of the versions: {versions:?}; see {}",
        capture.display()
    );
    for (at, version) in ["version=\"1\"", "version=\"2\""].into_iter().enumerate() {
        let counted = metrics.sum("rpcrdma_negotiated_total", &[version]);
        ensure!(
            counted as u64 == versions.connections[at],
            "metrics count {counted} connections with {version}, the capture {}",
            versions.connections[at]
        );
    }
    wire.judge_terminates(context, &capture)
}
