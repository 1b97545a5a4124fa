//! COMPOUND and CB_COMPOUND of NFS version 4 in text, ladders, JSON, filters and statistics.

mod common;

use bytes::Bytes;
use common::{captured_steps, fpdu, set_up, untagged, words};
use rpcrdma_capture::{
    Sink, read_capture,
    show::{Filtered, Json, Ladder, Statistics, Style, Text, Wanted},
};
use rpcrdma_iwarp::protocol::{mpa::Kind, rdmap::Opcode};
use rpcrdma_nfs::v4::{self, Args, Handle, Outcome, SessionId, StateId, StateIdOther, Status, callback, ops};
use rpcrdma_wire::v1::{Body, Header, Lists};
use rpcrdma_xdr::{Encode, Encoder, Part};

const HERE: &str = "192.0.2.1:40000";
const THERE: &str = "192.0.2.2:20049";
/// A callback program other than Linux's.
const CALLBACK_PROGRAM: u32 = 0x4000_0005;

/// Encodes the bytes that stay in the message: without the items that may travel in chunks, or with them.
fn encoded(value: &impl Encode, in_chunks: bool) -> Vec<u8> {
    let mut encoder = Encoder::new();
    value.encode(&mut encoder);
    let payload = encoder.finish();
    if !in_chunks {
        return payload.to_bytes().to_vec();
    }
    let runs = payload.parts().iter().filter_map(|part| match part {
        Part::Run(octets) => Some(octets.to_vec()),
        _ => None,
    });
    runs.collect::<Vec<_>>().concat()
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

    fn raw_call(&mut self, from_initiator: bool, program: [u32; 3], lists: Lists, arguments: &[u8]) {
        self.xid += 1;
        let [program, version, procedure] = program;
        let header = words(&[self.xid, 0, 2, program, version, procedure, 0, 0, 0, 0]);
        self.send(from_initiator, lists, &[&header[..], arguments].concat());
    }

    fn call(&mut self, minor: u32, ops: Vec<Args>) {
        let arguments = encoded(&v4::Arguments::new(minor, ops), false);
        self.raw_call(true, [v4::PROGRAM, v4::VERSION, 1], Lists::default(), &arguments);
    }

    fn raw_reply(&mut self, from_initiator: bool, lists: Lists, results: &[u8]) {
        let header = words(&[self.xid, 1, 0, 0, 0, 0]);
        self.send(from_initiator, lists, &[&header[..], results].concat());
    }

    fn reply(&mut self, results: Vec<Outcome>) {
        let results = v4::Results::of(v4::Tag::default(), results);
        self.raw_reply(false, Lists::default(), &encoded(&results, false));
    }

    fn file(self) -> Vec<u8> {
        captured_steps(self.steps, HERE, THERE, 32 << 10).0
    }
}

fn shown(file: &[u8], make: impl FnOnce(&mut Vec<u8>) -> Box<dyn Sink + '_>) -> String {
    let mut out = Vec::new();
    let mut sink = make(&mut out);
    read_capture(file, &mut *sink).unwrap();
    drop(sink);
    String::from_utf8(out).unwrap()
}

fn text(file: &[u8]) -> String {
    shown(file, |out| Box::new(Text::new(out)))
}

