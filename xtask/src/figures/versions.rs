//! Versions 1 and 2 of RPC-over-RDMA side by side: the results of `rpcrdma bench --versions`, as a table and pictures.

use super::{
    data::{Place, median},
    machine::Machine,
    plot::{Line, draw},
};
use anyhow::{Context as _, bail};
use serde::{Deserialize, Serialize};
use std::{fmt::Write as _, path::Path, process::Command};

/// The comparisons: the name that `bench` uses, the name in the table, and the picture.
pub(super) const CASES: [Case; 4] = [
    Case {
        name: "call",
        told: "call",
        file: "versions-calls.svg",
        title: "Calls of this length, answered with 8 bytes",
    },
    Case {
        name: "reply",
        told: "reply",
        file: "versions-replies.svg",
        title: "Replies of this length, which the client knows before",
    },
    Case {
        name: "listing",
        told: "READDIRPLUS, 1000 files",
        file: "versions-listings.svg",
        title: "READDIRPLUS that fills this many bytes",
    },
    Case {
        name: "short_listing",
        told: "READDIRPLUS, 3 files",
        file: "versions-short-listings.svg",
        title: "READDIRPLUS of three files with room for this many bytes",
    },
];

/// What is compared.
pub(super) struct Case {
    name: &'static str,
    told: &'static str,
    pub(super) file: &'static str,
    pub(super) title: &'static str,
}

/// Where both processes run: on one processor, which shows what a call costs, and on one each, which shows what waiting
/// costs.
const PLACES: [Place; 2] = [Place::OneCpu, Place::TwoCpus];

/// The comparison, and where it was made.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub(super) struct Comparison {
    machine: Machine,
    /// How long each line was measured, all rounds together, in seconds.
    seconds: f64,
    rows: Vec<Row>,
}

/// What was measured of one kind of call.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
struct Row {
    place: Place,
    #[serde(flatten)]
    report: Report,
}

/// A line of `rpcrdma bench --versions --json`. The numbers are per call, and count both ends.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
struct Report {
    case: String,
    octets: u32,
    version: u32,
    round_trips: f64,
    sends: f64,
    reads: f64,
    writes: f64,
    registrations: f64,
    /// Exposures of memory that the end itself had to invalidate, because the peer did not.
    invalidations: f64,
    receives: f64,
    rounds: Vec<Times>,
}

#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
struct Times {
    p50_us: f64,
    p99_us: f64,
    cpu_us: f64,
    server_cpu_us: f64,
}

impl Times {
    fn all_cpu_us(&self) -> f64 {
        self.cpu_us + self.server_cpu_us
    }
}

impl Report {
    fn median(&self, value: fn(&Times) -> f64) -> f64 {
        median(self.rounds.iter().map(value)).unwrap_or_default()
    }
}

/// Compares the versions in every place.
pub(super) fn measure(program: &Path, scratch: &Path, seconds: f64) -> anyhow::Result<Comparison> {
    let mut rows = Vec::new();
    for place in PLACES {
        let mut command = Command::new(program);
        command.args(["bench", "--versions", "--json", "--seconds", &seconds.to_string()]);
        if place.is_apart() {
            command.arg("--apart");
        }
        let output = command.output()?;
        if !output.status.success() {
            bail!("bench --versions: {}", String::from_utf8_lossy(&output.stderr).trim());
        }
        for line in String::from_utf8(output.stdout)?.lines() {
            let report: Report = serde_json::from_str(line).with_context(|| line.to_owned())?;
            // The report also compares versions of NFS; this table leaves them out.
            if CASES.iter().any(|case| case.name == report.case) {
                rows.push(Row { place, report });
            }
        }
    }
    Ok(Comparison { machine: Machine::this(scratch), seconds, rows })
}

impl Comparison {
    fn of(&self, place: Place, case: &str, octets: u32, version: u32) -> Option<&Report> {
        let same = |row: &&Row| {
            row.place == place
                && row.report.case == case
                && row.report.octets == octets
                && row.report.version == version
        };
        self.rows.iter().find(same).map(|row| &row.report)
    }

    fn both(&self, place: Place, case: &str, octets: u32) -> Option<[&Report; 2]> {
        Some([self.of(place, case, octets, 1)?, self.of(place, case, octets, 2)?])
    }

    /// All lengths, in ascending order.
    fn lengths(&self) -> Vec<u32> {
        let mut lengths: Vec<u32> = self.rows.iter().map(|row| row.report.octets).collect();
        lengths.sort_unstable();
        lengths.dedup();
        lengths
    }
}

