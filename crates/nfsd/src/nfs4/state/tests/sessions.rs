//! CREATE_SESSION, DESTROY_SESSION and the connections of a session.

use super::*;
use crate::nfs4::state::{
    connections::{Ask, Direction},
    flags,
};
use rpcrdma_nfs::v4::ops::create_session::CONN_BACK_CHAN as BACK;

/// proves: NFS4-8881-18.36-a, NFS4-8881-18.36-d, NFS4-8881-18.36-f
#[test]
fn a_session_confirms_its_client() {
    let world = World::new();
    assert_eq!(world.create(ClientId(1_000 << 32 | 5), 1).0, Err(Status::STALE_CLIENTID));
    let client = world.exchange(&who("a")).unwrap();
    let created = world.create(client.client, client.sequence).0.unwrap();
    assert_eq!((created.sequence, created.flags), (1, BACK));
    assert_eq!((created.fore, created.back), (channel(4), channel(2)));
    assert_eq!(world.exchange(&who("a")).unwrap().flags >> 31, 1, "confirmed");
    assert_eq!(&created.session.0[..4], &1_000u32.to_be_bytes());
}

/// proves: NFS4-8881-18.36-f
#[test]
fn flags_are_given_only_if_they_were_asked_for_and_can_be() {
    let world = World::new();
    let client = world.exchange(&who("a")).unwrap().client;
    let with = |sequence, flags, can_call| {
        let call = CreateSession { flags, can_call, ..creation(client, sequence) };
        world.state.create_session(&call, world.now()).0.map(|created| created.flags)
    };
    assert_eq!(with(1, 7, true), Ok(BACK), "neither a lasting cache nor a step up");
    assert_eq!([with(2, 7, false), with(3, 0, true)], [Ok(0); 2]);
    assert_eq!(with(4, 8, true), Err(Status::INVAL));
}

/// proves: NFS4-8881-18.36-b
#[test]
fn a_repeated_create_session_makes_one_session() {
    let world = World::new();
    let client = world.exchange(&who("a")).unwrap().client;
    assert_eq!(world.create(client, 0).0, Err(Status::SEQ_MISORDERED), "nothing to repeat");
    assert_eq!(world.create(client, 2).0, Err(Status::SEQ_MISORDERED));
    let first = world.create(client, 1).0;
    assert!(first.is_ok());
    assert_eq!([world.create(client, 1).0, world.create(client, 1).0], [first; 2]);
    let second = world.create(client, 2).0;
    assert_ne!(second.unwrap().session, first.unwrap().session);
    assert_eq!(world.create(client, 1).0, Err(Status::SEQ_MISORDERED), "older than the last");
    let record = world.state.client(client).unwrap();
    assert_eq!(world.state.sessions_of(&record).len(), 2);
    // The server remembers a failure, too.
    let bad = CreateSession { flags: 8, ..creation(client, 3) };
    let create = |call: &CreateSession| world.state.create_session(call, world.now()).0;
    assert_eq!(create(&bad), Err(Status::INVAL));
    assert_eq!(world.create(client, 3).0, Err(Status::INVAL), "the number stands for what it was used for");
    assert!(world.create(client, 4).0.is_ok());
    assert_eq!(world.exchange(&who("a")).unwrap().sequence, 5);
}

/// proves: NFS4-8881-18.36-c
#[test]
fn another_principal_confirms_no_record_and_makes_sessions_of_one_that_is_confirmed() {
    let world = World::new();
    let client = world.exchange(&who("a")).unwrap().client;
    let other = |sequence| CreateSession { principal: Principal::unix(7), ..creation(client, sequence) };
    let create = |call: &CreateSession| world.state.create_session(call, world.now()).0;
    assert_eq!(create(&other(1)), Err(Status::CLID_INUSE));
    assert_eq!(world.exchange(&who("a")).unwrap().flags >> 31, 0, "not confirmed by it");
    let client = world.exchange(&who("a")).unwrap().client;
    world.create(client, 1).0.unwrap();
    let other = |sequence| CreateSession { principal: Principal::unix(7), ..creation(client, sequence) };
    assert!(create(&other(2)).is_ok(), "without state protection any principal uses the record");
    assert!(world.create(client, 3).0.is_ok());
    // That a former incarnation's record is confirmed does not confirm a later one's.
    let later = world.exchange(&ExchangeId { verifier: Verifier([2; 8]), ..who("a") }).unwrap().client;
    let other = |sequence| CreateSession { principal: Principal::unix(7), ..creation(later, sequence) };
    assert_eq!([create(&other(1)), create(&other(2))], [Err(Status::CLID_INUSE); 2]);
    assert!(world.create(later, 1).0.is_ok(), "its number is still the next");
}

/// proves: NFS4-8881-18.36-e
#[test]
fn a_create_session_that_fails_leaves_the_records_as_they_are() {
    let world = World::new();
    let guest = world.ready("a");
    let opened = guest.open("o", 1, share(1, 0)).unwrap();
    let later = ExchangeId { verifier: Verifier([2; 8]), ..who("a") };
    let client = world.exchange(&later).unwrap().client;
    let narrow = Channel { response: 10, ..channel(4) };
    let call = CreateSession { fore: narrow, ..creation(client, 1) };
    let (created, released) = world.state.create_session(&call, world.now());
    assert_eq!((created, released), (Err(Status::TOOSMALL), vec![]));
    for (sequence, flags) in [(2, BACK), (3, 0)] {
        let call = CreateSession { back: narrow, flags, ..creation(client, sequence) };
        assert_eq!(world.state.create_session(&call, world.now()).0, Err(Status::TOOSMALL), "{flags}");
    }
    assert_eq!(guest.client.held.test(opened.id), Status::OK);
    assert!(guest.call().is_ok());
    assert_eq!(world.exchange(&who("a")).unwrap().client, guest.client.id(), "still the confirmed one");
}

