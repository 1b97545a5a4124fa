//! `cargo xtask`: starts the programs that this repository builds, and other programs, and judges from outside what
//! they do.
//!
//! Nothing here uses a crate of the project as a library: it judges the programs that a user gets.

use clap::{Parser, Subcommand};
use std::process::ExitCode;

mod calls;
mod figures;
mod fsx;
mod interop;
mod load;
mod locks;
mod mutants;
mod numbers;
mod pgo;
mod programs;
mod ranges;
mod requirements;
mod sim;
mod small;
mod soak;

/// Start the built programs and judge what they do.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", max_term_width = 100)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Count the system calls of each kind of operation, and fail if there are more than its limit
    Calls(calls::Arguments),
    /// Measure how fast the command is, and write tables and pictures
    Figures(figures::Arguments),
    /// Let a real Linux kernel mount our server, and let our client use a real Linux server
    Interop(interop::Arguments),
    /// Measure what a thousand connections cost the server, idle and active
    Load(load::Arguments),
    /// Break the code on purpose, one fault at a time, and check that the tests notice each fault
    Mutants(mutants::Arguments),
    /// Build the command with a profile of its own calls, which makes it faster
    Pgo(pgo::Arguments),
    /// Show which test proves which rule of the specifications
    Requirements(requirements::Arguments),
    /// Run the transport in simulated worlds, one world for each seed
    Sim(sim::Arguments),
    /// Measure `get -r` and `put -r` of many small files
    Small(small::Arguments),
    /// Let decent clients check every byte beside hostile peers, for as long as you want
    Soak(soak::Arguments),
    /// Exercise one file with random operations and compare it with a model; runs in the guest
    Fsx(fsx::Arguments),
    /// Lock one file from several processes, and check that each excludes the others; runs in the guest
    Locks(locks::Arguments),
    /// Show a file's data and holes, or let the kernel copy it; runs in the guest
    Ranges(ranges::Arguments),
}

fn main() -> ExitCode {
    let result = match Arguments::parse().command {
        Command::Calls(arguments) => calls::run(&arguments),
        Command::Figures(arguments) => figures::run(&arguments).map(|()| ExitCode::SUCCESS),
        Command::Interop(arguments) => interop::run(&arguments),
        Command::Load(arguments) => load::run(&arguments).map(|()| ExitCode::SUCCESS),
        Command::Mutants(arguments) => mutants::run(&arguments),
        Command::Pgo(arguments) => pgo::run(&arguments).map(|()| ExitCode::SUCCESS),
        Command::Requirements(arguments) => requirements::run(&arguments),
        Command::Sim(arguments) => sim::run(&arguments),
        Command::Small(arguments) => small::run(&arguments).map(|()| ExitCode::SUCCESS),
        Command::Soak(arguments) => soak::run(&arguments),
        Command::Fsx(arguments) => fsx::run(&arguments).map(|()| ExitCode::SUCCESS),
        Command::Locks(arguments) => locks::run(&arguments).map(|()| ExitCode::SUCCESS),
        Command::Ranges(arguments) => ranges::run(&arguments).map(|()| ExitCode::SUCCESS),
    };
    match result {
        Ok(code) => code,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}
