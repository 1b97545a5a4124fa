//! Every rule that a peer can break after the set-up: the Terminate that it gets, and the completions at this end.

mod common;

use bytes::Bytes;
use common::{
    buffer,
    wire::{AGREED, completions, endpoint, fpdu, output, parse, raw_fpdu, send, tagged, untagged},
};
use rpcrdma_fabric::{
    CloseReason, Completion, Lent, ReadWork, RefusedReason, RemoteSegment, SendWork, Token, WorkError, WorkKind,
    WriteWork,
};
use rpcrdma_iwarp::protocol::{
    Endpoint, ErrorCode, Phase, Role,
    ddp::{Header, Placement},
    rdmap::{Opcode, ReadRequest},
    terminate,
};

/// An endpoint under attack, with a sink of 100 bytes, a source of 50, and two receives of 1,000 bytes.
struct Target {
    endpoint: Endpoint,
    sink: u32,
    source: u32,
}

fn target() -> Target {
    let mut endpoint = endpoint(Role::Initiator, AGREED, 2, 1448);
    let sink = endpoint.expose(Token(1), Lent::Sink(buffer(100))).unwrap().handle;
    let source = endpoint.expose(Token(2), Lent::Source(Bytes::from_static(&[5; 50]))).unwrap().handle;
    Target { endpoint, sink, source }
}

fn read_request(msn: u32, stag: u32, offset: u64, size: u32) -> Vec<u8> {
    let request = ReadRequest { sink_stag: 9, sink_offset: 0, size, source_stag: stag, source_offset: offset };
    untagged(Opcode::ReadRequest, true, (1, msn, 0, 0), &request.encode())
}

/// The only Terminate, which the endpoint has still to write.
fn terminate_of(endpoint: &mut Endpoint) -> (ErrorCode, Vec<u8>) {
    let fpdus = parse(&output(endpoint));
    let (header, payload) = fpdus.last().expect("a Terminate");
    assert_eq!(header.opcode, Opcode::Terminate);
    assert_eq!(header.placement, Placement::Untagged { queue: 2, msn: 1, offset: 0, invalidate: 0 });
    let reading = terminate::decode(payload).unwrap();
    // Without a quoted header the RFC's layout and Linux's cannot be told apart.
    assert_eq!(reading.or.is_some(), payload.len() == 4);
    (reading.code, payload.clone())
}

/// Feeds bytes that break a rule and checks the Terminate for the peer; the endpoint receives nothing, and all memory
/// comes back.
fn breaks(what: &str, octets: impl FnOnce(&Target) -> Vec<u8>, layer: u8, etype: u8, code: u8) {
    let mut target = target();
    let octets = octets(&target);
    // Work that has not left when the violation comes.
    target.endpoint.post_write(WriteWork { token: Token(8), ..WriteWork::default() }).unwrap();
    target.endpoint.feed(&octets);
    assert!(matches!(target.endpoint.phase(), Phase::Terminating(CloseReason::Violation(_))), "{what}");
    let (told, payload) = terminate_of(&mut target.endpoint);
    assert_eq!(told, ErrorCode { layer, etype, code }, "{what}");
    let quoted = payload[2] & 0x40 != 0;
    assert_eq!(quoted, layer != 2 && etype != 0, "{what}");
    if quoted {
        let start = octets.windows(4).position(|w| w == &payload[4..8]);
        assert!(start.is_some(), "{what}: length and control are those of the segment");
    }
    let back = completions(&mut target.endpoint);
    let flushed = |c: &&Completion| {
        matches!(c, Completion::Failed { token: Token(8), kind: WorkKind::Write, error: WorkError::Flushed, .. })
    };
    assert_eq!(back.iter().filter(flushed).count(), 1, "{what}: {back:?}");
    let fenced = back.iter().filter(|c| matches!(c, Completion::Fenced { .. })).count();
    let receives = back.iter().filter(|c| matches!(c, Completion::Failed { kind: WorkKind::Receive, .. })).count();
    let received = back.iter().filter(|c| matches!(c, Completion::Received { .. })).count();
    assert_eq!((fenced, receives + received), (2, 2), "{what}: {back:?}");
    assert!(matches!(target.endpoint.phase(), Phase::Lingering(_)), "{what}");
    assert!(target.endpoint.wants_fin() && !target.endpoint.wants_fin(), "{what}");
    let late = target.endpoint.post_send(SendWork::default());
    assert!(late.is_err_and(|refused| refused.reason == RefusedReason::Closed), "{what}");
    target.endpoint.feed(&send(1, b"ignored"));
    assert!(output(&mut target.endpoint).is_empty(), "{what}: nothing is sent after the Terminate");
    target.endpoint.peer_closed();
    assert!(matches!(completions(&mut target.endpoint)[..], [Completion::Closed { .. }]), "{what}");
}

