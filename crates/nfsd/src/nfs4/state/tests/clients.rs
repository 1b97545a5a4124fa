//! EXCHANGE_ID in all its cases, and DESTROY_CLIENTID.

use super::*;
use rpcrdma_nfs::v4::ops::exchange_id::{CONFIRMED, UPDATE_CONFIRMED_RECORD as UPDATE, USE_NON_PNFS as NON_PNFS};

const OTHER: Principal = Principal::unix(7);

fn restarted(owner: &str) -> ExchangeId {
    ExchangeId { verifier: Verifier([2; 8]), ..who(owner) }
}

fn by_other(owner: &str) -> ExchangeId {
    ExchangeId { principal: OTHER, ..who(owner) }
}

fn update(call: ExchangeId) -> ExchangeId {
    ExchangeId { flags: UPDATE, ..call }
}

/// proves: NFS4-8881-18.35-a
#[test]
fn flags_that_are_not_a_clients_are_refused() {
    let world = World::new();
    for (minor, bit) in [1, 2].into_iter().flat_map(|minor| (0..32).map(move |bit| (minor, bit))) {
        let call = ExchangeId { flags: 1 << bit, minor, ..who("a") };
        let expected = match bit {
            0 | 1 | 8 | 16..=18 => None,
            // Minor version 2 introduced fencing.
            2 if minor == 2 => None,
            30 => Some(Status::NOENT),
            _ => Some(Status::INVAL),
        };
        assert_eq!(world.exchange(&call).err(), expected, "4.{minor}, bit {bit}");
    }
}

/// proves: NFS4-8881-18.35-b
#[test]
fn an_owner_without_a_confirmed_record_gets_a_new_one_each_time() {
    let world = World::new();
    let first = world.exchange(&who("a")).unwrap();
    assert_eq!((first.flags, first.sequence, first.client.0 >> 32), (NON_PNFS, 1, 1_000));
    let mut former = first.client;
    for call in [who("a"), restarted("a"), by_other("a")] {
        let next = world.exchange(&call).unwrap();
        assert_ne!(next.client, former);
        assert_eq!(next.flags, NON_PNFS);
        assert_eq!(world.create(former, 1).0.err(), Some(Status::STALE_CLIENTID), "the former one is gone");
        former = next.client;
    }
    assert_ne!(world.exchange(&who("b")).unwrap().client, former);
    assert!(world.state.client(former).is_ok(), "another owner's stays");
}

/// proves: NFS4-8881-18.35-c
#[test]
fn a_confirmed_record_is_told_again() {
    let world = World::new();
    let guest = world.client("a");
    let told = world.exchange(&who("a")).unwrap();
    assert_eq!((told.client, told.flags), (guest.client.id(), NON_PNFS | CONFIRMED));
    // Beside an unconfirmed record of a later incarnation, which goes.
    let later = world.exchange(&restarted("a")).unwrap();
    assert_ne!(later.client, guest.client.id());
    assert_eq!(world.exchange(&who("a")).unwrap().client, guest.client.id());
    assert_eq!(world.create(later.client, 1).0.err(), Some(Status::STALE_CLIENTID));
    assert!(guest.call().is_ok());
}

/// proves: NFS4-8881-18.35-d
#[test]
fn another_principal_does_not_take_the_place_of_who_is_there() {
    let world = World::new();
    let guest = world.ready("a");
    guest.open("o", 1, share(1, 0)).unwrap();
    assert_eq!(world.exchange(&by_other("a")).err(), Some(Status::CLID_INUSE));
    let other_incarnation = ExchangeId { verifier: Verifier([2; 8]), ..by_other("a") };
    assert_eq!(world.exchange(&other_incarnation).err(), Some(Status::CLID_INUSE));
    assert!(guest.call().is_ok(), "nothing has changed");
    world.wait(LEASE);
    assert_eq!(world.exchange(&by_other("a")).err(), Some(Status::CLID_INUSE), "to the end of its lease");
    world.wait(1);
    // The next sweep takes what it holds, since the journal has to say so first.
    assert_eq!(world.exchange(&by_other("a")).err(), Some(Status::DELAY));
    assert_eq!(world.sweep().len(), 1);
    let next = world.exchange(&by_other("a")).unwrap();
    assert_eq!((next.flags, guest.call()), (NON_PNFS, Err(Status::BADSESSION)));
}

