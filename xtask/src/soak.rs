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
    /// How long: 90s, 10m, 2h
    #[arg(long = "for", value_name = "TIME", default_value = "1m")]
    lasts: String,
    /// Decides who does what. A random one if it is not given; it is told
    #[arg(long)]
    seed: Option<u64>,
    /// Clients, by turns of version 1 and 2; every other two over a path that is cut now and then
    #[arg(long, value_name = "N", default_value_t = 8)]
    clients: usize,
    /// Hostile addresses, each with several peers at a time
    #[arg(long, value_name = "N", default_value_t = 6)]
    hostile: usize,
    /// Clients of NFS version 4 that share files by delegations and locks, over TCP and RDMA
    #[arg(long, value_name = "N", default_value_t = 6)]
    holders: usize,
    /// Kill the server without a word so often, and start it again
    #[arg(long, value_name = "TIME")]
    restart_every: Option<String>,
    /// Judge what `cargo test` builds: slower, and built already where tests have run
    #[arg(long)]
    debug: bool,
    /// Say what came of it in JSON
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