/// For clients that count a refused call, and for clients that do not.
///
/// proves: NFS4-8881-18.36-l, NFS4-8881-18.36-j
#[test]
fn a_create_session_that_was_too_small_is_sent_again_with_its_number_or_the_next() {
    for next in [1, 2] {
        let world = World::new();
        let client = world.exchange(&who("a")).unwrap().client;
        let small = CreateSession { back: Channel { request: 10, ..channel(2) }, ..creation(client, 1) };
        let create = |call: &CreateSession| world.state.create_session(call, world.now()).0;
        assert_eq!([create(&small), create(&small)], [Err(Status::TOOSMALL); 2]);
        let created = world.create(client, next).0;
        assert!(created.is_ok());
        assert_eq!(world.create(client, next).0, created, "from now on it stands for that");
        assert_eq!(create(&CreateSession { sequence: next, ..small }), created);
        assert_eq!(world.state.sessions_of(&world.state.client(client).unwrap()).len(), 1);
    }
}

/// proves: NFS4-8881-18.37-a
#[test]
fn a_session_is_destroyed_over_a_connection_of_its_own_and_takes_no_state_along() {
    let world = World::new();
    let guest = world.ready("a");
    let opened = guest.open("o", 1, share(1, 0)).unwrap();
    let destroy = |connection| world.state.destroy_session(guest.session(), connection);
    assert_eq!(destroy(9), Err(Status::CONN_NOT_BOUND_TO_SESSION));
    let Begin::New(running) = guest.begin(&request(1, 1)).unwrap() else { panic!() };
    assert_eq!((destroy(guest.connection), destroy(guest.connection)), (Ok(()), Err(Status::BADSESSION)));
    running.finish(&Bytes::from_static(b"done").into(), world.now());
    assert_eq!(guest.call(), Err(Status::BADSESSION));
    assert_eq!(guest.client.held.test(opened.id), Status::OK);
    assert!(world.state.is_live(&guest.client, world.now()));
    let next = world.create(guest.client.id(), 2).0.unwrap();
    assert!(world.state.begin(next.session, &request(0, 1), 9, world.now()).is_ok());
}

/// proves: NFS4-8881-18.46-f
#[test]
fn a_lost_back_channel_is_told_until_there_is_one_again() {
    let world = World::new();
    let guest = world.client("a");
    let second = world.create(guest.client.id(), 2).0.unwrap().session;
    let told = |session, slot| {
        let Ok(Begin::New(guard)) = world.state.begin(session, &request(slot, 1), 50, world.now()) else { panic!() };
        guard.told().flags
    };
    assert_eq!((told(guest.session(), 0), told(second, 0)), (0, 0));
    world.state.connection_ended(guest.connection);
    assert_eq!((told(guest.session(), 1), told(second, 1)), (flags::CB_PATH_DOWN_SESSION, 0));
    world.state.connection_ended(1);
    let down = flags::CB_PATH_DOWN | flags::CB_PATH_DOWN_SESSION;
    assert_eq!((told(guest.session(), 2), told(second, 2)), (down, down));
    let bind = |session, ask| world.state.bind_connection(session, 50, ask, true);
    assert_eq!(
        bind(guest.session(), Ask::BackOrBoth),
        Ok(Direction::Both),
        "SEQUENCE brought it without a back channel"
    );
    assert_eq!((told(guest.session(), 3), told(second, 3)), (0, flags::CB_PATH_DOWN_SESSION));
    let session = world.state.session(guest.session()).unwrap();
    assert_eq!(session.back_connections(), [50]);
    assert_eq!(bind(SessionId([7; 16]), Ask::Fore), Err(Status::BADSESSION));
}

#[test]
fn a_session_that_never_had_a_back_channel_misses_none() {
    let world = World::new();
    let client = world.exchange(&who("a")).unwrap().client;
    let call = CreateSession { can_call: false, ..creation(client, 1) };
    let session = world.state.create_session(&call, world.now()).0.unwrap().session;
    let Ok(Begin::New(guard)) = world.state.begin(session, &request(0, 1), 1, world.now()) else { panic!() };
    assert_eq!(guard.told().flags, 0);
}

/// When clients go, in whatever way, their sessions, connections and memory are free again.
#[test]
fn nothing_is_left_of_clients_that_are_gone() {
    let world = World::new();
    let gone = world.client("a");
    let left = world.client("b");
    for connection in 200..300 {
        world
            .state
            .begin(gone.session(), &request(0, connection as u32 - 199), connection, world.now())
            .map(drop)
            .unwrap();
    }
    assert!(world.state.sessions.connections() <= 2 * world.state.limits().connections);
    world.state.destroy_session(gone.session(), 299).unwrap();
    world.state.connection_ended(left.connection);
    assert_eq!(world.state.sessions.connections(), 0);
    assert_eq!(world.state.budget.used(), 4 * 1_024, "four slots of the other");
    world.wait(LEASE + COURTESY + 1);
    world.sweep();
    assert_eq!(world.state.budget.used(), 0);
}
