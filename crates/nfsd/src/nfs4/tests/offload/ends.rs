//! What ends a copy early, and what does not.

use super::*;

/// proves: NFS4-COPY-ENDS-a
#[test]
fn a_copy_ends_with_the_opens_that_it_was_asked_for_with() {
    for closes_source in [true, false] {
        let mut world = World::new();
        let state = world.begin();
        world.steps.hold();
        world.drive();
        let end = if closes_source { &world.from } else { &world.to };
        assert_eq!(close(&world.client, &end.0, end.1), Status::OK);
        world.steps.go_on();
        world.drive();
        assert_eq!(world.status(state), Ok((MIB, Some(Status::BAD_STATEID))), "the next piece was not made");
    }
}

/// A recall that another client causes must not end a copy: Linux asks for copies by the delegation that it has.
/// proves: NFS4-COPY-ENDS-a
#[test]
fn a_copy_outlives_the_delegation_that_it_was_asked_for_with_but_not_the_open() {
    for is_closed in [false, true] {
        let mut world = World::new();
        let (file, open) = world.from.clone();
        let commit = Args::Commit(ops::Commit { offset: 0, count: 0 });
        assert_eq!(world.client.on(&file, commit).status(), Status::OK);
        assert_eq!(close(&world.client, &file, open), Status::OK);
        let (open, delegation) = delegated(&world.client, "from", READ);
        world.from.1 = delegation;
        let state = world.begin();
        world.steps.hold();
        world.drive();
        assert_eq!(give_back(&world.client, &file, delegation), Status::OK);
        if is_closed {
            assert_eq!(close(&world.client, &file, open), Status::OK);
        }
        world.steps.go_on();
        world.drive();
        let ended = if is_closed { (MIB, Some(Status::BAD_STATEID)) } else { (6 * MIB, Some(Status::OK)) };
        assert_eq!(world.status(state), Ok(ended));
    }
}

/// proves: NFS4-COPY-ENDS-a
#[test]
fn a_copy_ends_when_its_open_may_write_no_more() {
    let mut world = World::new();
    let (_, writing) = open(&world.client, "to", "p", WRITE, 0).unwrap();
    let (_, both) = open(&world.client, "to", "p", READ, 0).unwrap();
    assert_eq!(writing.other, both.other);
    world.to.1 = both;
    let state = world.begin();
    world.steps.hold();
    world.drive();
    downgrade(&world.client, &world.to.0, both, READ, 0).unwrap();
    world.steps.go_on();
    world.drive();
    assert_eq!(world.status(state), Ok((MIB, Some(Status::OPENMODE))));
}

/// If another OPEN changes the sequence number of an open, it is still the same open.
#[test]
fn a_copy_goes_on_when_its_open_is_opened_again() {
    let mut world = World::new();
    let state = world.begin();
    let (_, again) = open(&world.client, "to", "o", BOTH, 0).unwrap();
    assert_eq!((again.other, again.sequence), (world.to.1.other, 2));
    world.drive();
    assert_eq!(world.status(state), Ok((6 * MIB, Some(Status::OK))));
}

/// proves: NFS4-COPY-ENDS-a
#[test]
fn a_copy_ends_when_another_denies_what_it_does_without_an_open() {
    let mut world = World::new();
    world.to.1 = StateId::ANONYMOUS;
    let again = open(&world.client, "to", "o", BOTH | ops::share::WANT_NONE, 0).unwrap().1;
    close(&world.client, &world.to.0, again);
    let state = world.begin();
    world.steps.hold();
    world.drive();
    world.steps.go_on();
    world.steps.hold();
    world.drive();
    assert_eq!(world.status(state), Ok((MIB, None)));
    world.steps.go_on();
    let other = world.server.client("b");
    open(&other, "to", "o", READ, WRITE).unwrap();
    world.drive();
    assert_eq!(world.status(state), Ok((2 * MIB, Some(Status::LOCKED))));
}

/// proves: NFS4-COPY-ENDS-a
#[test]
fn a_copy_ends_with_its_client() {
    let mut world = World::new();
    // With these stateids, no open of the client could end the copy.
    (world.from.1, world.to.1) = (StateId::ANONYMOUS, StateId::ANONYMOUS);
    world.begin();
    world.steps.hold();
    world.drive();
    let former = world.server.shared().state.client(world.client.id).unwrap();
    world.steps.go_on();
    // The client has restarted.
    let client = world.server.client_as("a", 2, 0, 2);
    client.reclaim_complete();
    assert!(former.held.is_ended());
    world.drive();
    let (file, _) = open(&client, "to", "o", READ, 0).unwrap();
    assert_eq!(super::space::size(&client, &file), MIB);
    assert_eq!(former.known_copies().len(), 0);
}

/// proves: NFS4-COPY-ENDS-a
#[test]
fn a_copy_is_not_known_after_a_restart() {
    let world = World::new();
    let state = world.begin();
    let World { server, driver, client, .. } = world;
    // Work that goes on ends with the driver.
    drop((driver, client));
    let server = server.restart();
    let client = server.client_as("a", 2, 0, 2);
    client.reclaim_complete();
    let (file, _) = open(&client, "to", "o", BOTH, 0).unwrap();
    assert_eq!(status(&client, &file, state), Err(Status::BAD_STATEID));
}

/// The source is truncated while it is copied.
#[test]
fn a_copy_ends_where_its_source_does() {
    let mut world = World::new();
    let state = world.begin();
    std::fs::File::options()
        .write(true)
        .open(world.server.served().join("from"))
        .unwrap()
        .set_len(2 * MIB + 5)
        .unwrap();
    world.drive();
    assert_eq!(world.status(state), Ok((2 * MIB + 5, Some(Status::OK))));
}
