//! Compares ends that look for the next message while it pays (`--busy-poll auto`, the default) with ends that sleep at
//! once: how fast they are, and what a program on the server's processor loses.

use super::{
    data::{Place, Sample, median},
    line::{Line, Row, tables},
    machine::Conditions,
    measure::{Pinned, Server, nth_processor},
    plan::{DEPTH, KIB_4, MAX_DEPTH, MIB, NULL, READ, WRITE},
    table::thousands,
};
use crate::programs::exported;
use indicatif::ProgressBar;
use serde::{Deserialize, Serialize};
use std::{
    fmt::Write as _,
    hint::black_box,
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

/// The values of `--busy-poll`, in the order of the columns.
const WAYS: [&str; 2] = ["0", "auto"];
const COLUMNS: [&str; 2] = ["asleep at once", "looking while it pays"];
/// The rest of the URL behind the server's address.
const QUERY: &str = "version=3&rpcrdma=1";

const LINES: [Line; 14] = [
    apart(READ, Some(KIB_4), 1),
    apart(READ, Some(KIB_4), 2),
    apart(READ, Some(KIB_4), DEPTH),
    apart(READ, Some(KIB_4), MAX_DEPTH),
    apart(NULL, None, 1),
    apart(NULL, None, MAX_DEPTH),
    apart(WRITE, Some(KIB_4), 1),
    apart(READ, Some(MIB), DEPTH),
    apart(WRITE, Some(MIB), DEPTH),
    together(READ, Some(KIB_4), 1),
    together(READ, Some(KIB_4), DEPTH),
    together(READ, Some(KIB_4), MAX_DEPTH),
    together(NULL, None, 1),
    together(NULL, None, MAX_DEPTH),
];
/// What the server does while another program computes on its processor.
const BESIDE: [Line; 2] = [apart(READ, Some(KIB_4), 1), apart(READ, Some(KIB_4), MAX_DEPTH)];

const fn apart(op: &'static str, block: Option<u32>, depth: u64) -> Line {
    Line { place: Place::TwoCpus, op, block, depth }
}

const fn together(op: &'static str, block: Option<u32>, depth: u64) -> Line {
    Line { place: Place::OneCpu, op, block, depth }
}

/// What was measured, and where.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub(super) struct Polling {
    #[serde(flatten)]
    conditions: Conditions,
    /// In the order of [`LINES`]; in each, all rounds in the order of [`WAYS`].
    rows: Vec<[Vec<Sample>; 2]>,
    /// Loops a second of a program that has the processor for itself.
    alone: Vec<f64>,
    /// In the order of [`BESIDE`]: the same beside a server, and what the server did.
    beside: Vec<[Vec<Beside>; 2]>,
}

/// One round of a program that computes beside a server.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
struct Beside {
    loops_per_s: f64,
    server: Sample,
}

/// Measures every line in both ways in `rounds` rounds of `seconds` seconds each.
pub(super) fn measure(program: &Path, scratch: &Path, rounds: usize, seconds: f64) -> anyhow::Result<Polling> {
    let export = exported(&scratch.join("polling"))?;
    let mut rows = vec![<[Vec<Sample>; 2]>::default(); LINES.len()];
    let mut beside = vec![<[Vec<Beside>; 2]>::default(); BESIDE.len()];
    let mut alone = Vec::new();
    let first = nth_processor(0)?;
    let progress = ProgressBar::new((rounds * (LINES.len() + BESIDE.len())) as u64);
    for round in 0..rounds {
        let order = if round % 2 == 0 { [0, 1] } else { [1, 0] };
        for place in [Place::TwoCpus, Place::OneCpu] {
            let pinned = Pinned::to(0)?;
            let start = |way: usize| {
                let more = ["--busy-poll".to_owned(), WAYS[way].to_owned()];
                Server::start_with(program, place, &export, &scratch.join(format!("polling-state-{way}")), &more)
            };
            let servers = [start(0)?, start(1)?];
            // Makes the file, or brings it into the page cache.
            servers[0].bench(program, WRITE, Some(MIB), DEPTH, 0.01)?;
            let measure = |line: &Line, way: usize| {
                let server = &servers[way];
                let url = server.url_of("bench", false, QUERY);
                line.measure_with(program, &url, Some(server.pid()), seconds, &["--busy-poll", WAYS[way]])
            };
            let _pinned = if place.is_apart() {
                drop(pinned);
                Pinned::to(1)?
            } else {
                pinned
            };
            for (line, row) in LINES.iter().zip(&mut rows).filter(|(line, _)| line.place == place) {
                for way in order {
                    row[way].push(measure(line, way)?);
                }
                progress.inc(1);
            }
            if place == Place::OneCpu {
                continue;
            }
            alone.push(computing(first, || std::thread::sleep(Duration::from_secs_f64(seconds)))?.0);
            for (line, row) in BESIDE.iter().zip(&mut beside) {
                for way in order {
                    let (loops_per_s, server) = computing(first, || measure(line, way))?;
                    row[way].push(Beside { loops_per_s, server: server? });
                }
                progress.inc(1);
            }
        }
    }
    progress.finish_and_clear();
    Ok(Polling { conditions: Conditions::here(&export, seconds)?, rows, alone, beside })
}

