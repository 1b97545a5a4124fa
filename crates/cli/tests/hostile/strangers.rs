//! Clients outside `--allow`: the server's answers to them, and that they cost no other client anything.

use crate::{
    common::{Server, contents, fails, rpcrdma, run, served},
    idlers::dial_from,
    rpc::{self, Status, Xdr, status},
};
use std::{
    fs,
    io::{Read, Write},
    net::TcpStream,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    time::{Duration, Instant},
};

const STRANGER: [u8; 4] = [127, 0, 0, 2];
/// AUTH_TOOWEAK.
const TOO_WEAK: u32 = 5;
/// MNT3ERR_ACCES.
const ACCES: u32 = 13;
/// The longest record that the server reads from a stranger: its own limit.
const STRANGER_RECORD_BYTES: usize = 2048;
/// The most memory for calls over TCP with `--memory 16M`, in bytes: which half records of strangers could take in
/// earlier versions.
const RECORD_BYTES: u32 = 1 << 20;
/// How many strangers connect at a time.
const STRANGERS: usize = 64;
/// The longest that an allowed WRITE may take beside them; alone it takes some milliseconds.
const PATIENCE: Duration = Duration::from_secs(3);

fn guarded(more: &[&str]) -> (tempfile::TempDir, Server) {
    let scratch = tempfile::tempdir().unwrap();
    let all = [&["--allow", "127.0.0.1", "--tcp", "127.0.0.1:0", "--no-root-squash", "--memory", "16M"], more].concat();
    let server = Server::start(&served(scratch.path()), &scratch.path().join("state"), &all);
    (scratch, server)
}

fn ask(stream: &mut TcpStream, call: Xdr) -> Status {
    rpc::send_record(stream, &call.0);
    status(&rpc::read_record(stream).expect("an answer"))
}

/// proves: NFS3-ACL-c
#[test]
fn strangers_are_told_so_and_nothing_else() {
    let (_scratch, server) = guarded(&[]);
    run(["ls", &server.url_3("")]);
    let mut mount = dial_from(STRANGER, &server.mount);
    assert_eq!(ask(&mut mount, rpc::call(1, rpc::MOUNT, 3, 0)), Status::Success(Vec::new()));
    let refused = Xdr::default().u32(ACCES).0;
    assert_eq!(ask(&mut mount, rpc::call(2, rpc::MOUNT, 3, 1).opaque(b"/")), Status::Success(refused));
    let nothing = Status::Success(Xdr::default().u32(0).0);
    assert_eq!(ask(&mut mount, rpc::call(3, rpc::MOUNT, 3, 2)), nothing, "DUMP: who has mounted");
    assert_eq!(ask(&mut mount, rpc::call(4, rpc::MOUNT, 3, 5)), nothing, "EXPORT: who may");
    assert_eq!(ask(&mut mount, rpc::call(5, rpc::MOUNT, 3, 4)), Status::AuthError(TOO_WEAK), "UMNTALL");
    let mut nfs = dial_from(STRANGER, server.tcp.as_ref().unwrap());
    assert_eq!(ask(&mut nfs, rpc::call(6, rpc::NFS, 3, 1).opaque(&[0; 32])), Status::AuthError(TOO_WEAK));
    // An allowed client sees its exports and its own mounts.
    let mut allowed = TcpStream::connect(&server.mount).unwrap();
    let Status::Success(mounts) = ask(&mut allowed, rpc::call(7, rpc::MOUNT, 3, 2)) else { panic!() };
    assert!(mounts.windows(9).any(|octets| octets == b"127.0.0.1"), "{mounts:?}");
    assert_eq!(server.stop(), Some(0));
}

/// At the limit and one past it: a record longer than any honest call ends the connection.
#[test]
fn no_more_is_read_of_a_stranger_than_the_longest_call_that_is_answered() {
    let (_scratch, server) = guarded(&[]);
    for address in [&server.mount, server.tcp.as_ref().unwrap()] {
        for (len, is_answered) in [(STRANGER_RECORD_BYTES, true), (STRANGER_RECORD_BYTES + 1, false)] {
            let mut call = rpc::call(1, rpc::NFS, 3, 1).0;
            call.resize(len, 0);
            let mut stream = dial_from(STRANGER, address);
            stream.write_all(&(1_u32 << 31 | len as u32).to_be_bytes()).unwrap();
            let _ = stream.write_all(&call);
            let answer = rpc::read_record(&mut stream).map(|reply| status(&reply));
            assert_eq!(answer, is_answered.then_some(Status::AuthError(TOO_WEAK)), "{len} bytes");
        }
    }
    assert_eq!(server.stop(), Some(0));
}

fn tcp_memory(address: &str) -> f64 {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let name = r#"rpcrdma_memory_bytes{part="tcp",what="in_use"}"#;
    let line = text.lines().find(|line| line.starts_with(name)).expect("it is counted");
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

/// proves: NFS3-ACL-c
#[test]
fn strangers_take_no_memory_and_delay_nobody() {
    let (scratch, server) = guarded(&["--metrics", "127.0.0.1:0"]);
    let metrics = server.metrics();
    let local = scratch.path().join("local");
    fs::write(&local, contents(3 << 20)).unwrap();
    let put = |name: &str| {
        let begin = Instant::now();
        run(["put", local.to_str().unwrap(), &server.tcp_url(name)]);
        begin.elapsed()
    };
    let alone = put("alone");
    let (stop, tried) = (AtomicBool::new(false), AtomicUsize::new(0));
    let (beside, most) = std::thread::scope(|scope| {
        for thread in 0..2 {
            let (stop, tried, server) = (&stop, &tried, &server);
            scope.spawn(move || {
                let addresses = [server.mount.clone(), server.tcp.clone().unwrap()];
                // Half of a one-megabyte record, and a record without its end.
                let half = [&(1 << 31 | RECORD_BYTES).to_be_bytes()[..], &vec![0; RECORD_BYTES as usize / 2]].concat();
                while !stop.load(Ordering::Relaxed) {
                    let mut held = Vec::new();
                    for number in 0..STRANGERS / 2 {
                        let mut stream = dial_from(STRANGER, &addresses[(number + thread) % 2]);
                        stream.set_write_timeout(Some(Duration::from_millis(50))).unwrap();
                        let _ = stream.write_all(&half);
                        held.push(stream);
                        tried.fetch_add(1, Ordering::Relaxed);
                    }
                    std::thread::sleep(Duration::from_millis(20));
                }
            });
        }
        while tried.load(Ordering::Relaxed) < STRANGERS {
            std::thread::sleep(Duration::from_millis(10));
        }
        let beside = (0..5).map(|number| put(&format!("beside-{number}"))).max().unwrap();
        let most = (0..15).map(|_| {
            std::thread::sleep(Duration::from_millis(100));
            tcp_memory(&metrics)
        });
        let most = most.fold(0.0, f64::max);
        stop.store(true, Ordering::Relaxed);
        (beside, most)
    });
    println!(
        "a put of 3 MiB: {alone:?} alone, {beside:?} at most beside {} connections of strangers; {most} bytes of the \
         memory for TCP in use",
        tried.load(Ordering::Relaxed)
    );
    assert!(beside < PATIENCE, "an allowed client waits {beside:?}");
    assert!(most == 0.0, "strangers take {most} bytes of --memory");
    let error = fails(1, ["ls", &format!("{}&uid=1", server.tcp_url("none"))]);
    assert!(error.contains("no such file"), "{error}");
    assert!(rpcrdma().args(["cat", &server.tcp_url("alone")]).output().unwrap().stdout == contents(3 << 20));
    assert_eq!(server.stop(), Some(0));
}
