//! The server's calls in a capture of the server's: our own reader shows them, and tshark reads the frames.

use crate::{
    called::{PATIENCE, READ, Session, WRITE, Way, connect, until_done},
    common::run,
    start,
};
use rpcrdma::Versions;
use rpcrdma_nfs::v4::{
    Status, VERSION,
    ops::{OpenHow, share},
};
use serde_json::Value;
use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
};
use tokio::time::timeout;

/// What tshark prints of the packets that `filter` lets through. `None` if there is no tshark here.
fn tshark(file: &Path, filter: &str) -> Option<String> {
    let mut command = Command::new("tshark");
    command.args(["-o", "tcp.try_heuristic_first:TRUE", "-Y", filter, "-r"]).arg(file);
    let output = command.args(["-T", "fields", "-e", "_ws.col.Info"]).stderr(Stdio::null()).output().ok()?;
    assert!(output.status.success(), "tshark: {:?}", output.status);
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// A delegation is recalled, and returned; the capture of all that.
async fn recalled(versions: Versions, scratch: &Path) -> std::path::PathBuf {
    let capture = scratch.join("server.pcapng");
    let server = start(scratch, &["--capture", capture.to_str().unwrap()]);
    let env = rpcrdma_env::tokio_env().unwrap();
    let way = Way::Rdma(versions);
    fs::write(scratch.join("served/file"), "contents").unwrap();
    let (client, mut calls) = connect(&server, way, VERSION, &env).await;
    let holder = Session::new(client, "holder").await;
    let (file, delegation) = holder.delegated("file", READ | share::WANT_READ).await;
    let (client, _) = connect(&server, way, VERSION, &env).await;
    let other = Session::new(client, "other").await;
    let returned = async {
        timeout(PATIENCE, calls.recv()).await.expect("it is recalled").unwrap();
        assert_eq!(holder.give_back(&file, delegation).await, Status::OK);
    };
    let open = async || other.open_with("file", WRITE | share::WANT_NONE, OpenHow::NoCreate).await;
    tokio::join!(until_done(open), returned);
    assert_eq!(server.stop(), Some(0));
    capture
}

/// The capture shows, of the connection that the holder made, a call from the server's port and the client's answer.
fn shows_the_recall(capture: &Path) {
    let shown = run(["decode", "--procedure", "CB_RECALL", capture.to_str().unwrap()]);
    let shown = String::from_utf8(shown.stdout).unwrap();
    assert!(
        shown.lines().any(|line| line.contains("Call NFS callback 1 CB_COMPOUND ") && line.contains(" CB_RECALL ")),
        "{shown}"
    );
    assert!(shown.lines().any(|line| line.contains("Reply NFS4_OK ") && line.contains(" CB_RECALL")), "{shown}");
    let lines = run(["decode", "--json", "--procedure", "CB_RECALL", capture.to_str().unwrap()]);
    let lines = String::from_utf8(lines.stdout).unwrap();
    let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let of =
        |kind: &str| lines.iter().find(|line| line.to_string().contains(kind)).unwrap_or_else(|| panic!("{lines:#?}"));
    eprintln!("{lines:#?}");
    let (call, reply) = (of("CB_RECALL"), lines.last().unwrap());
    assert_eq!((&call["from"], &call["to"]), (&reply["to"], &reply["from"]), "the client answers the server");
}

/// proves: ULB-6.2-a
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_recall_and_its_answer_are_in_a_capture_of_version_1() {
    let scratch = tempfile::tempdir().unwrap();
    let capture = recalled(Versions::One, scratch.path()).await;
    shows_the_recall(&capture);
    let Some(malformed) = tshark(&capture, "_ws.malformed") else {
        eprintln!("tshark is not installed here: only our own reader has checked the capture");
        return;
    };
    assert_eq!(malformed, "");
    let calls = tshark(&capture, "nfs.cb_procedure").unwrap();
    assert!(calls.contains("CB_RECALL"), "{calls}");
    eprintln!("{calls}");
}

/// proves: ULB-6.2-a
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_recall_and_its_answer_are_in_a_capture_of_version_2() {
    let scratch = tempfile::tempdir().unwrap();
    let capture = recalled(Versions::Two, scratch.path()).await;
    shows_the_recall(&capture);
    // It knows nothing of version 2: to it these are data of RDMAP.
    if let Some(malformed) = tshark(&capture, "_ws.malformed") {
        assert_eq!(malformed, "");
    }
}