/// How many loops a second a thread makes on a processor while `work` is done on this thread, and what comes
/// of the work.
fn computing<T>(cpu: usize, work: impl FnOnce() -> T) -> anyhow::Result<(f64, T)> {
    /// So many additions are one loop.
    const ADDITIONS: u64 = 10_000;
    let ends = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let computes = scope.spawn(|| {
            let _pinned = Pinned::on(cpu)?;
            let (begin, mut loops) = (Instant::now(), 0_u64);
            while !ends.load(Ordering::Relaxed) {
                (0..ADDITIONS).for_each(|number| _ = black_box(number));
                loops += 1;
            }
            anyhow::Ok(loops as f64 / begin.elapsed().as_secs_f64())
        });
        let done = work();
        ends.store(true, Ordering::Relaxed);
        let loops = computes.join().map_err(|_| anyhow::anyhow!("the thread that computes has panicked"))??;
        Ok((loops, done))
    })
}

/// This part of the document, as text.
pub(super) fn section(polling: &Polling) -> String {
    if polling.rows.is_empty() {
        return "Not measured.\n".into();
    }
    let Conditions { machine, congestion, seconds, .. } = &polling.conditions;
    let mut out = format!(
        "Machine: {machine}; {congestion} for TCP, one file in the page cache. NFS 3 over RPC-over-RDMA 1; two \
         processes of one thread on loopback, with a processor each unless the line says otherwise, CRC on, release \
         build. Each cell is the median of {} rounds of {seconds} s in which both take turns. In brackets: how many \
         times the first within a round.\n\n",
        polling.alone.len(),
    );
    let rows = LINES.iter().zip(&polling.rows).map(|(line, row)| Row {
        label: line.told(),
        line,
        cells: row.iter().map(Vec::as_slice).collect(),
    });
    out += &tables(&COLUMNS, &rows.collect::<Vec<_>>(), *seconds);
    let alone = median(polling.alone.iter().copied()).unwrap_or_default();
    let _ = write!(
        out,
        "\nA program that computes on the server's processor, in loops a second; alone it makes {}. In brackets: what \
         it has of that, and READs of 4 KiB that the server answers a second meanwhile:\n\n| the server's calls | {} |\n\
         |---|---|---|\n",
        thousands(alone),
        COLUMNS.join(" | "),
    );
    for (line, row) in BESIDE.iter().zip(&polling.beside) {
        let _ = write!(out, "| {} |", line.told());
        for rounds in row {
            let loops = median(rounds.iter().map(|round| round.loops_per_s)).unwrap_or_default();
            let calls = median(rounds.iter().map(|round| round.server.ops_per_s)).unwrap_or_default();
            let _ = write!(out, " {} ({:.2}; {}) |", thousands(loops), loops / alone, thousands(calls));
        }
        out.push('\n');
    }
    out
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in crate::figures) fn polling() -> Polling {
        let sample = |share: f64| Sample { ops_per_s: 100_000.0 * share, p50_us: 10.0 / share, ..Sample::default() };
        let rounds = |share: f64| vec![Beside { loops_per_s: 5000.0 * share, server: sample(share) }; 3];
        Polling {
            rows: vec![[vec![sample(1.0); 3], vec![sample(2.0); 3]]; LINES.len()],
            alone: vec![10_000.0; 3],
            beside: vec![[rounds(1.0), rounds(1.2)]; BESIDE.len()],
            ..Polling::default()
        }
    }

    #[test]
    fn both_ways_stand_beside_each_other() {
        let section = section(&polling());
        for line in [
            "| READ 4 KiB, depth 2, calls/s | 100,000 | 200,000 (2.00) |",
            "| NULL, depth 1, one processor, us | 10.0 | 5.0 (0.50) |",
            "| READ 4 KiB, depth 32 | 5,000 (0.50; 100,000) | 6,000 (0.60; 120,000) |",
        ] {
            assert!(section.lines().any(|found| found == line), "{line}\n{section}");
        }
        assert_eq!(super::section(&Polling::default()), "Not measured.\n");
    }

    #[test]
    fn what_computes_is_counted() {
        let (loops, done) = computing(nth_processor(0).unwrap(), || {
            std::thread::sleep(Duration::from_millis(20));
            7
        })
        .unwrap();
        assert!(loops > 1.0 && done == 7);
    }

    #[test]
    fn what_is_kept_is_read_again() {
        let text = serde_json::to_string(&polling()).unwrap();
        assert_eq!(serde_json::from_str::<Polling>(&text).unwrap(), polling());
    }
}
