//! Restarts, reclaims, and disks that refuse.

use super::super::tests::{COURTESY, Guest, LEASE, World, at, file, limits, share, who};
use super::*;
use crate::nfs4::state::{
    Loss, Taken,
    exchange::ExchangeId,
    release::{Release, Why},
};
use rpcrdma_nfs::v4::{StateId, Verifier};
use std::time::Duration;

/// A server after a restart; before it, clients with these names had an open file each.
fn after(owners: &[&str]) -> World {
    let world = World::new();
    for (number, owner) in owners.iter().enumerate() {
        let guest = world.ready(owner);
        guest.open("o", number as u64, share(1, 0)).unwrap();
    }
    world.restart()
}

fn reclaim(guest: &Guest<'_>) -> Result<(), Status> {
    guest.world.state.recovery.reclaim(&guest.client, guest.world.now()).map(drop)
}

fn fresh(guest: &Guest<'_>) -> Result<(), Status> {
    guest.world.state.recovery.fresh(&guest.client)
}

fn complete(guest: &Guest<'_>) -> Result<(), Status> {
    guest.world.state.recovery.complete(&guest.client, guest.world.now())
}

fn is_grace(world: &World) -> bool {
    world.state.recovery.is_grace()
}

/// proves: NFS4-8881-18.51-a, NFS4-8881-18.51-b
#[test]
fn without_records_there_is_no_grace_but_a_client_completes_first() {
    let world = World::new();
    assert!(!is_grace(&world));
    let guest = world.client("a");
    assert_eq!((fresh(&guest), reclaim(&guest)), (Err(Status::GRACE), Err(Status::NO_GRACE)));
    assert_eq!(complete(&guest), Ok(()));
    assert_eq!((fresh(&guest), complete(&guest)), (Ok(()), Err(Status::COMPLETE_ALREADY)));
}

/// proves: NFS4-8881-8.4.2.1-a, NFS4-8881-8.4.2.1-b, NFS4-8881-18.51-c
#[test]
fn grace_is_over_when_all_that_are_known_have_completed() {
    let world = after(&["a", "b"]);
    let (a, stranger) = (world.client("a"), world.client("c"));
    assert_eq!((complete(&stranger), fresh(&stranger)), (Ok(()), Err(Status::GRACE)));
    assert_eq!((reclaim(&a), complete(&a), reclaim(&a)), (Ok(()), Ok(()), Err(Status::NO_GRACE)));
    assert_eq!((is_grace(&world), fresh(&a)), (true, Err(Status::GRACE)), "b is awaited");
    let b = world.client("b");
    assert_eq!((reclaim(&b), complete(&b)), (Ok(()), Ok(())));
    assert_eq!((is_grace(&world), fresh(&a), fresh(&b), fresh(&stranger)), (false, Ok(()), Ok(()), Ok(())));
    // The next server knows all of them.
    let next = world.restart();
    assert!(["a", "b", "c"].iter().all(|owner| reclaim(&next.client(owner)).is_ok()));
}

/// proves: NFS4-8881-8.4.2.1-a
#[test]
fn grace_is_over_after_its_time_and_not_before() {
    let world = after(&["a", "b"]);
    let a = world.client("a");
    complete(&a).unwrap();
    world.wait(LEASE - 1);
    world.sweep();
    assert!(is_grace(&world));
    world.wait(1);
    world.sweep();
    assert!(!is_grace(&world));
    assert_eq!(fresh(&a), Ok(()));
}

