//! A crowd around a decent client: compares the client's speed beside peers that idle, stall, flood and vanish with its
//! speed alone, in the same run. The server's memory and descriptors must stay bounded meanwhile. The tests run one at
//! a time, because each measures.

#![allow(dead_code, reason = "the peers and the stage are those of the other tests against a live server")]

mod common;

#[path = "hostile/stage.rs"]
mod stage;

use crate::{
    common::rpcrdma,
    idlers::{From4, deaf, dial_from, half_frame, read_call, ready, vanished, withholding},
    peer::{Peer, read_reply},
    stage::Stage,
    wire::{CRC, ENHANCED, PRIVATE_DATA, enhanced, request},
};
use rpcrdma_peers::{
    idlers,
    nfs4::{Compound, client, link, op, status},
    peer, rpc, wire,
};
use serde_json::Value;
use std::{
    fs,
    io::{Read, Write},
    net::TcpStream,
    os::unix::fs::PermissionsExt,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

/// How long one measurement takes, in seconds.
const MEASURED: &str = "0.4";
/// The size of the file that measurements use.
const MEASURED_BYTES: usize = 1 << 20;
/// How often a failing comparison is repeated before the test fails: the machine has other work, too.
const ROUNDS: usize = 6;
/// The fraction of its speed that the client keeps beside peers that use no processor time.
const BESIDE_IDLERS: f64 = 1.0 / 3.0;
/// The fraction that it keeps beside peers that use all the processor time they get: peers, server and client share a
/// machine with few cores.
const BESIDE_FLOODS: f64 = 1.0 / 12.0;
/// The server's stall time-out, in seconds: longer than a measurement, and short for vanished peers, because only this
/// time-out ends their connections.
const STALL: &str = "6";
/// What an idle peer may cost the server, in KiB: buffers to read into, and receives.
const IDLER_KIB: usize = 128;
/// What a peer that does not read may cost, in KiB: a megabyte of replies, and the next reply.
const DEAF_KIB: usize = 2 << 10;
/// What a call may cost while its data do not come, in KiB: their size.
const WITHHELD_KIB: usize = 64;
/// What the decent client's own traffic makes the server keep, in KiB.
const OWN_KIB: usize = 48 << 10;
/// What the server's pool keeps of freed blocks, in KiB: 32 MiB of each size that was in use, here 4 KiB for receives,
/// 64 KiB for arguments, 128 KiB for results.
const POOLED_KIB: u64 = 96 << 10;
/// What a further crowd may add, in KiB: the allocator's own overhead.
const GROWTH_KIB: u64 = 24 << 10;
/// How long it may take until all peers are gone.
const PATIENCE: Duration = Duration::from_secs(30);

/// Held by the test that measures.
static QUIET: Mutex<()> = Mutex::new(());

/// Operations a second of a client that repeats one operation.
fn speed(stage: &Stage, op: &str) -> f64 {
    let mut bench = rpcrdma();
    bench.args(["bench", &stage.server.url_3("measured"), "--op", op, "--block", "16K", "--depth", "4", "--overwrite"]);
    let output = bench.args(["--seconds", MEASURED, "--json"]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    report["ops_per_s"].as_f64().unwrap()
}

/// Measures with and without a crowd until the client has once kept the wanted fraction of its speed.
fn keeps_its_speed<T>(stage: &mut Stage, part: f64, mut gather: impl FnMut(&Stage) -> T) {
    let quiet = QUIET.lock().unwrap_or_else(PoisonError::into_inner);
    let measured = stage.scratch.path().join("export/measured");
    fs::write(&measured, common::contents(MEASURED_BYTES)).unwrap();
    fs::set_permissions(&measured, fs::Permissions::from_mode(0o666)).unwrap();
    for op in ["read", "write", "null"] {
        let mut seen = Vec::new();
        let kept = (0..ROUNDS).any(|_| {
            let alone = speed(stage, op);
            let crowd = gather(stage);
            let beside = speed(stage, op);
            stage.the_open_connection_works();
            drop(crowd);
            seen.push(beside / alone);
            beside >= alone * part
        });
        println!("{op}: {seen:.2?} of its speed");
        assert!(kept, "{op}: {seen:?} of its speed, {part} wanted");
    }
    drop(quiet);
}

/// A thread that does something again and again. Dropping the value ends it.
struct Busy {
    stop: Arc<AtomicBool>,
    done: Arc<AtomicUsize>,
    thread: Option<JoinHandle<()>>,
}

impl Busy {
    fn new(mut work: impl FnMut() + Send + 'static) -> Self {
        let (stop, done) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let (stopped, count) = (stop.clone(), done.clone());
        let thread = std::thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                work();
                count.fetch_add(1, Ordering::Relaxed);
            }
        });
        Self { stop, done, thread: Some(thread) }
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let thread = self.thread.take().unwrap();
        assert!(thread.join().is_ok() || std::thread::panicking(), "an attacker has failed");
        assert!(self.done.load(Ordering::Relaxed) > 0, "an attacker that does nothing");
    }
}

