//! Version 2 of RPC-over-RDMA: every judged vector over a real connection, which version a connection speaks, sequences that
//! never end, and floods. The octets are built here, from the draft.

use crate::{
    idlers::dial_from,
    peer::Peer,
    rpc::{self, Header, NFS, Status, Xdr, call, status, word},
    stage::Stage,
};
use serde_json::Value;
use std::collections::BTreeMap;

/// Header types.
const MSG: u32 = 0;
const NOMSG: u32 = 1;
const ERROR: u32 = 4;
const CONNPROP: u32 = 5;
/// Flags.
pub(crate) const RESPONSE: u32 = 1;
pub(crate) const MORE: u32 = 2;
pub(crate) const TPMORE: u32 = 4;
/// Errors.
const ERR_VERS: u32 = 1;
const ERR_SYSTEM: u32 = 100;
/// What each of our messages grants: 16 more, 64 at most.
const CREDITS: u32 = 64 << 16 | 16;
const BARRIER_XID: u32 = 0xBA88_1E88;
/// An error about the version as version 1 lays it out.
const ERR_VERS_1_OCTETS: usize = 28;
/// The most octets of a call that the server puts together: its named limit.
const MAX_CALL_OCTETS: usize = (1 << 20) + (64 << 10);
/// Messages that we send without waiting: the server takes more.
const BURST: usize = 8;

fn prefix(xid: u32, kind: u32, flags: u32) -> Xdr {
    Xdr::default().words(&[xid, 2, CREDITS, kind, flags])
}

/// A message with these lists, which may be a part.
pub(crate) fn message(header: &Header, xid: u32, flags: u32, stream: &[u8]) -> Vec<u8> {
    let mut message = prefix(xid, if header.long { NOMSG } else { MSG }, flags).u32(0).0;
    message.extend(header.lists().0);
    if !header.long {
        message.extend(stream);
    }
    message
}

/// A call that travels inline.
pub(crate) fn inline(stream: &[u8]) -> Vec<u8> {
    message(&Header::default(), word(stream, 0), 0, stream)
}

/// Properties: codes and their octets.
pub(crate) fn properties(flags: u32, list: &[(u32, &[u8])]) -> Vec<u8> {
    let begin = prefix(0x0C0F_FEE0, CONNPROP, flags).u32(list.len() as u32);
    list.iter().fold(begin, |xdr, (code, octets)| xdr.u32(*code).opaque(octets)).0
}

/// What the server says.
#[derive(Debug, PartialEq, Eq)]
enum Said {
    /// An RPC reply, from its XID on.
    Rpc(Vec<u8>),
    /// The reply went into the Reply chunk.
    Long(u32),
    /// An error and its first two words.
    Error {
        xid: u32,
        code: u32,
        fields: [u32; 2],
    },
    /// An error about the version, in version 1's layout.
    ErrorOf1 {
        xid: u32,
        version: u32,
        low: u32,
        high: u32,
    },
    Properties,
    Grant,
}

impl Said {
    fn read(message: &[u8]) -> Self {
        let (xid, kind) = (word(message, 0), word(message, 12));
        let field = |at: usize| if message.len() >= at + 4 { word(message, at) } else { 0 };
        if kind == ERROR && message.len() == ERR_VERS_1_OCTETS && field(16) == ERR_VERS && field(20) <= 2 {
            return Said::ErrorOf1 { xid, version: word(message, 4), low: field(20), high: field(24) };
        }
        // An error about the version may repeat that of what it answers.
        let repeats = kind == ERROR && field(20) == ERR_VERS;
        assert!(word(message, 4) == 2 || repeats, "{message:02x?}");
        let (granted, most) = (word(message, 8) & 0xFFFF, word(message, 8) >> 16);
        assert!(granted > 0 && most >= granted, "{message:02x?}");
        match kind {
            ERROR => Said::Error { xid, code: field(20), fields: [field(24), field(28)] },
            CONNPROP => Said::Properties,
            NOMSG if xid == 0 && message.len() == 36 => Said::Grant,
            NOMSG => Said::Long(xid),
            MSG => {
                assert_eq!(word(message, 16), RESPONSE, "a whole reply: {message:02x?}");
                let mut at = 24;
                while word(message, at) == 1 {
                    at += 24;
                }
                at += 4;
                while word(message, at) == 1 {
                    at += 8 + 16 * word(message, at + 4) as usize;
                }
                at += 4;
                at += if word(message, at) == 1 { 8 + 16 * word(message, at + 4) as usize } else { 4 };
                assert_eq!(word(message, at), xid);
                Said::Rpc(message[at..].to_vec())
            }
            other => panic!("{other}: {message:02x?}"),
        }
    }

