//! The server's metrics, for the recorder of the crate `metrics` that the program has installed. The command installs
//! the recorder of Prometheus.
//!
//! Each thing is counted where it happens: connections and messages by an [`Observer`], the bytes of TCP by its
//! streams, calls by a handler around those of the services. Without [`Options::metrics`](super::Options) nothing is
//! counted. docs/metrics.md lists all names. If the labels of a metric have few values, all its series exist from the
//! start with the value 0, so that a rate includes the first occurrence.

mod calls;
mod contexts;
mod locks;
mod operations;

use super::{gate::Refusal, setups};
pub(super) use calls::{Calls, Timed};
pub(super) use contexts::watch_contexts;
pub(super) use locks::watch_monitor;
use metrics::{Counter, Gauge, counter, describe_counter, describe_gauge, describe_histogram, gauge};
pub(super) use operations::{Later, watch_clients};
use rpcrdma_fabric::{CloseReason, pool::Budget};
use rpcrdma_nfsd::DirectoryFs;
use rpcrdma_oncrpc::{tcp, udp::Dropped};
use rpcrdma_transport::{ConnectionError, Event, MessageKind, Observer, Stall, Tracing};
use std::{
    net::SocketAddr,
    time::{Duration, SystemTime},
};

/// How often the memory in use is looked at.
const MEMORY_INTERVAL: Duration = Duration::from_secs(1);
/// Describes the metrics, and registers those that exist from the start.
pub(super) fn start() {
    describe();
    begin();
}

fn describe() {
    describe_gauge!(
        "rpcrdma_build_info",
        "The program that runs, by version, operating system and processor; always 1"
    );
    describe_gauge!("process_start_time_seconds", "When the server started, in seconds since 1970 (UTC)");
    describe_gauge!("rpcrdma_connections", "Open connections, by transport");
    describe_counter!("rpcrdma_connections_total", "Connections made, by transport");
    describe_counter!("rpcrdma_negotiated_total", "RDMA connections whose version is settled, by version");
    describe_counter!("rpcrdma_connections_refused_total", "Connections not served, by reason");
    describe_counter!("rpcrdma_setups_failed_total", "RDMA connections whose set-up failed, by reason");
    describe_counter!("rpcrdma_connections_ended_total", "Connections ended, by transport and reason");
    describe_counter!("rpcrdma_datagrams_answered_total", "Calls over UDP that were answered");
    describe_counter!("rpcrdma_datagrams_dropped_total", "Datagrams that were not answered, by reason");
    describe_counter!("rpcrdma_calls_total", "Calls, by program, procedure, transport and status of the answer");
    describe_histogram!("rpcrdma_call_seconds", "Time from a call's arrival in the service to its answer");
    describe_gauge!("rpcrdma_calls_in_progress", "Calls that wait for something, such as the disk");
    describe_counter!("rpcrdma_messages_sent_total", "RPC-over-RDMA messages sent, by kind");
    describe_counter!("rpcrdma_messages_discarded_total", "Messages of clients dropped without an answer");
    describe_counter!(
        "rpcrdma_stray_replies_total",
        "Replies over TCP that belong to no call of the server, and were dropped"
    );
    describe_gauge!("rpcrdma_credits_granted", "Credits in the last reply");
    describe_counter!("rpcrdma_bytes_total", "Bytes of messages and data, by transport, direction and way");
    describe_counter!("rpcrdma_chunks_total", "Chunks used, by kind");
    describe_counter!("rpcrdma_invalidations_total", "Sends that invalidated a client's handle");
    describe_counter!("rpcrdma_stalls_total", "Waits, by what was waited for");
    describe_gauge!("rpcrdma_index_files", "Files that the index of names remembers");
    describe_gauge!("rpcrdma_index_bytes", "Memory of the index of names: in use, and its limit");
    describe_gauge!("rpcrdma_memory_bytes", "The memory budget, by part: in use, and its limit");
}

/// Registers the rare counters that exist from the start.
fn begin() {
    let (version, os, arch) = (env!("CARGO_PKG_VERSION"), std::env::consts::OS, std::env::consts::ARCH);
    gauge!("rpcrdma_build_info", "version" => version, "os" => os, "arch" => arch).set(1);
    // If the clock stands before 1970, the start is 1970.
    let started = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    gauge!("process_start_time_seconds").set(started.as_secs_f64());
    for refusal in Refusal::ALL {
        counter!("rpcrdma_connections_refused_total", "reason" => refusal.word()).increment(0);
    }
    for reason in setups::REASONS {
        counter!("rpcrdma_setups_failed_total", "reason" => reason).increment(0);
    }
    for reason in RDMA_ENDS {
        ended("rdma", reason).increment(0);
    }
    for reason in TCP_ENDS {
        ended("tcp", reason).increment(0);
    }
    stray().increment(0);
    datagrams_answered(0);
    for (reason, _) in Dropped::default().by_reason() {
        datagrams_dropped(reason, 0);
    }
    drop(TcpNumbers::new());
}

