//! Looking for what the server says that it has taken away, while other things happen.

use crate::{
    every::{contents, mode, name},
    house::{Fate, House, ops},
};
use rpcrdma_nfs::v4::{
    Op, Outcome,
    ops::{LockKind, Stability, sequence_status},
};
use rpcrdma_nfs_client::v4::{Access, How};
use std::time::Duration;

/// The server restarts when the client is about to ask about its stateids: what it reclaims on the way is not lost,
/// though nobody knows the old stateids any more.
#[tokio::test(start_paused = true)]
async fn what_is_reclaimed_while_losses_are_looked_for_is_not_lost() {
    for minor in 1..=2 {
        let house = House::new();
        let (nfs, wire) = house.client(minor).await;
        let root = nfs.root().await.unwrap().file;
        let how = How::Guarded(mode(0o644));
        let (opened, _) = nfs.open(&root, &name("file"), Access::Both, how).await.unwrap();
        nfs.lock(&opened, LockKind::Write, 0, 100).await.unwrap();
        wire.after(|_, results| {
            for outcome in &mut results.results {
                if let Outcome::Sequence(Ok(told)) = outcome {
                    told.status |= sequence_status::ADMIN_STATE_REVOKED;
                }
            }
            Fate::Arrives
        });
        nfs.read(&opened, 0, 10).await.unwrap();
        // It is looked at once, and again after a while.
        tokio::time::sleep(Duration::from_millis(100)).await;
        nfs.read(&opened, 0, 10).await.unwrap();
        wire.honest();
        house.restart(&[&wire]).await;
        wire.calls();
        tokio::time::sleep(Duration::from_secs(5)).await;
        let calls = wire.calls();
        let of = |op| calls.iter().filter(|call| call.ops.iter().any(|args| args.op() == op)).count();
        assert!(of(Op::TestStateId) >= 2, "minor version {minor}: {:?}", ops(&calls));
        assert_eq!((of(Op::Open), of(Op::Lock)), (1, 1), "minor version {minor}: {:?}", ops(&calls));
        nfs.write(&opened, 0, Stability::FileSync, contents(10)).await.unwrap();
        nfs.close(opened).await.unwrap();
        nfs.end().await.unwrap();
    }
}