/// proves: DDP-5041-7.1-a, DDP-5041-7.1-b, RDMAP-5040-5.4-a
#[test]
fn tagged_segments() {
    breaks("unknown STag", |t| tagged(Opcode::Write, true, t.sink ^ 1, 0, b"x"), 1, 1, 0);
    breaks("past the end", |t| tagged(Opcode::Write, true, t.sink, 100, b"x"), 1, 1, 1);
    breaks("across the end", |t| tagged(Opcode::Write, true, t.sink, 96, b"12345"), 1, 1, 1);
    breaks("wrap", |t| tagged(Opcode::Write, true, t.sink, u64::MAX, b"x"), 1, 1, 3);
    breaks("a source", |t| tagged(Opcode::Write, true, t.source, 0, b"x"), 0, 1, 2);
    breaks("DDP version", |_| raw_fpdu(&[[0x82, 0x40].as_slice(), &[0; 20]].concat()), 1, 1, 4);
    breaks("a response to nothing", |t| tagged(Opcode::ReadResponse, true, t.sink, 0, b"x"), 0, 2, 6);
}

/// proves: DDP-5041-7.1-a, DDP-5041-7.1-c
#[test]
fn untagged_segments() {
    use Opcode::Send;
    breaks("DDP version", |_| raw_fpdu(&[[0x40, 0x43].as_slice(), &[0; 20]].concat()), 1, 2, 6);
    breaks("queue 3", |_| untagged(Send, true, (3, 1, 0, 0), b"x"), 1, 2, 1);
    breaks("a Send on queue 1", |_| untagged(Send, true, (1, 1, 0, 0), b"x"), 0, 2, 6);
    breaks("message 0", |_| send(0, b"x"), 1, 2, 3);
    breaks("message 2 first", |_| send(2, b"x"), 1, 2, 3);
    breaks("message 1 twice", |_| [send(1, b"x"), send(1, b"x")].concat(), 1, 2, 3);
    breaks("a message that begins in its middle", |_| untagged(Send, true, (0, 1, 4, 0), b"x"), 1, 2, 4);
    let gap = [untagged(Send, false, (0, 1, 0, 0), b"abcd"), untagged(Send, true, (0, 1, 5, 0), b"x")];
    breaks("a gap", |_| gap.concat(), 1, 2, 4);
    for offset in [0, 3] {
        let again = [untagged(Send, false, (0, 1, 0, 0), b"abcd"), untagged(Send, true, (0, 1, offset, 0), b"x")];
        breaks("what was placed before", |_| again.concat(), 1, 2, 4);
    }
    let other =
        [untagged(Send, false, (0, 1, 0, 0), b"abcd"), untagged(Opcode::SendSolicited, true, (0, 1, 4, 0), b"x")];
    breaks("another kind of Send in its middle", |_| other.concat(), 0, 2, 6);
    breaks("too long at once", |_| send(1, &[0; 1001]), 1, 2, 5);
    let long = [untagged(Send, false, (0, 1, 0, 0), &[0; 1000]), untagged(Send, true, (0, 1, 1000, 0), b"x")];
    breaks("too long in two", |_| long.concat(), 1, 2, 5);
    breaks("no receive", |_| [send(1, b"x"), send(2, b"x"), send(3, b"x")].concat(), 1, 2, 2);
}

