//! Opens and locks by their owners, and checks of stateids.

use super::*;
use crate::nfs4::state::{checked::Wanted, owners::LockBy, release::Released};
use rpcrdma_nfs::v4::{StateId, StateIdOther};

fn with(id: StateId, sequence: u32) -> StateId {
    StateId { sequence, ..id }
}

/// proves: NFS4-8881-9.7-a
#[test]
fn a_share_is_of_read_and_write_and_has_some_access() {
    for access in 0..=5 {
        for deny in 0..=5 {
            let fits = (1..=3).contains(&access) && deny <= 3;
            assert_eq!(Share::new(access, deny).err(), (!fits).then_some(Status::INVAL), "{access} {deny}");
        }
    }
    assert_eq!(Share::new(257, 0), Err(Status::INVAL));
}

/// proves: NFS4-8881-9.9-a, NFS4-8881-8.2.2-c
#[test]
fn an_owner_has_one_open_of_a_file_which_grows() {
    let world = World::new();
    let guest = world.ready("a");
    let first = guest.open("o", 1, share(1, 0)).unwrap();
    assert_eq!((first.id.sequence, first.share), (1, share(1, 0)));
    let second = guest.open("o", 1, share(2, 1)).unwrap();
    assert_eq!((second.id, second.share), (with(first.id, 2), share(3, 1)));
    let third = guest.open("o", 1, share(1, 0)).unwrap();
    assert_eq!((third.id, third.share), (with(first.id, 3), share(3, 1)), "also when nothing is added");
    for other in [guest.open("p", 1, share(1, 0)).unwrap(), guest.open("o", 2, share(1, 0)).unwrap()] {
        assert_ne!(other.id.other, first.id.other);
        assert_eq!(other.id.sequence, 1);
    }
    assert_eq!(guest.client.held.counts(), [3, 0, 0]);
    let checked = guest.client.held.check(third.id, file(1), Wanted::Any).unwrap();
    assert_eq!((checked.pin(1), checked.pin(2), checked.pin(3)), (Some(&1), Some(&1), None), "one pin for each");
}

/// proves: NFS4-8881-18.18-a, NFS4-8881-18.18-b
#[test]
fn a_downgrade_goes_to_what_some_of_the_opens_asked_for() {
    let world = World::new();
    let guest = world.ready("a");
    let held = &guest.client.held;
    let opened = guest.open("o", 1, share(3, 0)).unwrap();
    let down =
        |sequence, to| held.downgrade(with(opened.id, sequence), file(1), to).map(|(id, pins)| (id.sequence, pins));
    assert_eq!(down(1, share(1, 0)), Err(Status::INVAL), "nobody asked for READ alone");
    guest.open("o", 1, share(1, 2)).unwrap();
    assert_eq!(down(2, share(2, 0)), Err(Status::INVAL));
    assert_eq!(down(2, share(1, 1)), Err(Status::INVAL));
    assert_eq!(down(2, share(3, 2)), Ok((3, vec![])), "as it is");
    assert_eq!(down(3, share(1, 2)), Ok((4, vec![1])), "the pin of the first open goes");
    assert_eq!(down(4, share(3, 0)), Err(Status::INVAL), "no way back up");
    let checked = held.check(with(opened.id, 0), file(1), Wanted::Open).unwrap();
    assert_eq!((checked.share, checked.pin(1), checked.pin(2)), (share(1, 2), Some(&1), None));
    // Two opens together.
    let opened = guest.open("o", 2, share(1, 0)).unwrap();
    guest.open("o", 2, share(2, 0)).unwrap();
    let down = |to| held.downgrade(with(opened.id, 0), file(2), to).map(|(id, pins)| (id.sequence, pins));
    assert_eq!(down(share(3, 0)), Ok((3, vec![])));
    assert_eq!(down(share(2, 0)), Ok((4, vec![2])));
}

