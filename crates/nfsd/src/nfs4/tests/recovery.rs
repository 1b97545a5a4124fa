//! Leases that are over, and killed servers.

use super::*;
use crate::nfs4::testing::Setup;
use rpcrdma_nfs::{
    v3,
    v4::ops::{DelegationKind, LockFailure, LockKind},
};
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

/// More clients than the code asks one after the other, and one of them is not away.
///
/// proves: NFS4-COURTESY-a, NFS4-8881-8.4.3-d
#[test]
fn what_many_clients_hold_is_taken_from_all_of_them_or_from_none() {
    const MANY: usize = 2 * crate::nfs4::conflicts::MAX_TAKEN;
    on_each(|server| {
        let (there, wants) = (server.client("there"), server.client("wants"));
        let (file, _) = create(&there, "f", "o");
        let away: Vec<_> = (0..MANY).map(|number| server.client(&format!("away {number}"))).collect();
        let states: Vec<_> = away.iter().map(|client| open(client, "f", "o", WRITE, 0).unwrap().1).collect();
        server.clock.pass(Duration::from_secs(100));
        there.walk("").unwrap();
        assert_eq!(open(&wants, "f", "o", READ, WRITE).err(), Some(Status::SHARE_DENIED), "one is there");
        assert_eq!(away[0].write(&file, states[0], 0, b"x"), Ok(1), "nobody has lost anything");
        server.clock.pass(Duration::from_secs(100));
        assert!(open(&wants, "f", "o", READ, WRITE).is_ok());
        assert!(
            away.iter()
                .zip(&states)
                .all(|(client, state)| { client.write(&file, *state, 0, b"x") == Err(Status::EXPIRED) })
        );
    });
}

/// An OPEN that reclaims a file.
fn reclaim(client: &TestClient, file: &Handle, access: u32, deny: u32) -> Result<StateId, Status> {
    let claim = Claim::Previous(DelegationKind::None);
    let open = ops::Open { claim, ..to_open(client, "", "o", access, deny) };
    only!(client.on(file, Args::Open(Box::new(open))), Open).map(|ok| ok.state)
}

/// The server is killed right after its reply that the client has freed all that it had lost.
///
/// proves: NFS4-8881-8.4.3-a
#[test]
fn who_has_taken_note_of_its_losses_reclaims_what_it_gets_from_then_on() {
    on_each_restarted(|server| {
        let (a, b) = (server.client("a"), server.client("b"));
        let (_, lost) = create(&a, "f", "o");
        server.clock.pass(Duration::from_secs(100));
        assert!(open(&b, "f", "o", READ, WRITE).is_ok());
        assert_eq!(a.status(vec![Args::FreeStateId(ops::FreeStateId { state: lost })]), Status::OK);
        let (kept, _) = create(&a, "g", "o");
        drop((a, b));

        let server = server.restart();
        let a = server.client_in_grace("a");
        assert!(reclaim(&a, &kept, BOTH, 0).is_ok());
    });
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
        assert_eq!(a.on(&file, Args::Lock(Box::new(again.clone()))).status(), Status::OK);
        let fresh = ops::Lock { reclaim: false, offset: 5, ..again.clone() };
        assert_eq!(a.on(&file, Args::Lock(Box::new(fresh))).status(), Status::GRACE);
        assert_eq!(a.read(&file, state, 0, 9), Ok(b"data".to_vec()));
        a.reclaim_complete();
        assert_eq!(a.on(&file, Args::Lock(Box::new(again))).status(), Status::NO_GRACE);
        // All clients that held anything have come: the grace period is over.
        assert_eq!(open(&b, "f", "o", WRITE, 0).err(), Some(Status::SHARE_DENIED));
        assert!(open(&b, "f", "o", READ, 0).is_ok());
    });
}

/// A server of a file system in memory, and one of a directory.
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

