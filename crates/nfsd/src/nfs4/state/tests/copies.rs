//! Copies of a client that go on after COPY's reply.

use super::{super::copies::*, *};
use rpcrdma_nfs::v4::ops::{Stability, WriteResponse};

const DONE: Ended =
    Ok(WriteResponse { callback: None, count: 9, committed: Stability::FileSync, verifier: Verifier([0; 8]) });

fn begin(guest: &Guest<'_>, number: u64) -> Option<Running> {
    guest.client.begin_copy(file(number), ROOT, guest.world.now()).unwrap()
}

/// proves: NFS4-LIMITS-COPIES-a
#[test]
fn a_client_has_so_many_copies_and_no_more() {
    let world = World::new();
    let (guest, other) = (world.ready("a"), world.ready("b"));
    let all: Vec<_> = (0..MAX_COPIES as u64).map(|number| begin(&guest, number).unwrap()).collect();
    assert!(begin(&guest, 9).is_none(), "one past it");
    assert!(begin(&other, 9).is_some(), "another's do not count");
    let id = all[0].copying.id;
    guest.client.cancel_copy(id, file(0), ROOT, world.now()).unwrap();
    assert!(begin(&guest, 9).is_none(), "it counts until it has stopped");
    guest.client.forget_copy(id.other);
    assert!(begin(&guest, 9).is_some());
    assert_eq!(guest.client.known_copies().len(), MAX_COPIES);
}

/// proves: NFS4-7862-4.8-a, NFS4-7862-4.8-b, NFS4-7862-4.1.2-a
#[test]
fn a_copy_is_known_by_its_stateid_and_its_file_until_it_is_cancelled() {
    let world = World::new();
    let (guest, other) = (world.ready("a"), world.ready("b"));
    let running = begin(&guest, 1).unwrap();
    let id = running.copying.id;
    let find = |id, number| guest.client.copy(id, file(number), world.now()).map(|copy| copy.id);
    assert_eq!(find(id, 1), Ok(id));
    assert_eq!(find(id, 2), Err(Status::BAD_STATEID), "of another file");
    assert_eq!(find(StateId { sequence: 0, ..id }, 1), Err(Status::BAD_STATEID), "there is no latest one");
    assert_eq!(find(StateId { sequence: 2, ..id }, 1), Err(Status::BAD_STATEID));
    assert_eq!(other.client.copy(id, file(1), world.now()).err(), Some(Status::BAD_STATEID));
    assert_eq!(guest.client.held.test(id), Status::BAD_STATEID, "it is no open");
    let user = Principal::unix(7);
    let cancel = |who| guest.client.cancel_copy(id, file(1), who, world.now()).map(|copy| copy.is_cancelled());
    assert_eq!(cancel(user), Err(Status::BAD_STATEID), "another user's");
    assert!(!running.copying.is_cancelled());
    assert_eq!(cancel(ROOT), Ok(true));
    assert_eq!((find(id, 1), cancel(ROOT)), (Err(Status::BAD_STATEID), Err(Status::BAD_STATEID)));
}

/// proves: NFS4-7862-15.9.3-a
#[test]
fn the_end_of_a_copy_is_known_for_a_while() {
    let world = World::new();
    let guest = world.ready("a");
    let running = begin(&guest, 1).unwrap();
    let id = running.copying.id;
    running.copying.add(9);
    let find = || guest.client.copy(id, file(1), world.now()).map(|copy| (copy.copied(), copy.outcome()));
    world.wait(2 * KEPT.as_secs());
    assert_eq!(find(), Ok((9, None)), "one that goes on is known for as long as it does");
    running.copying.end(world.now(), DONE);
    assert!(!running.copying.done());
    world.wait(KEPT.as_secs() - 1);
    assert_eq!(find(), Ok((9, Some(DONE))));
    world.wait(1);
    assert_eq!(find(), Err(Status::BAD_STATEID));
    assert_eq!(guest.client.known_copies().len(), 0);
}

#[test]
fn what_has_ended_is_forgotten_when_it_is_cancelled() {
    let world = World::new();
    let guest = world.ready("a");
    let running = begin(&guest, 1).unwrap();
    running.copying.end(world.now(), Err(Status::NOSPC));
    assert!(!running.copying.done());
    guest.client.cancel_copy(running.copying.id, file(1), ROOT, world.now()).unwrap();
    assert_eq!(guest.client.known_copies().len(), 0);
}

#[test]
fn what_is_cancelled_counts_until_nobody_does_anything_for_it() {
    let world = World::new();
    let guest = world.ready("a");
    let copies: Vec<_> = (0..MAX_COPIES).map(|_| begin(&guest, 1).unwrap().copying.clone()).collect();
    for copying in &copies {
        copying.end(world.now(), DONE);
        guest.client.cancel_copy(copying.id, file(1), ROOT, world.now()).unwrap();
    }
    assert!(begin(&guest, 1).is_none(), "the client is being told of as many as it may have");
    assert!(copies[0].done(), "it is to be forgotten");
    guest.client.forget_copy(copies[0].id.other);
    assert!(begin(&guest, 1).is_some());
}

/// At least one of the two tasks sees the other, and forgets the copy.
#[test]
fn a_copy_that_is_cancelled_while_it_is_done_is_forgotten_by_one_of_both() {
    let world = World::new();
    let guest = world.ready("a");
    for _ in 0..2_000 {
        let copying = begin(&guest, 1).unwrap().copying.clone();
        copying.end(world.now(), DONE);
        let (client, now) = (&guest.client, world.now());
        std::thread::scope(|scope| {
            scope.spawn(|| {
                if copying.done() {
                    client.forget_copy(copying.id.other);
                }
            });
            scope.spawn(|| client.cancel_copy(copying.id, file(1), ROOT, now).unwrap());
        });
        assert_eq!(client.known_copies().len(), 0);
    }
}

#[test]
fn whoever_cancels_waits_until_nothing_is_written() {
    let world = World::new();
    let guest = world.ready("a");
    let running = begin(&guest, 1).unwrap();
    let copying = running.copying.clone();
    let mut stopped = Box::pin(copying.stopped());
    let mut poll = || stopped.as_mut().poll(&mut std::task::Context::from_waker(std::task::Waker::noop())).is_ready();
    assert!(!poll());
    drop(running);
    assert!(poll());
}

#[test]
fn no_state_gets_the_name_of_a_copy() {
    let world = World::new();
    let guest = world.ready("a");
    let names: Vec<_> = (0..3)
        .flat_map(|number| {
            let open = guest.open("o", number, share(1, 0)).unwrap().id.other;
            [open, begin(&guest, number).unwrap().copying.id.other]
        })
        .collect();
    let mut unique = names.clone();
    unique.sort_by_key(|name| name.0);
    unique.dedup();
    assert_eq!(unique.len(), names.len());
}

#[test]
fn a_client_that_is_no_more_copies_nothing() {
    let world = World::new();
    let guest = world.ready("a");
    guest.client.held.release_all();
    assert!(guest.client.held.is_ended());
    assert_eq!(guest.client.begin_copy(file(1), ROOT, world.now()).err(), Some(Status::EXPIRED));
}
