//! Frames, segments and operations that break a rule of MPA, DDP or RDMAP, and the Terminate that each must cause.

use crate::{
    peer::{Asked, Heard, Peer},
    rpc::{self, Header, Reply, Status, status},
    stage::Stage,
    wire::{
        READ_REQUEST, READ_RESPONSE, SEND, SEND_INVALIDATE, TERMINATE, Tagged, Untagged, WRITE, fpdu, read_request,
        seal,
    },
};

/// The contents of a Terminate: layer, type, code (RFC 5040 figure 9, RFC 5041 section 7.2, RFC 5044 section 8).
type Code = (u8, u8, u8);

const MPA_CRC: Code = (2, 0, 2);
const DDP_LOCAL: Code = (1, 0, 0);
const DDP_STAG: Code = (1, 1, 0);
const DDP_BOUNDS: Code = (1, 1, 1);
const DDP_WRAP: Code = (1, 1, 3);
const DDP_TAGGED_VERSION: Code = (1, 1, 4);
const DDP_QUEUE: Code = (1, 2, 1);
const DDP_NO_BUFFER: Code = (1, 2, 2);
const DDP_MSN: Code = (1, 2, 3);
const DDP_OFFSET: Code = (1, 2, 4);
const DDP_TOO_LONG: Code = (1, 2, 5);
const DDP_UNTAGGED_VERSION: Code = (1, 2, 6);
const RDMAP_STAG: Code = (0, 1, 0);
const RDMAP_WRAP: Code = (0, 1, 4);
const RDMAP_INVALIDATE: Code = (0, 1, 9);
const RDMAP_VERSION: Code = (0, 2, 5);
const RDMAP_OPERATION: Code = (0, 2, 6);
const RDMAP_UNSPECIFIED: Code = (0, 2, 0xFF);

/// The size of the server's receives in bytes.
const RECEIVE_BYTES: usize = 8192;

fn null() -> Vec<u8> {
    rpc::inline(&rpc::null(77))
}

