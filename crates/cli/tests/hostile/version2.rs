//! Version 2 of RPC-over-RDMA: every judged vector over a real connection, which version a connection speaks, sequences
//! that never end, and floods.

use crate::{
    headers2::{
        ERR_SYSTEM, ERR_VERS, ERROR, MORE, RESPONSE, Said, assert_answered, inline, message, next, prefix, properties,
        settled, until_barrier,
    },
    idlers::dial_from,
    peer::Peer,
    rpc::{self, Header, Xdr},
    stage::Stage,
};
use serde_json::Value;
use std::collections::BTreeMap;

/// The most bytes of a call in parts that the server collects: its named limit.
const MAX_CALL_BYTES: usize = (1 << 20) + (64 << 10);
/// Messages that we send without waiting: the server accepts more.
const BURST: usize = 8;

/// The codes of errors, by the names that the vectors use.
fn codes(vectors: &[Value]) -> BTreeMap<String, u64> {
    let errors = vectors.iter().map(|vector| &vector["decode"]["error"]);
    let named = errors.filter_map(|error| Some((error["name"].as_str()?.to_owned(), error["code"].as_u64()?)));
    named.filter(|(name, _)| name.starts_with("RDMA2_")).collect()
}

/// proves: V2-6.1-e, V2-6.2.2.1-g, V2-7.1.2-e, V2-4.2.3.3-d, V2-4.1-g
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
            // An accepted header may still exceed a limit, or carry a call of an unknown service.
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
            crate::common::Server::start(
                &crate::common::served(scratch.path()),
                &scratch.path().join("state"),
                &["--rpcrdma", versions],
            )
        });
        let rdma =
            stage.as_ref().map_or_else(|| alone.as_ref().unwrap().rdma.clone(), |stage| stage.server.rdma.clone());
        let refused: Vec<u32> = [0, 1, 2, 3, 4, 0x0100_0000, u32::MAX]
            .into_iter()
            .filter(|version| !(low..=high).contains(version))
            .collect();
        for first in 1..=2 {
            let mut peer = Peer::connect(&rdma);
            // Too short for any version, and an error about no message: no answer.
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
            // Now a version that the server speaks; from then on it accepts no other.
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

/// A server with version 1 only says so, and the peer uses version 1 on the same connection, as with Linux's server.
/// proves: V2-4.2.3.2-c
#[test]
fn a_server_of_version_1_refuses_properties_and_serves_on() {
    let stage = Stage::new(&["--rpcrdma", "1"]);
    let mut peer = Peer::connect(&stage.server.rdma);
    // Version 1 does not answer a message shorter than its shortest header.
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
    // WRITEs of zeros with their data in the stream: one of the greatest allowed length, and one with a part more.
    for (octets, served) in [(100_000, true), (MAX_CALL_BYTES, true), (MAX_CALL_BYTES + 4000, false)] {
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
        // The call may be answered after later messages.
        if heard.is_empty() {
            heard.push(next(&mut peer));
        }
        heard.extend(until_barrier(&mut peer, "after a call"));
        match (&heard[..], served) {
            ([Said::Rpc(_)], true) => {}
            ([Said::Error { xid: 55, code: ERR_SYSTEM, .. }], false) => {}
            other => panic!("{octets} bytes: {other:?}"),
        }
    }
    drop(peer);
    // The server holds the parts of unfinished calls only until their connection ends.
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

/// Peers that begin calls in parts and stop take no more memory than the share of their address: the server still
/// serves others, and also the peers' calls that need no such memory.
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

/// An endless flood of messages without calls: grants, errors about no message, replies to no call. The server answers
/// none of them, and serves calls among them.
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
