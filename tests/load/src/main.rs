//! `rpcrdma-load`: the built server under load; `cargo xtask load` and `cargo xtask soak` start it.

use clap::{Parser, Subcommand};
use rpcrdma_load::{beside, load, soak};
use std::{path::PathBuf, process::ExitCode};

/// The built server under load.
#[derive(Parser)]
struct Arguments {
    /// The built `rpcrdma` command
    #[arg(long, value_name = "PROGRAM")]
    program: PathBuf,
    /// Where the server's files go. It has to be on a disk's file system, and empty
    #[arg(long, value_name = "FOLDER")]
    folder: PathBuf,
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// So many connections, idle and active. The report is JSON
    Load {
        /// How many
        #[arg(long, value_name = "N", default_value_t = 1000)]
        connections: usize,
        /// How long they are active, each way
        #[arg(long, default_value_t = 5.0)]
        seconds: f64,
        /// Seed of the random choices of calls
        #[arg(long, default_value_t = 1)]
        seed: u64,
    },
    /// READ and WRITE in NFS 4.2 and in version 3, in turns over one connection; fail if 4.2 is too slow
    Beside(beside::Arguments),
    /// Clients that check every byte, beside peers that mean no good
    Soak(soak::Arguments),
}

fn main() -> anyhow::Result<ExitCode> {
    let Arguments { program, folder, what } = Arguments::parse();
    match what {
        What::Load { connections, seconds, seed } => {
            let asked = load::Asked { program: &program, folder: &folder, connections, seconds, seed };
            let report = load::run(&asked, |words| eprintln!("{words}"))?;
            println!("{}", serde_json::to_string(&report)?);
            Ok(ExitCode::SUCCESS)
        }
        What::Beside(arguments) => beside::run(&program, &folder, &arguments),
        What::Soak(arguments) => soak::run(&program, &folder, &arguments),
    }
}
