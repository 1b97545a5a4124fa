//! Clients of minor version 0 that were away, or whose server restarted: what they lose, and what they reclaim.

use super::*;

/// proves: NFS4-7530-9.5-a, NFS4-7530-9.6.3-a
#[test]
fn a_client_that_was_away_loses_all_with_the_first_conflict() {
    on_both(|server| {
        let ((away, owner, file, state), other) = (Client40::with_file(&server, "a"), server.client("b"));
        away.close(&owner, &file, state);
        let (_, denying) = away.open(&owner, "f", BOTH, WRITE).unwrap();
        let (second, other_state) = away.create(&owner, "g");
        server.pass(80);
        assert_eq!(away.read(&file, denying), Ok(vec![]), "reading renews the lease");
        server.pass(80);
        assert_eq!(away.renew(), Status::OK, "and so does RENEW");
        server.pass(80);
        assert_eq!(open(&other, "f", "o", WRITE, 0).err(), Some(Status::SHARE_DENIED));
        server.pass(20);
        assert!(open(&other, "f", "o", WRITE, 0).is_ok());
        assert_eq!(away.read(&file, denying), Err(Status::EXPIRED));
        assert_eq!(away.read(&second, other_state), Err(Status::EXPIRED), "what nobody wanted, too");
        assert_eq!(away.close(&owner, &second, other_state), Status::EXPIRED);
        assert_eq!(away.renew(), Status::EXPIRED);
        assert_eq!(away.open(&owner, "g", READ, 0).err(), Some(Status::EXPIRED));
        let back = Client40::new(&server, "a");
        assert!(back.open(&back.owner("o"), "g", READ, 0).is_ok());
    });
}

/// proves: NFS4-7530-9.6.2-a, NFS4-7530-9.1.11-b
#[test]
fn after_a_kill_a_client_reclaims_what_it_held_until_the_grace_period_is_over() {
    let server = TestServer::directory();
    let (client, owner, file, state) = Client40::with_file(&server, "a");
    let locker = client.owner("l");
    client.lock(&file, first(&owner, state, &locker), (0, 10)).unwrap();
    drop(client);

    let server = server.restart();
    let client = Client40::new(&server, "a");
    let stranger = Client40::new(&server, "b");
    assert_eq!(client.read(&file, state), Err(Status::STALE_STATEID));
    let reclaim = |client: &Client40, owner: &Counter| only!(client.on(&file, client.to_reclaim(owner, BOTH)), Open);
    let (owner, of_stranger) = (client.owner("o"), stranger.owner("o"));
    let opened = reclaim(&client, &owner).unwrap();
    assert_eq!(opened.flags & open_result::CONFIRM, 0, "a reclaim is not to be confirmed");
    assert_eq!(reclaim(&stranger, &of_stranger).err(), Some(Status::RECLAIM_BAD));
    let again = |client: &Client40, reclaim, locker| {
        let lock = ops::Lock { kind: ops::LockKind::Write, reclaim, offset: 0, length: 10, locker };
        client.on(&file, Args::Lock(Box::new(lock))).status()
    };
    let locker = client.owner("l");
    assert_eq!(again(&client, true, first(&owner, opened.state, &locker)), Status::OK);
    assert_eq!(client.open(&owner, "f", READ, 0).err(), Some(Status::GRACE));
    assert_eq!(stranger.open(&of_stranger, "f", READ, 0).err(), Some(Status::GRACE));
    assert_eq!(stranger.read(&file, StateId::ANONYMOUS), Err(Status::GRACE));
    server.pass(80);
    let refused = stranger.open(&of_stranger, "f", READ, 0).err();
    assert_eq!(refused, Some(Status::GRACE), "nobody says he is done");
    assert_eq!((client.renew(), stranger.renew()), (Status::OK, Status::OK));
    server.pass(20);
    assert_eq!(reclaim(&client, &owner).err(), Some(Status::NO_GRACE));
    assert_eq!(client.read(&file, opened.state), Ok(vec![]));
    assert!(client.open(&owner, "f", READ, 0).is_ok());
    assert!(stranger.open(&of_stranger, "f", READ, 0).is_ok());

    // Another restart: the client has stayed on record.
    drop((client, stranger));
    let server = server.restart();
    let client = Client40::new(&server, "a");
    assert!(reclaim(&client, &client.owner("o")).is_ok());
}

/// Two restarts: if a client reclaimed nothing after the first, another client may have had its files, so it must get
/// nothing after the second.
///
/// proves: NFS4-7530-9.6.2-b
#[test]
fn who_has_come_back_without_reclaiming_reclaims_nothing_after_the_next_restart() {
    let server = TestServer::directory();
    let names = ["silent", "failed", "reclaims"];
    let files = names.map(|name| {
        let client = Client40::new(&server, name);
        client.create(&client.owner("o"), name).0
    });
    let reclaim = |client: &Client40, at: Args| {
        only!(client.last(vec![at, client.to_reclaim(&client.owner("o"), BOTH)]), Open).err().unwrap_or(Status::OK)
    };
    let put = |at: usize| Args::PutFh(ops::PutFh { file: files[at].clone() });

    let server = server.restart();
    let clients = names.map(|name| Client40::new(&server, name));
    assert_eq!(reclaim(&clients[1], Args::PutRootFh), Status::ISDIR);
    assert_eq!(reclaim(&clients[2], put(2)), Status::OK);
    server.pass(100);
    let other = server.client("other");
    for file in &files[..2] {
        assert!(other.read(file, StateId::ANONYMOUS, 0, 1).is_ok(), "the grace period is over");
    }
    drop((clients, other));

    let server = server.restart();
    let told = [0, 1, 2].map(|at| reclaim(&Client40::new(&server, names[at]), put(at)));
    assert_eq!(told, [Status::RECLAIM_BAD, Status::RECLAIM_BAD, Status::OK]);
}
