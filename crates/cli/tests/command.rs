//! The command's output and exit codes.

mod common;

use common::{Server, fails, rpcrdma, run, served};
use serde_json::Value;
use std::{
    fs,
    io::{BufRead, BufReader},
    os::unix::fs::symlink,
    path::Path,
    process::{Command, Stdio},
};

#[test]
fn wrong_usage_is_exit_code_2() {
    for args in [&["serve"][..], &["ls"], &["ls", "http://host/"], &["nonsense"], &["ping", "nfs://h/", "-c", "0"]] {
        fails(2, args);
    }
    assert!(run(["--help"]).stdout.starts_with(b"Serve and use NFS over RPC-over-RDMA"));
    assert!(run(["serve", "--help"]).stdout.windows(8).any(|octets| octets == b"--listen"));
}

#[test]
fn a_server_that_cannot_serve_says_why_in_one_line() {
    let (scratch, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let state = elsewhere.path().join("state");
    let state = state.to_str().unwrap();
    let directory = scratch.path().to_str().unwrap();
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = port.local_addr().unwrap().to_string();
    for (args, part) in [
        (vec!["serve", "/nowhere", "--state", state], "/nowhere: No such file"),
        (vec!["serve", "/etc/passwd", "--state", state], "/etc/passwd: not a directory"),
        (vec!["serve", directory, "--state", state, "--listen", &taken], "cannot listen on"),
        (vec!["serve", directory, "--state", "/proc/nowhere"], "state directory"),
    ] {
        let error = fails(1, &args);
        assert!(error.contains(part), "{args:?}: {error}");
        assert_eq!(error.trim_end().lines().count(), 1, "{error}");
    }
}

#[test]
fn a_ready_server_says_how_to_use_it() {
    let scratch = tempfile::tempdir().unwrap();
    let mut server = rpcrdma()
        .args(["serve".as_ref(), served(scratch.path()).as_os_str()])
        .args(["--listen", "127.0.0.1:0", "--mountd", "127.0.0.1:0", "--metrics", "127.0.0.1:0"])
        .args(["--log", "json", "--state"])
        .arg(scratch.path().join("state"))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(server.stdout.take().unwrap()).lines();
    let ready = lines.next().unwrap().unwrap();
    let (_, metrics) = ready.split_once(", metrics on ").expect("where the metrics are");
    assert!(ready.starts_with("ready: ") && std::net::TcpStream::connect(metrics).is_ok(), "{ready}");
    let mount = lines.next().unwrap().unwrap();
    assert!(mount.contains("mount -t nfs -o proto=rdma,port="), "{mount}");
    let list = lines.next().unwrap().unwrap();
    let url = list.split('\'').nth(1).unwrap();
    run(["ls", url]);
    assert!(Command::new("kill").args(["-INT", &server.id().to_string()]).status().unwrap().success());
    let output = server.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    let log = json_lines(&output.stderr);
    assert_eq!(log.last().unwrap()["fields"]["message"], "stopped");
}

fn json_lines(output: &[u8]) -> Vec<Value> {
    output
        .split(|&octet| octet == b'\n')
        .filter(|line| !line.is_empty())
        .map(|line| serde_json::from_slice(line).unwrap())
        .collect()
}

#[test]
fn files_are_listed_and_described() {
    let scratch = tempfile::tempdir().unwrap();
    let served = scratch.path().join("served");
    fs::create_dir_all(served.join("b/c")).unwrap();
    fs::write(served.join("a"), b"12345").unwrap();
    fs::write(served.join("b/d"), b"").unwrap();
    symlink("a", served.join("z")).unwrap();
    let server = Server::start(&served, &scratch.path().join("state"), &["--no-root-squash"]);

    assert_eq!(run(["ls", &server.url("")]).stdout, b"a\nb\nz\n");
    assert_eq!(run(["ls", &server.url("a")]).stdout, b"a\n");
    let recursive = String::from_utf8(run(["ls", "-R", &server.url("")]).stdout).unwrap();
    assert_eq!(recursive, "/:\na\nb\nz\n\n/b:\nc\nd\n\n/b/c:\n");
    let long = String::from_utf8(run(["ls", "-l", &server.url("")]).stdout).unwrap();
    assert!(long.lines().next().unwrap().starts_with("-rw-r--r--"), "{long}");
    assert!(long.ends_with("z -> a\n"), "{long}");
    let json = json_lines(&run(["ls", "--json", &server.url("")]).stdout);
    assert_eq!((json.len(), &json[0]["size"], &json[2]["target"]), (3, &5.into(), &"a".into()));

    let stat = json_lines(&run(["stat", "--json", &server.url("z")]).stdout);
    assert_eq!((&stat[0]["type"], &stat[0]["target"]), (&"symbolic link".into(), &"a".into()));
    assert!(String::from_utf8(run(["stat", &server.url("a")]).stdout).unwrap().contains("size: 5 bytes"));
    let missing = fails(1, ["stat", &server.url("none")]);
    assert!(missing.contains("no such file"), "{missing}");
    assert_eq!(server.stop(), Some(0));
}

#[test]
fn a_server_answers_pings_and_an_absent_one_is_named() {
    let scratch = tempfile::tempdir().unwrap();
    let server = Server::start(&served(scratch.path()), &scratch.path().join("state"), &["--tcp", "127.0.0.1:0"]);
    for url in [server.url(""), server.tcp_url("")] {
        let json = json_lines(&run(["ping", "-c", "3", "-i", "0", "-v", "--json", &url]).stdout);
        let summary = json.last().unwrap();
        assert_eq!(summary["answered"], 3);
        assert!(summary["median_us"].as_f64().unwrap() > 0.0);
    }
    let url = server.url("");
    assert_eq!(server.stop(), Some(0));
    let error = fails(1, ["ping", "-c", "1", &url]);
    assert!(error.contains("nothing listens there"), "{error}");
}

#[test]
fn a_client_that_is_not_allowed_is_told_so_at_once() {
    let scratch = tempfile::tempdir().unwrap();
    let served = served(scratch.path());
    fs::write(served.join("secret"), b"secret").unwrap();
    let more = ["--allow", "198.51.100.0/24", "--tcp", "127.0.0.1:0"];
    let server = Server::start(&served, &scratch.path().join("state"), &more);
    for url in [server.url_3(""), server.tcp_url_3("")] {
        let error = fails(1, ["ls", &url]);
        assert!(error.contains("exports nothing, not /") && !error.contains("198.51.100"), "{error}");
    }
    let error = fails(1, ["ls", &server.tcp_url("")]);
    assert!(error.contains("did not accept the credential") && !error.contains("198.51.100"), "{error}");
    for command in [&["ls"][..], &["ping", "-c", "1"]] {
        let error = fails(1, [command, &[&server.url("")]].concat());
        assert!(error.contains("rejected the connection request"), "{error}");
    }
    assert_eq!(server.stop(), Some(0));
}

/// proves: NFS3-ESC-d
#[test]
fn state_below_the_served_directory_is_refused_where_it_was_asked_for_and_else_hidden() {
    let scratch = tempfile::tempdir().unwrap();
    let home = served(scratch.path());
    let text = |path: &Path| path.to_str().unwrap().to_owned();
    for state in [home.clone(), home.join("state"), home.join("not/there/yet")] {
        let error = fails(1, ["serve", &text(&home), "--listen", "127.0.0.1:0", "--state", &text(&state)]);
        assert!(error.contains("lies in the directory that is served"), "{error}");
    }
    assert_eq!(fs::read_dir(&home).unwrap().count(), 0, "nothing was made there");
    // A user serves a home directory. Root's default is elsewhere: these variables count only for ordinary users.
    let state = home.join(".local/state");
    fs::create_dir_all(&state).unwrap();
    fs::write(state.join("another"), b"x").unwrap();
    let server = Server::start_by_default(&home, &state);
    assert!(state.join("rpcrdma/secret").exists());
    assert_eq!(run(["ls", &server.url(".local/state")]).stdout, b"another\n");
    for path in ["rpcrdma", "rpcrdma/secret"] {
        let error = fails(1, ["cat", &server.url(&format!(".local/state/{path}"))]);
        assert!(error.contains("no such file"), "{error}");
    }
    assert_eq!(server.stop(), Some(0));
}

#[test]
fn a_read_only_server_on_ipv6_is_read_and_not_written() {
    let scratch = tempfile::tempdir().unwrap();
    let served = scratch.path().join("served");
    fs::create_dir(&served).unwrap();
    fs::write(served.join("file"), b"contents").unwrap();
    let state = scratch.path().join("state");
    let server = Server::start_at(&served, &state, "[::1]:0", "[::1]:0", &["--read-only", "--tcp", "[::1]:0"]);
    let of_3 = [(server.url_3("file"), "NFS3ERR_ROFS"), (server.tcp_url_3("file"), "NFS3ERR_ROFS")];
    let of_4 = [(server.url("file"), "NFS4ERR_ROFS"), (server.tcp_url("file"), "NFS4ERR_ROFS")];
    for (url, status) in of_3.into_iter().chain(of_4) {
        assert_eq!(run(["cat", &url]).stdout, b"contents");
        let file = scratch.path().join("new");
        fs::write(&file, b"new").unwrap();
        let error = fails(1, ["put", file.to_str().unwrap(), &url]);
        assert!(error.contains(status), "{error}");
    }
    assert_eq!(fs::read(served.join("file")).unwrap(), b"contents");
    assert_eq!(server.stop(), Some(0));
}

/// The reader of a command's output may close the pipe: this is no failure, and prints nothing.
#[test]
fn a_reader_that_goes_away_is_no_failure() {
    let scratch = tempfile::tempdir().unwrap();
    let served = served(scratch.path());
    for number in 0..3_000 {
        fs::write(served.join(format!("a-name-that-takes-room-{number}")), b"contents").unwrap();
    }
    let server = Server::start(&served, &scratch.path().join("state"), &[]);
    let url = server.url("");
    let file = server.url("a-name-that-takes-room-1");
    for args in [
        &["ping", "-v", "-c", "3", "-i", "0.01", &url][..],
        &["ping", "--json", "-c", "3", "-i", "0.01", &url],
        &["ls", &url],
        &["ls", "-l", &url],
        &["stat", &file],
        &["cat", &file],
        &["df", &url],
    ] {
        let mut command = rpcrdma().args(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(command.stdout.take());
        let output = command.wait_with_output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(!error.contains("panicked") && output.status.success(), "{args:?}: {error}");
    }
}
