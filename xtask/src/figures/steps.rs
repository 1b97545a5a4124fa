//! One call at a time, step by step: from two processes that only read and write a socket to NFS over RPC-over-RDMA.
//! Each step does what the one before it does, and one thing more, so the differences show where the microseconds of a
//! call go.

use super::{
    data::{Place, Sample, median},
    line::{Line, one},
    machine::Conditions,
    measure::{Pinned, Server, request},
    plan::{DEPTH, KIB_4, MIB, NULL, READ, WRITE},
};
use crate::programs::exported;
use indicatif::ProgressBar;
use serde::{Deserialize, Serialize};
use std::{fmt::Write as _, path::Path};

/// The calls: a table for each place, and a column for each of its calls.
const LINES: [Line; 4] = [
    Line { place: Place::OneCpu, op: NULL, block: None, depth: 1 },
    Line { place: Place::OneCpu, op: READ, block: Some(KIB_4), depth: 1 },
    Line { place: Place::TwoCpus, op: NULL, block: None, depth: 1 },
    Line { place: Place::TwoCpus, op: READ, block: Some(KIB_4), depth: 1 },
];

const TCP: &str = "version=3&transport=tcp";
const RDMA: &str = "version=3&rpcrdma=1";
/// What lets both ends sleep at once, as the limit's ends do.
const ASLEEP: [&str; 2] = ["--busy-poll", "0"];

/// The answer to a NULL, with what RPC-over-RDMA and iWARP add.
const NULL_ANSWER: u32 = 76;