/// proves: RDMAP-5040-7.2-a, RDMAP-5040-4.1-a
#[test]
fn operations() {
    breaks("RDMAP version", |_| raw_fpdu(&[[0x41, 0x83].as_slice(), &[0; 20]].concat()), 0, 2, 5);
    for opcode in 8..16 {
        let header = [0x41, 0x40 | opcode];
        breaks("an operation that is not defined", |_| raw_fpdu(&[&header[..], &[0; 20]].concat()), 0, 2, 6);
    }
    breaks("a tagged Send", |_| raw_fpdu(&[[0xC1, 0x43].as_slice(), &[0; 20]].concat()), 0, 2, 6);
    breaks("an untagged Write", |_| raw_fpdu(&[[0x41, 0x40].as_slice(), &[0; 20]].concat()), 0, 2, 6);
}

#[test]
fn frames() {
    for len in 0..14 {
        breaks("no room for a tagged header", |_| raw_fpdu(&vec![0xC1; len.max(1)]), 1, 0, 0);
    }
    for len in 2..18 {
        breaks("no room for an untagged header", |_| raw_fpdu(&vec![0x41; len]), 1, 0, 0);
    }
}

/// proves: MPA-5044-4.4-b
#[test]
fn a_wrong_crc_delivers_nothing() {
    let good = send(1, b"hello");
    for at in 2..good.len() {
        let mut bad = good.clone();
        bad[at] ^= 0x10;
        let mut target = target();
        target.endpoint.feed(&bad);
        let (told, _) = terminate_of(&mut target.endpoint);
        let by_header = (2..22).contains(&at);
        assert!(by_header || told == ErrorCode { layer: 2, etype: 0, code: 2 }, "byte {at}: {told}");
        let back = completions(&mut target.endpoint);
        assert!(!back.iter().any(|c| matches!(c, Completion::Received { .. })), "byte {at}");
    }
    breaks(
        "a read request",
        |t| {
            let mut octets = read_request(1, t.source, 0, 50);
            octets[46] ^= 1;
            octets
        },
        2,
        0,
        2,
    );
}

/// Without CRC the field may hold anything.
/// proves: MPA-5044-7.1-d
#[test]
fn no_crc_is_not_checked() {
    let agreed = rpcrdma_iwarp::protocol::negotiation::Agreed { crc: false, ..AGREED };
    let mut endpoint = endpoint(Role::Responder, agreed, 1, 1448);
    let mut octets = send(1, b"hello");
    let end = octets.len();
    octets[end - 4..].fill(0x5A);
    endpoint.feed(&octets);
    assert!(
        matches!(&completions(&mut endpoint)[..], [Completion::Received { buffer, .. }] if buffer.filled() == b"hello")
    );
}

