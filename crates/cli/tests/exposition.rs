//! The text of the metrics' port is as Prometheus wants it, and agrees with the document and the dashboard.

mod common;

use common::Server;
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    io::{Read, Write},
    net::TcpStream,
    path::Path,
    thread,
    time::{Duration, Instant},
};

/// Units that are not the base units of Prometheus, and old names of ours.
const NOT_BASE_UNITS: [&str; 9] =
    ["octets", "milliseconds", "ms", "microseconds", "nanoseconds", "kilobytes", "kib", "mib", "percent"];
/// Metrics that every program has. All other names begin with `rpcrdma_`.
const COMMON: [&str; 1] = ["process_start_time_seconds"];

/// How long metrics that are updated once a second may take to appear.
const PATIENCE: Duration = Duration::from_secs(30);
/// The pause between two requests.
const PAUSE: Duration = Duration::from_millis(20);

/// Starts a server. Returns it with the address of its metrics.
fn start(scratch: &Path) -> (Server, String) {
    let more = ["--metrics", "127.0.0.1:0", "--tcp", "127.0.0.1:0", "--nfs", "3,4.1,4.2"];
    let server = Server::start(&common::served(scratch), &scratch.join("state"), &more);
    let metrics = server.metrics();
    (server, metrics)
}

/// The port's answer now, including the head.
fn ask(address: &str, limit: Duration) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(limit)).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: here\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

/// The metrics of a server that has just started.
fn exposition() -> String {
    let scratch = tempfile::tempdir().unwrap();
    let (server, address) = start(scratch.path());
    let begin = Instant::now();
    let mut text = ask(&address, PATIENCE);
    // Metrics that are updated once a second may not be there at once.
    let later = [
        "\nrpcrdma_memory_bytes{",
        "\nrpcrdma_index_files ",
        "\nrpcrdma_nfs4_stateids{",
        "\nrpcrdma_nsm_notices_received_total{",
    ];
    while !later.iter().all(|name| text.contains(name)) {
        assert!(begin.elapsed() < PATIENCE, "memory, index or clients are not told within {PATIENCE:?}: {text}");
        thread::sleep(PAUSE);
        text = ask(&address, PATIENCE);
    }
    assert_eq!(server.stop(), Some(0));
    text.split_once("\r\n\r\n").unwrap().1.to_owned()
}

/// The declared types, by name.
fn types(text: &str) -> BTreeMap<&str, &str> {
    text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' ')).collect()
}

/// The name of the metric that a sample belongs to.
fn metric<'a>(sample: &'a str, types: &BTreeMap<&str, &str>) -> &'a str {
    let name = sample.split(['{', ' ']).next().unwrap();
    let parts = ["_bucket", "_sum", "_count"].iter().find_map(|part| name.strip_suffix(part));
    parts.filter(|name| types.get(name) == Some(&"histogram")).unwrap_or(name)
}

/// The metrics that a text names: words with the prefix of metrics that are no crate.
fn named(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !c.is_ascii_lowercase() && !c.is_ascii_digit() && c != '_');
    let is_metric = |word: &&str| word.starts_with("rpcrdma_") && word.len() > 8 || COMMON.contains(word);
    // The excluded word is a label's value that looks like a name.
    let metrics = words.filter(is_metric).filter(|word| *word != "rpcrdma_violation");
    metrics.map(|word| word.trim_end_matches("_bucket").to_owned()).collect()
}

