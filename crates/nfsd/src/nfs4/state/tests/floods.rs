//! Floods against each limit: the server accepts what is at the limit, refuses one more, and earlier clients keep what
//! they have.

use super::*;
use crate::nfs4::state::owners::LockBy;

fn from(owner: &str, last: u8) -> ExchangeId {
    ExchangeId { network: network(last), ..who(owner) }
}

#[test]
fn records_that_nobody_confirms_push_out_each_other_and_nothing_else() {
    let world = World::with(Limits { unconfirmed: 4, clients: 8, clients_of_address: 6, ..limits() });
    let guest = world.client("a");
    let honest = world.exchange(&from("honest", 2)).unwrap().client;
    let flood: Vec<_> = (0..3).map(|n| world.exchange(&from(&format!("f{n}"), 3)).unwrap().client).collect();
    assert!(flood.iter().all(|id| world.state.client(*id).is_ok()), "at the limit");
    for number in 3..1_000 {
        world.exchange(&from(&format!("f{number}"), 3)).unwrap();
    }
    assert!(world.state.client(flood[0]).is_err());
    assert!(world.state.client(honest).is_ok(), "the address that has most loses");
    assert!(guest.call().is_ok());
    assert_eq!(world.state.table().by_id.len(), 1 + 4);
    assert!(world.create(honest, 1).0.is_ok());
}

#[test]
fn an_address_has_no_more_than_its_share_and_the_living_stay() {
    let world = World::with(Limits { clients: 8, clients_of_address: 6, ..limits() });
    let guests: Vec<_> = (0..6).map(|number| world.client(&format!("c{number}"))).collect();
    assert_eq!(world.exchange(&who("more")).err(), Some(Status::DELAY), "one past it");
    let others = ["x", "y"].map(|owner| world.guest(&from(owner, 2)));
    assert_eq!(world.exchange(&from("z", 3)).err(), Some(Status::DELAY), "one past all");
    assert!(guests.iter().chain(&others).all(|guest| guest.call().is_ok()));
    // The first of them is away, and holds nothing: it makes room.
    world.wait(LEASE + 1);
    for guest in guests[1..].iter().chain(&others) {
        guest.call().unwrap();
    }
    assert!(world.exchange(&from("z", 3)).is_ok());
    assert_eq!(guests[0].call(), Err(Status::BADSESSION));
    assert!(guests[1..].iter().chain(&others).all(|guest| guest.call().is_ok()));
}

#[test]
fn who_is_away_and_holds_something_makes_room_with_the_next_sweep() {
    let world = World::with(Limits { clients: 3, clients_of_address: 2, ..limits() });
    let away = [world.ready("a"), world.ready("b")];
    for guest in &away {
        guest.open("o", 1, share(1, 0)).unwrap();
    }
    world.wait(1);
    away[1].call().unwrap();
    world.wait(LEASE + 1);
    assert_eq!(world.exchange(&who("c")).err(), Some(Status::DELAY));
    let released = world.sweep();
    assert_eq!(released.iter().map(|release| release.client).collect::<Vec<_>>(), [away[0].client.id()], "the longest");
    assert!(world.exchange(&who("c")).is_ok());
    assert!(away[1].call().is_ok());
}

#[test]
fn a_client_has_no_more_sessions_than_its_share() {
    let world = World::with(Limits { sessions: 3, ..limits() });
    let guest = world.client("a");
    let id = guest.client.id();
    let second = world.create(id, 2).0.unwrap().session;
    world.create(id, 3).0.unwrap();
    assert_eq!(world.create(id, 4).0, Err(Status::NOSPC));
    world.state.destroy_session(second, 1).unwrap();
    assert!(world.create(id, 5).0.is_ok());
}

/// All clients together use up the memory for replies: later ones get fewer slots, and in the end the server refuses.
#[test]
fn sessions_without_end_take_no_more_memory_than_there_is() {
    let budget = 64 * 1_024;
    let world = World::with(Limits { cache: budget, sessions: 1_000, ..limits() });
    let guest = world.client("a");
    let mut sequence = 1;
    let refused = loop {
        sequence += 1;
        let call = CreateSession { fore: channel(64), ..creation(guest.client.id(), sequence) };
        match world.state.create_session(&call, world.now()).0 {
            Ok(created) => assert!((1..=8).contains(&created.fore.slots) && created.fore.cached == 1_024),
            Err(status) => break status,
        }
    };
    assert_eq!((refused, world.state.budget.used()), (Status::NOSPC, budget));
    assert!(guest.call().is_ok());
}

#[test]
fn a_session_has_no_more_connections_than_its_share() {
    let world = World::with(Limits { connections: 3, ..limits() });
    let guest = world.client("a");
    for connection in 200..1_000 {
        let begin = world.state.begin(guest.session(), &request(0, connection - 199), connection.into(), world.now());
        let Ok(Begin::New(guard)) = begin else { panic!("served all the same") };
        guard.finish(&Bytes::new().into(), world.now());
    }
    assert_eq!(world.state.sessions.connections(), 3);
    let session = world.state.session(guest.session()).unwrap();
    assert_eq!(session.back_connections(), [guest.connection], "the server's calls stay where they were");
}

