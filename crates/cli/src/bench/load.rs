//! Keeping calls under way, and counting them.

use super::{
    Op,
    target::{open, pattern},
};
use crate::{
    session::{Sessions, version_3},
    transports::Options,
};
use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use futures_util::{StreamExt, future::try_join_all, stream::FuturesUnordered};
use hdrhistogram::Histogram;
use rpcrdma::client::{
    NfsUrl, NfsVersion,
    command::{SessionVersion, is_no_such_version},
};
use rpcrdma_env::{Buffer, Memory};
use rpcrdma_nfs::attr::Stability;
use rpcrdma_nfs_client::{File, Files, Handle, Node, Verifier};
use rpcrdma_oncrpc::Client;
use rpcrdma_xdr::ItemData;
use std::{
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};
use tokio::sync::{Semaphore, oneshot, watch};

/// The longest time that is distinguished from longer ones, in nanoseconds: ten minutes.
const LONGEST_NS: u64 = 600_000_000_000;
/// Times are kept to this many decimal digits.
const DIGITS: u8 = 3;
/// The wait after a server has answered "try again later".
const WAIT: Duration = Duration::from_millis(100);

/// What all connections do together.
pub(super) struct Load {
    op: Op,
    block: u32,
    depth: usize,
    file: Option<(Node, u64)>,
    /// How many blocks have been asked for, by all connections: they walk the file together.
    walked: AtomicU64,
    octets: Bytes,
    /// The version of NFS that the connections speak.
    spoken: OnceLock<SessionVersion>,
}

impl Load {
    pub(super) fn new(op: Op, block: u32, depth: usize, file: Option<(Node, u64)>) -> Self {
        let octets = if op == Op::Write { pattern(block) } else { Bytes::new() };
        Self { op, block, depth, file, walked: AtomicU64::new(0), octets, spoken: OnceLock::new() }
    }

    /// The version of NFS, once a connection stands.
    pub(super) fn spoken(&self) -> Option<SessionVersion> {
        self.spoken.get().copied()
    }

    /// The next block of a file: offset and bytes, fewer than a block at the end of the file.
    fn next_block(&self, size: u64) -> (u64, u32) {
        let block = u64::from(self.block.max(1));
        let number = self.walked.fetch_add(1, Ordering::Relaxed) % size.div_ceil(block).max(1);
        let offset = number * block;
        (offset, (size - offset).min(block) as u32)
    }
}

/// The results of a load.
pub(super) struct Sample {
    times_ns: Histogram<u64>,
    pub(super) octets: u64,
    verifier: Option<Verifier>,
}

impl Sample {
    pub(super) fn new() -> Self {
        let times_ns = Histogram::new_with_max(LONGEST_NS, DIGITS).expect("the bounds are constants in range");
        Self { times_ns, octets: 0, verifier: None }
    }

