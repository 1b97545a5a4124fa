//! The command serves NFS version 4: which ports it opens, what it prints, and that sessions belong to the process's
//! connections.

mod common;

#[path = "nfs4/caller.rs"]
mod caller;
#[path = "nfs4/defaults.rs"]
mod defaults;
#[path = "nfs4/exports.rs"]
mod exports;
#[path = "nfs4/host_locks.rs"]
mod host_locks;
#[path = "nfs4/journals.rs"]
mod journals;

use caller::Caller;
use common::{Server, rpcrdma, served};
use rpcrdma_env::tokio_env;
use rpcrdma_nfs::v4::{self, Args, SessionId, Status, ops::Sequence};
use rpcrdma_oncrpc::{Client, SysAuth, SysCredential};
use serde_json::Value;
use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    path::Path,
    process::Stdio,
    sync::Arc,
    time::{Duration, Instant},
};

/// How long metrics that are updated once a second may take to appear.
const PATIENCE: Duration = Duration::from_secs(30);

/// The value of exactly this series; `None` while the server does not report it.
fn value(address: &str, series: &str) -> Option<f64> {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: here\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' ')?.parse().ok())
}

async fn wait_for(address: &str, series: &str, wanted: f64) {
    let begin = Instant::now();
    loop {
        let found = value(address, series);
        if found == Some(wanted) {
            return;
        }
        assert!(begin.elapsed() < PATIENCE, "{series} is {found:?} instead of {wanted}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

fn start(scratch: &Path, more: &[&str]) -> (Server, String) {
    let mut all = vec!["--tcp", "127.0.0.1:0", "--metrics", "127.0.0.1:0", "--threads", "2"];
    all.extend(more);
    let server = Server::start(&served(scratch), &scratch.join("state"), &all);
    let metrics = server.metrics();
    (server, metrics)
}

/// If two connections had the same number, the end of one would end the other's session.
#[tokio::test(flavor = "multi_thread")]
async fn sessions_belong_to_connections_until_these_end_over_both_transports() {
    let scratch = tempfile::tempdir().unwrap();
    let (server, metrics) = start(scratch.path(), &["--nfs", "4.1,4.2"]);
    let (env, tcp) = (tokio_env().unwrap(), server.tcp.as_ref().unwrap());
    // Each is the first connection of its transport.
    let (over_tcp, over_rdma) = (Caller::over_tcp(tcp, &env).await, Caller::over_rdma(&server.rdma, &env).await);
    let session = over_tcp.session(b"over TCP").await;
    over_tcp.use_session(session).await;
    let session = over_rdma.session(b"over RDMA").await;
    over_rdma.use_session(session).await;
    wait_for(&metrics, "rpcrdma_nfs4_sessions", 2.0).await;
    wait_for(&metrics, "rpcrdma_nfs4_clients", 2.0).await;
    wait_for(&metrics, "rpcrdma_nfs4_session_connections", 2.0).await;
    drop(over_tcp);
    wait_for(&metrics, "rpcrdma_nfs4_session_connections", 1.0).await;
    drop(over_rdma);
    wait_for(&metrics, "rpcrdma_nfs4_session_connections", 0.0).await;
    wait_for(&metrics, "rpcrdma_nfs4_sessions", 2.0).await;
    let counted = |operation, status| {
        let labels = format!("{{operation=\"{operation}\",status=\"{status}\"}}");
        value(&metrics, &format!("rpcrdma_nfs4_operations_total{labels}"))
    };
    assert_eq!(counted("EXCHANGE_ID", "OK"), Some(2.0));
    assert_eq!(counted("CREATE_SESSION", "OK"), Some(2.0));
    assert_eq!(counted("SEQUENCE", "OK"), Some(2.0));
    assert_eq!(counted("PUTROOTFH", "OK"), Some(2.0));
    let timed = |operation: &str| {
        value(&metrics, &format!("rpcrdma_nfs4_operation_seconds_count{{operation=\"{operation}\"}}"))
    };
    assert_eq!([timed("EXCHANGE_ID"), timed("GETFH")], [Some(2.0), None], "what takes no time is not timed");
    assert_eq!(server.stop(), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_refused_is_counted_by_its_status() {
    let scratch = tempfile::tempdir().unwrap();
    let (server, metrics) = start(scratch.path(), &["--nfs", "4.1"]);
    let env = tokio_env().unwrap();
    let caller = Caller::over_tcp(server.tcp.as_ref().unwrap(), &env).await;
    let sequence = Sequence { session: SessionId([7; 16]), sequence: 1, slot: 0, highest_slot: 0, cache: false };
    let ops = || vec![Args::Sequence(sequence), Args::PutRootFh];
    assert_eq!(caller.compound(1, ops()).await.status, Status::BADSESSION);
    assert_eq!(caller.compound(1, vec![Args::PutRootFh]).await.status, Status::OP_NOT_IN_SESSION);
    // The server does not speak minor versions that --nfs does not name.
    assert_eq!(caller.compound(2, ops()).await.status, Status::MINOR_VERS_MISMATCH);
    let counted = |labels: &str| value(&metrics, &format!("rpcrdma_nfs4_operations_total{{{labels}}}"));
    assert_eq!(counted("operation=\"SEQUENCE\",status=\"BADSESSION\""), Some(1.0));
    assert_eq!(counted("operation=\"PUTROOTFH\",status=\"OP_NOT_IN_SESSION\""), Some(1.0));
    assert_eq!(counted("operation=\"SEQUENCE\",status=\"OK\""), Some(0.0));
    // Version 3 is another version of the same program.
    let of_3 =
        Client::new(caller.0.transport().clone(), Arc::new(SysAuth::new(SysCredential::default())), v4::PROGRAM, 3);
    assert!(of_3.null().await.is_err());
    assert!(caller.0.null().await.is_ok());
    assert_eq!(server.stop(), Some(0));
}

/// The first lines of a server with these options, and whether it had MOUNT's port open.
fn said(scratch: &Path, more: &[&str]) -> (Vec<String>, bool) {
    // An address that nothing else here uses: a port of it that was free a moment ago still is.
    let mountd = TcpListener::bind("127.0.0.12:0").unwrap().local_addr().unwrap().to_string();
    let mut command = rpcrdma();
    command.arg("serve").arg(served_in(scratch)).arg("--state").arg(scratch.join("state"));
    command.args(["--listen", "127.0.0.1:0", "--mountd", &mountd]).args(more);
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let first: Vec<_> =
        (0..if more.contains(&"--json") { 1 } else { 2 }).map(|_| lines.next().unwrap().unwrap()).collect();
    let is_open = TcpStream::connect(&mountd).is_ok();
    child.kill().unwrap();
    child.wait().unwrap();
    (first, is_open)
}

fn served_in(scratch: &Path) -> std::path::PathBuf {
    let directory = scratch.join("served");
    let _ = std::fs::create_dir(&directory);
    directory
}

#[test]
fn the_shortest_mount_command_is_told_and_mount_is_served_for_version_3_alone() {
    let scratch = tempfile::tempdir().unwrap();
    let port = |line: &str| {
        let (_, rest) = line.split_once("port=").unwrap();
        rest.split([',', ' ']).next().unwrap().to_owned()
    };
    for (versions, has_mount) in [(&["--nfs", "4.2"][..], false), (&["--nfs", "3,4.1,4.2"], true), (&[], true)] {
        let (lines, is_open) = said(scratch.path(), versions);
        let wanted = format!("mount from Linux: mount -t nfs -o proto=rdma,port={} 127.0.0.1:/ /mnt", port(&lines[1]));
        assert_eq!((&lines[1], is_open), (&wanted, has_mount));
        assert_eq!(lines[0].contains("MOUNT"), has_mount, "{lines:?}");
    }
    let (lines, is_open) = said(scratch.path(), &["--nfs", "3"]);
    assert!(
        lines[1].contains(" -o vers=3,proto=rdma,port=") && lines[1].contains("mountport=") && is_open,
        "{lines:?}"
    );
    let (lines, _) = said(scratch.path(), &["--nfs", "4.1", "--json"]);
    let ready: Value = serde_json::from_str(&lines[0]).unwrap();
    let ready = &ready["ready"];
    assert_eq!((&ready["nfs"], &ready["mountd"]), (&serde_json::json!(["4.1"]), &serde_json::json!([])));
    assert!(ready["mount"].as_str().unwrap().starts_with("mount -t nfs -o proto=rdma,port="), "{ready}");
}