/// What is measured at a step.
enum How {
    /// `rpcrdma bench --baseline`: a request and its answer over TCP.
    Raw,
    /// `rpcrdma bench --limit`, whose ends wait in this way, and further options.
    Limit { waits: &'static str, more: &'static [&'static str] },
    /// Our server over TCP or RDMA, the query of its URL, and whether both ends sleep as soon as they have nothing to
    /// do.
    Ours { tcp: bool, query: &'static str, asleep: bool },
}

struct Step {
    told: &'static str,
    how: How,
    /// The index of the step with which this one is compared: it does the same and one thing more.
    after: Option<usize>,
}

const STEPS: [Step; 12] = [
    Step { told: "a request and an answer of this length, over TCP", how: How::Raw, after: None },
    Step { told: "iWARP's framing, CRCs, the file", how: How::Limit { waits: "read", more: &[] }, after: Some(0) },
    Step { told: "the wait by epoll", how: How::Limit { waits: "epoll", more: &[] }, after: Some(1) },
    Step { told: "tokio", how: How::Limit { waits: "tokio", more: &[] }, after: Some(2) },
    Step {
        told: "the messages of NFS 3, RPC and RPC-over-RDMA 1, written and read",
        how: How::Limit { waits: "tokio", more: &["--messages"] },
        after: Some(3),
    },
    Step {
        told: "a client that tasks share",
        how: How::Limit { waits: "tokio", more: &["--messages", "--tasks"] },
        after: Some(4),
    },
    Step {
        told: "RPC and NFS 3, at both ends, over TCP",
        how: How::Ours { tcp: true, query: TCP, asleep: true },
        after: Some(3),
    },
    Step {
        told: "RPC-over-RDMA 1 and iWARP",
        how: How::Ours { tcp: false, query: RDMA, asleep: true },
        after: Some(6),
    },
    Step {
        told: "version 2 instead of 1",
        how: How::Ours { tcp: false, query: "version=3&rpcrdma=2", asleep: true },
        after: Some(7),
    },
    Step {
        told: "NFS 4.2 instead of NFS 3",
        how: How::Ours { tcp: false, query: "version=4.2&rpcrdma=1", asleep: true },
        after: Some(7),
    },
    Step {
        told: "a look for the next message before a thread sleeps, over TCP",
        how: How::Ours { tcp: true, query: TCP, asleep: false },
        after: Some(6),
    },
    Step {
        told: "the same over RPC-over-RDMA 1",
        how: How::Ours { tcp: false, query: RDMA, asleep: false },
        after: Some(7),
    },
];

/// What was measured, and where.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub(super) struct Steps {
    #[serde(flatten)]
    conditions: Conditions,
    /// For each step and each call: all rounds.
    steps: Vec<Vec<Vec<Sample>>>,
}

impl Steps {
    /// Whether they are about these steps: numbers of an earlier revision would stand in wrong lines.
    pub(super) fn are_these(&self) -> bool {
        [0, STEPS.len()].contains(&self.steps.len())
    }
}

/// Measures every step in `rounds` rounds of `seconds` seconds each.
pub(super) fn measure(program: &Path, scratch: &Path, rounds: usize, seconds: f64) -> anyhow::Result<Steps> {
    let export = exported(&scratch.join("steps"))?;
    let mut steps = vec![vec![Vec::new(); LINES.len()]; STEPS.len()];
    let progress = ProgressBar::new((rounds * LINES.len()) as u64);
    for round in 0..rounds {
        // The server is killed while its journal names the client of NFS 4.2. A server that found this journal would
        // first wait for that client, so each gets a new folder.
        let state = |way: &str| scratch.join(format!("steps-state-{way}-{round}"));
        let pinned = Pinned::to(0)?;
        let more = ASLEEP.map(str::to_owned);
        let asleep = Server::start_with(program, Place::OneCpu, &export, &state("asleep"), &more)?;
        let looking = Server::start(program, Place::OneCpu, &export, &state("looking"))?;
        asleep.bench(program, WRITE, Some(MIB), DEPTH, 0.01)?;
        drop(pinned);
        // The machine is faster at some times than at others, so the steps of a call follow one another closely.
        for (call, line) in LINES.iter().enumerate() {
            for (step, calls) in STEPS.iter().zip(&mut steps) {
                calls[call].push(measure_step(program, &export, [&asleep, &looking], &step.how, line, seconds)?);
            }
            progress.inc(1);
        }
    }
    progress.finish_and_clear();
    Ok(Steps { conditions: Conditions::here(&export, seconds)?, steps })
}

fn measure_step(
    program: &Path,
    export: &Path,
    [sleeper, looker]: [&Server; 2],
    how: &How,
    line: &Line,
    seconds: f64,
) -> anyhow::Result<Sample> {
    let apart = line.place.is_apart();
    // A benchmark of two processes finds a processor for each by itself.
    let is_pair = matches!(how, How::Raw | How::Limit { .. });
    let _pinned = (!apart || !is_pair).then(|| Pinned::to(usize::from(apart))).transpose()?;
    match *how {
        How::Raw => request(program, line.block.unwrap_or(NULL_ANSWER), seconds, apart),
        How::Limit { waits, more } => {
            let mut arguments = line.limit(&export.join("bench"), seconds);
            arguments.extend(["--waits".into(), waits.into()]);
            arguments.extend(more.iter().copied().map(Into::into));
            one(program, &arguments)
        }
        How::Ours { tcp, query, asleep } => {
            let (server, more): (_, &[&str]) = if asleep { (sleeper, &ASLEEP) } else { (looker, &[]) };
            line.measure_with(program, &server.url_of("bench", tcp, query), Some(server.pid()), seconds, more)
        }
    }
}

/// The part of the document.
pub(super) fn section(steps: &Steps) -> String {
    let rounds = steps.steps.first().and_then(|calls| calls.first()).map_or(0, Vec::len);
    let mut out = format!(
        "Machine: {}; {} for TCP, one file in the page cache. One call at a time, two processes, CRC on, release \
         build, {} s for each cell, medians of {rounds} rounds in which all take turns, in microseconds of both ends. \
         Each line does the work of the line in column `to`, and one thing more. In brackets: how many times the first \
         line of the same round.\n",
        steps.conditions.machine, steps.conditions.congestion, steps.conditions.seconds,
    );
    for (place, told) in [(Place::OneCpu, "Both on one processor"), (Place::TwoCpus, "A processor each")] {
        let _ =
            write!(out, "\n{told}:\n\n| adds | to | NULL | more | READ 4 KiB | more |\n|---|---|---|---|---|---|\n");
        for (number, step) in STEPS.iter().enumerate() {
            let to = step.after.map_or(String::new(), |after| (after + 1).to_string());
            let _ = write!(out, "| {}. {} | {to} |", number + 1, step.told);
            for (call, _) in LINES.iter().enumerate().filter(|(_, line)| line.place == place) {
                let of = |number: usize| steps.steps.get(number).and_then(|calls| calls.get(call));
                let _ = write!(out, " {} |", cells(of(number), of(0), step.after.and_then(of)));
            }
            out.push('\n');
        }
    }
    out
}

/// The time of a step with its share of the `raw` step, and what it takes more than the step `before` it.
fn cells(samples: Option<&Vec<Sample>>, raw: Option<&Vec<Sample>>, before: Option<&Vec<Sample>>) -> String {
    let Some(samples) = samples else { return "|".into() };
    let compared = |other: Option<&Vec<Sample>>, compare: fn(f64, f64) -> f64| {
        let pairs = samples.iter().zip(other.into_iter().flatten());
        median(pairs.map(|(own, other)| compare(own.p50_us, other.p50_us)).filter(|value| value.is_finite()))
    };
    let time = median(samples.iter().map(|sample| sample.p50_us)).unwrap_or_default();
    let times = compared(raw, |own, raw| own / raw).filter(|_| before.is_some());
    let times = times.map_or(String::new(), |times| format!(" ({times:.2})"));
    let more = compared(before, |own, before| own - before).map_or(String::new(), |more| format!("{more:+.1}"));
    format!("{time:.1}{times} | {more}")
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Figures in which each step takes a microsecond more than the step before it.
    pub(in crate::figures) fn steps() -> Steps {
        let sample = |number: usize| Sample { p50_us: 5.0 + number as f64, ..Sample::default() };
        let steps = (0..STEPS.len()).map(|number| vec![vec![sample(number); 3]; LINES.len()]).collect();
        Steps { conditions: Conditions { congestion: "cubic".into(), seconds: 1.0, ..Conditions::default() }, steps }
    }

    #[test]
    fn a_step_tells_what_it_adds_to_the_one_that_it_names() {
        let section = section(&steps());
        for line in [
            "| 1. a request and an answer of this length, over TCP |  | 5.0 |  | 5.0 |  |",
            "| 3. the wait by epoll | 2 | 7.0 (1.40) | +1.0 | 7.0 (1.40) | +1.0 |",
            "| 10. NFS 4.2 instead of NFS 3 | 8 | 14.0 (2.80) | +2.0 | 14.0 (2.80) | +2.0 |",
        ] {
            assert_eq!(section.lines().filter(|told| *told == line).count(), 2, "{line}\n{section}");
        }
    }

    #[test]
    fn a_step_adds_to_an_earlier_one() {
        for (number, step) in STEPS.iter().enumerate() {
            assert!(step.after.is_none_or(|after| after < number), "{}", step.told);
        }
    }

    #[test]
    fn numbers_of_other_steps_are_not_shown() {
        let mut steps = steps();
        assert!(steps.are_these() && Steps::default().are_these());
        steps.steps.pop();
        assert!(!steps.are_these());
    }

    #[test]
    fn what_is_kept_is_read_again() {
        let text = serde_json::to_string(&steps()).unwrap();
        assert_eq!(serde_json::from_str::<Steps>(&text).unwrap(), steps());
    }
}
