//! `rpcrdma bench`: how fast a server answers, and how fast plain TCP is on the same machine.
//!
//! Calls of one kind are kept under way on one or more connections for a time. Each connection has a thread of its own,
//! unless `--threads` says that they share a few. Buffers for READ belong to the calls and are used again; WRITE sends
//! the same bytes again and again.

mod affinity;
mod baseline;
mod cpu;
mod limit;
mod load;
mod report;
mod settled;
mod target;
mod versions;

use crate::{
    args,
    capture::CaptureArgs,
    failure::{self, Usage},
    running::{block_on, captured},
    session::Sessions,
    transports::Options,
};
use anyhow::{Context, Result, bail, ensure};
use clap::{Args, ValueEnum};
use cpu::CpuMeter;
use limit::Waits;
use load::{Crew, Load, Sample};
use report::Report;
use rpcrdma::client::NfsUrl;
use rpcrdma_env::BusyPoll;
use settled::Settled;
use std::{
    net::SocketAddr,
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};
use target::Target;
use tokio::sync::{Semaphore, oneshot, watch};

/// The bytes of a block unless told otherwise.
const BLOCK_BYTES: u32 = 1 << 20;
/// How long a measurement takes unless told otherwise.
const TIME: Duration = Duration::from_secs(5);
/// The same for each line of a comparison of versions, all rounds together.
const VERSIONS_TIME: Duration = Duration::from_millis(500);
/// The most bytes in a block: no server takes more in one call.
const MAX_BLOCK_BYTES: usize = 64 << 20;
/// The most calls under way on one connection, far above any server's credits.
const MAX_DEPTH: u64 = 4096;
/// The most connections: each may have a thread.
const MAX_CONNECTIONS: u64 = 256;
/// The most connections that are set up at a time: a server need not take more of one address (ours takes 64).
const SETUPS: usize = 32;

