//! Every operation of the benchmark against a live server.

mod common;

use common::{Server, contents, fails, run};
use serde_json::Value;
use std::fs;

const KEYS: [&str; 12] = [
    "op",
    "block",
    "depth",
    "ops_per_s",
    "mib_per_s",
    "p50_us",
    "p99_us",
    "cpu_s",
    "server_cpu_s",
    "rpcrdma",
    "nfs",
    "connections",
];

/// The lines of one short run, after plausibility checks.
fn bench(args: &[&str]) -> Vec<Value> {
    let output = run([&["bench", "--json", "--seconds", "0.2"], args].concat());
    let lines: Vec<Value> =
        String::from_utf8(output.stdout).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    for line in &lines {
        let mut keys: Vec<_> = line.as_object().unwrap().keys().map(String::as_str).collect();
        keys.sort_unstable();
        let mut expected = KEYS;
        expected.sort_unstable();
        assert_eq!(keys, expected);
        let number = |key: &str| line[key].as_f64().unwrap();
        assert!(number("ops_per_s") > 1.0 && number("cpu_s") > 0.0, "{line}");
        assert!(number("p50_us") > 0.0 && number("p50_us") <= number("p99_us"), "{line}");
        assert!(number("p99_us") < 10e6, "{line}");
        if let Some(block) = line["block"].as_f64() {
            let mib = number("ops_per_s") * block / f64::from(1 << 20);
            assert!(number("mib_per_s") > 0.0 && number("mib_per_s") <= mib * 1.01 + 0.01, "{line}");
        } else {
            assert_eq!(number("mib_per_s"), 0.0);
        }
    }
    lines
}

#[test]
fn every_operation_is_measured() {
    let scratch = tempfile::tempdir().unwrap();
    let served = scratch.path().join("served");
    fs::create_dir(&served).unwrap();
    let octets = contents((3 << 20) + 1000);
    fs::write(served.join("file"), &octets).unwrap();
    let server = Server::start(&served, &scratch.path().join("state"), &["--no-root-squash", "--tcp", "127.0.0.1:0"]);
    let pid = server.pid().to_string();
    let of = |url: String, rest: &str| format!("{url}&{rest}");
    let urls = [
        (server.url("file"), Some(2), "4.2", 1),
        (server.url_in("1", "file"), Some(1), "4.2", 1),
        (server.tcp_url("file"), None, "4.2", 1),
        (of(server.url("file"), "version=3&nconnect=3"), Some(2), "3", 3),
        (of(server.tcp_url("file"), "version=4.0&nconnect=2"), None, "4.0", 2),
        (of(server.tcp_url("file"), "version=4.1&nconnect=2"), None, "4.1", 2),
    ];
    for (url, version, nfs, connections) in urls {
        for op in ["null", "getattr"] {
            let lines = bench(&[&url, "--op", op, "--depth", "4", "--server-pid", &pid]);
            assert_eq!((&lines[0]["op"], &lines[0]["depth"]), (&op.into(), &4.into()));
            assert_eq!((&lines[0]["rpcrdma"], &lines[0]["connections"]), (&version.into(), &connections.into()));
            assert_eq!(lines[0]["nfs"], if op == "null" { Value::Null } else { nfs.into() });
            assert!(lines[0]["block"].is_null() && lines[0]["server_cpu_s"].is_f64());
        }
        for block in ["512", "4K", "1M"] {
            let lines = bench(&[&url, "--op", "read", "--block", block, "--depth", "3", "--connections", "2"]);
            assert!(lines[0]["server_cpu_s"].is_null() && lines[0]["block"].is_u64(), "{lines:?}");
        }
    }
    assert_eq!(fs::read(served.join("file")).unwrap(), octets, "reading changes nothing");

    let existing = server.url("file");
    let said = fails(1, ["bench", &existing, "--op", "write", "--seconds", "0.2"]);
    assert!(said.contains("--overwrite"), "{said}");
    assert_eq!(fs::read(served.join("file")).unwrap(), octets);
    bench(&[&existing, "--op", "write", "--block", "64K", "--overwrite"]);
    let written = fs::read(served.join("file")).unwrap();
    assert!(written.len() == octets.len() && written != octets, "in place");
    bench(&[&server.url("new"), "--op", "write", "--block", "1M", "--depth", "2", "--connections", "2"]);
    assert_eq!(fs::metadata(served.join("new")).unwrap().len(), 256 << 20);
}

