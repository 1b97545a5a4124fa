//! Many connections to one server, idle and active: what the server holds before, meanwhile and afterwards, and how
//! fast a decent client is among them.

use crate::{
    clients::{Busy, Crowd, Dialler},
    resources::{Resources, Sampler, raise_descriptors, tcp_octets},
    server::{Place, Server},
};
use anyhow::{Context as _, ensure};
use rpcrdma_transport::Versions;
use serde::Serialize;
use serde_json::Value;
use std::{
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

/// Descriptors that a process needs besides those of its connections.
const SPARE_DESCRIPTORS: u64 = 200;
/// How long the server gets no calls before we look at it, so that it has freed everything and its threads have become
/// idle.
const SETTLING: Duration = Duration::from_millis(1500);
/// How long we watch the server while its connections are idle.
const IDLE: Duration = Duration::from_secs(3);
/// How long the server may take to free connections that clients have closed.
const GONE: Duration = Duration::from_secs(30);
/// Calls under way of each connection when all call as fast as they can.
const DEPTH: usize = 4;
/// How long each connection pauses between calls when all call now and then.
const PAUSE: Duration = Duration::from_millis(200);
/// How long the decent client is measured, as a fraction of the time for which the others work.
const DECENT_PART: f64 = 0.7;

/// What to measure.
#[derive(Clone, Debug)]
pub struct Asked<'a> {
    /// The built command.
    pub program: &'a Path,
    /// Where the server's files go.
    pub folder: &'a Path,
    /// Connections.
    pub connections: usize,
    /// How long they are active, each way, in seconds.
    pub seconds: f64,
    /// Decides who calls what.
    pub seed: u64,
}

/// The results.
#[derive(Debug, Serialize)]
pub struct Report {
    /// Connections.
    pub connections: usize,
    /// How long they were active, each way.
    pub seconds: f64,
    /// The server's arguments beyond its defaults.
    pub arguments: Vec<String>,
    /// Version by version.
    pub versions: Vec<Version>,
    /// Resident memory of the process with all clients, in KiB. Not judged.
    pub clients_rss_kib: u64,
}

/// The results with one version of RPC-over-RDMA.
#[derive(Debug, Serialize)]
pub struct Version {
    /// The version.
    pub version: u8,
    /// The decent client alone.
    pub decent_alone: Decent,
    /// Before the connections were made.
    pub before: Resources,
    /// While they were idle.
    pub idle: Resources,
    /// Bytes of the server's own memory that an idle connection costs.
    pub idle_octets_each: u64,
    /// Bytes of TCP's buffers in the machine meanwhile, both ends.
    pub idle_tcp_octets: u64,
    /// Processor time for each second while they were idle.
    pub idle_cpu: f64,
    /// The decent client beside them while they were idle.
    pub decent_beside_idle: Decent,
    /// All connections make a call now and then.
    pub sometimes: Active,
    /// All connections make calls as fast as they can.
    pub flat_out: Active,
    /// When all connections are idle again.
    pub idle_again: Resources,
    /// After all connections have ended.
    pub after: Resources,
    /// After as many connections have been made again, have worked and ended.
    pub after_again: Resources,
}

/// A time in which all connections made calls.
#[derive(Debug, Serialize)]
pub struct Active {
    /// The most calls that a connection has under way.
    pub depth: usize,
    /// The pause between them, on average.
    pub pause_ms: u64,
    /// Calls a second, over all connections.
    pub calls_per_s: f64,
    /// How long they took.
    pub p50_us: u64,
    /// How long they took.
    pub p99_us: u64,
    /// The longest of them.
    pub longest_us: u64,
    /// The most that the server held meanwhile.
    pub peak: Resources,
    /// Bytes of the server's own memory for each connection, at that peak.
    pub octets_each: u64,
    /// The most that TCP's buffers held in the machine, both ends.
    pub peak_tcp_octets: u64,
    /// The server's processor time in each second.
    pub cpu: f64,
    /// The decent client among them.
    pub decent: Decent,
}

/// What `rpcrdma bench` reaches with one READ of 4 KiB at a time.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Decent {
    /// Calls a second.
    pub calls_per_s: f64,
    /// How long they took.
    pub p50_us: f64,
    /// How long they took.
    pub p99_us: f64,
}

/// Measures. Reports its progress to `say`.
///
/// # Errors
/// If there are not enough descriptors, if the server fails, or if a call does.
pub fn run(asked: &Asked<'_>, mut say: impl FnMut(&str)) -> anyhow::Result<Report> {
    let connections = asked.connections;
    raise_descriptors(connections as u64 + SPARE_DESCRIPTORS)?;
    // All clients have the same address, and the server gives one address at most three quarters of the places.
    let places = (connections * 4).div_ceil(3) + 16;
    let arguments = vec!["--max-connections".to_owned(), places.to_string()];
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let mut versions = Vec::new();
    for (version, spoken) in [(1, Versions::One), (2, Versions::Two)] {
        let place = Place::new(asked.program, &asked.folder.join(format!("version-{version}")), &arguments)?;
        versions.push(runtime.block_on(measure(asked, &place, version, spoken, &mut say))?);
    }
    let clients_rss_kib = Resources::of(std::process::id())?.rss_kib;
    Ok(Report { connections, seconds: asked.seconds, arguments, versions, clients_rss_kib })
}