/// proves: RDMAP-5040-5.2-b, RDMAP-5040-4.8-b
#[test]
fn read_requests() {
    breaks("unknown STag", |t| read_request(1, t.source ^ 1, 0, 1), 0, 1, 0);
    breaks("past the end", |t| read_request(1, t.source, 1, 50), 0, 1, 1);
    breaks("a sink", |t| read_request(1, t.sink, 0, 1), 0, 1, 2);
    breaks("wrap", |t| read_request(1, t.source, u64::MAX, 1), 0, 1, 4);
    breaks("message 2 first", |t| read_request(2, t.source, 0, 1), 1, 2, 3);
    breaks("too short", |_| untagged(Opcode::ReadRequest, true, (1, 1, 0, 0), &[0; 27]), 0, 2, 0xFF);
    breaks("too long", |_| untagged(Opcode::ReadRequest, true, (1, 1, 0, 0), &[0; 29]), 0, 2, 0xFF);
    breaks("not its last", |_| untagged(Opcode::ReadRequest, false, (1, 1, 0, 0), &[0; 28]), 0, 2, 0xFF);
    breaks("on queue 0", |_| untagged(Opcode::ReadRequest, true, (0, 1, 0, 0), &[0; 28]), 0, 2, 6);
    let three = |t: &Target| (1..=3).flat_map(|msn| read_request(msn, t.source, 0, 50)).collect();
    breaks("one more than the IRD", three, 1, 2, 2);

    let mut target = target();
    target.endpoint.feed(&read_request(1, target.source ^ 1, 7, 9));
    let (_, payload) = terminate_of(&mut target.endpoint);
    assert_eq!(payload[2], 0xE0);
    let quoted = ReadRequest::decode(payload[24..].first_chunk().unwrap());
    assert_eq!((quoted.source_stag, quoted.source_offset, quoted.size), (target.source ^ 1, 7, 9));

    // The responses go to the named sinks, in order.
    let mut several = self::target();
    let mut asked = Vec::new();
    for (msn, sink_stag, sink_offset, size) in [(1, 70, 1 << 40, 5), (2, 60, 9, 3)] {
        let request =
            ReadRequest { sink_stag, sink_offset, size, source_stag: several.source, source_offset: msn.into() };
        asked.extend(untagged(Opcode::ReadRequest, true, (1, msn, 0, 0), &request.encode()));
    }
    several.endpoint.feed(&asked);
    let answers: Vec<_> =
        parse(&output(&mut several.endpoint)).into_iter().map(|(h, o)| (h.opcode, h.placement, o)).collect();
    let answer = |stag, offset, octets| (Opcode::ReadResponse, Placement::Tagged { stag, offset }, vec![5; octets]);
    assert_eq!(answers, [answer(70, 1 << 40, 5), answer(60, 9, 3)]);

    // A Read of zero bytes is answered whatever tag it names.
    let mut nothing = self::target();
    nothing.endpoint.feed(&read_request(1, 0, u64::MAX, 0));
    let answer = parse(&output(&mut nothing.endpoint));
    let placement = Placement::Tagged { stag: 9, offset: 0 };
    assert_eq!(answer, [(Header { opcode: Opcode::ReadResponse, last: true, placement }, vec![])]);
}

/// proves: RDMAP-5040-5.3-a
#[test]
fn invalidations() {
    let invalidate = |stag| untagged(Opcode::SendInvalidate, true, (0, 1, 0, stag), b"x");
    breaks("unknown STag", |t| invalidate(t.sink ^ 1), 0, 1, 9);
    let mut target = target();
    target.endpoint.feed(&invalidate(target.sink));
    let seen = completions(&mut target.endpoint);
    assert!(matches!(
        &seen[..],
        [Completion::Fenced { handle, .. }, Completion::Received { invalidated: Some(i), .. }]
            if *handle == target.sink && i == handle
    ));
    target.endpoint.feed(&tagged(Opcode::Write, true, target.sink, 0, b"late"));
    assert_eq!(terminate_of(&mut target.endpoint).0, ErrorCode { layer: 1, etype: 1, code: 0 });
}

