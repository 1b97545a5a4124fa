//! The sequence numbers of owners: which call is next, which is a repetition, which uses a number up, and when an owner
//! is forgotten.

use super::*;
use crate::nfs4::state::{
    owners::Opening,
    tests::{LEASE, at, file, limits, name, share},
};
use rpcrdma_nfs::v4::{ClientId, StateId};

fn known(digest: u64, status: Status) -> Remembered {
    Remembered { digest, outcome: Outcome::failed(Op::Open, status), file: None }
}

/// proves: NFS4-7530-9.1.7-a, NFS4-7530-9.1.9-a, NFS4-7530-9.1.9-b
#[test]
fn a_number_is_the_next_one_or_the_last_that_comes_again() {
    let mut sequence = Sequence::default();
    for number in [0, 1, 77, u32::MAX] {
        assert!(matches!(sequence.check(number, 1), Ok(None)), "any number is the first: {number}");
    }
    for last in [5, u32::MAX, 0] {
        sequence.start_over();
        sequence.executed(last, known(1, Status::NOENT), at(1));
        assert!(matches!(sequence.check(last.wrapping_add(1), 1), Ok(None)));
        let again = sequence.check(last, 1).unwrap().unwrap();
        assert_eq!(again.outcome.status(), Status::NOENT);
        for wrong in [last.wrapping_add(2), last.wrapping_sub(1), last ^ 0x8000_0000] {
            assert_eq!(sequence.check(wrong, 1).err(), Some(Status::BAD_SEQID), "{wrong} after {last}");
        }
        assert_eq!(sequence.check(last, 2).err(), Some(Status::BAD_SEQID), "something else by the same number");
    }
}

/// proves: NFS4-7530-9.1.7-b
#[test]
fn eight_statuses_use_no_number_up_and_all_others_do() {
    let none = [
        Status::STALE_CLIENTID,
        Status::STALE_STATEID,
        Status::BAD_STATEID,
        Status::BAD_SEQID,
        Status::BADXDR,
        Status::RESOURCE,
        Status::NOFILEHANDLE,
        Status::MOVED,
    ];
    for status in Status::ALL.iter().filter(|status| **status != Status::OK) {
        let mut sequence = Sequence::default();
        sequence.executed(7, known(1, Status::NOENT), at(1));
        sequence.executed(8, known(2, *status), at(1));
        let is_used = matches!(sequence.check(9, 3), Ok(None));
        assert_eq!(is_used, !none.contains(status), "{status}");
        assert_eq!(matches!(sequence.check(8, 3), Ok(None)), !is_used, "{status}");
    }
}

fn owners(limits: Limits) -> (Owners, Held<u32>, Arc<Totals>) {
    let (limits, totals) = (Arc::new(limits), Arc::new(Totals::default()));
    let held = Held::new(ClientId(1), limits.clone(), totals.clone()).of_minor(0);
    (Owners::new(limits, totals.clone()), held, totals)
}

/// proves: NFS4-KEPT-a
#[test]
fn owners_are_limited_by_client_and_in_all() {
    let each = OWNER_BYTES + 1;
    let small = Limits { owners_of_client: 3 * each, owners: 4 * each, ..limits() };
    let (owners, _, totals) = owners(small.clone());
    let other = Owners::new(Arc::new(small), totals);
    let get = |owners: &Owners, what, text| owners.get(what, &name(text)).map(drop);
    assert_eq!(get(&owners, OwnerOf::Opens, "a"), Ok(()));
    assert_eq!(get(&owners, OwnerOf::Locks, "a"), Ok(()), "another owner");
    assert_eq!(get(&owners, OwnerOf::Opens, "b"), Ok(()));
    assert_eq!(get(&owners, OwnerOf::Opens, "c"), Err(Status::DELAY), "one more than the client may have");
    assert_eq!(get(&owners, OwnerOf::Opens, "a"), Ok(()), "who is known stays known");
    assert_eq!(get(&other, OwnerOf::Opens, "x"), Ok(()));
    assert_eq!(get(&other, OwnerOf::Opens, "y"), Err(Status::DELAY), "one more than all may have");
    owners.forget_locker(&name("a"));
    assert_eq!(get(&other, OwnerOf::Opens, "y"), Ok(()));
    drop(owners);
    assert_eq!(get(&other, OwnerOf::Opens, "z"), Ok(()), "what a client had is free when it is gone");
}

