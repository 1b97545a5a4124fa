//! The server recalls a client's delegation whenever others want the file, over every transport; their operations are
//! done after the return, and not before.

use crate::{
    called::{BOTH, Calls, PATIENCE, READ, Session, WAYS, connect},
    others::{BEFORE, BY_HOLDER, DEEDS, Deed, Others},
    start,
};
use rpcrdma_nfs::v4::{Handle, StateId, Status, VERSION, callback, ops::share};
use std::{fs, os::unix::fs::PermissionsExt as _, pin::pin, time::Duration};
use tokio::time::timeout;

/// How long a test waits to see that something is not done.
const A_WHILE: Duration = Duration::from_millis(30);

/// A client that holds delegations.
struct Holder {
    session: Session,
    calls: Calls,
}

impl Holder {
    /// Waits for the recall of a delegation.
    async fn recalled(&mut self, what: &str, (file, delegation): &(Handle, StateId)) {
        let call =
            timeout(PATIENCE, self.calls.recv()).await.unwrap_or_else(|_| panic!("{what}: nobody calls")).unwrap();
        let [callback::Args::Sequence(sequence), callback::Args::Recall(recall)] = &call.ops[..] else {
            panic!("{what}: {call:?}");
        };
        assert_eq!((call.minor, sequence.session), (2, self.session.session), "{what}");
        assert_eq!((&recall.file, recall.state), (file, *delegation), "{what}");
        assert!(!recall.truncate, "{what}: nobody cuts it");
    }

    /// Another wants a file; the server recalls it, the holder returns it, and then the deed is done.
    async fn gives_back(&mut self, others: &Others, deed: Deed, name: &str, writes: bool) {
        let what = format!("{name}, {}", if writes { "held for reading" } else { "held for writing" });
        let access = if writes { READ | share::WANT_READ } else { BOTH | share::WANT_WRITE };
        let held = self.session.delegated(name, access).await;
        let (file, delegation) = &held;
        let mut doing = pin!(others.perform(deed, name, file, writes));
        tokio::select! {
            () = &mut doing => panic!("{what}: it is still delegated"),
            () = self.recalled(&what, &held) => {}
        }
        assert!(timeout(A_WHILE, &mut doing).await.is_err(), "{what}: it is still delegated");
        others.check_before(deed, name);
        if !writes {
            // Only the holder has these bytes so far.
            self.session.write(file, *delegation, BY_HOLDER).await;
        }
        assert_eq!(self.session.give_back(file, *delegation).await, Status::OK, "{what}");
        timeout(PATIENCE, doing).await.unwrap_or_else(|_| panic!("{what}: it is back"));
        others.check(deed, name, writes);
        assert!(self.calls.try_recv().is_err(), "{what}: once");
    }
}

/// One function for each transport, so that the three tests run at the same time.
async fn recalled_by_all(way: crate::called::Way) {
    let scratch = tempfile::tempdir().unwrap();
    let server = start(scratch.path(), &["--nfs", "2,3,4.0,4.1,4.2"]);
    let served = scratch.path().join("served");
    let env = rpcrdma_env::tokio_env().unwrap();
    let (client, calls) = connect(&server, way, VERSION, &env).await;
    let mut holder = Holder { session: Session::new(client, "holder").await, calls };
    let others = Others::new(&server, served.clone(), way, &env).await;
    for deed in DEEDS {
        for writes in [true, false] {
            // After a recall the server does not delegate a file for a while: so each deed has its own file.
            let name = format!("{deed:?} {writes}");
            fs::write(served.join(&name), BEFORE).unwrap();
            fs::set_permissions(served.join(&name), fs::Permissions::from_mode(0o666)).unwrap();
            holder.gives_back(&others, deed, &name, writes).await;
        }
    }
}

/// proves: ULB-6.2-a, NFS4-8881-10.4.4-a, NFS4-HOST-d, NFS2-LATER-a
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_delegated_over_tcp_is_recalled_by_all() {
    recalled_by_all(WAYS[0]).await;
}

/// proves: ULB-6.2-a, NFS4-8881-10.4.4-a, NFS4-HOST-d, NFS2-LATER-a
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_delegated_over_version_1_is_recalled_by_all() {
    recalled_by_all(WAYS[1]).await;
}

/// proves: ULB-6.2-a, NFS4-8881-10.4.4-a, NFS4-HOST-d, NFS2-LATER-a
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_delegated_over_version_2_is_recalled_by_all() {
    recalled_by_all(WAYS[2]).await;
}