/// Half a request for a connection.
fn half_open(from: From4, to: &str) -> TcpStream {
    let mut stream = dial_from(from, to);
    stream.write_all(&request(CRC | ENHANCED, 2, &enhanced(16, 16, &PRIVATE_DATA))[..25]).unwrap();
    stream
}

/// How many peers of an idle crowd have vanished, and how many send a byte at a time.
const VANISHED: usize = 30;
const DRIPPING: usize = 100;

/// Peers that keep their connections and do nothing with them.
struct Idlers {
    half: Vec<TcpStream>,
    peers: Vec<Peer>,
    /// What these peers may cost the server, in KiB.
    cost_kib: usize,
    _drip: Busy,
}

/// Connections that send nothing after the system has accepted them, connections that stop in MPA's set-up or within a
/// frame, that do not read, that withhold memory, that have vanished, and one hundred that send a byte at a time.
fn idlers(stage: &Stage) -> Idlers {
    let (rdma, mount) = (&stage.server.rdma, &stage.server.mount);
    let (file, written) = (stage.handle(b"file"), stage.handle(b"written"));
    let from = |last: u8| -> From4 { [127, 0, 0, last] };
    let mut half: Vec<TcpStream> = (0..64).map(|_| dial_from(from(2), rdma)).collect();
    half.extend((0..60).map(|_| half_open(from(3), rdma)));
    half.extend((0..40).map(|_| {
        let mut stream = dial_from(from(4), mount);
        stream.write_all(&[0x80, 0, 1]).unwrap();
        stream
    }));
    let (deaf_peers, withholders, calls) = (30, 10, 16);
    let mut peers: Vec<Peer> = (0..60).map(|_| half_frame(from(5), rdma)).collect();
    peers.extend((0..deaf_peers).map(|_| deaf(from(6), rdma, &file, 40)));
    peers.extend((0..VANISHED).map(|_| vanished(from(7), rdma)));
    peers.extend((0..withholders).map(|_| withholding(from(8), rdma, &written, calls, 64 << 10)));
    let mut slow: Vec<(Peer, Vec<u8>)> = (0..DRIPPING)
        .map(|_| {
            let mut peer = ready(from(9), rdma);
            let frame = peer.next_send(&rpc::inline(&rpc::null(2)));
            (peer, frame)
        })
        .collect();
    let mut at = 0;
    let drip = Busy::new(move || {
        for (peer, frame) in &mut slow {
            if let Some(octet) = frame.get(at) {
                peer.raw(&[*octet]);
            }
        }
        at += 1;
        std::thread::sleep(Duration::from_millis(50));
    });
    let all = half.len() + peers.len() + DRIPPING;
    let cost_kib = all * IDLER_KIB + deaf_peers * DEAF_KIB + withholders * calls as usize * WITHHELD_KIB;
    Idlers { half, peers, cost_kib, _drip: drip }
}

