//! Ports on which another program listens: within seconds the user reads what is wrong, and the command does not flood
//! the port.

mod common;

use common::{Server, fails};
use std::{
    fs,
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    process::Stdio,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

/// The longest that a user waits for the error: the client's limit of 10 s, and what a busy machine may add.
const PATIENCE: Duration = Duration::from_secs(25);
/// The same for a silent port: the limit is 30 s.
const PATIENCE_WITH_SILENCE: Duration = Duration::from_secs(55);
/// The most connections in the client's 10 s; each pause is twice as long as the last.
const MOST_CONNECTIONS: usize = 12;

/// What listens on a port, and what it does with connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Port {
    Closes,
    Silent,
    ClosesAfterCall,
    Ssh,
    Http,
}

const EVERY: [Port; 5] = [Port::Closes, Port::Silent, Port::ClosesAfterCall, Port::Ssh, Port::Http];

/// Opens a port. Returns its number and a count of connections.
fn open(port: Port) -> (u16, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let number = listener.local_addr().unwrap().port();
    let count = Arc::new(AtomicUsize::new(0));
    let counted = count.clone();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            counted.fetch_add(1, Ordering::SeqCst);
            thread::spawn(move || treat(port, stream));
        }
    });
    (number, count)
}

fn treat(port: Port, mut stream: TcpStream) {
    let mut heard = [0; 1024];
    match port {
        Port::Closes => {}
        Port::Silent => thread::sleep(Duration::from_secs(600)),
        Port::ClosesAfterCall => drop(stream.read(&mut heard)),
        Port::Ssh => {
            let _ = stream.write_all(b"SSH-2.0-OpenSSH_9.2p1 Debian-2\r\n");
            let _ = stream.read(&mut heard);
        }
        Port::Http => {
            let _ = stream.read(&mut heard);
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
        }
    }
}

/// Runs a command with such a port; it must say what is wrong.
fn names(port: Port, command: &str, url: impl Fn(u16) -> String, wanted: &str) {
    let (number, count) = open(port);
    let begin = Instant::now();
    let count_of_ping: &[&str] = if command == "ping" { &["-c", "1"] } else { &[] };
    let error = fails(1, [command].iter().chain(count_of_ping).map(|word| (*word).to_owned()).chain([url(number)]));
    let took = begin.elapsed();
    let made = count.load(Ordering::SeqCst);
    eprintln!("{port:?}, {command}: {made} connections in {took:.1?}: {}", error.trim());
    let (wanted, patience) = match port {
        Port::Silent => (format!("127.0.0.1:{number} accepts connections but says nothing"), PATIENCE_WITH_SILENCE),
        _ => (format!("127.0.0.1:{number} answers, but does not speak {wanted}"), PATIENCE),
    };
    assert!(error.contains(&wanted), "{port:?}, {command}: {error}");
    assert!(took < patience, "{port:?}, {command}: {took:?}");
    assert!((1..=MOST_CONNECTIONS).contains(&made), "{port:?}, {command}: {made} connections");
}

/// proves: RPC-OUTAGE-a, RPC-OUTAGE-b, RPC-OUTAGE-c
#[test]
fn what_is_no_nfs_server_is_named_within_seconds_over_either_transport() {
    thread::scope(|scope| {
        for port in EVERY {
            let host = |number| format!("nfs://127.0.0.1:{number}/");
            scope.spawn(move || {
                let url = |number| format!("{}?version=3&transport=tcp&mountport={number}", host(number));
                names(port, "ls", url, "NFS's MOUNT over TCP");
            });
            scope.spawn(move || names(port, "ls", |number| format!("{}?transport=tcp", host(number)), "NFS over TCP"));
            scope
                .spawn(move || names(port, "ping", |number| format!("{}?transport=tcp", host(number)), "NFS over TCP"));
            scope.spawn(move || names(port, "ping", host, "NFS over RDMA"));
        }
    });
}

/// proves: OPS-SETUP-a
#[test]
fn the_server_tells_of_set_ups_that_failed_but_not_of_each() {
    const TRIES: usize = 5;
    let scratch = tempfile::tempdir().unwrap();
    let served = scratch.path().join("served");
    fs::create_dir(&served).unwrap();
    let log = scratch.path().join("log");
    let to = Stdio::from(fs::File::create(&log).unwrap());
    let server = Server::start_logged(&served, &scratch.path().join("state"), to, &["--metrics", "127.0.0.1:0"]);
    let metrics = server.metrics();
    for _ in 0..TRIES {
        let mut stream = TcpStream::connect(&server.rdma).unwrap();
        let _ = stream.write_all(b"GET / HTTP/1.1\r\nHost: here\r\n\r\n");
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest);
    }
    drop(TcpStream::connect(&server.rdma).unwrap());
    let begin = Instant::now();
    let counted = loop {
        let text = scrape(&metrics);
        let counted = ["broken", "violation"].map(|reason| {
            let name = format!("rpcrdma_setups_failed_total{{reason=\"{reason}\"}} ");
            text.lines().find_map(|line| line.strip_prefix(&name)?.parse::<usize>().ok())
        });
        if counted == [Some(1), Some(TRIES)] || begin.elapsed() > PATIENCE {
            break counted;
        }
        thread::sleep(Duration::from_millis(20));
    };
    assert_eq!(counted, [Some(1), Some(TRIES)]);
    assert_eq!(server.stop(), Some(0));
    let log = fs::read_to_string(&log).unwrap();
    let told: Vec<_> = log.lines().filter(|line| line.contains("an RDMA connection could not be set up")).collect();
    assert_eq!(told.len(), 1, "{log}");
    for part in ["127.0.0.1:", "violation", "MPA"] {
        assert!(told[0].contains(part), "{part}: {}", told[0]);
    }
}

fn scrape(address: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}
