//! Our client copies a tree to Linux's nfsd and back.

use super::Job;
use crate::interop::{context::Context, flavour, nfsd::NfsdOptions, process::Finished, tree, wire::Wire};
use anyhow::{Context as _, ensure};
use std::path::Path;

pub(super) const JOB: Job = Job {
    name: "server-tree",
    about: "our put and get copy a tree to Linux's nfsd and back: all sizes, holes, links, odd and long names, modes, times",
    seconds: 240,
    guests: 1,
    scales: false,
    flavours: flavour::OURS,
    run,
};

fn run(context: &Context) -> anyhow::Result<()> {
    let nfsd = context.nfsd(NfsdOptions::new().with(|guest| guest.capture()))?;
    let made = context.folder("trees")?.join("made");
    tree::make(&made, context.seed())?;
    let ours = |name: &str, arguments: &[&str]| -> anyhow::Result<Finished> {
        context.rpcrdma(name, arguments)?.expect_success().with_context(|| format!("rpcrdma {}", arguments.join(" ")))
    };
    let text = |path: &Path| path.to_string_lossy().into_owned();
    let copied = |command: &str, from: &str, to: &str| {
        let capture = text(&context.dir().join(format!("{command}.pcapng")));
        // `--capture` does not record TCP.
        let captured: &[&str] = if context.flavour().is_tcp() { &[] } else { &["--capture", &capture] };
        ours(command, &[&[command, "-q", "-r"], captured, &[from, to]].concat())
    };
    copied("put", &text(&made), &nfsd.url(""))?;

    // Read in the guest itself: names, kinds, modes, times, sizes and checksums.
    let list = "find . -mindepth 1 -printf '%p %y %m %T@ %l\\n' | sort; find . -type f -print0 | sort -z | xargs -0 sha256sum; find . -name holes -printf '%s\\n'";
    let there = nfsd.run(&format!("cd /exports/made; export LC_ALL=C; {list}"))?;
    let mut here = std::process::Command::new("sh");
    here.current_dir(&made).env("LC_ALL", "C").arg("-c").arg(list);
    let here = context.run("list", here)?.expect_success()?;
    if here.stdout != there {
        std::fs::write(context.dir().join("list-in-guest"), &there)?;
        let differing = here.stdout.lines().zip(there.lines()).find(|(here, there)| here != there);
        return Err(context.failed(
            format!("the guest has another tree than was put: {differing:?}"),
            &context.dir().join("list-in-guest"),
        ));
    }

    let back = context.dir().join("trees/back");
    copied("get", &nfsd.url("made"), &text(&back))?;
    tree::same(context, "compare", &made, &back)?;
    tree::same_times(context, "times", &made, &back)?;
    ours("ls", &["ls", "-R", &nfsd.url("made")])?;
    ours("rm", &["rm", "-r", &nfsd.url("made")])?;
    ensure!(nfsd.run("test ! -e /exports/made && echo gone")?.trim() == "gone", "rm -r left something");

    let wire = nfsd.wire();
    nfsd.finish()?;
    context.note(Wire::read(context, &wire)?.in_short());
    Ok(())
}