#[derive(Debug, Args)]
#[command(after_help = "\
With --op read and --op write, all connections together go through the file in order, and begin
again at its end. Writes are UNSTABLE; the measurement includes one COMMIT at the end.")]
pub(crate) struct BenchArgs {
    /// The file; --op null ignores the path
    #[arg(required_unless_present_any = ["baseline", "baseline_peer", "limit", "versions", "versions_peer"], requires = "op")]
    url: Option<NfsUrl>,
    /// The call to measure
    #[arg(long, value_name = "OP", conflicts_with = "baseline")]
    op: Option<Op>,
    /// Bytes in each READ or WRITE, such as 4K or 1M, at most 64M [default: 1M]; with --versions: measure only this
    /// length
    #[arg(long, value_name = "SIZE", value_parser = parse_block)]
    block: Option<u32>,
    /// Calls under way at a time on each connection
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u64).range(1..=MAX_DEPTH))]
    depth: u64,
    /// Seconds of each measurement [default: 5; with --versions: 0.5 for each line]
    #[arg(long, value_name = "S", value_parser = parse_time)]
    seconds: Option<Duration>,
    /// Number of connections
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=MAX_CONNECTIONS))]
    connections: u64,
    /// Number of threads that share the connections [default: one for each connection]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=MAX_CONNECTIONS),
        conflicts_with_all = ["baseline", "limit", "versions"])]
    threads: Option<u64>,
    /// With --op write: write over a file that exists (if the file does not exist, the command creates it with 256 MiB)
    #[arg(long)]
    overwrite: bool,
    /// Also show the processor time of this process, which is the server on this machine
    #[arg(long, value_name = "PID")]
    server_pid: Option<u32>,
    /// Measure plain TCP between two processes on this machine: a stream of blocks, and requests of 128 bytes, one
    /// after the other, each answered with a block
    #[arg(long, conflicts_with_all = ["url", "overwrite", "server_pid", "capture"])]
    baseline: bool,
    /// Measure the most that this machine can do for --op without RPC: blocks of this file (if the file does not exist,
    /// the command creates it with 256 MiB; --op write writes over it), a CRC at each end, iWARP's framing and the
    /// system calls, between two processes of one thread each
    #[arg(long, value_name = "FILE", requires = "op",
        conflicts_with_all = ["url", "baseline", "versions", "overwrite", "server_pid", "capture"])]
    limit: Option<PathBuf>,
    /// With --limit, not for writes: how both ends wait for messages; epoll is for answers of at most 16 KiB only
    /// [default: read; with more than one connection: tokio]
    #[arg(long, value_name = "HOW", requires = "limit", conflicts_with_all = ["url", "baseline", "versions"])]
    waits: Option<Waits>,
    /// With --limit, for writes and for reads of more than 16 KiB over one connection: the end that has the file works
    /// as a server has to.
    /// It reads or receives each block whole, into memory of its own for each call under way, and looks at the file's
    /// attributes; it asks for the bytes of each write, which a second thread writes, as nobody if root runs it
    #[arg(long, requires = "limit", conflicts_with_all = ["url", "baseline", "versions"])]
    as_server: bool,
    /// With --limit and --waits tokio over one connection, for null, getattr, and reads of at most 16 KiB: both ends
    /// write and read the messages of NFS 3, RPC and RPC-over-RDMA 1.
    /// They do nothing else with them, so the time shows what the messages alone cost
    #[arg(long, requires = "limit", conflicts_with_all = ["url", "baseline", "versions"])]
    messages: bool,
    /// With --messages: each call under way is a task's, and the connection sends the calls of all tasks, as in a
    /// client that a program shares
    #[arg(long, requires = "messages", conflicts_with_all = ["url", "baseline", "versions"])]
    tasks: bool,
    /// Compare versions 1 and 2 of RPC-over-RDMA between two processes on one processor of this machine: calls and
    /// replies of 512 bytes to 64 KiB in which RDMA can place nothing directly, and directory listings with room for as
    /// many bytes. Over both versions, compare NFS 3 with NFS 4.2: a file's attributes, and READ and WRITE of 4 KiB, 64
    /// KiB and 1 MiB
    #[arg(long, conflicts_with_all = ["url", "baseline", "overwrite", "server_pid", "capture", "no_crc"])]
    versions: bool,
    /// With --versions: the most Sends of a call in version 2; the client puts a longer call into memory that the
    /// server reads [default: 32]
    #[arg(long, value_name = "N", requires = "versions", value_parser = clap::value_parser!(u16).range(1..))]
    call_parts: Option<u16>,
    /// With --versions: the most Sends of a reply in version 2; for a longer reply, the client gives the server memory
    /// to write to [default: 2]
    #[arg(long, value_name = "N", requires = "versions", value_parser = clap::value_parser!(u16).range(1..))]
    reply_parts: Option<u16>,
    /// Run each of the two processes of --baseline, --limit or --versions on its own processor
    #[arg(long)]
    apart: bool,
    /// The processor of the other process of --baseline, --limit or --versions
    #[arg(long, hide = true, value_name = "N")]
    cpu: Option<usize>,
    /// The other process of --versions
    #[arg(long, hide = true, conflicts_with_all = ["url", "baseline", "versions"])]
    versions_peer: bool,
    /// The other process of --baseline
    #[arg(long, hide = true, value_name = "ADDR:PORT", conflicts_with_all = ["url", "baseline", "capture"])]
    baseline_peer: Option<SocketAddr>,
    /// The other process of --limit
    #[arg(long, hide = true, value_name = "ADDR:PORT", requires = "limit")]
    limit_peer: Option<SocketAddr>,
    #[command(flatten)]
    capture: CaptureArgs,
    /// After each message, look for the next one for this time, at most 10000 microseconds, before the thread sleeps.
    /// auto: 100 microseconds, and only while messages come soon after one another; 0: sleep at once
    #[arg(long, value_name = "auto|MICROSECONDS", default_value_t)]
    busy_poll: BusyPoll,
    /// Do not ask for iWARP's CRC; a connection works without it only if the server does not ask for it either
    #[arg(long)]
    no_crc: bool,
    /// Print results and errors as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// What is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Op {
    /// Do nothing: the transport alone
    Null,
    /// Get a file's attributes
    Getattr,
    /// Read bytes of a file
    Read,
    /// Write bytes to a file
    Write,
}

impl Op {
    fn name(self) -> &'static str {
        match self {
            Op::Null => "null",
            Op::Getattr => "getattr",
            Op::Read => "read",
            Op::Write => "write",
        }
    }

    fn moves_data(self) -> bool {
        matches!(self, Op::Read | Op::Write)
    }
}

fn parse_block(text: &str) -> Result<u32, String> {
    let octets = args::parse_size(text)?;
    match u32::try_from(octets) {
        Ok(block) if octets <= MAX_BLOCK_BYTES => Ok(block),
        _ => Err(format!("{text:?} is above the limit of {} MiB", MAX_BLOCK_BYTES >> 20)),
    }
}

fn parse_time(text: &str) -> Result<Duration, String> {
    let time = args::parse_seconds(text)?;
    if time.is_zero() { Err("nothing can be measured in no time".into()) } else { Ok(time) }
}