fn open(held: &Held<u32>, owner: &str, number: u64) -> StateId {
    let recorded = crate::nfs4::state::grace::Recorded::for_tests();
    let opening = Opening { owner: name(owner), file: file(number), share: share(1, 0), pin: number as u32 };
    held.open(&recorded, opening).unwrap().id
}

async fn use_at(owner: &StateOwner, number: u32, seconds: u64) -> Turn {
    let mut turn = owner.turn().await;
    turn.executed(number, known(1, Status::OK), at(seconds));
    turn
}

/// proves: NFS4-7530-9.1.10-a, NFS4-7530-16.18-c
#[tokio::test]
async fn owners_that_hold_nothing_are_forgotten_a_lease_after_their_last_use() {
    let (owners, held, _) = owners(limits());
    let get = |text| owners.get(OwnerOf::Opens, &name(text)).unwrap();
    let (idle, busy) = (get("idle"), get("busy"));
    drop(use_at(&idle, 1, 100).await);
    drop(use_at(&busy, 1, 100).await);
    open(&held, "busy", 1);
    let mut turn = use_at(&get("unconfirmed"), 1, 100).await;
    let waits = open(&held, "unconfirmed", 2).other;
    held.wait_for_confirmation(waits);
    turn.unconfirmed = Some(waits);
    drop(turn);
    drop((idle, busy));
    assert!(owners.sweep(&held, at(100 + LEASE)).is_empty());
    assert_eq!(owners.counts(), (3, 0), "not within a lease");
    let released = owners.sweep(&held, at(101 + LEASE + LEASE / 2));
    assert_eq!((released.len(), owners.counts()), (1, (1, 0)), "the open that nobody confirmed is taken back");
    assert!(matches!(get("idle").turn().await.check(77, 1), Ok(None)), "it is as new");
    assert_eq!(get("busy").turn().await.check(77, 1).err(), Some(Status::BAD_SEQID), "who has something open is not");
}

/// proves: NFS4-7530-9.1.10-a
#[tokio::test]
async fn an_owner_that_somebody_waits_for_is_not_forgotten() {
    let (owners, held, _) = owners(limits());
    let owner = owners.get(OwnerOf::Locks, &name("a")).unwrap();
    drop(use_at(&owner, 1, 0).await);
    owners.sweep(&held, at(1_000));
    assert_eq!(owners.counts(), (0, 1));
    drop(owner);
    owners.sweep(&held, at(2_000));
    assert_eq!(owners.counts(), (0, 0));
}

/// proves: NFS4-7530-9.1.7-a
#[tokio::test]
async fn an_owner_does_one_thing_after_the_other() {
    let (owners, _, _) = owners(limits());
    let owner = owners.get(OwnerOf::Opens, &name("a")).unwrap();
    let turn = owner.turn().await;
    let again = owners.get(OwnerOf::Opens, &name("a")).unwrap();
    let mut waits = at_once(again.turn());
    assert!(waits.is_none(), "it waits");
    drop(turn);
    waits = at_once(again.turn());
    assert!(waits.is_some());
    let other = owners.get(OwnerOf::Opens, &name("b")).unwrap();
    assert!(at_once(other.turn()).is_some(), "and for nobody else");
}

/// The output of a future that need not wait.
fn at_once<T>(future: impl Future<Output = T>) -> Option<T> {
    use futures_util::FutureExt as _;
    future.now_or_never()
}

/// proves: NFS4-7530-9.1.10-b
#[tokio::test]
async fn the_owner_of_what_was_closed_last_is_known_by_it() {
    let (owners, _, _) = owners(limits());
    let owner = owners.get(OwnerOf::Opens, &name("a")).unwrap();
    let (one, two) = (StateIdOther([1; 12]), StateIdOther([2; 12]));
    let mut turn = owner.turn().await;
    owners.closed(&owner, &mut turn, one);
    assert_eq!(owners.closer_of(one).map(|owner| owner.name.clone()), Some(name("a")));
    owners.closed(&owner, &mut turn, two);
    assert!(owners.closer_of(one).is_none(), "only the last");
    assert!(owners.closer_of(two).is_some());
}
