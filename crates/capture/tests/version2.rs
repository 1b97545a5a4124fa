//! A small exchange in version 2: as text, as JSON, as ladders.

mod common;

use bytes::Bytes;
use common::{call, captured_steps, fpdu, long_reply, read, reads, reply, set_up, untagged, words, writes};
use rpcrdma_capture::{
    EventKind, TransportHeader,
    event::{End, Message},
    read_capture,
    show::{Json, Ladder, Style, Text},
};
use rpcrdma_iwarp::protocol::{
    ddp::Placement,
    mpa::Kind,
    rdmap::{Opcode, ReadRequest},
};
use rpcrdma_wire::v2::{Chunks, Credits, ErrorBody, Header, OtherBody, OtherProperty, Property, PropertySet};

const HERE: &str = "192.0.2.1:40000";
const THERE: &str = "192.0.2.2:20049";
const LARGE: usize = 32 << 10;

/// Steps, and the message numbers of both ends.
#[derive(Default)]
struct Script {
    steps: Vec<(bool, Vec<u8>)>,
    sent: [u32; 2],
}

impl Script {
    fn send(&mut self, from_initiator: bool, header: &Header, rpc: &[u8]) {
        self.sends(from_initiator, None, header, rpc);
    }

    fn sends(&mut self, from_initiator: bool, invalidate: Option<u32>, header: &Header, rpc: &[u8]) {
        let msn = &mut self.sent[usize::from(from_initiator)];
        *msn += 1;
        let opcode = if invalidate.is_some() { Opcode::SendInvalidate } else { Opcode::Send };
        let octets = [&header.to_bytes()[..], rpc].concat();
        let placement = untagged(0, *msn, invalidate.unwrap_or_default());
        self.steps.push((from_initiator, fpdu(opcode, true, placement, &octets)));
    }

    fn tagged(&mut self, from_initiator: bool, opcode: Opcode, stag: u32, octets: &[u8]) {
        let placement = Placement::Tagged { stag, offset: if opcode == Opcode::Write { 0x1000 } else { 0 } };
        self.steps.push((from_initiator, fpdu(opcode, true, placement, octets)));
    }

    fn long_write(&mut self, stag: u32, octets: &[u8]) {
        self.steps.push((false, fpdu(Opcode::Write, true, Placement::Tagged { stag, offset: 0 }, octets)));
    }

    fn request(&mut self, msn: u32, size: u32, source_stag: u32) {
        let request = ReadRequest { sink_stag: 0x51_0000 + msn, sink_offset: 0, size, source_stag, source_offset: 0 };
        self.steps.push((false, fpdu(Opcode::ReadRequest, true, untagged(1, msn, 0), &request.encode())));
    }
}

fn exchange() -> Vec<(bool, Vec<u8>)> {
    let mut script = Script { steps: vec![(true, set_up(Kind::Request)), (false, set_up(Kind::Reply))], sent: [0; 2] };
    let credits = Credits::new(1, 32);
    let none = Chunks::default;
    let msg = |xid, response, more, chunks| Header::msg(xid, credits, response, more, chunks);
    // Properties in both directions, more of them from the client, and an unknown one.
    let other = Property::Other(OtherProperty::new(99, Bytes::from_static(b"xyz")).unwrap());
    let sizes = PropertySet(vec![Property::SendSize(8192), Property::ReceiveSize(4096), other]);
    script.send(true, &Header::connprop(1, credits, true, sizes.clone()), &[]);
    script.send(false, &Header::connprop(2, credits, false, PropertySet(sizes.0[..1].to_vec())), &[]);
    let mut auth = Vec::new();
    PropertySet(vec![Property::HostAuth(Bytes::from_static(&[7; 60]))]).encode(&mut auth);
    let auth = Bytes::from(auth);
    script.send(true, &Header::connprop_piece(3, credits, true, false, auth.slice(..40)), &[]);
    script.send(true, &Header::connprop_piece(3, credits, false, false, auth.slice(40..)), &[]);
    // NULL.
    script.send(true, &msg(0x101, false, false, none()), &call(0x101, 0));
    script.send(false, &msg(0x101, true, false, none()), &reply(0x101, 0)[..24]);
    // A Call in three parts, the last with the chunk; a grant in between. Its RPC header ends in the first.
    let write = [call(0x102, 7), vec![0; 100]].concat();
    script.send(true, &msg(0x102, false, true, none()), &write[..60]);
    script.send(true, &msg(0x102, false, true, none()), &write[60..100]);
    script.send(false, &Header::grant(Credits::new(8, 32)), &[]);
    let chunks = Chunks { inv_handle: 0xBBB1, lists: reads(48, 0xBBB1, 3000) };
    script.send(true, &msg(0x102, false, false, chunks), &write[100..]);
    script.request(1, 3000, 0xBBB1);
    script.tagged(true, Opcode::ReadResponse, 0x51_0001, &[3; 3000]);
    // Meanwhile the server calls with the same XID.
    script.send(false, &msg(0x102, false, false, none()), &words(&[0x102, 0, 2, 0x4000_0000, 1, 1, 0, 0, 0, 0]));
    script.send(true, &msg(0x102, true, false, none()), &reply(0x102, 0)[..24]);
    script.sends(false, Some(0xBBB1), &msg(0x102, true, false, none()), &reply(0x102, 28));
    // READDIRPLUS, answered in two parts; in between, READ into a Write chunk begins.
    script.send(true, &msg(0x103, false, false, none()), &call(0x103, 17));
    script.send(true, &msg(0x104, false, false, writes(0xAAA1, 8192).into()), &call(0x104, 6));
    script.send(false, &msg(0x103, true, true, none()), &[reply(0x103, 0), vec![0; 100]].concat());
    script.send(false, &msg(0x103, true, false, none()), &[0; 80]);
    script.tagged(false, Opcode::Write, 0xAAA1, &[0x5A; 5000]);
    script.send(false, &msg(0x104, true, false, writes(0xAAA1, 5000).into()), &reply(0x104, 0));
    // Special Call, special Reply.
    let lists = rpcrdma_wire::chunk::Lists { reply: long_reply(0xDDD1, 65_536).reply, ..reads(0, 0xCCC1, 48) };
    script.send(true, &Header::nomsg(0x105, credits, false, lists.into()), &[]);
    script.request(2, 48, 0xCCC1);
    script.tagged(true, Opcode::ReadResponse, 0x51_0002, &call(0x105, 16));
    script.long_write(0xDDD1, &reply(0x105, 0));
    script.send(false, &Header::nomsg(0x105, credits, true, long_reply(0xDDD1, 28).into()), &[]);
    // A chunk that was too small; an unknown header type; bytes that are no header.
    script.send(true, &msg(0x106, false, false, writes(0xAAA2, 16).into()), &call(0x106, 6));
    let error = ErrorBody::WriteResource { chunk_index: 1, length_needed: 4096 };
    script.send(false, &Header::error(0x106, 2, credits, error), &[]);
    let other = OtherBody::new(9, Bytes::from_static(b"body")).unwrap();
    script.send(true, &Header::other(0x107, credits, false, other), &[]);
    script.send(false, &Header::error(0x107, 2, credits, ErrorBody::InvalidHeaderType), &[]);
    script.send(true, &Header::grant(credits), &[]);
    let bad = Header::connprop(0x108, credits, false, PropertySet(vec![Property::SendSize(1)]));
    let mut octets = bad.to_bytes().to_vec();
    octets[31] = 3;
    let placement = untagged(0, script.sent[1] + 1, 0);
    script.steps.push((true, fpdu(Opcode::Send, true, placement, &octets)));
    script.steps
}

