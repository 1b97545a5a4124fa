//! `serve --metrics`: what the server does, in numbers, for Prometheus.
//!
//! Counted where it happens: connections and messages by an [`Observer`], calls by a [`Handler`] around the services'.
//! Without `--metrics` neither is there. All names begin with `rpcrdma_`; docs/metrics.md lists them.

use anyhow::{Context, Result};
use metrics::{
    Counter, Gauge, Histogram, counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram,
};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder};
use rpcrdma::{ConnectionError, Event, MessageKind, Observer, Stall, Tracing};
use rpcrdma_env::BoxFuture;
use rpcrdma_fabric::{CloseReason, pool::Budget};
use rpcrdma_nfs::{mount, v3};
use rpcrdma_oncrpc::{CallContext, Handler, Outcome, TransportKind};
use rpcrdma_xdr::{Stream, StreamPart};
use std::{
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

/// Seconds: from a call answered from memory to one that waits for a disk.
const LATENCY_BUCKETS: [f64; 14] =
    [20e-6, 50e-6, 100e-6, 200e-6, 500e-6, 1e-3, 2e-3, 5e-3, 10e-3, 20e-3, 50e-3, 0.1, 0.5, 2.0];
/// How often the memory in use is looked at.
const MEMORY_INTERVAL: Duration = Duration::from_secs(1);

/// Serves the numbers on `address`. Has to be called within a runtime, where it goes on.
pub(super) fn serve(address: SocketAddr) -> Result<()> {
    let (recorder, exporter) = PrometheusBuilder::new()
        .with_http_listener(address)
        .set_buckets_for_metric(Matcher::Suffix("_seconds".into()), &LATENCY_BUCKETS)?
        .build()
        .with_context(|| format!("cannot listen on {address} for metrics"))?;
    metrics::set_global_recorder(recorder).map_err(|_| anyhow::anyhow!("metrics are counted already"))?;
    describe();
    tokio::spawn(async move {
        if let Err(error) = exporter.await {
            tracing::warn!(?error, "metrics are no longer served");
        }
    });
    Ok(())
}

fn describe() {
    describe_gauge!("rpcrdma_connections", "Connections that stand, by transport");
    describe_counter!("rpcrdma_connections_total", "Connections made, by transport");
    describe_counter!("rpcrdma_negotiated_total", "RDMA connections whose version is settled, by version");
    describe_counter!("rpcrdma_connections_refused_total", "Connections not served, by reason");
    describe_counter!("rpcrdma_connections_ended_total", "RDMA connections ended, by reason");
    describe_counter!("rpcrdma_calls_total", "Calls executed, by program, procedure, transport and outcome");
    describe_histogram!("rpcrdma_call_seconds", "Time from a call's arrival in the service to its answer");
    describe_gauge!("rpcrdma_calls_in_progress", "Calls being executed");
    describe_counter!("rpcrdma_messages_sent_total", "RPC-over-RDMA messages sent, by kind");
    describe_counter!("rpcrdma_messages_discarded_total", "Messages of clients dropped without an answer");
    describe_gauge!("rpcrdma_credits_granted", "Credits in the last reply");
    describe_counter!("rpcrdma_octets_total", "Octets of messages and data, by direction and way");
    describe_counter!("rpcrdma_chunks_total", "Chunks used, by kind");
    describe_counter!("rpcrdma_invalidations_total", "Sends that invalidated a client's handle");
    describe_counter!("rpcrdma_stalls_total", "Times that something had to wait, by what for");
    describe_gauge!("rpcrdma_memory_octets", "The memory budget, by part: in use, and its limit");
}

/// Counts what RDMA connections do. The handles are looked up once: an event costs a few additions.
pub(super) struct Counting {
    connections: Gauge,
    connections_total: Counter,
    /// By version: 1, 2.
    negotiated: [Counter; 2],
    replies: Counter,
    errors: Counter,
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
        let octets = |direction, way| counter!("rpcrdma_octets_total", "direction" => direction, "way" => way);
        let chunks = |kind| counter!("rpcrdma_chunks_total", "kind" => kind);
        Self {
            connections: gauge!("rpcrdma_connections", "transport" => "rdma"),
            connections_total: counter!("rpcrdma_connections_total", "transport" => "rdma"),
            negotiated: ["1", "2"].map(|version| counter!("rpcrdma_negotiated_total", "version" => version)),
            replies: sent("reply"),
            errors: sent("error"),
            other_messages: sent("other"),
            discarded: counter!("rpcrdma_messages_discarded_total"),
            credits: gauge!("rpcrdma_credits_granted"),
            inline_in: octets("in", "inline"),
            inline_out: octets("out", "inline"),
            pulled: octets("in", "placed"),
            placed: octets("out", "placed"),
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
                counter!("rpcrdma_connections_ended_total", "reason" => reason(error.as_ref())).increment(1);
                // Last: whoever sees it gone has its end counted.
                self.connections.decrement(1);
            }
            Event::Sent(sent) => {
                self.inline_out.increment(sent.inline_octets as u64);
                match sent.kind {
                    MessageKind::Reply => {
                        self.replies.increment(1);
                        self.credits.set(sent.credit);
                        self.placed.increment(sent.placed_octets);
                        self.write_chunks.increment(sent.write_chunks as u64);
                        self.reply_chunks.increment(sent.reply_chunk.into());
                        self.invalidations.increment(sent.invalidates.is_some().into());
                    }
                    MessageKind::Error => self.errors.increment(1),
                    _ => self.other_messages.increment(1),
                }
            }
            Event::Called { inline_octets, pulled_octets, .. } => {
                self.inline_in.increment(*inline_octets as u64);
                self.pulled.increment(*pulled_octets as u64);
                self.read_chunks.increment((*pulled_octets > 0).into());
            }
            Event::Discarded { .. } => self.discarded.increment(1),
            Event::Stalled(Stall::Memory) => self.memory_stalls.increment(1),
            Event::Stalled(Stall::Credits) => self.credit_stalls.increment(1),
            _ => {}
        }
        Tracing.event(peer, event);
    }
}

