//! The results of a soak.

use crate::resources::Resources;
use serde::Serialize;
use std::{collections::BTreeMap, fmt, time::Duration};

/// How much more memory the server may hold at the last quiet points than at the first, in KiB: the pool of blocks and
/// the allocator keep so much in any case.
pub(super) const GROWTH_KIB: i64 = 24 << 10;
/// The same in a run so short that the cache of replies is not full at its first points.
pub(super) const COLD_GROWTH_KIB: i64 = 64 << 10;
/// How long the cache takes to fill, in seconds: it keeps replies for two minutes.
const WARM_SECONDS: f64 = 150.0;
/// How many more descriptors, besides sockets, the server may have: clients' files that it keeps open for the next
/// call, some of them for reading and for writing.
pub(super) const GROWTH_FILES: i64 = 300;
/// Quiet points at the beginning of a server's life, when its caches are still filling.
const WARM_POINTS: usize = 2;
/// The fewest later points from which growth can be judged.
const LEAST_POINTS: usize = 3;

/// At least so many holders must do all of this within the first time, and lose a delegation within the second.
const LEAST_HOLDERS: usize = 4;
const HOLDERS_TIME: Duration = Duration::from_secs(30);
const LOSSES_TIME: Duration = Duration::from_secs(120);
const HAPPENS: [&str; 7] = [
    "open, delegated for reading",
    "open, delegated for writing",
    "lock for reading",
    "lock for writing",
    "remove a shared file",
    "told that a delegation is wanted",
    "told that a lock may be free",
];
const LOSS: &str = "a delegation lost";

/// The report.
#[derive(Debug, Default, Serialize)]
pub(super) struct Report {
    pub(super) seed: u64,
    pub(super) seconds: f64,
    /// The operations of decent clients.
    pub(super) operations: BTreeMap<&'static str, Times>,
    /// The events of clients of NFS version 4.
    pub(super) holders: BTreeMap<&'static str, u64>,
    /// How many hostile peers stopped at each stage.
    pub(super) hostile: BTreeMap<&'static str, u64>,
    /// Connections of decent clients that were cut.
    pub(super) cuts: u64,
    /// How often the server was killed and started again.
    pub(super) restarts: u64,
    /// The most that the server held.
    pub(super) peak: Resources,
    /// The quiet points.
    pub(super) quiet: Vec<Point>,
    /// How much more the server held at its last quiet points than at its first, in KiB; the worst of several servers.
    pub(super) growth_kib: Option<i64>,
    /// How much that may be, in KiB.
    pub(super) allowed_kib: i64,
    /// The same for descriptors that are no sockets.
    pub(super) growth_files: Option<i64>,
    /// The length of the server's log.
    pub(super) log_octets: usize,
    /// Why the soak has failed; empty if all was well.
    pub(super) failures: Vec<String>,
}

/// How long operations took.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(super) struct Times {
    pub(super) count: u64,
    pub(super) longest_ms: u64,
}

/// A moment at which nothing was under way.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Point {
    pub(super) at_s: f64,
    /// The number of the server, which grows with each restart.
    pub(super) server: u64,
    pub(super) resources: Resources,
}

impl Report {
    pub(super) fn done(&mut self, what: &'static str, took: Duration) {
        let times = self.operations.entry(what).or_default();
        times.count += 1;
        times.longest_ms = times.longest_ms.max(took.as_millis() as u64);
    }

    /// All operations.
    pub(super) fn count(&self) -> u64 {
        self.operations.values().map(|times| times.count).sum()
    }

    /// Fails unless holders did everything, if there were enough of them for long enough: otherwise the soak has judged
    /// nothing.
    pub(super) fn judge_holders(&mut self, lasts: Duration, count: usize) {
        if lasts < HOLDERS_TIME || count < LEAST_HOLDERS {
            return;
        }
        // A killed server forgets the delegations that it would have taken away.
        let losses = (lasts >= LOSSES_TIME && self.restarts == 0).then_some(LOSS);
        for what in HAPPENS.into_iter().chain(losses) {
            if !self.holders.contains_key(what) && !self.operations.contains_key(what) {
                self.failures.push(format!("never happened: {what}"));
            }
        }
    }

