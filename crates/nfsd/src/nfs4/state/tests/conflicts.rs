//! Clients that are away: what they keep, and what other clients take from them.

use super::*;
use crate::nfs4::state::{
    Taken, flags,
    owners::LockBy,
    release::{Released, Why},
};

fn take(world: &World, from: &Guest<'_>, number: u64) -> Taken<u32> {
    world.state.take_from(&[from.client.id()], file(number), world.now()).unwrap()
}

/// proves: NFS4-8881-8.4.3-d
#[test]
fn state_outlives_the_lease_until_somebody_else_asks_for_it() {
    let world = World::new();
    let guest = world.ready("a");
    let [first, second] = [1, 2].map(|number| guest.open("o", number, share(3, 0)).unwrap().id);
    world.wait(LEASE);
    assert_eq!(take(&world, &guest, 1), Taken::Stays, "its lease runs");
    world.wait(1);
    assert_eq!(world.sweep(), [], "a courtesy");
    assert!(matches!(take(&world, &guest, 3), Taken::Gone(released) if released.is_empty()), "holds nothing there");
    let Taken::Gone(released) = take(&world, &guest, 1) else { panic!("its lease is over") };
    assert_eq!(
        released.iter().map(|release| (release.file, release.other)).collect::<Vec<_>>(),
        [(file(1), first.other)]
    );
    assert_eq!([first, second].map(|id| guest.client.held.test(id)), [Status::EXPIRED, Status::OK]);
    guest.call().unwrap();
    assert_eq!(take(&world, &guest, 2), Taken::Stays, "it is back");
    assert!(world.sweep().is_empty() && guest.call().is_ok());
}

/// proves: NFS4-8881-8.4.3-d
#[test]
fn the_courtesy_ends_and_everything_is_given_back() {
    let world = World::new();
    let guest = world.ready("a");
    let open = guest.open("o", 1, share(3, 0)).unwrap().id;
    let lock = guest.client.held.locked(LockBy::New { open, owner: name("l") }, file(1)).unwrap();
    guest.client.held.delegate(&guest.record(), file(2), share(1, 0), 9).unwrap();
    world.wait(LEASE + COURTESY);
    assert_eq!(world.sweep(), []);
    world.wait(1);
    let released = world.sweep();
    assert_eq!((released.len(), &released[0].what), (3, &Released::Lock(name("l"))));
    assert_eq!(released[0].other, lock.other, "locks come before their opens");
    let pins = released.iter().filter_map(|release| match &release.what {
        Released::Open(_, pins) => Some(pins[0]),
        Released::Delegation(pin) => Some(*pin),
        Released::Lock(_) => None,
    });
    let mut pins: Vec<u32> = pins.collect();
    pins.sort_unstable();
    assert_eq!(pins, [1, 9]);
    assert_eq!((world.sweep(), guest.call()), (vec![], Err(Status::BADSESSION)));
}

/// proves: NFS4-8881-18.46-e, NFS4-8881-8.2.4-b
#[test]
fn sequence_tells_what_was_lost_until_it_is_freed() {
    let world = World::new();
    let guest = world.ready("a");
    let held = &guest.client.held;
    let [expired, admin] = [1, 2].map(|number| guest.open("o", number, share(3, 0)).unwrap().id);
    let lock = held.locked(LockBy::New { open: expired, owner: name("l") }, file(1)).unwrap();
    let delegation = held.delegate(&guest.record(), file(3), share(1, 0), 9).unwrap();
    assert_eq!(guest.call().unwrap().flags, 0);
    world.wait(LEASE + 1);
    assert!(matches!(take(&world, &guest, 1), Taken::Gone(released) if released.len() == 2));
    assert_eq!(held.revoke(admin.other, Why::Admin).len(), 1);
    assert_eq!(held.revoke(delegation.other, Why::NotReturned).len(), 1);
    let (some, administrator, recallable) =
        (flags::EXPIRED_SOME_STATE_REVOKED, flags::ADMIN_STATE_REVOKED, flags::RECALLABLE_STATE_REVOKED);
    let ids = [lock, expired, admin, delegation];
    let statuses = [Status::EXPIRED, Status::EXPIRED, Status::ADMIN_REVOKED, Status::DELEG_REVOKED];
    assert_eq!(ids.map(|id| held.test(id)), statuses);
    let left = [some | administrator | recallable, administrator | recallable, recallable, 0];
    let mut frees = Vec::new();
    assert_eq!(guest.call().unwrap().flags, left[0]);
    for (id, left) in ids.into_iter().zip([left[0], left[1], left[2], left[3]]) {
        frees.push(held.free(id).unwrap());
        assert_eq!(guest.call().unwrap().flags, left, "{id:?}");
        assert_eq!((held.test(id), held.free(id)), (Status::BAD_STATEID, Err(Status::BAD_STATEID)));
    }
    assert_eq!(frees, [false, false, false, true], "the last one");
    assert_eq!(held.counts(), [0, 0, 0]);
}

/// proves: NFS4-8881-18.38-c, NFS4-8881-18.46-e
#[test]
fn who_frees_an_open_that_was_taken_away_frees_the_locks_that_went_with_it() {
    let world = World::new();
    let guest = world.ready("a");
    let held = &guest.client.held;
    let [first, second] = [1, 2].map(|number| guest.open("o", number, share(3, 0)).unwrap().id);
    let lock = |open, owner, number| held.locked(LockBy::New { open, owner: name(owner) }, file(number)).unwrap();
    let [one, two, other] = [lock(first, "l", 1), lock(first, "m", 1), lock(second, "l", 2)];
    world.wait(LEASE + 1);
    assert!(matches!(take(&world, &guest, 1), Taken::Gone(released) if released.len() == 3));
    assert_eq!(guest.call().unwrap().flags, flags::EXPIRED_SOME_STATE_REVOKED);
    assert_eq!(held.free(one), Ok(false));
    assert_eq!(held.test(two), Status::EXPIRED, "a lock goes alone");
    assert_eq!(held.free(first), Ok(true), "and an open with its locks");
    assert_eq!(guest.call().unwrap().flags, 0);
    assert_eq!([first, one, two].map(|id| held.test(id)), [Status::BAD_STATEID; 3]);
    assert_eq!([second, other].map(|id| held.test(id)), [Status::OK; 2], "what was not taken away stays");
    assert_eq!(held.counts(), [1, 1, 0]);
}

/// The client's lease is over when the conflict is found, and it comes back before anything is taken.
#[test]
fn who_comes_back_in_time_loses_nothing() {
    let world = World::new();
    let guest = world.ready("a");
    let id = guest.open("o", 1, share(3, 0)).unwrap().id;
    world.wait(LEASE + COURTESY + 1);
    let Begin::New(running) = guest.begin(&request(1, 1)).unwrap() else { panic!() };
    world.wait(LEASE + COURTESY + 1);
    assert_eq!(take(&world, &guest, 1), Taken::Stays, "a COMPOUND runs");
    assert_eq!((world.sweep(), guest.client.held.test(id)), (vec![], Status::OK));
    drop(running);
    assert!(matches!(take(&world, &guest, 1), Taken::Gone(released) if released.len() == 1));
}
