//! Statistics of all calls: by procedure and status, with latencies, bytes, credits and retransmissions.

mod common;

use common::{call, captured, captured_steps, fpdu, reply, set_up, untagged};
use rpcrdma_capture::{
    read_capture,
    show::{MAX_PROCEDURES, MAX_STATUSES, Statistics},
};
use rpcrdma_iwarp::protocol::{mpa::Kind, rdmap::Opcode};
use rpcrdma_wire::v1::{Body, Header, Lists};
use serde_json::Value;

const HERE: &str = "192.0.2.1:40000";
const THERE: &str = "192.0.2.2:20049";

fn text(file: &[u8]) -> String {
    let mut out = Vec::new();
    read_capture(file, &mut Statistics::text(&mut out)).unwrap();
    String::from_utf8(out).unwrap()
}

/// The statistics, and the summary behind them.
fn json(file: &[u8]) -> [Value; 2] {
    let mut out = Vec::new();
    read_capture(file, &mut Statistics::json(&mut out)).unwrap();
    let lines: Vec<Value> =
        String::from_utf8(out).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    lines.try_into().unwrap()
}

fn procedure(statistics: &Value, name: &str) -> Value {
    let all = statistics["procedures"].as_array().unwrap();
    all.iter().find(|of| of["name"] == name).unwrap_or_else(|| panic!("{name} in {statistics}")).clone()
}

#[test]
fn calls_are_counted_by_procedure_and_status() {
    let file = captured(HERE, THERE, 32 << 10).0;
    let [statistics, summary] = json(&file);
    assert_eq!(summary["type"], "summary");
    let read = procedure(&statistics, "NFS 3 READ");
    assert_eq!((&read["calls"], &read["answered"], &read["statuses"]["NFS3_OK"]), (&1.into(), &1.into(), &1.into()));
    assert!(read["responder_bytes"].as_u64().unwrap() > 8192, "its data count: {read}");
    assert!(read["requester_bytes"].as_u64().unwrap() < 200, "{read}");
    // The exchange's clock advances by 100 microseconds at each step; the output has two digits.
    let took = read["max_seconds"].as_f64().unwrap();
    assert!((0.000_49..0.000_51).contains(&took), "{read}");
    assert_eq!((&read["p50_seconds"], &read["p99_seconds"]), (&read["max_seconds"], &read["max_seconds"]));
    let write = procedure(&statistics, "NFS 3 WRITE");
    assert_eq!(write["statuses"], serde_json::json!({ "NFS3ERR_NOSPC": 1 }));
    assert!(write["requester_bytes"].as_u64().unwrap() > 3000, "{write}");
    assert_eq!(procedure(&statistics, "NFS 3 SYMLINK")["statuses"]["NFS3ERR_ACCES"], 1, "a long call");
    assert_eq!(procedure(&statistics, "NFS 3 READDIRPLUS")["statuses"]["NFS3_OK"], 1, "a long reply");
    let getattr = procedure(&statistics, "NFS 3 GETATTR");
    assert_eq!((&getattr["unanswered"], &getattr["p50_seconds"]), (&1.into(), &Value::Null));
    let connection = &statistics["connections"][0];
    assert_eq!(connection["credits_granted"], serde_json::json!({ "lowest": 64, "highest": 64 }));
    assert_eq!(connection["credits_in_use"], serde_json::json!({ "lowest": 1, "highest": 2 }));
    let shown = text(&file);
    assert!(shown.contains("NFS 3 WRITE") && shown.contains("    1 NFS3ERR_NOSPC"), "{shown}");
    assert!(shown.contains("    1 without an answer in the capture"), "{shown}");
    assert!(shown.contains("credits granted 64 to 64, in use 1 to 2"), "{shown}");
}

/// Calls without replies, each with its XID.
fn calls(calls: impl Iterator<Item = (u32, u32)>) -> Vec<u8> {
    let mut steps = vec![(true, set_up(Kind::Request)), (false, set_up(Kind::Reply))];
    for (at, (xid, procedure)) in calls.enumerate() {
        let mut message = Header::new(xid, 32, Body::Msg(Lists::default())).to_bytes().to_vec();
        message.extend(call(xid, procedure));
        steps.push((true, fpdu(Opcode::Send, true, untagged(0, at as u32 + 1, 0), &message)));
    }
    captured_steps(steps, HERE, THERE, 32 << 10).0
}

