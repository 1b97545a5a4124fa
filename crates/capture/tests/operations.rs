//! The contents of calls and replies in text, JSON and ladders: real arguments, and arguments that no peer should send.

mod common;

use bytes::Bytes;
use common::{captured_steps, fpdu, set_up, untagged, words};
use rpcrdma_capture::{
    read_capture,
    show::{Json, Ladder, Style, Text},
};
use rpcrdma_iwarp::protocol::{mpa::Kind, rdmap::Opcode};
use rpcrdma_nfs::{
    Call,
    nfsacl::{self, mask, v2},
    v3,
};
use rpcrdma_wire::v1::{Body, Header, Lists};
use rpcrdma_xdr::{Encode, Encoder, Part};

const HERE: &str = "192.0.2.1:40000";
const THERE: &str = "192.0.2.2:20049";

/// The bytes that stay in the message when the item travels in a chunk, or all of them.
fn encoded(value: &impl Encode, in_chunks: bool) -> Vec<u8> {
    let mut encoder = Encoder::new();
    value.encode(&mut encoder);
    let payload = encoder.finish();
    if !in_chunks {
        return payload.to_bytes().to_vec();
    }
    // Each of these types ends with its item, so the rest is padding, which is missing if the item is in a chunk.
    match payload.parts().first() {
        Some(Part::Run(octets)) => octets.to_vec(),
        other => panic!("{other:?}"),
    }
}

struct Steps {
    steps: Vec<(bool, Vec<u8>)>,
    xid: u32,
}

impl Steps {
    fn new() -> Self {
        Steps { steps: vec![(true, set_up(Kind::Request)), (false, set_up(Kind::Reply))], xid: 0 }
    }

    fn send(&mut self, from_initiator: bool, lists: Lists, rpc: &[u8]) {
        let mut message = Header::new(self.xid, 32, Body::Msg(lists)).to_bytes().to_vec();
        message.extend(rpc);
        let octets = fpdu(Opcode::Send, true, untagged(0, self.steps.len() as u32, 0), &message);
        self.steps.push((from_initiator, octets));
    }

    fn raw_call(&mut self, procedure: u32, lists: Lists, arguments: &[u8]) {
        self.call_to([v3::PROGRAM, v3::VERSION, procedure], lists, arguments);
    }

    fn call_to(&mut self, [program, version, procedure]: [u32; 3], lists: Lists, arguments: &[u8]) {
        self.xid += 1;
        let header = words(&[self.xid, 0, 2, program, version, procedure, 0, 0, 0, 0]);
        self.send(true, lists, &[&header[..], arguments].concat());
    }

    fn call<C: Call>(&mut self, arguments: &C) {
        self.call_to([C::PROGRAM, C::VERSION, C::PROCEDURE], Lists::default(), &encoded(arguments, false));
    }

    fn reply(&mut self, lists: Lists, results: &[u8]) {
        let header = words(&[self.xid, 1, 0, 0, 0, 0]);
        self.send(false, lists, &[&header[..], results].concat());
    }

    fn file(self) -> Vec<u8> {
        captured_steps(self.steps, HERE, THERE, 32 << 10).0
    }
}

fn text(file: &[u8]) -> String {
    let mut out = Vec::new();
    read_capture(file, &mut Text::new(&mut out)).unwrap();
    String::from_utf8(out).unwrap()
}

