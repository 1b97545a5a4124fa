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
    /// Number of seeds to run
    #[arg(long, value_name = "N", default_value_t = 100)]
    seeds: u64,
    /// The first seed
    #[arg(long, value_name = "SEED", default_value_t = 0)]
    first: u64,
    /// Distance from one seed to the next; with --first, a step of 4 or 8 selects one kind of run
    #[arg(long, value_name = "N", default_value_t = 1)]
    step: u64,
    /// Replay one seed: run it twice, compare both runs, and write the log of its events; if it is no run of NFS, also
    /// write a capture and draw its ladder
    #[arg(long, value_name = "SEED", conflicts_with_all = ["seeds", "first", "step"])]
    seed: Option<u64>,
    /// Edition of the plans, which seeds decide: 2 adds hostile peers, corrupted messages and more to 1; 3 adds runs of
    /// NFS version 4; 4 adds such runs with our own clients; 5 adds runs of NFS versions 2 and 3
    #[arg(long, value_name = "N", default_value_t = 5)]
    edition: u64,
    /// Print the results as JSON, with how often each kind of event has happened
    #[arg(long)]
    json: bool,
    /// Folder for captures and logs
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