/// proves: NFS4-8881-18.2-a
#[test]
fn a_close_ends_one_open_and_its_locks() {
    let world = World::new();
    let guest = world.ready("a");
    let held = &guest.client.held;
    let closed = guest.open("o", 1, share(3, 0)).unwrap().id;
    let other = guest.open("p", 1, share(3, 0)).unwrap().id;
    let locks = [closed, other].map(|open| held.locked(LockBy::New { open, owner: name("l") }, file(1)).unwrap());
    let released = held.close(closed, file(1)).unwrap();
    let what: Vec<_> = released.into_iter().map(|release| (release.client, release.other, release.what)).collect();
    let expected = [(locks[0].other, Released::Lock(name("l"))), (closed.other, Released::Open(name("o"), vec![1]))];
    assert_eq!(what, expected.map(|(other, what)| (guest.client.id(), other, what)));
    assert_eq!([closed, locks[0]].map(|id| held.test(id)), [Status::BAD_STATEID; 2]);
    assert_eq!([other, locks[1]].map(|id| held.test(id)), [Status::OK; 2]);
    assert_eq!(held.close(closed, file(1)), Err(Status::BAD_STATEID));
    let again = guest.open("o", 1, share(1, 0)).unwrap();
    assert_ne!(again.id.other, closed.other, "a name is used once");
    assert_eq!((again.id.sequence, again.share), (1, share(1, 0)));
}

/// proves: NFS4-8881-8.2.1-a, NFS4-8881-8.2.2-c
#[test]
fn the_locks_of_an_owner_under_an_open_have_one_stateid_that_counts() {
    let world = World::new();
    let guest = world.ready("a");
    let held = &guest.client.held;
    let open = guest.open("o", 1, share(3, 0)).unwrap().id;
    let first = held.locked(LockBy::New { open, owner: name("l") }, file(1)).unwrap();
    assert_eq!(first.sequence, 1);
    assert_eq!(held.locked(LockBy::Known(first), file(1)), Ok(with(first, 2)));
    assert_eq!(held.locked(LockBy::Known(first), file(1)), Err(Status::OLD_STATEID));
    assert_eq!(held.unlocked(with(first, 2), file(1), true), Ok(with(first, 3)));
    assert_eq!(held.locked(LockBy::New { open, owner: name("l") }, file(1)), Ok(with(first, 4)), "said to be new");
    let other = held.locked(LockBy::New { open, owner: name("m") }, file(1)).unwrap();
    assert_ne!(other.other, first.other);
    let checked = held.check(with(first, 0), file(1), Wanted::Lock).unwrap();
    assert_eq!((checked.owner, checked.share, checked.id), (Some(name("l")), share(3, 0), with(first, 4)));
    assert_eq!(checked.kind, Wanted::Lock);
    assert_eq!(held.counts(), [1, 2, 0]);
}

/// proves: NFS4-8881-18.38-a, NFS4-8881-18.38-b
#[test]
fn a_stateid_is_freed_when_it_stands_for_nothing() {
    let world = World::new();
    let guest = world.ready("a");
    let held = &guest.client.held;
    let open = guest.open("o", 1, share(3, 0)).unwrap().id;
    let lock = held.locked(LockBy::New { open, owner: name("l") }, file(1)).unwrap();
    let delegation = held.delegate(&guest.record(), file(1), share(1, 0), 5).unwrap();
    for id in [open, lock, delegation] {
        assert_eq!(held.free(id), Err(Status::LOCKS_HELD));
        assert_eq!(held.test(id), Status::OK);
    }
    let lock = held.unlocked(lock, file(1), false).unwrap();
    assert_eq!(held.free(with(lock, 1)), Err(Status::OLD_STATEID));
    assert_eq!(held.free(lock), Ok(false));
    assert_eq!([held.test(lock), held.free(lock).err().unwrap()], [Status::BAD_STATEID; 2]);
    let next = held.locked(LockBy::New { open, owner: name("l") }, file(1)).unwrap();
    assert_ne!(next.other, lock.other);
    assert!(matches!(&held.undelegate(delegation, file(1)).unwrap()[0].what, Released::Delegation(5)));
    assert_eq!(held.counts(), [1, 1, 0]);
}