fn file() -> Vec<u8> {
    captured_steps(exchange(), HERE, THERE, LARGE).0
}

/// proves: V2-4.2.3-e, V2-6.2.2.2-a, V2-4.1-i
#[test]
fn the_exchange_as_text() {
    let mut out = Vec::new();
    read_capture(&file()[..], &mut Text::new(&mut out)).unwrap();
    insta::assert_snapshot!(String::from_utf8(out).unwrap());
}

#[test]
fn the_exchange_as_ladders() {
    let mut out = Vec::new();
    read_capture(&file()[..], &mut Ladder::new(&mut out, Style::Ascii)).unwrap();
    insta::assert_snapshot!(String::from_utf8(out).unwrap());
}

#[test]
fn json_has_the_header_as_the_vectors_have_it() {
    let mut out = Vec::new();
    read_capture(&file()[..], &mut Json::new(&mut out)).unwrap();
    let lines: Vec<serde_json::Value> =
        String::from_utf8(out).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let header = |at: usize| &lines.iter().filter(|line| line.get("header").is_some()).nth(at).unwrap()["header"];
    let expected = serde_json::json!({
        "version": 2,
        "xid": 1,
        "credit": { "granted": 1, "maximum": 32 },
        "type": "RDMA2_CONNPROP",
        "flags": ["TPMORE"],
        "properties": [
            { "id": 1, "name": "SBSIZ", "value": 8192 },
            { "id": 2, "name": "RBSIZ", "value": 4096 },
            { "id": 99, "data": "78797a" },
        ],
    });
    assert_eq!(header(0), &expected);
    assert_eq!((&header(2)["flags"], &header(2)["octets"]), (&serde_json::json!(["MORE"]), &40.into()));
    assert_eq!(header(9)["inv_handle"], 0xBBB1);
    let error = lines.iter().find(|line| line["header"]["error"] == "RDMA2_ERR_WRITE_RESOURCE").unwrap();
    assert_eq!((&error["header"]["chunk_index"], &error["header"]["length_needed"]), (&1.into(), &4096.into()));
    let continued = lines.iter().filter(|line| line["continues"] == true).count();
    assert_eq!(continued, 4, "a piece of properties, two parts of a Call, one of a Reply");
    assert!(lines.iter().any(|line| line["error"].as_str().is_some_and(|error| error.contains("property"))));
}

#[test]
fn both_directions_have_their_own_calls() {
    let events = read(&file()).0;
    let of_xid = |event: &&rpcrdma_capture::Event| event.call.is_some_and(|tag| tag.xid == 0x102);
    let calls: Vec<_> = events.iter().filter(of_xid).map(|event| event.call.unwrap()).collect();
    let numbers = |end| calls.iter().filter(|tag| tag.requester == end).map(|tag| tag.number).collect::<Vec<_>>();
    assert_eq!(numbers(End::Initiator), [2; 6], "three parts, a read and its response, the reply");
    assert_eq!(numbers(End::Responder), [3; 2]);
}

#[test]
fn each_send_has_its_version() {
    for event in read(&file()).0 {
        if let EventKind::Send { message: Message::Transport { header, .. }, .. } = event.kind {
            assert!(matches!(header, TransportHeader::V2(_)), "{header:?}");
        }
    }
}