#[test]
fn every_series_is_as_prometheus_wants_it() {
    let text = exposition();
    let types = types(&text);
    for (name, kind) in &types {
        let help = format!("# HELP {name} ");
        let help: Vec<_> = text.lines().filter(|line| line.starts_with(&help)).collect();
        assert!(help.len() == 1 && help[0].len() > name.len() + 15, "HELP of {name}: {help:?}");
        assert!(name.starts_with("rpcrdma_") || COMMON.contains(name), "{name}");
        assert!(name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_'), "{name}");
        assert_eq!(name.ends_with("_total"), *kind == "counter", "{name} is a {kind}");
        let wrong = name.split('_').find(|word| NOT_BASE_UNITS.contains(word));
        assert_eq!(wrong, None, "{name}");
        if *kind == "histogram" {
            assert!(name.ends_with("_seconds") || name.ends_with("_bytes"), "{name} has no unit");
        }
    }
    for sample in text.lines().filter(|line| !line.starts_with('#') && !line.is_empty()) {
        assert!(types.contains_key(metric(sample, &types)), "no TYPE: {sample}");
        let (series, value) = sample.rsplit_once(' ').unwrap();
        assert!(value.parse::<f64>().is_ok_and(|value| value >= 0.0), "{sample}");
        if let Some((_, labels)) = series.trim_end_matches('}').split_once('{') {
            for label in labels.split(',') {
                let (name, value) = label.split_once('=').unwrap_or_else(|| panic!("{sample}"));
                assert!(name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'), "{sample}");
                assert!(value.len() > 2 && value.starts_with('"') && value.ends_with('"'), "{sample}");
            }
        }
    }
    assert_eq!(types["rpcrdma_calls_total"], "counter");
    let version = format!("rpcrdma_build_info{{version=\"{}\"", env!("CARGO_PKG_VERSION"));
    assert!(text.lines().any(|line| line.starts_with(&version) && line.ends_with(" 1")), "{text}");
}

/// If a count did not begin at zero, its first failure would be no increase, and no alarm.
#[test]
fn failures_are_counted_from_nought() {
    let text = exposition();
    for (name, series) in [
        ("rpcrdma_connections_refused_total", 4),
        ("rpcrdma_setups_failed_total", 5),
        ("rpcrdma_connections_ended_total", 13),
        ("rpcrdma_nfs4_health_checks_total", 3),
        ("rpcrdma_stalls_total", 2),
        ("rpcrdma_bytes_total", 6),
    ] {
        let samples: Vec<_> = text.lines().filter(|line| line.starts_with(&format!("{name}{{"))).collect();
        assert_eq!(samples.len(), series, "{samples:#?}");
        assert!(samples.iter().all(|sample| sample.ends_with(" 0")), "{samples:#?}");
    }
    for status in ["IO", "NOSPC", "DQUOT", "STALE", "SERVERFAULT"] {
        let status = format!("status=\"{status}\"");
        let is_its = |line: &&str| line.starts_with("rpcrdma_calls_total{") && line.contains(&status);
        let samples: Vec<_> = text.lines().filter(is_its).collect();
        // Over each: 21 procedures of version 3, COMPOUND, the procedures of NFSACL with their own statuses, and 15 of
        // version 2.
        assert_eq!(samples.len(), 2 * (21 + 1 + 2 + 15) + 1, "of two transports and MNT: {samples:#?}");
        assert!(samples.iter().all(|sample| sample.ends_with(" 0")), "{samples:#?}");
        let is_its = |line: &&str| line.starts_with("rpcrdma_nfs4_operations_total{") && line.contains(&status);
        let samples: Vec<_> = text.lines().filter(is_its).collect();
        let of_clients = if status.contains("SERVERFAULT") { 4 } else { 0 };
        assert_eq!(samples.len(), 18 + of_clients, "of operations on files, and on clients: {samples:#?}");
        assert!(samples.iter().all(|sample| sample.ends_with(" 0")), "{samples:#?}");
    }
}

/// The document must name exactly the metrics that exist; otherwise a panel of the dashboard stays empty.
#[test]
fn the_document_and_the_dashboard_name_what_is_counted() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let text = exposition();
    let counted: BTreeSet<String> = types(&text).into_keys().map(str::to_owned).collect();
    let document = fs::read_to_string(format!("{root}/docs/metrics.md")).unwrap();
    assert_eq!(named(&document), counted, "what the document names and what is counted");
    let dashboard = fs::read_to_string(format!("{root}/docs/grafana-dashboard.json")).unwrap();
    let _: serde_json::Value = serde_json::from_str(&dashboard).unwrap();
    assert_eq!(named(&dashboard), counted, "what the dashboard shows and what is counted");
    // Labels as well: a sum by a missing label is one line without a name.
    for line in document.lines().filter(|line| line.starts_with("| `")) {
        let cells: Vec<_> = line.split('|').map(str::trim).collect();
        let name = cells[1].trim_matches('`');
        // Values stand in brackets behind their label.
        let labels = cells[2].split('(').filter_map(|part| part.rsplit(')').next());
        for label in labels.flat_map(|part| part.split(',')).map(|label| label.trim().trim_matches('`')) {
            if label.is_empty() {
                continue;
            }
            let has = format!("{label}=\"");
            let samples = text.lines().filter(|sample| sample.starts_with(&format!("{name}{{")));
            let parts = text.lines().filter(|sample| sample.starts_with(&format!("{name}_count{{")));
            assert!(samples.chain(parts).any(|sample| sample.contains(&has)), "{name} has no label {label}");
        }
    }
}
