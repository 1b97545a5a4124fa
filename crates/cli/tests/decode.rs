//! `decode FILE` and `decode -`: chosen calls, summaries, unreadable packets; the packets are hand-made.

mod common;

use common::{fails, run};
use serde_json::Value;
use std::{
    fs,
    io::Write,
    process::{Command, Output, Stdio},
};

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

/// A pcap file whose packets begin with IPv4, a millisecond apart.
struct Pcap(Vec<u8>, u32);

impl Pcap {
    fn new() -> Self {
        Pcap([&[0xA1, 0xB2, 0xC3, 0xD4, 0, 2, 0, 4][..], &words(&[0, 0, 65_535, 101])].concat(), 0)
    }

    /// IPv4 from 10.0.0.1 to 10.0.0.2 or back.
    fn packet(&mut self, protocol: u8, back: bool, payload: &[u8]) {
        let ends = if back { [0x0A00_0002, 0x0A00_0001] } else { [0x0A00_0001, 0x0A00_0002] };
        let octets = 20 + payload.len() as u32;
        let ip = [words(&[0x4500_0000 | octets, 0, 0x4000_0000 | u32::from(protocol) << 16]), words(&ends)].concat();
        self.1 += 1000;
        self.0.extend(words(&[1, self.1, octets, octets]));
        self.0.extend(ip);
        self.0.extend(payload);
    }

    fn tcp(&mut self, back: bool, sequence: u32, payload: &[u8]) {
        let ports = if back { 2049 << 16 | 863 } else { 863 << 16 | 2049 };
        let header = words(&[ports, sequence, 1, 0x5010_FFFF, 0]);
        self.packet(6, back, &[&header[..], payload].concat());
    }

    fn udp(&mut self, port: u16, payload: &[u8]) {
        let octets = 8 + payload.len() as u32;
        let header = words(&[4791 << 16 | u32::from(port), octets << 16]);
        self.packet(17, false, &[&header[..], payload].concat());
    }
}

fn record(body: &[u32]) -> Vec<u8> {
    [words(&[0x8000_0000 | (4 * body.len() as u32)]), words(body)].concat()
}

/// GETATTR answered after a millisecond, and LOOKUP of "file" after five.
fn capture() -> Vec<u8> {
    let mut file = Pcap::new();
    let getattr = record(&[7, 0, 2, 100_003, 3, 1, 0, 0, 0, 0, 4, 0x5F3A_019C]);
    let lookup = record(&[0x4D2, 0, 2, 100_003, 3, 3, 0, 0, 0, 0, 4, 0x5F3A_019C, 4, u32::from_be_bytes(*b"file")]);
    let stale = record(&[7, 1, 0, 0, 0, 0, 70]);
    file.tcp(false, 100, &getattr);
    file.tcp(true, 500, &stale);
    file.tcp(false, 100 + getattr.len() as u32, &lookup);
    for _ in 0..3 {
        file.udp(4791, &[7; 40]);
    }
    file.udp(53, &[7; 40]);
    file.tcp(true, 500 + stale.len() as u32, &record(&[0x4D2, 1, 0, 0, 0, 0, 2, 0]));
    file.0
}

fn decoded(options: &[&str]) -> Output {
    decoded_file(&capture(), options)
}

fn decoded_file(file: &[u8], options: &[&str]) -> Output {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("calls.pcap");
    fs::write(&path, file).unwrap();
    run([&["decode"], options, &[path.to_str().unwrap()]].concat())
}

