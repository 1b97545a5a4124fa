//! The log of a server: to standard error, for a person or as JSON.
//!
//! A thread of its own writes it. The reader of standard error may stop reading, as `less` does, a terminal after
//! Ctrl-S, or a collector that hangs; the server's threads must not wait for it. Lines without a place in the queue are
//! dropped and counted.

use crate::args::Verbosity;
use std::{io::IsTerminal, sync::OnceLock, time::Duration};
use tracing_appender::non_blocking::{ErrorCounter, NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::{EnvFilter, fmt};

/// Lines that wait to be written: minutes of a busy server's log, and at some 200 bytes each about 1 MB.
const WAITING_LINES: usize = 4096;
/// How often the log is checked for dropped lines.
const LOOK: Duration = Duration::from_secs(1);

/// How many lines were dropped so far.
static DROPPED: OnceLock<ErrorCounter> = OnceLock::new();

/// Starts logging. `RUST_LOG` selects more precisely than `-v` what is logged. Waiting lines are written when the guard
/// is dropped, if that can be done within a second.
pub(crate) fn start(verbosity: Verbosity, json: bool) -> WorkerGuard {
    let level = match verbosity {
        Verbosity { quiet: true, .. } => "error",
        Verbosity { verbose: 0, .. } => "info",
        Verbosity { verbose: 1, .. } => "debug",
        _ => "trace",
    };
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(level));
    let colours = std::io::stderr().is_terminal();
    let queue =
        NonBlockingBuilder::default().lossy(true).buffered_lines_limit(WAITING_LINES).thread_name("rpcrdma-log");
    let (writer, guard) = queue.finish(std::io::stderr());
    let _ = DROPPED.set(writer.error_counter());
    let log = fmt().with_env_filter(filter).with_writer(writer).with_target(false).with_ansi(colours);
    // Only the first start counts: a test may start more than one.
    let _ = if json { log.json().try_init() } else { log.try_init() };
    guard
}

/// Counts the lines that were dropped, and reports them once there is room again. Does not end.
pub(crate) async fn watch_dropped() {
    let counter = metrics::counter!("rpcrdma_log_lines_dropped_total");
    let mut told = 0;
    loop {
        let dropped = DROPPED.get().map_or(0, |counter| counter.dropped_lines() as u64);
        counter.absolute(dropped);
        if dropped > told {
            tracing::warn!(lines = dropped - told, "lines of this log were dropped: standard error was not read");
            told = dropped;
        }
        tokio::time::sleep(LOOK).await;
    }
}
