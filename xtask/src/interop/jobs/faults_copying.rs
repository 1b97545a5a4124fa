//! The common part of the jobs about faults: a guest copies files to the server and back until the job stops it, its
//! files must then be right, and the server must have freed everything.

use crate::interop::{
    context::Context,
    exposition::Metrics,
    guest::{Ended, Guest, GuestOptions},
    serve::Server,
};
use anyhow::{Context as _, bail, ensure};
use std::{fs, process::Command, thread, time::Duration};

/// The guest's script.
pub(super) const SCRIPT: &str = include_str!("../../../interop/guest/faults-copy.sh");

/// A guest that copies files of so many bytes, at least so many times. The caller still says which server it mounts.
pub(super) fn guest(octets: usize, rounds: usize) -> GuestOptions {
    let guest = GuestOptions::new("client", SCRIPT).set("SIZE", octets).set("ROUNDS", rounds);
    guest
        .allow("nfs: server * not responding, still trying", "that is the fault")
        .allow("nfs: server * OK", "that is its end")
}

/// Ends the copying; all files on the server's disk are what the guest has. Returns the time of its longest command.
pub(super) fn finish(context: &Context, guest: Guest, server: &Server) -> anyhow::Result<(Ended, Duration)> {
    guest.say("enough")?;
    let ended = guest.finish()?;
    let sums = ended.read("sums")?;
    ensure!(!sums.is_empty(), "nothing was copied; see {}", ended.dir().display());
    same_on_disk(context, server, &sums, "copies")?;
    let longest = ended.read("longest")?.trim().parse().context("the longest command's time")?;
    Ok((ended, Duration::from_millis(longest)))
}

/// Compares files below the export with lines of `sha256sum`.
pub(super) fn same_on_disk(context: &Context, server: &Server, sums: &str, folder: &str) -> anyhow::Result<()> {
    let list = context.dir().join("sums-in-guest");
    fs::write(&list, sums)?;
    let mut command = Command::new("sha256sum");
    command.args(["--quiet", "-c"]).arg(&list).current_dir(server.export().join(folder));
    context
        .run("sums-on-disk", command)?
        .expect_success()
        .context("the server's disk has other bytes than the guest")?;
    Ok(())
}

/// How many files and sockets the server has open.
pub(super) fn open_files(server: &Server) -> anyhow::Result<usize> {
    let process = server.process().context("the server does not run")?;
    Ok(fs::read_dir(format!("/proc/{process}/fd"))?.count())
}

/// Bytes of the server's memory for calls and replies that are in use.
pub(super) fn memory_in_use(metrics: &Metrics) -> f64 {
    metrics.sum("rpcrdma_memory_bytes", &["what=\"in_use\""])
}

/// What a server holds for its clients.
#[derive(Debug, PartialEq)]
pub(super) struct Held {
    pub(super) connections: f64,
    pub(super) calls: f64,
    pub(super) memory: f64,
}

impl Held {
    /// What the server holds now.
    pub(super) fn by(server: &Server) -> anyhow::Result<Self> {
        let metrics = server.metrics()?;
        Ok(Self {
            connections: metrics.sum("rpcrdma_connections", &["transport=\"rdma\""]),
            calls: metrics.sum("rpcrdma_calls_in_progress", &[]),
            memory: memory_in_use(&metrics),
        })
    }

    const NOTHING: Self = Self { connections: 0.0, calls: 0.0, memory: 0.0 };
}

/// Waits until the server holds nothing for any client, and has no more sockets than before. Files of the export may
/// stay open for a while in the server's cache: they do not count.
pub(super) fn all_freed(
    context: &Context,
    server: &Server,
    sockets: usize,
    within: Duration,
) -> anyhow::Result<Duration> {
    let begin = std::time::Instant::now();
    loop {
        let (held, now) = (Held::by(server)?, open_sockets(server)?);
        if held == Held::NOTHING && now <= sockets {
            return Ok(begin.elapsed());
        }
        if begin.elapsed() > within {
            bail!(
                "after {:.1} s the server still holds {held:?} and has {now} sockets, {sockets} before; see {}",
                begin.elapsed().as_secs_f64(),
                context.dir().display()
            );
        }
        thread::sleep(Duration::from_millis(50));
    }
}

/// How many sockets the server has.
pub(super) fn open_sockets(server: &Server) -> anyhow::Result<usize> {
    let process = server.process().context("the server does not run")?;
    let files = fs::read_dir(format!("/proc/{process}/fd"))?.flatten();
    let links = files.filter_map(|file| fs::read_link(file.path()).ok());
    Ok(links.filter(|link| link.to_string_lossy().starts_with("socket:")).count())
}

/// How many connections ended for a reason, as the server names it.
pub(super) fn ended_for(metrics: &Metrics, reason: &str) -> f64 {
    metrics.sum("rpcrdma_connections_ended_total", &["transport=\"rdma\"", &format!("reason=\"{reason}\"")])
}
