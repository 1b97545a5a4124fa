//! `--capture` and `decode FILE`: a session over loopback, captured at both ends, read by us and by tshark.

mod common;

use common::{Server, fails, run};
use serde_json::Value;
use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Command, Stdio},
};

fn decoded(file: &Path, more: &[&str]) -> String {
    let output = run([&["decode"], more, &[file.to_str().unwrap()]].concat());
    String::from_utf8(output.stdout).unwrap()
}

/// The messages in one direction of a connection, without their times.
fn messages(file: &Path, connection: u64, from_port: &str) -> Vec<Value> {
    let lines = decoded(file, &["--json"]);
    let lines = lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let ours = lines.filter(|line| {
        line["connection"] == connection
            && line["type"] != "closed"
            && line["from"].as_str().is_some_and(|from| from.ends_with(from_port))
    });
    let timeless = ours.map(|mut line| {
        for key in ["time", "since_call"] {
            line.as_object_mut().unwrap().remove(key);
        }
        line
    });
    timeless.collect()
}

/// What tshark prints of the packets that `filter` lets through. `None` if tshark is not installed.
fn tshark(file: &Path, filter: &str) -> Option<String> {
    let mut command = Command::new("tshark");
    command.args(["-o", "tcp.check_checksum:TRUE", "-o", "ip.check_checksum:TRUE", "-Y", filter]).arg("-r").arg(file);
    let output = command.args(["-T", "fields", "-e", "_ws.col.Info"]).stderr(Stdio::null()).output().ok()?;
    assert!(output.status.success(), "tshark: {:?}", output.status);
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[test]
fn a_session_is_captured_at_both_ends() {
    captured_at_both_ends("1");
}

#[test]
fn a_session_of_version_2_is_captured_at_both_ends() {
    captured_at_both_ends("2");
}

fn captured_at_both_ends(version: &str) {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    fs::create_dir(path("served")).unwrap();
    fs::set_permissions(path("served"), fs::Permissions::from_mode(0o777)).unwrap();
    let contents: Vec<u8> = (0..300_000u32).map(|at| (at * 7 % 251) as u8).collect();
    fs::write(path("served/data"), &contents).unwrap();
    let text = |name: &str| path(name).to_str().unwrap().to_owned();

    let server = Server::start(&path("served"), &path("state"), &["--capture", &text("server.pcapng")]);
    run(["get", "-q", "--capture", &text("get.pcapng"), &server.url_3_in(version, "data"), &text("copy")]);
    run(["put", "-q", "--capture", &text("put.pcapng"), &text("copy"), &server.url_3_in(version, "again")]);
    let port = server.rdma.rsplit_once(':').unwrap().1.to_owned();
    assert_eq!(server.stop(), Some(0));
    assert_eq!(fs::read(path("served/again")).unwrap(), contents);

    for (number, client) in [(1, "get.pcapng"), (2, "put.pcapng")] {
        for from in [port.clone(), client_port(&path(client), &port)] {
            let here = messages(&path(client), 1, &from);
            let mut there = messages(&path("server.pcapng"), number, &from);
            there.iter_mut().for_each(|line| line["connection"] = 1.into());
            assert!(here.len() >= 5, "{client}: {here:#?}");
            assert_eq!(here, there, "{client} from {from}");
        }
    }
    let read = decoded(&path("get.pcapng"), &[]);
    assert!(read.contains("RDMA Write 0x"), "{read}");
    let lookup = read.lines().any(|line| line.contains("Call NFS 3 LOOKUP ") && line.contains(" \"data\", xid"));
    let asked = read.lines().any(|line| line.contains("Call NFS 3 READ ") && line.contains(" @0, xid"));
    let eof = read.lines().any(|line| line.contains("Reply NFS3_OK ") && line.contains(" eof, xid"));
    assert!(lookup && asked && eof && !read.contains("does not decode"), "{read}");
    assert!(read.ends_with("messages\n"), "nothing is missing: {read}");
    let ladder = decoded(&path("put.pcapng"), &["--ladder"]);
    assert!(ladder.contains("|<- RDMA Read Request 0x") && ladder.contains("|-- RDMA Read Response 0x"), "{ladder}");
    let ladder = decoded(&path("server.pcapng"), &["--ladder", "--unicode"]);
    assert!(ladder.contains("│◀─ Send with Invalidate 0x") || ladder.contains("Send with Invalidate 0x"), "{ladder}");
    assert!(ladder.contains("connection closed"), "{ladder}");

    if tshark(&path("get.pcapng"), "tcp").is_none() {
        eprintln!("tshark is not installed here: only our own reader has checked the captures");
        return;
    }
    for (file, calls) in [("get.pcapng", ["LOOKUP", "READ"]), ("put.pcapng", ["CREATE", "WRITE"])] {
        let named = tshark(&path(file), "nfs").unwrap();
        // tshark does not know version 2.
        for call in calls.iter().filter(|_| version == "1") {
            let call = format!("V3 {call} Call");
            assert!(named.lines().any(|line| line.contains(&call)), "{file}: no {call} in {named}");
        }
        let wrong = "ip.checksum.status == \"Bad\" || tcp.checksum.status == \"Bad\" || tcp.analysis.flags";
        assert_eq!(tshark(&path(file), wrong).unwrap(), "", "{file}");
        assert_ne!(tshark(&path(file), "tcp.checksum.status == \"Good\"").unwrap(), "", "{file}");
    }
}

/// The client's port in a capture.
fn client_port(file: &Path, server_port: &str) -> String {
    let lines = decoded(file, &["--json"]);
    let first: Value = serde_json::from_str(lines.lines().next().unwrap()).unwrap();
    let (from, to) = (first["from"].as_str().unwrap(), first["to"].as_str().unwrap());
    assert!(to.ends_with(server_port), "the client begins: {first}");
    from.rsplit_once(':').unwrap().1.to_owned()
}

#[test]
fn wrong_usage_and_wrong_files_are_told() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("no.pcapng");
    fs::write(&file, b"this is no capture").unwrap();
    let file = file.to_str().unwrap();
    assert!(fails(1, ["decode", file]).contains("not a pcap or pcapng file"));
    assert!(fails(1, ["decode", "--ladder", "/nonexistent"]).contains("/nonexistent"));
    fails(2, ["decode"]);
    fails(2, ["decode", "--hex", file]);
    fails(2, ["decode", "--classify", "responder", file]);
    fails(2, ["decode", "--hex", "--ladder"]);
    fails(1, ["ls", "--capture", "/nonexistent/file", "nfs://127.0.0.1:1/"]);
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

#[test]
fn a_capture_overwrites_nothing_unasked_and_is_private() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let text = |name: &str| path(name).to_str().unwrap().to_owned();
    fs::create_dir(path("served")).unwrap();
    let server = Server::start(&path("served"), &path("state"), &["--capture", &text("server.pcapng")]);
    assert_eq!(mode(&path("server.pcapng")), 0o600);
    let url = server.url_3("");
    run(["ls", "--capture", &text("new.pcapng"), &url]);
    assert_eq!(mode(&path("new.pcapng")), 0o600);
    let before = fs::read(path("new.pcapng")).unwrap();
    assert!(!before.is_empty());
    let said = fails(1, ["ls", "--capture", &text("new.pcapng"), &url]);
    assert!(said.contains("new.pcapng") && said.contains("--force"), "{said}");
    assert_eq!(fs::read(path("new.pcapng")).unwrap(), before);

    fs::write(path("precious"), "precious").unwrap();
    std::os::unix::fs::symlink(path("precious"), path("link")).unwrap();
    for more in [&["--capture", &text("link")][..], &["--force", "--capture", &text("link")]] {
        let said = fails(1, [&["ls"], more, &[&url]].concat());
        assert!(said.contains("link"), "{said}");
    }
    assert_eq!(fs::read(path("precious")).unwrap(), b"precious");
    fs::set_permissions(path("precious"), fs::Permissions::from_mode(0o644)).unwrap();
    run(["df", "--force", "--capture", &text("precious"), &url]);
    assert_eq!(mode(&path("precious")), 0o600);
    assert!(decoded(&path("precious"), &[]).contains("FSSTAT"));
    fails(2, ["rm", "--force", &url]);
    assert_eq!(server.stop(), Some(0));
}