/// Why a connection ended, in a word.
fn reason(error: Option<&ConnectionError>) -> &'static str {
    match error {
        None => "orderly",
        Some(ConnectionError::Peer(_)) => "rpcrdma_violation",
        Some(ConnectionError::Silent) => "silent",
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

/// A connection that was not served.
pub(super) fn refused(reason: &'static str) {
    counter!("rpcrdma_connections_refused_total", "reason" => reason).increment(1);
}

/// A TCP connection stands until this is dropped.
pub(super) struct TcpConnection(Gauge);

impl TcpConnection {
    pub(super) fn new() -> Self {
        counter!("rpcrdma_connections_total", "transport" => "tcp").increment(1);
        let connections = gauge!("rpcrdma_connections", "transport" => "tcp");
        connections.increment(1);
        Self(connections)
    }
}

impl Drop for TcpConnection {
    fn drop(&mut self) {
        self.0.decrement(1);
    }
}

/// Counts and times calls.
pub(super) struct Timed {
    inner: Arc<dyn Handler>,
    in_progress: Gauge,
    /// By procedure of NFS version 3.
    nfs: Vec<Numbers>,
    mount: Numbers,
    other: Numbers,
}

/// The numbers of one procedure.
#[derive(Clone)]
struct Numbers {
    seconds: Histogram,
    /// By transport: TCP, RDMA.
    answered: [Counter; 2],
    refused: [Counter; 2],
}

impl Numbers {
    fn new(program: &'static str, procedure: &'static str) -> Self {
        let calls = |outcome: &'static str| {
            ["tcp", "rdma"].map(|transport| {
                counter!(
                    "rpcrdma_calls_total",
                    "program" => program, "procedure" => procedure, "transport" => transport, "outcome" => outcome
                )
            })
        };
        Self {
            seconds: histogram!("rpcrdma_call_seconds", "program" => program, "procedure" => procedure),
            answered: calls("answered"),
            refused: calls("not_answered"),
        }
    }
}

impl Timed {
    pub(super) fn new(inner: Arc<dyn Handler>) -> Arc<Self> {
        Arc::new(Self {
            inner,
            in_progress: gauge!("rpcrdma_calls_in_progress"),
            nfs: v3::Procedure::ALL.into_iter().map(|procedure| Numbers::new("nfs3", procedure.name())).collect(),
            mount: Numbers::new("mount", "all"),
            other: Numbers::new("other", "all"),
        })
    }

    fn numbers(&self, message: &Stream) -> &Numbers {
        let Some(StreamPart::Run(run)) = message.parts().next() else { return &self.other };
        let word = |at: usize| run.get(at..)?.first_chunk().map(|word| u32::from_be_bytes(*word));
        match (word(12), word(16), word(20)) {
            (Some(v3::PROGRAM), Some(v3::VERSION), Some(procedure)) => {
                usize::try_from(procedure).ok().and_then(|number| self.nfs.get(number)).unwrap_or(&self.other)
            }
            (Some(mount::PROGRAM), _, _) => &self.mount,
            _ => &self.other,
        }
    }
}

impl Handler for Timed {
    fn handle(&self, context: CallContext, message: Stream) -> BoxFuture<'static, Outcome> {
        let numbers = self.numbers(&message).clone();
        let transport = usize::from(context.connection.kind == TransportKind::Rdma);
        let in_progress = self.in_progress.clone();
        let begin = Instant::now();
        let outcome = self.inner.handle(context, message);
        in_progress.increment(1);
        Box::pin(async move {
            let outcome = outcome.await;
            in_progress.decrement(1);
            numbers.seconds.record(begin.elapsed());
            let counters = if matches!(outcome, Outcome::Reply(_)) { &numbers.answered } else { &numbers.refused };
            if let Some(counter) = counters.get(transport) {
                counter.increment(1);
            }
            outcome
        })
    }
}

/// Tells how much of each budget is in use, until the runtime ends.
pub(super) fn watch_memory(budgets: Vec<(&'static str, Budget)>) {
    tokio::spawn(async move {
        loop {
            for (part, budget) in &budgets {
                gauge!("rpcrdma_memory_octets", "part" => *part, "what" => "limit").set(budget.limit() as f64);
                gauge!("rpcrdma_memory_octets", "part" => *part, "what" => "in_use").set(budget.in_use() as f64);
            }
            tokio::time::sleep(MEMORY_INTERVAL).await;
        }
    });
}