/// proves: RDMAP-5040-5.2-a
#[test]
fn a_sink_takes_only_what_was_asked_for() {
    let attempt = |octets: &dyn Fn(u32) -> Vec<u8>| {
        let mut endpoint = endpoint(Role::Initiator, AGREED, 1, 1448);
        let sources = vec![RemoteSegment { handle: 5, length: 8, offset: 0 }];
        let sink = common::buffer(100);
        endpoint.post_read(ReadWork { token: Token(1), sink, sources }).unwrap();
        let (_, request) = parse(&output(&mut endpoint)).remove(0);
        let stag = ReadRequest::decode(request.first_chunk().unwrap()).sink_stag;
        endpoint.feed(&octets(stag));
        (matches!(endpoint.phase(), Phase::Open), completions(&mut endpoint))
    };
    use Opcode::{ReadResponse, Write};
    let (open, seen) = attempt(&|stag| tagged(ReadResponse, true, stag, 0, b"12345678"));
    assert!(open && matches!(&seen[..], [Completion::Read { sink, .. }] if sink.filled() == b"12345678"));
    let attempts: [&dyn Fn(u32) -> Vec<u8>; 6] = [
        &|stag| tagged(Write, true, stag, 0, b"12345678"),
        &|stag| tagged(ReadResponse, true, stag ^ 1, 0, b"12345678"),
        &|stag| tagged(ReadResponse, true, stag, 0, b"1234567"),
        &|stag| tagged(ReadResponse, true, stag, 0, b"123456789"),
        &|stag| tagged(ReadResponse, true, stag, 4, b"1234"),
        &|stag| {
            let whole = tagged(ReadResponse, true, stag, 0, b"12345678");
            [whole.clone(), whole].concat()
        },
    ];
    for (index, octets) in attempts.into_iter().enumerate() {
        assert!(!attempt(octets).0, "attempt {index}");
    }
}

/// proves: RDMAP-5040-5.4-a, RDMAP-5040-4.8-c
#[test]
fn the_peers_terminate_ends_everything() {
    type Payload = fn(u32) -> Vec<u8>;
    fn quoting(bits: u8, stag: u32) -> Vec<u8> {
        let mut payload = vec![0x01, 0, bits, 0, 0, 46];
        payload.extend([0; 18]);
        payload.extend(stag.to_be_bytes());
        payload.extend([0; 24]);
        payload
    }
    // The Terminate's payload for the Read's sink, and whether it reports an access error of the Read.
    let cases: [(Payload, bool); 8] = [
        (|stag| quoting(0xE0, stag), true),
        (|stag| [&[0x10], &quoting(0x07, stag)[1..]].concat(), true),
        (|stag| quoting(0xE0, stag ^ 1), false),
        (|stag| quoting(0xC0, stag), false),
        (|stag| [&[0x02], &quoting(0xE0, stag)[1..]].concat(), false),
        (|_| vec![0x01, 0, 0, 0], false),
        (|_| vec![0x20, 2, 0x80, 0], false),
        (|_| vec![], false),
    ];
    for (payload, guilty) in cases {
        let mut endpoint = endpoint(Role::Initiator, AGREED, 1, 1448);
        let sources = vec![RemoteSegment { handle: 5, length: 8, offset: 0 }];
        let sink = common::buffer(100);
        endpoint.post_read(ReadWork { token: Token(1), sink, sources }).unwrap();
        let (_, request) = parse(&output(&mut endpoint)).remove(0);
        let stag = ReadRequest::decode(request.first_chunk().unwrap()).sink_stag;
        endpoint.post_send(SendWork { token: Token(2), ..SendWork::default() }).unwrap();
        endpoint.feed(&untagged(Opcode::Terminate, true, (2, 1, 0, 0), &payload(stag)));
        let seen = completions(&mut endpoint);
        let error = if guilty { WorkError::RemoteAccess } else { WorkError::Flushed };
        assert!(matches!(
            &seen[..],
            [
                Completion::Failed { token: Token(2), kind: WorkKind::Send, error: WorkError::Flushed, .. },
                Completion::Failed { token: Token(1), kind: WorkKind::Read, error: e, buffer: Some(_) },
                Completion::Failed { kind: WorkKind::Receive, .. },
            ] if *e == error
        ));
        assert!(endpoint.wants_fin() && output(&mut endpoint).is_empty(), "nothing more is said");
        endpoint.peer_closed();
        assert!(matches!(&completions(&mut endpoint)[..], [Completion::Closed { reason: CloseReason::Terminated(_) }]));
    }
    breaks("a second one", |_| untagged(Opcode::Terminate, true, (2, 2, 0, 0), &[0; 4]), 1, 2, 3);
    breaks("on another queue", |_| untagged(Opcode::Terminate, true, (0, 1, 0, 0), &[0; 4]), 0, 2, 6);
}