#[test]
fn a_capture_does_not_lie_in_what_is_served() {
    let directory = tempfile::tempdir().unwrap();
    let served = directory.path().join("served");
    fs::create_dir_all(served.join("below")).unwrap();
    for inside in ["file", "below/file"] {
        let (file, state) = (served.join(inside), directory.path().join("state"));
        let text = |path: &Path| path.to_str().unwrap().to_owned();
        let ports = ["--listen", "127.0.0.1:0", "--mountd", "127.0.0.1:0", "--state", &text(&state)];
        let said = fails(1, [&["serve", &text(&served), "--capture", &text(&file)], &ports[..]].concat());
        assert!(said.contains(&text(&file)) && said.contains("served"), "{said}");
        assert!(!file.exists());
    }
}

/// A bind mount of a part of the directory, in a mount namespace of the server's own.
#[test]
fn a_capture_does_not_lie_in_another_mount_of_what_is_served() {
    let directory = tempfile::tempdir().unwrap();
    let text = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    for made in ["served/part", "elsewhere"] {
        fs::create_dir_all(directory.path().join(made)).unwrap();
    }
    let script = "mount --bind \"$1/served/part\" \"$1/elsewhere\" || exit 99
        exec timeout 20 \"$2\" serve \"$1/served\" --state \"$1/state\" --listen 127.0.0.1:0 --mountd 127.0.0.1:0 --capture \"$1/elsewhere/file\"";
    let ended = std::process::Command::new("unshare")
        .args(["--mount", "sh", "-c", script, "sh", directory.path().to_str().unwrap(), env!("CARGO_BIN_EXE_rpcrdma")])
        .output();
    let ended = match ended {
        Ok(ended) if ended.status.code() == Some(99) || String::from_utf8_lossy(&ended.stderr).contains("unshare") => {
            eprintln!("not tried: no mount namespace may be made here");
            return;
        }
        ended => ended.unwrap(),
    };
    let said = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.code(), Some(1), "{said}");
    assert!(said.contains(&text("elsewhere/file")) && said.contains("by another mount"), "{said}");
    assert!(!directory.path().join("served/part/file").exists());
}

/// The limit on the size of files stands for a disk that is full.
#[test]
fn a_capture_that_cannot_be_written_is_a_failure() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    fs::create_dir(path("served")).unwrap();
    for number in 0..100 {
        fs::write(path("served").join(number.to_string()), "contents").unwrap();
    }
    let server = Server::start(&path("served"), &path("state"), &["--no-root-squash"]);
    let output = Command::new("sh")
        .args(["-c", "ulimit -f 16; exec \"$0\" get -r --capture \"$1\" \"$2\" \"$3\"", env!("CARGO_BIN_EXE_rpcrdma")])
        .args([path("small.pcapng").into_os_string(), server.url("").into(), path("into").into()])
        .env("XDG_CACHE_HOME", common::cache())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{:?}: {said}", output.status);
    assert!(said.contains("small.pcapng: ") && said.contains("too large"), "{said}");
    assert_eq!(fs::read_dir(path("into")).unwrap().count(), 100, "what was asked for is done all the same");
}
