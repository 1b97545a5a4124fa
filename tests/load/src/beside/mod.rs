//! Compares version 4.2 of NFS with version 3: how fast READ and WRITE of one file are in each, over the same
//! connection.
//!
//! The versions take turns in slices of a tenth of a second, in the order 3 4 4 3 3 4 4 3, so that other work of the
//! machine affects both. Each pair of slices gives a ratio of rates; we judge the median of these ratios, and their
//! spread shows how reliable it is.

mod calls;
mod report;
mod session;
mod spread;
mod turns;

use crate::{
    clients::Dialler,
    server::{Place, Server},
};
use anyhow::Context as _;
use calls::{Caller, File, Lane};
use clap::Args;
use report::{Line, Report};
use rpcrdma_fabric::pool::Pool;
use rpcrdma_nfs::{v3, v4};
use rpcrdma_oncrpc::{Client, ClientTransport, SysAuth, SysCredential};
use rpcrdma_transport::Versions;
use session::Session;
use std::{
    fs::{self, File as LocalFile},
    io::Write as _,
    os::unix::fs::PermissionsExt as _,
    path::Path,
    process::ExitCode,
    sync::Arc,
    time::Duration,
};
use turns::Load;

/// The file that is read and written: it is in memory completely.
const FILE: &str = "file";
const FILE_BYTES: u64 = 256 << 20;
/// Bytes of the blocks with which the file is made.
const BLOCK_BYTES: usize = 1 << 20;
/// How long a turn of one version lasts.
const SLICE: Duration = Duration::from_millis(100);
/// How many pairs of slices run before those that count.
const WARM_PAIRS: usize = 3;

/// How to measure.
#[derive(Args, Clone, Debug)]
pub struct Arguments {
    /// How long each version works on each line of the table
    #[arg(long, value_name = "S", default_value_t = 5.0)]
    seconds: f64,
    /// Over this transport alone: rdma, rdma-1 (version 1 of RPC-over-RDMA) or tcp
    #[arg(long, value_name = "TRANSPORT")]
    over: Option<Over>,
    /// These calls alone: read-1m, write-1m, read-4k, read-4k-alone
    #[arg(long, value_name = "CALLS")]
    calls: Option<Calls>,
    /// Measure version 3 beside itself: what is found then is noise
    #[arg(long)]
    noise: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// What carries the calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Over {
    /// Version 2 of RPC-over-RDMA, software iWARP
    Rdma,
    /// Version 1, which Linux speaks
    #[value(name = "rdma-1")]
    Rdma1,
    /// TCP
    Tcp,
}

impl Over {
    const ALL: [Self; 3] = [Self::Rdma1, Self::Rdma, Self::Tcp];

    fn name(self) -> &'static str {
        match self {
            Self::Rdma => "RDMA, version 2",
            Self::Rdma1 => "RDMA, version 1",
            Self::Tcp => "TCP",
        }
    }
}

/// Which calls are measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Calls {
    /// READs of 1 MiB, eight under way
    #[value(name = "read-1m")]
    Read1M,
    /// WRITEs of 1 MiB, eight under way
    #[value(name = "write-1m")]
    Write1M,
    /// READs of 4 KiB, eight under way
    #[value(name = "read-4k")]
    Read4K,
    /// READs of 4 KiB, one after the other
    #[value(name = "read-4k-alone")]
    Read4KAlone,
}

impl Calls {
    const ALL: [Self; 4] = [Self::Read1M, Self::Write1M, Self::Read4K, Self::Read4KAlone];

    fn load(self) -> Load {
        let (writes, block, depth) = match self {
            Self::Read1M => (false, 1 << 20, 8),
            Self::Write1M => (true, 1 << 20, 8),
            Self::Read4K => (false, 4 << 10, 8),
            Self::Read4KAlone => (false, 4 << 10, 1),
        };
        Load::new(writes, block, depth, FILE_BYTES)
    }

    /// The least that version 4 has to reach, as a fraction of version 3's rate.
    fn wanted(self) -> f64 {
        match self {
            Self::Read1M | Self::Write1M => 0.95,
            Self::Read4K | Self::Read4KAlone => 0.85,
        }
    }
}

