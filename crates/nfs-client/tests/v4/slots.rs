//! Slots after errors of the transport: the client finds out what happened to a call before it uses the slot again.

use crate::{
    every::{contents, mode, name},
    house::{Fate, House, has},
};
use rpcrdma_nfs::v4::{Args, Arguments, Op, Outcome, Status, ops::Stability};
use rpcrdma_nfs_client::v4::{Access, Error, How};
use rpcrdma_oncrpc::{CallError, TransportError};
use std::time::Duration;

fn sequences(calls: &[Arguments]) -> Vec<(u32, u32, usize)> {
    let of = |call: &Arguments| match call.ops.first() {
        Some(Args::Sequence(sequence)) => Some((sequence.slot, sequence.sequence, call.ops.len())),
        _ => None,
    };
    calls.iter().filter_map(of).collect()
}

/// proves: ULB-5.5-b, ULB-5.5-c, ULB-5.4.2-c
#[tokio::test(start_paused = true)]
async fn a_slot_is_probed_after_an_error_of_the_transport() {
    for was_executed in [false, true] {
        for minor in [1, 2] {
            let house = House::new();
            let (nfs, wire) = house.client(minor).await;
            let root = nfs.root().await.unwrap().file;
            wire.calls();
            if was_executed {
                wire.after(|call, _| if has(call, Op::Create) { Fate::Fails } else { Fate::Arrives });
            } else {
                wire.before(|call| if has(call, Op::Create) { Fate::Fails } else { Fate::Arrives });
            }
            let error = nfs.mkdir(&root, &name("new"), &mode(0o755)).await.unwrap_err();
            let Error::Call { operation: Op::Create, source: CallError::Transport(TransportError::Remote { .. }) } =
                error
            else {
                panic!("{error:?}");
            };
            wire.honest();
            let found = nfs.lookup(&root, &name("new")).await;
            assert_eq!(found.is_ok(), was_executed);
            let calls = sequences(&wire.calls());
            let [(0, first, _), (0, probe, 1), (0, next, _)] = calls[..] else { panic!("{calls:?}") };
            assert_eq!((probe, next), (first, first + 1), "executed: {was_executed}");
            // The session goes on in the same way.
            nfs.root().await.unwrap();
            let calls = wire.calls();
            assert_eq!(sequences(&calls)[0].1, next + 1);
            assert!(!calls.iter().any(|call| has(call, Op::CreateSession)));
        }
    }
}

/// proves: ULB-5.5-c
#[tokio::test(start_paused = true)]
async fn a_call_whose_caller_went_away_leaves_its_slot_to_a_probe() {
    let house = House::new();
    let (nfs, wire) = house.client(2).await;
    let root = nfs.root().await.unwrap().file;
    wire.after(|call, _| if has(call, Op::Access) { Fate::Hangs } else { Fate::Arrives });
    let waiting = tokio::time::timeout(Duration::from_millis(5), nfs.access(&root, 1));
    waiting.await.unwrap_err();
    wire.honest();
    wire.calls();
    nfs.root().await.unwrap();
    let calls = sequences(&wire.calls());
    let [(0, probe, 1), (0, next, _)] = calls[..] else { panic!("{calls:?}") };
    assert_eq!(next, probe + 1);
}

/// If the server has forgotten the session of a probe, the client makes a new session.
#[tokio::test(start_paused = true)]
async fn a_slot_that_is_out_of_step_costs_a_session() {
    for status in [Status::SEQ_MISORDERED, Status::BADSLOT, Status::BAD_HIGH_SLOT, Status::BADSESSION] {
        let house = House::new();
        let (nfs, wire) = house.client(2).await;
        wire.after(move |_, results| {
            if let Some(Outcome::Sequence(Ok(_))) = results.results.first() {
                (results.status, results.results) = (status, vec![Outcome::Sequence(Err(status))]);
            }
            Fate::Arrives
        });
        let error = nfs.root().await.unwrap_err();
        assert!(matches!(error, Error::Unsettled { .. }), "{status}: {error:?}");
        let made = wire.calls().iter().filter(|call| has(call, Op::CreateSession)).count();
        assert!((2..40).contains(&made), "{status}: {made} sessions");
        wire.honest();
        nfs.root().await.unwrap();
    }
}

/// proves: ULB-5.4.2-d
#[tokio::test(start_paused = true)]
async fn a_call_that_comes_twice_is_executed_once() {
    let house = House::new();
    let (nfs, wire) = house.client(2).await;
    let root = nfs.root().await.unwrap().file;
    wire.before(|call| if has(call, Op::Sequence) { Fate::ComesTwice } else { Fate::Arrives });
    nfs.mkdir(&root, &name("a"), &mode(0o755)).await.unwrap();
    nfs.rename(&root, &name("a"), &root, &name("b")).await.unwrap().expect("answered from memory");
    let (opened, _) = nfs.open(&root, &name("c"), Access::Both, How::Guarded(mode(0o644))).await.unwrap();
    nfs.link(opened.file(), &root, &name("d")).await.unwrap().unwrap();
    nfs.close(opened).await.unwrap();
    nfs.remove(&root, &name("b")).await.unwrap().unwrap();
}

/// Without sessions the state on the server shows whether a call that came twice has succeeded. If the transport
/// reports an error for a call, the client presumes nothing.
///
/// proves: ULB-5.5-d
#[tokio::test(start_paused = true)]
async fn minor_version_0_looks_at_what_is_there() {
    let house = House::new();
    let (nfs, wire) = house.client(0).await;
    let root = nfs.root().await.unwrap().file;
    wire.before(|_| Fate::ComesTwice);
    nfs.mkdir(&root, &name("a"), &mode(0o755)).await.unwrap();
    nfs.rename(&root, &name("a"), &root, &name("b")).await.unwrap();
    let (opened, _) = nfs.open(&root, &name("c"), Access::Both, How::Unchecked(mode(0o644))).await.unwrap();
    nfs.write(&opened, 0, Stability::FileSync, contents(100)).await.unwrap();
    nfs.link(opened.file(), &root, &name("d")).await.unwrap();
    nfs.remove(&root, &name("b")).await.unwrap();
    wire.honest();
    let absent = nfs.remove(&root, &name("b")).await.unwrap_err();
    assert_eq!(absent.status(), Some(Status::NOENT));

    // A call without a reply may or may not have used the owner's number.
    for was_executed in [false, true] {
        let (opened, _) = nfs.open(&root, &name("c"), Access::Both, How::Existing).await.unwrap();
        let fails = |call: &Arguments| if has(call, Op::Lock) { Fate::Fails } else { Fate::Arrives };
        match was_executed {
            true => wire.after(move |call, _| fails(call)),
            false => wire.before(fails),
        }
        let kind = rpcrdma_nfs::v4::ops::LockKind::Write;
        nfs.lock(&opened, kind, 0, 10).await.unwrap_err();
        wire.honest();
        nfs.close(opened).await.unwrap();
    }
}

/// The number of calls under way follows the server's target.
#[tokio::test(start_paused = true)]
async fn calls_under_way_follow_the_servers_target() {
    let house = House::new();
    let (nfs, wire) = house.client(2).await;
    wire.after(|_, results| {
        if let Some(Outcome::Sequence(Ok(told))) = results.results.first_mut() {
            told.target_highest_slot = 1;
        }
        Fate::Arrives
    });
    nfs.root().await.unwrap();
    wire.calls();
    futures_util::future::join_all((0..20).map(|_| async { nfs.root().await.unwrap() })).await;
    let highest = sequences(&wire.calls()).iter().map(|(slot, ..)| *slot).max();
    assert_eq!(highest, Some(1));
}
