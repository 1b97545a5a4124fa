//! Random operations of Linux on files of our server, for many sizes of READ and WRITE, through the page cache and
//! around it.

use super::Job;
use crate::interop::{context::Context, flavour, guest::GuestOptions, mountstats, serve::ServeOptions, wire::Wire};
use anyhow::bail;
use std::process::Command;

pub(super) const JOB: Job = Job {
    name: "client-fsx",
    about: "random reads, writes, appends, truncations and maps through Linux's page cache, rsize and wsize from 1 KiB to 1 MiB",
    seconds: 900,
    guests: 1,
    scales: true,
    flavours: flavour::VERSIONS,
    run: cached,
};

pub(super) const DIRECT: Job = Job {
    name: "client-fsx-direct",
    about: "the same with half of the reads and writes around the page cache: any length and offset on the wire",
    seconds: 900,
    guests: 1,
    scales: true,
    flavours: flavour::WITH_TCP,
    run: direct,
};

/// The short form of the job, for each run.
pub(super) const SHORT: Job = Job {
    name: "client-fsx-short",
    about: "a tenth of them, through the page cache and around it",
    seconds: 300,
    guests: 1,
    scales: true,
    flavours: flavour::NEWEST,
    run: short,
};

/// The share of all operations, as one in this number, that each of these does: the long job in version 3; the long job
/// in each flavour of version 4, whose READ and WRITE share their code; and the short job.
const LONG_SHARE: u64 = 2;
const LONG_SHARE_4: u64 = 5;
const SHORT_SHARE: u64 = 20;

/// On each line: mount options, how many bytes of the file are used, the largest operation, the first byte that is
/// used, further options of `xtask fsx`.
const CACHED: &str = "
rsize=1024,wsize=1024 40000 9000 0
rsize=1024,wsize=1048576 60000 20000 0
rsize=4096,wsize=2048 60000 20000 0
rsize=8192,wsize=32768 200000 50000 0
rsize=65536,wsize=65536 300000 70000 0
rsize=1048576,wsize=1024 40000 9000 0
rsize=1048576,wsize=1048576 1500000 1100000 0
rsize=1048576,wsize=1048576 300000 70000 4294867296
rsize=262144,wsize=524288,noac 200000 40000 0
rsize=32768,wsize=32768,sync 200000 40000 8589934000
";

const AROUND: &str = "
rsize=1048576,wsize=1048576 300000 70000 0 --direct
rsize=4096,wsize=4096 60000 20000 0 --direct
rsize=1024,wsize=1024 30000 6000 4294957296 --direct
rsize=65536,wsize=131072 400000 150000 0 --direct
rsize=1048576,wsize=1048576 6000 5000 0 --direct
rsize=1048576,wsize=1048576 1500000 1100000 0 --direct
";

const SOME: &str = "
rsize=1024,wsize=1048576 60000 20000 0
rsize=1048576,wsize=1048576 1500000 1100000 4294867296
rsize=4096,wsize=4096 60000 20000 0 --direct
rsize=1048576,wsize=1048576 1500000 1100000 0 --direct
";

fn cached(context: &Context) -> anyhow::Result<()> {
    fsx(context, CACHED, context.ops().div_ceil(long_share(context)), 0)
}

fn direct(context: &Context) -> anyhow::Result<()> {
    fsx(context, AROUND, context.ops().div_ceil(long_share(context)), 1000)
}

fn long_share(context: &Context) -> u64 {
    if context.flavour().is_version_4() { LONG_SHARE_4 } else { LONG_SHARE }
}

fn short(context: &Context) -> anyhow::Result<()> {
    fsx(context, SOME, context.ops().div_ceil(SHORT_SHARE), 2000)
}

fn fsx(context: &Context, mounts: &str, ops: u64, seed_offset: u64) -> anyhow::Result<()> {
    let server = context.serve(ServeOptions::new(context.folder("export")?))?;
    let guest = GuestOptions::new("client", include_str!("../../../interop/guest/fsx.sh")).set("MOUNTS", mounts.trim());
    let guest = guest.mounts(&server).with_tools().capture();
    let guest = guest.after_all("SEED", context.seed().wrapping_add(seed_offset)).after_all("OPS", ops);
    let ended = context.boot(guest)?.finish()?;
    for line in ended.read("sums")?.lines() {
        let words: Vec<_> = line.split_whitespace().collect();
        let [sum, skipped_mib, file] = words[..] else { bail!("sums has a line {line:?}") };
        let skip = skipped_mib.parse::<u64>()? * 1_048_576 + 1;
        let mut command = Command::new("sh");
        command.arg("-c").arg(format!("tail -c +{skip} '{}' | sha256sum", server.export().join(file).display()));
        let found = context.run("sum-on-disk", command)?.expect_success()?;
        if found.stdout.split_whitespace().next() != Some(sum) {
            bail!("{file} on the disk is not what the client read: {} instead of {sum}", found.stdout.trim());
        }
    }
    let mut calls = 0;
    // Linux's counters of a TCP transport have other fields.
    let mounts = if context.flavour().is_tcp() { "" } else { mounts };
    for number in 1..=mounts.trim().lines().count() {
        let stats = mountstats::first(&ended.read(&format!("mountstats-{number}"))?)?;
        calls += stats.sends;
        if stats.bad_xids + stats.bad_replies > 0 {
            bail!("the client's transport counted what must not be: {stats:?}; see {}", ended.dir().display());
        }
    }
    context.note(format!("{ops} operations, {calls} calls over RDMA"));
    context.note(Wire::read(context, &ended.wire())?.in_short());
    server.finish()?;
    Ok(())
}
