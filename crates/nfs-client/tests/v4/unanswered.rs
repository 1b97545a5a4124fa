//! Calls for whose reply the transport stops waiting, and whose callers get an error: what they have left with the
//! server is taken back.

use crate::{
    every::{mode, name},
    house::{Fate, House, LEASE, Wire, at_home, count, has, ops},
};
use rpcrdma_nfs::v4::{Handle, Op};
use rpcrdma_nfs_client::v4::{Access, Error, How, Nfs4, Opened};
use std::{sync::Arc, time::Duration};

/// Longer than the driver's pause before it tries something again.
const A_WHILE: Duration = Duration::from_secs(20);

async fn open(nfs: &Nfs4, root: &Handle, how: How) -> Result<Opened, Error> {
    nfs.open(root, &name("file"), Access::Both, how).await.map(|(opened, _)| opened)
}

/// The server executes the next `times` calls with this operation, and their replies are lost.
fn lose_replies(wire: &Arc<Wire>, op: Op, times: usize) {
    let mut left = times;
    wire.after(move |call, _| {
        if !has(call, op) || left == 0 {
            return Fate::Arrives;
        }
        left -= 1;
        Fate::Fails
    });
}

/// If an OPEN's reply never comes, the driver closes what it has opened, even if its own calls are lost at first.
#[tokio::test(start_paused = true)]
async fn an_open_without_a_reply_is_closed() {
    for minor in 0..=2 {
        for (how, lost) in [(How::Existing, 1), (How::Unchecked(mode(0o644)), 1), (How::Unchecked(mode(0o644)), 3)] {
            let (_house, nfs, wire, root) = at_home(minor).await;
            nfs.close(open(&nfs, &root, How::Unchecked(mode(0o644))).await.unwrap()).await.unwrap();
            lose_replies(&wire, Op::Open, lost);
            wire.calls();
            let error = open(&nfs, &root, how).await.unwrap_err();
            assert!(matches!(error, Error::Call { operation: Op::Open, .. }), "{error:?}");
            tokio::time::sleep(A_WHILE).await;
            let calls = wire.calls();
            let what = format!("minor version {minor}, {how:?}, {lost} lost: {:?}", ops(&calls));
            assert_eq!(count(&calls, Op::Close), 1, "{what}");
            nfs.end().await.unwrap_or_else(|error| panic!("{what}: {error}"));
        }
    }
}

/// An OPEN that never arrived has opened nothing, and the client makes no file later.
#[tokio::test(start_paused = true)]
async fn an_open_that_was_lost_on_its_way_makes_no_file_later() {
    for minor in 0..=2 {
        let (_house, nfs, wire, root) = at_home(minor).await;
        let mut is_first = true;
        wire.before(move |call| {
            let fails = has(call, Op::Open) && std::mem::take(&mut is_first);
            if fails { Fate::Fails } else { Fate::Arrives }
        });
        open(&nfs, &root, How::Unchecked(mode(0o644))).await.unwrap_err();
        tokio::time::sleep(A_WHILE).await;
        let calls = wire.calls();
        assert!(count(&calls, Op::Open) >= 2, "it is looked for: {:?}", ops(&calls));
        let found = nfs.lookup(&root, &name("file")).await;
        assert!(found.is_err(), "minor version {minor}: {found:?}");
        nfs.end().await.unwrap();
    }
}

/// A CLOSE has failed, and the file is not used any more: the driver closes it when the server answers again.
#[tokio::test(start_paused = true)]
async fn a_file_is_closed_when_the_server_answers_again() {
    for minor in 0..=2 {
        let (_house, nfs, wire, root) = at_home(minor).await;
        let opened = open(&nfs, &root, How::Unchecked(mode(0o644))).await.unwrap();
        let mut left = 4;
        wire.before(move |call| {
            let fails = has(call, Op::Close) && left > 0;
            left -= usize::from(fails);
            if fails { Fate::Fails } else { Fate::Arrives }
        });
        nfs.close(opened).await.unwrap_err();
        tokio::time::sleep(A_WHILE).await;
        nfs.end().await.unwrap_or_else(|error| panic!("minor version {minor}: {error}"));
    }
}

/// If the server does not answer, the client's end does not wait for what cannot be taken back.
#[tokio::test(start_paused = true)]
async fn a_goodbye_does_not_wait_for_a_server_that_never_answers() {
    for minor in 0..=2 {
        let (_house, nfs, wire, root) = at_home(minor).await;
        let opened = open(&nfs, &root, How::Unchecked(mode(0o644))).await.unwrap();
        wire.before(|_| Fate::Fails);
        open(&nfs, &root, How::Existing).await.unwrap_err();
        drop(opened);
        tokio::time::sleep(Duration::from_secs(3)).await;
        let ended = tokio::time::timeout(LEASE, nfs.end()).await;
        assert!(ended.is_ok(), "minor version {minor}");
    }
}

/// The client ends at the very moment at which the lease is due for renewal.
#[tokio::test(start_paused = true)]
async fn a_goodbye_meets_no_renewal() {
    for minor in 1..=2 {
        for millis in [0, 1, 10_000, 20_000, 20_001] {
            let house = House::new();
            let (nfs, wire) = house.client(minor).await;
            wire.calls();
            tokio::time::sleep(Duration::from_millis(millis)).await;
            let ended = nfs.end().await;
            assert!(ended.is_ok(), "minor version {minor}, {millis} ms: {ended:?}, {:?}", ops(&wire.calls()));
            tokio::time::sleep(LEASE).await;
            let calls = wire.calls();
            assert_eq!(count(&calls, Op::ExchangeId), 0, "minor version {minor}, {millis} ms: {:?}", ops(&calls));
        }
    }
}

/// A client that goes on after its end keeps a lease again.
#[tokio::test(start_paused = true)]
async fn a_client_that_goes_on_after_its_goodbye_keeps_its_lease() {
    for minor in 0..=2 {
        let house = House::new();
        let (nfs, wire) = house.client(minor).await;
        nfs.end().await.unwrap();
        let root = nfs.root().await.unwrap().file;
        let opened = open(&nfs, &root, How::Unchecked(mode(0o644))).await.unwrap();
        wire.calls();
        tokio::time::sleep(2 * LEASE).await;
        let calls = wire.calls();
        assert!(calls.len() >= 4, "minor version {minor}: {:?}", ops(&calls));
        nfs.close(opened).await.unwrap();
    }
}
