//! `cargo xtask soak`: decent clients that check every byte beside hostile peers, against the built command.
//!
//! This command builds and starts the program `rpcrdma-load` (`tests/load`), and passes on its output and its result.

use crate::programs::{self, Program};
use anyhow::Context as _;
use std::{
    path::Path,
    process::{Command, ExitCode},
};

/// How to soak.
#[derive(clap::Args)]
#[command(max_term_width = 100)]
pub(crate) struct Arguments {
    /// How long the soak lasts, such as 90s, 10m or 2h
    #[arg(long = "for", value_name = "TIME", default_value = "1m")]
    lasts: String,
    /// Seed of the random choices (default: a random seed, which the command prints)
    #[arg(long)]
    seed: Option<u64>,
    /// Number of clients: half in version 1 of RPC-over-RDMA, half in version 2; half of each over a path that is cut
    /// now and then
    #[arg(long, value_name = "N", default_value_t = 8)]
    clients: usize,
    /// Number of hostile addresses, each with several peers at a time
    #[arg(long, value_name = "N", default_value_t = 6)]
    hostile: usize,
    /// Number of clients of NFS version 4 that share files by delegations and locks, in turns over TCP and over RDMA of
    /// version 1 and 2
    #[arg(long, value_name = "N", default_value_t = 6)]
    holders: usize,
    /// Kill the server with SIGKILL at this interval, such as 1m, and start it again (default: never)
    #[arg(long, value_name = "TIME")]
    restart_every: Option<String>,
    /// Judge the build of `cargo test`: it is slower, but it exists already if tests have run
    #[arg(long)]
    debug: bool,
    /// Print the results as JSON
    #[arg(long)]
    json: bool,
}

/// Builds the program, starts it, and returns its result.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("no repository")?;
    let build = |package| match arguments.debug {
        true => programs::debug(root, package, Program::Only),
        false => programs::release(root, package),
    };
    let (program, judge) = (build("rpcrdma-cli")?, build("rpcrdma-load")?);
    let scratch = programs::Scratch::new(root, "soak")?;
    let mut command = Command::new(judge);
    command.arg("--program").arg(program).arg("--folder").arg(&scratch.0).arg("soak");
    command.args(["--for", &arguments.lasts, "--clients", &arguments.clients.to_string()]);
    command.args(["--hostile", &arguments.hostile.to_string(), "--holders", &arguments.holders.to_string()]);
    if let Some(seed) = arguments.seed {
        command.args(["--seed", &seed.to_string()]);
    }
    if let Some(every) = &arguments.restart_every {
        command.args(["--restart-every", every]);
    }
    if arguments.json {
        command.arg("--json");
    }
    let status = command.status().context("cannot start the program that was built")?;
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