/// Bytes on a new connection, and the Terminate that must end it.
fn cases() -> Vec<(String, Vec<u8>, Code)> {
    let send = Untagged::new(SEND, 1);
    let write = Tagged::new(WRITE, 0x1234_5678, 0);
    let request = Untagged::new(READ_REQUEST, 1);
    let body = read_request(1, 0, 64, 0xDEAD_BEEF, 0);
    let mut cases = Vec::new();
    let mut case = |what: &str, octets: Vec<u8>, code: Code| cases.push((what.to_owned(), octets, code));

    let good = send.fpdu(&null());
    // In the payload and in the CRC itself. The server finds a wrong header before the CRC has arrived.
    for at in [24, good.len() - 5, good.len() - 1] {
        let mut bad = good.clone();
        bad[at] ^= 1;
        case("a wrong CRC", bad, MPA_CRC);
    }
    let mut swapped = good.clone();
    let end = swapped.len();
    swapped[end - 4..].reverse();
    case("the CRC's bytes in the other order", swapped, MPA_CRC);
    let mut padded = send.fpdu(&null()[..41]);
    let pad = padded.len() - 5;
    padded[pad] = 9;
    case("a pad that the CRC does not cover", padded, MPA_CRC);

    for len in [0, 1, 2, 13] {
        let ulpdu = &write.ulpdu(&[])[..len];
        // Too short to show its kind, or too short for its kind.
        case("a ULPDU without room for a tagged header", [fpdu(ulpdu), vec![0x80; 32]].concat(), DDP_LOCAL);
    }
    for len in [3, 14, 17] {
        case("a ULPDU without room for an untagged header", fpdu(&send.ulpdu(&[])[..len]), DDP_LOCAL);
    }
    case("the longest ULPDU there is", send.fpdu(&vec![0; 65_535 - 18]), DDP_TOO_LONG);

    for version in [0, 2, 3] {
        case("DDP version", Untagged { ddp_version: version, ..send }.fpdu(&null()), DDP_UNTAGGED_VERSION);
        case("DDP version", Tagged { ddp_version: version, ..write }.fpdu(&[1]), DDP_TAGGED_VERSION);
        case("RDMAP version", Untagged { rdmap_version: version, ..send }.fpdu(&null()), RDMAP_VERSION);
        case("RDMAP version", Tagged { rdmap_version: version, ..write }.fpdu(&[1]), RDMAP_VERSION);
    }
    for opcode in 8..16 {
        case("an operation that is not there", Untagged { opcode, ..send }.fpdu(&null()), RDMAP_OPERATION);
        case("an operation that is not there", Tagged { opcode, ..write }.fpdu(&[1]), RDMAP_OPERATION);
    }
    for opcode in [WRITE, READ_RESPONSE] {
        case("an untagged form of a tagged operation", Untagged { opcode, ..send }.fpdu(&[1]), RDMAP_OPERATION);
    }
    for opcode in [READ_REQUEST, SEND, SEND_INVALIDATE, TERMINATE] {
        case("a tagged form of an untagged operation", Tagged { opcode, ..write }.fpdu(&[1]), RDMAP_OPERATION);
    }

    for queue in [3, 4, 0x8000_0000, u32::MAX] {
        case("a queue that is not there", Untagged { queue, ..send }.fpdu(&null()), DDP_QUEUE);
    }
    for queue in [1, 2] {
        case("a Send on another queue", Untagged { queue, ..send }.fpdu(&null()), RDMAP_OPERATION);
    }
    case("a Read Request on the queue of Sends", Untagged { queue: 0, ..request }.fpdu(&body), RDMAP_OPERATION);
    for msn in [0, 2, 3, u32::MAX] {
        case("a Send out of turn", Untagged { msn, ..send }.fpdu(&null()), DDP_MSN);
        case("a Read Request out of turn", Untagged { msn, ..request }.fpdu(&body), DDP_MSN);
    }
    let second = Untagged { msn: 2, ..send };
    case("the same Send again", [good.clone(), good.clone()].concat(), DDP_MSN);
    case("the next but one", [good.clone(), Untagged { msn: 3, ..send }.fpdu(&null())].concat(), DDP_MSN);
    for offset in [1, 4, u32::MAX] {
        case("a message that begins in its middle", Untagged { offset, ..send }.fpdu(&null()), DDP_OFFSET);
        let first = Untagged { last: false, ..second }.fpdu(&null()[..32]);
        let next = Untagged { offset, ..second }.fpdu(&null()[32..]);
        case("a message with a gap", [good.clone(), first, next].concat(), DDP_OFFSET);
    }
    let first = Untagged { last: false, ..send }.fpdu(&null()[..32]);
    let other = Untagged { opcode: SEND_INVALIDATE, offset: 32, ..send }.fpdu(&null()[32..]);
    case("a message that becomes another", [first, other].concat(), RDMAP_OPERATION);

    case("a Send longer than the receive", send.fpdu(&[0; RECEIVE_BYTES + 1]), DDP_TOO_LONG);
    let first = Untagged { last: false, ..send }.fpdu(&[0; RECEIVE_BYTES]);
    let next = Untagged { offset: RECEIVE_BYTES as u32, ..send }.fpdu(&[0]);
    case("a Send longer than the receive, in two parts", [first, next].concat(), DDP_TOO_LONG);
    let invalid = Untagged { opcode: SEND_INVALIDATE, invalidate: 0x00C0_FFEE, ..send };
    case("an invalidation of what is not there", invalid.fpdu(&null()), RDMAP_INVALIDATE);
    // The server has two receives before it grants the first credits.
    let burst: Vec<u8> = (1..=3).flat_map(|msn| Untagged { msn, ..send }.fpdu(&null())).collect();
    case("more Sends than receives", burst, DDP_NO_BUFFER);

    case("a Write to unknown memory", write.fpdu(&[1; 100]), DDP_STAG);
    case("a Write beyond the last offset", Tagged { offset: u64::MAX - 1, ..write }.fpdu(&[1; 4]), DDP_WRAP);
    case("a Read Response that nobody asked for", Tagged::new(READ_RESPONSE, 7, 0).fpdu(&[1; 4]), RDMAP_OPERATION);
    case("an empty Read Response", Tagged::new(READ_RESPONSE, 7, 0).fpdu(&[]), RDMAP_OPERATION);

    case("a Read of unknown memory", request.fpdu(&body), RDMAP_STAG);
    let wrapping = read_request(1, u64::MAX, 2, 0xDEAD_BEEF, 0);
    case("a Read whose sink wraps", request.fpdu(&wrapping), RDMAP_WRAP);
    let wrapping = read_request(1, 0, u32::MAX, 0xDEAD_BEEF, u64::MAX - 5);
    case("a Read whose source wraps", request.fpdu(&wrapping), RDMAP_WRAP);
    case("a Read Request of 27 bytes", request.fpdu(&body[..27]), RDMAP_UNSPECIFIED);
    case("a Read Request of 29 bytes", request.fpdu(&[&body[..], &[0]].concat()), RDMAP_UNSPECIFIED);
    case("a Read Request in parts", Untagged { last: false, ..request }.fpdu(&body), RDMAP_UNSPECIFIED);
    let burst: Vec<u8> =
        (1..=17).flat_map(|msn| Untagged { msn, ..request }.fpdu(&read_request(1, 0, 0, 0, 0))).collect();
    case("more Reads than were agreed", burst, DDP_NO_BUFFER);
    cases
}

