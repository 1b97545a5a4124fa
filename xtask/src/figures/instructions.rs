//! Instructions of a small call, counted by callgrind. They can be compared where times cannot: between builds, and
//! between days.
//!
//! The example `small_calls` has both ends in one thread. It runs twice for each cell, with different numbers of calls,
//! so that what happens once does not count.

use super::table::thousands;
use anyhow::{Context as _, ensure};
use indicatif::ProgressBar;
use serde::{Deserialize, Serialize};
use std::{fmt::Write as _, fs, path::Path, process::Command};

/// How a transport is called in the table, and for the example.
const TRANSPORTS: [(&str, &str); 3] = [("RPC-over-RDMA 1", "1"), ("RPC-over-RDMA 2", "2"), ("TCP", "tcp")];
/// The same for a call, with its version of NFS.
const CALLS: [(&str, &str, &str); 5] = [
    ("NULL", "3", "null"),
    ("GETATTR", "3", "getattr"),
    ("READ 4 KiB", "3", "read"),
    ("GETATTR, NFS 4.2", "4.2", "getattr"),
    ("READ 4 KiB, NFS 4.2", "4.2", "read"),
];
/// Calls at a time.
const DEPTH: u64 = 32;
/// Calls of both runs. Tables and pieces of memory have their size after the first thousand.
const COUNTS: [u64; 2] = [2_000, 6_000];
const QUICK_COUNTS: [u64; 2] = [200, 600];

/// What was counted.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub(super) struct Instructions {
    compiler: String,
    /// Instructions of both ends for a call: for each of [`CALLS`], in the order of [`TRANSPORTS`].
    calls: Vec<Vec<f64>>,
}

/// Counts every call over every transport with the built example.
pub(super) fn measure(small_calls: &Path, scratch: &Path, quick: bool) -> anyhow::Result<Instructions> {
    let counts = if quick { QUICK_COUNTS } else { COUNTS };
    let progress = ProgressBar::new((CALLS.len() * TRANSPORTS.len()) as u64);
    let mut calls = Vec::new();
    for (_, version, call) in CALLS {
        let mut row = Vec::new();
        for (_, transport) in TRANSPORTS {
            let [few, many] = [0, 1].map(|run| {
                let arguments = [transport, version, call, &counts[run].to_string(), &DEPTH.to_string()];
                counted(small_calls, &arguments, &scratch.join("callgrind"))
            });
            row.push(each(few?, many?, counts));
            progress.inc(1);
        }
        calls.push(row);
    }
    progress.finish_and_clear();
    Ok(Instructions { compiler: crate::programs::rustc(&["--version"])?, calls })
}

/// The instructions of each of the calls that only the second run made.
fn each(few: u64, many: u64, [fewer, more]: [u64; 2]) -> f64 {
    many.saturating_sub(few) as f64 / (more - fewer) as f64
}

/// All instructions of a run.
fn counted(program: &Path, arguments: &[&str], out: &Path) -> anyhow::Result<u64> {
    let mut command = Command::new("valgrind");
    command.args(["--tool=callgrind", "--quiet"]).arg(format!("--callgrind-out-file={}", out.display()));
    let output = command
        .arg(program)
        .args(arguments)
        .output()
        .context("valgrind cannot be started: install the package of this name")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{} {}: {said}", program.display(), arguments.join(" "));
    let text = fs::read_to_string(out).with_context(|| out.display().to_string())?;
    total(&text).with_context(|| format!("{}: no line with the sum", out.display()))
}

/// The sum in what callgrind writes.
fn total(written: &str) -> Option<u64> {
    let sum = written.lines().find_map(|line| line.strip_prefix("summary: ").or(line.strip_prefix("totals: ")))?;
    sum.trim().parse().ok()
}

/// The part of the document.
pub(super) fn section(instructions: &Instructions) -> String {
    if instructions.calls.is_empty() {
        return "Not counted.\n".into();
    }
    let mut out = format!(
        "Instructions of both ends for a call of NFS 3, unless its line says otherwise, {DEPTH} at a time, files in \
         memory; release build of {}.\n\n\
         | call |",
        instructions.compiler
    );
    for (transport, _) in TRANSPORTS {
        let _ = write!(out, " {transport} |");
    }
    let _ = writeln!(out, "\n|---{}|", "|---".repeat(TRANSPORTS.len()));
    for ((call, ..), row) in CALLS.iter().zip(&instructions.calls) {
        let _ = write!(out, "| {call} |");
        for count in row {
            let _ = write!(out, " {} |", thousands(count.round()));
        }
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn instructions() -> Instructions {
        Instructions { compiler: "rustc 1.99.0".into(), calls: vec![vec![15_000.4, 20_000.0, 9_000.0]; CALLS.len()] }
    }

    #[test]
    fn what_both_runs_did_does_not_count() {
        assert_eq!(each(1_000_000, 1_060_000, [2_000, 6_000]), 15.0);
    }

    #[test]
    fn the_sum_is_found() {
        assert_eq!(total("version: 1\nevents: Ir\nsummary: 1234\nfn=(1)\n"), Some(1234));
        assert_eq!(total("fn=(1)\n1 7\ntotals: 55\n"), Some(55));
        assert_eq!(total("fn=(1)\n1 7\n"), None);
    }

    #[test]
    fn the_table_has_a_line_for_each_call() {
        let section = section(&instructions());
        assert!(
            section.contains("| call | RPC-over-RDMA 1 | RPC-over-RDMA 2 | TCP |\n|---|---|---|---|\n"),
            "{section}"
        );
        assert!(section.contains("| READ 4 KiB | 15,000 | 20,000 | 9,000 |\n"), "{section}");
        assert_eq!(super::section(&Instructions::default()), "Not counted.\n");
        let kept = serde_json::to_string(&instructions()).unwrap();
        assert_eq!(serde_json::from_str::<Instructions>(&kept).unwrap(), instructions());
    }
}
