//! The tables, in Markdown.

use super::{
    data::{Figures, Measurement, Place, Sample, ratio},
    plan::{DEPTH, KIB_4, MAX_DEPTH, MIB, NULL, READ, REQUEST, STREAM, WRITE},
    plot::PICTURES,
};
use std::fmt::Write as _;

/// The part of the document that shows the figures. `pictures` is the folder of the pictures, relative to the document.
pub(super) fn section(figures: &Figures, pictures: &str) -> String {
    let rounds = figures.measurements.iter().map(|measurement| measurement.rounds.len()).max().unwrap_or_default();
    let mut out = format!(
        "Machine: {}; files in the page cache. Client and server are two processes on loopback, CRC on, release build. \
         Each line is the median of {} of {} s; a ratio is the median of the ratios within a round.\n\n",
        figures.machine,
        if rounds == 1 { "one round".to_owned() } else { format!("{rounds} rounds") },
        figures.seconds,
    );
    out += "| operation | result | to the baseline |\n|---|---|---|\n";
    for row in free(figures) {
        let _ = writeln!(out, "{row}");
    }
    out += "\nThe latency of a call depends most on where the system puts the two processes. In the tables below their affinity \
            is set, and the server has one thread.\n";
    for (place, told) in [
        (Place::OneCpu, "Both on one processor, which shows what a call costs:"),
        (Place::TwoCpus, "A processor each; the baseline sleeps, and our ends look for messages while it pays:"),
        (Place::Asleep, "A processor each, both ends with `--busy-poll 0`, so that each end has to wake the other:"),
    ] {
        let _ = write!(out, "\n{told}\n\n| operation | result | to the baseline |\n|---|---|---|\n");
        for row in small(figures, place) {
            let _ = writeln!(out, "{row}");
        }
    }
    for (file, title) in PICTURES {
        let _ = write!(out, "\n![{title}]({pictures}/{file})\n");
    }
    out
}

fn free(figures: &Figures) -> Vec<String> {
    let of = |op, block, depth| figures.of(Place::Free, op, block, depth);
    let stream = of(STREAM, Some(MIB), 1);
    let request = of(REQUEST, Some(KIB_4), 1);
    let mut rows = vec![
        row("raw TCP stream, 1 MiB writes", stream, throughput, stream, |s| s.mib_per_s),
        row("raw TCP, 128 bytes answered with 4 KiB", request, latency, request, |s| s.p50_us),
    ];
    for (name, op) in [("READ", READ), ("WRITE", WRITE)] {
        let found = of(op, Some(MIB), DEPTH);
        let told = |found: &Measurement| format!("{}{}", throughput(found), server_cpu(found, figures.seconds));
        rows.push(row(&format!("{name} 1 MiB, depth {DEPTH}"), found, told, stream, |s| s.mib_per_s));
    }
    rows.push(row("READ 4 KiB, depth 1", of(READ, Some(KIB_4), 1), latency, request, |s| s.p50_us));
    let none = |_: &Sample| 0.0;
    let name = format!("READ 4 KiB, depth {MAX_DEPTH}");
    rows.push(row(&name, of(READ, Some(KIB_4), MAX_DEPTH), operations, None, none));
    rows.push(row("NULL, depth 1", of(NULL, None, 1), latency, None, none));
    rows.push(row(&format!("NULL, depth {MAX_DEPTH}"), of(NULL, None, MAX_DEPTH), operations, None, none));
    rows
}

/// The rows for small calls, one at a time.
fn small(figures: &Figures, place: Place) -> Vec<String> {
    let of = |op, block| figures.of(place, op, block, 1);
    let request = of(REQUEST, Some(KIB_4));
    vec![
        row("raw TCP, 128 bytes answered with 4 KiB", request, latency, request, |s| s.p50_us),
        row("READ 4 KiB, depth 1", of(READ, Some(KIB_4)), latency, request, |s| s.p50_us),
        row("NULL, depth 1", of(NULL, None), latency, request, |s| s.p50_us),
    ]
}

/// A line of a table; it says so if nothing was measured.
fn row(
    name: &str,
    found: Option<&Measurement>,
    told: impl Fn(&Measurement) -> String,
    baseline: Option<&Measurement>,
    value: fn(&Sample) -> f64,
) -> String {
    let result = found.map_or_else(|| "not measured".to_owned(), told);
    let ratio = found.zip(baseline).and_then(|(found, baseline)| ratio(found, baseline, value));
    let ratio = ratio.map_or_else(String::new, |ratio| match found == baseline {
        true => "1".to_owned(),
        false => format!("{ratio:.2}"),
    });
    format!("| {name} | {result} | {ratio} |")
}

