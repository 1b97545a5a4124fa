//! A kind of call: how `rpcrdma bench` measures it, and tables of such lines beside a yardstick.

use super::{
    data::{Place, Sample, median},
    measure::run,
    plan::{MIB, WRITE},
    table::thousands,
};
use anyhow::Context as _;
use std::{fmt::Write as _, path::Path};

/// A kind of call, and where both ends run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Line {
    pub(super) place: Place,
    pub(super) op: &'static str,
    pub(super) block: Option<u32>,
    pub(super) depth: u64,
}

/// A line of a table, with all rounds of each column; a column that was not measured has none.
pub(super) struct Row<'a> {
    pub(super) label: String,
    pub(super) line: &'a Line,
    pub(super) cells: Vec<&'a [Sample]>,
}

/// What counts for a kind of call: which figure of a measurement, its unit, and how it is written.
struct Figure {
    of: fn(&Sample) -> f64,
    unit: &'static str,
    written: fn(f64) -> String,
}

/// Runs `rpcrdma bench` for one measurement.
pub(super) fn one(program: &Path, arguments: &[String]) -> anyhow::Result<Sample> {
    let report = run(program, arguments)?.into_iter().next().context("bench reports nothing")?;
    Ok(report.sample)
}

impl Line {
    /// Measures the server at a URL; `pid` is its process, if it runs on this machine.
    pub(super) fn measure(&self, program: &Path, url: &str, pid: Option<u32>, seconds: f64) -> anyhow::Result<Sample> {
        self.measure_with(program, url, pid, seconds, &[])
    }

    /// The same with more arguments for `rpcrdma bench`.
    pub(super) fn measure_with(
        &self,
        program: &Path,
        url: &str,
        pid: Option<u32>,
        seconds: f64,
        more: &[&str],
    ) -> anyhow::Result<Sample> {
        let mut arguments = vec![url.to_owned()];
        arguments.extend(more.iter().map(|&argument| argument.to_owned()));
        arguments.extend(self.options(seconds));
        if self.op == WRITE {
            arguments.push("--overwrite".into());
        }
        arguments.extend(pid.into_iter().flat_map(|pid| ["--server-pid".into(), pid.to_string()]));
        one(program, &arguments)
    }

    /// The options with which `rpcrdma bench` measures this line.
    pub(super) fn options(&self, seconds: f64) -> Vec<String> {
        let mut options: Vec<String> = vec!["--op".into(), self.op.into(), "--depth".into(), self.depth.to_string()];
        options.extend(["--seconds".into(), seconds.to_string()]);
        if let Some(block) = self.block {
            options.extend(["--block".into(), block.to_string()]);
        }
        options
    }

    /// The arguments with which `rpcrdma bench` measures this line's limit.
    pub(super) fn limit(&self, file: &Path, seconds: f64) -> Vec<String> {
        let mut limit = vec!["--limit".to_owned(), file.display().to_string()];
        limit.extend(self.options(seconds));
        if self.place.is_apart() {
            limit.push("--apart".into());
        }
        limit
    }

    pub(super) fn told(&self) -> String {
        let (op, block) = (self.op.to_uppercase(), self.block);
        let block = block.map_or_else(String::new, |block| match block {
            MIB => " 1 MiB".into(),
            _ => format!(" {} KiB", block >> 10),
        });
        let place = if self.place == Place::OneCpu { ", one processor" } else { "" };
        format!("{op}{block}, depth {}{place}", self.depth)
    }

    fn figure(&self) -> Figure {
        match (self.depth, self.block) {
            (1, _) => Figure { of: |sample| sample.p50_us, unit: "us", written: |us| format!("{us:.1}") },
            (_, Some(MIB)) => Figure { of: |sample| sample.mib_per_s, unit: "MiB/s", written: thousands },
            _ => Figure { of: |sample| sample.ops_per_s, unit: "calls/s", written: thousands },
        }
    }

    /// The text of a cell: the rate or time that was reached, and how many times that of `beside` it is.
    fn cell(&self, samples: &[Sample], beside: Option<&[Sample]>) -> String {
        let Figure { of, written, .. } = self.figure();
        let Some(middle) = median(samples.iter().map(of)) else { return "not measured".into() };
        let ratios = beside.unwrap_or_default().iter().zip(samples).map(|(beside, own)| of(own) / of(beside));
        let share = median(ratios.filter(|ratio| ratio.is_finite()));
        written(middle) + &share.map_or_else(String::new, |share| format!(" ({share:.2})"))
    }

    /// The server's processor time in seconds for a GiB, if it was measured.
    fn server_time(samples: &[Sample], seconds: f64) -> Option<String> {
        let server = median(samples.iter().filter_map(|sample| sample.server_cpu_s))?;
        let gib = median(samples.iter().map(|sample| sample.mib_per_s))? * seconds / 1024.0;
        Some(format!("{:.2}", server / gib))
    }
}

/// The table of these lines, in which each column is compared with the first that was measured, and a table of the
/// server's processor time in the lines that move blocks of 1 MiB.
pub(super) fn tables(columns: &[&str], rows: &[Row<'_>], seconds: f64) -> String {
    let head = format!("| call | {} |\n|---{}|\n", columns.join(" | "), "|---".repeat(columns.len()));
    let mut out = head.clone();
    for Row { label, line, cells } in rows {
        let first = cells.iter().position(|samples| !samples.is_empty()).unwrap_or(cells.len());
        let _ = write!(out, "| {label}, {} |", line.figure().unit);
        for (number, samples) in cells.iter().enumerate() {
            let beside = (number > first).then(|| cells[first]);
            let _ = write!(out, " {} |", line.cell(samples, beside));
        }
        out.push('\n');
    }
    let _ = write!(out, "\nThe server's processor time for a GiB, in seconds:\n\n{head}");
    for Row { label, cells, .. } in rows.iter().filter(|row| row.line.block == Some(MIB)) {
        let _ = write!(out, "| {label} |");
        for samples in cells {
            let _ = write!(out, " {} |", Line::server_time(samples, seconds).unwrap_or_default());
        }
        out.push('\n');
    }
    out
}
