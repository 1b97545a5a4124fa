//! The end of a server inside a program that goes on: what it had is free afterwards.

use rpcrdma::{
    Client, Server,
    server::{Builder, Running, Spoken, Stopped},
    service::{self, Program},
};
use std::{
    fs::{Permissions, set_permissions},
    net::{Ipv4Addr, SocketAddr},
    os::unix::fs::PermissionsExt as _,
    time::{Duration, Instant},
};
use tempfile::TempDir;
use tokio::{
    sync::mpsc::{UnboundedSender, unbounded_channel},
    time::{sleep, timeout},
};

const ANY: (Ipv4Addr, u16) = (Ipv4Addr::LOCALHOST, 0);
/// The program's number and version.
const SILENT: (u32, u32) = (0x2000_0009, 1);
/// How long calls under way may take at the end.
const DRAIN: Duration = Duration::from_millis(100);
/// How long a step may take that takes some milliseconds.
const PATIENCE: Duration = Duration::from_secs(10);

/// A program that tells of calls and answers none.
fn silent(begun: UnboundedSender<()>) -> Program {
    Program::new(SILENT).procedure(1, move |(): ()| {
        let _ = begun.send(());
        std::future::pending::<()>()
    })
}

/// A server of that program, over RDMA and TCP, and a call that it is executing.
async fn with_a_call_under_way() -> (Running, [SocketAddr; 2]) {
    let (begun, mut beginnings) = unbounded_channel();
    let builder = Server::builder().service(silent(begun)).listen(ANY).tcp(ANY);
    let running = builder.configure(|options| options.drain = DRAIN).start().await.unwrap();
    let [rdma, tcp] = [Spoken::Rdma, Spoken::Nfs].map(|spoken| running.addresses(spoken)[0]);
    let client = service::connect(rdma, SILENT).await.unwrap();
    tokio::spawn(async move {
        let _ = client.call_inline::<()>(1, &(), 0).await;
    });
    timeout(PATIENCE, beginnings.recv()).await.unwrap().unwrap();
    (running, [rdma, tcp])
}

/// A server at these addresses.
async fn bind([rdma, tcp]: [SocketAddr; 2]) -> Result<Server, rpcrdma::Error> {
    let (begun, _) = unbounded_channel();
    Server::builder().service(silent(begun)).listen(rdma).tcp(tcp).bind().await
}

#[tokio::test]
async fn shutdown_cuts_calls_that_do_not_end() {
    let (running, addresses) = with_a_call_under_way().await;
    let begin = Instant::now();
    assert_eq!(running.shutdown().await, Stopped::TimedOut);
    assert!(begin.elapsed() >= DRAIN, "the call had its time");
    bind(addresses).await.unwrap();
}

#[tokio::test]
async fn a_server_whose_handle_is_dropped_stops_at_once() {
    let (running, addresses) = with_a_call_under_way().await;
    drop(running);
    let free = async {
        while bind(addresses).await.is_err() {
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(PATIENCE, free).await.expect("the ports are free");
}

/// A directory to serve, and one for the server's state.
fn directories() -> (TempDir, TempDir) {
    let (served, state) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    set_permissions(served.path(), Permissions::from_mode(0o777)).unwrap();
    (served, state)
}

fn serving(served: &TempDir, state: &TempDir) -> Builder {
    let builder = Server::builder().directory("/", served.path()).state(state.path()).listen(ANY);
    builder.configure(|options| options.mountd = vec![ANY.into()])
}

/// Writes a file over a server, and reads it.
async fn use_files(running: &Running) {
    let url = format!("nfs://{}/", running.addresses(Spoken::Rdma)[0]);
    let client = Client::connect(&url).await.unwrap();
    client.write("/file", "content".into()).await.unwrap();
    assert_eq!(client.read("/file").await.unwrap(), "content");
    client.close().await;
}

#[tokio::test]
async fn a_server_that_has_stopped_can_be_started_again() {
    let (served, state) = directories();
    for _ in 0..3 {
        let running = serving(&served, &state).metrics().start().await.unwrap();
        timeout(PATIENCE, use_files(&running)).await.unwrap();
        assert_eq!(running.shutdown().await, Stopped::Drained);
    }
}

/// Threads of this process whose names begin so.
fn threads(name: &str) -> usize {
    let names = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    names
        .filter(|task| std::fs::read_to_string(task.path().join("comm")).is_ok_and(|own| own.starts_with(name)))
        .count()
}

#[tokio::test]
async fn the_threads_of_a_client_end_with_it() {
    let (served, state) = directories();
    let running = serving(&served, &state).start().await.unwrap();
    let url = format!("nfs://{}/?nconnect=3", running.addresses(Spoken::Rdma)[0]);
    for _ in 0..2 {
        let client = Client::connect(&url).await.unwrap();
        assert_eq!(threads("nconnect"), 2, "each connection but the first has a thread");
        client.close().await;
        let ended = async {
            while threads("nconnect") > 0 {
                sleep(Duration::from_millis(10)).await;
            }
        };
        timeout(PATIENCE, ended).await.expect("the threads end");
    }
}

#[test]
fn the_programs_own_blocking_work_does_not_keep_files_waiting() {
    let (served, state) = directories();
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().max_blocking_threads(1).build().unwrap();
    let (hold, held_up) = std::sync::mpsc::channel::<()>();
    runtime.spawn_blocking(move || held_up.recv());
    let used = runtime.block_on(async {
        let running = serving(&served, &state).start().await.unwrap();
        timeout(PATIENCE, use_files(&running)).await
    });
    drop(hold);
    used.expect("files are read and written");
}