    /// Counts an operation.
    pub(super) fn record(&mut self, time: Duration, octets: u64) {
        self.times_ns.saturating_record(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
        self.octets += octets;
    }

    /// Adds what another connection did.
    pub(super) fn add(&mut self, other: Sample) -> Result<()> {
        self.times_ns.add(&other.times_ns)?;
        self.octets += other.octets;
        if let Some(verifier) = other.verifier {
            ensure!(self.same_verifier(verifier), "the server has restarted meanwhile");
        }
        Ok(())
    }

    /// Whether there is no sign that the server has restarted between the writes and `verifier`.
    pub(super) fn same_verifier(&mut self, verifier: Verifier) -> bool {
        *self.verifier.get_or_insert(verifier) == verifier
    }

    pub(super) fn ops(&self) -> u64 {
        self.times_ns.len()
    }

    /// The time in microseconds within which this part of the operations ended.
    pub(super) fn micros(&self, part: f64) -> f64 {
        self.times_ns.value_at_quantile(part) as f64 / 1000.0
    }
}

/// The connections of a thread, and what it shares with the other threads.
pub(super) struct Crew {
    /// How many there are.
    pub(super) connections: u64,
    /// Limits how many connections are set up at a time, by all threads.
    pub(super) setups: Arc<Semaphore>,
    /// Learns that all of them are set up, or why not.
    pub(super) ready: oneshot::Sender<Result<()>>,
    /// The start, which names the time of the end.
    pub(super) going: watch::Receiver<Option<Instant>>,
}

/// One thread's work: connects, reports that it is ready, waits for the start, and goes on until the time that the
/// start names.
///
/// # Errors
/// If a call fails after the start. An earlier error goes to [`Crew::ready`].
pub(super) async fn work(load: Arc<Load>, options: Options, url: &NfsUrl, mut crew: Crew) -> Result<Sample> {
    let one = async || {
        let _set_up = crew.setups.acquire().await?;
        connect(&load, options.clone(), url).await
    };
    let connected = try_join_all((0..crew.connections).map(|_| one())).await;
    let callers = match connected {
        Ok(callers) => callers,
        Err(error) => {
            let _ = crew.ready.send(Err(error));
            anyhow::bail!("no connection");
        }
    };
    let _ = crew.ready.send(Ok(()));
    let end = crew.going.wait_for(Option::is_some).await.context("another connection has failed")?;
    let end = end.unwrap_or_else(Instant::now);
    // The runtime wakes its outermost future only after it has asked the system for events, a task at once.
    let tasks: Vec<_> = callers.into_iter().map(|caller| tokio::spawn(lanes(load.clone(), caller, end))).collect();
    let mut all = Sample::new();
    for task in tasks {
        all.add(task.await??)?;
    }
    Ok(all)
}

/// Keeps calls under way until `end`.
async fn lanes(load: Arc<Load>, caller: Caller, end: Instant) -> Result<Sample> {
    let sample = Mutex::new(Sample::new());
    let mut lanes: FuturesUnordered<_> = (0..load.depth).map(|_| lane(&load, &caller, &sample, end)).collect();
    while let Some(done) = lanes.next().await {
        done?;
    }
    drop(lanes);
    Ok(sample.into_inner().unwrap_or_else(PoisonError::into_inner))
}

/// What makes the calls of a connection.
enum Caller {
    Null(Client),
    /// Asks for attributes, of any kind of file.
    Attributes(Files, Handle),
    File {
        file: File,
        octets: u64,
        ring: Ring,
    },
}

async fn connect(load: &Load, options: Options, url: &NfsUrl) -> Result<Caller> {
    let mut sessions = Sessions::new(options)?;
    let Some((node, octets)) = load.file.clone() else {
        let client = sessions.bare(url).await?.client;
        return Ok(Caller::Null(match client.null().await {
            Err(error) if url.version == NfsVersion::Auto && is_no_such_version(&error) => version_3(&client),
            answered => answered.map(|()| client)?,
        }));
    };
    let (session, _) = sessions.open(url).await?;
    let _ = load.spoken.set(session.version());
    if !load.op.moves_data() {
        return Ok(Caller::Attributes(session.files.clone(), node.file));
    }
    let file = open(&session, &node, load.op).await?;
    Ok(Caller::File { file, octets, ring: Ring::new(load.block) })
}

/// Never contended: a connection's work is one task.
fn lock(sample: &Mutex<Sample>) -> MutexGuard<'_, Sample> {
    sample.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One call after the other, until the end.
async fn lane(load: &Load, caller: &Caller, sample: &Mutex<Sample>, end: Instant) -> Result<()> {
    let mut own_buffer = None;
    let mut begin = Instant::now();
    while begin < end {
        let octets = match caller {
            Caller::Null(client) => {
                client.null().await?;
                0
            }
            Caller::Attributes(files, file) => {
                files.getattr(file).await?;
                0
            }
            Caller::File { file, octets, ring } if load.op == Op::Read => {
                read(load, file, *octets, ring, &mut own_buffer).await?
            }
            Caller::File { file, octets, .. } => {
                let (offset, len) = load.next_block(*octets);
                let data = load.octets.slice(..len as usize);
                let ok = file.write(offset, Stability::Unstable, data).await?;
                ensure!(lock(sample).same_verifier(ok.verifier), "the server has restarted meanwhile");
                u64::from(ok.count)
            }
        };
        let now = Instant::now();
        lock(sample).record(now - begin, octets);
        begin = now;
    }
    Ok(())
}

async fn read(load: &Load, file: &File, size: u64, ring: &Ring, own_buffer: &mut Option<Buffer>) -> Result<u64> {
    let (offset, len) = load.next_block(size);
    loop {
        let buffer = own_buffer.take().unwrap_or_else(|| ring.take());
        let data = match file.read_into(offset, buffer).await {
            Ok(ok) => ok.data,
            Err(error) if error.is_later() => {
                tokio::time::sleep(WAIT).await;
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        let octets = data.as_slice().len();
        ensure!(octets == len as usize, "{octets} of {len} bytes came: the file has become shorter");
        if let ItemData::Placed(buffer) = data {
            *own_buffer = Some(buffer);
        }
        return Ok(octets as u64);
    }
}

/// Buffers of one block each: a READ asks for as many bytes as its buffer holds. A buffer comes back when its user
/// drops it: the transport, if an answer came inline.
#[derive(Clone)]
struct Ring {
    block: usize,
    free: Arc<Mutex<Vec<Vec<u8>>>>,
}

impl Ring {
    fn new(block: u32) -> Self {
        Self { block: block as usize, free: Arc::default() }
    }

    fn take(&self) -> Buffer {
        let free = self.free.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let octets = free.unwrap_or_else(|| vec![0; self.block]);
        Buffer::new(Box::new(Block { octets, ring: self.clone() }))
    }
}

struct Block {
    octets: Vec<u8>,
    ring: Ring,
}

impl Memory for Block {
    fn octets(&self) -> &[u8] {
        &self.octets
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.octets
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        let octets = std::mem::take(&mut self.octets);
        self.ring.free.lock().unwrap_or_else(PoisonError::into_inner).push(octets);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_walked_in_order_and_again() {
        let load = Load::new(Op::Read, 100, 1, None);
        let walked: Vec<_> = (0..4).map(|_| load.next_block(250)).collect();
        assert_eq!(walked, [(0, 100), (100, 100), (200, 50), (0, 100)]);
        let small = Load::new(Op::Read, 100, 1, None);
        assert_eq!([small.next_block(7), small.next_block(7)], [(0, 7), (0, 7)]);
    }

    #[test]
    fn buffers_are_used_again() {
        let ring = Ring::new(100);
        let mut buffer = ring.take();
        assert_eq!(buffer.capacity(), 100);
        let address = buffer.bytes_mut().as_ptr();
        drop(buffer);
        assert_eq!(ring.take().bytes_mut().as_ptr(), address);
    }

    #[test]
    fn a_restart_is_noticed() {
        let mut sample = Sample::new();
        assert!(sample.same_verifier(Verifier::default()));
        let mut other = Sample::new();
        assert!(other.same_verifier(Verifier([1; 8])));
        assert!(sample.add(other).is_err());
    }

    #[test]
    fn quantiles_are_in_microseconds() {
        let mut sample = Sample::new();
        for time in 1..=100 {
            sample.record(Duration::from_micros(time), 10);
        }
        assert_eq!((sample.ops(), sample.octets), (100, 1000));
        assert!((sample.micros(0.5) - 50.0).abs() < 0.1 && (sample.micros(0.99) - 99.0).abs() < 0.1);
        sample.record(Duration::MAX, 0);
        assert!(sample.micros(1.0) >= 600e6);
    }
}
