//! A file beyond 4 GiB goes to Linux's nfsd. It is mostly a hole, which `put` keeps. It does not come back: version 3 does not tell
//! holes, and to read 4 GiB from an emulated machine takes minutes.

use super::Job;
use crate::{
    interop::{context::Context, nfsd::NfsdOptions},
    numbers::Numbers,
};
use anyhow::{Context as _, ensure};
use std::{fs::File, os::unix::fs::FileExt as _, process::Command};

pub(super) const JOB: Job = Job {
    name: "server-large",
    about: "our put of a sparse file beyond 4 GiB to Linux's nfsd",
    seconds: 240,
    guests: 1,
    scales: false,
    run,
};

/// Where data are, with their length: at the beginning, across 4 GiB, at the end.
const DATA: [(u64, usize); 3] = [(0, 5000), ((4 << 30) - 70_001, 140_003), ((4 << 30) + 9_000_000, 333_333)];

fn run(context: &Context) -> anyhow::Result<()> {
    let nfsd = context.nfsd(NfsdOptions::new())?;
    let folder = context.folder("files")?;
    let made = folder.join("made");
    let file = File::create(&made)?;
    let mut numbers = Numbers(context.seed());
    for (offset, length) in DATA {
        file.write_all_at(&numbers.octets(length), offset)?;
    }
    let length = file.metadata()?.len();
    drop(file);
    let text = |path: &std::path::Path| path.to_string_lossy().into_owned();
    context.rpcrdma("put", ["put", "-q", &text(&made), &nfsd.url("large")])?.expect_success().context("put")?;
    let said = nfsd.run("stat -c '%s %b' /exports/large")?;
    let (size, blocks) = said.trim().split_once(' ').context("stat")?;
    ensure!(size == length.to_string(), "the guest has {size} octets instead of {length}");
    ensure!(blocks.parse::<u64>()? < 100_000, "put wrote the holes: {blocks} blocks of 512 octets");
    for (offset, length) in DATA {
        let take = |file: &str| {
            format!(
                "dd if='{file}' bs=64k iflag=skip_bytes,count_bytes skip={offset} count={length} 2>/dev/null | sha256sum"
            )
        };
        let there = nfsd.run(&take("/exports/large"))?;
        let mut here = Command::new("sh");
        here.arg("-c").arg(take(&text(&made)));
        let here = context.run("sum", here)?.expect_success()?;
        ensure!(here.stdout == there, "{length} octets at {offset} differ in the guest");
    }
    nfsd.finish()
}