/// proves: NFS4-8881-8.2.4-a, NFS4-8881-8.2.2-a
#[test]
fn a_stateid_is_worth_something_for_its_file_client_and_kind_only() {
    let world = World::new();
    let (guest, other) = (world.ready("a"), world.ready("b"));
    let held = &guest.client.held;
    let open = guest.open("o", 1, share(3, 0)).unwrap().id;
    guest.open("o", 1, share(3, 0)).unwrap();
    let open = with(open, 2);
    let lock = held.locked(LockBy::New { open, owner: name("l") }, file(1)).unwrap();
    let delegation = held.delegate(&guest.record(), file(1), share(1, 0), 5).unwrap();
    let ids = [(open, Wanted::Open), (lock, Wanted::Lock), (delegation, Wanted::Delegation)];
    for (id, kind) in ids {
        for wanted in [Wanted::Any, Wanted::Open, Wanted::Lock, Wanted::Delegation] {
            let expected = (wanted != Wanted::Any && wanted != kind).then_some(Status::BAD_STATEID);
            assert_eq!(held.check(id, file(1), wanted).err(), expected, "{kind:?} as {wanted:?}");
        }
        assert_eq!(held.check(id, file(2), Wanted::Any).err(), Some(Status::BAD_STATEID));
        assert_eq!(other.client.held.check(id, file(1), Wanted::Any).err(), Some(Status::BAD_STATEID));
        assert_eq!(held.check(with(id, 0), file(1), Wanted::Any).err(), None);
        assert_eq!(held.check(with(id, 9), file(1), Wanted::Any).err(), Some(Status::BAD_STATEID));
    }
    let old = Some(Status::OLD_STATEID);
    assert_eq!(held.check(with(open, 1), file(1), Wanted::Any).err(), old);
    assert_eq!(held.close(with(open, 1), file(1)).err(), old);
    assert_eq!(held.downgrade(with(open, 1), file(1), share(3, 0)).err(), old);
    for made_up in [StateId::ANONYMOUS, StateId::BYPASS, StateId::CURRENT, StateId::INVALID] {
        assert_eq!(held.check(made_up, file(1), Wanted::Any).err(), Some(Status::BAD_STATEID));
    }
    assert_eq!(held.counts(), [1, 1, 1], "nothing has changed");
}

/// proves: NFS4-8881-18.48-a
#[test]
fn test_stateid_tells_what_each_stateid_is_worth() {
    let world = World::new();
    let guest = world.ready("a");
    let held = &guest.client.held;
    let open = guest.open("o", 1, share(3, 0)).unwrap().id;
    guest.open("o", 1, share(3, 0)).unwrap();
    let unknown = StateId { sequence: 1, other: StateIdOther([3; 12]) };
    let ids = [with(open, 0), with(open, 2), open, with(open, 3), unknown, StateId::ANONYMOUS, StateId::CURRENT];
    let (bad, fine) = (Status::BAD_STATEID, Status::OK);
    assert_eq!(ids.map(|id| held.test(id)), [fine, fine, Status::OLD_STATEID, bad, bad, bad, bad]);
}

/// A decoder returns parts of whole messages, and an open must not keep a message in memory.
#[test]
fn names_are_kept_apart_from_the_messages_they_came_in() {
    let world = World::new();
    let guest = world.ready("a");
    let message = Bytes::from(vec![b'x'; 1 << 20]);
    let owner = OwnerName(message.slice(100..110));
    let opening = Opening { owner, file: file(1), share: share(1, 0), pin: 1 };
    guest.client.held.open(&guest.record(), opening).unwrap();
    assert!(message.is_unique(), "nothing refers to the message");
}
