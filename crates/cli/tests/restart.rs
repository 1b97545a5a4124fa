//! A server that is killed in the middle of a copy costs time and nothing else.

mod common;

use common::{PATIENCE, Server, contents, describe, rpcrdma, served};
use std::{
    fs,
    process::Stdio,
    thread::sleep,
    time::{Duration, Instant},
};

/// How many times the server is killed during the copy.
const KILLS: usize = 3;

fn killed_during_put(url: impl Fn(&Server, &str) -> String, tcp: bool) {
    let scratch = tempfile::tempdir().unwrap();
    let (local, served, state) =
        (scratch.path().join("local"), scratch.path().join("served"), scratch.path().join("state"));
    fs::create_dir(&served).unwrap();
    fs::create_dir(&local).unwrap();
    for number in 0..200 {
        fs::write(local.join(format!("small-{number}")), contents(number * 37)).unwrap();
    }
    for number in 0..6 {
        fs::write(local.join(format!("large-{number}")), contents((64 << 20) + number)).unwrap();
    }
    let more: &[&str] = if tcp { &["--no-root-squash", "--tcp", "127.0.0.1:0"] } else { &["--no-root-squash"] };
    let mut server = Server::start(&served, &state, more);
    let (rdma, mount, nfs) = (server.rdma.clone(), server.mount.clone(), server.tcp.clone());
    let begin = Instant::now();
    let mut put = rpcrdma()
        .args(["put".as_ref(), "-r".as_ref(), local.as_os_str(), url(&server, "copy").as_ref()])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut kills = 0;
    while kills < KILLS && put.try_wait().unwrap().is_none() {
        // Kill it first while data are on their way, later at other moments.
        if kills == 0 && !served.join("copy/large-0").exists() {
            sleep(Duration::from_millis(1));
            continue;
        }
        sleep(Duration::from_millis(30 * kills as u64));
        server.kill();
        kills += 1;
        sleep(Duration::from_millis(50));
        let mut again = vec!["--no-root-squash"];
        if let Some(nfs) = &nfs {
            again.extend(["--tcp", nfs]);
        }
        server = Server::start_at(&served, &state, &rdma, &mount, &again);
        sleep(Duration::from_millis(150));
    }
    let output = put.wait_with_output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{error}");
    assert!(kills > 0, "the copy was over in {:?}, before the server could be killed", begin.elapsed());
    assert_eq!(describe(&served.join("copy")), describe(&local));
}

#[test]
fn a_put_over_rdma_survives_kills_of_the_server() {
    killed_during_put(Server::url, false);
}

#[test]
fn a_put_in_version_1_survives_kills_of_the_server() {
    killed_during_put(|server, path| server.url_in("1", path), false);
}

#[test]
fn a_put_over_tcp_survives_kills_of_the_server() {
    killed_during_put(Server::tcp_url, true);
}

/// In version 4 a server that starts again waits for clients that held something. Clients that have ended in order are
/// not among them, whenever the server was stopped: nobody waits for the ten minutes.
#[test]
fn nobody_waits_after_a_restart_for_clients_that_have_left() {
    let scratch = tempfile::tempdir().unwrap();
    let (served, state) = (served(scratch.path()), scratch.path().join("state"));
    let file = scratch.path().join("file");
    fs::write(&file, contents(5_000)).unwrap();
    let serve = || Server::start(&served, &state, &["--no-root-squash", "--grace", "600"]);
    for (round, version) in ["4.2", "4.1", "4.2"].into_iter().enumerate() {
        let server = serve();
        let name = format!("file-{round}");
        let mut put = rpcrdma()
            .args(["put".as_ref(), file.as_os_str(), format!("{}&version={version}", server.url(&name)).as_ref()])
            .spawn()
            .unwrap();
        let begin = Instant::now();
        let status = loop {
            if let Some(status) = put.try_wait().unwrap() {
                break status;
            }
            if begin.elapsed() > PATIENCE {
                put.kill().unwrap();
                panic!("in round {round} a file waits for clients that have left");
            }
            sleep(Duration::from_millis(10));
        };
        assert!(status.success());
        // Stop at once, before the server's periodic work.
        assert_eq!(server.stop(), Some(0));
        assert_eq!(fs::read(served.join(name)).unwrap(), contents(5_000));
    }
}
