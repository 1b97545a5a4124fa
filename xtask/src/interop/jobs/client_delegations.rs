//! A Linux client gets delegations, and returns them when another client (of any version) or a program of the host
//! wants the file. The server recalls them over the connection that the client has opened; in minor version 0 it makes
//! a connection of its own to call the client.

use super::Job;
use crate::interop::{
    context::Context,
    flavour,
    guest::{Guest, GuestOptions},
    network::{self, Network},
    process,
    serve::{ServeOptions, Server},
    tshark,
};
use anyhow::ensure;
use std::{
    fs::{self, OpenOptions},
    io::{ErrorKind, Write as _},
    os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _},
    path::Path,
    thread,
    time::{Duration, Instant},
};

pub(super) const JOB: Job = Job {
    name: "client-delegations",
    about: "a client's delegations are recalled by version 3, by another client, by a program of the host, by REMOVE, RENAME and SETATTR",
    seconds: 400,
    guests: 2,
    scales: false,
    flavours: flavour::CALLED_BACK,
    run,
};

/// The guests in the order in which they boot.
const NAMES: [&str; 2] = ["holder", "other"];
const HOLDER: usize = 0;
const OTHER: usize = 1;

/// `O_NONBLOCK`: a program that opens a leased file gets an error instead of waiting.
const NONBLOCK: i32 = rustix::fs::OFlags::NONBLOCK.bits() as i32;

/// How long the server waits for a delegation that it has recalled, in seconds. No step of this job may take so long.
const LEASE: u64 = 60;

/// How long a recall may take, with the other client's next attempt: far below the lease.
const RECALLED_WITHIN: Duration = Duration::from_secs(30);

/// The operation number of CB_RECALL.
const CB_RECALL: u32 = 4;

/// How long the server's count may lag behind: it counts once a second.
const COUNTED_WITHIN: Duration = Duration::from_secs(5);

/// A conflicting access to a file of which the holder has a delegation.
struct Cause {
    /// The file's name.
    file: &'static str,
    /// What the other client does; `None` if a program of the host writes instead.
    does: Option<&'static str>,
    /// What the holder finds afterwards: the text of the file, or nothing if the file is gone.
    finds: Option<&'static str>,
}

const CAUSES: [Cause; 8] = [
    Cause { file: "by-3", does: Some("echo three >/mnt3/by-3"), finds: Some("three") },
    Cause { file: "by-4", does: Some("echo four >/mnt/by-4"), finds: Some("four") },
    Cause { file: "by-host", does: None, finds: Some("host") },
    Cause { file: "by-remove", does: Some("rm /mnt/by-remove"), finds: None },
    Cause { file: "by-remove-3", does: Some("rm /mnt3/by-remove-3"), finds: None },
    Cause { file: "by-rename", does: Some("mv /mnt/by-rename /mnt/renamed"), finds: None },
    Cause { file: "by-setattr", does: Some("chmod 640 /mnt/by-setattr"), finds: Some("before") },
    Cause { file: "by-size", does: Some("truncate -s 3 /mnt3/by-size"), finds: Some("bef") },
];

struct Pair<'a> {
    context: &'a Context<'a>,
    _network: Network<'a>,
    server: Server,
    guests: Vec<Guest>,
}

