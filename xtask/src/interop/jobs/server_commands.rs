//! Tries each command of our client with Linux's nfsd, and checks what the guest has afterwards.
//!
//! [`COMMANDS`] has a line for each. The job fails if the program has a command that calls servers and is missing in
//! this list, or if the list has a command that the program does not have.

use super::Job;
use crate::interop::{
    context::Context,
    flavour,
    nfsd::{Nfsd, NfsdOptions},
    process::{Finished, Running},
    wire::Wire,
};
use anyhow::{Context as _, bail, ensure};
use std::{fs, path::Path, process::Command, time::Duration};

pub(super) const JOB: Job = Job {
    name: "server-commands",
    about: "Linux's nfsd serves each command of ours: ls, stat, cat, df, mkdir, put, get, mv, ln, rm, cp, lock, ping, bench",
    seconds: 240,
    guests: 1,
    scales: false,
    flavours: flavour::OURS,
    run,
};

/// What tries a command.
type Try = fn(&Client<'_>) -> anyhow::Result<()>;

/// The commands in the order in which they are tried: each finds what those before it have left.
const COMMANDS: &[(&str, Try)] = &[
    ("ls", ls),
    ("stat", stat),
    ("cat", cat),
    ("df", df),
    ("mkdir", mkdir),
    ("put", put),
    ("mv", mv),
    ("ln", ln),
    ("get", get),
    ("cp", cp),
    ("lock", lock),
    ("bench", bench),
    ("ping", ping),
    ("rm", rm),
];

/// How long our client may take to lock a file that has no lock.
const LOCKED_WITHIN: Duration = Duration::from_secs(20);

/// Commands that call no server.
const ELSEWHERE: &[&str] = &["serve", "devices", "decode", "completions", "man", "help"];

fn run(context: &Context) -> anyhow::Result<()> {
    // `bench` ends when its time is over, even with calls under way.
    let nfsd = context.nfsd(NfsdOptions::new().with(|guest| guest.capture()).under_cuts())?;
    let ours = Client { context, nfsd: &nfsd };
    ours.all_are_tried()?;
    for (name, command) in COMMANDS {
        command(&ours).with_context(|| format!("{name}, NFS {}", context.flavour().version))?;
    }
    let see = nfsd.wire();
    nfsd.finish()?;
    let wire = Wire::read(context, &see)?;
    context.note(wire.in_short());
    ensure!(
        (wire.connections == 0) == context.flavour().is_tcp(),
        "{} connections of RDMA; see {}",
        wire.connections,
        see.display()
    );
    wire.judge_terminates(context, &see)
}

fn ls(ours: &Client<'_>) -> anyhow::Result<()> {
    let listed = ours.run("ls", &["ls", &ours.url("dir")])?;
    let mut names: Vec<_> = listed.stdout.lines().collect();
    names.sort_unstable();
    ensure!(
        names.len() == 300 && names[0] == "file-0",
        "ls of 300 files printed {} names; see {}",
        names.len(),
        listed.out.display()
    );
    let long = ours.run("ls-long", &["ls", "-l", &ours.url("")])?;
    ensure!(long.stdout.contains("link -> hello.txt") && long.stdout.contains("3145728"), "ls -l: {}", long.stdout);
    Ok(())
}

fn stat(ours: &Client<'_>) -> anyhow::Result<()> {
    let stat = ours.run("stat", &["stat", "--json", &ours.url("random.bin")])?.json()?;
    let there = ours.nfsd.run("stat -c '%s %i' /exports/random.bin")?;
    let (size, inode) = there.trim().split_once(' ').context("stat in the guest")?;
    ensure!(stat["size"].as_u64() == size.parse().ok(), "stat: {stat}, the guest has {there}");
    ensure!(stat.to_string().contains(inode), "stat tells no file id {inode}: {stat}");
    Ok(())
}

fn cat(ours: &Client<'_>) -> anyhow::Result<()> {
    let cat = ours.run("cat", &["cat", &ours.url("hello.txt"), &ours.url("dir/file-7")])?;
    ensure!(cat.stdout == "hello from linux nfsd\nfile 7\n", "cat printed {:?}", cat.stdout);
    ours.fails("cat-missing", &["cat", &ours.url("missing")], "no such file")
}

fn df(ours: &Client<'_>) -> anyhow::Result<()> {
    let df = ours.run("df", &["df", "--json", &ours.url("")])?;
    let there = ours.nfsd.run("stat -f -c '%S %b' /exports")?;
    let there: u64 = there.split_whitespace().map(|number| number.parse().unwrap_or(0)).product();
    ensure!(df.stdout.contains(&there.to_string()), "df says {}, the guest has {there} bytes", df.stdout.trim());
    Ok(())
}

fn mkdir(ours: &Client<'_>) -> anyhow::Result<()> {
    ours.run("mkdir", &["mkdir", &ours.url("made")])?;
    ours.guest_has("stat -c %F /exports/made", "directory\n")?;
    ours.fails("mkdir-again", &["mkdir", &ours.url("hello.txt")], "exist")
}

fn put(ours: &Client<'_>) -> anyhow::Result<()> {
    let local = ours.context.dir().join("local");
    fs::write(&local, "put by us\n")?;
    ours.run("put", &["put", "-q", text(&local)?, &ours.url("made/put")])?;
    ours.guest_has("cat /exports/made/put", "put by us\n")
}

fn mv(ours: &Client<'_>) -> anyhow::Result<()> {
    ours.run("mv", &["mv", &ours.url("made/put"), &ours.url("made/moved")])?;
    ours.guest_has("ls /exports/made", "moved\n")
}

fn ln(ours: &Client<'_>) -> anyhow::Result<()> {
    ours.run("ln", &["ln", &ours.url("made/moved"), &ours.url("made/hard")])?;
    ours.run("ln-s", &["ln", "-s", "moved", &ours.url("made/soft")])?;
    ours.guest_has(
        "cd /exports/made; stat -c %h hard; readlink soft; cat soft; ls",
        "2\nmoved\nput by us\nhard\nmoved\nsoft\n",
    )
}

fn get(ours: &Client<'_>) -> anyhow::Result<()> {
    let copy = ours.context.dir().join("copy");
    ours.run("get", &["get", "-q", &ours.url("random.bin"), text(&copy)?])?;
    ours.same_as_in_guest(&copy, "/exports/random.bin")?;
    Ok(fs::remove_file(&copy)?)
}

fn cp(ours: &Client<'_>) -> anyhow::Result<()> {
    ours.run("cp", &["cp", "-q", &ours.url("random.bin"), &ours.url("made/copied")])?;
    ours.run("cp-r", &["cp", "-q", "-r", &ours.url("dir"), &ours.url("made")])?;
    ours.guest_has("cd /exports; cmp random.bin made/copied; diff -r dir made/dir; rm -r made/copied made/dir", "")
}

fn lock(ours: &Client<'_>) -> anyhow::Result<()> {
    let url = ours.url("made/moved");
    if !ours.context.flavour().is_version_4() {
        // Version 3 leaves locks to another protocol.
        return ours.fails("lock", &["lock", &url, "--", "true"], "versions 2 and 3 of NFS have no locks");
    }
    let (held, go) = (ours.context.dir().join("held"), ours.context.dir().join("go"));
    let script = "touch \"$0\"; while [ ! -e \"$1\" ]; do sleep 0.1; done; exit 7";
    let mut command = ours.context.command();
    command.args(["lock", &url, "--", "sh", "-c", script, text(&held)?, text(&go)?]);
    let said = ours.context.dir().join("lock-held.err");
    let mut holder = Running::start(command, &said, &said)?;
    ours.context.wait_for("the file is locked", LOCKED_WITHIN, || Ok(holder.ended()?.is_some() || held.exists()))?;
    ensure!(held.exists(), "lock ended without a lock; see {}", said.display());
    // Counts nfsd's locks on this file.
    let locks = "grep -c \"POSIX.*WRITE.*:$(stat -c %i /exports/made/moved) \" /proc/locks || true";
    ours.guest_has(locks, "1\n")?;
    let other = ours.context.rpcrdma("lock-taken", ["lock", "--nonblock", &url, "--", "true"])?;
    ensure!(!other.ok, "a file was locked twice; see {}", other.err.display());
    fs::write(&go, "")?;
    let status = holder.wait_until(ours.context.deadline())?.context("lock did not end with its command")?;
    ensure!(status.code() == Some(7), "lock ended with {status}; see {}", said.display());
    ours.guest_has(locks, "0\n")?;
    ours.run("lock-free", &["lock", "--nonblock", &url, "--", "true"]).map(drop)
}

fn bench(ours: &Client<'_>) -> anyhow::Result<()> {
    for operation in ["getattr", "read", "write"] {
        let mut arguments = vec!["bench", "--json", "--seconds", "1", "--op", operation];
        arguments.extend(if operation == "write" { &["--overwrite"][..] } else { &[] });
        let url = ours.url("made/measured");
        ours.nfsd.run("head -c 4M /dev/urandom >/exports/made/measured")?;
        arguments.push(&url);
        ours.run(&format!("bench-{operation}"), &arguments)?.json()?;
    }
    ours.nfsd.run("rm /exports/made/measured").map(drop)
}

fn ping(ours: &Client<'_>) -> anyhow::Result<()> {
    let ping = ours.run("ping", &["ping", "-c", "5", "-i", "0.1", "-v", &ours.url("")])?;
    ours.context.note(ping.stdout.lines().next().unwrap_or("").to_owned());
    ensure!(ping.stdout.contains("5 answered"), "of 5 pings: {}; see {}", ping.stdout, ping.out.display());
    ensure!(
        ours.context.flavour().is_tcp() || ping.stdout.contains("4096"),
        "ping -v does not tell 4,096-octet messages: {}; see {}",
        ping.stdout,
        ping.out.display()
    );
    Ok(())
}

fn rm(ours: &Client<'_>) -> anyhow::Result<()> {
    ours.run("rm", &["rm", &ours.url("made/hard")])?;
    ours.guest_has("ls /exports/made", "moved\nsoft\n")?;
    ours.run("rm-r", &["rm", "-r", &ours.url("made"), &ours.url("dir")])?;
    ours.guest_has("ls /exports", "SHA256SUMS\nhello.txt\nlink\nrandom.bin\n")?;
    ours.fails("rm-missing", &["rm", &ours.url("missing")], "no such file")
}

fn text(path: &Path) -> anyhow::Result<&str> {
    path.to_str().context("the job's folder has no UTF-8 name")
}

struct Client<'a> {
    context: &'a Context<'a>,
    nfsd: &'a Nfsd,
}

