//! `rpcrdma serve`: directories over NFS/RDMA, by the library's server.
//!
//! The command adds its options, the lines that it prints, its signals, and the numbers for Prometheus over HTTP.

mod args;
mod descriptors;
mod exports;
mod given;
mod hints;
mod histograms;
mod options;
mod prometheus;
mod scrape;

use anyhow::{Context, Result};
use args::LogFormat;
pub(crate) use args::ServeArgs;
use rpcrdma::server::{Builder, Options, Stopped};
use rustix::process::Signal;
use std::path::Path;
use tokio::{
    runtime::Builder as Runtime,
    signal::unix::{SignalKind, signal},
};

pub(crate) fn run(args: &ServeArgs) -> Result<()> {
    let options = options::of(args);
    given::check(args, &options)?;
    let _log = crate::log::start(args.verbosity, args.json || args.log == LogFormat::Json);
    let main = Runtime::new_multi_thread()
        .worker_threads(1)
        .thread_name("rpcrdma-main")
        .enable_all()
        .build()
        .context("cannot start threads")?;
    let result = main.block_on(serve(args, options));
    // A task that waits for a disk must not keep the command from ending.
    main.shutdown_background();
    result
}

async fn serve(args: &ServeArgs, options: Options) -> Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    // A write beyond the limit of file sizes (ulimit -f) is to fail, with EFBIG, and not to end the server.
    let _too_large = signal(SignalKind::from_raw(Signal::XFSZ.as_raw()))?;
    descriptors::raise();
    given::tell_changed(args, &options);
    let drain = options.drain;
    let mut server = Builder::from(options.clone()).bind().await?;
    let metrics = args.metrics.map(prometheus::serve).transpose()?;
    tokio::spawn(crate::log::watch_dropped());
    let exports = options::exports(args);
    let capturing = args.capture.start_outside(exports.iter().map(|export| -> &Path { &export.directory }))?;
    if let Some(capturing) = &capturing {
        server.tap(capturing.tap());
    }
    let running = server.start().await?;
    hints::ready(&hints::Ready { args, options: &options, exports: &exports, running: &running, metrics });
    tokio::select! {
        biased;
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
        error = running.failed() => return Err(error.into()),
    }
    tracing::info!("stopping: calls under way have {} s to finish", drain.as_secs());
    tokio::select! {
        biased;
        _ = terminate.recv() => tracing::info!("stopped at once"),
        _ = interrupt.recv() => tracing::info!("stopped at once"),
        stopped = running.shutdown() => match stopped {
            Stopped::Drained => tracing::info!("stopped"),
            Stopped::TimedOut => tracing::info!("stopped, some calls had not finished"),
        },
    }
    // Threads that have not ended may still hold it.
    capturing.map_or(Ok(()), |capturing| capturing.finish())
}