/// proves: NFS4-8881-8.4.3-e
#[test]
fn what_cannot_be_taken_from_a_client_that_is_away_is_asked_for_again_later() {
    on_each(|server| {
        let (a, b, old) = (server.client("a"), server.client("b"), server.version_3());
        let (file, state) = create(&a, "f", "o");
        close(&a, &file, state);
        open(&a, "f", "o", BOTH, BOTH).unwrap();
        let (shared, of_a) = create(&a, "g", "o");
        super::lock::lock(&a, &shared, super::lock::first(&a, of_a, "l"), LockKind::Write, (0, 1)).unwrap();
        let (_, of_b) = open(&b, "g", "o", BOTH, 0).unwrap();
        let handle = old.lookup(&old.root(), "f").unwrap().file;
        let lock = || super::lock::lock(&b, &shared, super::lock::first(&b, of_b, "l"), LockKind::Write, (0, 1));
        assert_eq!(open(&b, "f", "o", READ, 0).err(), Some(Status::SHARE_DENIED), "as long as its lease runs");
        server.clock.pass(Duration::from_secs(100));
        server.shared().state.recovery.refuse();
        assert_eq!(open(&b, "f", "o", READ, 0).err(), Some(Status::DELAY));
        assert_eq!(b.read(&file, StateId::ANONYMOUS, 0, 1), Err(Status::DELAY));
        assert_eq!(b.write(&file, StateId::ANONYMOUS, 0, b"x"), Err(Status::DELAY));
        assert_eq!(lock().err(), Some(LockFailure::from(Status::DELAY)));
        assert_eq!(old.write(&handle, 0, "x").err(), Some(v3::Status::JUKEBOX));
        assert_eq!(a.read(&file, StateId::BYPASS, 0, 1), Ok(vec![]), "it comes back");
        assert_eq!(open(&b, "f", "o", READ, 0).err(), Some(Status::SHARE_DENIED), "and has lost nothing");
        assert_eq!(old.write(&handle, 0, "x").err(), Some(v3::Status::ACCES));
    });
}

/// By name, by handle, with a special stateid; by the maker, and after a restart.
///
/// proves: NFS4-8881-18.16-g
#[test]
fn the_mode_binds_an_owner_who_opens_a_file_and_not_one_who_makes_or_reclaims_it() {
    on_each_restarted(|server| {
        if !rustix::process::geteuid().is_root() {
            // An ordinary user's server cannot act as another user.
            return;
        }
        let root = server.client("root");
        let open_to_all = FileAttributes::of(&[Value::Mode(0o777)]);
        let set = ops::SetAttr { state: StateId::ANONYMOUS, attributes: open_to_all };
        root.on(&root.walk("").unwrap(), Args::SetAttr(set));
        let user = |server: &TestServer, uid| server.client_as(&format!("user {uid}"), 2, uid, 1);
        let (owner, stranger) = (user(&server, 1_000), user(&server, 2_000));
        owner.reclaim_complete();
        stranger.reclaim_complete();
        let make = |name, mode| {
            let how = CreateHow::Guarded(FileAttributes::of(&[Value::Mode(mode)]));
            create_with(&owner, name, "maker", how).map(|(file, opened)| (file, opened.state)).unwrap()
        };
        let by_handle = |file: &Handle, access| {
            let open = ops::Open { claim: Claim::Handle, ..to_open(&owner, "", "o", access, 0) };
            owner.on(file, Args::Open(Box::new(open))).status()
        };
        // The maker of a file has it open with the access that it asked for.
        let (blind, state) = make("blind", 0o200);
        assert_eq!(owner.write(&blind, state, 0, b"data"), Ok(4));
        assert_eq!(owner.read(&blind, state, 0, 9), Ok(b"data".to_vec()));
        let (frozen, state) = make("frozen", 0o444);
        assert_eq!(owner.write(&frozen, state, 0, b"ice"), Ok(3));
        // Any other open gets what the mode permits, even if the file is already open.
        let refused = [("blind", READ), ("blind", BOTH), ("frozen", WRITE), ("frozen", BOTH)];
        for (name, access) in refused {
            let file = if name == "blind" { &blind } else { &frozen };
            assert_eq!(open(&owner, name, "o", access, 0).err(), Some(Status::ACCESS), "{name} {access}");
            assert_eq!(by_handle(file, access), Status::ACCESS, "{name} {access}");
        }
        assert_eq!((by_handle(&blind, WRITE), by_handle(&frozen, READ)), (Status::OK, Status::OK));
        assert_eq!(open(&stranger, "blind", "o", WRITE, 0).err(), Some(Status::ACCESS));
        assert!(open(&stranger, "frozen", "o", READ, 0).is_ok());
        // A call without an OPEN does not show what was open before, as in version 3.
        assert_eq!(owner.write(&frozen, StateId::ANONYMOUS, 3, b"berg"), Ok(4));
        assert_eq!(stranger.write(&frozen, StateId::ANONYMOUS, 3, b"x"), Err(Status::ACCESS));

        drop((root, owner, stranger));
        let server = server.restart();
        let (owner, stranger) = (user(&server, 1_000), user(&server, 2_000));
        let state = reclaim(&owner, &frozen, BOTH, 0).unwrap();
        assert_eq!(owner.write(&frozen, state, 0, b"nice"), Ok(4));
        assert_eq!(reclaim(&stranger, &frozen, BOTH, 0), Err(Status::ACCESS));
        assert!(reclaim(&stranger, &frozen, READ, 0).is_ok());
    });
}