pub(crate) fn run(args: &BenchArgs) -> Result<()> {
    let block = args.block.unwrap_or(BLOCK_BYTES);
    if let Some(address) = args.baseline_peer {
        return baseline::peer(address, block as usize, args.cpu);
    }
    if args.versions_peer {
        return versions::peer(args.cpu, args.busy_poll);
    }
    check(args)?;
    if let (Some(file), Some(op)) = (&args.limit, args.op) {
        let connections = args.connections;
        // A thread that waits in one connection's system call would not hear of the others.
        let waits = args.waits.unwrap_or(if connections > 1 { Waits::Tokio } else { Waits::Read });
        let work = limit::Work {
            op,
            block: block as usize,
            depth: args.depth as usize,
            waits,
            connections,
            as_server: args.as_server,
            messages: args.messages,
            tasks: args.tasks,
        };
        return match args.limit_peer {
            Some(address) => limit::peer(address, file, work, args.cpu),
            None => limit::measure(file, work, args.seconds.unwrap_or(TIME), args.apart)?.print(args.json),
        };
    }
    if args.versions {
        let time = args.seconds.unwrap_or(VERSIONS_TIME);
        let plan = versions::Plan {
            time,
            apart: args.apart,
            busy_poll: args.busy_poll,
            json: args.json,
            octets: args.block,
            call_parts: args.call_parts.map(usize::from),
            reply_parts: args.reply_parts.map(usize::from),
        };
        return versions::run(&plan);
    }
    if args.baseline {
        for report in baseline::measure(block as usize, args.seconds.unwrap_or(TIME), args.apart)? {
            report.print(args.json)?;
        }
        return Ok(());
    }
    let (Some(url), Some(op)) = (&args.url, args.op) else { bail!("nothing to measure") };
    captured(&args.capture, async { measure(args, url, op, block).await?.print(args.json) })
}

/// Refuses options that contradict each other, and warns of those that do nothing.
fn check(args: &BenchArgs) -> Result<(), Usage> {
    let is_pair = args.baseline || args.versions || args.limit.is_some();
    if args.apart && !is_pair {
        return Err(Usage("--apart is for --baseline, --limit and --versions".into()));
    }
    if args.overwrite && args.op != Some(Op::Write) {
        failure::warning("--overwrite has no effect without --op write");
    }
    if args.block.is_some() && !is_pair && !args.op.is_some_and(Op::moves_data) {
        failure::warning("--block has no effect without --op read or --op write");
    }
    Ok(())
}

/// A thread with its connections.
struct Worker {
    ready: oneshot::Receiver<Result<()>>,
    done: oneshot::Receiver<Result<Sample>>,
}

async fn measure(args: &BenchArgs, url: &NfsUrl, op: Op, block: u32) -> Result<Report> {
    let settled = Arc::new(Settled::default());
    let mut options = Options {
        no_crc: args.no_crc,
        capture: args.capture.clone(),
        busy_poll: args.busy_poll,
        observer: Some(settled.clone()),
        ..Options::default()
    };
    options.open_capture()?;
    let options = || options.clone();
    let meter = CpuMeter::new(args.server_pid)?;
    let mut sessions = Sessions::new(options())?;
    let target = match op {
        Op::Null => None,
        _ => Some(Target::open(&mut sessions, url, op, block, args.overwrite).await?),
    };
    let load = Load::new(op, block, args.depth as usize, target.as_ref().map(Target::file));
    let load = Arc::new(load);

    let (go, going) = watch::channel(None);
    let setups = Arc::new(Semaphore::new((SETUPS / usize::from(url.connections)).max(1)));
    let threads = args.threads.unwrap_or(args.connections).min(args.connections);
    let mut workers: Vec<Worker> = Vec::new();
    for number in 0..threads {
        let (ready, when_ready) = oneshot::channel();
        let (done, when_done) = oneshot::channel();
        let connections = (args.connections - number).div_ceil(threads);
        let crew = Crew { connections, setups: setups.clone(), ready, going: going.clone() };
        let (load, options, url) = (load.clone(), options(), url.clone());
        let work = move || {
            // The receiver is gone if another thread has failed.
            let _ = done.send(block_on(load::work(load, options, &url, crew)));
        };
        std::thread::Builder::new().name(format!("connection {number}")).spawn(work).context("starting a thread")?;
        workers.push(Worker { ready: when_ready, done: when_done });
    }
    for worker in &mut workers {
        (&mut worker.ready).await.context("a thread with connections has died")??;
    }

    let begin = Instant::now();
    let cpu = meter.start()?;
    go.send_replace(Some(begin + args.seconds.unwrap_or(TIME)));
    let mut all = Sample::new();
    let nfs = load.spoken().map(|spoken| spoken.to_string());
    for worker in workers {
        all.add(worker.done.await.context("a thread with connections has died")??)?;
    }
    if let (Op::Write, Some(target)) = (op, &target) {
        let started = Instant::now();
        let verifier = target.commit().await?;
        ensure!(all.same_verifier(verifier), "the server has restarted meanwhile");
        all.record(started.elapsed(), 0);
    }
    let elapsed = begin.elapsed();
    let (cpu_s, server_cpu_s) = cpu.elapsed(&meter)?;
    Ok(Report {
        op: op.name(),
        block: op.moves_data().then_some(block),
        depth: args.depth,
        elapsed,
        sample: all,
        cpu_s,
        server_cpu_s,
        rpcrdma: settled.version(),
        nfs,
        connections: args.connections * u64::from(url.connections),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_have_a_limit() {
        assert_eq!(parse_block("64M"), Ok(64 << 20));
        assert!(parse_block("67108865").is_err());
        assert!(parse_block("8G").is_err());
        assert!(parse_time("0").is_err() && parse_time("0.1").is_ok());
    }
}