fn text(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

#[test]
fn standard_input_is_read_as_a_file_is() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_rpcrdma"))
        .args(["decode", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(&capture()).unwrap();
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8(output.stderr.clone()).unwrap();
    assert!(output.status.success(), "{said}");
    assert!(said.contains("standard input: 3 packets of RoCEv2"), "{said}");
    assert_eq!(text(&output), text(&decoded(&[])));
    assert!(text(&output).contains("Call NFS 3 LOOKUP 5f3a019c \"file\"  [call"), "{}", text(&output));
}

#[test]
fn what_cannot_be_read_is_named_and_counted() {
    let output = decoded(&["--json"]);
    let said = String::from_utf8(output.stderr.clone()).unwrap();
    let expected = "calls.pcap: 3 packets of RoCEv2 were not read: this version reads iWARP and TCP";
    let warning: Value = serde_json::from_str(&said).unwrap();
    assert!(warning["warning"]["message"].as_str().unwrap().ends_with(expected), "{said}");
    let shown = text(&output);
    let summary: Value = serde_json::from_str(shown.lines().last().unwrap()).unwrap();
    assert_eq!(summary["unread_rdma_packets"], serde_json::json!({ "RoCEv2": 3 }));
    assert_eq!(summary["other_packets"], 4);
}

#[test]
fn calls_of_interest_come_with_their_replies() {
    for (options, is_getattr, is_lookup) in [
        (&["--xid", "7"][..], true, false),
        (&["--xid", "0x4d2"], false, true),
        (&["--xid", "1234,7"], true, true),
        (&["--procedure", "lookup"], false, true),
        (&["--procedure", "LookUp", "--procedure", "getattr"], true, true),
        (&["--procedure", "read"], false, false),
        (&["--slower-than", "2ms"], false, true),
        (&["--slower-than", "500us"], true, true),
        (&["--slower-than", "1s"], false, false),
        (&["--slower-than", "2ms", "--xid", "7"], false, false),
    ] {
        for form in [&[][..], &["--json"], &["--ladder"]] {
            let shown = text(&decoded(&[form, options].concat()));
            let stale = shown.contains("NFS3ERR_STALE") || shown.contains("\"nfs_status\":70");
            let absent = shown.contains("NFS3ERR_NOENT") || shown.contains("\"nfs_status\":2,");
            let calls = (shown.contains("GETATTR"), shown.contains("LOOKUP"));
            assert_eq!((calls, stale, absent), ((is_getattr, is_lookup), is_getattr, is_lookup), "{options:?} {shown}");
        }
    }
}

/// PUTROOTFH and GETFH, where GETFH is refused; then PUTROOTFH alone.
#[test]
fn compounds_are_shown_chosen_and_counted_by_operation() {
    let mut file = Pcap::new();
    let first = record(&[7, 0, 2, 100_003, 4, 1, 0, 0, 0, 0, 0, 2, 2, 24, 10]);
    let refused = record(&[7, 1, 0, 0, 0, 0, 10_013, 0, 2, 24, 0, 10, 10_013]);
    file.tcp(false, 100, &first);
    file.tcp(true, 500, &refused);
    file.tcp(false, 100 + first.len() as u32, &record(&[8, 0, 2, 100_003, 4, 1, 0, 0, 0, 0, 0, 2, 1, 24]));
    file.tcp(true, 500 + refused.len() as u32, &record(&[8, 1, 0, 0, 0, 0, 0, 0, 1, 24, 0]));
    let of = |options: &[&str]| text(&decoded_file(&file.0, options));
    let shown = of(&["--procedure", "getfh"]);
    assert!(shown.contains("Call NFS 4 COMPOUND minor 2 PUTROOTFH GETFH"), "{shown}");
    assert!(shown.contains("Reply NFS4ERR_GRACE PUTROOTFH GETFH -> NFS4ERR_GRACE"), "{shown}");
    assert!(!shown.contains("call 2 NFS 4 COMPOUND"), "{shown}");
    assert!(of(&["--procedure", "putrootfh"]).contains("call 2 NFS 4 COMPOUND"));
    let shown = of(&["--summary"]);
    assert!(shown.contains("operation ") && shown.contains("PUTROOTFH") && shown.contains("    2 NFS4_OK"), "{shown}");
}

/// A server of minor version 0 connects to its client: `decode` reads its calls there, although that connection carries
/// no NFS calls.
#[test]
fn calls_of_the_server_over_a_connection_of_its_own_are_shown() {
    let mut file = Pcap::new();
    // CB_RECALL of minor version 0 with the ident 7.
    let recall = [0, 0, 7, 1, 4, 1, 0x0101_0101, 0x0202_0202, 0x0303_0303, 0, 4, 0x5F3A_019C];
    let call = record(&[&[7, 0, 2, 0x4000_0000, 1, 1, 0, 0, 0, 0][..], &recall].concat());
    file.tcp(false, 100, &call);
    file.tcp(true, 500, &record(&[7, 1, 0, 0, 0, 0, 0, 0, 1, 4, 0]));
    let shown = text(&decoded_file(&file.0, &["--procedure", "CB_RECALL"]));
    assert!(
        shown.contains("Call NFS callback 1 CB_COMPOUND minor 0") && shown.contains("CB_RECALL 5f3a019c"),
        "{shown}"
    );
    assert!(shown.contains("Reply NFS4_OK CB_RECALL"), "{shown}");
}

#[test]
fn a_summary_counts_calls() {
    let shown = text(&decoded(&["--summary"]));
    assert!(shown.contains("NFS 3 GETATTR") && shown.contains("    1 NFS3ERR_STALE"), "{shown}");
    let shown = text(&decoded(&["--summary", "--json", "--procedure", "LOOKUP"]));
    let statistics: Value = serde_json::from_str(shown.lines().next().unwrap()).unwrap();
    let procedures = statistics["procedures"].as_array().unwrap();
    assert_eq!(procedures.len(), 1, "the filter counts here too");
    assert_eq!((&procedures[0]["name"], &procedures[0]["answered"]), (&"NFS 3 LOOKUP".into(), &1.into()));
    let took = procedures[0]["p99_seconds"].as_f64().unwrap();
    assert!((0.0049..0.0051).contains(&took), "two digits are told: {took}");
}

#[test]
fn wrong_values_are_wrong_usage() {
    for options in [
        &["--xid", "0x"][..],
        &["--xid", "x"],
        &["--procedure", "REED"],
        &["--slower-than", "10"],
        &["--summary", "--ladder"],
    ] {
        fails(2, [&["decode"], options, &["/nonexistent"]].concat());
    }
    for options in [&["--xid", "7"][..], &["--procedure", "READ"], &["--slower-than", "1ms"], &["--summary"]] {
        fails(2, [&["decode", "--hex"], options].concat());
    }
}