    /// Judges whether memory or descriptors grow from one quiet point to the next.
    pub(super) fn judge(&mut self) {
        let growth = self.growth(|resources| resources.anonymous_kib);
        self.growth_kib = growth.map(|(growth, _)| growth);
        self.allowed_kib = growth.map_or(COLD_GROWTH_KIB, |(_, warm)| if warm { GROWTH_KIB } else { COLD_GROWTH_KIB });
        let files = self.growth(|resources| resources.descriptors.saturating_sub(resources.sockets));
        self.growth_files = files.map(|(growth, _)| growth);
        for (what, growth, most) in
            [("KiB", self.growth_kib, self.allowed_kib), ("open files", self.growth_files, GROWTH_FILES)]
        {
            if let Some(growth) = growth.filter(|growth| *growth > most) {
                self.failures.push(format!("{growth} {what} more at the last quiet points than at the first"));
            }
        }
    }

    /// How much more the worst server held at its last quiet points than at its first, and whether its caches were full
    /// by then.
    fn growth(&self, what: fn(&Resources) -> u64) -> Option<(i64, bool)> {
        let servers = self.quiet.iter().map(|point| point.server).max().unwrap_or(0);
        let of = |server| {
            let points = self.quiet.iter().filter(move |point| point.server == server);
            points.map(|point| (point.at_s, what(&point.resources))).collect::<Vec<_>>()
        };
        (0..=servers).filter_map(|server| growth(&of(server))).max()
    }
}

