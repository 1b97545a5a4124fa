//! Copies that go on after the reply to COPY, over every transport: the server tells the client when they end, or the
//! client cancels them.

use crate::{
    called::{BOTH, Calls, PATIENCE, PAUSE, READ, Session, WAYS, connect},
    common::contents,
    start,
};
use rpcrdma_nfs::v4::{
    Args, Handle, List, Outcome, StateId, Status, VERSION,
    callback::{self, OffloadOutcome},
    ops::{self, OpenHow, open_result, share},
};
use std::{
    fs,
    os::unix::fs::{FileExt as _, MetadataExt as _},
    path::Path,
};
use tokio::time::timeout;

/// More than the server copies before it answers, in bytes.
const LONG: usize = (6 << 20) + 5;
/// Pieces of data of 4 KiB, each behind a hole: so many that the server copies for longer than one call takes.
const PIECES: u64 = 16_384;
const BETWEEN: u64 = 256 << 10;

/// A client with two open files.
struct World {
    session: Session,
    calls: Calls,
    from: (Handle, StateId),
    to: (Handle, StateId),
}

impl World {
    async fn open(session: &Session, name: &str, access: u32) -> (Handle, StateId) {
        let opening = async {
            loop {
                let (file, opened) =
                    session.open_with(name, access | share::WANT_NONE, OpenHow::NoCreate).await.unwrap();
                // The server needs a moment to learn that it can call the client; a client that it cannot call gets its
                // reply only when everything is copied.
                if opened.flags & open_result::MAY_NOTIFY_LOCK != 0 {
                    return (file, opened.state);
                }
                tokio::time::sleep(PAUSE).await;
            }
        };
        timeout(PATIENCE, opening).await.expect("the client can be called")
    }

    /// Begins to copy the whole file.
    async fn begin(&self) -> StateId {
        let copy = ops::CopyRange {
            source_state: self.from.1,
            state: self.to.1,
            source_offset: 0,
            offset: 0,
            count: 0,
            consecutive: true,
            synchronous: false,
            source_servers: List::default(),
        };
        let put = |file: &Handle| Args::PutFh(ops::PutFh { file: file.clone() });
        let call = vec![put(&self.from.0), Args::SaveFh, put(&self.to.0), Args::Copy(Box::new(copy))];
        match self.session.last(call).await {
            Outcome::Copy(Ok(ok)) => ok.response.callback.expect("it goes on"),
            other => panic!("{other:?}"),
        }
    }

    async fn status(&self, state: StateId) -> Result<u64, Status> {
        let asked = Args::OffloadStatus(ops::OffloadStatus { state });
        match self.session.on(&self.to.0, asked).await {
            Outcome::OffloadStatus(answer) => answer.map(|ok| ok.count),
            other => panic!("{other:?}"),
        }
    }
}

/// proves: ULB-6.2-a, NFS4-7862-16.1.3-a, NFS4-7862-4.8-b
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_end_of_a_long_copy_is_told_over_every_transport_and_one_that_is_cancelled_is_not() {
    let scratch = tempfile::tempdir().unwrap();
    let server = start(scratch.path(), &[]);
    let served = scratch.path().join("served");
    let env = rpcrdma_env::tokio_env().unwrap();
    let octets = contents(LONG);
    let endless = fs::File::create(served.join("endless")).unwrap();
    for piece in 1..=PIECES {
        endless.write_all_at(&[7; 4_096], piece * BETWEEN).unwrap();
    }
    let blocks = |path: &Path| fs::metadata(path).unwrap().blocks();
    for way in WAYS {
        let place = |name: &str| served.join(format!("{name} {way:?}"));
        fs::write(place("from"), &octets).unwrap();
        for name in ["to", "into"] {
            fs::write(place(name), "").unwrap();
        }
        let (client, calls) = connect(&server, way, VERSION, &env).await;
        let session = Session::new(client, &format!("{way:?}")).await;
        let from = World::open(&session, &format!("from {way:?}"), READ).await;
        let to = World::open(&session, &format!("to {way:?}"), BOTH).await;
        let mut world = World { session, calls, from, to };

        let state = world.begin().await;
        let call = timeout(PATIENCE, world.calls.recv()).await.expect("the client is told").unwrap();
        let [callback::Args::Sequence(_), callback::Args::Offload(offload)] = &call.ops[..] else {
            panic!("{way:?}: {call:?}");
        };
        assert_eq!((&offload.file, offload.state), (&world.to.0, state), "{way:?}");
        let OffloadOutcome::Done(response) = &offload.outcome else { panic!("{way:?}: {offload:?}") };
        let said = (response.count, response.committed, response.callback);
        assert_eq!(said, (LONG as u64, ops::Stability::FileSync, None), "{way:?}");
        assert!(fs::read(place("to")).unwrap() == octets, "{way:?}");
        // After a moment the server has the client's reply, and forgets the copy.
        let forgets = async {
            while world.status(state).await != Err(Status::BAD_STATEID) {
                tokio::time::sleep(PAUSE).await;
            }
        };
        timeout(PATIENCE, forgets).await.expect("a copy that was told is forgotten");

        world.from = World::open(&world.session, "endless", READ).await;
        world.to = World::open(&world.session, &format!("into {way:?}"), BOTH).await;
        let state = world.begin().await;
        let cancel = Args::OffloadCancel(ops::OffloadCancel { state });
        assert_eq!(world.session.on(&world.to.0, cancel).await.status(), Status::OK, "{way:?}");
        let copied = blocks(&place("into"));
        assert!(copied < blocks(&served.join("endless")), "{way:?}: {copied}");
        assert_eq!(world.status(state).await, Err(Status::BAD_STATEID), "{way:?}");
        tokio::time::sleep(10 * PAUSE).await;
        assert_eq!(blocks(&place("into")), copied, "{way:?}: nobody copies any more");
        assert!(world.calls.try_recv().is_err(), "{way:?}: who has ended it is not told");
    }
}