/// proves: DDP-5041-7.1-a, DDP-5041-7.1-c, RDMAP-5040-7.2-a, MPA-5044-4.4-b
#[test]
fn each_broken_rule_of_mpa_ddp_and_rdmap_earns_its_terminate() {
    let mut stage = Stage::new(&[]);
    for (number, (what, octets, (layer, etype, code))) in cases().into_iter().enumerate() {
        let mut peer = Peer::connect(&stage.server.rdma);
        peer.raw(&octets);
        peer.terminated(&format!("{number}: {what}"), layer, etype, code);
        stage.the_open_connection_works();
    }
    stage.finish();
}

#[test]
fn what_is_allowed_at_the_edge_of_each_rule_is_served() {
    let stage = Stage::new(&[]);
    let mut peer = Peer::connect(&stage.server.rdma);
    // A Read or a Write without bytes names no memory.
    peer.raw(&Untagged::new(READ_REQUEST, 1).fpdu(&read_request(9, 0, 0, 0xDEAD_BEEF, u64::MAX)));
    assert_eq!(peer.hear(), Heard::ReadResponse { stag: 9, octets: 0, last: true });
    peer.raw(&Tagged::new(WRITE, 0x1234_5678, u64::MAX).fpdu(&[]));
    // As long as the receive, with one byte in each segment; the bytes behind the call make it garbage.
    let mut message = null();
    message.resize(RECEIVE_BYTES, 0);
    for (at, octet) in message.iter().enumerate() {
        let last = at + 1 == message.len();
        peer.raw(&Untagged { last, offset: at as u32, ..Untagged::new(SEND, 1) }.fpdu(&[*octet]));
    }
    let Reply::Rpc(reply) = Reply::read(&peer.message().unwrap()) else { panic!() };
    assert_eq!(status(&reply), Status::GarbageArgs);
    // The server need not check the pad bytes if the CRC is right.
    let mut frame = Untagged::new(SEND, 2).fpdu(&null());
    let len = Untagged::new(SEND, 2).ulpdu(&null()).len();
    frame[2 + len..].fill(0xEE);
    seal(&mut frame);
    peer.raw(&frame);
    assert!(matches!(Reply::read(&peer.message().unwrap()), Reply::Rpc(_)));
    drop(peer);
    stage.finish();
}

/// A peer cannot write to memory that is not exposed, whatever steering tag it guesses.
/// proves: DDP-5041-7.1-b
#[test]
fn guessed_steering_tags_hit_nothing() {
    let mut stage = Stage::new(&[]);
    for guess in 0..64_u32 {
        let mut peer = Peer::connect(&stage.server.rdma);
        let stag = if guess < 32 { 1 << guess } else { guess.wrapping_mul(0x9E37_79B9) };
        peer.raw(&Tagged::new(WRITE, stag, 0).fpdu(&[0x66; 64]));
        peer.terminated("a guess", 1, 1, 0);
    }
    stage.the_open_connection_works();
    stage.finish();
}

/// A peer whose memory the server wants to read, and the Read Request.
fn asked(stage: &Stage, size: u32) -> (Peer, Asked) {
    let file = stage.handle(b"written");
    let mut peer = Peer::connect(&stage.server.rdma);
    let stream = rpc::write_call(99, &file, size).0;
    let header = Header { reads: vec![(stream.len() as u32, (0xABCD, size, 4096))], ..Header::default() };
    peer.send(&header.message(99, &stream));
    let Heard::ReadRequest(asked) = peer.hear() else { panic!("no Read Request") };
    assert_eq!((asked.size, asked.source, asked.source_offset), (size, 0xABCD, 4096));
    (peer, asked)
}

