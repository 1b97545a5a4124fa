//! Transport headers of version 1: every judged vector over a real connection, chunks that lie, and credits.

use crate::{
    peer::{Heard, Peer},
    rpc::{self, Header, Reply, Segment, Status, Xdr, status},
    stage::{FILE_BYTES, Stage},
};
use serde_json::Value;

/// The most bytes of one call that the server reads by RDMA: its named limit.
const MAX_CALL_BYTES: u32 = (1 << 20) + (64 << 10);
/// The most calls that one connection may have under way.
const CREDITS: usize = 64;
const BARRIER_XID: u32 = 0xBA88_1E88;

/// Proves with a barrier, a NULL call, that the connection works. Returns everything before the barrier's answer.
fn until_barrier(peer: &mut Peer) -> Vec<Reply> {
    let mut replies = Vec::new();
    loop {
        let answered = peer.answered;
        peer.send(&rpc::inline(&rpc::null(BARRIER_XID)));
        loop {
            let reply = Reply::read(&peer.message().expect("the connection stands"));
            if reply.xid() == BARRIER_XID {
                break;
            }
            replies.push(reply);
        }
        // A call with Read chunks may be answered after the barrier, but not after the next one.
        if answered == peer.answered {
            return replies;
        }
    }
}

/// proves: V1-4.5-a, V1-4.5-b, V1-4.5-d, V1-4.5.1-a, V1-4.5.2-a
#[test]
fn every_vector_is_answered_as_judged() {
    let vectors = include_str!("../../../../spec/rpcrdma-headers.jsonl");
    let stage = Stage::new(&[]);
    let mut peer = Peer::connect(&stage.server.rdma);
    assert_eq!(until_barrier(&mut peer), []);
    let mut sent = 0;
    for line in vectors.lines() {
        let vector: Value = serde_json::from_str(line).unwrap();
        if vector["version"] != 1 || vector["role"] != "responder" {
            continue;
        }
        let (name, hex) = (vector["name"].as_str().unwrap(), vector["hex"].as_str().unwrap());
        let octets: Vec<u8> =
            (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect();
        let may = |action: &str, error: &str| {
            vector["classify"]
                .as_array()
                .unwrap()
                .iter()
                .any(|judged| judged["action"] == action && (error.is_empty() || judged["error"] == error))
        };
        peer.send(&octets);
        sent += 1;
        let replies = until_barrier(&mut peer);
        let xid = octets.first_chunk().map(|xid| u32::from_be_bytes(*xid));
        assert!(replies.iter().all(|reply| Some(reply.xid()) == xid), "{name}: {replies:?}");
        let right = match replies[..] {
            [] => may("discard", "") || may("accept", ""),
            // An accepted header may still exceed a limit, or carry a call of an unknown service.
            [Reply::ErrChunk { .. }] => may("reply", "ERR_CHUNK") || may("accept", ""),
            [Reply::ErrVers { low: 1, high: 1, .. }] => may("reply", "ERR_VERS"),
            [Reply::Rpc(_) | Reply::Long(_)] => may("accept", ""),
            _ => false,
        };
        assert!(right, "{name}: {replies:?} for {}", vector["classify"]);
    }
    assert!(sent > 250, "{sent} vectors");
    drop(peer);
    stage.finish();
}

/// GETATTR, READ and LOOKUP on inline streams.
fn procedure(number: u32, file: &[u8]) -> Xdr {
    let mut stream = rpc::call(55, rpc::NFS, 3, number);
    stream.0.extend(Xdr::default().opaque(file).0);
    stream
}

fn read_call(file: &[u8], count: u32) -> Vec<u8> {
    procedure(6, file).u64(0).u32(count).0
}

/// proves: V1-8.1.4-a
#[test]
fn chunks_that_lie_are_refused_and_the_connection_goes_on() {
    let stage = Stage::new(&[]);
    let (root, file, written) = (stage.root(), stage.handle(b"file"), stage.handle(b"written"));
    let mut peer = Peer::connect(&stage.server.rdma);
    let write = rpc::write_call(55, &written, 64).0;
    let at = write.len() as u32;
    let one = |position: u32, segment: Segment| Header { reads: vec![(position, segment)], ..Header::default() };
    let lookup = procedure(3, &root).u32(4).0;
    let reply = |segments: &[Segment]| Header { reply: Some(segments.to_vec()), ..Header::default() };
    let writes = |chunks: &[Vec<Segment>]| Header { writes: chunks.to_vec(), ..Header::default() };
    let refused: Vec<(&str, Header, &[u8])> = vec![
        ("a Read chunk of 4 GiB", one(at, (7, u32::MAX, 0)), &write),
        ("a Read chunk of a byte too many", one(at, (7, MAX_CALL_BYTES + 1, 0)), &write),
        (
            "Read segments that are too much together",
            Header { reads: vec![(at, (7, 8192, 0)); 160], ..Header::default() },
            &write,
        ),
        (
            "Read segments whose sum has no 32 bits",
            Header { reads: vec![(at, (7, u32::MAX, 0)); 160], ..Header::default() },
            &write,
        ),
        ("a Read chunk where none may be", one(lookup.len() as u32, (7, 4, 0)), &lookup),
        ("a Read chunk in the header of a call", one(24, (7, 8, 0)), &write),
        ("a Read chunk behind the stream", one(at + 4, (7, 64, 0)), &write),
        ("a Read chunk at no word", one(at - 1, (7, 64, 0)), &write),
        ("a Read chunk far behind the stream", one(0xFFFF_FFFC, (7, 64, 0)), &write),
        ("a long call without its call", Header { long: true, ..Header::default() }, &[]),
        ("a long call whose call is elsewhere", Header { long: true, ..one(4, (7, 64, 0)) }, &[]),
        ("a long call of zeros", Header { long: true, ..one(0, (7, 64, 0)) }, &[]),
        ("a long call of a byte too many", Header { long: true, ..one(0, (7, MAX_CALL_BYTES + 1, 0)) }, &[]),
    ];
    for (what, header, stream) in refused {
        peer.send(&header.message(55, stream));
        assert_eq!(answer_and_barrier(&mut peer, what), [Reply::ErrChunk { xid: 55 }], "{what}");
    }
    let read = read_call(&file, 5000);
    let small: Vec<(&str, Header)> = vec![
        ("a Write chunk that is too small", writes(&[vec![(7, 4999, 0)]])),
        ("Write segments that are too small together", writes(&[vec![(7, 100, 0), (8, 200, 0)]])),
        ("a Reply chunk that is too small", reply(&[(7, 300, 0)])),
        ("no room at all", Header::default()),
    ];
    for (what, header) in small {
        peer.send(&header.message(55, &read));
        assert_eq!(answer_and_barrier(&mut peer, what), [Reply::ErrChunk { xid: 55 }], "{what}");
    }
    // Odd, but no lie: the server serves the call or refuses it as a whole.
    let odd: Vec<(&str, Header, Vec<u8>)> = vec![
        ("an empty Read segment", one(at, (7, 0, 0)), write.clone()),
        ("a Write chunk of 4 GiB", writes(&[vec![(7, u32::MAX, 0)]]), read.clone()),
        ("a Reply chunk of 4 GiB", reply(&[(7, u32::MAX, 0)]), read.clone()),
        ("a Write chunk that nothing fills", writes(&[vec![(7, 4096, 0)]]), procedure(1, &file).0),
        ("many empty Write segments", writes(&[vec![(7, 0, 0); 150]]), read_call(&file, 64)),
        ("many empty Write chunks", writes(&vec![Vec::new(); 300]), read_call(&file, 64)),
        ("a Write chunk whose end has no offset", writes(&[vec![(7, 8192, u64::MAX - 100)]]), read.clone()),
        ("a Reply chunk whose end has no offset", reply(&[(7, 8192, u64::MAX - 100)]), read.clone()),
        ("a Read chunk whose end has no offset", one(at, (7, 64, u64::MAX - 10)), write.clone()),
        ("the same handle everywhere", Header { reply: Some(vec![(7, 64, 0)]), ..one(at, (7, 64, 0)) }, write.clone()),
    ];
    for (what, header, stream) in odd {
        peer.send(&header.message(55, &stream));
        let replies = answer_and_barrier(&mut peer, what);
        assert_eq!(replies.len(), 1, "{what}: {replies:?}");
        assert_eq!(replies[0].xid(), 55, "{what}");
    }
    // The most that the server reads by RDMA: the call is garbage, but the chunk is allowed.
    peer.send(&one(at, (7, MAX_CALL_BYTES, 0)).message(55, &write));
    assert!(matches!(answer_and_barrier(&mut peer, "the limit")[..], [Reply::Rpc(_) | Reply::ErrChunk { .. }]));
    drop(peer);
    stage.finish();
}

/// Like [`until_barrier`], but waits for the message's answer before it sends the barrier: the answer may depend on
/// Reads.
fn answer_and_barrier(peer: &mut Peer, what: &str) -> Vec<Reply> {
    let first = Reply::read(&peer.message().unwrap_or_else(|| panic!("{what}: closed")));
    let mut replies = vec![first];
    replies.extend(until_barrier(peer));
    replies
}

/// proves: V1-8.1.4-b
#[test]
fn sends_beyond_the_credits_end_the_connection() {
    let mut stage = Stage::new(&[]);
    let file = stage.handle(b"written");
    let mut peer = Peer::connect(&stage.server.rdma);
    assert_eq!(until_barrier(&mut peer), []);
    let stream = rpc::write_call(1, &file, 64).0;
    let header = Header { reads: vec![(stream.len() as u32, (7, 64, 0))], ..Header::default() };
    let mut burst = Vec::new();
    for xid in 0..=CREDITS as u32 {
        let mut stream = stream.clone();
        stream[..4].copy_from_slice(&xid.to_be_bytes());
        burst.extend(peer.next_send(&header.message(xid, &stream)));
    }
    peer.raw(&burst);
    let mut reads = 0;
    loop {
        match peer.hear() {
            // At most as many Reads as the agreed depth allows.
            Heard::ReadRequest(_) => reads += 1,
            // The provider finds this, because it has no receive.
            Heard::Terminate(1, 2, 2) | Heard::Closed => break,
            other => panic!("{other:?}"),
        }
    }
    assert!(reads <= 16, "{reads}");
    drop(peer);
    stage.the_open_connection_works();
    // As many calls as credits are allowed.
    let mut peer = Peer::connect(&stage.server.rdma);
    assert_eq!(until_barrier(&mut peer), []);
    for xid in 0..CREDITS as u32 {
        let mut stream = stream.clone();
        stream[..4].copy_from_slice(&xid.to_be_bytes());
        peer.send(&header.message(xid, &stream));
    }
    for _ in 0..CREDITS {
        let Reply::Rpc(reply) = Reply::read(&peer.message().unwrap()) else { panic!() };
        assert!(matches!(status(&reply), Status::Success(_)));
    }
    drop(peer);
    stage.finish();
}

/// A peer never sends the memory of its calls, and then goes: the server frees everything, and serves others meanwhile.
#[test]
fn calls_that_are_never_completed_hold_nothing_afterwards() {
    let mut stage = Stage::new(&[]);
    let file = stage.handle(b"written");
    let mut peers = Vec::new();
    for _ in 0..8 {
        let mut peer = Peer::connect(&stage.server.rdma);
        assert_eq!(until_barrier(&mut peer), []);
        let stream = rpc::write_call(1, &file, 1 << 20).0;
        let header = Header { reads: vec![(stream.len() as u32, (7, 1 << 20, 0))], ..Header::default() };
        for xid in 0..CREDITS as u32 {
            let mut stream = stream.clone();
            stream[..4].copy_from_slice(&xid.to_be_bytes());
            peer.send(&header.message(xid, &stream));
        }
        assert!(matches!(peer.hear(), Heard::ReadRequest(_)));
        // Sends the first half of the first response.
        peers.push(peer);
    }
    stage.a_good_client_is_served();
    drop(peers);
    stage.finish();
}

/// A peer asks for much and reads nothing: the server holds a bounded part of it, and frees it when the peer goes.
#[test]
fn answers_that_are_not_taken_are_bounded() {
    let mut stage = Stage::new(&[]);
    let file = stage.handle(b"file");
    let read = read_call(&file, FILE_BYTES as u32);
    let header = Header { writes: vec![vec![(7, FILE_BYTES as u32, 0)]], ..Header::default() };
    let mut peers = Vec::new();
    for _ in 0..4 {
        let mut peer = Peer::connect(&stage.server.rdma);
        assert_eq!(until_barrier(&mut peer), []);
        for _ in 0..CREDITS {
            peer.send(&header.message(55, &read));
        }
        peers.push(peer);
    }
    stage.a_good_client_is_served();
    drop(peers);
    stage.finish();
}
