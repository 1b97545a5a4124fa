//! The `rpcrdma` command: serve a directory over NFS/RDMA, and be a client of such a server.
//!
//! Its server and its connections to servers are those of the library `rpcrdma`.

mod ahead;
mod args;
mod bench;
mod capture;
mod cat;
mod copy;
mod counterpart;
mod cp;
mod decode;
mod devices;
mod ending;
mod extras;
mod failure;
mod files;
mod get;
mod holes;
mod interrupt;
mod links;
mod lock;
mod log;
mod ls;
mod manual;
mod mounts;
mod names;
mod octets;
mod partial;
mod ping;
mod place;
mod put;
mod serve;
mod session;
mod stat;
mod transports;
mod waiting;

use anyhow::Result;
use args::{Cli, Command};
use capture::CaptureArgs;
use clap::Parser;
use failure::Usage;
use interrupt::Interrupted;
use std::process::ExitCode;

/// The exit code of wrong usage, as of what clap finds.
const WRONG_USAGE: u8 = 2;

/// Something that the user asked for could not be done, which has been reported already.
#[derive(Debug)]
struct Failed;

impl std::fmt::Display for Failed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("not everything could be done")
    }
}

impl std::error::Error for Failed {}

fn main() -> ExitCode {
    let command = Cli::parse_from(args::joined(std::env::args_os())).command;
    failure::choose_form(command.is_json());
    match run(command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            if !error.is::<Failed>() {
                failure::tell(&error);
            }
            if let Some(lock::Code { code, .. }) = error.downcast_ref::<lock::Code>() {
                return ExitCode::from(*code);
            }
            let is_misuse = |error: &rpcrdma::Error| error.is_misuse();
            if error.is::<Usage>() || error.downcast_ref().is_some_and(is_misuse) {
                return ExitCode::from(WRONG_USAGE);
            }
            error.downcast_ref::<Interrupted>().map_or(ExitCode::FAILURE, |signal| signal.exit_code().into())
        }
    }
}

/// The reader of our output has seen enough.
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<std::io::Error>().is_some_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe)
}

fn run(command: Command) -> Result<()> {
    match command {
        Command::Serve(args) => serve::run(&args),
        Command::Decode(args) => decode::run(&args, std::io::stdin().lock(), &mut std::io::stdout().lock()),
        Command::Devices(args) => devices::run(&args, &mut std::io::stdout().lock()),
        Command::Ls(args) => captured(&args.client.capture.clone(), ls::run(args)),
        Command::Stat(args) => captured(&args.client.capture.clone(), stat::run(args)),
        Command::Cat(args) => captured(&args.client.capture.clone(), cat::run(args)),
        Command::Get(args) => captured(&args.client.capture.clone(), get::run(args)),
        Command::Put(args) => captured(&args.client.capture.clone(), put::run(args)),
        Command::Cp(args) => captured(&args.client.capture.clone(), cp::run(args)),
        Command::Lock(args) => captured(&args.client.capture.clone(), lock::run(args)),
        Command::Ping(args) => captured(&args.client.capture.clone(), ping::run(args)),
        Command::Mkdir(args) => captured(&args.connecting.capture.clone(), files::mkdir(args)),
        Command::Rm(args) => captured(&args.connecting.capture.clone(), files::rm(args)),
        Command::Mv(args) => captured(&args.connecting.capture.clone(), files::mv(args)),
        Command::Ln(args) => captured(&args.connecting.capture.clone(), files::ln(args)),
        Command::Df(args) => captured(&args.client.capture.clone(), files::df(args)),
        Command::Bench(args) => bench::run(&args),
        Command::Completions(args) => manual::completions(&args, &mut std::io::stdout().lock()),
        Command::Man(args) => manual::pages(&args),
    }
}

/// Runs a client command on this thread.
fn block_on<T>(command: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(ending::after(command))
}

/// The same, and ends its capture: one that could not be written is a failure of the command.
fn captured<T>(capture: &CaptureArgs, command: impl Future<Output = Result<T>>) -> Result<T> {
    // The runtime ends before the capture does: the ends of its connections belong into it.
    let done = block_on(command);
    match capture.finish() {
        Err(error) if done.is_err() => failure::tell(&error),
        finished => finished?,
    }
    done
}
