//! One call at a time with both ends on one processor, step by step: from two processes that only read and write a
//! socket to NFS over RPC-over-RDMA. Each step does what the one before it does, and one thing more, so the differences
//! show where the microseconds of a call go.

use super::{
    data::{Place, Sample, median},
    line::{Line, one},
    machine::Conditions,
    measure::{Pinned, Server},
    plan::{DEPTH, KIB_4, MIB, NULL, READ, WRITE},
};
use crate::programs::exported;
use indicatif::ProgressBar;
use serde::{Deserialize, Serialize};
use std::{fmt::Write as _, path::Path};

/// The calls, a column each.
const LINES: [Line; 2] = [
    Line { place: Place::OneCpu, op: NULL, block: None, depth: 1 },
    Line { place: Place::OneCpu, op: READ, block: Some(KIB_4), depth: 1 },
];

/// What is measured at a step.
enum How {
    /// `rpcrdma bench --limit`, whose ends wait in this way.
    Limit(&'static str),
    /// Our server over TCP or RDMA, and the query of its URL.
    Ours { tcp: bool, query: &'static str },
}

struct Step {
    told: &'static str,
    how: How,
    /// The index of the step with which this one is compared: it does the same and one thing more.
    after: Option<usize>,
}

const STEPS: [Step; 7] = [
    Step { told: "the system calls that send and receive, CRCs, the file", how: How::Limit("read"), after: None },
    Step { told: "the wait by epoll", how: How::Limit("epoll"), after: Some(0) },
    Step { told: "tokio", how: How::Limit("tokio"), after: Some(1) },
    Step {
        told: "RPC and NFS 3, at both ends, over TCP",
        how: How::Ours { tcp: true, query: "version=3&transport=tcp" },
        after: Some(2),
    },
    Step {
        told: "RPC-over-RDMA 1 and iWARP",
        how: How::Ours { tcp: false, query: "version=3&rpcrdma=1" },
        after: Some(3),
    },
    Step {
        told: "version 2 instead of 1",
        how: How::Ours { tcp: false, query: "version=3&rpcrdma=2" },
        after: Some(4),
    },
    Step {
        told: "NFS 4.2 instead of NFS 3",
        how: How::Ours { tcp: false, query: "version=4.2&rpcrdma=1" },
        after: Some(4),
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

/// Measures every step in `rounds` rounds of `seconds` seconds each.
pub(super) fn measure(program: &Path, scratch: &Path, rounds: usize, seconds: f64) -> anyhow::Result<Steps> {
    let export = exported(&scratch.join("steps"))?;
    let mut steps = vec![vec![Vec::new(); LINES.len()]; STEPS.len()];
    let progress = ProgressBar::new((rounds * STEPS.len()) as u64);
    let _pinned = Pinned::to(0)?;
    for round in 0..rounds {
        // The server is killed while its journal names the client of NFS 4.2. A server that found this journal would
        // first wait for that client, so each gets a new folder.
        let state = scratch.join(format!("steps-state-{round}"));
        let server = Server::start(program, Place::OneCpu, &export, &state)?;
        server.bench(program, WRITE, Some(MIB), DEPTH, 0.01)?;
        for (step, calls) in STEPS.iter().zip(&mut steps) {
            for (line, samples) in LINES.iter().zip(calls) {
                samples.push(match step.how {
                    How::Limit(waits) => {
                        let mut arguments = vec!["--limit".to_owned(), export.join("bench").display().to_string()];
                        arguments.extend(["--waits".into(), waits.into()]);
                        arguments.extend(line.options(seconds));
                        one(program, &arguments)?
                    }
                    How::Ours { tcp, query } => {
                        let url = server.url_of("bench", tcp, query);
                        line.measure(program, &url, Some(server.pid()), seconds)?
                    }
                });
            }
            progress.inc(1);
        }
    }
    progress.finish_and_clear();
    Ok(Steps { conditions: Conditions::here(&export, seconds)?, steps })
}

/// The part of the document.
pub(super) fn section(steps: &Steps) -> String {
    let rounds = steps.steps.first().and_then(|calls| calls.first()).map_or(0, Vec::len);
    let mut out = format!(
        "Machine: {}; {} for TCP, one file in the page cache. One call at a time, two processes on one processor, CRC \
         on, release build, {} s for each cell, medians of {rounds} rounds in which all take turns, in microseconds of \
         both ends. Each line does the work of the line in column `to`, and one thing more.\n\n\
         | adds | to | NULL | more | READ 4 KiB | more |\n|---|---|---|---|---|---|\n",
        steps.conditions.machine, steps.conditions.congestion, steps.conditions.seconds,
    );
    for (number, (step, calls)) in STEPS.iter().zip(&steps.steps).enumerate() {
        let to = step.after.map_or(String::new(), |after| (after + 1).to_string());
        let _ = write!(out, "| {}. {} | {to} |", number + 1, step.told);
        for (call, samples) in calls.iter().enumerate() {
            let before = step.after.and_then(|after| steps.steps.get(after)?.get(call));
            let time = median(samples.iter().map(|sample| sample.p50_us)).unwrap_or_default();
            let more = before.and_then(|before| {
                median(before.iter().zip(samples).map(|(before, sample)| sample.p50_us - before.p50_us))
            });
            let more = more.map_or(String::new(), |more| format!("{more:+.1}"));
            let _ = write!(out, " {time:.1} | {more} |");
        }
        out.push('\n');
    }
    out
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
            "| 1. the system calls that send and receive, CRCs, the file |  | 5.0 |  | 5.0 |  |",
            "| 2. the wait by epoll | 1 | 6.0 | +1.0 | 6.0 | +1.0 |",
            "| 7. NFS 4.2 instead of NFS 3 | 5 | 11.0 | +2.0 | 11.0 | +2.0 |",
        ] {
            assert!(section.lines().any(|told| told == line), "{line}\n{section}");
        }
    }

    #[test]
    fn a_step_adds_to_an_earlier_one() {
        for (number, step) in STEPS.iter().enumerate() {
            assert!(step.after.is_none_or(|after| after < number), "{}", step.told);
        }
    }

    #[test]
    fn what_is_kept_is_read_again() {
        let text = serde_json::to_string(&steps()).unwrap();
        assert_eq!(serde_json::from_str::<Steps>(&text).unwrap(), steps());
    }
}
