//! `--host-locks`: programs of the server's machine and clients of version 4 exclude each other.

use super::{
    caller::Session,
    common::{Server, served},
};
use rpcrdma_env::tokio_env;
use rpcrdma_nfs::v4::{
    Args, Handle, Outcome, StateId, Status,
    ops::{self, LockKind, Locker, NewLocker},
};
use rustix::fs::{FlockOperation, fcntl_lock, flock};
use std::fs::{self, File, OpenOptions};

const EXCLUSIVE: FlockOperation = FlockOperation::NonBlockingLockExclusive;

async fn lock(client: &Session, file: &Handle, open: StateId) -> Status {
    let new = NewLocker { open_sequence: 0, open_state: open, lock_sequence: 0, owner: client.owner() };
    let lock =
        ops::Lock { kind: LockKind::Write, reclaim: false, offset: 0, length: u64::MAX, locker: Locker::New(new) };
    match client.on(file, Args::Lock(Box::new(lock))).await {
        Outcome::Lock(Ok(_)) => Status::OK,
        failed => failed.status(),
    }
}

/// A server, a client that has a file open, and the same file opened by a program of this machine.
async fn open(scratch: &std::path::Path, more: &[&str]) -> (Server, Session, Handle, StateId, File) {
    let directory = served(scratch);
    fs::write(directory.join("file"), b"contents").unwrap();
    let more = [&["--tcp", "127.0.0.1:0", "--no-root-squash"], more].concat();
    let server = Server::start(&directory, &scratch.join("state"), &more);
    let client = Session::begin(server.tcp.as_ref().unwrap(), b"a", &tokio_env().unwrap()).await;
    let (root, file) = (client.walk("").await.unwrap(), client.walk("file").await.unwrap());
    let state = client.open(&root, "file", ops::share::BOTH).await.unwrap();
    let here = OpenOptions::new().read(true).write(true).open(directory.join("file")).unwrap();
    (server, client, file, state, here)
}

/// proves: NFS4-HOST-a, NFS4-HOST-b
#[tokio::test(flavor = "multi_thread")]
async fn a_program_of_the_host_and_a_client_exclude_each_other() {
    let scratch = tempfile::tempdir().unwrap();
    let (server, client, file, state, here) = open(scratch.path(), &[]).await;
    fcntl_lock(&here, EXCLUSIVE).unwrap();
    assert_eq!(lock(&client, &file, state).await, Status::DENIED);
    fcntl_lock(&here, FlockOperation::Unlock).unwrap();
    assert_eq!(lock(&client, &file, state).await, Status::OK);
    assert!(fcntl_lock(&here, EXCLUSIVE).is_err(), "the client has it");
    flock(&here, EXCLUSIVE).expect("flock(2) knows nothing of it");
    assert_eq!(server.stop(), Some(0));
    fcntl_lock(&here, EXCLUSIVE).expect("nobody has it any more");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_host_locks_they_do_not() {
    let scratch = tempfile::tempdir().unwrap();
    let (server, client, file, state, here) = open(scratch.path(), &["--host-locks", "off"]).await;
    fcntl_lock(&here, EXCLUSIVE).unwrap();
    assert_eq!(lock(&client, &file, state).await, Status::OK);
    assert_eq!(server.stop(), Some(0));
}