fn json(file: &[u8]) -> Vec<serde_json::Value> {
    let mut out = Vec::new();
    read_capture(file, &mut Json::new(&mut out)).unwrap();
    String::from_utf8(out).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn handle() -> v3::Handle {
    v3::Handle::new(&[0x5F, 0x3A, 1, 2, 3, 4, 5, 6, 7, 0x9C]).unwrap()
}

fn name(name: &str) -> v3::Name {
    v3::Name::from(name)
}

/// Shows lists as they were sent, in calls and in replies, and the statuses of NFSACL; version 2 as well.
#[test]
fn access_control_lists_are_told() {
    let entries = [(1, 0, 6), (2, 1000, 4), (4, 0, 4), (16, 0, 4), (32, 0, 0)];
    let entries = entries.map(|(kind, id, rights)| nfsacl::Entry { kind, id, rights }).to_vec();
    let list = nfsacl::List::new(entries).unwrap();
    let lists = nfsacl::Lists::new(mask::ACCESS | mask::DEFAULT, list.clone(), nfsacl::List::default());
    let mut steps = Steps::new();
    steps.call(&nfsacl::GetAcl { file: handle(), mask: mask::ALL });
    let found = nfsacl::GetAclOk { attributes: None, lists: lists.clone() };
    let found: v3::Answer<_, Option<v3::Attributes>> = v3::Answer::Ok(found);
    steps.reply(Lists::default(), &encoded(&found, false));
    steps.call(&nfsacl::SetAcl { file: handle(), lists: lists.clone() });
    let refused: v3::Answer<Option<v3::Attributes>, _> = v3::Answer::failed(v3::Status::PERM, None::<v3::Attributes>);
    steps.reply(Lists::default(), &encoded(&refused, false));
    steps.call(&v2::GetAcl { file: v2::Handle([7; 32]), mask: mask::ACCESS_COUNT });
    steps.reply(Lists::default(), &words(&[70]));
    steps.call(&v2::Access { file: v2::Handle([7; 32]), rights: 1 });
    steps.call_to([nfsacl::PROGRAM, 3, 3], Lists::default(), &[]);
    // More entries than the lists' counts say.
    steps.call_to([nfsacl::PROGRAM, 3, 2], Lists::default(), &words(&[4, 7, 1, 1, 2, 1, 0, 7, 1, 0, 7]));
    let text = text(&steps.file());
    for expected in [
        "Call NFSACL 3 GETACL 5f3a..0506079c acl aclcnt dfacl dfaclcnt, xid",
        "NFS3_OK \"u::rw-,u:1000:r--,g::r--,m::r--,o::---\" no default",
        "Call NFSACL 3 SETACL 5f3a..0506079c \"u::rw-,u:1000:r--,g::r--,m::r--,o::---\" no default, xid",
        "NFS3ERR_PERM",
        "Call NFSACL 2 GETACL 0707..07070707 aclcnt, xid",
        "NFS3ERR_STALE",
        "Call NFSACL 2 ACCESS 0707..07070707 read, xid",
        "Call NFSACL 3 GETXATTRDIR",
        "Call NFSACL 3 SETACL (does not decode",
    ] {
        assert!(text.contains(expected), "{expected}\n{text}");
    }
}

/// Calls one after the other, and their lines in the text output.
#[test]
fn every_call_tells_its_arguments() {
    let mut steps = Steps::new();
    let mut expected = Vec::new();
    let attributes = v3::NewAttributes { mode: Some(0o644), size: Some(0), ..v3::NewAttributes::default() };
    let (file, directory) = (handle(), handle());
    let mut tells = |text: &str| expected.push(format!("Call NFS 3 {text}, xid"));
    steps.call(&v3::GetAttributes { file: handle() });
    tells("GETATTR 5f3a..0506079c");
    steps.call(&v3::SetAttributes { file: handle(), attributes, guard: None });
    tells("SETATTR 5f3a..0506079c mode=0644 size=0");
    steps.call(&v3::Lookup { directory: v3::Handle::new(&[0xAB, 1]).unwrap(), name: name("file") });
    tells("LOOKUP ab01 \"file\"");
    steps.call(&v3::Access { file: handle(), rights: 0x21 });
    tells("ACCESS 5f3a..0506079c read execute");
    steps.call(&v3::ReadLink { link: handle() });
    tells("READLINK 5f3a..0506079c");
    steps.call(&v3::Read { file: handle(), offset: 0, count: 1_048_576 });
    tells("READ 5f3a..0506079c 1048576 @0");
    let data = Bytes::from_static(&[7; 1000]);
    steps.call(&v3::Write { file, offset: 8192, stability: v3::Stability::Unstable, data });
    tells("WRITE 5f3a..0506079c 1000 @8192 unstable");
    steps.call(&v3::Create { directory, name: name("new"), how: v3::CreateHow::Guarded(attributes) });
    tells("CREATE 5f3a..0506079c \"new\" guarded mode=0644 size=0");
    let how = v3::CreateHow::Exclusive(v3::Verifier([1, 2, 3, 4, 5, 6, 7, 8]));
    steps.call(&v3::Create { directory: handle(), name: name("new"), how });
    tells("CREATE 5f3a..0506079c \"new\" exclusive verifier=0102030405060708");
    let kind = v3::NodeKind::Block(v3::NewAttributes::default(), v3::Specification { major: 8, minor: 1 });
    steps.call(&v3::MakeNode { directory: handle(), name: name("sda1"), kind });
    tells("MKNOD 5f3a..0506079c \"sda1\" block device major=8 minor=1");
    let path = v3::Path::from("../to");
    steps.call(&v3::SymbolicLink { directory: handle(), name: name("l"), attributes: Default::default(), path });
    tells("SYMLINK 5f3a..0506079c \"l\" -> \"../to\"");
    let to_directory = v3::Handle::new(&[1]).unwrap();
    steps.call(&v3::Rename { from_directory: handle(), from: name("a"), to_directory, to: name("b") });
    tells("RENAME 5f3a..0506079c \"a\" -> 01 \"b\"");
    steps.call(&v3::Link { file: handle(), directory: handle(), name: name("again") });
    tells("LINK 5f3a..0506079c -> 5f3a..0506079c \"again\"");
    steps.call(&v3::ReadDirectoryPlus {
        directory: handle(),
        cookie: 7,
        verifier: v3::Verifier([9; 8]),
        directory_count: 512,
        max_count: 4096,
    });
    tells("READDIRPLUS 5f3a..0506079c cookie=7 dircount=512 maxcount=4096 verifier=0909090909090909");
    steps.call(&v3::Commit { file: handle(), offset: 0, count: 4096 });
    tells("COMMIT 5f3a..0506079c @0 4096");
    let shown = text(&steps.file());
    for line in &expected {
        assert!(shown.contains(line), "{line} is not in {shown}");
    }
    assert_eq!(shown.matches("Call NFS 3").count(), expected.len());
}

#[test]
fn every_reply_tells_its_results() {
    let mut steps = Steps::new();
    steps.call(&v3::Read { file: handle(), offset: 0, count: 100 });
    let data = Bytes::from_static(&[7; 30]);
    let ok: v3::Answer<_, ()> = v3::Answer::Ok(v3::ReadOk { attributes: None, end: true, data });
    steps.reply(Lists::default(), &encoded(&ok, false));
    steps.call(&v3::Commit { file: handle(), offset: 0, count: 0 });
    let verifier = v3::Verifier([0xAB; 8]);
    let ok: v3::Answer<_, ()> = v3::Answer::Ok(v3::CommitOk { file: v3::WeakCache::default(), verifier });
    steps.reply(Lists::default(), &encoded(&ok, false));
    let data = Bytes::from_static(&[7; 8]);
    steps.call(&v3::Write { file: handle(), offset: 0, stability: v3::Stability::Unstable, data });
    let file = v3::WeakCache::default();
    let committed = v3::Stability::FileSync;
    let ok: v3::Answer<_, ()> = v3::Answer::Ok(v3::WriteOk { file, count: 8, committed, verifier });
    steps.reply(Lists::default(), &encoded(&ok, false));
    steps.call(&v3::ReadDirectory { directory: handle(), cookie: 0, verifier, count: 500 });
    let entry = |id: u64| v3::Entry { file_id: id, name: name("n"), cookie: id };
    let entries = vec![entry(1), entry(2), entry(3)];
    let ok: v3::Answer<_, ()> = v3::Answer::Ok(v3::ReadDirectoryOk { attributes: None, verifier, entries, end: false });
    steps.reply(Lists::default(), &encoded(&ok, false));
    steps.call(&v3::Lookup { directory: handle(), name: name("secret") });
    steps.reply(Lists::default(), &words(&[13, 0]));
    let file = steps.file();
    let shown = text(&file);
    for line in [
        "Reply NFS3_OK 30 eof, xid",
        "Reply NFS3_OK verifier=abababababababab, xid",
        "Reply NFS3_OK 8 file_sync verifier=abababababababab, xid",
        "Reply NFS3_OK entries=3 verifier=abababababababab, xid",
        "Reply NFS3ERR_ACCES, xid",
    ] {
        assert!(shown.contains(line), "{line} is not in {shown}");
    }
    let mut ladder = Vec::new();
    read_capture(&file[..], &mut Ladder::new(&mut ladder, Style::Ascii)).unwrap();
    let ladder = String::from_utf8(ladder).unwrap();
    assert!(ladder.contains("READ 5f3a..0506079c 100 @0") && ladder.contains("Reply NFS3_OK 30 eof"), "{ladder}");
    let lines = json(&file);
    let operations: Vec<_> = lines.iter().filter_map(|line| line["content"]["operations"].get(0)).collect();
    let read = serde_json::json!({ "operation": "READ", "file": "5f3a010203040506079c", "count": 100, "offset": 0 });
    assert_eq!(operations[0], &read);
    assert_eq!(operations[1], &serde_json::json!({ "operation": "READ", "count": 30, "eof": true }));
    assert_eq!(operations[8]["name"], "secret");
}

/// Data in chunks appear as their length; the output also shows if a length differs from its chunk's.
#[test]
fn data_in_chunks_are_told_by_their_length() {
    let write = v3::Write {
        file: handle(),
        offset: 4096,
        stability: v3::Stability::DataSync,
        data: Bytes::from_static(&[7; 3000]),
    };
    let path = v3::SymbolicLink {
        directory: handle(),
        name: name("link"),
        attributes: v3::NewAttributes::default(),
        path: v3::Path::from("where/nobody/sees"),
    };
    let ok: v3::Answer<_, ()> = v3::Answer::Ok(v3::ReadOk { attributes: None, end: false, data: write.data.clone() });
    let mut steps = Steps::new();
    let inline = encoded(&write, true);
    let position = 40 + inline.len() as u32;
    steps.raw_call(7, common::reads(position, 0xBBB1, 3000), &inline);
    steps.raw_call(7, common::reads(position, 0xBBB1, 2000), &inline);
    steps.raw_call(7, common::reads(position + 400, 0xBBB1, 3000), &inline);
    steps.raw_call(7, common::reads(position, 0xBBB1, u32::MAX), &inline);
    let inline = encoded(&path, true);
    steps.raw_call(10, common::reads(40 + inline.len() as u32, 0xBBB2, 17), &inline);
    for octets in [3000, 2999] {
        steps.raw_call(
            6,
            common::writes(0xAAA1, 8192),
            &encoded(&v3::Read { file: handle(), offset: 0, count: 8192 }, false),
        );
        steps.reply(common::writes(0xAAA1, octets), &encoded(&ok, true));
    }
    let shown = text(&steps.file());
    for line in [
        "WRITE 5f3a..0506079c 3000 @4096 data_sync, xid",
        "the item at byte 76 has 3000 bytes, its chunk 2000",
        "WRITE (a chunk at byte 476, where the message has none)",
        "WRITE (a chunk of 4294967295 bytes; READ and WRITE carry at most 1048580)",
        "SYMLINK 5f3a..0506079c \"link\" -> (17 bytes in a chunk), xid",
        "Reply NFS3_OK 3000, xid",
        "Reply NFS3_OK (does not decode: the item at byte",
    ] {
        assert!(shown.contains(line), "{line} is not in {shown}");
    }
    assert!(!shown.contains("\\u{0}"), "zeros stand for the path: {shown}");
}

#[test]
fn what_does_not_decode_says_where() {
    let mut steps = Steps::new();
    steps.raw_call(3, Lists::default(), &words(&[4, 7, 9]));
    steps.raw_call(1, Lists::default(), &words(&[65]));
    steps.raw_call(1, Lists::default(), &words(&[4, 7, 1]));
    steps.raw_call(6, Lists::default(), &encoded(&v3::Read { file: handle(), offset: 0, count: 8 }, false));
    steps.reply(Lists::default(), &words(&[0, 0, 7]));
    let file = steps.file();
    let shown = text(&file);
    for line in [
        "LOOKUP (does not decode: at byte 52 the message should have 12 more bytes, but it has 0)",
        "GETATTR (does not decode: a length of 65 at byte 40 is above the limit of 64)",
        "GETATTR 00000007 (does not decode: 4 bytes are left at byte 48, after the end of the message)",
        "Reply NFS3_OK (does not decode: at byte 36 the message should have",
    ] {
        assert!(shown.contains(line), "{line} is not in {shown}");
    }
    assert!(json(&file).iter().any(|line| line["content"]["problem"].is_string()));
}

/// A name with terminal control characters, one that reverses the direction of text, one that closes its quotes, and
/// one at the limit of its type.
#[test]
fn names_are_hostile() {
    let mut steps = Steps::new();
    for odd in ["a\x1b[2J", "exe.\u{202e}txt", "end\", xid 0", &"x".repeat(129), &"y".repeat(128), &"z".repeat(4096)] {
        steps.call(&v3::Lookup { directory: handle(), name: name(odd) });
    }
    steps.call(&v3::Lookup { directory: handle(), name: v3::Name::from(&b"\xff"[..]) });
    let file = steps.file();
    let shown = text(&file);
    for line in [
        "\"a\\u{1b}[2J\"",
        "\"exe.\\u{202e}txt\"",
        "\"end\\\", xid 0\"",
        &format!("\"{}\"..(129 bytes)", "x".repeat(128)),
        &format!("\"{}\", xid", "y".repeat(128)),
        "\"..(4096 bytes)",
        "\"\\xff\"",
    ] {
        assert!(shown.contains(line), "{line} is not in {shown}");
    }
    assert!(shown.lines().all(|line| line.len() < 700 && line.is_ascii()), "{shown}");
    let mut out = Vec::new();
    read_capture(&file[..], &mut Json::new(&mut out)).unwrap();
    assert!(out.is_ascii(), "what turns text around is escaped in JSON");
    let lines = json(&file);
    assert!(lines.iter().any(|line| line["content"]["operations"][0]["name"] == "exe.\u{202e}txt"));
    assert!(lines.iter().any(|line| line["content"]["operations"][0]["name_hex"] == "ff"));
}
