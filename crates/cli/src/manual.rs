//! `rpcrdma completions` and `rpcrdma man`: written from the command's own definition, so that they always match it.

use anyhow::{Context, Result};
use clap::{Args, Command};
use clap_complete::Shell;
use std::{io::Write, path::PathBuf};

#[derive(Debug, Args)]
pub(crate) struct CompletionsArgs {
    /// The shell that reads the script
    shell: Shell,
}

#[derive(Debug, Args)]
pub(crate) struct ManArgs {
    /// Directory for the pages: rpcrdma.1, and one for each command. The command creates it if it does not exist
    directory: PathBuf,
}

/// Writes the shell's script to `out`.
pub(crate) fn completions(args: &CompletionsArgs, mut command: Command, out: &mut impl Write) -> Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, "rpcrdma", &mut script);
    out.write_all(&script)?;
    Ok(())
}

/// Writes a page for each command.
pub(crate) fn pages(args: &ManArgs, command: Command) -> Result<()> {
    let directory = &args.directory;
    std::fs::create_dir_all(directory)
        .and_then(|()| clap_mangen::generate_to(command, directory))
        .with_context(|| directory.display().to_string())
}