/// Two clients come in the last second: one reclaims without a pause, the other does nothing.
///
/// proves: NFS4-8881-8.4.2.1-d
#[test]
fn grace_goes_on_while_somebody_reclaims_for_a_lease_more_at_most() {
    let world = after(&["a", "b"]);
    world.wait(LEASE - 1);
    let a = world.client("a");
    for second in LEASE - 1..2 * LEASE {
        world.sweep();
        assert!(is_grace(&world), "at {second}");
        assert_eq!(reclaim(&a), Ok(()), "at {second}");
        world.wait(1);
    }
    world.sweep();
    assert_eq!((is_grace(&world), reclaim(&a)), (false, Err(Status::NO_GRACE)));
    // One reclaim, and then silence.
    let world = after(&["a", "b"]);
    let a = world.client("a");
    world.wait(LEASE - 1);
    assert_eq!(reclaim(&a), Ok(()));
    world.wait(1);
    world.sweep();
    assert!(is_grace(&world));
    world.wait(1);
    world.sweep();
    assert!(!is_grace(&world));
    // A refused reclaim does not count.
    let world = after(&["a", "b"]);
    let stranger = world.client("c");
    world.wait(LEASE - 1);
    assert_eq!(reclaim(&stranger), Err(Status::RECLAIM_BAD));
    world.wait(1);
    world.sweep();
    assert!(!is_grace(&world));
}

/// proves: NFS4-8881-8.4.2.1-c
#[test]
fn grace_lasts_as_long_as_the_lease_of_before() {
    let world = after(&["a"]);
    let short = Limits { lease: Duration::from_secs(1), grace: Duration::from_secs(1), ..limits() };
    let world = World::on(world.platter.crashed(), short, 50);
    world.wait(LEASE - 1);
    world.sweep();
    assert!(is_grace(&world));
    world.wait(1);
    world.sweep();
    assert!(!is_grace(&world));
}

/// proves: NFS4-8881-8.4.3-b
#[test]
fn who_was_late_once_reclaims_neither_then_nor_after_the_next_restart() {
    let world = after(&["a", "b"]);
    let b = world.client("b");
    reclaim(&b).unwrap();
    b.open("o", 1, share(1, 0)).unwrap();
    world.wait(LEASE);
    world.sweep();
    assert_eq!((reclaim(&b), fresh(&b)), (Err(Status::NO_GRACE), Err(Status::GRACE)));
    assert_eq!(reclaim(&world.client("a")), Err(Status::NO_GRACE));
    let known = |world: &World, owner: &'static str| world.state.recovery.known(&Bytes::from_static(owner.as_bytes()));
    assert_eq!((known(&world, "a"), known(&world, "b")), (None, None));
    // It has reclaimed only a part of what it held: after a crash it is in the same state as before it completes.
    assert!(!is_grace(&world.restart()), "nobody is known");
    complete(&b).unwrap();
    let next = world.restart();
    assert_eq!((reclaim(&next.client("b")), reclaim(&next.client("a"))), (Ok(()), Err(Status::RECLAIM_BAD)));
}

/// proves: NFS4-8881-15.1.9.4-a
#[test]
fn who_held_nothing_or_is_another_principal_reclaims_nothing() {
    let world = after(&["a"]);
    assert_eq!(reclaim(&world.client("x")), Err(Status::RECLAIM_BAD));
    let other = ExchangeId { principal: Principal::unix(7), ..who("a") };
    assert_eq!(world.exchange(&other).err(), Some(Status::CLID_INUSE), "the name is awaited");
    let again = ExchangeId { verifier: Verifier([9; 8]), ..who("a") };
    assert_eq!(reclaim(&world.guest(&again)), Ok(()), "its verifier may be another");
    world.wait(LEASE);
    world.sweep();
    assert!(world.exchange(&ExchangeId { principal: Principal::unix(7), ..who("b") }).is_ok());
}

/// proves: NFS4-8881-8.4.3-a
#[test]
fn who_lost_something_reclaims_nothing_until_it_has_taken_note() {
    let world = World::new();
    let a = world.ready("a");
    let lost = a.open("o", 1, share(3, 0)).unwrap();
    a.open("o", 2, share(3, 0)).unwrap();
    world.wait(LEASE + 1);
    let writes = world.platter.writes();
    let taken = world.state.take_from(&[a.client.id()], file(1), world.now()).unwrap();
    assert!(matches!(taken, Taken::Gone(released) if released.len() == 1));
    assert_eq!(world.platter.writes(), writes + 1, "before it is told");
    assert_eq!(reclaim(&world.restart().client("a")), Err(Status::NO_GRACE));
    // The client is back, and frees what it has lost.
    a.call().unwrap();
    assert_eq!(world.state.free_stateid(&a.client, lost.id), Ok(true), "that was all");
    world.state.recovery.write_waiting();
    assert_eq!(reclaim(&world.restart().client("a")), Ok(()));
}

