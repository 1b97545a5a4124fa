//! Byte ranges: one rule at a time. `model.rs` tests all rules together.

use super::*;

/// proves: NFS4-8881-18.10.3-c, NFS4-8881-18.11.3-a
#[test]
fn who_is_in_the_way_is_told() {
    let claims = claims();
    let (first, second) = (owner(1, "a"), owner(2, "a"));
    claims.lock_as(file(1), &first, range(10, 19), Kind::Read).unwrap();
    claims.lock_as(file(1), &first, range(20, u64::MAX), Kind::Write).unwrap();
    let by = LockedBy::Holder(first.clone());
    for (wanted, kind, found, found_kind) in [
        (range(0, 10), Kind::Write, range(10, 19), Kind::Read),
        (range(19, 20), Kind::Read, range(20, u64::MAX), Kind::Write),
        (range(u64::MAX, u64::MAX), Kind::Read, range(20, u64::MAX), Kind::Write),
    ] {
        let expected = Denied { range: found, kind: found_kind, by: by.clone() };
        assert_eq!(denied(claims.test(&request(file(1), &second, wanted, kind))), expected);
        assert_eq!(denied(claims.lock_as(file(1), &second, wanted, kind)), expected);
        // An owner is not in its own way.
        claims.test(&request(file(1), &first, wanted, kind)).unwrap();
    }
    claims.test(&request(file(1), &second, range(0, 19), Kind::Read)).unwrap();
    claims.test(&request(file(1), &second, range(0, 9), Kind::Write)).unwrap();
    claims.test(&request(file(2), &second, Range::ALL, Kind::Write)).unwrap();
    assert_eq!(claims.held_by(second.client()), (0, 0), "a test and what is denied lock nothing");
    claims.unlock_all(file(1), &first);
    assert!(claims.is_empty());
}

/// proves: NFS4-8881-9.3-a
#[test]
fn an_upgrade_that_is_denied_takes_nothing_away() {
    let claims = claims();
    let (first, second) = (owner(1, "a"), owner(1, "b"));
    for holder in [&first, &second] {
        claims.lock_as(file(1), holder, range(0, 9), Kind::Read).unwrap();
    }
    let before = claims.owned(file(1));
    denied(claims.lock_as(file(1), &first, range(5, 14), Kind::Write));
    assert_eq!(claims.owned(file(1)).len(), before.len());
    assert!(before.iter().all(|lock| claims.owned(file(1)).contains(lock)));
    claims.unlock(file(1), &second, range(5, 9)).unwrap();
    claims.lock_as(file(1), &first, range(5, 14), Kind::Write).unwrap();
    denied(claims.lock_as(file(1), &second, range(14, 14), Kind::Read));
    // From write back to read: other owners can read at once.
    claims.lock_as(file(1), &first, range(0, 20), Kind::Read).unwrap();
    claims.lock_as(file(1), &second, range(0, 20), Kind::Read).unwrap();
    assert_eq!(claims.held_by(first.client()), (0, 2), "what touches is one range");
}

/// proves: NFS4-8881-9.2-a
#[test]
fn a_part_can_be_unlocked_and_what_is_not_locked_too() {
    let claims = claims();
    let holder = owner(1, "a");
    claims.unlock(file(1), &holder, Range::ALL).unwrap();
    claims.lock_as(file(1), &holder, Range::ALL, Kind::Write).unwrap();
    claims.unlock(file(1), &holder, range(u64::MAX, u64::MAX)).unwrap();
    claims.unlock(file(1), &holder, range(0, 0)).unwrap();
    claims.unlock(file(1), &holder, range(10, 19)).unwrap();
    let mut left = claims.owned(file(1));
    left.sort_by_key(|(_, range, _)| range.first());
    let write = |first, last| (holder.clone(), range(first, last), Kind::Write);
    assert_eq!(left, [write(1, 9), write(20, u64::MAX - 1)]);
    claims.unlock(file(1), &holder, range(3, u64::MAX)).unwrap();
    assert_eq!(claims.owned(file(1)), [write(1, 2)]);
    claims.unlock(file(1), &holder, Range::ALL).unwrap();
    assert!(claims.is_empty());
}

#[test]
fn a_client_is_released_and_only_that_one() {
    let claims = claims();
    let mut shares = Vec::new();
    for client in 1..=3 {
        for number in 0..20 {
            let holder = owner(client, &format!("{number}"));
            shares.push(claims.share(file(number), &holder, Access::READ, Deny::NONE).unwrap());
            claims.lock_as(file(number), &holder, range(client * 10, client * 10 + 5), Kind::Write).unwrap();
            claims.lock_as(file(number), &holder, range(1000, 2000), Kind::Read).unwrap();
        }
    }
    claims.release_client(Client::V4(2));
    assert_eq!([1, 2, 3].map(|client| claims.held_by(Client::V4(client))), [(20, 40), (0, 0), (20, 40)]);
    assert_eq!(shares.iter().filter(|share| share.modes().is_some()).count(), 40);
    for number in 0..20 {
        assert!(claims.owned(file(number)).iter().all(|(holder, ..)| holder.client() != Client::V4(2)));
    }
    [1, 3].into_iter().for_each(|client| claims.release_client(Client::V4(client)));
    assert!(claims.is_empty());
}

#[test]
fn what_an_owner_has_of_a_range_is_told_in_order() {
    let claims = claims();
    let (own, other) = (owner(1, "a"), owner(2, "a"));
    claims.lock_as(file(1), &own, range(20, 29), Kind::Write).unwrap();
    claims.lock_as(file(1), &own, range(0, 9), Kind::Read).unwrap();
    claims.lock_as(file(1), &other, range(0, 9), Kind::Read).unwrap();
    assert_eq!(
        claims.ranges_of(file(1), &own, range(5, 24)),
        [(range(5, 9), Kind::Read), (range(20, 24), Kind::Write)]
    );
    assert_eq!(claims.ranges_of(file(1), &own, range(10, 19)), []);
    assert_eq!(claims.ranges_of(file(2), &own, Range::ALL), []);
    claims.unlock_all(file(1), &own);
    claims.unlock_all(file(1), &other);
    assert!(claims.is_empty(), "asking leaves nothing behind");
}