/// The part of the document with the comparison. `pictures` is the folder of the pictures, relative to the document.
pub(super) fn section(comparison: &Comparison, pictures: &str) -> String {
    let rounds = comparison.rows.iter().map(|row| row.report.rounds.len()).max().unwrap_or_default();
    let mut out = format!(
        "Machine: {}. Client and server are two processes on loopback, CRC on, release build. One call at a time, {} s for \
         each line, in {rounds} rounds in which the versions take turns. Times are medians of the rounds, with both \
         processes on one processor or with a processor each; \"CPU us\" is the processor time of both ends. A cell shows \
         version 1 / version 2. Counts are for one call, both ends together.\n\n\
         | what | bytes | round trips | Sends | Reads + Writes | registrations | us, one CPU | CPU us | us, two CPUs |\n\
         |---|---|---|---|---|---|---|---|---|\n",
        comparison.machine.hardware(),
        comparison.seconds,
    );
    for case in CASES {
        for octets in comparison.lengths() {
            let Some(one) = comparison.both(PLACES[0], case.name, octets) else { continue };
            let two = comparison.both(PLACES[1], case.name, octets);
            let count = |value: fn(&Report) -> f64| one.map(|report| short(value(report))).join(" / ");
            let time = |of: [&Report; 2], value: fn(&Times) -> f64| {
                of.map(|report| format!("{:.1}", report.median(value))).join(" / ")
            };
            let _ = writeln!(
                out,
                "| {} | {} | {} | {} | {} | {} | {} | {} | {} |",
                case.told,
                length(octets),
                count(|report| report.round_trips),
                count(|report| report.sends),
                count(|report| report.reads + report.writes),
                count(|report| report.registrations),
                time(one, |times| times.p50_us),
                time(one, Times::all_cpu_us),
                two.map_or_else(|| "not measured".to_owned(), |two| time(two, |times| times.p50_us)),
            );
        }
    }
    for case in CASES {
        let _ = write!(out, "\n![{}]({pictures}/{})\n", case.title, case.file);
    }
    out
}

/// All pictures, in the order of [`CASES`].
pub(super) fn pictures(comparison: &Comparison) -> anyhow::Result<Vec<String>> {
    let lengths = comparison.lengths();
    let names: Vec<String> = lengths.iter().copied().map(length).collect();
    let line = |name, case: &str, place, version| {
        let value = |&octets: &u32| Some(comparison.of(place, case, octets, version)?.median(|times| times.p50_us));
        Line { name, values: lengths.iter().map(value).collect() }
    };
    let picture = |case: &Case| {
        let lines = [
            line("version 1, one processor", case.name, Place::OneCpu, 1),
            line("version 2, one processor", case.name, Place::OneCpu, 2),
            line("version 1, two processors", case.name, Place::TwoCpus, 1),
            line("version 2, two processors", case.name, Place::TwoCpus, 2),
        ];
        draw(case.title, ("bytes", &names), "microseconds", &lines)
    };
    CASES.iter().map(picture).collect()
}

fn length(octets: u32) -> String {
    if octets < 1024 { octets.to_string() } else { format!("{}K", octets / 1024) }
}

/// A count, without decimals if it is whole.
fn short(count: f64) -> String {
    if (count - count.round()).abs() < 0.005 { format!("{count:.0}") } else { format!("{count:.2}") }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A comparison in which version 2 takes half of the time.
    pub(in crate::figures) fn comparison() -> Comparison {
        let mut rows = Vec::new();
        for place in PLACES {
            for case in CASES {
                for octets in [512, 4096] {
                    for version in [1, 2] {
                        let p50_us = f64::from(octets) / 16.0 / f64::from(version);
                        let times = Times { p50_us, p99_us: 500.0, cpu_us: 3.0, server_cpu_us: 4.0 };
                        let report = Report {
                            case: case.name.into(),
                            octets,
                            version,
                            round_trips: 1.0,
                            sends: 2.0 + f64::from(version - 1) * 0.25,
                            reads: 0.0,
                            writes: f64::from(2 - version),
                            registrations: f64::from(2 - version),
                            invalidations: 0.0,
                            receives: 2.0,
                            rounds: vec![times; 3],
                        };
                        rows.push(Row { place, report });
                    }
                }
            }
        }
        Comparison { machine: Machine::default(), seconds: 0.5, rows }
    }

    #[test]
    fn a_line_of_the_bench_is_read() {
        let line = r#"{"case":"call","octets":512,"version":2,"round_trips":1.0,"sends":2.0,"reads":0.0,"writes":0.0,
            "registrations":0.0,"invalidations":0.0,"receives":2.0,
            "rounds":[{"p50_us":9.5,"p99_us":20.0,"cpu_us":4.0,"server_cpu_us":5.0}]}"#;
        let report: Report = serde_json::from_str(line).unwrap();
        assert_eq!((&*report.case, report.octets, report.version), ("call", 512, 2));
        assert_eq!((report.median(|times| times.p50_us), report.median(Times::all_cpu_us)), (9.5, 9.0));
    }

    #[test]
    fn the_table_has_both_versions_in_each_line() {
        let section = section(&comparison(), "figures");
        for line in [
            "| call | 512 | 1 / 1 | 2 / 2.25 | 1 / 0 | 1 / 0 | 32.0 / 16.0 | 7.0 / 7.0 | 32.0 / 16.0 |",
            "| READDIRPLUS, 3 files | 4K | 1 / 1 | 2 / 2.25 | 1 / 0 | 1 / 0 | 256.0 / 128.0 | 7.0 / 7.0 | 256.0 / 128.0 |",
        ] {
            assert!(section.lines().any(|found| found == line), "{line}\n{section}");
        }
        assert_eq!(section.matches("](figures/").count(), CASES.len());
        assert!(section.contains("3 rounds") && !section.contains("not measured"));
    }

    #[test]
    fn each_picture_has_four_lines() {
        let pictures = pictures(&comparison()).unwrap();
        assert_eq!(pictures.len(), CASES.len());
        for svg in pictures {
            assert_eq!(svg.matches("<circle").count(), 4 * 2);
            assert!(svg.contains("version 2, two processors") && svg.contains("4K"));
        }
    }
}
