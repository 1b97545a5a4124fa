//! Our client asks Linux's nfsd for version 2, is refused, and works in version 1 on the same connection.

use super::Job;
use crate::interop::{context::Context, flavour, kernel_log, nfsd::NfsdOptions, process::Finished, tree, wire::Wire};
use anyhow::{Context as _, ensure};
use std::{fs, path::Path};

pub(super) const JOB: Job = Job {
    name: "server-falls-back",
    about: "our client asks Linux's nfsd for version 2, is refused, and works in version 1 on the same connection",
    seconds: 120,
    guests: 1,
    scales: false,
    flavours: flavour::ONE,
    run,
};

/// How often the job tries something again because nfsd has not answered in time: an emulated machine may be slower
/// than our client's patience.
const SILENCES: u64 = 2;

/// How often the job repeats a copy because soft-iWARP has ended its connection by a fault of its own (docs/linux.md).
const BROKEN: u64 = 2;

/// Files that are copied there and back.
const FILES: usize = 60;

fn run(context: &Context) -> anyhow::Result<()> {
    let nfsd = context.nfsd(NfsdOptions::new().with(|guest| guest.capture()))?;
    let trees = context.folder("trees")?;
    let (made, back) = (trees.join("made"), trees.join("back"));
    tree::make_small(&made, FILES, context.seed())?;
    let text = |path: &Path| path.to_string_lossy().into_owned();
    let ours = |name: &str, arguments: &[&str]| -> anyhow::Result<Finished> {
        context.rpcrdma(name, arguments)?.expect_success().with_context(|| format!("rpcrdma {}", arguments.join(" ")))
    };
    let ping = |name: &str| -> anyhow::Result<serde_json::Value> {
        let said = ours(name, &["ping", "-c", "3", "-i", "0.1", "-v", "--json", &nfsd.url("")])?;
        serde_json::from_str(said.stdout.lines().next().unwrap_or("")).context("ping's first line")
    };

    // What the command says, and what it remembers.
    let mut silences = 0;
    let mut told = ping("ping")?;
    while told["version_2"] == "unanswered" && silences < SILENCES {
        silences += 1;
        context.forget_servers();
        told = ping("ping")?;
    }
    ensure!(told["rpcrdma"] == 1 && told["version_2"] == "refused", "ping -v was told {told}");
    let told = ping("ping-again")?;
    ensure!(told["rpcrdma"] == 1 && told["version_2"] == "not asked for", "the next ping -v was told {told}");
    let insisting = format!("{}&rpcrdma=2", nfsd.url(""));
    let refused = context.rpcrdma("insisting", ["ping", "-c", "1", &insisting])?;
    refused.expect_failure("versions 1 to 1")?;

    // Each of these commands asks for version 2 again.
    let mut broken = Extra::default();
    for (name, from, to) in [("put", text(&made), nfsd.url("copy")), ("get", nfsd.url("copy"), text(&back))] {
        let capture = context.dir().join(format!("{name}.pcapng"));
        let copied = || -> anyhow::Result<Wire> {
            context.forget_servers();
            ours(name, &[name, "-q", "-r", "--force", "--capture", &text(&capture), &from, &to])?;
            Wire::read(context, &capture)
        };
        let mut excused = kernel_log::split_trailers(context.dir());
        let mut wire = copied()?;
        loop {
            let splits = kernel_log::split_trailers(context.dir());
            if (wire.versions.asked, wire.versions.refused) == (1, 0) && silences < SILENCES {
                silences += 1;
            } else if wire.connections > 1 && splits > excused && broken.copies < BROKEN {
                broken.count(&wire);
                excused = splits;
            } else {
                break;
            }
            nfsd.run(if name == "put" { "rm -r /exports/copy" } else { "true" })?;
            let _ = fs::remove_dir_all(&back);
            wire = copied()?;
        }
        let versions = &wire.versions;
        ensure!(
            (wire.connections, versions.asked, versions.refused) == (1, 1, 1),
            "not one connection that was refused version 2: {}; Terminates {:?}, {excused} excused; the server's kernel said last: {}; see {}",
            wire.in_short(),
            wire.terminates,
            nfsd.kernel_said(),
            capture.display()
        );
        ensure!(
            versions.calls_after >= FILES as u64 && versions.calls == [versions.calls_after, 0],
            "the connection did not go on in version 1: {versions:?}; see {}",
            capture.display()
        );
    }
    tree::same(context, "compare", &made, &back)?;

    let see = nfsd.wire();
    nfsd.finish()?;
    let wire = Wire::read(context, &see)?;
    context.note(wire.in_short());
    // All connections asked for version 2, except the ping's connection, which need not ask, and repeated connections
    // after no answer came. The connection that insisted on version 2 got no service.
    let all = wire.connections - broken.connections;
    let (asked, refused) = (wire.versions.asked - broken.asked, wire.versions.refused - broken.refused);
    ensure!(
        all == 5 + 2 * silences && asked == 4 + silences && refused + silences >= asked,
        "{asked} of {all} connections asked, {refused} were refused, {silences} not answered in time; see {}",
        see.display()
    );
    context.note(format!(
        "{silences} times there was no answer in time; {} copies were made again for a mistake of soft-iWARP's",
        broken.copies
    ));
    wire.judge_terminates(context, &see)
}

/// What the repeated copies add to the counts.
#[derive(Default)]
struct Extra {
    copies: u64,
    connections: u64,
    asked: u64,
    refused: u64,
}

impl Extra {
    fn count(&mut self, wire: &Wire) {
        self.copies += 1;
        self.connections += wire.connections;
        self.asked += wire.versions.asked;
        self.refused += wire.versions.refused;
    }
}
