//! Clients: many connections through the project's own library, all of them tasks of one process.

use anyhow::Context as _;
use bytes::Bytes;
use hdrhistogram::Histogram;
use rpcrdma_env::{Env, Heap, Random as _, SeededRandom};
use rpcrdma_fabric::Fabric;
use rpcrdma_iwarp::{Config, Iwarp};
use rpcrdma_nfs::{
    attr::{NewAttributes, Stability},
    mount, v3,
};
use rpcrdma_nfs_client::{Access, CreateHow, Files, Handle, Mount, Name, Nfs3, Writer};
use rpcrdma_oncrpc::{
    Client, ClientTransport, SysAuth, SysCredential,
    tcp::{self, TcpConnector},
};
use rpcrdma_transport::{ClientOptions, Quiet, Versions};
use std::{
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::{sync::Semaphore, task::JoinSet};

/// Connections that are set up at a time: fewer than a server allows from one address.
const SETUPS: usize = 32;
/// How long any one call may take before the run has failed: far longer than any honest delay.
pub const CALL_LIMIT: Duration = Duration::from_secs(60);
/// The longest time that the histogram distinguishes, in microseconds.
const LONGEST_US: u64 = 600_000_000;
/// Files that a crowd shares, and their size in bytes.
const FILES: usize = 16;
const FILE_BYTES: u64 = 1 << 20;
/// Bytes of the crowd's READs and WRITEs.
pub const BLOCK_BYTES: u32 = 16 << 10;
/// Of ten calls, so many are READs and so many WRITEs; the others are GETATTRs.
pub const READS_OF_TEN: u64 = 5;
/// See [`READS_OF_TEN`].
pub const WRITES_OF_TEN: u64 = 2;

/// Makes connections.
#[derive(Clone)]
pub struct Dialler {
    env: Env,
    fabric: Arc<dyn Fabric>,
}

impl Dialler {
    /// Makes connections over software iWARP. Call it within a runtime.
    ///
    /// # Errors
    /// If the system has no randomness.
    pub fn new() -> anyhow::Result<Self> {
        let env = rpcrdma_env::tokio_env()?;
        let fabric = Arc::new(Iwarp::new(env.clone(), Config::default()));
        Ok(Self { env, fabric })
    }

    /// Where time and randomness come from.
    pub fn env(&self) -> Env {
        self.env.clone()
    }

    /// What carries RDMA.
    pub fn fabric(&self) -> Arc<dyn Fabric> {
        self.fabric.clone()
    }

    /// Connects to a server. The connection ends when the last clone of the client is dropped.
    ///
    /// # Errors
    /// If the connection cannot be made, or the server does not answer.
    pub async fn connect(&self, server: SocketAddr, versions: Versions) -> anyhow::Result<Files> {
        let transport = self.rdma(server, versions).await?;
        let identity = Arc::new(SysAuth::new(SysCredential::default()));
        let nfs = Nfs3::new(Client::new(transport, identity, v3::PROGRAM, v3::VERSION), self.env.clock.clone());
        tokio::time::timeout(CALL_LIMIT, nfs.null()).await.context("NULL")??;
        Ok(nfs.into())
    }

    /// A connection over RDMA, for calls of any RPC program.
    ///
    /// # Errors
    /// If it cannot be made.
    pub async fn rdma(&self, server: SocketAddr, versions: Versions) -> anyhow::Result<Arc<dyn ClientTransport>> {
        let mut options = ClientOptions::default();
        options.versions = versions;
        let connecting = rpcrdma_transport::connect(self.fabric.clone(), server, &self.env, options, Arc::new(Quiet));
        let (transport, driver) = tokio::time::timeout(CALL_LIMIT, connecting).await.context("connecting")??;
        tokio::spawn(driver);
        Ok(transport)
    }

    /// The same over TCP.
    ///
    /// # Errors
    /// If it cannot be made.
    pub async fn tcp(&self, server: SocketAddr) -> anyhow::Result<Arc<dyn ClientTransport>> {
        let connector = Arc::new(TcpConnector::new(server));
        let options = tcp::ClientOptions::default();
        let (transport, driver) = tcp::connect(connector, Arc::new(Heap), &self.env, options).await?;
        tokio::spawn(driver);
        Ok(transport)
    }

    /// The root of the server's export.
    ///
    /// # Errors
    /// If MOUNT does not answer with it.
    pub async fn root(&self, mount: SocketAddr) -> anyhow::Result<v3::Handle> {
        let transport = self.tcp(mount).await?;
        let identity = Arc::new(SysAuth::new(SysCredential::default()));
        let mount = Mount::new(Client::new(transport, identity, mount::PROGRAM, mount::VERSION_3));
        Ok(mount.mount(Bytes::from_static(b"/")).await?.root)
    }
}

/// Many connections to one server.
pub struct Crowd {
    members: Vec<Files>,
    files: Vec<Handle>,
}

/// How busy each connection of a crowd is.
#[derive(Clone, Copy, Debug)]
pub struct Busy {
    /// Calls that a connection has under way at a time.
    pub depth: usize,
    /// How long each of them pauses before the next, on average.
    pub pause: Duration,
    /// For how long.
    pub lasts: Duration,
    /// Decides which call is made when.
    pub seed: u64,
}

/// The work of a crowd.
pub struct Done {
    /// Calls.
    pub calls: u64,
    /// How long the calls took, in microseconds.
    pub times_us: Histogram<u64>,
    /// How long all of it took.
    pub took: Duration,
}

impl Crowd {
    /// Makes so many connections; each makes one call. Afterwards the files exist that they will use.
    ///
    /// # Errors
    /// If a connection cannot be made.
    pub async fn gather(
        dialler: &Dialler,
        (rdma, mount): (SocketAddr, SocketAddr),
        versions: Versions,
        count: usize,
    ) -> anyhow::Result<Self> {
        let root = Handle::from(dialler.root(mount).await?);
        let first = dialler.connect(rdma, versions).await?;
        let files = files(&first, &root).await?;
        let places = Arc::new(Semaphore::new(SETUPS));
        let mut joining = JoinSet::new();
        for _ in 1..count {
            let (dialler, places) = (dialler.clone(), places.clone());
            joining.spawn(async move {
                let _place = places.acquire_owned().await?;
                dialler.connect(rdma, versions).await
            });
        }
        let mut members = vec![first];
        while let Some(joined) = joining.join_next().await {
            members.push(joined?.with_context(|| format!("connection {} of {count}", members.len() + 1))?);
        }
        Ok(Self { members, files })
    }

    /// All of them make calls for some time.
    ///
    /// # Errors
    /// If a call fails, or takes longer than [`CALL_LIMIT`].
    pub async fn work(&self, busy: Busy) -> anyhow::Result<Done> {
        let begin = Instant::now();
        let mut working = JoinSet::new();
        for (number, nfs) in self.members.iter().enumerate() {
            for lane in 0..busy.depth {
                let random = SeededRandom::new(busy.seed ^ (number * busy.depth + lane) as u64);
                working.spawn(lane_of(nfs.clone(), self.files.clone(), random, busy, begin + busy.lasts));
            }
        }
        let mut times_us = Histogram::new_with_max(LONGEST_US, 3)?;
        while let Some(done) = working.join_next().await {
            times_us.add(done??)?;
        }
        Ok(Done { calls: times_us.len(), times_us, took: begin.elapsed() })
    }
}

/// The files that all connections use.
async fn files(nfs: &Files, root: &Handle) -> anyhow::Result<Vec<Handle>> {
    let mut files = Vec::new();
    let octets = Bytes::from(vec![0x5A; FILE_BYTES as usize]);
    for number in 0..FILES {
        let name = Name::from(format!("shared-{number}").as_str());
        let attributes = NewAttributes { mode: Some(0o666), ..NewAttributes::default() };
        let file = nfs.create(root, &name, CreateHow::Unchecked(attributes)).await?.file;
        let mut writer = Writer::new(file.clone(), 256 << 10, 4);
        writer.write(0, octets.clone()).await?;
        writer.finish().await?;
        files.push(file.handle());
        file.close().await?;
    }
    Ok(files)
}

/// One call after the other.
async fn lane_of(
    nfs: Files,
    handles: Vec<Handle>,
    random: SeededRandom,
    busy: Busy,
    end: Instant,
) -> anyhow::Result<Histogram<u64>> {
    let mut times = Histogram::new_with_max(LONGEST_US, 3)?;
    let data = Bytes::from(vec![0x5A; BLOCK_BYTES as usize]);
    let blocks = FILE_BYTES / u64::from(BLOCK_BYTES);
    let mut files = Vec::new();
    for handle in &handles {
        files.push(nfs.open(handle, Access::Both).await?);
    }
    loop {
        if !busy.pause.is_zero() {
            let micros = random.below(2 * busy.pause.as_micros() as u64);
            tokio::time::sleep(Duration::from_micros(micros)).await;
        }
        let begin = Instant::now();
        if begin >= end {
            return Ok(times);
        }
        let file = &files[random.below(files.len() as u64) as usize];
        let offset = random.below(blocks) * u64::from(BLOCK_BYTES);
        let kind = random.below(10);
        let call = async {
            if kind < READS_OF_TEN {
                let read = file.read(offset, BLOCK_BYTES).await?;
                anyhow::ensure!(read.data == data, "other bytes than were written");
            } else if kind < READS_OF_TEN + WRITES_OF_TEN {
                file.write(offset, Stability::Unstable, data.clone()).await?;
            } else {
                file.getattr().await?;
            }
            Ok(())
        };
        tokio::time::timeout(CALL_LIMIT, call).await.context("a call is not answered")??;
        times.saturating_record(begin.elapsed().as_micros() as u64);
    }
}
