//! The transport over software iWARP on the loopback interface.

mod common;

use common::{Log, bulk, client, finish_read, read, router, start_read, store, swap, write};
use rpcrdma_env::{Env, tokio_env};
use rpcrdma_fabric::Fabric;
use rpcrdma_iwarp::{Config, Iwarp};
use rpcrdma_oncrpc::{ClientTransport, TransportError};
use rpcrdma_transport::{
    ClientOptions, ConnectionHandle, Event, MessageKind, Server, ServerMemory, ServerOptions, Versions, connect,
};
use std::{
    future::poll_fn,
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Duration,
};
use tokio::task::JoinHandle;

/// The versions of a client and its server.
type Speaks = (Versions, Versions);

/// Either version, and a client of both versions with a server of one.
const EVERY: [Speaks; 3] =
    [(Versions::One, Versions::Auto), (Versions::Two, Versions::Auto), (Versions::Auto, Versions::One)];

/// Serves on `at`; the task ends the listener and all connections when it is aborted.
async fn serve(
    env: &Env,
    at: SocketAddr,
    speaks: Speaks,
) -> (SocketAddr, JoinHandle<()>, Arc<Mutex<Vec<ConnectionHandle>>>) {
    let fabric = Iwarp::new(env.clone(), Config::default());
    let handler = router(env, &store(env));
    let memory = ServerMemory::budget(64 << 20);
    let log = Arc::new(Log::default());
    let mut options = ServerOptions::default();
    options.versions = speaks.1;
    let server = Server::new(&fabric, handler, memory, env.clone(), options, log);
    let mut listener = fabric.listen(at).await.unwrap();
    let address = listener.local_addr();
    let handles = Arc::new(Mutex::new(Vec::new()));
    let kept = handles.clone();
    let task = tokio::spawn(async move {
        let mut connections = tokio::task::JoinSet::new();
        loop {
            let pending = poll_fn(|cx| listener.poll_accept(cx)).await.unwrap();
            let server = server.clone();
            let kept = kept.clone();
            connections.spawn(async move {
                let (handle, driver) = server.accept(pending).await.unwrap();
                kept.lock().unwrap().push(handle);
                let _ = driver.await;
            });
        }
    });
    (address, task, handles)
}

async fn transport(env: &Env, server: SocketAddr, speaks: Speaks) -> (Arc<dyn ClientTransport>, Arc<Log>) {
    let log = Arc::new(Log::default());
    let fabric = Arc::new(Iwarp::new(env.clone(), Config::default()));
    let mut options = ClientOptions::default();
    options.versions = speaks.0;
    let (transport, driver) = connect(fabric, server, env, options, log.clone()).await.unwrap();
    tokio::spawn(driver);
    (transport, log)
}

#[tokio::test]
async fn calls_of_every_form_over_ipv4_and_ipv6() {
    for (at, speaks) in EVERY.into_iter().flat_map(|speaks| [("127.0.0.1:0", speaks), ("[::1]:0", speaks)]) {
        let env = tokio_env().unwrap();
        let (address, _task, _) = serve(&env, at.parse().unwrap(), speaks).await;
        let (transport, log) = transport(&env, address, speaks).await;
        let client = client(transport);
        client.null().await.unwrap();
        for len in [0, 1, 8191, 8193, 100_001, 1 << 20] {
            assert!(read(&client, len, 5).await || len < 8192);
            write(&client, len, 6).await;
            bulk(&client, len.min(1 << 19)).await;
            swap(&client, len / 2, len / 3).await;
        }
        assert!(log.count(|event| matches!(event, Event::Invalidated { by_peer: true, .. })) > 0);
    }
}

#[tokio::test]
async fn many_calls_at_once() {
    for speaks in EVERY {
        let env = tokio_env().unwrap();
        let (address, _task, _) = serve(&env, "127.0.0.1:0".parse().unwrap(), speaks).await;
        let (transport, log) = transport(&env, address, speaks).await;
        let client = client(transport);
        let mut tasks = Vec::new();
        for k in 0..100u32 {
            let client = client.clone();
            tasks.push(tokio::spawn(async move {
                write(&client, k as usize * 3001, k).await;
                read(&client, k as usize * 3001, k).await;
            }));
        }
        for task in tasks {
            task.await.unwrap();
        }
        assert_eq!(log.count(|event| matches!(event, Event::Closed { .. })), 0);
    }
}

