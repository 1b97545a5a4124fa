//! `cargo xtask interop`: Linux in a guest mounts our server, and serves our client.

use std::process::ExitCode;

/// What `cargo xtask interop` takes.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Run only jobs whose name contains one of these
    filter: Vec<String>,
}

/// Runs the jobs that the arguments name.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    anyhow::bail!("no job matches {:?}", arguments.filter)
}
