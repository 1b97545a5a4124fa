//! Compares our rates with what the machine can do: `rpcrdma bench --limit` and `rpcrdma bench` of a served file run by
//! turns; the results form a table.

use super::{
    data::{Place, Sample},
    line::{Line, Row, one, tables},
    machine::Conditions,
    measure::{Pinned, Server},
    plan::{DEPTH, KIB_4, MAX_DEPTH, MIB, NULL, READ, WRITE},
};
use crate::programs::exported;
use indicatif::ProgressBar;
use serde::{Deserialize, Serialize};
use std::path::Path;

const GETATTR: &str = "getattr";

/// The measurements of each way, in the order of the table.
pub(super) const LINES: [Line; 9] = [
    Line { place: Place::TwoCpus, op: READ, block: Some(MIB), depth: DEPTH },
    Line { place: Place::TwoCpus, op: WRITE, block: Some(MIB), depth: DEPTH },
    Line { place: Place::TwoCpus, op: READ, block: Some(KIB_4), depth: MAX_DEPTH },
    Line { place: Place::TwoCpus, op: GETATTR, block: None, depth: MAX_DEPTH },
    Line { place: Place::TwoCpus, op: NULL, block: None, depth: MAX_DEPTH },
    Line { place: Place::TwoCpus, op: READ, block: Some(KIB_4), depth: 1 },
    Line { place: Place::TwoCpus, op: NULL, block: None, depth: 1 },
    Line { place: Place::OneCpu, op: READ, block: Some(KIB_4), depth: 1 },
    Line { place: Place::OneCpu, op: NULL, block: None, depth: 1 },
];

/// The ways to compare with the limit, and the rest of the URL behind the server's address.
const WAYS: [Way; 4] = [
    Way { told: "NFS 3, RPC-over-RDMA 1", tcp: false, query: "version=3&rpcrdma=1" },
    Way { told: "NFS 3, RPC-over-RDMA 2", tcp: false, query: "version=3&rpcrdma=2" },
    Way { told: "NFS 4.2, RPC-over-RDMA 1", tcp: false, query: "version=4.2&rpcrdma=1" },
    Way { told: "NFS 3, TCP", tcp: true, query: "version=3&transport=tcp" },
];

struct Way {
    told: &'static str,
    tcp: bool,
    query: &'static str,
}

/// What was measured, and where.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub(super) struct Limits {
    #[serde(flatten)]
    conditions: Conditions,
    /// In the order of the lines.
    rows: Vec<Rounds>,
}

/// A line of the table, with all rounds.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
struct Rounds {
    limit: Vec<Sample>,
    /// The limit for blocks where the end with the file works as a server has to (`--as-server`).
    #[serde(default)]
    as_server: Vec<Sample>,
    /// In the order of the ways.
    ways: Vec<Vec<Sample>>,
}

/// Measures every line in `rounds` rounds of `seconds` seconds each.
pub(super) fn measure(program: &Path, scratch: &Path, rounds: usize, seconds: f64) -> anyhow::Result<Limits> {
    let export = exported(&scratch.join("limit"))?;
    let empty = Rounds { ways: vec![Vec::new(); WAYS.len()], ..Rounds::default() };
    let mut rows = vec![empty; LINES.len()];
    let progress = ProgressBar::new((rounds * LINES.len()) as u64);
    for _ in 0..rounds {
        for place in [Place::TwoCpus, Place::OneCpu] {
            let pinned = Pinned::to(0)?;
            let server = Server::start(program, place, &export, &scratch.join("limit-state"))?;
            // Where each end has a processor of its own, the code below pins this end.
            let _pinned = (!place.is_apart()).then_some(pinned);
            round(program, &server, &export, seconds, &mut rows, &progress)?;
        }
    }
    progress.finish_and_clear();
    Ok(Limits { conditions: Conditions::here(&export, seconds)?, rows })
}

/// One round in the place of a server.
fn round(
    program: &Path,
    server: &Server,
    export: &Path,
    seconds: f64,
    rows: &mut [Rounds],
    progress: &ProgressBar,
) -> anyhow::Result<()> {
    // Makes the file, which the limit uses as well, or brings it into the page cache.
    server.bench(program, WRITE, Some(MIB), DEPTH, 0.01)?;
    for (line, row) in LINES.iter().zip(rows).filter(|(line, _)| line.place == server.place) {
        let mut limit = line.limit(&export.join("bench"), seconds);
        row.limit.push(one(program, &limit)?);
        if line.block == Some(MIB) {
            limit.push("--as-server".into());
            row.as_server.push(one(program, &limit)?);
        }
        let _pinned = line.place.is_apart().then(|| Pinned::to(1)).transpose()?;
        // Another way begins in each round: what runs first finds the machine in another state than what runs later.
        let first = row.limit.len();
        for turn in 0..WAYS.len() {
            let at = (first + turn) % WAYS.len();
            let url = server.url_of("bench", WAYS[at].tcp, WAYS[at].query);
            row.ways[at].push(line.measure(program, &url, Some(server.pid()), seconds)?);
        }
        progress.inc(1);
    }
    Ok(())
}

