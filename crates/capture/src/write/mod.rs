//! Writing a capture: taps copy bytes to a bounded queue, one writer turns them into packets of a pcapng file.
//!
//! The queue owns the copies. When more than [`Options::pending_bytes`] wait, bytes are left out and counted; the
//! next packet of that stream says in its comment how many. An error of the file ends the capture, never a connection.

mod frames;
mod packets;
mod queue;
mod streams;

use queue::{Event, Queue};
use rpcrdma_env::Clock;
use rpcrdma_iwarp::{Direction, Tap, TapStream};
use std::{
    io::{self, BufWriter, Write},
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

/// Bytes that may wait for the writer: some tenths of a second of a fast disk, or a burst of 32 calls of 1 MiB.
pub const DEFAULT_PENDING_BYTES: usize = 32 << 20;
/// TCP payload bytes in a packet at most: with its headers it fits an IP packet's 16-bit length, and readers' buffers.
pub const MAX_SEGMENT_BYTES: usize = 32 << 10;
/// TCP payload bytes in a packet at least.
pub const MIN_SEGMENT_BYTES: usize = 64;
/// Bytes of the file's buffer: a few packets.
const FILE_BUFFER_BYTES: usize = 256 << 10;

/// How a capture is written.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Options {
    /// TCP payload bytes in a packet, from [`MIN_SEGMENT_BYTES`] to [`MAX_SEGMENT_BYTES`]; 1448 is what Ethernet
    /// carries.
    pub segment_bytes: usize,
    /// See [`DEFAULT_PENDING_BYTES`].
    pub pending_bytes: usize,
}

impl Default for Options {
    fn default() -> Self {
        Options { segment_bytes: MAX_SEGMENT_BYTES, pending_bytes: DEFAULT_PENDING_BYTES }
    }
}

/// What a finished capture holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Written {
    /// Packets in the file.
    pub packets: u64,
    /// Bytes of TCP payload in them.
    pub octets: u64,
    /// Bytes that were left out because the writer was behind.
    pub dropped_bytes: u64,
    /// Connections that were left out for the same reason.
    pub dropped_connections: u64,
}

/// Why a capture file could not be written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    /// The file cannot be written.
    #[error("cannot write the capture file")]
    Io(#[from] io::Error),
    /// A block does not fit the format.
    #[error("a packet does not fit the capture format")]
    Format(#[source] pcap_file::pcapng::PcapNgWriteError),
    /// Headers do not fit a packet.
    #[error("a packet cannot be built")]
    Packet(#[source] etherparse::err::packet::BuildWriteError),
}

/// A tap and the writer of what it sees. The writer's [`run`](CaptureWriter::run) belongs on a thread of its own.
pub fn capture(clock: Arc<dyn Clock>, options: Options) -> (Arc<Capture>, CaptureWriter) {
    let queue = Arc::new(Queue::new(options.pending_bytes));
    let segment_bytes = options.segment_bytes.clamp(MIN_SEGMENT_BYTES, MAX_SEGMENT_BYTES);
    let tap = Capture { queue: queue.clone(), clock, next: AtomicU64::new(0) };
    (Arc::new(tap), CaptureWriter { queue, segment_bytes })
}

/// The tap, which sees the connections. The capture ends with [`finish`](Capture::finish) or when it is dropped.
pub struct Capture {
    queue: Arc<Queue>,
    clock: Arc<dyn Clock>,
    next: AtomicU64,
}

impl Capture {
    /// Ends the capture: the writer writes what waits and returns. What comes later is not captured.
    pub fn finish(&self) {
        self.queue.finish();
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        self.finish();
    }
}

impl std::fmt::Debug for Capture {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Capture").field("connections", &self.next.load(Ordering::Relaxed)).finish_non_exhaustive()
    }
}

impl Tap for Capture {
    fn connection(&self, local: SocketAddr, peer: SocketAddr, initiator: bool) -> Box<dyn TapStream> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let time = self.clock.unix_time();
        let open = self.queue.open(Event::Open { id, time, local, peer, initiator });
        Box::new(Stream { queue: self.queue.clone(), clock: self.clock.clone(), id, open })
    }
}

/// One connection's bytes on their way to the queue.
struct Stream {
    queue: Arc<Queue>,
    clock: Arc<dyn Clock>,
    id: u64,
    /// The writer knows the connection.
    open: bool,
}

impl TapStream for Stream {
    fn octets(&mut self, direction: Direction, octets: &[u8]) {
        if self.open && !octets.is_empty() {
            self.queue.octets(self.id, direction, self.clock.unix_time(), octets);
        }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if self.open {
            self.queue.close(self.id, self.clock.unix_time());
        }
    }
}

/// Writes the file.
pub struct CaptureWriter {
    queue: Arc<Queue>,
    segment_bytes: usize,
}

impl CaptureWriter {
    /// Writes until the capture is finished. Blocks; the file is flushed whenever nothing waits.
    ///
    /// # Errors
    /// If the file cannot be written. The taps then copy nothing any more.
    pub fn run(self, file: impl Write) -> Result<Written, WriteError> {
        let packets = packets::Packets::new(BufWriter::with_capacity(FILE_BUFFER_BYTES, file))?;
        let mut streams = streams::Streams::new(packets, self.segment_bytes, self.queue.limit_bytes());
        loop {
            match self.queue.take() {
                queue::Taken::Events(events) => {
                    for event in &events {
                        streams.event(event)?;
                    }
                    self.queue.done(&events);
                }
                queue::Taken::Idle => streams.flush()?,
                queue::Taken::Finished { dropped_bytes, dropped_connections } => {
                    return streams.finish(dropped_bytes, dropped_connections);
                }
            }
        }
    }
}

impl Drop for CaptureWriter {
    fn drop(&mut self) {
        self.queue.abandon();
    }
}

impl std::fmt::Debug for CaptureWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CaptureWriter").field("segment_octets", &self.segment_bytes).finish_non_exhaustive()
    }
}