/// Measures, and prints the result. Fails if version 4 is too slow.
///
/// # Errors
/// If the server fails, or a call does.
pub fn run(program: &Path, folder: &Path, arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let more = ["--nfs", "3,4.2", "--tcp", "127.0.0.1:0"].map(str::to_owned);
    let place = Place::new(program, folder, &more)?;
    make_file(&place.export().join(FILE))?;
    let server = place.start(None)?;
    // As in `rpcrdma bench`, one thread does all work of a connection.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut lines = Vec::new();
    for over in Over::ALL.into_iter().filter(|over| arguments.over.is_none_or(|only| only == *over)) {
        lines.extend(runtime.block_on(measure(&server, over, arguments))?);
    }
    let report = Report { seconds: arguments.seconds, noise: arguments.noise, lines };
    if arguments.json {
        println!("{}", serde_json::to_string(&report)?);
    } else {
        print!("{report}");
    }
    Ok(if report.lines.iter().all(Line::is_met) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Makes a file whose pages are all in memory, and on the disk.
fn make_file(path: &Path) -> anyhow::Result<()> {
    let mut file = LocalFile::create(path).with_context(|| path.display().to_string())?;
    let block = vec![0x5A; BLOCK_BYTES];
    for _ in 0..FILE_BYTES / BLOCK_BYTES as u64 {
        file.write_all(&block)?;
    }
    file.sync_all()?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o666))?;
    Ok(())
}

/// Measures over one connection.
async fn measure(server: &Server, over: Over, arguments: &Arguments) -> anyhow::Result<Vec<Line>> {
    let dialler = Dialler::new()?;
    let transport = match over {
        Over::Rdma => dialler.rdma(server.rdma, Versions::Two).await?,
        Over::Rdma1 => dialler.rdma(server.rdma, Versions::One).await?,
        Over::Tcp => dialler.tcp(server.tcp.context("the server has no port for TCP")?).await?,
    };
    let three = Arc::new(version_3(&dialler, server, transport.clone()).await?);
    let depth = Calls::ALL.iter().map(|calls| calls.load().depth()).max().unwrap_or(1);
    let mut lanes: Vec<Lane> = (0..depth as u32).map(|slot| Lane { slot, sequence: 0 }).collect();
    let four = match arguments.noise {
        true => three.clone(),
        false => Arc::new(version_4(transport, over.name(), &mut lanes).await?),
    };
    let mut lines = Vec::new();
    for calls in Calls::ALL.into_iter().filter(|calls| arguments.calls.is_none_or(|only| only == *calls)) {
        let load = Arc::new(calls.load());
        let name = load.to_string();
        eprintln!("{}: {name}", over.name());
        let pairs = (arguments.seconds / SLICE.as_secs_f64()).ceil().max(1.0) as usize;
        let mut taken = Vec::new();
        for pair in 0..WARM_PAIRS + pairs {
            let turns = turns::pair(&three, &four, &load, &mut lanes, SLICE, server.pid(), pair % 2 == 1).await?;
            if pair >= WARM_PAIRS {
                taken.push(turns);
            }
        }
        lines.push(Line::of(over.name(), name, calls.wanted(), load.block(), &taken));
    }
    Ok(lines)
}

/// A client of either version over a transport.
fn client(transport: Arc<dyn ClientTransport>, version: u32) -> Client {
    let identity = Arc::new(SysAuth::new(SysCredential::default()));
    Client::new(transport, identity, v4::PROGRAM, version)
}

async fn version_3(dialler: &Dialler, server: &Server, transport: Arc<dyn ClientTransport>) -> anyhow::Result<Caller> {
    let directory = dialler.root(server.mount).await?;
    let (client, pool) = (client(transport, v3::VERSION), Pool::new());
    let lookup = v3::Lookup { directory, name: v3::Name::from(FILE) };
    let found = calls::exchange(&client, &lookup, &pool).await?.into_result();
    let file = found.map_err(|failure| anyhow::anyhow!("LOOKUP: {:?}", failure.status))?.file;
    Ok(Caller { client, pool, file: File::Three(file) })
}

async fn version_4(transport: Arc<dyn ClientTransport>, name: &str, lanes: &mut [Lane]) -> anyhow::Result<Caller> {
    let (client, pool) = (client(transport, v4::VERSION), Pool::new());
    let session = Session::new(&client, name, lanes.len() as u32).await.context("a session")?;
    let lane = lanes.first_mut().context("no slot")?;
    let opened = session.open(&client, lane, FILE).await.context("OPEN")?;
    Ok(Caller { client, pool, file: File::Four { session, opened } })
}
