//! Time-outs of a live server: for each way of making no progress, the server itself ends the connection in time, and
//! not before. The limit is a second here; the defaults are longer.

use crate::{
    idlers::{asked, deaf, ended, half_frame, read_call, ready, vanish, vanished, withholding},
    peer::{Heard, Peer, dial},
    rpc::{self, Header},
    stage::Stage,
};
use std::{
    io::Write,
    time::{Duration, Instant},
};

/// The server's limit.
const STALL: Duration = Duration::from_secs(1);
const STALL_ARGUMENT: [&str; 2] = ["--stall-timeout", "1"];
/// The connection must not end earlier than this. It is less than the limit because our measurement begins a moment
/// before the server's.
const EARLY: Duration = Duration::from_millis(900);
/// What a busy machine may add.
const LATE: Duration = Duration::from_secs(8);
/// How much a peer that does not read may make the server hold, in KiB: a megabyte of replies, the next reply, and the
/// allocator's overhead.
const MAX_PEER_KIB: u64 = 4 << 10;
const HERE: [u8; 4] = [127, 0, 0, 1];

fn in_time(what: &str, took: Duration, limit: Duration) {
    assert!(limit.mul_f64(0.9) <= took && took < limit + LATE, "{what}: {took:?}");
}

/// Half a frame, and a Read Request that the peer does not answer.
#[test]
fn a_peer_that_stops_half_way_is_dropped_in_time() {
    let stage = Stage::new(&STALL_ARGUMENT);
    let file = stage.handle(b"written");
    let to = &stage.server.rdma;
    let begin = Instant::now();
    let mut half = half_frame(HERE, to);
    let mut silent = withholding(HERE, to, &file, 3, 64);
    asked(&mut silent);
    in_time("half a frame", ended(&mut half.stream, begin, STALL + LATE), STALL);
    in_time("an unanswered Read", ended(&mut silent.stream, begin, STALL + LATE), STALL);
    stage.finish();
}

/// A peer that owes nothing may be silent for any time, and a peer that makes progress may be slow.
#[test]
fn a_peer_that_is_idle_or_slow_is_not_dropped() {
    let mut stage = Stage::new(&STALL_ARGUMENT);
    let mut peer = ready(HERE, &stage.server.rdma);
    let frame = peer.next_send(&rpc::inline(&rpc::null(2)));
    for part in frame.chunks(frame.len().div_ceil(6)) {
        peer.raw(part);
        std::thread::sleep(STALL / 2);
    }
    assert_eq!(rpc::Reply::read(&peer.message().unwrap()).xid(), 2);
    std::thread::sleep(2 * STALL);
    peer.send(&rpc::inline(&rpc::null(3)));
    assert_eq!(rpc::Reply::read(&peer.message().unwrap()).xid(), 3);
    drop(peer);
    stage.the_open_connection_works();
    stage.finish();
}

/// The peer answers each Read in time, but the call as a whole takes too long.
#[test]
fn a_peer_that_answers_reads_just_in_time_is_dropped_when_a_call_is_overdue() {
    let stage = Stage::new(&STALL_ARGUMENT);
    let file = stage.handle(b"written");
    let before = stage.settled_descriptors();
    let begin = Instant::now();
    let mut peer = withholding(HERE, &stage.server.rdma, &file, 16, 64);
    let mut answered = 0;
    // One second may pass without progress, and two for a call: so the peer never answers all Reads.
    let took = loop {
        if stage.descriptors() == before {
            break begin.elapsed();
        }
        match peer.hear() {
            Heard::ReadRequest(asked) => {
                std::thread::sleep(STALL.mul_f64(0.6));
                peer.respond(&asked, &[7; 64]);
                answered += 1;
            }
            Heard::Send { .. } => {}
            other => panic!("{other:?}"),
        }
    };
    assert!((2..16).contains(&answered), "{answered}");
    in_time("sixteen Reads", took, 2 * STALL);
    stage.finish();
}

/// The server drops peers that do not read, and vanished peers, although these never close.
#[test]
fn peers_that_take_nothing_and_peers_that_have_vanished_are_dropped() {
    let mut stage = Stage::new(&STALL_ARGUMENT);
    let file = stage.handle(b"file");
    let to = stage.server.rdma.clone();
    let before = stage.settled_descriptors();
    let mut peers: Vec<Peer> = (0..4).map(|_| deaf(HERE, &to, &file, 60)).collect();
    peers.extend((0..4).map(|_| vanished(HERE, &to)));
    // Vanished while a long reply was on its way.
    let mut peer = ready(HERE, &to);
    vanish(&peer.stream);
    let header = Header { writes: vec![vec![(0x5EED, 64 << 10, 0)]], ..Header::default() };
    peer.send(&header.message(2, &read_call(2, &file, 64 << 10).0));
    peers.push(peer);
    // Vanished while nothing was under way.
    let idle = ready(HERE, &to);
    vanish(&idle.stream);
    peers.push(idle);
    let begin = Instant::now();
    std::thread::sleep(STALL / 4);
    assert_eq!(stage.descriptors(), before + peers.len(), "not before the time");
    let limit = peers.len() as u64 * MAX_PEER_KIB;
    assert!(stage.grown_kib() < limit, "{} KiB", stage.grown_kib());
    while stage.descriptors() > before {
        assert!(begin.elapsed() < STALL + LATE, "{} are left", stage.descriptors() - before);
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(begin.elapsed() > EARLY);
    stage.the_open_connection_works();
    stage.finish();
    drop(peers);
}

/// Over TCP: half a record, a record that never ends although bytes keep coming, replies that the peer does not read.
#[test]
fn records_and_replies_that_get_nowhere_end_their_connection() {
    let mut stage = Stage::new(&[&STALL_ARGUMENT[..], &["--tcp", "127.0.0.1:0"]].concat());
    let file = stage.handle(b"file");
    let tcp = stage.server.tcp.clone().unwrap();
    let before = stage.settled_descriptors();
    for address in [stage.server.mount.clone(), tcp.clone()] {
        let begin = Instant::now();
        let mut half = dial(&address);
        half.write_all(&[0x80, 0, 0]).unwrap();
        let mut large = dial(&address);
        large.write_all(&0x8010_0000_u32.to_be_bytes()).unwrap();
        let mut took = ended_while(&mut large, begin);
        in_time("a record of a megabyte, byte by byte", took, STALL);
        took = ended(&mut half, begin, 2 * STALL + LATE);
        in_time("half a header", took, STALL);
    }
    let mut deaf = dial(&tcp);
    rpc::send_record(&mut deaf, &rpc::null(9));
    rpc::read_record(&mut deaf).unwrap();
    let call = read_call(1, &file, 64 << 10).0;
    let begin = Instant::now();
    // The server soon stops reading; then our writes block, and at last fail.
    deaf.set_write_timeout(Some(STALL / 4)).unwrap();
    while begin.elapsed() < STALL + LATE {
        let mut record = (0x8000_0000 | call.len() as u32).to_be_bytes().to_vec();
        record.extend(&call);
        match deaf.write_all(&record) {
            Err(error) if !matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut) => {
                break;
            }
            _ if stage.descriptors() <= before => break,
            _ => {}
        }
    }
    in_time("replies that nobody reads", begin.elapsed(), STALL);
    stage.the_open_connection_works();
    stage.finish();
}

/// Sends a byte now and then until the connection ends.
fn ended_while(stream: &mut std::net::TcpStream, since: Instant) -> Duration {
    loop {
        assert!(since.elapsed() < 2 * STALL + LATE, "a record that never ends is read for ever");
        if stream.write_all(&[0; 8]).is_err() {
            return since.elapsed();
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}
