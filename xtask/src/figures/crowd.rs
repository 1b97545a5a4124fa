//! One connection to many connections, with one to four threads of the server: what all connections move together, how
//! much memory the server uses, and what the yardstick (`rpcrdma bench --limit`) does over as many connections.

use super::{
    data::{Place, Sample, median},
    line::{Line, one},
    machine::Conditions,
    measure::Server,
    plan::{DEPTH, KIB_4, MIB, READ, WRITE},
    table::thousands,
};
use crate::programs::exported;
use anyhow::Context as _;
use indicatif::ProgressBar;
use serde::{Deserialize, Serialize};
use std::{fmt::Write as _, fs, path::Path};

const THREADS: [usize; 3] = [1, 2, 4];
const CONNECTIONS: [u64; 6] = [1, 2, 4, 16, 64, 256];
/// The most threads of the client: few, so that they do not become what is measured.
const CLIENT_THREADS: u64 = 2;
/// Calls under way over all connections together; with more connections than that, each has one.
const SMALL_CALLS: u64 = 64;
const LARGE_CALLS: u64 = 16;

/// What was measured, and where.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub(super) struct Crowd {
    #[serde(flatten)]
    conditions: Conditions,
    /// For each number of threads: a cell for each number of connections.
    rows: Vec<Vec<Cell>>,
    /// For each number of connections: what the yardstick did.
    #[serde(default)]
    limit: Vec<Limit>,
}

/// All rounds with one number of connections and one number of threads.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
struct Cell {
    small: Vec<Sample>,
    large: Vec<Sample>,
    /// What the server's process has in memory at the end, in KiB.
    resident_kib: Vec<u64>,
}

/// All rounds of the yardstick with one number of connections.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
struct Limit {
    small: Vec<Sample>,
    large: Vec<Sample>,
}

/// Measures every cell in `rounds` rounds of `seconds` seconds each.
pub(super) fn measure(program: &Path, scratch: &Path, rounds: usize, seconds: f64) -> anyhow::Result<Crowd> {
    let export = exported(&scratch.join("crowd"))?;
    let mut rows = vec![vec![Cell::default(); CONNECTIONS.len()]; THREADS.len()];
    let mut limit = vec![Limit::default(); CONNECTIONS.len()];
    let progress = ProgressBar::new((rounds * (THREADS.len() + 1) * CONNECTIONS.len()) as u64);
    for _ in 0..rounds {
        for (connections, Limit { small: of_small, large: of_large }) in CONNECTIONS.into_iter().zip(&mut limit) {
            for (line, samples) in [(small(connections), of_small), (large(connections), of_large)] {
                samples.push(yardstick(program, &scratch.join("crowd-limit"), connections, &line, seconds)?);
            }
            progress.inc(1);
        }
        for (threads, cells) in THREADS.into_iter().zip(&mut rows) {
            for (connections, cell) in CONNECTIONS.into_iter().zip(cells) {
                let more = ["--threads".to_owned(), threads.to_string()];
                let state = scratch.join("crowd-state");
                let server = Server::start_with(program, Place::Free, &export, &state, &more)?;
                server.bench(program, WRITE, Some(MIB), DEPTH, 0.01)?;
                let url = server.url_of("bench", false, "version=3&rpcrdma=1");
                for (line, samples) in [(small(connections), &mut cell.small), (large(connections), &mut cell.large)] {
                    let mut arguments = vec![url.clone(), "--connections".into(), connections.to_string()];
                    arguments.extend(["--threads".into(), CLIENT_THREADS.min(connections).to_string()]);
                    arguments.extend(line.options(seconds));
                    arguments.extend(["--server-pid".into(), server.pid().to_string()]);
                    samples.push(one(program, &arguments)?);
                }
                cell.resident_kib.push(resident_kib(server.pid())?);
                progress.inc(1);
            }
        }
    }
    progress.finish_and_clear();
    Ok(Crowd { conditions: Conditions::here(&export, seconds)?, rows, limit })
}

/// Measures the yardstick over so many connections; it waits as with many, even over one.
fn yardstick(program: &Path, file: &Path, connections: u64, line: &Line, seconds: f64) -> anyhow::Result<Sample> {
    let mut arguments = vec!["--limit".to_owned(), file.display().to_string()];
    arguments.extend(["--waits".into(), "tokio".into(), "--connections".into(), connections.to_string()]);
    arguments.extend(line.options(seconds));
    one(program, &arguments)
}

/// READs of 4 KiB over so many connections.
fn small(connections: u64) -> Line {
    reads(KIB_4, SMALL_CALLS, connections)
}

/// READs of 1 MiB over so many connections.
fn large(connections: u64) -> Line {
    reads(MIB, LARGE_CALLS, connections)
}

fn reads(block: u32, calls: u64, connections: u64) -> Line {
    Line { place: Place::Free, op: READ, block: Some(block), depth: (calls / connections).max(1) }
}

