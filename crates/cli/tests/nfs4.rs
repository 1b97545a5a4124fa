//! The command serves NFS version 4: which ports it opens, what it says, and that sessions belong to connections of the process.

mod common;

use bytes::Bytes;
use common::{Server, rpcrdma, served};
use rpcrdma::Tracing;
use rpcrdma_env::{Env, Heap, tokio_env};
use rpcrdma_iwarp::{Config, Iwarp};
use rpcrdma_nfs::v4::{
    self, Args, Arguments, ClientName, List, Outcome, Results, SessionId, Status, Verifier,
    ops::{ChannelAttributes, ClientOwner, CreateSession, ExchangeId, Sequence, StateProtection},
};
use rpcrdma_oncrpc::{
    Client, ClientTransport, SysAuth, SysCredential,
    tcp::{self, TcpConnector},
};
use rpcrdma_xdr::ItemData;
use serde_json::Value;
use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    path::Path,
    process::Stdio,
    sync::Arc,
    time::{Duration, Instant},
};

/// How long what is counted each second may take to be told.
const PATIENCE: Duration = Duration::from_secs(30);
/// COMPOUND.
const COMPOUND: u32 = 1;
/// The most octets of any reply here.
const REPLY_OCTETS: usize = 4_096;

/// The value of a series that is told as it stands here; none while it is not told.
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

/// A client with a connection of its own, which ends when it is dropped.
struct Caller(Client);

impl Caller {
    async fn over_tcp(address: &str, env: &Env) -> Self {
        let connector = Arc::new(TcpConnector::new(address.parse().unwrap()));
        let (transport, driver) = tcp::connect(connector, Arc::new(Heap), env, Default::default()).await.unwrap();
        tokio::spawn(driver);
        Self::of(transport)
    }

    async fn over_rdma(address: &str, env: &Env) -> Self {
        let fabric = Arc::new(Iwarp::new(env.clone(), Config::default()));
        let connecting = rpcrdma::connect(fabric, address.parse().unwrap(), env, Default::default(), Arc::new(Tracing));
        let (transport, driver) = connecting.await.unwrap();
        tokio::spawn(driver);
        Self::of(transport)
    }

    fn of(transport: Arc<dyn ClientTransport>) -> Self {
        Self(Client::new(transport, Arc::new(SysAuth::new(SysCredential::default())), v4::PROGRAM, v4::VERSION))
    }

    async fn compound(&self, minor: u32, ops: Vec<Args>) -> Results<ItemData> {
        self.0.call_inline(COMPOUND, &Arguments::new(minor, ops), REPLY_OCTETS).await.unwrap()
    }

    async fn session(&self, name: &'static [u8]) -> SessionId {
        let owner = ClientOwner { verifier: Verifier([1; 8]), name: ClientName(Bytes::from_static(name)) };
        let exchange = ExchangeId { owner, flags: 0, protection: StateProtection::None, implementation: None };
        let known = match &self.compound(2, vec![Args::ExchangeId(exchange)]).await.results[..] {
            [Outcome::ExchangeId(Ok(known))] => known.clone(),
            other => panic!("{other:?}"),
        };
        let channel = ChannelAttributes {
            header_padding: 0,
            max_request: 65_536,
            max_response: 65_536,
            max_response_cached: 2_048,
            max_operations: 8,
            max_requests: 4,
            rdma_ird: None,
        };
        let create = CreateSession {
            client: known.client,
            sequence: known.sequence,
            flags: 0,
            fore: channel,
            back: channel,
            callback_program: 0x4000_0000,
            callback_security: List(Vec::new()),
        };
        match &self.compound(2, vec![Args::CreateSession(create)]).await.results[..] {
            [Outcome::CreateSession(Ok(created))] => created.session,
            other => panic!("{other:?}"),
        }
    }

    /// The first call of a session.
    async fn use_session(&self, session: SessionId) {
        let sequence = Sequence { session, sequence: 1, slot: 0, highest_slot: 0, cache: false };
        let said = self.compound(2, vec![Args::Sequence(sequence), Args::PutRootFh, Args::GetFh]).await;
        assert_eq!((said.status, said.results.len()), (Status::OK, 3));
    }
}

fn start(scratch: &Path, more: &[&str]) -> (Server, String) {
    let metrics = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let mut all = vec!["--tcp", "127.0.0.1:0", "--metrics", &metrics, "--threads", "2"];
    all.extend(more);
    let server = Server::start(&served(scratch), &scratch.join("state"), &all);
    (server, metrics)
}

/// Were two connections of one number, the end of one would take the other's session from it.
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
    assert_eq!(value(&metrics, "rpcrdma_nfs4_operation_seconds_count{operation=\"GETFH\"}"), Some(2.0));
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
    // Minor versions that --nfs does not name are not spoken.
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

/// The first lines of a server that is told these options, and whether it had MOUNT's port open.
fn said(scratch: &Path, more: &[&str]) -> (Vec<String>, bool) {
    let mountd = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
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
    for (versions, has_mount) in [("4.2", false), ("3,4.1,4.2", true)] {
        let (lines, is_open) = said(scratch.path(), &["--nfs", versions]);
        let wanted = format!("mount from Linux: mount -t nfs -o proto=rdma,port={} 127.0.0.1:/ /mnt", port(&lines[1]));
        assert_eq!((&lines[1], is_open), (&wanted, has_mount));
        assert_eq!(lines[0].contains("MOUNT"), has_mount, "{lines:?}");
    }
    let (lines, is_open) = said(scratch.path(), &[]);
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
