//! `cargo xtask sim`: runs the whole transport in simulated worlds, one for each seed, and prints which seeds found
//! something.
//!
//! This command builds and starts the program `rpcrdma-simulation` (`tests/simulation`), which does the runs.

use crate::programs::{self, Program};
use anyhow::Context as _;
use std::{
    path::{Path, PathBuf},
    process::{Command, ExitCode},
};

/// Which seeds to run.
#[derive(clap::Args)]
#[command(max_term_width = 100)]
pub(crate) struct Arguments {
    /// How many seeds to run
    #[arg(long, value_name = "N", default_value_t = 100)]
    seeds: u64,
    /// The first of them
    #[arg(long, value_name = "SEED", default_value_t = 0)]
    first: u64,
    /// How far they are apart: 4 gives those of one kind
    #[arg(long, value_name = "N", default_value_t = 1)]
    step: u64,
    /// Replay one seed: run it twice and compare, draw its ladder, write a capture and the log of its events
    #[arg(long, value_name = "SEED", conflicts_with_all = ["seeds", "first", "step"])]
    seed: Option<u64>,
    /// How plans are drawn from seeds: 1; 2 with hostile peers, corrupted messages and more; 3 with runs of NFS version
    /// 4; 4 with our clients in them; 5 with runs of versions 2 and 3
    #[arg(long, value_name = "N", default_value_t = 5)]
    edition: u64,
    /// Say what came of it in JSON, with how often each thing has happened
    #[arg(long)]
    json: bool,
    /// Where captures and logs go
    #[arg(long, value_name = "FOLDER", default_value = "target/sim")]
    output: PathBuf,
}

/// Builds the program, starts it, and returns its result.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("no repository")?;
    let mut command = Command::new(programs::debug(root, "rpcrdma-simulation", Program::Only)?);
    command.current_dir(root);
    match arguments.seed {
        Some(seed) => command.arg("--seed").arg(seed.to_string()),
        None => {
            let Arguments { seeds, first, step, .. } = arguments;
            command.args(["--seeds", &seeds.to_string(), "--first", &first.to_string(), "--step", &step.to_string()])
        }
    };
    command.arg("--edition").arg(arguments.edition.to_string());
    if arguments.json {
        command.arg("--json");
    }
    let status = command.arg("--output").arg(&arguments.output).status().context("cannot start the simulation")?;
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
