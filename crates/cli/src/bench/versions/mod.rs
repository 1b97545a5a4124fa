//! What version 2 of RPC-over-RDMA buys: the same calls over both versions, side by side.
//!
//! This process starts itself once more as the server, and has connections of both versions to it at the same time.
//! Calls and replies have nothing in them that could be placed directly, so that the versions differ most: version 1
//! moves what fits no Send by RDMA Read and Write, version 2 can go on in another Send. First each kind of call is made
//! some times over connections that count, then it is timed over others that do not, in rounds in which the versions
//! take turns.
//!
//! Versions 3 and 4.2 of NFS are compared in the same way over each: a file's attributes, and READ and WRITE of it.

mod count;
mod nfs;
mod peer;
mod programs;
mod report;

use super::{
    affinity::{one_processor, stay_on, two_processors},
    baseline::Peer,
    cpu::own_seconds,
    load::Sample,
};
use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use count::{Counter, Counts};
use programs::{Addresses, COUNTS, DIRECTORIES, ECHO, PROGRAM, ServerState, VERSION};
use report::{Line, Times};
use rpcrdma_env::{BusyPoll, Env, tokio_env};
use rpcrdma_fabric::{Fabric, trace::TraceFabric};
use rpcrdma_iwarp::{Config, Iwarp};
use rpcrdma_nfs::{
    mount,
    v3::{self, Handle, Verifier},
};
use rpcrdma_nfs_client::{Mount, Nfs3};
use rpcrdma_oncrpc::{Client, ClientTransport, NoAuth, ReplyShape};
use rpcrdma_transport::{ClientOptions, Observer, Quiet, Versions};
use rpcrdma_xdr::{Encoder, padded};
use std::{
    io::{BufRead, BufReader},
    net::SocketAddr,
    process::{Command, Stdio},
    sync::Arc,
    time::{Duration, Instant},
};

pub(super) use peer::run as peer;

/// The lengths that are moved, in bytes: from one that fits any Send to one that fits one FPDU.
const SIZES: [u32; 8] = [512, 1 << 10, 2 << 10, 4 << 10, 8 << 10, 16 << 10, 32 << 10, 64 << 10];
/// How often the versions take turns. Medians are taken over this many samples.
const ROUNDS: usize = 5;
/// Calls before each sample, which are not timed.
const WARM_UP: usize = 8;
/// Calls that are counted. What is done once in several calls, such as to grant credits, shows as a fraction.
const COUNTED: u64 = 64;

/// A kind of call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Case {
    /// A long call, answered with eight bytes.
    Call,
    /// A short call whose reply has this many bytes, as the client knows.
    Reply,
    /// READDIRPLUS of a large directory, with room for this many bytes.
    Listing,
    /// READDIRPLUS of a directory with three files, with the same room.
    ShortListing,
    /// A file's attributes, in a version of NFS.
    Attributes(nfs::Version),
    /// READ of this many bytes.
    Read(nfs::Version),
    /// WRITE of this many bytes.
    Write(nfs::Version),
}

impl Case {
    /// All cases with their lengths, in groups that take turns: over both versions of RPC-over-RDMA, in both of NFS.
    fn groups(only: Option<u32>) -> Vec<(Vec<Case>, u32)> {
        let transport = [Case::Call, Case::Reply, Case::Listing, Case::ShortListing];
        let transport = transport.iter().flat_map(|case| SIZES.map(|octets| (vec![*case], octets)));
        let both = |case: fn(nfs::Version) -> Case| nfs::Version::ALL.map(case).to_vec();
        let sized = |case| nfs::SIZES.map(|octets| (both(case), octets));
        let nfs = [(both(Case::Attributes), 0)].into_iter().chain(sized(Case::Read)).chain(sized(Case::Write));
        transport.chain(nfs).filter(|(_, octets)| only.is_none_or(|only| only == *octets)).collect()
    }

    /// The version of NFS, where versions are compared.
    fn nfs(self) -> Option<nfs::Version> {
        match self {
            Case::Call | Case::Reply | Case::Listing | Case::ShortListing => None,
            Case::Attributes(version) | Case::Read(version) | Case::Write(version) => Some(version),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Case::Call => "call",
            Case::Reply => "reply",
            Case::Listing => "listing",
            Case::ShortListing => "short_listing",
            Case::Attributes(_) => "getattr",
            Case::Read(_) => "read",
            Case::Write(_) => "write",
        }
    }
}

