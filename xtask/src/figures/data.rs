//! Figures as they are kept: each measurement with all its rounds and their median.

use super::{
    crowd::Crowd, instructions::Instructions, limit::Limits, others::Others, polling::Polling, profile::Profile,
    steps::Steps, versions::Comparison,
};
use serde::{Deserialize, Serialize};

/// All figures of one run, and where they were measured.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub(super) struct Figures {
    pub(super) machine: super::machine::Machine,
    /// How long each measurement took, in seconds.
    pub(super) seconds: f64,
    pub(super) measurements: Vec<Measurement>,
    /// Versions 1 and 2 side by side.
    #[serde(default)]
    pub(super) versions: Comparison,
    /// Beside what the machine can do.
    #[serde(default)]
    pub(super) limits: Limits,
    /// Beside others.
    #[serde(default)]
    pub(super) others: Others,
    /// Where the microseconds of one call go.
    #[serde(default)]
    pub(super) steps: Steps,
    /// Many connections.
    #[serde(default)]
    pub(super) crowd: Crowd,
    /// Ends that look for messages beside ends that sleep.
    #[serde(default)]
    pub(super) polling: Polling,
    /// A build with a profile beside the usual one.
    #[serde(default)]
    pub(super) profile: Profile,
    /// Instructions of small calls.
    #[serde(default)]
    pub(super) instructions: Instructions,
}

/// Where both ends ran.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Place {
    /// Wherever the system put them.
    Free,
    /// Both on the same processor.
    OneCpu,
    /// On a processor each.
    TwoCpus,
    /// On a processor each, both asleep as soon as there is no message.
    Asleep,
}

impl Place {
    /// In the order in which they are measured.
    pub(super) const ALL: [Place; 4] = [Place::Free, Place::OneCpu, Place::TwoCpus, Place::Asleep];

    /// Whether each end has a processor of its own.
    pub(super) fn is_apart(self) -> bool {
        matches!(self, Place::TwoCpus | Place::Asleep)
    }
}

/// One thing that was measured.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub(super) struct Measurement {
    pub(super) place: Place,
    /// As `rpcrdma bench` names it.
    pub(super) op: String,
    /// Bytes in a block, if it moves any.
    pub(super) block: Option<u32>,
    /// Calls under way at a time.
    pub(super) depth: u64,
    /// The median of each value over all rounds.
    pub(super) median: Sample,
    /// In the order in which they were measured; all measurements have as many, and their n-th belong together.
    pub(super) rounds: Vec<Sample>,
}

/// What one run of `rpcrdma bench --json` tells.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub(super) struct Sample {
    pub(super) ops_per_s: f64,
    pub(super) mib_per_s: f64,
    pub(super) p50_us: f64,
    pub(super) p99_us: f64,
    pub(super) cpu_s: f64,
    pub(super) server_cpu_s: Option<f64>,
}

impl Measurement {
    /// A measurement with these rounds and their median.
    pub(super) fn new(place: Place, op: &str, block: Option<u32>, depth: u64, rounds: Vec<Sample>) -> Self {
        let of = |value: fn(&Sample) -> f64| median(rounds.iter().map(value)).unwrap_or_default();
        let median = Sample {
            ops_per_s: of(|sample| sample.ops_per_s),
            mib_per_s: of(|sample| sample.mib_per_s),
            p50_us: of(|sample| sample.p50_us),
            p99_us: of(|sample| sample.p99_us),
            cpu_s: of(|sample| sample.cpu_s),
            server_cpu_s: median(rounds.iter().filter_map(|sample| sample.server_cpu_s)),
        };
        Self { place, op: op.to_owned(), block, depth, median, rounds }
    }
}

impl Figures {
    /// The measurement of this operation, if there is one.
    pub(super) fn of(&self, place: Place, op: &str, block: Option<u32>, depth: u64) -> Option<&Measurement> {
        let same = |found: &&Measurement| {
            found.place == place && found.op == op && found.block == block && found.depth == depth
        };
        self.measurements.iter().find(same)
    }
}

/// Divides one measurement's value by another's in each round, and takes the median of these ratios: the machine's
/// speed changes from one round to the next.
pub(super) fn ratio(above: &Measurement, below: &Measurement, value: fn(&Sample) -> f64) -> Option<f64> {
    let rounds = above.rounds.iter().zip(&below.rounds);
    median(rounds.map(|(above, below)| value(above) / value(below)).filter(|ratio| ratio.is_finite()))
}

/// The value in the middle, or the mean of the two in the middle. None if there is none.
pub(super) fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    let upper = *values.get(middle)?;
    if values.len() % 2 == 1 {
        return Some(upper);
    }
    Some((values.get(middle.checked_sub(1)?)? + upper) / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle_one() {
        assert_eq!(median([].into_iter()), None);
        assert_eq!(median([7.0].into_iter()), Some(7.0));
        assert_eq!(median([9.0, 1.0, 2.0].into_iter()), Some(2.0));
        assert_eq!(median([4.0, 1.0, 2.0, 100.0].into_iter()), Some(3.0));
    }

    fn samples(mib: &[f64]) -> Vec<Sample> {
        mib.iter().map(|&mib_per_s| Sample { mib_per_s, ..Sample::default() }).collect()
    }

    #[test]
    fn ratios_are_taken_round_by_round() {
        // The machine becomes half as fast after the first round. The ratio stays the same; the ratio of the medians
        // would change.
        let read = Measurement::new(Place::Free, "read", None, 8, samples(&[500.0, 250.0, 260.0]));
        let base = Measurement::new(Place::Free, "baseline_stream", None, 1, samples(&[1000.0, 500.0, 1000.0]));
        assert_eq!(ratio(&read, &base, |sample| sample.mib_per_s), Some(0.5));
        assert_eq!((read.median.mib_per_s, read.median.server_cpu_s), (260.0, None));
        let nothing = Measurement::new(Place::Free, "read", None, 8, samples(&[0.0]));
        assert_eq!(ratio(&nothing, &nothing, |sample| sample.mib_per_s), None, "not a number is no ratio");
    }

    #[test]
    fn what_is_kept_is_read_again() {
        let measurement = Measurement::new(Place::OneCpu, "read", Some(4096), 1, samples(&[1.0, 2.0]));
        let machine = super::super::machine::Machine::default();
        let figures = Figures { machine, seconds: 1.0, measurements: vec![measurement], ..Figures::default() };
        let text = serde_json::to_string(&figures).unwrap();
        assert_eq!(serde_json::from_str::<Figures>(&text).unwrap(), figures);
        assert!(text.contains(r#""place":"one_cpu""#), "{text}");
        assert!(figures.of(Place::OneCpu, "read", Some(4096), 1).is_some());
        assert!(figures.of(Place::Free, "read", Some(4096), 1).is_none());
    }
}