/// Another client looked for a file that was no longer held.
#[test]
fn who_loses_nothing_in_the_end_may_reclaim() {
    let world = World::new();
    let a = world.ready("a");
    let kept = a.open("o", 1, share(3, 0)).unwrap().id;
    let revoke = |other| {
        let loss = Loss { client: a.client.clone(), states: vec![other], why: Why::Admin };
        world.state.revoke(&[loss], world.now()).map(|released| released[0].len())
    };
    let unknown = rpcrdma_nfs::v4::StateIdOther([9; 12]);
    assert_eq!(revoke(unknown), Ok(0));
    assert_eq!(reclaim(&world.restart().client("a")), Ok(()));
    world.wait(LEASE + 1);
    assert_eq!(world.state.take_from(&[a.client.id()], file(2), world.now()), Ok(Taken::Gone(vec![])));
    assert_eq!(reclaim(&world.restart().client("a")), Ok(()));
    world.platter.fail(Some(0));
    assert_eq!(revoke(kept.other), Err(Status::SERVERFAULT));
    assert_eq!(a.client.held.test(kept), Status::OK);
    world.platter.fail(None);
    let writes = world.platter.writes();
    assert_eq!(revoke(kept.other), Ok(1));
    assert!(world.platter.writes() > writes);
    let other = a.open("o", 3, share(1, 0)).unwrap().id;
    world.platter.fail(Some(0));
    assert_eq!(revoke(other.other), Ok(1), "the disk says it already");
    assert_eq!(reclaim(&world.restart().client("a")), Err(Status::NO_GRACE));
}

/// proves: NFS4-8881-8.4.3-a
#[test]
fn what_many_lose_is_written_at_once_and_what_the_disk_says_not_again() {
    let world = World::new();
    let clients = ["a", "b", "c"].map(|owner| world.ready(owner));
    let opens = clients.each_ref().map(|client| [1, 2].map(|file| client.open("o", file, share(1, 0)).unwrap().id));
    let losses = |at: usize, why| {
        let loss = |(client, opens): (&Guest<'_>, &[StateId; 2])| {
            let states = vec![opens[at].other];
            Loss { client: client.client.clone(), states, why }
        };
        clients.iter().zip(&opens).map(loss).collect::<Vec<_>>()
    };
    let revoke = |losses: &[Loss<u32>]| {
        let released = world.state.revoke(losses, world.now()).unwrap();
        released.iter().map(Vec::len).sum::<usize>()
    };
    let writes = world.platter.writes();
    assert_eq!(revoke(&losses(0, Why::Expired)), 0, "they are there");
    assert_eq!(world.platter.writes(), writes + 2, "that they are about to lose something, and that they have not");
    assert_eq!(revoke(&losses(0, Why::NotReturned)), 3);
    assert_eq!(world.platter.writes(), writes + 3, "for all of them");
    world.wait(LEASE + 1);
    assert_eq!(revoke(&losses(1, Why::Expired)), 3);
    world.sweep();
    assert_eq!(world.platter.writes(), writes + 3, "the disk says so");
    assert_eq!(reclaim(&world.restart().client("b")), Err(Status::NO_GRACE));
}

/// It frees what it has lost at the moment in which it loses something else.
///
/// proves: NFS4-8881-8.4.3-a
#[test]
fn who_takes_note_while_it_loses_more_reclaims_nothing() {
    let world = World::new();
    let a = world.ready("a");
    let held = &a.client.held;
    let [first, second] = [1, 2].map(|file| a.open("o", file, share(1, 0)).unwrap().id);
    let loss = |id: StateId| [Loss { client: a.client.clone(), states: vec![id.other], why: Why::Admin }];
    world.state.revoke(&loss(first), world.now()).unwrap();
    world.state.free_stateid(&a.client, first).unwrap();
    assert_eq!(held.revoke(second.other, Why::Admin).len(), 1);
    world.sweep();
    assert_eq!(reclaim(&world.restart().client("a")), Err(Status::NO_GRACE), "it was noted before it was lost");
}

