//! Our client's commands against Linux's nfsd, each judged by what the guest has afterwards.

use super::Job;
use crate::interop::{
    context::Context,
    flavour,
    nfsd::{Nfsd, NfsdOptions},
    process::Finished,
    wire::Wire,
};
use anyhow::{Context as _, ensure};
use std::fs;

pub(super) const JOB: Job = Job {
    name: "server-commands",
    about: "Linux's nfsd serves our ls, stat, cat, df, mkdir, put, get, mv, ln, rm and ping",
    seconds: 240,
    guests: 1,
    scales: false,
    flavours: flavour::ONE,
    run,
};

fn run(context: &Context) -> anyhow::Result<()> {
    let nfsd = context.nfsd(NfsdOptions::new().with(|guest| guest.capture()))?;
    let ours = Client { context, nfsd: &nfsd };

    // What the guest made.
    let listed = ours.run("ls", &["ls", &nfsd.url("dir")])?;
    let mut names: Vec<_> = listed.stdout.lines().collect();
    names.sort_unstable();
    ensure!(
        names.len() == 300 && names[0] == "file-0",
        "ls of 300 files printed {} names; see {}",
        names.len(),
        listed.out.display()
    );
    let long = ours.run("ls-long", &["ls", "-l", &nfsd.url("")])?;
    ensure!(long.stdout.contains("link -> hello.txt") && long.stdout.contains("3145728"), "ls -l: {}", long.stdout);
    let cat = ours.run("cat", &["cat", &nfsd.url("hello.txt"), &nfsd.url("dir/file-7")])?;
    ensure!(cat.stdout == "hello from linux nfsd\nfile 7\n", "cat printed {:?}", cat.stdout);
    let stat = ours.run("stat", &["stat", "--json", &nfsd.url("random.bin")])?.json()?;
    ensure!(stat["size"] == 3_145_728, "stat: {stat}");
    let df = ours.run("df", &["df", "--json", &nfsd.url("")])?;
    let guest_df: u64 =
        nfsd.run("stat -f -c '%S %b' /exports")?.split_whitespace().map(|n| n.parse().unwrap_or(0)).product();
    ensure!(df.stdout.contains(&guest_df.to_string()), "df says {}, the guest has {guest_df} octets", df.stdout.trim());

    // What we make.
    ours.run("mkdir", &["mkdir", &nfsd.url("made")])?;
    let local = context.dir().join("local");
    fs::write(&local, "put by us\n")?;
    let local = local.to_str().context("the job's folder has no UTF-8 name")?;
    ours.run("put", &["put", "-q", local, &nfsd.url("made/put")])?;
    ours.guest_has("cat /exports/made/put", "put by us\n")?;
    ours.run("mv", &["mv", &nfsd.url("made/put"), &nfsd.url("made/moved")])?;
    ours.run("ln", &["ln", &nfsd.url("made/moved"), &nfsd.url("made/hard")])?;
    ours.run("ln-s", &["ln", "-s", "moved", &nfsd.url("made/soft")])?;
    ours.guest_has(
        "cd /exports/made; stat -c %h hard; readlink soft; cat soft; ls",
        "2\nmoved\nput by us\nhard\nmoved\nsoft\n",
    )?;
    let copy = context.dir().join("copy");
    ours.run("get", &["get", "-q", &nfsd.url("random.bin"), copy.to_str().unwrap_or("copy")])?;
    let sum = nfsd.run("sha256sum </exports/random.bin")?;
    let mut here = std::process::Command::new("sh");
    here.arg("-c").arg(format!("sha256sum <'{}'", copy.display()));
    ensure!(context.run("sum", here)?.stdout == sum, "what get brought is not what the guest has");
    fs::remove_file(&copy)?;
    ours.run("rm", &["rm", &nfsd.url("made/hard")])?;
    ours.run("rm-r", &["rm", "-r", &nfsd.url("made"), &nfsd.url("dir")])?;
    ours.guest_has("ls /exports", "SHA256SUMS\nhello.txt\nlink\nrandom.bin\n")?;

    // What must fail, with the server's reason.
    ours.fails("cat-missing", &["cat", &nfsd.url("missing")], "no such file")?;
    ours.fails("mkdir-again", &["mkdir", &nfsd.url("hello.txt")], "exist")?;
    ours.fails("rm-missing", &["rm", &nfsd.url("missing")], "no such file")?;

    let ping = ours.run("ping", &["ping", "-c", "5", "-i", "0.1", "-v", &nfsd.url("")])?;
    context.note(ping.stdout.lines().next().unwrap_or("").to_owned());
    ensure!(
        ping.stdout.contains("4096"),
        "ping -v does not tell 4,096-octet messages: {}; see {}",
        ping.stdout,
        ping.out.display()
    );

    let see = nfsd.wire();
    nfsd.finish()?;
    let wire = Wire::read(context, &see)?;
    context.note(wire.in_short());
    wire.judge_terminates(context, &see)
}

struct Client<'a> {
    context: &'a Context<'a>,
    nfsd: &'a Nfsd,
}

impl Client<'_> {
    fn run(&self, name: &str, arguments: &[&str]) -> anyhow::Result<Finished> {
        self.context
            .rpcrdma(name, arguments)?
            .expect_success()
            .with_context(|| format!("rpcrdma {}", arguments.join(" ")))
    }

    fn fails(&self, name: &str, arguments: &[&str], words: &str) -> anyhow::Result<()> {
        let finished = self.context.rpcrdma(name, arguments)?;
        finished.expect_failure(words).with_context(|| format!("rpcrdma {}", arguments.join(" ")))?;
        Ok(())
    }

    fn guest_has(&self, script: &str, wanted: &str) -> anyhow::Result<()> {
        let found = self.nfsd.run(script)?;
        ensure!(found == wanted, "{script}: the guest has {found:?}, not {wanted:?}");
        Ok(())
    }
}
