//! The `rpcrdma` command: serve a directory over NFS/RDMA, and be a client of such a server.
//!
//! Its server and its connections to servers are those of the library `rpcrdma`.

mod ahead;
mod args;
mod bench;
mod capture;
mod cat;
mod command;
mod copy;
mod counterpart;
mod cp;
mod decode;
mod depth;
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
mod running;
mod serve;
mod session;
mod stat;
mod transports;
mod waiting;

use anyhow::Result;
use clap::{CommandFactory, Parser};
use command::{Cli, Command};
use failure::{Failed, Usage};
use interrupt::Interrupted;
use running::captured;
use std::process::ExitCode;

/// The exit code of wrong usage, the same as of errors that clap finds.
const WRONG_USAGE: u8 = 2;

fn main() -> ExitCode {
    let command = Cli::parse_from(command::joined(std::env::args_os())).command;
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

/// Whether the reader of our output has gone.
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
        Command::Get(args) => captured(&args.copy.client.capture.clone(), get::run(args)),
        Command::Put(args) => captured(&args.copy.client.capture.clone(), put::run(args)),
        Command::Cp(args) => captured(&args.client.capture.clone(), cp::run(args)),
        Command::Lock(args) => captured(&args.client.capture.clone(), lock::run(args)),
        Command::Ping(args) => captured(&args.client.capture.clone(), ping::run(args)),
        Command::Mkdir(args) => captured(&args.connecting.capture.clone(), files::mkdir(args)),
        Command::Rm(args) => captured(&args.connecting.capture.clone(), files::rm(args)),
        Command::Mv(args) => captured(&args.connecting.capture.clone(), files::mv(args)),
        Command::Ln(args) => captured(&args.connecting.capture.clone(), files::ln(args)),
        Command::Df(args) => captured(&args.client.capture.clone(), files::df(args)),
        Command::Bench(args) => bench::run(&args),
        Command::Completions(args) => manual::completions(&args, Cli::command(), &mut std::io::stdout().lock()),
        Command::Man(args) => manual::pages(&args, Cli::command()),
    }
}