fn throughput(found: &Measurement) -> String {
    format!("{} MiB/s", thousands(found.median.mib_per_s))
}

fn latency(found: &Measurement) -> String {
    format!("p50 {:.1} us, p99 {:.1} us", found.median.p50_us, found.median.p99_us)
}

fn operations(found: &Measurement) -> String {
    format!("{} a second", thousands(found.median.ops_per_s))
}

/// The server's processor time for a GiB.
fn server_cpu(found: &Measurement, seconds: f64) -> String {
    let gib = found.median.mib_per_s * seconds / 1024.0;
    match found.median.server_cpu_s {
        Some(cpu) if gib > 0.0 => format!(", {:.2} s of server CPU for a GiB", cpu / gib),
        _ => String::new(),
    }
}

/// A number with its digits in groups of three.
pub(crate) fn thousands(value: f64) -> String {
    let digits = format!("{value:.0}");
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at) % 3 == 0 && !out.ends_with('-') {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::figures::{crowd, limit, machine::Machine, others, plan, steps, versions};

    /// Figures with a value for everything; the values are computed from what is measured.
    pub(in crate::figures) fn figures() -> Figures {
        let sample = |block: u32, depth: u64, share: f64| Sample {
            ops_per_s: 1000.0 * depth as f64 * share,
            mib_per_s: f64::from(block) / 1024.0 * share,
            p50_us: 10.0 / share,
            p99_us: 20.0 / share,
            cpu_s: 0.5,
            server_cpu_s: Some(0.25),
        };
        let mut measurements = Vec::new();
        for step in plan::steps() {
            let mut add = |place, op, block: Option<u32>, depth, share| {
                let rounds = vec![sample(block.unwrap_or(0), depth, share); 3];
                measurements.push(Measurement::new(place, op, block, depth, rounds));
            };
            match step {
                plan::Step::Baseline { place, block } => {
                    add(place, STREAM, Some(block), 1, 2.0);
                    add(place, REQUEST, Some(block), 1, 2.0);
                }
                plan::Step::Bench { place, op, block, depth } => {
                    add(place, op, block, depth, if op == READ { 1.0 } else { 0.5 });
                }
            }
        }
        Figures {
            machine: Machine::default(),
            seconds: 1.0,
            measurements,
            versions: versions::tests::comparison(),
            limits: limit::tests::limits(),
            others: others::tests::others(),
            steps: steps::tests::steps(),
            crowd: crowd::tests::crowd(),
            ..Figures::default()
        }
    }

    #[test]
    fn the_tables_tell_what_was_measured_beside_its_baseline() {
        let section = section(&figures(), "figures");
        for line in [
            "| raw TCP stream, 1 MiB writes | 2,048 MiB/s | 1 |",
            "| READ 1 MiB, depth 8 | 1,024 MiB/s, 0.25 s of server CPU for a GiB | 0.50 |",
            "| WRITE 1 MiB, depth 8 | 512 MiB/s, 0.50 s of server CPU for a GiB | 0.25 |",
            "| READ 4 KiB, depth 1 | p50 10.0 us, p99 20.0 us | 2.00 |",
            "| READ 4 KiB, depth 32 | 32,000 a second |  |",
            "| NULL, depth 32 | 16,000 a second |  |",
            "| NULL, depth 1 | p50 20.0 us, p99 40.0 us | 4.00 |",
        ] {
            assert!(section.lines().any(|found| found == line), "{line}\n{section}");
        }
        assert!(section.contains("median of 3 rounds") && !section.contains("not measured"));
        assert_eq!(section.matches("](figures/").count(), PICTURES.len());
    }

    #[test]
    fn what_was_not_measured_says_so() {
        let figures = Figures { measurements: Vec::new(), ..figures() };
        assert_eq!(section(&figures, "figures").matches("| not measured |  |").count(), 17);
    }

    #[test]
    fn thousands_are_grouped() {
        let grouped = [0.4, 12.0, 999.6, 152_000.0, 1_234_567.0].map(thousands);
        assert_eq!(grouped, ["0", "12", "1,000", "152,000", "1,234,567"]);
    }
}
