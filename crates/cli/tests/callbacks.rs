//! The server calls our own clients: over TCP, and over software iWARP in both versions of RPC-over-RDMA.

mod common;

#[path = "callbacks/called.rs"]
mod called;
#[path = "callbacks/captured.rs"]
mod captured;
#[path = "callbacks/copies.rs"]
mod copies;
#[path = "callbacks/kerberos.rs"]
mod kerberos;
#[path = "callbacks/others.rs"]
mod others;
#[path = "callbacks/recalls.rs"]
mod recalls;
#[path = "callbacks/sizes.rs"]
mod sizes;

use called::{PATIENCE, Session, WAYS, connect};
use common::{Server, served};
use rpcrdma_nfs::v4::{
    Args, Status, VERSION, callback,
    ops::{self, LockKind, open_result},
};
use std::path::Path;
use tokio::time::timeout;

/// A server of the folder "served" over all transports.
fn start(scratch: &Path, more: &[&str]) -> Server {
    let all = [&["--tcp", "127.0.0.1:0", "--no-root-squash"], more].concat();
    Server::start(&served(scratch), &scratch.join("state"), &all)
}

/// proves: ULB-6.2-a
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn our_clients_are_called_over_every_transport() {
    let scratch = tempfile::tempdir().unwrap();
    let server = start(scratch.path(), &[]);
    let env = rpcrdma_env::tokio_env().unwrap();
    for way in WAYS {
        let name = format!("{way:?}");
        let (first, _calls) = connect(&server, way, VERSION, &env).await;
        let has = Session::new(first, &format!("has {way:?}")).await;
        let (second, mut calls) = connect(&server, way, VERSION, &env).await;
        let waits = Session::new(second, &format!("waits {way:?}")).await;
        let (file, opened) = has.open(&name).await;
        let locked = has.lock(&file, opened.state, LockKind::Write).await.unwrap();
        // The server needs a moment to learn of the reply to CB_NULL.
        let opened = timeout(PATIENCE, async {
            loop {
                let (_, opened) = waits.open(&name).await;
                if opened.flags & open_result::MAY_NOTIFY_LOCK != 0 {
                    break opened;
                }
            }
        });
        let opened = opened.await.expect("the client can be called");
        assert_eq!(waits.lock(&file, opened.state, LockKind::WriteWaiting).await, Err(Status::DENIED));
        let unlock = ops::LockU { kind: LockKind::Write, sequence: 0, state: locked, offset: 0, length: u64::MAX };
        let put = Args::PutFh(ops::PutFh { file: file.clone() });
        assert!(has.call(vec![put, Args::LockU(unlock)]).await.iter().all(|outcome| outcome.status() == Status::OK));
        let call = timeout(PATIENCE, calls.recv()).await.expect("the client is told").unwrap();
        let [callback::Args::Sequence(sequence), callback::Args::NotifyLock(notify)] = &call.ops[..] else {
            panic!("{way:?}: {call:?}");
        };
        assert_eq!((call.minor, sequence.session, sequence.sequence), (2, waits.session, 1), "{way:?}");
        assert_eq!((&notify.file, &notify.owner), (&file, &waits.owner("l")), "{way:?}");
        waits.lock(&file, opened.state, LockKind::WriteWaiting).await.unwrap();
    }
}