/// Calls over UDP that were answered.
pub(super) fn datagrams_answered(count: u64) {
    counter!("rpcrdma_datagrams_answered_total").increment(count);
}

/// Datagrams that were dropped.
pub(super) fn datagrams_dropped(reason: &'static str, count: u64) {
    counter!("rpcrdma_datagrams_dropped_total", "reason" => reason).increment(count);
}

fn stray() -> Counter {
    counter!("rpcrdma_stray_replies_total")
}

fn ended(transport: &'static str, reason: &'static str) -> Counter {
    counter!("rpcrdma_connections_ended_total", "transport" => transport, "reason" => reason)
}

/// The bytes of a transport in one direction.
fn bytes(transport: &'static str, direction: &'static str, way: &'static str) -> Counter {
    counter!("rpcrdma_bytes_total", "transport" => transport, "direction" => direction, "way" => way)
}

/// Counts what RDMA connections do. The handles are looked up once: an event costs a few additions.
pub(super) struct Counting {
    connections: Gauge,
    connections_total: Counter,
    /// By version: 1, 2.
    negotiated: [Counter; 2],
    replies: Counter,
    errors: Counter,
    probes: Counter,
    other_messages: Counter,
    discarded: Counter,
    credits: Gauge,
    inline_in: Counter,
    inline_out: Counter,
    pulled: Counter,
    placed: Counter,
    read_chunks: Counter,
    write_chunks: Counter,
    reply_chunks: Counter,
    invalidations: Counter,
    memory_stalls: Counter,
    credit_stalls: Counter,
}

impl Counting {
    pub(super) fn new() -> Self {
        let sent = |kind| counter!("rpcrdma_messages_sent_total", "kind" => kind);
        let chunks = |kind| counter!("rpcrdma_chunks_total", "kind" => kind);
        Self {
            connections: gauge!("rpcrdma_connections", "transport" => "rdma"),
            connections_total: counter!("rpcrdma_connections_total", "transport" => "rdma"),
            negotiated: ["1", "2"].map(|version| counter!("rpcrdma_negotiated_total", "version" => version)),
            replies: sent("reply"),
            errors: sent("error"),
            probes: sent("probe"),
            other_messages: sent("other"),
            discarded: counter!("rpcrdma_messages_discarded_total"),
            credits: gauge!("rpcrdma_credits_granted"),
            inline_in: bytes("rdma", "in", "inline"),
            inline_out: bytes("rdma", "out", "inline"),
            pulled: bytes("rdma", "in", "placed"),
            placed: bytes("rdma", "out", "placed"),
            read_chunks: chunks("read"),
            write_chunks: chunks("write"),
            reply_chunks: chunks("reply"),
            invalidations: counter!("rpcrdma_invalidations_total"),
            memory_stalls: counter!("rpcrdma_stalls_total", "what" => "memory"),
            credit_stalls: counter!("rpcrdma_stalls_total", "what" => "credits"),
        }
    }
}

impl Observer for Counting {
    fn event(&self, peer: SocketAddr, event: &Event) {
        match event {
            Event::Connected { .. } => {
                self.connections.increment(1);
                self.connections_total.increment(1);
            }
            Event::Negotiated(made) => {
                let [one, two] = &self.negotiated;
                if made.version == 1 { one } else { two }.increment(1);
            }
            Event::Closed { error } => {
                ended("rdma", reason(error.as_ref())).increment(1);
                // Last: when the gauge shows that the connection is gone, its end has been counted.
                self.connections.decrement(1);
            }
            Event::Sent(sent) => {
                self.inline_out.increment(sent.inline_bytes as u64);
                match sent.kind {
                    MessageKind::Reply => {
                        self.replies.increment(1);
                        self.credits.set(sent.credit);
                        self.placed.increment(sent.placed_bytes);
                        self.write_chunks.increment(sent.write_chunks.into());
                        self.reply_chunks.increment(sent.reply_chunk.into());
                        self.invalidations.increment(sent.invalidates.is_some().into());
                    }
                    MessageKind::Error => self.errors.increment(1),
                    MessageKind::Probe => self.probes.increment(1),
                    _ => self.other_messages.increment(1),
                }
            }
            Event::Called { inline_bytes, pulled_bytes, .. } => {
                self.inline_in.increment(*inline_bytes as u64);
                self.pulled.increment(*pulled_bytes as u64);
                self.read_chunks.increment((*pulled_bytes > 0).into());
            }
            Event::Discarded { .. } => self.discarded.increment(1),
            Event::Stalled(Stall::Memory) => self.memory_stalls.increment(1),
            Event::Stalled(Stall::Credits) => self.credit_stalls.increment(1),
            _ => {}
        }
        Tracing.event(peer, event);
    }
}