/// proves: NFS4-8881-18.35-d
#[test]
fn another_principal_takes_the_place_of_who_has_no_state() {
    let world = World::new();
    let guest = world.client("a");
    world.state.destroy_session(guest.session(), guest.connection).unwrap();
    let next = world.exchange(&by_other("a")).unwrap();
    assert_eq!(next.flags, NON_PNFS);
    assert_eq!(world.state.client(guest.client.id()).err(), Some(Status::STALE_CLIENTID));
    // With a session but nothing open, after the end of its lease.
    let guest = world.client("b");
    assert_eq!(world.exchange(&by_other("b")).err(), Some(Status::CLID_INUSE));
    world.wait(LEASE + 1);
    assert!(world.exchange(&by_other("b")).is_ok());
    assert_eq!(guest.call(), Err(Status::BADSESSION));
}

/// proves: NFS4-8881-18.35-e
#[test]
fn what_a_client_held_before_it_restarted_goes_when_it_is_confirmed() {
    let world = World::new();
    let guest = world.ready("a");
    let opened = guest.open("o", 1, share(1, 0)).unwrap();
    let next = world.exchange(&restarted("a")).unwrap();
    assert_eq!(next.flags, NON_PNFS);
    assert!(guest.call().is_ok(), "until then it is as it was");
    assert_eq!(guest.client.held.test(opened.id), Status::OK);
    let again = world.exchange(&restarted("a")).unwrap();
    let (created, released) = world.create(again.client, 1);
    created.unwrap();
    assert_eq!(released.iter().map(|release| release.other).collect::<Vec<_>>(), [opened.id.other]);
    assert_eq!(guest.call(), Err(Status::BADSESSION));
    assert_eq!(world.state.client(guest.client.id()).err(), Some(Status::STALE_CLIENTID));
    assert_eq!(guest.open("o", 1, share(1, 0)), Err(Status::EXPIRED), "a call of it that still runs");
}

/// proves: NFS4-8881-18.35-f
#[test]
fn an_update_is_for_the_incarnation_and_the_principal_of_a_confirmed_record() {
    let world = World::new();
    assert_eq!(world.exchange(&update(who("a"))).err(), Some(Status::NOENT));
    let unconfirmed = world.exchange(&who("a")).unwrap().client;
    assert_eq!(world.exchange(&update(who("a"))).err(), Some(Status::NOENT));
    world.create(unconfirmed, 1).0.unwrap();
    let told = world.exchange(&update(who("a"))).unwrap();
    assert_eq!((told.client, told.flags), (unconfirmed, NON_PNFS | CONFIRMED));
    assert_eq!(world.exchange(&update(restarted("a"))).err(), Some(Status::NOT_SAME));
    let both = ExchangeId { principal: OTHER, ..restarted("a") };
    assert_eq!(world.exchange(&update(both)).err(), Some(Status::NOT_SAME));
    assert_eq!(world.exchange(&update(by_other("a"))).err(), Some(Status::PERM));
    assert!(world.state.client(unconfirmed).is_ok());
}

/// proves: NFS4-8881-18.35-g
#[test]
fn a_record_that_nobody_confirms_goes_after_a_lease() {
    let world = World::new();
    let client = world.exchange(&who("a")).unwrap().client;
    world.wait(LEASE);
    world.sweep();
    assert!(world.state.client(client).is_ok());
    world.wait(1);
    assert_eq!(world.sweep(), []);
    assert_eq!(world.state.client(client).err(), Some(Status::STALE_CLIENTID));
    assert!(world.exchange(&who("a")).is_ok());
}

/// proves: NFS4-8881-18.50-a
#[test]
fn a_client_with_sessions_or_state_is_not_destroyed() {
    let world = World::new();
    let guest = world.ready("a");
    let id = guest.client.id();
    let opened = guest.open("o", 1, share(1, 0)).unwrap();
    let destroy = || world.state.destroy_client(id);
    assert_eq!(destroy(), Err(Status::CLIENTID_BUSY));
    world.state.destroy_session(guest.session(), guest.connection).unwrap();
    assert_eq!(destroy(), Err(Status::CLIENTID_BUSY), "an open");
    guest.client.held.close(opened.id, file(1)).unwrap();
    assert_eq!((destroy(), destroy()), (Ok(()), Err(Status::STALE_CLIENTID)));
    let guest = world.client("b");
    assert_eq!(world.state.destroy_client(guest.client.id()), Err(Status::CLIENTID_BUSY), "a session");
    let unconfirmed = world.exchange(&who("c")).unwrap().client;
    assert_eq!(world.state.destroy_client(unconfirmed), Ok(()));
}