/// How the calls are measured.
#[derive(Clone, Copy)]
pub(super) struct Plan {
    /// The time for each line, all rounds together.
    pub(super) time: Duration,
    /// A processor for each process.
    pub(super) apart: bool,
    pub(super) busy_poll: BusyPoll,
    pub(super) json: bool,
    /// The only length to measure, if one is given.
    pub(super) octets: Option<u32>,
    /// The most Sends of a call and of a reply, if not the usual.
    pub(super) call_parts: Option<usize>,
    pub(super) reply_parts: Option<usize>,
}

pub(super) fn run(plan: &Plan) -> Result<()> {
    let known = plan.octets.is_none_or(|octets| SIZES.contains(&octets) || nfs::SIZES.contains(&octets));
    ensure!(known, "--versions measures 512 bytes to 64 KiB, in powers of two, and 1 MiB");
    let (own, others) = if plan.apart {
        let [own, others] = two_processors()?;
        (own, others)
    } else {
        let one = one_processor()?;
        (one, one)
    };
    let mut command = Command::new(std::env::current_exe().context("finding this program")?);
    command.args(["bench", "--versions-peer", "--cpu", &others.to_string()]);
    command.args(["--busy-poll", &plan.busy_poll.to_string()]);
    // Closing its standard input ends the other process, if this one cannot.
    let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().context("starting the other process")?;
    let mut peer = Peer(child);
    let mut line = String::new();
    let stdout = peer.0.stdout.take().context("the other process has no output")?;
    BufReader::new(stdout).read_line(&mut line)?;
    let addresses = Addresses::parse(&line).context("the other process does not say where it listens")?;
    stay_on(own)?;
    let measure = measure(addresses, *plan);
    // The runtime wakes its outermost future only after it has asked the system for events, a task at once.
    let lines = crate::running::block_on(async { tokio::spawn(measure).await? })?;
    report::print(&lines, plan.json)
}

async fn measure(addresses: Addresses, plan: Plan) -> Result<Vec<Line>> {
    let env = tokio_env().context("the system gives no clock or no random numbers")?;
    let mut config = Config::default();
    config.busy_poll = plan.busy_poll;
    let plain: Arc<dyn Fabric> = Arc::new(Iwarp::new(env.clone(), config));
    let counter = Arc::new(Counter::default());
    let traced: Arc<dyn Fabric> = Arc::new(TraceFabric::new(plain.clone(), counter.clone(), env.clone()));

    let mut counting = Vec::new();
    let mut timing = Vec::new();
    for versions in [Versions::One, Versions::Two] {
        let mut options = ClientOptions::default();
        options.versions = versions;
        options.call_parts = plan.call_parts.unwrap_or(options.call_parts);
        options.reply_parts = plan.reply_parts.unwrap_or(options.reply_parts);
        counting.push(End::connect(&traced, addresses.traced, &env, options.clone(), counter.clone()).await?);
        timing.push(End::connect(&plain, addresses.plain, &env, options, Arc::new(Quiet)).await?);
    }
    // The server is asked over a connection that is not counted.
    let control = timing.first().context("no connection")?.echo.clone();
    let mut lines = Vec::new();
    for (cases, octets) in Case::groups(plan.octets) {
        for case in cases {
            for (version, end) in (1..).zip(&counting) {
                end.repeat(case, octets, COUNTED).await?;
                let before = (counter.counts(), server(&control).await?.counts);
                end.repeat(case, octets, COUNTED).await?;
                let client = counter.counts().since(&before.0);
                let server = server(&control).await?.counts.since(&before.1);
                lines.push(Line { case, octets, version, calls: COUNTED, client, server, rounds: Vec::new() });
            }
        }
    }
    let sample = plan.time / u32::try_from(ROUNDS)?;
    for round in 0..ROUNDS {
        let is_same = |one: &Line, other: &Line| one.case.name() == other.case.name() && one.octets == other.octets;
        for group in lines.chunk_by_mut(is_same) {
            // The version that runs second finds warmer caches: the versions take turns in that, too.
            let mut turns: Vec<_> = group.iter_mut().zip(timing.iter().cycle()).collect();
            if round % 2 == 1 {
                turns.reverse();
            }
            for (line, end) in turns {
                line.rounds.push(end.time(line.case, line.octets, sample, &control).await?);
            }
        }
    }
    Ok(lines)
}