#[test]
fn a_decent_client_keeps_its_speed_beside_peers_that_idle() {
    let mut stage = Stage::new(&["--stall-timeout", STALL]);
    let before = stage.settled_descriptors();
    let mut vanished_peers = 0;
    keeps_its_speed(&mut stage, BESIDE_IDLERS, |stage| {
        // Vanished peers outlive their crowd for some time, with one descriptor each. All others must be gone, because
        // the server limits connections for each address.
        until(PATIENCE, || stage.descriptors() <= before + vanished_peers);
        vanished_peers += VANISHED;
        let crowd = idlers(stage);
        let open = crowd.half.len() + crowd.peers.len() + DRIPPING;
        until(PATIENCE, || stage.descriptors() >= before + open);
        let (descriptors, kib) = (stage.descriptors() - before, stage.grown_kib() as usize);
        println!("{open} peers: {kib} KiB, {descriptors} descriptors");
        assert!(descriptors <= open + vanished_peers, "{descriptors} for {open} peers");
        assert!(kib < crowd.cost_kib + OWN_KIB, "{kib} KiB for {open} peers");
        crowd
    });
    // Another crowd of the same kind costs no more than the earlier ones.
    let kept = gone(&stage, before);
    drop(idlers(&stage));
    let kept_now = gone(&stage, before);
    assert!(kept_now < kept + GROWTH_KIB, "{kept} KiB, and {kept_now} KiB after another crowd");
    stage.finish_keeping(POOLED_KIB);
}

/// One address takes all the memory that it can get: it withholds data, does not read replies, and does not end
/// records. The memory that is left must be enough for the speed of others.
#[test]
fn a_decent_client_keeps_its_speed_beside_one_that_takes_all_its_memory() {
    let mut stage = Stage::new(&["--stall-timeout", STALL, "--memory", "32M", "--tcp", "127.0.0.1:0"]);
    let before = stage.settled_descriptors();
    keeps_its_speed(&mut stage, BESIDE_IDLERS, |stage| {
        until(PATIENCE, || stage.descriptors() <= before);
        let (file, written) = (stage.handle(b"file"), stage.handle(b"written"));
        let (rdma, tcp) = (&stage.server.rdma, stage.server.tcp.as_ref().unwrap());
        let greedy = [127, 0, 0, 2];
        let mut peers: Vec<Peer> = (0..4).map(|_| withholding(greedy, rdma, &written, 16, 1 << 20)).collect();
        peers.extend((0..16).map(|_| deaf(greedy, rdma, &file, 60)));
        let records: Vec<TcpStream> = (0..16)
            .map(|_| {
                let mut stream = dial_from(greedy, tcp);
                stream.write_all(&0x8010_0000_u32.to_be_bytes()).unwrap();
                stream.write_all(&[0; 9000]).unwrap();
                stream
            })
            .collect();
        // By then the address has all the memory that it can get.
        std::thread::sleep(Duration::from_millis(300));
        (peers, records)
    });
    let _ = gone(&stage, before);
    stage.finish();
}

/// Waits until the server has freed all connections. Returns the memory that it keeps, in KiB.
fn gone(stage: &Stage, descriptors: usize) -> u64 {
    until(PATIENCE, || stage.descriptors() <= descriptors);
    stage.grown_kib()
}

/// Waits for what takes some time.
fn until(patience: Duration, mut is_so: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < patience, "it does not come to that");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Connections that are made and ended as fast as possible: before, within and after their set-up.
#[test]
fn a_decent_client_keeps_a_fair_share_beside_a_flood_of_connections() {
    let mut stage = Stage::new(&[]);
    keeps_its_speed(&mut stage, BESIDE_FLOODS, |stage| {
        let whole = request(CRC | ENHANCED, 2, &enhanced(16, 16, &PRIVATE_DATA));
        let flood = |last: u8, octets: usize| {
            let (to, frame) = (stage.server.rdma.clone(), whole[..octets].to_vec());
            Busy::new(move || {
                let mut stream = dial_from([127, 0, 0, last], &to);
                // The server may refuse it: for a moment there may be too many connections from this address.
                if stream.write_all(&frame).is_ok() && frame.len() > 20 {
                    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
                    let _ = read_reply(&mut stream);
                }
            })
        };
        [flood(2, 0), flood(3, 10), flood(4, whole.len())]
    });
    stage.finish();
}

