//! The minor version that client and server agree on.

use crate::house::{Fate, House};
use rpcrdma_nfs::v4::{Args, Op, Status};
use rpcrdma_nfs_client::v4::{Error, Nfs4, Options};
use rpcrdma_oncrpc::{Client, NoAuth};
use std::sync::Arc;

#[tokio::test(start_paused = true)]
async fn the_highest_minor_version_that_both_speak_is_spoken() {
    let house = House::new();
    let wire = house.wire();
    for (minors, spoken) in [(0..=2, 2), (0..=1, 1), (0..=0, 0), (1..=1, 1)] {
        let nfs = house.client_over(&wire, Options::new("test").with_minors(minors)).await;
        assert_eq!(nfs.minor(), spoken);
        assert_eq!(nfs.session_slots().is_some(), spoken > 0);
    }
    let old = House::with(|version_4| version_4.with_minors(0..=1));
    assert_eq!(old.client_over(&old.wire(), Options::new("test")).await.minor(), 1);
    let oldest = House::with(|version_4| version_4.with_minors(0..=0));
    assert_eq!(oldest.client_over(&oldest.wire(), Options::new("test")).await.minor(), 0);
    let options = Options::new("test").with_minors(1..=2);
    let none = Nfs4::connect(oldest.rpc(&oldest.wire()), &oldest.env, options).await.unwrap_err();
    assert!(matches!(none, Error::NoMinor { lowest: 1 }) && none.is_no_version_4());
}

#[tokio::test(start_paused = true)]
async fn a_server_without_version_4_is_told_from_one_that_fails() {
    let house = House::new();
    let wire = house.wire();
    for (program, version) in [(100_003, 5), (100_099, 4)] {
        let transport = Arc::new(crate::house::Shared(wire.clone()));
        let client = Client::new(transport, Arc::new(NoAuth), program, version);
        let error = Nfs4::connect(client, &house.env, Options::new("test")).await.unwrap_err();
        assert!(error.is_no_version_4(), "{error:?}");
    }
    wire.before(|_| Fate::Fails);
    let error = Nfs4::connect(house.rpc(&wire), &house.env, Options::new("test")).await.unwrap_err();
    assert!(matches!(error, Error::Call { .. }) && !error.is_no_version_4(), "{error:?}");
}

#[tokio::test(start_paused = true)]
async fn what_is_known_of_the_server_is_what_it_says() {
    let house = House::new();
    let (nfs, wire) = house.client(2).await;
    assert_eq!(nfs.lease(), crate::house::LEASE);
    let transfer = nfs.transfer();
    assert!(transfer.read >= 1 << 20 && transfer.write >= 1 << 20 && transfer.directory >= 64 << 10, "{transfer:?}");
    // A transport with small messages leads to a session with small messages.
    wire.limit(20_000);
    let nfs = house.client_over(&wire, Options::new("test")).await;
    let transfer = nfs.transfer();
    assert!((12_288..20_000).contains(&transfer.read) && transfer.write <= transfer.read, "{transfer:?}");
    let root = nfs.root().await.unwrap().file;
    wire.calls();
    let error = nfs.read(&root, 0, 1 << 20).await.unwrap_err();
    let Error::TooLarge { operation: Op::Read, what: "reply", .. } = error else { panic!("{error:?}") };
    assert!(wire.calls().is_empty(), "nothing was sent");
}

/// A client takes over nothing that another client of the same host holds.
#[tokio::test(start_paused = true)]
async fn two_clients_of_a_host_are_two() {
    let house = House::new();
    let wire = house.wire();
    let mut names = Vec::new();
    for _ in 0..2 {
        let nfs = Nfs4::connect(house.rpc(&wire), &house.env, Options::new("host")).await.unwrap();
        for call in wire.calls() {
            if let Some(Args::ExchangeId(exchange)) = call.ops.into_iter().next() {
                names.push(exchange.owner.name);
            }
        }
        nfs.end().await.unwrap();
    }
    assert_eq!(names.len(), 2);
    assert_ne!(names[0], names[1]);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_has_ended_can_begin_anew() {
    let house = House::new();
    let (nfs, _) = house.client(2).await;
    nfs.end().await.unwrap();
    nfs.root().await.unwrap();
    let (nfs, wire) = house.client(2).await;
    wire.after(|_, results| {
        results.status = Status::SERVERFAULT;
        Fate::Arrives
    });
    assert!(matches!(nfs.root().await.unwrap_err(), Error::Nonsense { .. }));
}
