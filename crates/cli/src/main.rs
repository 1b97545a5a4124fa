//! The `rpcrdma` command: serve a directory over NFS/RDMA, and be a client of such a server.
//!
//! The only place in the workspace where a fabric, a clock and a runtime are chosen.

mod args;
mod bench;
mod capture;
mod cat;
mod copy;
mod decode;
mod devices;
mod files;
mod get;
mod log;
mod ls;
mod manual;
mod names;
mod ping;
mod place;
mod put;
mod serve;
mod session;
mod stat;
mod transports;
mod url;
mod versions;

use anyhow::Result;
use args::{Cli, Command};
use clap::Parser;
use std::process::ExitCode;

/// Something could not be done that was asked for; it has been said already.
#[derive(Debug)]
struct Failed;

impl std::fmt::Display for Failed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("not everything could be done")
    }
}

impl std::error::Error for Failed {}

fn main() -> ExitCode {
    match run(Cli::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            if !error.is::<Failed>() {
                eprintln!("rpcrdma: {error:#}");
            }
            ExitCode::FAILURE
        }
    }
}

/// Whoever read our output has seen enough.
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<std::io::Error>().is_some_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe)
}

fn run(command: Command) -> Result<()> {
    match command {
        Command::Serve(args) => serve::run(&args),
        Command::Decode(args) => decode::run(&args, std::io::stdin().lock(), &mut std::io::stdout().lock()),
        Command::Devices(args) => devices::run(&args, &mut std::io::stdout().lock()),
        Command::Ls(args) => block_on(ls::run(args)),
        Command::Stat(args) => block_on(stat::run(args)),
        Command::Cat(args) => block_on(cat::run(args)),
        Command::Get(args) => block_on(get::run(args)),
        Command::Put(args) => block_on(put::run(args)),
        Command::Ping(args) => block_on(ping::run(args)),
        Command::Mkdir(args) => block_on(files::mkdir(args)),
        Command::Rm(args) => block_on(files::rm(args)),
        Command::Mv(args) => block_on(files::mv(args)),
        Command::Ln(args) => block_on(files::ln(args)),
        Command::Df(args) => block_on(files::df(args)),
        Command::Bench(args) => bench::run(&args),
        Command::Completions(args) => manual::completions(&args, &mut std::io::stdout().lock()),
        Command::Man(args) => manual::pages(&args),
    }
}

/// Runs a client command on this thread.
fn block_on<T>(command: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(command)
}
