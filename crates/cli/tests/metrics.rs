//! What the server counts is what clients did.

mod common;

use common::{Server, contents, run};
use std::{
    fs,
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    time::{Duration, Instant},
};

const RDMA: &str = r#"transport="rdma""#;
const READ: &str = r#"procedure="READ""#;
const PLACED: &str = r#"way="placed""#;

/// A port that was free a moment ago.
fn free_port() -> String {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
}

fn scrape(address: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

/// The sum of the samples of `name` that have all `labels`, each written as `label="value"`.
fn value(text: &str, name: &str, labels: &[&str]) -> f64 {
    let matching = text.lines().filter(|line| {
        line.strip_prefix(name).is_some_and(|rest| rest.starts_with(['{', ' ']))
            && labels.iter().all(|l| line.contains(l))
    });
    matching.map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap()).sum()
}

#[test]
fn calls_octets_and_connections_are_counted() {
    let scratch = tempfile::tempdir().unwrap();
    let served = scratch.path().join("served");
    fs::create_dir(&served).unwrap();
    fs::write(served.join("large"), contents(3 << 20)).unwrap();
    fs::write(served.join("small"), contents(100)).unwrap();
    let address = free_port();
    let more = ["--no-root-squash", "--metrics", &address, "--tcp", "127.0.0.1:0", "--allow", "127.0.0.0/8"];
    let server = Server::start(&served, &scratch.path().join("state"), &more);
    let local = scratch.path().join("local");
    run(["get", &server.url_in("1", "large"), local.to_str().unwrap()]);
    run(["cat", &server.url("small")]);
    run(["cat", &server.tcp_url("small")]);
    run(["put", local.to_str().unwrap(), &server.url("copy")]);
    // The last connection may still be ending.
    let begin = Instant::now();
    let mut text = scrape(&address);
    while value(&text, "rpcrdma_connections", &[RDMA]) > 0.0 && begin.elapsed() < Duration::from_secs(10) {
        std::thread::sleep(Duration::from_millis(20));
        text = scrape(&address);
    }

    let counted = |name, labels: &[&str]| value(&text, name, labels);
    assert_eq!(counted("rpcrdma_connections_total", &[RDMA]), 3.0, "{text}");
    assert_eq!(counted("rpcrdma_connections", &[RDMA]), 0.0);
    let negotiated = |version| counted("rpcrdma_negotiated_total", &[version]);
    assert_eq!((negotiated(r#"version="1""#), negotiated(r#"version="2""#)), (1.0, 2.0));
    assert_eq!(counted("rpcrdma_connections_ended_total", &[r#"reason="orderly""#]), 3.0);
    assert_eq!(
        counted("rpcrdma_calls_total", &[READ, RDMA, r#"outcome="answered""#]),
        4.0,
        "three of 1 MiB and one small"
    );
    assert_eq!(counted("rpcrdma_calls_total", &[READ, r#"transport="tcp""#]), 1.0);
    assert_eq!(counted("rpcrdma_call_seconds_count", &[READ]), 5.0);
    assert_eq!(counted("rpcrdma_calls_total", &[r#"procedure="WRITE""#, RDMA]), 3.0);
    assert_eq!(counted("rpcrdma_calls_in_progress", &[]), 0.0);
    assert_eq!(
        counted("rpcrdma_octets_total", &[r#"direction="out""#, PLACED]),
        f64::from(3 << 20),
        "only the large file is placed"
    );
    assert_eq!(counted("rpcrdma_octets_total", &[r#"direction="in""#, PLACED]), f64::from(3 << 20));
    assert_eq!(counted("rpcrdma_chunks_total", &[r#"kind="write""#]), 3.0);
    assert_eq!(counted("rpcrdma_chunks_total", &[r#"kind="read""#]), 3.0);
    assert!(counted("rpcrdma_invalidations_total", &[]) >= 6.0);
    assert!(counted("rpcrdma_credits_granted", &[]) >= 1.0);
    assert!(counted("rpcrdma_memory_octets", &[r#"what="limit""#, r#"part="results""#]) > 0.0);
    assert_eq!(server.stop(), Some(0));
}

/// A document that names what is not counted, or leaves out what is, is wrong.
#[test]
fn the_document_and_the_dashboard_name_what_is_counted() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let source = fs::read_to_string(format!("{root}/crates/cli/src/serve/metrics.rs")).unwrap();
    let names = |text: &str| {
        let mut names: Vec<String> = text
            .split(|c: char| !c.is_ascii_lowercase() && c != '_')
            .filter(|word| word.starts_with("rpcrdma_") && word.len() > 8)
            .map(|word| word.trim_end_matches("_bucket").to_owned())
            .filter(|word| {
                !["rpcrdma_env", "rpcrdma_fabric", "rpcrdma_nfs", "rpcrdma_oncrpc", "rpcrdma_xdr"]
                    .contains(&word.as_str())
            })
            .collect();
        names.sort();
        names.dedup();
        names
    };
    let counted = names(&source);
    let document = fs::read_to_string(format!("{root}/docs/metrics.md")).unwrap();
    assert_eq!(names(&document), counted);
    let dashboard = fs::read_to_string(format!("{root}/docs/grafana-dashboard.json")).unwrap();
    let _: serde_json::Value = serde_json::from_str(&dashboard).unwrap();
    // A label's value, which looks like a name.
    let shown: Vec<String> = counted.into_iter().filter(|name| name != "rpcrdma_violation").collect();
    assert_eq!(names(&dashboard), shown, "what the dashboard shows and what is counted");
}
