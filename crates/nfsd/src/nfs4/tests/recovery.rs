//! Leases that are over, and servers that were killed.

use super::*;
use crate::nfs4::testing::Setup;
use rpcrdma_nfs::v4::ops::{DelegationKind, LockKind};
use std::time::Duration;

/// proves: NFS4-COURTESY-a, NFS4-8881-8.4.3-a
#[test]
fn what_is_in_the_way_is_taken_from_a_client_whose_lease_is_over_and_not_before() {
    on_each(|server| {
        let (a, b) = (server.client("a"), server.client("b"));
        let (file, state) = create(&a, "f", "o");
        close(&a, &file, state);
        let (_, state) = open(&a, "f", "o", BOTH, BOTH).unwrap();
        let locked = super::lock::lock(&a, &file, super::lock::first(&a, state, "l"), LockKind::Write, (0, 1)).unwrap();
        server.pass(80);
        assert_eq!(open(&b, "f", "o", READ, 0).err(), Some(Status::SHARE_DENIED));
        server.pass(20);
        assert_eq!(b.read(&file, StateId::ANONYMOUS, 0, 1), Ok(vec![]), "nobody denies it any more");
        let (_, of_b) = open(&b, "f", "o", BOTH, 0).unwrap();
        assert!(super::lock::lock(&b, &file, super::lock::first(&b, of_b, "l"), LockKind::Write, (0, 1)).is_ok());
        assert_eq!(a.write(&file, state, 0, b"x"), Err(Status::EXPIRED));
        assert_eq!(a.write(&file, locked, 0, b"x"), Err(Status::EXPIRED));
        let free = |state| a.status(vec![Args::FreeStateId(ops::FreeStateId { state })]);
        assert_eq!((free(locked), free(state)), (Status::OK, Status::OK));
        assert_eq!(a.write(&file, state, 0, b"x"), Err(Status::BAD_STATEID));
    });
}

/// proves: NFS4-COURTESY-a
#[test]
fn a_lock_is_taken_from_a_client_whose_lease_is_over() {
    on_each(|server| {
        let (a, b) = (server.client("a"), server.client("b"));
        let (file, of_a) = create(&a, "f", "o");
        let (_, of_b) = open(&b, "f", "o", BOTH, 0).unwrap();
        super::lock::lock(&a, &file, super::lock::first(&a, of_a, "l"), LockKind::Write, (0, 1)).unwrap();
        let lock = || super::lock::lock(&b, &file, super::lock::first(&b, of_b, "l"), LockKind::Write, (0, 1));
        assert!(lock().is_err());
        server.clock.pass(Duration::from_secs(100));
        assert!(lock().is_ok());
        assert_eq!(a.write(&file, of_a, 0, b"x"), Err(Status::EXPIRED), "all that it held on the file is gone");
    });
}

/// An OPEN that reclaims a file.
fn reclaim(client: &TestClient, file: &Handle, access: u32, deny: u32) -> Result<StateId, Status> {
    let claim = Claim::Previous(DelegationKind::None);
    let open = ops::Open { claim, ..to_open(client, "", "o", access, deny) };
    only!(client.on(file, Args::Open(open)), Open).map(|ok| ok.state)
}

/// proves: NFS4-8881-8.4.2.1-a, NFS4-8881-8.4.2.1-b
#[test]
fn after_a_kill_a_client_reclaims_what_it_held_before_others_get_it() {
    on_each_restarted(|server| {
        let (a, b) = (server.client("a"), server.client("b"));
        let (file, state) = create(&a, "f", "o");
        a.write(&file, state, 0, b"data").unwrap();
        close(&a, &file, state);
        let (_, state) = open(&a, "f", "o", BOTH, WRITE).unwrap();
        super::lock::lock(&a, &file, super::lock::first(&a, state, "l"), LockKind::Write, (0, 1)).unwrap();
        drop((a, b));

        let server = server.restart();
        let (a, b) = (server.client_in_grace("a"), server.client_in_grace("b"));
        let stranger = server.client_in_grace("c");
        assert_eq!(a.write(&file, state, 0, b"x"), Err(Status::BAD_STATEID), "of before the restart");
        b.reclaim_complete();
        assert_eq!(open(&b, "f", "o", WRITE, 0).err(), Some(Status::GRACE));
        assert_eq!(b.write(&file, StateId::ANONYMOUS, 0, b"x"), Err(Status::GRACE));
        assert_eq!(reclaim(&b, &file, WRITE, 0), Err(Status::NO_GRACE), "it has said that it is done");
        assert_eq!(reclaim(&stranger, &file, WRITE, 0), Err(Status::RECLAIM_BAD));
        let state = reclaim(&a, &file, BOTH, WRITE).unwrap();
        let again = ops::Lock {
            kind: LockKind::Write,
            reclaim: true,
            offset: 0,
            length: 1,
            locker: super::lock::first(&a, state, "l"),
        };
        assert_eq!(a.on(&file, Args::Lock(again.clone())).status(), Status::OK);
        let fresh = ops::Lock { reclaim: false, offset: 5, ..again.clone() };
        assert_eq!(a.on(&file, Args::Lock(fresh)).status(), Status::GRACE);
        assert_eq!(a.read(&file, state, 0, 9), Ok(b"data".to_vec()));
        a.reclaim_complete();
        assert_eq!(a.on(&file, Args::Lock(again)).status(), Status::NO_GRACE);
        // All that held anything have come: it is over.
        assert_eq!(open(&b, "f", "o", WRITE, 0).err(), Some(Status::SHARE_DENIED));
        assert!(open(&b, "f", "o", READ, 0).is_ok());
    });
}

/// A server of memory, and one of a directory.
fn on_each_restarted(test: impl Fn(TestServer)) {
    test(TestServer::memory());
    test(TestServer::directory());
}

/// proves: NFS4-8881-8.4.3-a
#[test]
fn what_was_taken_away_is_not_reclaimed_after_a_kill() {
    let server = TestServer::directory();
    let (a, b) = (server.client("a"), server.client("b"));
    let (file, state) = create(&a, "f", "o");
    close(&a, &file, state);
    open(&a, "f", "o", BOTH, BOTH).unwrap();
    server.clock.pass(Duration::from_secs(100));
    open(&b, "f", "o", BOTH, BOTH).unwrap();
    drop((a, b));
    let server = server.restart();
    let (a, b) = (server.client_in_grace("a"), server.client_in_grace("b"));
    assert_eq!(reclaim(&a, &file, BOTH, BOTH), Err(Status::NO_GRACE));
    assert!(reclaim(&b, &file, BOTH, BOTH).is_ok());
}

#[test]
fn a_client_that_starts_again_frees_what_it_held() {
    let server = TestServer::memory_with(Setup::default());
    let (a, b) = (server.client("a"), server.client("b"));
    let (file, state) = create(&a, "f", "o");
    close(&a, &file, state);
    open(&a, "f", "o", BOTH, BOTH).unwrap();
    assert_eq!(open(&b, "f", "o", READ, 0).err(), Some(Status::SHARE_DENIED));
    server.client_as("a", 2, 0, 2).reclaim_complete();
    assert!(open(&b, "f", "o", READ, 0).is_ok());
}
