//! `serve --metrics`: what the server counts, for Prometheus.

use super::scrape;
use anyhow::{Context, Result};
use metrics::describe_counter;
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder};
use rpcrdma::server::beside::bind;
use std::{net::SocketAddr, sync::Arc, time::Duration};

/// Seconds: from a call answered from memory to one that waits for a disk.
const LATENCY_BUCKETS: [f64; 14] =
    [20e-6, 50e-6, 100e-6, 200e-6, 500e-6, 1e-3, 2e-3, 5e-3, 10e-3, 20e-3, 50e-3, 0.1, 0.5, 2.0];
/// How often the recorder puts its counts in order. Without it the histograms would grow from one request for them to
/// the next.
const UPKEEP_INTERVAL: Duration = Duration::from_secs(5);

/// Serves the numbers on `address`, before anything is counted. Returns the address, with the port that the system
/// chose. Has to be called within a runtime, where it goes on.
pub(super) fn serve(address: SocketAddr) -> Result<SocketAddr> {
    let listener = bind(address).and_then(tokio::net::TcpListener::from_std);
    let listener = listener.with_context(|| format!("cannot listen on {address} for metrics"))?;
    let bound = listener.local_addr()?;
    let recorder = PrometheusBuilder::new()
        .set_buckets_for_metric(Matcher::Suffix("_seconds".into()), &LATENCY_BUCKETS)?
        .build_recorder();
    let handle = recorder.handle();
    metrics::set_global_recorder(recorder)
        .map_err(|_| anyhow::anyhow!("this process has another recorder of metrics"))?;
    describe_counter!(
        "rpcrdma_log_lines_dropped_total",
        "Lines of the log that were dropped because standard error was not read in time"
    );
    let upkeep = handle.clone();
    tokio::spawn(async move {
        loop {
            tokio::time::sleep(UPKEEP_INTERVAL).await;
            upkeep.run_upkeep();
        }
    });
    tokio::spawn(scrape::serve(listener, Arc::new(move || handle.render())));
    Ok(bound)
}
