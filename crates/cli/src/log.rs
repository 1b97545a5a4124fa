//! The log of a server: to standard error, for a person or as JSON.

use crate::args::Verbosity;
use std::io::IsTerminal;
use tracing_subscriber::{EnvFilter, fmt};

/// Starts logging. `RUST_LOG` says more precisely what is wanted than `-v` does.
pub(crate) fn start(verbosity: Verbosity, json: bool) {
    let level = match verbosity {
        Verbosity { quiet: true, .. } => "error",
        Verbosity { verbose: 0, .. } => "info",
        Verbosity { verbose: 1, .. } => "debug",
        _ => "trace",
    };
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(level));
    let colours = std::io::stderr().is_terminal();
    let log = fmt().with_env_filter(filter).with_writer(std::io::stderr).with_target(false).with_ansi(colours);
    // Only the first start counts: a test may start more than one.
    let _ = if json { log.json().try_init() } else { log.try_init() };
}
