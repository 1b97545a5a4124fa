//! `serve --metrics`: what the server counts, for Prometheus.

use super::{
    histograms::{Histograms, WithHistograms},
    scrape,
};
use anyhow::{Context, Result};
use metrics::describe_counter;
use metrics_exporter_prometheus::PrometheusBuilder;
use rpcrdma::server::beside::bind;
use std::{net::SocketAddr, sync::Arc};

/// Serves the numbers on `address`, before anything is counted. Returns the address, with the port that the system
/// chose. Has to be called within a runtime, where it goes on.
pub(super) fn serve(address: SocketAddr) -> Result<SocketAddr> {
    let listener = bind(address).and_then(tokio::net::TcpListener::from_std);
    let listener = listener.with_context(|| format!("cannot listen on {address} for metrics"))?;
    let bound = listener.local_addr()?;
    let (recorder, histograms) = (PrometheusBuilder::new().build_recorder(), Histograms::default());
    let handle = recorder.handle();
    metrics::set_global_recorder(WithHistograms::new(recorder, &histograms))
        .map_err(|_| anyhow::anyhow!("this process has another recorder of metrics"))?;
    describe_counter!(
        "rpcrdma_log_lines_dropped_total",
        "Lines of the log that were dropped because standard error was not read in time"
    );
    tokio::spawn(scrape::serve(listener, Arc::new(move || handle.render() + &histograms.render())));
    Ok(bound)
}
