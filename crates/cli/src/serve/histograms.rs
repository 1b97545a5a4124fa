//! Histograms that count as they go.
//!
//! The exporter's own keep each sample and its time until the next request or upkeep: a server with 300,000 calls a
//! second would write, and read again, tens of megabytes in between. Here a sample is two additions, and needs no
//! memory. All else goes to the exporter's recorder.

use metrics::{Counter, Gauge, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder, SharedString, Unit};
use metrics_exporter_prometheus::{
    LabelSet,
    formatting::{write_help_line, write_metric_line, write_type_line},
};
use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

/// The upper limits of the buckets in seconds: from a call answered from memory to one that waits for a disk.
const LIMITS: [f64; 14] = [20e-6, 50e-6, 100e-6, 200e-6, 500e-6, 1e-3, 2e-3, 5e-3, 10e-3, 20e-3, 50e-3, 0.1, 0.5, 2.0];

/// The samples of one series.
#[derive(Debug, Default)]
struct Samples {
    /// How many were in each bucket; the last is for samples above all limits.
    buckets: [AtomicU64; LIMITS.len() + 1],
    /// Their sum, in nanoseconds.
    nanos: AtomicU64,
}

impl HistogramFn for Samples {
    fn record(&self, seconds: f64) {
        let at = LIMITS.iter().position(|limit| seconds <= *limit).unwrap_or(LIMITS.len());
        self.nanos.fetch_add((seconds * 1e9) as u64, Ordering::Relaxed);
        self.buckets[at].fetch_add(1, Ordering::Relaxed);
    }
}

impl Samples {
    fn write(&self, text: &mut String, name: &str, labels: &LabelSet) {
        let mut count = 0;
        let limits = LIMITS.iter().map(f64::to_string).chain(["+Inf".to_owned()]);
        for (limit, bucket) in limits.zip(&self.buckets) {
            count += bucket.load(Ordering::Relaxed);
            write_metric_line(text, name, Some("bucket"), labels, Some(("le", limit)), count, None);
        }
        let seconds = self.nanos.load(Ordering::Relaxed) as f64 / 1e9;
        write_metric_line::<&str, _>(text, name, Some("sum"), labels, None, seconds, None);
        write_metric_line::<&str, _>(text, name, Some("count"), labels, None, count, None);
    }
}

/// The series of one name.
#[derive(Clone, Debug, Default)]
struct Family {
    help: Option<SharedString>,
    series: BTreeMap<Key, Arc<Samples>>,
}

/// All histograms, by name. Clones share them.
#[derive(Clone, Debug, Default)]
pub(super) struct Histograms(Arc<Mutex<BTreeMap<String, Family>>>);

impl Histograms {
    fn families(&self) -> MutexGuard<'_, BTreeMap<String, Family>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn describe(&self, name: &KeyName, help: SharedString) {
        self.families().entry(name.as_str().to_owned()).or_default().help = Some(help);
    }

    /// The samples of a series, which this call begins if there is none.
    fn series(&self, key: &Key) -> Arc<Samples> {
        let mut families = self.families();
        families.entry(key.name().to_owned()).or_default().series.entry(key.clone()).or_default().clone()
    }

    /// The text for Prometheus.
    pub(super) fn render(&self) -> String {
        // A call that is the first of its kind registers a series, and must not wait for the text.
        let families = self.families().clone();
        let mut text = String::new();
        for (name, family) in families.iter().filter(|(_, family)| !family.series.is_empty()) {
            if let Some(help) = &family.help {
                write_help_line(&mut text, name, None, None, help);
            }
            write_type_line(&mut text, name, None, None, "histogram");
            for (key, samples) in &family.series {
                samples.write(&mut text, name, &LabelSet::from_key_and_global(key, &Default::default()));
            }
            text.push('\n');
        }
        text
    }
}

/// Gives histograms to [`Histograms`], and all else to another recorder.
pub(super) struct WithHistograms<R> {
    inner: R,
    histograms: Histograms,
}

impl<R> WithHistograms<R> {
    pub(super) fn new(inner: R, histograms: &Histograms) -> Self {
        Self { inner, histograms: histograms.clone() }
    }
}

impl<R: Recorder> Recorder for WithHistograms<R> {
    fn describe_counter(&self, name: KeyName, unit: Option<Unit>, help: SharedString) {
        self.inner.describe_counter(name, unit, help);
    }

    fn describe_gauge(&self, name: KeyName, unit: Option<Unit>, help: SharedString) {
        self.inner.describe_gauge(name, unit, help);
    }

    fn describe_histogram(&self, name: KeyName, _: Option<Unit>, help: SharedString) {
        self.histograms.describe(&name, help);
    }

    fn register_counter(&self, key: &Key, metadata: &Metadata<'_>) -> Counter {
        self.inner.register_counter(key, metadata)
    }

    fn register_gauge(&self, key: &Key, metadata: &Metadata<'_>) -> Gauge {
        self.inner.register_gauge(key, metadata)
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::from_arc(self.histograms.series(key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use metrics::{NoopRecorder, describe_histogram, histogram, with_local_recorder};

    #[test]
    fn each_sample_is_in_every_bucket_from_its_own_on() {
        let histograms = Histograms::default();
        with_local_recorder(&WithHistograms::new(NoopRecorder, &histograms), || {
            describe_histogram!("took_seconds", "Time");
            for seconds in [0.0, 20e-6, 21e-6, 0.5, 3.0] {
                histogram!("took_seconds", "call" => "a \"b\"").record(seconds);
            }
            histogram!("took_seconds", "call" => "c").record(f64::NAN);
        });
        let text = histograms.render();
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines[..2], ["# HELP took_seconds Time", "# TYPE took_seconds histogram"]);
        let line = |labels: &str, value: &str| format!("took_seconds_bucket{{{labels}}} {value}");
        for (limit, value) in
            [("0.00002", "2"), ("0.00005", "3"), ("0.1", "3"), ("0.5", "4"), ("2", "4"), ("+Inf", "5")]
        {
            let expected = line(&format!("call=\"a \\\"b\\\"\",le=\"{limit}\""), value);
            assert!(lines.contains(&expected.as_str()), "{expected}\n{text}");
        }
        for expected in
            ["took_seconds_sum{call=\"a \\\"b\\\"\"} 3.500041", "took_seconds_count{call=\"a \\\"b\\\"\"} 5"]
        {
            assert!(lines.contains(&expected), "{expected}\n{text}");
        }
        // What is no number is longer than everything, and adds nothing.
        assert!(
            lines.contains(&"took_seconds_sum{call=\"c\"} 0") && lines.contains(&"took_seconds_count{call=\"c\"} 1")
        );
    }

    #[test]
    fn what_was_only_described_is_not_shown() {
        let histograms = Histograms::default();
        with_local_recorder(&WithHistograms::new(NoopRecorder, &histograms), || {
            describe_histogram!("took_seconds", "Time")
        });
        assert_eq!(histograms.render(), "");
    }
}
