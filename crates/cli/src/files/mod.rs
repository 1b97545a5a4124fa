//! The commands that change names: `mkdir`, `rm`, `mv`, `ln`; and `df`.
//!
//! Each does what the tool of that name does, on URLs. What cannot be done is told and counted, and the rest goes on.

mod df;
mod ln;
mod mkdir;
mod mv;
mod rm;
mod tree;

pub(crate) use df::DfArgs;
pub(crate) use ln::LnArgs;
pub(crate) use mkdir::MkdirArgs;
pub(crate) use mv::MvArgs;
pub(crate) use rm::RmArgs;

pub(crate) use df::run as df;
pub(crate) use ln::run as ln;
pub(crate) use mkdir::run as mkdir;
pub(crate) use mv::run as mv;
pub(crate) use rm::run as rm;

use crate::{Failed, copy::is_hopeless, names::escaped, transports::Options};
use anyhow::Result;
use clap::Args;
use std::path::PathBuf;

/// What these commands have in common.
#[derive(Clone, Debug, Args)]
pub(crate) struct Connecting {
    /// Write what goes over RDMA connections to this pcapng file
    #[arg(long, value_name = "FILE")]
    capture: Option<PathBuf>,
    /// Do not ask for iWARP's CRC; it is off only if the server does not ask for it either
    #[arg(long)]
    no_crc: bool,
}

impl From<Connecting> for Options {
    fn from(args: Connecting) -> Self {
        Options { no_crc: args.no_crc, capture: args.capture, ..Options::default() }
    }
}

/// Counts what could not be done.
#[derive(Default)]
struct Errors(u64);

impl Errors {
    /// Tells an error and goes on, unless that is hopeless.
    fn check(&mut self, path: &[u8], done: Result<()>) -> Result<()> {
        match done {
            Err(error) if is_hopeless(&error) => Err(error),
            Err(error) => {
                self.tell(path, &error);
                Ok(())
            }
            Ok(()) => Ok(()),
        }
    }

    fn tell(&mut self, path: &[u8], error: &anyhow::Error) {
        self.0 += 1;
        eprintln!("rpcrdma: {}: {error:#}", escaped(path));
    }

    fn finish(self) -> Result<()> {
        if self.0 > 0 { Err(Failed.into()) } else { Ok(()) }
    }
}