/// A server refuses connections from an address with many unfinished set-ups: the benchmark must still make all of its
/// connections.
#[test]
fn many_connections_are_set_up_a_few_at_a_time() {
    let scratch = tempfile::tempdir().unwrap();
    let served = scratch.path().join("served");
    fs::create_dir(&served).unwrap();
    let server = Server::start(&served, &scratch.path().join("state"), &["--threads", "1"]);
    for (rest, connections, of_each) in [("", 256, 1), ("nconnect=16", 8, 16)] {
        let (url, count) = (format!("{}&{rest}", server.url("file")), connections.to_string());
        for threads in [&[][..], &["--threads", "2"]] {
            let lines = bench(&[&[&url, "--op", "null", "--connections", &count], threads].concat());
            assert_eq!(lines[0]["connections"], connections * of_each);
        }
    }
}

#[test]
fn plain_tcp_is_measured() {
    let lines = bench(&["--baseline", "--block", "64K"]);
    assert_eq!(lines.len(), 2);
    assert_eq!((&lines[0]["op"], &lines[1]["op"]), (&"baseline_stream".into(), &"baseline_request".into()));
    assert!(lines.iter().all(|line| line["block"] == 65_536 && line["server_cpu_s"].is_f64()));
    if std::thread::available_parallelism().unwrap().get() > 1 {
        assert_eq!(bench(&["--baseline", "--apart", "--block", "4K"]).len(), 2);
    }
    let text = String::from_utf8(run(["bench", "--baseline", "--seconds", "0.05"]).stdout).unwrap();
    assert!(text.starts_with("baseline_stream of 1.00 MiB at depth 1: "), "{text}");
}

/// `--limit` measures with the bytes of a file, and makes the file if it does not exist.
#[test]
fn the_limit_is_measured_of_a_file() {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("file");
    // Three small blocks and a rest: the walk begins again at the front before the file's end.
    fs::write(&path, [7; 200_000]).unwrap();
    let file = path.to_str().unwrap();
    for (op, block, depth, octets) in [
        ("read", "4K", "3", Some(4 << 10)),
        ("read", "64K", "2", Some(64 << 10)),
        ("write", "65473", "2", Some(65_473)),
        ("getattr", "4K", "32", None),
        ("null", "4K", "1", None),
    ] {
        let lines = bench(&["--limit", file, "--op", op, "--block", block, "--depth", depth]);
        let [line] = &lines[..] else { panic!("{lines:?}") };
        assert_eq!(line["op"], format!("limit_{op}"));
        assert_eq!((line["block"].as_u64(), line["depth"].to_string()), (octets, depth.to_owned()));
        assert!(line["ops_per_s"].as_f64().unwrap() > 0.0 && line["server_cpu_s"].is_f64(), "{line}");
    }
    assert_eq!(fs::metadata(&path).unwrap().len(), 200_000);
    assert!(fs::read(&path).unwrap().iter().all(|octet| *octet == 7), "what is written is what was there");
    if std::thread::available_parallelism().unwrap().get() > 1 {
        assert_eq!(bench(&["--limit", file, "--op", "null", "--apart"]).len(), 1);
    }
    let said = fails(1, ["bench", "--limit", file, "--op", "read", "--block", "1M"]);
    assert!(said.contains("200000 bytes, fewer than a block"), "{said}");
    let absent = scratch.path().join("absent/file");
    let said = fails(1, ["bench", "--limit", absent.to_str().unwrap(), "--op", "read"]);
    assert!(said.contains("absent/file"), "{said}");
    fails(2, ["bench", "--limit", file]);
    fails(2, ["bench", "--limit", file, "--baseline", "--op", "null"]);
}