/// All values of [`reason`].
const RDMA_ENDS: [&str; 8] =
    ["orderly", "rpcrdma_violation", "fabric_violation", "terminated_by_peer", "silent", "stalled", "broken", "local"];
/// All values of [`tcp_reason`].
const TCP_ENDS: [&str; 5] = ["orderly", "rpc_violation", "silent", "stalled", "broken"];

/// Why a connection over RDMA ended, in a word.
fn reason(error: Option<&ConnectionError>) -> &'static str {
    match error {
        None => "orderly",
        Some(ConnectionError::Peer(_)) => "rpcrdma_violation",
        Some(ConnectionError::Silent | ConnectionError::GivenUp(_)) => "silent",
        Some(ConnectionError::Stalled { .. }) => "stalled",
        Some(ConnectionError::Fabric(reason)) => match reason {
            CloseReason::Local | CloseReason::Remote => "orderly",
            CloseReason::Violation(_) => "fabric_violation",
            CloseReason::Terminated(_) => "terminated_by_peer",
            CloseReason::Stalled { .. } => "stalled",
            _ => "broken",
        },
        Some(_) => "local",
    }
}

/// Why a connection over TCP ended, in a word.
fn tcp_reason(ended: &Result<(), tcp::ConnectionError>) -> &'static str {
    match ended {
        Ok(()) => "orderly",
        Err(tcp::ConnectionError::Stalled { .. }) => "stalled",
        Err(tcp::ConnectionError::GivenUp(_)) => "silent",
        Err(tcp::ConnectionError::Record(tcp::RecordError::TooLong { .. } | tcp::RecordError::TooManyFragments)) => {
            "rpc_violation"
        }
        Err(_) => "broken",
    }
}

/// A connection that was not served.
pub(super) fn refused(refusal: Refusal) {
    counter!("rpcrdma_connections_refused_total", "reason" => refusal.word()).increment(1);
}

/// The numbers of TCP connections.
struct TcpNumbers {
    connections: Gauge,
    connections_total: Counter,
    bytes_in: Counter,
    bytes_out: Counter,
}

impl TcpNumbers {
    fn new() -> Self {
        Self {
            connections: gauge!("rpcrdma_connections", "transport" => "tcp"),
            connections_total: counter!("rpcrdma_connections_total", "transport" => "tcp"),
            bytes_in: bytes("tcp", "in", "stream"),
            bytes_out: bytes("tcp", "out", "stream"),
        }
    }
}

/// A TCP connection, which counts as open until this is dropped.
pub(super) struct TcpConnection(TcpNumbers);

impl TcpConnection {
    pub(super) fn new() -> Self {
        let numbers = TcpNumbers::new();
        numbers.connections_total.increment(1);
        numbers.connections.increment(1);
        Self(numbers)
    }

    /// Where its bytes are counted: those that arrive, and those that leave.
    pub(super) fn bytes(&self) -> (Counter, Counter) {
        (self.0.bytes_in.clone(), self.0.bytes_out.clone())
    }

    /// The connection has ended, after this many replies that answered no call of the server.
    pub(super) fn ended(self, how: &Result<(), tcp::ConnectionError>, stray_replies: u64) {
        stray().increment(stray_replies);
        ended("tcp", tcp_reason(how)).increment(1);
    }
}

impl Drop for TcpConnection {
    fn drop(&mut self) {
        self.0.connections.decrement(1);
    }
}

/// Updates the gauges of the index of names, for as long as it is polled.
pub(super) async fn watch_index(directories: Vec<DirectoryFs>) {
    loop {
        let (mut files, mut bytes, mut max_bytes) = (0.0, 0.0, 0.0);
        for index in directories.iter().map(DirectoryFs::index_use) {
            files += index.files as f64;
            bytes += index.bytes as f64;
            max_bytes += index.max_bytes as f64;
        }
        gauge!("rpcrdma_index_files").set(files);
        gauge!("rpcrdma_index_bytes", "what" => "in_use").set(bytes);
        gauge!("rpcrdma_index_bytes", "what" => "limit").set(max_bytes);
        tokio::time::sleep(MEMORY_INTERVAL).await;
    }
}

/// Updates the gauges of the budgets, for as long as it is polled.
pub(super) async fn watch_memory(budgets: Vec<(&'static str, Budget)>) {
    loop {
        for (part, budget) in &budgets {
            gauge!("rpcrdma_memory_bytes", "part" => *part, "what" => "limit").set(budget.limit() as f64);
            gauge!("rpcrdma_memory_bytes", "part" => *part, "what" => "in_use").set(budget.in_use() as f64);
        }
        tokio::time::sleep(MEMORY_INTERVAL).await;
    }
}
