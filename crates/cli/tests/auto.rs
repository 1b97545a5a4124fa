//! URLs without a version: the command tries 4.2 first, then 4.1, 4.0 and 3, over one connection, and each step down
//! follows a refusal by the server.

mod common;

use common::{Server, counting::counting, fails, run, served};
use serde_json::Value;
use std::{fs, path::Path, process::Output};

fn start(scratch: &Path, versions: &str, more: &[&str]) -> Server {
    let served = served(scratch);
    fs::create_dir_all(served.join("below")).unwrap();
    fs::write(served.join("below/file"), b"contents").unwrap();
    let all = [&["--no-root-squash", "--tcp", "127.0.0.1:0", "--nfs", versions], more].concat();
    Server::start(&served, &scratch.join("state"), &all)
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A URL with an address that leads to the server, and with the server's own address for MOUNT.
fn url(server: &Server, address: &str, path: &str, rest: &str) -> String {
    let mount = server.mount.rsplit_once(':').map(|(_, port)| format!("mountport={port}&")).unwrap_or_default();
    format!("nfs://{address}/{path}?{mount}{rest}")
}

/// What `ping -v` says of NFS.
fn told(url: &str) -> Value {
    let output = run(["ping", "-v", "--json", "-c", "1", url]);
    let first = String::from_utf8(output.stdout).unwrap();
    let line: Value = serde_json::from_str(first.lines().next().unwrap()).unwrap();
    line["nfs"].clone()
}

#[test]
fn the_highest_version_that_the_server_has_is_spoken_over_one_connection() {
    for (versions, spoken) in
        [("3", "3"), ("4.0", "4.0"), ("3,4.0", "4.0"), ("4.1", "4.1"), ("3,4.0,4.1", "4.1"), ("3,4.0,4.1,4.2", "4.2")]
    {
        let scratch = tempfile::tempdir().unwrap();
        let server = start(scratch.path(), versions, &[]);
        for (to, rest) in
            [(&server.rdma, "rpcrdma=1"), (&server.rdma, ""), (server.tcp.as_ref().unwrap(), "transport=tcp")]
        {
            let (address, counted) = counting(to, None);
            let output = run(["cat", &url(&server, &address, "below/file", rest)]);
            assert_eq!((output.stdout.as_slice(), said(&output).as_str()), (&b"contents"[..], ""), "{versions} {rest}");
            // Asking for version 2 of RPC-over-RDMA must not cost a connection: the server has it.
            assert_eq!(counted.octets().len(), 1, "{versions} {rest}");
            let nfs = told(&url(&server, to, "", rest));
            assert_eq!(nfs["version"], spoken, "{versions} {rest}");
            let served: Vec<_> = nfs["versions"].as_array().unwrap().iter().map(|one| one.as_str().unwrap()).collect();
            assert_eq!(served.join(","), versions, "{rest}");
            let json = run(["bench", "--op", "getattr", "--json", "--seconds", "0.05", &url(&server, to, "", rest)]);
            let line: Value = serde_json::from_slice(&json.stdout).unwrap();
            assert_eq!(line["nfs"], spoken);
            run(["bench", "--op", "null", "--seconds", "0.05", &url(&server, to, "", rest)]);
        }
        assert_eq!(server.stop(), Some(0));
    }
}

#[test]
fn a_path_names_the_same_file_in_every_version() {
    let scratch = tempfile::tempdir().unwrap();
    let other = scratch.path().join("other");
    fs::create_dir(&other).unwrap();
    fs::write(other.join("file"), b"of the other export").unwrap();
    // The mount point of the other export must exist in the first.
    fs::create_dir_all(served(scratch.path()).join("deep/in/other")).unwrap();
    let export = format!("{},pseudo=/deep/in/other", other.display());
    let server = start(scratch.path(), "3,4.0,4.1,4.2", &["--export", &export]);
    for (path, contents) in [("below/file", "contents"), ("deep/in/other/file", "of the other export")] {
        for version in ["3", "4.0", "4.1", "4.2", "auto"] {
            let url = url(&server, &server.rdma, path, &format!("version={version}"));
            assert_eq!(run(["cat", &url]).stdout, contents.as_bytes(), "{version}");
        }
    }
}

#[test]
fn what_was_tried_is_told_when_nothing_serves() {
    let scratch = tempfile::tempdir().unwrap();
    let server = start(scratch.path(), "3", &[]);
    let nowhere = "127.0.0.1:1";
    let error = fails(1, ["ls", &format!("nfs://{}/?mountport=1", server.rdma)]);
    let expected = format!("{} was asked for version 4 (the server does not serve version 4 of NFS", server.rdma);
    assert!(error.contains(&expected) && error.contains("), then for version 3: MOUNT: cannot connect"), "{error}");
    // The command tries a missing server only once, and blames no version.
    for rest in ["", "?transport=tcp"] {
        let error = fails(1, ["ls", &format!("nfs://{nowhere}/{rest}")]);
        assert!(error.contains("cannot connect") && !error.contains("version"), "{error}");
        assert_eq!(error.matches("127.0.0.1:1").count(), 1, "{error}");
    }
    let error = fails(1, ["ls", &url(&server, &server.rdma, "", "version=4.1")]);
    assert!(error.contains("version=4.1: the server does not serve version 4 of NFS"), "{error}");
}

#[test]
fn a_mount_port_without_mount_is_told() {
    let scratch = tempfile::tempdir().unwrap();
    let server = start(scratch.path(), "3,4.0,4.1,4.2", &[]);
    for version in ["4.0", "4.1", "4.2"] {
        let output = run(["ls", &url(&server, &server.rdma, "", &format!("version={version}"))]);
        let expected = format!("rpcrdma: mountport= has no effect with version={version}, which needs no MOUNT\n");
        assert_eq!(said(&output), expected);
    }
    for version in ["3", "auto"] {
        assert_eq!(said(&run(["ls", &url(&server, &server.rdma, "", &format!("version={version}"))])), "");
    }
}

/// `mv` needs one session, and two URLs share it if both allow its version.
#[test]
fn urls_share_a_session_that_both_allow() {
    let scratch = tempfile::tempdir().unwrap();
    let server = start(scratch.path(), "3,4.0,4.1,4.2", &[]);
    let of = |path: &str, rest: &str| format!("nfs://{}/{path}?{rest}", server.rdma);
    let port = server.mount.rsplit_once(':').unwrap().1;
    let of_3 = |path: &str, rest: &str| of(path, &format!("{rest}mountport={port}"));
    run(["mv", &of("below/file", "version=4.2"), &of_3("moved", "")]);
    run(["mv", &of("moved", ""), &of("below/file", "version=4.2")]);
    run(["mv", &of_3("below/file", ""), &of_3("moved", "version=3&")]);
    for (here, there) in [
        (of("moved", "version=4.1"), of("x", "version=4.2")),
        (of_3("moved", "version=3&"), of("x", "")),
        (of("moved", "uid=7&gid=7"), of("x", "")),
        (of("moved", "rpcrdma=1"), of("x", "")),
    ] {
        let error = fails(1, ["mv", &here, &there]);
        assert!(!server_has(scratch.path(), "x"), "{error}");
    }
}

fn server_has(scratch: &Path, name: &str) -> bool {
    served(scratch).join(name).exists()
}

#[test]
fn ping_tells_the_session_and_the_features() {
    let scratch = tempfile::tempdir().unwrap();
    let server = start(scratch.path(), "3,4.0,4.1,4.2", &[]);
    for rest in ["", "rpcrdma=1", "transport=tcp"] {
        let to = if rest == "transport=tcp" { server.tcp.as_ref().unwrap() } else { &server.rdma };
        for path in ["", "below", "below/file"] {
            let nfs = told(&url(&server, to, path, rest));
            let session = &nfs["session"];
            assert_eq!((&nfs["lease_s"], &session["back_channel"]), (&90.into(), &"works".into()), "{nfs}");
            assert!(
                session["slots"].as_u64().unwrap() > 1 && session["max_operations"].as_u64().unwrap() >= 8,
                "{nfs}"
            );
            assert!(session["max_call"].as_u64().unwrap() > 1 << 20, "{nfs}");
            for feature in ["seek", "allocate", "deallocate", "copy", "clone"] {
                assert_eq!(nfs["features"][feature], true, "{feature} at {path}: {nfs}");
            }
            assert!(nfs["features"]["xattr"].is_boolean() && nfs["features"]["acl"].is_boolean(), "{nfs}");
        }
        let older = told(&url(&server, to, "", &format!("version=4.1&{rest}")));
        assert_eq!((&older["version"], &older["features"]["seek"]), (&"4.1".into(), &false.into()));
        let oldest = told(&url(&server, to, "", &format!("version=4.0&{rest}")));
        assert!(oldest["version"] == "4.0" && oldest["session"].is_null(), "{oldest}");
    }
    assert_eq!(fs::read(served(scratch.path()).join("below/file")).unwrap(), b"contents", "nothing is changed");
    let output = run(["ping", "-v", "-c", "1", &url(&server, &server.rdma, "", "nconnect=2")]);
    let text = String::from_utf8(output.stdout).unwrap();
    for part in [
        "over RDMA in",
        "by 2 connections",
        "NFS version 4.2; the server serves 3, 4.0, 4.1, 4.2\n",
        "session of 64 slots",
        "back channel stands",
        "features: ",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let missing = told(&url(&server, &server.rdma, "none", ""));
    assert!(missing["features_error"].as_str().unwrap().contains("no such file"), "{missing}");
}