/// proves: RDMAP-5040-5.2-a
#[test]
fn the_answer_to_a_read_goes_where_it_belongs_or_nowhere() {
    let mut stage = Stage::new(&[]);
    type Attack = fn(&Asked) -> Vec<u8>;
    let response = |asked: &Asked| Tagged::new(READ_RESPONSE, asked.sink, asked.sink_offset);
    let attacks: [(&str, Attack, Code); 8] = [
        ("a byte too many", |a| Tagged::new(READ_RESPONSE, a.sink, a.sink_offset).fpdu(&[1; 65]), DDP_BOUNDS),
        ("a byte too few", |a| Tagged::new(READ_RESPONSE, a.sink, a.sink_offset).fpdu(&[1; 63]), DDP_BOUNDS),
        ("none", |a| Tagged::new(READ_RESPONSE, a.sink, a.sink_offset).fpdu(&[]), DDP_BOUNDS),
        ("elsewhere", |a| Tagged::new(READ_RESPONSE, a.sink, a.sink_offset + 1).fpdu(&[1; 63]), DDP_BOUNDS),
        ("before it", |a| Tagged::new(READ_RESPONSE, a.sink, a.sink_offset.wrapping_sub(1)).fpdu(&[1; 64]), DDP_BOUNDS),
        ("to other memory", |a| Tagged::new(READ_RESPONSE, !a.sink, a.sink_offset).fpdu(&[1; 64]), DDP_STAG),
        ("by a Write", |a| Tagged::new(WRITE, a.sink, a.sink_offset).fpdu(&[1; 64]), DDP_STAG),
        ("twice", |a| Tagged::new(READ_RESPONSE, a.sink, a.sink_offset).fpdu(&[1; 64]).repeat(2), RDMAP_OPERATION),
    ];
    for (what, attack, (layer, etype, code)) in attacks {
        let (mut peer, asked) = asked(&stage, 64);
        let octets = attack(&asked);
        peer.raw(&octets);
        peer.terminated(what, layer, etype, code);
        stage.the_open_connection_works();
    }
    // In segments and in order it is right.
    let (mut peer, asked) = asked(&stage, 64);
    for at in 0..64_u64 {
        let header = Tagged { last: at == 63, offset: asked.sink_offset + at, ..response(&asked) };
        peer.raw(&header.fpdu(&[at as u8]));
    }
    let Reply::Rpc(reply) = Reply::read(&peer.message().unwrap()) else { panic!() };
    assert!(matches!(status(&reply), Status::Success(results) if rpc::word(&results, 0) == 0));
    // Bytes for a sink that has ended do not get in.
    peer.raw(&Tagged::new(WRITE, asked.sink, asked.sink_offset).fpdu(&[1; 8]));
    peer.terminated("a sink of yesterday", 1, 1, 0);
    stage.finish();
}

#[test]
fn a_peer_that_terminates_or_breaks_off_is_let_go() {
    let mut stage = Stage::new(&[]);
    // Its Terminate ends the connection, however odd it is: unknown codes, an empty one, one that is far too long.
    for payload in [&[0x01, 0, 0, 0][..], &[0xFF; 4], &[], &[0x12], &[0xFF; 1000]] {
        let mut peer = Peer::connect(&stage.server.rdma);
        peer.raw(&Untagged::new(TERMINATE, 1).fpdu(payload));
        assert_eq!(peer.hear(), Heard::Closed, "nothing answers a Terminate");
    }
    // Refusing a Read ends the connection, too.
    let (mut peer, _) = asked(&stage, 64);
    peer.raw(&Untagged::new(TERMINATE, 1).fpdu(&[0x01, 0, 0, 0]));
    assert_eq!(peer.hear(), Heard::Closed);
    // Calls are under way when the connection is reset: nothing of them may remain.
    for _ in 0..20 {
        let (peer, _) = asked(&stage, 1 << 20);
        rustix::net::sockopt::set_socket_linger(&peer.stream, Some(std::time::Duration::ZERO)).unwrap();
    }
    stage.the_open_connection_works();
    stage.finish();
}
