//! What was measured of both versions, for people and programs.

use super::{Case, count::Counts, nfs::Version};
use anyhow::Result;
use indicatif::BinaryBytes;
use serde_json::json;
use std::io::Write;

/// The times of one round.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Times {
    pub(super) p50_us: f64,
    pub(super) p99_us: f64,
    /// Processor time of each process for a call.
    pub(super) cpu_us: f64,
    pub(super) server_cpu_us: f64,
}

/// One kind of call, of one length, over one version of RPC-over-RDMA.
#[derive(Debug)]
pub(super) struct Line {
    pub(super) case: Case,
    pub(super) octets: u32,
    pub(super) version: u32,
    /// How many calls were counted.
    pub(super) calls: u64,
    pub(super) client: Counts,
    pub(super) server: Counts,
    pub(super) rounds: Vec<Times>,
}

impl Line {
    fn each(&self, value: impl Fn(&Counts) -> u64) -> f64 {
        (value(&self.client) + value(&self.server)) as f64 / self.calls.max(1) as f64
    }

    /// Round trips of a call: its own, and one for each wait in between.
    fn round_trips(&self) -> f64 {
        1.0 + self.each(|counts| counts.waits)
    }

    fn median(&self, value: impl Fn(&Times) -> f64) -> f64 {
        let mut values: Vec<f64> = self.rounds.iter().map(value).collect();
        values.sort_by(f64::total_cmp);
        values.get(values.len() / 2).copied().unwrap_or_default()
    }

    fn json(&self) -> serde_json::Value {
        let times = |times: &Times| {
            json!({
                "p50_us": rounded(times.p50_us), "p99_us": rounded(times.p99_us),
                "cpu_us": rounded(times.cpu_us), "server_cpu_us": rounded(times.server_cpu_us),
            })
        };
        let rounds: Vec<_> = self.rounds.iter().map(times).collect();
        json!({
            "case": self.case.name(), "octets": self.octets, "version": self.version,
            "nfs": self.case.nfs().map(Version::name),
            "round_trips": rounded(self.round_trips()),
            "sends": rounded(self.each(|counts| counts.sends)),
            "reads": rounded(self.each(|counts| counts.reads)),
            "writes": rounded(self.each(|counts| counts.writes)),
            "registrations": rounded(self.each(|counts| counts.registrations)),
            "invalidations": rounded(self.each(|counts| counts.invalidations)),
            "receives": rounded(self.each(|counts| counts.receives)),
            "rounds": rounds,
        })
    }

    fn text(&self) -> String {
        format!(
            "{:>13} {:>10} {:>4} {:>7} {:>11.2} {:>5.2} {:>5.2} {:>6.2} {:>13.2} {:>13.2} {:>7.1} {:>7.1} {:>8.1} {:>10.1}",
            self.case.name(),
            BinaryBytes(self.octets.into()).to_string(),
            self.case.nfs().map_or("", Version::name),
            self.version,
            self.round_trips(),
            self.each(|counts| counts.sends),
            self.each(|counts| counts.reads),
            self.each(|counts| counts.writes),
            self.each(|counts| counts.registrations),
            self.each(|counts| counts.invalidations),
            self.median(|times| times.p50_us),
            self.median(|times| times.p99_us),
            self.median(|times| times.cpu_us),
            self.median(|times| times.server_cpu_us),
        )
    }
}

/// Writes a table to standard output, or a line of JSON for each line of it. Numbers are those of one call; times are
/// medians over all rounds.
pub(super) fn print(lines: &[Line], as_json: bool) -> Result<()> {
    let mut out = std::io::stdout().lock();
    if !as_json {
        writeln!(
            out,
            "{:>13} {:>10} {:>4} {:>7} {:>11} {:>5} {:>5} {:>6} {:>13} {:>13} {:>7} {:>7} {:>8} {:>10}",
            "what",
            "octets",
            "NFS",
            "version",
            "round trips",
            "Sends",
            "Reads",
            "Writes",
            "registrations",
            "invalidations",
            "p50 us",
            "p99 us",
            "CPU here",
            "CPU server",
        )?;
    }
    for line in lines {
        let text = if as_json { line.json().to_string() } else { line.text() };
        writeln!(out, "{text}")?;
    }
    Ok(())
}

fn rounded(value: f64) -> f64 {
    (value * 100.0).round() / 100.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ends_are_added_and_divided_by_calls() {
        let client = Counts { sends: 10, registrations: 10, ..Counts::default() };
        let server = Counts { sends: 15, reads: 10, waits: 10, ..Counts::default() };
        let times = [3.0, 1.0, 2.0].map(|p50_us| Times { p50_us, ..Times::default() });
        let line = Line { case: Case::Call, octets: 8192, version: 1, calls: 10, client, server, rounds: times.into() };
        let told = line.json();
        for (key, value) in
            [("round_trips", 2.0), ("sends", 2.5), ("reads", 1.0), ("writes", 0.0), ("registrations", 1.0)]
        {
            assert_eq!(told[key].as_f64(), Some(value), "{key}");
        }
        assert_eq!((told["case"].as_str(), told["rounds"].as_array().map(Vec::len)), (Some("call"), Some(3)));
        assert_eq!(line.median(|times| times.p50_us), 2.0);
        let text = line.text();
        assert_eq!(text.split_whitespace().take(4).collect::<Vec<_>>(), ["call", "8.00", "KiB", "1"], "{text}");
    }
}
