//! No client may make another wait for its writes: measures how long one client's LOOKUPs take on a slow disk to which
//! others write.
//!
//! The disk is slow because a tracer delays each `pwrite64` of the server. Without strace, or if tracing is forbidden,
//! nothing runs here.

mod common;

use common::Server;
use rpcrdma_peers::{
    idlers::{From4, dial_from},
    rpc::{self, Xdr, read_record, send_record},
};
use std::{
    fs,
    io::ErrorKind,
    net::TcpStream,
    os::unix::fs::PermissionsExt,
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

/// How long each write takes.
const DELAY: Duration = Duration::from_millis(20);
/// How long 99 of 100 LOOKUPs may take at most.
const LOOKUP_LIMIT: Duration = Duration::from_millis(100);
/// How many LOOKUPs are measured.
const LOOKUPS: usize = 200;
/// How often a failing measurement is repeated before the test fails: the machine has other work, too.
const ROUNDS: usize = 3;
const FILES: usize = 16;
/// Writes that a connection has under way: as many as the server allows.
const DEPTH: usize = 64;
const WRITE_BYTES: usize = 4096;
const FLOOD: From4 = [127, 0, 0, 1];
const VICTIM: From4 = [127, 0, 0, 2];

/// A server with a slow disk. Dropping it ends the server.
struct Slow {
    scratch: tempfile::TempDir,
    server: Server,
}

impl Drop for Slow {
    fn drop(&mut self) {
        // The tracer ends when the traced server ends.
        let children = format!("/proc/{0}/task/{0}/children", self.server.pid());
        let children = fs::read_to_string(children).unwrap_or_default();
        for child in children.split_whitespace() {
            let _ = Command::new("kill").args(["-KILL", child]).status();
        }
    }
}

fn slow() -> Option<Slow> {
    let traces = Command::new("strace").args(["-f", "-o", "/dev/null", "true"]).status();
    if !traces.is_ok_and(|status| status.success()) {
        eprintln!("not run: strace is not there, or may not trace");
        return None;
    }
    let scratch = tempfile::tempdir().unwrap();
    let export = scratch.path().join("export");
    fs::create_dir(&export).unwrap();
    for number in 0..FILES {
        let path = export.join(number.to_string());
        fs::write(&path, "").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
    }
    let mut tracer = Command::new("strace");
    tracer.args(["-f", "--seccomp-bpf", "-qq", "-o", "/dev/null", "-e", "trace=pwrite64"]);
    tracer.args(["-e", &format!("inject=pwrite64:delay_enter={}", DELAY.as_micros())]);
    let more = ["--tcp", "127.0.0.1:0"];
    let server = Server::start_under(tracer, &export, &scratch.path().join("state"), &more);
    Some(Slow { scratch, server })
}

/// A connection that has one call under way at a time.
struct Caller {
    stream: TcpStream,
    xid: u32,
}

impl Caller {
    fn new(from: From4, to: &str) -> Self {
        let stream = dial_from(from, to);
        stream.set_nodelay(true).unwrap();
        Self { stream, xid: 0 }
    }

    /// Makes a call, which must succeed, and returns the results behind the status.
    fn call(&mut self, program: u32, procedure: u32, args: &Xdr) -> Vec<u8> {
        self.xid += 1;
        let mut call = rpc::call(self.xid, program, 3, procedure).0;
        call.extend(&args.0);
        send_record(&mut self.stream, &call);
        let reply = read_record(&mut self.stream).expect("an answer");
        let rpc::Status::Success(results) = rpc::status(&reply) else { panic!("refused") };
        assert_eq!(rpc::word(&results, 0), 0, "procedure {procedure}");
        results[4..].to_vec()
    }

    fn lookup(&mut self, root: &[u8], name: &str) -> Vec<u8> {
        opaque(&self.call(rpc::NFS, 3, &Xdr::default().opaque(root).opaque(name.as_bytes())))
    }
}

fn opaque(octets: &[u8]) -> Vec<u8> {
    octets[4..][..rpc::word(octets, 0) as usize].to_vec()
}

/// Connections that write as fast as the server allows, until the value is dropped.
struct Flood {
    stop: Arc<AtomicBool>,
    written: Arc<AtomicUsize>,
    threads: Vec<JoinHandle<()>>,
}

impl Flood {
    fn new(slow: &Slow, root: &[u8], files: &[Vec<u8>], connections: usize, stability: u32) -> Self {
        let (stop, written) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let to = slow.server.tcp.clone().unwrap();
        let threads = (0..connections).map(|number| {
            // One after another: the server accepts only a few connections at a time that have not sent anything yet.
            let mut caller = Caller::new(FLOOD, &to);
            caller.lookup(root, "0");
            let (stop, written, files) = (stop.clone(), written.clone(), files.to_vec());
            // Different XIDs, so that no call looks like a repetition of another.
            let first = (number as u32 + 1) << 20;
            let flood = move || flood(caller.stream, first, &files, stability, (&stop, &written));
            std::thread::Builder::new().stack_size(256 << 10).spawn(flood).unwrap()
        });
        let flood = Self { threads: threads.collect(), stop, written };
        while flood.written.load(Ordering::Relaxed) < 2 * DEPTH {
            std::thread::sleep(Duration::from_millis(10));
        }
        flood
    }
}

fn flood(
    mut stream: TcpStream,
    first: u32,
    files: &[Vec<u8>],
    stability: u32,
    (stop, written): (&AtomicBool, &AtomicUsize),
) {
    stream.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
    let data = [7; WRITE_BYTES];
    let mut xid = first;
    let mut send = |stream: &mut TcpStream| {
        let file = &files[xid as usize % files.len()];
        let count = WRITE_BYTES as u32;
        let args = Xdr::default().opaque(file).u64(0).words(&[count, stability]).opaque(&data);
        let mut call = rpc::call(xid, rpc::NFS, 3, 7).0;
        call.extend(&args.0);
        xid += 1;
        send_record(stream, &call);
    };
    (0..DEPTH).for_each(|_| send(&mut stream));
    let mut waiting = [0; 1];
    while !stop.load(Ordering::Relaxed) {
        match stream.peek(&mut waiting) {
            Ok(1) => {}
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => continue,
            _ => return,
        }
        stream.set_read_timeout(None).unwrap();
        let reply = read_record(&mut stream).expect("an answer");
        let rpc::Status::Success(results) = rpc::status(&reply) else { panic!("refused") };
        assert_eq!(rpc::word(&results, 0), 0, "it was written");
        stream.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
        written.fetch_add(1, Ordering::Relaxed);
        send(&mut stream);
    }
}

impl Drop for Flood {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// How long the victim's LOOKUPs take: the median, and the time that 99 of 100 do not exceed.
fn lookups(victim: &mut Caller, root: &[u8]) -> (Duration, Duration) {
    let mut took: Vec<_> = (0..LOOKUPS)
        .map(|number| {
            let begin = Instant::now();
            victim.lookup(root, &(number % FILES).to_string());
            begin.elapsed()
        })
        .collect();
    took.sort();
    (took[LOOKUPS / 2], took[LOOKUPS * 99 / 100])
}

fn looks_beside(what: &str, connections: usize, stability: u32) {
    let Some(slow) = slow() else { return };
    let mut mount = Caller::new(VICTIM, &slow.server.mount);
    let root = opaque(&mount.call(rpc::MOUNT, 1, &Xdr::default().opaque(b"/")));
    let mut victim = Caller::new(VICTIM, slow.server.tcp.as_ref().unwrap());
    let files: Vec<_> = (0..FILES).map(|number| victim.lookup(&root, &number.to_string())).collect();
    let alone = lookups(&mut victim, &root);
    let flood = Flood::new(&slow, &root, &files, connections, stability);
    let mut seen = Vec::new();
    let kept = (0..ROUNDS).any(|_| {
        let before = flood.written.load(Ordering::Relaxed);
        seen.push(lookups(&mut victim, &root));
        assert!(flood.written.load(Ordering::Relaxed) > before, "a flood that does nothing");
        seen.last().is_some_and(|(_, most)| *most < LOOKUP_LIMIT)
    });
    println!("{what}: LOOKUP p50 and p99 alone {alone:.1?}, beside it {seen:.1?}");
    drop(flood);
    assert!(kept, "{what}: {seen:?}, {LOOKUP_LIMIT:?} wanted");
    assert!(slow.scratch.path().join("export/0").metadata().unwrap().len() > 0, "nothing was written");
}

/// proves: NFS3-FAIR-a
#[test]
fn a_lookup_does_not_wait_behind_unstable_writes_of_another() {
    looks_beside("64 unstable WRITEs over 16 files", 1, 0);
}

/// proves: NFS3-FAIR-a
#[test]
fn a_lookup_does_not_wait_behind_stable_writes_of_hundreds_of_connections() {
    looks_beside("400 connections with 64 stable WRITEs each", 400, 2);
}