/// The client has not acknowledged a loss from before the restart, and another client looks for more.
#[test]
fn what_was_lost_before_a_restart_is_not_forgiven_by_a_conflict_over_nothing() {
    let world = World::new();
    world.ready("b").open("o", 2, share(3, 0)).unwrap();
    let a = world.ready("a");
    a.open("o", 1, share(3, 0)).unwrap();
    world.wait(LEASE + 1);
    world.state.take_from(&[a.client.id()], file(1), world.now()).unwrap();
    let world = world.restart();
    let a = world.client("a");
    world.wait(LEASE - 1);
    world.client("b").call().unwrap();
    assert_eq!(world.state.take_from(&[a.client.id()], file(1), world.now()), Ok(Taken::Stays));
    world.wait(2);
    assert_eq!(world.state.take_from(&[a.client.id()], file(1), world.now()), Ok(Taken::Gone(vec![])));
    assert_eq!(world.state.recovery.known(&Bytes::from_static(b"a")).map(|known| known.revoked), Some(true));
}

/// The server is forgetting late clients on a slow disk while one of them comes: it is either complete and known, or
/// neither.
#[test]
fn completing_and_the_end_of_the_grace_period_do_not_cross() {
    for _ in 0..200 {
        let world = after(&["a", "b"]);
        let a = world.client("a");
        world.wait(LEASE);
        let (state, now) = (&world.state, world.now());
        std::thread::scope(|scope| {
            scope.spawn(|| state.sweep(now));
            let client = a.client.clone();
            scope.spawn(move || state.recovery.complete(&client, now).unwrap());
        });
        assert!(a.client.is_complete() && !is_grace(&world));
        assert!(world.state.recovery.known(&Bytes::from_static(b"a")).is_some(), "it may open files now");
        assert!(world.state.recovery.known(&Bytes::from_static(b"b")).is_none());
    }
}

/// proves: NFS4-8881-8.4.3-a
#[test]
fn a_client_that_has_taken_no_note_gets_a_new_beginning_by_completing() {
    let world = World::new();
    let a = world.ready("a");
    a.open("o", 1, share(3, 0)).unwrap();
    world.wait(LEASE + 1);
    world.state.take_from(&[a.client.id()], file(1), world.now()).unwrap();
    let b = world.ready("b");
    b.open("o", 1, share(3, 0)).unwrap();
    let next = world.restart();
    let (a, b) = (next.client("a"), next.client("b"));
    assert_eq!((reclaim(&a), complete(&a), complete(&b)), (Err(Status::NO_GRACE), Ok(()), Ok(())));
    assert!(!is_grace(&next), "nobody waits for who may not reclaim");
    assert_eq!(reclaim(&next.restart().client("a")), Ok(()), "what it holds by then");
}

/// proves: NFS4-8881-8.4.3-c
#[test]
fn a_damaged_journal_lets_nobody_reclaim() {
    let world = after(&["a"]);
    let mut octets = world.platter.octets();
    *octets.last_mut().unwrap() ^= 1;
    let mut platter = world.platter.crashed();
    Store::replace(&mut platter, &octets).unwrap();
    let world = World::on(platter, limits(), 0);
    let a = world.client("a");
    assert_eq!((is_grace(&world), reclaim(&a)), (false, Err(Status::NO_GRACE)));
    assert_eq!((complete(&a), fresh(&a)), (Ok(()), Ok(())));
}