impl Client<'_> {
    /// Fails unless [`COMMANDS`] and [`ELSEWHERE`] together are all commands of the program.
    fn all_are_tried(&self) -> anyhow::Result<()> {
        let help = self.run("help", &["help"])?.stdout;
        let listed = help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
        let found: Vec<_> = listed.filter_map(|line| line.split_whitespace().next()).collect();
        let tried = |name: &str| COMMANDS.iter().any(|(command, _)| *command == name);
        if let Some(untried) = found.iter().find(|name| !tried(name) && !ELSEWHERE.contains(name)) {
            bail!("the program has a command {untried}, which is not tried here");
        }
        if let Some((lacking, _)) = COMMANDS.iter().find(|(name, _)| !found.contains(name)) {
            bail!("the program has no command {lacking}");
        }
        Ok(())
    }

    fn url(&self, path: &str) -> String {
        self.nfsd.url(path)
    }

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

    /// Fails unless a file here has the same bytes as a file in the guest.
    fn same_as_in_guest(&self, here: &Path, there: &str) -> anyhow::Result<()> {
        let there = self.nfsd.run(&format!("sha256sum {there}"))?;
        let mut command = Command::new("sha256sum");
        command.arg(here);
        let found = self.context.run("sum", command)?.expect_success()?.stdout;
        let sum = |said: &str| said.split_whitespace().next().map(str::to_owned);
        ensure!(sum(&found).is_some() && sum(&found) == sum(&there), "{found} is not what the guest has: {there}");
        Ok(())
    }
}