    fn xid(&self) -> Option<u32> {
        match self {
            Said::Rpc(octets) => Some(word(octets, 0)),
            Said::Long(xid) | Said::Error { xid, .. } | Said::ErrorOf1 { xid, .. } => Some(*xid),
            Said::Properties | Said::Grant => None,
        }
    }
}

/// A connection that has settled version 2. The server has announced its properties, and waits for more of ours.
fn settled(stage: &Stage) -> Peer {
    let mut peer = Peer::connect(&stage.server.rdma);
    peer.send(&properties(TPMORE, &[]));
    assert_eq!(Said::read(&peer.message().expect("an answer")), Said::Properties);
    peer
}

/// What is said until the connection is shown to work: everything before the barrier's answer that names an XID.
fn until_barrier(peer: &mut Peer, what: &str) -> Vec<Said> {
    let mut heard = Vec::new();
    loop {
        let answered = peer.answered;
        peer.send(&inline(&rpc::null(BARRIER_XID)));
        loop {
            let said = Said::read(&peer.message().unwrap_or_else(|| panic!("{what}: the connection has ended")));
            match said.xid() {
                Some(BARRIER_XID) => break,
                Some(_) => heard.push(said),
                None => {}
            }
        }
        // What was pulled may be answered after the barrier, but not after the next one.
        if answered == peer.answered {
            return heard;
        }
    }
}

/// The codes of errors by their names, as the vectors have them.
fn codes(vectors: &[Value]) -> BTreeMap<String, u64> {
    let errors = vectors.iter().map(|vector| &vector["decode"]["error"]);
    let named = errors.filter_map(|error| Some((error["name"].as_str()?.to_owned(), error["code"].as_u64()?)));
    named.filter(|(name, _)| name.starts_with("RDMA2_")).collect()
}