fn json(file: &[u8]) -> Vec<serde_json::Value> {
    shown(file, |out| Box::new(Json::new(out))).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn all_are_in(lines: &[&str], shown: &str) {
    for line in lines {
        assert!(shown.contains(line), "{line} is not in {shown}");
    }
}

fn session() -> SessionId {
    let mut octets = [0; 16];
    octets[..4].copy_from_slice(&[0x0A, 0x1B, 0x2C, 0x3D]);
    SessionId(octets)
}

fn sequence() -> Args {
    Args::Sequence(ops::Sequence { session: session(), sequence: 17, slot: 3, highest_slot: 9, cache: false })
}

fn sequence_ok() -> Outcome {
    let ok = ops::SequenceOk {
        session: session(),
        sequence: 17,
        slot: 3,
        highest_slot: 9,
        target_highest_slot: 9,
        status: 0,
    };
    Outcome::Sequence(Ok(ok))
}

fn handle() -> Handle {
    Handle::new(&[0x5F, 0x3A, 1, 2, 3, 4, 5, 6, 7, 0x9C]).unwrap()
}

fn put_handle() -> Args {
    Args::PutFh(ops::PutFh { file: handle() })
}

fn state() -> StateId {
    StateId { sequence: 2, other: StateIdOther([0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 5]) }
}

fn read(count: u32) -> Args {
    Args::Read(ops::Read { state: StateId::ANONYMOUS, offset: 0, count })
}

fn open(name: &str, how: ops::OpenHow, claim: Option<ops::Claim>) -> Args {
    let owner = v4::Owner { client: v4::ClientId(1), name: v4::OwnerName::from("o") };
    let claim = claim.unwrap_or_else(|| ops::Claim::Null(v4::Name::from(name)));
    Args::Open(Box::new(ops::Open { sequence: 0, access: ops::share::READ, deny: 0, owner, how, claim }))
}

fn lock(length: u64) -> Args {
    let locker = ops::Locker::Known(ops::KnownLocker { state: state(), sequence: 0 });
    Args::Lock(Box::new(ops::Lock { kind: ops::LockKind::WriteWaiting, reclaim: true, offset: 100, length, locker }))
}

/// A COMPOUND, its reply, and a COMPOUND that fails.
fn exchange() -> Steps {
    let mut steps = Steps::new();
    steps.call(2, vec![sequence(), put_handle(), read(1_048_576)]);
    let ok = ops::ReadOk { end: true, data: Bytes::from_static(&[7; 30]) };
    steps.reply(vec![sequence_ok(), Outcome::PutFh(Ok(())), Outcome::Read(Ok(ok))]);
    let create = ops::OpenHow::Create(ops::CreateHow::Unchecked(v4::FileAttributes::default()));
    steps.call(1, vec![sequence(), put_handle(), open("name", create, None)]);
    steps.reply(vec![sequence_ok(), Outcome::PutFh(Ok(())), Outcome::Open(Err(Status::GRACE))]);
    steps
}

#[test]
fn operations_are_told_in_their_order() {
    let file = exchange().file();
    let lines = [
        "Call NFS 4 COMPOUND minor 2 SEQUENCE session 0a1b2c3d slot 3 seq 17 PUTFH 5f3a..0506079c READ 1048576 @0 state anonymous, \
         xid",
        "Reply NFS4_OK SEQUENCE session 0a1b2c3d slot 3 seq 17 PUTFH READ 30 eof, xid",
        "minor 1 SEQUENCE session 0a1b2c3d slot 3 seq 17 PUTFH 5f3a..0506079c OPEN \"name\" read deny none create unchecked, xid",
        "Reply NFS4ERR_GRACE SEQUENCE session 0a1b2c3d slot 3 seq 17 PUTFH OPEN -> NFS4ERR_GRACE, xid",
    ];
    all_are_in(&lines, &text(&file));
    let ladder = shown(&file, |out| Box::new(Ladder::new(out, Style::Ascii)));
    all_are_in(&["READ 1048576 @0", "ms: NFS4ERR_GRACE"], &ladder);
    let lines = json(&file);
    let contents: Vec<_> = lines.iter().filter_map(|line| line.get("content")).collect();
    assert_eq!((&contents[0]["minor"], &contents[0]["callback"]), (&2.into(), &false.into()));
    let state = serde_json::json!({ "sequence": 0, "other": "0".repeat(24), "special": "anonymous" });
    let read = serde_json::json!({ "operation": "READ", "count": 1_048_576, "offset": 0, "state": state });
    assert_eq!(contents[0]["operations"][2], read);
    let sequence = &contents[0]["operations"][0];
    assert_eq!(sequence["session"], "0a1b2c3d000000000000000000000000");
    assert_eq!((&sequence["slot"], &sequence["seq"]), (&3.into(), &17.into()));
    let failed = serde_json::json!({ "operation": "OPEN", "status": 10013, "status_name": "NFS4ERR_GRACE" });
    assert_eq!(contents[3]["operations"][2], failed);
}

#[test]
fn special_stateids_are_told_by_their_names() {
    let mut steps = Steps::new();
    let near = StateId { sequence: 2, ..StateId::CURRENT };
    let all = [StateId::ANONYMOUS, StateId::BYPASS, StateId::CURRENT, StateId::INVALID, near];
    let close = |state: &StateId| Args::Close(ops::Close { sequence: 1, state: *state });
    steps.call(1, all.iter().map(close).collect());
    let set = |state| Args::SetAttr(ops::SetAttr { state, attributes: v4::FileAttributes::of(&[v4::Value::Size(3)]) });
    steps.call(1, vec![set(StateId::ANONYMOUS), set(StateId::BYPASS)]);
    let lines = [
        "CLOSE state anonymous CLOSE state bypass CLOSE state current CLOSE state invalid CLOSE state 2:00000000, xid",
        "SETATTR size=3 SETATTR size=3 state bypass, xid",
    ];
    all_are_in(&lines, &text(&steps.file()));
}

#[test]
fn what_matters_of_arguments_is_told() {
    let mut steps = Steps::new();
    let previous = ops::Claim::Previous(ops::DelegationKind::None);
    steps.call(1, vec![open("", ops::OpenHow::NoCreate, Some(previous)), lock(u64::MAX), lock(7)]);
    let asked = v4::Bitmap::EMPTY;
    let list = ops::ReadDir { cookie: 7, verifier: v4::Verifier([9; 8]), directory_count: 512, max_count: 4096, asked };
    let data = Bytes::from_static(&[1; 9]);
    let write = ops::Write { state: state(), offset: 8192, stability: ops::Stability::Unstable, data };
    steps.call(0, vec![Args::ReadDir(list), Args::Write(write)]);
    let mode = v4::FileAttributes::of(&[v4::Value::Mode(0o644), v4::Value::Size(3)]);
    let set = ops::SetAttr { state: state(), attributes: mode };
    let rename = ops::Rename { from: v4::Name::from("a"), to: v4::Name::from("b") };
    steps.call(
        0,
        vec![Args::SetAttr(set), Args::Rename(rename), Args::Close(ops::Close { sequence: 1, state: state() })],
    );
    let kind = ops::CreateKind::Symlink(v4::LinkText::from("../to"));
    let attributes = v4::FileAttributes::default();
    steps.call(0, vec![Args::Create(Box::new(ops::Create { kind, name: v4::Name::from("l"), attributes }))]);
    let lines = [
        "OPEN read deny none claim reclaim LOCK write waiting @100 to the end reclaim state 2:00000001..00000005 LOCK \
         write waiting @100 7 reclaim",
        "READDIR cookie=7 dircount=512 maxcount=4096 verifier=0909090909090909 WRITE 9 @8192 unstable state 2:00000001..00000005, \
         xid",
        "SETATTR size=3 mode=0644 state 2:00000001..00000005 RENAME \"a\" -> \"b\" CLOSE state 2:00000001..00000005, xid",
        "CREATE \"l\" symbolic link -> \"../to\", xid",
    ];
    all_are_in(&lines, &text(&steps.file()));
}

/// Results with one item in a Write chunk and others behind it.
#[test]
fn data_in_chunks_are_told_by_their_length() {
    let data = Bytes::from_static(&[7; 3001]);
    let read_ok = |data: Bytes| Outcome::Read(Ok(ops::ReadOk { end: false, data }));
    let link = Outcome::ReadLink(Ok(ops::ReadLinkOk { text: v4::LinkText(Bytes::from_static(b"where/nobody/sees")) }));
    let attributes = v4::FileAttributes::of(&[v4::Value::Size(3001)]);
    let get = Outcome::GetAttr(Ok(ops::GetAttrOk { attributes }));
    let reply = |outcomes: Vec<Outcome>| encoded(&v4::Results::of(v4::Tag::default(), outcomes), true);
    let mut steps = Steps::new();
    for octets in [3001, 3000] {
        steps.call(1, vec![sequence(), read(8192), read(0)]);
        let results = reply(vec![sequence_ok(), read_ok(Bytes::new()), read_ok(data.clone()), get.clone()]);
        steps.raw_reply(false, common::writes(0xAAA1, octets), &results);
    }
    steps.call(1, vec![sequence(), Args::ReadLink]);
    steps.raw_reply(false, common::writes(0xAAA1, 17), &reply(vec![sequence_ok(), link, get]));
    let write = Args::Write(ops::Write {
        state: state(),
        offset: 4096,
        stability: ops::Stability::DataSync,
        data: data.clone(),
    });
    let whole = encoded(&v4::Arguments::new(1, vec![sequence(), write.clone(), Args::GetFh]), true);
    let before = encoded(&v4::Arguments::new(1, vec![sequence(), write]), true);
    let position = 40 + before.len() as u32;
    steps.raw_call(true, [v4::PROGRAM, 4, 1], common::reads(position, 0xBBB1, 3001), &whole);
    steps.raw_call(true, [v4::PROGRAM, 4, 1], common::reads(position + 400, 0xBBB1, 3001), &whole);
    let shown = text(&steps.file());
    let lines = [
        "seq 17 READ 0 READ 3001 GETATTR size=3001, xid",
        "seq 17 READ 0 (operation 3 at byte",
        "has 3001 bytes, its chunk 3000), xid",
        "seq 17 READLINK -> (17 bytes in a chunk) GETATTR size=3001, xid",
        "seq 17 WRITE 3001 @4096 data_sync state 2:00000001..00000005 GETFH, xid",
        "where the message has none), xid",
    ];
    all_are_in(&lines, &shown);
    assert!(!shown.contains("\\u{0}"), "zeros stand for the text: {shown}");
}

/// The output shows everything before a fault, and the place of the fault.
#[test]
fn what_does_not_decode_says_where() {
    let program = [v4::PROGRAM, v4::VERSION, 1];
    let mut steps = Steps::new();
    let mut call = |arguments: &[u32]| steps.raw_call(true, program, Lists::default(), &words(arguments));
    call(&[0, 1, 3, 24, 9999, 10]);
    call(&[0, 1, 3, 24, 30, 10]);
    call(&[0, 0, 3, 24, 10, 22, 200]);
    call(&[0, 0, 3, 24, 10]);
    call(&[0, 0, 1, 24, 7]);
    call(&[0, 7, 1, 24]);
    call(&[5000, 0, 0]);
    let many = [&[0, 0, 65][..], &[24; 65]].concat();
    call(&many);
    call(&[&[0, 0, 64][..], &[24; 64]].concat());
    // PUTFH, and an operation that does not exist; the COMPOUND's tag has terminal control characters.
    steps.raw_reply(false, Lists::default(), &words(&[0, 4, 0x611B_5B32, 2, 22, 0, 9999, 0]));
    let file = steps.file();
    let lines = [
        "minor 1 PUTROOTFH (operation 2 at byte 56 has number 9999, which is not an operation), xid",
        "minor 1 PUTROOTFH (operation 2 at byte 56 is RENEW, which minor version 1 does not have), xid",
        "minor 0 PUTROOTFH GETFH (operation 3 at byte 60 does not decode: a length of 200 at byte 64 is above",
        "minor 0 PUTROOTFH GETFH (operation 3 at byte 60 does not decode: at byte 60 the message should have",
        "minor 0 PUTROOTFH (does not decode: 4 bytes are left at byte 56, after the end of the message), xid",
        "minor 7 (minor version 7 is not read), xid",
        "COMPOUND (does not decode: a length of 5000 at byte 40 is above",
        "PUTROOTFH (not read: 65 operations, the ones from byte 308 on), xid",
        "PUTROOTFH PUTROOTFH, xid",
        "Reply NFS4_OK tag \"a\\u{1b}[2\" PUTFH (operation 2 at byte",
    ];
    all_are_in(&lines, &text(&file));
    assert!(json(&file).iter().any(|line| line["content"]["tag"] == "a\u{1b}[2"));
}

#[test]
fn names_are_hostile() {
    let mut steps = Steps::new();
    let names = [&b"a\x1b[2J"[..], "exe.\u{202e}txt".as_bytes(), b"end\" READ", b"\xff", &[b'x'; 4096]];
    steps.call(1, names.iter().map(|name| Args::Lookup(ops::Lookup { name: v4::Name::from(*name) })).collect());
    let file = steps.file();
    let shown = text(&file);
    let lines = ["\"a\\u{1b}[2J\"", "\"exe.\\u{202e}txt\"", "\"end\\\" READ\"", "\"\\xff\"", "x\"..(4096 bytes)"];
    all_are_in(&lines, &shown);
    assert!(shown.is_ascii());
    assert!(json(&file).iter().any(|line| line["content"]["operations"][3]["name_hex"] == "ff"));
}

fn callback_call(minor: u32) -> Vec<u8> {
    let referring = Vec::new().into();
    let sequence =
        callback::CbSequence { session: session(), sequence: 4, slot: 0, highest_slot: 0, cache: false, referring };
    let recall = callback::CbRecall { state: state(), truncate: false, file: handle() };
    let ops = vec![callback::Args::Sequence(sequence), callback::Args::Recall(recall)];
    encoded(&callback::Arguments::new(minor, 0, ops), false)
}

/// The client chooses the program's number, so the direction decides: the call goes from the NFS server to its client.
#[test]
fn callbacks_are_found_in_the_reverse_direction() {
    let answer = callback::Results::of(v4::Tag::default(), vec![callback::Outcome::Sequence(Err(Status::BADSESSION))]);
    let of = |program: u32, arguments: &[u8], nfs: bool| {
        let mut steps = Steps::new();
        if nfs {
            steps.call(1, vec![sequence()]);
        }
        steps.raw_call(false, [program, 1, 1], Lists::default(), arguments);
        steps.raw_reply(true, Lists::default(), &encoded(&answer, false));
        steps.file()
    };
    let file = of(CALLBACK_PROGRAM, &callback_call(1), true);
    let lines = [
        "Call NFS callback 1 CB_COMPOUND minor 1 CB_SEQUENCE session 0a1b2c3d slot 0 seq 4 CB_RECALL 5f3a..0506079c state \
         2:00000001..00000005, xid",
        "Reply NFS4ERR_BADSESSION CB_SEQUENCE -> NFS4ERR_BADSESSION, xid",
    ];
    all_are_in(&lines, &text(&file));
    assert!(
        json(&file)
            .iter()
            .any(|line| line["content"]["callback"] == true && line["call"]["program"] == CALLBACK_PROGRAM)
    );
    let unknown = format!("Call program {CALLBACK_PROGRAM} version 1 procedure 1, xid");
    for file in [
        of(CALLBACK_PROGRAM, &callback_call(1), false),
        of(CALLBACK_PROGRAM, &words(&[0, 1, 0, 1, 9999]), true),
        of(CALLBACK_PROGRAM, &[], true),
    ] {
        let shown = text(&file);
        assert!(shown.contains(&unknown) && shown.contains("Reply executed, xid"), "{shown}");
    }
    assert!(text(&of(0x4000_0000, &callback_call(1), false)).contains("CB_RECALL"), "Linux's is known");
}

#[test]
fn compounds_are_found_by_their_operations() {
    let file = exchange().file();
    let of = |name: &str| {
        let wanted = Wanted { procedures: vec![name.to_owned()], ..Wanted::default() };
        text_of_calls(&file, wanted)
    };
    assert_eq!(of("read"), [1]);
    assert_eq!(of("OPEN"), [2]);
    assert_eq!(of("Sequence"), [1, 2]);
    assert_eq!(of("COMPOUND"), [1, 2]);
    assert!(of("WRITE").is_empty());
    let slow = std::time::Duration::ZERO;
    let wanted = Wanted { procedures: vec!["open".into()], slower_than: Some(slow), ..Wanted::default() };
    assert_eq!(text_of_calls(&file, wanted), [2]);
}

/// The XIDs of the shown calls, each with its reply.
fn text_of_calls(file: &[u8], wanted: Wanted) -> Vec<u64> {
    let shown = shown(file, |out| Box::new(Filtered::new(wanted, Json::new(out))));
    let lines = shown.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let xids: Vec<u64> = lines.filter_map(|line| line["call"]["xid"].as_u64()).collect();
    let mut each = xids.clone();
    each.dedup();
    assert_eq!(xids.len(), 2 * each.len(), "a call comes with its reply: {xids:?}");
    each
}

#[test]
fn operations_are_counted_with_their_statuses() {
    let file = exchange().file();
    let lines = shown(&file, |out| Box::new(Statistics::json(out)));
    let statistics: serde_json::Value = serde_json::from_str(lines.lines().next().unwrap()).unwrap();
    let all = statistics["operations"].as_array().unwrap();
    let of = |name: &str| all.iter().find(|of| of["name"] == name).unwrap().clone();
    let sequence = serde_json::json!({ "name": "SEQUENCE", "calls": 2, "answered": 2, "statuses": { "NFS4_OK": 2 } });
    assert_eq!(of("SEQUENCE"), sequence);
    assert_eq!(of("OPEN")["statuses"], serde_json::json!({ "NFS4ERR_GRACE": 1 }));
    let compound = &statistics["procedures"][0];
    assert_eq!((&compound["name"], &compound["calls"]), (&"NFS 4 COMPOUND".into(), &2.into()));
    assert_eq!(compound["statuses"], serde_json::json!({ "NFS4_OK": 1, "NFS4ERR_GRACE": 1 }));
    let table = shown(&file, |out| Box::new(Statistics::text(out)));
    all_are_in(&["operation ", "SEQUENCE ", "    2 NFS4_OK", "    1 NFS4ERR_GRACE"], &table);
}