/// `--limit` with the messages of a call.
#[test]
fn the_limit_is_measured_with_messages() {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("file");
    fs::write(&path, [7; 200_000]).unwrap();
    let limit = ["--limit", path.to_str().unwrap(), "--messages"];
    for (op, block, depth) in [("null", "1M", "1"), ("getattr", "1M", "3"), ("read", "4K", "1"), ("read", "16K", "5")] {
        for tasks in [&[][..], &["--tasks"]] {
            let arguments = ["--op", op, "--block", block, "--depth", depth, "--waits", "tokio"];
            let lines = bench(&[&limit[..], &arguments, tasks].concat());
            let [line] = &lines[..] else { panic!("{lines:?}") };
            assert_eq!(line["op"], format!("limit_{op}"));
            assert!(line["ops_per_s"].as_f64().unwrap() > 0.0, "{line}");
        }
    }
    for arguments in [
        &["--op", "null"][..],
        &["--op", "null", "--waits", "epoll"],
        &["--op", "null", "--waits", "tokio", "--connections", "2"],
        &["--op", "read", "--block", "20K", "--waits", "tokio"],
        &["--op", "write", "--block", "4K"],
    ] {
        let said = fails(1, ["bench"].iter().chain(&limit).chain(arguments).copied());
        assert!(said.contains("--messages works only with --waits tokio"), "{arguments:?}: {said}");
    }
    for pair in ["--baseline", "--versions"] {
        for option in
            [&["--messages"][..], &["--tasks"], &["--messages", "--tasks"], &["--as-server"], &["--waits", "tokio"]]
        {
            fails(2, ["bench", pair].iter().chain(option).copied());
        }
    }
    fails(2, ["bench", limit[0], limit[1], "--op", "null", "--waits", "tokio", "--tasks"]);
}

/// `--limit` over many connections, and with an end that works as a server has to.
#[test]
fn the_limit_is_measured_as_a_server_works() {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("file");
    fs::write(&path, [7; 200_000]).unwrap();
    let file = path.to_str().unwrap();
    let lines = bench(&["--limit", file, "--op", "read", "--block", "4K", "--depth", "2", "--connections", "5"]);
    assert_eq!((lines.len(), lines[0]["connections"].as_u64()), (1, Some(5)), "{lines:?}");
    for op in ["read", "write"] {
        let lines = bench(&["--limit", file, "--op", op, "--block", "64K", "--depth", "3", "--as-server"]);
        assert!(lines[0]["ops_per_s"].as_f64().unwrap() > 0.0, "{lines:?}");
    }
    assert!(fs::read(&path).unwrap().iter().all(|octet| *octet == 7));
    let said = fails(1, ["bench", "--limit", file, "--op", "read", "--block", "4K", "--as-server"]);
    assert!(said.contains("--as-server works only with"), "{said}");
    let lines = bench(&["--limit", file, "--op", "read", "--block", "100K", "--waits", "tokio", "--connections", "3"]);
    assert!(lines[0]["mib_per_s"].as_f64().unwrap() > 0.0, "{lines:?}");
    for (op, block, waits) in [("write", "4K", "tokio"), ("read", "4K", "read"), ("read", "4K", "epoll")] {
        let arguments = ["--op", op, "--block", block, "--waits", waits, "--connections", "2"];
        let said = fails(1, ["bench", "--limit", file].into_iter().chain(arguments));
        assert!(said.contains("more than one connection") || said.contains("no --waits but read"), "{said}");
    }
    let said = fails(1, ["bench", "--limit", file, "--op", "read", "--block", "32K", "--waits", "epoll"]);
    assert!(said.contains("at most 16384 bytes"), "{said}");
}

