//! Soaks: clients of both versions that check every byte in directories of their own, and clients of NFS version 4 that
//! share files by delegations and locks, beside peers that open, stall and repeat. Meanwhile connections are cut and,
//! if the arguments say so, the server is killed. Everything follows from a seed, except when things happen.
//!
//! A soak fails if data differ, if a call of a decent client takes longer than [`CALL_LIMIT`], if two clients have
//! claims that exclude each other (`holders`), if the server ends or gives a hostile peer a wrong answer, or if at
//! quiet points (all pause, hostile peers are gone) sockets are left, or memory or open files grow beyond the limits
//! (`report`). When all clients have gone, the server must say that it holds nothing.

mod decent;
mod files;
mod holders;
mod hostile;
mod relay;
mod report;
mod watch;

use crate::{
    clients::{CALL_LIMIT, Dialler},
    resources::{Resources, raise_descriptors},
    server::{Place, Server},
};
use anyhow::Context as _;
use report::Report;
use rpcrdma_nfs_client::Handle;
use rpcrdma_transport::Versions;
use std::{
    net::SocketAddr,
    path::Path,
    process::ExitCode,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};
use tokio::sync::RwLock;

/// Descriptors that this process needs.
const DESCRIPTORS: u64 = 2048;
/// The server's memory for calls and replies: little enough to run out of, now and then.
const MEMORY: &str = "96M";
/// The server's stall time-out, in seconds: shorter than by default, so that the server drops more peers.
const STALL_SECONDS: u64 = 5;
/// How long clients may reclaim after a restart, in seconds. Clients here do not reclaim after a restart.
const GRACE: &str = "1";
/// How often we look at what the server holds.
const SAMPLE_INTERVAL: Duration = Duration::from_secs(2);
/// How often the progress is printed.
const TELL_INTERVAL: Duration = Duration::from_secs(30);
/// The time between quiet points: in short runs, and in long runs.
const QUIET_EVERY: [Duration; 2] = [Duration::from_secs(5), Duration::from_secs(45)];
/// The least number of quiet points in a run, if it is not very short.
const QUIET_POINTS: u32 = 8;
/// How long it may take at a quiet point until all are quiet and the server has freed all connections that have gone:
/// twice the server's time for a call whose data do not come, and more for a busy machine.
const QUIET_PATIENCE: Duration = Duration::from_secs(4 * STALL_SECONDS + 40);

/// How to soak.
#[derive(Clone, Debug, clap::Args)]
pub struct Arguments {
    /// How long the soak lasts, such as 90s, 10m or 2h
    #[arg(long = "for", value_name = "TIME", default_value = "1m", value_parser = parse_time)]
    lasts: Duration,
    /// Seed of the random choices (default: a random seed, which the command prints)
    #[arg(long)]
    seed: Option<u64>,
    /// Number of clients: half in version 1 of RPC-over-RDMA, half in version 2; half of each over a path that is cut
    /// now and then
    #[arg(long, value_name = "N", default_value_t = 8)]
    clients: usize,
    /// Number of hostile addresses, each with several peers at a time
    #[arg(long, value_name = "N", default_value_t = 6)]
    hostile: usize,
    /// Number of clients of NFS version 4 that share files by delegations and locks, in turns over TCP and over RDMA of
    /// version 1 and 2
    #[arg(long, value_name = "N", default_value_t = 6)]
    holders: usize,
    /// Kill the server with SIGKILL at this interval, such as 1m, and start it again (default: never)
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    restart_every: Option<Duration>,
    /// Print the results as JSON
    #[arg(long)]
    json: bool,
}

/// A number with a unit.
fn parse_time(text: &str) -> Result<Duration, String> {
    let (number, seconds) = match text.strip_suffix(['s', 'm', 'h']) {
        Some(number) if text.ends_with('m') => (number, 60),
        Some(number) if text.ends_with('h') => (number, 3600),
        Some(number) => (number, 1),
        None => (text, 1),
    };
    let number: u32 = number.parse().map_err(|_| format!("{text:?} is no time such as 90s, 10m or 2h"))?;
    Ok(Duration::from_secs(u64::from(number) * seconds))
}

/// What all participants of a soak share.
struct Scene {
    seed: u64,
    /// Sockets of the server before the first connection: its listeners, those of its threads and of the runtimes.
    alone: u64,
    /// Each participant holds it for reading while it works; a quiet point holds it for writing.
    going: RwLock<()>,
    /// Whether hostile peers must hang up and begin nothing.
    quiet: AtomicBool,
    /// Whether everything has to end.
    over: AtomicBool,
    /// How often the server was started or killed: answers to hostile peers while it dies are not judged.
    starts: std::sync::atomic::AtomicU64,
    server: Mutex<Option<Server>>,
    found: Mutex<Report>,
}

impl Scene {
    /// Reports a failure of the soak.
    fn fail(&self, what: String) {
        self.report(|report| report.failures.push(what));
        self.over.store(true, Ordering::SeqCst);
    }

