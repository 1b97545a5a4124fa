//! Versions of RPC-over-RDMA from the command: what is asked for, what is spoken, and that NFS is the same in both.

mod common;

use common::{Server, contents, fails, rpcrdma, run};
use serde_json::Value;
use std::{fs, path::Path};

/// What a client with this URL is told when it connects. It keeps its memory of servers in `cache`.
fn connected(url: &str, cache: &Path) -> Value {
    let mut command = rpcrdma();
    let output = command.args(["ping", "-c", "1", "-v", "--json", url]).env("XDG_CACHE_HOME", cache).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let told = String::from_utf8(output.stdout).unwrap();
    serde_json::from_str(told.lines().next().unwrap()).unwrap()
}

#[test]
fn the_version_is_the_highest_that_both_ends_may_speak() {
    let scratch = tempfile::tempdir().unwrap();
    let state = scratch.path().join("state");
    for (server, client, version) in
        [("1", "1", 1), ("1", "auto", 1), ("auto", "1", 1), ("auto", "auto", 2), ("auto", "2", 2), ("2", "auto", 2)]
    {
        let running = Server::start(scratch.path(), &state, &["--rpcrdma", server]);
        let url = format!("{}&rpcrdma={client}", running.url(""));
        let told = connected(&url, &tempfile::tempdir().unwrap().path().join("cache"));
        assert_eq!(told["rpcrdma"], version, "server {server}, client {client}");
        assert_eq!(told["version_2_refused"], server == "1" && client == "auto");
        assert_eq!(running.stop(), Some(0));
    }
}

#[test]
fn a_server_without_version_2_is_not_asked_again() {
    let scratch = tempfile::tempdir().unwrap();
    let cache = scratch.path().join("cache");
    let server = Server::start(scratch.path(), &scratch.path().join("state"), &["--rpcrdma", "1"]);
    let url = format!("{}&rpcrdma=auto", server.url(""));
    assert_eq!(connected(&url, &cache)["version_2_refused"], true);
    assert_eq!(connected(&url, &cache)["version_2_refused"], false, "it is remembered");
    fs::remove_dir_all(&cache).unwrap();
    assert_eq!(connected(&url, &cache)["version_2_refused"], true);
    assert_eq!(server.stop(), Some(0));
}

#[test]
fn ends_without_a_version_in_common_say_so() {
    let scratch = tempfile::tempdir().unwrap();
    let state = scratch.path().join("state");
    for (server, client) in [("1", "2"), ("2", "1")] {
        let running = Server::start(scratch.path(), &state, &["--rpcrdma", server]);
        let error = fails(1, ["ping", "-c", "1", &format!("{}&rpcrdma={client}", running.url(""))]);
        assert!(error.contains("version"), "server {server}, client {client}: {error}");
        assert_eq!(running.stop(), Some(0));
    }
    let error = fails(2, ["ls", "nfs://host/?rpcrdma=3"]);
    assert!(error.contains("1, 2 or auto"), "{error}");
}

#[test]
fn clients_of_both_versions_share_a_server() {
    let scratch = tempfile::tempdir().unwrap();
    let served = scratch.path().join("served");
    fs::create_dir(&served).unwrap();
    let server = Server::start(&served, &scratch.path().join("state"), &["--rpcrdma", "auto", "--no-root-squash"]);
    // Names that need a long listing.
    for number in 0..2000 {
        fs::write(served.join(format!("a name of usual length {number:05}")), b"").unwrap();
    }
    let local = scratch.path().join("local");
    for size in [0, 1, 4095, 4097, 65_536, (3 << 20) + 1] {
        fs::write(&local, contents(size)).unwrap();
        for (put, get) in [(1, 2), (2, 1), (2, 2)] {
            let url = |version| format!("{}&rpcrdma={version}", server.url("file"));
            run(["put", "-q", local.to_str().unwrap(), &url(put)]);
            let back = scratch.path().join("back");
            run(["get", "-q", &url(get), back.to_str().unwrap()]);
            assert!(fs::read(&back).unwrap() == contents(size), "{size} octets put in {put}, got in {get}");
        }
    }
    let names = |version| run(["ls", &format!("{}&rpcrdma={version}", server.url(""))]).stdout;
    assert_eq!(names(1), names(2));
    assert_eq!(server.stop(), Some(0));
}