/// The server's counts, and the processor time that it has used.
async fn server(control: &Client) -> Result<ServerState> {
    Ok(control.call_inline(COUNTS, &(), ServerState::OCTETS).await?)
}

/// The callers of one connection: one version, all programs.
struct End {
    echo: Client,
    nfs: Nfs3,
    large: Handle,
    small: Handle,
    data: nfs::Data,
    octets: Bytes,
}

impl End {
    async fn connect(
        fabric: &Arc<dyn Fabric>,
        server: SocketAddr,
        env: &Env,
        options: ClientOptions,
        observer: Arc<dyn Observer>,
    ) -> Result<Self> {
        let (transport, driver) = rpcrdma_transport::connect(fabric.clone(), server, env, options, observer).await?;
        tokio::spawn(driver);
        let client = |program, version| Client::new(transport.clone(), Arc::new(NoAuth), program, version);
        let nfs = Nfs3::new(client(v3::PROGRAM, v3::VERSION), env.clock.clone());
        let mount = Mount::new(client(mount::PROGRAM, mount::VERSION_3));
        let [large, small] = DIRECTORIES;
        let octets = Bytes::from(vec![1; SIZES.iter().copied().max().unwrap_or(0) as usize]);
        let large = mount.mount(large.into()).await?.root;
        let small = mount.mount(small.into()).await?.root;
        let transport: Arc<dyn ClientTransport> = transport.clone();
        let data = nfs::Data::open(&transport, env).await?;
        Ok(Self { echo: client(PROGRAM, VERSION), nfs, large, small, data, octets })
    }

    async fn once(&self, case: Case, octets: u32) -> Result<()> {
        let len = octets as usize;
        match case {
            Case::Call => self.echo(len, 0).await,
            Case::Reply => self.echo(0, len).await,
            Case::Listing | Case::ShortListing => {
                let directory = if case == Case::Listing { &self.large } else { &self.small };
                let listing = self.nfs.readdirplus(directory, 0, Verifier::default(), octets).await?;
                // The large directory never ends in one listing. The small one does not fit the least room.
                let ends = case == Case::Listing && listing.end;
                ensure!(!listing.entries.is_empty() && !ends, "the listing has too few names");
                Ok(())
            }
            Case::Attributes(version) => self.data.attributes(version).await,
            Case::Read(version) => self.data.read(version, octets).await,
            Case::Write(version) => self.data.write(version, octets).await,
        }
    }

    /// A call with `call` bytes, answered with `reply` bytes.
    async fn echo(&self, call: usize, reply: usize) -> Result<()> {
        let mut args = Encoder::new();
        args.u32(u32::try_from(reply)?);
        args.opaque_shared(self.octets.slice(..call));
        let shape = ReplyShape::inline(4 + 4 + padded(reply));
        let mut results = self.echo.call_repeatable(ECHO, args.finish(), shape).await?.decoder;
        ensure!(results.count(call)? == call, "the server did not receive all bytes of the call");
        ensure!(results.opaque(reply)?.len() == reply, "the reply does not have all bytes that were asked for");
        Ok(results.finish()?)
    }

    async fn repeat(&self, case: Case, octets: u32, calls: u64) -> Result<()> {
        for _ in 0..calls {
            self.once(case, octets).await?;
        }
        Ok(())
    }

    /// Calls, one after the other, for some time.
    async fn time(&self, case: Case, octets: u32, time: Duration, control: &Client) -> Result<Times> {
        for _ in 0..WARM_UP {
            self.once(case, octets).await?;
        }
        let mut sample = Sample::new();
        let (server_cpu_s, cpu_s) = (server(control).await?.cpu_s(), own_seconds());
        let begin = Instant::now();
        let mut last = begin;
        while last - begin < time {
            self.once(case, octets).await?;
            let now = Instant::now();
            sample.record(now - last, octets.into());
            last = now;
        }
        let (cpu_s, server_cpu_s) = (own_seconds() - cpu_s, server(control).await?.cpu_s() - server_cpu_s);
        let each = |seconds: f64| seconds * 1e6 / sample.ops().max(1) as f64;
        Ok(Times {
            p50_us: sample.micros(0.5),
            p99_us: sample.micros(0.99),
            cpu_us: each(cpu_s),
            server_cpu_us: each(server_cpu_s),
        })
    }
}