    fn report<T>(&self, change: impl FnOnce(&mut Report) -> T) -> T {
        change(&mut self.found.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn is_over(&self) -> bool {
        self.over.load(Ordering::SeqCst)
    }

    fn pid(&self) -> Option<u32> {
        self.server.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map(Server::pid)
    }
}

/// Runs a soak.
///
/// # Errors
/// If it cannot begin. The report and the exit code say what it finds.
pub fn run(program: &Path, folder: &Path, arguments: &Arguments) -> anyhow::Result<ExitCode> {
    raise_descriptors(DESCRIPTORS)?;
    let seed = match arguments.seed {
        Some(seed) => seed,
        None => rpcrdma_env::Random::next_u64(&rpcrdma_env::OsRandom::open()?) >> 32,
    };
    // Chosen here, so that a restarted server has the same addresses.
    let (tcp, metrics) = (free_port()?, free_port()?);
    let [stall, lease] = [STALL_SECONDS, holders::LEASE.as_secs()].map(|seconds| seconds.to_string());
    let [tcp_at, metrics_at] = [tcp, metrics].map(|address| address.to_string());
    let more = ["--memory", MEMORY, "--stall-timeout", &stall, "--lease", &lease, "--grace", GRACE];
    let more = [&more[..], &["--tcp", &tcp_at, "--metrics", &metrics_at]].concat();
    let more: Vec<_> = more.into_iter().map(str::to_owned).collect();
    let place = Place::new(program, folder, &more)?;
    let begin = Instant::now();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let report = runtime.block_on(soak(&place, (tcp, metrics), seed, arguments))?;
    runtime.shutdown_background();
    let report = Report { seconds: begin.elapsed().as_secs_f64(), ..report };
    if arguments.json {
        println!("{}", serde_json::to_string(&report)?);
    } else {
        print!("{report}");
    }
    Ok(if report.failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// A port of this machine that was free a moment ago.
fn free_port() -> anyhow::Result<SocketAddr> {
    Ok(std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?)
}

async fn soak(
    place: &Place,
    more: (SocketAddr, SocketAddr),
    seed: u64,
    arguments: &Arguments,
) -> anyhow::Result<Report> {
    eprintln!("soaking for {:?} with seed {seed}", arguments.lasts);
    let server = place.start(None)?;
    let at = (server.rdma, server.mount);
    let alone = Resources::of(server.pid()).context("the server is not to be seen")?.sockets;
    let scene = Arc::new(Scene {
        seed,
        alone,
        going: RwLock::new(()),
        quiet: AtomicBool::new(false),
        over: AtomicBool::new(false),
        starts: std::sync::atomic::AtomicU64::new(1),
        server: Mutex::new(Some(server)),
        found: Mutex::new(Report { seed, ..Report::default() }),
    });
    let result = take_part(place, at, more, arguments, &scene).await;
    // Tasks that still run hold the scene, so the server is dropped here.
    drop(scene.server.lock().unwrap_or_else(PoisonError::into_inner).take());
    result?;
    let log = std::fs::read_to_string(place.log()).unwrap_or_default();
    if log.contains("panicked") {
        scene.fail(format!("the server has panicked: {}", log.lines().last().unwrap_or_default()));
    }
    Ok(scene.report(|report| Report { log_octets: log.len(), ..std::mem::take(report) }))
}

/// Starts all participants, and waits for their end.
async fn take_part(
    place: &Place,
    at: (SocketAddr, SocketAddr),
    (tcp, metrics): (SocketAddr, SocketAddr),
    arguments: &Arguments,
    scene: &Arc<Scene>,
) -> anyhow::Result<()> {
    let dialler = Dialler::new()?;
    let root = Handle::from(dialler.root(at.1).await.context("MOUNT")?);
    let relay = relay::start(at.0, scene.clone()).await?;
    let mut clients = tokio::task::JoinSet::new();
    for number in 0..arguments.clients {
        let versions = if number % 2 == 0 { Versions::One } else { Versions::Two };
        let to = if number / 2 % 2 == 0 { at.0 } else { relay };
        let nfs = dialler.connect(to, versions).await?;
        let who = decent::Decent::new(number, nfs, root.clone(), scene).await?;
        clients.spawn(who.work(scene.clone()));
    }
    let paths = holders::Paths { rdma: [at.0, relay], tcp: [tcp, relay::start(tcp, scene.clone()).await?] };
    let mut holders = holders::start(arguments.holders, &dialler, paths, &root, scene).await?;
    let command = tokio::spawn(decent::command(place.clone(), at, scene.clone()));
    let target = hostile::Target::find(&dialler, at.0, &root).await?;
    let hostile: Vec<_> = (0..arguments.hostile).map(|n| hostile::start(n, target.clone(), scene.clone())).collect();

    watch::conduct(place, at, arguments, scene).await;

    scene.over.store(true, Ordering::SeqCst);
    scene.quiet.store(true, Ordering::SeqCst);
    let leaving = async {
        for all in [&mut clients, &mut holders] {
            while let Some(left) = all.join_next().await {
                if let Err(error) = left {
                    scene.fail(format!("a client has failed: {error}"));
                }
            }
        }
        let _ = command.await;
    };
    if tokio::time::timeout(2 * CALL_LIMIT, leaving).await.is_err() {
        scene.fail("clients do not come to their end".to_owned());
    }
    for thread in hostile {
        let _ = tokio::task::spawn_blocking(move || thread.join()).await;
    }
    if scene.report(|report| report.failures.is_empty()) {
        for (what, value) in holders::judge_counts(metrics).await? {
            scene.fail(format!("all have gone, and the server says {what} {value}"));
        }
        scene.report(|report| report.judge_holders(arguments.lasts, arguments.holders));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units() {
        assert_eq!(parse_time("90s"), Ok(Duration::from_secs(90)));
        assert_eq!(parse_time("10m"), Ok(Duration::from_secs(600)));
        assert_eq!(parse_time("2h"), Ok(Duration::from_secs(7200)));
        assert_eq!(parse_time("7"), Ok(Duration::from_secs(7)));
        for wrong in ["", "m", "-1s", "1.5h", "5 m", "1d"] {
            assert!(parse_time(wrong).is_err(), "{wrong}");
        }
    }
}
