//! `cargo xtask load --versions`: READ and WRITE in NFS 4.2 beside version 3, as a table in docs/load.md.
//!
//! This command builds and starts `rpcrdma-load beside` (`tests/load/src/beside`), which measures.
//! docs/figures/nfs-versions.json keeps the numbers; `--redraw` makes the table from it again.

use crate::{
    figures::{machine::Machine, section, table::thousands},
    programs,
};
use anyhow::{Context as _, bail};
use serde::{Deserialize, Serialize};
use std::{
    fmt::Write as _,
    fs,
    path::Path,
    process::{Command, Stdio},
};

/// The part of the document that this command writes.
const PART: &str = "versions";
/// All numbers.
const NUMBERS: &str = "docs/figures/nfs-versions.json";
/// How long each version works on each line, in seconds.
const SECONDS: f64 = 10.0;
const QUICK_SECONDS: f64 = 1.0;

/// All figures of a run, and where they were measured.
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct Figures {
    /// The day, as `2026-11-23`.
    date: String,
    machine: Machine,
    report: Report,
}

/// Fields here and below: see `tests/load/src/beside/report.rs`.
#[derive(Debug, Deserialize, Serialize)]
struct Report {
    seconds: f64,
    noise: bool,
    lines: Vec<Line>,
}

#[derive(Debug, Deserialize, Serialize)]
struct Line {
    over: String,
    calls: String,
    version_3: Rate,
    version_4: Rate,
    ratio: Spread,
    pairs: usize,
    wanted: f64,
}

#[derive(Debug, Deserialize, Serialize)]
struct Rate {
    calls_per_s: f64,
    mib_per_s: f64,
    server_us: f64,
    client_us: f64,
}

#[derive(Debug, Deserialize, Serialize)]
struct Spread {
    median: f64,
    quartiles: [f64; 2],
    certain: [f64; 2],
}

/// What the arguments ask for.
pub(super) struct Asked {
    pub(super) quick: bool,
    pub(super) redraw: bool,
    pub(super) json: bool,
}

/// Measures, or makes the table again. Writes `document` unless the run is a quick one.
pub(super) fn run(root: &Path, document: &str, asked: &Asked) -> anyhow::Result<()> {
    let numbers = root.join(NUMBERS);
    let figures = if asked.redraw {
        serde_json::from_str(&fs::read_to_string(&numbers).context(NUMBERS)?)?
    } else {
        measure(root, if asked.quick { QUICK_SECONDS } else { SECONDS })?
    };
    if asked.json {
        println!("{}", serde_json::to_string(&figures)?);
    } else {
        println!("{}", table(&figures));
    }
    if !asked.quick {
        fs::write(&numbers, serde_json::to_string_pretty(&figures)? + "\n")?;
        let path = root.join(document);
        let text = fs::read_to_string(&path).context(document.to_owned())?;
        fs::write(&path, section::replace(&text, PART, &table(&figures)).context(document.to_owned())?)?;
        eprintln!("{document} and {NUMBERS} are written");
    }
    match figures.report.lines.iter().find(|line| line.ratio.median < line.wanted) {
        Some(line) => bail!("{} over {}: {:.3} of version 3's rate", line.calls, line.over, line.ratio.median),
        None => Ok(()),
    }
}

fn measure(root: &Path, seconds: f64) -> anyhow::Result<Figures> {
    let (program, judge) = (programs::release(root, "rpcrdma-cli")?, programs::release(root, "rpcrdma-load")?);
    let scratch = programs::Scratch::new(root, "versions")?;
    let mut command = Command::new(judge);
    command.arg("--program").arg(program).arg("--folder").arg(&scratch.0).arg("beside");
    command.args(["--seconds", &seconds.to_string(), "--json"]);
    let output = command.stderr(Stdio::inherit()).output().context("cannot start the program that was built")?;
    // The program also fails if version 4 is too slow; then its output is complete.
    let report: Report = serde_json::from_slice(&output.stdout).context("it could not be measured")?;
    let date = Command::new("date").arg("+%F").output().context("date")?;
    let date = String::from_utf8_lossy(&date.stdout).trim().to_owned();
    Ok(Figures { date, machine: Machine::this(&scratch.0), report })
}

fn table(figures: &Figures) -> String {
    let Figures { date, machine, report } = figures;
    let mut out = format!(
        "Machine: {machine}; {date}; release build; {} s for each version in each row.\n\n\
         | calls | over | version 3 | version 4.2 | ratio | 95 % range | half of the pairs | wanted | server's us |\n\
         | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n",
        report.seconds
    );
    for Line { over, calls, version_3, version_4, ratio, wanted, .. } in &report.lines {
        let rate = |rate: &Rate| format!("{}/s", thousands(rate.calls_per_s));
        let range = |[low, high]: [f64; 2]| format!("{low:.2} to {high:.2}");
        let _ = writeln!(
            out,
            "| {calls} | {over} | {} | {} | **{:.2}** | {} | {} | {wanted} | {:.1}, {:.1} |",
            rate(version_3),
            rate(version_4),
            ratio.median,
            range(ratio.certain),
            range(ratio.quartiles),
            version_3.server_us,
            version_4.server_us
        );
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_document_has_its_part_and_the_numbers_make_it() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let text = fs::read_to_string(root.join(super::super::DOCUMENT)).unwrap();
        assert!(section::replace(&text, PART, "").is_ok(), "the marks are there");
        let Ok(numbers) = fs::read_to_string(root.join(NUMBERS)) else { return };
        let figures: Figures = serde_json::from_str(&numbers).unwrap();
        assert!(!figures.report.noise && !figures.report.lines.is_empty());
        assert_eq!(
            section::replace(&text, PART, &table(&figures)).unwrap(),
            text,
            "cargo xtask load --versions --redraw"
        );
    }

    #[test]
    fn a_row_tells_the_ratio_and_what_it_is_worth() {
        let rate = |calls_per_s| Rate { calls_per_s, mib_per_s: 100.0, server_us: 9.96, client_us: 7.0 };
        let ratio = Spread { median: 0.9, quartiles: [0.8, 1.0], certain: [0.87, 0.93] };
        let (over, calls) = ("TCP".to_owned(), "READ of 4 KiB, 8 under way".to_owned());
        let (version_3, version_4) = (rate(10_000.0), rate(9_000.0));
        let line = Line { over, calls, version_3, version_4, ratio, pairs: 50, wanted: 0.85 };
        let report = Report { seconds: 5.0, noise: false, lines: vec![line] };
        let text = table(&Figures { date: "2026-11-23".into(), machine: Machine::default(), report });
        let row = "| READ of 4 KiB, 8 under way | TCP | 10,000/s | 9,000/s | **0.90** | 0.87 to 0.93 | 0.80 to 1.00 | 0.85 | \
                   10.0, 10.0 |";
        assert_eq!(text.lines().last(), Some(row));
    }
}
