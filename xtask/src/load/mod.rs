//! `cargo xtask load`: what a thousand connections cost the built server, idle and active, as tables in docs/load.md.
//!
//! This command builds and starts the program `rpcrdma-load` (`tests/load`), which makes the connections and reads from
//! `/proc` what the server holds. docs/figures/load.json keeps all numbers; `--redraw` makes the tables from it again.

mod data;
mod table;
mod versions;

use crate::{
    figures::{machine::Machine, section},
    programs,
};
use anyhow::{Context as _, bail};
use data::{Figures, Report};
use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
};

/// The document with the tables, and the part of it that this command writes.
const DOCUMENT: &str = "docs/load.md";
const PART: &str = "load";
/// All numbers.
const NUMBERS: &str = "docs/figures/load.json";
/// How long connections are active in each measurement, in seconds.
const SECONDS: f64 = 5.0;
const QUICK_SECONDS: f64 = 1.0;
/// The number of connections in the document.
const CONNECTIONS: usize = 1000;

/// Measure what a thousand connections cost the server, idle and active
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Number of connections; the command writes the document only for 1000
    #[arg(long, value_name = "N", default_value_t = CONNECTIONS)]
    connections: usize,
    /// Make a short run that changes no document
    #[arg(long)]
    quick: bool,
    /// Measure something else: READ and WRITE in NFS 4.2 and in version 3, in turns over one connection; fail if 4.2 is
    /// too slow
    #[arg(long, conflicts_with_all = ["connections", "seed"])]
    versions: bool,
    /// Measure nothing, and make the tables again from the numbers in docs/figures
    #[arg(long, conflicts_with_all = ["quick", "connections"])]
    redraw: bool,
    /// Seed of the random choices of calls
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Print the results as JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("no repository")?;
    if arguments.versions {
        let asked = versions::Asked { quick: arguments.quick, redraw: arguments.redraw, json: arguments.json };
        return versions::run(root, DOCUMENT, &asked);
    }
    let numbers = root.join(NUMBERS);
    let figures = if arguments.redraw {
        serde_json::from_str(&fs::read_to_string(&numbers).context(NUMBERS)?)?
    } else {
        measure(root, arguments)?
    };
    if arguments.json {
        println!("{}", serde_json::to_string(&figures)?);
    } else {
        println!("{}", table::section(&figures));
    }
    if arguments.quick || figures.report.connections != CONNECTIONS {
        return Ok(());
    }
    fs::write(&numbers, serde_json::to_string_pretty(&figures)? + "\n")?;
    let document = root.join(DOCUMENT);
    let text = fs::read_to_string(&document).context(DOCUMENT)?;
    fs::write(&document, section::replace(&text, PART, &table::section(&figures)).context(DOCUMENT)?)?;
    eprintln!("{DOCUMENT} and {NUMBERS} are written");
    Ok(())
}

fn measure(root: &Path, arguments: &Arguments) -> anyhow::Result<Figures> {
    let (program, judge) = (programs::release(root, "rpcrdma-cli")?, programs::release(root, "rpcrdma-load")?);
    let scratch = programs::Scratch::new(root, "load")?;
    let seconds = if arguments.quick { QUICK_SECONDS } else { SECONDS };
    let mut command = Command::new(judge);
    command.arg("--program").arg(program).arg("--folder").arg(&scratch.0).arg("load");
    command.args(["--connections", &arguments.connections.to_string(), "--seconds", &seconds.to_string()]);
    command.args(["--seed", &arguments.seed.to_string()]);
    let output = command.stderr(Stdio::inherit()).output().context("cannot start the program that was built")?;
    if !output.status.success() {
        bail!("it could not be measured");
    }
    let report: Report = serde_json::from_slice(&output.stdout).context("what was measured")?;
    Ok(Figures { machine: Machine::this(&scratch.0), report })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_document_has_its_part_and_the_numbers_make_it() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let text = fs::read_to_string(root.join(DOCUMENT)).unwrap();
        let figures: Figures = serde_json::from_str(&fs::read_to_string(root.join(NUMBERS)).unwrap()).unwrap();
        assert_eq!(
            section::replace(&text, PART, &table::section(&figures)).unwrap(),
            text,
            "cargo xtask load --redraw"
        );
    }
}