async fn measure(
    asked: &Asked<'_>,
    place: &Place,
    version: u8,
    spoken: Versions,
    say: &mut impl FnMut(&str),
) -> anyhow::Result<Version> {
    let server = place.start(None)?;
    let (pid, at, count) = (server.pid(), (server.rdma, server.mount), asked.connections);
    let dialler = Dialler::new()?;
    say(&format!("version {version}: the decent client alone"));
    // Makes the server allocate, before the first look, what it keeps after any work.
    drop(Crowd::gather(&dialler, at, spoken, 1).await?);
    let seconds = asked.seconds * DECENT_PART;
    let decent_alone = decent(place, &server, version, seconds).await?;
    let before = settled(pid).await?;

    say(&format!("version {version}: {count} connections, idle"));
    let crowd = Crowd::gather(&dialler, at, spoken, count).await?;
    let mut idle = settled(pid).await?;
    ensure!(idle.sockets >= before.sockets + count as u64, "only {} sockets are open", idle.sockets);
    let idle_tcp_octets = tcp_octets();
    tokio::time::sleep(IDLE).await;
    let watched = Resources::of(pid)?;
    let idle_cpu = (watched.cpu_s - idle.cpu_s) / IDLE.as_secs_f64();
    idle = watched;
    let decent_beside_idle = decent(place, &server, version, seconds).await?;

    let mut active = Vec::new();
    for (depth, pause, words) in [(1, PAUSE, "now and then"), (DEPTH, Duration::ZERO, "as fast as it goes")] {
        say(&format!("version {version}: {count} connections call {words}"));
        let busy = Busy { depth, pause, lasts: Duration::from_secs_f64(asked.seconds), seed: asked.seed };
        active.push(active_for(&crowd, busy, place, &server, version, &before, count).await?);
    }
    let (Some(flat_out), Some(sometimes)) = (active.pop(), active.pop()) else { unreachable!() };
    let idle_again = settled(pid).await?;

    say(&format!("version {version}: they have gone, and come again"));
    let after = gone(crowd, pid, &before).await?;
    let crowd = Crowd::gather(&dialler, at, spoken, count).await?;
    let lasts = Duration::from_secs_f64(asked.seconds);
    crowd.work(Busy { depth: DEPTH, pause: Duration::ZERO, lasts, seed: !asked.seed }).await?;
    let after_again = gone(crowd, pid, &before).await?;
    Ok(Version {
        version,
        decent_alone,
        before,
        idle,
        idle_octets_each: idle.octets_each(&before, count),
        idle_tcp_octets,
        idle_cpu,
        decent_beside_idle,
        sometimes,
        flat_out,
        idle_again,
        after,
        after_again,
    })
}

async fn active_for(
    crowd: &Crowd,
    busy: Busy,
    place: &Place,
    server: &Server,
    version: u8,
    before: &Resources,
    count: usize,
) -> anyhow::Result<Active> {
    let pid = server.pid();
    let (begin, sampler) = (Resources::of(pid)?, Sampler::start(pid));
    let seconds = busy.lasts.as_secs_f64() * DECENT_PART;
    let both = tokio::join!(crowd.work(busy), decent(place, server, version, seconds));
    let (done, decent) = (both.0?, both.1?);
    let cpu = (Resources::of(pid)?.cpu_s - begin.cpu_s) / done.took.as_secs_f64();
    let (peak, peak_tcp_octets) = sampler.finish();
    Ok(Active {
        depth: busy.depth,
        pause_ms: busy.pause.as_millis() as u64,
        calls_per_s: done.calls as f64 / done.took.as_secs_f64(),
        p50_us: done.times_us.value_at_quantile(0.5),
        p99_us: done.times_us.value_at_quantile(0.99),
        longest_us: done.times_us.max(),
        peak,
        octets_each: peak.octets_each(before, count),
        peak_tcp_octets,
        cpu,
        decent,
    })
}

/// What the server holds after a moment without work.
async fn settled(pid: u32) -> anyhow::Result<Resources> {
    tokio::time::sleep(SETTLING).await;
    Ok(Resources::of(pid)?)
}

/// Ends a crowd, and waits until the server has freed its connections.
async fn gone(crowd: Crowd, pid: u32, before: &Resources) -> anyhow::Result<Resources> {
    drop(crowd);
    let most = before.sockets;
    let gone = tokio::task::spawn_blocking(move || Resources::wait_for_sockets(pid, most, GONE)).await??;
    ensure!(gone, "the server keeps sockets of connections that were closed {} s ago", GONE.as_secs());
    settled(pid).await
}

/// Measures the decent client, which is a process of its own.
async fn decent(place: &Place, server: &Server, version: u8, seconds: f64) -> anyhow::Result<Decent> {
    let url = format!("{}&rpcrdma={version}", server.url("shared-0"));
    let mut command = Command::new(&place.program);
    command.args(["bench", &url, "--op", "read", "--block", "4K", "--depth", "1", "--json"]);
    command.args(["--seconds", &seconds.to_string()]).stderr(Stdio::piped());
    let output = tokio::task::spawn_blocking(move || command.output()).await??;
    ensure!(output.status.success(), "bench: {}", String::from_utf8_lossy(&output.stderr).trim());
    let report: Value = serde_json::from_slice(&output.stdout).context("bench's report")?;
    let number = |key: &str| report[key].as_f64().with_context(|| format!("bench does not tell {key}"));
    Ok(Decent { calls_per_s: number("ops_per_s")?, p50_us: number("p50_us")?, p99_us: number("p99_us")? })
}
