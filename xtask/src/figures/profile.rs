//! Compares the build of `cargo xtask pgo` with the usual one: both serve the same file, and each is its own client, by
//! turns with the limit.

use super::{
    data::{Place, Sample},
    limit::LINES,
    line::{Row, one, tables},
    machine::Conditions,
    measure::{Pinned, Server},
    plan::{DEPTH, MIB, WRITE},
};
use crate::programs::exported;
use indicatif::ProgressBar;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// The columns behind the limit.
const BUILDS: [&str; 2] = ["usual build", "built with a profile"];
/// The rest of the URL behind the server's address.
const QUERY: &str = "version=3&rpcrdma=1";

/// What was measured, and where.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub(super) struct Profile {
    #[serde(flatten)]
    conditions: Conditions,
    /// In the order of the limit's lines.
    rows: Vec<Rounds>,
}

/// A line of the table, with all rounds.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
struct Rounds {
    limit: Vec<Sample>,
    /// In the order of [`BUILDS`].
    builds: [Vec<Sample>; 2],
}

/// Measures every line with both programs in `rounds` rounds of `seconds` seconds each.
pub(super) fn measure(programs: [&Path; 2], scratch: &Path, rounds: usize, seconds: f64) -> anyhow::Result<Profile> {
    let export = exported(&scratch.join("profile"))?;
    let [usual, _] = programs;
    let mut rows = vec![Rounds::default(); LINES.len()];
    let progress = ProgressBar::new((rounds * LINES.len()) as u64);
    for round in 0..rounds {
        for place in [Place::TwoCpus, Place::OneCpu] {
            let pinned = Pinned::to(0)?;
            let start = |number: usize| {
                let state = scratch.join(format!("profile-state-{number}"));
                Server::start(programs[number], place, &export, &state)
            };
            let servers = [start(0)?, start(1)?];
            // Where each end has a processor of its own, the code below pins this end.
            let _pinned = (!place.is_apart()).then_some(pinned);
            // Makes the file, or brings it into the page cache.
            servers[0].bench(usual, WRITE, Some(MIB), DEPTH, 0.01)?;
            for (line, row) in LINES.iter().zip(&mut rows).filter(|(line, _)| line.place == place) {
                row.limit.push(one(usual, &line.limit(&export.join("bench"), seconds))?);
                let _pinned = place.is_apart().then(|| Pinned::to(1)).transpose()?;
                let order = if round % 2 == 0 { [0, 1] } else { [1, 0] };
                for number in order {
                    let (server, url) = (&servers[number], servers[number].url_of("bench", false, QUERY));
                    row.builds[number].push(line.measure(programs[number], &url, Some(server.pid()), seconds)?);
                }
                progress.inc(1);
            }
        }
    }
    progress.finish_and_clear();
    Ok(Profile { conditions: Conditions::here(&export, seconds)?, rows })
}

/// This part of the document, as text.
pub(super) fn section(profile: &Profile) -> String {
    if profile.rows.is_empty() {
        return "Not measured.\n".into();
    }
    let rounds = profile.rows.first().map_or(0, |row| row.limit.len());
    let mut out = format!(
        "Machine: {}; {} for TCP, one file in the page cache. NFS 3 over RPC-over-RDMA 1; two processes of one thread on \
         loopback, with a processor each unless the line says otherwise, CRC on. Each cell is the median of {rounds} \
         rounds of {} s in which all take turns. In brackets: the share of the limit within a round; with depth 1, how \
         many times its latency.\n\n",
        profile.conditions.machine, profile.conditions.congestion, profile.conditions.seconds,
    );
    let columns: Vec<&str> = std::iter::once("limit").chain(BUILDS).collect();
    let rows = LINES.iter().zip(&profile.rows).map(|(line, row)| {
        let cells = std::iter::once(&row.limit).chain(&row.builds).map(Vec::as_slice).collect();
        Row { label: line.told(), line, cells }
    });
    out += &tables(&columns, &rows.collect::<Vec<_>>(), profile.conditions.seconds);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_shows_both_builds_beside_the_limit() {
        let sample = |share: f64| Sample { ops_per_s: 100_000.0 * share, p50_us: 10.0 / share, ..Sample::default() };
        let row = Rounds { limit: vec![sample(1.0); 3], builds: [vec![sample(0.5); 3], vec![sample(0.625); 3]] };
        let profile = Profile { rows: vec![row; LINES.len()], ..Profile::default() };
        let section = super::section(&profile);
        for line in [
            "| GETATTR, depth 32, calls/s | 100,000 | 50,000 (0.50) | 62,500 (0.62) |",
            "| NULL, depth 1, one processor, us | 10.0 | 20.0 (2.00) | 16.0 (1.60) |",
        ] {
            assert!(section.lines().any(|found| found == line), "{line}\n{section}");
        }
        assert_eq!(super::section(&Profile::default()), "Not measured.\n");
        let text = serde_json::to_string(&profile).unwrap();
        assert_eq!(serde_json::from_str::<Profile>(&text).unwrap(), profile);
    }
}