#[test]
fn what_cannot_be_measured_is_said() {
    let scratch = tempfile::tempdir().unwrap();
    let served = scratch.path().join("served");
    fs::create_dir(&served).unwrap();
    fs::write(served.join("empty"), b"").unwrap();
    let server = Server::start(&served, &scratch.path().join("state"), &["--no-root-squash"]);
    for (args, part) in [
        (vec!["bench", &server.url("none"), "--op", "read"], "no such file"),
        (vec!["bench", &server.url("empty"), "--op", "read"], "is empty"),
        (vec!["bench", &server.url(""), "--op", "read"], "is not a regular file"),
        (vec!["bench", &server.url("empty"), "--op", "read", "--block", "64M"], "at most"),
        (vec!["bench", &server.url(""), "--op", "null", "--server-pid", "4294967295"], "process 4294967295"),
    ] {
        let said = fails(1, &args);
        assert!(said.contains(part), "{args:?}: {said}");
    }
    let url = server.url("");
    for args in [
        &["bench"][..],
        &["bench", &url],
        &["bench", "--op", "null"],
        &["bench", &url, "--op", "null", "--depth", "0"],
        &["bench", &url, "--op", "null", "--seconds", "0"],
        &["bench", &url, "--baseline", "--op", "null"],
    ] {
        fails(2, args);
    }
    assert_eq!(server.stop(), Some(0));
    fails(1, ["bench", &url, "--op", "null"]);
}

/// proves: V2-4.4.2-a
#[test]
fn both_versions_are_measured_side_by_side() {
    let output = run(["bench", "--versions", "--json", "--seconds", "0.01"]);
    let text = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let (of_nfs, lines): (Vec<Value>, Vec<Value>) = lines.into_iter().partition(|line| line["nfs"].is_string());
    assert_eq!(lines.len(), 4 * 8 * 2, "kinds of calls, lengths, versions");
    assert_eq!(
        of_nfs.len(),
        (1 + 3 + 3) * 2 * 2,
        "kinds of calls with their lengths, versions of NFS and of RPC-over-RDMA"
    );
    for group in of_nfs.chunks(4) {
        let told: Vec<_> =
            group.iter().map(|line| (line["nfs"].as_str().unwrap(), line["version"].as_u64().unwrap())).collect();
        assert_eq!(told, [("3", 1), ("3", 2), ("4.2", 1), ("4.2", 2)]);
        for line in group {
            assert_eq!((&line["case"], &line["octets"]), (&group[0]["case"], &group[0]["octets"]));
            // The server reads what does not fit inline.
            let is_read = line["case"] == "write" && line["octets"].as_u64().unwrap() > 8192;
            assert_eq!(line["round_trips"], if is_read { 2.0 } else { 1.0 }, "one call each: {line}");
            assert!(line["rounds"][0]["p50_us"].as_f64().unwrap() > 0.0, "{line}");
        }
    }
    for pair in lines.chunks(2) {
        let [one, two] = pair else { panic!("{pair:?}") };
        let number = |line: &Value, key: &str| line[key].as_f64().unwrap();
        let octets = number(one, "octets");
        assert_eq!((&one["case"], octets), (&two["case"], number(two, "octets")));
        assert_eq!((&one["version"], &two["version"]), (&1.into(), &2.into()));
        for line in [one, two] {
            assert!(number(line, "sends") >= 2.0 && number(line, "receives") >= 2.0, "{line}");
            assert_eq!(line["rounds"].as_array().unwrap().len(), 5);
            assert!(number(&line["rounds"][0], "p50_us") > 0.0 && number(&line["rounds"][0], "p99_us") > 0.0, "{line}");
        }
        // Checks the counts, which do not depend on the clock, as they were measured and published before.
        let long_call = one["case"] == "call" && octets >= 8192.0;
        assert_eq!(number(one, "round_trips"), if long_call { 2.0 } else { 1.0 }, "{one}");
        assert_eq!(number(one, "reads"), f64::from(u8::from(long_call)), "{one}");
        assert_eq!(number(two, "round_trips"), 1.0, "{two}");
        assert!(number(two, "registrations") <= number(one, "registrations"), "{one}\n{two}");
        assert_eq!(number(one, "invalidations"), 0.0, "the reply ends them: {one}");
        if octets < 2048.0 {
            assert_eq!((number(two, "sends"), number(two, "registrations")), (2.0, 0.0), "{two}");
        }
    }
    let table = String::from_utf8(run(["bench", "--versions", "--seconds", "0.01"]).stdout).unwrap();
    assert_eq!(table.lines().count(), 1 + 64 + 28);
    assert!(table.lines().next().unwrap().contains("round trips"), "{table}");
}