/// The server first forgets, on the disk, a client that is gone for longer than the courtesy.
///
/// proves: NFS4-8881-8.4.3-a
#[test]
fn a_full_disk_takes_nothing_from_anybody_and_gives_nothing_to_anybody() {
    let world = World::new();
    let a = world.ready("a");
    let held = a.open("o", 1, share(3, 0)).unwrap();
    let b = world.client("b");
    for partial in [0, 7, 1_000] {
        world.platter.fail(Some(partial));
        assert_eq!(complete(&b), Err(Status::SERVERFAULT));
        assert_eq!(world.state.recovery.record(&b.client).err(), Some(Status::SERVERFAULT));
        assert_eq!((b.client.is_complete(), world.state.recovery.recorded(&b.client).is_none()), (false, true));
    }
    world.wait(LEASE + COURTESY + 1);
    assert_eq!(world.state.take_from(&[a.client.id()], file(1), world.now()), Err(Status::SERVERFAULT));
    assert_eq!(world.sweep(), []);
    assert_eq!(a.client.held.test(held.id), Status::OK);
    assert!(world.state.client(a.client.id()).is_ok());
    world.platter.fail(None);
    let released: Vec<Release<u32>> = world.sweep();
    assert_eq!((released.len(), world.state.client(a.client.id()).err()), (1, Some(Status::STALE_CLIENTID)));
    assert!(world.state.recovery.known(&Bytes::from_static(b"a")).is_none());
    assert_eq!(a.call(), Err(Status::BADSESSION));
}

/// proves: NFS4-8881-8.4.3-b
#[test]
fn grace_goes_on_while_the_disk_refuses_to_forget_the_late() {
    let world = after(&["a", "b"]);
    let b = world.client("b");
    complete(&b).unwrap();
    world.wait(LEASE);
    world.platter.fail(Some(0));
    world.sweep();
    assert_eq!((is_grace(&world), fresh(&b)), (true, Err(Status::GRACE)));
    world.platter.fail(None);
    world.sweep();
    assert_eq!((is_grace(&world), fresh(&b)), (false, Ok(())));
    assert_eq!(reclaim(&world.restart().client("a")), Err(Status::RECLAIM_BAD));
}

#[test]
fn one_server_at_a_time_has_the_journal_of_a_state_directory() {
    let scratch = tempfile::tempdir().unwrap();
    let open = |path: &Path| Recovery::open((path, None), 1_000, at(0), &limits());
    let first = open(scratch.path()).unwrap();
    assert!(matches!(open(scratch.path()), Err(JournalError::InUse { .. })));
    drop(first);
    assert_eq!(open(scratch.path()).unwrap().epoch(), 1_001);
    assert!(matches!(open(Path::new("/proc/nowhere")), Err(JournalError::Io { .. })));
    // A directory takes the journal's place.
    std::fs::remove_file(scratch.path().join("v4-clients")).unwrap();
    std::fs::create_dir(scratch.path().join("v4-clients")).unwrap();
    assert!(matches!(open(scratch.path()), Err(JournalError::Io { .. })));
}

/// proves: NFS4-JOURNAL-a
#[test]
fn servers_that_share_a_state_directory_have_a_journal_each() {
    let scratch = tempfile::tempdir().unwrap();
    let open = |server, seconds| Recovery::open((scratch.path(), server), seconds, at(0), &limits());
    let (one, other) = (open(Some(1), 1_000).unwrap(), open(Some(2), 2_000).unwrap());
    assert_eq!((one.epoch(), other.epoch()), (1_000, 2_000));
    assert!(matches!(open(Some(1), 1_000), Err(JournalError::InUse { .. })));
    drop((one, other));
    assert_eq!(open(Some(1), 1_000).unwrap().epoch(), 1_001, "its own is found again");
    assert_eq!(open(Some(2), 2_000).unwrap().epoch(), 2_001);
}

#[test]
fn a_client_that_ends_itself_is_not_awaited_after_a_restart() {
    let world = World::new();
    let a = world.ready("a");
    a.world.state.destroy_session(a.session(), a.connection).unwrap();
    world.state.destroy_client(a.client.id()).unwrap();
    world.sweep();
    assert!(!is_grace(&world.restart()));
    // But an unconfirmed record says nothing of what its owner held.
    let world = after(&["a"]);
    let unconfirmed = world.exchange(&who("a")).unwrap().client;
    world.state.destroy_client(unconfirmed).unwrap();
    world.sweep();
    assert!(is_grace(&world) && reclaim(&world.client("a")).is_ok());
}
