//! Versions of RPC-over-RDMA in commands: the requested version, the spoken version, and that NFS is the same in both.

mod common;

use common::{Server, contents, fails, rpcrdma, run, served};
use serde_json::Value;
use std::{
    fs,
    io::{Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    path::Path,
};

/// The output of a command that remembers servers in `cache`.
fn run_with<'a>(cache: &Path, args: impl IntoIterator<Item = &'a str>) -> String {
    let output = rpcrdma().args(args).env("XDG_CACHE_HOME", cache).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// What a client with this URL reports when it connects.
fn connected(url: &str, cache: &Path) -> Value {
    let told = run_with(cache, ["ping", "-c", "1", "-v", "--json", url]);
    serde_json::from_str(told.lines().next().unwrap()).unwrap()
}

#[test]
fn the_version_is_the_highest_that_both_ends_may_speak() {
    let scratch = tempfile::tempdir().unwrap();
    let state = scratch.path().join("state");
    for (server, client, version) in
        [("1", "1", 1), ("1", "auto", 1), ("auto", "1", 1), ("auto", "auto", 2), ("auto", "2", 2), ("2", "auto", 2)]
    {
        let running = Server::start(&served(scratch.path()), &state, &["--rpcrdma", server]);
        let url = running.url_in(client, "");
        let told = connected(&url, &tempfile::tempdir().unwrap().path().join("cache"));
        assert_eq!(told["rpcrdma"], version, "server {server}, client {client}");
        let version_2 = match (server, client) {
            ("1", "auto") => Some("refused"),
            (_, "1") => None,
            _ => Some("spoken"),
        };
        assert_eq!(told["version_2"], Value::from(version_2), "server {server}, client {client}");
        assert_eq!(running.stop(), Some(0));
    }
}

#[test]
fn a_server_without_version_2_is_not_asked_again() {
    let scratch = tempfile::tempdir().unwrap();
    let cache = scratch.path().join("cache");
    let server = Server::start(&served(scratch.path()), &scratch.path().join("state"), &["--rpcrdma", "1"]);
    let url = server.url("");
    assert_eq!(connected(&url, &cache)["version_2"], "refused");
    assert_eq!(connected(&url, &cache)["version_2"], "not asked for", "it is remembered");
    let told = run_with(&cache, ["ping", "-c", "1", "-v", &url]);
    assert!(told.contains("remembers that the server does not have it"), "{told}");
    fs::remove_dir_all(&cache).unwrap();
    assert_eq!(connected(&url, &cache)["version_2"], "refused");
    let told = run_with(&tempfile::tempdir().unwrap().path().join("other"), ["ping", "-c", "1", "-v", &url]);
    assert!(told.contains("RPC-over-RDMA version 1") && told.contains("asked for and refused"), "{told}");
    assert_eq!(server.stop(), Some(0));
}

/// Without options both ends speak version 2.
#[test]
fn version_2_is_what_is_spoken() {
    let scratch = tempfile::tempdir().unwrap();
    let cache = scratch.path().join("cache");
    let server = Server::start(&served(scratch.path()), &scratch.path().join("state"), &[]);
    assert_eq!(connected(&server.url(""), &cache)["rpcrdma"], 2);
    assert!(!cache.exists(), "there is nothing to remember");
    assert_eq!(server.stop(), Some(0));
}

/// The client remembers a server that has been restarted with other versions.
#[test]
fn what_is_remembered_keeps_nobody_from_a_server_that_has_changed() {
    let scratch = tempfile::tempdir().unwrap();
    let (state, cache) = (scratch.path().join("state"), scratch.path().join("cache"));
    let server = Server::start(&served(scratch.path()), &state, &["--rpcrdma", "1"]);
    let (rdma, mount) = (server.rdma.clone(), server.mount.clone());
    assert_eq!(connected(&server.url(""), &cache)["rpcrdma"], 1);
    let again = |server: Server, versions| {
        assert_eq!(server.stop(), Some(0));
        Server::start_at(&served(scratch.path()), &state, &rdma, &mount, &["--rpcrdma", versions])
    };
    let server = again(server, "auto");
    assert_eq!(connected(&server.url(""), &cache)["rpcrdma"], 1, "for a day");
    assert_eq!(connected(&server.url_in("2", ""), &cache)["rpcrdma"], 2, "but not if the user knows better");
    assert_eq!(connected(&server.url(""), &cache)["rpcrdma"], 2, "which is remembered, too");
    let server = again(server, "1");
    assert_eq!(connected(&server.url(""), &cache)["rpcrdma"], 1);
    let server = again(server, "2");
    assert_eq!(connected(&server.url(""), &cache)["rpcrdma"], 2, "it has nothing else");
    assert_eq!(server.stop(), Some(0));
}

/// A server that ends a connection in answer to version 2; a server that is being restarted does so as well, so once is
/// no proof.
#[test]
fn a_server_that_is_silent_once_is_suspected_only() {
    let scratch = tempfile::tempdir().unwrap();
    let cache = scratch.path().join("cache");
    let server = Server::start(&served(scratch.path()), &scratch.path().join("state"), &["--rpcrdma", "1"]);
    let middle = dropping(&server.rdma);
    let url = server.url("").replace(&server.rdma, &middle);
    let told = connected(&url, &cache);
    assert_eq!((&told["rpcrdma"], &told["version_2"]), (&1.into(), &"unanswered".into()));
    let remembered = fs::read_to_string(cache.join("rpcrdma/without-version-2")).unwrap();
    assert!(remembered.ends_with(&format!(" {middle} ?\n")), "{remembered}");
    assert_eq!(server.stop(), Some(0));
}

/// The address of a proxy that ends its first connection at the first bytes after the set-up, and forwards the others.
fn dropping(server: &str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let server = server.to_owned();
    std::thread::spawn(move || {
        for (number, client) in listener.incoming().enumerate() {
            let (client, onward) = (client.unwrap(), TcpStream::connect(&server).unwrap());
            let (back_from, back_to) = (onward.try_clone().unwrap(), client.try_clone().unwrap());
            std::thread::spawn(move || pass(back_from, back_to));
            std::thread::spawn(move || {
                if number > 0 {
                    return pass(client, onward);
                }
                // The set-up's request comes alone: nothing follows before its reply.
                let (mut client, mut onward, mut octets) = (client, onward, [0; 4096]);
                let request = client.read(&mut octets).unwrap();
                onward.write_all(&octets[..request]).unwrap();
                let _ = client.read(&mut octets);
                let _ = (client.shutdown(Shutdown::Both), onward.shutdown(Shutdown::Both));
            });
        }
    });
    address
}

fn pass(mut from: TcpStream, mut to: TcpStream) {
    let _ = std::io::copy(&mut from, &mut to);
    let _ = to.shutdown(Shutdown::Both);
}

#[test]
fn ends_without_a_version_in_common_say_so() {
    let scratch = tempfile::tempdir().unwrap();
    let state = scratch.path().join("state");
    for (server, client) in [("1", "2"), ("2", "1")] {
        let running = Server::start(&served(scratch.path()), &state, &["--rpcrdma", server]);
        let error = fails(1, ["ping", "-c", "1", &running.url_in(client, "")]);
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
    let server = Server::start(&served, &scratch.path().join("state"), &["--no-root-squash"]);
    // Names that need a long listing.
    for number in 0..2000 {
        fs::write(served.join(format!("a name of usual length {number:05}")), b"").unwrap();
    }
    let local = scratch.path().join("local");
    for size in [0, 1, 4095, 4097, 65_536, (3 << 20) + 1] {
        fs::write(&local, contents(size)).unwrap();
        for (put, get) in [("1", "2"), ("2", "1"), ("2", "2")] {
            let url = |version| server.url_in(version, "file");
            run(["put", "-q", local.to_str().unwrap(), &url(put)]);
            let back = scratch.path().join("back");
            run(["get", "-q", &url(get), back.to_str().unwrap()]);
            assert!(fs::read(&back).unwrap() == contents(size), "{size} bytes put in {put}, got in {get}");
        }
    }
    let names = |version| run(["ls", &server.url_in(version, "")]).stdout;
    assert_eq!(names("1"), names("2"));
    assert_eq!(server.stop(), Some(0));
}