/// proves: V2-6.1-e, V2-6.2.2.1-g, V2-7.1.2-e, V2-4.2.3.3-d
#[test]
fn every_vector_of_version_2_is_answered_as_judged() {
    let text = include_str!("../../../../spec/rpcrdma-headers.jsonl");
    let vectors: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let codes = codes(&vectors);
    let stage = Stage::new(&[]);
    let mut sent = 0;
    for vector in vectors.iter().filter(|vector| vector["version"] == 2 && vector["role"] == "responder") {
        let (name, hex) = (vector["name"].as_str().unwrap(), vector["hex"].as_str().unwrap());
        let octets: Vec<u8> =
            (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect();
        let judged = vector["classify"].as_array().unwrap();
        let may = |action: &str| judged.iter().any(|judgement| judgement["action"] == action);
        let may_answer =
            |code: u32| judged.iter().any(|j| j["error"].as_str().is_some_and(|name| codes[name] == u64::from(code)));
        let mut peer = settled(&stage);
        peer.send(&octets);
        sent += 1;
        let heard = until_barrier(&mut peer, name);
        let xid = octets.first_chunk().map(|xid| u32::from_be_bytes(*xid));
        assert!(heard.iter().all(|said| said.xid() == xid), "{name}: {heard:?}");
        let right = match heard[..] {
            [] => may("discard") || may("accept"),
            [Said::Error { code: ERR_VERS, fields, .. }] => may_answer(ERR_VERS) && fields == [2, 2],
            // What is accepted may still be beyond a limit, or no call of a service that is here.
            [Said::Error { code, .. }] => may_answer(code) || may("accept"),
            [Said::Rpc(_) | Said::Long(_)] => may("accept"),
            _ => false,
        };
        assert!(right, "{name}: {heard:?} for {}", vector["classify"]);
    }
    assert!(sent > 400, "{sent} vectors");
    stage.finish();
}

/// A NULL call in any version's first four words, with what follows in version 1.
fn of_version(version: u32) -> Vec<u8> {
    let mut call = rpc::inline(&rpc::null(77));
    call[4..8].copy_from_slice(&version.to_be_bytes());
    call
}

/// proves: V2-4.2.3.2-g, V2-4.2.3.3-c, V2-4.2.3.3-d
#[test]
fn a_connection_speaks_the_version_of_the_first_message_that_is_not_refused() {
    for (versions, low, high) in [("auto", 1, 2), ("1", 1, 1), ("2", 2, 2)] {
        let stage = match versions {
            // The stage's own client speaks version 1.
            "2" => None,
            versions => Some(Stage::new(&["--rpcrdma", versions])),
        };
        let scratch = tempfile::tempdir().unwrap();
        let alone = stage.is_none().then(|| {
            crate::common::Server::start(scratch.path(), &scratch.path().join("state"), &["--rpcrdma", versions])
        });
        let rdma =
            stage.as_ref().map_or_else(|| alone.as_ref().unwrap().rdma.clone(), |stage| stage.server.rdma.clone());
        let refused: Vec<u32> = [0, 1, 2, 3, 4, 0x0100_0000, u32::MAX]
            .into_iter()
            .filter(|version| !(low..=high).contains(version))
            .collect();
        for first in 1..=2 {
            let mut peer = Peer::connect(&rdma);
            // Too short to be of any version, and an error about nothing: no answer.
            let silent = [of_version(3)[..15].to_vec(), Xdr::default().words(&[77, 3, 32, 4, 1, 1, 1]).0, Vec::new()];
            for (number, &version) in refused.iter().enumerate() {
                peer.send(&of_version(version));
                let said = Said::read(&peer.message().unwrap());
                assert_eq!(said, Said::ErrorOf1 { xid: 77, version, low, high }, "{versions}");
                peer.send(&silent[number % silent.len()]);
            }
            if !(low..=high).contains(&first) {
                continue;
            }
            // Now one that is spoken; and from then on no other.
            let (one, two) = (rpc::inline(&rpc::null(5)), inline(&rpc::null(5)));
            let (spoken, other) = if first == 1 { (&one, &two) } else { (&two, &one) };
            for _ in 0..2 {
                peer.send(spoken);
                assert_answered(&mut peer, first);
                peer.send(other);
                let said = next(&mut peer);
                let expected = match first {
                    1 => Said::ErrorOf1 { xid: 5, version: 2, low: 1, high: 1 },
                    _ => Said::Error { xid: 5, code: ERR_VERS, fields: [2, 2] },
                };
                assert_eq!(said, expected, "{versions}");
            }
        }
        if let Some(stage) = stage {
            stage.finish();
        }
    }
}

/// The next message that names an XID.
fn next(peer: &mut Peer) -> Said {
    loop {
        let said = Said::read(&peer.message().expect("the connection stands"));
        if said.xid().is_some() {
            return said;
        }
    }
}

/// The NULL call is answered, in this version.
fn assert_answered(peer: &mut Peer, version: u32) {
    if version == 1 {
        let rpc::Reply::Rpc(reply) = rpc::Reply::read(&peer.message().unwrap()) else { panic!() };
        return assert_eq!(status(&reply), Status::Success(Vec::new()));
    }
    let Said::Rpc(reply) = next(peer) else { panic!() };
    assert_eq!(status(&reply), Status::Success(Vec::new()));
}

/// A server that may speak version 1 only says so, and is used so on the same connection: what Linux's server does.
/// proves: V2-4.2.3.2-c
#[test]
fn a_server_of_version_1_refuses_properties_and_serves_on() {
    let stage = Stage::new(&["--rpcrdma", "1"]);
    let mut peer = Peer::connect(&stage.server.rdma);
    // Less than version 1's shortest header is nothing that version 1 answers.
    peer.send(&properties(0, &[]));
    peer.send(&properties(0, &[(2, &4096_u32.to_be_bytes())]));
    let said = Said::read(&peer.message().unwrap());
    assert_eq!(said, Said::ErrorOf1 { xid: 0x0C0F_FEE0, version: 2, low: 1, high: 1 });
    peer.send(&rpc::inline(&rpc::null(5)));
    assert_answered(&mut peer, 1);
    drop(peer);
    stage.finish();
}

/// proves: V2-6.2.2.2-l
#[test]
fn a_call_in_parts_is_served_up_to_the_limit_and_refused_beyond() {
    let stage = Stage::new(&[]);
    let file = stage.handle(b"written");
    let mut peer = settled(&stage);
    // A WRITE of zeros, with its data in the stream: one that is as long as may be, and one part more.
    for (octets, served) in [(100_000, true), (MAX_CALL_OCTETS, true), (MAX_CALL_OCTETS + 4000, false)] {
        let head = rpc::write_call(55, &file, 0).0.len();
        let count = if octets > 1 << 20 { 1 << 20 } else { octets - head };
        let mut stream = rpc::write_call(55, &file, count as u32).0;
        stream.resize(octets, 0);
        let mut heard = Vec::new();
        let parts: Vec<&[u8]> = stream.chunks(4000).collect();
        for (number, part) in parts.iter().enumerate() {
            let flags = if number + 1 == parts.len() { 0 } else { MORE };
            peer.send(&message(&Header::default(), 55, flags, part));
            if number % BURST == 0 {
                heard.extend(until_barrier(&mut peer, "in the middle of a call"));
            }
        }
        // It may be answered after what comes behind it.
        if heard.is_empty() {
            heard.push(next(&mut peer));
        }
        heard.extend(until_barrier(&mut peer, "after a call"));
        match (&heard[..], served) {
            ([Said::Rpc(_)], true) => {}
            ([Said::Error { xid: 55, code: ERR_SYSTEM, .. }], false) => {}
            other => panic!("{octets} octets: {other:?}"),
        }
    }
    drop(peer);
    // Calls that are never finished hold what has come of them, and no longer than their connection.
    let mut peers = Vec::new();
    for _ in 0..8 {
        let mut peer = settled(&stage);
        let stream = rpc::write_call(55, &file, 1 << 20).0;
        for number in 0..200 {
            peer.send(&message(&Header::default(), 55, MORE, &stream[..stream.len() & !3]));
            if number % BURST == 0 {
                assert_eq!(until_barrier(&mut peer, "a call that does not end"), []);
            }
        }
        peers.push(peer);
    }
    drop(peers);
    stage.finish();
}

/// Peers that begin calls in parts and stop take no more than the share of their address: others are served, and so are their own calls
/// that need none of it.
#[test]
fn parts_that_are_held_are_bounded_for_each_address() {
    let mut stage = Stage::new(&["--memory", "64M"]);
    let file = stage.handle(b"written");
    let mut peers = Vec::new();
    for _ in 0..60 {
        let mut peer = Peer::over(dial_from([127, 0, 0, 2], &stage.server.rdma), 16, 16);
        peer.send(&inline(&rpc::null(5)));
        assert_answered(&mut peer, 2);
        let stream = rpc::write_call(55, &file, 1 << 20).0;
        for _ in 0..BURST {
            peer.send(&message(&Header::default(), 55, MORE, &stream[..stream.len() & !3]));
        }
        peers.push(peer);
    }
    for _ in 0..3 {
        stage.a_good_client_is_served();
    }
    drop(peers);
    stage.finish();
}

/// Messages that call nothing, without end: grants, errors about nothing, replies to nobody. None is answered, and calls are
/// served among them.
/// proves: V2-4.2.1.2-d, V2-7-g
#[test]
fn floods_of_messages_that_ask_nothing_are_not_answered() {
    let stage = Stage::new(&[]);
    let mut peer = settled(&stage);
    let reply = [&rpc::null(5)[..4], &1_u32.to_be_bytes(), &[0; 16]].concat();
    let flood = [
        message(&Header { long: true, ..Header::default() }, 0, 0, &[]),
        prefix(9, ERROR, RESPONSE).words(&[2]).0,
        prefix(9, ERROR, RESPONSE).words(&[1, 1, 1]).0,
        prefix(9, ERROR, RESPONSE).words(&[0xFFFF]).0,
        message(&Header::default(), 5, RESPONSE, &reply),
        message(&Header::default(), 5, RESPONSE | MORE, &reply),
    ];
    for number in 0..1000 {
        peer.send(&flood[number % flood.len()]);
        if number % BURST == 0 {
            assert_eq!(until_barrier(&mut peer, "a flood"), []);
        }
    }
    drop(peer);
    stage.finish();
}

/// Messages that a decent client of version 2 sends, read-only or harmless; the last ones are a call in two parts.
pub(crate) fn decent(root: &[u8], file: &[u8]) -> Vec<Vec<u8>> {
    let args = |procedure: u32, args: Xdr| [call(5, NFS, 3, procedure).0, args.0].concat();
    let handle = |handle: &[u8]| Xdr::default().opaque(handle);
    let read = args(6, handle(file).u64(0).u32(3000));
    let write = rpc::write_call(5, file, 64).0;
    let readdir = args(17, handle(root).u64(0).u64(0).u32(4096).u32(8192));
    let mut messages: Vec<Vec<u8>> =
        [rpc::null(5), args(1, handle(root)), args(3, handle(root).opaque(b"file")), readdir.clone(), read.clone()]
            .iter()
            .map(|stream| inline(stream))
            .collect();
    let lists = Header { reads: vec![(write.len() as u32, (7, 64, 0))], ..Header::default() };
    messages.push(message(&lists, 5, 0, &write));
    let lists =
        Header { writes: vec![vec![(7, 2000, 0), (8, 2000, 64)]], reply: Some(vec![(9, 600, 0)]), ..Header::default() };
    messages.push(message(&lists, 5, 0, &read));
    let lists = Header { reads: vec![(0, (7, readdir.len() as u32, 0))], long: true, ..Header::default() };
    messages.push(message(&lists, 5, 0, &[]));
    messages.push(message(&Header { long: true, ..Header::default() }, 0, 0, &[]));
    messages.push(prefix(9, ERROR, RESPONSE).words(&[2]).0);
    messages.push(properties(0, &[(1, &8192_u32.to_be_bytes()), (2, &4096_u32.to_be_bytes()), (99, &[1, 2, 3])]));
    messages.push(properties(TPMORE, &[(3, &65_536_u32.to_be_bytes()), (4, &[]), (5, &1_u32.to_be_bytes())]));
    let (head, rest) = readdir.split_at(readdir.len() / 8 * 4);
    messages.push(message(&Header::default(), 5, MORE, head));
    messages.push(message(&Header::default(), 5, 0, rest));
    messages
}