#[test]
fn a_client_and_all_of_them_hold_no_more_than_their_share() {
    let world = World::with(Limits { held_by_client: 3, held: 5, ..limits() });
    let (a, b) = (world.ready("a"), world.ready("b"));
    let open = |guest: &Guest<'_>, number| guest.open("o", number, share(3, 0)).map(|opened| opened.id);
    let opened: Vec<_> = (0..3).map(|number| open(&a, number).unwrap()).collect();
    assert_eq!(open(&a, 3), Err(Status::DELAY), "a client's share");
    assert!(open(&a, 2).is_ok(), "the same again is no more");
    assert_eq!([open(&b, 0).is_ok(), open(&b, 1).is_ok()], [true; 2]);
    assert_eq!(open(&b, 2), Err(Status::DELAY), "all there are");
    let lock =
        |open, number: u32| a.client.held.locked(LockBy::New { open, owner: name(&number.to_string()) }, file(0));
    let locks: Vec<_> = (0..3).map(|number| lock(opened[0], number).unwrap()).collect();
    assert_eq!(lock(opened[0], 3), Err(Status::DELAY), "locks are counted apart");
    assert_eq!(a.client.held.counts(), [3, 3, 0]);
    for number in 0..3 {
        a.client.held.delegate(&a.record(), file(number), share(1, 0), 0).unwrap();
    }
    assert_eq!(a.client.held.delegate(&a.record(), file(9), share(1, 0), 0), Err(Status::DELAY));
    a.client.held.unlocked(locks[0], file(0), false).unwrap();
    a.client.held.free(StateId { sequence: 0, ..locks[0] }).unwrap();
    assert!(lock(opened[0], 3).is_ok());
    a.client.held.close(opened[1], file(1)).unwrap();
    assert!(open(&b, 2).is_ok(), "room again");
    // A state that was taken away counts until the client frees it: otherwise a client that loses everything has no
    // limit.
    a.client.held.revoke(opened[0].other, crate::nfs4::state::release::Why::Admin);
    assert_eq!(a.client.held.counts(), [2, 3, 3]);
    // When the client goes, all of it is free again.
    world.wait(LEASE + COURTESY + 1);
    world.sweep();
    let c = world.ready("c");
    assert!((0..3).all(|number| open(&c, number).is_ok()));
}

/// The names of owners of opens and lock stateids are bounded in bytes, for a client and for all.
///
/// proves: NFS4-LIMITS-NAMES-a
#[test]
fn names_of_owners_take_no_more_octets_than_their_share() {
    let world = World::with(Limits { names_of_client: 100, names: 150, ..limits() });
    let (a, b) = (world.ready("a"), world.ready("b"));
    let long = |octets: usize| "n".repeat(octets);
    let open =
        |guest: &Guest<'_>, octets, number| guest.open(&long(octets), number, share(3, 0)).map(|opened| opened.id);
    let lock = |guest: &Guest<'_>, open, octets| {
        guest.client.held.locked(LockBy::New { open, owner: name(&long(octets)) }, file(1))
    };
    let first = open(&a, 60, 1).unwrap();
    assert_eq!(open(&a, 41, 2), Err(Status::DELAY), "one past what a client may");
    assert_eq!(lock(&a, first, 41), Err(Status::DELAY), "locks and opens together");
    let locked = lock(&a, first, 40).unwrap();
    assert_eq!(open(&a, 1, 2), Err(Status::DELAY), "at the limit");
    assert!(open(&a, 60, 1).is_ok(), "the same again is no more");
    assert_eq!(a.client.held.counts(), [1, 1, 0], "what was refused is not counted");
    assert_eq!(open(&b, 51, 3), Err(Status::DELAY), "one past what all may");
    let other = open(&b, 50, 3).unwrap();
    assert_eq!(world.state.totals.counts(), [2, 1, 0]);
    // States that are freed, closed or taken away make room, exact to the byte.
    a.client.held.unlocked(locked, file(1), false).unwrap();
    a.client.held.free(StateId { sequence: 0, ..locked }).unwrap();
    assert_eq!((open(&a, 41, 2), open(&a, 40, 2).is_ok()), (Err(Status::DELAY), true));
    b.client.held.close(other, file(3)).unwrap();
    a.client.held.revoke(first.other, crate::nfs4::state::release::Why::Admin);
    assert_eq!(open(&b, 101, 4), Err(Status::DELAY));
    assert!(open(&b, 100, 4).is_ok());
    // When the client goes, all of it is free again, including states that were taken away.
    world.wait(LEASE + COURTESY + 1);
    world.sweep();
    drop((a, b));
    let c = world.ready("c");
    assert!(open(&c, 100, 5).is_ok());
    let d = world.ready("d");
    assert_eq!((open(&d, 51, 6), open(&d, 50, 6).is_ok()), (Err(Status::DELAY), true));
}
