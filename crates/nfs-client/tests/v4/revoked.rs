//! The client looks for what the server has taken away while other things happen.

use crate::{
    every::{contents, mode, name},
    house::{Fate, at_home, count, ops},
};
use rpcrdma_nfs::v4::{
    Op, Outcome,
    ops::{LockKind, Stability, sequence_status},
};
use rpcrdma_nfs_client::v4::{Access, How};
use std::time::Duration;

/// The server restarts when the client is about to test its stateids: what the client reclaims on the way is not lost,
/// although the server does not know the old stateids any more.
#[tokio::test(start_paused = true)]
async fn what_is_reclaimed_while_losses_are_looked_for_is_not_lost() {
    for minor in 1..=2 {
        let (house, nfs, wire, root) = at_home(minor).await;
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
        // The client looks at once, and again after a while.
        tokio::time::sleep(Duration::from_millis(100)).await;
        nfs.read(&opened, 0, 10).await.unwrap();
        wire.honest();
        house.restart(&[&wire]).await;
        wire.calls();
        tokio::time::sleep(Duration::from_secs(5)).await;
        let calls = wire.calls();
        assert!(count(&calls, Op::TestStateId) >= 2, "minor version {minor}: {:?}", ops(&calls));
        let reclaimed = (count(&calls, Op::Open), count(&calls, Op::Lock));
        assert_eq!(reclaimed, (1, 1), "minor version {minor}: {:?}", ops(&calls));
        nfs.write(&opened, 0, Stability::FileSync, contents(10)).await.unwrap();
        nfs.close(opened).await.unwrap();
        nfs.end().await.unwrap();
    }
}