#[test]
fn one_slow_call_of_fifty_is_in_the_99th_percentile_and_not_in_the_middle() {
    const QUICK: u32 = 49;
    let message = |xid: u32, rpc: Vec<u8>| {
        let mut message = Header::new(xid, 32, Body::Msg(Lists::default())).to_bytes().to_vec();
        message.extend(rpc);
        message
    };
    let send = |msn: u32, message: Vec<u8>| fpdu(Opcode::Send, true, untagged(0, msn, 0), &message);
    let mut steps = vec![(true, set_up(Kind::Request)), (false, set_up(Kind::Reply))];
    steps.push((true, send(1, message(1000, call(1000, 1)))));
    for number in 1..=QUICK {
        steps.push((true, send(number + 1, message(number, call(number, 1)))));
        steps.push((false, send(number, message(number, reply(number, 0)))));
    }
    steps.push((false, send(QUICK + 1, message(1000, reply(1000, 0)))));
    let [statistics, _] = json(&captured_steps(steps, HERE, THERE, 32 << 10).0);
    let getattr = procedure(&statistics, "NFS 3 GETATTR");
    assert_eq!(getattr["answered"], QUICK + 1, "{getattr}");
    // Each step takes 100 microseconds; the output has two digits.
    let seconds = |name: &str| getattr[name].as_f64().unwrap();
    assert!((0.000_099..0.000_101).contains(&seconds("p50_seconds")), "{getattr}");
    assert!((0.009_8..0.01).contains(&seconds("p99_seconds")), "{getattr}");
    assert!((0.009_8..0.01).contains(&seconds("max_seconds")), "{getattr}");
}

#[test]
fn a_call_that_is_sent_again_is_a_retransmission() {
    let [statistics, _] = json(&calls([(7, 1), (8, 1), (7, 1)].into_iter()));
    let getattr = procedure(&statistics, "NFS 3 GETATTR");
    assert_eq!((&getattr["calls"], &getattr["retransmissions"]), (&3.into(), &1.into()));
    let [statistics, _] = json(&calls([(7, 1), (8, 1), (9, 1)].into_iter()));
    assert_eq!(procedure(&statistics, "NFS 3 GETATTR")["retransmissions"], 0);
}

#[test]
fn procedures_end_at_their_limit() {
    let number = |count: u32| (0..count).map(|procedure| (procedure, 100 + procedure));
    let most = MAX_PROCEDURES as u32;
    let of = |statistics: &Value| statistics["procedures"].as_array().unwrap().len();
    assert_eq!(of(&json(&calls(number(most)))[0]), MAX_PROCEDURES);
    let [statistics, _] = json(&calls(number(most + 9)));
    assert_eq!(of(&statistics), MAX_PROCEDURES + 1);
    assert_eq!(procedure(&statistics, "others")["calls"], 9);
}

#[test]
fn statuses_end_at_their_limit() {
    let mut steps = vec![(true, set_up(Kind::Request)), (false, set_up(Kind::Reply))];
    let count = MAX_STATUSES as u32 + 3;
    for xid in 1..=count {
        let send = |rpc: &[u8]| {
            let mut message = Header::new(xid, 32, Body::Msg(Lists::default())).to_bytes().to_vec();
            message.extend(rpc);
            fpdu(Opcode::Send, true, untagged(0, xid, 0), &message)
        };
        steps.push((true, send(&call(xid, 1))));
        steps.push((false, send(&common::words(&[xid, 1, 0, 0, 0, 0, 20_000 + xid]))));
    }
    let [statistics, _] = json(&captured_steps(steps, HERE, THERE, 32 << 10).0);
    let statuses = procedure(&statistics, "NFS 3 GETATTR")["statuses"].clone();
    assert_eq!(statuses.as_object().unwrap().len(), MAX_STATUSES + 1);
    assert_eq!((&statuses["NFS3 status 20001"], &statuses["others"]), (&1.into(), &3.into()));
}
