//! A file beyond 4 GiB goes to Linux's nfsd. It is mostly a hole, which `put` keeps. `cat` reads its data back, with
//! the bytes before and behind them, and leaves out the rest: version 3 does not report holes, and reading 4 GiB from
//! an emulated machine takes minutes.

use super::Job;
use crate::{
    interop::{context::Context, flavour, nfsd::NfsdOptions},
    numbers::Numbers,
};
use anyhow::{Context as _, ensure};
use std::{
    fs::{self, File},
    os::unix::fs::FileExt as _,
    process::Command,
};

pub(super) const JOB: Job = Job {
    name: "server-large",
    about: "our put of a sparse file beyond 4 GiB to Linux's nfsd, and our cat of its parts",
    seconds: 240,
    guests: 1,
    scales: false,
    flavours: flavour::ENDS,
    run,
};

/// The ranges that are read back, as offset and length: data and the holes around them, across 4 GiB, up to the end,
/// and beyond the end.
const PARTS: [(u64, u64); 5] =
    [(0, 70_000), ((4 << 30) - 1_000_003, 2_000_007), (4 << 30, 4097), ((4 << 30) + 8_999_999, 1 << 20), (5 << 30, 10)];

/// The ranges with data, as offset and length: at the beginning, across 4 GiB, at the end.
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
    let file_length = file.metadata()?.len();
    drop(file);
    let text = |path: &std::path::Path| path.to_string_lossy().into_owned();
    context.rpcrdma("put", ["put", "-q", &text(&made), &nfsd.url("large")])?.expect_success().context("put")?;
    let said = nfsd.run("stat -c '%s %b' /exports/large")?;
    let (size, blocks) = said.trim().split_once(' ').context("stat")?;
    ensure!(size == file_length.to_string(), "the guest has {size} bytes instead of {file_length}");
    ensure!(blocks.parse::<u64>()? < 100_000, "put wrote the holes: {blocks} blocks of 512 bytes");
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
        ensure!(here.stdout == there, "{length} bytes at {offset} differ in the guest");
    }
    for (offset, length) in PARTS {
        let (from, most) = (offset.to_string(), length.to_string());
        let got = context.rpcrdma("cat", ["cat", "--offset", &from, "--length", &most, &nfsd.url("large")])?;
        let got = fs::read(got.expect_success().context("cat")?.out)?;
        let there = (length.min(file_length.saturating_sub(offset))) as usize;
        let mut wanted = vec![0; there];
        File::open(&made)?.read_exact_at(&mut wanted, offset)?;
        ensure!(got == wanted, "{length} bytes at {offset} came back otherwise: {} bytes", got.len());
    }
    nfsd.finish()
}