/// The endpoint ignores everything after the offending segment, and delivers everything before it.
#[test]
fn the_first_fault_is_the_end() {
    let mut target = target();
    let octets = [send(1, b"good"), tagged(Opcode::Write, true, 1, 0, b"bad"), send(2, b"late")].concat();
    target.endpoint.feed(&octets);
    let received: Vec<_> = completions(&mut target.endpoint)
        .into_iter()
        .filter_map(|c| match c {
            Completion::Received { buffer, .. } => Some(buffer.filled().to_vec()),
            _ => None,
        })
        .collect();
    assert_eq!(received, [b"good"]);
}

/// Memory that is taken back while a segment for it arrives receives none of the rest.
#[test]
fn a_fence_in_the_middle_of_a_segment_holds() {
    let mut target = target();
    let octets = tagged(Opcode::Write, true, target.sink, 0, &[0xEE; 100]);
    target.endpoint.feed(&octets[..40]);
    target.endpoint.invalidate(target.sink);
    let back = completions(&mut target.endpoint).remove(0);
    let Completion::Fenced { memory: Lent::Sink(mut sink), .. } = back else { panic!("{back:?}") };
    sink.bytes_mut().fill(1);
    target.endpoint.feed(&octets[40..]);
    assert_eq!(terminate_of(&mut target.endpoint).0, ErrorCode { layer: 1, etype: 1, code: 0 });
    assert!(sink.bytes_mut().iter().all(|o| *o == 1));
}

/// A ready-to-receive indication is no message and takes no receive.
#[test]
fn ready_to_receive_indications() {
    let by_send = rpcrdma_iwarp::protocol::negotiation::Agreed { ready_by_send: true, ..AGREED };
    let by_read = rpcrdma_iwarp::protocol::negotiation::Agreed { ready_by_read: true, ird: 0, ..AGREED };
    let post = |agreed, ready: &[u8]| {
        let mut endpoint = endpoint(Role::Responder, agreed, 1, 1448);
        endpoint
            .post_send(SendWork { octets: vec![Bytes::from_static(b"hello")].into(), ..SendWork::default() })
            .unwrap();
        assert!(output(&mut endpoint).is_empty());
        endpoint.feed(ready);
        let opcodes: Vec<Opcode> = parse(&output(&mut endpoint)).iter().map(|(h, _)| h.opcode).collect();
        endpoint.feed(&send(if agreed.ready_by_send { 2 } else { 1 }, b"first"));
        assert!(matches!(completions(&mut endpoint)[..], [Completion::Received { .. }]));
        opcodes
    };
    assert_eq!(post(by_send, &send(1, b"")), [Opcode::Send]);
    assert_eq!(post(AGREED, &tagged(Opcode::Write, true, 0, 0, b"")), [Opcode::Send]);
    assert_eq!(post(by_read, &read_request(1, 0, 0, 0)), [Opcode::ReadResponse, Opcode::Send]);
}

/// A Terminate quotes the header of the segment, byte for byte.
#[test]
fn the_offending_header_is_quoted() {
    let header =
        Header { opcode: Opcode::Write, last: true, placement: Placement::Tagged { stag: 0xABCD, offset: 77 } };
    let mut target = target();
    target.endpoint.feed(&fpdu(header, b"12345"));
    let (_, payload) = terminate_of(&mut target.endpoint);
    assert_eq!(payload[4..6], [0, 19]);
    assert_eq!(Header::decode(&payload[6..]), Ok(header));
}
