//! The tables, in Markdown: a row for each figure, a column for each version.

use super::data::{Active, Decent, Figures, Resources, Version};
use crate::figures::table::thousands;
use std::fmt::Write as _;

/// The part of the document that shows the figures.
pub(super) fn section(figures: &Figures) -> String {
    let report = &figures.report;
    let versions = &report.versions;
    let mut out = format!(
        "Machine: {}; {} connections over loopback from one process, which itself has {} of resident memory; the server has \
         `{}` and default settings otherwise; release build. Each kind of activity lasts {} s.\n\n",
        figures.machine,
        report.connections,
        mib(report.clients_rss_kib),
        report.arguments.join(" "),
        report.seconds
    );
    let mut row = |what: &str, of: &dyn Fn(&Version) -> String| {
        let cells: Vec<String> = versions.iter().map(of).collect();
        let _ = writeln!(out, "| {what} | {} |", cells.join(" | "));
    };
    row("the server's memory", &|version| format!("version {}", version.version));
    row("---", &|_| "---".to_owned());
    row("before any connection", &|v| mib(v.before.anonymous_kib));
    row("with all connections idle", &|v| mib(v.idle.anonymous_kib));
    row("**for each idle connection**", &|v| format!("**{}**", kib(v.idle_octets_each)));
    row("resident memory, with program and libraries", &|v| mib(v.idle.rss_kib));
    row(&among("peak, while each calls", |v| &v.sometimes, versions), &|v| mib(v.sometimes.peak.anonymous_kib));
    row("**for each of these connections**", &|v| format!("**{}**", kib(v.sometimes.octets_each)));
    row(&among("peak, while each calls", |v| &v.flat_out, versions), &|v| mib(v.flat_out.peak.anonymous_kib));
    row("**for each of these connections**", &|v| format!("**{}**", kib(v.flat_out.octets_each)));
    row("idle again", &|v| mib(v.idle_again.anonymous_kib));
    row("after all have closed", &|v| mib(v.after.anonymous_kib));
    row("after as many more have worked and closed", &|v| mib(v.after_again.anonymous_kib));
    row("the system's TCP buffers at the peak, both ends", &|v| mib(v.flat_out.peak_tcp_octets / 1024));
    out += "\n";

    let mut row = |what: &str, of: &dyn Fn(&Version) -> String| {
        let cells: Vec<String> = versions.iter().map(of).collect();
        let _ = writeln!(out, "| {what} | {} |", cells.join(" | "));
    };
    row("other figures", &|version| format!("version {}", version.version));
    row("---", &|_| "---".to_owned());
    row("descriptors: before, idle, after", &|v| of_each(v, |r| r.descriptors));
    row("threads: before, idle, after", &|v| of_each(v, |r| r.threads));
    row("processor time while idle", &|v| format!("{:.2} s each second", v.idle_cpu));
    row(&among("all call", |v| &v.sometimes, versions), &|v| worked(&v.sometimes));
    row(&among("all call", |v| &v.flat_out, versions), &|v| worked(&v.flat_out));
    row("the decent client alone", &|v| decent(&v.decent_alone));
    row("the decent client beside idle connections", &|v| decent(&v.decent_beside_idle));
    row("the decent client beside connections that pause", &|v| decent(&v.sometimes.decent));
    row("the decent client beside connections that call without a pause", &|v| decent(&v.flat_out.decent));
    out
}

/// How busy the connections are.
fn among(what: &str, part: fn(&Version) -> &Active, versions: &[Version]) -> String {
    let Some(active) = versions.first().map(part) else { return what.to_owned() };
    match active.pause_ms {
        0 => format!("{what} without a pause, {} calls at a time", active.depth),
        pause => format!("{what} every {pause} ms"),
    }
}

fn worked(active: &Active) -> String {
    let milliseconds = |micros: u64| micros as f64 / 1000.0;
    format!(
        "{} calls/s, p50 {:.1} ms, p99 {:.1} ms, {:.2} CPUs",
        thousands(active.calls_per_s),
        milliseconds(active.p50_us),
        milliseconds(active.p99_us),
        active.cpu
    )
}

fn decent(decent: &Decent) -> String {
    format!("{} READs/s, p50 {:.0} us, p99 {:.0} us", thousands(decent.calls_per_s), decent.p50_us, decent.p99_us)
}

fn of_each(version: &Version, what: fn(&Resources) -> u64) -> String {
    let numbers =
        [&version.before, &version.idle, &version.after_again].map(|resources| thousands(what(resources) as f64));
    numbers.join(", ")
}

fn kib(octets: u64) -> String {
    format!("{:.1} KiB", octets as f64 / 1024.0)
}

fn mib(kib: u64) -> String {
    format!("{:.1} MiB", kib as f64 / 1024.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_easily() {
        assert_eq!((kib(1536), mib(1536)), ("1.5 KiB".to_owned(), "1.5 MiB".to_owned()));
    }
}
