//! Servers that share a state directory, and servers that start again: each finds its own journal of clients.

use super::{caller::Session, common::Server};
use rpcrdma_env::tokio_env;
use rpcrdma_nfs::v4::Status;
use std::{fs, path::Path};

fn start(scratch: &Path, name: &str) -> Server {
    let directory = scratch.join(name);
    fs::create_dir_all(&directory).unwrap();
    fs::write(directory.join("file"), b"contents").unwrap();
    Server::start(&directory, &scratch.join("state"), &["--tcp", "127.0.0.1:0", "--no-root-squash"])
}

async fn client(server: &Server) -> Session {
    Session::begin(server.tcp.as_ref().unwrap(), b"a", &tokio_env().unwrap()).await
}

/// How many journals there are.
fn journals(scratch: &Path) -> usize {
    let entries = fs::read_dir(scratch.join("state")).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.starts_with("v4-clients") && !name.contains('.')).count()
}

/// proves: NFS4-JOURNAL-a
#[tokio::test(flavor = "multi_thread")]
async fn servers_of_one_user_run_beside_each_other_and_are_two_to_clients() {
    let scratch = tempfile::tempdir().unwrap();
    let (one, other) = (start(scratch.path(), "one"), start(scratch.path(), "other"));
    let (of_one, of_other) = (client(&one).await.known, client(&other).await.known);
    assert_ne!(of_one.server, of_other.server, "else a client would use one by the connection to the other");
    assert_ne!(of_one.scope, of_other.scope);
    assert_eq!(journals(scratch.path()), 2);
    assert_eq!((one.stop(), other.stop()), (Some(0), Some(0)));
}

/// The ports differ each time; handles of version 3 depend on the secret only, as before.
/// proves: NFS4-JOURNAL-a
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_starts_again_finds_its_own_journal() {
    let scratch = tempfile::tempdir().unwrap();
    let other = start(scratch.path(), "other");
    let one = start(scratch.path(), "one");
    let holder = client(&one).await;
    let root = holder.walk("").await.unwrap();
    assert!(holder.open(&root, "file", rpcrdma_nfs::v4::ops::share::READ).await.is_ok());
    one.kill();
    let again = start(scratch.path(), "one");
    assert_eq!(journals(scratch.path()), 2);
    // This server knows that a client may reclaim, so other clients wait; the second server knows no such client.
    let newcomer = Session::begin(again.tcp.as_ref().unwrap(), b"b", &tokio_env().unwrap()).await;
    assert_eq!(newcomer.known.server, holder.known.server, "the same server");
    let root = newcomer.walk("").await.unwrap();
    assert_eq!(newcomer.open(&root, "file", rpcrdma_nfs::v4::ops::share::READ).await, Err(Status::GRACE));
    let beside = client(&other).await;
    let root = beside.walk("").await.unwrap();
    assert!(beside.open(&root, "file", rpcrdma_nfs::v4::ops::share::READ).await.is_ok());
    assert_eq!((again.stop(), other.stop()), (Some(0), Some(0)));
}

/// The server uses the state directory of an earlier release unchanged: its secret makes the handles that clients of
/// version 3 hold.
#[test]
fn a_state_directory_of_before_is_gone_on_with() {
    let scratch = tempfile::tempdir().unwrap();
    let directory = scratch.path().join("one");
    fs::create_dir(&directory).unwrap();
    let state = scratch.path().join("state");
    let server = Server::start(&directory, &state, &["--nfs", "3"]);
    assert_eq!((server.stop(), journals(scratch.path())), (Some(0), 0));
    let secret = fs::read(state.join("secret")).unwrap();
    let server = start(scratch.path(), "one");
    assert_eq!((fs::read(state.join("secret")).unwrap(), journals(scratch.path())), (secret, 1));
    assert_eq!(server.stop(), Some(0));
}
