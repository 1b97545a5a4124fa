//! Compares the server's memory for idle and active connections with fixed limits, and checks that nothing remains of
//! them, and that silent clients cost no processor time. The tests count memory, descriptors and the ticks that the
//! system has counted for the server, and measure no time. docs/load.md explains the limits.

mod common;

use common::Server;
use rpcrdma_load::{
    clients::{Busy, Crowd, Dialler},
    resources::Resources,
};
use rpcrdma_transport::Versions;
use std::{fs, os::unix::fs::PermissionsExt, path::Path, time::Duration};

/// How many connections: enough that the cost of each is visible beside the server's basic needs, and few enough to
/// take seconds.
const CONNECTIONS: usize = 200;
/// What an idle connection may cost, in KiB. It costs 30: its state and task, 4.3 KiB to read into, and some 110 bytes
/// for each receive that is posted, of which version 1 has 65 and version 2 has 100. With the memory of the receives it
/// would be 290 and 430.
const IDLE_KIB: u64 = 48;
/// What an active connection may cost beyond that, in KiB, with so many calls of 16 KiB under way: arguments and
/// results of each, the receive of its call, a longer buffer to read into, and the framing of replies.
const ACTIVE_KIB: u64 = 16 + CALLS as u64 * (16 + 16 + 4);
/// Calls of a connection that are under way at a time.
const CALLS: usize = 4;
/// What work makes the server keep, in KiB, however many connections do it: 32 MiB of blocks of each size in the pool,
/// of which this work uses two, and replies kept for repeated calls.
const KEPT_KIB: u64 = 32 << 10;
/// What all further rounds together may add, in KiB: the allocator takes memory in pieces, some 3 MiB of it here. If
/// each of their connections left three KiB behind, it would be more.
const GROWTH_KIB: u64 = 10 << 10;
/// Rounds of connections that come and go. They do no work: how much of its pool the server needs at once, and keeps,
/// depends on chance, and would hide what connections leave.
const ROUNDS: usize = 20;
/// How long connections work. How much they do meanwhile is not judged.
const WORK: Duration = Duration::from_millis(150);
/// How long the server may take to free connections.
const PATIENCE: Duration = Duration::from_secs(30);

/// A server of an empty directory.
fn server(scratch: &Path) -> Server {
    let export = scratch.join("export");
    fs::create_dir(&export).unwrap();
    fs::set_permissions(&export, fs::Permissions::from_mode(0o777)).unwrap();
    // One address may have three quarters of the places.
    let places = (2 * CONNECTIONS).to_string();
    Server::start(&export, &scratch.join("state"), &["--max-connections", &places])
}

/// What the server holds after a moment without work.
async fn settled(server: &Server) -> Resources {
    tokio::time::sleep(Duration::from_millis(150)).await;
    Resources::of(server.pid()).unwrap()
}

async fn gather(dialler: &Dialler, server: &Server, versions: Versions, count: usize) -> Crowd {
    let at = (server.rdma.parse().unwrap(), server.mount.parse().unwrap());
    Crowd::gather(dialler, at, versions, count).await.unwrap()
}

async fn work(crowd: &Crowd, seed: u64) {
    let busy = Busy { depth: CALLS, pause: Duration::ZERO, lasts: WORK, seed };
    assert!(crowd.work(busy).await.unwrap().calls > 0);
}

/// Ends the connections, and waits until the server has freed their sockets.
async fn leave(crowd: Crowd, server: &Server, before: &Resources) -> Resources {
    drop(crowd);
    let (pid, most) = (server.pid(), before.sockets);
    let gone = tokio::task::spawn_blocking(move || Resources::wait_for_sockets(pid, most, PATIENCE));
    assert!(gone.await.unwrap().unwrap(), "sockets are left");
    settled(server).await
}

async fn connections_cost_what_is_stated(versions: Versions) {
    let scratch = tempfile::tempdir().unwrap();
    let server = server(scratch.path());
    let dialler = Dialler::new().unwrap();
    // By now the server keeps what any work makes it keep.
    let alone = settled(&server).await;
    let first = gather(&dialler, &server, versions, 1).await;
    work(&first, 1).await;
    let before = leave(first, &server, &alone).await;
    assert_eq!(before.sockets, alone.sockets);

    let crowd = gather(&dialler, &server, versions, CONNECTIONS).await;
    let idle = settled(&server).await;
    assert_eq!(idle.sockets, before.sockets + CONNECTIONS as u64, "one for each, and that of MOUNT has gone");
    let each = idle.octets_each(&before, CONNECTIONS) / 1024;
    println!("{versions:?}: {each} KiB for each idle connection");
    assert!(each <= IDLE_KIB, "{each} KiB for each idle connection, {IDLE_KIB} are stated");

    work(&crowd, 2).await;
    let active = Resources::of(server.pid()).unwrap();
    let each = active.octets_each(&before, CONNECTIONS) / 1024;
    println!("{versions:?}: {each} KiB for each active connection");
    let stated = IDLE_KIB + ACTIVE_KIB;
    assert!(each <= stated, "{each} KiB for each active connection, {stated} are stated");

    let kept = leave(crowd, &server, &before).await;
    let bound = before.anonymous_kib + CONNECTIONS as u64 * IDLE_KIB + KEPT_KIB;
    println!("{versions:?}: {} KiB are kept", kept.anonymous_kib);
    assert!(kept.anonymous_kib <= bound, "{} KiB are kept, {bound} are stated", kept.anonymous_kib);
    let most = kept.anonymous_kib + GROWTH_KIB;
    for round in 0..ROUNDS {
        let crowd = gather(&dialler, &server, versions, CONNECTIONS).await;
        let now = leave(crowd, &server, &before).await;
        println!("{versions:?}: {} KiB are kept", now.anonymous_kib);
        assert!(now.anonymous_kib <= most, "round {round}: {} KiB, {most} would do", now.anonymous_kib);
        assert_eq!(now.sockets, before.sockets, "round {round}");
    }
    // The server still serves.
    work(&gather(&dialler, &server, versions, 1).await, 99).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn connections_of_version_1_cost_what_is_stated_and_leave_nothing() {
    connections_cost_what_is_stated(Versions::One).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn connections_of_version_2_cost_what_is_stated_and_leave_nothing() {
    connections_cost_what_is_stated(Versions::Two).await;
}

/// While calls come one after the other the server looks for the next one before it sleeps. It stops when none comes.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn silent_clients_cost_no_processor_time() {
    /// How long the clients are silent, and what the server may need meanwhile for what it does by itself. A thread
    /// that went on looking would need a hundred ticks of 10 ms.
    const SILENT: Duration = Duration::from_secs(1);
    const TICKS: u64 = 10;
    let scratch = tempfile::tempdir().unwrap();
    let server = server(scratch.path());
    let dialler = Dialler::new().unwrap();
    let crowd = gather(&dialler, &server, Versions::One, 4).await;
    let busy = Busy { depth: 1, pause: Duration::ZERO, lasts: WORK, seed: 7 };
    assert!(crowd.work(busy).await.unwrap().calls > 0);
    settled(&server).await;
    let before = ticks(server.pid());
    tokio::time::sleep(SILENT).await;
    let used = ticks(server.pid()) - before;
    assert!(used <= TICKS, "{used} ticks in a second without a call");
}

/// The processor time of a process: the fields `utime` and `stime` of proc(5).
fn ticks(pid: u32) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let (_, fields) = stat.rsplit_once(')').unwrap();
    fields.split_whitespace().skip(11).take(2).map(|field| field.parse::<u64>().unwrap()).sum()
}