/// Without the points of the beginning: the median of the last third of what a server held, less the median of the
/// first third; and whether the beginning was long enough to fill all caches.
fn growth(points: &[(f64, u64)]) -> Option<(i64, bool)> {
    let begin = points.first()?.0;
    let warm = points.iter().position(|(at_s, _)| at_s - begin >= WARM_SECONDS).unwrap_or(points.len());
    let is_warm = points.len() - warm >= LEAST_POINTS;
    let skipped = if is_warm { warm.max(WARM_POINTS) } else { WARM_POINTS };
    let points = points.get(skipped..).filter(|points| points.len() >= LEAST_POINTS)?;
    let third = points.len() / 3;
    let median = |points: &[(f64, u64)]| {
        let mut values: Vec<u64> = points.iter().map(|(_, value)| *value).collect();
        values.sort_unstable();
        values[values.len() / 2] as i64
    };
    Some((median(&points[points.len() - third..]) - median(&points[..third]), is_warm))
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seed {}, {:.0} s", self.seed, self.seconds)?;
        writeln!(f, "\n{:<44} {:>9} {:>12}", "decent clients", "times", "longest, ms")?;
        for (what, times) in &self.operations {
            writeln!(f, "  {what:<42} {:>9} {:>12}", times.count, times.longest_ms)?;
        }
        writeln!(f, "\n{:<44} {:>9}", "clients of NFS version 4", "times")?;
        for (what, times) in &self.holders {
            writeln!(f, "  {what:<42} {times:>9}")?;
        }
        writeln!(f, "\n{:<44} {:>9}", "hostile peers", "times")?;
        for (what, times) in &self.hostile {
            writeln!(f, "  {what:<42} {times:>9}")?;
        }
        writeln!(f, "\nconnections cut {}, server restarts {}", self.cuts, self.restarts)?;
        writeln!(
            f,
            "the server at its peak: {} KiB of its own, {} sockets, {} descriptors, {} threads; {} bytes of log",
            self.peak.anonymous_kib, self.peak.sockets, self.peak.descriptors, self.peak.threads, self.log_octets
        )?;
        writeln!(f, "\nquiet points: {:>8} {:>12} {:>9} {:>12}", "s", "KiB", "sockets", "descriptors")?;
        for Point { at_s, resources, .. } in &self.quiet {
            let Resources { anonymous_kib, sockets, descriptors, .. } = resources;
            writeln!(f, "              {at_s:>8.0} {anonymous_kib:>12} {sockets:>9} {descriptors:>12}")?;
        }
        match self.growth_kib.zip(self.growth_files) {
            Some((kib, files)) => writeln!(
                f,
                "growth between them: {kib} KiB, {} are allowed; {files} open files, {GROWTH_FILES} are allowed",
                self.allowed_kib
            )?,
            None => writeln!(f, "too few quiet points to tell whether memory grows")?,
        }
        if self.failures.is_empty() {
            return writeln!(f, "\nall was well");
        }
        self.failures.iter().try_for_each(|failure| writeln!(f, "FAILED: {failure}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(points: &[(u64, i64)]) -> Report {
        every(100.0, points)
    }

    fn every(seconds: f64, points: &[(u64, i64)]) -> Report {
        let point = |(number, &(server, kib)): (usize, &(u64, i64))| Point {
            at_s: seconds * number as f64,
            server,
            resources: Resources { anonymous_kib: kib as u64, ..Resources::default() },
        };
        let mut report = Report { quiet: points.iter().enumerate().map(point).collect(), ..Report::default() };
        report.judge();
        report
    }

    #[test]
    fn growth_is_judged_once_a_server_is_warm() {
        assert_eq!(report(&[(1, 0), (1, 0), (1, 5), (1, 9)]).growth_kib, None);
        let beginning = [(1, 0), (1, 70_000), (1, 90_000), (1, 90_100), (1, 90_100)];
        assert_eq!(report(&beginning).growth_kib, Some(100));
        assert!(report(&beginning).failures.is_empty());
        let allowed: Vec<_> = [0, 0, 0, 9, GROWTH_KIB].map(|kib| (1, kib)).into();
        assert!(report(&allowed).failures.is_empty());
        let more: Vec<_> = [0, 0, 0, 9, GROWTH_KIB + 1].map(|kib| (1, kib)).into();
        assert_eq!(report(&more).failures.len(), 1);
        // Before the cache of replies can be full, more is allowed.
        assert!(every(10.0, &more).failures.is_empty());
        let cold: Vec<_> = [0, 0, 0, 9, COLD_GROWTH_KIB + 1].map(|kib| (1, kib)).into();
        assert_eq!(every(10.0, &cold).failures.len(), 1);
        let late: Vec<_> = [0, 1, 2, 90_000, 90_000, 90_000, 90_000].map(|kib| (1, kib)).into();
        assert_eq!(every(50.0, &late).growth_kib, Some(0), "the first 150 s are not looked at");
        let mut files = report(&[(1, 1); 5]);
        for (point, descriptors) in files.quiet.iter_mut().zip([0, 0, 7, 9, 8 + GROWTH_FILES as u64]) {
            point.resources.descriptors = descriptors;
        }
        files.judge();
        assert_eq!((files.growth_files, files.failures.len()), (Some(GROWTH_FILES + 1), 1));
        // One outlier is no growth; a new server begins anew.
        let outlier = [0, 0, 1, 1, 1, 1, 90_000, 1, 1, 1, 1].map(|kib| (1, kib));
        assert_eq!(report(&outlier).growth_kib, Some(0));
        let two = [(1, 9), (1, 9), (1, 9), (1, 9), (1, 9), (2, 90_000), (2, 90_000)];
        assert_eq!(report(&two).growth_kib, Some(0));
    }

    #[test]
    fn holders_that_do_nothing_are_no_proof() {
        let mut report = Report::default();
        report.judge_holders(HOLDERS_TIME, LEAST_HOLDERS - 1);
        report.judge_holders(HOLDERS_TIME / 2, LEAST_HOLDERS);
        assert!(report.failures.is_empty());
        report.holders.extend(HAPPENS[1..].iter().map(|what| (*what, 1)));
        report.judge_holders(HOLDERS_TIME, LEAST_HOLDERS);
        assert_eq!(report.failures, ["never happened: open, delegated for reading"]);
        report.judge_holders(LOSSES_TIME, LEAST_HOLDERS);
        assert_eq!(report.failures[2..], ["never happened: a delegation lost"]);
    }

    #[test]
    fn a_report_says_how_it_ended() {
        let mut report = report(&[(1, 1)]);
        report.done("write", Duration::from_millis(7));
        assert_eq!(report.count(), 1);
        assert!(report.to_string().contains("all was well"), "{report}");
        report.failures.push("data differ".into());
        assert!(report.to_string().contains("FAILED: data differ"), "{report}");
        assert!(serde_json::to_string(&report).unwrap().contains(r#""longest_ms":7"#));
    }
}
