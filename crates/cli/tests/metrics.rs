//! The server's counts must agree with what clients did.

mod common;

use common::{Server, contents, run};
use std::{
    fs,
    io::{Read, Write},
    net::TcpStream,
    time::{Duration, Instant},
};

const RDMA: &str = r#"transport="rdma""#;
const TCP: &str = r#"transport="tcp""#;
const OK: &str = r#"status="OK""#;
const READ: &str = r#"procedure="READ""#;
const PLACED: &str = r#"way="placed""#;

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
    let more = ["--no-root-squash", "--metrics", "127.0.0.1:0", "--tcp", "127.0.0.1:0", "--allow", "127.0.0.0/8"];
    let server = Server::start(&served, &scratch.path().join("state"), &more);
    let address = server.metrics();
    let local = scratch.path().join("local");
    run(["get", &server.url_3_in("1", "large"), local.to_str().unwrap()]);
    run(["cat", &server.url_3("small")]);
    run(["cat", &server.tcp_url_3("small")]);
    run(["put", local.to_str().unwrap(), &server.url_3("copy")]);
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
    assert_eq!(counted("rpcrdma_connections_ended_total", &[RDMA, r#"reason="orderly""#]), 3.0);
    // MOUNT for each of the four commands, and NFS for one: each command uses a separate connection for MOUNT.
    assert!(counted("rpcrdma_connections_ended_total", &[TCP, r#"reason="orderly""#]) >= 5.0, "{text}");
    assert_eq!(counted("rpcrdma_calls_total", &[READ, RDMA, OK]), 4.0, "three of 1 MiB and one small");
    assert_eq!(counted("rpcrdma_calls_total", &[READ, TCP, OK]), 1.0);
    assert_eq!(counted("rpcrdma_call_seconds_count", &[READ]), 5.0);
    assert_eq!(counted("rpcrdma_calls_total", &[r#"procedure="WRITE""#, RDMA]), 3.0);
    assert_eq!(counted("rpcrdma_calls_in_progress", &[]), 0.0);
    assert_eq!(
        counted("rpcrdma_bytes_total", &[r#"direction="out""#, PLACED]),
        f64::from(3 << 20),
        "only the large file is placed"
    );
    assert_eq!(counted("rpcrdma_bytes_total", &[r#"direction="in""#, PLACED]), f64::from(3 << 20));
    assert_eq!(counted("rpcrdma_chunks_total", &[r#"kind="write""#]), 3.0);
    assert_eq!(counted("rpcrdma_chunks_total", &[r#"kind="read""#]), 3.0);
    assert!(counted("rpcrdma_invalidations_total", &[]) >= 6.0);
    assert!(counted("rpcrdma_credits_granted", &[]) >= 1.0);
    assert_eq!(counted("rpcrdma_index_bytes", &[r#"what="limit""#]), f64::from(384 << 20));
    // If the server can use the kernel's handles, it need not remember files.
    let files = if rustix::process::geteuid().is_root() { 0.0 } else { 3.0 };
    assert!(counted("rpcrdma_index_files", &[]) <= files, "{text}");
    assert!(counted("rpcrdma_memory_bytes", &[r#"what="limit""#, r#"part="results""#]) > 0.0);
    // The panel of bytes shows TCP as well: a small file in each direction, and its headers.
    let tcp = |direction| counted("rpcrdma_bytes_total", &[TCP, direction, r#"way="stream""#]);
    assert!(tcp(r#"direction="in""#) > 300.0 && tcp(r#"direction="out""#) > 400.0, "{text}");
    assert_eq!(server.stop(), Some(0));
}

/// An administrator finds out which calls fail, and how.
#[test]
fn calls_are_counted_by_the_status_of_their_answer() {
    let scratch = tempfile::tempdir().unwrap();
    let served = common::served(scratch.path());
    let more = ["--metrics", "127.0.0.1:0", "--tcp", "127.0.0.1:0"];
    let server = Server::start(&served, &scratch.path().join("state"), &more);
    let address = server.metrics();
    let calls = |text: &str, labels: &[&str]| value(text, "rpcrdma_calls_total", labels);
    let before = scrape(&address);
    for labels in [[READ, RDMA, OK], [READ, TCP, OK], [r#"program="mount""#, r#"procedure="MNT""#, OK]] {
        let [a, b, c] = labels;
        let has = |line: &str| line.starts_with("rpcrdma_calls_total") && labels.iter().all(|l| line.contains(l));
        assert!(before.lines().any(has), "{a} {b} {c} is there from the start");
        assert_eq!(calls(&before, &labels), 0.0);
    }
    common::fails(1, ["cat", &server.url_3("nothing")]);
    common::fails(1, ["cat", &server.tcp_url_3("nothing")]);
    common::fails(1, ["ls", &server.tcp_url_3("nowhere/at/all")]);
    // NULL of program 1, and garbage instead of GETATTR's arguments.
    let call = |program: u32, procedure: u32| {
        let words = [1 << 31 | 40, 7, 0, 2, program, 3, procedure, 0, 0, 0, 0];
        let mut stream = TcpStream::connect(server.tcp.as_ref().unwrap()).unwrap();
        stream.write_all(&words.map(u32::to_be_bytes).concat()).unwrap();
        stream.read_exact(&mut [0; 28]).unwrap();
    };
    call(1, 0);
    call(100_003, 1);
    call(100_003, 99);
    // NFSACL: NULL, garbage instead of GETACL's arguments, and a procedure that only Solaris has.
    [0, 1, 3].into_iter().for_each(|procedure| call(100_227, procedure));
    let after = scrape(&address);
    let lookups = |transport| calls(&after, &[r#"procedure="LOOKUP""#, transport, r#"status="NOENT""#]);
    assert_eq!((lookups(RDMA), lookups(TCP)), (1.0, 2.0), "{after}");
    let refused = |program, procedure, status| calls(&after, &[program, procedure, status]);
    assert_eq!(refused(r#"program="other""#, r#"procedure="other""#, r#"status="PROG_UNAVAIL""#), 1.0);
    assert_eq!(refused(r#"program="nfs3""#, r#"procedure="GETATTR""#, r#"status="GARBAGE_ARGS""#), 1.0);
    assert_eq!(refused(r#"program="nfs3""#, r#"procedure="other""#, r#"status="PROC_UNAVAIL""#), 1.0);
    assert_eq!(refused(r#"program="nfsacl""#, r#"procedure="NULL""#, r#"status="OK""#), 1.0);
    assert_eq!(refused(r#"program="nfsacl""#, r#"procedure="GETACL""#, r#"status="GARBAGE_ARGS""#), 1.0);
    assert_eq!(refused(r#"program="nfsacl""#, r#"procedure="other""#, r#"status="PROC_UNAVAIL""#), 1.0);
    assert_eq!(server.stop(), Some(0));
}

/// The most connections from one address to the metrics at a time: three quarters of the server's limit.
const SCRAPES_OF_ADDRESS: usize = 12;
/// How long such a connection may last, and with the delay of a busy machine.
const SCRAPE_TIME: [Duration; 2] = [Duration::from_secs(9), Duration::from_secs(20)];

fn descriptors(server: &Server) -> usize {
    fs::read_dir(format!("/proc/{}/fd", server.pid())).unwrap().count()
}

/// A peer that can reach the metrics must not be able to take what NFS needs, or to fill the log.
#[test]
fn the_metrics_port_has_limits_of_its_own() {
    let scratch = tempfile::tempdir().unwrap();
    let log = scratch.path().join("log");
    let more = ["--metrics", "127.0.0.1:0", "--no-root-squash"];
    let served = common::served(scratch.path());
    fs::write(served.join("file"), b"contents").unwrap();
    let state = scratch.path().join("state");
    let server = Server::start_logged(&served, &state, fs::File::create(&log).unwrap().into(), &more);
    let address = server.metrics();
    run(["cat", &server.url("file")]);
    let before = descriptors(&server);
    let begin = Instant::now();
    // Some send nothing, some half a request, some too much, some nonsense.
    let mut held: Vec<TcpStream> = (0..200)
        .map(|number| {
            let mut stream = rpcrdma_peers::idlers::dial_from([127, 0, 0, 2], &address);
            let _ = match number % 4 {
                0 => Ok(()),
                1 => stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: h"),
                2 => stream.write_all(&[b'x'; 20_000]),
                _ => stream.write_all(b"\x16\x03\x01 nonsense\r\n\r\n"),
            };
            stream
        })
        .collect();
    let most = (0..20).map(|_| descriptors(&server)).max().unwrap();
    assert!(most <= before + SCRAPES_OF_ADDRESS + 1, "{most} descriptors, {before} before");
    assert!(scrape(&address).contains("rpcrdma_connections"), "another address is told");
    run(["cat", &server.url("file")]);
    // All of them end in time, also those that send something now and then.
    for stream in &mut held {
        stream.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        let mut octets = [0; 4096];
        loop {
            match stream.read(&mut octets) {
                Ok(0) => break,
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                    assert!(begin.elapsed() < SCRAPE_TIME[1], "a connection does not end");
                    let _ = stream.write_all(b"x");
                }
                Err(_) => break,
                Ok(_) => {}
            }
        }
    }
    assert!(begin.elapsed() > SCRAPE_TIME[0], "those that were let in had their time");
    assert!(scrape(&address).contains("rpcrdma_connections"));
    let said = fs::read_to_string(&log).unwrap();
    let warned: Vec<_> = said.lines().filter(|line| !line.contains("connection ended")).collect();
    assert!(warned.is_empty(), "what is asked wrongly is no warning: {warned:#?}");
    assert_eq!(server.stop(), Some(0));
}