fn run(context: &Context) -> anyhow::Result<()> {
    let network = context.network(network::ETHERNET)?;
    let export = context.folder("export")?;
    fs::set_permissions(&export, fs::Permissions::from_mode(0o755))?;
    for cause in &CAUSES {
        fs::write(export.join(cause.file), "before\n")?;
    }
    for name in ["written", "asked"] {
        fs::write(export.join(name), "")?;
    }
    let lease = LEASE.to_string();
    let mut options = ServeOptions::new(export).argument("-v");
    for (option, value) in [("--lease", &*lease), ("--grace", &*lease), ("--nfs", "3,4.0,4.1,4.2")] {
        options = options.argument(option).argument(value);
    }
    let server = network.serve(options)?;
    let boot = |who: &&str| {
        let script = include_str!("../../../interop/guest/delegations.sh");
        network.guest(GuestOptions::new(who, script).mounts(&server).capture())
    };
    let mut guests = NAMES.iter().map(boot).collect::<anyhow::Result<Vec<_>>>()?;
    for guest in &mut guests {
        guest.wait_for_mark("ready")?;
    }
    let pair = Pair { context, _network: network, server, guests };
    // In minor version 0 an owner gets no delegation before it has confirmed its first open, and none for writing.
    let has_sessions = context.flavour().version != "4.0";
    if !has_sessions {
        pair.run(HOLDER, "cat /mnt/asked")?;
    }
    CAUSES.iter().try_for_each(|cause| pair.recalled(cause))?;
    if has_sessions {
        pair.written()?;
        pair.asked()?;
    }
    pair.finish()
}

impl Pair<'_> {
    /// Runs a command in a guest.
    fn run(&self, who: usize, command: &str) -> anyhow::Result<String> {
        Ok(self.guests[who].run(command)?.trim_end().to_owned())
    }

    /// How many delegations the server counts.
    fn held(&self) -> anyhow::Result<f64> {
        Ok(self.server.metrics()?.sum("rpcrdma_nfs4_stateids", &["kind=\"delegation\""]))
    }

    /// How many callbacks of an operation the client has answered without error.
    fn called(&self, operation: &str) -> anyhow::Result<f64> {
        let labels = [&*format!("operation=\"{operation}\""), "event=\"answered\""];
        Ok(self.server.metrics()?.sum("rpcrdma_nfs4_callbacks_total", &labels))
    }

    /// Waits until the server counts so many delegations.
    fn await_held(&self, words: &str, count: f64) -> anyhow::Result<()> {
        self.context.wait_for(words, COUNTED_WITHIN, || Ok(self.held()? == count))
    }

    /// The holder reads a file and gets a delegation; another client or a program wants the file and gets it soon; the
    /// holder sees what became of it.
    fn recalled(&self, cause: &Cause) -> anyhow::Result<()> {
        let Cause { file, does, finds } = cause;
        let (held, called) = (self.held()?, self.called("CB_RECALL")?);
        let found = self.run(HOLDER, &format!("cat /mnt/{file}"))?;
        ensure!(found == "before", "the holder reads {found:?} of {file}");
        self.await_held(&format!("the holder has a delegation of {file}"), held + 1.0)?;
        let begin = Instant::now();
        match does {
            Some(command) => drop(self.run(OTHER, command)?),
            None => on_host(&self.server.export().join(file), begin)?,
        }
        let took = begin.elapsed();
        ensure!(took < RECALLED_WITHIN, "{file}: somebody waited {took:?} for the delegation");
        self.await_held(&format!("the holder has given the delegation of {file} back"), held)?;
        let recalls = self.called("CB_RECALL")? - called;
        ensure!(recalls == 1.0, "{file}: {recalls} delegations were recalled instead of one");
        // The client caches names for half a minute, also without a delegation: this empties that cache.
        let forget = "echo 3 >/proc/sys/vm/drop_caches";
        let found = self.run(HOLDER, &format!("{forget}; cat /mnt/{file} 2>/dev/null || echo gone"))?;
        ensure!(found == finds.unwrap_or("gone"), "{file}: the holder finds {found:?}");
        // After a recall the server does not delegate the file for a while, so each cause has its own file.
        self.context.note(format!("{file} {:.1} s", took.as_secs_f64()));
        Ok(())
    }

    /// Another client reads what the holder has written under a delegation and not yet sent to the server.
    fn written(&self) -> anyhow::Result<()> {
        let called = self.called("CB_RECALL")?;
        self.run(HOLDER, "exec 7<>/mnt/written; echo kept >&7; sleep 600 >/dev/null 2>&1 7>&7 & echo $! >/tmp/keeps")?;
        let found = self.run(OTHER, "cat /mnt/written")?;
        ensure!(found == "kept", "another client reads {found:?} of what was written under a delegation");
        let recalls = self.called("CB_RECALL")? - called;
        ensure!(recalls >= 1.0, "nobody was asked for the delegation of what is written");
        self.run(HOLDER, "kill $(cat /tmp/keeps)").map(drop)
    }

    /// Only the holder knows the size of a file that it writes: the server must ask it.
    fn asked(&self) -> anyhow::Result<()> {
        let called = self.called("CB_GETATTR")? + self.called("CB_RECALL")?;
        let keeps =
            "exec 7<>/mnt/asked; head -c 5000 /dev/zero >&7; sleep 600 >/dev/null 2>&1 7>&7 & echo $! >/tmp/keeps";
        self.run(HOLDER, keeps)?;
        let found = self.run(OTHER, "stat -c %s /mnt/asked")?;
        ensure!(found == "5000", "another client is told {found} bytes of a file that is being written");
        let calls = self.called("CB_GETATTR")? + self.called("CB_RECALL")? - called;
        ensure!(calls >= 1.0, "nobody was asked for the size of what is written");
        self.run(HOLDER, "kill $(cat /tmp/keeps)").map(drop)
    }

    fn finish(self) -> anyhow::Result<()> {
        for guest in &self.guests {
            guest.say("end")?;
        }
        let mut wires = Vec::new();
        for guest in self.guests {
            wires.push(guest.finish()?.wire());
        }
        self.context.wait_for("the server counts no state after the last unmount", COUNTED_WITHIN, || {
            Ok(self.server.metrics()?.sum("rpcrdma_nfs4_stateids", &[]) == 0.0)
        })?;
        let metrics = self.server.finish()?;
        let revoked = metrics.sum("rpcrdma_nfs4_revocations_total", &[]);
        ensure!(revoked == 0.0, "{revoked} delegations were revoked of a client that gives them back");
        reverse_direction(self.context, &wires[HOLDER], CAUSES.len())
    }
}

