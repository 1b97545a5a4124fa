//! The results, for people and programs.

use super::{spread::Spread, turns::Turn};
use serde::Serialize;
use std::{fmt, time::Duration};

/// All lines.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    /// How long each version worked on each line.
    pub(super) seconds: f64,
    /// Whether version 3 was compared with itself.
    pub(super) noise: bool,
    /// The lines.
    pub(super) lines: Vec<Line>,
}

/// Calls of one kind over one transport.
#[derive(Debug, Serialize)]
pub(super) struct Line {
    /// What carried the calls.
    pub(super) over: &'static str,
    /// Which calls.
    pub(super) calls: String,
    /// Version 3.
    pub(super) version_3: Rate,
    /// Version 4.2.
    pub(super) version_4: Rate,
    /// Version 4's rate as a fraction of version 3's, in pairs of turns.
    pub(super) ratio: Spread,
    /// How many pairs.
    pub(super) pairs: usize,
    /// The least that the median ought to be.
    pub(super) wanted: f64,
}

/// How fast one version was.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Rate {
    /// Calls a second, in all turns together.
    pub(super) calls_per_s: f64,
    /// MiB a second.
    pub(super) mib_per_s: f64,
    /// Processor time of the server for each call, in microseconds.
    pub(super) server_us: f64,
    /// Processor time of the client for each call, in microseconds.
    pub(super) client_us: f64,
}

impl Rate {
    fn of(turns: impl Iterator<Item = Turn>, block: u32) -> Self {
        let all = turns.fold(Turn::default(), |all, turn| Turn {
            calls: all.calls + turn.calls,
            took: all.took + turn.took,
            server: all.server + turn.server,
            client: all.client + turn.client,
        });
        let rate = all.rate();
        let each = |time: Duration| rounded(time.as_secs_f64() * 1e6 / (all.calls.max(1) as f64), 100.0);
        Self {
            calls_per_s: rounded(rate, 10.0),
            mib_per_s: rounded(rate * f64::from(block) / f64::from(1 << 20), 10.0),
            server_us: each(all.server),
            client_us: each(all.client),
        }
    }
}

impl Line {
    pub(super) fn of(over: &'static str, calls: String, wanted: f64, block: u32, turns: &[[Turn; 2]]) -> Self {
        let ratios = turns.iter().map(|[three, four]| four.rate() / three.rate().max(1e-9)).collect();
        Self {
            over,
            calls,
            version_3: Rate::of(turns.iter().map(|[three, _]| *three), block),
            version_4: Rate::of(turns.iter().map(|[_, four]| *four), block),
            ratio: Spread::of(ratios),
            pairs: turns.len(),
            wanted,
        }
    }

    /// Whether version 4 is as fast as it ought to be.
    pub(super) fn is_met(&self) -> bool {
        self.ratio.median >= self.wanted
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let other = if self.noise { "version 3 again" } else { "version 4.2" };
        for line in &self.lines {
            let Line { version_3: three, version_4: four, ratio, wanted, pairs, .. } = line;
            let met = if line.is_met() { "met" } else { "MISSED" };
            writeln!(f, "{} over {}", line.calls, line.over)?;
            for (name, rate) in [("version 3", three), (other, four)] {
                writeln!(
                    f,
                    "  {name:<16}{:>10.0} calls/s {:>9.1} MiB/s, {:>7.1} us of the server's and {:>7.1} us of the client's \
                     processor each",
                    rate.calls_per_s, rate.mib_per_s, rate.server_us, rate.client_us
                )?;
            }
            let ([low, high], [first, third]) = (ratio.certain, ratio.quartiles);
            writeln!(
                f,
                "  ratio {:.3} ({low:.3} to {high:.3} with 95 %; half of {pairs} pairs within {first:.3} to {third:.3}); \
                 wanted {wanted}: {met}",
                ratio.median
            )?;
        }
        Ok(())
    }
}

fn rounded(value: f64, parts: f64) -> f64 {
    (value * parts).round() / parts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turn(calls: u64) -> Turn {
        let (took, server) = (Duration::from_millis(100), Duration::from_millis(calls));
        Turn { calls, took, server, client: Duration::ZERO }
    }

    #[test]
    fn a_line_compares_turns_and_is_judged_by_their_median() {
        let turns = [[turn(100), turn(95)], [turn(50), turn(48)], [turn(100), turn(10)]];
        let line = Line::of("TCP", "READ".into(), 0.95, 1 << 20, &turns);
        assert_eq!((line.ratio.median, line.pairs), (0.95, 3));
        assert!((line.version_3.calls_per_s - 833.3).abs() < 0.1 && line.version_3.server_us == 1000.0);
        assert!(line.is_met(), "at the bound");
        let slower = Line::of("TCP", "READ".into(), 0.951, 1 << 20, &turns);
        assert!(!slower.is_met(), "one past it");
        let text = Report { seconds: 5.0, noise: false, lines: vec![line, slower] }.to_string();
        assert!(text.contains("ratio 0.950") && text.contains("0.95: met") && text.contains("0.951: MISSED"), "{text}");
    }
}
