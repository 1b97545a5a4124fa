//! How the threads of connections wait: for messages alone, because a time limit makes the kernel start and stop a
//! timer for each message.

use rpcrdma::{Client, Server, server::Spoken};
use std::{
    fs::{Permissions, set_permissions},
    net::Ipv4Addr,
    os::unix::fs::PermissionsExt as _,
    path::Path,
    time::Duration,
};
use tokio::time::{Instant, sleep};

const ANY: (Ipv4Addr, u16) = (Ipv4Addr::LOCALHOST, 0);
/// How long an idle thread is watched: longer than anything that happens once a second.
const WATCHED: Duration = Duration::from_millis(2500);
/// The number of the system call by which tokio waits, which is epoll_wait or epoll_pwait.
const EPOLL: [&str; 2] = if cfg!(target_arch = "x86_64") { ["232", "281"] } else { ["22", "22"] };

/// The time limit with which a thread waits for messages now, in milliseconds; -1 is none.
fn limit(task: &Path) -> Option<i32> {
    let call = std::fs::read_to_string(task.join("syscall")).ok()?;
    let words: Vec<_> = call.split_whitespace().collect();
    let limit = EPOLL.contains(words.first()?).then(|| words.get(4))??;
    Some(u64::from_str_radix(limit.strip_prefix("0x")?, 16).ok()? as i32)
}

/// Server and client have a thread that has a connection and nothing else to do.
#[tokio::test]
async fn threads_of_connections_wait_without_a_time_limit() {
    let (served, state) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    set_permissions(served.path(), Permissions::from_mode(0o777)).unwrap();
    let builder = Server::builder().directory("/", served.path()).state(state.path()).listen(ANY).tcp(ANY);
    let builder = builder.configure(|options| {
        options.mountd = vec![ANY.into()];
        options.threads = Some(1);
    });
    let running = builder.metrics().start().await.unwrap();
    let url = |spoken| format!("nfs://{}/?nconnect=2", running.addresses(spoken)[0]);
    let rdma = Client::connect(&url(Spoken::Rdma)).await.unwrap();
    let tcp = Client::connect(&(url(Spoken::Nfs) + "&transport=tcp")).await.unwrap();
    for client in [&rdma, &tcp] {
        client.write("/file", "content".into()).await.unwrap();
    }
    let (mut waits, begin) = (0, Instant::now());
    while begin.elapsed() < WATCHED {
        sleep(Duration::from_millis(10)).await;
        for task in std::fs::read_dir("/proc/self/task").unwrap().flatten() {
            let name = std::fs::read_to_string(task.path().join("comm")).unwrap_or_default();
            let name = name.trim_end();
            if name != "rpcrdma-0" && !name.starts_with("nconnect") {
                continue;
            }
            if let Some(limit) = limit(&task.path()) {
                assert_eq!(limit, -1, "{name} waits at most so many milliseconds");
                waits += 1;
            }
        }
    }
    // Three threads, nearly always.
    assert!(waits > 100, "{waits}");
    rdma.close().await;
    tcp.close().await;
    running.shutdown().await;
}
