//! The commands that change names: `mkdir`, `rm`, `mv`, `ln`; and `df`.
//!
//! Each does what the tool of that name does, on URLs. It reports and counts what cannot be done, and goes on with the
//! rest.

mod df;
mod ln;
mod mkdir;
mod mv;
mod rm;
mod tree;

pub(crate) use df::DfArgs;
pub(crate) use ln::LnArgs;
pub(crate) use mkdir::{MkdirArgs, umask};
pub(crate) use mv::MvArgs;
pub(crate) use rm::RmArgs;

pub(crate) use df::run as df;
pub(crate) use ln::run as ln;
pub(crate) use mkdir::run as mkdir;
pub(crate) use mv::run as mv;
pub(crate) use rm::run as rm;

use crate::{
    capture::CaptureArgs,
    failure::{self, At, Failed, is_hopeless},
    names,
    transports::Options,
};
use anyhow::Result;
use clap::Args;
use serde_json::{Map, Value};
use std::io::Write;

/// What these commands have in common.
#[derive(Clone, Debug, Args)]
pub(crate) struct Connecting {
    #[command(flatten)]
    pub(crate) capture: CaptureArgs,
    /// Do not ask for iWARP's CRC; a connection works without it only if the server does not ask for it either
    #[arg(long)]
    no_crc: bool,
    /// Print JSON: for each thing that the command did, one line with an object {"done": COMMAND, "path": ...}; and
    /// errors as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

impl Connecting {
    /// With `--json`, writes what was done to `path`, with one more member if there is one.
    fn done(&self, command: &str, path: &[u8], more: Option<(&str, &[u8])>) -> Result<()> {
        if !self.json {
            return Ok(());
        }
        let mut object = Map::new();
        object.insert("done".into(), command.into());
        for (key, path) in [("path", path)].into_iter().chain(more) {
            names::insert_json(&mut object, key, path);
        }
        writeln!(std::io::stdout(), "{}", names::json(&Value::Object(object)))?;
        Ok(())
    }
}

impl From<Connecting> for Options {
    fn from(args: Connecting) -> Self {
        Options { no_crc: args.no_crc, capture: args.capture, ..Options::default() }
    }
}

/// Counts what could not be done.
#[derive(Default)]
pub(crate) struct Errors(u64);

impl Errors {
    /// Reports an error and goes on, unless that is hopeless.
    pub(crate) fn check(&mut self, path: &[u8], done: Result<()>) -> Result<()> {
        match done {
            Err(error) if is_hopeless(&error) || error.is::<std::io::Error>() => Err(error.context(At::new(path))),
            Err(error) => {
                self.tell(path, &error);
                Ok(())
            }
            Ok(()) => Ok(()),
        }
    }

    pub(crate) fn tell(&mut self, path: &[u8], error: &anyhow::Error) {
        self.0 += 1;
        failure::write(&failure::line_at(path, error));
    }

    pub(crate) fn finish(self) -> Result<()> {
        if self.0 > 0 { Err(Failed.into()) } else { Ok(()) }
    }
}