/// A flood of wrong headers that the server ignores, of wrong headers that it answers with errors, and of small calls.
#[test]
fn a_decent_client_keeps_a_fair_share_beside_a_flood_of_messages() {
    let mut stage = Stage::new(&[]);
    keeps_its_speed(&mut stage, BESIDE_FLOODS, |stage| {
        let file = stage.handle(b"file");
        let version = {
            let mut message = rpc::inline(&rpc::null(2));
            message[7] = 77;
            message
        };
        let flood = |last: u8, message: Vec<u8>, answered: bool| {
            let to = stage.server.rdma.clone();
            let mut peer = ready([127, 0, 0, last], &to);
            Busy::new(move || {
                let burst: Vec<u8> = (0..32).flat_map(|_| peer.next_send(&message)).collect();
                peer.raw(&burst);
                for _ in 0..if answered { 32 } else { 0 } {
                    peer.message().expect("nothing here ends the connection");
                }
            })
        };
        let mut floods = vec![flood(2, version, true), flood(3, rpc::inline(&rpc::null(2)), true)];
        floods.push(flood(4, rpc::inline(&read_call(2, &file, 1024).0), true));
        // The server ignores a reply that belongs to no call.
        let mut reply = rpc::inline(&rpc::null(2));
        reply[35] = 1;
        floods.push(flood(5, reply, false));
        floods
    });
    stage.finish();
}

/// Garbage: each such connection ends with a Terminate, and the next begins.
#[test]
fn a_decent_client_keeps_a_fair_share_beside_a_flood_of_garbage() {
    let mut stage = Stage::new(&[]);
    keeps_its_speed(&mut stage, BESIDE_FLOODS, |stage| {
        let flood = |last: u8| {
            let to = stage.server.rdma.clone();
            Busy::new(move || {
                let mut stream = dial_from([127, 0, 0, last], &to);
                stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
                let _ = stream.write_all(&request(CRC | ENHANCED, 2, &enhanced(16, 16, &PRIVATE_DATA)));
                let _ = read_reply(&mut stream);
                let _ = stream.write_all(&[0xA5; 4096]);
                while matches!(stream.read(&mut [0; 4096]), Ok(1..)) {}
            })
        };
        [flood(2), flood(3), flood(4)]
    });
    stage.finish();
}

/// Unconfirmed clients of NFS version 4, owners that open and close, and COMPOUNDs of many READs, as fast as possible.
#[test]
fn a_decent_client_keeps_a_fair_share_beside_a_flood_of_nfs_version_4() {
    let versions = ["--nfs", "3,4.1,4.2", "--tcp", "127.0.0.1:0", "--memory", "64M"];
    let place = |stage: &Stage| link::Place::Tcp(stage.server.tcp.clone().unwrap());
    let mut stage = Stage::after(&versions, |stage| {
        // The first client makes the server open its journal of clients.
        drop(client::Client::new(&place(stage), b"first", 2));
        stage.settled_descriptors();
    });
    let place = place(&stage);
    keeps_its_speed(&mut stage, BESIDE_FLOODS, |_| {
        let (mut unconfirmed, mut number) = (link::Link::to(&place), 0_u64);
        let strangers = Busy::new(move || {
            number += 1;
            let name = [&number.to_be_bytes()[..], &[b'n'; 1_000]].concat();
            let call = Compound::new(2).op(op::EXCHANGE_ID, client::exchange_id(&name, 1));
            assert_eq!(unconfirmed.call(&call).status, status::OK);
        });
        let mut opener = client::Client::new(&place, b"opener", 2);
        let opens = Busy::new(move || {
            let (open, file) = opener.open(b"file", b"owner", 0);
            assert_eq!(opener.on(&file, op::CLOSE, client::close(&open)).status, status::OK);
        });
        let mut reader = client::Client::new(&place, b"reader", 2);
        let (open, file) = reader.open(b"file", b"owner", 0);
        let put = Compound::new(2).op(op::PUTFH, rpc::Xdr::default().opaque(&file));
        let call = (0..60).fold(put, |call, _| call.op(op::READ, client::read(&open, 16 << 10)));
        let reads = Busy::new(move || {
            let answered = reader.call(&call).status;
            assert!(matches!(answered, status::OK | status::DELAY), "{answered}");
        });
        [strangers, opens, reads]
    });
    stage.finish_keeping(POOLED_KIB);
}