#[tokio::test]
async fn a_server_that_comes_back_gets_the_calls_again() {
    for speaks in EVERY {
        let env = tokio_env().unwrap();
        let (address, task, _) = serve(&env, "127.0.0.1:0".parse().unwrap(), speaks).await;
        let (transport, log) = transport(&env, address, speaks).await;
        let client = client(transport);
        client.null().await.unwrap();
        // The call leaves at once, long before the reply.
        let sent = || log.count(|event| matches!(event, Event::Sent(about) if about.kind == MessageKind::Call));
        let before = sent();
        let call = start_read(&client, 100_000, 1, Duration::from_secs(1));
        while sent() == before {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        task.abort();
        let _ = task.await;
        let (_, _task, _) = serve(&env, address, speaks).await;
        let (placed, retransmitted) = finish_read(call, 100_000, 1).await.unwrap();
        assert!(placed && retransmitted);
    }
}

#[tokio::test]
async fn cancelling_gives_memory_back_and_draining_closes() {
    for speaks in EVERY {
        let env = tokio_env().unwrap();
        let (address, _task, handles) = serve(&env, "127.0.0.1:0".parse().unwrap(), speaks).await;
        let (transport, log) = transport(&env, address, speaks).await;
        let client = client(transport);
        client.null().await.unwrap();
        let call = start_read(&client, 100_000, 1, Duration::from_secs(100));
        tokio::time::sleep(Duration::from_millis(20)).await;
        assert_eq!(call.cancel().await.buffers.len(), 1);
        read(&client, 100_000, 2).await;
        let call = start_read(&client, 100_000, 3, Duration::from_millis(100));
        tokio::time::sleep(Duration::from_millis(20)).await;
        let dispatched = log.count(|event| matches!(event, Event::Closed { .. }));
        assert_eq!(dispatched, 0);
        handles.lock().unwrap()[0].drain();
        finish_read(call, 100_000, 3).await.unwrap();
    }
}

#[tokio::test]
async fn nobody_there_is_said_at_once() {
    let env = tokio_env().unwrap();
    let (address, task, _) = serve(&env, "127.0.0.1:0".parse().unwrap(), EVERY[0]).await;
    task.abort();
    let _ = task.await;
    let fabric = Arc::new(Iwarp::new(env.clone(), Config::default()));
    let refused = connect(fabric, address, &env, ClientOptions::default(), Arc::new(Log::default())).await;
    assert!(matches!(refused, Err(TransportError::Unreachable { .. })), "{refused:?}");
}

/// Callers that have their reply call again before the client looks at the other replies, so that the server can begin
/// with the new calls.
#[tokio::test]
async fn callers_have_their_turn_between_replies() {
    for (speaks, callers) in EVERY.into_iter().flat_map(|speaks| [(speaks, 8), (speaks, 32)]) {
        let env = tokio_env().unwrap();
        let (address, _task, _) = serve(&env, "127.0.0.1:0".parse().unwrap(), speaks).await;
        let (transport, log) = transport(&env, address, speaks).await;
        let client = client(transport);
        client.null().await.unwrap();
        let tasks: Vec<_> = (0..callers)
            .map(|_| {
                let client = client.clone();
                tokio::spawn(async move {
                    for _ in 0..8 {
                        client.null().await.unwrap();
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
        let events = log.0.lock().unwrap();
        let answered = |event: &&Event| matches!(event, Event::Answered { .. });
        let told = events.iter().filter(|event| answered(event) || matches!(event, Event::Sent(_)));
        let runs: Vec<usize> = told
            .collect::<Vec<_>>()
            .chunk_by(|a, b| answered(a) == answered(b))
            .filter(|run| answered(&run[0]))
            .map(<[_]>::len)
            .collect();
        // In the last round no caller calls again.
        let longest = runs.split_last().and_then(|(_, before)| before.iter().max()).copied();
        assert_eq!(longest, Some(callers / 2), "replies that were handed out together: {runs:?}");
    }
}