/// Fails unless a capture has at least so many of the server's recalls and their answers, and our reader and tshark
/// find each of them.
pub(super) fn reverse_direction(context: &Context, wire: &Path, least: usize) -> anyhow::Result<()> {
    let mut command = context.command();
    command.arg("decode").arg(wire).args(["--procedure", "CB_RECALL"]);
    let shown = process::run(context, "decode-CB_RECALL", command)?.expect_success()?.stdout;
    let of = |kind: &str| shown.lines().filter(|line| line.contains(kind) && line.contains("CB_RECALL")).count();
    let ours = (of("Call NFS callback 1 CB_COMPOUND "), of("Reply NFS4_OK "));
    let theirs = tshark::callbacks(context, wire, CB_RECALL)?;
    context.note(format!("CB_RECALL and answers: decode {ours:?}, tshark {theirs:?}"));
    for (who, (calls, answers)) in [("decode", ours), ("tshark", theirs)] {
        let see = wire.display();
        ensure!(calls >= least, "{who} shows {calls} CB_RECALL instead of {least} in {see}");
        ensure!(answers >= least, "{who} shows {answers} answers to CB_RECALL instead of {least} in {see}");
    }
    Ok(())
}

/// A program of the host writes. It tries again instead of waiting, because the system's time for a wait
/// (`lease-break-time`) may be shorter than a recall takes.
fn on_host(file: &Path, begin: Instant) -> anyhow::Result<()> {
    loop {
        match OpenOptions::new().write(true).truncate(true).custom_flags(NONBLOCK).open(file) {
            Ok(mut file) => return Ok(file.write_all(b"host\n")?),
            Err(error) if error.kind() != ErrorKind::WouldBlock || begin.elapsed() > RECALLED_WITHIN => {
                return Err(error.into());
            }
            Err(_) => thread::sleep(Duration::from_millis(100)),
        }
    }
}