/// This part of the document, as text.
pub(super) fn section(limits: &Limits) -> String {
    let rounds = limits.rows.first().map_or(0, |row| row.limit.len());
    let mut out = format!(
        "Machine: {}; {} for TCP, one file in the page cache. Two processes of one thread on loopback, with a processor \
         each unless the line says otherwise, CRC on, release build. Each cell is the median of {rounds} rounds of {} s in \
         which all take turns. In brackets: the share of the limit within a round; with depth 1, how many times its \
         latency.\n\n",
        limits.conditions.machine, limits.conditions.congestion, limits.conditions.seconds,
    );
    let columns: Vec<&str> = std::iter::once("limit").chain(WAYS.map(|way| way.told)).collect();
    let rows = LINES.iter().zip(&limits.rows).map(|(line, row)| {
        let cells = std::iter::once(&row.limit).chain(&row.ways).map(Vec::as_slice).collect();
        Row { label: line.told(), line, cells }
    });
    out += &tables(&columns, &rows.collect::<Vec<_>>(), limits.conditions.seconds);
    let blocks = LINES.iter().zip(&limits.rows).filter(|(_, row)| !row.as_server.is_empty());
    let rows = blocks.map(|(line, row)| {
        let cells = std::iter::once(&row.as_server).chain(&row.ways).map(Vec::as_slice).collect();
        Row { label: line.told(), line, cells }
    });
    let rows: Vec<_> = rows.collect();
    if !rows.is_empty() {
        out += "\nThe same beside a limit that works as a server has to (`--as-server`): it handles each block whole, in \
                memory of its own for each call, with the file's attributes, asks for the bytes of a WRITE, and writes \
                them on a second thread as another user. The shares are of this limit:\n\n";
        let columns: Vec<&str> = std::iter::once("limit as a server").chain(WAYS.map(|way| way.told)).collect();
        out += &tables(&columns, &rows, limits.conditions.seconds);
    }
    out
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Figures in which every way reaches half of the limit.
    pub(in crate::figures) fn limits() -> Limits {
        let sample = |share: f64| Sample {
            ops_per_s: 100_000.0 * share,
            mib_per_s: 2048.0 * share,
            p50_us: 10.0 / share,
            server_cpu_s: Some(0.5),
            ..Sample::default()
        };
        let row = |line: &Line| Rounds {
            limit: vec![sample(1.0); 3],
            as_server: if line.block == Some(MIB) { vec![sample(0.8); 3] } else { Vec::new() },
            ways: vec![vec![sample(0.5); 3]; WAYS.len()],
        };
        let rows = LINES.iter().map(row).collect();
        Limits { conditions: Conditions { congestion: "cubic".into(), seconds: 1.0, ..Conditions::default() }, rows }
    }

    #[test]
    fn the_table_tells_shares_of_the_limit() {
        let section = section(&limits());
        for begin in [
            "| READ 1 MiB, depth 8, MiB/s | 2,048 | 1,024 (0.50) |",
            "| READ 1 MiB, depth 8 | 0.25 | 0.50 |",
            "| READ 1 MiB, depth 8, MiB/s | 1,638 | 1,024 (0.62) |",
            "| GETATTR, depth 32, calls/s | 100,000 | 50,000 (0.50) |",
            "| NULL, depth 1, one processor, us | 10.0 | 20.0 (2.00) |",
        ] {
            assert!(section.lines().any(|line| line.starts_with(begin)), "{begin}\n{section}");
        }
        assert!(!section.contains("not measured"));
        let before = Limits {
            rows: limits().rows.into_iter().map(|row| Rounds { as_server: vec![], ..row }).collect(),
            ..limits()
        };
        assert!(!super::section(&before).contains("as a server"), "measured before that limit was there");
    }

    #[test]
    fn what_is_kept_is_read_again() {
        let text = serde_json::to_string(&limits()).unwrap();
        assert_eq!(serde_json::from_str::<Limits>(&text).unwrap(), limits());
    }
}
