//! Linux's nfsd is stopped and started again while our client copies a tree to it: the copy loses the time that the
//! server is away and its time of grace, and nothing else.

use super::Job;
use crate::interop::{
    context::Context,
    flavour,
    nfsd::{Nfsd, NfsdOptions},
    process::Running,
    tree,
};
use crate::numbers::Numbers;
use anyhow::{Context as _, ensure};
use std::{
    fs,
    path::Path,
    process::Command,
    thread,
    time::{Duration, Instant},
};

pub(super) const JOB: Job = Job {
    name: "server-restart",
    about: "Linux's nfsd is stopped and started again, with a time of grace, while our client copies a tree there",
    seconds: 300,
    guests: 1,
    scales: false,
    flavours: flavour::STATEFUL,
    run,
};

/// Files in one folder, each small.
const SMALL: usize = 900;
/// A file whose copy takes long, so that it is open for writing when nfsd stops.
const LARGE: usize = 48 << 20;

/// How much of the copy the guest has when nfsd stops: small files, bytes of the large file.
const SMALL_AT: u64 = 150;
const LARGE_AT: u64 = 4 << 20;

/// How long nfsd is away each time.
const AWAY: [Duration; 2] = [Duration::from_millis(500), Duration::from_secs(4)];

/// How long a copy may take beside the time in which nfsd was away: its time of grace (10 s), which reclaims under way
/// may double, the client's pause between attempts, and the copy itself.
const PATIENCE: Duration = Duration::from_secs(90);

/// Commands that show how far a copy has come.
const SIZE_OF_LARGE: &str = "find /exports/large -type f -printf '%s\\n' 2>/dev/null | sort -n | tail -1";
const COUNT_OF_SMALL: &str = "ls /exports/small 2>/dev/null | wc -l";

/// Stops nfsd as soon as the guest has so much. This runs in the guest, because the host would notice it later.
const STOP: &str = "for i in $(seq 900); do
    found=$(so_far)
    if [ \"${found:-0}\" -ge $at ]; then rpc.nfsd 0; echo $found; exit 0; fi
    sleep 0.05
done
echo \"so far: $found\"; exit 1";

fn run(context: &Context) -> anyhow::Result<()> {
    let nfsd = context.nfsd(NfsdOptions::new().with(|guest| guest.capture()).under_cuts())?;
    let trees = context.folder("trees")?;
    let mut numbers = Numbers(context.seed());
    let (small, large) = (trees.join("small"), trees.join("large"));
    for folder in [&small, &large] {
        fs::create_dir_all(folder)?;
    }
    for number in 0..SMALL {
        let size = tree::SIZES[number % 24];
        fs::write(small.join(format!("file-{number}")), numbers.octets(size))?;
    }
    fs::write(large.join("file"), numbers.octets(LARGE))?;
    fs::write(large.join("another"), numbers.octets(LARGE))?;

    for (name, from, so_far, at, away) in
        [("small", &small, COUNT_OF_SMALL, SMALL_AT, AWAY[0]), ("large", &large, SIZE_OF_LARGE, LARGE_AT, AWAY[1])]
    {
        let began = Instant::now();
        let mut copy = Copy::start(context, &nfsd, name, from)?;
        let found = nfsd.run(&format!("so_far() {{ {so_far}; }}; at={at}\n{STOP}"))?;
        context.note(format!("{name}: nfsd stopped at {}", found.trim()));
        thread::sleep(away);
        ensure!(!copy.has_ended()?, "{name}: the copy was over before nfsd was away; see {}", copy.log.display());
        nfsd.start("")?;
        copy.finish(away + PATIENCE)?;
        context.note(format!("{name}: {:.1} s", began.elapsed().as_secs_f64()));
        // Read in the guest itself; no other file may lie beside the copies.
        let list = "find . -type f -print0 | sort -z | xargs -0 sha256sum";
        let there = nfsd.run(&format!("cd /exports/{name}; export LC_ALL=C; {list}"))?;
        let mut here = Command::new("sh");
        here.current_dir(from).env("LC_ALL", "C").arg("-c").arg(list);
        let here = context.run(&format!("list-{name}"), here)?.expect_success()?;
        if here.stdout != there {
            let see = context.dir().join(format!("{name}-in-guest"));
            fs::write(&see, &there)?;
            return Err(context.failed(format!("{name}: the guest has something else than was put"), &see));
        }
        let back = trees.join(format!("{name}-back"));
        let (url, to) = (nfsd.url(name), back.to_string_lossy().into_owned());
        context.rpcrdma(&format!("get-{name}"), ["get", "-q", "-r", &url, &to])?.expect_success().context("get")?;
        tree::same(context, &format!("compare-{name}"), from, &back)?;
    }
    let wire = nfsd.wire();
    nfsd.finish()?;
    let mut command = context.command();
    command.arg("decode").arg(&wire).args(["--procedure", "OPEN"]);
    let shown = context.run("decode-OPEN", command)?.expect_success()?;
    let reclaimed = shown.stdout.lines().filter(|line| line.contains("claim reclaim")).count();
    context.note(format!("{reclaimed} opens were reclaimed"));
    ensure!(reclaimed > 0, "no open was reclaimed; see {}", wire.display());
    Ok(())
}

/// A `put -r` that runs.
struct Copy<'a> {
    context: &'a Context<'a>,
    running: Running,
    log: std::path::PathBuf,
    name: &'a str,
}

impl<'a> Copy<'a> {
    fn start(context: &'a Context<'a>, nfsd: &Nfsd, name: &'a str, from: &Path) -> anyhow::Result<Self> {
        let log = context.dir().join(format!("put-{name}.err"));
        let mut command = context.command();
        command.args(["put", "-q", "-r"]).arg(from).arg(nfsd.url(""));
        let running = Running::start(command, &log, &log)?;
        Ok(Self { context, running, log, name })
    }

    fn has_ended(&mut self) -> anyhow::Result<bool> {
        Ok(self.running.ended()?.is_some())
    }

    /// Waits for the end of the copy, which must succeed in time.
    fn finish(mut self, within: Duration) -> anyhow::Result<()> {
        let words = format!("{}: the copy has ended; see {}", self.name, self.log.display());
        let mut status = None;
        self.context.wait_for(&words, within, || {
            status = self.running.ended()?;
            Ok(status.is_some())
        })?;
        let status = status.context("the copy")?;
        ensure!(status.success(), "{}: the copy failed: {status}; see {}", self.name, self.log.display());
        Ok(())
    }
}