fn resident_kib(pid: u32) -> anyhow::Result<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
    Ok(line.trim().trim_end_matches(" kB").trim().parse()?)
}

/// This part of the document, as text.
pub(super) fn section(crowd: &Crowd) -> String {
    let rounds = crowd.rows.first().and_then(|cells| cells.first()).map_or(0, |cell| cell.small.len());
    let mut out = format!(
        "Machine: {}; {} for TCP, one file in the page cache. Loopback, NFS 3 over RPC-over-RDMA 1, wherever the \
         system puts both ends, CRC on, release build, {} s for each cell, medians of {rounds} rounds. The client is \
         one process with {CLIENT_THREADS} threads at most; all connections together have {SMALL_CALLS} calls of \
         4 KiB under way, or {LARGE_CALLS} of 1 MiB, and each has one at least. The limit has one thread at each end, \
         which waits with tokio; it reads, checks and sends each block in one piece. In brackets: the share of the \
         limit.\n",
        crowd.conditions.machine, crowd.conditions.congestion, crowd.conditions.seconds,
    );
    let rate = |sample: &Sample| sample.ops_per_s;
    let octets = |sample: &Sample| sample.mib_per_s;
    let of = |samples: &[Sample], value: fn(&Sample) -> f64| median(samples.iter().map(value));
    let limit = |number: usize| crowd.limit.get(number);
    table(
        &mut out,
        crowd,
        "READ of 4 KiB, calls a second",
        |number| limit(number).and_then(|limit| of(&limit.small, rate)),
        |cell| of(&cell.small, rate),
    );
    table(
        &mut out,
        crowd,
        "READ of 1 MiB, MiB/s",
        |number| limit(number).and_then(|limit| of(&limit.large, octets)),
        |cell| of(&cell.large, octets),
    );
    let resident = |cell: &Cell| median(cell.resident_kib.iter().map(|kib| *kib as f64 / 1024.0));
    table(&mut out, crowd, "The server's memory afterwards, MiB", |_| None, resident);
    out
}

/// A table with a line for each number of connections, and a column for each number of threads: a value of each cell,
/// and its share of the limit if there is one.
fn table(
    out: &mut String,
    crowd: &Crowd,
    title: &str,
    limit: impl Fn(usize) -> Option<f64>,
    value: impl Fn(&Cell) -> Option<f64>,
) {
    let _ = write!(out, "\n{title}:\n\n| connections | limit |");
    THREADS.iter().for_each(|threads| {
        let _ = write!(out, " {threads} thread{} |", if *threads == 1 { "" } else { "s" });
    });
    let _ = write!(out, "\n|---|---{}|\n", "|---".repeat(THREADS.len()));
    for (number, connections) in CONNECTIONS.iter().enumerate() {
        let limit = limit(number);
        let _ = write!(out, "| {connections} | {} |", limit.map_or_else(String::new, thousands));
        for cell in crowd.rows.iter().filter_map(|cells| cells.get(number)) {
            let value = value(cell).unwrap_or_default();
            let share = limit.map_or_else(String::new, |limit| format!(" ({:.2})", value / limit));
            let _ = write!(out, " {}{share} |", thousands(value));
        }
        out.push('\n');
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in crate::figures) fn crowd() -> Crowd {
        let sample = Sample { ops_per_s: 100_000.0, mib_per_s: 2048.0, ..Sample::default() };
        let twice = Sample { ops_per_s: 200_000.0, mib_per_s: 4096.0, ..Sample::default() };
        let cell = Cell { small: vec![sample.clone(); 3], large: vec![sample; 3], resident_kib: vec![10 << 10; 3] };
        let rows = vec![vec![cell; CONNECTIONS.len()]; THREADS.len()];
        let limit = Limit { small: vec![twice.clone(); 3], large: vec![twice; 3] };
        let limit = vec![limit; CONNECTIONS.len()];
        Crowd {
            conditions: Conditions { congestion: "cubic".into(), seconds: 1.0, ..Conditions::default() },
            rows,
            limit,
        }
    }

    #[test]
    fn a_line_has_a_cell_for_each_number_of_threads() {
        let section = section(&crowd());
        for (limit, cell) in [("200,000", "100,000 (0.50)"), ("4,096", "2,048 (0.50)"), ("", "10")] {
            let line = format!("| 256 | {limit} | {cell} | {cell} | {cell} |");
            assert!(section.lines().any(|told| told == line), "{section}");
        }
    }

    #[test]
    fn the_memory_of_a_process_is_read() {
        assert!(resident_kib(std::process::id()).unwrap() > 100);
    }

    #[test]
    fn what_is_kept_is_read_again() {
        let text = serde_json::to_string(&crowd()).unwrap();
        assert_eq!(serde_json::from_str::<Crowd>(&text).unwrap(), crowd());
    }
}
