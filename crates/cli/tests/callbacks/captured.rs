//! The server's calls in a capture that the server wrote: our own reader shows them, and tshark reads those of version
//! 1.

use crate::{
    called::{PATIENCE, READ, Session, WRITE, Way, connect, until_done},
    common::run,
    start,
};
use rpcrdma_nfs::v4::{
    Status, VERSION,
    ops::{OpenHow, share},
};
use rpcrdma_transport::Versions;
use serde_json::Value;
use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
};
use tokio::time::timeout;

/// What tshark prints of the packets that `filter` lets through. `None` if tshark is not installed.
fn tshark(file: &Path, filter: &str) -> Option<String> {
    let mut command = Command::new("tshark");
    command.args(["-o", "tcp.try_heuristic_first:TRUE", "-Y", filter, "-r"]).arg(file);
    let output = command.args(["-T", "fields", "-e", "_ws.col.Info"]).stderr(Stdio::null()).output().ok()?;
    assert!(output.status.success(), "tshark: {:?}", output.status);
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Lets the server recall a delegation, which the client returns. Returns the capture.
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

/// Checks that the capture shows, on the connection that the holder made, a call from the server's port and the
/// client's reply.
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
    let of = |kind: &str| {
        let found: Vec<_> = lines.iter().filter(|line| line["rpc"]["type"] == kind).collect();
        assert_eq!(found.len(), 1, "{kind}: {lines:#?}");
        found[0]
    };
    let (call, reply) = (of("call"), of("reply"));
    assert_eq!(call["call"]["requester"], "responder", "the end that has accepted the connection calls: {call:#}");
    assert!(call["from"].is_string() && call["to"].is_string(), "{call:#}");
    assert_eq!((&call["from"], &call["to"]), (&reply["to"], &reply["from"]), "the client answers");
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
    // 4 is CB_RECALL, 0 a call and 1 its reply.
    for (kind, words) in [(0, "Call"), (1, "Reply")] {
        let filter = format!("nfs.cb.operation == 4 && rpc.msgtyp == {kind}");
        let found = tshark(&capture, &filter).unwrap();
        let says = |word| found.contains(word);
        assert!(found.lines().count() == 1 && says(words) && says("CB_COMPOUND"), "{kind}: {found:?}");
    }
}

/// proves: ULB-6.2-a
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_recall_and_its_answer_are_in_a_capture_of_version_2() {
    let scratch = tempfile::tempdir().unwrap();
    // tshark takes headers of version 2 for version 1, and finds them malformed: so only our own reader reads them.
    shows_the_recall(&recalled(Versions::Two, scratch.path()).await);
}
