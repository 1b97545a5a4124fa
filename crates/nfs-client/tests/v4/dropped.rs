//! Calls whose futures are dropped before their end: what they open and lock does not stay with the server.

use crate::{
    every::{mode, name},
    house::{Fate, House, at_home, count, has},
};
use rpcrdma_nfs::v4::{Args, Arguments, Handle, Op, ops::LockKind};
use rpcrdma_nfs_client::v4::{Access, Error, How, Nfs4, Opened};
use std::{
    future::{Future, poll_fn},
    pin::pin,
    task::Poll,
    time::Duration,
};

/// More polls than any call here needs.
const POLLS: usize = 24;

/// Polls a future this many times, with turns for others in between, and then drops it. Returns whether it had ended
/// before.
async fn polled<T>(future: impl Future<Output = T>, times: usize) -> bool {
    let mut future = pin!(future);
    for _ in 0..times {
        if poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx).is_ready())).await {
            return true;
        }
        tokio::task::yield_now().await;
    }
    false
}

async fn open(nfs: &Nfs4, root: &Handle, called: &str) -> Result<Opened, Error> {
    nfs.open(root, &name(called), Access::Both, How::Unchecked(mode(0o644))).await.map(|(opened, _)| opened)
}

/// Whenever a caller goes away, the file that it opened is closed, and the client can end.
#[tokio::test(start_paused = true)]
async fn an_open_that_nobody_waits_for_is_closed() {
    for minor in 0..=2 {
        let (_house, nfs, wire, root) = at_home(minor).await;
        let mut dropped = 0;
        for times in 1..POLLS {
            wire.calls();
            let has_ended = polled(open(&nfs, &root, "file"), times).await;
            tokio::time::sleep(Duration::from_millis(100)).await;
            let calls = wire.calls();
            assert_eq!(
                count(&calls, Op::Open),
                count(&calls, Op::Close),
                "minor version {minor}, {times} polls: {calls:?}"
            );
            dropped += usize::from(!has_ended && count(&calls, Op::Open) > 0);
        }
        assert!(dropped > 0, "none was dropped when it was under way");
        // A small file has everything in one call, and nothing is left to close.
        for times in 1..POLLS {
            let data = bytes::Bytes::from_static(b"small");
            let how = How::Unchecked(mode(0o644));
            let stability = rpcrdma_nfs::v4::ops::Stability::FileSync;
            polled(nfs.write_small(&root, &name("small"), how, stability, data), times).await;
            polled(nfs.read_small(&root, &name("small"), 100), times).await;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
        nfs.end().await.unwrap();
    }
}

/// A lock for which no caller waits is given back, and earlier locks are as before.
#[tokio::test(start_paused = true)]
async fn a_lock_that_nobody_waits_for_is_given_back() {
    for minor in 0..=2 {
        let house = House::new();
        let ((nfs, wire), (other, _)) = (house.client(minor).await, house.client(minor).await);
        let root = nfs.root().await.unwrap().file;
        let (opened, theirs) = (open(&nfs, &root, "file").await.unwrap(), open(&other, &root, "file").await.unwrap());
        nfs.lock(&opened, LockKind::Read, 100, 100).await.unwrap();
        let mut dropped = 0;
        for times in 1..POLLS {
            wire.calls();
            let has_ended = polled(nfs.lock(&opened, LockKind::Write, 0, 150), times).await;
            tokio::time::sleep(Duration::from_millis(100)).await;
            if has_ended {
                break;
            }
            dropped += count(&wire.calls(), Op::Lock).min(1);
            // The write lock is gone, and the earlier read lock is there.
            other.lock(&theirs, LockKind::Write, 0, 100).await.unwrap();
            other.lock(&theirs, LockKind::Read, 100, 100).await.unwrap();
            let denied = other.lock(&theirs, LockKind::Write, 199, 1).await.unwrap_err();
            assert!(matches!(denied, Error::Locked { .. }), "{denied:?}");
            other.unlock(&theirs, 0, 200).await.unwrap();
        }
        assert!(dropped > 0, "none was dropped when it was under way");
        nfs.unlock(&opened, 0, 200).await.unwrap();
        // An unlock is finished.
        for times in 1..POLLS {
            nfs.lock(&opened, LockKind::Write, 0, 10).await.unwrap();
            wire.calls();
            polled(nfs.unlock(&opened, 0, 10), times).await;
            tokio::time::sleep(Duration::from_millis(100)).await;
            if count(&wire.calls(), Op::LockU) > 0 {
                other.lock(&theirs, LockKind::Write, 0, 10).await.unwrap();
                other.unlock(&theirs, 0, 10).await.unwrap();
            }
        }
        nfs.unlock(&opened, 0, 10).await.unwrap();
        drop(opened);
        other.close(theirs).await.unwrap();
        tokio::time::sleep(Duration::from_millis(100)).await;
        nfs.end().await.unwrap();
        other.end().await.unwrap();
    }
}

/// A file that cannot be closed for now delays nothing else: the client keeps the lease, and closes other files.
#[tokio::test(start_paused = true)]
async fn a_duty_that_takes_its_time_holds_up_no_other() {
    let (_house, nfs, wire, root) = at_home(2).await;
    let (slow, quick) = (open(&nfs, &root, "slow").await.unwrap(), open(&nfs, &root, "quick").await.unwrap());
    let file = slow.file().clone();
    let is_slow = move |call: &Arguments| {
        call.ops.iter().any(|args| matches!(args, Args::PutFh(put) if put.file == file)) && has(call, Op::Close)
    };
    wire.before(move |call| if is_slow(call) { Fate::Hangs } else { Fate::Arrives });
    wire.calls();
    drop(slow);
    tokio::time::sleep(Duration::from_millis(10)).await;
    drop(quick);
    tokio::time::sleep(Duration::from_secs(60)).await;
    let calls = wire.calls();
    let renewed = calls.iter().filter(|call| call.ops.len() == 1 && call.ops[0].op() == Op::Sequence).count();
    assert_eq!(count(&calls, Op::Close), 2, "{calls:?}");
    assert!(renewed >= 4, "{calls:?}");
}
